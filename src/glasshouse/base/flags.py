"""Settings read from GH_… environment variables, each with a type, a default and a help line.

A flag is read as `flags.debug`, and set for a while by `with flags.override(debug=1):`."""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from glasshouse.base.errors import OptionError, check_known
from glasshouse.base.units import ByteCount


class having(AbstractContextManager[Any]):
    """Give attributes of `target` these values; as a context, until its end."""

    target: Any
    before: dict[str, Any]

    def __init__(self, target: Any, **values: Any) -> None:
        self.target, self.before = target, {name: getattr(target, name) for name in values}
        for name, value in values.items():
            setattr(target, name, value)

    def __exit__(self, *exc_info: object) -> None:
        for name in self.before:
            setattr(self.target, name, self.before[name])


@dataclass(frozen=True)
class Flag:
    """One setting: its name, type, default value and help line; the values that there are, where
    they can be listed."""

    name: str
    kind: type[Any]
    default: object
    help: str
    choices: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        return "GH_" + self.name.upper()

    def parse(self, text: str) -> Any:
        """The value that `text` stands for.

        Raises: OptionError if it does not fit the type, or is none of the choices.
        """
        if self.choices:
            expected = f"one of {', '.join(self.choices)}"
            return check_known(self.variable, expected, text or self.default, self.choices)
        if self.kind is bool:
            if text.lower() in ("0", "1", "true", "false", "on", "off", ""):
                return text.lower() in ("1", "true", "on")
        else:
            try:
                return self.kind(text)
            except ValueError:
                pass
        expected = getattr(self.kind, "expected", f"a value of type {self.kind.__name__}")
        fix = f"Unset it or use e.g. {str(self.default)!r}."
        raise OptionError(self.variable, expected, repr(text), fix)


declared: tuple[Any, ...] = (
    Flag("backend", str, "lazy", "backend used at start: lazy, numpy, torch, torch:cuda, stub"),
    Flag("bf16x6", bool, True, "float32 products as six of bfloat16, on processors with AMX"),
    Flag("amx", bool, True, "bfloat16 products by kernels of ours, on processors with AMX"),
    Flag("few_bits", bool, True, "products with weights of few bits by kernels that read them"),
    Flag(
        "cache",
        str,
        "",
        "folder for compiled code; empty: glasshouse in XDG_CACHE_HOME, or ~/.cache",
    ),
    Flag(
        "cache_bytes", ByteCount, ByteCount("2GiB"), "most bytes of compiled code on disk; 0: all"
    ),
    Flag("cc", str, "", "C compiler; empty: the first found of cc, gcc, clang"),
    Flag(
        "compile",
        str,
        "auto",
        "auto: Programs that recur or are large; always; never",
        ("auto", "always", "never"),
    ),
    Flag(
        "deterministic",
        str,
        "",
        "batch: a row's results are the same bits in each batch, for products, norms and attention",
        ("", "batch"),
    ),
    Flag(
        "detect_anomaly",
        bool,
        False,
        "name the call of compiled code that makes the first NaN or infinity of a result",
    ),
    Flag("debug", int, 0, "1 prints fallbacks and moves between backends; 3 the passes"),
    Flag("memory", str, "caching", "memory manager used at start: caching, direct"),
    Flag("memory_limit", ByteCount, 0, "most bytes that a memory manager may reserve; 0: no limit"),
    Flag("onednn", str, "", "oneDNN's shared library; empty: the one installed beside Python"),
    Flag(
        "pool",
        str,
        "own",
        "own: threads that wait briefly, then sleep, unless PyTorch's are there; openmp: OpenMP's",
        ("own", "openmp"),
    ),
    Flag(
        "program_bytes",
        ByteCount,
        ByteCount("256MiB"),
        "most bytes of Programs in memory, those used longest ago go; 0: no limit",
    ),
    Flag("rank", int, -1, "number of this process among many; the launcher sets it"),
    Flag("rendezvous", str, "", "where processes find each other; the launcher sets it"),
    Flag(
        "replay",
        str,
        "auto",
        "auto: calls made before are recorded by C; python: all by Python",
        ("auto", "python"),
    ),
    Flag("restart", int, 0, "how many times the launcher has restarted the script"),
    Flag("strict", bool, False, "a primitive that falls back to its reference is an error"),
    Flag("threads", int, 0, "threads of kernels; 0: OMP_NUM_THREADS, or as many as cores allow"),
    Flag("timeout_s", float, 30.0, "seconds that a collective may take before it has failed"),
    Flag("transport", str, "", "what moves data between ranks; empty: as they were started"),
    Flag(
        "verify",
        bool,
        False,
        "check results against specs, captured calls against plain Python, shared arrays",
    ),
    Flag("world_size", int, 0, "how many processes there are; the launcher sets it"),
    Flag("winograd", bool, True, "3 x 3 convolutions by Winograd's algorithm where that is faster"),
)

# How MPI's launchers tell a process its number, and how many there are: MPICH's, then Open MPI's.
MPI_PLACES = (
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)


def user_cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder for files that this user's programs can make again: XDG_CACHE_HOME if it is an
    absolute path, else ~/.cache.

    Source: the XDG Base Directory Specification
    """
    named = Path(environ.get("XDG_CACHE_HOME", ""))
    return named if named.is_absolute() else Path.home() / ".cache"


def mpi_place(environ: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """The rank that `mpiexec` gave this process, and how many there are; None without it.

    Example:
        >>> mpi_place({"PMI_RANK": "1", "PMI_SIZE": "4"})
        (1, 4)
    """
    for rank, size in MPI_PLACES:
        if rank in environ and size in environ:
            return int(environ[rank]), int(environ[size])
    return None


class Flags(SimpleNamespace):
    """The current settings; attributes named as in `declared`."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self.by_name: dict[str, Flag] = {flag.name: flag for flag in declared}
        for flag in declared:
            text = environ.get(flag.variable)
            setattr(self, flag.name, flag.default if text is None else flag.parse(text))

    def as_variables(self, **settings: Any) -> dict[str, str]:
        """The environment variables by which another process has these flags.

        Example:
            >>> flags.as_variables(rank=2)
            {'GH_RANK': '2'}
        """
        return {self.by_name[name].variable: str(value) for name, value in settings.items()}

    def override(self, **settings: Any) -> having:
        """Inside, flags have these values.

        Raises: OptionError for an unknown flag.
        """
        for name in settings:
            check_known("flags", "a declared flag", name, self.by_name)
        return having(self, **settings)


flags: Flags = Flags()
