"""Backends: who computes a primitive. The protocol, the current one, and loading by name."""

import contextvars
import importlib
import pkgutil
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from glasshouse.base import (
    BackendError,
    DeviceError,
    DTypeError,
    OptionError,
    ShapeError,
    Spec,
    suggest,
    type_name,
    user_line,
)
from glasshouse.base.flags import flags
from glasshouse.base.upper_storeys import BACKENDS
from glasshouse.dispatch.bind import state
from glasshouse.dispatch.call import Call
from glasshouse.dispatch.fallback import Fallback, FallbackCounter
from glasshouse.dispatch.hooks import hooks
from glasshouse.dispatch.primitive import find, primitives


class Quiet(threading.local):
    """A context per thread in which NumPy returns infinities and NaN without a warning.
    Entering it costs a third as much as `np.errstate`, and leaves the user's setting alone."""

    def __init__(self) -> None:
        context = contextvars.Context()
        context.run(np.seterr, all="ignore")
        self.run: Callable[..., Any] = context.run


quiet: Quiet = Quiet()


class Kernels(dict[Any, Any]):
    """Primitive name → callable on payloads; an entry is looked up when first used."""

    def __init__(self, backend: "TensorBackend") -> None:
        super().__init__()
        self.backend = backend

    def __missing__(self, name: str) -> Callable[..., Any]:
        find(name)
        self[name] = self.backend.kernel(name)
        return self[name]


class TensorBackend:
    """Computes primitives on its own kind of payload.
    A subclass gives `to_numpy`, `from_numpy` and a method per primitive, named as its card and
    called with payloads and the card's attrs. A card without a method runs on its NumPy reference;
    `fallbacks` counts those runs and lists them, and `strict` makes one an error."""

    device: str
    kernels: Kernels

    name = "abstract"
    replays: dict[Any, Any] | None = None  # where calls are recorded: how they are replayed
    computes = True  # False: only plans, so that no value can be read and nothing falls back

    def __init__(self, device: str = "cpu") -> None:
        self.device, self.kernels = device, Kernels(self)
        self.fallbacks: FallbackCounter = FallbackCounter()
        self.strict: Any = flags.strict

    def run(self, call: "Call", data: list[Spec | np.ndarray], attrs: dict[Any, Any]) -> Any:
        """The payload (or tuple of payloads) of a call, whose result has the spec `call.out`. The
        `attrs` are those of the call, with the value of a `constant` or `full`."""
        return self.kernels[call.name](*data, **attrs)

    def evaluate(self, payloads: Any = ()) -> None:
        """Have the payloads, and all that was put off so far, computed; here at once."""

    def exported(self, data: Any) -> Any:
        """The payload, which another library may read through DLPack if it has `__dlpack__`."""
        return data

    def to_numpy(self, data: Any) -> Any:
        """The payload as a NumPy array, without copying where possible."""
        raise NotImplementedError

    def from_numpy(self, array: Any) -> Any:
        """The payload that holds `array`, without copying where possible."""
        raise NotImplementedError

    def sync(self) -> None:
        """Return when all work handed over so far is done."""

    def spec_of(self, data: Any) -> Spec:
        """Shape and dtype of a payload."""
        raise NotImplementedError

    def kernel(self, name: str) -> Callable[..., Any]:
        """The callable for a card: the method of its name, or else the fallback."""
        return getattr(self, name, None) or self.fallback(name)

    def fallback(self, name: str) -> Callable[..., Any]:
        """A kernel that computes the card's NumPy reference on the host."""
        card = primitives[name]

        def run_reference(*data, **attrs):
            arrays = list(map(self.to_numpy, data))
            dtypes = ", ".join(dict.fromkeys(str(array.dtype) for array in arrays))
            fallback = Fallback(name, f"no kernel for {dtypes or 'it'}", user_line())
            self.fall_back(fallback, f"Add a method {name} to the backend")
            out = quiet.run(card.ref, *arrays, **attrs)
            if card.num_outputs == 1:
                return self.from_numpy(out)
            return tuple(map(self.from_numpy, out))

        return run_reference

    def fall_back(self, fallback: Fallback, fix: str) -> None:
        """Note that a card's reference is about to run for want of a kernel. All fallbacks of all
        backends pass here: they are counted, printed the first time if GH_DEBUG is set, refused if
        strict is.

        Raises: BackendError, with `fix` ("Add a kernel"), if `strict` is set
        """
        if self.strict or flags.strict:
            self.refuse(fallback, fix)
        if self.fallbacks.count(fallback) and flags.debug:
            print(f"[gh] {self.name} runs the NumPy reference of {fallback}")

    def refuse(self, fallback: Fallback, fix: str) -> Any:
        """Raises: BackendError, in any case"""
        at = f", called at {fallback.line}" if fallback.line else ""
        expected = f"{fallback.expected}{at}"
        got = f"none, and strict is set: {fallback.reason}"
        raise BackendError(self.name, expected, got, f"{fix}, or unset strict (GH_STRICT).")

    def replace(self, name: str, kernel: Any) -> "Replacement":
        """Make `kernel(*payloads, **attrs)` compute the primitive `name` from now on.
        Returns a handle: `undo()` puts the old kernel back, as does leaving it as a context.
        A result of another shape or dtype than the primitive's raises ShapeError or DTypeError.

        Raises: OptionError for a name that is no card, BackendError if kernel is not callable.
        """
        checked = self.checked(name, kernel, self.spec_of)
        handle = Replacement(self.kernels, name, self.kernels[name])
        self.kernels[name] = checked
        return handle

    def checked(
        self, name: str, kernel: Callable[..., Any], spec_of: Callable[..., Any]
    ) -> "ReplacingKernel":
        """A user's function for a primitive, whose results are checked."""
        primitive = find(name)
        if not callable(kernel):
            raise BackendError("replace", f"a function for {name!r}", repr(kernel), "Pass one.")
        return ReplacingKernel(primitive, kernel, spec_of)

    def __repr__(self) -> str:
        return f"<backend {self.name} on {self.device}>"


