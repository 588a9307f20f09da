"""Making tensors: from data, filled, counted, and from other libraries."""

import functools
import math
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.base import DTypeError, OptionError, ShapeError, check_shape, type_name
from glasshouse.base import dtype as dtypes
from glasshouse.base.dtype import DType, DTypeLike, as_dtype, by_python_type, float32
from glasshouse.dispatch import SCALARS, Value, adopt, as_value, cast, share
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch import value as values
from glasshouse.dispatch.backend import check_device
from glasshouse.dispatch.spelling import takes_names_of_pytorch
from glasshouse.dispatch.value import ArrayLike
from glasshouse.ops import create
from glasshouse.ops import linalg as matrices
from glasshouse.ops.checks import check_integers, check_matrices, check_option, check_type
from glasshouse.tensor.standard.elementwise import named
from glasshouse.tensor.standard.manipulate import broadcast_arrays, copied, expand_dims, flip

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


__all__ = ["arange", "asarray", "empty", "empty_like", "eval", "eye", "from_dlpack", "full",
           "full_like", "linspace", "meshgrid", "one_hot", "ones", "ones_like", "tril",
           "triu", "zeros", "zeros_like"]  # fmt: skip


def as_leaf(x: "Tensor", requires_grad: bool = False) -> "Tensor":
    """A tensor that was just made, which from now on collects its gradient if that is wanted."""
    return x.requires_grad_() if requires_grad else x


def makes_leaves(fn: Callable[..., Any]) -> Any:
    """`fn`, which makes tensors, with a further argument `requires_grad`."""

    @functools.wraps(fn)
    def call(*args, requires_grad: bool = False, **named):
        return as_leaf(fn(*args, **named), requires_grad)

    return call


def eval(*tensors: Any) -> None:
    """Compute the tensors now, with all that was put off so far in this thread.

    Example:
        >>> x = ones(3) + 1
        >>> eval(x)
    """
    for x in tensors:
        check_type("eval", x, Value, "tensors", "Pass what operations returned.")
    lowest = [values.ordinary(x) for x in tensors]
    for backend in {x.backend for x in lowest} | {backends.current()}:
        backend.evaluate([x.payload for x in lowest if x.backend is backend])


def asarray(
    obj: Any, /, dtype: DTypeLike | None = None, *, device: str | None = None, copy: Any = None
) -> "Tensor":
    """A tensor of the data in `obj`: a tensor, NumPy array, number, or nested lists of these.
    Python floats become float32, integers int64, complex numbers complex64; arrays keep their
    dtype.

    Arrays are copied, so that they may be written to afterwards; a tensor is returned as it is, or,
    with copy=True, in new memory. With copy=False the tensor shares the memory of an array,
    which has to be left unchanged while the tensor, or a call that reads it, waits to be computed
    (`gh.eval`); GH_VERIFY=1 checks it.

    Shapes: n lists of m numbers -> (n, m), and so on.
    Dtypes: any.
    Raises: DTypeError for non-numeric data, ShapeError for ragged lists, OptionError (a ValueError)
        if copy=False and a copy is needed.
    Source: standard.
    """
    check_device("asarray", device)
    dtype = None if dtype is None else as_dtype(dtype)
    if copy is False and not (isinstance(obj, Value) and dtype in (None, obj.dtype)):
        return share(obj, "asarray", dtype)
    out = as_value(obj, dtype)
    return copied(out) if copy and out is obj else out


def tensor(
    data: ArrayLike,
    dtype: DTypeLike | None = None,
    *,
    device: str | None = None,
    requires_grad: bool = False,
) -> "Tensor":
    """A new tensor with a copy of the data, a leaf; with `requires_grad` it collects its gradient.

    Shapes: as gh.asarray.
    Dtypes: any; floating or complex with requires_grad.
    Raises: DTypeError for non-numeric data, ShapeError for ragged lists.
    Source: PyTorch.
    """
    out = asarray(data, dtype, device=device, copy=True)
    out = out.detach() if isinstance(data, Value) else out
    return as_leaf(out, requires_grad)


