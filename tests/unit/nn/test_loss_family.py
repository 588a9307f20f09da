"""Losses with margins, of embeddings, distributions and regions, and distances: a table against
PyTorch's, values, gradients and second derivatives; the others against their formulas."""

import numpy as np
import pytest

import glasshouse as gh
import glasshouse.nn.functional as F
from glasshouse import nn

rng = np.random.default_rng(0)


def normal(*shape):
    return rng.normal(size=shape)


def signs(*shape):
    return rng.choice([-1.0, 1.0], size=shape)


A, B, C = normal(3, 5, 4)
LISTED = np.array([[2, 0, -1, 1], [-1, 0, 1, 2], [0, 1, 2, 3], [3, 3, -1, 0], [1, -1, 2, -1]])
CLASSES = np.array([0, 3, 1, 1, 2])
WEIGHT = rng.uniform(0.5, 2, size=4)
# name: (tracked arrays, arrays that are not, options)
CASES = {
    "cosine_embedding_loss": [
        ((A, B), (signs(5),), {}),
        ((A, B), (signs(5),), {"margin": 0.3}),
        ((A[0], B[0]), (np.array(-1),), {"margin": -0.5}),
    ],
    "gaussian_nll_loss": [
        ((A, B, C**2), (), {}),
        ((A, B, C[:, :1] ** 2), (), {"full": True}),
        ((A, B, C[:, 0] ** 2), (), {"eps": 0.5}),
        ((A, B), (2.5,), {}),
    ],
    "poisson_nll_loss": [
        ((A,), (rng.poisson(3, (5, 4)) * 1.0,), {"full": True}),
        ((A**2,), (rng.poisson(3, (5, 4)) * 1.0,), {"log_input": False}),
    ],
    "hinge_embedding_loss": [((A,), (signs(5, 4),), {}), ((A,), (signs(5, 4),), {"margin": 0.2})],
    "margin_ranking_loss": [
        ((A, B), (signs(5, 4),), {}),
        ((A[:, 0], B[:, 0]), (signs(5),), {"margin": 0.7}),
    ],
    "multi_margin_loss": [
        ((A,), (CLASSES,), {}),
        ((A,), (CLASSES,), {"p": 2, "margin": 0.4, "weight": WEIGHT}),
        ((A[0],), (np.array(2),), {}),
    ],
    "multilabel_margin_loss": [((A,), (LISTED,), {}), ((A[0],), (LISTED[0],), {})],
    "multilabel_soft_margin_loss": [
        ((A,), (rng.integers(0, 2, (5, 4)) * 1.0,), {}),
        ((A,), (rng.uniform(size=(5, 4)),), {"weight": WEIGHT}),
    ],
    "soft_margin_loss": [((A,), (signs(5, 4),), {})],
    "triplet_margin_loss": [
        ((A, B, C), (), {}),
        ((A, B, C), (), {"margin": 2.0, "p": 3, "swap": True}),
        ((A, B, C), (), {"p": 1, "eps": 1e-3}),
    ],
    "triplet_margin_with_distance_loss": [((A, B, C), (), {"swap": True})],
    "mse_loss": [((A, B), (), {"weight": C**2})],
    "l1_loss": [((A, B), (), {"weight": C**2})],
    "huber_loss": [((A, B), (), {"weight": C**2, "delta": 0.5})],
    "linear_cross_entropy": [
        ((A, normal(6, 4)), (np.array([0, 5, 2, -100, 1]),), {}),
        ((A, normal(6, 4)), (CLASSES,), {"label_smoothing": 0.1, "ignore_index": 1}),
        ((A[0], normal(6, 4)), (np.array(3),), {"linear_bias": normal(6)}),
        ((A, normal(4, 2, 4)), (rng.integers(0, 4, (5, 2)),), {"weight": WEIGHT}),
        ((A, normal(4, 4)), (rng.uniform(size=(5, 4)),), {}),
    ],
}
TABLE = [(name, i) for name, cases in CASES.items() for i in range(len(cases))]


