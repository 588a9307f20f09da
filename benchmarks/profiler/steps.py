"""Time that profiling adds to a training step, and how much of the step lies in kernels."""

import statistics
import time
from contextlib import nullcontext

from profiler.overhead import import_torch

import glasshouse as gh
from glasshouse.bench import torch_twins

SMOKE = {"width": 4, "layers": (1, 1, 1, 1), "num_classes": 10}
SMALL = {"width": 8, "layers": (1, 1, 1, 1), "num_classes": 10}


def training_step(name: str, options: dict, shape, is_captured: bool):
    """A training step of a model, warmed up."""
    gh.random.seed(0)
    model = getattr(gh.vision.models, name)(**options)
    x, y = gh.random.normal(shape), gh.zeros(shape[:1], dtype=gh.int64)
    optimizer = gh.optim.SGD(model.parameters(), lr=1e-3)

    def train(x, y):
        optimizer.zero_grad()
        loss = gh.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = gh.optimize(train) if is_captured else train

    def step():
        return run(x, y).item()

    for _ in range(4):
        step()
    return step


def torch_step(torch, options: dict, shape):
    """The same in PyTorch."""
    model = torch_twins.TWINS["resnet50"](**options)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(shape), torch.zeros(shape[0], dtype=torch.int64)

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    step()
    return step


def added_part(step, make, repeats: int) -> tuple[dict, list]:
    """Measure what the context `make()` adds to a step: the median over pairs of steps, one after
    the other and now this, now that first, so that a slow moment of the machine hits both; the
    contexts."""
    plain, parts, contexts = [], [], []
    for k in range(repeats):
        times = {}
        for watched in (k % 2 == 0, k % 2 == 1):
            with make() if watched else nullcontext() as context:
                start = time.perf_counter()
                step()
                times[watched] = time.perf_counter() - start
            if watched:
                contexts.append((context, times[True]))
        plain.append(times[False])
        parts.append(times[True] / times[False] - 1)
    low, middle, high = statistics.quantiles(parts, n=4)
    results = {"added_part": middle, "added_low": low, "added_high": high}
    return {"step_s": statistics.median(plain), **results}, contexts


def share_of_a_step(step, repeats: int) -> dict[str, float]:
    """Measure what recording all but stacks adds to a step; which part of its wall time lies in
    kernels; and where the rest is: Python before and after a Program's run, or in it (memory of its
    outputs)."""
    result, profiles = added_part(
        step, lambda: gh.profile(record_shapes=True, profile_memory=True), repeats
    )
    kernels, programs, inside = [], [], []
    for prof, seconds in profiles:
        runs = [run.end_ns - run.begin_ns for run in prof.trace.runs]
        kernels.append(prof.trace.kernel_ns / (1e9 * seconds))
        programs.append(sum(runs) / (1e9 * seconds))
        inside.append(prof.trace.steps.time_ns.sum() / sum(runs))
    return result | {
        "kernels_part_of_step": statistics.median(kernels),
        "programs_part_of_step": statistics.median(programs),
        "kernels_part_of_programs": float(statistics.median(inside)),
    }


def steps(smoke: bool) -> dict:
    """ResNet-50 as it is, captured, and in PyTorch; a small ResNet likewise."""
    options, shape = (SMOKE, (2, 3, 48, 48)) if smoke else ({}, (16, 3, 224, 224))
    small, repeats, torch = (32, 3, 16, 16), 2 if smoke else 11, None if smoke else import_torch()
    results = {}
    for name, is_captured in (("recorded", False), ("captured", True)):
        step = training_step("resnet50", options, shape, is_captured)
        results[f"ResNet-50, {name}"] = share_of_a_step(step, repeats)
        if not smoke:
            step = training_step("resnet18", SMALL, small, is_captured)
            results[f"small ResNet, {name}"] = share_of_a_step(step, 50)
        gh.reset()
    if torch:
        profile, cpu = torch.profiler.profile, [torch.profiler.ProfilerActivity.CPU]
        step = torch_step(torch, options, shape)
        results["ResNet-50, torch"], _ = added_part(
            step,
            lambda: profile(
                activities=cpu, record_shapes=True, profile_memory=True, with_modules=True
            ),
            5,
        )
    return results
