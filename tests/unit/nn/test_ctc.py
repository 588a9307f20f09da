"""CTC against PyTorch's, against a sum over all paths, and under transforms."""

from itertools import groupby, product

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.errors import DTypeError, IndexOutOfRangeError, OptionError, ShapeError
from glasshouse.compile.programs.recording import RecordingBackend
from glasshouse.dispatch import Mode
from glasshouse.nn import functional as F

rng = np.random.default_rng(0)
CASES = {
    "plain": ([[1, 2, 3], [2, 1, 4]], [9, 9], [3, 3]),
    "repeated labels": ([[1, 1, 1], [2, 2, 1]], [9, 7], [3, 3]),
    "unequal lengths": ([[1, 2, 3], [2, 1, 0]], [9, 5], [3, 2]),
    "empty targets": ([[1, 2, 3], [0, 0, 0]], [9, 4], [3, 0]),
    "no targets at all": (np.zeros((2, 0), int), [9, 4], [0, 0]),
    "impossible": ([[1, 2, 3], [2, 2, 2]], [9, 4], [3, 3]),
    "no frames": ([[1, 2, 3], [2, 2, 2]], [0, 0], [3, 0]),
    "exactly enough frames": ([[1, 2, 3], [2, 2, 2]], [3, 5], [3, 3]),
}


def make(case, steps=9):
    targets, frames, sizes = map(np.asarray, CASES[case])
    return rng.normal(size=(steps, 2, 5)) * 2, targets, frames, sizes


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("zero_infinity", [False, True])
def test_values_and_gradients_equal_pytorchs(case, reduction, zero_infinity):
    torch = pytest.importorskip("torch")
    logits, targets, frames, sizes = make(case)
    options = {"reduction": reduction, "zero_infinity": zero_infinity}
    x = gh.asarray(logits).requires_grad_()
    loss = F.ctc_loss(F.log_softmax(x, dim=2), targets, gh.asarray(frames), sizes, **options)
    y = torch.tensor(logits, requires_grad=True)
    arguments = [torch.tensor(a) for a in (targets, frames, sizes)]
    other = torch.nn.functional.ctc_loss(y.log_softmax(2), *arguments, **options)
    np.testing.assert_allclose(loss.numpy(), other.detach().numpy(), rtol=1e-10)
    if not zero_infinity and not np.isfinite(loss.numpy()).all():
        return  # PyTorch's gradient is NaN there
    weight = rng.normal(size=loss.shape)
    (loss * weight).sum().backward()
    (other * torch.tensor(weight)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), atol=1e-12)


def test_a_blank_that_is_not_0_and_no_batch_axis():
    torch = pytest.importorskip("torch")
    lp = np.log(rng.dirichlet(np.ones(4), size=6))
    ours = nn.CTCLoss(blank=3, reduction="sum")(lp, [0, 2, 2], 6, 3)
    theirs = torch.nn.CTCLoss(blank=3, reduction="sum")
    arguments = torch.tensor([0, 2, 2]), torch.tensor(6), torch.tensor(3)
    np.testing.assert_allclose(ours.item(), theirs(torch.tensor(lp), *arguments).item())
    assert repr(nn.CTCLoss()) == repr(torch.nn.CTCLoss())


@pytest.mark.parametrize("target", [[], [1], [1, 1], [2, 1]])
def test_the_loss_is_the_sum_over_all_paths(target):
    p = rng.dirichlet(np.ones(3), size=4)
    total = 0.0
    for path in product(range(3), repeat=4):
        if [k for k, _ in groupby(path) if k] == target:
            total += np.prod([p[t, k] for t, k in enumerate(path)])
    loss = F.ctc_loss(np.log(p), np.array(target, int), 4, len(target), reduction="sum")
    np.testing.assert_allclose(loss.item(), -np.log(total))


def test_small_integer_dtypes_do_not_overflow():
    lp = F.log_softmax(gh.asarray(rng.normal(size=(300, 1, 100))), dim=2)
    label, small = gh.asarray([[99]], dtype="uint8"), gh.asarray([1], dtype="uint8")
    result = F.ctc_loss(lp, label, [300], small).item()
    assert result == F.ctc_loss(lp, [[99]], [300], [1]).item()


def test_very_unlikely_paths_stay_finite_in_float32():
    lp = np.full((300, 1, 3), -200.0, "f4")
    lp[:, :, 0] = 0
    x = gh.asarray(lp).requires_grad_()
    loss = F.ctc_loss(x, [[1, 2, 1, 1]], [300], [4], reduction="sum")
    loss.backward()
    assert 750 < loss.item() < 800
    assert np.isfinite(x.grad.numpy()).all()
    np.testing.assert_allclose(x.grad.numpy().sum(2), -1, rtol=1e-3)


@pytest.mark.slow
def test_log_probabilities_of_minus_infinity():
    lp = np.log(rng.dirichlet(np.ones(4), size=(5, 1)))
    lp[:, :, 3] = -np.inf
    x = gh.asarray(lp).requires_grad_()
    F.ctc_loss(x, [[1, 2]], [5], [2]).backward()
    assert np.isfinite(x.grad.numpy()).all()
    assert F.ctc_loss(x, [[1, 3]], [5], [2]).item() == np.inf


