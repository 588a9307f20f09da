"""Values: the operands and results of primitives, with Python's operators on them.

The operators live here, not on Tensor, so that the rules of the cards can use them on every kind
of value. An operator promotes dtypes, broadcasts shapes, and binds one primitive."""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from glasshouse.base import (
    DTypeError,
    OptionError,
    Shape,
    ShapeError,
    Spec,
    broadcast_shapes,
    type_name,
)
from glasshouse.base import dtype as dtypes
from glasshouse.base.dtype import DType, accumulation_dtype, inexact_dtype, promote, promote_scalar
from glasshouse.dispatch.arrays import (
    COPIED,
    SCALARS,
    leaf_types,
    on_memory_of,
    reject_foreign,
    to_array,
)
from glasshouse.dispatch.bind import bind, box
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.primitive import primitives
from glasshouse.dispatch.shared_arrays import shared_arrays

if TYPE_CHECKING:
    from glasshouse.dispatch.value_operators import ValueOperators
else:
    ValueOperators = object

V = TypeVar("V", bound="Value")


def of_card(name: str) -> Any:
    return (
        lambda self, other: arithmetic(name, self, other),
        lambda self, other: arithmetic(name, other, self),
    )


def both_ways(compute: Callable[..., Any]) -> Any:
    return lambda self, other: compute(self, other), lambda self, other: compute(other, self)


def matched(where: str, compute: Callable[..., Any]) -> Any:
    """The same, of operands that are brought to one dtype and shape first."""

    def operator(lhs, rhs):
        if not (is_operand(lhs) and is_operand(rhs)):
            return NotImplemented
        return compute(*match(where, lhs, rhs))

    return operator, lambda self, other: operator(other, self)


@composed(scalars=True)
def true_divide(lhs: Any, rhs: Any) -> Any:
    """lhs / rhs; integers and booleans are divided as float32."""
    if not (is_operand(lhs) and is_operand(rhs)):
        return NotImplemented
    lhs, rhs = as_operand("divide", lhs), as_operand("divide", rhs)
    dtype = inexact_dtype(common_dtype("divide", [lhs, rhs]))
    lhs, rhs = (cast(x, dtype) if isinstance(x, Value) else x for x in (lhs, rhs))
    return arithmetic("div", lhs, rhs)


def floor_divide(lhs: Any, rhs: Any) -> Any:
    """The largest integers not above lhs / rhs; for floats by the quotient of lhs - remainder,
    exact where floor(lhs / rhs) rounds up, or where lhs / rhs underflows.

    Source: Python's float floor division.
    """
    if not lhs.dtype.is_floating:
        return bind(primitives["div"], (lhs, rhs), {})
    dtype = lhs.dtype
    lhs, rhs = (cast(x, accumulation_dtype(dtype)) for x in (lhs, rhs))
    quotient = lhs / rhs
    exact = bind(primitives["round"], ((lhs - lhs % rhs) / rhs,), {})
    floor = bind(primitives["floor"], (quotient,), {})
    special = (quotient - quotient != 0) | ((floor == 0) & (exact == 0)) | (rhs - rhs != 0)
    return cast(bind(primitives["where"], (special, floor, exact), {}), dtype)


@composed(scalars=True)
def power(lhs: Any, rhs: Any) -> Any:
    """lhs ** rhs; a scalar exponent of 2 multiplies, which is exact and cheap."""
    if type(rhs) is int and rhs == 2 and isinstance(lhs, Value) and not lhs.dtype.is_bool:
        return arithmetic("mul", lhs, lhs)
    return arithmetic("pow", lhs, rhs)


def shift_left(lhs: Any, rhs: Any) -> Any:
    """lhs shifted left by rhs bits: lhs * 2**rhs, wrapping around."""
    if not lhs.dtype.is_integer:
        raise DTypeError("shift_left", "integers", lhs.dtype.name, "Cast to an integer dtype.")
    return lhs * bind(primitives["pow"], (full(lhs.shape, 2, lhs.dtype), rhs), {})


def invert(x: "Value") -> Any:
    """Every bit of `x` flipped; for booleans, logical not."""
    ones = {"bool": True, "int": -1}.get(x.dtype.kind)
    if ones is None and x.dtype.is_integer:
        ones = int(np.iinfo(x.dtype.np).max)
    if ones is None:
        raise DTypeError("bitwise_invert", "booleans or integers", x.dtype.name, "Cast it first.")
    return bind(primitives["bitwise_xor"], (x, full(x.shape, ones, x.dtype)), {})


def less_equal(lhs: "Value", rhs: "Value") -> Any:
    """lhs <= rhs: less, or equal; false where either is NaN."""
    less = bind(primitives["less"], (lhs, rhs), {})
    return bind(primitives["bitwise_or"], (less, bind(primitives["equal"], (lhs, rhs), {})), {})


