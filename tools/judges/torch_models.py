"""Models that others wrote, compiled by our backend, beside eager: what is right, what it costs.

    python tools/judges/torch_models.py [LIBRARY | LIBRARY:NAME …] [--out FILE] [--seconds S]
        [--list] [--capture COMPILER] [--sample N]

Each model runs in a process of its own: a forward pass and one training step in eager, then
through `torch.compile(model, backend="glasshouse")`, from the same weights. A line of the table:
whether outputs and every gradient agree, graphs, nodes, host steps, the first call's and a step's
time in seconds, eager's step. Results are added to the file as they come, and models that stand
there already are not run again. The status is 1 where less than 97 % of a library is right.

A model that differs is looked at beside float64 (`beside_exact`): "exact" is one whose step in
float64 is eager's, and whose tensors are no further from that than twice as far as eager's own come
to be where parameters differ in their last bits (`torch_zoo/exact.py`). Such models are told apart
from those that are right, and count with them.

With --capture whole training steps (zero_grad, forward, loss, backward, clip_grad_norm_, SGD with
momentum) run under gh.optimize(COMPILER) instead: whether losses, gradients and parameters agree,
whether there is no break, and the reasons of those that there are. Those that differ are judged
alike. The status is 1 where less than 95 % are right or less than 90 % without a break."""

import argparse
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

import torch
from torch.utils import _pytree as pytree

sys.path.insert(0, str(Path(__file__).parent))
import apart
from torch_zoo import captured
from torch_zoo import models as zoo
from torch_zoo.exact import (
    draws,
    is_exact,
    is_inexact,
    mark_of,
    narrow,
    said_of,
    times_as_far,
    wide,
    widen,
    widened,
)

LEAST = 0.97  # of each library's models are right
LEAST_RIGHT, LEAST_SINGLE = 0.95, 0.90  # of those that are captured
OUTPUTS, GRADIENTS = 1e-3, 2e-2  # relative differences that are allowed, by norm
apart.begin_with(
    "torch._dynamo",
    "torch._functorch.aot_autograd",
    "glasshouse.torch.backend.entry_point",
    "torch_zoo.captured",
)


NEARLY_ZERO = 1e-5  # what a running mean is that is 0 but for rounding


# -- one model, in a process of its own ----------------------------------------------------------


class Recorded:
    """Counts of our backend while a model was compiled: graphs, nodes, PyTorch's operators."""

    def __init__(self):
        from glasshouse.torch.backend import runtime

        self.variants: list = []
        make = runtime.TorchGraphProgram.compile_variant

        def compile_and_record(program, args):
            self.variants.append(make(program, args))
            return self.variants[-1]

        runtime.TorchGraphProgram.compile_variant = compile_and_record

    def summary(self) -> dict:
        """Numbers of graphs and nodes; host steps by operator."""
        host: dict[str, int] = {}
        for variant in self.variants:
            for name, times in variant.unknown.items():
                host[name] = host.get(name, 0) + times
        nodes = sum(map(count_nodes, self.variants))
        return {"graphs": len(self.variants), "nodes": nodes, "host": host}


def count_nodes(variant) -> int:
    """The calls of cards in a variant of a graph."""
    if hasattr(variant, "facts"):
        return variant.facts.calls
    recording = getattr(variant, "recording", None)  # that runs on references
    return 0 if recording is None else len(recording.nodes)


def float_tensors(outputs) -> list[torch.Tensor]:
    """The outputs that a loss can be made of."""
    tensors = [x for x in pytree.tree_leaves(outputs) if isinstance(x, torch.Tensor)]
    return [x for x in tensors if x.is_floating_point() and x.requires_grad]


def loss_of(outputs) -> torch.Tensor:
    """A number that depends on every output, by weights drawn from a seed."""
    generator = torch.Generator().manual_seed(1)
    parts = []
    for x in float_tensors(outputs):
        weights = torch.randn(x.shape, generator=generator)
        parts.append((x * weights.to(x.dtype)).sum() / x.numel() ** 0.5)
    return torch.stack(parts).sum()


