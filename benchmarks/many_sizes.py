"""One model with many sizes: what each new batch size or sequence length costs in time, in memory
of the process and on disk; and whether kernels that take their sizes as arguments are slower.

`--against CHECKOUT` measures another checkout too, each in a process of its own; kernels are run in
turn, and their results compared bit for bit. Run it with OMP_NUM_THREADS=1 on a busy machine."""

import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve()
PARTS = ("batch_sizes", "lengths", "kernels")
ROUND_NS = 3_000_000  # of one kernel, before the other checkout's turn


# -- what is measured, in a process of its own -------------------------------------------------


def process_state() -> dict:
    """Memory of this process, and CPU seconds of its own and of the compilers that it ran."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "wall_s": time.perf_counter(),
        "own_cpu_s": time.process_time(),
        "compiler_cpu_s": children.ru_utime + children.ru_stime,
        "resident_bytes": pages * resource.getpagesize(),
    }


def perceptron_step(gh):
    model = gh.nn.Sequential(gh.nn.Linear(64, 128), gh.nn.ReLU(), gh.nn.Linear(128, 10))
    optimizer = gh.optim.AdamW(model.parameters(), lr=1e-3)

    def step(batch: int) -> None:
        labels = gh.zeros(batch, dtype=gh.int64)
        loss = gh.nn.functional.cross_entropy(model(gh.ones((batch, 64))), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def transformer_step(gh):
    layer = gh.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0)
    embed = gh.nn.Embedding(100, 64)
    model = gh.nn.Sequential(embed, gh.nn.TransformerEncoder(layer, 2), gh.nn.Linear(64, 100))
    optimizer = gh.optim.AdamW(model.parameters(), lr=1e-3)

    def step(length: int) -> None:
        words = gh.asarray(np.random.default_rng(length).integers(0, 100, (8, length)))
        scores = model(words).reshape((8 * length, 100))
        loss = gh.nn.functional.cross_entropy(scores, words.reshape((8 * length,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def measure_sizes(gh, part: str, count: int) -> dict:
    """The first size, and all others: seconds, bytes of the process, bytes on disk."""
    gh.random.seed(0)
    make = perceptron_step if part == "batch_sizes" else transformer_step
    step, first_size = make(gh), 20
    states = [process_state()]
    for size in range(first_size, first_size + count):
        step(size)
        if size in (first_size, first_size + count - 1):
            states.append(process_state())
    differences = [
        {name: b[name] - a[name] for name in a} for a, b in zip(states, states[1:], strict=False)
    ]
    files = [path.stat().st_size for path in Path(os.environ["GH_CACHE"]).rglob("*")]
    return {"first": differences[0], "rest": differences[1], "disk_bytes": sum(files)}


def kernel_cases(gh) -> dict:
    """Functions whose Program is one kernel or a few; a name ends with a shape."""
    functional, rng = gh.nn.functional, np.random.default_rng(0)

    def draw(*shape):
        return gh.tensor(rng.standard_normal(shape).astype(np.float32), requires_grad=True)

    def softmax(shape):
        x = draw(*shape)
        y = functional.softmax(x, dim=-1)
        y.backward(draw(*shape).detach())
        return y.detach(), x.grad

    def layer_norm(shape):
        x, weight, bias = draw(*shape), draw(shape[-1]), draw(shape[-1])
        functional.layer_norm(x, shape[-1:], weight, bias).backward(draw(*shape).detach())
        return x.grad, weight.grad, bias.grad

    def batch_norm(shape):
        x, layer = draw(*shape), gh.nn.BatchNorm2d(shape[1])
        layer(x).backward(draw(*shape).detach())
        return x.grad, layer.weight.grad, layer.bias.grad

    def adam(shape):
        weight = gh.nn.Parameter(draw(*shape).detach())
        optimizer = gh.optim.AdamW([weight], lr=1e-3)
        weight.grad = draw(*shape).detach()
        optimizer.step()
        return (weight.detach(),)

    def plain(fn):
        return lambda shape: (fn(draw(*shape).detach()),)

    shapes = ((64, 64), (37, 50), (512, 768), (8, 4, 128, 128))
    families = {
        "elementwise": (plain(lambda x: functional.gelu(x * 2 + 1)), shapes),
        "softmax": (softmax, shapes),
        "layer norm": (layer_norm, ((64, 64), (200, 100), (512, 768))),
        "column sum": (plain(lambda x: x.sum(axis=0)), shapes),
        "batch norm": (batch_norm, ((16, 64, 28, 28), (64, 16, 8, 8))),
        "adam": (adam, ((10,), (128, 64), (768, 768))),
    }
    return {
        f"{name} {'x'.join(map(str, shape))}": (fn, shape)
        for name, (fn, group) in families.items()
        for shape in group
    }


class KernelRuns:
    """Programs of one case, run again and again."""

    def __init__(self, gh, program):
        self.gh, self.program, self.made = gh, program, []
        self.run = program.run_program
        program.run_program = self.keep

    def keep(self, program, recording, ends_ns=None):
        self.made.append((program, [leaf.value for leaf in recording.leaves], recording.scalars))
        return self.run(program, recording, ends_ns)

    def prepare(self, name: str, other_sizes: bool) -> str:
        """Compile a case, where wanted after other sizes; the digest of its results."""
        getattr(self.program, "structures", {}).clear()
        fn, shape = kernel_cases(self.gh)[name]
        for more in (16, 32) if other_sizes else ():  # as even as the shape
            self.gh.eval(*fn(tuple(n + more for n in shape)))
        fn, _ = kernel_cases(self.gh)[name]  # draws the same numbers again
        self.made.clear()
        results = [np.ascontiguousarray(x.numpy()) for x in fn(shape)]
        return hashlib.sha256(b"".join(x.tobytes() for x in results)).hexdigest()

    def time_ns(self, times: int) -> float:
        """The median time of all steps."""
        results = []
        for _ in range(times):
            spent = 0
            for program, arrays, scalars in self.made:
                ends_ns = np.full(program.count + 1, -1, np.int64)
                program.run([np.ascontiguousarray(x) for x in arrays], scalars, (), ends_ns)
                spent += int(ends_ns[program.count - 1] - ends_ns[-1])
            results.append(spent)
        return statistics.median(results)


def work(part: str, argument: str) -> None:
    """A process that measures: prints JSON; for kernels an answer to each line that it reads."""
    import glasshouse as gh
    from glasshouse.compile.programs import program

    if part != "kernels":
        print(json.dumps(measure_sizes(gh, part, int(argument))))
        return
    runs = KernelRuns(gh, program)
    for line in sys.stdin:
        name, _, number = line.rstrip("\n").rpartition("|")
        times = int(number)
        answer = runs.time_ns(times) if times > 0 else runs.prepare(name, times < 0)
        print(json.dumps(answer), flush=True)


# -- who starts it and compares ----------------------------------------------------------------


def start(checkout: Path, cache: str, part: str, argument: str = "") -> subprocess.Popen:
    environment = {
        **os.environ,
        "PYTHONPATH": str(checkout / "src"),
        "GH_CACHE": cache,
        "GH_COMPILE": "always",
        "GH_BACKEND": "lazy",
    }
    command = [sys.executable, str(HERE), "--work", part, argument]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, text=True, **pipes)


def ask(process: subprocess.Popen, name: str, number: int):
    assert process.stdin and process.stdout
    process.stdin.write(f"{name}|{number}\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def compare_kernels(checkouts: list[Path], rounds: int, other_sizes: bool) -> list[dict]:
    """Each case in turn; the ratio is the median of those of neighbouring runs."""
    import glasshouse as gh

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        workers = [start(path, f"{folder}/{i}", "kernels") for i, path in enumerate(checkouts)]
        for name in kernel_cases(gh):
            how = [0, -1 if other_sizes else 0]
            digests = [ask(worker, name, n) for worker, n in zip(workers, how, strict=True)]
            times = max(5, min(2000, int(ROUND_NS / ask(workers[0], name, 5))))
            turns = [[ask(worker, name, times) for worker in workers] for _ in range(rounds)]
            rows.append(
                {
                    "case": name,
                    "ns": [statistics.median(turn) for turn in zip(*turns, strict=True)],
                    "ratio": statistics.median(turn[-1] / turn[0] for turn in turns),
                    "same_bits": len(set(digests)) == 1,
                }
            )
        for worker in workers:
            worker.communicate()
    return rows


def size_rows(part: str, outcome: dict[str, dict], count: int) -> list[list[str]]:
    rows = []
    for name, result in outcome.items():
        first, rest = result["first"], result["rest"]
        first_s, rest_s = (x["own_cpu_s"] + x["compiler_cpu_s"] for x in (first, rest))
        rows.append(
            [
                f"{part}, {name}",
                f"{first_s:.2f}",
                f"{(first_s + rest_s) / first_s:.1f}",
                f"{1e3 * rest['own_cpu_s'] / (count - 1):.0f}",
                f"{1e3 * rest['compiler_cpu_s'] / (count - 1):.0f}",
                f"{(first['resident_bytes'] + rest['resident_bytes']) / 1e6:.0f}",
                f"{result['disk_bytes'] / 1e6:.1f}",
            ]
        )
    return rows


def main() -> None:
    from harness import parse_arguments, save, show

    against = []
    if "--against" in sys.argv:
        at = sys.argv.index("--against")
        against = [Path(sys.argv[at + 1]).resolve()]
        del sys.argv[at : at + 2]
    options = parse_arguments(__doc__, PARTS)
    parts, own = options.parts or PARTS, HERE.parents[1]
    checkouts = {"before": against[0], "now": own} if against else {"now": own}
    counts = {"batch_sizes": 3 if options.smoke else 500, "lengths": 2 if options.smoke else 60}
    results: dict = {}
    for part in (part for part in counts if part in parts):
        results[part] = {}
        for name, checkout in checkouts.items():
            with tempfile.TemporaryDirectory() as cache:
                output, _ = start(checkout, cache, part, str(counts[part])).communicate()
            results[part][name] = json.loads(output)
        rows = size_rows(part, results[part], counts[part])
        columns = ["", "first, CPU s", "all / first", "own ms", "gcc ms", "+MB", "disk MB"]
        show(f"{counts[part]} sizes, and ms of each but the first", columns, rows)
    if "kernels" in parts:
        rounds = 3 if options.smoke else 15
        orders = {"first sizes": False, "after other sizes": True}
        for title, other in list(orders.items())[-1 if options.smoke else 0 :]:
            result = compare_kernels([against[0] if against else own, own], rounds, other)
            results[f"kernels, {title}"] = result
            rows = [
                [r["case"], *(f"{ns / 1e3:.1f}" for ns in r["ns"]), f"{r['ratio']:.3f}",
                 "same" if r["same_bits"] else "DIFFERENT"]
                for r in result
            ]  # fmt: skip
            show(title, ["kernels, µs", "before", "now", "ratio", "bits"], rows)
    print(save("many_sizes", results, options))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], sys.argv[3])
    else:
        main()
