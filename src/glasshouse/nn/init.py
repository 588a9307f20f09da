"""Initial values of parameters. Each function writes into its tensor and returns it.

fan_in and fan_out are weight.shape[1] and weight.shape[0] times the elements of a kernel."""

import math
from collections.abc import Callable
from contextvars import ContextVar
from math import prod
from typing import Any

import numpy as np

from glasshouse.autograd import no_grad
from glasshouse.base.errors import DTypeError, OptionError, ShapeError, suggest, type_name
from glasshouse.nn.checks import check_divides
from glasshouse.ops.checks import check_option, check_range
from glasshouse.tensor import Tensor, argsort, linalg, random
from glasshouse.tensor import where as choose
from glasshouse.tensor.random import Generator
from glasshouse.tensor.standard import creation

__all__ = [
    "calculate_gain",
    "constant_",
    "dirac_",
    "eye_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "orthogonal_",
    "sparse_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]

GAINS: dict[str, Any] = {
    "linear": 1.0,
    "conv1d": 1.0,
    "conv2d": 1.0,
    "conv3d": 1.0,
    "conv_transpose1d": 1.0,
    "conv_transpose2d": 1.0,
    "conv_transpose3d": 1.0,
    "sigmoid": 1.0,
    "tanh": 5 / 3,
    "relu": math.sqrt(2),
    "leaky_relu": None,
    "selu": 3 / 4,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which weights before this nonlinearity are larger than before a linear one.
    leaky_relu has √(2 / (1 + param²)), param its slope, 0.01 unless given.

    Raises: OptionError for an unknown nonlinearity.
    Source: He et al. 2015, arXiv:1502.01852; the table as in PyTorch.
    """
    if nonlinearity not in GAINS:
        fix = suggest(nonlinearity, GAINS)
        raise OptionError("calculate_gain", "a known nonlinearity", repr(nonlinearity), fix)
    gain = GAINS[nonlinearity]
    return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2)) if gain is None else gain


writes: ContextVar[bool] = ContextVar("writes", default=True)  # whether tensors get values


def write(where: str, tensor: Tensor, make: Callable[..., Any]) -> Tensor:
    """`tensor`, now with the contents make() gives, off the tape."""
    if not isinstance(tensor, Tensor):
        raise DTypeError(where, "a tensor to write into", type_name(tensor), "Pass a Parameter.")
    with no_grad():
        return tensor.copy_(make()) if writes.get() else tensor


def _drawn(where: str, tensor, distribution, *options):
    """`tensor`, now drawn from a distribution of gh.random; the last option is the generator."""
    *options, generator = options
    like = {"dtype": getattr(tensor, "dtype", None), "generator": generator}
    return write(where, tensor, lambda: distribution(tensor.shape, *options, **like))


def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Drawn from [a, b)."""
    return _drawn("uniform_", tensor, random.uniform, a, b, generator)


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Drawn from the normal distribution."""
    return _drawn("normal_", tensor, random.normal, mean, std, generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Drawn from the normal distribution within [a, b]."""
    return _drawn("trunc_normal_", tensor, random.truncated_normal, mean, std, a, b, generator)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Filled with `val`."""
    return write("constant_", tensor, lambda: creation.full(tensor.shape, val, dtype=tensor.dtype))


def zeros_(tensor: Tensor) -> Tensor:
    """Filled with 0."""
    return write("zeros_", tensor, lambda: creation.zeros(tensor.shape, dtype=tensor.dtype))


def ones_(tensor: Tensor) -> Tensor:
    """Filled with 1."""
    return write("ones_", tensor, lambda: creation.ones(tensor.shape, dtype=tensor.dtype))


def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix, cut or continued with zeros to the tensor's shape."""
    if tensor.ndim != 2:
        raise ShapeError("eye_", "a matrix", tensor.shape, "Use 2 axes.")
    return write("eye_", tensor, lambda: creation.eye(*tensor.shape, dtype=tensor.dtype))


def fans(where: str, tensor: Tensor) -> tuple[int, int]:
    """(fan_in, fan_out) of a weight."""
    if tensor.ndim < 2:
        fix = "Use uniform_ or normal_ for vectors."
        raise ShapeError(where, "a weight of at least 2 axes", tensor.shape, fix)
    kernel = prod(tensor.shape[2:])
    return tensor.shape[1] * kernel, tensor.shape[0] * kernel


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """1 in the middle of the kernel from each input channel to the output channel of its number, in
    each of `groups` groups of output channels; else 0: such a convolution passes its input on.

    Raises: ShapeError unless it is the weight of a convolution whose outputs `groups` divides.
    Source: Zagoruyko & Komodakis 2017, arXiv:1706.00388; in groups as in PyTorch.
    """
    if tensor.ndim not in (3, 4, 5):
        fix = "Use eye_ for matrices."
        raise ShapeError("dirac_", "the weight of a convolution, 3 to 5 axes", tensor.shape, fix)
    check_divides("dirac_", "output channels", tensor.shape[0], "groups", groups)
    outputs, inputs, *kernel = tensor.shape
    array: Any = np.zeros(tensor.shape)
    each = np.arange(min(outputs // groups, inputs))
    middle = tuple(size // 2 for size in kernel)
    for first in range(0, outputs, outputs // groups):
        array[(first + each, each, *middle)] = 1
    return write("dirac_", tensor, lambda: creation.asarray(array, dtype=tensor.dtype))


def sparse_(
    tensor: Any, sparsity: float, std: Any = 0.01, generator: Generator | None = None
) -> Tensor:
    """Normal, but for a share `sparsity` of each column, in rows that are drawn, which is 0.

    Raises: ShapeError unless it is a matrix, OptionError for a share outside [0, 1].
    Source: Martens 2010, "Deep learning via Hessian-free optimization", sec. 5.
    """
    if tensor.ndim != 2:
        raise ShapeError("sparse_", "a matrix", tensor.shape, "Use 2 axes.")
    check_range("sparse_", "sparsity", sparsity, 0, 1)
    rows = tensor.shape[0]

    def make():
        like = {"dtype": tensor.dtype, "generator": generator}
        order = argsort(random.uniform(tensor.shape, generator=generator), axis=0)
        is_kept = order >= math.ceil(sparsity * rows)
        return choose(is_kept, random.normal(tensor.shape, 0.0, std, **like), 0.0)

    return write("sparse_", tensor, make)


def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Drawn from ±gain · √(6 / (fan_in + fan_out)).

    Source: Glorot & Bengio 2010, eq. 16
    """
    bound = gain * math.sqrt(6 / sum(fans("xavier_uniform_", tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal with std gain · √(2 / (fan_in + fan_out)).

    Source: Glorot & Bengio 2010
    """
    std = gain * math.sqrt(2 / sum(fans("xavier_normal_", tensor)))
    return normal_(tensor, 0.0, std, generator)


def kaiming_std(where: str, tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    """The standard deviation gain / sqrt(fan) that keeps the variance through the layer."""
    check_option(where, "mode", mode, ("fan_in", "fan_out"))
    fan = fans(where, tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fan, 1))


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Drawn from ±gain · √(3 / fan).

    Source: He et al. 2015, arXiv:1502.01852, eq. 10
    """
    bound = math.sqrt(3) * kaiming_std("kaiming_uniform_", tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: int = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Normal with std gain / √fan.

    Source: He et al. 2015, arXiv:1502.01852, eq. 10
    """
    std = kaiming_std("kaiming_normal_", tensor, a, mode, nonlinearity)
    return normal_(tensor, 0.0, std, generator)


def orthogonal_(tensor: Tensor, gain: int = 1, generator: Generator | None = None) -> Tensor:
    """gain times a random matrix (first axis by the others) of orthonormal rows or columns.

    Source: Saxe et al. 2013, arXiv:1312.6120.
    """
    fans("orthogonal_", tensor)
    rows, columns = tensor.shape[0], prod(tensor.shape[1:])

    def make():
        shape = (max(rows, columns), min(rows, columns))
        q, r = linalg.qr(random.normal(shape, dtype=tensor.dtype, generator=generator))
        # QR is unique only up to signs: with R's diagonal positive, Q is uniformly distributed
        q = q * choose(linalg.diagonal(r) < 0, -1.0, 1.0)
        return (q if rows >= columns else q.mT).reshape(tensor.shape) * gain

    return write("orthogonal_", tensor, make)
