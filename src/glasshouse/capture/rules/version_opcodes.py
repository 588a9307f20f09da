"""Operations that only some versions of CPython have: a table of rules for each version, which take
the tracer, the frame and the instruction.

Differences in the encoding of shared operations are in `bytecode/versions.py`."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from glasshouse.capture.bytecode.versions import COMMON_CONSTANTS, SPECIAL_METHODS, newest
from glasshouse.capture.values.var import NULL, Break, Var

if TYPE_CHECKING:
    from glasshouse.capture.bytecode.instructions import Instruction
    from glasshouse.capture.trace.tracer import CaptureTracer


with suppress(ImportError):  # of Python 3.14
    from string.templatelib import Interpolation, Template

IS_ASYNCHRONOUS = (
    " but it supports the asynchronous context manager protocol. Did you mean to use 'async with'?"
)
CONVERSIONS = (None, "s", "r", "a")


def qualified_name(cls: type[Any]) -> str:
    """A type's name as in Python's newer messages."""
    bare = cls.__module__ in ("builtins", "__main__")
    return cls.__qualname__ if bare else f"{cls.__module__}.{cls.__qualname__}"


def load_special(t: "CaptureTracer", f: Any, ins: "Instruction") -> Any:
    """Push the bound special method of a context manager, with NULL in place of self."""
    manager, name = f.stack.pop(), SPECIAL_METHODS[ins.arg]
    if not t.has(manager, name):
        kind = qualified_name(type(manager.value))
        text = (
            f"'{kind}' object does not support the context manager protocol (missed {name} method)"
        )
        others = (t.look_up(type(manager.value), x) for x in ("__aenter__", "__aexit__"))
        if all(t.has(Var(x), "__get__") for x in others):
            text += IS_ASYNCHRONOUS
        t.fail(TypeError(text), manager.value)

    def then(tracer, method):
        f.stack.extend((method, NULL))

    return t.get_attribute(manager, name, then, special=True)


def build_interpolation(t: "CaptureTracer", f: Any, ins: "Instruction") -> NoReturn:
    """Make a field of a template string: its value, text, conversion and format."""
    form = f.stack.pop() if ins.arg & 1 else Var("")
    value, text = f.pop_many(2)
    words = [value, text, Var(CONVERSIONS[ins.arg >> 2]), form]
    raise Break("a field of a template string", Var(Interpolation), words)


def build_template(t: "CaptureTracer", f: Any, ins: "Instruction") -> Any:
    """Make a template string of its texts and fields."""
    raise Break("a template string", Var(template_of), f.pop_many(2))


def template_of(texts: tuple[Any, ...], fields: tuple[Any, ...]) -> Any:
    """The template string: one text before each field, and one after the last."""
    parts = [part for pair in zip(texts, fields, strict=False) for part in pair]
    return Template(*parts, texts[-1])


BY_VERSION: dict[Any, Any] = {
    (3, 14): {
        "LOAD_SMALL_INT": lambda t, f, ins: f.stack.append(Var(ins.arg)),
        "LOAD_COMMON_CONSTANT": lambda t, f, ins: f.stack.append(Var(COMMON_CONSTANTS[ins.arg])),
        "LOAD_SPECIAL": load_special,
        "BUILD_INTERPOLATION": build_interpolation,
        "BUILD_TEMPLATE": build_template,
    }
}
VERSION_HANDLERS = newest(BY_VERSION)
