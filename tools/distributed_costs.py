"""What a step costs on each rank, said before it runs, beside what real ranks take.

For a decoder like GPT on 2 ranks of this machine, and 4 where ranks share out a batch: the bytes
that each rank sends in a step with AdamW, as `gh.distributed.step_costs` says and as the transport
counts, and the peak of its memory, as planned and as the manager counts.

    python tools/distributed_costs.py [--smoke]

Ends with 1 where a byte differs. `make_distributed_docs.py --costs` writes the table to the page.
"""

import sys
from pathlib import Path

from glasshouse import distributed as dist

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "unit" / "distributed"))

from planned_steps import measured, predicted  # noqa: E402

CASES = {  # scheme: (way, ranks, option)
    "data parallel": ("by_rows", 2, 0),
    "ZeRO 1": ("by_rows", 2, 1),
    "ZeRO 2": ("by_rows", 2, 2),
    "ZeRO 3": ("by_rows", 2, 3),
    "ZeRO 3, 4 ranks": ("by_rows", 4, 3),
    "tensor parallel": ("by_plan", 2, "tensor"),
    "sequence parallel": ("by_plan", 2, "sequence"),
    "context parallel": ("by_plan", 2, "context"),
    "GPipe": ("by_stages", 2, "gpipe"),
    "1F1B": ("by_stages", 2, "1f1b"),
    "interleaved": ("by_stages", 2, "interleaved"),
}
HEAD = ("scheme", "rank", "sent, predicted", "measured", "peak, predicted", "measured")


def rows(scheme: str, kind: str) -> list[tuple]:
    """(scheme, rank, bytes predicted, measured, peak predicted, measured) of each rank."""
    way, size, option = CASES[scheme]
    costs = predicted(way, kind, size, option)
    found = dist.spawn(measured, size, way, kind, size, option)
    return [
        (scheme, f"{rank}", sum(own.sent_bytes.values()), sent, own.peaks[-1], peak)
        for rank, (own, [*_, (peak, sent, _)]) in enumerate(zip(costs, found, strict=True))
    ]


def line(cells: tuple) -> str:
    numbers = (f"{x:,}" if isinstance(x, int) else x for x in cells[2:])
    return f"{cells[0]:<20}{cells[1]:<8}{''.join(f'{x:>17}' for x in numbers)}"


def table(kind: str, schemes=tuple(CASES)) -> tuple[str, bool]:
    """The table as text, and whether both numbers are equal everywhere."""
    found = [row for scheme in schemes for row in rows(scheme, kind)]
    agree = all(row[2] == row[3] and row[4] == row[5] for row in found)
    return "\n".join(map(line, (HEAD, *found))), agree


if __name__ == "__main__":
    is_smoke = "--smoke" in sys.argv
    text, agree = table("decoder", ["ZeRO 1"]) if is_smoke else table("large decoder")
    print(text)
    sys.exit(0 if agree else 1)
