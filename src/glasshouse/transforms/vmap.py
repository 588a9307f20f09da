"""vmap: run a function for one example on a whole batch, by the cards' batching rules."""

import functools
from collections.abc import Callable
from typing import Any

from glasshouse.base import DTypeError, ShapeError, Spec, TransformError, check_axis, type_name
from glasshouse.base.tree import broadcast_prefix, flatten, unflatten
from glasshouse.dispatch import Level, Primitive, as_value, broadcast_to
from glasshouse.dispatch.spelling import takes_names_of_pytorch
from glasshouse.ops.checks import check_option
from glasshouse.ops.index import move_axes
from glasshouse.tensor import Tensor


class VmapMode(Level):
    """Holds one batch axis: its values show one example, their payload has the axis in front."""

    hides = True

    def __init__(self, size: int, randomness: str = "error") -> None:
        self.size = size
        self.randomness = randomness

    def wrap(self, value: Any) -> Any:
        """A value of this level around `value`, whose first axis is the batch."""
        batched = super().wrap(value)
        batched.spec = Spec(value.shape[1:], value.dtype)
        return batched

    def constant(self, value: Any) -> Any:
        return self.wrap(broadcast_to(value, (self.size, *value.shape)))

    def concrete(self, value: Any) -> Any:
        expected = f"no need for the contents of {value.spec}, which differ from example to example"
        got = "a request for them (bool(), .item(), .numpy(), a mask as index …)"
        fix = "Use gh.where instead of `if`, or take this part out of the mapped function."
        raise TransformError("vmap", expected, got, fix)

    def process(
        self,
        primitive: Primitive,
        args: tuple[Tensor, ...],
        attrs: dict[str, Any],
        below: Callable[..., Any],
    ) -> Any:
        batched = tuple([arg.mode is self for arg in args])
        if True not in batched:
            if primitive.name == "random_bits":
                return self.random(primitive, args, attrs, below)
            return below(primitive, args, attrs)
        operands = [a.payload if b else a for a, b in zip(args, batched, strict=True)]
        # The specs of one example, so that errors speak of what the user wrote.
        primitive.infer(*[arg.spec for arg in args], **attrs)
        result = primitive.batch(batched, *operands, **attrs)
        return self.wrap(result) if primitive.num_outputs == 1 else tuple(map(self.wrap, result))

    def random(self, primitive: Any, args: Any, attrs: dict[str, Any], below: Any) -> Tensor:
        if self.randomness == "same":
            return below(primitive, args, attrs)
        if self.randomness == "different":
            return self.wrap(below(primitive, args, {"shape": (self.size, *attrs["shape"])}))
        fix = "Pass randomness='different' (one draw per example) or 'same' (one for all)."
        raise TransformError("vmap", "no random numbers in the mapped function", "a draw", fix)


@takes_names_of_pytorch
def vmap(
    fn: Any,
    in_axes: Any = 0,
    out_axes: tuple[int, ...] | int = 0,
    randomness: str = "error",
) -> Callable[..., Any]:
    """A function that applies `fn` to every example along an axis of its arguments.
    `in_axes`: per argument the axis that is mapped, None for one that all examples share; a tree
    prefix of the arguments. `out_axes`: where the axis goes in the results. `randomness`: whether
    draws inside are an error, 'different' per example, or the 'same'.

    Raises: ShapeError if mapped sizes differ or nothing is mapped, TransformError where fn needs
        the contents of a mapped value.
    Source: Bradbury et al., JAX, 2018 (vmap).
    Example:
        >>> gh.vmap(lambda a, b: (a * b).sum())(gh.ones((3, 2)), gh.ones((3, 2))).shape
        (3,)
    """
    check_option("vmap", "randomness", randomness, ("error", "different", "same"))

    @functools.wraps(fn)
    def mapped(*args, **kwargs):
        leaves, treedef = flatten(args)
        axes = broadcast_prefix("vmap", tuple_axes(in_axes, args), treedef)
        values = [
            as_value(x, where="vmap") if a is not None else x
            for x, a in zip(leaves, axes, strict=True)
        ]
        axes = [
            None if a is None else check_axis("vmap", a, x.ndim)
            for x, a in zip(values, axes, strict=True)
        ]
        mode = VmapMode(batch_size(values, axes), randomness)
        with mode:
            inputs = [
                x if a is None else mode.wrap(move_axes(x, (a,), (0,)))
                for x, a in zip(values, axes, strict=True)
            ]
            out = fn(*unflatten(treedef, inputs), **kwargs)
        return finish(mode, out, out_axes)

    return mapped


def tuple_axes(
    in_axes: tuple[int | None, ...] | int, args: tuple[Tensor, ...]
) -> tuple[int | None, ...]:
    axes = in_axes if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args)
    if len(axes) != len(args):
        expected = f"one entry of in_axes per argument, {len(args)}"
        fix = "Use None for arguments that are not mapped."
        raise ShapeError("vmap", expected, repr(in_axes), fix)
    return tuple(axes)


def batch_size(values: list[Tensor], axes: list[int | None]) -> int:
    sizes = [x.shape[a] for x, a in zip(values, axes, strict=True) if a is not None]
    if not sizes:
        fix = "Give an axis for one of them."
        raise ShapeError("vmap", "at least one mapped argument", "in_axes=None for all", fix)
    if len(set(sizes)) > 1:
        raise ShapeError("vmap", "mapped axes of one size", sizes, "Check in_axes.")
    return sizes[0]


def finish(
    mode: VmapMode, out: tuple[Tensor, ...] | Tensor, out_axes: tuple[int, ...] | int
) -> Any:
    """The results of the mapped function, with the batch axis where `out_axes` says."""
    leaves, treedef = flatten(out)
    axes = broadcast_prefix("vmap", out_axes, treedef)
    results = []
    for leaf, axis in zip(leaves, axes, strict=True):
        try:
            leaf = as_value(leaf, where="vmap")
        except DTypeError:
            expected = "the function to return tensors"
            raise DTypeError("vmap", expected, type_name(leaf), "Return tensors only.") from None
        if axis is None:
            if leaf.mode is mode:
                expected = "an unmapped result where out_axes is None"
                raise ShapeError("vmap", expected, "a mapped one", "Give an axis for it.")
            results.append(leaf)
            continue
        batched = leaf.payload if leaf.mode is mode else mode.constant(leaf).payload
        results.append(move_axes(batched, (0,), (check_axis("vmap", axis, batched.ndim),)))
    return unflatten(treedef, results)
