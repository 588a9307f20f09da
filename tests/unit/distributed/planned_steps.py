"""Steps of models that ranks share out, as `step_costs` takes them, and what real ranks take."""

import gc

import numpy as np
from parallel_models import DECODER_PLANS, loss_by_class, loss_of

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse.base.flags import flags
from glasshouse.ops.collective import process

STEPS, ROWS, MICROBATCHES = 3, 16, 4
DECODERS = {
    "decoder": {"vocab": 48, "layers": 1, "dim": 32, "heads": 2, "ff": 64, "max_len": 16},
    "large decoder": {"vocab": 512, "layers": 4, "dim": 128, "heads": 4, "ff": 512, "max_len": 64},
}
WIDTHS = 32, 64, 48, 64, 32  # of the MLP


def model_of(kind: str) -> gh.nn.Module:
    gh.random.seed(0)
    if kind in DECODERS:
        return gh.text.models.GptLike(**DECODERS[kind])
    layers = [gh.nn.Linear(*pair) for pair in zip(WIDTHS, WIDTHS[1:], strict=False)]
    return gh.nn.Sequential(*(part for layer in layers for part in (layer, gh.nn.Tanh())))


def batch_of(kind: str, *, rows: int = ROWS, ranks: int = 1) -> list[tuple]:
    """Shape and dtype of input and target, whose sequence `ranks` share out."""
    if kind in DECODERS:
        return [((rows, DECODERS[kind]["max_len"] // ranks), "int64")] * 2
    return [((rows, WIDTHS[0]), "float32")] * 2


def loss_for(kind: str):
    return loss_of if kind in DECODERS else gh.nn.functional.mse_loss


def by_rows(kind: str, size: int, stage: int) -> tuple:
    """Data parallel (0) and the stages of ZeRO."""
    mesh, model = dist.mesh({"data": size}), model_of(kind)
    optimizer = gh.optim.AdamW(model.parameters())
    if stage:
        optimizer = dist.zero(model, optimizer, mesh, stage=stage)
    else:
        dist.replicate(model, mesh)
    return model, loss_for(kind), optimizer, batch_of(kind, rows=ROWS // size)


def by_plan(kind: str, size: int, plan: str) -> tuple:
    """Tensor, sequence and context parallel."""
    axis = "context" if plan == "context" else "tensor"
    mesh, model = dist.mesh({axis: size}), model_of(kind)
    dist.distribute(model, mesh, DECODER_PLANS[plan])
    batch, loss = batch_of(kind), loss_by_class(mesh[axis])
    if plan == "context":
        dist.replicate(model, mesh, axis)
        batch, loss = batch_of(kind, ranks=size), loss_of
    return model, loss, gh.optim.AdamW(model.parameters()), batch


def by_stages(kind: str, size: int, schedule: str) -> tuple:
    """Pipelines."""
    mesh, batch = dist.mesh({"pipe": size}), batch_of(kind)
    options = {"schedule": schedule, "stages_per_rank": 2 if schedule == "interleaved" else 1}
    options |= {"microbatches": MICROBATCHES, "example": batch[0]}
    pipe = dist.pipeline(model_of(kind), mesh, **options)
    return pipe, loss_for(kind), gh.optim.AdamW(pipe.parameters()), batch


def build(way: str, *args) -> tuple:
    """What a rank makes before it trains."""
    return globals()[way](*args)


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
    found = []
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
            found.append((gh.memory.stats().peak_allocated_bytes, *sent))
    return found


def predicted(way: str, kind: str, size: int, option, **named) -> list:
    """The analysis of each rank."""
    with flags.override(compile="always"), gh.memory.use(type(gh.memory.current())()):
        named = {"steps": STEPS} | named
        return dist.step_costs(build, size, way, kind, size, option, **named)
