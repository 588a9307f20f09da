"""Swapping one primitive changes every use of it, in a full training step of a digits network."""

import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.backends.numpy import NumPyBackend
from glasshouse.base.errors import BackendError, OptionError


class Door(gh.Mode):
    """Counts the primitives that pass, by name."""

    def __init__(self):
        self.calls = Counter()

    def process(self, primitive, args, attrs, below):
        self.calls[primitive.name] += 1
        return below(primitive, args, attrs)


def build():
    gh.random.seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, padding=1),
        nn.GELU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.LayerNorm(24),
        nn.Dropout(0.1),
        nn.Linear(24, 10),
    )


IMAGES = np.random.default_rng(0).random((6, 1, 8, 8), np.float32)
LABELS = np.arange(6) % 10


def train_step(model, optimizer=None):
    """One whole step: forward, backward, clipping, update. The loss."""
    optimizer = optimizer or gh.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(gh.asarray(IMAGES)), gh.asarray(LABELS))
    loss.backward()
    gh.optim.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


@pytest.mark.slow
def test_no_addition_goes_elsewhere():
    log = []

    def add(x, y):
        log.append(x.shape)
        return np.add(x, y)

    model = build()
    with gh.backends.current().replace("add", add), Door() as door:
        train_step(model)
    assert door.calls["add"] == len(log) > 20


def test_every_kernel_call_is_a_primitive_at_the_door():
    kernels = Counter()

    class Watched(NumPyBackend):
        """Counts each kernel as it computes."""

        def kernel(self, name):
            own = super().kernel(name)

            def run(*data, **attrs):
                kernels[name] += 1
                return own(*data, **attrs)

            return run

    with gh.backends.use(Watched()):
        model = build()
        with Door() as door:
            before = kernels.copy()
            train_step(model)
    assert kernels - before == door.calls


def test_a_subclass_replaces_add_as_well():
    class Counting(NumPyBackend):
        """NumPy with an addition of its own."""

        additions = 0

        def add(self, x, y):
            self.additions += 1
            return np.add(x, y)

    backend = Counting()
    with gh.backends.use(backend):
        model = build()
        backend.additions = 0
        with Door() as door:
            train_step(model)
    assert backend.additions == door.calls["add"] > 20


def state_after_step(add=None, backend="numpy"):
    with gh.backends.use(backend) as used:
        model = build()
        if add is None:
            loss = train_step(model)
        else:
            with used.replace("add", add):
                loss = train_step(model)
        return loss, {k: v.numpy().copy() for k, v in model.state_dict().items()}


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numpy", "lazy"])
def test_a_perturbed_addition_reaches_layers_gradients_and_updates(backend):
    loss, state = state_after_step(backend=backend)
    same_loss, same = state_after_step(lambda x, y: np.add(x, y), backend)
    # Fused additions round elsewhere, and AdamW makes whole steps (lr 0.01) of gradients near 0.
    loss_error, state_error = (0, 0) if backend == "numpy" else (1e-5, 0.021)
    assert abs(same_loss - loss) <= loss_error
    assert all(np.allclose(same[k], state[k], 0, state_error) for k in state)
    other_loss, other = state_after_step(
        lambda x, y: (np.add(x, y) * 1.01).astype(x.dtype), backend
    )
    assert other_loss != loss
    floats = [k for k in state if state[k].dtype.kind == "f"]
    assert all((other[k] != state[k]).any() for k in floats)


@pytest.mark.parametrize(
    "layer",
    [
        nn.AvgPool2d(2),
        nn.AvgPool2d(3, stride=1, padding=1),
        nn.BatchNorm2d(2),
        nn.LayerNorm(4),
        nn.Linear(4, 3),
        nn.Conv2d(2, 3, 3),
        nn.GELU(),
    ],
    ids=repr,
)
@pytest.mark.quick
def test_layers_use_the_new_addition(layer):
    x = gh.asarray(np.random.default_rng(1).random((1, 2, 4, 4), np.float32))
    plain = layer(x).numpy()
    with gh.backends.current().replace("add", lambda a, b: (np.add(a, b) + 0.5).astype(a.dtype)):
        assert not np.array_equal(layer(x).numpy(), plain)


def test_pooling_averages_are_made_of_additions():
    """A 2 by 2 window takes one addition per axis; replaced by the maximum, it pools those."""
    x = np.random.default_rng(1).random((1, 1, 4, 4), np.float32)
    with gh.backends.current().replace("add", np.maximum), Door() as door:
        pooled = nn.functional.avg_pool2d(gh.asarray(x), 2).numpy()
    largest = x.reshape(1, 1, 2, 2, 2, 2).max(axis=(3, 5))
    np.testing.assert_array_equal(pooled, largest / 4)
    assert door.calls["add"] == 2 and door.calls["sum"] == 0


class Sealed:
    """A payload that nothing but its backend can compute with."""

    __slots__ = ("array",)
    __array_ufunc__ = None  # so that NumPy refuses it too

    def __init__(self, array):
        self.array = array


class SealedBackend(NumPyBackend):
    """NumPy behind payloads without operators; counts what is taken out of them."""

    opened = 0

    def from_numpy(self, array):
        return Sealed(np.asarray(array))

    def to_numpy(self, data):
        self.opened += 1
        return super().to_numpy(data.array)

    def spec_of(self, data):
        return super().spec_of(data.array)

    def kernel(self, name):
        """NumPy's kernel between unsealing and sealing."""
        own = super().kernel(name)

        def run(*data, **attrs):
            out = own(*(d.array for d in data), **attrs)
            return tuple(map(Sealed, out)) if isinstance(out, tuple) else Sealed(out)

        return run


