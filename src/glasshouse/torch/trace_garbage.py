"""Cyclic garbage waits while TorchDynamo traces a program for a backend of ours.

TorchDynamo calls back when it starts and ends, but does not say for which backend: that stands in
a variable of its own. Programs for other backends are traced as they would be without us."""

import contextlib
import sys

from glasshouse.compile.plan import no_collection

try:
    from torch._dynamo.callback import callback_handler
    from torch._dynamo.eval_frame import innermost_backend
except ImportError:  # another PyTorch: garbage is collected
    callback_handler = None

waiting = contextlib.ExitStack()  # what ends with the trace


def traced_for():
    """The backend that the graph traced right now is for, found among the callers; else None."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "_compile":
        frame = frame.f_back
    compiler = frame and frame.f_locals.get("compiler_fn")
    backend = callable(compiler) and innermost_backend(compiler)
    return getattr(backend, "compiler_fn", backend) or None  # torch.compile holds it with options


def start_waiting(*_told) -> None:
    """Let garbage wait, if the trace that starts is for a backend of ours."""
    if getattr(traced_for(), "garbage_waits", False):
        waiting.enter_context(no_collection())


def stop_waiting(*_told) -> None:
    """Collect garbage again."""
    waiting.close()


def let_garbage_wait(backend):
    """Garbage waits from now on while programs are traced for this backend, which is returned.

    `torch._dynamo.reset` forgets it.
    """
    backend.garbage_waits = True
    if callback_handler is not None and start_waiting not in callback_handler.start_callbacks:
        callback_handler.register_start_callback(start_waiting)
        callback_handler.register_end_callback(stop_waiting)
    return backend
