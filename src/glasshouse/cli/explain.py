"""`glasshouse explain`: what capture made of a script: graphs, breaks with reasons, recompiles."""

from pathlib import Path

import click

from glasshouse.capture.report import Explanation
from glasshouse.capture.session import Capture
from glasshouse.cli.show_program import as_main


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--guards", is_flag=True, help="Print the guards of each entry as well.")
@click.option("--graphs", is_flag=True, help="Print each graph as Python as well.")
def explain(script: Path, arguments, guards: bool, graphs: bool) -> None:
    """Run SCRIPT and say what was captured, where graphs broke and why, and what recompiled."""
    Capture.kept = []
    try:
        with as_main(script, list(arguments)) as run:
            run()
        found = [Explanation(capture.name, capture) for capture in Capture.kept if capture.entries]
    finally:
        Capture.kept = None
    if not found:
        click.echo("nothing was captured: no function under gh.optimize was called")
    for explanation in found:
        click.echo(explanation)
        for entry in explanation.entries:
            if graphs and entry.graph is not None:
                click.echo(f"\ngraph of {entry.name}\n{entry.graph.code}")
            if guards:
                click.echo("\n    ".join([f"guards of {entry.name}", *map(str, entry.guards)]))
