"""The update of ViT-B/16's parameters (86 million, 152 tensors) by each optimizer and PyTorch's.

PyTorch's forms are foreach=True (one call for a list of tensors) and, where it has it, fused=True;
Muon and LBFGS have just one. Gradients are the same in each step; a step is `optimizer.step()`
alone. LBFGS gets the parameters themselves as gradients, those of half the sum of their squares.
Sides run in turn. Bytes are those that a step has to move: parameter, gradient and state read,
parameter and state written. All of PyTorch's optimizers are here but SparseAdam, which takes no
dense gradients.
"""

import os

import numpy as np
from harness import measure, parse_arguments, save, show, summarize

import glasshouse as gh

WIDTH, HIDDEN, BLOCKS, CLASSES = 768, 3072, 12, 1000
NORM = [(WIDTH,), (WIDTH,)]
BLOCK = [
    *NORM,
    (3 * WIDTH, WIDTH),
    (3 * WIDTH,),
    (WIDTH, WIDTH),
    (WIDTH,),
    *NORM,
    (HIDDEN, WIDTH),
    (HIDDEN,),
    (WIDTH, HIDDEN),
    (WIDTH,),
]
SHAPES = [
    (1, 1, WIDTH),
    (1, 197, WIDTH),
    (WIDTH, 3, 16, 16),
    (WIDTH,),
    *BLOCK * BLOCKS,
    *NORM,
    (CLASSES, WIDTH),
    (CLASSES,),
]

# Name: (class, options, tensors moved for each element of a parameter; 0: steps differ).
RULES = {
    "SGD": ("SGD", {"lr": 0.01}, 3),
    "SGD, momentum": ("SGD", {"lr": 0.01, "momentum": 0.9}, 5),
    "Adam": ("Adam", {}, 7),
    "AdamW": ("AdamW", {}, 7),
    "AMSGrad": ("Adam", {"amsgrad": True}, 9),
    "Adamax": ("Adamax", {}, 7),
    "NAdam": ("NAdam", {}, 7),
    "RAdam": ("RAdam", {}, 7),
    "RMSprop": ("RMSprop", {}, 5),
    "RMSprop, centered": ("RMSprop", {"centered": True, "momentum": 0.9}, 9),
    "Adagrad": ("Adagrad", {}, 5),
    "Adadelta": ("Adadelta", {}, 7),
    "Rprop": ("Rprop", {}, 7),
    "ASGD": ("ASGD", {}, 5),
    "Adafactor": ("Adafactor", {}, 3),
    "Muon": ("Muon", {}, 5),
    "LBFGS": ("LBFGS", {"lr": 0.1, "max_iter": 1, "history_size": 2}, 0),
    "Lion": ("Lion", {}, 5),
    "LAMB": ("LAMB", {}, 7),
    "LARS": ("LARS", {}, 5),
    "NovoGrad": ("NovoGrad", {}, 5),
    "AdamW, 8 bits": ("AdamW8bit", {}, 4),
}
ONE_FORM = {"Muon", "LBFGS"}
FUSED = {"SGD", "SGD, momentum", "Adam", "AdamW", "AMSGrad", "Adagrad"}


def shapes_for(name: str, smoke: bool) -> list[tuple[int, ...]]:
    shapes = [s for s in SHAPES if len(s) == 2] if name == "Muon" else SHAPES
    return [tuple(max(1, n // 16) for n in s) for s in shapes] if smoke else shapes


def glasshouse_step(name: str, shapes):
    """A step of ours, which compiles when it is first called."""
    kind, options, _ = RULES[name]
    params = [gh.tensor(np.full(s, 0.02, np.float32), requires_grad=True) for s in shapes]
    for p in params:
        p.grad = gh.asarray(np.full(p.shape, 1e-3, np.float32))
    step = getattr(gh.optim, kind)(params, **options).step
    return step if kind != "LBFGS" else lambda: step(descending(params, gh.asarray(1.0)))


def descending(params, loss):
    """A closure that LBFGS calls: it gives each parameter itself as gradient."""

    def closure():
        for p in params:
            p.grad = p.detach()
        return loss

    return closure


def torch_step(torch, name: str, shapes, form: str):
    """A step of PyTorch's, in one of its forms."""
    kind, options, _ = RULES[name]
    params = [torch.full(s, 0.02, requires_grad=True) for s in shapes]
    for p in params:
        p.grad = torch.full_like(p, 1e-3)
    chosen = {} if kind in ONE_FORM else {form: True}
    step = getattr(torch.optim, kind)(params, **options, **chosen).step
    return step if kind != "LBFGS" else lambda: step(descending(params, torch.tensor(1.0)))


def cases_of(name: str, torch, smoke: bool) -> dict:
    shapes = shapes_for(name, smoke)
    cases = {"glasshouse": glasshouse_step(name, shapes)}
    if torch is not None and hasattr(torch.optim, RULES[name][0]):
        form = "torch" if name in ONE_FORM else "torch foreach"
        cases[form] = torch_step(torch, name, shapes, "foreach")
        if name in FUSED:
            cases["torch fused"] = torch_step(torch, name, shapes, "fused")
    return cases


def row_of(name: str, results: dict, smoke: bool) -> list[str]:
    own = results["glasshouse"]["median_s"]
    elements = sum(int(np.prod(s)) for s in shapes_for(name, smoke))
    speed = 4 * elements * RULES[name][2] / own / 1e9
    ratios = [
        "".join(f"{results[form]['median_s'] / own:.2f}" for form in forms if form in results)
        for forms in (("torch foreach", "torch"), ("torch fused",))
    ]
    return [name, f"{own * 1e3:.1f}", f"{speed:.1f}" if speed else "", *ratios]


def main() -> None:
    options = parse_arguments(__doc__, parts=RULES)
    try:
        import torch
    except ImportError:
        torch = None
        print("torch is not installed: nothing to compare with")
    else:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    results, rows = {}, []
    names = options.parts or (list(RULES)[::4] if options.smoke else list(RULES))
    for name in names:
        cases = cases_of(name, torch, options.smoke)
        for step in cases.values():  # state is made, code is compiled
            step()
            step()
        results[name] = summarize(measure(cases, repeats=1 if options.smoke else 7))
        rows.append(row_of(name, results[name], options.smoke))
        print(*rows[-1], sep="  ", flush=True)  # all of them take minutes
    columns = ["", "ms", "GB/s", "x foreach, or torch", "x torch fused"]
    show("one update of ViT-B/16", columns, rows, "medians; ratios above 1: Glasshouse is faster")
    print(save("optimizers", results, options))


if __name__ == "__main__":
    main()
