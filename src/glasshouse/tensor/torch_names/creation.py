"""More ways to make tensors, under PyTorch's names: from NumPy's memory, spaced, windows."""

import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.base import DTypeError, OptionError, check_shape, type_name
from glasshouse.base.dtype import DTypeLike, as_dtype, default_float, float32, float64
from glasshouse.dispatch.backend import check_device
from glasshouse.dispatch.value import adopt, as_value, cast, share
from glasshouse.tensor import special
from glasshouse.tensor.standard import elementwise
from glasshouse.tensor.standard.creation import arange, asarray, makes_leaves, zeros

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


__all__ = ["as_tensor", "bartlett_window", "blackman_window", "empty_permuted", "empty_strided",
           "from_numpy", "frombuffer", "hamming_window", "hann_window", "kaiser_window",
           "logspace", "range"]  # fmt: skip


def as_tensor(data: Any, dtype: DTypeLike | None = None, device: str | None = None) -> "Tensor":
    """A tensor of the data: arrays are copied, a tensor is returned as it is.

    Shapes: as gh.asarray.
    Raises: DTypeError for non-numeric data, ShapeError for ragged lists.
    Source: PyTorch.
    """
    return asarray(data, dtype, device=device)


def from_numpy(array: np.ndarray) -> "Tensor":
    """A tensor on the memory of a NumPy array, without a copy: `gh.asarray(array, copy=False)`.

    The array has to be left unchanged while the tensor, or a call that reads it, waits to be
    computed (`gh.eval`); GH_VERIFY=1 checks it. `clone` gives a tensor with its own memory.

    Raises: DTypeError for an object that is not a NumPy array, OptionError for an array that needs
        a copy, such as one of another byte order.
    Source: PyTorch.
    Example:
        >>> from_numpy(np.array([1.0])).dtype
        glasshouse.float64
    """
    if not isinstance(array, np.ndarray):
        got = type_name(array)
        raise DTypeError("from_numpy", "a NumPy array", got, "Use gh.asarray.")
    return share(array, "from_numpy")


@makes_leaves
def frombuffer(buffer: Any, *, dtype: DTypeLike, count: int = -1, offset: int = 0) -> Any:
    """A vector of the numbers of this dtype that lie in a buffer, from `offset` bytes on; a copy.

    Shapes: -> (count,), or as many as there are.
    Raises: OptionError if the buffer does not hold them.
    Source: NumPy, PyTorch.
    """
    try:
        return asarray(np.frombuffer(buffer, as_dtype(dtype).np, count, offset))
    except ValueError as error:
        fix = "Check count and offset."
        raise OptionError("frombuffer", "a buffer of whole numbers", str(error), fix) from None


@makes_leaves
def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Any:
    """`steps` powers of a base, whose exponents are evenly spaced from `start` to `end`.

    Shapes: -> (steps,).
    Dtypes: any; float32 unless given.
    Raises: OptionError for a negative number of steps.
    Source: PyTorch.
    Example:
        >>> logspace(0, 2, 3).tolist()
        [1.0, 10.0, 100.0]
    """
    check_device("logspace", device)
    count = operator.index(steps)
    if count < 0:
        raise OptionError("logspace", "0 steps or more", steps, "Use 1 for the start alone.")
    points = np.power(float(base), np.linspace(float(start), float(end), count))
    return adopt(points.astype(as_dtype(dtype or default_float).np))


@makes_leaves
def range(
    start: Any,
    end: Any = None,
    step: int = 1,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Any:
    """The numbers from `start` (0 if only one number is given) up to `end`, with it; float32.

    Shapes: -> (floor((end - start) / step) + 1,).
    Raises: OptionError for a step of 0.
    Source: PyTorch.
    """
    check_device("range", device)
    start, end = (0, start) if end is None else (start, end)
    if step == 0:
        raise OptionError("range", "a step other than 0", 0, "Use gh.full instead.")
    count = math.floor((end - start) / step) + 1
    points = start + np.arange(max(count, 0)) * step
    return adopt(points.astype(as_dtype(dtype or default_float).np))


@makes_leaves
def empty_strided(
    size: Any, stride: Any, *, dtype: DTypeLike | None = None, device: str | None = None
) -> Any:
    """A tensor to be written to, in fact of zeros; contents lie in row-major order here, whatever
    the strides.

    Shapes: -> size.
    Source: PyTorch.
    """
    check_shape("empty_strided", stride)
    return zeros(size, dtype=dtype, device=device)


@makes_leaves
def empty_permuted(
    size: Any, physical_layout: Any, *, dtype: DTypeLike | None = None, device: str | None = None
) -> Any:
    """A tensor to be written to, in fact of zeros; contents lie in row-major order here, whatever
    the layout.

    Shapes: -> size.
    Source: PyTorch.
    """
    check_shape("empty_permuted", physical_layout)
    return zeros(size, dtype=dtype, device=device)


# -- windows ---------------------------------------------------------------------------------------


def window(name: str, weigh: Any, about: str) -> Any:
    """A function of a length: weights of the angles from 0 to 2π, one more for periodic windows."""

    def function(length: int, periodic: bool = True, *args, dtype=None, device=None, **named):
        check_device(name, device)
        (length,) = check_shape(name, length)
        dtype = as_dtype(dtype or float32)
        if not dtype.is_floating:
            raise DTypeError(name, "a floating dtype", dtype.name, "Cast later.")
        if length < 2:
            return cast(zeros(length) + 1, dtype)
        steps = length if periodic else length - 1
        place = arange(length, dtype=float64) / float(steps)
        return cast(weigh(place, *args, **named), dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{about}; periodic, as transforms want it, or symmetric.

    Shapes: -> (length,).
    Dtypes: floating; float32 unless given.
    Raises: DTypeError for another dtype.
    Source: Harris 1978, On the use of windows for harmonic analysis with the discrete Fourier
        transform.
    """
    return makes_leaves(function)


def raised_cosine(place: Any, alpha: float = 0.54, beta: float = 0.46) -> Any:
    return alpha - elementwise.cos(place * (2 * math.pi)) * beta


def bowed(place: Any) -> Any:
    wave, twice = (elementwise.cos(place * (k * math.pi)) for k in (2, 4))
    return 0.42 - wave * 0.5 + twice * 0.08


def kaiser(place: Any, beta: float = 12.0) -> Any:
    inside = elementwise.maximum(1 - (place * 2 - 1) ** 2, 0.0)
    return special.i0(elementwise.sqrt(inside) * beta) / special.i0(as_value(float(beta), float64))


bartlett_window: Any = window(
    "bartlett_window", lambda place: 1 - elementwise.abs(place * 2 - 1), "A triangular window"
)
blackman_window: Any = window(
    "blackman_window", bowed, "A window of two cosines, 0.42, 0.5 and 0.08"
)
hamming_window: Any = window(
    "hamming_window", raised_cosine, "The window alpha - beta · cos, 0.54 and 0.46 by default"
)
hann_window: Any = window(
    "hann_window", lambda place: raised_cosine(place, 0.5, 0.5), "The window (1 - cos) / 2"
)
kaiser_window: Any = window(
    "kaiser_window", kaiser, "The window i0(beta · sqrt(1 - t²)) / i0(beta), beta 12 by default"
)
