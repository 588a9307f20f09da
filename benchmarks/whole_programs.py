"""Whole programs of PyTorch's and NumPy's users, on the original library and on Glasshouse.

Each file of `programs` runs on both with its lines of import rewritten and nothing else, from the
same weights and draws. In one process, one thread, in turn: the original, by PyTorch also through
`torch.compile`, and Glasshouse plain and with `gh.optimize` around the step. The ratio is the
better of the original's times over the better of ours; the difference is the largest of the
losses of the first steps, relative to the original's. Where it is more than a hundredth, the
original runs in float64 too: how far both are from that says whether rounding alone is the cause.
"""

import re
import types
import warnings
from pathlib import Path

import numpy as np
from harness import measure, parse_arguments, save_rows, show, summarize

import glasshouse as gh

FOLDER = Path(__file__).parent / "programs"
TORCH = (
    "char_rnn", "dcgan", "vae", "translation", "policy_gradient", "spatial_transformer",
    "neural_style", "word_model", "siamese", "mixed_resnet",
)  # fmt: skip
NUMPY = ("linear_regression", "k_means", "principal_axes", "fft_filter", "heat_equation")
PROGRAMS = (*TORCH, *NUMPY)
TAKEN_APART = ("neural_style",)  # whose model is made of another's layers: its step is compiled
STEPS, ROUNDS, CALLS = 100, 9, 10
MOST_DIFFERENT = 0.01  # losses, before float64's are looked at
MODULES = {"torch.utils.data": "glasshouse.data", "torch": "glasshouse", "numpy": "glasshouse"}


def rewritten(text: str) -> str:
    """A program's text with its imports of PyTorch, and that of NumPy as `xp`, from Glasshouse."""

    def line(match: re.Match) -> str:
        old = match[0]
        if re.fullmatch(r"import torch", old):
            return "import glasshouse as torch"
        if re.fullmatch(r"import numpy as xp", old):
            return "import glasshouse as xp"
        return re.sub(r"\btorch(\.utils\.data)?\b", lambda m: MODULES[m[0]], old, count=1)

    return re.sub(r"^(?:import|from) .*$", line, text, flags=re.MULTILINE)


def loaded(name: str, ours: bool, exact: bool = False) -> types.ModuleType:
    """The program as a module, on the original library or on Glasshouse; `exact`: what it casts to
    float32 it casts to float64."""
    path = FOLDER / f"{name}.py"
    text = path.read_text()
    text = text.replace(".float()", ".double()") if exact else text
    module = types.ModuleType(f"{name}_{'ours' if ours else 'original'}")
    module.__file__ = str(path)
    exec(compile(rewritten(text) if ours else text, path, "exec"), vars(module))
    return module


# -- a step of each mode: a function of its number that returns the loss --------------------


def torch_steps(name: str, batches: int, modes=None) -> dict:
    """The program's step in each mode, all from the weights that PyTorch draws."""
    import torch

    torch.manual_seed(0)
    program, our_program = loaded(name, ours=False), loaded(name, ours=True)
    data, our_data = program.batches(batches), our_program.batches(batches)
    first = [{k: v.clone() for k, v in m.state_dict().items()} for m in program.models()]

    def original(compiled: bool):
        models = program.models()
        for model, state in zip(models, first, strict=True):
            model.load_state_dict(state)
        if compiled and name not in TAKEN_APART:
            models = [torch.compile(model) for model in models]
        step = program.training(*models)
        return on(torch.compile(step) if compiled and name in TAKEN_APART else step, data)

    def ours(optimized: bool):
        models = our_program.models()
        for model, state in zip(models, first, strict=True):
            model.load_state_dict({k: gh.asarray(v.numpy()) for k, v in state.items()})
        step = our_program.training(*models)
        return on(gh.optimize(step) if optimized else step, our_data)

    makers = {
        "original": lambda: original(False),
        "torch.compile": lambda: original(True),
        "ours": lambda: ours(False),
        "gh.optimize": lambda: ours(True),
    }
    return {mode: makers[mode]() for mode in modes or makers}


def on(step, data: list):
    """The step as a function of its number."""
    return lambda i: float(step(*data[i % len(data)]))


def numpy_steps(name: str, modes=None) -> dict:
    """The program's step in each mode, which goes on from the state of the one before."""

    def of(ours: bool, optimized: bool = False):
        program = loaded(name, ours)
        state = program.start()
        step = gh.optimize(program.step) if optimized else program.step

        def once(i: int) -> float:
            nonlocal state
            state, loss = step(*state)
            return float(loss)

        return once

    makers = {
        "original": lambda: of(False),
        "ours": lambda: of(True),
        "gh.optimize": lambda: of(True, optimized=True),
    }
    return {mode: makers[mode]() for mode in modes or makers}


