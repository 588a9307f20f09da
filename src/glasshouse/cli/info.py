"""`glasshouse info`: machine, versions, backends and compiler, as this process sees them."""

import os
import platform
import shutil
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

import glasshouse as gh
from glasshouse.base.processes import thread_bound
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch import primitives
from glasshouse.profile.machine import count_cores, processor_name, read_fields

# The vector extensions that decide how fast dense kernels can be, x86 and then ARM.
VECTOR_FEATURES = ("avx", "avx2", "fma", "f16c", "avx512f", "avx512_bf16", "avx512_fp16",
                   "avx512_vnni", "amx_bf16", "asimd", "sve", "bf16", "i8mm")  # fmt: skip
PACKAGES = (
    "numpy",
    "ml_dtypes",
    "safetensors",
    "rich",
    "click",
    "torch",
    "scikit-learn",
    "matplotlib",
    "plotext",
)
COMPILERS = ("cc", "gcc", "clang")
BOUNDS = {
    "cores": "the machine's cores",
    "affinity": "the affinity of the process",
    "quota": "the container's quota of processor time",
}


def processor() -> dict[str, str]:
    cpu = read_fields("/proc/cpuinfo")
    flags = set((cpu.get("flags") or cpu.get("Features") or "").split())
    return {
        "processor": processor_name(),
        "cores": f"{count_cores()} usable of {os.cpu_count()}",
        "threads": threads(),
        "vector": " ".join(name for name in VECTOR_FEATURES if name in flags) or "unknown",
    }


def threads() -> str:
    """How many threads kernels use, and which bound that number comes from."""
    bound = thread_bound()
    return f"{bound.threads}, bound by {BOUNDS.get(bound.by, bound.by)}"


def memory() -> str:
    fields = read_fields("/proc/meminfo")
    if "MemTotal" not in fields:
        return "unknown"
    sizes = (fields.get(name, "0").split()[0] for name in ("MemTotal", "MemAvailable"))
    return "{:.1f} GiB, {:.1f} GiB available".format(*(int(size) / 2**20 for size in sizes))


def blas() -> str:
    config = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    libraries = ("OMP", "OPENBLAS", "MKL")
    named = [name for library in libraries if (name := f"{library}_NUM_THREADS") in os.environ]
    name = f"{config.get('name', 'unknown')} {config.get('version', '')}".strip()
    return ", ".join([name, *(f"{limit}={os.environ[limit]}" for limit in named)])


def compiler() -> str:
    for name in COMPILERS:
        path = shutil.which(name)
        if path:
            run = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10)
            return f"{path}: {(run.stdout or run.stderr).partition(chr(10))[0]}"
    return "none found (cc, gcc, clang)"


def machine() -> dict[str, str]:
    return {
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        **processor(),
        "memory": memory(),
        "BLAS": blas(),
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "compiler": compiler(),
    }


def versions() -> dict[str, str]:
    version_of = {"glasshouse": gh.__version__}
    for name in PACKAGES:
        version_of[name] = "not installed"
        with suppress(PackageNotFoundError):
            version_of[name] = version(name)
    return version_of


def backend_states() -> dict[str, str]:
    """Each backend: how many cards it has kernels for, or why it cannot be loaded."""
    states = {}
    for name in backends.available():
        try:
            backend = backends.load(name)
        except Exception as error:  # a plug-in may fail in any way; the reason is what is shown
            states[name] = f"not usable: {error}"
            continue
        kernel_count = sum(callable(getattr(backend, card, None)) for card in primitives)
        about = (type(backend).__doc__ or "").partition(";")[0].partition(".\n")[0].strip(". ")
        note = f"kernels for {kernel_count} of {len(primitives)} cards" if kernel_count else about
        states[name] = f"{backend.device}, {note[:1].lower()}{note[1:]}"
    states[backends.current().name] += "  (current)"
    return states


def show_info(console: Console) -> None:
    sections = {"machine": machine(), "versions": versions(), "backends": backend_states()}
    for title, fields in sections.items():
        console.print(f"[bold cyan]{title}[/]")
        table = Table(box=None, show_header=False, show_edge=False, padding=(0, 2, 0, 2))
        for name, value in fields.items():
            missing = value.startswith(("not ", "none "))
            table.add_row(Text(name), Text(value, "dim" if missing else ""))
        console.print(table)