class Value(ValueOperators):
    """Something with a spec that primitives apply to. `mode` is the transform that owns the value
    (None for ordinary tensors), `tape_entry` and `slot` its place on the autograd tape, `payload`
    a backend's array, or the value one level down."""

    spec: Spec
    payload: Any
    backend: Any = None
    mode: Any = None
    tape_entry: Any = None
    slot: int = 0

    __array_priority__ = 100  # NumPy arrays on the left leave the operation to us
    __array_ufunc__ = None

    @property
    def shape(self) -> Shape:
        return self.spec.shape

    @property
    def dtype(self) -> DType:
        return self.spec.dtype

    @property
    def ndim(self) -> int:
        return len(self.spec.shape)

    @property
    def size(self) -> int:
        return self.spec.size

    if not TYPE_CHECKING:  # value_operators.pyi has their types
        __add__, __radd__ = of_card("add")
        __sub__, __rsub__ = of_card("sub")
        __mul__, __rmul__ = of_card("mul")
        __truediv__, __rtruediv__ = both_ways(true_divide)
        __floordiv__, __rfloordiv__ = matched("floor_divide", floor_divide)
        __mod__, __rmod__ = of_card("remainder")
        __pow__, __rpow__ = both_ways(power)
        __and__ = __rand__ = of_card("bitwise_and")[0]
        __or__ = __ror__ = of_card("bitwise_or")[0]
        __xor__ = __rxor__ = of_card("bitwise_xor")[0]
        __lshift__, __rlshift__ = matched("shift_left", shift_left)
        __rshift__, __rrshift__ = of_card("shift_right")
        __lt__, __gt__ = of_card("less")
        __le__, __ge__ = matched("less_equal", less_equal)
        __eq__ = of_card("equal")[0]

    def __ne__(self, other: Any) -> Any:
        same = arithmetic("equal", self, other)
        return same if same is NotImplemented else invert(same)

    if not TYPE_CHECKING:
        __invert__ = invert

    def __neg__(self) -> Any:
        return bind(primitives["neg"], (self,), {})

    def __pos__(self) -> Any:
        return self

    __hash__ = object.__hash__


# What functions of tensors accept for a tensor, by as_value.
ArrayLike = Value | np.ndarray | np.generic | complex | Sequence[Any]


@composed(scalars=True)
def arithmetic(name: str, lhs: Any, rhs: Any) -> Any:
    """The binary primitive `name` on operands promoted and broadcast to each other."""
    try:
        if lhs.spec is rhs.spec or lhs.spec == rhs.spec:
            return bind(primitives[name], (lhs, rhs), {})
    except AttributeError:
        pass
    if not (is_operand(lhs) and is_operand(rhs)):
        return NotImplemented
    lhs, rhs = match(name, lhs, rhs)
    return bind(primitives[name], (lhs, rhs), {})


def is_operand(x: Any) -> bool:
    """Whether an operator accepts `x` beside a value; DTypeError for other libraries' tensors."""
    if isinstance(x, (Value, np.ndarray, np.generic, *SCALARS)):
        return True
    reject_foreign("operator", (type(x),))
    return False


def levels(x: Value) -> Iterator[Value]:
    """The value, and those that it wraps, down to the ordinary one."""
    while x.mode is not None:
        yield x
        x = x.payload
    yield x


def ordinary(x: Value) -> Any:
    """The ordinary tensor that a value of transforms stands on."""
    while x.mode is not None:
        x = x.payload
    return x


def match(where: str, *operands: Any) -> list[Any]:
    """The operands as values of one dtype and one shape (Python scalars are weakly typed)."""
    values = [as_operand(where, x) for x in operands]
    dtype = common_dtype(where, values)
    shape = broadcast_shapes(where, *(x.shape for x in values if isinstance(x, Value)))
    return [
        broadcast_to(cast(x, dtype), shape, where)
        if isinstance(x, Value)
        else full(shape, x, dtype, where)
        for x in values
    ]


def as_operand(where: str, x: Any) -> Any:
    """`x` as a Value, or unchanged when it is a Python scalar."""
    if isinstance(x, Value) or type(x) in SCALARS:
        return x
    return int(x) if isinstance(x, int) else as_value(x, where=where)


def common_dtype(where: str, operands: Any) -> DType:
    dtypes = [x.dtype for x in operands if isinstance(x, Value)]
    if not dtypes:
        raise DTypeError(where, "at least one tensor", "Python scalars only", "Use gh.asarray.")
    scalars = [x for x in operands if not isinstance(x, Value)]
    return reduce(promote_scalar, scalars, reduce(promote, dtypes))


def full(shape: Shape, value: Any, dtype: DType, where: str = "full") -> Any:
    """A value of `shape` filled with the Python scalar.

    Raises: DTypeError if it does not fit.
    """
    if dtype.is_integer and type(value) is int:
        info = np.iinfo(dtype.np)
        if not info.min <= value <= info.max:
            expected = f"an integer that fits {dtype.name}, from {info.min} to {info.max}"
            raise DTypeError(where, expected, value, "Use a wider dtype.")
    return bind(primitives["full"], (), {"shape": shape, "value": value, "dtype": dtype})


def zeros(spec: Any) -> Any:
    """A value of zeros, of this spec, or like this value."""
    return full(spec.shape, 0, spec.dtype)


