"""The C compiler and the cache of what it made.

The cache is a folder of the user's own. An entry is a shared library and the digest of its
contents, which is checked before it is loaded; both are written under other names and then moved
into place, so that processes may share the folder and a crash leaves no half entry."""

import ctypes
import functools
import hashlib
import importlib.machinery
import importlib.util
import os
import platform
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from glasshouse.base.flags import flags

NATIVE = Path(__file__).parent.parent / "native"
OPTIONS = (
    "-std=gnu11 -O3 -march=native -fopenmp -fPIC -shared -fwrapv -fno-math-errno "
    "-fno-trapping-math -ffp-contract=off -fno-semantic-interposition "
    "-mprefer-vector-width=512"
).split()
TIMEOUT_S = 300  # for one call of the compiler


class CompileError(Exception):
    """The compiler is missing, failed, was killed or took too long."""


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
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


@functools.cache
def identity() -> str:
    """What compiled code depends on besides its source: compiler, options, processor, headers."""
    command = find_compiler()
    try:
        version = run([*command, "--version"], 20).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"{command[0]} does not run: {error}") from error
    headers = "".join(p.read_text() for p in sorted(NATIVE.glob("*.h")))
    return "\n".join([version, " ".join(OPTIONS), processor(), headers])


@functools.cache
def processor() -> str:
    """What the processor can do, as the system lists it; its name where it does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line for line in lines if "flags" in line)
    except (OSError, StopIteration):
        return platform.processor()


def cache_folder() -> Path:
    """Where compiled code lies: GH_CACHE, or glasshouse in the user's cache folder."""
    return Path(flags.cache) if flags.cache else Path.home() / ".cache" / "glasshouse"


@functools.cache
def usable_cache(folder: Path) -> Path:
    """The folder, made if need be and private to the user; else a temporary one, with a warning."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if status.st_uid != os.getuid() or status.st_mode & 0o022:
            raise OSError("others may write to it")
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        kept = "compiled code is kept for this process only. Set GH_CACHE to a folder of your own."
        warnings.warn(
            f"glasshouse: the cache {folder} is not usable ({error}); {kept}", stacklevel=2
        )
        return Path(tempfile.mkdtemp(prefix="glasshouse-"))


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def compile_all(sources: list[str]) -> list[ctypes.CDLL]:
    """The shared libraries of C sources, from the cache or the compiler.

    Raises: CompileError
    """
    if len(sources) == 1:
        return [compile_one(sources[0])]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return list(pool.map(compile_one, sources))


def compile_one(source: str, more: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The shared library of one C source; `more` are further options."""
    key = digest("\n".join((identity(), *more, source)).encode())[:40]
    return library(key, source, more)


def extension(path: Path):
    """The extension module of a C file.

    Raises: CompileError, also where headers are missing
    """
    more = (f"-I{sysconfig.get_path('include')}", "-Wno-deprecated-declarations")
    made = compile_one(path.read_text(), more)
    loader = importlib.machinery.ExtensionFileLoader(path.stem, made._name)
    spec = importlib.util.spec_from_loader(path.stem, loader)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    loader.exec_module(module)
    return module


loaded: dict[str, ctypes.CDLL] = {}


def library(key: str, source: str, more: tuple[str, ...]) -> ctypes.CDLL:
    """The loaded library of a key; compiled if the cache has no sound entry."""
    if key not in loaded:
        path = usable_cache(cache_folder()) / f"{key}.so"
        found = load_entry(path)
        if found is None:
            try:
                build(source, path, more)
            except OSError as error:  # disk full, folder gone
                path = Path(tempfile.mkdtemp(prefix="glasshouse-")) / path.name
                try:
                    build(source, path, more)
                except OSError:
                    raise CompileError(f"cannot write compiled code: {error}") from error
            found = load_entry(path)
            if found is None:
                raise CompileError(f"{path} does not load")
        loaded[key] = found
    return loaded[key]


def load_entry(path: Path) -> ctypes.CDLL | None:
    try:
        return None if read_entry(path) is None else ctypes.CDLL(str(path))
    except OSError:
        return None


def read_entry(path: Path) -> bytes | None:
    """The contents of an entry if they have the digest written beside it."""
    try:
        data = path.read_bytes()
        return data if digest(data) == path.with_suffix(".sha256").read_text() else None
    except OSError:
        return None


def write_entry(path: Path, data: bytes) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        made.write_bytes(data)
        place_entry(made, path)


def place_entry(made: Path, path: Path) -> None:
    """Move a finished file to its place, its digest beside it.

    Raises: OSError
    """
    mark = made.with_suffix(".sha256")
    mark.write_text(digest(made.read_bytes()))
    os.replace(made, path)
    os.replace(mark, path.with_suffix(".sha256"))


def build(source: str, path: Path, more: tuple[str, ...]) -> None:
    """Compile into the entry at `path`.

    Raises: CompileError, OSError
    """
    command = find_compiler()
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        text, out = Path(folder) / "source.c", Path(folder) / "made.so"
        text.write_text(source)
        call = [*command, *OPTIONS, f"-I{NATIVE}", *more, str(text), "-o", str(out), "-lm"]
        try:
            done = run(call, TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise CompileError(f"{command[0]} took longer than {TIMEOUT_S} s") from None
        if done.returncode == -signal.SIGINT:  # as we are, by the same key
            raise KeyboardInterrupt
        if done.returncode != 0:
            raise CompileError(f"{command[0]} failed ({done.returncode}): {done.stderr[:2000]}")
        place_entry(out, path)
