"""`x.data`: contents off the tape that are written through; PyTorch is the reference."""

import copy
import pickle

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.flags import flags
from glasshouse.compile.programs.replay import in_python

START = [1.0, -2.0, 3.0]


@pytest.fixture(params=["numpy", "lazy", "lazy-always", "lazy-python", "torch"])
def backend(request, monkeypatch):
    name, _, how = request.param.partition("-")
    if name == "torch":
        pytest.importorskip("torch")
    if how == "always":
        monkeypatch.setattr(flags, "compile", "always")
    with gh.backends.use(name):
        if how == "python":
            with in_python():
                yield name
        else:
            yield name


def parameter():
    return nn.Parameter(gh.asarray(START))


def assigns(p, t):
    p.data = t([4.0, 5.0, 6.0])


def subtracts(p, t):
    p.data -= 0.5 * t(START)


def chains(p, t):
    p.data.mul_(2.0).add_(t(START), alpha=-3).sub_(1.0).div_(t([2.0, 4.0, 8.0]))


def fills(p, t):
    p.data.fill_(7.0)
    p.data[1] = -1.0


def copies(p, t):
    p.data.copy_(t([9.0, 8.0, 7.0]) * p.data)


def clamps(p, t):
    p.data.clamp_(-1.0, 1.5)


def zeroes_gradient(p, t):
    (p * p).sum().backward()
    p.data.add_(p.grad.data)
    p.grad.data.zero_()


def keeps_the_view(p, t):
    view = p.data
    p.data.mul_(3.0)
    view.add_(view)


def reads_a_result(p, t):
    y = p * 2
    y.data.add_(1.0)
    p.data.copy_(y.data)


WRITES = [assigns, subtracts, chains, fills, copies, clamps, zeroes_gradient, keeps_the_view]
WRITES += [reads_a_result]


@pytest.mark.parametrize("write", WRITES)
def test_writing_is_pytorchs(backend, write):
    torch = pytest.importorskip("torch")
    p, twin = parameter(), torch.nn.Parameter(torch.tensor(START))
    write(p, gh.asarray)
    write(twin, torch.tensor)
    np.testing.assert_allclose(p.numpy(), twin.detach().numpy(), rtol=1e-6)
    if p.grad is not None:
        np.testing.assert_allclose(p.grad.numpy(), twin.grad.numpy(), rtol=1e-6)
    assert p.is_leaf and p.requires_grad and isinstance(p, nn.Parameter)


def test_a_write_under_no_grad(backend):
    p = parameter()
    with gh.no_grad():
        p.data -= 1.0
    assert p.tolist() == [0.0, -3.0, 2.0]


def test_it_is_off_the_tape_and_live():
    p = parameter()
    view = p.data
    assert isinstance(view, gh.Tensor) and not view.requires_grad and view.grad is None
    assert not (view * 2).requires_grad
    with gh.no_grad():
        p += 1.0
    assert view.tolist() == p.tolist() and view.data.tolist() == p.tolist()


def test_what_was_recorded_keeps_its_values(backend):
    p = parameter()
    y = (p * p).sum()
    p.data.zero_()
    y.backward()
    assert p.grad.tolist() == [2.0, -4.0, 6.0] and p.tolist() == [0.0, 0.0, 0.0]


def test_no_tape_sees_a_write():
    p, w = parameter(), nn.Parameter(gh.ones(3))
    p.data.add_(w)
    assert p.is_leaf and not p.data.requires_grad


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (lambda: gh.zeros(4), gh.ShapeError, r"\(3,\).*\(4,\)"),
        (lambda: gh.zeros(1), gh.ShapeError, r"\(3,\)"),
        (lambda: gh.zeros(3, dtype=gh.float64), gh.DTypeError, r"float32.*float64.*\.to\(gh"),
        (lambda: np.zeros(3), gh.DTypeError, "ndarray.*asarray"),
        (lambda: None, gh.DTypeError, "NoneType"),
    ],
)
def test_what_does_not_fit_changes_nothing(value, error, text):
    p = parameter()
    with pytest.raises(error, match=text):
        p.data = value()
    assert p.tolist() == START


def test_a_copy_is_a_tensor_of_its_own():
    p = parameter()
    for result in (copy.deepcopy(p.data), copy.copy(p.data), pickle.loads(pickle.dumps(p.data))):
        assert type(result) is gh.Tensor
        result.zero_()
    assert p.tolist() == START and repr(p.data) == repr(gh.asarray(START))