class Step(NamedTuple):
    """Results of one training step; gradients and buffers by name."""

    outputs: list[torch.Tensor]
    gradients: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]


def step(call, model, inputs: dict) -> Step:
    """One training step."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(2)
    outputs = call(**inputs)
    loss_of(outputs).backward()
    parameters = dict(model.named_parameters())
    gradients = {name: p.grad for name, p in parameters.items() if p.grad is not None}
    arguments = [x.detach().clone() for x in float_tensors(outputs)]
    return Step(arguments, gradients, copies(model))


def timed(call) -> tuple:
    """Return the result of a call, and its seconds."""
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def median_seconds(call, times: int) -> float:
    """The median of so many calls; not a number for none."""
    return statistics.median([timed(call)[1] for _ in range(times)] or [float("nan")])


def copies(model) -> dict[str, torch.Tensor]:
    """Copies of a model's buffers."""
    return {name: x.clone() for name, x in model.named_buffers()}


@torch.no_grad()
def put_back(model, buffers: dict) -> None:
    """Give the model the buffers that it had before its first step."""
    for name, x in model.named_buffers():
        x.copy_(buffers[name])


def in_double(call, model, inputs: dict, buffers: dict) -> Step | None:
    """A step in float64, which tells how exact those in float32 are; None if there is none."""
    try:
        put_back(model, buffers)
        model.zero_grad(set_to_none=True)  # gradients that somebody has stay what they are
        widen(model)
        return step(call, model, widened(inputs))
    except (RuntimeError, TypeError, ValueError):
        return None
    finally:
        model.zero_grad(set_to_none=True)
        narrow(model)


def eager_steps(model, inputs: dict, buffers: dict) -> Iterator[list[torch.Tensor]]:
    """Every tensor of eager's step, then of steps with other last bits of parameters."""
    for _ in draws(model):
        put_back(model, buffers)
        yield tensors_of(step(model, model, inputs))


