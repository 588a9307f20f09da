"""The `glasshouse` command and its options; the work is done in the files that it calls."""

import math
import os
import sys
from pathlib import Path
from typing import Any

import click
from rich.table import Table

import glasshouse as gh
from glasshouse.apps import APPS
from glasshouse.base.errors import (
    BackendError,
    CheckpointError,
    CollectiveError,
    DeviceError,
    OptionError,
    suggest,
)
from glasshouse.base.flags import declared, flags
from glasshouse.cli.analyze import analyze, calibrate_command
from glasshouse.cli.apps import (
    AppCommand,
    console,
    data_command,
    detect_command,
    search_command,
    transcribe_command,
    translate_command,
)
from glasshouse.cli.bench import bench
from glasshouse.cli.build import build
from glasshouse.cli.cache import cache
from glasshouse.cli.command import Command
from glasshouse.cli.docs import docs
from glasshouse.cli.export import export_command
from glasshouse.cli.generate import generate_command
from glasshouse.cli.info import show_info
from glasshouse.cli.launch import launch_command
from glasshouse.cli.onnx_files import run_command
from glasshouse.cli.profile import flops, profile
from glasshouse.cli.serve import serve_command
from glasshouse.cli.show_ops import FIELDS, show_card, show_field, show_table
from glasshouse.cli.show_program import explain, show
from glasshouse.cli.train_digits import Diverged, TrainingRecipe, train, train_on_ranks
from glasshouse.dispatch import find

INTERRUPTED = 130  # 128 + SIGINT, as shells report it


class Group(click.Group):
    """A click group that suggests the nearest command and shows our errors without a traceback."""

    command_class: Any = Command

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            nearest = suggest(args[0], self.list_commands(ctx))
            raise click.UsageError(f"No command {args[0]!r}. {nearest}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except OptionError as error:
            raise click.UsageError(str(error), ctx) from error
        except (BackendError, CheckpointError, CollectiveError, DeviceError, Diverged) as error:
            raise click.ClickException(str(error)) from error
        except BrokenPipeError:  # the reader of a pipe (head, less) has left
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return None
        except OSError as error:
            raise click.ClickException(str(error)) from error


class Rate(click.ParamType):
    """A finite number above 0."""

    name = "number"

    def convert(self, value: str, param: Any, ctx: Any) -> Any:
        try:
            rate = float(value)
        except ValueError:
            rate = math.nan
        if not (math.isfinite(rate) and rate > 0):
            self.fail(f"expected a finite number above 0; got {value!r}.", param, ctx)
        return rate


def recipe_option(name: str, kind: Any, text: str) -> Any:
    shown = f"{text}.  [default: {getattr(TrainingRecipe, name)}]"
    return click.option("--" + name.replace("_", "-"), type=kind, help=shown)


class TrainGroup(Group):
    """`glasshouse train`: applications are imported when they are named, or listed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted({*super().list_commands(ctx), *APPS})

    def get_command(self, ctx: Any, name: str) -> Any:
        return super().get_command(ctx, name) or (AppCommand(name) if name in APPS else None)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(gh.__version__, prog_name="glasshouse")
def main() -> Any:
    """Glasshouse: a machine-learning framework whose inside is open."""


@main.group("train", cls=TrainGroup)
def train_group() -> Any:
    """Train an application on real data."""


@train_group.command("digits")
@recipe_option("epochs", click.IntRange(1, 10_000), "Passes over the images")
@recipe_option("lr", Rate(), "Learning rate at first; it falls by epoch")
@recipe_option("batch_size", click.IntRange(1, 1437), "Images per step")
@recipe_option("seed", click.IntRange(0, 2**32 - 1), "Decides all that is random")
@click.option("--backend", default=None, help="numpy, torch or torch:cuda.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, writable=True, path_type=Path),
    default=Path("runs/digits"),
    show_default=True,
    help="Folder for checkpoint, learning curve and numbers.",
)
@click.option("--resume", is_flag=True, help="Go on from the checkpoint in the folder.")
@click.option(
    "--ranks",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Processes that share out each batch; also another number than before --resume.",
)
def train_digits(backend: str | None, out: Path, resume: bool, ranks: int, **options: Any) -> None:
    """Train a small convolutional network on 1,797 handwritten digits.

    Takes seconds on a laptop. Each epoch ends with a checkpoint; the same seed gives the same
    numbers, also when a run was stopped and resumed."""
    settings = {name: value for name, value in options.items() if value is not None}
    backend = backend or flags.backend
    try:
        if ranks == 1:
            train(settings, Path(out), resume, backend, console())
        else:
            train_on_ranks(ranks, settings, Path(out), resume, backend, console())
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


@main.command("ops")
@click.argument("name", required=False)
@click.option("--field", metavar="FIELD", help=f"One of: {', '.join(FIELDS)}.")
def ops(name: str | None, field: str | None) -> None:
    """Show the primitive cards, one field, or one card."""
    if name and field:
        raise click.UsageError("Give a card's name or --field, not both.")
    if name:
        show_card(console(), find(name))
    elif field:
        show_field(console(), field)
    else:
        show_table(console())


@main.command("info")
def info() -> None:
    """Show the machine, versions, backends and compiler."""
    show_info(console())


@main.command("flags")
def show_flags() -> None:
    """Show the GH_… settings and their values."""
    headings = ("variable", "type", "default", "now", "meaning")
    table = Table(*headings, box=None, show_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for flag in declared:
        now, default = str(getattr(flags, flag.name)), str(flag.default)
        shown = now if now == default else f"[bold cyan]{now}[/]"
        table.add_row(flag.variable, flag.kind.__name__, default, shown, flag.help)
    console().print(table)


for command in (
    analyze,
    bench,
    build,
    cache,
    calibrate_command,
    data_command,
    detect_command,
    search_command,
    transcribe_command,
    translate_command,
    docs,
    explain,
    export_command,
    flops,
    generate_command,
    launch_command,
    profile,
    run_command,
    serve_command,
    show,
):
    main.add_command(command)
