"""`glasshouse serve`: a model as a server with OpenAI's calls."""

from pathlib import Path

import click

from glasshouse.base.errors import optional
from glasshouse.cli.command import Command
from glasshouse.cli.generate import load_with_tokenizer, model_option
from glasshouse.text.engine import Engine
from glasshouse.text.sentences import SentenceEncoder
from glasshouse.text.server import make_server


@click.command("serve", cls=Command)
@model_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=8000,
    show_default=True,
    help="Port to listen at.",
)
@click.option(
    "--slots",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Texts that are written at once.",
)
@click.option(
    "--context",
    type=click.IntRange(16),
    default=2047,
    show_default=True,
    help="Most tokens of a text with its prompt.",
)
@click.option(
    "--queue", type=click.IntRange(1), default=64, show_default=True, help="Requests that may wait."
)
def serve_command(path: Path, host: str, port: int, slots: int, context: int, queue: int) -> None:
    """Serve a model by OpenAI's calls, under http://HOST:PORT/v1. A decoder writes; a BERT gives
    vectors of texts."""
    uvicorn = optional("serve", "uvicorn to be installed", "uvicorn", "serve")
    model, tokenizer = load_with_tokenizer(path)
    if hasattr(model, "generate"):
        engine = Engine(model, tokenizer, slots, context + 1, queue)
    else:
        engine = SentenceEncoder(model, tokenizer)
    try:
        uvicorn.run(make_server(engine, path.name), host=host, port=port, log_level="warning")
    finally:
        engine.close()
