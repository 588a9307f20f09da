"""Random programs compute the same on the lazy backend, compiled, as on the NumPy backend.

Values and gradients, all dtypes that kernels compute, empty and one-element shapes, strided and
shared operands, writing in place. `GH_RANDOM_GRAPHS` sets how many; the seed names the failing one.
"""

import os

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags

COUNT = int(os.environ.get("GH_RANDOM_GRAPHS", "80"))
FLOATS = ("float32", "float32", "float64", "bfloat16", "float16")
INTEGERS = ("int64", "int32", "uint8", "int8", "uint32", "bool")
SIZES = (1, 2, 3, 5, 8, 17)


class Program:
    """A random straight-line program; `run` executes it on the current backend."""

    def __init__(self, seed: int):
        self.seed = seed
        rng = self.rng = np.random.default_rng(seed)
        self.floating = rng.random() < 0.75
        self.dtype = str(rng.choice(FLOATS if self.floating else INTEGERS))
        ndim = int(rng.integers(0, 5))
        self.shape = tuple(int(rng.choice(SIZES)) for _ in range(ndim))
        if rng.random() < 0.05 and ndim:
            self.shape = (0, *self.shape[1:])
        self.steps = int(rng.integers(2, 14))
        self.inputs = [self.array(self.shape) for _ in range(2)]
        self.inputs.append(self.array(tuple(n if rng.random() < 0.5 else 1 for n in self.shape)))
        if ndim and rng.random() < 0.3:  # a strided view
            wide = self.array((*self.shape[:-1], 2 * self.shape[-1]))
            self.inputs[0] = wide[..., ::2]

    def array(self, shape):
        kind = gh.asarray(0).to(self.dtype).dtype
        if kind.is_bool:
            return self.rng.random(shape) < 0.5
        if kind.is_integer:
            return self.rng.integers(0, 7, shape).astype(kind.np)
        return self.rng.uniform(-2, 2, shape).astype(kind.np)

    def run(self, with_gradient: bool):
        rng = np.random.default_rng(self.seed + 1)
        leaves = [gh.tensor(np.array(a) if i else a) for i, a in enumerate(self.inputs)]
        if with_gradient:
            for leaf in leaves:
                leaf.requires_grad_()
        values = list(leaves)
        for _ in range(self.steps):
            values.append(self.step(rng, values))
        results = [values[-1], values[int(rng.integers(len(values)))]]
        if with_gradient:
            loss = sum((v.to("float32") * 0.1).sum() for v in values[-3:])
            loss.backward()
            results += [leaf.grad for leaf in leaves if leaf.grad is not None]
        return results

    def step(self, rng, values):
        x, y = (values[int(rng.integers(len(values)))] for _ in range(2))
        op = str(rng.choice(MOVES if rng.random() < 0.35 else self.operators()))
        return apply(op, rng, x, y)

    def operators(self):
        if self.dtype in ("float16", "bfloat16"):  # computed in float32: steps may fall elsewhere
            return [op for op in FLOAT_OPS if op not in ("floor", "round")]
        return FLOAT_OPS if self.floating else BOOL_OPS if self.dtype == "bool" else INT_OPS


MOVES = (
    "permute",
    "reshape",
    "sum",
    "max",
    "slice",
    "flip",
    "concat",
    "pad",
    "expand",
    "mean_keep",
)
FLOAT_OPS = (
    "add", "sub", "mul", "div", "exp", "tanh", "sin", "maximum", "where", "abs", "softmax",
    "square", "sigmoid", "log1p", "erf", "scale", "write", "shared", "sqrt", "floor", "round",
)  # fmt: skip
INT_OPS = (
    "add",
    "sub",
    "mul",
    "maximum",
    "where",
    "floordiv",
    "remainder",
    "xor",
    "shift",
    "write",
)
BOOL_OPS = ("xor", "and", "where", "or", "write")


def same_shape(x, y):
    """y broadcast or reduced to the shape of x."""
    if y.shape == x.shape:
        return y
    try:
        return gh.broadcast_to(y, x.shape)
    except gh.ShapeError:
        return x


