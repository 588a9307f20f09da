"""Arrays of the user's may be written to as soon as a call returned: every public function that
takes arrays is called, its arrays are overwritten, and only then is the result read."""

import functools
import inspect
import itertools
from array import array

import numpy as np
import pytest
from array_calls import call_of, computed, computed_late, optional_calls, overwrite, results_of

import glasshouse as gh
from glasshouse import nn, optim
from glasshouse.base.flags import flags

NAMESPACES = {"gh": gh, "functional": nn.functional, "linalg": gh.linalg, "fft": gh.fft}
SHARES = ("from_numpy",)  # is asked to
LEAST = {"gh": 300, "functional": 110, "linalg": 30, "fft": 15, "methods": 250}  # that are found


@pytest.fixture(autouse=True, params=["lazy", "numpy"])
def backend(request):
    """Both ways to compute; what is compiled starts from the same nodes."""
    with flags.override(compile="never"), gh.backends.use(request.param):
        yield request.param


def method(name: str):
    """The method of a tensor that is made of the first argument."""
    own = getattr(gh.Tensor, name)

    @functools.wraps(own)
    def call(self, *args, **named):
        return getattr(gh.asarray(self), name)(*args, **named)

    return call


@functools.cache
def functions_of(where: str) -> dict:
    """The public functions of a namespace, or the methods of tensors, by name."""
    if where == "methods":
        names = [x for x in dir(gh.Tensor) if not x.startswith("_") or x in OPERATORS]
        return {x: method(x) for x in names if inspect.isroutine(getattr(gh.Tensor, x))}
    public = {x: fn for x, fn in vars(NAMESPACES[where]).items() if not x.startswith("_")}
    return {
        name: fn
        for name, fn in sorted(public.items())
        if inspect.isroutine(fn) and not name.endswith("_") and name not in SHARES
    }


OPERATORS = [
    f"__{prefix}{name}__"
    for prefix, name in itertools.product(
        ("", "r", "i"), ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
    )
] + ["__lt__", "__eq__", "__ne__", "__getitem__"]


@pytest.mark.slow
@pytest.mark.parametrize("where", [*NAMESPACES, "methods"])
def test_no_function_reads_arrays_after_it_returned(where):
    calls = {name: (fn, call_of(fn)) for name, fn in functions_of(where).items()}
    calls = {name: call for name, call in calls.items() if call[1] is not None}
    assert len(calls) >= LEAST[where]
    wrong = []
    for name, (fn, arguments) in calls.items():
        for call, inputs in [(fn, arguments), *optional_calls(fn)]:
            want, got = computed(call, inputs), computed_late(call, inputs)
            if not all(map(same, want, got)):
                wrong.append((name, inputs))
    assert wrong == []


def same(want, got) -> bool:
    return want.shape == got.shape and bool(np.array_equal(want, got, equal_nan=want.dtype != bool))


# -- ways that are no functions --------------------------------------------------------------------


class HasArray:
    """An object of which NumPy makes an array without a copy."""

    def __init__(self, values: np.ndarray):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return self.values


def written(value, key=slice(None)):
    x = gh.zeros(3)
    x[key] = value
    return x


def written_at(key):
    x = gh.zeros(3)
    x[key] = 5.0
    return x


def gradients(values):
    x = gh.ones(3).requires_grad_()
    (x * values).sum().backward()
    return x.grad


def gradients_of(cotangent):
    x = gh.ones(3).requires_grad_()
    (x * 2).backward(cotangent)
    return x.grad


def checkpointed(values):
    x = gh.ones(3).requires_grad_()
    return x, gh.checkpoint(lambda x, y: gh.exp(x * y))(x, values).sum()


def hooked(cotangent):
    x = gh.ones(3).requires_grad_()
    y = x * 2
    y.register_hook(lambda g: cotangent)
    y.sum().backward()
    return x.grad


def loaded(values):
    model = nn.Linear(3, 1, bias=False)
    model.load_state_dict({"weight": values[None]})
    return model(gh.ones((1, 3)))


def loaded_state(values):
    p = nn.Parameter(gh.ones(3))
    optimizer = optim.SGD([p], lr=1.0, momentum=1.0)
    p.grad = gh.ones(3)
    optimizer.step()
    state = optimizer.state_dict()
    state["state"][0]["momentum_buffer"] = values
    optimizer.load_state_dict(state)
    optimizer.step()
    return p


def updated(values):
    p = nn.Parameter(gh.ones(3))
    optimizer = optim.Adam([p], lr=0.1)
    p.grad = gh.asarray(values)
    optimizer.step()
    return p


