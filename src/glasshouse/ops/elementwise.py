"""Elementwise primitives: one result per position, of the operands' shape and dtype.

Operands of a card have equal shapes and dtypes; the operators on Value bring them there. Costs: 1
FLOP an element for one machine instruction, 8 for the polynomial kernels."""

import functools
import math
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import numpy as np

from glasshouse.base import DTypeError, ShapeError, Spec
from glasshouse.dispatch import (
    LINEAR,
    Arr,
    KernelText,
    Primitive,
    Rule,
    Value,
    bind,
    define,
    primitives,
)
from glasshouse.dispatch.kernel_text import function_text, operator_text
from glasshouse.dispatch.primitive import DTYPE_GROUPS, refusal, sample
from glasshouse.dispatch.value import broadcast_to, full
from glasshouse.dispatch.wide import rounded_once
from glasshouse.ops.cast import conj, real

POLYNOMIAL = 8  # FLOPs of exp, log, sin …: a typical range reduction and polynomial


def infer_same(name: str, dtypes: str) -> Callable[..., Any]:
    allowed = frozenset(d.name for d in DTYPE_GROUPS[dtypes])

    def infer(first: Spec, *rest: Spec, **_) -> Spec:
        for other in rest:
            if other is not first:
                raise mismatch(name, (first, *rest))
        if first.dtype.name not in allowed:
            fix = f"Cast to one of: {', '.join(d.name for d in DTYPE_GROUPS[dtypes])}."
            raise DTypeError(name, f"a dtype of the group '{dtypes}'", first.dtype.name, fix)
        return first

    return infer


def mismatch(name: str, specs: Any) -> Any:
    if any(s.shape != specs[0].shape for s in specs):
        shapes = " and ".join(str(s.shape) for s in specs)
        return ShapeError(name, "operands of equal shape", shapes, "Broadcast them first.")
    listed = " and ".join(s.dtype.name for s in specs)
    return DTypeError(name, "operands of one dtype", listed, "Cast one of them.")


def batch_together(batched: tuple[bool, ...], operands: tuple[Value, ...]) -> list[Value]:
    """All operands with a batch axis in front; those without one are repeated along it."""
    size = next(x.shape[0] for x, b in zip(operands, batched, strict=True) if b)
    return [
        x if b else broadcast_to(x, (size, *x.shape))
        for x, b in zip(operands, batched, strict=True)
    ]


def batch_elementwise(name: str) -> Any:
    """The batching rule of an elementwise primitive: itself, on operands that all have the axis."""

    def batch(batched, *operands, **attrs):
        return bind(primitives[name], tuple(batch_together(batched, operands)), attrs)

    return batch


def derivative_rules(derivative: Any) -> Any:
    """(vjp, jvp) of one operand with `derivative(y, *operands)`: g · conj(d) and t · d, rounded
    once for a derivative `in_steps`."""
    reads_y, *reads = (not name.startswith("_") for name in signature(derivative).parameters)

    def vjp(g, y, *operands, **_):
        return g * conj(derivative(y, *operands))

    def jvp(t, y, *operands, **_):
        return t * derivative(y, *operands)

    if getattr(derivative, "takes_steps", False):
        vjp, jvp = rounded_once(vjp), rounded_once(jvp)
    return Rule(vjp, reads_y, tuple(reads)), jvp


def in_steps(derivative: Any) -> Any:
    """The derivative, marked as more than one card: its intermediates may not fit 16 bits."""
    derivative.takes_steps = True
    return derivative