def apply(op, rng, x, y):
    y = same_shape(x, y)
    axis = int(rng.integers(x.ndim)) if x.ndim else 0
    if op in MOVES and (x.ndim == 0 or x.size > 4000):
        op = "where"
    if op == "permute":
        return gh.permute_dims(x, tuple(rng.permutation(x.ndim).tolist()))
    if op == "reshape":
        if x.ndim > 1 and rng.random() < 0.5:
            return gh.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))
        return gh.reshape(x, (x.size,))
    if op in ("sum", "max"):
        if op == "max" and (x.dtype.is_bool or 0 in x.shape):
            return gh.any(x, axis=axis) if x.dtype.is_bool else x
        if x.dtype.is_bool:
            return gh.all(x, axis=axis)
        return gh.sum(x, axis=axis, dtype=x.dtype) if op == "sum" else gh.max(x, axis=axis)
    if op == "mean_keep":
        if x.dtype.is_floating and x.size:
            return x - gh.mean(x, axis=axis, keepdims=True)
        return x
    if op == "slice":
        start = int(rng.integers(0, max(1, x.shape[axis])))
        return x[(slice(None),) * axis + (slice(start, None, int(rng.integers(1, 3))),)]
    if op == "flip":
        return gh.flip(x, axis=axis)
    if op == "concat":
        return gh.concat([x, y], axis=axis)
    if op == "pad":
        return gh.pad(x, [(int(rng.integers(0, 2)), 1)] * x.ndim)
    if op == "expand":
        return gh.broadcast_to(gh.expand_dims(x, axis=0), (2, *x.shape))
    return ELEMENTWISE[op](x, y)


def write(x, y):
    z = x * y if not x.dtype.is_bool else x & y
    if z.ndim and z.shape[0]:
        z = z.detach()
        z[0] = y[0].detach()
    return z


ELEMENTWISE = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / (y * y + 1),
    "exp": lambda x, y: gh.exp(-x * x * 0.1),
    "tanh": lambda x, y: gh.tanh(x),
    "sin": lambda x, y: gh.sin(x),
    "maximum": lambda x, y: gh.maximum(x, y),
    "where": lambda x, y: gh.where(x > y if not x.dtype.is_bool else x, x, y),
    "abs": lambda x, y: gh.abs(x),
    "softmax": lambda x, y: gh.nn.functional.softmax(x, dim=-1) if x.ndim and x.size else x,
    "square": lambda x, y: x * x * 0.25,
    "sigmoid": lambda x, y: gh.nn.functional.sigmoid(x),
    "log1p": lambda x, y: gh.log1p(gh.abs(x)),
    "erf": lambda x, y: gh.nn.functional.gelu(x),
    "scale": lambda x, y: x * 0.37 + 1.25,
    "write": write,
    "shared": lambda x, y: x - y * x + y,
    "sqrt": lambda x, y: gh.sqrt(gh.abs(x) + 0.5),
    "floor": lambda x, y: gh.floor(x * 1.37 + 0.011),
    "round": lambda x, y: gh.round(x * 1.37 + 0.011),
    "floordiv": lambda x, y: x // (y | 1),
    "remainder": lambda x, y: x % (y | 1),
    "xor": lambda x, y: x ^ y,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "shift": lambda x, y: x >> 1,
}

TOLERANCE = {"float64": 1e-9, "float32": 2e-4, "float16": 3e-2, "bfloat16": 2e-1}


@pytest.mark.sample(24)
@pytest.mark.parametrize("seed", range(COUNT))
def test_random_program(seed):
    program = Program(seed)
    gradient = program.floating and program.dtype in ("float32", "float64")
    with gh.backends.use("numpy"):
        expected = [v.numpy() for v in program.run(gradient)]
    with gh.backends.use("lazy") as backend, flags.override(compile="always"):
        tensors = program.run(gradient)
        backend.evaluate()
        got = [v.numpy() for v in tensors]
    for e, g in zip(expected, got, strict=True):
        assert e.shape == g.shape and e.dtype == g.dtype, f"seed {seed}"
        tolerance = TOLERANCE.get(str(g.dtype), 0)
        e, g = e.astype("f8"), g.astype("f8")
        scale = 1 + np.abs(e[np.isfinite(e)]).max(initial=0)
        np.testing.assert_allclose(
            g, e, rtol=tolerance, atol=tolerance * scale, err_msg=f"seed {seed}"
        )
