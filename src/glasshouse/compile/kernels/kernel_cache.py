"""Compiled kernels, found by their text: in this process, on disk, or else compiled.

A new Program compiles only kernels that no Program had before, several of them in one library. A
kernel is unloaded, with its library, when no Program uses it any more.

Sizes are arguments of a kernel's text. Sums of columns and short rows are up to a third faster
where the compiler knows their sizes; how many rows there are, and how far apart, costs nothing. So
the first Program of a structure is compiled for the sizes that matter: they become constants of the
text. When the same structure appears with other sizes, the ones that differ stay arguments, and
further such sizes compile nothing. A Program that then runs for long gets kernels for its own sizes
(`Program.specialise`)."""

import ctypes
import functools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from glasshouse.compile.building import toolchain
from glasshouse.compile.building.disk_cache import (
    cache_folder,
    digest,
    library_of,
    link_kernel,
    open_cache,
)
from glasshouse.compile.steps.emitted import CKernel, Dialect

if TYPE_CHECKING:
    from ctypes import CDLL


SHARD_KERNELS = 12  # kernels that one call of the C compiler gets at least
WHERE_ALL_MATTER = {"rows", "units", "n_p1", "n_q0"}  # of sums, and of nests of loops
LONG_ROW = 1 << 12  # elements
MOST_TEXTS = 1 << 9  # results that are cached
PARALLEL_SIZE, IF_PARALLEL = "parallel", " if(parallel)"
SIZE = re.compile(r"^  const int64_t (\w+) = \(int64_t\)a\[(\d+)\](?: & -\d+)?;\n", re.M)
ALIGNMENT = re.compile(r" & -\d+;$", re.M)  # of a size that is a multiple of the vector's length
SHARED_LINE = re.compile(rf"^ *#pragma .*{re.escape(IF_PARALLEL)}\n", re.M)


class CommonSizes:
    """Sizes that all Programs of one structure have in common: `values` of any kernel, and those of
    each kernel's text by the size's name."""

    def __init__(self) -> None:
        self.values: set[int] | None = None
        self.of_texts: dict[tuple[CKernel, str], set[int]] = {}

    def constants(
        self, kernels: list[CKernel], all_sizes: list[dict[str, int]]
    ) -> list[dict[str, int]]:
        """Find the sizes of a further Program's kernels that it has in common with all before. A
        size counts if both agree: its value may be in all of them by chance, and its text may be
        the first of its kind."""
        values = {size for sizes in all_sizes for size in sizes.values()}
        self.values = values if self.values is None else self.values & values
        by_text: dict[tuple[CKernel, str], set[int]] = {}
        for kernel, sizes in zip(kernels, all_sizes, strict=True):
            for name, size in sizes.items():
                by_text.setdefault((kernel, name), set()).add(size)
        for place, sizes_there in by_text.items():
            self.of_texts[place] = self.of_texts.get(place, sizes_there) & sizes_there
        common, texts = self.values, self.of_texts
        return [
            {
                name: size
                for name, size in sizes.items()
                if size in common and size in texts[kernel, name]
            }
            for kernel, sizes in zip(kernels, all_sizes, strict=True)
        ]


class CompiledKernel:
    """A function of a loaded library, and the kernel from which it was compiled."""

    __slots__ = ("kernel", "library", "address", "__weakref__")

    def __init__(self, kernel: CKernel, library: ctypes.CDLL, name: str) -> None:
        self.kernel: CKernel = kernel
        self.library: CDLL = library
        # A cast would make a cycle, which keeps the library until the next collection.
        function = library[name]
        self.address: int = ctypes.c_void_p.from_address(ctypes.addressof(function)).value or 0


Constants = tuple[tuple[str, int], ...]  # sizes by name, in the order of the text

loaded_kernels: WeakValueDictionary[tuple[Any, ...], CompiledKernel] = WeakValueDictionary()
# The same by the text before sizes became constants, a quicker lookup.
loaded_forms: WeakValueDictionary[tuple[CKernel, Constants, Dialect], CompiledKernel]
loaded_forms = WeakValueDictionary()


