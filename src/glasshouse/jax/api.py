"""Functions of jax itself that `gh` has none of, or with other parameters."""

import functools
from collections.abc import Callable
from typing import Any

from glasshouse.base import flatten, unflatten
from glasshouse.capture.api import disable
from glasshouse.dispatch import Value, as_value
from glasshouse.dispatch import backend as backends
from glasshouse.tensor import Tensor
from glasshouse.transforms import checkpoint as checkpointed
from glasshouse.transforms import custom_vjp
from glasshouse.transforms import vmap as mapped_by_position

__all__ = ["block_until_ready", "checkpoint", "closure_convert", "custom_gradient",
           "default_backend", "device_get", "device_put", "disable_jit", "named_call", "remat",
           "vmap"]  # fmt: skip


def vmap(
    fun: Callable[..., Any],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
    **options: Any,
) -> Callable[..., Any]:
    """As gh.vmap; arguments by name are mapped along axis 0."""

    @functools.wraps(fun)
    def mapped(*args, **named):
        axes = in_axes if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args)

        def run(placed, others):
            return fun(*placed, **others)

        inner = mapped_by_position(
            run, in_axes=(tuple(axes), 0 if named else None), out_axes=out_axes
        )
        return inner(tuple(args), named)

    return mapped


def checkpoint(
    fun: Callable[..., Any],
    *,
    prevent_cse: bool = True,
    policy: Any = None,
    static_argnums: Any = (),
) -> Callable[..., Any]:
    """As gh.checkpoint: only arguments are kept for backward; a `policy` has no effect."""
    return checkpointed(fun)


remat = checkpoint


def custom_gradient(fun: Callable[..., Any]) -> Any:
    """A function that returns (result, function of a cotangent that gives those of the arguments),
    with that as its backward pass."""

    def value(*args):
        return fun(*args)[0]

    def fwd(*args):
        return fun(*args)[0], args

    def bwd(args, g):
        pulled = fun(*args)[1](g)
        return pulled if isinstance(pulled, tuple) else (pulled,)

    function = custom_vjp(functools.wraps(fun)(value))
    function.defvjp(fwd, bwd)
    return function


def closure_convert(fun: Callable[..., Any], *example_args: Any) -> tuple[Any, list[Any]]:
    """(fun, the closed-over values to pass): none here."""
    return fun, []


def named_call(fun: Callable[..., Any], *, name: str | None = None) -> Callable[..., Any]:
    """fun itself."""
    return fun


def block_until_ready(x: Any) -> Any:
    """The tree x, once its tensors are computed."""
    backends.current().evaluate(
        tuple(v.payload for v in flatten(x)[0] if isinstance(v, Value) and v.mode is None)
    )
    return x


def device_put(x: Any, device: Any = None, **options: Any) -> Any:
    """The tree x as tensors."""
    leaves, treedef = flatten(x)
    return unflatten(treedef, [as_value(v) for v in leaves])


def device_get(x: Any) -> Any:
    """The tree x as NumPy arrays."""
    leaves, treedef = flatten(x)
    return unflatten(treedef, [v.numpy() if isinstance(v, Tensor) else v for v in leaves])


def default_backend() -> str:
    """The device of the current backend."""
    return backends.current().device


def disable_jit(disable_: bool = True) -> Any:
    """A context in which nothing is captured."""
    return disable()
