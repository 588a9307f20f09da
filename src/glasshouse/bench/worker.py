"""One process of `glasshouse bench`: it builds a model in one framework and steps when asked.

Requests come as lines of JSON on standard input, one reply each goes to standard output. A process
ends with its input, so none outlives the command that started it."""

import contextlib
import functools
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import glasshouse as gh
from glasshouse.bench import torch_twins
from glasshouse.bench.cases import CASES
from glasshouse.bench.torch_cases import TorchModel
from glasshouse.optim import SGD
from glasshouse.profile.machine import count_cores, measure_copy, measure_matrix_flops, read_fields

LEARNING_RATE = 1e-3


class Trainer:
    """Base of trainers: the training step, which both frameworks spell alike."""

    optimizer: Any
    loss: Callable[[], Any]
    compute_weights: Callable[[], None]

    def train(self) -> Any:
        self.optimizer.zero_grad()
        loss = self.loss()
        loss.backward()
        self.optimizer.step()
        return loss


class Ours(Trainer):
    """A model, its batch and optimizer in Glasshouse, on the current backend; perhaps captured."""

    def __init__(self, model: str, mode: str | None, dtype: str, smoke: bool) -> None:
        gh.random.seed(0)
        options, arrays = CASES[model].sizes(smoke)
        self.autocast: bool = dtype == "bfloat16"
        self.model: Any = CASES[model].make(**options)
        self.loss_of: Callable[..., Any] = CASES[model].loss
        self.inputs: gh.Tensor
        self.targets: list[gh.Tensor]
        self.inputs, *self.targets = map(gh.asarray, arrays)
        self.optimizer: SGD = SGD(self.model.parameters(), lr=LEARNING_RATE)
        if mode == "captured":
            self.train = gh.optimize(self.train)  # type: ignore[method-assign]  # as users write

    def loss(self) -> Any:
        with gh.autocast("bfloat16") if self.autocast else contextlib.nullcontext():
            return self.loss_of(self.model(self.inputs), *self.targets)

    def compute_weights(self) -> None:
        """Have all weights computed, so that the first step does not pay for them."""
        for p in self.model.parameters():
            p.numpy()

    @staticmethod
    def multiplication(size: int, dtype: str) -> Callable[..., Any]:
        a = gh.asarray(np.random.default_rng(0).random((size, size), np.float32)).astype(dtype)
        a.numpy()
        return lambda: gh.matmul(a, a).numpy()


class Torch(Trainer):
    """The same model, batch and optimizer in PyTorch: eager, channels_last or compile."""

    def __init__(self, model: str, mode: str | None, dtype: str, smoke: bool) -> None:
        import torch

        torch.manual_seed(0)
        options, arrays = CASES[model].sizes(smoke)
        layout = torch.channels_last if mode == "channels_last" else torch.contiguous_format
        self.autocast: Any = torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16")
        make: Any = torch_twins.TWINS[model]
        self.model: Any = make(**options).to(memory_format=layout)
        self.inputs: Any
        self.targets: list[Any]
        self.inputs, *self.targets = map(torch.from_numpy, arrays)
        if mode == "channels_last":
            self.inputs = self.inputs.contiguous(memory_format=layout)
        self.loss_of: Callable[..., Any] = torch_twins.LOSSES[CASES[model].loss.__name__]
        self.optimizer: Any = torch.optim.SGD(self.model.parameters(), lr=LEARNING_RATE)
        self.loss: Any = torch.compile(self.eager_loss) if mode == "compile" else self.eager_loss

    def eager_loss(self) -> Any:
        with self.autocast:
            return self.loss_of(self.model(self.inputs), *self.targets)

    def compute_weights(self) -> None:
        """All weights are there already."""

    @staticmethod
    def multiplication(size: int, dtype: str) -> Callable[..., Any]:
        import torch

        a = torch.rand(size, size).to(getattr(torch, dtype))
        return lambda: a @ a


FRAMEWORKS: dict[str, Any] = {"glasshouse": Ours, "pytorch": Torch, "torch model": TorchModel}


def peak_bytes() -> int:
    peak = read_fields("/proc/self/status").get("VmHWM")
    if peak is not None:
        return int(peak.split()[0]) * 1024
    import resource  # not on every system

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def forget_peak() -> None:
    """Count the peak from now on, where the system can: building is no part of training."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


class Server:
    """Answers requests, each by the method of its name; keeps the run between them."""

    run: Trainer

    def build(self, framework: Any, **options: Any) -> dict[Any, Any]:
        make = FRAMEWORKS[framework]
        if make is not Ours:
            import torch

            torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or count_cores()))
        self.run = make(**options)
        self.run.compute_weights()
        forget_peak()
        return {"mode": options["mode"] or gh.backends.current().name}

    def step(self) -> dict[Any, Any]:
        start = time.perf_counter()
        loss = self.run.train().item()
        return {"seconds": time.perf_counter() - start, "loss": loss}

    def peak(self) -> dict[Any, Any]:
        return {"peak_bytes": peak_bytes()}

    def limits(self, framework: str, dtype: str, smoke: bool) -> dict[Any, Any]:
        product = functools.partial(FRAMEWORKS[framework].multiplication, dtype=dtype)
        return {"flops": measure_matrix_flops(product, smoke), "copy": measure_copy(smoke)}

    def answer(self, request: dict[Any, Any]) -> dict[Any, Any]:
        try:
            return getattr(self, request.pop("do"))(**request)
        except Exception as error:
            return {"error": f"{type(error).__name__}: {str(error) or 'no message'}"}


def serve() -> None:
    replies, sys.stdout = sys.stdout, sys.stderr
    server = Server()
    for line in sys.stdin:
        print(json.dumps(server.answer(json.loads(line))), file=replies, flush=True)
