"""Entries of PyTorch's table and our array functions of the same names: both give what eager gives
at the ends of each dtype. And gradients of complex numbers, whose entries have their formulas."""

import math
import operator
from functools import partial

import pytest

torch = pytest.importorskip("torch")

import glasshouse as gh  # noqa: E402
from glasshouse.base.errors import DTypeError  # noqa: E402
from glasshouse.base.flags import flags  # noqa: E402
from glasshouse.torch import aten  # noqa: E402, F401
from glasshouse.torch.aten.table import TABLE  # noqa: E402
from glasshouse.torch.backend.entry_point import glasshouse  # noqa: E402
from glasshouse.torch.tensors.dtypes import from_array, to_array  # noqa: E402

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
DTYPES = [*FLOATS, torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool]
DIVISIONS = ("div", "floor_divide", "fmod", "remainder")
OTHERWISE = {  # array functions that differ from PyTorch's, and why
    "floor_divide": "the array API standard has it otherwise at infinities",
    "sgn": "NaN of NaN",
    "sign": "NaN of NaN, as the array API standard has it",
}
# Of these the sign of a zero is open: eager's vectors and its last elements differ.
SIGNS_OPEN = ("clamp_max", "clamp_min", "gelu", "maximum", "minimum", "relu", "remainder")


def array_function(name: str):
    """Our function of this name, of arrays or of networks."""
    places = gh, gh.special, gh.nn.functional
    return next((getattr(x, name) for x in places if hasattr(x, name)), None)


def twins() -> dict:
    """Elementwise operators with an entry, which need tensors alone, with our functions of the same
    names."""
    results = {}
    for entry in sorted(TABLE):
        name, _, overload = entry.partition(".")
        packet = getattr(torch.ops.aten, name, None)
        op = getattr(packet, overload, None) if overload in ("default", "Tensor") else None
        if op is None or torch.Tag.pointwise not in op.tags or array_function(name) is None:
            continue
        needed = [x for x in op._schema.arguments if not x.has_default_value()]
        if all(str(x.type) == "Tensor" for x in needed) and len(needed) <= 2:
            results[name] = op, len(needed), array_function(name)
    return results


TWINS = twins()


def ends(dtype) -> torch.Tensor:
    """Numbers at which formulas end."""
    if dtype is torch.bool:
        return torch.tensor([False, True])
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        below = [-1, -2, -7] if info.min else []
        numbers = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 7, *below]
        return torch.tensor(numbers, dtype=dtype)
    info = torch.finfo(dtype)
    numbers = [0.0, 1.0, 0.5, 2.0, 4.0, 7.5, 1e-3, 30.0, info.max, info.tiny, math.inf]
    numbers = [*numbers, *map(operator.neg, numbers), math.nan]
    return torch.tensor(numbers, dtype=torch.float64).to(dtype)


def operands(name: str, count: int, dtype) -> list[torch.Tensor]:
    """Operands at the ends, all pairs of them. Whole numbers are not divided by 0, which is an
    error, nor the least one by -1, which ends the process in eager; and eager's remainders are NaN
    where the quotient is above all numbers."""
    if count == 1:
        return [ends(dtype)]
    x, y = (v.flatten() for v in torch.meshgrid(ends(dtype), ends(dtype), indexing="ij"))
    fits = torch.ones_like(x, dtype=torch.bool)
    if name in DIVISIONS and not dtype.is_floating_point:
        fits = (y != 0) & ~((x == ends(dtype)[0]) & (y == -1))
    elif name in ("fmod", "remainder"):
        fits = ~(x.isfinite() & (y != 0) & (x / y).isinf())
    return [x[fits], y[fits]]


def eager(name: str, op, inputs) -> torch.Tensor:
    """The operator's result. Of gelu element by element: its vector kernels for AVX-512 make NaN of
    infinity, those for AVX2 and the scalar ones do not."""
    return torch.stack([op(x) for x in inputs[0]]) if name == "gelu" else op(*inputs)


