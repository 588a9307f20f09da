"""ONNX files on the command line: `glasshouse run`, and calls of networks for other commands."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import glasshouse as gh
from glasshouse.base.errors import OptionError
from glasshouse.cli.command import Command, existing_file, progress, screen_columns
from glasshouse.onnx.network import Network

ENDING = ".onnx"
sizes_option: Callable[..., Any] = click.option(
    "--sizes", multiple=True, metavar="INPUT=SIZES", help="Of an ONNX file's input: x=1x3x64x64."
)


def shapes_of(sizes: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Shapes by name, of texts such as x=1x3x64x64.

    Raises: OptionError for another text
    """
    shapes = {}
    for text in sizes:
        name, _, numbers = text.rpartition("=")
        parts = numbers.split("x") if numbers else []
        if not name or not all(part.isdigit() for part in parts):
            fix = "Give an input and its sizes."
            raise OptionError("--sizes", "INPUT=SIZES, as x=1x3x64x64", repr(text), fix)
        shapes[name] = tuple(map(int, parts))
    return shapes


class OnnxCall:
    """A call of the network of a file, on random inputs."""

    def __init__(self, where: str, name: str, sizes: Iterable[str] = ()) -> None:
        path = existing_file(where, "an ONNX file", name)
        shapes = shapes_of(sizes)
        with progress(f"{name}: loading"):
            self.network: Network = gh.onnx.load(path)
        gh.random.seed(0)
        self.inputs: list[Any] = self.network.examples(shapes)

    def __call__(self) -> list[Any]:
        """The outputs, computed."""
        with gh.no_grad():
            results = self.network(*self.inputs)
        results = list(results) if isinstance(results, tuple) else [results]
        gh.eval(*(x for x in results if isinstance(x, gh.Tensor)))
        return results


@click.command(cls=Command, name="run", short_help="Run the network of an ONNX FILE.")
@click.argument("name", metavar="FILE")
@sizes_option
@click.option("--input", "files", multiple=True, metavar="INPUT=FILE.npy", help="An input's array.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Write them: .npz.")
def run_command(
    name: str, sizes: tuple[str, ...], files: tuple[str, ...], save: Path | None
) -> None:
    """Run the network of an ONNX FILE once and print its outputs. Inputs are arrays of .npy
    files, or random numbers of the sizes that the file says; --sizes says those that it leaves
    open."""
    call = OnnxCall("run", name, sizes)
    names = call.network.input_names
    for text in files:
        own, _, path = text.partition("=")
        if own not in names:
            raise OptionError("--input", f"one of {list(names)}", repr(own), "Name an input.")
        array = np.load(existing_file("--input", "an array", path), allow_pickle=False)
        call.inputs[names.index(own)] = gh.asarray(array)
    with progress(f"{name}: running"):
        results = dict(zip(call.network.output_names, call()))
    show_values(dict(zip(names, call.inputs)), results)
    if save is not None:
        np.savez(save, **{key: x.numpy() for key, x in results.items() if x is not None})


def show_values(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    """A line for each input and output: type, sizes, smallest, mean and largest."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for heading in ("", "name", "type", "smallest", "mean", "largest"):
        table.add_column(heading, justify="left" if heading in ("", "name", "type") else "right")
    for kind, values in (("input", inputs), ("output", outputs)):
        for key, x in values.items():
            if not isinstance(x, gh.Tensor):
                table.add_row(kind, key, type(x).__name__)
                continue
            array = x.numpy()
            parts = [array.min(), array.mean(dtype=float), array.max()] if array.size else []
            table.add_row(kind, key, str(x.spec), *(f"{part:.4g}" for part in parts))
    Console(width=screen_columns()).print(table)
