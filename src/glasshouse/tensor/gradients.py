"""The gradients of several tensors together: their norm, and limits on them.

`foreach` has no effect: it is taken because PyTorch takes it."""

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add
from typing import Any

from glasshouse.autograd import no_grad
from glasshouse.base.dtype import accumulation_dtype, promote, real_dtype
from glasshouse.base.errors import DTypeError, GradError, OptionError
from glasshouse.dispatch.value import ArrayLike, as_value, cast, full
from glasshouse.ops.checks import check_several, check_type
from glasshouse.ops.collective import all_reduce
from glasshouse.ops.elementwise import maximum, minimum
from glasshouse.tensor.methods import Tensor
from glasshouse.tensor.standard.creation import asarray


def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: Any = None,
) -> Tensor:
    """The norm of all gradients together; they are scaled down in place if it is above max_norm.

        norm = (sum |g|^norm_type)^(1 / norm_type)
        g = g * min(1, max_norm / (norm + 1e-6))

    Shapes: -> ().
    Dtypes: floating or complex gradients; the norm is real.
    Raises: OptionError for a negative max_norm or a norm_type that is not positive, GradError with
        `error_if_nonfinite` if the norm is infinite or NaN; nothing is changed then.
    Source: Pascanu, Mikolov, Bengio 2013, arXiv:1211.5063, algorithm 1; 1e-6 as in PyTorch.
    """
    where = "clip_grad_norm_"
    check_norm(where, max_norm, norm_type)
    params = with_grad(where, parameters)
    shardings = [sharding_of_gradient(p) for p in params]
    grads = [p.grad for p in params]
    total = norm_of(where, grads, norm_type, error_if_nonfinite, shardings)
    scale_down(params, max_norm, total)
    return total


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: Any = None,
) -> Tensor:
    """The norm of all elements of the tensors together.

        norm = (sum |x|^norm_type)^(1 / norm_type)

    Shapes: -> ().
    Raises: OptionError for a norm_type that is not positive, GradError with `error_if_nonfinite` if
        the norm is infinite or NaN.
    Source: standard.
    Example:
        >>> get_total_norm([Tensor([3.0]), Tensor([4.0])]).item()
        5.0
    """
    where = "get_total_norm"
    check_norm(where, 0.0, norm_type)
    tensors = tensors_of(where, tensors)
    shardings = [x.sharding for x in tensors]
    return norm_of(where, tensors, norm_type, error_if_nonfinite, shardings)


def clip_grads_with_norm_(
    parameters: Any, max_norm: float, total_norm: ArrayLike, foreach: Any = None
) -> None:
    """Scale the gradients down in place if their norm, an argument, is above max_norm.

        g = g * min(1, max_norm / (total_norm + 1e-6))

    Raises: OptionError for a negative max_norm.
    Source: as clip_grad_norm_'s.
    """
    where = "clip_grads_with_norm_"
    check_norm(where, max_norm, 2.0)
    scale_down(with_grad(where, parameters), max_norm, as_value(total_norm, where=where))


def check_norm(where: str, max_norm: float, norm_type: float) -> None:
    if not (is_least(max_norm, 0) and is_least(norm_type, 0) and norm_type):
        got = f"max_norm={max_norm!r}, norm_type={norm_type!r}"
        raise OptionError(where, "max_norm >= 0 and norm_type > 0", got, "norm_type may be inf.")


def is_least(number: Any, least: float) -> bool:
    try:
        return bool(number >= least)
    except TypeError:
        return False


def sharding_of_gradient(p: Tensor) -> Any:
    """How ranks share out a parameter's gradient."""
    return p.grad.sharding or p.sharding


def groups_of(parameters: list[Tensor]) -> list[Any]:
    """The groups whose ranks have different parts of some gradient, each once."""
    shardings = [sharding_of_gradient(p) for p in parameters if p.grad is not None]
    return list(dict.fromkeys(group for s in shardings if s is not None for group in s.groups))


