"""Loss curves of several ranks beside one process with the same global batch.

For each scheme (data parallel, ZeRO 1 to 3, tensor, sequence and context parallel, and
combinations) and model: the largest relative difference of the losses over the steps, the bytes
that a rank sends in a step, and the peak of a rank's memory beside that of one process.

    python tools/distributed_curves.py [--steps 20] [--only gpt] [--smoke]

Ends with 1 where a difference is above the limit: 1e-5 for SGD, 1e-4 for AdamW.
"""

import argparse
import sys

import numpy as np
from rich.console import Console
from rich.table import Table

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse.distributed import Column, ContextParallel, Heads, Row, Sequence, Shard, Vocabulary
from glasshouse.distributed import Replicate as Whole

OPTIMIZERS = {
    "SGD": lambda p: gh.optim.SGD(p, lr=0.05, momentum=0.9),
    "AdamW": lambda p: gh.optim.AdamW(p, lr=1e-3),
}
LIMITS = {"SGD": 1e-5, "AdamW": 1e-4}
MODELS = ("mlp", "gpt", "resnet18")
BATCH, LENGTH, VOCABULARY = 8, 16, 64
TENSOR = {
    "tokens": Vocabulary(),
    "layers.*.self_attn": Heads(),
    "layers.*.linear1": Column(),
    "layers.*.linear2": Row(),
    "output": Column(),
}
PLANS = {
    "mlp": {"tensor": {"0": Column(), "2": Row(), "4": Column(output=Whole())}},
    "gpt": {
        "tensor": TENSOR,
        "sequence": {
            "tokens": Vocabulary(),
            "dropout": Sequence(input=Whole()),
            "layers.*.norm*": Sequence(),
            "layers.*.self_attn": Heads(input=Shard(1), output=Shard(1)),
            "layers.*.linear1": Column(input=Shard(1)),
            "layers.*.linear2": Row(output=Shard(1)),
            "norm": Sequence(),
            "output": Column(input=Shard(1)),
        },
        "context": {"positions": ContextParallel(), "layers.*.self_attn": ContextParallel()},
        "tensor, context": {
            **TENSOR,
            "positions": ContextParallel(),
            "layers.*.self_attn": [Heads(), ContextParallel()],
        },
    },
    "resnet18": {},
}
SCHEMES = {  # name: (axes of the mesh, plan, stage of ZeRO)
    "data parallel": ({"data": 2}, "", 0),
    "data parallel, 4 ranks": ({"data": 4}, "", 0),
    "ZeRO 1": ({"data": 2}, "", 1),
    "ZeRO 2": ({"data": 2}, "", 2),
    "ZeRO 3": ({"data": 2}, "", 3),
    "ZeRO 3, 4 ranks": ({"data": 4}, "", 3),
    "tensor": ({"tensor": 2}, "tensor", 0),
    "sequence": ({"tensor": 2}, "sequence", 0),
    "context": ({"context": 2}, "context", 0),
    "context, 4 ranks": ({"context": 4}, "context", 0),
    "data × tensor": ({"data": 2, "tensor": 2}, "tensor", 0),
    "ZeRO 3 × tensor": ({"data": 2, "tensor": 2}, "tensor", 3),
    "ZeRO 3 × sequence": ({"data": 2, "tensor": 2}, "sequence", 3),
    "ZeRO 2 × context": ({"data": 2, "context": 2}, "context", 2),
    "tensor × context": ({"context": 2, "tensor": 2}, "tensor, context", 0),
}


def build(kind: str) -> gh.nn.Module:
    gh.random.seed(1)
    if kind == "mlp":
        wide, act = gh.nn.Linear(256, 256), gh.nn.Tanh
        return gh.nn.Sequential(gh.nn.Linear(32, 256), act(), wide, act(), gh.nn.Linear(256, 8))
    if kind == "gpt":
        return gh.text.models.GptLike(VOCABULARY, 2, 64, 4, 256, LENGTH)
    return gh.nn.SyncBatchNorm.convert_sync_batchnorm(gh.vision.models.resnet18(10))


