"""Forward mode: jvp carries a tangent along with every value."""

from glasshouse.base import DTypeError, ShapeError, flatten, unflatten
from glasshouse.dispatch import Level, Value, as_value, zeros
from glasshouse.ops.checks import check_like
from glasshouse.ops.tangents import push
from glasshouse.transforms.reverse import as_leaves, check_outputs, split_aux


class JvpMode(Level):
    """Its values hold a primal and a tangent (None for zero), both values of the level below."""

    def wrap(self, value, tangent=None):
        dual = super().wrap(value)
        dual.tangent = tangent
        return dual

    def transfer(self, value, handle):
        handle.tangent = value.tangent

    def process(self, primitive, args, attrs, below):
        if not any(arg.mode is self for arg in args):
            return below(primitive, args, attrs)
        primals = tuple(map(self.lower, args))
        tangents = [arg.tangent if arg.mode is self else None for arg in args]
        y = below(primitive, primals, attrs)
        tangent = push(primitive, primals, tangents, y, attrs)
        if primitive.num_outputs == 1:
            return self.wrap(y, tangent if y.dtype.is_inexact else None)
        pairs = zip(y, tangent or (None,) * len(y), strict=True)
        return tuple(self.wrap(x, t if x.dtype.is_inexact else None) for x, t in pairs)


def jvp(fn, primals, tangents, has_aux: bool = False):
    """(fn(*primals), its derivative along `tangents`).

    Shapes: `tangents` as `primals`; the derivative as the result.
    Raises: ShapeError, DTypeError unless tangents have the structure and shapes of primals.
    Example:
        >>> [v.item() for v in jvp(lambda x: x * x, (gh.asarray(3.0),), (gh.asarray(1.0),))]
        [9.0, 6.0]
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise DTypeError(
            "jvp",
            "tuples of primals and tangents",
            f"{type(primals).__name__} and {type(tangents).__name__}",
            "Write jvp(fn, (x,), (t,)).",
        )
    values, in_def = as_leaves("jvp", tuple(primals))
    ts, t_def = flatten(tuple(tangents))
    if t_def != in_def:
        raise ShapeError(
            "jvp",
            f"tangents structured as the primals, {in_def}",
            t_def,
            "Give one tangent per primal.",
        )
    ts = [check_tangent(x, t) for x, t in zip(values, ts, strict=True)]
    mode = JvpMode()
    with mode:
        out = fn(*unflatten(in_def, map(mode.wrap, values, ts)))
        out, aux = split_aux("jvp", out, has_aux)
        outputs, out_def = check_outputs("jvp", out)
    lowered = [mode.lower(y) for y in outputs]
    tangents = [y.tangent if y.mode is mode else None for y in outputs]
    derivative = [zeros(low.spec) if t is None else t for t, low in zip(tangents, lowered)]
    results = unflatten(out_def, lowered), unflatten(out_def, derivative)
    return (*results, aux) if has_aux else results


def check_tangent(x: Value, t):
    t = as_value(t, where="jvp")
    check_like("jvp", "a tangent of shape", t, x.shape)
    if t.dtype is not x.dtype:
        raise DTypeError("jvp", f"a {x.dtype.name} tangent", t.dtype.name, "Cast it.")
    return t
