"""`glasshouse profile` and `glasshouse flops`: what a script or a built-in model costs."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.core import ParameterSource

import glasshouse as gh
from glasshouse.base.errors import check_known
from glasshouse.bench.worker import CASES, Ours
from glasshouse.cli.command import (
    Command,
    echo,
    existing_file,
    names_file,
    progress,
    script_file,
    user_function,
)
from glasshouse.cli.onnx_files import ENDING, OnnxCall, sizes_option
from glasshouse.cli.show_program import as_main
from glasshouse.profile import Comparison, FlopCounter
from glasshouse.profile.advice import advice
from glasshouse.profile.report import data_of, read_before
from glasshouse.profile.tables import kernel_table
from glasshouse.profile.text import writable
from glasshouse.profile.traces.chrome import ENDINGS

FILE = click.Path(dir_okay=False)
OLD_FILE = click.Path(exists=True, dir_okay=False)
SLOWER = 1  # exit code of a run that is slower than it may be


class ProfiledModel(Ours):
    inputs: "gh.Tensor"
    targets: "list[gh.Tensor]"

    def __init__(self, name: str, batch: int | None, dtype: str, smoke: bool) -> None:
        super().__init__(name, None, dtype, smoke)
        if batch is not None:
            arrays = [x.numpy() for x in (self.inputs, *self.targets)]
            resized = [np.resize(a, (batch, *a.shape[1:])) for a in arrays]
            self.inputs, *self.targets = map(gh.asarray, resized)


def target_of(name: str, arguments: tuple[str, ...]) -> Path | Callable[[], object] | str:
    """A script, a function or a model; the options of one are an error beside the others."""
    context = click.get_current_context()
    command = str(context.info_name)
    if name.endswith(ENDING):
        return OnnxCall(command, name, context.params["sizes"])
    if ":" in name and not Path(name).exists():
        return user_function(command, name)
    if name.startswith("-"):
        raise click.NoSuchOption(name, ctx=context)
    if name in CASES or not names_file(name):
        what = "a script, module:function or the name of a model"
        check_known(command, what, name, CASES)
        if arguments:
            raise click.UsageError(f"A MODEL takes no {arguments[0]!r}.")
        return name
    path = script_file(command, name)
    source = context.get_parameter_source
    for option in ("steps", "batch", "dtype", "smoke"):
        if source(option) is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"--{option} is for a MODEL; a SCRIPT's own options stand "
                f"after --: {name} -- --{option} …"
            )
    return path


def run_steps(
    target: Any,
    arguments: tuple[Any, ...],
    prof: Any,
    steps: int,
    batch: Any,
    dtype: str,
    smoke: bool,
) -> None:
    if isinstance(target, Path):
        with as_main(target, arguments) as run, prof:
            run()
        return
    if callable(target):
        target()  # whatever is made or compiled the first time
        with prof:
            for _ in range(steps):
                target()
                prof.step()
        return
    with progress(f"{target}: building") as tell:
        model = ProfiledModel(target, batch, dtype, smoke)
        model.compute_weights()
        for _ in range(2):
            tell(f"{target}: compiling")
            model.train().item()
    with prof:  # nothing else runs beside what is profiled
        for _ in range(steps):
            model.train().item()
            prof.step()


@click.command(
    cls=Command,
    context_settings={"ignore_unknown_options": True},
    short_help="Show where the time of a SCRIPT or MODEL goes, or of a TRACE.",
)
@click.argument("target", metavar="SCRIPT|MODULE:FUNCTION|MODEL|FILE.onnx|TRACE")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@sizes_option
@click.option("--steps", type=click.IntRange(1), default=3, help="Steps of a MODEL.  [default: 3]")
@click.option("--batch", type=click.IntRange(1), help="Batch size of a MODEL.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16"]), default="float32")
@click.option("--depth", type=click.IntRange(1), default=3, help="Levels of modules to print.")
@click.option("--report", type=FILE, help="Write the HTML page here.")
@click.option("--trace", type=FILE, help="Write a Perfetto trace here.")
@click.option("--hta", is_flag=True, help="Make the trace one for HolisticTraceAnalysis.")
@click.option("--json", "json_path", type=FILE, help="Write the tables here.")
@click.option("--stack", is_flag=True, help="Record Python stacks.")
@click.option("--functions", is_flag=True, help="Record when Python functions run; costs more.")
@click.option("--against", type=OLD_FILE, help="JSON of another run.")
@click.option("--fail-above", type=float, help="With --against: exit 1 if this many % slower.")
@click.option("--merge", is_flag=True, help="Make one trace of several TRACEs, of ranks.")
@click.option("--smoke", is_flag=True, help="A tiny MODEL, to try the command.")
def profile(
    target: str,
    arguments: tuple[str, ...],
    sizes: tuple[str, ...],
    steps: int,
    batch: int | None,
    dtype: str,
    depth: int,
    report: str | None,
    trace: str | None,
    hta: bool,
    json_path: str | None,
    stack: bool,
    functions: bool,
    against: str | None,
    fail_above: float | None,
    merge: bool,
    smoke: bool,
) -> None:
    """Run a SCRIPT, a MODULE:FUNCTION or training steps of a MODEL, and show where time and memory
    go. SCRIPT and function may be ours or PyTorch's; a function, and the network of an ONNX file,
    is called once a step.
    Prints modules, kernels, a step's parts, memory and advice; writes a page, a trace and JSON on
    request, also of a script that fails or is interrupted. A script's own options follow `--`.
    With --against it compares the step time with another run's, and says whether the change is
    more than noise.
    A TRACE that torch.profiler wrote (.json, .json.gz) is read instead of running anything.
    With --merge the traces of ranks become one file, `merged.json` or that of --trace, with a
    process for each rank and aligned clocks."""
    if merge:
        for name in (target, *arguments):
            existing_file("profile --merge", "a trace", name)
        click.echo(
            f"trace: {gh.profile.profile.merge([target, *arguments], trace or 'merged.json')}"
        )
        return
    if fail_above is not None and against is None:
        raise click.UsageError("--fail-above needs --against.")
    before = read_before(against) if against else None
    for path, endings in ((report, ("",)), (trace, ENDINGS), (json_path, ("",))):
        if path:
            writable("profile", path, endings)
    if target.endswith(ENDINGS) and Path(target).is_file():
        prof = gh.profile.profile.read(target)
        show(prof, depth, report, against, trace, hta, json_path)
        compare(before, prof, fail_above)
        return
    script_or_model = target_of(target, arguments)
    prof = gh.profile.profile(
        profile_memory=True, record_shapes=True, with_stack=stack, with_functions=functions
    )
    try:
        run_steps(script_or_model, arguments, prof, steps, batch, dtype, smoke)
    finally:
        if prof.recorded is not None:
            show(prof, depth, report, against, trace, hta, json_path)
    compare(before, prof, fail_above)


def compare(before: dict[Any, Any] | None, prof: Any, fail_above: float | None) -> None:
    """Compare a run with `before`; exit with code 1 if it is slower by more than `fail_above` %."""
    if before is not None:
        compared = Comparison(before, data_of(prof.trace))
        echo(compared.table)
        if fail_above is not None and compared.is_slower(fail_above):
            sys.exit(SLOWER)


def show(
    prof: Any,
    depth: int,
    report: Any,
    against: str | None,
    trace: Any,
    hta: bool,
    json_path: str | None,
) -> None:
    echo(lambda: prof.modules().table(depth))
    echo(lambda: kernel_table(prof.trace))
    echo(lambda: prof.breakdown().table() + prof.input_pipeline().sentence + "\n")
    if prof.trace.with_functions:
        echo(lambda: prof.functions().table())
    if prof.trace.with_memory:
        echo(lambda: prof.memory().table(10))
    for number, tip in enumerate(advice(prof.trace), 1):
        echo(partial("{}. {}\n".format, number, tip))
    if report:
        click.echo(f"report: {prof.report(report, against)}")
    if trace:
        click.echo(f"trace: {prof.export_chrome_trace(trace, hta)}")
    if json_path:
        prof.export_json(json_path)


@click.command(
    cls=Command,
    context_settings={"ignore_unknown_options": True},
    short_help="Count the FLOPs of a SCRIPT or MODEL.",
)
@click.argument("target", metavar="SCRIPT|MODULE:FUNCTION|MODEL")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@sizes_option
@click.option("--batch", type=click.IntRange(1), help="Batch size of a MODEL.")
@click.option("--depth", type=click.IntRange(1), default=3, help="Levels of modules to print.")
@click.option("--all", "everything", is_flag=True, help="All primitives, not only products.")
@click.option("--macs", is_flag=True, help="Count a multiply-add as 1.")
@click.option("--smoke", is_flag=True, help="A tiny MODEL, to try the command.")
def flops(
    target: str,
    arguments: tuple[str, ...],
    sizes: tuple[str, ...],
    batch: int | None,
    depth: int,
    everything: bool,
    macs: bool,
    smoke: bool,
) -> None:
    """Count the FLOPs of a SCRIPT, of a call of MODULE:FUNCTION, or of a training step of a MODEL,
    by module and operator. Scripts and functions may be ours or PyTorch's. A MODEL is only
    recorded: nothing is computed. A script's own options stand after `--`."""
    script_or_model = target_of(target, arguments)
    counter = FlopCounter(multiply_add=1 if macs else 2)
    try:
        if isinstance(script_or_model, Path):
            with as_main(script_or_model, arguments) as run, counter:
                run()
        elif callable(script_or_model):
            with counter:
                script_or_model()
        else:
            with progress(f"{script_or_model}: counting"):
                model = ProfiledModel(script_or_model, batch, "float32", smoke)
                with counter:
                    model.loss().backward()
            shapes = ", ".join(str(x.spec) for x in (model.inputs, *model.targets))
            rows = model.inputs.shape[0]
            click.echo(f"{script_or_model}: a training step, batch {rows}, of {shapes}")
    finally:
        echo(lambda: counter.table(depth, "all" if everything else "matrix"))
