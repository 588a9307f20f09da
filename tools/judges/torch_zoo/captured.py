"""One model's whole training steps under gh.optimize beside eager's: what
tools/judges/torch_models.py --capture runs in a process of its own."""

import copy
import time
import warnings

import torch

import glasshouse as gh
from torch_zoo import models as zoo
from torch_zoo.exact import (
    distance,
    draws,
    is_inexact,
    mark_of,
    said_of,
    times_as_far,
    wide,
    widen,
    widened,
)

STEPS = 4  # the first two are captured: they make gradients and the optimizer's state
ALLOWED = {"losses": 1e-3, "gradients": 2e-2, "parameters": 1e-3}  # relative differences
LEAST = 1e-3  # of the largest tensor, what a smaller one's difference is a part of


def parts_of(outputs) -> list[torch.Tensor]:
    """The outputs that a loss can be made of."""
    if isinstance(outputs, torch.Tensor):
        outputs = [outputs]
    elif isinstance(outputs, dict):
        outputs = outputs.values()
    flat = []
    for x in outputs:
        if isinstance(x, torch.Tensor):
            flat.append(x)
        elif isinstance(x, (list, tuple)):
            flat.extend(x)
    return [x for x in flat if x.is_floating_point() and x.requires_grad]


def train(model, optimizer, inputs: dict, weights: list[torch.Tensor]) -> torch.Tensor:
    """One training step; the loss depends on every output."""
    optimizer.zero_grad()
    outputs = model(**inputs)
    loss = sum(
        (x * w).sum() / x.numel() ** 0.5 for x, w in zip(parts_of(outputs), weights, strict=True)
    )
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def weights_of(model, inputs: dict) -> list[torch.Tensor]:
    """Numbers that each output is multiplied by, drawn from a seed."""
    generator = torch.Generator().manual_seed(1)
    outputs = parts_of(copy.deepcopy(model)(**inputs))
    with torch.no_grad():  # what a module keeps of a call is copied only where it has no gradient
        model(**inputs)  # which may make it ready, by hooks and the like
    return [torch.randn(x.shape, generator=generator).to(x.dtype) for x in outputs]


class Run:
    """Results of some steps of a copy of a model: losses, gradients, parameters with buffers."""

    def __init__(self, step, model, inputs: dict, weights: list[torch.Tensor]):
        self.model = model = copy.deepcopy(model)  # which keeps the entries
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        torch.manual_seed(2)
        losses, self.seconds = {}, []
        for number in range(STEPS):
            start = time.perf_counter()
            losses[number] = step(model, optimizer, inputs, weights).clone()
            self.seconds.append(time.perf_counter() - start)
        parameters = dict(model.named_parameters())
        gradients = {k: p.grad for k, p in parameters.items() if p.grad is not None}
        parameters |= dict(model.named_buffers())
        self.parts = {"losses": losses, "gradients": gradients, "parameters": parameters}

    def tensors(self) -> list[torch.Tensor]:
        """All of it."""
        return [x for part in self.parts.values() for x in part.values()]

    def allowed(self) -> list[float]:
        """The largest distance from each tensor that is right."""
        return [
            ALLOWED[name] * scale
            for name, part in self.parts.items()
            for scale in scales(part).values()
        ]


def scales(part: dict) -> dict[str, float]:
    """Return the scale of a difference of each tensor: its norm, or a thousandth of the largest
    there is (a gradient that is 0 but for rounding has no relative precision); 0 for whole
    numbers."""
    norms = {k: wide(x).norm().item() for k, x in part.items() if is_inexact(x)}
    least = LEAST * max(norms.values(), default=0.0)
    return {k: max(norms[k], least) if k in norms else 0.0 for k in part}


def relative(ours: dict, eager: dict) -> float:
    """The largest difference by norm, as a part of the tensor's scale."""
    if list(ours) != list(eager):
        return float("inf")
    worst = 0.0
    for name, scale in scales(eager).items():
        got, want = ours[name], eager[name]
        if got.shape != want.shape or got.dtype != want.dtype:
            return float("inf")
        apart = distance(got, want)
        if apart != apart:
            return float("inf")
        worst = max(worst, apart / max(scale, 1e-30))
    return worst


def compare(ours: Run, eager: Run) -> dict[str, float]:
    """How far losses, gradients and parameters are apart."""
    return {name: relative(part, eager.parts[name]) for name, part in ours.parts.items()}


def beside_exact(step, model, inputs: dict, weights: list, ours: Run, eager: Run) -> dict:
    """How exact steps are that differ from eager's:

    double    how far ours in float64 are from eager's in float64, if they are captured alike
    further   how many times as far from that as eager's are ours in float32, at the worst tensor"""
    breaks = len(step.capture.breaks)
    arguments = (widen(copy.deepcopy(model)), widened(inputs), [w.double() for w in weights])
    exact = Run(train, *arguments)
    result = max(compare(Run(step, *arguments), exact).values())
    others = (Run(train, model, inputs, weights).tensors() for _ in draws(model))
    return {
        "double": result if len(step.capture.breaks) == breaks else float("inf"),
        "further": times_as_far(ours.tensors(), others, exact.tensors(), eager.allowed()),
    }


def examine(library: str, name: str, compiler: str) -> dict:
    """One line of the table."""
    model, inputs = zoo.build(library, name)
    weights = weights_of(model, inputs)
    eager = Run(train, model, inputs, weights)
    step = gh.optimize(compiler)(train)
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        ours = Run(step, model, inputs, weights)
    apart = compare(ours, eager)
    messages = [str(w.message)[:300] for w in messages if "capture" in str(w.message)]
    capture = step.capture
    right = all(apart[part] <= most for part, most in ALLOWED.items())
    results = {
        "right": right and not messages,
        "single": not capture.breaks,
        **apart,
        "graphs": len([x for x in capture.entries if x.graph is not None]),
        "breaks": [f"{where}: {reason}" for where, reason, _ in capture.breaks],
        "warned": messages,
        "first": ours.seconds[0],
        "step": ours.seconds[-1],
        "eager": eager.seconds[-1],
    }
    if not right and float("inf") not in apart.values():
        results |= beside_exact(step, model, inputs, weights, ours, eager)
    return results


HEADER = (
    f"{'model':44} {'same':>5} {'one':>4} {'losses':>8} {'gradient':>8} {'params':>8} {'grph':>4} "
    f"{'first s':>7} {'step s':>7} {'eager s':>7}  breaks"
)


def line_of(name: str, result: dict) -> str:
    """A result, as a line of the table."""
    numbers = (
        f"{result['losses']:8.0e} {result['gradients']:8.0e} {result['parameters']:8.0e} "
        f"{result['graphs']:4} {result['first']:7.1f} {result['step']:7.3f} {result['eager']:7.3f}"
    )
    single = "yes" if result["single"] else "NO"
    said = "; ".join([*result["breaks"], *result["warned"]]) + said_of(result)
    return f"{name:44} {mark_of(result):>5} {single:>4} {numbers}  {said}"
