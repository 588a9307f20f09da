"""Compiled kernels, found by their own text: in this process, on disk, or else compiled.

A new Program compiles only the kernels that no Program had before, several of them in one library.
A kernel is unloaded, with its library, when no Program uses it any more."""

import ctypes
import functools
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
from glasshouse.compile.emitted import CKernel, Dialect

SHARD_KERNELS = 12  # kernels that one call of the C compiler gets at least


class CompiledKernel:
    """A function of a loaded library, and the kernel that it was compiled from."""

    __slots__ = ("kernel", "library", "address", "__weakref__")

    def __init__(self, kernel: CKernel, library: ctypes.CDLL, name: str):
        self.kernel, self.library = kernel, library
        self.address = ctypes.cast(library[name], ctypes.c_void_p).value or 0


loaded_kernels: WeakValueDictionary[tuple, CompiledKernel] = WeakValueDictionary()


def compile_kernels(wanted, dialect: Dialect) -> dict[CKernel, CompiledKernel]:
    """Each kernel as compiled in a dialect; equal ones are compiled once.

    Raises: CompileError
    """
    kernels, missing = {}, []
    for kernel in dict.fromkeys(wanted):
        made = loaded_kernels.get((kernel, dialect)) or load_kernel(kernel, dialect)
        if made is None:
            missing.append(kernel)
        else:
            kernels[kernel] = made
    for made in build_kernels(missing, dialect) if missing else ():
        kernels[made.kernel] = made
    for kernel, made in kernels.items():
        kernels[kernel] = loaded_kernels.setdefault((kernel, dialect), made)
    return kernels


def name_of(kernel: CKernel, dialect: Dialect) -> str:
    """The name of a kernel's function: what it depends on, in short."""
    about = f"{toolchain.identity_digest()} {dialect_digest(dialect)} {kernel!r}"
    return f"gh_{digest(about.encode())[:32]}"


@functools.cache
def dialect_digest(dialect: Dialect) -> str:
    return digest(repr(dialect).encode())


def load_kernel(kernel: CKernel, dialect: Dialect) -> CompiledKernel | None:
    """The kernel from a library that this or another process compiled."""
    name = name_of(kernel, dialect)
    path = library_of(open_cache(cache_folder()), name)
    if path is None:
        return None
    library = toolchain.loaded.get(path.stem) or toolchain.load_library(path)
    if library is None:
        return None
    try:
        return CompiledKernel(kernel, toolchain.loaded.setdefault(path.stem, library), name)
    except AttributeError:  # a library without that function
        return None


def build_kernels(kernels: list[CKernel], dialect: Dialect) -> list[CompiledKernel]:
    """Compile kernels, shared out to libraries that are compiled at the same time.

    Raises: CompileError
    """
    count = max(1, min(2 * (os.cpu_count() or 1), len(kernels) // SHARD_KERNELS))
    shards = [[(k, name_of(k, dialect)) for k in kernels[i::count]] for i in range(count)]
    files = [dialect.file_of(kernel.named(name) for kernel, name in shard) for shard in shards]
    libraries = toolchain.compile_all(files, dialect.options)
    folder, made = open_cache(cache_folder()), []
    for shard, library in zip(shards, libraries, strict=True):
        path = Path(library._name)
        for kernel, name in shard:
            made.append(CompiledKernel(kernel, library, name))
            if path.parent == folder:
                link_kernel(folder, name, path.name)
    return made
