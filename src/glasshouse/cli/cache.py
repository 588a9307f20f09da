"""`glasshouse cache`: show, prune, clear, export or fill the compiled code on disk."""

import time
from pathlib import Path
from typing import Any

import click

from glasshouse.base.flags import flags
from glasshouse.base.units import ByteCount, format_bytes
from glasshouse.cli.command import Command
from glasshouse.compile.building.disk_cache import (
    CacheEntry,
    cache_folder,
    clear_entries,
    list_entries,
    prune_entries,
)
from glasshouse.compile.building.portable_cache import export_entries, import_entries

FILE = click.Path(dir_okay=False, path_type=Path)
KINDS = {".so": "libraries of kernels", ".code": "Programs"}


class ByteCountType(click.ParamType):
    """A number of bytes with a unit, such as 200MB."""

    name = "size"

    def convert(self, value: str, param: Any, ctx: Any) -> ByteCount | None:
        try:
            return ByteCount(value)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


@click.command(cls=Command, name="cache", short_help="Manage the folder of compiled code.")
@click.option("--to", "most_bytes", type=ByteCountType(), help="Prune to this size, e.g. 200MB.")
@click.option("--clear", is_flag=True, help="Remove all compiled code.")
@click.option("--export", "target", type=FILE, help="Write all of it to FILE.")
@click.option("--import", "source", type=FILE, help="Add what another one exported to FILE.")
def cache(most_bytes: int | None, clear: bool, target: Path | None, source: Path | None) -> None:
    """Show, prune, clear, export or fill the folder of compiled code.

    The least recently used code is pruned first. Running Programs continue; code that they need
    again later is recompiled. A file of exported code serves machines of the same processor,
    compiler and versions; import only files from people whose code you would run."""
    options = [most_bytes, clear or None, target, source]
    if sum(x is not None for x in options) > 1:
        raise click.UsageError("Give one of --to, --clear, --export and --import.")
    folder = cache_folder()
    if target is not None:
        click.echo(f"exported {described(export_entries(folder, target))}")
    if source is not None:
        click.echo(f"imported {import_entries(source, folder)}")
    if clear or most_bytes is not None:
        removed = clear_entries(folder) if clear else prune_entries(folder, most_bytes or 0)
        click.echo(f"removed  {described(removed)}")
    show_folder(folder)


def show_folder(folder: Path) -> None:
    entries = list_entries(folder)
    limit = f"at most {flags.cache_bytes} (GH_CACHE_BYTES)" if flags.cache_bytes else "no limit"
    click.echo(f"folder   {folder}")
    click.echo(f"entries  {described(entries)}, {limit}")
    for suffix, kind in KINDS.items():
        of_kind = [entry for entry in entries if entry.path.suffix == suffix]
        if of_kind:
            click.echo(f"         {kind}: {described(of_kind)}")
    if entries:
        click.echo(f"oldest   last used {age_of(entries[0])}: {entries[0].path.name}")


def described(entries: list[CacheEntry]) -> str:
    return f"{len(entries)}, {format_bytes(sum(entry.nbytes for entry in entries))}"


def age_of(entry: CacheEntry) -> str:
    seconds = max(0.0, time.time() - entry.used_s)
    for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            number = int(seconds // length)
            return f"{number} {unit}{'s' * (number > 1)} ago"
    return "just now"