def norm_of(
    where: str,
    tensors: list[Any],
    norm_type: float,
    error_if_nonfinite: bool,
    shardings: list[None],
) -> Tensor:
    if not tensors:
        return asarray(0.0)
    with no_grad():
        total = total_norm(tensors, float(norm_type), shardings)
        if error_if_nonfinite and not math.isfinite(total.item()):
            fix = "Look for the layer whose gradient is not finite, or lower the learning rate."
            raise GradError(where, "a finite gradient norm", total.item(), fix)
    return total


def scale_down(params: list[Any], max_norm: float, total: Tensor) -> None:
    with no_grad():
        scale = minimum(float(max_norm) / (total + 1e-6), full((), 1.0, total.dtype))
        for p in params:
            p.grad *= cast(scale, real_dtype(p.grad.dtype))


def total_norm(grads: list[Any], norm_type: float, shardings: list[Any]) -> Tensor:
    sizes = [abs(cast(g, accumulation_dtype(g.dtype))) for g in grads]
    dtype = reduce(promote, [size.dtype for size in sizes])
    sizes = [cast(size, dtype) for size in sizes]
    if math.isinf(norm_type):
        tops = [size.max() if size.size else size.sum() for size in sizes]
        return over_ranks(tops, shardings, maximum, "max")
    powers = [(size * size if norm_type == 2 else size**norm_type).sum() for size in sizes]
    return over_ranks(powers, shardings, add, "sum") ** (1 / norm_type)


def over_ranks(numbers: list[Any], shardings: list[Any], combine: Any, reduction: str) -> Tensor:
    """Numbers of several tensors combined, with those of the other ranks' parts."""
    by_groups: dict[tuple[Any, ...], list[Any]] = {}
    for number, sharding in zip(numbers, shardings, strict=True):
        groups = () if sharding is None else tuple(sharding.groups)
        by_groups.setdefault(groups, []).append(number)
    totals = []
    for groups, terms in by_groups.items():
        totals.append(reduced_over(groups, reduce(combine, terms), reduction))
    return reduce(combine, totals)


def reduced_over(groups: Sequence[Any], total: Tensor, reduction: str) -> Tensor:
    """A number that ranks of each of the groups know in part."""
    for group in groups:
        total = all_reduce(total, group=group, reduce=reduction, replicated=True)
    return total


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: Any = None
) -> None:
    """Limit every element of the gradients to [-clip_value, clip_value], in place.

    Raises: OptionError for a negative clip_value, DTypeError for complex gradients.
    """
    if not is_least(clip_value, 0):
        raise OptionError("clip_grad_value_", "clip_value >= 0", repr(clip_value), "Pass it.")
    params = with_grad("clip_grad_value_", parameters)
    for p in params:
        if p.grad.dtype.is_complex:
            fix = "Use clip_grad_norm_."
            raise DTypeError("clip_grad_value_", "real gradients", p.grad.dtype.name, fix)
    with no_grad():
        for p in params:
            high = full(p.grad.shape, float(clip_value), p.grad.dtype)
            limited = minimum(maximum(p.grad, -high), high)
            p.grad = sharded_as(limited, p.grad)


def sharded_as(x: Tensor, like: Tensor) -> Tensor:
    """x, which from now on is a part of a whole as another tensor is."""
    if like.sharding is not None:
        x.sharding = like.sharding
    return x


def tensors_of(where: str, tensors: Any) -> list[Tensor]:
    fix = "Pass model.parameters()."
    several = [tensors] if isinstance(tensors, Tensor) else tensors
    several = check_several(where, several, "tensors", fix)
    for x in several:
        check_type(where, x, Tensor, "tensors", fix)
    return several


def with_grad(where: str, parameters: Any) -> list[Tensor]:
    return [p for p in tensors_of(where, parameters) if p.grad is not None]
