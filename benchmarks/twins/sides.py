"""Sides of a benchmark in processes of their own, so that their pools of threads do not meet.

`start_sides` starts `python BENCHMARK --serve SIDE FOLDER` for each side whose package some Python
has; there `serve` answers. A request is a line of JSON, [case, count]; a case is a list of what the
benchmark makes its call of, and the answer is the seconds of so many calls. A side need not have
the packages that the harness imports.
"""

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

THREADS = 2
# oneDNN, BLAS and OpenMP read them; each side is told its threads, or counts the cores.
VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
FILE_READERS = ("onnxruntime", "openvino")  # packages that run the ONNX files that onnx writes


def glasshouse_file(path: str, x: Any) -> Callable[[], Any]:
    """The network of an ONNX file, captured."""
    import glasshouse as gh

    network = gh.onnx.load(path)
    return glasshouse_network(network, x)


def glasshouse_network(network: Any, x: Any) -> Callable[[], Any]:
    """A module of ours, captured."""
    import glasshouse as gh

    step, inputs = gh.optimize(lambda x: network(x)), gh.asarray(x)

    def call() -> None:
        with gh.no_grad():
            gh.eval(*gh.tree.leaves(step(inputs)))

    return call


def onnxruntime_file(path: str, x: Any) -> Callable[[], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda: session.run(None, {name: x})


def openvino_file(
    path: str, x: Any, precision: str = "f32", quantize: Callable[[Any, Any], Any] | None = None
) -> Callable[[], Any]:
    import openvino

    model = openvino.Core().read_model(path)
    if quantize is not None:
        model = quantize(model, x)
    hints = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": THREADS}
    hints["PERFORMANCE_HINT"] = "LATENCY"
    compiled = openvino.Core().compile_model(model, "CPU", hints)
    return lambda: compiled([x])


def torch_network(network: Any, x: Any, *, dtype: str = "float32") -> Callable[[], Any]:
    """A module of PyTorch, in eval mode, and inputs of a dtype unless they are integers."""
    import torch

    torch.set_num_threads(THREADS)
    network, inputs = network.eval(), torch.from_numpy(x)
    if inputs.is_floating_point():
        inputs = inputs.to(getattr(torch, dtype))

    def call() -> None:
        with torch.no_grad():
            network(inputs)

    return call


def serve(make_call: Callable[..., Callable[[], Any] | None]) -> None:
    """Answer requests until the input ends. `make_call` builds a case's call, of its parts, when it
    is first requested, or returns None where the side does not have it."""
    calls: dict[tuple[Any, ...], Callable[[], Any] | None] = {}
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries may print
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        parts, count = json.loads(line)
        case = tuple(parts)
        if case not in calls:
            calls[case] = make_call(*case)
        call, seconds = calls[case], []
        for _ in range(count if call else 0):
            begin = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - begin)
        print(json.dumps(seconds), file=answers, flush=True)


@contextmanager
def child(command: list[str], **options: Any) -> Iterator[subprocess.Popen]:
    """A process that ends with the context, whatever happens."""
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def has(python: str, package: str) -> bool:
    """Whether a Python has a package."""
    if python == sys.executable:
        return importlib.util.find_spec(package) is not None
    code = f"import importlib.util as u, sys; sys.exit(u.find_spec({package!r}) is None)"
    return subprocess.run([python, "-c", code], check=False).returncode == 0


def with_files(packages: dict[str, str]) -> dict[str, str]:
    """The sides of `packages` (side: package) that have what they run: files need onnx here."""
    if has(sys.executable, "onnx"):
        return packages
    return {side: name for side, name in packages.items() if name not in FILE_READERS}


class Side:
    """A process that computes the calls of one side."""

    def __init__(self, name: str, process: subprocess.Popen) -> None:
        self.name, self.process = name, process
        self.read()

    def read(self) -> str:
        assert self.process.stdout is not None
        if not (line := self.process.stdout.readline()):
            raise SystemExit(f"{self.name} has ended")
        return line

    def run(self, case: Sequence[Any], count: int) -> list[float]:
        """The seconds of so many calls of a case; none where the side does not have it."""
        assert self.process.stdin is not None
        print(json.dumps([case, count]), file=self.process.stdin, flush=True)
        return json.loads(self.read())

    @contextmanager
    def first(self) -> Iterator[None]:
        """Real-time priority within the context, where the system allows it."""
        self.set_policy(os.SCHED_RR, 1)
        try:
            yield
        finally:
            self.set_policy(os.SCHED_OTHER, 0)

    def set_policy(self, policy: int, priority: int) -> None:
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{self.process.pid}/task"):
                os.sched_setscheduler(int(thread), policy, os.sched_param(priority))


def start_sides(
    stack: ExitStack,
    benchmark: str,
    folder: str,
    packages: dict[str, str],
    peers: Sequence[str] = (),
    before: Path | None = None,
) -> dict[str, Side]:
    """The sides of `packages` (side: package), each in the first Python that has its package: this
    one, or one of `peers`. Sides named "before" have the older source in that folder."""
    environ = {k: v for k, v in os.environ.items() if k not in VARIABLES}
    environ["OMP_NUM_THREADS"] = str(THREADS)
    sides = {}
    for name, package in packages.items():
        python = next((p for p in (sys.executable, *peers) if has(p, package)), None)
        if python is None:
            continue
        own = {**environ, "PYTHONPATH": str(before)} if "before" in name else environ
        command = [python, benchmark, "--serve", name, folder]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        sides[name] = Side(name, stack.enter_context(child(command, env=own, **pipes)))
    return sides
