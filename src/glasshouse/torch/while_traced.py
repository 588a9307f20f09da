"""What is otherwise while TorchDynamo traces a program for a backend of ours: cyclic garbage waits,
less is done in vain (`lean_trace.py`), and recurrent layers are captured (`recurrent.py`).

TorchDynamo calls back when it starts and ends, but does not say for which backend: that stands in
a variable of its own. Programs for other backends are traced as they would be without us."""

import contextlib
import gc
import sys

from glasshouse.compile.plan import no_collection
from glasshouse.torch.recurrent import recurrent_layers_captured

try:
    from torch._dynamo.callback import callback_handler
    from torch._dynamo.eval_frame import innermost_backend
except ImportError:  # another PyTorch: programs are traced for us as for others
    callback_handler = None
try:
    from glasshouse.torch.lean_trace import lean
except ImportError:  # another PyTorch
    lean = contextlib.nullcontext


@contextlib.contextmanager
def garbage_waits():
    """Inside, no garbage is collected. TorchDynamo collects that of the two younger generations
    when it has ended, and Python does at its next allocation: what survives is looked at once."""
    with no_collection():
        yield
        gc.collect(1)
        survivors_are_old()


def survivors_are_old() -> None:
    """All that is alive counts as long-lived. So many new objects would have Python look through
    all others at its next allocation, which finds next to nothing and takes 0.3 s."""
    if not gc.get_freeze_count():  # what the user has frozen stays so
        gc.freeze()
        gc.unfreeze()


CONTEXTS = (garbage_waits, lean, recurrent_layers_captured)
entered = contextlib.ExitStack()  # what ends with the trace


def traced_for():
    """The backend that the graph traced right now is for, found among the callers; else None."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "_compile":
        frame = frame.f_back
    compiler = frame and frame.f_locals.get("compiler_fn")
    backend = callable(compiler) and innermost_backend(compiler)
    return getattr(backend, "compiler_fn", backend) or None  # torch.compile holds it with options


def is_traced_for_us() -> bool:
    """Whether the graph traced right now is for a backend of ours."""
    return getattr(traced_for(), "traced_otherwise", False)


def trace_starts(*_told) -> None:
    """Enter the contexts, if the trace that starts is for a backend of ours."""
    if is_traced_for_us():
        for context in CONTEXTS:
            entered.enter_context(context())


def trace_ends(*_told) -> None:
    """All is as it was."""
    entered.close()


def register() -> None:
    """Have TorchDynamo call back, once."""
    if trace_starts not in callback_handler.start_callbacks:
        callback_handler.register_start_callback(trace_starts)
        callback_handler.register_end_callback(trace_ends)


def remain() -> None:
    """Have `torch._dynamo.reset`, which clears all callbacks, leave ours."""
    clear = callback_handler.clear

    def clear_others() -> None:
        try:
            clear()
        finally:
            register()

    if "clear" not in vars(callback_handler):
        callback_handler.clear = clear_others


def traced_otherwise(backend):
    """From now on all that is here holds while programs are traced for this backend, which is
    returned."""
    backend.traced_otherwise = True
    if callback_handler is not None:
        register()
        remain()
    return backend
