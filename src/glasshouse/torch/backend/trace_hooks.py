"""Hooks active while TorchDynamo traces for our backend: they postpone the collection of cyclic
garbage, skip unneeded work (`lean_trace.py`) and capture recurrent layers.

TorchDynamo calls back when it starts and ends, but does not say for which backend. We read the
backend from a local variable of its frame. Traces for other backends are unchanged."""

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

from glasshouse.compile.planning.plan import no_collection
from glasshouse.torch.aten.recurrent_operators import recurrent_layers_captured
from glasshouse.torch.backend.lean_trace import lean
from glasshouse.torch.patches.dynamo import backend_within, callbacks
from glasshouse.torch.patches.names import are_found


@contextlib.contextmanager
def garbage_waits() -> Iterator[None]:
    """Inside, no garbage is collected. At the end, the two younger generations are collected once,
    and the survivors count as old: Python would look through them at its next allocation."""
    with no_collection():
        yield
        gc.collect(1)
        heap.make_old()


class Heap:
    """The objects that the garbage collector looks through."""

    def __init__(self) -> None:
        self.has_frozen: bool = False  # seen once: counting frozen objects goes through all of them

    def make_old(self) -> None:
        """Count all live objects as old. After so many new objects Python would look through all
        others at its next allocation, which takes 0.3 s and finds next to nothing."""
        self.has_frozen = self.has_frozen or gc.get_freeze_count() > 0
        if not self.has_frozen:  # objects that the user has frozen stay so
            gc.freeze()
            gc.unfreeze()


heap: Heap = Heap()


CONTEXTS = (garbage_waits, lean, recurrent_layers_captured)
entered: "contextlib.ExitStack[bool | None]" = contextlib.ExitStack()  # what ends with the trace


def traced_for() -> Any:
    """The backend that the graph traced right now is for, found among the callers; else None."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "_compile":
        frame = frame.f_back
    compiler = frame and frame.f_locals.get("compiler_fn")
    backend = callable(compiler) and backend_within(compiler)
    return getattr(backend, "compiler_fn", backend) or None  # torch.compile holds it with options


def is_traced_for_us() -> bool:
    """Whether the graph traced right now is for a backend of ours."""
    return getattr(traced_for(), "traced_otherwise", False)


def trace_starts(*_args: Any) -> None:
    """Enter the contexts, if the trace that starts is for a backend of ours."""
    if is_traced_for_us():
        for context in CONTEXTS:
            entered.enter_context(context())


def trace_ends(*_args: Any) -> None:
    """Leave the contexts."""
    entered.close()


def register() -> None:
    """Have TorchDynamo call back, once."""
    if trace_starts not in callbacks.start_callbacks:
        callbacks.register_start_callback(trace_starts)
        callbacks.register_end_callback(trace_ends)


def remain() -> None:
    """Keep our callbacks through `torch._dynamo.reset`, which clears all others."""
    clear = callbacks.clear

    def clear_others() -> None:
        try:
            clear()
        finally:
            register()

    if "clear" not in vars(callbacks):
        callbacks.clear = clear_others


def traced_otherwise(backend: Any) -> Callable[..., Any]:
    """A decorator of a backend: our hooks are active while TorchDynamo traces for it."""
    backend.traced_otherwise = True
    if are_found(callbacks, backend_within):  # else it is traced for us as for others
        register()
        remain()
    return backend
