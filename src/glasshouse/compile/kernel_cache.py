"""Compiled kernels, found by their own text: in this process, on disk, or else compiled.

A new Program compiles only kernels that no Program had before, several of them in one library. A
kernel is unloaded, with its library, when no Program uses it any more.

Sizes are arguments of a kernel's text. Loops are up to a third faster where the compiler knows
them, so the first Program of its structure is compiled for its sizes: they become constants of the
text. Where the same structure comes with other sizes, those that differ stay arguments, and from
then on such sizes compile nothing."""

import ctypes
import functools
import os
import re
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
PARALLEL_SIZE, IF_PARALLEL = "parallel", " if(parallel)"
SIZE = re.compile(r"^  const int64_t (\w+) = \(int64_t\)a\[(\d+)\](?: & -\d+)?;\n", re.M)
SHARED_LINE = re.compile(rf"^ *#pragma .*{re.escape(IF_PARALLEL)}\n", re.M)


class CommonSizes:
    """The sizes that all Programs of one structure have in common: `values` of any kernel, and by
    the place of a kernel and the name of a size its value, None where Programs differ."""

    def __init__(self):
        self.values: set[int] | None = None
        self.places: dict[tuple[int, str], int | None] = {}

    def constants(self, given: list[dict[str, int]]) -> list[dict[str, int]]:
        """Of the sizes that a further Program gives its kernels those that it has in common with
        all before. Both are asked, for a number may be in all of them by chance, and a kernel may
        stand at another place."""
        values = {size for sizes in given for size in sizes.values()}
        self.values = values if self.values is None else self.values & values
        constants: list[dict[str, int]] = []
        for place, sizes in enumerate(given):
            for name, size in sizes.items():
                if self.places.setdefault((place, name), size) != size:
                    self.places[place, name] = None
            common = {name: size for name, size in sizes.items() if size in self.values}
            constants.append(
                {name: n for name, n in common.items() if self.places[place, name] == n}
            )
        return constants


class CompiledKernel:
    """A function of a loaded library, and the kernel that it was compiled from."""

    __slots__ = ("kernel", "library", "address", "__weakref__")

    def __init__(self, kernel: CKernel, library: ctypes.CDLL, name: str):
        self.kernel, self.library = kernel, library
        # A cast would make a cycle, which keeps the library until the next collection.
        function = library[name]
        self.address = ctypes.c_void_p.from_address(ctypes.addressof(function)).value or 0


loaded_kernels: WeakValueDictionary[tuple, CompiledKernel] = WeakValueDictionary()


def compile_kernels(
    steps: list[tuple[CKernel, list[int]]], dialect: Dialect, common: CommonSizes
) -> list[CompiledKernel]:
    """The kernels of steps, each with its coded arguments; equal ones are compiled once. `common`
    are the sizes of Programs of the same structure.

    Raises: CompileError
    """
    chosen: list[CKernel] = []
    kernels: dict[CKernel, CompiledKernel] = {}
    missing: dict[CKernel, None] = {}
    given = [sizes_of(kernel, args) for kernel, args in steps]
    for (kernel, _), sizes, constants in zip(steps, given, common.constants(given), strict=True):
        forms = [fixed(kernel, sizes)]  # for these sizes alone, if that was compiled
        if len(constants) < len(sizes):
            constants.pop(PARALLEL_SIZE, None)
            forms.append(fixed(kernel, constants))
        form = next((form for form in forms if form in kernels or form in missing), None)
        if form is None:
            ready = find_kernel(forms, dialect)
            if ready is None:
                form = forms[-1]
                missing[form] = None
            else:
                form = ready.kernel
                kernels[form] = ready
        chosen.append(form)
    for ready in build_kernels(list(missing), dialect) if missing else ():
        kernels[ready.kernel] = loaded_kernels.setdefault((ready.kernel, dialect), ready)
    return [kernels[form] for form in chosen]


def find_kernel(forms: list[CKernel], dialect: Dialect) -> CompiledKernel | None:
    """The first of these kernels that is loaded, else the first that lies on disk."""
    for form in forms:
        kernel = loaded_kernels.get((form, dialect))
        if kernel is not None:
            return kernel
    for form in forms:
        kernel = load_kernel(form, dialect)
        if kernel is not None:
            return loaded_kernels.setdefault((form, dialect), kernel)
    return None


def sizes_of(kernel: CKernel, args) -> dict[str, int]:
    """The sizes that a kernel takes as arguments, from the coded ones of a step."""
    return {match[1]: coded_size(args[int(match[2])]) for match in SIZE.finditer(kernel.text)}


def coded_size(code: int) -> int:
    """The size that a coded argument of a step is: 56 bits with their sign."""
    rest = code & (1 << 56) - 1
    return rest - (1 << 56) if rest >> 55 else rest


def fixed(kernel: CKernel, sizes: dict[str, int]) -> CKernel:
    """The kernel with these sizes as constants."""
    text, shared = kernel.text, sizes.get(PARALLEL_SIZE)
    if shared:
        text = text.replace(IF_PARALLEL, "")
    elif shared == 0:
        text = SHARED_LINE.sub("", text)

    def constant(match):
        name = match[1]
        if name not in sizes:
            return match[0]
        return "" if name == PARALLEL_SIZE else f"  enum {{ {name} = {sizes[name]} }};\n"

    return kernel._replace(text=SIZE.sub(constant, text))


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
    folder, compiled_kernels = open_cache(cache_folder()), []
    for shard, library in zip(shards, libraries, strict=True):
        path = Path(library._name)
        for kernel, name in shard:
            compiled_kernels.append(CompiledKernel(kernel, library, name))
            if path.parent == folder:
                link_kernel(folder, name, path.name)
    return compiled_kernels