def calls_of(dtype) -> dict:
    """(operator, operands, what eager gives, our function) of the twins that take a dtype."""
    calls = {}
    for name, (op, count, function) in TWINS.items():
        inputs = operands(name, count, dtype)
        try:
            calls[name] = op, inputs, eager(name, op, inputs), function
        except RuntimeError:  # eager does not take it
            continue
        if name == "div" and dtype is not torch.bool:
            for mode in ("floor", "trunc"):
                call = partial(torch.div, rounding_mode=mode)
                ours = partial(gh.div, rounding_mode=mode)
                calls[f"div, {mode}"] = call, inputs, call(*inputs), ours
    return calls


def assert_same(name: str, got, want) -> None:
    """Values, NaN, infinities and, where they are not open, signs of zeros."""
    tolerance = {"rtol": 0, "atol": 0}
    if want.dtype.is_floating_point:
        info = torch.finfo(want.dtype)
        near_one = name == "gelu"  # which adds numbers near 1 and -1
        tolerance = {"rtol": 8 * info.eps, "atol": 8 * (info.eps if near_one else info.tiny)}
        zeros = (got == 0) & (want == 0) & (name not in SIGNS_OPEN)
        assert torch.equal(got.signbit() & zeros, want.signbit() & zeros), f"{name}: signs"
    torch.testing.assert_close(got, want, equal_nan=True, msg=f"{name}: {{}}".format, **tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("compile", ["never", "always"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_entries(dtype, compile):
    calls = calls_of(dtype)
    assert len(calls) > 15

    def every_call(operands):
        return {name: call(*operands[name]) for name, (call, *_) in calls.items()}

    inputs = {name: inputs for name, (_, inputs, *_) in calls.items()}
    with flags.override(compile=compile):
        got = torch.compile(every_call, backend=glasshouse, dynamic=False)(inputs)
    for name, (_, _, want, _) in calls.items():
        assert got[name].dtype == want.dtype, name
        assert_same(name, got[name], want)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_array_functions(dtype):
    for name, (_, inputs, want, function) in calls_of(dtype).items():
        if name in OTHERWISE or name == "div, floor":  # which is `floor_divide`
            continue
        try:
            got = function(*(gh.asarray(to_array(x)) for x in inputs)).numpy()
        except DTypeError:  # the array function takes no such dtype
            continue
        assert_same(name, from_array(got.copy()).to(want.dtype), want)


# -- gradients of complex numbers ---------------------------------------------------------------

BACKWARD = sorted({name.partition(".")[0] for name in TABLE if "_backward." in name})
FORWARD = {  # of entries for gradients, where the name does not say it, or it takes more operands
    "convolution": lambda x: torch.nn.functional.conv1d(x[:, None], x[:1, None, :2]),
    "embedding_dense": lambda x: torch.nn.functional.embedding(torch.tensor([0, 2, 0]), x),
    "softmax": lambda x: x.softmax(-1),
    "tanh": torch.tanh,
}


def forward_of(name: str):
    """Return the forward of an entry for a gradient; None for one that needs more operands, or has
    no gradient of complex numbers."""
    name = name.removesuffix("_backward")
    forward = FORWARD.get(name) or getattr(torch.ops.aten, name, None)
    try:
        forward(torch.ones(3, 4, dtype=torch.complex128, requires_grad=True)).sum().abs().backward()
    except (RuntimeError, TypeError):
        return None
    return forward


COMPLEX = [name for name in BACKWARD if forward_of(name) is not None]


def test_gradients_that_take_complex_numbers():
    assert {"sigmoid_backward", "tanh_backward", "convolution_backward"} <= {*COMPLEX}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_gradients_against_differences(name):
    forward, x = forward_of(name), torch.randn(3, 4, dtype=torch.complex128, requires_grad=True)
    assert torch.autograd.gradcheck(torch.compile(forward, backend=glasshouse), (x,))