def compile_kernels(
    steps: list[tuple[CKernel, list[int]]], dialect: Dialect, common: CommonSizes
) -> list[CompiledKernel]:
    """Compile the kernels of steps, each with its coded arguments; equal ones once. `common` are
    the sizes of Programs of the same structure.

    Raises: CompileError
    """
    texts = [kernel for kernel, _ in steps]
    all_sizes = [sizes_of(kernel, args) for kernel, args in steps]
    constants = common.constants(texts, all_sizes)
    all_forms = list(map(forms_of, texts, all_sizes, constants))
    compiled = [loaded_form(forms, dialect) for forms in all_forms]
    chosen: dict[int, CKernel] = {}  # by step, where no form was loaded under its text
    kernels: dict[CKernel, CompiledKernel] = {}
    missing: dict[CKernel, None] = {}
    for i, forms in enumerate(all_forms):
        if compiled[i] is None:
            fixed_forms = [fixed(kernel, sizes) for kernel, sizes in forms[:2]]
            form = next((text for text in fixed_forms if text in kernels or text in missing), None)
            ready = find_kernel(fixed_forms, dialect) if form is None else None
            if ready is not None:
                kernels[ready.kernel] = ready
            elif form is None:
                missing[fixed_forms[-1]] = None
            chosen[i] = form or (fixed_forms[-1] if ready is None else ready.kernel)
    for ready in build_kernels(list(missing), dialect) if missing else ():
        kernels[ready.kernel] = loaded_kernels.setdefault((ready.kernel, dialect), ready)
    for i, text in chosen.items():
        compiled[i] = kernels[text]
        for kernel, sizes in all_forms[i][:2]:
            if fixed(kernel, sizes) == text:
                loaded_forms[kernel, sizes, dialect] = kernels[text]
    return [kernel for kernel in compiled if kernel is not None]


def forms_of(
    kernel: CKernel, sizes: dict[str, int], constants: dict[str, int]
) -> list[tuple[CKernel, Constants]]:
    """Forms of a kernel that a step may run, the best first: the kernel for those of its sizes that
    make it faster, if that was compiled; for those of them that its Program has in common with
    others; last, if that is loaded, one that serves a row of any length, which differs from one for
    multiples of the vector's length by a loop that does not run."""
    names = names_that_matter(sizes)
    forms = [best_form(kernel, sizes)]
    if any(name not in constants for name in names):
        common = [name for name in names if name in constants and name != PARALLEL_SIZE]
        forms.append((kernel, tuple((name, sizes[name]) for name in common)))
        uneven = without_alignment(kernel)
        if uneven is not kernel:
            forms.append((uneven, forms[-1][1]))
    return forms


def best_form(kernel: CKernel, sizes: dict[str, int]) -> tuple[CKernel, Constants]:
    """A kernel with all of its sizes as constants that make it faster."""
    return kernel, tuple((name, sizes[name]) for name in names_that_matter(sizes))


def is_general(compiled: CompiledKernel, kernel: CKernel, args: list[int]) -> bool:
    """Whether a step's kernel takes sizes as arguments that would make it faster as constants."""
    arguments = {name for name, _ in size_places(compiled.kernel)}
    return not arguments.isdisjoint(names_that_matter(sizes_of(kernel, args)))


def names_that_matter(sizes: dict[str, int]) -> list[str]:
    """Sizes of a kernel that make it faster where the C compiler knows them: all of them where
    columns or parts of a row are added up, or loops lie around the rows; else the length of rows,
    unless there is one long row."""
    if not WHERE_ALL_MATTER.isdisjoint(sizes):
        return list(sizes)
    is_long = sizes.get("n_i", 0) >= LONG_ROW and "n_p0" not in sizes
    return [
        name for name in (PARALLEL_SIZE, "n_i") if name in sizes and not (is_long and name == "n_i")
    ]


def loaded_form(
    forms: list[tuple[CKernel, tuple[Any, ...]]], dialect: Dialect
) -> CompiledKernel | None:
    """The first of the forms that is loaded."""
    for kernel, constants in forms:
        ready = loaded_forms.get((kernel, constants, dialect))
        if ready is not None:
            return ready
    return None


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


@functools.lru_cache(MOST_TEXTS)
def without_alignment(kernel: CKernel) -> CKernel:
    """The kernel for rows of any length; itself if it is one."""
    text = ALIGNMENT.sub(";", kernel.text)
    return kernel if text == kernel.text else kernel._replace(text=text)


@functools.lru_cache(MOST_TEXTS)
def size_places(kernel: CKernel) -> list[tuple[str, int]]:
    """The sizes that a kernel takes as arguments: their names and the numbers of the arguments."""
    return [(match[1], int(match[2])) for match in SIZE.finditer(kernel.text)]


def sizes_of(kernel: CKernel, args: list[int]) -> dict[str, int]:
    """The sizes that a kernel takes as arguments, from the coded ones of a step."""
    return {name: coded_size(args[at]) for name, at in size_places(kernel)}


def coded_size(code: int) -> int:
    """Decode a size from a coded argument of a step: 56 bits with their sign."""
    rest = code & (1 << 56) - 1
    return rest - (1 << 56) if rest >> 55 else rest


@functools.lru_cache(MOST_TEXTS)
def fixed(kernel: CKernel, constants: Constants) -> CKernel:
    """The kernel with these sizes as constants."""
    sizes = dict(constants)
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
    """Name of a kernel's function: a digest of all that it depends on."""
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
