"""Operators on lists of tensors (`torch._foreach_add`) taken apart: one call for each tensor.
Those of GradScaler, too."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from glasshouse.torch.patches.operators import UNSCALE, UPDATE_SCALE, of_lists

LISTS, NUMBERS, EITHER = ("List",), ("Scalar", "ScalarList"), ("List", "Scalar", "ScalarList")
UNARY = (
    "abs acos asin atan ceil clone cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p "
    "log2 max neg reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
).split()


def rule_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition of an operator on lists: it calls `function` with the first of each list, the
    second, and so on; each call gets all arguments that are no lists."""

    def taken_apart(*args, **named) -> list[Tensor]:
        count = next(len(x) for x in args if isinstance(x, (list, tuple)))
        columns = (x if isinstance(x, (list, tuple)) else [x] * count for x in args)
        return [function(*row, **named) for row in zip(*columns, strict=True)]

    return taken_apart


def norm(x: Tensor, order: int = 2, dtype: Any = None) -> Tensor:
    """The norm of all elements."""
    return torch.linalg.vector_norm(x, order, dtype=dtype)


def with_product(x: Tensor, a: Tensor, b: Tensor, value: int = 1) -> Tensor:
    """x + value · a · b."""
    return torch.addcmul(x, a, b, value=value)


def with_quotient(x: Tensor, a: Tensor, b: Tensor, value: int = 1) -> Tensor:
    """x + value · a / b."""
    return torch.addcdiv(x, a, b, value=value)


def copied(x: Tensor, source: Tensor, _non_blocking: bool = False) -> Tensor:
    """The contents of x after `source` is copied into it."""
    return torch.ops.aten.copy(x, source)


FUNCTIONS: list[tuple[str, tuple[str, ...], Callable[..., Any]]] = [
    *((name, ("default",), getattr(torch, name)) for name in UNARY),
    ("add", (*EITHER, "Tensor"), torch.add),
    ("sub", EITHER, torch.sub),
    ("mul", (*EITHER, "Tensor"), torch.mul),
    ("div", (*EITHER, "Tensor"), torch.div),
    ("clamp_min", EITHER, torch.clamp_min),
    ("clamp_max", EITHER, torch.clamp_max),
    ("maximum", LISTS, torch.maximum),
    ("maximum", NUMBERS, torch.clamp_min),
    ("minimum", LISTS, torch.minimum),
    ("minimum", NUMBERS, torch.clamp_max),
    ("pow", (*EITHER, "ScalarAndTensor"), torch.pow),
    ("lerp", EITHER, torch.lerp),
    ("addcmul", NUMBERS, with_product),
    ("addcdiv", NUMBERS, with_quotient),
    ("norm", ("Scalar",), norm),
    ("mm", ("default",), torch.mm),
    ("copy", ("default",), copied),
    ("zero", ("default",), torch.zeros_like),
]


def unscaled(gradients: Any, found_inf: Tensor, inverse: Tensor) -> tuple[list[Tensor], Tensor]:
    """Gradients times the inverse of a scale, and whether one of them is not finite."""
    for gradient in gradients:
        found_inf = torch.where(gradient.isfinite().all(), found_inf, 1.0)
    return [gradient * inverse for gradient in gradients], found_inf


def updated_scale(
    scale: Tensor, steps: Tensor, found_inf: Tensor, growth: float, backoff: float, interval: int
) -> tuple[Tensor, Tensor]:
    """The scale of losses after a step, and the number of steps since its last change."""
    is_found, more = found_inf != 0, steps + 1
    grown = (scale.double() * growth).float()
    grows = (more == interval) & grown.isfinite()
    unchanged = torch.where(grows, grown, scale)
    smaller = (scale.double() * backoff).float()
    steps = torch.where(is_found | (more == interval), 0, more)
    return torch.where(is_found, smaller, unchanged), steps


SCALING: dict[Any, Any] = {
    UNSCALE: unscaled,
    UPDATE_SCALE: updated_scale,
}


def foreach_rules() -> dict[Any, Any]:
    """The rule of each operator on lists that needs no value of a tensor."""
    return SCALING | {
        of_lists(name, overload): rule_of(function)
        for name, overloads, function in FUNCTIONS
        for overload in overloads
    }