def with_copy(source):
    x = gh.zeros(3)
    x.copy_(source)
    return x


WAYS = {
    "asarray": gh.asarray,
    "tensor": lambda a: gh.tensor(a, requires_grad=True) * 2,
    "Tensor": gh.Tensor,
    "Parameter": nn.Parameter,
    "as_tensor": gh.as_tensor,
    "asarray with a dtype": lambda a: gh.asarray(a, gh.float32),
    "asarray of a view": lambda a: gh.asarray(a[::-1]),
    "asarray of one read-only": lambda a: gh.asarray(read_only(a)),
    "asarray of a repeated one": lambda a: gh.asarray(np.broadcast_to(a, (2, 3))),
    "asarray of an object": lambda a: gh.asarray(HasArray(a)),
    "asarray of a buffer": lambda a: gh.asarray(memoryview(a)),
    "asarray of a list": lambda a: gh.asarray([a, gh.ones(3)]),
    "frombuffer": lambda a: gh.frombuffer(a, dtype=gh.float32),
    "from_dlpack": gh.from_dlpack,
    "copy of one that shares": lambda a: gh.asarray(gh.from_numpy(a), copy=True),
    "clone of one that shares": lambda a: gh.from_numpy(a).clone(),
    "clone that is tracked": lambda a: gh.from_numpy(a).requires_grad_().clone() * 2,
    "copy_": with_copy,
    "copy_ of one that shares": lambda a: with_copy(gh.from_numpy(a)),
    "to": lambda a: gh.ones(3).to(gh.asarray(a)) * a,
    "an operand": lambda a: gh.ones(3) + a,
    "an operand on the left": lambda a: a - gh.ones(3),
    "an operand in a comparison": lambda a: gh.full(3, 0.5) < a,
    "a value written": written,
    "a value written by an index": lambda a: written(a[:2], [2, 0]),
    "a value written by a mask": lambda a: written(a[:2], np.array([True, False, True])),
    "a tensor in a list": lambda a: gh.stack([gh.ones(3), a]),
    "grad": lambda a: gh.grad(lambda x: (x * a).sum())(a),
    "vjp": lambda a: gh.vjp(lambda x: x * 2, gh.ones(3))[1](a),
    "jvp": lambda a: gh.jvp(lambda x: x * x, (a,), (a,)),
    "vmap": lambda a: gh.vmap(lambda x, y: x * y)(a, a),
    "scan": lambda a: gh.scan(lambda c, x: (c + x, c), gh.asarray(0.0), a),
    "checkpoint": lambda a: gh.checkpoint(lambda x: gh.exp(x))(a),
    "backward through an operand": gradients,
    "backward from a gradient": gradients_of,
    "a hook's gradient": hooked,
    "load_state_dict": loaded,
    "an optimizer's load_state_dict": loaded_state,
    "a gradient": updated,
    "a layer": lambda a: nn.LayerNorm(3)(a),
    "a loss": lambda a: nn.MSELoss()(a, gh.ones(3)),
    "from_pretrained": lambda a: nn.Embedding.from_pretrained(a[None])(gh.asarray([0])),
    "register_buffer": lambda a: buffered(a),
    "default_convert": lambda a: gh.data.default_convert({"x": a}),
    "collate": lambda a: gh.data.collate([a, a]),
}


def buffered(values):
    module = nn.Module()
    module.register_buffer("scale", gh.asarray(values))
    return module.scale * 2


def read_only(values):
    view = values.view()
    view.flags.writeable = False
    return view


@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
def test_no_way_in_reads_arrays_later(way):
    values = np.array([0.25, 0.5, 0.75], np.float32)
    gh.random.seed(0)
    want = results_of(way(values.copy()))
    gh.random.seed(0)
    result = way(values)
    overwrite(values)
    assert [x.tolist() for x in results_of(result)] == [x.tolist() for x in want]
    assert want


@pytest.mark.parametrize("key", [np.array([2, 0]), np.array([True, False, True])], ids=str)
def test_indices_are_read_at_the_call(key):
    read, changed = gh.asarray([1.0, 2.0, 3.0])[key], written_at(key)
    want = np.zeros(3)
    want[key] = 5.0
    expected = np.array([1.0, 2.0, 3.0])[key].tolist()
    key[...] = False
    assert read.tolist() == expected and changed.tolist() == want.tolist()


def test_buffers_of_python_are_copied():
    numbers = array("d", [1.0, 2.0])
    x = gh.asarray(numbers) * 2
    numbers[0] = 9.0
    assert x.tolist() == [2.0, 4.0]


