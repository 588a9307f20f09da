"""Array functions as methods of Tensor, under the names of NumPy and PyTorch.

A function whose first argument is the tensor becomes a method as it is; the rest of the file holds
the spellings that differ. Importing this module completes the class."""

import operator
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from glasshouse.base import OptionError, as_dtype, check_axis
from glasshouse.base import dtype as dtypes
from glasshouse.base.dtype import DTypeLike
from glasshouse.base.missing_names import AbsentNameError
from glasshouse.dispatch import bind, cast, primitives
from glasshouse.tensor import random, special, writing
from glasshouse.tensor.at import UpdatePlaces
from glasshouse.tensor.detached import DATA
from glasshouse.tensor.handle import Tensor
from glasshouse.tensor.parts import VIEWS, viewing
from glasshouse.tensor.random import Generator
from glasshouse.tensor.standard import (
    arithmetic,
    contract,
    creation,
    elementwise,
    index,
    manipulate,
    namespace,
    reduce,
    search,
)
from glasshouse.tensor.torch_names import (
    arrange,
    counts,
    drawing,
    joining,
    matrices,
    meanings,
    products,
    scans,
    scatter,
    short_time,
    statistics,
)
from glasshouse.tensor.writing import method

AS_METHODS = {
    elementwise: "exp exp2 expm1 log log1p log2 log10 sqrt rsqrt square sin cos tan asin acos atan "
    "sinh cosh tanh asinh acosh atanh floor ceil trunc round sign abs reciprocal isnan isinf "
    "isfinite logical_not logical_and logical_or logical_xor maximum minimum clip conj remainder "
    "pow angle atan2 bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift "
    "copysign erf floor_divide greater greater_equal less less_equal not_equal isclose allclose "
    "hypot logaddexp nan_to_num nextafter positive signbit negative multiply divide",
    arithmetic: "addcdiv addcmul bitwise_not clamp_max clamp_min deg2rad div float_power fmax fmin "
    "fmod frac frexp gcd heaviside is_complex is_floating_point is_nonzero is_same_size is_signed "
    "isneginf isposinf isreal lcm ldexp lerp logaddexp2 mul rad2deg sgn sub subtract xlogy",
    special: "digamma erfc erfinv i0 logit sinc",
    reduce: "sum prod mean any all argmax argmin count_nonzero cumulative_sum "
    "cumulative_prod logsumexp diff",
    scans: "cummax cummin logcumsumexp",
    statistics: "amax amin aminmax corrcoef cov kthvalue median nanmean nanmedian nanquantile "
    "nansum quantile",
    counts: "bincount hash_tensor histc histogram unique unique_consecutive",
    manipulate: "expand_dims moveaxis swapaxes flip roll flatten unstack tile broadcast_to chunk",
    arrange: "adjoint argwhere diag diag_embed diagflat diagonal expand_as fliplr flipud msort "
    "nonzero_static ravel repeat_interleave reshape_as rot90 sum_to_size t unflatten",
    joining: "as_strided dsplit hsplit narrow select split_with_sizes tensor_split unfold vsplit",
    scatter: "as_strided_scatter diagonal_scatter gather index_add index_copy index_fill index_put "
    "index_reduce index_select masked_fill masked_scatter masked_select put scatter scatter_add "
    "scatter_reduce select_scatter slice_scatter take_along_dim",
    search: "argsort topk",
    short_time: "istft stft",
    contract: "matmul outer vecdot inner kron",
    products: "addbmm addmm addmv addr baddbmm bmm cross dist dot ger mm mv renorm vdot",
    matrices: "cholesky cholesky_inverse cholesky_solve det geqrf inverse logdet lu lu_solve "
    "matrix_exp matrix_power norm orgqr ormqr pinverse qr slogdet svd trace triangular_solve",
    creation: "tril triu",
    drawing: "bernoulli multinomial",
    index: "take_along_axis",
    meanings: "max min sort std var split squeeze take nonzero",
}
SYNONYMS = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh",
    "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh", "conj_physical": "conj",
    "fix": "trunc", "ge": "greater_equal", "greater": "greater", "gt": "greater",
    "le": "less_equal", "lt": "less", "ne": "not_equal", "neg": "negative",
    "true_divide": "divide", "clamp": "clip", "movedim": "moveaxis", "swapdims": "swapaxes",
    "unbind": "unstack", "unsqueeze": "expand_dims", "cumsum": "cumulative_sum",
    "cumprod": "cumulative_prod", "unsafe_chunk": "chunk", "unsafe_split": "split",
    "unsafe_split_with_sizes": "split_with_sizes", "narrow_copy": "narrow",
}  # fmt: skip


