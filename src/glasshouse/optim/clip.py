"""Gradient clipping."""

import math
from functools import reduce
from operator import add

from glasshouse.autograd import no_grad
from glasshouse.base.dtype import accumulation_dtype, promote, real_dtype
from glasshouse.base.errors import DTypeError, GradError, OptionError
from glasshouse.dispatch.value import cast, full
from glasshouse.ops.checks import check_type
from glasshouse.ops.elementwise import maximum, minimum
from glasshouse.tensor import Tensor, asarray


def clip_grad_norm_(parameters, max_norm: float, norm_type: float = 2.0, error_if_nonfinite=False):
    """The norm of all gradients together; they are scaled down in place if it is above max_norm.

        norm = (sum |g|^norm_type)^(1 / norm_type)
        g = g * min(1, max_norm / (norm + 1e-6))

    Shapes: -> ().
    Dtypes: floating or complex gradients; the norm is real.
    Raises: OptionError for a negative max_norm or a norm_type that is not positive, GradError with
        `error_if_nonfinite` if the norm is infinite or NaN; nothing is changed then.
    Source: Pascanu, Mikolov, Bengio 2013, arXiv:1211.5063, algorithm 1; 1e-6 as in PyTorch.
    """
    if not max_norm >= 0 or not norm_type > 0:
        raise OptionError(
            "clip_grad_norm_",
            "max_norm >= 0 and norm_type > 0",
            f"max_norm={max_norm!r}, norm_type={norm_type!r}",
            "norm_type may be inf.",
        )
    params = with_grad("clip_grad_norm_", parameters)
    if not params:
        return asarray(0.0)
    with no_grad():
        total = total_norm([p.grad for p in params], float(norm_type))
        if error_if_nonfinite and not math.isfinite(total.item()):
            raise GradError(
                "clip_grad_norm_",
                "a finite gradient norm",
                total.item(),
                "Look for the layer whose gradient is not finite, or lower the learning rate.",
            )
        scale = minimum(float(max_norm) / (total + 1e-6), full((), 1.0, total.dtype))
        for p in params:
            p.grad *= cast(scale, real_dtype(p.grad.dtype))
    return total


def total_norm(grads: list, norm_type: float):
    sizes = [abs(cast(g, accumulation_dtype(g.dtype))) for g in grads]
    dtype = reduce(promote, [size.dtype for size in sizes])
    sizes = [cast(size, dtype) for size in sizes]
    if math.isinf(norm_type):
        return reduce(maximum, [size.max() if size.size else size.sum() for size in sizes])
    powers = [(size * size if norm_type == 2 else size**norm_type).sum() for size in sizes]
    return reduce(add, powers) ** (1 / norm_type)


def clip_grad_value_(parameters, clip_value: float) -> None:
    """Limit every element of the gradients to [-clip_value, clip_value], in place.

    Raises: OptionError for a negative clip_value, DTypeError for complex gradients.
    """
    if not clip_value >= 0:
        raise OptionError("clip_grad_value_", "clip_value >= 0", repr(clip_value), "Pass it.")
    params = with_grad("clip_grad_value_", parameters)
    for p in params:
        if p.grad.dtype.is_complex:
            raise DTypeError(
                "clip_grad_value_", "real gradients", p.grad.dtype.name, "Use clip_grad_norm_."
            )
    with no_grad():
        for p in params:
            high = full(p.shape, float(clip_value), p.grad.dtype)
            p.grad = minimum(maximum(p.grad, -high), high)


def with_grad(where: str, parameters) -> list[Tensor]:
    tensors = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    for p in tensors:
        check_type(where, p, Tensor, "tensors", "Pass model.parameters().")
    return [p for p in tensors if p.grad is not None]
