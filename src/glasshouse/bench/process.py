"""A process of `glasshouse bench`, and the measurements of the model that it runs."""

import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from rich.console import Console
from rich.text import Text

import glasshouse as gh
from glasshouse.base.errors import BackendError


class Worker:
    """A process that answers requests; see `worker`."""

    def __init__(self, name: str, environment: dict[str, str] | None = None) -> None:
        self.name = name
        paths = [Path(gh.__file__).parents[1], *filter(None, [os.environ.get("PYTHONPATH")])]
        self.errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed in __exit__
        self.process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-c", "from glasshouse.bench.worker import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={
                **os.environ,
                **(environment or {}),
                "PYTHONPATH": os.pathsep.join(map(str, paths)),
            },
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for pipe in filter(None, (self.process.stdin, self.process.stdout)):
            with contextlib.suppress(OSError):  # it has died, with a request unread
                pipe.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.close()

    def ask(self, do: str, **request: Any) -> dict[Any, Any]:
        try:
            print(json.dumps({"do": do, **request}), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline() if self.process.stdout else ""
        except BrokenPipeError:
            line = ""
        reply = json.loads(line) if line else {"error": self.last_words()}
        if "error" in reply:
            fix = "Leave this model or mode out."
            raise BackendError("bench", f"a {do} of the {self.name} worker", reply["error"], fix)
        return reply

    def last_words(self) -> str:
        code = self.process.wait()
        self.errors.seek(0)
        printed = self.errors.read().strip().splitlines()
        return f"its end with exit code {code}" + (f": {printed[-1]}" if printed else "")


@dataclass
class BenchmarkRun:
    """One model in one framework and mode: its process and its measurements."""

    worker: Worker
    model: str
    framework: str
    mode: str | None
    dtype: str
    smoke: bool
    seconds: list[float] = field(default_factory=list)
    first_step_s: float = math.nan
    loss: float = math.nan

    def build_options(self) -> dict[Any, Any]:
        return {
            "model": self.model,
            "mode": self.mode,
            "dtype": self.dtype,
            "smoke": self.smoke,
        }

    def start(self) -> None:
        built = self.worker.ask("build", framework=self.framework, **self.build_options())
        self.mode = built["mode"]
        first = self.worker.ask("step")
        self.first_step_s, self.loss = first["seconds"], first["loss"]
        self.worker.ask("step")

    def step(self) -> None:
        """A step as in a training loop: timed after one that brings memory and caches back."""
        self.worker.ask("step")
        self.seconds.append(self.worker.ask("step")["seconds"])

    def record(self) -> dict[Any, Any]:
        """Record of the run to save: its options, times and losses."""
        return {
            "model": self.model,
            "framework": self.framework,
            "mode": self.mode,
            "dtype": self.dtype,
            "step_s": statistics.median(self.seconds),
            "first_step_s": self.first_step_s,
            "peak_bytes": self.worker.ask("peak")["peak_bytes"],
            "first_loss": self.loss,
            "steps_s": self.seconds,
        }


@contextlib.contextmanager
def tolerant(console: Console, model: str) -> Iterator[None]:
    """Inside, the failure of a process ends the work; it is printed, and other runs continue."""
    try:
        yield
    except BackendError as error:
        console.print(Text(f"  {model}: {error}", style="red"))


def show_factors(console: Console, factors: list[float], smoke: bool) -> None:
    """Print how many times our time PyTorch's best mode takes; of a smoke run that it says
    nothing."""
    if smoke:
        console.print("[dim]a smoke run: tiny models and few steps, which say nothing of speed[/]")
    elif factors:
        mean = math.prod(factors) ** (1 / len(factors))
        console.print(
            f"\nPyTorch's best mode takes {mean:.2f} times our time (geometric mean); at least "
            f"{min(factors):.2f}"
        )
