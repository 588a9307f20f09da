"""Values that a forward graph keeps for the backward graph lie as its Program makes them."""

import pytest

import glasshouse as gh

torch = pytest.importorskip("torch")
nn = torch.nn

pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def make_model():
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 40, 3), nn.BatchNorm2d(40), nn.ReLU(), nn.Conv2d(40, 8, 1), nn.Flatten()]
    return nn.Sequential(*layers)


def gradients_of(model, call, images):
    model.zero_grad()
    y = call(images)
    (y * torch.linspace(-1, 1, y.numel()).reshape(y.shape)).sum().backward()
    return [y.detach(), *(p.grad for p in model.parameters())]


@pytest.fixture
def kept(monkeypatch):
    """The strides of the images that backward graphs are given."""
    from glasshouse.torch.lowering import variant

    strides = []
    run = variant.CompiledVariant.run

    def told(self, args):
        strides.extend(x.stride() for x in args if isinstance(x, torch.Tensor) and x.ndim == 4)
        return run(self, args)

    monkeypatch.setattr(variant.CompiledVariant, "run", told)
    return strides


def test_images_are_kept_in_the_layout_of_convolutions(kept):
    """The result of the first convolution lies in memory with channels innermost."""
    model, images = make_model(), torch.randn(2, 3, 9, 11)
    ours = gradients_of(model, torch.compile(model, backend="glasshouse"), images)
    for x, y in zip(ours, gradients_of(model, model, images), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-3, atol=1e-4)
    assert (40 * 7 * 9, 1, 40 * 9, 40) in kept
    assert (40 * 7 * 9, 7 * 9, 9, 1) not in kept


@pytest.mark.parametrize("n", [2, 3])
def test_places_of_max_pooling_are_not_kept(n, monkeypatch):
    from glasshouse.torch.lowering import variant

    dtypes = []
    run = variant.CompiledVariant.run

    def told(self, args):
        dtypes.extend(x.dtype for x in args if isinstance(x, torch.Tensor))
        return run(self, args)

    monkeypatch.setattr(variant.CompiledVariant, "run", told)
    pool = getattr(nn.functional, f"max_pool{n}d")
    x = torch.randint(0, 4, (2, 3, *(7,) * n)).float().requires_grad_()  # with ties

    def gradient(function):
        y = function(x, 3, 2, 1)
        (grad,) = torch.autograd.grad((y * torch.arange(y.numel()).reshape(y.shape)).sum(), x)
        return y, grad

    expected = gradient(pool)
    for ours, eager in zip(gradient(torch.compile(pool, backend="glasshouse")), expected):
        torch.testing.assert_close(ours, eager, rtol=0, atol=0)
    assert set(dtypes) == {torch.float32}


def test_a_backward_graph_that_pytorch_computes_takes_what_is_kept(monkeypatch):
    from glasshouse.torch.backend import runtime

    model, images = make_model(), torch.randn(2, 3, 9, 11)
    expected = gradients_of(model, model, images)
    make = runtime.make_variant

    def refused(module, args, phase, *rest):
        if phase == "backward":
            raise NotImplementedError
        return make(module, args, phase, *rest)

    monkeypatch.setattr(runtime, "make_variant", refused)
    with pytest.warns(UserWarning, match="left to PyTorch"):
        ours = gradients_of(model, torch.compile(model, backend="glasshouse"), images)
    for x, y in zip(ours, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("n", [2, 3])
def test_a_gradient_of_pooling_that_pytorch_computes_finds_its_places(n, monkeypatch):
    from glasshouse.torch.backend import runtime

    make = runtime.make_variant

    def refused(module, args, phase, *rest):
        if phase == "backward":
            raise NotImplementedError
        return make(module, args, phase, *rest)

    def pooled(x):
        return getattr(nn.functional, f"max_pool{n}d")(torch.sin(x), 3, 2, 1, 1, True).square()

    monkeypatch.setattr(runtime, "make_variant", refused)
    x = torch.randn(2, 3, *(8,) * n, requires_grad=True)
    with pytest.warns(UserWarning, match="left to PyTorch"):
        ours = torch.autograd.grad(torch.compile(pooled, backend="glasshouse")(x).sum(), x)
    torch.testing.assert_close(ours, torch.autograd.grad(pooled(x).sum(), x))


def test_a_value_that_is_kept_twice_is_shared():
    """A value and its transpose, both of which the backward graph reads."""

    def function(x, w):
        y = torch.sin(x)
        return (torch.exp(y) * torch.cos(y.t() * w)).sum()

    inputs = [torch.randn(5, 5, requires_grad=True) for _ in range(2)]
    ours = torch.autograd.grad(torch.compile(function, backend="glasshouse")(*inputs), inputs)
    for x, y in zip(ours, torch.autograd.grad(function(*inputs), inputs), strict=True):
        torch.testing.assert_close(x, y)


def alone(x):
    return torch.sigmoid(2 * x)


def copied_first(x):
    s = torch.sigmoid(x)
    return s.clone(), s * s


def beside_another(x):
    s = torch.sigmoid(x)
    return s, s * s


@pytest.mark.parametrize("function", [alone, copied_first, beside_another])
@pytest.mark.parametrize("written", [False, True])
def test_a_result_that_is_kept_too_is_one_tensor_as_in_eager(function, written):
    """Who writes to it before the backward pass is told, or has it copied."""
    x, ends = torch.linspace(-2, 2, 20).reshape(4, 5), []
    for call in (function, torch.compile(function, backend="glasshouse")):
        inputs = x.clone().requires_grad_()
        with gh.FlopCounter() as counter:
            results = call(inputs)
        results = results if isinstance(results, tuple) else (results,)
        if written:
            results[0].zero_()
        try:
            results[-1].sum().backward()
            ends.append(inputs.grad)
        except RuntimeError as error:
            assert written and "modified by an inplace operation" in str(error)
            ends.append(None)
    copies = [call for call, _ in counter.counts if call.name == "aten::clone"]
    assert len(copies) == (function is copied_first)
    assert (ends[0] is None) == (ends[1] is None) == (written and function is not copied_first)
    if ends[0] is not None:
        torch.testing.assert_close(*ends)
