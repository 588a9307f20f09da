"""Functions that read the frame of their caller, for frames of the interpreter."""

import types
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from glasshouse.capture.frames.frame import plain_value
from glasshouse.capture.rules.class_attributes import super_of_frame
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Var

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


def namespace(tracer: "CaptureTracer") -> Var:
    """The locals of the running frame."""
    frame, names = tracer.frames[-1], {}
    for name, var in zip(frame.code.slots, frame.locals, strict=True):
        cells = (*frame.root.co_cellvars, *frame.root.co_freevars)
        if var is not None and isinstance(var.value, types.CellType) and name in cells:
            with suppress(ValueError):
                names[name] = var.value.cell_contents
        elif var is not None:
            names[name] = plain_value(var)
    return Var(names)


FRAME_READERS: dict[Any, Callable[..., Any]] = {
    super: lambda tracer: super_of_frame(tracer),
    globals: lambda tracer: Var(tracer.frames[-1].globals),
    locals: namespace,
    vars: namespace,
    dir: lambda tracer: Var(sorted(namespace(tracer).value)),
}
