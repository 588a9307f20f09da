"""`gh.compile(model)` is a call, as in PyTorch, and `import glasshouse.compile` the package."""

from collections.abc import Callable
from typing import Any

from glasshouse.base.callable_module import make_callable
from glasshouse.base.errors import check_known
from glasshouse.capture.api import optimize

DEFAULT = (None, "inductor", "glasshouse")  # names of what compiles where nothing else is asked for
MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = None,
    mode: str | None = None,
    options: Any = None,
    disable: bool = False,
) -> Any:
    """`gh.optimize` with PyTorch's names of arguments; `mode` and `options`, which trade time of
    compilation for speed there, change nothing here.

    Raises: OptionError for an unknown backend or mode.
    Source: PyTorch.
    """
    check_known("compile", "a mode", mode, MODES)
    compiler = "program" if backend in DEFAULT else backend
    decorate = optimize(compiler, nopython=fullgraph, dynamic=bool(dynamic))
    if model is None:
        return (lambda model: model) if disable else decorate
    return model if disable else decorate(model)


make_callable("glasshouse.compile", compile)
