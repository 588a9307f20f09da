"""Makes the pictures of docs/distributed.md: `python tools/make_distributed_docs.py` draws the
schedules and writes the differences that tools/distributed_curves.py saved, which a test compares
with the page; with `--trace` it also runs a pipeline on two ranks of this machine and draws when
its forwards and backwards really ran, with `--costs` it writes the table of
tools/distributed_costs.py."""

import json
import re
import sys
import time
from pathlib import Path

import numpy as np

import glasshouse as gh
from glasshouse.distributed.pipeline_run import PipelineRun
from glasshouse.distributed.schedules import make_schedule

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "distributed.md"
CURVES = ROOT / "benchmarks" / "results" / "distributed_curves.json"
SCHEDULES = (("gpipe", 4, 4), ("1f1b", 4, 4), ("interleaved", 2, 4))
COLUMNS = 72  # of the picture of a trace
RANKS, LAYERS, WIDTH, ROWS, MICROBATCHES = 2, 8, 1024, 512, 4


def schedules() -> str:
    """The schedules that the page shows."""
    made = [make_schedule(name, ranks=r, microbatches=4, stages=s) for name, r, s in SCHEDULES]
    return "\n\n".join(map(str, made))


def timed_step() -> list[tuple[str, float, float]]:
    """What this rank computes in the fastest of some steps of a pipeline, and when."""
    spans, steps = [], []
    for kind in ("forward", "backward"):
        setattr(PipelineRun, kind, timed(kind, getattr(PipelineRun, kind), spans))
    gh.random.seed(0)
    model = gh.nn.Sequential(*(gh.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    mesh, x = gh.distributed.mesh({"pipe": RANKS}), gh.ones((ROWS, WIDTH))
    pipe = gh.distributed.pipeline(model, mesh, example=x, microbatches=MICROBATCHES)
    for _ in range(12):
        spans.clear()
        gh.distributed.barrier()
        begin = time.time()
        pipe.step(x, x, gh.nn.functional.mse_loss).item()
        steps.append((time.time() - begin, list(spans)))
    times = gh.distributed.all_gather_object([seconds for seconds, _ in steps])
    return steps[int(np.argmin(np.max(times, axis=0)))][1]


def timed(kind: str, method, spans: list):
    """The method of a run, which notes its time after what it needs has come."""

    def call(self, action):
        operand = action.operand(len(self.plan.stages))
        for message in self.coming.get(operand, ()):
            message.wait()
        begin = time.time()
        method(self, action)
        spans.append((f"{kind[0].upper()}{action.microbatch}", begin, time.time()))

    return call


def trace() -> str:
    """The picture of a real step."""
    ranks = gh.distributed.spawn(timed_step, RANKS)
    begin = min(span[1] for spans in ranks for span in spans)
    end = max(span[2] for spans in ranks for span in spans)
    rows = [f"{1000 * (end - begin):.1f} ms, a row a rank"]
    for rank, spans in enumerate(ranks):
        cells = np.full(COLUMNS + 4, ".", "<U1")
        for label, *ends in spans:
            first, last = ((at - begin) / (end - begin) * COLUMNS for at in ends)
            text = label.ljust(max(round(last) - round(first), 2), "=")
            cells[round(first) : round(first) + len(text)] = list(text)
        rows.append(f"rank {rank}  {''.join(cells[:COLUMNS])}")
    return "\n".join(rows)


def curves() -> str:
    """The worst difference of the loss curves of each scheme, whatever the number of ranks and the
    schedule of a pipeline, by model and optimizer."""
    worst: dict[str, dict[str, float]] = {}
    for name, row in json.loads(CURVES.read_text())["results"]["rows"].items():
        if "difference" in row:
            kind, rule, scheme = name.split(" ", 2)
            scheme = re.sub("gpipe|1f1b|interleaved", "pipeline", scheme.partition(",")[0])
            own = worst.setdefault(scheme, {})
            own[f"{kind} {rule}"] = max(row["difference"], own.get(f"{kind} {rule}", 0.0))
    columns = list(dict.fromkeys(column for own in worst.values() for column in own))
    lines = [f"{'':20}" + "".join(f"{column:>16}" for column in columns)]
    for scheme, own in worst.items():
        cells = (f"{own[column]:16.1e}" if column in own else " " * 16 for column in columns)
        lines.append(f"{scheme:20}" + "".join(cells))
    return "\n".join(line.rstrip() for line in lines)


def page(pictures: dict[str, str]) -> str:
    """The document with these pictures."""
    text = PAGE.read_text()
    for name, picture in pictures.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        head, _, rest = text.partition(begin)
        text = f"{head}{begin}\n```text\n{picture}\n```\n{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    drawn = {"schedules": schedules(), "curves": curves()}
    if "--trace" in sys.argv:
        drawn["trace"] = trace()
    if "--costs" in sys.argv:
        import distributed_costs

        drawn["costs"], _ = distributed_costs.table("large decoder")
    PAGE.write_text(page(drawn))
    print(PAGE)
