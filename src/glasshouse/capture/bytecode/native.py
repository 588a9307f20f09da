"""The C of capture, compiled when it is first needed."""

import functools
from types import ModuleType

from glasshouse.compile.building import toolchain


@functools.cache
def native() -> ModuleType:
    """The extension module of native/frame_hook.c.

    Raises: CompileError without a compiler or Python's headers
    """
    return toolchain.extension(toolchain.NATIVE / "frame_hook.c")


@functools.cache
def unchanged() -> ModuleType:
    """The extension module of native/unchanged.c: the guard on classes and functions.

    Raises: CompileError without a compiler or Python's headers
    """
    return toolchain.extension(toolchain.NATIVE / "unchanged.c")
