"""`glasshouse bench`: how fast models train here, and in PyTorch where it is installed."""

from pathlib import Path
from typing import Any

import click
from rich.console import Console

from glasshouse.base.errors import BackendError
from glasshouse.bench.own_models import MODES, bench_twins
from glasshouse.bench.torch_modes import bench_torch
from glasshouse.cli.command import Command, progress, screen_columns


@click.command(cls=Command, name="bench")
@click.argument("models", nargs=-1, metavar="[MODEL]…")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16"]),
    default="float32",
    show_default=True,
    help="bfloat16: both frameworks under autocast.",
)
@click.option(
    "--against",
    help=f"Modes beside ours: some of {','.join(MODES)}, or '' for none. "
    f"The last is ours under gh.optimize.",
)
@click.option("--steps", type=click.IntRange(1), help="Timed steps of each.  [default: 5]")
@click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("runs/bench.json"),
    show_default=True,
    help="Where records go.",
)
@click.option(
    "--chart",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the chart goes.  [default: beside the records]",
)
@click.option("--smoke", is_flag=True, help="Tiny models and 2 steps: only shows that it works.")
@click.option(
    "--torch",
    "compiled",
    is_flag=True,
    help="Twelve models of torchvision and transformers, compiled by us, beside PyTorch's modes.",
)
@click.option("--inference", is_flag=True, help="With --torch: calls without gradients.")
def bench(
    models: tuple[str, ...],
    dtype: str,
    against: str | None,
    steps: Any,
    json_path: Path,
    chart: Any,
    smoke: bool,
    compiled: bool,
    inference: bool,
) -> None:
    """Train models here and in PyTorch, and compare time and memory.
    A step is zero_grad, forward, loss, backward and an SGD update. Models: all by default, of
    alexnet, vgg16, resnet50, bert, asr, vit_b_16, detr, unet, conformer, llama, lstm; a wrong name
    with --torch lists its own."""
    console = Console(highlight=False, width=screen_columns())
    if compiled:
        options = {"dtype": dtype, "smoke": smoke, "inference": inference}
        bench_torch(models, against, steps, options, json_path, console)
    elif inference:
        raise BackendError("bench", "--inference with --torch", "--inference alone", "Add --torch.")
    else:
        options = {"dtype": dtype, "against": against, "steps": steps, "smoke": smoke}
        bench_twins(models, console, progress, json_path=json_path, chart=chart, **options)