@dataclass(frozen=True)
class ReplacingKernel:
    """A user's function in the place of a primitive's kernel: each result is checked."""

    primitive: Any
    function: Callable[..., Any]
    spec_of: Callable[..., Any]

    def __call__(self, *data: Any, **attrs: Any) -> Any:
        out = self.function(*data, **attrs)
        expected = self.primitive.infer(*map(self.spec_of, data), **attrs)
        if self.primitive.num_outputs == 1:
            self.check(expected, out)
        elif not isinstance(out, tuple) or len(out) != len(expected):
            self.refuse(ShapeError, f"a tuple of {len(expected)} results", type_name(out))
        else:
            for spec, part in zip(expected, out, strict=True):
                self.check(spec, part)
        return out

    def check(self, expected: Spec, out: int | np.ndarray) -> None:
        """Raises: ShapeError, DTypeError"""
        try:
            result_spec = self.spec_of(out)
        except (AttributeError, TypeError):
            self.refuse(DTypeError, f"an array {expected}", type_name(out))
        if result_spec.shape != expected.shape:
            self.refuse(ShapeError, f"a result of shape {expected.shape}", result_spec.shape)
        if result_spec.dtype != expected.dtype:
            self.refuse(DTypeError, f"a result of {expected.dtype.name}", result_spec.dtype.name)

    def refuse(self, kind: type[ShapeError | DTypeError], expected: str, got: Any) -> NoReturn:
        where = f"the function that replaces {self.primitive.name}"
        raise kind(where, expected, got, "Return what the card's infer says.")


class Replacement(AbstractContextManager[Any]):
    """Undoes a `replace`, once."""

    def __init__(self, kernels: dict[str, Any], name: str, before: Any) -> None:
        self.kernels = kernels
        self.name = name
        self.before = before

    def undo(self) -> None:
        """Put the former kernel back."""
        self.kernels.pop(self.name, None)
        if self.before is not None:
            self.kernels[self.name] = self.before

    def __exit__(self, *exc_info: object) -> None:
        self.undo()


loaded: dict[str, TensorBackend] = {}
load_lock: "threading.Lock" = threading.Lock()


class Default:
    """The backend of threads that chose none."""

    backend: TensorBackend | None = None


def builtin_names() -> list[str]:
    package = importlib.import_module(BACKENDS)
    return [module.name for module in pkgutil.iter_modules(package.__path__)]