def both_sides(torch, name, i, reduction):
    """(arrays that are tracked, ours and PyTorch's as functions of them)."""
    tracked, fixed, options = CASES[name][i]
    options = options | {"reduction": reduction}

    def called(module, tensor):
        kept = {k: tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
        rest = [tensor(v) if isinstance(v, np.ndarray) else v for v in fixed]
        return lambda *xs: getattr(module, name)(*xs, *rest, **kept)

    return tracked, called(F, gh.asarray), called(torch.nn.functional, torch.tensor)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(("name", "i"), TABLE)
def test_values_and_gradients_equal_pytorchs(twin, name, i, reduction):
    tracked, ours, theirs = both_sides(twin.torch, name, i, reduction)
    twin.function(ours, theirs, *tracked)


NO_SECOND = {"multi_margin_loss", "multilabel_margin_loss"}  # PyTorch has none


@pytest.mark.parametrize(("name", "i"), [case for case in TABLE if case[0] not in NO_SECOND])
def test_second_derivatives_equal_pytorchs(twin, name, i):
    torch = twin.torch
    tracked, ours, theirs = both_sides(torch, name, i, "sum")
    mine = [gh.tensor(a).requires_grad_() for a in tracked]
    other = [torch.tensor(a, requires_grad=True) for a in tracked]
    result = gh.autograd.grad(ours(*mine), mine, create_graph=True)
    expected = torch.autograd.grad(theirs(*other), other, create_graph=True)
    total = sum((g * g * g).sum() for g in expected)
    cubes = sum(((g**3).sum() for g in result[1:]), (result[0] ** 3).sum())
    if cubes.requires_grad:  # otherwise there is none, as for what is linear in pieces
        cubes.backward()
    if total.requires_grad:
        total.backward()
    for m, o in zip(mine, other, strict=True):
        zero = np.zeros(o.shape)
        got = zero if m.grad is None else m.grad.numpy()
        wanted = zero if o.grad is None else o.grad.numpy(force=True)
        np.testing.assert_allclose(got, wanted, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("name", "i"), TABLE)
def test_losses_keep_the_dtype(name, i, dtype):
    tracked, fixed, options = CASES[name][i]

    def at(dtype):
        def tensor(v):
            floats = isinstance(v, np.ndarray) and v.dtype.kind == "f"
            return gh.asarray(v, dtype=dtype) if floats else v

        named = {key: tensor(v) for key, v in options.items()}
        return getattr(F, name)(*map(tensor, (*tracked, *fixed)), **named)

    got, expected = at(dtype), at("float64")
    assert got.dtype.name == dtype
    assert got.item() == pytest.approx(expected.item(), rel=3e-2 if dtype == "bfloat16" else 1e-3)


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, 3.0, np.inf])
def test_distances_equal_pytorchs(twin, p):
    theirs = twin.torch.nn.functional
    twin.function(
        lambda x, y: F.pairwise_distance(x, y, p, keepdim=True),
        lambda x, y: theirs.pairwise_distance(x, y, p, keepdim=True),
        A,
        B,
    )
    twin.function(lambda x: F.pdist(x, p), lambda x: theirs.pdist(x, p), A)


def test_the_distance_of_order_0_counts_what_differs():
    x = np.array([[1.0, 2.0, 3.0], [1.0, 0.0, 3.0], [0.0, 0.0, 0.0]])
    assert F.pdist(x, 0).tolist() == [1.0, 3.0, 2.0]


def test_distance_of_equal_rows_has_the_gradient_0():
    for p in (1.5, 2.0):
        x = gh.tensor(np.zeros((2, 3))).requires_grad_()
        F.pdist(x, p).sum().backward()
        assert not x.grad.numpy().any()


LAYERS = {
    "CosineEmbeddingLoss": ({"margin": 0.1}, (A, B, signs(5))),
    "GaussianNLLLoss": ({"full": True}, (A, B, C**2)),
    "PoissonNLLLoss": ({}, (A, B**2)),
    "HingeEmbeddingLoss": ({"margin": 0.5}, (A, signs(5, 4))),
    "MarginRankingLoss": ({"margin": 0.5}, (A, B, signs(5, 4))),
    "MultiMarginLoss": ({"p": 2, "weight": WEIGHT}, (A, CLASSES)),
    "MultiLabelMarginLoss": ({}, (A, LISTED)),
    "MultiLabelSoftMarginLoss": ({"weight": WEIGHT}, (A, rng.uniform(size=(5, 4)))),
    "SoftMarginLoss": ({"reduction": "sum"}, (A, signs(5, 4).astype(int))),
    "TripletMarginLoss": ({"swap": True}, (A, B, C)),
    "TripletMarginWithDistanceLoss": ({"margin": 0.5}, (A, B, C)),
    "NLLLoss2d": ({}, (normal(2, 3, 2, 2), rng.integers(0, 3, (2, 2, 2)))),
    "CosineSimilarity": ({"dim": 0}, (A, B)),
    "PairwiseDistance": ({"p": 1.0, "keepdim": True}, (A, B)),
}