def from_dlpack(x: Any, /, *, device: Any = None, copy: Any = None) -> Any:
    """A tensor of the contents of another library's array. They are copied; with copy=False the
    tensor shares the array's memory, as that of gh.asarray.

    Shapes: x (...) -> (...).
    Dtypes: any, kept.
    Raises: DTypeError for objects without DLPack and for contents that cannot be read or shared.
    Source: standard.
    """
    check_device("from_dlpack", device)
    if isinstance(x, Value):
        return copied(x) if copy else x
    if not hasattr(x, "__dlpack__"):
        raise DTypeError("from_dlpack", "an array with __dlpack__", type_name(x), "Use gh.asarray.")
    try:
        array = np.from_dlpack(x, copy=False if copy is False else None)
        return share(array, "from_dlpack") if copy is False else as_value(array)
    except (BufferError, RuntimeError, TypeError) as error:
        expected = "an array in host memory, without a gradient"
        fix = "Detach it and move it to the CPU."
        raise DTypeError("from_dlpack", expected, f"{type_name(x)}: {error}", fix) from None


def full(
    shape: int | Sequence[int],
    fill_value: ArrayLike,
    dtype: Any = None,
    *,
    device: str | None = None,
    requires_grad: bool = False,
) -> "Tensor":
    """A tensor with `fill_value` everywhere.

    Shapes: -> shape.
    Dtypes: any; the default for the Python type of fill_value unless given.
    Raises: ShapeError for negative sizes, DTypeError for a value that does not fit dtype.
    Source: standard.
    Example:
        >>> full((2,), 7).tolist()
        [7, 7]
    """
    check_device("full", device)
    shape = check_shape("full", shape)
    dtype = None if dtype is None else as_dtype(dtype)
    if type(fill_value) not in SCALARS:
        spread = values.broadcast_to(as_value(fill_value, dtype, "full"), shape, "full")
        return as_leaf(spread, requires_grad)
    dtype = dtype or by_python_type[type(fill_value)]
    endless = type(fill_value) is float and not math.isfinite(fill_value)
    if type(fill_value) is complex and not dtype.is_complex or endless and dtype.is_integer:
        fix = "Choose another dtype."
        raise DTypeError("full", f"a fill_value that fits {dtype.name}", fill_value, fix)
    return as_leaf(values.full(shape, fill_value, dtype, "full"), requires_grad)


def full_like(
    x: ArrayLike,
    /,
    fill_value: int,
    dtype: DTypeLike | None = None,
    *,
    device: str | None = None,
    requires_grad: bool = False,
) -> "Tensor":
    """A tensor of `fill_value` with the shape of x.

    Shapes: x (...) -> (...).
    Dtypes: that of x unless given.
    Raises: DTypeError for a value that does not fit the dtype.
    Source: standard.
    """
    x = as_value(x, where="full_like")
    dtype = x.dtype if dtype is None else dtype
    return full(x.shape, fill_value, dtype, device=device, requires_grad=requires_grad)


def filling(name: str, value: int, what: str) -> Any:
    def of_shape(shape, *sizes, dtype=None, device=None, requires_grad=False):
        check_device(name, device)
        if sizes and not hasattr(sizes[-1], "__index__"):  # a dtype, as in NumPy
            *sizes, dtype = sizes
        shape = check_shape(name, (shape, *sizes) if sizes else shape)
        tensor = values.full(shape, value, as_dtype(dtype or dtypes.default_float), name)
        return as_leaf(tensor, requires_grad)

    def like(x, /, dtype=None, *, device=None, requires_grad=False):
        x = as_value(x, where=f"{name}_like")
        return full_like(x, value, dtype, device=device, requires_grad=requires_grad)

    filled = named(
        of_shape,
        name,
        about=f"A tensor {what}; the sizes may also come one by one.",
        shapes="-> shape",
        dtypes="any; float32 unless given",
        errors="ShapeError for negative sizes",
        example=f"{name}((1, 2)).tolist()",
        result=[[float(value)] * 2],
    )
    return filled, named(
        like,
        f"{name}_like",
        about=f"A tensor {what}, with the shape of x.",
        shapes="x (...) -> (...)",
        dtypes="that of x unless given",
        errors="DTypeError for what is not numeric",
        example=f"{name}_like([1, 2]).tolist()",
        result=[value] * 2,
    )


