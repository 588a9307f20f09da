"""The cost of capturing a PyTorch program: gh.optimize beside torch.compile, in one process.

capture   the first call of a 12-layer encoder that trains (16 wide, so that computing takes little
          of it), less an eager call; both with a compiler that runs the graph as it is
call      later calls with a compiler whose graph does nothing: of one tensor, and of 64 Linear
          layers, whose 128 parameters and 65 modules are guarded
break     what each graph break adds to such a call
step      whole training steps of a small model as they are captured, beside eager

Aims: capture at most 150 ms, 64 Linear at most 5 µs, a break at most 2 µs. Seconds are the
thread's own (time.thread_time), so that other processes disturb them less; the least of several.
"""

import time

import torch
from harness import parse_arguments, save, show

import glasshouse as gh

LAYERS, LINEARS = 12, 64


def least(fn, repeats: int, calls: int = 1) -> float:
    """Seconds of the thread per call, the least of several rounds."""
    best = float("inf")
    for _ in range(repeats):
        begin = time.thread_time()
        for _ in range(calls):
            fn()
        best = min(best, (time.thread_time() - begin) / calls)
    return best


def nothing(graph_module, example_inputs):
    """The compiler of a graph that computes nothing."""
    results = [torch.zeros(())] * 4
    return lambda *args: results


def encoder():
    layer = torch.nn.TransformerEncoderLayer(16, 2, 16, batch_first=True)
    return torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)


def capturing(repeats: int) -> dict:
    """Seconds of a first call, less those of an eager one."""
    model, x = encoder(), torch.randn(1, 4, 16)
    eager = least(lambda: model(x), 5)

    def ours():
        gh.optimize("eager")(lambda m, x: m(x))(model, x)

    def dynamo():
        torch._dynamo.reset()
        torch.compile(lambda m, x: m(x), backend="eager")(model, x)

    rows = {}
    for name, fn in (("gh.optimize", ours), ("torch.compile", dynamo)):
        fn()
        rows[name] = least(fn, repeats) - eager
    return {"capture of 12 layers": rows}


def calling(repeats: int, calls: int) -> dict:
    """Seconds of later calls."""
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(LINEARS))).eval()
    x = torch.randn(1, 4)

    def one(x):
        return x + 1

    def many(m, x):
        return m(x)

    def broken(x):
        x = x + 1
        gh.graph_break()
        torch._dynamo.graph_break()
        return x + 2

    rows = {}
    with torch.no_grad():
        for name, fn, args in (("1 tensor", one, (x,)), ("64 Linear", many, (model, x))):
            rows[name] = {}
            for who, fast in compilers(fn).items():
                fast(*args)
                rows[name][who] = least(lambda f=fast, a=args: f(*a), repeats, calls)
        rows["a break"] = {}
        for who, fast in compilers(broken).items():
            fast(x), fast(x)
            seconds = least(lambda f=fast: f(x), repeats, calls)
            rows["a break"][who] = seconds - rows["1 tensor"][who]
    return rows


def compilers(fn) -> dict:
    return {
        "gh.optimize": gh.optimize(nothing)(fn),
        "torch.compile": torch.compile(fn, backend=nothing),
    }


def stepping(repeats: int) -> dict:
    """Seconds of whole training steps: eager, and as one captured graph of the same calls."""
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    x = torch.randn(4, 8)

    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    captured, rows = gh.optimize("eager")(step), {}
    for name, fn in (("eager", step), ("gh.optimize", captured)):
        for _ in range(3):
            fn(model, optimizer, x)
        rows[name] = least(lambda f=fn: f(model, optimizer, x), repeats, 20)
    return {"training step": rows}


def main() -> None:
    options = parse_arguments(__doc__.splitlines()[0])
    torch.set_num_threads(1)
    repeats, calls = (1, 10) if options.smoke else (7, 2000)
    torch._dynamo.config.recompile_limit = 64
    results = capturing(repeats) | calling(repeats, calls) | stepping(repeats)
    columns = ["", "gh.optimize µs", "torch.compile µs", "eager µs"]
    names = ("gh.optimize", "torch.compile", "eager")
    rows = [
        [what, *(f"{1e6 * row[x]:.1f}" if x in row else "" for x in names)]
        for what, row in results.items()
    ]
    show("Capture of PyTorch programs", columns, rows, "least thread time")
    save("torch_capture", results, options)


if __name__ == "__main__":
    main()
