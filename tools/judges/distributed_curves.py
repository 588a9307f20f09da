"""Loss curves of several ranks beside one process with the same global batch, over 20 steps.

A row is a model, an optimizer and a scheme: data parallel, ZeRO, tensor, sequence, context and
pipeline parallel, and two of them at once, on 2 and 4 ranks of this machine. It says by how much,
relative to the loss, the curves differ at most, and how much is allowed: 1e-5 for SGD, 1e-4 for
AdamW. Beside it stands by how much the curve of one process differs if the rows of each batch come
in another order (`rounding`), and if the learning rate is 1 % higher (`faster`), which shows what a
row can tell apart. What a model is not made for is tried too, and listed with its refusal.

    python tools/judges/distributed_curves.py [WORD …] [--smoke] [--out FOLDER]

WORDs choose the rows whose names have all of them, such as `gpt adamw 1f1b`; all rows run without
any. Those that ran are saved, in the place of earlier ones. Ends with 1 where a row is out of
tolerance, fails, or is not refused.
"""

import os
import sys
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse.base.errors import CollectiveError, OptionError
from glasshouse.distributed import Column, ContextParallel, Replicate, Row, Shard
from glasshouse.vision.models.resnet import BasicBlock

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests" / "unit" / "distributed")]

from harness import has_words, parse_arguments, save_rows, show  # noqa: E402
from parallel_models import (  # noqa: E402
    DECODER_PLANS,
    STAGES_PER_RANK,
    Scheme,
    loss_by_class,
    loss_of,
)

STEPS, TIMEOUT_S = 20, 300.0
BATCH, LENGTH, VOCABULARY, CLASSES = 16, 16, 64, 8
TOLERANCES = {"SGD": 1e-5, "AdamW": 1e-4}
OPTIMIZERS = {
    "SGD": lambda p, rate: gh.optim.SGD(p, lr=rate, momentum=0.9),
    "AdamW": lambda p, rate: gh.optim.AdamW(p, lr=rate),
}
RATES = {
    "mlp": {"SGD": 0.05, "AdamW": 1e-3},
    "gpt": {"SGD": 0.05, "AdamW": 1e-3},
    "resnet18": {"SGD": 5e-4, "AdamW": 4e-5},
}
MLP_LAYERS = 7
RESNET_18 = {"layers": (2, 2, 2, 2), "width": 64}
PLANS = {
    "mlp": {
        "tensor": {
            **{str(i): Column() for i in range(0, 2 * MLP_LAYERS, 4)},
            **{str(i): Row() for i in range(2, 2 * MLP_LAYERS, 4)},
            str(2 * MLP_LAYERS - 2): Column(output=Replicate()),
        },
        "context": {"0": ContextParallel()},
    },
    "gpt": DECODER_PLANS,
    "resnet18": {
        "tensor": {"fc": Column(output=Replicate())},
        "tensor of convolutions": {"layer1.*.conv*": Column()},
        "context": {"conv1": ContextParallel()},
    },
}


def parts_of(scheme: Scheme, kind: str) -> tuple[int, int]:
    """Into how many parts ranks and microbatches cut a batch, as far as the numbers depend on it:
    BatchNorm sees microbatches, those of all ranks along "data" together."""
    if scheme.schedule and kind == "resnet18":
        return scheme.axes.get("data", 1), scheme.axes["pipe"]
    return 1, 1


def by_rows() -> dict[str, Scheme]:
    """Data parallel and ZeRO."""
    names = {0: "data", 1: "ZeRO 1", 2: "ZeRO 2", 3: "ZeRO 3"}
    return {
        f"{name}, {count} ranks": Scheme({"data": count}, stage=stage)
        for stage, name in names.items()
        for count in (2, 4)
    }


def by_plans(*plans: tuple[str, str]) -> dict[str, Scheme]:
    """Plans, alone and beside data parallel and ZeRO; each with the axis that it names."""
    results = {}
    for plan, axis in plans:
        for count in (2, 4):
            results[f"{plan}, {count} ranks"] = Scheme({axis: count}, plan)
        for stage, name in enumerate(("data", "ZeRO 1", "ZeRO 2", "ZeRO 3")):
            results[f"{name} × {plan}"] = Scheme({"data": 2, axis: 2}, plan, stage)
    return results