def elementwise(
    name: Any,
    doc: Any,
    *,
    ref: Any,
    derivatives: Any = None,
    dtypes: str = "numeric",
    flops: int = 1,
    ranges: Any = None,
    traits: tuple[Any, ...] = (),
    **fields: Any,
) -> Primitive:
    """A card whose infer, batch, flops and samples follow from its being elementwise; per operand
    `derivatives` has a function (y, *operands) -> derivative, `ranges` the samples' (low, high).
    `fields` are further ones of the card."""
    ranges = ranges or ((-2, 2),) * operand_count(ref)
    if derivatives is not None:
        fields["vjp"], fields["jvp"] = zip(*map(derivative_rules, derivatives), strict=True)
    errors = []
    if dtypes != "all":
        wrong = "bool" if dtypes in ("numeric", "inexact") else "complex64"
        errors.append(refusal(DTypeError, "expected a dtype", *[(2,)] * len(ranges), on=wrong))
    if len(ranges) > 1:
        errors.append(refusal(ShapeError, "equal shape", (2,), (3,), on="int32"))
    return define(
        name,
        "elementwise",
        doc,
        infer=infer_same(name, dtypes),
        ref=ref,
        batch=batch_elementwise(name),
        flops=lambda first, *_rest, **_: flops * first.size,
        samples=[sample(*(Arr(shape, *r) for r in ranges)) for shape in ((2, 3), (), (0, 2))],
        error_samples=errors,
        dtypes=dtypes,
        traits=("elementwise", *traits),
        **{"complex_flops": 4, "source": "standard", **fields},
    )


def operand_count(ref: Any) -> int:
    if isinstance(ref, np.ufunc):
        return ref.nin
    parameters = signature(ref).parameters.values()
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


polynomial: partial[Primitive] = partial(elementwise, dtypes="inexact", flops=POLYNOMIAL)


def scalar(value: Any, like: Value) -> Any:
    return full(like.shape, value, like.dtype)


def where_(condition: Value, x: Value, y: Value) -> Any:
    return bind(primitives["where"], (condition, x, y), {})


def sign_of(x: Value) -> Any:
    one = scalar(1, x)
    return where_(x > 0, one, where_(x < 0, -one, scalar(0, x)))


def zero_rule(g: Any, _y: Any, *_operands: Any, **_: Any) -> Any:
    return scalar(0, g)


MANY_ERFS, ERF_STEP, ERF_END = 64, 1 / 64, 6.0  # beyond the end erf is 1 in float64


@functools.cache
def erf_places() -> np.ndarray:
    """erf at the multiples of `ERF_STEP` from 0 to `ERF_END`."""
    return np.array([math.erf(i * ERF_STEP) for i in range(round(ERF_END / ERF_STEP) + 1)])


def erf_by_series(x: np.ndarray) -> np.ndarray:
    """erf in float64: f(p + h) = erf(p) + 2/sqrt(pi) exp(-p^2) sum over n of
    H_n(p) (-1)^n h^(n + 1) / (n + 1)!, the derivatives of exp(-p^2) being Hermite polynomials H_n.

    Source: standard"""
    size = np.minimum(np.abs(np.float64(x)), ERF_END)
    place = np.rint(np.nan_to_num(size) / ERF_STEP)
    p, terms = place * ERF_STEP, 7  # the next is below 2^-53
    h = size - p
    last, this, power = np.zeros_like(h), np.ones_like(h), h
    total = h.copy()
    for n in range(1, terms):
        last, this = this, 2 * p * this - 2 * (n - 1) * last
        power = power * h / -(n + 1)
        total += this * power
    total *= np.exp(-p * p) * (2 / math.sqrt(math.pi))
    return np.copysign(total + erf_places()[place.astype(np.intp)], x)


def erf_ref(x: np.ndarray) -> np.ndarray:
    """erf through C's libm, an element at a time; of narrow floats, where many are taken, by its
    Taylor series around the nearest of `erf_places()`, which is as exact in float64."""
    if x.dtype.itemsize < 8 and x.size >= MANY_ERFS:
        return erf_by_series(x).astype(x.dtype)
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(np.float64(x)), np.float64).astype(x.dtype)


