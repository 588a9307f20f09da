"""Costs of a step on each rank, said before it runs, beside those of real ranks.

For a decoder like GPT on 2 and 4 ranks of this machine, shared out by each scheme of
`distributed_curves.py`: the bytes that each rank sends in a step with AdamW, as
`gh.distributed.step_costs` says and as the transport counts, and the peak of its memory, as planned
and as the manager counts. Ranks with the same four numbers have a row together.

    python tools/judges/distributed_costs.py [WORD …] [--smoke]

WORDs choose the schemes whose names have all of them, such as `1f1b tensor`; all run without any.
Ends with 1 where a byte differs. `make_distributed_docs.py --costs` writes the table to the page.
"""

import sys
from pathlib import Path

from glasshouse import distributed as dist

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "unit" / "distributed"))

from distributed_curves import SCHEMES, Scheme
from harness import has_words
from planned_steps import measured, predicted

HEAD = ("scheme", "ranks", "sent, predicted", "measured", "peak, predicted", "measured")


def measured_all(kind: str, schemes: dict[str, Scheme]) -> list[tuple[int, int]]:
    """(peak, bytes sent) of this rank in the last step of each scheme."""
    results = []
    for name, scheme in schemes.items():
        if dist.rank() == 0:
            print(f"  {name}", file=sys.stderr, flush=True)
        *_, (peak, sent, _) = measured(kind, scheme)
        results.append((peak, sent))
    return results


def rows(name: str, kind: str, scheme: Scheme, result: list[tuple[int, int]]) -> list[tuple]:
    """(scheme, ranks, bytes predicted, measured, peak predicted, measured), a row for all ranks
    with the same numbers, of what each found."""
    ranks: dict[tuple, list[str]] = {}
    pairs = zip(predicted(kind, scheme), result, strict=True)
    for rank, (own, (peak, sent)) in enumerate(pairs):
        numbers = sum(own.sent_bytes.values()), sent, own.peaks[-1], peak
        ranks.setdefault(numbers, []).append(f"{rank}")
    return [(name, " ".join(own), *numbers) for numbers, own in ranks.items()]


def line(cells: tuple) -> str:
    numbers = (f"{x:,}" if isinstance(x, int) else x for x in cells[2:])
    return f"{cells[0]:<24}{cells[1]:<8}{''.join(f'{x:>17}' for x in numbers)}"


def table(kind: str, words=()) -> tuple[str, bool]:
    """The table as text, and whether both numbers are equal everywhere."""
    schemes = {name: scheme for name, scheme in SCHEMES["gpt"].items() if has_words(name, words)}
    results: dict[str, list] = {}
    for size in {scheme.ranks for scheme in schemes.values()}:  # ranks stay from one to the next
        own = {name: scheme for name, scheme in schemes.items() if scheme.ranks == size}
        by_rank = dist.spawn(measured_all, size, kind, own)
        results |= dict(zip(own, zip(*by_rank, strict=True), strict=True))
    lines = [row for name, x in schemes.items() for row in rows(name, kind, x, results[name])]
    agree = all(row[2] == row[3] and row[4] == row[5] for row in lines)
    return "\n".join(map(line, (HEAD, *lines))), agree


if __name__ == "__main__":
    is_smoke, words = "--smoke" in sys.argv, [x for x in sys.argv[1:] if x != "--smoke"]
    text, agree = table("decoder", ["ZeRO 1, 2"]) if is_smoke else table("large decoder", words)
    print(text)
    sys.exit(0 if agree else 1)
