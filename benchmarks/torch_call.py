"""The cost of a call of a Program that torch.compile made, and its parts.

For a model of 1, 64 and 200 parameters, without gradients: the call of the graph (our wrapper and
the Program), the Program's steps alone, and the wrapper, which is the difference. Of the wrapper:
filling the run table with the addresses of the arguments, memory, and making the results.
`compiled` is the whole call, TorchDynamo's guards and AOTAutograd's wrapper with it.

Aim: the wrapper takes at most 15 µs. Seconds are the thread's own (time.thread_time), so that other
processes disturb them less.
"""

import statistics
import time

import torch
from harness import parse_arguments, save, show, summarize

from glasshouse.torch.backend import runtime
from glasshouse.torch.backend.entry_point import glasshouse

COUNTS = (1, 64, 200)
LARGE = 64  # rows and columns of a result that the memory manager hands out


class ManyParameters(torch.nn.Module):
    """A sum that reads the first element of each of many parameters."""

    def __init__(self, count: int, rows: int):
        super().__init__()
        self.parts = torch.nn.ParameterList(torch.randn(1) for _ in range(count))
        self.rows = rows

    def forward(self, x):
        for part in self.parts:
            x = x + part
        return x


def parts_of(count: int, rows: int) -> dict:
    """The calls to be timed, for a model of so many parameters and a result of rows × rows."""
    calls = []
    original = runtime.TorchGraphProgram.__call__

    def noted(self, args):
        calls[:] = [(self, list(args))]
        return original(self, args)

    torch._dynamo.reset()
    model, x = ManyParameters(count, rows), torch.randn(rows, rows)
    compiled = torch.compile(model, backend=glasshouse)
    runtime.TorchGraphProgram.__call__ = noted
    compiled(x)
    runtime.TorchGraphProgram.__call__ = original
    graph, args = calls[0]
    variant = graph.latest
    kept = variant.run(args)
    # The table still has the addresses of that run: its results and arena are alive.
    arena = variant.program.memory.own or variant.program.target.memory().alloc(
        variant.program.arena_bytes
    )
    variant.table.table[0] = arena.address
    return {
        "compiled": lambda: compiled(x),
        "graph": lambda: graph(args),
        "steps": lambda: (kept, variant.run_steps(0, args, [])),
        "fill": lambda: variant.call.fill(args),
        "allocate": lambda: variant.allocate(variant.specs_out, args),
        "results": lambda: variant.call.results([None] * len(variant.specs_out)),
    }


def thread_times(cases: dict, repeats: int, calls: int) -> dict[str, list[float]]:
    """Seconds of this thread for a call of each case, in interleaved rounds."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(repeats + 1):
        for name, call in cases.items():
            begin = time.thread_time()
            for _ in range(calls):
                call()
            if number:
                times[name].append((time.thread_time() - begin) / calls)
    return times


def main() -> None:
    options = parse_arguments(__doc__)
    torch.set_num_threads(1)
    repeats, calls = (2, 5) if options.smoke else (31, 300)
    results, rows = {}, []
    with torch.no_grad():
        for count in COUNTS:
            for size in (4, LARGE):
                cases = parts_of(count, size)
                times = thread_times(cases, repeats, calls)
                name = f"{count} parameters, {size} x {size}"
                times["wrapper"] = [a - b for a, b in zip(times["graph"], times["steps"])]
                results |= {f"{name}: {k}": v for k, v in summarize(times).items()}
                micro = {k: 1e6 * statistics.median(v) for k, v in times.items()}
                names = ("wrapper", "fill", "allocate", "results", "steps", "graph", "compiled")
                rows.append([name, *(f"{micro[k]:.1f}" for k in names)])
    columns = ["µs", "wrapper", "of it: fill", "allocate", "results", "steps", "graph", "compiled"]
    show("A call of a Program of torch.compile", columns, rows, "medians; aim: wrapper at most 15")
    save("torch_call", results, options)


if __name__ == "__main__":
    main()
