"""ASG and the transducer's loss against sums over all paths, Viterbi paths against all of them."""

from itertools import groupby, product

import numpy as np
import pytest

import glasshouse as gh
import glasshouse.nn.functional as F
from glasshouse import nn

rng = np.random.default_rng(0)
FRAMES, SIZES = [5, 4, 3], [2, 1, 3]
TARGETS = np.array([[1, 2, 0], [2, 0, 0], [0, 1, 0]])


def readings(frames, classes, target, blank=None):
    """All label sequences that read as the target once repeats are merged and blanks left out."""
    for path in product(range(classes), repeat=frames):
        if [k for k, _ in groupby(path) if k != blank] == list(target):
            yield list(path)


def score(x, transitions, path):
    """The score of a label sequence: of x (T, C) and of its transitions."""
    scores = sum(x[t, k] for t, k in enumerate(path))
    return scores + sum(transitions[a, b] for a, b in zip(path, path[1:], strict=False))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_asg_is_the_difference_of_two_sums_over_sequences(twin, reduction):
    torch = twin.torch

    def theirs(x, transitions):
        losses = []
        for n, (frames, size) in enumerate(zip(FRAMES, SIZES, strict=True)):
            every = list(product(range(3), repeat=frames))
            right = list(readings(frames, 3, TARGETS[n, :size]))
            both = [
                torch.logsumexp(torch.stack([score(x[:, n], transitions, p) for p in paths]), 0)
                for paths in (every, right)
            ]
            losses.append(both[0] - both[1])
        losses = torch.stack(losses)
        if reduction == "mean":
            return (losses / torch.tensor(SIZES)).mean()
        return losses if reduction == "none" else losses.sum()

    def ours(x, transitions):
        return F.asg_loss(x, TARGETS, FRAMES, SIZES, transitions, reduction)

    twin.function(ours, theirs, rng.normal(size=(5, 3, 3)), rng.normal(size=(3, 3)))


@pytest.mark.slow
def test_asg_of_joined_targets_and_of_one_sequence():
    x, transitions = gh.asarray(rng.normal(size=(5, 3, 3))), gh.asarray(rng.normal(size=(3, 3)))
    joined = gh.asarray([1, 2, 2, 0, 1, 0])
    padded = F.asg_loss(x, TARGETS, FRAMES, SIZES, transitions, "none")
    got = F.asg_loss(x, joined, FRAMES, SIZES, transitions, "none")
    np.testing.assert_allclose(got.numpy(), padded.numpy())
    one = F.asg_loss(x[:4, 1], gh.asarray([2]), 4, 1, transitions)
    np.testing.assert_allclose(one.item(), padded[1].item())


@pytest.mark.slow
def test_asg_of_what_no_sequence_reads_is_infinite_without_a_gradient():
    x = gh.tensor(rng.normal(size=(2, 2, 3))).requires_grad_()
    loss = F.asg_loss(x, [[0, 1, 2], [0, 1, 0]], [2, 2], [3, 2], gh.zeros((3, 3)), "none")
    assert np.isinf(loss.numpy()).tolist() == [True, False]
    loss[1].backward()
    assert np.isfinite(x.grad.numpy()).all()


@pytest.mark.slow
def test_best_paths_are_the_best_of_all():
    x, transitions = rng.normal(size=(5, 3, 3)), rng.normal(size=(3, 3))
    loss = nn.ASGLoss(3).double()
    loss.load_state_dict({"transitions": transitions})
    free, free_score = loss.path(gh.asarray(x), FRAMES)
    forced, forced_score = loss.align(gh.asarray(x), TARGETS, FRAMES, SIZES)
    for n, (frames, size) in enumerate(zip(FRAMES, SIZES, strict=True)):
        every = [list(p) for p in product(range(3), repeat=frames)]
        right = list(readings(frames, 3, TARGETS[n, :size]))
        for path, value, paths in ((free, free_score, every), (forced, forced_score, right)):
            best = max(paths, key=lambda p, n=n: score(x[:, n], transitions, p))
            assert path[:frames, n].tolist() == best
            assert (path.numpy()[frames:, n] == -1).all()
            assert value[n].item() == pytest.approx(score(x[:, n], transitions, best))


