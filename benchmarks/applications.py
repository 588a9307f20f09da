"""The applications' training steps beside PyTorch's of the same model, in its best mode.

Each application is prepared as `glasshouse train NAME` prepares it, from the data of `glasshouse
data NAME` (with --smoke from generated files), and its twin of `twins/` gets the same weights. A
step is forward, loss, backward and update on the same batches, in turn: ours as `gh.fit` captures
it, PyTorch's eager and under torch.compile, each in float32, or in bfloat16 where the application
trains in it. The ratio is PyTorch's better time over ours.
"""

import importlib.util
import itertools
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
from harness import measure, parse_arguments, save_rows, show, summarize

import glasshouse as gh
from glasshouse.apps import APPS, find_app
from glasshouse.apps.sources import data_folder
from glasshouse.capture import optimize
from glasshouse.fit import FitRun
from glasshouse.fit.loop import train_step

ROOT = Path(__file__).parents[1]
BATCHES, ROUNDS, CALLS = 6, 7, 6


def load_module(path: Path):
    """A module from its file."""
    spec = importlib.util.spec_from_file_location(f"loaded_{path.stem}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # for TorchDynamo
    spec.loader.exec_module(module)
    return module


def prepared(name: str, smoke: bool):
    """(recipe, training) of an application on its data, or on generated files."""
    app = find_app(name)
    if not smoke:
        return app.recipe, app.prepare(app.recipe, data_folder(app.data_name))
    with tempfile.TemporaryDirectory() as folder:
        samples = load_module(ROOT / "tests" / "unit" / "apps" / "app_samples.py")
        recipe = replace(app.recipe, **samples.SAMPLES[name](Path(folder)))
        training = app.prepare(recipe, Path(folder))
        training.data = list(training.data)  # read before the files are gone
        return recipe, training


def our_step(training):
    """A function of a batch that takes a step as `gh.fit` does."""
    run = FitRun(training.model, training.data, training.loss, training.optimizer,
                 clip_norm=training.clip_norm, autocast=training.autocast)  # fmt: skip
    run.model.train()
    step = optimize(train_step)
    return lambda *batch: step(run, [(batch[:-1], batch[-1], None)])[0][0]


def their_step(twins, recipe, training, compiled: bool):
    """The same by PyTorch, from the same weights."""
    import torch

    model = twins.make_model(recipe, training.assets)
    weights = training.model.state_dict().items()
    model.load_state_dict({name: torch.tensor(x.numpy()) for name, x in weights}, strict=False)
    optimizer = twins.make_optimizer(model, recipe)
    model.train()
    called = torch.compile(model) if compiled else model

    def step(*batch):
        *inputs, target = batch
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16) if training.autocast else nullcontext():
            loss = twins.loss(called(*inputs), target)
        loss.backward()
        if training.clip_norm:
            torch.nn.utils.clip_grad_norm_(model.parameters(), training.clip_norm)
        optimizer.step()
        return loss

    return step


def figures(name: str, smoke: bool) -> dict:
    """Median seconds of a step in each mode, and the ratio."""
    import torch

    torch.manual_seed(0)
    gh.random.seed(0)
    recipe, training = prepared(name, smoke)
    twins = load_module(ROOT / "benchmarks" / "twins" / f"{name}.py")
    batches = list(itertools.islice(training.data, 2 if smoke else BATCHES))
    theirs = [[torch.tensor(np.asarray(x.numpy())) for x in batch] for batch in batches]
    steps = {"PyTorch": (their_step(twins, recipe, training, False), theirs)}
    if not smoke:
        steps["torch.compile"] = (their_step(twins, recipe, training, True), theirs)
    steps["glasshouse"] = (our_step(training), batches)

    def case(step, batches):
        return lambda: [float(step(*batch).detach()) for batch in batches]

    cases = {mode: case(*parts) for mode, parts in steps.items()}
    for run in cases.values():  # compilations
        run()
    times = summarize(measure(cases, 1 if smoke else ROUNDS))
    medians = {mode: row["median_s"] / len(batches) for mode, row in times.items()}
    best = min(seconds for mode, seconds in medians.items() if mode != "glasshouse")
    return {"seconds": medians, "ratio": best / medians["glasshouse"],
            "dtype": training.autocast or "float32"}  # fmt: skip


def main() -> None:
    options = parse_arguments(__doc__, APPS)
    rows = {}
    for name in getattr(options, "parts", None) or APPS:
        rows[name] = figures(name, options.smoke)
    modes = list(dict.fromkeys(mode for row in rows.values() for mode in row["seconds"]))
    table = [
        [name, row["dtype"], *(f"{row['seconds'].get(mode, np.nan) * 1e3:.1f}" for mode in modes),
         f"{row['ratio']:.2f}"]
        for name, row in rows.items()
    ]  # fmt: skip
    show("Steps of the applications, ms", ["application", "dtype", *modes, "ratio"], table)
    print(f"saved: {save_rows('applications', rows, APPS, options)}")


if __name__ == "__main__":
    main()
