"""Values of a norm that an activation's gradient reads are made again in the backward pass, not
kept."""

from copy import deepcopy

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*isinstance.*LeafSpec.*"),
]
CHANNELS, IMAGES = 40, (2, 3, 9, 11)
NORMS = {
    "batch": lambda: nn.BatchNorm2d(CHANNELS),
    "batch without weights": lambda: nn.BatchNorm2d(CHANNELS, affine=False),
    "batch without statistics": lambda: nn.BatchNorm2d(CHANNELS, track_running_stats=False),
    "groups": lambda: nn.GroupNorm(4, CHANNELS),
    "groups without weights": lambda: nn.GroupNorm(4, CHANNELS, affine=False),
    "layer": lambda: nn.LayerNorm((CHANNELS, 7, 9)),
}
ACTIVATIONS = (nn.SiLU, nn.Hardswish, nn.ReLU6, nn.GELU, nn.Mish, nn.ELU, nn.LeakyReLU)


def make_model(norm: str = "batch", activation=nn.SiLU):
    """A norm and an activation between two convolutions; no number of it is the same for all."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, CHANNELS, 3), NORMS[norm](), activation(), nn.Conv2d(CHANNELS, 8, 1)
    )
    with torch.no_grad():
        for parameter in model[1].parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def results_of(model, call, images, between=None):
    """The result and the gradients of images and parameters; `between` is done between passes."""
    model.zero_grad()
    images = images.clone().requires_grad_()
    y = call(images)
    loss = (y * torch.linspace(-1, 1, y.numel()).reshape(y.shape)).sum()
    if between is not None:
        between(model)
    loss.backward()
    return [y.detach(), images.grad, *(p.grad.clone() for p in model.parameters())]


def check_as_eager(model, images, between=None, rtol=1e-4, atol=2e-5, **options):
    torch._dynamo.reset()
    eager, call = deepcopy(model), torch.compile(model, backend="glasshouse", **options)
    ours = results_of(model, call, images, between)
    for x, y in zip(ours, results_of(eager, eager, images, between), strict=True):
        torch.testing.assert_close(x, y, rtol=rtol, atol=atol)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("activation", [nn.SiLU, nn.Hardswish])
def test_gradients_behind_each_norm_are_those_of_eager(norm, activation):
    check_as_eager(make_model(norm, activation), torch.randn(IMAGES))


@pytest.mark.filterwarnings("ignore:.*is left to PyTorch")
@pytest.mark.parametrize("norm", NORMS)
def test_a_graph_that_is_left_to_pytorch_makes_norms_again(norm, monkeypatch):
    from glasshouse.torch.backend import runtime

    def refuse(*_):
        raise NotImplementedError

    monkeypatch.setattr(runtime, "make_variant", refuse)
    check_as_eager(make_model(norm), torch.randn(IMAGES))


@pytest.mark.slow
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_of_each_activation_are_those_of_eager(activation):
    check_as_eager(make_model(activation=activation), torch.randn(IMAGES))


def test_an_activation_may_write_over_the_norm():
    check_as_eager(make_model(activation=lambda: nn.SiLU(inplace=True)), torch.randn(IMAGES))


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["batch", "groups"])
def test_sizes_may_vary(norm):
    check_as_eager(make_model(norm), torch.randn(IMAGES), dynamic=True)


def test_running_statistics_are_those_of_eager():
    images, statistics = torch.randn(IMAGES), []
    for compiles in (True, False):
        model = make_model()
        call = torch.compile(model, backend="glasshouse") if compiles else model
        results_of(model, call, images)
        statistics.append((model[1].running_mean, model[1].running_var))
    torch.testing.assert_close(*statistics)


@pytest.mark.parametrize("norm", ["batch", "groups"])
def test_a_bias_may_be_written_to_before_the_backward_pass(norm):
    """Eager does not keep it."""

    def write(model):
        with torch.no_grad():
            model[1].bias.mul_(2)

    check_as_eager(make_model(norm), torch.randn(IMAGES), write)


class Narrow(nn.Module):
    """Computes in bfloat16."""

    def __init__(self):
        super().__init__()
        self.inside = make_model()

    def forward(self, images):
        with torch.autocast("cpu", torch.bfloat16):
            return self.inside(images).float()


@pytest.mark.slow
def test_narrow_floats_are_made_again_as_wide_as_before():
    torch._dynamo.reset()
    model, images = Narrow(), torch.randn(IMAGES)
    exact = results_of(model.inside, model.inside, images)
    ours = results_of(model, torch.compile(model, backend="glasshouse"), images)
    eager = results_of(model, model, images)
    for x, y, z in zip(ours, eager, exact, strict=True):
        assert (x - z).norm() <= 1.5 * (y - z).norm() + 1e-3


@pytest.fixture
def kept(monkeypatch):
    """The shapes of all images of many channels that backward graphs are given."""
    from glasshouse.torch.lowering import variant

    shapes = []
    run = variant.CompiledVariant.run

    def told(self, args):
        images = (x for x in args if isinstance(x, torch.Tensor) and x.ndim == 4)
        shapes.extend(tuple(x.shape) for x in images if x.shape[:2] == (2, CHANNELS))
        return run(self, args)

    monkeypatch.setattr(variant.CompiledVariant, "run", told)
    return shapes


@pytest.mark.parametrize("norm", ["batch", "groups", "layer"])
@pytest.mark.parametrize("inplace", [False, True])
def test_only_what_products_read_is_kept(norm, inplace, kept):
    """The operand of the norm, and that of the second convolution."""
    torch._dynamo.reset()
    model = make_model(norm, lambda: nn.SiLU(inplace=inplace))
    results_of(model, torch.compile(model, backend="glasshouse"), torch.randn(IMAGES))
    assert kept == [(2, CHANNELS, 7, 9)] * 2


def test_a_norm_that_a_convolution_reads_is_kept(kept):
    torch._dynamo.reset()
    model = make_model(activation=nn.Identity)
    results_of(model, torch.compile(model, backend="glasshouse"), torch.randn(IMAGES))
    assert kept == [(2, CHANNELS, 7, 9)] * 2
