"""`glasshouse build`: compile code ahead for a machine without a compiler."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import click

from glasshouse.base import OptionError
from glasshouse.base.flags import declared
from glasshouse.capture.bytecode import native as capture_natives
from glasshouse.cli.cache import show_folder
from glasshouse.cli.command import Command, script_file
from glasshouse.compile.building.disk_cache import cache_folder
from glasshouse.compile.building.toolchain import CompileError
from glasshouse.compile.programs.executable import NativeRunner
from glasshouse.distributed.transports import native_calls
from glasshouse.profile import annotation, function_watch, stacks

PARTS: dict[str, Callable[[], Any]] = {
    "runner and replay of calls": NativeRunner.get,
    "capture's frame hook": capture_natives.native,
    "guards on classes": capture_natives.unchanged,
    "profiler: functions": function_watch.kind_of_functions,
    "profiler: stacks": stacks.fast_stack_key,
    "profiler: annotations": annotation.quicken,
    "collectives": native_calls.library,
}


@click.command("build", cls=Command, context_settings={"allow_interspersed_args": False})
@click.argument("script", required=False)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def build(script: str | None, args: tuple[str, ...]) -> None:
    """Compile ahead for a machine without a compiler.

    Fills the cache folder with the package's C and the kernels that SCRIPT uses.

    A machine of the same processor and the same Python, with GH_CACHE set to a copy of the folder,
    then runs SCRIPT without a compiler. Options after SCRIPT are the script's."""
    if script is not None:
        script_file("build", script)
    for name, load in PARTS.items():
        try:
            load()
        except CompileError as error:
            raise OptionError("build", "a C compiler", str(error), error.fix) from error
        click.echo(f"built    {name}")
    if script is not None:
        setting = {flag.variable: "always" for flag in declared if flag.name == "compile"}
        done = subprocess.run([sys.executable, script, *args], env=os.environ | setting)
        if done.returncode:
            raise click.ClickException(f"build: {script} ended with {done.returncode}.")
        click.echo(f"built    kernels of {script}")
    show_folder(cache_folder())