def test_a_batch_buffer_may_be_used_again():
    buffer, w = np.empty((4, 3), np.float32), gh.ones((3, 1)).requires_grad_()
    steps = [np.full((4, 3), k + 1, np.float32) for k in range(3)]
    for values in steps:
        buffer[...] = values
        (gh.asarray(buffer) @ w).sum().backward()
        (buffer @ w).sum().backward()
    assert w.grad.reshape(-1).tolist() == [2 * sum(4.0 * (k + 1) for k in range(3))] * 3


# -- captured --------------------------------------------------------------------------------------

OUTSIDE = np.ones(3, np.float32)


class Holder:
    values = OUTSIDE


def late_operand(x, a):
    y = x * a
    a[:] = 100.0
    return y


def written_inside(x, a):
    y = x * 1
    y[:] = a
    return y + 1


CAPTURED = {
    "an argument": lambda x, a: x * a,
    "a global": lambda x, a: x * OUTSIDE,
    "an attribute": lambda x, a: x * Holder.values,
    "a closure": lambda x, a: (lambda y: y * OUTSIDE)(x),
    "asarray": lambda x, a: x * gh.asarray(a),
    "asarray of a global": lambda x, a: x * gh.asarray(OUTSIDE),
    "where": lambda x, a: gh.where(x > 1, a, x),
    "a write inside": late_operand,
    "a value written": written_inside,
    "a computed array": lambda x, a: x * (a * 2),
    "a list": lambda x, a: gh.stack([x, gh.asarray(a)]),
}


@pytest.mark.parametrize("compiler", ["eager", "program"])
@pytest.mark.parametrize("fn", CAPTURED.values(), ids=list(CAPTURED))
def test_captured_functions_read_arrays_at_the_call(fn, compiler):
    captured, argument = gh.optimize(compiler)(fn), np.empty(3, np.float32)
    x, twin = (gh.tensor([1.0, 2.0, 3.0], requires_grad=True) for _ in range(2))
    for k in range(4):
        for values in (argument, OUTSIDE):
            values[:] = k + 1
        want = fn(twin, argument.copy())
        (want + twin).sum().backward()
        want = want.tolist()
        got = captured(x, argument)
        for values in (argument, OUTSIDE):
            values[:] = -5
        (got + x).sum().backward()
        assert got.tolist() == want
        assert x.grad.tolist() == twin.grad.tolist()


def test_checkpoints_compute_again_from_the_values_of_the_call():
    a, b = (np.array([0.25, 0.5, 0.75], np.float32) for _ in range(2))
    (x, y), (twin, z) = checkpointed(a), checkpointed(b)
    overwrite(a)
    y.backward(), z.backward()
    assert x.grad.tolist() == twin.grad.tolist()


@pytest.mark.parametrize("compiler", ["eager", "program"])
def test_a_captured_step_may_get_the_same_buffer_each_time(compiler):
    def losses_of(copied: bool):
        gh.random.seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        optimizer = optim.Adam(model.parameters(), lr=0.1)

        @gh.optimize(compiler)
        def step(x, y):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        rng, x, y = np.random.default_rng(0), np.empty((8, 3), np.float32), np.empty((8, 1))
        y, losses = y.astype(np.float32), []
        for _ in range(5):
            x[...], y[...] = rng.normal(size=(8, 3)), rng.normal(size=(8, 1))
            losses.append(step(*((x.copy(), y.copy()) if copied else (x, y))))
        return [loss.item() for loss in losses]

    assert losses_of(copied=False) == losses_of(copied=True)


# -- the other way: arrays of ours -----------------------------------------------------------------


def test_arrays_that_were_given_out_keep_their_contents():
    p = nn.Parameter(gh.zeros(1000))
    optimizer = optim.SGD([p], lr=1.0)
    held = []
    for k in range(4):
        held.append((p.numpy(), np.asarray(p), np.from_dlpack(p.detach()), float(-k)))
        p.grad = gh.ones(1000)
        optimizer.step()
        optimizer.zero_grad()
    for *arrays, value in held:
        assert all(set(x.tolist()) == {value} for x in arrays)


def test_arrays_that_are_given_out_change_no_tensor():
    x = gh.ones(3) + 1
    for view in (x.numpy(), np.asarray(x), np.from_dlpack(x, copy=False)):
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 9
    for copy in (np.array(x), np.asarray(x, np.float64), np.from_dlpack(x)):
        copy[0] = 9
    assert x.tolist() == [2.0, 2.0, 2.0]
