"""The C compiler, and the shared libraries that it makes.

They lie in the folder of disk_cache.py. A library is checked against its digest before it is
loaded; both are written under other names and then moved into place, so that processes may share
the folder and a crash leaves no half entry."""

import _ctypes
import ctypes
import errno
import functools
import importlib.machinery
import importlib.util
import os
import platform
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from glasshouse.base.flags import flags
from glasshouse.base.import_watch import when_imported
from glasshouse.base.interpreter import KNOWN_VERSIONS, unknown_interpreter
from glasshouse.base.processes import thread_bound, tunes_openmp
from glasshouse.compile.building.disk_cache import (
    ANSWER,
    FULL,
    HEADER,
    cache_folder,
    digest,
    full_fix,
    open_cache,
    place_entry,
    read_entry,
    temporary_folder,
    temporary_parent,
    warn_full,
    work_folder,
    write_entry,
)

if TYPE_CHECKING:
    from ctypes import CDLL


NATIVE = Path(__file__).parents[2] / "native"
OPTIONS = (
    "-std=gnu11 -O3 -march=native -fopenmp -fPIC -shared -fwrapv -fno-math-errno "
    "-fno-trapping-math -ffp-contract=off -fno-semantic-interposition "
    "-mprefer-vector-width=512"
).split()
KERNEL_HEADER = NATIVE / "gh_kernel.h"
PRELUDE = f'#include "{KERNEL_HEADER.name}"\n'  # how files of kernels begin
TIMEOUT_S = 300  # for one call of the compiler
MOST_SAID = 2000  # characters of the compiler's message


class CompileError(Exception):
    """The compiler is missing, failed, was killed or took too long; `fix` is the remedy."""

    fix = "Install gcc or clang, or set GH_CC."


class CompilerFailed(CompileError):
    """The compiler refused a source; `output` is its message."""

    fix = "Report it, with the C that GH_DEBUG=3 prints; GH_COMPILE=never does without compiling."

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


class UnknownInterpreter(CompileError):
    """An extension for a Python whose internals are not known."""

    fix: str = f"Use CPython {KNOWN_VERSIONS[0]} to {KNOWN_VERSIONS[-1]}."


class DiskFull(CompileError):
    """No disk has room for compiled code."""

    def __init__(self, *folders: Path) -> None:
        super().__init__(f"no space is left on the disks of {' and '.join(map(str, folders))}")
        self.fix: str = full_fix()


@functools.cache
def find_compiler() -> list[str]:
    """The command of a C compiler: GH_CC, or the first of cc, gcc, clang.

    Raises: CompileError
    """
    names = [flags.cc] if flags.cc else ["cc", "gcc", "clang"]
    path = next(filter(None, map(shutil.which, names)), None)
    if path:
        return [path]
    raise CompileError(f"no C compiler found; looked for {', '.join(names)}")


def run(command: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )


@functools.cache
def identity() -> str:
    """Dependencies of compiled code besides its source: compiler, options, processor, headers."""
    return "\n".join([about_compiler("--version"), *base_of_code()])


@functools.cache
def macros() -> str:
    """Return the macros that the compiler defines for this processor.

    Raises: CompileError
    """
    return about_compiler(*OPTIONS, "-dM", "-E", "-x", "c", os.devnull)


def about_compiler(*options: str) -> str:
    """The compiler's answer to a question. It is kept beside the compiled code, so that a machine
    of the same processor finds that code without a compiler.

    Raises: CompileError
    """
    key = digest("\n".join([*options, *base_of_code()]).encode())[:40]
    folder = open_cache(cache_folder())
    path = folder / f"{key}{ANSWER}"
    try:
        command = find_compiler()
    except CompileError:
        answer = None if flags.cc else read_entry(path)
        if answer is None:
            raise
        return answer.decode()
    try:
        answer = run([*command, *options], 20).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"{command[0]} does not run: {error}") from error
    if read_entry(path) != answer.encode():
        with suppress(OSError):
            write_entry(path, answer.encode())
    return answer


@functools.cache
def base_of_code() -> list[str]:
    """Dependencies of compiled code besides its source and the compiler."""
    headers = "".join(p.read_text() for p in sorted(NATIVE.glob("*.h")))
    return [" ".join(OPTIONS), processor(), headers]


@functools.cache
def identity_digest() -> str:
    return digest(identity().encode())


