"""The decorator of `optimize`: captured functions, methods and Modules, and a context."""

import copy
import copyreg
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator
from types import ModuleType
from typing import Any

from glasshouse.base.errors import PACKAGE, OptionError, type_name
from glasshouse.base.interrupts import Living
from glasshouse.capture.bytecode.native import native
from glasshouse.capture.check.verification import VerifiedFunction
from glasshouse.capture.fronts.glasshouse_front import GlasshouseFront
from glasshouse.capture.fronts.registry import is_foreign_module
from glasshouse.capture.sessions.config import config
from glasshouse.capture.sessions.dispatching import Capture
from glasshouse.capture.trace import tracer as tracing
from glasshouse.compile.building.toolchain import CompileError, UnknownInterpreter
from glasshouse.compile.programs.program import warn_once
from glasshouse.nn.module import Module

front: GlasshouseFront = GlasshouseFront()
tracing.CaptureTracer.default_front, tracing.CaptureTracer.default_config = front, config
dispatchers: Living = Living()


class UnfitCall:
    """Handles a call whose arguments do not fit a captured function of two. `optimize` may have
    been given a compiler, and this is its use as a decorator. Otherwise fn runs and raises."""

    def __init__(self, fn: types.FunctionType, capture: Capture) -> None:
        self.fn = fn
        self.capture = capture

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and may_be_captured(args[0]):
            old = self.capture
            capture = Capture(self.fn, old.front, old.nopython, old.dynamic)
            return OptimizeDecorator(capture)(args[0])
        return self.fn(*args, **kwargs)


def may_be_captured(x: Any) -> bool:
    """Whether something is a function, method or Module."""
    kinds = (types.FunctionType, types.MethodType, Module)
    return isinstance(x, kinds) or is_foreign_module(x)


class OptimizeDecorator(ContextDecorator):
    """The decorator and context that `optimize` returns."""

    verify = False  # whether calls also run as plain Python

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.before: list[Any] = []

    @property
    def memory_plans(self) -> list[Any]:
        """The plans made for a memory budget, one for each graph that trains."""
        return self.capture.memory_plans

    def __call__(self, fn: Any) -> Any:
        fn = innermost(fn)
        if available() is None:
            return fn
        captured = self.captured(fn)
        if not self.verify or captured is fn:
            return captured
        return VerifiedFunction(fn, captured, self.capture.front)

    def captured(self, fn: Any) -> Any:
        """The function, method or Module, captured."""
        if isinstance(fn, Module) or is_foreign_module(fn):
            self.capture.name = type(fn).__name__
            kind = OptimizedContainer if hasattr(type(fn), "__len__") else OptimizedModule
            return kind(fn, self.capture)
        if isinstance(fn, types.MethodType):
            return types.MethodType(self.dispatcher(fn.__func__), fn.__self__)
        what = "a function, method or Module"
        if isinstance(fn, type):
            raise OptionError("optimize", what, "a class", "Decorate a method.")
        if not isinstance(fn, types.FunctionType):
            if not callable(fn):
                raise OptionError("optimize", what, type_name(fn), "Pass one.")
            return types.MethodType(self.dispatcher(type(fn).__call__), fn)
        return self.dispatcher(fn)

    def dispatcher(self, fn: Any) -> Any:
        if not isinstance(fn, types.FunctionType):
            return fn
        dispatcher = self.capture.dispatcher(fn)
        dispatchers.add(dispatcher)
        return dispatcher

    def for_frame(self, fn: Callable[..., Any]) -> Any:
        """The dispatcher of a function that is called inside the context; None to let it run."""
        if not is_users(fn):
            return None
        dispatchers = fn.__dict__.setdefault("__gh_captures__", {})
        if self not in dispatchers:
            dispatchers[self] = self.dispatcher(fn)
        return dispatchers[self]

    def __enter__(self) -> "OptimizeDecorator":
        if available() is not None:
            self.before.append(native().set_hook(self.for_frame))
        return self

    def __exit__(self, *exc_info: Any) -> None:
        if self.before:
            native().set_hook(self.before.pop())


def innermost(fn: Any) -> Any:
    """The user's function inside dispatchers and wrapped modules."""
    while hasattr(type(fn), "entries") or isinstance(fn, OptimizedModule):
        fn = fn.fn if hasattr(type(fn), "entries") else fn.__dict__["_module"]
    return fn


def is_users(fn: Any) -> bool:
    """Whether a function is the user's: not ours, nor of the standard library, nor installed."""
    name = fn.__module__ or ""
    file = fn.__code__.co_filename
    marked = id(fn.__code__) in config.disabled or getattr(fn, "__gh_disabled__", False)
    if marked or name.startswith("glasshouse.") or file.startswith(OURS):
        return False
    installed = file.startswith(STANDARD) or "site-packages" in file
    return not installed and fn.__code__.co_name != "<module>"


OURS = (PACKAGE, "<graph module>", "<frozen")
STANDARD = inspect.__file__.rpartition("/")[0]


@functools.cache
def available() -> ModuleType | None:
    """The native extension; None, with a warning, if it cannot be compiled."""
    try:
        extension = native()
        copyreg.pickle(extension.Dispatcher, lambda d: (recapture, (d.fn, *options(d.capture))))
        return extension
    except (CompileError, OSError, ImportError) as error:
        text = "capture needs a C compiler and Python's headers"
        if isinstance(error, UnknownInterpreter):
            text = "functions run uncaptured"
        warn_once(error, text)
        return None


class OptimizedModule:
    """A Module whose calls are captured; all else goes to the module."""

    def __init__(self, module: Module, capture: Capture) -> None:
        dispatcher = capture.dispatcher(call_module)
        dispatchers.add(dispatcher)
        self.__dict__.update(_module=module, _dispatcher=dispatcher, capture=capture)
        self.__dict__["memory_plans"] = capture.memory_plans

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._dispatcher(self._module, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if "_module" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__dict__["_module"], name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return recapture, (self._module, *options(self.capture))

    def __copy__(self) -> Any:
        return recapture(copy.copy(self._module), *options(self.capture))

    def __deepcopy__(self, memo: dict[Any, Any]) -> "OptimizedContainer":
        return recapture(copy.deepcopy(self._module, memo), *options(self.capture))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._module, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._module, name)

    def __dir__(self) -> list[str]:
        return dir(self._module)

    def __repr__(self) -> str:
        return f"optimized {self._module!r}"

    @property  # type: ignore[misc]  # for isinstance
    def __class__(self) -> type[Any]:
        return type(self.__dict__["_module"]) if "_module" in self.__dict__ else OptimizedModule


class OptimizedContainer(OptimizedModule):
    """A captured Module with items, such as a Sequential."""

    def __len__(self) -> int:
        return len(self._module)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._module)

    def __contains__(self, item: Any) -> bool:
        return item in self._module

    def __getitem__(self, key: Any) -> Any:
        return self._module[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._module[key] = value


def options(capture: Capture) -> tuple[Any, ...]:
    """The options of a Capture, as `recapture` takes them."""
    return capture.compiler, capture.nopython, capture.dynamic


def recapture(
    fn: Any, compiler: Callable[..., Any], nopython: bool, dynamic: bool
) -> "OptimizedContainer":
    """A copy of something captured, with the same options and without entries."""
    return OptimizeDecorator(Capture(compiler, front, nopython, dynamic))(fn)


def call_module(module: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call a Module; this function is captured in its place."""
    return module(*args, **kwargs)
