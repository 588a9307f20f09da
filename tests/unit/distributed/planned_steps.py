"""Steps of models that ranks share out, as `step_costs` takes them, and what real ranks take."""

import gc
from itertools import pairwise

import numpy as np
from parallel_models import DECODER_PLANS, Scheme, loss_by_class, loss_of

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse.base.flags import flags
from glasshouse.distributed import Column, Row
from glasshouse.ops.process import process

STEPS, MICROBATCHES = 3, 4
ROWS = {"wide decoder": 8, "wide mlp": 256}  # of a batch; 16 of the others
DECODERS = {
    "decoder": {"vocab": 48, "layers": 1, "dim": 32, "heads": 2, "ff": 64, "max_len": 16},
    "large decoder": {"vocab": 512, "layers": 4, "dim": 128, "heads": 4, "ff": 512, "max_len": 64},
    "wide decoder": {"vocab": 256, "layers": 2, "dim": 256, "heads": 8, "ff": 1024, "max_len": 128},
}
WIDTHS = {"mlp": (32, 64, 48, 64, 32), "large mlp": (512,) * 3, "wide mlp": (1024,) * 7}


def model_of(kind: str) -> gh.nn.Module:
    gh.random.seed(0)
    if kind in DECODERS:
        return gh.text.models.GptLike(**DECODERS[kind])
    layers = [gh.nn.Linear(*pair) for pair in pairwise(WIDTHS[kind])]
    return gh.nn.Sequential(*(part for layer in layers for part in (layer, gh.nn.Tanh())))


def batch_of(kind: str, axes: dict[str, int]) -> list[tuple]:
    """Shape and dtype of input and target of a rank."""
    rows = ROWS.get(kind, 16) // axes.get("data", 1)
    if kind in DECODERS:
        return [((rows, DECODERS[kind]["max_len"] // axes.get("context", 1)), "int64")] * 2
    return [((rows, WIDTHS[kind][0]), "float32")] * 2


def plan_of(kind: str, plan: str) -> dict:
    """A plan of tensor, sequence or context parallel; of an MLP, tensor parallel."""
    if kind in DECODERS:
        return DECODER_PLANS[plan]
    return {str(2 * i): Row() if i % 2 else Column() for i in range(len(WIDTHS[kind]) - 1)}


def build(kind: str, scheme: Scheme, rule: str = "AdamW") -> tuple:
    """Make the objects of a rank before it trains."""
    mesh, batch = dist.mesh(scheme.axes), batch_of(kind, scheme.axes)
    of_batches = {"example": batch[0], "microbatches": MICROBATCHES} if scheme.schedule else {}
    plan = plan_of(kind, scheme.plan) if scheme.plan else {}
    model, optimizer = scheme.shared_out(
        model_of(kind), mesh, plan, lambda p: getattr(gh.optim, rule)(p, lr=1e-3), **of_batches
    )
    loss = loss_of if kind in DECODERS else gh.nn.functional.mse_loss
    if kind in DECODERS and "tensor" in scheme.axes:
        loss = loss_by_class(mesh["tensor"])
    return model, loss, optimizer, batch


def sent_so_far() -> int:
    return sum(transport.sent_bytes for transport in process.transports.values())


def train_step(model, measure, optimizer, inputs) -> None:
    optimizer.zero_grad()
    if isinstance(model, dist.Pipeline):
        loss = model.step(*inputs, measure)
    else:
        loss = measure(model(inputs[0]), inputs[1])
        loss.backward()
    optimizer.step()
    gh.eval(loss, *(p.grad for p in model.parameters()))


def measured(*args) -> list[tuple[int, int, int]]:
    """(peak, bytes that the transports sent, bytes that were counted) of this rank's steps."""
    results = []
    with flags.override(compile="always"), gh.memory.use(type(gh.memory.current())()):
        model, measure, optimizer, specs = build(*args)
        inputs = [gh.asarray(np.zeros(shape, dtype)) for shape, dtype in specs]
        gh.eval(*model.parameters())
        gc.collect()
        for _ in range(STEPS):
            gh.memory.reset_peak()
            before = sent_so_far()
            with gh.FlopCounter() as counter:
                train_step(model, measure, optimizer, inputs)
            sent = sent_so_far() - before, sum(counter.sent_bytes().values())
            results.append((gh.memory.stats().peak_allocated_bytes, *sent))
    return results


def predicted(kind: str, scheme: Scheme, rule: str = "AdamW", **named) -> list:
    """The analysis of each rank."""
    with flags.override(compile="always"), gh.memory.use(type(gh.memory.current())()):
        named = {"steps": STEPS} | named
        return dist.step_costs(build, scheme.ranks, kind, scheme, rule, **named)