def by_stages(*plans: tuple[str, str]) -> dict[str, Scheme]:
    """Pipelines, alone and beside data parallel, ZeRO and plans."""
    results = {}
    for schedule in STAGES_PER_RANK:
        for count in (2, 4):
            results[f"{schedule}, {count} ranks"] = Scheme({"pipe": count}, schedule=schedule)
        results[f"data × {schedule}"] = Scheme({"data": 2, "pipe": 2}, schedule=schedule)
        for plan, axis in plans:
            results[f"{schedule} × {plan}"] = Scheme({"pipe": 2, axis: 2}, plan, schedule=schedule)
    for stage in (1, 2):
        results[f"ZeRO {stage} × 1f1b"] = Scheme({"data": 2, "pipe": 2}, "", stage, "1f1b")
    return results


TENSOR, SEQUENCE, CONTEXT = ("tensor", "tensor"), ("sequence", "tensor"), ("context", "context")
TWO_BY_TWO = {"context": 2, "tensor": 2}
SCHEMES = {
    "mlp": {**by_rows(), **by_plans(TENSOR), **by_stages(TENSOR)},
    "gpt": {
        **by_rows(),
        **by_plans(TENSOR, SEQUENCE, CONTEXT),
        "tensor × context": Scheme(TWO_BY_TWO, "tensor, context"),
        "sequence × context": Scheme(TWO_BY_TWO, "sequence, context"),
        **by_stages(TENSOR, SEQUENCE, CONTEXT),
    },
    "resnet18": {
        **by_rows(),
        "tensor, 2 ranks": Scheme({"tensor": 2}, "tensor"),
        "data × tensor": Scheme({"data": 2, "tensor": 2}, "tensor"),
        **by_stages(),
    },
}
ZERO_3_OF_STAGES = Scheme({"data": 2, "pipe": 2}, "", 3, "1f1b")
REFUSED = {
    "mlp": {"context": Scheme({"context": 2}, "context"), "ZeRO 3 × 1f1b": ZERO_3_OF_STAGES},
    "gpt": {"ZeRO 3 × 1f1b": ZERO_3_OF_STAGES},
    "resnet18": {
        "context": Scheme({"context": 2}, "context"),
        "tensor of convolutions": Scheme({"tensor": 2}, "tensor of convolutions"),
        "ZeRO 3 × 1f1b": ZERO_3_OF_STAGES,
    },
}


def build(kind: str, group=None) -> gh.nn.Module:
    """A model, the same on each rank; its BatchNorm takes statistics over the group."""
    gh.random.seed(1)
    if kind == "mlp":
        sizes = [32, *[128] * (MLP_LAYERS - 1), CLASSES]
        layers = [gh.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False)]
        parts = [part for layer in layers for part in (layer, gh.nn.Tanh())]
        return gh.nn.Sequential(*parts[:-1])
    if kind == "gpt":
        return gh.text.models.GptLike(VOCABULARY, 4, 64, 4, 256, LENGTH)
    model = gh.vision.models.resnet18(CLASSES, **RESNET_18)
    for block in model.modules():
        if isinstance(block, BasicBlock):  # each begins as its shortcut (arXiv:1706.02677, 5.1);
            gh.nn.init.zeros_(block.bn2.weight)  # else rounding grows a millionfold in 20 steps
    return gh.nn.SyncBatchNorm.convert_sync_batchnorm(model, group) if group else model