def tanh_ref(x: Any) -> Any:
    """NumPy's. Where the real part is infinite, the imaginary one is a zero that has the operand's
    sign, as the Array API has it; ISO C takes that of sin(2 im)."""
    y = np.array(np.tanh(x))
    if y.dtype.kind == "c":
        y.imag = np.where(np.isinf(x.real), np.copysign(0, x.imag), y.imag)
    return y


neg: Primitive = elementwise(
    "neg",
    "Minus x.",
    ref=np.negative,
    vjp=(lambda g, _y, _x: -g,),
    jvp=LINEAR,
    kernel=KernelText("({type})(-{x})", cost=1, exact=True, of_complex="-{x}"),
    why="0 - x gives +0 for x = 0, and every gradient rule needs it cheaply",
    traits=("linear",),
    complex_flops=2,
)
abs_: Primitive = elementwise(
    "abs",
    "|x| of real x.",
    ref=np.abs,
    ranges=((0.2, 2),),
    dtypes="real",
    derivatives=(lambda _y, x: sign_of(x),),
    kernel=function_text("abs", exact=True),
    why="maximum(x, -x) is wrong for NaN's and zero's sign, and needs two passes",
)
floor: Primitive = elementwise(
    "floor",
    "The largest integer not above x.",
    ref=np.floor,
    ranges=((-2.9, 2.9),),
    dtypes="floating",
    vjp=(zero_rule,),
    jvp=(None,),
    kernel=function_text("floor"),
    why="no other primitive rounds down; ceil and trunc are made of it",
)
round_: Primitive = elementwise(
    "round",
    "The nearest integer to x, halves to even.",
    ref=np.rint,
    ranges=((-2.9, 2.9),),
    dtypes="floating",
    vjp=(zero_rule,),
    jvp=(None,),
    kernel=function_text("round"),
    why="floor(x + 0.5) is wrong for halves and for large x",
    source="IEEE 754-2019, 5.3.1",
)
exp: Primitive = polynomial(
    "exp",
    "e to the power x.",
    ref=np.exp,
    derivatives=(lambda y, _x: y,),
    kernel=function_text("exp", cost=10, of_complex="__builtin_cexp{f}({x})"),
    why="needs its own range reduction and polynomial",
)
expm1: Primitive = polynomial(
    "expm1",
    "exp(x) - 1, accurate near 0.",
    ref=np.expm1,
    ranges=((-1, 1),),
    derivatives=(lambda y, _x: y + 1,),
    kernel=function_text("expm1", cost=12),
    why="exp(x) - 1 cancels near 0",
)
log: Primitive = polynomial(
    "log",
    "The natural logarithm of x.",
    ref=np.log,
    ranges=((0.3, 3),),
    vjp=(lambda g, _y, x: g / conj(x),),
    jvp=(lambda t, y, x: t / x,),
    kernel=function_text("log", cost=12, of_complex="__builtin_clog{f}({x})"),
    why="needs its own range reduction and polynomial",
)
log1p: Primitive = polynomial(
    "log1p",
    "log(1 + x), accurate near 0.",
    ref=np.log1p,
    ranges=((-0.5, 2),),
    vjp=(lambda g, _y, x: g / conj(x + 1),),
    jvp=(lambda t, y, x: t / (x + 1),),
    kernel=function_text("log1p", cost=14),
    why="log(1 + x) cancels near 0",
)
sqrt: Primitive = elementwise(
    "sqrt",
    "The square root of x.",
    ref=np.sqrt,
    ranges=((0.3, 3),),
    dtypes="inexact",
    vjp=(lambda g, y, _x: g / conj(y + y),),
    jvp=(lambda t, y, x: t / (y + y),),
    kernel=function_text("sqrt", cost=4, of_complex="__builtin_csqrt{f}({x})"),
    why="correctly rounded by the hardware, which x ** 0.5 is not",
    source="IEEE 754-2019, 5.4.1",
)
sin: Primitive = polynomial(
    "sin",
    "The sine of x, in radians.",
    ref=np.sin,
    derivatives=(lambda _y, x: cos(x),),
    kernel=function_text("sin", cost=16, of_complex="__builtin_csin{f}({x})"),
    why="needs its own range reduction and polynomial",
)
cos: Primitive = polynomial(
    "cos",
    "The cosine of x, in radians.",
    ref=np.cos,
    derivatives=(lambda _y, x: -sin(x),),
    kernel=function_text("cos", cost=16, of_complex="__builtin_ccos{f}({x})"),
    why="sin(x + pi/2) loses digits for large x",
)
tanh: Primitive = polynomial(
    "tanh",
    "The hyperbolic tangent of x.",
    ref=tanh_ref,
    derivatives=(in_steps(lambda y, _x: 1 - y * y),),
    kernel=function_text("tanh", cost=16),
    why="its exponential form overflows and cancels; a hot activation in its own right",
)
erf: Primitive = elementwise(
    "erf",
    "The error function, 2/sqrt(pi) · integral of exp(-t²) from 0 to x.",
    ref=erf_ref,
    ranges=((-2, 2),),
    dtypes="floating",
    flops=POLYNOMIAL,
    derivatives=(in_steps(lambda _y, x: exp(-x * x) * (2 / math.sqrt(math.pi))),),
    kernel=function_text("erf", cost=16),
    why="no closed form in the other primitives",
    source="ISO C, 7.12.8.1",
)

