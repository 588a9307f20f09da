"""Random functions as ONNX: onnxruntime and our importer give what the function gives, also at
other sizes of two axes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import glasshouse as gh

onnx = pytest.importorskip("onnx", minversion="1.18")
onnxruntime = pytest.importorskip("onnxruntime")
F = gh.nn.functional
UNARY = (gh.sin, gh.tanh, gh.abs, gh.exp, F.relu, F.gelu, F.silu, F.softplus, gh.floor, gh.square)
BINARY = (gh.add, gh.subtract, gh.multiply, gh.maximum, gh.atan2)
SIZES = (4, 6)  # of the axes that vary


class Program:
    """A function of x (N, T, 5), made of numbers: each step has an operation and its choices."""

    def __init__(self, steps):
        self.steps = steps
        rng = np.random.default_rng(sum(a + 7 * b for _, a, b in steps))
        self.weights = [rng.normal(size=(5, 5)).astype(np.float32) / 2 for _ in range(3)]

    def __call__(self, x):
        values = [x]
        for kind, a, b in self.steps:
            y = values[a % len(values)]
            values.append(self.step(kind, y, values[b % len(values)], b))
        return tuple(values[-3:])

    def step(self, kind, x, y, b):
        """A value of shape (N, T, 5) of two others and a number."""
        n, t, c = x.shape
        axis = b % 3
        return [
            lambda: gh.clip(UNARY[b % len(UNARY)](x), -9, 9),
            lambda: BINARY[b % len(BINARY)](x, y),
            lambda: x @ gh.asarray(self.weights[b % 3]),
            lambda: x - gh.mean(x, axis=axis, keepdims=True),
            lambda: x * gh.max(y, axis=axis, keepdims=True) / 9,
            lambda: F.softmax(x, axis),
            lambda: gh.flip(x, axis=axis),
            lambda: gh.where(x > y, x, -y),
            lambda: gh.clip(gh.cumulative_sum(x, axis=axis) / (1 + axis), -9, 9),
            lambda: gh.sort(x, axis=axis),
            lambda: x.reshape((n * t, c)).mT.reshape((c, n, t)).permute(1, 2, 0),
            lambda: gh.concat([x[:, t // 2 :], y[:, : t // 2]], axis=1),
            lambda: F.pad(x[:, 1:], (0, 0, 1, 0), value=0.5),
            lambda: F.layer_norm(x + y, (c,)),
            lambda: F.scaled_dot_product_attention(x, y, x, is_causal=b % 2 == 0),
            lambda: gh.take(x, gh.arange(t) * 2 % t, axis=1),
            lambda: gh.roll(x, 1, axis=axis) + gh.arange(t)[:, None] / t,
            lambda: x * (gh.asarray(np.float32(1)) / n) + gh.std(x),
            lambda: gh.scan(lambda s, r: (s * 0.5 + r, s), x[:, 0], gh.moveaxis(y, 1, 0))[1]
            .permute(1, 0, 2),
        ][kind]()  # fmt: skip


STEPS = st.tuples(st.integers(0, 18), st.integers(0, 50), st.integers(0, 50))


PROGRAMS = st.lists(STEPS, min_size=1, max_size=7)
OPTIONS = {"deadline": None, "derandomize": True, "database": None}


@settings(max_examples=3, **OPTIONS)
@given(PROGRAMS)
def test_a_few_random_functions_give_the_same_as_onnx(tmp_path_factory, steps):
    check(tmp_path_factory, steps)


@pytest.mark.slow
@settings(max_examples=60, **OPTIONS)
@given(PROGRAMS)
def test_random_functions_give_the_same_as_onnx(tmp_path_factory, steps):
    check(tmp_path_factory, steps)


def check(tmp_path_factory, steps):
    """Export a random function, and compare."""
    program = Program(steps)
    path = tmp_path_factory.mktemp("onnx") / "f.onnx"
    x = np.random.default_rng(1).normal(size=(*SIZES, 5)).astype(np.float32)
    gh.onnx.export(program, x, path, dynamic_axes={"x": {0: "n", 1: "t"}})
    onnx.checker.check_model(onnx.load(str(path)), full_check=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    network = gh.onnx.load(path)
    for sizes in (SIZES, (3, 12), (7, 4)):
        x = np.random.default_rng(sum(sizes)).normal(size=(*sizes, 5)).astype(np.float32)
        with gh.no_grad():
            expected = [y.numpy() for y in program(gh.asarray(x))]
            mine = network(gh.asarray(x))
        mine = [y.numpy() for y in (mine if isinstance(mine, tuple) else (mine,))]
        for results in (session.run(None, {"x": x}), mine):
            for got, want in zip(results, expected, strict=True):
                scale = max(1.0, float(np.abs(want).max(initial=0)))
                np.testing.assert_allclose(got, want, rtol=0, atol=3e-5 * scale)
