"""A second front end, over NumPy arrays: interpreter, guards and code generation stay as is."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.capture.trace.front import FrontEnd
from glasshouse.capture.values.var import ValueSource, Var, constant


class ArrayFront(FrontEnd):
    """Arrays are tensors, NumPy's functions are operations; dtype and shape are guarded."""

    name = "numpy"

    def is_tensor(self, value):
        return isinstance(value, np.ndarray)

    def is_operation(self, fn):
        return isinstance(fn, np.ufunc) or (getattr(fn, "__module__", None) or "") == "numpy"

    def guard(self, tracer, var):
        if isinstance(var.origin, ValueSource):
            tracer.guards.add("type", var.origin, np.ndarray)
            tracer.guards.add("call", var.origin, Like(var.value))

    def metadata(self, tracer, var, name):
        fixed = name in ("shape", "dtype", "ndim", "size")
        return constant(getattr(var.value, name)) if fixed else None

    def is_constant(self, value):
        return isinstance(value, (np.dtype, np.generic))

    def can_trace(self):
        return True

    def end(self, tracer):
        pass


class Like:
    """A guard: an array of this dtype and shape."""

    def __init__(self, array):
        self.wanted = array.dtype, array.shape

    def __call__(self, array):
        return (array.dtype, array.shape) == self.wanted


def smooth(x, weights, times=2):
    total = 0
    for w in weights[:times]:
        total = total + np.tanh(x * w).sum(axis=0)
    return {"total": total, "rows": len(x), "shape": x.shape}


def branch(x):
    y = np.sqrt(np.abs(x)) + 1
    if y.sum() > 5:
        return y * 2
    return y - 1


@pytest.mark.parametrize("fn", [smooth, branch])
def test_functions_of_arrays(fn):
    graphs = []

    def counting(graph_module, example_inputs):
        graphs.append(graph_module)
        return graph_module.forward

    fast = gh.optimize(compiler=counting, frontend=ArrayFront())(fn)
    for seed in (0, 0, 1, 2, 2):
        rng = np.random.default_rng(seed)
        args = [rng.normal(size=(2 + seed, 3))]
        args += [[rng.normal(size=3) for _ in range(3)]] if fn is smooth else []
        got, want = fast(*args), fn(*args)
        assert type(got) is type(want)
        if isinstance(want, dict):
            assert got["rows"] == want["rows"] and got["shape"] == want["shape"]
            got, want = got["total"], want["total"]
        np.testing.assert_allclose(got, want)
    assert fast.hits and graphs and graphs[0].graph.find("call_function")


def test_constants_are_vars():
    assert isinstance(constant([1, (2, 3)]), Var)
