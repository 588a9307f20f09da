"""Array functions as methods of Tensor, under the names of NumPy and PyTorch.

A function whose first argument is the tensor becomes a method as it is; the rest of the file holds
the spellings that differ. Importing this module completes the class."""

import operator
import sys

from glasshouse.base import OptionError, as_dtype
from glasshouse.base import dtype as dtypes
from glasshouse.dispatch import bind, cast, primitives
from glasshouse.tensor import (
    contract,
    elementwise,
    index,
    manipulate,
    namespace,
    random,
    reduce,
    search,
)
from glasshouse.tensor.detached import DATA
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
    lone = len(shape) == 1 and isinstance(shape[0], (tuple, list))
    return tuple(shape[0] if lone else shape)


def transpose(self, *axes):
    """Two axes: swapped, as PyTorch does. None or all: permuted, as NumPy does."""
    axes = sizes(axes)
    if len(axes) == 2:
        return manipulate.swapaxes(self, *axes)
    return manipulate.permute_dims(self, axes or tuple(reversed(range(self.ndim))))


def expand(self, *shape):
    """The tensor broadcast to the sizes; -1 keeps the size of an axis."""
    shape = sizes(shape)
    own = (None,) * (len(shape) - self.ndim) + self.shape
    wanted = tuple(o if s == -1 else s for s, o in zip(shape, own, strict=True))
    return manipulate.broadcast_to(self, wanted)


def array_namespace(self, /, *, api_version=None):
    """The module of the array functions."""
    followed = ("2021.12", "2022.12", "2023.12", namespace.__array_api_version__)
    if api_version not in (None, *followed):
        raise OptionError(
            "__array_namespace__",
            f"a version of the Array API up to {followed[-1]}",
            repr(api_version),
            "Leave it at None.",
        )
    return sys.modules["glasshouse"]


def scaled(other, alpha):
    return other if type(alpha) is int and alpha == 1 else other * alpha


SPELLINGS = {"transpose": transpose, "expand": expand, "__array_namespace__": array_namespace,
             "unsqueeze": manipulate.expand_dims, "unbind": manipulate.unstack,
             "clamp": elementwise.clip, "cumsum": reduce.cumulative_sum,
             "cumprod": reduce.cumulative_prod, "amax": reduce.max, "amin": reduce.min,
             "dot": contract.vecdot, "mm": contract.matmul, "bmm": contract.matmul}  # fmt: skip
ONE_LINERS = {
    "reshape": (
        lambda self, *shape: manipulate.reshape(self, sizes(shape)),
        "gh.reshape, with the sizes one by one or as a tuple; one may be -1.",
    ),
    "permute": (
        lambda self, *axes: manipulate.permute_dims(self, sizes(axes)),
        "gh.permute_dims, with the axes one by one or as a tuple.",
    ),
    "add_": (
        lambda self, other, *, alpha=1: operator.iadd(self, scaled(other, alpha)),
        "This tensor += alpha * other.",
    ),
    "sub_": (
        lambda self, other, *, alpha=1: operator.isub(self, scaled(other, alpha)),
        "This tensor -= alpha * other.",
    ),
    "mul_": (lambda self, other: operator.imul(self, other), "This tensor *= other."),
    "div_": (lambda self, other: operator.itruediv(self, other), "This tensor /= other."),
    "clamp_": (
        lambda self, min=None, max=None: self.in_place("clamp_", self.clamp(min, max)),
        "This tensor, now within the bounds.",
    ),
    "normal_": (
        lambda self, mean=0.0, std=1.0, *, generator=None: self.write(
            "normal_", random.normal(self.shape, mean, std, self.dtype, generator)
        ),
        "This tensor, now with normal numbers.",
    ),
    "uniform_": (
        lambda self, low=0.0, high=1.0, *, generator=None: self.write(
            "uniform_", random.uniform(self.shape, low, high, self.dtype, generator)
        ),
        "This tensor, now with numbers of the uniform distribution over [low, high).",
    ),
    "repeat": (
        lambda self, *counts: manipulate.tile(self, sizes(counts)),
        "gh.tile, as PyTorch's repeat does.",
    ),
    "clone": (
        lambda self: bind(primitives["reshape"], (self,), {"shape": self.shape}),
        "A new handle on the same contents, on the tape if this tensor is.",
    ),
    "astype": (
        lambda self, dtype, copy=True: cast(self, as_dtype(dtype)),
        "The tensor in another dtype.",
    ),
    "type_as": (lambda self, other: cast(self, other.dtype), "The tensor in the dtype of `other`."),
    "element_size": (lambda self: self.dtype.itemsize, "Bytes of one element."),
    "numel": (lambda self: self.size, "The number of elements."),
    "dim": (lambda self: self.ndim, "The number of axes."),
    "fill_": (lambda self, value: self.copy_(value), "This tensor, now with `value` everywhere."),
    "zero_": (lambda self: self.copy_(0), "This tensor, now with 0 everywhere."),
}
CASTS = {
    "bool": dtypes.bool_,
    "int": dtypes.int32,
    "long": dtypes.int64,
    "half": dtypes.float16,
    "bfloat16": dtypes.bfloat16,
    "float": dtypes.float32,
    "double": dtypes.float64,
}


def casting(dtype):
    return lambda self: cast(self, dtype), f"The tensor in {dtype.name}."


def complete(cls) -> None:
    for module, names in AS_METHODS.items():
        for name in names.split():
            setattr(cls, name, getattr(module, name))
    for name, function in SPELLINGS.items():
        setattr(cls, name, function)
    casts = {name: casting(dtype) for name, dtype in CASTS.items()}
    for name, (function, doc) in (ONE_LINERS | casts).items():
        function.__name__, function.__doc__ = name, doc
        setattr(cls, name, function)
    cls.view = cls.reshape
    cls.data = DATA
    cls.real = property(elementwise.real, doc="The real part.")
    cls.imag = property(elementwise.imag, doc="The imaginary part.")
    cls.__abs__ = elementwise.abs


complete(Tensor)
