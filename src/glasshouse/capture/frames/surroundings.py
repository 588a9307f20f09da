"""The context that a frame runs in, which Python enters again when it resumes the frame."""

import types
from typing import Any

from glasshouse.capture.frames.frame import CaptureFrame

GETTERS = ("__getattr__", "__getattribute__")


def attribute_request(frame: CaptureFrame) -> Any:
    """The object and the name in a call of the user's `__getattr__`; None for other frames."""
    if frame.root.co_name not in GETTERS:
        return None
    pair = frame.locals[:2]
    bound = len(pair) == 2 and not any(x is None or type(x.value) is types.CellType for x in pair)
    return pair if bound else None


def tell_attribute(error: Any, obj: Any, name: str) -> bool:
    """Set object and name of an error of a `__getattr__`, unless the error has them."""
    untold = isinstance(error, AttributeError) and error.name is None and error.obj is None
    if untold:
        error.obj, error.name = obj, name
    return untold


class AttributeContext:
    """The context for the rest of a `__getattr__`: its errors get object and name, as in Python."""

    def __init__(self, obj: Any, name: str) -> None:
        self.attribute: tuple[Any, str] = obj, name

    def __enter__(self) -> "AttributeContext":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is not None:
            tell_attribute(error, *self.attribute)


def surroundings(frame: CaptureFrame) -> tuple[Any, ...] | None:
    """The context (function, arguments) for the rest of a frame."""
    if frame.scope is not None:
        _, context, var = frame.scope
        return context, [var]
    attribute = attribute_request(frame)
    return None if attribute is None else (AttributeContext, attribute)
