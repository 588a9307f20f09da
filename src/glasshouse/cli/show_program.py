"""Commands about a script: `glasshouse show` its Programs, `explain` what was captured."""

import runpy
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from glasshouse.base.errors import BackendError
from glasshouse.base.flags import flags
from glasshouse.capture.report import Explanation
from glasshouse.capture.sessions.dispatching import Capture
from glasshouse.cli.command import Command, Script, echo, screen_columns
from glasshouse.cli.onnx_files import ENDING, OnnxCall, sizes_option
from glasshouse.compile.planning.plan import PASSES, describe_c, describe_steps, passes_of
from glasshouse.compile.programs.executable import Program
from glasshouse.compile.programs.program import plans_kept, programs
from glasshouse.dispatch.backend import current

STAGES = ("recorded", *(name for name, _ in PASSES), "a pass of yours", "steps", "c")


@contextmanager
def as_main(path: Path, arguments: Sequence[str]) -> Iterator[Callable[[], None]]:
    """Gives a function that runs the script as Python would, with these arguments; an exception
    is shown as Python shows it, and ends in SystemExit."""

    def run() -> None:
        try:
            runpy.run_path(str(path), run_name="__main__")
        except Exception as error:
            trace = error.__traceback__
            while trace and trace.tb_next and trace.tb_frame.f_code.co_filename != str(path):
                trace = trace.tb_next
            traceback.print_exception(error.with_traceback(trace))
            sys.exit(1)

    before = sys.argv, sys.path[:]
    sys.argv, sys.path[:] = [str(path), *arguments], [str(path.parent), *sys.path]
    try:
        yield run
    finally:
        sys.argv, sys.path[:] = before


def run_script(path: Path, arguments: list[str], sizes: Iterable[str] = ()) -> list[Program]:
    if path.suffix == ENDING:
        call = OnnxCall("show", str(path), sizes)
        with flags.override(compile="always"), plans_kept():
            call()
    else:
        with as_main(path, arguments) as run, flags.override(compile="always"), plans_kept():
            run()
    compiled = (entry.program for entry in programs.values())
    return [program for program in compiled if program is not None and program.recorded is not None]


def text_of(program: Program, stage: str) -> tuple[str, str]:
    if stage == "steps" and program.plan is not None:
        return describe_steps(program.plan), "text"
    if stage == "c":
        return describe_c(program.sources, program.sizes), "c"
    passes = passes_of(program.target)
    stages = ["recorded", *(name for name, _ in passes)]
    if stage not in stages:
        allowed = ", ".join([*stages, "steps", "c"])
        raise click.BadParameter(f"expected one of {allowed}; got {stage!r}.", param_hint="--stage")
    graph = program.recorded
    for _, rewrite in passes[: stages.index(stage)]:
        graph = rewrite(graph)
    return str(graph), "python"


def show_programs(console: Console, programs: list[Program]) -> None:
    """A line for each Program: how many steps of which kind it has."""
    counts = [Counter(info.kind for info in program.step_infos()) for program in programs]
    kinds = sorted(set().union(*counts))
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for heading in ("program", "primitives", "steps", *kinds, "arena bytes"):
        table.add_column(heading, justify="right", min_width=len(max(heading.split(), key=len)))
    for number, (program, row) in enumerate(zip(programs, counts, strict=True)):
        table.add_row(
            str(number),
            str(len(program.recorded.nodes if program.recorded else ())),
            str(program.count),
            *(str(row[kind]) for kind in kinds),
            f"{program.arena_bytes:,}",
        )
    console.print(table)


@click.command(
    cls=Command,
    context_settings={"ignore_unknown_options": True},
    short_help="Show the compiled Programs of a SCRIPT.",
)
@click.argument("script", metavar="SCRIPT|FILE.onnx", type=Script(ENDING))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@sizes_option
@click.option("--program", "number", type=int, help="Which Program, by its number in the table.")
@click.option("--stage", metavar="STAGE", help=f"What to print of it: {', '.join(STAGES)}.")
def show(script: Any, arguments: Any, sizes: Any, number: Any, stage: Any) -> None:
    """Run SCRIPT, or the network of an ONNX file, and show its compiled Programs: a table, or
    one of them at one stage.
    Stages: the graph as recorded and after each pass, as Python that runs; the steps with their
    memory; the C of the kernels."""
    console = Console(width=screen_columns())
    programs = run_script(script, list(arguments), sizes)
    if not programs:
        fix = "Unset GH_BACKEND, and read a value, e.g. with .item()."
        raise BackendError("show", "a script that computes on the lazy backend", "no Program", fix)
    if number is None and stage is None:
        show_programs(console, programs)
        return
    if number is None:
        number = max(range(len(programs)), key=lambda i: programs[i].count)
    if not 0 <= number < len(programs):
        raise click.UsageError(f"expected a program from 0 to {len(programs) - 1}; got {number}.")
    text, language = text_of(programs[number], stage or "steps")
    if console.is_terminal and language != "text":
        console.print(Syntax(text, language, theme="ansi_dark", background_color="default"))
    else:
        click.echo(text)


@click.command(
    cls=Command,
    context_settings={"ignore_unknown_options": True},
    short_help="Say what was captured of a SCRIPT, and what broke.",
)
@click.argument("script", type=Script())
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--guards", is_flag=True, help="Print the guards of each entry as well.")
@click.option("--graphs", is_flag=True, help="Print each graph as Python as well.")
def explain(script: Path, arguments: Any, guards: bool, graphs: bool) -> None:
    """Run SCRIPT and say what was captured, where graphs broke and why, and what recompiled."""
    Capture.instances = []
    try:
        with as_main(script, list(arguments)) as run:
            run()
        explanations = [
            Explanation(capture.name, capture) for capture in Capture.instances if capture.entries
        ]
    finally:
        Capture.instances = None
    if not explanations:
        click.echo("nothing was captured: no function under gh.optimize was called")
    for explanation in explanations:
        echo(explanation.__str__)
        for entry in explanation.entries:
            if graphs and entry.graph is not None:
                click.echo(f"\ngraph of {entry.name}\n{entry.graph.code}")
            if guards:
                click.echo("\n    ".join([f"guards of {entry.name}", *map(str, entry.guards)]))
    fallbacks = current().fallbacks.lines()
    if fallbacks:
        click.echo("\n  ".join(["fallbacks", *fallbacks]))