def builtin_class(engine: str) -> type[TensorBackend]:
    """The class under backends/ whose `name` is that of its module.

    Raises: BackendError if the module has none.
    """
    module = importlib.import_module(f"{BACKENDS}.{engine}")
    for member in vars(module).values():
        is_backend = isinstance(member, type) and issubclass(member, TensorBackend)
        if is_backend and vars(member).get("name") == engine:
            return member
    expected = f"a subclass of TensorBackend with name = {engine!r} in {module.__name__}"
    fix = "Give the class that name, and import it in the module."
    raise BackendError(f"backend {engine!r}", expected, "none", fix)


def plugin_names() -> dict[str, Any]:
    metadata = importlib.import_module("importlib.metadata")  # 20 ms: only when it is needed
    return {p.name: p for p in metadata.entry_points(group=BACKENDS)}


def available() -> list[str]:
    """Names that `use` takes: the modules under backends/ and installed plug-ins.

    Example:
        >>> "numpy" in available()
        True
    """
    return sorted({*builtin_names(), *plugin_names()})


def load(name: str) -> TensorBackend:
    """The backend called `name` (`engine` or `engine:device`), made at its first use.

    Raises: OptionError for an unknown name, BackendError if it cannot be loaded.
    """
    with load_lock:
        if name in loaded:
            return loaded[name]
        engine, _, device = name.partition(":")
        try:
            if engine in builtin_names():
                cls = builtin_class(engine)
            elif engine in (plugins := plugin_names()):
                cls = plugins[engine].load()
            else:
                fix = suggest(engine, available())
                raise OptionError("backend", "a known name", repr(name), fix)
            loaded[name] = cls(device) if device else cls()
        except ImportError as error:
            expected = "its library to be installed"
            fix = f"Install it, e.g. pip install 'glasshouse[{engine}]'."
            raise BackendError(f"backend {name!r}", expected, error, fix) from error
        return loaded[name]


def current() -> TensorBackend:
    """The backend that computes in this thread."""
    return state.backend or default_backend()


def default_backend() -> TensorBackend:
    if Default.backend is None:
        Default.backend = load(flags.backend)
    return Default.backend


hooks.default_backend = default_backend


CUDA_DEVICES = Path(
    "/proc/driver/nvidia/gpus"
)  # one folder for each, as NVIDIA's driver shows them


def check_device(where: str, device: str | None) -> None:
    """Refuse a device that the current backend does not compute on, and say which ones there are.

    Raises: DeviceError.
    """
    here = current()
    if device is None or device in (here.device, f"{here.device}:0"):
        return
    expected = f"{here.device!r}, the device of backend {here.name}"
    fix = f"Leave it out, or write device={here.device!r}."
    if device.startswith("cuda"):
        count = len(list(CUDA_DEVICES.iterdir())) if CUDA_DEVICES.is_dir() else 0
        if count:
            expected += f" (CUDA devices here: {count}, which backend torch reaches)"
            fix = f"Call gh.backends.use('torch:{device}') first, with PyTorch installed."
        else:
            expected += " (this machine has no CUDA device)"
    raise DeviceError(where, expected, repr(str(device)), fix)


class use_backend(AbstractContextManager[Any]):
    """Make `backend` (a name or an instance) the one that computes; as a context, until its end.
    Tensors of another backend move over when they are next used. The choice holds for this thread
    and those that made none.

    Raises: OptionError for an unknown name, BackendError.
    Example:
        >>> with use_backend("numpy") as backend:
        ...     backend.name
        'numpy'
    """

    def __init__(self, backend: Any) -> None:
        if not isinstance(backend, (str, TensorBackend)):
            fix = f"Names: {', '.join(available())}."
            raise BackendError("use", "a backend or its name", repr(backend), fix)
        self.backend: TensorBackend = load(backend) if isinstance(backend, str) else backend
        self.before: tuple[Any, TensorBackend | None] = state.backend, Default.backend
        state.backend = Default.backend = self.backend

    def __enter__(self) -> TensorBackend:
        return self.backend

    def __exit__(self, *exc_info: object) -> None:
        state.backend, Default.backend = self.before