def worst_of(ours: list, eager: list, exact: list | None = None) -> float:
    """The largest relative difference by norm, less what eager's own rounding explains.

    A gradient that is 0 but for rounding (a bias before a batch norm, say) has no relative
    precision; eager's distance from float64, three times, is what is not held against us."""
    if len(ours) != len(eager):
        return float("inf")
    worst = 0.0
    scale = max((wide(x).norm().item() for x in eager), default=0.0)
    for place, (a, b) in enumerate(zip(ours, eager)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        if torch.equal(a, b):
            continue
        a, b = wide(a), wide(b)
        noise = 1e-6 * scale
        if exact is not None:
            noise += 3 * (b - wide(exact[place])).norm().item()
        difference = (a - b).norm().item()
        if difference != difference:
            return float("inf")
        worst = max(worst, max(0.0, difference - noise) / max(b.norm().item(), 1e-30))
    return worst


def compare(ours: Step, eager: Step, exact: Step | None = None) -> dict:
    """Whether two steps agree, and how far they do not; beside float64, if that is given."""
    forward = worst_of(ours.outputs, eager.outputs, exact and exact.outputs)
    names, backward = list(eager.gradients), float("inf")
    if names == list(ours.gradients):
        backward = worst_of(
            *(x and [x.gradients[name] for name in names] for x in (ours, eager, exact))
        )
    apart = []
    for name, x in eager.buffers.items():
        if not is_near(ours.buffers[name], x, exact and exact.buffers[name]):
            apart.append(name)
    right = forward <= OUTPUTS and backward <= GRADIENTS and not apart
    return {"right": right, "outputs": forward, "gradients": backward, "buffers": apart}


def is_near(x, y, exact=None) -> bool:
    """Whether two buffers agree as outputs have to; those of whole numbers are equal."""
    if torch.equal(x, y) or not is_inexact(y):
        return torch.equal(x, y)
    x, y = wide(x), wide(y)
    noise = 0.0 if exact is None else 3 * (y - exact).norm().item()
    noise += NEARLY_ZERO * y.numel() ** 0.5
    return (x - y).norm().item() <= OUTPUTS * y.norm().item() + noise


def tensors_of(step: Step) -> list[torch.Tensor]:
    """Every tensor of a step."""
    return [*step.outputs, *step.gradients.values(), *step.buffers.values()]


def allowed_in(eager: Step) -> list[float]:
    """The largest distance from each tensor of eager's, as `compare` has it without float64."""
    allowed = []
    for part, each in ((eager.outputs, OUTPUTS), (eager.gradients.values(), GRADIENTS)):
        norms = [wide(x).norm().item() for x in part]
        allowed += [each * norm + 1e-6 * max(norms) for norm in norms]
    for x in eager.buffers.values():
        allowed.append(OUTPUTS * wide(x).norm().item() + NEARLY_ZERO * x.numel() ** 0.5)
    return allowed


def beside_exact(compiled, model, inputs: dict, buffers: dict, ours: Step, eager: Step) -> dict:
    """The comparison with what float64 tells of eager's rounding, and if ours differs still:

    double    how far a step of ours in float64 is from eager's in float64: kinks hardly matter
    further   how many times as far as eager's ours in float32 is from that, at its worst tensor"""
    exact = in_double(model, model, inputs, buffers)
    if exact is None:
        return {}
    result = compare(ours, eager, exact)
    if result["right"] or float("inf") in (result["outputs"], result["gradients"]):
        return result
    wide = in_double(compiled, model, inputs, buffers)
    if wide is not None:
        differs = compare(wide, exact)
        result["double"] = max(differs["outputs"], differs["gradients"])
    result["further"] = times_as_far(
        tensors_of(ours),
        eager_steps(model, inputs, buffers),
        tensors_of(exact),
        allowed_in(eager),
    )
    return result


def told_in(call) -> tuple:
    """Return the result of a call, and the warnings that it gave: (file, text) of each."""
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        result = call()
    return result, {(Path(w.filename).as_posix(), str(w.message)[:300]) for w in messages}


def examine(library: str, name: str, steps: int) -> dict:
    """One line of the table."""
    model, inputs = zoo.build(library, name)
    buffers = copies(model)
    eager, usual = told_in(lambda: step(model, model, inputs))
    eager_seconds = median_seconds(lambda: step(model, model, inputs), steps)
    put_back(model, buffers)
    recorded = Recorded()
    compiled = torch.compile(model, backend="glasshouse")
    (ours, first), message = told_in(lambda: timed(lambda: step(compiled, model, inputs)))
    summary = recorded.summary()
    result = compare(ours, eager)
    seconds = median_seconds(lambda: step(compiled, model, inputs), steps)
    if not result["right"]:
        result = beside_exact(compiled, model, inputs, buffers, ours, eager) or result
    new = [(file, text) for file, text in message - usual if f"/{library}/" not in file]
    warned = sorted(text for file, text in new if "glasshouse" in file + text)
    return {
        **result,
        "right": result["right"] and not warned,
        "warned": warned,
        "others_warned": sorted({text for _, text in new} - set(warned)),
        **summary,
        "parameters": sum(p.numel() for p in model.parameters()),
        "first": first,
        "step": seconds,
        "eager": eager_seconds,
    }


# -- the table -----------------------------------------------------------------------------------


def answer(send, library: str, name: str, options) -> None:
    """Judge one model in a process of its own, and send its line back."""
    warnings.simplefilter("ignore")
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    try:
        if options.capture:
            send(captured.examine(library, name, options.capture))
        else:
            send(examine(library, name, options.steps))
    except Exception as error:
        send({"right": False, "error": f"{type(error).__name__}: {str(error)[:300]}"})


def run_apart(library: str, name: str, options) -> dict:
    """One model in a process of its own, so that a crash or a hang costs that model alone."""
    result, *_ = apart.messages(answer, (library, name, options), options.seconds)
    return {"right": False, "error": str(result)} if isinstance(result, apart.Ended) else result


def line_of(name: str, result: dict) -> str:
    """A result, as a line of the table."""
    mark = mark_of(result)
    if "error" in result:
        return f"{name:44} {mark:>5}  {result['error']}"
    if "single" in result:
        return captured.line_of(name, result)
    host = ", ".join(f"{k} {v}" for k, v in result["host"].items())
    numbers = (
        f"{result['outputs']:8.0e} {result['gradients']:8.0e} {result['graphs']:4} "
        f"{result['nodes']:6} {sum(result['host'].values()):4} {result['first']:7.1f} "
        f"{result['step']:7.3f} {result['eager']:7.3f}"
    )
    said = "; ".join(result["warned"] + [f"buffer {name}" for name in result["buffers"]])
    return f"{name:44} {mark:>5} {numbers}  {host}{said}{said_of(result)}"


HEADER = (
    f"{'model':44} {'same':>5} {'outputs':>8} {'gradient':>8} {'grph':>4} {'nodes':>6} {'host':>4} "
    f"{'first s':>7} {'step s':>7} {'eager s':>7}"
)


def chosen(wanted: list[str]) -> list[tuple[str, str]]:
    """(library, model) of what the command line names."""
    models = []
    for word in wanted or [library for library in zoo.LIBRARIES if zoo.installed(library)]:
        library, _, name = word.partition(":")
        if library not in zoo.LIBRARIES:
            raise SystemExit(f"{library!r} is none of {', '.join(zoo.LIBRARIES)}")
        models += [(library, name)] if name else [(library, each) for each in zoo.names(library)]
    return models


def sampled(models: list, most: int | None) -> list:
    """So many of the models, evenly; all without a number."""
    if most is None or most >= len(models):
        return models
    return [models[i * len(models) // most] for i in range(most)]


def read_results(path: Path | None) -> dict[str, dict]:
    if path is None or not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {line["model"]: line for line in lines}


def run_all(models, options) -> dict[str, dict]:
    """Every model's result; those that a file has already are taken from there."""
    results = read_results(options.out)
    print(captured.HEADER if options.capture else HEADER, flush=True)

    def result_of(chosen) -> tuple[str, dict]:
        model = ":".join(chosen)
        outcome = results.get(model) or {"model": model, **run_apart(*chosen, options)}
        return model, outcome

    with ThreadPoolExecutor(options.jobs) as pool:
        waiting = [pool.submit(result_of, chosen) for chosen in models]
        for future in as_completed(waiting):
            model, outcome = future.result()
            if model not in results and options.out is not None:
                with options.out.open("a") as file:
                    file.write(json.dumps(outcome) + "\n")
            results[model] = outcome
            print(line_of(model, outcome), flush=True)
    return {f"{library}:{name}": results[f"{library}:{name}"] for library, name in models}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="a library, or LIBRARY:NAME")
    parser.add_argument("--out", type=Path, help="a file of results, a line of JSON each")
    parser.add_argument("--seconds", type=float, default=600, help="the most for one model")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time")
    parser.add_argument("--steps", type=int, default=3, help="how many are timed")
    parser.add_argument("--list", action="store_true", help="name the models only")
    parser.add_argument("--capture", metavar="COMPILER", help="whole steps under gh.optimize")
    parser.add_argument("--sample", type=int, help="so many models only, evenly over those named")
    options = parser.parse_args()
    models = sampled(chosen(options.models), options.sample)
    if options.list:
        print("\n".join(f"{library}:{name}" for library, name in models))
        return 0
    results = run_all(models, options)
    bad = 0
    for library in zoo.LIBRARIES:
        mine = [r for model, r in results.items() if model.startswith(library + ":")]
        if mine:
            bad += too_few(library, mine, options.capture)
    return 1 if bad else 0


def too_few(library: str, results: list[dict], captured: bool) -> bool:
    """Print how many of a library's models are right; whether those are too few."""
    number = len(results)
    right = sum(r["right"] for r in results)
    exact = sum(not r["right"] and is_exact(r) for r in results)
    said = f"{library}: {right} of {number} right, {right / number:.1%}"
    said += f"; {exact} more as exact as eager" * (exact > 0)
    if not captured:
        print(said)
        return right + exact < LEAST * number
    single = sum(r.get("single", False) for r in results)
    print(f"{said}; {single} whole, {single / number:.1%}")
    return right + exact < LEAST_RIGHT * number or single < LEAST_SINGLE * number


if __name__ == "__main__":
    sys.exit(main())
