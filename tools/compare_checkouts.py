"""Compare the speed of two checkouts, run in turn on one machine: medians of pairs, as ratios.

    python tools/compare_checkouts.py OLD [NEW] [--pairs 9] [--only resnet50 digits …]

OLD and NEW are folders of checkouts (NEW: this one); this interpreter runs both. A model's training
step is asked of two processes in turn; a benchmark script runs as a whole in one checkout and then
in the other, and each of its times is a row. A ratio below 1 means that NEW takes less time."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parents[1]
MODELS = ("alexnet", "vgg16", "resnet50", "bert", "asr", "vit_b_16")
SCRIPTS = {"digits": (), "capture": (), "recording": (), "profiling": ("overhead",)}
SERVE = "from glasshouse.bench.worker import serve; serve()"


def environment_of(checkout: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(checkout / "src")}


class Worker:
    """A process of one checkout that trains a model step by step when asked."""

    def __init__(self, checkout: Path):
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment_of(checkout),
        )

    def ask(self, **request) -> dict:
        """The reply to a request. Raises: RuntimeError for an error that the process reports."""
        print(json.dumps(request), file=self.process.stdin, flush=True)
        reply = json.loads(self.process.stdout.readline())
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def compare_model(name: str, checkouts: list[Path], pairs: int) -> dict[str, list]:
    """Seconds of a model's step, old and new in turn, and whether all losses were equal."""
    workers = [Worker(checkout) for checkout in checkouts]
    try:
        for worker in workers:
            options = {"model": name, "mode": None, "dtype": "float32", "smoke": False}
            worker.ask(do="build", framework="glasshouse", **options)
        steps = [[worker.ask(do="step") for worker in workers] for _ in range(pairs + 2)]
        peaks = [worker.ask(do="peak")["peak_bytes"] for worker in workers]
    finally:
        for worker in workers:
            worker.close()
    losses = [old["loss"] == new["loss"] for old, new in steps]
    print(
        f"# {name}: losses {'equal' if all(losses) else 'DIFFER'};"
        f" peak {peaks[0] / 2**20:.0f} and {peaks[1] / 2**20:.0f} MiB"
    )
    return {name: [(old["seconds"], new["seconds"]) for old, new in steps[2:]]}


def compare_script(name: str, checkouts: list[Path], pairs: int) -> dict[str, list]:
    """Every time that a benchmark script measures, as pairs of old and new."""
    rows: dict[str, list] = {}
    for _ in range(pairs):
        results = [times_of(name, checkout) for checkout in checkouts]
        for key in results[0].keys() & results[1].keys():
            rows.setdefault(f"{name}: {key}", []).append((results[0][key], results[1][key]))
    return rows


def times_of(name: str, checkout: Path) -> dict[str, float]:
    """The times that one run of a script records, in its own unit."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, f"benchmarks/{name}.py", *SCRIPTS[name], "--out", folder],
            check=True,
            cwd=checkout,
            env=environment_of(checkout),
            stdout=subprocess.DEVNULL,
        )
        record = json.loads((Path(folder) / f"{name}.json").read_text())
    return dict(numbers_in(record["results"]))


def numbers_in(results, path: str = ""):
    """(name, value) of each median or plain number in nested results."""
    if isinstance(results, dict) and "median_s" in results:
        yield path, results["median_s"]
    elif isinstance(results, dict):
        for key, value in results.items():
            yield from numbers_in(value, f"{path}.{key}" if path else key)
    elif isinstance(results, float) and results > 0:
        yield path, results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path, nargs="?", default=HERE)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--only", nargs="+", choices=[*MODELS, *SCRIPTS], help="all by default")
    options = parser.parse_args()
    checkouts = [options.old.resolve(), options.new.resolve()]
    for name in options.only or [*MODELS, *SCRIPTS]:
        if name in MODELS:
            rows = compare_model(name, checkouts, options.pairs)
        else:
            rows = compare_script(name, checkouts, max(1, options.pairs // 3))
        for key, pairs in sorted(rows.items()):
            old, new = (statistics.median(side) for side in zip(*pairs))
            ratio = statistics.median(b / a for a, b in pairs)
            print(f"{key:60} {old:12.6g} {new:12.6g}   {ratio:.3f}", flush=True)


if __name__ == "__main__":
    main()