@pytest.mark.slow
def test_impossible_targets_have_no_gradient():
    logits, targets, frames, sizes = make("impossible")
    x = gh.asarray(logits).requires_grad_()
    loss = F.ctc_loss(F.log_softmax(x, dim=2), targets, frames, sizes, reduction="none")
    loss.sum().backward()
    assert np.isinf(loss.numpy()).tolist() == [False, True]
    assert not x.grad.numpy()[:, 1].any() and x.grad.numpy()[:, 0].any()


@pytest.mark.slow
def test_second_derivatives_are_differences_of_first_ones():
    logits, targets, frames, sizes = make("unequal lengths")
    direction = rng.normal(size=logits.shape)

    def gradient(x):
        return gh.grad(lambda x: F.ctc_loss(F.log_softmax(x, dim=2), targets, frames, sizes))(x)

    step = 1e-5 * direction
    expected = (gradient(gh.asarray(logits + step)) - gradient(gh.asarray(logits - step))) / 2e-5
    result = gh.jvp(gradient, (gh.asarray(logits),), (gh.asarray(direction),))[1]
    np.testing.assert_allclose(result.numpy(), expected.numpy(), atol=1e-8)
    x = gh.asarray(logits).requires_grad_()
    loss = F.ctc_loss(F.log_softmax(x, dim=2), targets, frames, sizes)
    (g,) = gh.autograd.grad([loss], [x], create_graph=True)
    (g * direction).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), expected.numpy(), atol=1e-8)


@pytest.mark.slow
def test_under_vmap_and_jvp():
    lp = F.log_softmax(gh.asarray(rng.normal(size=(3, 6, 2, 4))), dim=3)

    def loss(x):
        return F.ctc_loss(x, [[1, 2], [3, 3]], [6, 5], [2, 2])

    each = gh.vmap(loss)(lp)
    np.testing.assert_allclose(each.numpy(), [loss(lp[i]).item() for i in range(3)])
    grads = gh.vmap(gh.grad(loss))(lp)
    np.testing.assert_allclose(grads.numpy()[1], gh.grad(loss)(lp[1]).numpy())
    _, tangent = gh.jvp(loss, (lp[0],), (lp[1],))
    np.testing.assert_allclose(tangent.item(), (gh.grad(loss)(lp[0]) * lp[1]).sum().item())


def test_the_recorded_calls_do_not_depend_on_contents():
    class Names(Mode):
        def __init__(self):
            self.calls = []

        def process(self, primitive, args, attrs, below):
            shown = {k: v for k, v in attrs.items() if primitive.name != "constant"}
            self.calls.append((primitive.name, repr(shown)))
            return below(primitive, args, attrs)

    def calls(case, steps=9):
        logits, targets, frames, sizes = make(case, steps)
        inputs = [gh.asarray(a) for a in (targets, frames, sizes)]
        with Names() as names:
            x = gh.asarray(logits).requires_grad_()
            F.ctc_loss(x, *inputs).backward()
        return names.calls

    first = calls("plain")
    assert first == calls("impossible") == calls("empty targets")
    assert len(calls("plain", 10)) == len(first)  # one more frame is no call more
    with gh.backends.use("stub"):
        assert calls("plain") == first


def test_labels_are_checked_by_the_forward_pass_alone(monkeypatch):
    checked, check = [], RecordingBackend.check_indices
    count = lambda *inputs: checked.append(check(*inputs))  # noqa: E731
    monkeypatch.setattr(RecordingBackend, "check_indices", count)
    logits, targets, frames, sizes = make("plain")
    x = gh.asarray(logits).requires_grad_()
    loss = F.ctc_loss(x, targets, frames, sizes)
    before = len(checked)
    loss.backward()
    assert before == len(checked) == 1


X, Y = gh.zeros((9, 2, 5)), gh.asarray([[1, 2], [2, 1]])


@pytest.mark.parametrize(
    "call, error, text",
    [
        (
            lambda: F.ctc_loss(X, gh.asarray([1, 2, 3]), [9, 9], [1, 1]),
            ShapeError,
            "as the lengths say, 2",
        ),
        (lambda: F.ctc_loss(X, Y, [9], [2, 2]), ShapeError, "input_lengths of (2,) numbers"),
        (lambda: F.ctc_loss(X, Y, 9, [2, 2]), ShapeError, "input_lengths of (2,) numbers"),
        (lambda: F.ctc_loss(X, Y, [9, 10], [2, 2]), ShapeError, "from 0 to 9; got [9, 10]"),
        (lambda: F.ctc_loss(X, Y, [9, 9], [2, 3]), ShapeError, "from 0 to 2; got [2, 3]"),
        (lambda: F.ctc_loss(X, Y, [9, 9], [2, 2], blank=5), OptionError, "blank from 0 to 4"),
        (lambda: F.ctc_loss(X, Y, [9, 9], [2, 2], reduction="avg"), OptionError, "reduction"),
        (lambda: F.ctc_loss(X, Y * 1.0, [9, 9], [2, 2]), DTypeError, "expected integer targets"),
        (lambda: F.ctc_loss(X, Y * 4, [9, 9], [2, 2]), IndexOutOfRangeError, "labels from 0 to 4"),
        (lambda: F.ctc_loss(X, Y - 2, [9, 9], [2, 2]), IndexOutOfRangeError, "got labels from -1"),
        (lambda: F.ctc_loss(X[:0], Y, [0, 0], [2, 2]), ShapeError, "one frame or more"),
    ],
)
def test_bad_calls(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
