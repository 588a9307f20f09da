"""Losses against PyTorch's, over their options and at extremes."""

import inspect

import numpy as np
import pytest

import glasshouse as gh
import glasshouse.nn.functional as F
from glasshouse import nn
from glasshouse.base.errors import DTypeError, IndexOutOfRangeError, OptionError, ShapeError

REDUCTIONS = ["none", "mean", "sum"]
# torch warns that "mean" of kl_div divides by all elements; that is what we compare with.
pytestmark = pytest.mark.filterwarnings("ignore:reduction. .mean. divides:UserWarning")
rng = np.random.default_rng(0)
PAIRWISE = [
    ("mse_loss", {}),
    ("l1_loss", {}),
    ("smooth_l1_loss", {}),
    ("smooth_l1_loss", {"beta": 0.3}),
    ("smooth_l1_loss", {"beta": 0.0}),
    ("huber_loss", {"delta": 0.4}),
    ("binary_cross_entropy_with_logits", {}),
    ("kl_div", {"log_target": True}),
]


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides:UserWarning")
@pytest.mark.parametrize("name, options", PAIRWISE)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_loss_of_pairs_equals_pytorchs(twin, name, options, reduction):
    ours, theirs = getattr(F, name), getattr(twin.torch.nn.functional, name)
    x, y = rng.normal(size=(2, 3, 4))
    options = options | {"reduction": reduction}
    twin.function(lambda x, y: ours(x, y, **options), lambda x, y: theirs(x, y, **options), x, y)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy_equals_pytorchs(twin, reduction):
    theirs = twin.torch.nn.functional.binary_cross_entropy
    x, y, w = rng.uniform(0.01, 0.99, size=(3, 2, 5))
    twin.function(
        lambda x: F.binary_cross_entropy(x, y, w, reduction),
        lambda x: theirs(x, twin.torch.tensor(y), twin.torch.tensor(w), reduction=reduction),
        x,
    )


def test_binary_cross_entropy_at_the_limits(twin):
    """Values are PyTorch's; slopes are those of the formula, where PyTorch gives 0 for x = y."""
    x, y = np.array([0.0, 1.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.5, 0.0])
    ours = F.binary_cross_entropy(gh.asarray(x), gh.asarray(y), reduction="none")
    theirs = twin.torch.nn.functional.binary_cross_entropy(
        twin.torch.tensor(x), twin.torch.tensor(y), reduction="none"
    )
    np.testing.assert_allclose(ours.numpy(), theirs.numpy())
    slope = gh.grad(lambda v: F.binary_cross_entropy(v, gh.asarray(y), reduction="sum"))
    got = slope(gh.asarray(x)).numpy()
    np.testing.assert_allclose(got[:2], [1.0, -1.0])
    assert np.isfinite(got).all() and got[2] < -1e11 and got[3] > 1e11


def test_binary_cross_entropy_with_weights_equals_pytorchs(twin):
    theirs = twin.torch.nn.functional.binary_cross_entropy_with_logits
    x, y = rng.normal(size=(4, 3)) * 50, rng.uniform(size=(4, 3))
    w, pos = rng.uniform(size=(4, 3)), rng.uniform(size=3)
    twin.function(
        lambda x: F.binary_cross_entropy_with_logits(x, y, w, pos_weight=pos),
        lambda x: theirs(
            x, twin.torch.tensor(y), twin.torch.tensor(w), pos_weight=twin.torch.tensor(pos)
        ),
        x,
    )


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides:UserWarning")
@pytest.mark.parametrize("reduction", [*REDUCTIONS, "batchmean"])
def test_kl_div_equals_pytorchs(twin, reduction):
    theirs = twin.torch.nn.functional.kl_div
    p, q = (np.exp(rng.normal(size=(3, 4))) for _ in range(2))
    p, q = p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True)
    x = np.log(q)
    twin.function(
        lambda x, p: F.kl_div(x, p, reduction), lambda x, p: theirs(x, p, reduction=reduction), x, p
    )
    p[0] = [0, 0, 0, 1]
    twin.function(
        lambda x: F.kl_div(x, p, reduction),
        lambda x: theirs(x, twin.torch.tensor(p), reduction=reduction),
        x,
    )