def test_it_moves_between_backends():
    p = parameter()
    with gh.backends.use("numpy"):
        p.data += 1.0
        assert p.tolist() == [2.0, -1.0, 4.0] and p.data.backend.name == "numpy"


def optimizers_step(model, x, momenta):
    """An iteration with an optimizer as PyTorch's users write one."""
    loss = (model(x) ** 2).mean()
    loss.backward()
    for p in model.parameters():
        momentum = momenta.setdefault(id(p), p.grad.data * 0)
        momentum.mul_(0.9).add_(p.grad.data)
        p.data.add_(momentum, alpha=-0.1)
        p.grad.data.zero_()
    return loss.detach()


def trained(step, torch=None):
    start = np.random.default_rng(0).normal(size=(2, 3)).astype("float32")
    model = torch.nn.Linear(3, 2) if torch else nn.Linear(3, 2)
    tensor = torch.tensor if torch else gh.asarray
    model.weight.data = tensor(start)
    model.bias.data.fill_(0.5)
    x = tensor(np.arange(12, dtype="float32").reshape(4, 3) / 12)
    momenta = {}
    losses = [float(step(model, x, momenta).numpy()) for _ in range(5)]
    return losses, model.weight.data.numpy()


@pytest.mark.parametrize("captured", [False, True])
def test_an_optimizer_that_writes_data_trains_as_pytorchs(backend, captured):
    torch = pytest.importorskip("torch")
    ours = trained(gh.optimize(optimizers_step) if captured else optimizers_step)
    theirs = trained(optimizers_step, torch)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5, atol=1e-6)


def test_our_optimizers_and_data_see_the_same_contents():
    p = parameter()
    opt = gh.optim.SGD([p], lr=0.5)
    view = p.data
    (p * p).sum().backward()
    opt.step()
    assert view.tolist() == p.tolist() == [0.0, 0.0, 0.0]
    p.data = gh.ones(3)
    p.grad = gh.ones(3)
    opt.step()
    assert p.tolist() == [0.5, 0.5, 0.5]


def test_a_captured_function_writes_and_returns_it():
    p = parameter()

    @gh.optimize
    def add(v):
        p.data.add_(v)
        return p.data

    for _ in range(4):
        view = add(gh.ones(3))
    assert add.hits == 3 and p.tolist() == [5.0, 2.0, 7.0]
    view.zero_()
    assert p.tolist() == [0.0, 0.0, 0.0]


def test_a_captured_function_assigns_it():
    p = parameter()

    @gh.optimize
    def assign(p, t):
        p.data = t
        return p * 2

    for i in range(4):
        y = assign(p, gh.ones(3) * i)
        assert p.tolist() == [i] * 3 and y.tolist() == [2 * i] * 3
        assert y.requires_grad and p.is_leaf
    assert assign.hits == 3


def test_a_view_from_outside_is_written_once_by_a_captured_function():
    p = parameter()

    @gh.optimize
    def double(v):
        v.mul_(2.0)
        return v + 1

    for i in range(1, 4):
        assert double(p.data).tolist() == [2.0**i * x + 1 for x in START]
    assert p.tolist() == [8 * x for x in START]


def of_a_row(x):
    y = x * 1
    y.data.mul_(3.0)
    y.data = y.data + 1
    return y


def test_under_vmap(backend):
    x = gh.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert gh.vmap(of_a_row)(x).tolist() == [[4.0, 7.0], [10.0, 13.0]]


def test_a_row_is_not_written_to_a_tensor_without_the_axis():
    p = parameter()
    with pytest.raises(gh.TransformError, match="level"):
        gh.vmap(lambda x: p.data.add_(x).sum())(gh.ones((2, 3)))
    assert p.tolist() == START


def test_transforms_differentiate_past_it(backend):
    """The value is the written one; the derivative that of what was recorded, as in PyTorch."""
    x = gh.asarray(START)
    value, grads = gh.value_and_grad(lambda x: of_a_row(x).sum())(x)
    assert value.item() == 9.0 and grads.tolist() == [1.0, 1.0, 1.0]
    y, tangent = gh.jvp(of_a_row, (x,), (gh.ones(3),))
    assert y.tolist() == [4.0, -5.0, 10.0] and tangent.tolist() == [1.0, 1.0, 1.0]
    assert gh.grad(lambda x: (x.data * x).sum())(x).tolist() == START
