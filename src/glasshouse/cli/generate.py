"""`glasshouse generate`: continue a prompt, and report the cost of a token."""

import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from glasshouse import tensor
from glasshouse.analyze.machine import MachineProfile, rate_at
from glasshouse.apps import find_app, load_app
from glasshouse.apps.run import NOTES
from glasshouse.base.errors import OptionError
from glasshouse.cli.command import Command
from glasshouse.text import Grammar, TextStream, Tokenizer, chat_prompt, load_model
from glasshouse.text.engine import end_tokens

READ_BYTES = 256 << 20  # to measure the rate of reading memory: more than most caches hold


def load_with_tokenizer(path: Path) -> tuple[Any, Any]:
    """(a model, its tokenizer) of a GGUF file, a folder of transformers, or a run of `train lm`.

    Raises: CheckpointError for missing or damaged files, OptionError for a model that has no
        tokenizer.
    """
    if (path / NOTES).exists():
        _, assets, model = load_app(find_app("lm"), path)
        return model, Tokenizer.from_text(assets["tokenizer"])
    model = load_model(path)
    if model.tokenizer is None:
        fix = "Put tokenizer.json into the folder."
        raise OptionError("load", "a model with a tokenizer", str(path), fix)
    return model, model.tokenizer


def load_writer(path: Path) -> tuple[Any, Any]:
    """As `load_with_tokenizer`, of a model that writes.

    Raises: OptionError also for one that does not.
    """
    model, tokenizer = load_with_tokenizer(path)
    if not hasattr(model, "generate"):
        got, fix = type(model).__name__, "Take a decoder, such as a Llama."
        raise OptionError("generate", "a model that writes", got, fix)
    return model, tokenizer


def prompt_tokens(tokenizer: Any, prompt: str, is_chat: bool) -> list[int]:
    """The tokens of a prompt; of a text that begins, where it is empty."""
    if is_chat:
        prompt = chat_prompt(tokenizer, [{"role": "user", "content": prompt}])
    tokens = tokenizer.encode(prompt, special=not is_chat).tokens[0].tolist()
    first = getattr(tokenizer, "bos_id", None)
    return tokens or ([] if first is None else [first])


def read_rate() -> float:
    """The rate at which a kernel of ours reads memory, bytes/s: the best of a few times."""
    x = tensor.full((READ_BYTES // 4,), 1.0)
    tensor.eval(x)
    best = float("inf")
    for _ in range(4):
        start = time.perf_counter()
        tensor.eval(tensor.sum(x))
        best = min(best, time.perf_counter() - start)
    return READ_BYTES / best


def weight_bytes(model: Any) -> int:
    """The bytes of weights that each token reads: all, but of a table only the head's use."""
    return sum({id(x): x.nbytes for x in (*model.parameters(), *model.buffers())}.values())


model_option: Callable[..., Any] = click.option(
    "--model",
    "path",
    type=click.Path(path_type=Path),
    required=True,
    help="A GGUF file, a folder of transformers, or a run of `train lm`.",
)


@click.command("generate", cls=Command)
@model_option
@click.option("--prompt", help="Text to continue.  [default: standard input]")
@click.option("--chat", is_flag=True, help="The prompt is a message; answer by the template.")
@click.option(
    "--max-tokens",
    type=click.IntRange(1),
    default=200,
    show_default=True,
    help="Most tokens to write.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(0),
    default=0.8,
    show_default=True,
    help="How bold the draws are; 0: the likeliest token.",
)
@click.option("--top-k", type=click.IntRange(1), help="Draw from so many tokens.")
@click.option(
    "--top-p",
    type=click.FloatRange(0, 1),
    default=1.0,
    show_default=True,
    help="Draw from the likeliest tokens of that probability.",
)
@click.option(
    "--min-p",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Draw from tokens of that part of the likeliest one's.",
)
@click.option(
    "--repetition-penalty",
    type=click.FloatRange(0.01),
    default=1.0,
    show_default=True,
    help="Makes tokens that the text has less likely.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the draws.")
@click.option("--stop", multiple=True, help="A text that ends the answer; several times.")
@click.option("--regex", help="The answer matches this regular expression.")
@click.option("--machine", help="Profile of `glasshouse calibrate`, for the limit.")
def generate_command(
    path: Path, prompt: str | None, chat: bool, max_tokens: int, stop: Sequence[str],
    regex: str | None, machine: str | None, **options: Any,
) -> None:  # fmt: skip
    """Continue a prompt, and report the cost of a token."""
    model, tokenizer = load_writer(path)
    prompt = sys.stdin.read() if prompt is None else prompt
    tokens, ends = prompt_tokens(tokenizer, prompt, chat), end_tokens(model, tokenizer)
    if regex is not None:
        options["allowed"] = Grammar(tokenizer, regex=regex, end_token=ends[0] if ends else None)
    text, times = TextStream(tokenizer, stop), [time.perf_counter()]

    def show(row: int, token: int) -> bool:
        times.append(time.perf_counter())
        if token not in ends:
            click.echo(text.add(token), nl=False)
        return text.is_ended

    model.generate(tokens, max_tokens, stop=ends, stream=show, **options)
    click.echo(text.finish())
    report(model, len(tokens), times, machine)


def report(model: Any, prompt: int, times: list[float], machine: str | None) -> None:
    """Report the tokens' time and the process's memory."""
    nbytes, first = weight_bytes(model), times[1] - times[0]
    if machine is None:
        rate = read_rate()
    else:
        rate = rate_at(MachineProfile.load(machine).bandwidth, nbytes)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    lines = [f"{prompt:,} tokens read in {first:.2f} s, with compilation"]
    if len(times) > 3:
        seconds = (times[-1] - times[2]) / (len(times) - 3)  # the first two compile
        limit = rate / nbytes
        part = f"{1 / seconds / limit:.0%}"
        lines.append(
            f"{len(times) - 1:,} written, {1 / seconds:,.1f} a second; {limit:,.1f} ({part}) if "
            f"{nbytes / 1e6:,.0f} MB of weights were read at {rate / 1e9:,.1f} GB/s"
        )
    lines.append(f"peak of the process: {peak / 1e6:,.0f} MB")
    click.echo("\n" + "\n".join(lines), err=True)
