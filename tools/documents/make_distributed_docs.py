"""Makes parts of docs/inside/distributed.md: `python tools/documents/make_distributed_docs.py`
draws the schedules and the table of exchanges, and writes the differences that
tools/judges/distributed_curves.py saved, which a test compares with the page; with `--costs` it
writes the table of tools/judges/distributed_costs.py. The pictures of traces are made by
tools/documents/make_distributed_pictures.py."""

import json
import re
import sys
from pathlib import Path

from glasshouse.distributed.pipelines.schedules import make_schedule
from glasshouse.ops.exchange import EXCHANGES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "inside" / "distributed.md"
CURVES = ROOT / "benchmarks" / "results" / "distributed_curves.json"
SCHEDULES = (("gpipe", 4, 4), ("1f1b", 4, 4), ("interleaved", 2, 4))


def schedules() -> str:
    """The schedules that the page shows."""
    results = [make_schedule(name, ranks=r, microbatches=4, stages=s) for name, r, s in SCHEDULES]
    return "\n\n".join(map(str, results))


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


def exchanges() -> str:
    """A table of the exchanges: the transports' method, what a rank sends, what ranks compare."""
    lines = [
        "| method | what it does | a rank sends | over shared_files | ranks compare |",
        "| --- | --- | --- | --- | --- |",
    ]
    for way in EXCHANGES.values():
        clear = (way.sent_clear or way.sent).__doc__
        compared = [f"`{name}`" for name in (way.option, *way.axes) if name]
        name = way.signature if way.method == way.name else f"{way.method}, by pairs"
        cells = f"`{name}`", way.doc, way.sent.__doc__, clear, ", ".join(compared)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def page(pictures: dict[str, str]) -> str:
    """The document with these pictures, and tables."""
    text = PAGE.read_text()
    for name, picture in pictures.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        head, _, rest = text.partition(begin)
        block = picture if picture.startswith("|") else f"```text\n{picture}\n```"
        text = f"{head}{begin}\n{block}\n{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    pictures = {"schedules": schedules(), "curves": curves(), "exchanges": exchanges()}
    if "--costs" in sys.argv:
        import distributed_costs

        pictures["costs"], _ = distributed_costs.table("large decoder")
    PAGE.write_text(page(pictures))
    print(PAGE)
