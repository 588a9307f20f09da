"""Private functions and modules that captured programs call, known by name."""

import inspect
import types
from collections.abc import Callable
from typing import Any

from glasshouse.torch.patches.names import is_module, private, without_missing

KNOWN = "know a function of programs"


def functions_at(*paths: str) -> tuple[Any, ...]:
    """The functions at these paths that exist."""
    return without_missing(private(path, "2.6", KNOWN) for path in paths)


ALWAYS_THE_SAME = functions_at(
    "torch._C:_get_privateuse1_backend_name",
    "torch._C:_has_torch_function",
    "torch._C:_has_torch_function_unary",
    "torch._C:_has_torch_function_variadic",
)
CHECKS = functions_at(
    "torch:_check",
    "torch:_check_index",
    "torch:_check_value",
    "torch:_check_type",
    "torch:_check_not_implemented",
)
NEVER_TRUE = functions_at("torch._jit_internal:is_scripting", "torch._utils:is_compiling")
WITHOUT_RESULT = functions_at("torch._C:_log_api_usage_once")


def modules(names: str) -> tuple[str, ...]:
    """The full names of those private modules that exist."""
    paths = [f"torch.{name}" for name in names.split()]
    return tuple(path for path in paths if is_module(path, "2.6", "know functions by their module"))


NATIVE_MODULE = "torch._C"
NATIVE_MODULES = modules("_C _C._nn _C._linalg _C._fft _C._special")
TENSOR_MODULES = modules("_tensor")
LEFT_TO_PYTHON = modules(
    "_C _dynamo _export _functorch _guards _higher_order_ops _inductor _library _logging _prims "
    "_refs _subclasses _tensor_str _vmap_internals"
)
TRANSFORMS = modules("_functorch")
FUNCTIONAL_CALL = modules("_functorch.functional_call")
OPERATOR_MODULES = tuple(f"{name}." for name in modules("_library"))
LINALG = dir(private("torch._C._linalg", "2.6", "know which functions raise for some values"))

TAGGING = "install_generation_tagging_init.<locals>.patched_init"
DISABLING = ("_disable_dynamo.<locals>.inner", "DisableContext.__call__.<locals>._fn")
FOR_DYNAMO = set(
    "graph_break mark_static_address mark_static mark_dynamic maybe_mark_dynamic".split()
)


def undisabled(fn: Any) -> Callable[..., Any] | None:
    """The function inside a wrapper that disables TorchDynamo, or that tags new modules; None for
    other functions."""
    if not isinstance(fn, types.FunctionType):
        return None
    if fn.__code__.co_qualname == TAGGING:
        return inspect.getclosurevars(fn).nonlocals["init"]
    if fn.__code__.co_qualname not in DISABLING:
        return None
    return getattr(fn, "_torchdynamo_orig_callable", None) or getattr(fn, "__wrapped__", None)


def is_for_dynamo(fn: Any) -> bool:
    """Whether a function only gives TorchDynamo a hint."""
    module = getattr(fn, "__module__", "")
    return module == "torch._dynamo.decorators" and fn.__name__ in FOR_DYNAMO
