"""Shared parts of all commands: errors with a command's own usage, the screen's width, progress."""

import contextlib
import importlib
import os
import shutil
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from glasshouse.base.errors import OptionError
from glasshouse.profile.text import within

PIPED_COLUMNS = 80  # where neither a terminal nor COLUMNS says how wide lines may be


class Command(click.Command):
    """A command whose errors about options show its own usage, not the group's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[Any]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click leaves it out where an option lacks its argument
            raise

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except OptionError as error:
            raise click.UsageError(str(error), ctx) from error


PROGRAMS = ("", ".py", ".pyw")  # how the names of Python programs end


def script_file(where: str, name: str) -> Path:
    """The Python program of this name.

    Raises: OptionError for a file that does not exist, a folder, or a file of another kind
    """
    path = existing_file(where, "a script", name)
    if path.suffix not in PROGRAMS or not (path.suffix or is_python(path)):
        fix = "Name a file of Python, such as train.py."
        raise OptionError(where, "a Python program", f"{name!r}, a file of another kind", fix)
    return path


def existing_file(where: str, what: str, name: str) -> Path:
    """The path of this name, where `what` is expected.

    Raises: OptionError for a file that does not exist, and a folder
    """
    path = Path(name)
    if path.is_dir():
        raise OptionError(where, what, f"the folder {name!r}", "Name a file in it.")
    if not path.is_file():
        fix = "Check the path, and where you run it."
        raise OptionError(where, what, f"{name!r}, a file that does not exist", fix)
    return path


def names_file(name: str) -> bool:
    """Whether a word on the command line is a path, of a file that exists or does not."""
    return Path(name).exists() or os.sep in name or bool(Path(name).suffix)


def is_python(path: Path) -> bool:
    """Whether Python can compile a file."""
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


class Script(click.ParamType):
    """A Python program on the command line."""

    name = "script"

    def __init__(self, *endings: str) -> None:
        self.endings = endings  # of other files that the command takes

    def convert(self, value: str, param: Any, ctx: Any) -> Any:
        if self.endings and str(value).endswith(self.endings):
            return existing_file(ctx.info_name, "a file", str(value))
        return script_file(ctx.info_name, str(value))


def user_function(where: str, name: str) -> Callable[..., Any]:
    """The user's function that "module:function" names; modules of the working folder are found.

    Raises: OptionError for a name that leads nowhere.
    """
    module, _, function = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        fix = "Check both names, and run it where the module lies."
        got = f"{name!r} ({error})"
        raise OptionError(where, "module:function that can be imported", got, fix) from error


def screen_columns() -> int:
    """How wide lines may be."""
    if "COLUMNS" in os.environ or sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    return PIPED_COLUMNS


def echo(make: Callable[[], str]) -> None:
    """Print a text whose tables are made to fit the screen; its longer lines are folded."""
    columns = screen_columns()
    with within(columns):
        lines = make().split("\n")
    for line in lines:
        folded = (
            textwrap.wrap(line, columns, subsequent_indent="    ") if len(line) > columns else []
        )
        click.echo("\n".join(folded) or line)


@contextlib.contextmanager
def progress(text: str) -> Iterator[Callable[[str], None]]:
    """Context: shows `text` on a terminal while it lasts; yields a function that changes it."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status(f"{text} …") as status:
        yield lambda text: status.update(f"{text} …")
