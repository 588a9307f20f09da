"""`glasshouse analyze` and `glasshouse calibrate`: what a model will cost, before it runs."""

import json
from pathlib import Path

import click

import glasshouse as gh
from glasshouse.analyze import MachineProfile, calibrate, plan, symbolic_profile, symbolic_trace
from glasshouse.analyze.meta import specs_of
from glasshouse.analyze.step import step, with_batch
from glasshouse.base.errors import OptionError, check_known
from glasshouse.base.units import parse_budget
from glasshouse.cli.bench_worker import CASES, Ours
from glasshouse.cli.command import Command, echo, progress, user_function
from glasshouse.nn.functional import cross_entropy

OPTIMIZERS = {"sgd": gh.optim.SGD, "adamw": gh.optim.AdamW, "adam": gh.optim.Adam}


class AnalyzedModel:
    """A model with the specs of its inputs and its loss: a built-in one, or `module:function`."""

    def __init__(self, name: str, smoke: bool):
        with gh.meta():
            if ":" in name:
                self.model, inputs, self.loss = load(name)
            else:
                what = "the name of a model, or module:function"
                built = Ours(check_known("analyze", what, name, CASES), None, "float32", smoke)
                self.model, inputs = built.model, (built.inputs, *built.targets)
                self.loss = built.loss_of
        self.inputs = specs_of(inputs)


def load(name: str):
    """(model, inputs, loss) of a user's function: it returns model and inputs, perhaps a loss.

    Raises: OptionError for a name that leads nowhere, or a function that returns something else.
    """
    returned = user_function("analyze", name)()
    if not isinstance(returned, tuple) or len(returned) not in (2, 3):
        raise OptionError(
            "analyze",
            f"{name} to return (model, inputs) or (model, inputs, loss)",
            type(returned).__name__,
            "Return the model and its inputs.",
        )
    return (*returned, cross_entropy) if len(returned) == 2 else returned


def show_nodes(
    model: AnalyzedModel, inputs, convention: str, sort: str | None, as_json: bool
) -> None:
    with progress("tracing"):
        gm = symbolic_trace(model.model, [inputs[0]])
        costs = symbolic_profile(gm, inputs[0], convention=convention)
    costs = costs.sorted(sort) if sort else costs
    if as_json:
        click.echo(costs.to_json())
    else:
        echo(lambda: f"{costs.table()}\n{costs.modules()}")


@click.command(cls=Command, short_help="Say what a MODEL costs without running it.")
@click.argument("name", metavar="MODEL")
@click.option("--batch", type=click.IntRange(1), help="Batch size.")
@click.option("--train", is_flag=True, help="A whole training step: peak memory, FLOPs, time.")
@click.option("--optimizer", type=click.Choice(sorted(OPTIMIZERS)), default="sgd")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16"]), default="float32")
@click.option("--machine", default="cpu2", help="cpu2, h200, or a file of `calibrate`.")
@click.option("--budget", help="Plan recomputation: 1.5GiB, 800MB, bytes, or 60% of the peak.")
@click.option("--convention", type=click.Choice(["exact", "colossal"]), default="exact")
@click.option("--sort", help="Column to sort the nodes by.")
@click.option("--depth", type=click.IntRange(1), default=3, help="Levels of modules to print.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--smoke", is_flag=True, help="A tiny model, to try the command.")
def analyze(
    name, batch, train, optimizer, dtype, machine, budget, convention, sort, depth, as_json, smoke
):
    """Say what a MODEL costs without running it: a built-in one, or module:function.
    The function returns (model, inputs) or (model, inputs, loss); inputs are tensors, or pairs of
    shape and dtype, the model's input first. Without --train: every node of the forward."""
    with progress(f"{name}: building"):
        model = AnalyzedModel(name, smoke)
    inputs = with_batch(model.inputs, batch) if batch else model.inputs
    if not train and budget is None:
        show_nodes(model, inputs, convention, sort, as_json)
        return
    options = {"autocast": None if dtype == "float32" else dtype, "machine": machine}
    optimizer_object = OPTIMIZERS[optimizer](model.model.parameters(), lr=1e-3)
    if budget is not None:
        size = parse_budget("--budget", budget)
        with progress(f"{name}: planning"):
            step_plan = plan(model.model, model.loss, optimizer_object, inputs, size, **options)
        echo(step_plan.table)
        click.echo(step_plan.code())
        return
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
def calibrate_command(path, smoke):
    """Measure this machine in some seconds, and write its profile to PATH."""
    with progress("measuring this machine"):
        machine_profile: MachineProfile = calibrate(path.stem, smoke)
    machine_profile.save(path)
    for name, points in machine_profile.matrix.items():
        rates = ", ".join(f"{rate / 1e9:,.0f}" for _, rate in points)
        click.echo(f"{name}: {rates} GFLOP/s by size")
    rates = ", ".join(f"{rate / 1e9:,.1f}" for _, rate in machine_profile.bandwidth)
    click.echo(f"bandwidth: {rates} GB/s by size\nprofile: {path}")