def as_value(x: Any, dtype: DType | None = None, where: str = "asarray") -> Any:
    """`x` as a Value: unchanged if it is one, else a constant from a scalar, array or list. The
    memory of an array is copied here, so that writing to it later changes no value.

    Raises: DTypeError for tensors of other libraries and for non-numeric data.
    """
    if isinstance(x, Value):
        return x if dtype is None else cast(x, dtype)
    kinds = leaf_types(x)
    if any(issubclass(kind, Value) for kind in kinds):
        joined = join(where, [as_value(item, where=where) for item in x])
        return joined if dtype is None else cast(joined, dtype)
    reject_foreign(where, kinds)
    array = to_array(x, where, dtype)
    if dtype is None and all(kind in SCALARS for kind in kinds):
        usual = {"f": dtypes.default_float, "c": dtypes.default_complex, "i": dtypes.default_int}
        dtype = usual.get(array.dtype.kind)
    if dtype is not None and array.dtype != dtype.np:
        with np.errstate(all="ignore"):
            array = array.astype(dtype.np)
    elif not isinstance(x, COPIED):
        array = array.copy()
    return adopt(array)


def adopt(array: np.ndarray) -> Any:
    """A Value on an array of ours, without a copy: nobody may write to its memory any more. Each
    array that becomes a value passes here: those of users as copies (`as_value`) or, where they ask
    for it, shared (`share`)."""
    return bind(primitives["constant"], (), {"value": array})


def share(x: Any, where: str, dtype: DType | None = None) -> Any:
    """A Value on the memory of an array of the user's, who has to leave it unchanged while the
    value is in use: under GH_VERIFY calls that read it check that.

    Raises: OptionError where a copy would be needed.
    """
    reject_foreign(where, {type(x)})
    array = None if isinstance(x, COPIED) else to_array(x, where)
    fits = array is not None and (dtype is None or array.dtype == dtype.np)
    if array is None or not fits or not on_memory_of(array, x):
        what = type_name(x) if array is None else f"{type_name(x)} of {np.asarray(x).dtype}"
        got = what if dtype is None else f"{what} for dtype {dtype}"
        raise OptionError(where, "data that needs no copy", got, "Leave copy at None.")
    value = adopt(array.view())
    payload = ordinary(value).payload
    if not isinstance(payload, Spec):  # a backend that computes nothing keeps no array
        shared_arrays.add(payload, array, where)
    return value


def unshared(x: Value) -> Any:
    """`x`, or a copy if it shares the memory of the user's array."""
    if x.mode is not None or not shared_arrays.has(x.payload):
        return x
    backend: Any = x.backend
    copy = box(backend.from_numpy(backend.to_numpy(x.payload).copy()), x.spec, backend)
    copy.tape_entry, copy.slot = x.tape_entry, x.slot
    return copy


def join(where: str, items: list[Value]) -> Any:
    dtype = common_dtype(where, items)
    if any(item.shape != items[0].shape for item in items):
        expected = "tensors of equal shape in a list"
        fix = "Pad or reshape them first."
        raise ShapeError(where, expected, ", ".join(str(item.shape) for item in items), fix)
    rows = tuple(reshape(cast(item, dtype), (1, *item.shape)) for item in items)
    return bind(primitives["concatenate"], rows, {"axis": 0})


def cast(x: V, dtype: DType) -> V:
    """`x` in `dtype`; unchanged if it already is."""
    if x.spec.dtype is dtype:
        return x
    return bind(primitives["cast"], (x,), {"dtype": dtype})


def reshape(x: V, shape: Shape) -> V:
    """`x` with its elements, in row-major order, in a new shape of as many elements."""
    if x.spec.shape == shape:
        return x
    return bind(primitives["reshape"], (x,), {"shape": shape})


def section(x: V, axis: int, start: int, stop: int, step: int = 1) -> V:
    """The elements from `start` to before `stop` along one axis."""
    starts, stops, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    starts[axis], stops[axis], steps[axis] = start, stop, step
    bounds = {"starts": tuple(starts), "stops": tuple(stops), "steps": tuple(steps)}
    return bind(primitives["slice"], (x,), bounds)


def broadcast_to(x: V, shape: Shape, where: str = "broadcast_to") -> V:
    """`x` repeated along new leading axes and axes of size 1 to `shape`, or ShapeError raised."""
    old_shape = x.spec.shape
    if old_shape == shape:
        return x
    if broadcast_shapes(where, old_shape, shape) != shape:
        fix = "Only axes of size 1 can be repeated."
        raise ShapeError(where, f"a shape that broadcasts to {shape}", old_shape, fix)
    x = reshape(x, (1,) * (len(shape) - len(old_shape)) + old_shape)
    if x.spec.shape == shape:
        return x
    return bind(primitives["expand"], (x,), {"shape": shape})


def broadcast_values(where: str, *xs: Value) -> list[Any]:
    """The values, each broadcast to the shape common to all; dtypes unchanged."""
    shape = broadcast_shapes(where, *(x.shape for x in xs))
    return [broadcast_to(x, shape, where=where) for x in xs]