def batches(kind: str, count: int):
    """The same global batches on each rank."""
    rng = np.random.default_rng(7)
    for _ in range(count):
        if kind == "gpt":
            text = rng.integers(0, VOCABULARY // 4, (BATCH, LENGTH + 1)).cumsum(1) % VOCABULARY
            yield text[:, :-1], text[:, 1:]
        else:
            shape = (BATCH, 32) if kind == "mlp" else (BATCH, 3, 32, 32)
            yield rng.standard_normal(shape, np.float32), rng.integers(0, CLASSES, BATCH)


def curve_alone(
    kind: str,
    rule: str,
    steps: int,
    parts: tuple[int, int] = (1, 1),
    *,
    seed: int | None = None,
    rate: float = 1.0,
) -> dict:
    """Train in one process on a batch in such parts: a microbatch of all ranks at a time. With a
    seed, rows come in another order, in which each part keeps its own; `rate` is a factor of the
    learning rate."""
    model, rng = build(kind), np.random.default_rng(seed)
    optimizer = OPTIMIZERS[rule](model.parameters(), RATES[kind][rule] * rate)
    pieces = np.arange(BATCH).reshape(*parts, -1)  # (ranks, microbatches, rows)
    if seed is not None:
        pieces = rng.permuted(pieces, axis=-1)

    def step(batch):
        total = 0.0
        for number in range(parts[1]):
            x, target = (gh.asarray(whole[pieces[:, number].ravel()]) for whole in batch)
            loss = loss_of(model(x), target) / parts[1]
            loss.backward()
            total = total + loss.detach()
        return total

    return followed(batches(kind, steps), optimizer, step)


def curve(kind: str, rule: str, steps: int, scheme: Scheme) -> dict:
    """Return the curve of this rank."""
    mesh, over = dist.mesh(scheme.axes), scheme.over
    by_class = kind == "gpt" and "tensor" in scheme.axes
    loss = loss_by_class(mesh["tensor"]) if by_class else loss_of
    placed = {axis: Shard(int(axis == "context")) for axis in over}

    def own(batch):
        return [dist.place(whole, mesh, placed) for whole in batch]

    of_batches = {}
    if scheme.schedule:
        example, _ = own(next(batches(kind, 1)))
        of_batches = {"example": example, "microbatches": mesh.size("pipe")}
    model, optimizer = scheme.shared_out(
        build(kind, mesh.group(*over) if over else None),
        mesh,
        PLANS[kind][scheme.plan] if scheme.plan else {},
        lambda p: OPTIMIZERS[rule](p, RATES[kind][rule]),
        **of_batches,
    )

    def step(batch):
        x, target = own(batch)
        if scheme.schedule:
            return model.step(x, target, loss)
        value = loss(model(x), target)
        value.backward()
        return value

    return followed(batches(kind, steps), optimizer, step)


def followed(inputs, optimizer, step) -> dict:
    """Losses of the steps, and the bytes that this rank sends in the last one."""
    losses, sent = [], 0
    for batch in inputs:
        sent = sent_so_far()
        optimizer.zero_grad()
        loss = step(batch)
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "sent": sent_so_far() - sent}


def sent_so_far() -> int:
    """The bytes that this rank has sent, over all groups."""
    transports = gh.ops.process.process.transports.values()
    return sum(getattr(transport, "sent_bytes", 0) for transport in transports)


def apart(losses, alone: list[float]) -> float:
    """The largest relative difference of two curves."""
    return float(np.max(np.abs(np.array(losses) / alone - 1)))


class Task(NamedTuple):
    """A row: a model, an optimizer and a scheme, by name."""

    kind: str
    rule: str
    name: str
    steps: int = STEPS
    is_refused: bool = False

    @property
    def scheme(self) -> Scheme:
        return (REFUSED if self.is_refused else SCHEMES)[self.kind][self.name]

    def __str__(self):
        return f"{self.kind} {self.rule} {self.name}"


def all_tasks(steps: int) -> list[Task]:
    """All rows; a refusal does not depend on the optimizer."""
    rows = [
        Task(kind, rule, name, steps)
        for kind in SCHEMES
        for rule, name in product(TOLERANCES, SCHEMES[kind])
    ]
    return rows + [Task(kind, "SGD", name, 1, True) for kind in REFUSED for name in REFUSED[kind]]


def curves(tasks: list[Task]) -> list[dict]:
    """Return the curve of this rank for each task."""
    results = []
    for task in tasks:
        if dist.rank() == 0:
            print(f"  {task}", flush=True)
        results.append(curve(task.kind, task.rule, task.steps, task.scheme))
    return results


def curves_alone(keys: list[tuple]) -> dict[tuple, dict]:
    """Curves of one process, with how far rounding and a learning rate 1 % higher move them."""
    results = {}
    for key in keys:
        print("  alone:", *key, flush=True)
        own, rounded, faster = (curve_alone(*key, **o) for o in ({}, {"seed": 0}, {"rate": 1.01}))
        moved = {"rounding": rounded, "faster": faster}
        moved = {name: apart(other["losses"], own["losses"]) for name, other in moved.items()}
        results[key] = {**own, **moved}
    return results