@functools.cache
def processor() -> str:
    """Processor's features, as the system lists them; its name where it does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line for line in lines if "flags" in line)
    except (OSError, StopIteration):
        return platform.processor()


def compile_all(sources: list[str], more: tuple[str, ...] = ()) -> list[ctypes.CDLL]:
    """Load the shared libraries of C sources, from the cache or the compiler; `more` are options.

    Raises: CompileError
    """
    if len(sources) == 1:
        return [compile_one(sources[0], more)]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return list(pool.map(lambda source: compile_one(source, more), sources))


def compile_one(source: str, more: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The shared library of one C source; `more` are further options."""
    # Python's headers are those of its version, wherever they lie.
    names = [sys.version if x.startswith("-I") else x for x in more]
    key = digest("\n".join((identity_digest(), *names, source)).encode())[:40]
    return library(key, source, more)


def extension(path: Path, declarations: str = "") -> ModuleType:
    """Load the extension module of a C file, with these declarations in front of it.

    Raises: CompileError, also where headers are missing; UnknownInterpreter, before anything is
        compiled
    """
    if unknown := unknown_interpreter():
        raise UnknownInterpreter(f"{unknown} is not known")
    more = (f"-I{sysconfig.get_path('include')}", "-Wno-deprecated-declarations")
    shared_library = compile_one(declarations + path.read_text(), more)
    loader = importlib.machinery.ExtensionFileLoader(path.stem, shared_library._name)
    spec = importlib.util.spec_from_loader(path.stem, loader)
    assert spec is not None  # the loader knows its file
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


# Libraries by key, as long as somebody uses them.
loaded: weakref.WeakValueDictionary[str, ctypes.CDLL] = weakref.WeakValueDictionary()


def library(key: str, source: str, more: tuple[str, ...]) -> ctypes.CDLL:
    """The loaded library of a key; compiled if the cache has no sound entry.

    Raises: CompileError
    """
    shared_library = loaded.get(key)
    if shared_library is None:
        folder = open_cache(cache_folder())
        shared_library = load_library(folder / f"{key}.so")
        if shared_library is None:
            shared_library = build_library(folder, f"{key}.so", source, more)
        shared_library = loaded.setdefault(key, shared_library)
    return shared_library


def build_library(folder: Path, name: str, source: str, more: tuple[str, ...]) -> ctypes.CDLL:
    """Compile a library into the folder; if that cannot be written, into a temporary one.

    Raises: CompileError
    """
    try:
        return build(folder / name, source, more)
    except OSError as error:  # disk full, folder gone
        first = error
    try:
        shared_library = build(temporary_folder() / name, source, more)
    except OSError as error:
        if error.errno in FULL:
            raise DiskFull(folder, temporary_parent()) from error
        raise CompileError(f"cannot write compiled code: {first}") from error
    if first.errno in FULL:
        warn_full(folder)
    return shared_library


@functools.cache
def openmp_runtime() -> "tuple[CDLL | None, bool]":
    """The OpenMP runtime that libraries share which are imported later, and whether somebody else
    brought it.

    Packages such as PyTorch bring a copy under another name. Two copies would have separate
    threads, which wait for work in turn on the same cores. The first copy is made visible to all,
    and later libraries find it before their own. Where several are loaded, PyTorch's is used: the
    others compute beside us more rarely. None where there is none."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        lines = []
    there = dict.fromkeys(line.split(maxsplit=5)[-1] for line in lines if "libgomp" in line)
    for name in (*sorted(there, key=lambda path: "/torch" not in path), "libgomp.so.1"):
        try:
            return ctypes.CDLL(name, ctypes.RTLD_GLOBAL), name in there
        except OSError:
            continue
    return None, False


class ThreadPool:
    """The threads of kernels and of oneDNN: native/pool.c, whose `library` is None where OpenMP's
    threads are used, and until it is made. Where PyTorch or another library has brought OpenMP's
    threads, they are shared: two pools would wait for work on the same cores."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.library: CDLL | None = None
        self.is_begun = self.is_made = False

    def get(self) -> "CDLL | None":
        """The library of the threads, made when first needed."""
        if not self.is_made:
            with self.lock:
                if not self.is_begun:  # what builds it asks for it, too
                    self.is_begun = True
                    self.library = self.make()
                    self.is_made = True
        return self.library

    def make(self) -> "CDLL | None":
        openmp, is_theirs = openmp_runtime()
        if flags.pool != "own" or tunes_openmp():
            return None
        try:
            pool = compile_one(POOL.read_text())
        except CompileError:
            return None
        pool.gh_set_threads(thread_bound().threads)
        if openmp is not None and is_theirs:
            self.share(pool, openmp)
        elif openmp is not None:
            when_imported("torch", lambda module: self.share(pool, openmp))
        return pool

    @staticmethod
    def share(pool: "CDLL", openmp: "CDLL") -> None:
        """Have the threads of this runtime do the work from now on."""
        pool.gh_delegate(ctypes.c_void_p(openmp._handle))

    def adopt(self, loaded: "CDLL") -> None:
        """Have a library that was loaded work with these threads."""
        pool = self.get()
        if pool is not None:
            pool.gh_adopt(ctypes.c_void_p(loaded._handle))


