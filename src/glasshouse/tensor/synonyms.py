"""PyTorch's names for functions with other names here, and methods of tensors as functions."""

from typing import Any

from glasshouse.base.dtype import default_float, promote
from glasshouse.tensor import printing, special, writing
from glasshouse.tensor.methods import Tensor
from glasshouse.tensor.standard import arithmetic, elementwise, manipulate
from glasshouse.tensor.torch_names import joining, meanings, scans

FUNCTIONS = {
    elementwise: {
        "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin",
        "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh",
        "clamp": "clip", "conj_physical": "conj", "eq": "equal", "fix": "trunc",
        "ge": "greater_equal", "gt": "greater", "le": "less_equal", "lt": "less",
        "ne": "not_equal", "neg": "negative", "true_divide": "divide",
    },
    manipulate: {
        "broadcast_tensors": "broadcast_arrays", "cat": "concat", "concatenate": "concat",
        "movedim": "moveaxis", "permute": "permute_dims", "permute_copy": "permute_dims",
        "swapdims": "swapaxes", "transpose_copy": "transpose", "unbind": "unstack",
        "unbind_copy": "unstack", "unsafe_chunk": "chunk", "unsqueeze": "expand_dims",
        "unsqueeze_copy": "expand_dims",
    },
    meanings: {"squeeze_copy": "squeeze", "split_copy": "split", "unsafe_split": "split"},
    joining: {
        "narrow_copy": "narrow", "row_stack": "vstack", "select_copy": "select",
        "as_strided_copy": "as_strided", "split_with_sizes_copy": "split_with_sizes",
        "unsafe_split_with_sizes": "split_with_sizes", "unfold_copy": "unfold",
    },
    special: {
        "digamma": "digamma", "erfc": "erfc", "erfinv": "erfinv", "i0": "i0",
        "igamma": "gammainc", "igammac": "gammaincc", "lgamma": "gammaln", "logit": "logit",
        "mvlgamma": "multigammaln", "polygamma": "polygamma", "sigmoid": "expit", "sinc": "sinc",
    },
    arithmetic: {"view_as_complex_copy": "view_as_complex", "view_as_real_copy": "view_as_real"},
    scans: {"trapz": "trapezoid"},
    printing: {"set_printoptions": "set_print_options"},
}  # fmt: skip
Size = tuple  # of a shape
METHODS = """
clone detach detach_ is_conj is_inference is_neg resize_as_ resolve_conj resolve_neg
zero_ fill_
""".split()


def fill(x: Any, value: Any) -> Any:
    """A tensor with one number everywhere, in shape and dtype of x.

    Source: PyTorch.
    """
    return x.clone().detach().fill_(value)


def get_default_dtype() -> Any:
    """The dtype of Python floats: float32, always.

    Source: PyTorch.
    """
    return default_float


def promote_types(type1: Any, type2: Any) -> Any:
    """The smallest dtype that both convert to.

    Source: PyTorch.
    """
    return promote(type1, type2)


def typename(x: Any) -> str:
    """The name of the type of x, with its module; of a tensor, with its dtype.

    Source: PyTorch.
    """
    if isinstance(x, Tensor):
        return x.type()
    kind = x if isinstance(x, type) else type(x)
    return f"{kind.__module__}.{kind.__qualname__}"


def to_dlpack(x: Any) -> Any:
    """The contents of x as a DLPack capsule.

    Source: DLPack.
    """
    return x.__dlpack__()


def own_functions() -> dict[Any, Any]:
    """Every further name, and its function."""
    functions = {
        name: getattr(module, original)
        for module, names in FUNCTIONS.items()
        for name, original in names.items()
    }
    copies = {"expand_copy": Tensor.expand, "view_copy": Tensor.view}
    methods = {name: getattr(Tensor, name) for name in METHODS if hasattr(Tensor, name)}
    return functions | copies | methods | writing.FUNCTIONS


globals().update(own_functions())
__all__ = ["Size", "fill", "get_default_dtype", "promote_types", "to_dlpack", "typename",
           *own_functions()]  # fmt: skip
