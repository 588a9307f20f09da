"""Array functions as methods of Tensor, in the spelling of NumPy and PyTorch.

A function whose first argument is the tensor becomes a method as it is; the rest of the file holds
the spellings that differ. Importing this module completes the class.
"""

import sys

from glasshouse.base import dtype as dtypes
from glasshouse.base.dtype import as_dtype
from glasshouse.base.errors import OptionError
from glasshouse.dispatch.bind import bind
from glasshouse.dispatch.primitive import primitives
from glasshouse.dispatch.value import cast
from glasshouse.tensor import contract, elementwise, index, manipulate, namespace, reduce, search
from glasshouse.tensor.handle import Tensor

AS_METHODS = {
    elementwise: "exp expm1 log log1p log2 log10 sqrt square sin cos tan asin acos atan sinh cosh "
    "tanh asinh acosh atanh floor ceil trunc round sign abs reciprocal isnan isinf isfinite "
    "logical_not logical_and logical_or logical_xor maximum minimum clip conj remainder pow",
    reduce: "sum prod max min mean var std any all argmax argmin count_nonzero cumulative_sum "
    "cumulative_prod logsumexp",
    manipulate: "squeeze expand_dims moveaxis swapaxes flip roll flatten unstack tile broadcast_to "
    "split",
    search: "sort argsort topk",
    contract: "matmul outer vecdot",
    index: "take take_along_axis nonzero",
}


def sizes(shape) -> tuple:
    """Sizes given one by one, or as one tuple or list."""
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        return tuple(shape[0])
    return tuple(shape)


def reshape(self, *shape):
    """gh.reshape, with the sizes one by one or as a tuple; one may be -1."""
    return manipulate.reshape(self, sizes(shape))


def permute(self, *axes):
    """gh.permute_dims, with the axes one by one or as a tuple."""
    return manipulate.permute_dims(self, sizes(axes))


def transpose(self, *axes):
    """Two axes: swapped, as PyTorch does. None or all: permuted, as NumPy does."""
    axes = sizes(axes)
    if len(axes) == 2 and self.ndim != 2:
        return manipulate.swapaxes(self, *axes)
    if not axes:
        return manipulate.permute_dims(self, tuple(reversed(range(self.ndim))))
    if len(axes) == 2:
        return manipulate.swapaxes(self, *axes)
    return manipulate.permute_dims(self, axes)


def expand(self, *shape):
    """The tensor broadcast to the sizes; -1 keeps the size of an axis."""
    shape = sizes(shape)
    own = (None,) * (len(shape) - self.ndim) + self.shape
    wanted = tuple(o if s == -1 else s for s, o in zip(shape, own, strict=True))
    return manipulate.broadcast_to(self, wanted)


def repeat(self, *counts):
    """gh.tile, as PyTorch's repeat does."""
    return manipulate.tile(self, sizes(counts))


def clone(self):
    """A new handle on the same contents, on the tape if this tensor is."""
    return bind(primitives["reshape"], (self,), {"shape": self.shape})


def astype(self, dtype, copy: bool = True):
    """The tensor in another dtype."""
    return cast(self, as_dtype(dtype))


def type_as(self, other):
    """The tensor in the dtype of `other`."""
    return cast(self, other.dtype)


def element_size(self) -> int:
    """Bytes of one element."""
    return self.dtype.itemsize


def numel(self) -> int:
    """The number of elements."""
    return self.size


def dim(self) -> int:
    """The number of axes."""
    return self.ndim


def fill_(self, value):
    """This tensor, now with `value` everywhere."""
    return self.copy_(value)


def zero_(self):
    """This tensor, now with 0 everywhere."""
    return self.copy_(0)


def add_(self, other):
    """This tensor plus `other`, written back."""
    self += other
    return self


def mul_(self, other):
    """This tensor times `other`, written back."""
    self *= other
    return self


def array_namespace(self, /, *, api_version=None):
    """The module of the array functions.
    Raises: OptionError for a version of the standard that it does not follow."""
    followed = ("2021.12", "2022.12", "2023.12", namespace.__array_api_version__)
    if api_version not in (None, *followed):
        raise OptionError(
            f"__array_namespace__: expected a version of the Array API up to {followed[-1]}; got "
            f"{api_version!r}. Leave it at None."
        )
    return sys.modules["glasshouse"]


def cast_method(name: str, dtype):
    """A method that casts to one dtype, like PyTorch's `.float()`."""

    def method(self):
        return cast(self, dtype)

    method.__name__ = name
    method.__doc__ = f"The tensor in {dtype.name}."
    return method


SPELLINGS = {
    "reshape": reshape, "view": reshape, "permute": permute, "transpose": transpose,
    "expand": expand, "repeat": repeat, "clone": clone, "astype": astype, "type_as": type_as,
    "element_size": element_size, "numel": numel, "dim": dim, "fill_": fill_, "zero_": zero_,
    "add_": add_, "mul_": mul_, "unsqueeze": manipulate.expand_dims,
    "cumsum": reduce.cumulative_sum, "cumprod": reduce.cumulative_prod, "amax": reduce.max,
    "amin": reduce.min, "clamp": elementwise.clip, "dot": contract.vecdot, "mm": contract.matmul,
    "bmm": contract.matmul, "unbind": manipulate.unstack, "__array_namespace__": array_namespace,
}  # fmt: skip
CASTS = {
    "bool": dtypes.bool_, "int": dtypes.int32, "long": dtypes.int64, "half": dtypes.float16,
    "bfloat16": dtypes.bfloat16, "float": dtypes.float32, "double": dtypes.float64,
}  # fmt: skip


def complete(cls) -> None:
    """Give `cls` all methods listed above."""
    for module, names in AS_METHODS.items():
        for name in names.split():
            setattr(cls, name, getattr(module, name))
    for name, function in SPELLINGS.items():
        setattr(cls, name, function)
    for name, dtype in CASTS.items():
        setattr(cls, name, cast_method(name, dtype))
    cls.real = property(elementwise.real, doc="The real part.")
    cls.imag = property(elementwise.imag, doc="The imaginary part.")
    cls.__abs__ = elementwise.abs


complete(Tensor)