zeros_like: Any
zeros: Any
zeros, zeros_like = filling("zeros", 0, "of zeros")
ones_like: Any
ones: Any
ones, ones_like = filling("ones", 1, "of ones")
empty_like: Any
empty: Any
empty, empty_like = filling("empty", 0, "to be written to, in fact of zeros")


def number(where: str, x: Any) -> float:
    x = x if type(x) in SCALARS else getattr(x, "item", lambda: x)()
    if type(x) not in SCALARS and isinstance(x, int):
        x = int(x)  # a number of elements
    if type(x) not in SCALARS:
        raise DTypeError(where, "a number", type_name(x), "Pass a Python number.")
    return x


@makes_leaves
def arange(
    start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None
) -> "Tensor":
    """The numbers from `start` (0 if only one number is given) up to, without, `stop`.
    y[i] = start + i · step

    Shapes: -> (max(0, ceil((stop - start) / step)),).
    Dtypes: real; int64 for integers, else float32, unless given.
    Raises: OptionError for a step of 0.
    Source: standard.
    Example:
        >>> arange(1, 7, 2).tolist()
        [1, 3, 5]
    """
    check_device("arange", device)
    start, stop = (0, start) if stop is None else (start, stop)
    start, stop, step = (number("arange", x) for x in (start, stop, step))
    if step == 0:
        raise OptionError("arange", "a step other than 0", "0", "Use gh.full instead.")
    whole = all(isinstance(x, int) for x in (start, stop, step))
    dtype = as_dtype(dtype or (dtypes.default_int if whole else dtypes.default_float))
    if whole and dtype.is_integer:
        return whole_range(range(int(start), int(stop), int(step)), dtype)
    size = max(0, math.ceil((stop - start) / step))
    return adopt((start + np.arange(size) * step).astype(dtype.np))


def whole_range(numbers: range, dtype: DType) -> "Tensor":
    step = abs(numbers.step)
    ends = values.to_array([*numbers[:1], *numbers[1:][-1:]], "arange", dtype)  # raises if unfit
    if len(numbers) < 3:  # the step may not fit the dtype
        return adopt(ends)
    out = create.iota(size=len(numbers), dtype=dtype)
    out = out if step == 1 else out * step
    lowest = min(numbers[0], numbers[-1])
    out = out if lowest == 0 else out + lowest
    return out if numbers.step > 0 else flip(out)


@takes_names_of_pytorch
@makes_leaves
def linspace(
    start: int,
    stop: complex,
    /,
    num: int,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    endpoint: bool = True,
) -> "Tensor":
    """`num` evenly spaced numbers from `start` to `stop`, which is left out without `endpoint`.
    y[i] = start + i · (stop - start) / (num - 1), or / num without the end

    Shapes: -> (num,).
    Dtypes: any; float32 (complex64 for complex numbers) unless given.
    Raises: OptionError for negative num.
    Source: standard.
    Example:
        >>> linspace(0, 1, 3).tolist()
        [0.0, 0.5, 1.0]
    """
    check_device("linspace", device)
    start, stop = number("linspace", start), number("linspace", stop)
    count = operator.index(num)
    if count < 0:
        raise OptionError("linspace", "num of 0 or more", num, "Use 1 for start alone.")
    is_complex = isinstance(start, complex) or isinstance(stop, complex)
    dtype = as_dtype(dtype or by_python_type[complex if is_complex else float])
    points = np.linspace(start, stop, count, endpoint=endpoint)
    return adopt((np.floor(points) if dtype.is_integer else points).astype(dtype.np))


