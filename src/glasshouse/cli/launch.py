"""`glasshouse launch`: a script on several ranks."""

import re
import sys
from pathlib import Path
from typing import Any

import click

from glasshouse.base.errors import OptionError
from glasshouse.cli.command import script_file
from glasshouse.distributed.groups.membership import transports
from glasshouse.distributed.launching.nodes import NodePlace
from glasshouse.distributed.launching.supervise import LaunchPlan, launch


@click.command("launch", context_settings={"allow_interspersed_args": False})
@click.option("-n", "--ranks", type=click.IntRange(1), required=True, help="How many processes.")
@click.option("-m", "--module", is_flag=True, help="SCRIPT is the name of a module.")
@click.option(
    "--transport",
    type=click.Choice(sorted(transports)),
    help="What moves data between ranks; mpi starts them by mpiexec.",
)
@click.option("--timeout", type=float, help="Seconds that a collective may take.  [default: 30]")
@click.option(
    "--restarts",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="How many times the script restarts when a rank has failed; GH_RESTART tells it.",
)
@click.option(
    "--min-ranks",
    type=click.IntRange(1),
    help="Restart on the ranks that are left, at least so many.  [default: all]",
)
@click.option(
    "--logs",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for a file of what each rank prints.",
)
@click.option("--nodes", type=click.IntRange(1), default=1, help="How many machines.")
@click.option("--node-rank", type=click.IntRange(0), default=0, help="Which of them this is.")
@click.option("--master", metavar="HOST:PORT", help="Where the first machine's launcher listens.")
@click.option("--quiet-ranks", is_flag=True, help="Show what rank 0 prints, and errors, alone.")
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def launch_command(
    ranks: int, module: bool, script: str, args: tuple[Any, ...], **options: Any
) -> None:
    """Run SCRIPT on several ranks of this machine, a process each.

    gh.distributed.init() in the script finds the other ranks. Each line that a rank prints has its
    number before it. When a rank fails, all are ended, and its traceback is printed last. Options
    after SCRIPT are the script's."""
    if not module:
        script_file("launch", script)
    node = node_of(options)
    min_ranks = options["min_ranks"]
    if min_ranks is not None and min_ranks > ranks:
        raise OptionError("launch", f"--min-ranks up to {ranks}", min_ranks, "Start more ranks.")
    command = (*(["-m"] if module else []), script, *args)
    transport = options["transport"] or ""
    often = (options["timeout"], options["restarts"], min_ranks)
    shown = (options["logs"], options["quiet_ranks"])
    sys.exit(launch(LaunchPlan(command, ranks, transport, *often, *shown, node)))


def node_of(options: dict[str, Any]) -> NodePlace:
    """This machine among those that the options name.

    Raises: OptionError where they do not fit together
    """
    node = NodePlace(options["nodes"], options["node_rank"], options["master"] or "")
    if node.number >= node.count:
        fix = "Number the machines from 0."
        raise OptionError("launch", f"--node-rank below {node.count}", node.number, fix)
    if node.count == 1:
        return node
    if not re.fullmatch(r"\S+:\d+", node.master):
        fix = "Give it to the launchers of all machines."
        raise OptionError("launch", "--master HOST:PORT of the first machine", node.master, fix)
    refused = "--restarts" if options["restarts"] else ""
    refused = "--transport mpi" if options["transport"] == "mpi" else refused
    if refused:
        fix = "Start MPI's ranks on several machines by mpiexec, and restart by hand."
        raise OptionError("launch", f"--nodes without {refused}", "both", fix)
    return node