@pytest.mark.filterwarnings("ignore:.NLLLoss2d. has been deprecated:FutureWarning")
@pytest.mark.parametrize("name", LAYERS)
def test_layers_equal_pytorchs(twin, name):
    options, arrays = LAYERS[name]
    inputs = [
        {k: tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
        for tensor in (gh.asarray, twin.torch.tensor)
    ]
    ours, theirs = getattr(nn, name)(**inputs[0]), getattr(twin.torch.nn, name)(**inputs[1])
    twin.module(ours, theirs, *arrays)


@pytest.mark.parametrize("options", [{}, {"head_bias": True, "div_value": 2.0}])
def test_adaptive_softmax_equals_pytorchs(twin, options):
    ours = nn.AdaptiveLogSoftmaxWithLoss(16, 12, [3, 7], **options)
    theirs = twin.torch.nn.AdaptiveLogSoftmaxWithLoss(16, 12, [3, 7], **options)
    x, target = normal(6, 16), np.array([0, 2, 3, 6, 7, 11])
    twin.module(ours, theirs, x, target)
    t = twin.torch.tensor(x)
    np.testing.assert_allclose(ours.log_prob(x).numpy(), theirs.log_prob(t).detach().numpy())
    assert ours.predict(x).tolist() == theirs.predict(t).tolist()
    one = ours(gh.asarray(x[4]), gh.asarray(7))
    assert one.output.shape == () and one.output.item() == pytest.approx(one.loss.item() * -1)


def test_linear_cross_entropy_loss_equals_pytorchs(twin):
    options = {"out_features": (2,), "bias": True, "label_smoothing": 0.1}
    ours = nn.LinearCrossEntropyLoss(4, 3, **options)
    theirs = twin.torch.nn.LinearCrossEntropyLoss(4, 3, **options)
    twin.module(ours, theirs, A, rng.integers(0, 3, (5, 2)))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weight", [None, rng.uniform(size=6)])
def test_chunks_of_linear_cross_entropy_change_nothing(twin, reduction, weight):
    target = np.array([0, 5, -100, 2, 3])
    chunks = nn.LinearCrossEntropyOptions(batch_chunk_size=2)

    def loss(options):
        inputs = {"weight": weight, "reduction": reduction, "options": options}
        return lambda x, w: F.linear_cross_entropy(x, w, gh.asarray(target), **inputs)

    x, w = gh.asarray(A), gh.asarray(normal(6, 4))
    for part in (0, 1):
        grads = [
            gh.grad(lambda x, w, o=o: loss(o)(x, w).sum(), argnums=part)(x, w)
            for o in (None, chunks)
        ]
        np.testing.assert_allclose(grads[0].numpy(), grads[1].numpy(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(loss(None)(x, w).numpy(), loss(chunks)(x, w).numpy())


@pytest.mark.parametrize("alpha, gamma", [(0.25, 2.0), (-1, 0.5), (0.7, 0.0), (0.5, 3.0)])
def test_sigmoid_focal_loss_is_its_formula(twin, alpha, gamma):
    y = rng.integers(0, 2, (5, 4)) * 1.0

    def formula(x):
        t = twin.torch.tensor(y)
        p = x.sigmoid() * t + (1 - x.sigmoid()) * (1 - t)
        share = 1 if alpha < 0 else alpha * t + (1 - alpha) * (1 - t)
        return -share * (1 - p) ** gamma * p.log()

    options = {"alpha": alpha, "gamma": gamma, "reduction": "none"}
    twin.function(lambda x: F.sigmoid_focal_loss(x, gh.asarray(y), **options), formula, A)


def test_focal_loss_with_gamma_0_is_cross_entropy():
    x, y, w = gh.asarray(A), gh.asarray(CLASSES), gh.asarray(WEIGHT)
    focal = F.focal_loss(x, y, w, gamma=0.0, ignore_index=1)
    np.testing.assert_allclose(focal.item(), F.cross_entropy(x, y, w, ignore_index=1).item())
    p = F.softmax(x, dim=1).numpy()[np.arange(5), CLASSES]
    each = nn.FocalLoss(gamma=3.0, reduction="none")(x, y)
    np.testing.assert_allclose(each.numpy(), -np.log(p) * (1 - p) ** 3)


def test_dice_loss_is_one_minus_the_overlap():
    p, y = rng.uniform(size=(2, 3, 4, 5)), rng.integers(0, 3, (2, 4, 5))
    hot = np.moveaxis(np.eye(3)[y], -1, 1)
    both, either = (p * hot).sum((2, 3)), (p + hot).sum((2, 3))
    expected = 1 - (2 * both + 1) / (either + 1)
    for target in (y, hot):
        got = F.dice_loss(gh.asarray(p), gh.asarray(target), reduction="none")
        np.testing.assert_allclose(got.numpy(), expected)
    np.testing.assert_allclose(nn.DiceLoss()(gh.asarray(p), y).item(), expected.mean())


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def minus_log_share(scores, own):
    return np.log(np.exp(scores).sum(1)) - scores[np.arange(len(own)), own]


def test_info_nce_and_simclr_are_cross_entropies_of_cosines():
    a, b, c = unit(A), unit(B), unit(C[:3])
    q, p, k = (gh.asarray(x) for x in (A, B, C[:3]))
    expected = minus_log_share(a @ b.T / 0.2, np.arange(5))
    np.testing.assert_allclose(F.info_nce_loss(q, p, None, 0.2, "none").numpy(), expected)
    scores = np.concatenate([(a * b).sum(1, keepdims=True), a @ c.T], axis=1) / 0.2
    expected = minus_log_share(scores, np.zeros(5, int)).mean()
    np.testing.assert_allclose(nn.InfoNCELoss(0.2)(q, p, k).item(), expected)
    z = np.concatenate([a, b])
    scores = z @ z.T / 0.5
    np.fill_diagonal(scores, -np.inf)
    expected = minus_log_share(scores, np.roll(np.arange(10), 5))
    np.testing.assert_allclose(F.nt_xent_loss(q, p, reduction="none").numpy(), expected)
    assert np.isfinite(gh.grad(lambda q: F.nt_xent_loss(q, p))(q).numpy()).all()


def test_contrastive_loss_is_hadsells():
    y = np.array([1, -1, 1, -1, -1])
    d = np.linalg.norm(A - B, axis=1)
    expected = np.where(y == 1, d**2, np.maximum(0, 3 - d) ** 2) / 2
    got = F.contrastive_loss(gh.asarray(A), gh.asarray(B), gh.asarray(y), 3.0, "none")
    np.testing.assert_allclose(got.numpy(), expected)
    same = gh.grad(lambda x: F.contrastive_loss(x, gh.asarray(A), gh.asarray(y)))(gh.asarray(A))
    assert np.isfinite(same.numpy()).all()


def test_label_smoothing_of_log_probabilities_is_cross_entropys():
    x, y = gh.asarray(A), gh.asarray(CLASSES)
    got = nn.LabelSmoothingLoss(0.2, ignore_index=1)(F.log_softmax(x, dim=1), y)
    expected = F.cross_entropy(x, y, ignore_index=1, label_smoothing=0.2)
    np.testing.assert_allclose(got.item(), expected.item())


@pytest.mark.slow
def test_a_mask_of_all_reductions_under_transforms():
    """vmap is a loop, jvp is the gradient's product, capture and autocast change nothing."""
    x, y, z = (gh.asarray(v) for v in (A, B, C))
    losses = [
        lambda x: F.triplet_margin_loss(x, y[0], z[0]),
        lambda x: F.cosine_embedding_loss(x, y[0], gh.asarray(-1)),
        lambda x: F.multi_margin_loss(x, gh.asarray(2)),
        lambda x: F.multilabel_margin_loss(x, gh.asarray(LISTED[0])),
        lambda x: F.focal_loss(x, gh.asarray(1)),
        lambda x: F.binary_cross_entropy(F.sigmoid(x), F.sigmoid(y[0])),
        lambda x: F.gaussian_nll_loss(x, y[0], z[0] * z[0]),
    ]
    for loss in losses:
        each = gh.vmap(loss)(x)
        np.testing.assert_allclose(each.numpy(), [loss(row).item() for row in x])
        grads = gh.vmap(gh.grad(loss))(x)
        np.testing.assert_allclose(grads.numpy()[2], gh.grad(loss)(x[2]).numpy())
        _, tangent = gh.jvp(loss, (x[0],), (x[1],))
        expected = (gh.grad(loss)(x[0]) * x[1]).sum().item()
        np.testing.assert_allclose(tangent.item(), expected, atol=1e-12)
        captured = gh.optimize(lambda x, loss=loss: loss(x) * 1)
        for _ in range(3):
            got = captured(x[0])
        np.testing.assert_allclose(got.item(), loss(x[0]).item())
        with gh.autocast("bfloat16"):
            np.testing.assert_allclose(loss(x[0]).item(), got.item(), rtol=1e-2)


@pytest.mark.parametrize("value", [-0.1, 1.5, np.nan])
def test_binary_cross_entropy_refuses_what_is_no_probability(value):
    with pytest.raises(gh.OptionError, match="probabilities from 0 to 1"):
        F.binary_cross_entropy(gh.asarray([0.5, value]), gh.ones(2))
    x = gh.asarray([0.5, value])
    for _ in range(70):
        x = x * 1.0  # not known before it is computed
    with pytest.raises((gh.OptionError, IndexError)):
        F.binary_cross_entropy(x, gh.ones(2)).item()