add: Primitive = elementwise(
    "add",
    "x + y; for booleans, or.",
    ref=np.add,
    dtypes="all",
    vjp=(lambda g, _y, _a, _b: g, lambda g, _y, _a, _b: g),
    jvp=(lambda t, *_: t, lambda t, *_: t),
    kernel=operator_text("+", of_booleans="|", of_complex="{x} + {y}"),
    why="the sum everything else is made of",
    traits=("commutative", "associative"),
    complex_flops=2,
)
sub: Primitive = elementwise(
    "sub",
    "x - y.",
    ref=np.subtract,
    vjp=(lambda g, _y, _a, _b: g, lambda g, _y, _a, _b: -g),
    jvp=(lambda t, *_: t, lambda t, *_: -t),
    kernel=operator_text("-", of_complex="{x} - {y}"),
    why="x + (-y) takes two passes over memory on an eager backend",
    complex_flops=2,
)
mul: Primitive = elementwise(
    "mul",
    "x · y; for booleans, and.",
    ref=np.multiply,
    dtypes="all",
    derivatives=(lambda _y, _a, b: b, lambda _y, a, _b: a),
    complex_flops=6,  # products 4, sums 2
    kernel=operator_text("*", of_booleans="&", of_complex="gh_mul_{suffix}({x}, {y})"),
    why="the product everything else is made of",
    traits=("commutative", "associative"),
)