@makes_leaves
def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> "Tensor":
    """A matrix with ones on its k-th diagonal (above the main one for k > 0) and zeros elsewhere.

    Shapes: -> (n_rows, n_cols), n_cols being n_rows unless given.
    Dtypes: any; float32 unless given.
    Raises: ShapeError for negative sizes.
    Source: standard.
    Example:
        >>> eye(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    check_device("eye", device)
    shape = (n_rows, n_rows if n_cols is None else n_cols)
    above = matrices.diagonals(*shape) == within(k, shape)
    return cast(above, as_dtype(dtype or dtypes.default_float))


def within(k: int, shape: Any) -> int:
    """The number of a diagonal; of those beside the matrix one that int64 can hold."""
    m, n = shape[-2:]
    return max(-m, min(operator.index(k), n))


@takes_names_of_pytorch
def tril(x: Any, /, k: int = 0) -> "Tensor":
    """The matrices x with zeros above the k-th diagonal.

    Shapes: x (..., m, n) -> (..., m, n).
    Dtypes: any, kept.
    Raises: ShapeError for fewer than two axes.
    Source: standard.
    Example:
        >>> tril([[1, 2], [3, 4]]).tolist()
        [[1, 0], [3, 4]]
    """
    x = check_matrices("tril", as_value(x, where="tril"))
    return matrices.tril(x, within(k, x.shape))


@takes_names_of_pytorch
def triu(x: Any, /, k: int = 0) -> "Tensor":
    """The matrices x with zeros below the k-th diagonal.

    Shapes: x (..., m, n) -> (..., m, n).
    Dtypes: any, kept.
    Raises: ShapeError for fewer than two axes.
    Source: standard.
    Example:
        >>> triu([[1, 2], [3, 4]]).tolist()
        [[1, 2], [0, 4]]
    """
    x = check_matrices("triu", as_value(x, where="triu"))
    return matrices.triu(x, within(k, x.shape))


class Unsaid(str):
    """The value of an option that a call leaves to its default."""


STANDARD_ORDER = Unsaid("xy")


def meshgrid(*arrays: Any, indexing: str = STANDARD_ORDER) -> "list[Tensor]":
    """Coordinate tensors of the grid that the vectors span.
    With indexing "ij" axis i of the results belongs to vector i; with "xy" the first two axes are
    exchanged. That is the default, as in the standard, with a warning, since PyTorch's is "ij"; of
    vectors in a list, as PyTorch alone takes them, it is "ij".

    Shapes: (a,), (b,), … -> (b, a, ...), or (a, b, ...) with "ij", each.
    Dtypes: any, each kept.
    Raises: OptionError for another indexing, ShapeError for matrices.
    Source: standard.
    Example:
        >>> [a.tolist() for a in meshgrid([1, 2], [3, 4], indexing="ij")]
        [[[1, 1], [2, 2]], [[3, 4], [3, 4]]]
    """
    check_option("meshgrid", "indexing", indexing, ("xy", "ij"))
    is_unsaid = indexing is STANDARD_ORDER
    listed = len(arrays) == 1 and isinstance(arrays[0], (list, tuple))
    if listed and any(isinstance(x, Value) for x in arrays[0]):
        arrays, indexing = arrays[0], "ij" if is_unsaid else indexing
        is_unsaid = False
    if is_unsaid and len(arrays) > 1:
        text = "meshgrid: axes are in the order of indexing='xy', as in the Array API and NumPy. "
        warnings.warn(text + "Write that, or indexing='ij' for PyTorch's order.", stacklevel=2)
    arrays = [as_value(x, where="meshgrid") for x in arrays]
    if any(x.ndim > 1 for x in arrays):
        raise ShapeError("meshgrid", "vectors", [x.shape for x in arrays], "Flatten.")
    order = list(range(len(arrays)))
    if indexing != "ij" and len(order) > 1:
        order[:2] = 1, 0
    shaped = [
        values.reshape(x, tuple(x.size if i == axis else 1 for i in range(len(arrays))))
        for x, axis in zip(arrays, order, strict=True)
    ]
    return broadcast_arrays(*shaped)


def one_hot(indices: ArrayLike, num_classes: int, *, dtype: DTypeLike = float32) -> "Tensor":
    """Vectors with 1 at the given index and 0 elsewhere; all 0 for an index out of range.

    Shapes: indices (...) -> (..., num_classes).
    Dtypes: integer -> dtype.
    Raises: DTypeError unless indices are integers.
    Source: JAX, PyTorch.
    Example:
        >>> one_hot([1, 0], 2).tolist()
        [[0.0, 1.0], [1.0, 0.0]]
    """
    indices = as_value(indices, where="one_hot")
    check_integers("one_hot", indices)
    classes = create.iota(size=operator.index(num_classes), dtype=indices.dtype)
    return cast(expand_dims(indices, -1) == classes, as_dtype(dtype))