def batches(kind: str, count: int):
    """The same global batches on each rank."""
    rng = np.random.default_rng(7)
    for _ in range(count):
        if kind == "gpt":
            text = rng.integers(0, VOCABULARY // 4, (BATCH, LENGTH + 1)).cumsum(1) % VOCABULARY
            yield text[:, :-1], text[:, 1:]
        else:
            shape = (BATCH, 32) if kind == "mlp" else (BATCH, 3, 32, 32)
            yield rng.standard_normal(shape, np.float32), rng.integers(0, 8, BATCH)


def loss_of(scores, target, group=None):
    rows, target = scores.reshape((-1, scores.shape[-1])), target.reshape(-1)
    if group is not None:
        return dist.cross_entropy(rows, target, group=group)
    return gh.nn.functional.cross_entropy(rows, target)


def curve(kind: str, rule: str, steps: int, scheme: str | None) -> dict:
    """Losses of this rank, with bytes sent in the last step and the peak of the memory in it."""
    axes, plan, stage = SCHEMES[scheme] if scheme else ({}, "", 0)
    model = build(kind)
    optimizer = OPTIMIZERS[rule](model.parameters())
    mesh = dist.mesh(axes) if axes else None
    over = tuple(axis for axis in axes if axis != "tensor")
    if plan:
        dist.distribute(model, mesh, PLANS[kind][plan])
    if stage:
        optimizer = dist.zero(model, optimizer, mesh, over, stage=stage)
    elif over:
        dist.replicate(model, mesh, over)
    group = mesh["tensor"] if "tensor" in axes and kind == "gpt" else None
    cut = {axis: Shard(int(axis == "context")) for axis in over}
    losses, sent = [], 0
    for x, target in batches(kind, steps):
        if len(losses) == steps - 1:
            gh.memory.reset_peak()
            sent = sent_so_far()
        if mesh is not None:
            x, target = (dist.place(part, mesh, cut) for part in (x, target))
        optimizer.zero_grad()
        loss = loss_of(model(gh.asarray(x)), gh.asarray(target), group)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    stats = gh.memory.stats()
    return {
        "losses": losses,
        "sent": sent_so_far() - sent,
        "peak": stats.peak_allocated_bytes,
        "kept": stats.allocated_bytes,
    }


def sent_so_far() -> int:
    """The bytes that this rank has sent, over all groups."""
    transports = gh.ops.collective.process.transports.values()
    return sum(getattr(transport, "sent_bytes", 0) for transport in transports)


def compare(kind: str, rule: str, scheme: str, steps: int, alone: dict) -> tuple[list[str], bool]:
    """A row of the table, and whether the losses agree."""
    axes = SCHEMES[scheme][0]
    size = int(np.prod(list(axes.values())))
    found = dist.spawn(curve, size, kind, rule, steps, scheme)
    losses = np.mean([own["losses"] for own in found], axis=0)
    difference = float(np.max(np.abs(losses / alone["losses"] - 1)))
    agrees = difference <= LIMITS[rule]
    peak, kept = (max(own[name] for own in found) for name in ("peak", "kept"))
    cells = [kind, rule, scheme, str(steps), f"{difference:.1e}" + ("" if agrees else " !")]
    cells += [f"{max(own['sent'] for own in found):,}", f"{kept / alone['kept']:.2f}"]
    return [*cells, f"{peak:,}", f"{peak / alone['peak']:.2f}"], agrees


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", choices=MODELS, help="one of the models")
    parser.add_argument("--smoke", action="store_true", help="3 steps of one scheme and model")
    options = parser.parse_args()
    steps = 3 if options.smoke else options.steps
    columns = ("model", "rule", "scheme", "steps", "difference", "bytes sent a step")
    table = Table(*columns, "kept of alone", "peak bytes", "of alone", box=None)
    agree = True
    for kind in [options.only] if options.only else MODELS[: 1 if options.smoke else None]:
        for rule in OPTIMIZERS:
            alone = dist.spawn(curve, 1, kind, rule, steps, None)[0]
            for scheme, (_, plan, _) in SCHEMES.items():
                if plan and plan not in PLANS[kind]:
                    continue
                if options.smoke and scheme != "ZeRO 3":
                    continue
                row, agrees = compare(kind, rule, scheme, steps, alone)
                print(*row, sep="  ", flush=True)
                table.add_row(*row)
                agree = agree and agrees
    Console(width=140).print(table)
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