div: Primitive = elementwise(
    "div",
    "x / y; for integers, rounded down.",
    ranges=((-2, 2), (0.5, 2)),
    ref=lambda x, y: (np.floor_divide if x.dtype.kind in "iu" else np.divide)(x, y),
    vjp=(lambda g, _y, _a, b: g / conj(b), lambda g, y, _a, b: -g * conj(y / b)),
    jvp=(lambda t, y, a, b: t / b, lambda t, y, a, b: -t * y / b),
    complex_flops=11,  # a product with the conjugate, |y|², two quotients
    kernel=KernelText(
        {"float": "{x} / {y}"} | dict.fromkeys(("int", "uint"), "gh_div_{suffix}({x}, {y})"),
        of_complex="gh_div_{suffix}({x}, {y})",
    ),
    why="x · y**-1 rounds twice, and integers have no inverse",
)
remainder: Primitive = elementwise(
    "remainder",
    "x - floor(x / y) · y, with the sign of y.",
    ref=np.remainder,
    ranges=((0.1, 3), (0.55, 0.95)),
    dtypes="real",
    vjp=(lambda g, _y, _a, _b: g, lambda g, _y, a, b: -g * (a // b)),
    jvp=(lambda t, *_: t, lambda t, y, a, b: -t * (a // b)),
    kernel=function_text("remainder", cost=6, operands=2),
    why="computed from the rounded quotient it is wrong for large x / y",
)


def pow_ref(x: Any, y: np.ndarray) -> np.ndarray:
    """x ** y; integers to a negative power give 0, 1 or -1, as exact division rounded to 0 does."""
    if x.dtype.kind == "i" and (y < 0).any():
        inverse = np.where(np.abs(x) == 1, np.where(y % 2, x, x * x), 0)
        return np.where(y < 0, inverse, np.power(x, np.abs(y))).astype(x.dtype)
    # Laid out one by one: for one exponent of 0.5 NumPy takes the root, wrong for -0 and -infinity.
    return np.power(np.atleast_1d(x), np.ascontiguousarray(y)).reshape(x.shape)


@in_steps
def d_pow_base(_y: Any, a: Any, b: Any) -> Any:
    """b · a**(b - 1), and 0 where b is 0, also at a = 0."""
    zero = b == 0
    return where_(zero, scalar(0, b), b * a ** where_(zero, scalar(1, b), b - 1))


@in_steps
def d_pow_exponent(y: Any, a: Any, b: Any) -> Any:
    """y · log(a), and 0 where a is 0, but for negative b: 0**b is infinite, and its slope -∞."""
    zero = (a == 0) & (real(b) >= 0)
    return where_(zero, scalar(0, a), y * log(where_(zero, scalar(1, a), a)))


pow_: Primitive = elementwise(
    "pow",
    "x to the power y.",
    ref=pow_ref,
    ranges=((0.3, 2), (0.2, 2.5)),
    flops=2 * POLYNOMIAL,
    derivatives=(d_pow_base, d_pow_exponent),
    kernel=function_text("pow", cost=40, operands=2),
    why="exp(y · log(x)) loses digits, and fails for negative x and for integers",
)


def tie_weight(winner: Any, loser: Any) -> Any:
    """1 where `winner` is larger, one half where both are equal, else 0."""
    half = where_(winner == loser, scalar(0.5, winner), scalar(0, winner))
    return where_(winner > loser, scalar(1, winner), half)


maximum: Primitive = elementwise(
    "maximum",
    "The larger of x and y; NaN if either is.",
    ref=np.maximum,
    dtypes="real",
    derivatives=(lambda _y, a, b: tie_weight(a, b), lambda _y, a, b: tie_weight(b, a)),
    kernel=function_text("maximum", exact=True, operands=2),
    why="where(x > y, x, y) drops NaN in x",
    traits=("commutative", "associative", "idempotent"),
)
minimum: Primitive = elementwise(
    "minimum",
    "The smaller of x and y; NaN if either is.",
    ref=np.minimum,
    dtypes="real",
    derivatives=(lambda _y, a, b: tie_weight(b, a), lambda _y, a, b: tie_weight(a, b)),
    kernel=function_text("minimum", exact=True, operands=2),
    why="-maximum(-x, -y) is wrong for unsigned integers",
    traits=("commutative", "associative", "idempotent"),
)


def squared_length(a: Value, b: Value) -> Any:
    """a² + b², and 1 at the origin, where the angle jumps and its derivative is taken as 0."""
    length = a * a + b * b
    return where_(length == 0, scalar(1, length), length)


atan2: Primitive = elementwise(
    "atan2",
    "The angle of the point with height x and abscissa y, in radians.",
    ref=np.arctan2,
    ranges=((0.3, 2), (0.3, 2)),
    dtypes="floating",
    flops=2 * POLYNOMIAL,
    derivatives=(
        in_steps(lambda _y, a, b: b / squared_length(a, b)),
        in_steps(lambda _y, a, b: -a / squared_length(a, b)),
    ),
    kernel=function_text("atan2", cost=30, operands=2),
    why="every inverse trigonometric function is made of it; a quotient loses the quadrant",
    source="ISO C, 7.12.4.4",
)