def test_nothing_is_computed_outside_the_kernels():
    """A step with payloads that have no arithmetic, opened only for the loss it returns."""
    loss, state = state_after_step()
    with gh.backends.use(SealedBackend()) as backend:
        model = build()
        optimizer = gh.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
        backend.opened = 0
        assert train_step(model, optimizer) == loss
        assert backend.opened == 1
        sealed = {k: v.numpy() for k, v in model.state_dict().items()}
    assert all(np.array_equal(sealed[k], state[k]) for k in state)


def test_gradients_are_summed_by_the_new_addition():
    def gradient():
        v = gh.tensor([1.0, 2.0], requires_grad=True)
        (v * 3 * v).sum().backward()
        return v.grad.tolist()

    assert gradient() == [6.0, 12.0]
    with gh.backends.current().replace("add", lambda a, b: np.add(a, b) * 2):
        assert gradient() == [12.0, 24.0]


def test_replacing_ends_with_its_context_or_undo():
    backend = gh.backends.current()
    with backend.replace("exp", lambda x: x * 0):
        assert gh.exp(gh.ones(())).item() == 0.0
    assert gh.exp(gh.zeros(())).item() == 1.0
    handle = backend.replace("exp", lambda x: x * 0)
    handle.undo()
    assert gh.exp(gh.zeros(())).item() == 1.0


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: gh.backends.current().replace("adds", np.add), OptionError, "'add'"),
        (lambda: gh.backends.current().replace("add", 3), BackendError, "got 3"),
        (lambda: gh.backends.use("nump"), OptionError, "'numpy'"),
        (lambda: gh.backends.use(7), BackendError, "got 7"),
        (lambda: gh.backends.load("numpy:cuda"), Exception, "cuda"),
    ],
)
def test_wrong_calls(call, error, text):
    before = gh.backends.current()
    with pytest.raises(error, match=text):
        call()
    assert gh.backends.current() is before


def test_stub_runs_a_whole_step_without_contents():
    with gh.backends.use("stub"):
        model = build()
        optimizer = gh.optim.SGD(model.parameters(), lr=0.1)
        logits = model(gh.asarray(IMAGES))
        loss = nn.functional.cross_entropy(logits, gh.asarray(LABELS))
        loss.backward()
        optimizer.step()
        assert logits.shape == (6, 10) and loss.shape == ()
        with pytest.raises(BackendError, match="contents"):
            loss.item()


def test_torch_computes_the_same_step():
    pytest.importorskip("torch")
    results = []
    for name in ("numpy", "torch"):
        with gh.backends.use(name) as backend:
            before = sum(backend.fallbacks.values())
            model = build()  # SGD: AdamW divides rounding errors by their own size
            loss = train_step(model, gh.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
            results.append((loss, {k: v.numpy() for k, v in model.state_dict().items()}))
            assert sum(backend.fallbacks.values()) == before
    (loss, state), (other_loss, other) = results
    assert other_loss == pytest.approx(loss, rel=1e-5)
    for key in state:
        np.testing.assert_allclose(other[key], state[key], rtol=1e-4, atol=1e-5)


@pytest.mark.quick
def test_fallbacks_are_counted_and_strict_refuses_them():
    class Bare(NumPyBackend):
        """Everything on the protocol's own fallback."""

        kernel = gh.backends.TensorBackend.kernel
        fallback = gh.backends.TensorBackend.fallback

    with gh.backends.use(Bare()) as backend:
        x = gh.zeros(2)
        assert gh.exp(x).tolist() == [1.0, 1.0]
        assert backend.fallbacks["exp"] == 1
        backend.strict = True
        with pytest.raises(BackendError, match=r"'exp'.*strict"):
            gh.exp(x)


def test_threads_may_compute_on_different_backends():
    import threading

    names = []

    def work():
        with gh.backends.use("stub"):
            names.append(gh.ones(2).backend.name)

    thread = threading.Thread(target=work)
    with gh.backends.use(NumPyBackend()) as mine:
        thread.start()
        thread.join()
        assert gh.ones(2).backend is mine
    assert names == ["stub"]


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int64", "int16", "bool"])
def test_the_fast_where_is_the_slow_one(dtype):
    rng = np.random.default_rng(0)
    backend = gh.backends.load("numpy")
    x, y = (rng.normal(size=(90, 100)).astype(dtype) for _ in "xy")
    if dtype == "float32":
        x[0, :3] = np.nan, np.inf, -0.0
    for condition in (rng.random((90, 100)) < 0.5, np.zeros((90, 100), bool)):
        for a, b, c in (
            (x, y, condition),
            (x.T, y.T, condition.T),
            (x, np.zeros_like(y[:1]), condition),
        ):
            b = np.broadcast_to(b, a.shape)
            got = backend.kernels["where"](c, a, b)
            np.testing.assert_array_equal(got, np.where(c, a, b))
            assert got.dtype == a.dtype


@pytest.mark.slow
@pytest.mark.parametrize("name", ["meta", "numpy", "stub"])
def test_a_backend_is_the_first_of_a_process(name):
    """None relies on another having been loaded."""
    code = "import glasshouse as gh; x = gh.ones((2, 3)) @ gh.ones((3, 4)); print(x.shape)"
    flags = {**os.environ, "GH_BACKEND": name}
    done = subprocess.run([sys.executable, "-c", code], env=flags, capture_output=True, text=True)
    assert done.stdout == "(2, 4)\n", done.stderr
