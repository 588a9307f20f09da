"""The C of capture, compiled when it is first needed."""

import functools
import importlib.machinery
import importlib.util
import sysconfig

from glasshouse.compile import toolchain


@functools.cache
def native():
    """The extension module of native/frame_hook.c.

    Raises:  CompileError without a compiler or Python's headers
    """
    return extension("frame_hook", (toolchain.NATIVE / "frame_hook.c").read_text())


def extension(name: str, source: str):
    """The extension module of C source.

    Raises:  CompileError without a compiler or Python's headers
    """
    include = sysconfig.get_path("include")
    made = toolchain.compile_one(source, (f"-I{include}", "-Wno-deprecated-declarations"))
    loader = importlib.machinery.ExtensionFileLoader(name, made._name)
    spec = importlib.util.spec_from_loader(name, loader)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    loader.exec_module(module)
    return module