def sizes(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    lone = len(shape) == 1 and isinstance(shape[0], (tuple, list))
    return tuple(shape[0] if lone else shape)


def transpose(self: Tensor, *axes: int) -> Tensor:
    """Two axes: swapped, as PyTorch does. None or all: permuted, as NumPy does."""
    axes = sizes(axes)
    if len(axes) == 2:
        return manipulate.swapaxes(self, *axes)
    return manipulate.permute_dims(self, axes or tuple(reversed(range(self.ndim))))


def expand(self: Tensor, *shape: Any) -> Tensor:
    """The tensor broadcast to the sizes; -1 keeps the size of an axis."""
    shape = sizes(shape)
    old_sizes = (None,) * (len(shape) - self.ndim) + self.shape
    new_sizes = tuple(o if s == -1 else s for s, o in zip(shape, old_sizes, strict=True))
    return manipulate.broadcast_to(self, new_sizes)


def array_namespace(self: Tensor, /, *, api_version: str | None = None) -> Any:
    """The module of the array functions."""
    followed = ("2021.12", "2022.12", "2023.12", namespace.__array_api_version__)
    if api_version not in (None, *followed):
        expected = f"a version of the Array API up to {followed[-1]}"
        raise OptionError("__array_namespace__", expected, repr(api_version), "Leave it at None.")
    return sys.modules["glasshouse"]


def new_tensor(
    self: Any,
    data: Any,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Any:
    """A tensor with a copy of the data, in the dtype of this one unless another is given."""
    dtype = self.dtype if dtype is None else dtype
    return creation.tensor(data, dtype, device=device, requires_grad=requires_grad)


def new_of_size(name: str, make: Any) -> Any:
    def new(self, *size, dtype=None, device=None, requires_grad: bool = False):
        dtype = self.dtype if dtype is None else dtype
        return make(sizes(size), dtype=dtype, device=device, requires_grad=requires_grad)

    return method(f"new_{name}", new, f"gh.{name}, in the dtype of this tensor unless given.")


def new_full(
    self: Any,
    size: Any,
    fill_value: Any,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Any:
    """gh.full, in the dtype of this tensor unless another is given."""
    dtype = self.dtype if dtype is None else dtype
    return creation.full(size, fill_value, dtype, device=device, requires_grad=requires_grad)


def stride(self: Any, dim: int | None = None) -> Any:
    """How many elements apart neighbours along each axis, or one, lie in row-major order. Values
    have no other layout here."""
    strides, step = [], 1
    for n in reversed(self.shape):
        strides.append(step)
        step *= max(n, 1)
    steps = tuple(reversed(strides))
    return steps if dim is None else steps[check_axis("stride", dim, self.ndim)]


def type_(self: Any, dtype: DTypeLike | None = None) -> Any:
    """The name of the dtype, or the tensor in another one."""
    return str(self.dtype) if dtype is None else cast(self, as_dtype(dtype))


def where(self: Any, condition: Any, other: Any) -> Any:
    """This tensor where the condition holds, else `other`."""
    return elementwise.where(condition, self, other)


def view(self: Tensor, *shape: int) -> Tensor:
    """gh.reshape; of a dtype instead of sizes, the same bytes read as that."""
    if len(shape) == 1 and not isinstance(shape[0], (int, tuple, list)):
        return view_bytes(self, as_dtype(shape[0]))
    return manipulate.reshape(self, sizes(shape))


def view_bytes(x: Any, dtype: Any) -> Any:
    if dtype.itemsize != x.dtype.itemsize:
        got = f"{dtype.name} for {x.dtype.name}"
        raise OptionError("view", "a dtype of as many bytes", got, "Use .to() to convert.")
    return bind(primitives["bitcast"], (x,), {"dtype": dtype})


def map_with(self: Any, *others_and_function: Any) -> Any:
    """This tensor, each element replaced by a Python function of it (and of those of other
    tensors). The tensors are read at once."""
    *others, function = others_and_function
    lists = [x.reshape(-1).tolist() for x in (self, *others)]
    mapped = [function(*values) for values in zip(*lists, strict=True)]
    return self.copy_(creation.asarray(mapped, self.dtype).reshape(self.shape))


def resize_(self: Any, *size: Any) -> Any:
    """This tensor in another shape: its elements in row-major order, then zeros."""
    shape = sizes(size)
    flat, count = self.reshape(-1), creation.zeros(shape, dtype=self.dtype).size
    missing = creation.zeros(max(count - flat.size, 0), dtype=self.dtype)
    return self.write("resize_", manipulate.concat([flat[:count], missing]).reshape(shape))


def fill_diagonal_(self: Any, fill_value: Any, wrap: bool = False) -> Any:
    """This tensor, with one number at all places whose indices are equal; with `wrap`, the diagonal
    of a tall matrix starts again below."""
    step = sum(stride(self))
    last = self.size if wrap or self.ndim != 2 else min(self.shape[1] ** 2, self.size)
    flat = index.setitem(self.reshape(-1), slice(0, last, step), fill_value)
    return self.write("fill_diagonal_", flat.reshape(self.shape))


def drawing_method(name: str, draw: Any, about: str) -> Any:
    """The method that fills a tensor with random numbers: draw(shape, …, dtype, generator)."""

    def write(self, *args, generator=None, **named):
        return self.copy_(draw(self, *args, generator=generator, **named).detach())

    return method(f"{name}_", write, f"This tensor, now with {about}.")


def floating(x: Any) -> dtypes.DType:
    return x.dtype if x.dtype.is_floating else dtypes.float32


def uniform_over(
    x: Any, low: float = 0.0, high: float = 1.0, generator: "Generator | None" = None, **bounds: Any
) -> Any:
    low, high = bounds.get("from", low), bounds.get("to", high)
    return random.uniform(x.shape, low, high, x.dtype, generator)


def whole(
    x: Any, low: int = 0, high: Any = None, generator: "Generator | None" = None, **bounds: Any
) -> Any:
    """Integers of the whole range of the dtype, or in [low, high), or in [0, low)."""
    low, high = bounds.get("from", low), bounds.get("to", high)
    if high is None and low == 0:
        digits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
        bits = digits.get(x.dtype.name) or x.dtype.itemsize * 8 - (x.dtype.kind == "int")
        high = 2**bits + x.dtype.is_floating if not x.dtype.is_bool else 2
        high = min(high, 2**63 - 1)
    elif high is None:
        low, high = 0, low
    return random.randint(low, high, x.shape, generator=generator)


def half_open(x: Any, generator: "Generator") -> Any:
    """Uniform numbers in (0, 1]."""
    return 1 - random.uniform(x.shape, dtype=dtypes.float64, generator=generator)


DRAWS: dict[str, Any] = {
    "normal": (
        lambda x, mean=0.0, std=1.0, generator=None: random.normal(
            x.shape, mean, std, x.dtype, generator
        ),
        "normal numbers",
    ),
    "uniform": (uniform_over, "numbers of the uniform distribution over [low, high)"),
    "random": (whole, "random integers"),
    "bernoulli": (
        lambda x, p=0.5, generator=None: random.bernoulli(p, x.shape, generator),
        "1 with probability p, else 0",
    ),
    "cauchy": (
        lambda x, median=0.0, sigma=1.0, generator=None: (
            median + elementwise.tan((half_open(x, generator) - 0.5) * namespace.pi) * sigma
        ),
        "numbers of the Cauchy distribution",
    ),
    "exponential": (
        lambda x, lambd=1.0, generator=None: random.exponential(
            x.shape, 1 / lambd, floating(x), generator
        ),
        "numbers of the exponential distribution",
    ),
    "geometric": (
        lambda x, p, generator=None: elementwise.ceil(
            elementwise.log(half_open(x, generator)) / elementwise.log1p(creation.asarray(-p))
        ).clip(1),
        "how many trials a first success takes",
    ),
    "log_normal": (
        lambda x, mean=1.0, std=2.0, generator=None: elementwise.exp(
            random.normal(x.shape, mean, std, floating(x), generator)
        ),
        "numbers whose logarithms are normal",
    ),
}
OWN: dict[str, Any] = {"new_tensor": new_tensor, "new_full": new_full, "stride": stride,
       "type": type_, "where": where, "view": view, "map_": map_with, "map2_": map_with,
       "apply_": map_with, "resize_": resize_, "fill_diagonal_": fill_diagonal_,
       "transpose": transpose, "expand": expand, "add": arithmetic.add, "eq": elementwise.equal,
       "igamma": special.gammainc, "igammac": special.gammaincc, "lgamma": special.gammaln,
       "mvlgamma": special.multigammaln, "sigmoid": special.expit,
       "equal": elementwise.array_equal, "new": new_of_size("empty", creation.empty),
       "__array_namespace__": array_namespace}  # fmt: skip
ONE_LINERS: dict[str, Any] = {
    "reshape": (
        lambda self, *shape: manipulate.reshape(self, sizes(shape)),
        "gh.reshape, with the sizes one by one or as a tuple; one may be -1.",
    ),
    "permute": (
        lambda self, *axes: manipulate.permute_dims(self, sizes(axes)),
        "gh.permute_dims, with the axes one by one or as a tuple.",
    ),
    "polygamma": (lambda self, n: special.polygamma(n, self), "The n-th derivative of digamma."),
    "repeat": (
        lambda self, *counts: manipulate.tile(self, sizes(counts)),
        "gh.tile, as PyTorch's repeat does.",
    ),
    "clone": (
        lambda self, *, memory_format=None: manipulate.copied(self),
        "A new handle on the same contents, on the tape if this tensor is.",
    ),
    "contiguous": (
        lambda self, memory_format=None: self,
        "This tensor: contents lie in row-major order.",
    ),
    "is_contiguous": (
        lambda self, memory_format=None: True,
        "True: contents lie in row-major order.",
    ),
    "astype": (
        lambda self, dtype, copy=True: cast(self, as_dtype(dtype)),
        "The tensor in another dtype.",
    ),
    "type_as": (lambda self, other: cast(self, other.dtype), "The tensor in the dtype of `other`."),
    "view_as": (lambda self, other: arrange.reshape_as(self, other), "As reshape_as."),
    "element_size": (lambda self: self.dtype.itemsize, "Bytes of one element."),
    "numel": (lambda self: self.spec.size, "The number of elements."),
    "nelement": (lambda self: self.spec.size, "The number of elements."),
    "dim": (lambda self: self.ndim, "The number of axes."),
    "ndimension": (lambda self: self.ndim, "The number of axes."),
    "storage_offset": (lambda self: 0, "0: values share no memory."),
    "resolve_conj": (lambda self: self, "This tensor: conjugates are computed."),
    "resolve_neg": (lambda self: self, "This tensor: negatives are computed."),
    "is_conj": (lambda self: False, "False: conjugates are computed."),
    "is_neg": (lambda self: False, "False: negatives are computed."),
    "is_inference": (lambda self: False, "False: any tensor may be recorded."),
    "detach_": (lambda self: self.write("detach_", self.detach()), "This tensor, off the tape."),
    "fill_": (lambda self, value: self.copy_(value), "This tensor, now with `value` everywhere."),
    "zero_": (lambda self: self.copy_(0), "This tensor, now with 0 everywhere."),
    "resize_as_": (
        lambda self, other: self.resize_(*other.shape),
        "This tensor in the shape of `other`, by resize_.",
    ),
    "set_": (
        lambda self, source: self.write("set_", source),
        "This tensor, now bound to `source`.",
    ),
}
PROPERTIES: dict[str, Any] = {
    "at": (
        UpdatePlaces,
        "New tensors, different in some places: `x.at[i].set(y)`, `add`, `max`.",
    ),
    "real": (elementwise.real, "The real part."),
    "imag": (elementwise.imag, "The imaginary part."),
    "H": (arrange.adjoint, "The conjugate transpose of a matrix."),
    "mH": (arrange.adjoint, "The conjugate transpose of matrices."),
    "is_cpu": (lambda self: self.device == "cpu", "Whether it lies in host memory."),
    "retains_grad": (
        lambda self: not self.is_leaf and self.has_hook(self.store_grad),
        "Whether backward stores the gradient of this result.",
    ),
    "grad_fn": (
        lambda self: None if self.is_leaf else self.tape_entry,
        "The entry of the tape that made this tensor, or None.",
    ),
}
CASTS = {
    "bool": dtypes.bool_,
    "byte": dtypes.uint8,
    "char": dtypes.int8,
    "short": dtypes.int16,
    "int": dtypes.int32,
    "long": dtypes.int64,
    "half": dtypes.float16,
    "bfloat16": dtypes.bfloat16,
    "float": dtypes.float32,
    "double": dtypes.float64,
    "cfloat": dtypes.complex64,
    "cdouble": dtypes.complex128,
}


IN_PLACE: dict[str, str] = {
    "+=": "add", "-=": "sub", "*=": "mul", "/=": "truediv", "//=": "floordiv", "%=": "mod",
    "**=": "pow", "&=": "and", "|=": "or", "^=": "xor", "<<=": "lshift", ">>=": "rshift",
    "@=": "matmul",
}  # fmt: skip


def casting(name: str, dtype: Any) -> Any:
    def function(self, memory_format=None):
        return cast(self, dtype)

    return method(name, function, f"The tensor in {dtype.name}.")


def in_place(symbol: str, compute: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda self, other: self.in_place(symbol, compute(self, other))


def functions_as_methods() -> dict[Any, Any]:
    """Every function that becomes a method as it is, by its name there."""
    methods = {
        name: getattr(module, name)
        for module, names in AS_METHODS.items()
        for name in names.split()
    }
    everywhere = {**vars(reduce), **vars(manipulate), **vars(elementwise), **methods}
    return methods | {name: everywhere[original] for name, original in SYNONYMS.items()} | OWN


def missing_attribute(self: Tensor, name: str) -> NoReturn:
    cls = type(self)
    raise AbsentNameError(f"{cls.__name__!r} object", name, lambda: dir(cls))


def complete(cls: Any) -> None:
    for symbol, name in IN_PLACE.items():
        setattr(cls, f"__i{name}__", in_place(symbol, getattr(operator, f"__{name}__")))
    functions = functions_as_methods()
    for name, (function, doc) in ONE_LINERS.items():
        functions[name] = method(name, function, doc)
    for name, dtype in CASTS.items():
        functions[name] = casting(name, dtype)
    for name, make in (
        ("zeros", creation.zeros),
        ("ones", creation.ones),
        ("empty", creation.empty),
    ):
        functions[f"new_{name}"] = new_of_size(name, make)
    for name, (draw, about) in DRAWS.items():
        functions[f"{name}_"] = drawing_method(name, draw, about)
    for name, function in functions.items():
        setattr(cls, name, viewing(name, function) if name in VIEWS else function)
    writing.add_writing_methods(functions)
    for name, (function, doc) in PROPERTIES.items():
        setattr(cls, name, property(function, doc=doc))
    cls.data = DATA
    cls.__abs__, cls.__getattr__ = elementwise.abs, missing_attribute


complete(Tensor)
