"""In-place methods, each built from a function: `x.name_(…)` binds x to the result of the function
`name`, in x's shape and dtype. A tape sees the function's calls, and tensors that were computed
from x before keep its old contents."""

from collections.abc import Callable
from typing import Any

from glasshouse.tensor.handle import Tensor

ELEMENTWISE = """
abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr arccos arccosh arcsin
arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh baddbmm bitwise_and
bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil clamp clamp_max
clamp_min clip conj_physical copysign cos cosh cumprod cumsum deg2rad digamma div divide eq erf
erfc erfinv exp exp2 expm1 fix float_power floor floor_divide fmod frac gcd ge greater
greater_equal gt heaviside hypot i0 igamma igammac index_add index_copy index_fill index_put
index_reduce lcm ldexp le lerp less less_equal lgamma log log10 log1p log2 logical_and
logical_not logical_or logical_xor logit lt masked_fill masked_scatter mul multiply mvlgamma
nan_to_num ne neg negative nextafter not_equal polygamma pow put rad2deg reciprocal remainder
renorm round rsqrt scatter scatter_add scatter_reduce sgn sigmoid sign sin sinc sinh sqrt square
sub subtract tan tanh tril triu true_divide trunc xlogy
""".split()
RESHAPING = "squeeze swapaxes swapdims t transpose unsqueeze".split()
AS_FUNCTIONS = """
abs acos acosh addmv arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh ceil
clamp clamp_max clamp_min clip conj_physical cos cosh deg2rad erf erfc exp exp2 expm1 fix floor
frac gcd i0 index_put lcm ldexp log log10 log1p log2 logit nan_to_num neg negative rad2deg
reciprocal round rsqrt sigmoid sin sinc sinh sqrt square tan tanh trunc xlogy
""".split()


def method(name: str, function: Any, doc: str) -> Any:
    """`function` as a method of Tensor of this name."""
    function.__name__, function.__qualname__, function.__doc__ = name, f"Tensor.{name}", doc
    return function


def in_place(name: str, compute: Callable[..., Any]) -> Any:
    """The method that binds a tensor to `compute` of it, in its own shape and dtype."""

    def write(self, *args, **named):
        return self.in_place(f"{name}_", compute(self, *args, **named))

    return method(f"{name}_", write, f"This tensor, now with what `{name}` gives of it.")


def rebinding(name: str, compute: Callable[..., Any]) -> Any:
    """The method that binds a tensor to `compute` of it, whatever its shape."""

    def write(self, *args, **named):
        return self.write(f"{name}_", compute(self, *args, **named))

    return method(f"{name}_", write, f"This tensor, now as `{name}` shows it.")


def as_function(name: str) -> Any:
    """The function of a tensor that calls its method of this name."""

    def function(x, *args, **named):
        return getattr(x, name)(*args, **named)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The tensor x, written in place: x.{name}(…).\n\nSource: PyTorch."
    return function


FUNCTIONS = {f"{name}_": as_function(f"{name}_") for name in AS_FUNCTIONS}


def add_writing_methods(functions: dict[Any, Any]) -> None:
    """Give Tensor a method `name_` for each function that has one."""
    for name in ELEMENTWISE:
        if f"{name}_" not in vars(Tensor):
            setattr(Tensor, f"{name}_", in_place(name, functions[name]))
    for name in RESHAPING:
        setattr(Tensor, f"{name}_", rebinding(name, functions[name]))
