"""Shared by all benchmarks: interleaved runs, medians and spread, a record with the machine."""

import argparse
import json
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from glasshouse.cli.info import machine, versions

RESULTS = Path(__file__).parent / "results"


def parse_arguments(description: str, parts=()) -> argparse.Namespace:
    """The options of every benchmark: `smoke` (run once, prove nothing) and `out`; where there are
    `parts`, those to run, all unless named."""
    parser = argparse.ArgumentParser(description=description)
    if parts:
        parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)}")
    parser.add_argument("--smoke", action="store_true", help="a short run that only shows it works")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON record")
    return parser.parse_args()


def measure(cases: dict, repeats: int, calls: int = 1) -> dict[str, list[float]]:
    """Seconds per call of each case: `repeats` rounds, each timing `calls` calls of every case.

    The rounds are interleaved, so that a slow moment of the machine hits all cases alike. One round
    before them is not counted.
    """
    times: dict[str, list[float]] = {name: [] for name in cases}
    for round_number in range(repeats + 1):
        for name, fn in cases.items():
            start = time.perf_counter()
            for _ in range(calls):
                fn()
            seconds = (time.perf_counter() - start) / calls
            if round_number:
                times[name].append(seconds)
    return times


def summarize(times: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Median, lower and upper quartile of each case, in seconds."""
    summary = {}
    for name, values in times.items():
        quartiles = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
        summary[name] = {
            "median_s": statistics.median(values),
            "low_s": quartiles[0],
            "high_s": quartiles[2],
            "runs": len(values),
        }
    return summary


def save(name: str, results: dict, options: argparse.Namespace) -> Path:
    """Write results, machine, versions and time to `<out>/<name>.json`."""
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{name}.json"
    record = {
        "benchmark": name,
        "smoke": options.smoke,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "results": results,
    }
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def save_rows(name: str, rows: dict, order, options: argparse.Namespace, **more) -> Path:
    """`save` of rows by name, in this order, with those of an earlier run that this one did not
    make, and of `more` beside them."""
    path = options.out / f"{name}.json"
    before = json.loads(path.read_text())["results"]["rows"] if path.exists() else {}
    entries = {**before, **rows}
    ordered = {key: entries[key] for key in order if key in entries}
    return save(name, {**more, "rows": ordered}, options)


def has_words(name: str, words) -> bool:
    """Whether a row's name has all of these words, in capitals or not."""
    return all(word.lower() in name.lower() for word in words)


def show(title: str, columns: list[str], rows: list[list[str]], note: str = "") -> None:
    """Print a table: the first column to the left, the others to the right."""
    table = Table(box=None, show_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left")
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False)
    console.print(f"\n[bold cyan]{title}[/]", f"[dim]{note}[/]", table, sep="\n")
