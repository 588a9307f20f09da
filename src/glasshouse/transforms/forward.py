"""Forward mode: jvp carries a tangent along with every value."""

from collections.abc import Callable
from typing import Any

from glasshouse.base import DTypeError, ShapeError, flatten, unflatten
from glasshouse.base.tree import TreeDef
from glasshouse.dispatch import Level, Primitive, Value, as_value, zeros
from glasshouse.ops.checks import check_like
from glasshouse.ops.tangents import push
from glasshouse.tensor import Tensor
from glasshouse.transforms.reverse import as_leaves, check_outputs, split_aux


class JvpMode(Level):
    """Its values hold a primal, and for each of `count` directions a tangent (None for zero), all
    of them values of the level below."""

    def __init__(self, count: int = 1) -> None:
        self.zeros: tuple[None, ...] = (None,) * count

    def wrap(self, value: Tensor, tangents: Any = None) -> Any:
        dual: Any = super().wrap(value)
        dual.tangents = self.zeros if tangents is None else tangents
        return dual

    def transfer(self, value: Any, handle: Any) -> None:
        handle.tangents = value.tangents

    def process(
        self, primitive: Primitive, args: Any, attrs: dict[str, Any], below: Callable[..., Any]
    ) -> Any:
        if not any(arg.mode is self for arg in args):
            return below(primitive, args, attrs)
        primals = tuple(map(self.lower, args))
        operands = [arg.tangents if arg.mode is self else self.zeros for arg in args]
        y = below(primitive, primals, attrs)
        along = [push(primitive, primals, ts, y, attrs) for ts in zip(*operands, strict=True)]
        if primitive.num_outputs == 1:
            return self.wrap(y, tuple(along) if y.dtype.is_inexact else None)
        missing = (None,) * len(y)
        by_output = list(zip(*(ts or missing for ts in along), strict=True))
        return tuple(
            self.wrap(x, ts if x.dtype.is_inexact else None) for x, ts in zip(y, by_output)
        )


def jvp(
    fn: Callable[..., Any],
    primals: Any,
    tangents: Any,
    has_aux: bool = False,
) -> tuple[tuple[Tensor, ...] | Tensor, ...]:
    """(fn(*primals), its derivative along `tangents`).

    Shapes: `tangents` as `primals`; the derivative as the result.
    Raises: ShapeError, DTypeError unless tangents have the structure and shapes of primals.
    Example:
        >>> [v.item() for v in jvp(lambda x: x * x, (gh.asarray(3.0),), (gh.asarray(1.0),))]
        [9.0, 6.0]
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        got = f"{type(primals).__name__} and {type(tangents).__name__}"
        raise DTypeError("jvp", "tuples of primals and tangents", got, "Write jvp(fn, (x,), (t,)).")
    values, in_def = as_leaves("jvp", tuple(primals))
    ts, t_def = flatten(tuple(tangents))
    if t_def != in_def:
        fix = "Give one tangent per primal."
        raise ShapeError("jvp", f"tangents structured as the primals, {in_def}", t_def, fix)
    ts = [check_tangent(x, t) for x, t in zip(values, ts, strict=True)]
    results, (derivative,), aux = pushed("jvp", fn, values, in_def, [ts], has_aux)
    return (results, derivative, aux) if has_aux else (results, derivative)


def pushed(
    where: str,
    fn: Callable[..., Any],
    values: list[Tensor],
    in_def: TreeDef,
    directions: list[Any],
    has_aux: bool = False,
) -> Any:
    """(results of fn, [their derivatives along each of `directions`], aux). A direction has a
    tangent for each of the values, or None for zero; fn runs once for all of them."""
    mode = JvpMode(len(directions))
    tangents = zip(*directions, strict=True)
    with mode:
        duals = [mode.wrap(x, ts) for x, ts in zip(values, tangents, strict=True)]
        out, aux = split_aux(where, fn(*unflatten(in_def, duals)), has_aux)
        outputs, out_def = check_outputs(where, out)
    lowered = [mode.lower(y) for y in outputs]
    along = [y.tangents if y.mode is mode else mode.zeros for y in outputs]
    derivatives = []
    for k in range(len(directions)):
        each = [zeros(x.spec) if ts[k] is None else ts[k] for x, ts in zip(lowered, along)]
        derivatives.append(unflatten(out_def, each))
    return unflatten(out_def, lowered), derivatives, aux


def check_tangent(x: Value, t: Tensor) -> Tensor:
    t = as_value(t, where="jvp")
    check_like("jvp", "a tangent of shape", t, x.shape)
    if t.dtype is not x.dtype:
        raise DTypeError("jvp", f"a {x.dtype.name} tangent", t.dtype.name, "Cast it.")
    return t
