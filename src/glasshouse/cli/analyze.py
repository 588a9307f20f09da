"""`glasshouse analyze` and `glasshouse calibrate`: what a model will cost, before it runs."""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import click

import glasshouse as gh
from glasshouse.analyze import MachineProfile, calibrate, plan, symbolic_profile, symbolic_trace
from glasshouse.analyze.meta import specs_of
from glasshouse.analyze.step import batched, is_torch_module, step, usual_loss
from glasshouse.base.errors import OptionError, check_known
from glasshouse.base.units import parse_budget
from glasshouse.bench.worker import CASES, Ours
from glasshouse.cli.command import Command, echo, names_file, progress, script_file, user_function
from glasshouse.cli.onnx_files import ENDING, OnnxCall, sizes_option
from glasshouse.cli.show_program import as_main
from glasshouse.compile.steps.work import DRAWS
from glasshouse.estimate import fits
from glasshouse.onnx.network import Network

OPTIMIZERS: dict[str, Any] = {"sgd": gh.optim.SGD, "adamw": gh.optim.AdamW, "adam": gh.optim.Adam}


class OneInput(gh.nn.Module):
    """The network of an ONNX file as a model of its first input, with a loss."""

    network: "Network"
    rest: list[Any]

    def __init__(self, call: OnnxCall) -> None:
        super().__init__()
        self.network, self.rest = call.network, call.inputs[1:]

    def forward(self, x: Any) -> Any:
        results = self.network(x, *self.rest)
        results = results if isinstance(results, tuple) else (results,)
        return sum((y.astype(gh.float32) ** 2).mean() for y in results)


class AnalyzedModel:
    """A model with its inputs, loss and perhaps optimizer: a built-in one, the result of
    `module:function`, or a script's values of these names. It may be PyTorch's."""

    model: Any

    def __init__(self, name: str, smoke: bool, sizes: tuple[str, ...] = ()) -> None:
        self.optimizer: Any = None
        with gh.meta():
            if name.endswith(ENDING):
                call = OnnxCall("analyze", name, sizes)
                self.take(name, (OneInput(call), call.inputs[:1], None))
            elif name.endswith(".py") and Path(name).is_file():
                self.take(name, in_script(Path(name)))
            elif ":" in name:
                self.take(name, user_function("analyze", name)())
            elif name not in CASES and names_file(name):
                self.take(name, in_script(script_file("analyze", name)))
            else:
                what = "the name of a model, a script, or module:function"
                built = Ours(check_known("analyze", what, name, CASES), None, "float32", smoke)
                self.take(name, (built.model, (built.inputs, *built.targets), built.loss_of))

    def take(self, name: str, parts: Any) -> None:
        """Model, inputs, loss and optimizer, of which the last two may be missing.

        Raises: OptionError for something else
        """
        if not isinstance(parts, tuple) or len(parts) not in (2, 3, 4):
            expected = f"{name} to return (model, inputs) or (model, inputs, loss, optimizer)"
            raise OptionError("analyze", expected, type(parts).__name__, "Return both.")
        self.model, inputs = parts[:2]
        self.is_torch: bool = is_torch_module(self.model)
        self.inputs: Any = inputs if self.is_torch else specs_of(inputs)
        self.loss: Any = parts[2] if len(parts) > 2 else usual_loss(self.model, inputs)
        self.optimizer = parts[3] if len(parts) > 3 else None

    def with_batch(self, batch: int) -> list[Any]:
        """The inputs with another first axis."""
        return batched(self.model, self.inputs, batch)

    def optimizer_named(self, name: str) -> Any:
        """The model's own, or one of this name."""
        kinds = OPTIMIZERS
        if self.is_torch:
            torch = sys.modules["torch"]
            kinds = {kind.lower(): getattr(torch.optim, kind) for kind in ("SGD", "AdamW", "Adam")}
        return self.optimizer or kinds[name](self.model.parameters(), lr=1e-3)


def in_script(path: Path) -> tuple[Any, ...]:
    """(model, inputs, loss, optimizer) of a script, as far as it has them.

    Raises: OptionError for a script without model or inputs
    """
    with as_main(path, ()):
        names = runpy.run_path(str(path), run_name="analyzed")
    if "model" not in names or "inputs" not in names:
        expected, fix = f"model and inputs in {path}", "Give them these names, outside of main()."
        raise OptionError("analyze", expected, "neither, or one", fix)
    last = ("loss", "optimizer") if "optimizer" in names else ("loss",) if "loss" in names else ()
    return (names["model"], names["inputs"], *map(names.get, last))


def show_nodes(
    model: AnalyzedModel, inputs: list[Any], convention: str, sort: str | None, as_json: bool
) -> None:
    with progress("tracing"):
        gm = symbolic_trace(model.model, [inputs[0]])
        costs = symbolic_profile(gm, inputs[0], convention=convention)
    costs = costs.sorted(sort) if sort else costs
    if as_json:
        click.echo(costs.to_json())
    else:
        echo(lambda: f"{costs.table()}\n{costs.modules()}")