@pytest.mark.parametrize("target", [[1], [1, 1], [2, 1], []])
def test_a_ctc_alignment_is_the_best_of_all_that_read_as_the_target(target):
    lp = np.log(rng.dirichlet(np.ones(3), size=(5, 2)))
    padded = np.array([[*target, 2], [*target, 2]], int)
    path, value = F.ctc_align(lp, padded, [5, 4], [len(target)] * 2)
    for n, frames in enumerate((5, 4)):
        rows = lp[:frames, n]
        paths = list(readings(frames, 3, target, blank=0))
        best = max(paths, key=lambda p, rows=rows: rows[np.arange(len(p)), p].sum())
        assert path[:, n].tolist() == best + [-1] * (5 - frames)
        assert value[n].item() == pytest.approx(rows[np.arange(frames), best].sum())


def test_an_impossible_ctc_alignment_says_so():
    path, value = F.ctc_align(np.zeros((2, 4)) - 1.0, [1, 1], 2, 2)
    assert path.tolist() == [-1, -1] and value.item() == -np.inf


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_ctc_of_joined_targets_equals_pytorchs(twin, reduction):
    torch = twin.torch
    joined = np.array([1, 2, 3, 2, 4])
    lengths = np.array([9, 8, 9]), np.array([3, 0, 2])
    twin.function(
        lambda x: F.ctc_loss(F.log_softmax(x, dim=2), joined, *lengths, reduction=reduction),
        lambda x: torch.nn.functional.ctc_loss(
            x.log_softmax(2),
            torch.tensor(joined),
            *map(torch.tensor, lengths),
            reduction=reduction,
        ),
        rng.normal(size=(9, 3, 5)),
    )


def plain_transducer(torch, lp, targets, frames, sizes, blank):
    """The dynamic program of Graves 2012, place by place."""
    losses = []
    for n, (t_last, u_last) in enumerate(zip(frames, sizes, strict=True)):
        reached = {(0, 0): lp.new_zeros(())}
        for t in range(t_last):
            for u in range(u_last + 1):
                ways = []
                if t:
                    ways.append(reached[t - 1, u] + lp[n, t - 1, u, blank])
                if u:
                    ways.append(reached[t, u - 1] + lp[n, t, u - 1, targets[n][u - 1]])
                if ways:
                    reached[t, u] = torch.logsumexp(torch.stack(ways), 0)
        losses.append(-reached[t_last - 1, u_last] - lp[n, t_last - 1, u_last, blank])
    return torch.stack(losses)


LENGTHS = [([4, 4], [2, 2]), ([4, 2], [1, 2]), ([1, 4], [2, 0])]


@pytest.mark.parametrize("frames, sizes", LENGTHS)
@pytest.mark.parametrize("blank", [0, -1])
@pytest.mark.parametrize("fused", [True, False])
def test_transducer_is_the_plain_dynamic_program(twin, frames, sizes, blank, fused):
    targets = [[1, 2], [2, 2]]

    def theirs(x):
        lp = x.log_softmax(3) if fused else x
        return plain_transducer(twin.torch, lp, targets, frames, sizes, blank)

    def ours(x):
        return F.rnnt_loss(x, targets, frames, sizes, blank, "none", fused)

    twin.function(ours, theirs, rng.normal(size=(2, 4, 3, 4)) * 2)


def test_transducer_of_empty_targets_and_reductions():
    x = gh.asarray(rng.normal(size=(2, 3, 1, 4)))
    none = np.zeros((2, 0), int)
    each = F.rnnt_loss(x, none, [3, 2], [0, 0], reduction="none").numpy()
    lp = F.log_softmax(x, dim=3).numpy()[:, :, 0, -1]
    np.testing.assert_allclose(each, [-lp[0].sum(), -lp[1, :2].sum()])
    np.testing.assert_allclose(nn.RNNTLoss()(x, none, [3, 2], [0, 0]).item(), each.mean())
    total = nn.RNNTLoss(reduction="sum")(x, none, [3, 2], [0, 0])
    np.testing.assert_allclose(total.item(), each.sum())


def transducer(x):
    return F.rnnt_loss(x, [[1, 2], [2, 2]], [4, 3], [2, 1])


def segmentation(x):
    return F.asg_loss(x[..., :3, 0], TARGETS[:2], [4, 3], [2, 1], gh.eye(3))


def given(loss):
    return rng.normal(size=(3, 2, 4, 3, 4) if loss is transducer else (3, 4, 2, 3, 1))