def steps_of(name: str, batches: int, modes=None) -> dict:
    """The steps of a program in all its modes, or in these."""
    return torch_steps(name, batches, modes) if name in TORCH else numpy_steps(name, modes)


def losses_of(step, count: int) -> np.ndarray:
    """The losses of the first steps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray([step(i) for i in range(count)])


def difference(losses: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference of losses, relative to the expected, or to their mean size where
    these are near to zero."""
    size = np.maximum(np.abs(expected), np.abs(expected).mean())
    return float(np.max(np.abs(losses - expected) / size))


def exact_losses(name: str, count: int) -> np.ndarray:
    """The losses of the first steps on PyTorch in float64, from the weights of `torch_steps`."""
    import torch

    torch.manual_seed(0)
    program = loaded(name, ours=False, exact=True)
    models = [model.double() for model in program.models()]

    def widened(x):
        if isinstance(x, torch.Tensor):
            return x.double() if x.dtype is torch.float32 else x
        return x.astype(np.float64) if getattr(x, "dtype", None) == np.float32 else x

    data = [tuple(widened(x) for x in batch) for batch in program.batches(count)]
    torch.set_default_dtype(torch.float64)
    try:
        return losses_of(on(program.training(*models), data), count)
    finally:
        torch.set_default_dtype(torch.float32)


# -- a row of the table ------------------------------------------------------------


def row_of(name: str, smoke: bool) -> dict:
    """Losses of the first steps of each mode, then times of further steps, in turn."""
    count, rounds, calls = (3, 1, 1) if smoke else (STEPS, ROUNDS, CALLS)
    steps = steps_of(name, count)
    losses = {mode: losses_of(step, count) for mode, step in steps.items()}
    at = dict.fromkeys(steps, count)

    def further(mode: str):
        def call():
            steps[mode](at[mode])
            at[mode] += 1

        return call

    times = summarize(measure({mode: further(mode) for mode in steps}, rounds, calls))
    median = {mode: times[mode]["median_s"] for mode in steps}
    theirs = min(median[mode] for mode in ("original", "torch.compile") if mode in median)
    differs = max(difference(losses[mode], losses["original"]) for mode in ("ours", "gh.optimize"))
    exact = exact_losses(name, count) if differs > MOST_DIFFERENT and name in TORCH else None
    return {
        "library": "PyTorch" if name in TORCH else "NumPy",
        "program": name.replace("_", " "),
        "times": times,
        "ratio": theirs / min(median["ours"], median["gh.optimize"]),
        "loss": float(losses["original"][-1]),
        "our_loss": float(losses["gh.optimize"][-1]),
        "difference": differs,
        "difference_of_compile": difference(losses["torch.compile"], losses["original"])
        if "torch.compile" in losses
        else None,
        "from_float64": None
        if exact is None
        else {mode: difference(losses[mode], exact) for mode in losses},
    }


def printed(row: dict) -> list[str]:
    """The cells of a row."""
    modes = ("original", "torch.compile", "ours", "gh.optimize")
    times = row["times"]
    cells = [f"{1e3 * times[m]['median_s']:.2f} ms" if m in times else "" for m in modes]
    losses = [f"{row['loss']:.5g}", f"{row['our_loss']:.5g}", f"{row['difference']:.1e}"]
    return [row["program"], *cells, f"{row['ratio']:.2f}", *losses]


def main() -> None:
    options = parse_arguments(__doc__, PROGRAMS)
    if unknown := set(options.parts) - set(PROGRAMS):
        expected = ", ".join(PROGRAMS)
        raise SystemExit(f"whole_programs: expected {expected}; got {', '.join(unknown)}")
    try:
        import torch

        torch.set_num_threads(1)
        programs = PROGRAMS
    except ImportError:
        print("torch is not installed: programs of NumPy alone")
        programs = NUMPY
    rows = {}
    names = options.parts or (("vae", "k_means") if options.smoke else PROGRAMS)
    for name in names:
        if name in programs:
            rows[name] = row_of(name, options.smoke)
            path = save_rows("whole_programs", rows, list(PROGRAMS), options)
            print("  ".join(printed(rows[name])), flush=True)
    show(
        "whole programs",
        [
            "",
            "original",
            "torch.compile",
            "ours",
            "gh.optimize",
            "ratio",
            "loss",
            "ours",
            "differs",
        ],
        [printed(row) for row in rows.values()],
        "ratio: the better of the original's times over the better of ours; one thread",
    )
    print(path)


if __name__ == "__main__":
    main()
