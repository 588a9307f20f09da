"""Comparison, choice and bitwise logic. Derivatives exist only for `where`."""

from typing import Any

import numpy as np

from glasshouse.base import DTypeError, ShapeError, Spec, bool_
from glasshouse.dispatch import Arr, KernelText, card, define, refusal, sample, zeros
from glasshouse.dispatch.kernel_text import function_text, operator_text
from glasshouse.dispatch.primitive import Primitive
from glasshouse.ops.elementwise import batch_elementwise, elementwise, infer_same, mismatch


def comparison(name: Any, doc: Any, *, kernel: KernelText, dtypes: Any, **fields: Any) -> Any:
    check = infer_same(name, dtypes)
    errors = [refusal(ShapeError, "equal shape", (2,), (3,))]
    if dtypes != "all":
        errors.append(refusal(DTypeError, "expected a dtype", (2,), (2,), on="complex64"))
    return define(
        name,
        "compare",
        doc,
        infer=lambda x, y: Spec(check(x, y).shape, bool_),
        batch=batch_elementwise(name),
        flops=lambda x, _y: x.size,
        samples=[sample(Arr(s, -2, 2), Arr(s, -2, 2)) for s in ((2, 3), (), (0, 2))],
        error_samples=errors,
        dtypes=dtypes,
        traits=("elementwise",),
        kernel=kernel,
        source="IEEE 754-2019, 5.11",
        **fields,
    )


equal: Any = comparison(
    "equal",
    "True where x equals y; NaN equals nothing.",
    ref=np.equal,
    kernel=KernelText("{x} == {y}", cost=1, of_complex="{x} == {y}"),
    dtypes="all",
    why="not (x < y or y < x) is true for NaN, and complex numbers have no order",
)
less: Any = comparison(
    "less",
    "True where x is below y; false for NaN.",
    ref=np.less,
    kernel=KernelText("{x} < {y}", cost=1),
    dtypes="ordered",
    why="the order every other comparison is made of",
)


def infer_where(condition: Spec, x: Spec, y: Spec) -> Spec:
    if condition.dtype is not bool_:
        raise DTypeError("where", "a boolean condition", condition.dtype.name, "Compare it with 0.")
    if x != y:
        raise mismatch("where", (x, y))
    if condition.shape != x.shape:
        raise mismatch("where", (condition, x))
    return x


@card(
    "elementwise",
    infer=infer_where,
    vjp=(
        None,
        lambda g, _y, c, _a, _b: where(c, g, zeros(g)),
        lambda g, _y, c, _a, _b: where(c, zeros(g), g),
    ),
    jvp=(
        None,
        lambda t, y, c, a, b: where(c, t, zeros(t)),
        lambda t, y, c, a, b: where(c, zeros(t), t),
    ),
    batch=batch_elementwise("where"),
    flops=lambda c, x, y: x.size,
    samples=[
        sample(Arr(s, dtype="bool"), Arr(s, -2, 2), Arr(s, -2, 2)) for s in ((2, 3), (), (0, 2))
    ],
    error_samples=[
        refusal(DTypeError, "boolean condition", (2,), (2,), (2,)),
        refusal(ShapeError, "equal shape", Arr((2,), dtype="bool"), (2,), (3,)),
    ],
    traits=("elementwise",),
    kernel=KernelText(
        "{x} ? {y} : {z}", cost=1, exact=True, of_complex="gh_where_{suffix}({x}, {y}, {z})"
    ),
)
def where(condition: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x where the condition is true, else y.

    Why: c · x + (1 - c) · y spreads NaN and infinities."""
    return np.where(condition, x, y)


LOGIC = {
    "bitwise_and": ("&", "The bits set in both x and y; for booleans, and."),
    "bitwise_or": ("|", "The bits set in x or y; for booleans, or."),
    "bitwise_xor": ("^", "The bits set in just one of x and y; not, with all bits set in y."),
}
bitwise_xor: "Primitive"
bitwise_or: "Primitive"
bitwise_and: "Primitive"
bitwise_and, bitwise_or, bitwise_xor = (
    elementwise(
        name,
        doc,
        ref=getattr(np, name),
        ranges=((0, 6), (0, 6)),
        dtypes="bitwise",
        why="arithmetic does not reach single bits",
        traits=("commutative", "associative"),
        kernel=operator_text(sign),
    )
    for name, (sign, doc) in LOGIC.items()
)
shift_right: "Primitive" = elementwise(
    "shift_right",
    "x shifted right by y bits, keeping the sign.",
    ref=np.right_shift,
    ranges=((0, 90), (0, 4)),
    dtypes="integer",
    kernel=function_text("shift_right", operands=2),
    why="division by 2**y overflows for the sign bit",
)