@pytest.mark.parametrize("loss", [transducer, segmentation])
def test_under_transforms(loss):
    with gh.backends.use("numpy"):  # nothing has to be compiled
        x = gh.asarray(given(loss))
        each = gh.vmap(loss)(x)
        np.testing.assert_allclose(each.numpy(), [loss(row).item() for row in x])
        slope = gh.grad(loss)
        np.testing.assert_allclose(gh.vmap(slope)(x).numpy()[1], slope(x[1]).numpy(), atol=1e-12)
        step = 1e-5
        expected = (slope(x[0] + step * x[1]) - slope(x[0] - step * x[1])) / (2 * step)
        got = gh.jvp(slope, (x[0],), (x[1],))[1]
        np.testing.assert_allclose(got.numpy(), expected.numpy(), atol=1e-8)
        half = loss(x[0].astype("float16")).item()
        assert half == pytest.approx(loss(x[0]).item(), rel=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [transducer, segmentation])
def test_captured(loss):
    x = gh.asarray(given(loss)[0])
    with gh.backends.use("numpy"):
        expected = gh.grad(loss)(gh.asarray(x.numpy())).numpy()
    captured = gh.optimize(lambda x: gh.grad(loss)(x) * 1)
    for _ in range(3):
        got = captured(x)
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-12)


def test_compiled_steps_do_not_depend_on_the_number_of_frames():
    """A loss of 2,000 frames is recorded in as many calls as one of 4."""

    class Calls(gh.Mode):
        count = 0

        def process(self, primitive, args, attrs, below):
            self.count += 1
            return below(primitive, args, attrs)

    counts = set()
    for frames in (4, 2000):
        x = gh.tensor(np.zeros((frames, 1, 3), "f4")).requires_grad_()
        with Calls() as calls:
            F.asg_loss(x, [[0, 1]], [frames], [2], gh.zeros((3, 3))).backward()
        counts.add(calls.count)
    assert len(counts) == 1


X, Y = gh.zeros((2, 4, 3, 5)), gh.asarray([[1, 2], [2, 2]])
S, T = gh.zeros((4, 2, 5)), gh.zeros((5, 5))
BAD = {
    "rnnt-axes": (lambda: F.rnnt_loss(X[0], Y, [4, 4], [2, 2]), gh.ShapeError, "(4, 3, 5)"),
    "rnnt-targets": (lambda: F.rnnt_loss(X, Y[:, :1], [4, 4], [1, 1]), gh.ShapeError, "(2, 1)"),
    "rnnt-lengths": (lambda: F.rnnt_loss(X, Y, [4, 5], [2, 2]), gh.ShapeError, "[4, 5]"),
    "rnnt-sizes": (lambda: F.rnnt_loss(X, Y, [4, 4], [2, 3]), gh.ShapeError, "[2, 3]"),
    "rnnt-blank": (lambda: F.rnnt_loss(X, Y, [4, 4], [2, 2], 7), gh.OptionError, "7"),
    "rnnt-float": (lambda: F.rnnt_loss(X, Y * 1.0, [4, 4], [2, 2]), gh.DTypeError, "float"),
    "rnnt-label": (
        lambda: F.rnnt_loss(X, Y + 3, [4, 4], [2, 2]),
        gh.IndexOutOfRangeError,
        "5",
    ),
    "rnnt-reduction": (lambda: nn.RNNTLoss(reduction="men"), gh.OptionError, "'mean'"),
    "asg-shape": (lambda: F.asg_loss(S[0, 0], Y, [4, 4], [2, 2], T), gh.ShapeError, "(5,)"),
    "asg-transitions": (lambda: F.asg_loss(S, Y, [4, 4], [2, 2], T[:3]), gh.ShapeError, "(3, 5)"),
    "asg-label": (lambda: F.asg_loss(S, Y + 9, [4, 4], [2, 2], T), IndexError, "11"),
    "asg-float": (lambda: F.asg_loss(S, Y * 1.0, [4, 4], [2, 2], T), gh.DTypeError, "float"),
    "asg-empty": (
        lambda: F.asg_align(S, gh.zeros((2, 0), dtype="int64"), [4, 4], [0, 0], T),
        gh.ShapeError,
        "(2, 0)",
    ),
    "asg-path": (lambda: F.asg_path(S[0, 0], 4, T), gh.ShapeError, "(5,)"),
    "asg-classes": (lambda: nn.ASGLoss(0), gh.OptionError, "0"),
    "ctc-align": (lambda: F.ctc_align(S, Y, [4, 9], [2, 2]), gh.ShapeError, "[4, 9]"),
    "ctc-joined": (lambda: F.ctc_loss(S, gh.asarray([1]), [4, 4], [1, 1]), gh.ShapeError, "(1,)"),
}


@pytest.mark.parametrize("name", BAD)
def test_wrong_call(name):
    call, error, text = BAD[name]
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value) and "expected" in str(caught.value), caught.value
