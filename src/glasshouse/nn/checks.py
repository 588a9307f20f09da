"""The checks that layers, losses and their functional forms share, each naming its caller."""

import inspect
from collections.abc import Callable
from functools import cache
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.base import DTypeError, OptionError, ShapeError, type_name
from glasshouse.dispatch import Value, as_value, cast, is_autocast_enabled
from glasshouse.dispatch.value import ArrayLike
from glasshouse.tensor import Tensor

if TYPE_CHECKING:
    from glasshouse.nn.module import Module


REDUCTIONS = ("none", "mean", "sum")


def check_floating(where: str, x: ArrayLike, name: str = "input") -> Tensor:
    x = as_value(x, where=where)
    if not x.dtype.is_inexact:
        fix = f"Convert it with {name}.float()."
        raise DTypeError(where, f"a floating {name}", f"{x.dtype.name} {x.shape}", fix)
    return x


def check_number(where: str, x: Tensor, name: str = "input") -> Tensor:
    """The floats or integers `x`."""
    x = as_value(x, where=where)
    return x if x.dtype.is_integer else check_floating(where, x, name)


def check_same_dtype(where: str, x: Tensor, weight: Tensor) -> None:
    if x.dtype is not weight.dtype and not is_autocast_enabled():
        expected = f"an input of the weight's dtype {weight.dtype.name}"
        fix = f"Convert it with input.to({weight.dtype.name!r}), or the module."
        raise DTypeError(where, expected, x.dtype.name, fix)


def check_probability(where: str, p: float) -> float:
    if not isinstance(p, Real) or not 0 <= p <= 1:
        raise OptionError(where, "a probability p in [0, 1]", repr(p), "Change p.")
    return float(p)


def check_positive(where: str, **sizes: int) -> None:
    for name, size in sizes.items():
        if not isinstance(size, Integral) or size < 1:
            fix = f"Change {name}."
            raise OptionError(where, f"{name} to be an integer of at least 1", repr(size), fix)


def check_divides(where: str, size_name: str, size: int, parts_name: str, parts: int) -> None:
    """Raise OptionError unless `parts`, 1 or more, divides `size`."""
    check_positive(where, **{parts_name: parts})
    if size % parts:
        got = f"{size_name}={size} and {parts_name}={parts}"
        raise OptionError(where, f"{parts_name} to divide {size_name}", got, "Change one of them.")


def int_tuple(where: str, name: str, value: Any, n: int, low: int = 0) -> tuple[int, ...]:
    """`value` (an integer, or a sequence of n) as a tuple of n integers of at least `low`."""
    sizes = (value,) * n if isinstance(value, Integral) else value
    fits = isinstance(sizes, (tuple, list)) and len(sizes) == n
    if not fits or not all(isinstance(s, Integral) and int(s) >= low for s in sizes):
        expected = f"{name} to be an integer of at least {low}, or {n} of them"
        raise OptionError(where, expected, repr(value), f"Change {name}.")
    return tuple(map(int, sizes))


def check_ndim(where: str, x: Tensor, ndims: tuple[int, ...], layout: str) -> None:
    if x.ndim not in ndims:
        allowed = " or ".join(map(str, ndims))
        raise ShapeError(where, f"an input of {allowed} axes, {layout}", x.shape, "Reshape it.")


def refuse_sparse(where: str, sparse: bool) -> None:
    if sparse:
        fix = "Leave it out: gradients are dense here."
        raise OptionError(where, "sparse=False", "sparse=True", fix)


def check_callable(where: str, name: str, fn: Any) -> None:
    if not callable(fn):
        fix = "Pass a function."
        raise DTypeError(where, f"{name} to be callable", f"{fn!r} ({type_name(fn)})", fix)


def check_takes(where: str, name: str, fn: Any, *args: str) -> None:
    """Raise DTypeError unless `fn` is a function of these arguments."""
    check_callable(where, name, fn)
    error = refusal(fn, args, {})
    if error is not None:
        expected = f"{name} to be a function of ({', '.join(args)})"
        got = f"one of {described(inspect.signature(fn))}"
        raise DTypeError(where, expected, got, sentence(error))


def is_taken(module: "Module", name: str) -> bool:
    """Whether a module has an attribute of this name; `hasattr` would look for the nearest one."""
    members = (module._parameters, module._buffers, module._modules)
    places = (vars(module), *members, *map(vars, type(module).__mro__))
    return any(name in place for place in places)


@cache
def flags_of(cls: type[Any]) -> dict[str, int | None]:
    """The flags that our constructor of a class takes: those whose defaults are True or False. To
    each its place, None if it is given by name."""
    flags: dict[str, int | None] = {}
    inits = [vars(base)["__init__"] for base in cls.__mro__ if "__init__" in vars(base)]
    for init in inits:
        if not getattr(init, "__module__", "").startswith("glasshouse.nn."):
            break
        parameters = list(inspect.signature(init).parameters.values())[1:]
        for place, p in enumerate(parameters):
            if isinstance(p.default, bool):
                by_place = init is inits[0] and p.kind is not p.KEYWORD_ONLY
                flags.setdefault(p.name, place if by_place else None)
        if not parameters or parameters[-1].kind is not inspect.Parameter.VAR_KEYWORD:
            break
    return flags


def check_flags(cls: Any, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> None:
    """Raise OptionError for a flag of one of our layers that is neither true nor false."""
    for name, place in flags_of(cls).items():
        by_place = place is not None and place < len(args)
        value = args[place or 0] if by_place else kwargs.get(name, False)
        if not isinstance(value, (Integral, np.bool_)) or value not in (0, 1):
            got, fix = repr(value), "Pass True or False."
            if isinstance(value, Value):
                got = f"a tensor {value.shape}"
                fix = f"Make the layer first, then call it: {cls.__name__}(…)(x)."
            raise OptionError(cls.__name__, f"{name} to be True or False", got, fix)


def check_arguments(
    where: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[Any, Any]
) -> None:
    """Raise DTypeError if `fn` does not take these arguments."""
    error = refusal(fn, args, kwargs)
    if error is not None:
        raise wrong_arguments(where, inspect.signature(fn), args, kwargs, error) from None


def wrong_arguments(
    where: str, signature: inspect.Signature, args: Any, kwargs: Any, error: Any
) -> DTypeError:
    """The error of a call with arguments that a signature does not take."""
    expected = f"the arguments {described(signature)}"
    got = ", ".join([f"{len(args)} by position", *(f"{name}=" for name in kwargs)])
    return DTypeError(where, expected, got, sentence(error))


def refusal(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Tensor]
) -> TypeError | None:
    """Why `fn` does not take these arguments; None if it does, or if nobody can tell."""
    try:
        signature = inspect.signature(fn)
    except ValueError:  # of a builtin
        return None
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return error
    return None


def described(signature: inspect.Signature) -> str:
    """A signature without its annotations."""
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))


def sentence(error: Exception) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."


def narrowed(y: Tensor, x: Tensor) -> Tensor:
    """A result computed on `widened(x)`, in the dtype of x; under an autocast it stays wide."""
    return y if is_autocast_enabled() else cast(y, x.dtype)


def bias_like(y: Tensor, bias: Tensor) -> Tensor:
    """A bias for `y`; under an autocast in its dtype, so that the sum keeps it."""
    bias = as_value(bias)
    return cast(bias, y.dtype) if is_autocast_enabled() else bias