def key_of(task: Task) -> tuple:
    """Return what a curve of one process depends on."""
    return task.kind, task.rule, task.steps, parts_of(task.scheme, task.kind)


def found_by_ranks(tasks: list[Task]) -> dict[Task, list[dict] | CollectiveError]:
    """Return the curves of each rank for tasks with the same number of ranks; these stay from one
    to the next. Where one fails, each gets ranks of its own."""
    try:
        result = dist.spawn(curves, tasks[0].scheme.ranks, tasks, timeout_s=TIMEOUT_S)
    except CollectiveError as error:
        if len(tasks) == 1:
            return {tasks[0]: error}
        return {k: v for task in tasks for k, v in found_by_ranks([task]).items()}
    return dict(zip(tasks, zip(*result, strict=True), strict=True))


def row_of(task: Task, result, alone: dict[tuple, dict]) -> dict:
    """Return the fields of a row."""
    row = {"ranks": task.scheme.ranks, "mesh": task.scheme.axes, "agrees": False}
    if isinstance(result, CollectiveError):
        cause = result.__cause__
        is_refusal = task.is_refused and isinstance(cause, OptionError)
        return {
            **row,
            "agrees": is_refusal,
            "refused" if is_refusal else "failed": str(cause or result),
        }
    if task.is_refused:
        return {**row, "failed": "It was to be refused, and ran."}
    beside, allowed = alone[key_of(task)], TOLERANCES[task.rule]
    difference = apart(np.mean([own["losses"] for own in result], 0), beside["losses"])
    return {
        **row,
        "agrees": difference <= allowed,
        "difference": difference,
        "tolerance": allowed,
        "rounding": beside["rounding"],
        "faster": beside["faster"],
        "sent_bytes": max(own["sent"] for own in result),
    }


def batches_of(tasks: list[Task]) -> list[list[Task]]:
    """Tasks that share their ranks; refusals are alone."""
    results: dict[tuple, list[Task]] = {}
    for task in tasks:
        own = task.name if task.is_refused else ""
        results.setdefault((task.kind, task.rule, task.scheme.ranks, own), []).append(task)
    return list(results.values())


def cells(name: str, row: dict) -> list[str]:
    """A row of the table."""
    if "difference" not in row:
        return [
            name,
            str(row["ranks"]),
            "",
            "",
            "",
            "",
            "",
            "refused" if row["agrees"] else "FAILED",
        ]
    return [
        name,
        str(row["ranks"]),
        f"{row['difference']:.1e}",
        f"{row['tolerance']:.0e}",
        f"{row['rounding']:.1e}",
        f"{row['faster']:.1e}",
        f"{row['sent_bytes']:,}",
        "" if row["agrees"] else "APART",
    ]


def main() -> int:
    options = parse_arguments(__doc__, ("WORDs",))
    steps = 3 if options.smoke else STEPS
    words = options.parts or (["mlp", "SGD", "ZeRO 3, 2"] if options.smoke else [])
    every = all_tasks(steps)
    alone: dict[tuple, dict] = {}
    tasks = [task for task in every if has_words(str(task), words)]
    if not tasks:
        print(f"No row has all of {words}. Rows:", *every, sep="\n")
        return 1
    rows: dict[str, dict] = {}
    for batch in batches_of(tasks):
        keys = [key_of(task) for task in batch if not task.is_refused and key_of(task) not in alone]
        alone |= dist.spawn(curves_alone, 1, list(dict.fromkeys(keys)))[0] if keys else {}
        result = found_by_ranks(batch)
        rows |= {str(task): row_of(task, result[task], alone) for task in batch}
        if not options.smoke:
            save_rows("distributed_curves", rows, map(str, every), options, steps=steps)
    os.environ.setdefault("COLUMNS", "120")  # of the table, where there is no terminal
    columns = ["model, optimizer, scheme", "ranks", "apart", "allowed", "rounding", "faster"]
    table = [cells(*item) for item in rows.items()]
    show("Loss curves beside one process", [*columns, "bytes sent a step", ""], table)
    for name, row in rows.items():
        if text := row.get("failed") or row.get("refused"):
            print(f"{name}: {text}")
    wrong = [name for name, row in rows.items() if not row["agrees"]]
    print(f"{len(rows)} rows, {len(wrong)} wrong", *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