def show_fit(
    model: AnalyzedModel,
    inputs: Any,
    optimizer: Any,
    device: str,
    options: dict[Any, Any],
    as_json: bool,
) -> None:
    """Show whether a step fits, and what to change."""
    with progress("analysing steps"):
        answer = fits(model.model, optimizer, inputs, device, loss=model.loss, **options)
    if as_json:
        click.echo(json.dumps(answer.to_dict()))
    else:
        echo(answer.__str__)


@click.command(cls=Command, short_help="Say what a MODEL costs without running it.")
@click.argument("name", metavar="MODEL|SCRIPT|MODULE:FUNCTION|FILE.onnx")
@sizes_option
@click.option("--batch", type=click.IntRange(1), help="Batch size.")
@click.option("--train", is_flag=True, help="A whole training step: peak memory, FLOPs, time.")
@click.option("--optimizer", type=click.Choice(sorted(OPTIMIZERS)), default="sgd")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16"]), default="float32")
@click.option("--machine", default="cpu2", help="cpu2, h200, or a file of `calibrate`.")
@click.option("--budget", help="Plan recomputation: 1.5GiB, 800MB, bytes, or 60% of the peak.")
@click.option("--fits", "device", help="Whether a training step fits such memory: 24GiB, bytes.")
@click.option("--convention", type=click.Choice(["exact", "colossal", "torch"]))
@click.option("--sort", help="Column to sort the nodes by.")
@click.option("--depth", type=click.IntRange(1), default=3, help="Levels of modules to print.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--smoke", is_flag=True, help="A tiny model, to try the command.")
def analyze(
    name: str,
    sizes: tuple[str, ...],
    batch: int | None,
    train: bool,
    optimizer: str,
    dtype: str,
    machine: str,
    budget: str | None,
    device: str | None,
    convention: str | None,
    sort: str | None,
    depth: int,
    as_json: bool,
    smoke: bool,
) -> None:
    """Show the costs of a MODEL without running it: a built-in one, the result of module:function,
    or one from a script. The function returns (model, inputs), and perhaps a loss and an optimizer;
    inputs are tensors, or pairs of shape and dtype, the model's input first. A script defines
    model, inputs, loss, optimizer; it is imported, so __name__ is not "__main__".
    Of an ONNX file: a training step, with the mean of the outputs' squares as its loss.
    Without --train: every node of the forward. Of a torch.nn.Module: a training step of PyTorch's
    own; with --convention exact of one that our backend compiles; with colossal, every node."""
    with progress(f"{name}: building"):
        model = AnalyzedModel(name, smoke, sizes)
    inputs = model.with_batch(batch) if batch else model.inputs
    convention = convention or ("torch" if model.is_torch else "exact")
    train = train or name.endswith(ENDING)
    if not (train or budget or device) and (not model.is_torch or convention == "colossal"):
        show_nodes(model, inputs, convention, sort, as_json)
        return
    options: dict[str, Any] = {
        "autocast": None if dtype == "float32" else dtype,
        "machine": machine,
    }
    optimizer_object = model.optimizer_named(optimizer)
    if device is not None:
        show_fit(
            model, inputs, optimizer_object, device, {**options, "convention": convention}, as_json
        )
        return
    if budget is not None:
        options["budget"] = parse_budget("--budget", budget)
        with progress(f"{name}: planning"):
            step_plan = plan(model.model, model.loss, optimizer_object, inputs, **options)
        echo(step_plan.table)
        click.echo(step_plan.code())
        return
    options["convention"] = convention
    with progress(f"{name}: analysing a step"):
        analysis = step(model.model, model.loss, optimizer_object, inputs, **options)
    if as_json:
        click.echo(json.dumps(analysis.to_dict()))
    else:
        echo(lambda: analysis.table(depth))


@click.command(
    cls=Command, name="calibrate", short_help="Measure this machine, and write its profile."
)
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--smoke", is_flag=True, help="Small sizes only, to try the command.")
def calibrate_command(path: Path, smoke: Any) -> None:
    """Measure this machine for about a minute, and write its profile to PATH."""
    with progress("measuring this machine"):
        machine_profile: MachineProfile = calibrate(path.stem, smoke)
    machine_profile.save(path)
    for name, points in machine_profile.matrix.items():
        rates = ", ".join(f"{rate / 1e9:,.0f}" for _, rate in points)
        if name.startswith(DRAWS):
            click.echo(f"random numbers: {points[0][1] / 1e6:,.0f} million a second")
        else:
            click.echo(f"{name}: {rates} GFLOP/s by size")
    rates = ", ".join(f"{rate / 1e9:,.1f}" for _, rate in machine_profile.bandwidth)
    click.echo(f"bandwidth: {rates} GB/s by size\nprofile: {path}")
