"""One model's whole training steps under gh.optimize beside eager's: what tools/torch_models.py
--capture runs in a process of its own."""

import copy
import time
import warnings

import torch
import torch_model_zoo as zoo

import glasshouse as gh

STEPS = 4  # the first two are captured: they make gradients and the optimizer's state
LOSSES, PARAMETERS, GRADIENTS = 1e-3, 1e-3, 2e-2  # relative differences that are allowed


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
    outputs = parts_of(model(**inputs))  # which may also make it ready, by hooks and the like
    return [torch.randn(x.shape, generator=generator).to(x.dtype) for x in outputs]


class Run:
    """What some steps of a copy of a model gave: losses, gradients, parameters and buffers."""

    def __init__(self, step, model, inputs: dict, weights: list[torch.Tensor]):
        self.model = model = copy.deepcopy(model)  # which keeps the entries
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        torch.manual_seed(2)
        self.losses, self.seconds = [], []
        for _ in range(STEPS):
            start = time.perf_counter()
            self.losses.append(step(model, optimizer, inputs, weights).clone())
            self.seconds.append(time.perf_counter() - start)
        parameters = dict(model.named_parameters())
        self.gradients = {k: p.grad for k, p in parameters.items() if p.grad is not None}
        self.state = model.state_dict()


def relative(ours: dict, eager: dict) -> float:
    """The largest difference by norm, as a part of the norm of what is compared, or of a thousandth
    of the largest there is: a gradient that is 0 but for rounding has no relative precision."""
    if list(ours) != list(eager):
        return float("inf")
    floats = {k: x.double() for k, x in eager.items() if x.is_floating_point()}
    largest = max((x.norm().item() for x in floats.values()), default=0.0)
    worst = 0.0
    for name, want in eager.items():
        got = ours[name]
        if got.shape != want.shape or got.dtype != want.dtype:
            return float("inf")
        if name not in floats:
            if not torch.equal(got, want):
                return float("inf")
            continue
        want = floats[name]
        difference = (got.double() - want).norm().item()
        if difference != difference:
            return float("inf")
        worst = max(worst, difference / max(want.norm().item(), 1e-3 * largest, 1e-30))
    return worst


def examine(library: str, name: str, compiler: str) -> dict:
    """One line of the table."""
    model, inputs = zoo.build(library, name)
    weights = weights_of(model, inputs)
    eager = Run(train, model, inputs, weights)
    step = gh.optimize(compiler)(train)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ours = Run(step, model, inputs, weights)
    losses = relative(dict(enumerate(ours.losses)), dict(enumerate(eager.losses)))
    gradients = relative(ours.gradients, eager.gradients)
    parameters = relative(ours.state, eager.state)
    told = [str(w.message)[:300] for w in told if "capture" in str(w.message)]
    capture = step.capture
    right = losses <= LOSSES and gradients <= GRADIENTS and parameters <= PARAMETERS
    return {
        "right": right and not told,
        "single": not capture.breaks,
        "losses": losses,
        "gradients": gradients,
        "parameters": parameters,
        "graphs": len([x for x in capture.entries if x.graph is not None]),
        "breaks": [f"{where}: {reason}" for where, reason, _ in capture.breaks],
        "warned": told,
        "first": ours.seconds[0],
        "step": ours.seconds[-1],
        "eager": eager.seconds[-1],
    }


HEADER = (
    f"{'model':44} {'same':>4} {'one':>4} {'losses':>8} {'gradient':>8} {'params':>8} {'grph':>4} "
    f"{'first s':>7} {'step s':>7} {'eager s':>7}  breaks"
)


def line_of(name: str, result: dict) -> str:
    """A result, as a line of the table."""
    numbers = (
        f"{result['losses']:8.0e} {result['gradients']:8.0e} {result['parameters']:8.0e} "
        f"{result['graphs']:4} {result['first']:7.1f} {result['step']:7.3f} {result['eager']:7.3f}"
    )
    marks = ["yes" if result[x] else "NO" for x in ("right", "single")]
    said = "; ".join([*result["breaks"], *result["warned"]])
    return f"{name:44} {marks[0]:>4} {marks[1]:>4} {numbers}  {said}"
