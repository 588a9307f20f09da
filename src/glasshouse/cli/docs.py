"""`glasshouse docs`: serve or build this site from a checkout."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import click

SETTINGS = Path(__file__).parents[3] / "mkdocs.yml"


@click.command("docs")
@click.option("--build", "folder", metavar="FOLDER", help="Write the site to FOLDER, and stop.")
@click.option("--port", default=8000, show_default=True, help="Serve on this port.")
def docs(folder: str | None, port: int) -> None:
    """Serve the documentation, or build it.

    Needs a checkout, and `pip install '.[docs]'`.
    """
    if not SETTINGS.is_file():
        raise click.ClickException(
            f"docs: expected a checkout with mkdocs.yml; {SETTINGS} is missing."
        )
    if importlib.util.find_spec("mkdocs") is None:
        raise click.ClickException("docs: MkDocs is not installed. pip install '.[docs]'")
    work = ["build", "--strict", "--site-dir", str(Path(folder).resolve())] if folder else ["serve"]
    address = [] if folder else ["--dev-addr", f"127.0.0.1:{port}"]
    command = [sys.executable, "-m", "mkdocs", *work, *address, "--config-file", str(SETTINGS)]
    sys.exit(subprocess.run(command, cwd=SETTINGS.parent).returncode)
