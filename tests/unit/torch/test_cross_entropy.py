"""Cross entropy and its gradient: eager's, on Programs and on the references they are made from."""

import pytest

import glasshouse as gh
from glasshouse.base.flags import flags

torch = pytest.importorskip("torch")
functional = torch.nn.functional

pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.filterwarnings("ignore:.*isinstance.*LeafSpec.*"),
]
CLASSES = 7
SHAPES = {
    "rows": ((5, CLASSES), (5,)),
    "images": ((2, CLASSES, 3, 4), (2, 3, 4)),
    "no batch": ((CLASSES,), ()),
}
OPTIONS = {
    "plain": {},
    "sum": {"reduction": "sum"},
    "none": {"reduction": "none"},
    "smooth": {"label_smoothing": 0.1},
    "ignored": {"ignore_index": 2},
    "weighted": {"weight": torch.linspace(0.5, 2, CLASSES)},
    "all": {
        "weight": torch.linspace(0.5, 2, CLASSES),
        "ignore_index": 2,
        "label_smoothing": 0.1,
        "reduction": "none",
    },
}


def scores_and_classes(shape: str):
    """Scores that need gradients and their classes, one of them 2."""
    scores_shape, classes_shape = SHAPES[shape]
    classes = torch.randint(0, CLASSES, classes_shape)
    classes.view(-1)[0] = 3 if shape == "no batch" else 2
    return torch.randn(scores_shape, requires_grad=True), classes


def loss_and_gradient(loss_of, scores, classes):
    scores = scores.detach().requires_grad_()
    loss = loss_of(scores, classes)
    (gradient,) = torch.autograd.grad(
        loss, scores, torch.linspace(1, 2, loss.numel()).view_as(loss)
    )
    return loss.detach(), gradient


def assert_as_eager(loss_of, scores, classes):
    ours = loss_and_gradient(torch.compile(loss_of, backend="glasshouse"), scores, classes)
    torch.testing.assert_close(ours, loss_and_gradient(loss_of, scores, classes))


@pytest.mark.parametrize("compiles", ["always", "never"])
@pytest.mark.parametrize("options", OPTIONS)
def test_loss_and_gradient_are_eagers(options, compiles):
    def loss_of(scores, classes):
        return functional.cross_entropy(scores, classes, **OPTIONS[options])

    with flags.override(compile=compiles):
        assert_as_eager(loss_of, *scores_and_classes("rows"))


@pytest.mark.parametrize("options", ["plain", "all"])
@pytest.mark.parametrize("shape", ["images", "no batch"])
def test_loss_and_gradient_are_eagers_for_other_shapes(shape, options):
    def loss_of(scores, classes):
        return functional.cross_entropy(scores, classes, **OPTIONS[options])

    assert_as_eager(loss_of, *scores_and_classes(shape))


@pytest.mark.slow
def test_bfloat16_is_as_in_pytorchs_own_decompositions():
    def loss_of(scores, classes):
        return functional.cross_entropy(scores, classes)

    scores, classes = scores_and_classes("rows")
    ours, theirs = (
        loss_and_gradient(torch.compile(loss_of, backend=name), scores.bfloat16(), classes)
        for name in ("glasshouse", "aot_eager_decomp_partition")
    )
    torch.testing.assert_close(ours, theirs)


def test_a_target_that_is_no_class_is_an_error():
    def loss_of(scores, classes):
        return functional.cross_entropy(scores, classes)

    scores, classes = scores_and_classes("rows")
    compiled = torch.compile(loss_of, backend="glasshouse")
    with pytest.raises(IndexError, match=f"Target {CLASSES} is out of bounds"):
        compiled(scores, torch.full_like(classes, CLASSES))


def test_targets_that_are_all_ignored_give_no_gradient():
    def loss_of(scores, classes):
        return functional.cross_entropy(scores, classes, reduction="sum")

    scores, classes = scores_and_classes("rows")
    assert_as_eager(loss_of, scores, torch.full_like(classes, -100))


def test_an_ignored_class_whose_weight_is_infinite_gives_no_gradient():
    weight = torch.ones(CLASSES)
    weight[2] = torch.inf

    def loss_of(scores, classes):
        return functional.nll_loss(scores, classes, weight, ignore_index=2)

    assert_as_eager(loss_of, *scores_and_classes("rows"))


def test_the_gradient_of_scores_has_no_memory_beside_its_own():
    """The one-hot is part of the kernel: nothing of the scores' size lies in the arena."""

    class Scores(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scores = torch.nn.Parameter(torch.randn(64, 512))

        def forward(self, classes):
            return functional.cross_entropy(self.scores, classes)

    classes = torch.randint(0, 512, (64,))
    model = Scores()
    costs = gh.analyze.step(model, None, torch.optim.SGD(model.parameters()), [classes])
    size = 64 * 512 * 4
    # The parameter, the log-softmax kept for the backward pass, and the gradient.
    assert 3 * size <= costs.peak_bytes < 3.5 * size