POOL = NATIVE / "pool.c"
thread_pool = ThreadPool()


def share_openmp() -> "CDLL | None":
    """The library that knows how many threads there are: ours, or OpenMP's runtime; None where
    there is none."""
    return thread_pool.get() or openmp_runtime()[0]


def count_threads() -> int:
    """Count the threads that a kernel may use now; 0 where OpenMP's runtime is not found."""
    openmp = share_openmp()
    return 0 if openmp is None else openmp.omp_get_max_threads()


class threads_used:
    """Inside, kernels of this thread use so many threads; 0 changes nothing."""

    count: int
    openmp: "CDLL | None"

    def __init__(self, count: int) -> None:
        self.count, self.openmp = count, share_openmp() if count else None

    def __enter__(self) -> None:
        if self.openmp is not None:
            self.before: Any = self.openmp.omp_get_max_threads()
            self.openmp.omp_set_num_threads(self.count)

    def __exit__(self, *exc_info: object) -> None:
        if self.openmp is not None:
            self.openmp.omp_set_num_threads(self.before)


def load_library(path: Path) -> ctypes.CDLL | None:
    """Load the library of an entry; it is unloaded when nothing refers to it any more."""
    openmp_runtime()
    try:
        if read_entry(path) is None:
            return None
        shared_library = ctypes.CDLL(str(path))
    except OSError:
        return None
    thread_pool.adopt(shared_library)
    weakref.finalize(shared_library, _ctypes.dlclose, shared_library._handle).atexit = False
    return shared_library


def build(path: Path, source: str, more: tuple[str, ...]) -> ctypes.CDLL:
    """Compile into the entry at `path`, and load it.

    Raises: CompileError, OSError
    """
    command = find_compiler()
    with work_folder(path.parent) as folder:
        text, out = folder / "source.c", folder / "library.so"
        text.write_text(source)
        is_kernel = source.startswith(PRELUDE) and not more
        header = precompiled_header(path.parent) if is_kernel else None
        if header is not None:
            (folder / f"{KERNEL_HEADER.name}.gch").symlink_to(header)
        # The compiler's own files too lie in the folder.
        call = [
            "env",
            f"TMPDIR={folder}",
            *command,
            *OPTIONS,
            f"-I{NATIVE}",
            *more,
            str(text),
            "-o",
            str(out),
            "-lm",
        ]
        try:
            result = run(call, TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise CompileError(f"{command[0]} took longer than {TIMEOUT_S} s") from None
        if result.returncode == -signal.SIGINT:  # the same key interrupted us
            raise KeyboardInterrupt
        if result.returncode != 0:
            if os.strerror(errno.ENOSPC) in result.stderr or is_full(folder):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
            message = result.stderr[:MOST_SAID]
            raise CompilerFailed(f"{command[0]} failed ({result.returncode}): {message}", message)
        place_entry(out, path)
    shared_library = load_library(path)
    if shared_library is None:
        raise CompilerFailed(f"{path} does not load")
    return shared_library


@functools.cache
def precompiled_header(folder: Path) -> Path | None:
    """The entry of the kernels' header, precompiled with our options: it halves the time that gcc
    takes for a small kernel. None for other compilers, or if it cannot be compiled or stored."""
    if "Free Software Foundation" not in identity():
        return None
    path = folder / f"{digest(f'{identity_digest()} {KERNEL_HEADER.name}'.encode())[:40]}{HEADER}"
    try:
        if read_entry(path) is None:
            with work_folder(folder) as inside:
                out = inside / path.name
                options = ["-x", "c-header", str(KERNEL_HEADER), "-o", str(out)]
                if run([*find_compiler(), *OPTIONS, *options], TIMEOUT_S).returncode:
                    return None
                place_entry(out, path)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return path


def is_full(folder: Path) -> bool:
    """Whether not even a page can be written: the compiler's message may be in any language."""
    try:
        (folder / "page").write_bytes(bytes(1 << 12))
    except OSError as error:
        return error.errno in FULL
    return False