SHAPES = [(5, 4), (4,), (3, 4, 2), (2, 4, 3, 2)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("ignore", [-100, 1])
def test_cross_entropy_equals_pytorchs(twin, shape, reduction, weighted, smoothing, ignore):
    theirs = twin.torch.nn.functional.cross_entropy
    x = rng.normal(size=shape) * 3
    target = rng.integers(0, 4, size=(*shape[:1], *shape[2:]) if len(shape) > 1 else ())
    if ignore < 0 and len(shape) > 1:
        target.flat[0] = ignore
    if ignore == 1 and len(shape) == 1:
        target = np.array(2)
    options = {"ignore_index": ignore, "reduction": reduction, "label_smoothing": smoothing}
    w = rng.uniform(0.5, 2, size=4) if weighted else None
    tw = None if w is None else twin.torch.tensor(w)
    twin.function(
        lambda x, t: F.cross_entropy(x, t, w, **options),
        lambda x, t: theirs(x, t, tw, **options),
        x,
        target,
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_of_distributions_equals_pytorchs(
    twin, shape, reduction, weighted, smoothing
):
    theirs = twin.torch.nn.functional.cross_entropy
    x, p = rng.normal(size=shape) * 3, rng.uniform(size=shape)
    options = {"reduction": reduction, "label_smoothing": smoothing}
    w = rng.uniform(0.5, 2, size=4) if weighted else None
    tw = None if w is None else twin.torch.tensor(w)
    twin.function(
        lambda x, p: F.cross_entropy(x, p, w, **options),
        lambda x, p: theirs(x, p, tw, **options),
        x,
        p,
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_nll_loss_equals_pytorchs(twin, shape, reduction, weighted):
    theirs = twin.torch.nn.functional.nll_loss
    x = rng.normal(size=shape)
    target = rng.integers(0, 4, size=(*shape[:1], *shape[2:]) if len(shape) > 1 else ())
    if len(shape) > 1:
        target.flat[-1] = 3
    w = rng.uniform(0.5, 2, size=4) if weighted else None
    tw = None if w is None else twin.torch.tensor(w)
    ignore = 3 if len(shape) > 1 else -100
    twin.function(
        lambda x, t: F.nll_loss(x, t, w, ignore, reduction),
        lambda x, t: theirs(x, t, tw, ignore_index=ignore, reduction=reduction),
        x,
        target,
    )


LAYERS = [
    ("MSELoss", {}),
    ("L1Loss", {"reduction": "sum"}),
    ("SmoothL1Loss", {"beta": 0.5}),
    ("HuberLoss", {"delta": 0.5}),
    ("BCELoss", {}),
    ("BCEWithLogitsLoss", {}),
    ("KLDivLoss", {"reduction": "batchmean"}),
    ("CrossEntropyLoss", {"label_smoothing": 0.1}),
]


@pytest.mark.parametrize("name, options", LAYERS)
def test_layer_equals_pytorchs(twin, name, options):
    ours, theirs = (getattr(lib, name)(**options) for lib in (nn, twin.torch.nn))
    x, y = rng.uniform(size=(2, 3, 4))
    t = twin.torch.tensor(y)
    assert repr(ours) == repr(theirs)
    twin.function(lambda x: ours(x, y), lambda x: theirs(x, t), x)


def test_weights_of_losses_are_buffers(twin):
    ours = nn.CrossEntropyLoss(gh.ones(3))
    theirs = twin.torch.nn.CrossEntropyLoss(twin.torch.ones(3))
    assert list(ours.state_dict()) == list(theirs.state_dict()) == ["weight"]


def test_large_logits_have_finite_losses_and_gradients():
    for dtype in ("float16", "float32"):
        x = gh.asarray([[30000.0, -30000.0], [0.0, 30000.0]], dtype=dtype).requires_grad_()
        loss = F.cross_entropy(x, gh.asarray([0, 1]))
        loss.backward()
        assert loss.item() == 0.0 and not x.grad.numpy().any()
        y = gh.asarray([-30000.0, 30000.0, 30000.0], dtype=dtype).requires_grad_()
        loss = F.binary_cross_entropy_with_logits(y, gh.asarray([0.0, 1.0, 0.0], dtype=dtype))
        loss.backward()
        assert loss.item() == pytest.approx(10000, rel=1e-3)
        np.testing.assert_allclose(y.grad.numpy(), [0, 0, 1 / 3], rtol=1e-3)


def test_cross_entropy_under_transforms():
    x, t = gh.asarray(rng.normal(size=(5, 3))), gh.asarray(rng.integers(0, 3, size=5))
    each = gh.vmap(F.cross_entropy)(x, t)
    np.testing.assert_allclose(each.numpy(), F.cross_entropy(x, t, reduction="none").numpy())
    hessian = gh.hessian(lambda x: F.cross_entropy(x, t[0]))(x[0])
    p = F.softmax(x[0], dim=0).numpy()
    np.testing.assert_allclose(hessian.numpy(), np.diag(p) - np.outer(p, p), atol=1e-12)


X, T = gh.ones((2, 3)), gh.asarray([0, 2])


@pytest.mark.parametrize(
    "call, error, text",
    [
        (
            lambda: F.mse_loss(X, gh.ones((2, 1))),
            ShapeError,
            "mse_loss: expected input and target of one shape",
        ),
        (lambda: F.mse_loss(X, X, reduction="men"), OptionError, "Did you mean 'mean'?"),
        (
            lambda: nn.CrossEntropyLoss(reduction="avg"),
            OptionError,
            "CrossEntropyLoss: expected reduction",
        ),
        (
            lambda: F.cross_entropy(X, gh.asarray([0, 3])),
            IndexOutOfRangeError,
            "from 0 to 2, or ignore_index -100; got indices from 0 to 3",
        ),
        (
            lambda: F.cross_entropy(X, gh.asarray([0, -1])),
            IndexOutOfRangeError,
            "got indices from -1 to 0",
        ),
        (
            lambda: F.cross_entropy(X, gh.asarray([0, 1, 2])),
            ShapeError,
            "expected a target of (2,) for input (2, 3)",
        ),
        (
            lambda: F.cross_entropy(X, gh.asarray([0.0, 1.0])),
            DTypeError,
            "integer class indices (2,); got float32 (2,)",
        ),
        (lambda: F.cross_entropy(X, T, gh.ones(2)), ShapeError, "a weight for each of 3 classes"),
        (
            lambda: F.cross_entropy(X, T, label_smoothing=2.0),
            OptionError,
            "label_smoothing in [0, 1]",
        ),
        (
            lambda: F.cross_entropy(gh.ones((2, 3), dtype="int32"), T),
            DTypeError,
            "expected a floating input; got int32",
        ),
        (
            lambda: F.nll_loss(X, gh.asarray([0, 5])),
            IndexOutOfRangeError,
            "nll_loss: expected class indices",
        ),
        (lambda: F.nll_loss(gh.ones(()), T), ShapeError, "expected an input (C,)"),
        (lambda: F.huber_loss(X, X, delta=0), OptionError, "delta above 0"),
        (lambda: F.smooth_l1_loss(X, X, beta=-1), OptionError, "beta of 0 or more"),
        (lambda: F.kl_div(X, X, "batch"), OptionError, "Did you mean 'batchmean'?"),
    ],
)
def test_bad_calls(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (nn.ReLU(), ["input"]),
        (nn.CrossEntropyLoss(), ["input", "target"]),
        (nn.CTCLoss(), ["log_probs", "targets", "input_lengths", "target_lengths"]),
    ],
)
def test_a_declared_layer_names_its_inputs(module, inputs):
    assert list(inspect.signature(module.forward).parameters) == inputs
