"""Compiled kernels, found by their own text: in this process, on disk, or else compiled.

A new Program compiles only the kernels that no Program had before, several of them in one library.
A kernel is unloaded, with its library, when no Program uses it any more."""

import ctypes
import os
from pathlib import Path
from weakref import WeakValueDictionary

from glasshouse.compile import toolchain
from glasshouse.compile.disk_cache import (
    cache_folder,
    digest,
    library_of,
    link_kernel,
    open_cache,
)
from glasshouse.compile.emit_c import Source

SHARD_KERNELS = 12  # kernels that one call of the C compiler gets at least


class CompiledKernel:
    """A function of a loaded library, and the text that it was compiled from."""

    __slots__ = ("text", "library", "address", "__weakref__")

    def __init__(self, text: str, library: ctypes.CDLL, name: str):
        self.text, self.library = text, library
        self.address = ctypes.cast(library[name], ctypes.c_void_p).value or 0


loaded_kernels: WeakValueDictionary[str, CompiledKernel] = WeakValueDictionary()


def compile_kernels(texts) -> dict[str, CompiledKernel]:
    """The kernel of each text; equal ones are compiled once.

    Raises: CompileError
    """
    kernels, missing = {}, []
    for text in dict.fromkeys(texts):
        kernel = loaded_kernels.get(text) or load_kernel(text)
        if kernel is None:
            missing.append(text)
        else:
            kernels[text] = kernel
    for kernel in build_kernels(missing) if missing else ():
        kernels[kernel.text] = kernel
    for text, kernel in kernels.items():
        kernels[text] = loaded_kernels.setdefault(text, kernel)
    return kernels


def name_of(text: str) -> str:
    """The name of a kernel's function: what it depends on, in short."""
    return f"gh_{digest(f'{toolchain.identity_digest()} {text}'.encode())[:32]}"


def load_kernel(text: str) -> CompiledKernel | None:
    """The kernel from a library that this or another process compiled."""
    name = name_of(text)
    path = library_of(open_cache(cache_folder()), name)
    if path is None:
        return None
    library = toolchain.loaded.get(path.stem) or toolchain.load_library(path)
    if library is None:
        return None
    try:
        return CompiledKernel(text, toolchain.loaded.setdefault(path.stem, library), name)
    except AttributeError:  # a library without that function
        return None


def build_kernels(texts: list[str]) -> list[CompiledKernel]:
    """Compile kernels, shared out to libraries that are compiled at the same time.

    Raises: CompileError
    """
    count = max(1, min(2 * (os.cpu_count() or 1), len(texts) // SHARD_KERNELS))
    shards = [texts[i::count] for i in range(count)]
    functions = ("\n".join(Source(text, []).named(name_of(text)) for text in s) for s in shards)
    libraries = toolchain.compile_all([f'#include "gh_kernel.h"\n{text}' for text in functions])
    folder, made = open_cache(cache_folder()), []
    for shard, library in zip(shards, libraries, strict=True):
        path = Path(library._name)
        for text in shard:
            made.append(CompiledKernel(text, library, name_of(text)))
            if path.parent == folder:
                link_kernel(folder, name_of(text), path.name)
    return made
