"""A training step, ahead of time: what is planned is what runs, to the byte and the FLOP."""

import contextlib
import gc
from dataclasses import replace

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.analyze import MachineProfile, compare, max_batch, step
from glasshouse.analyze.engine_source import RUNTIME_BYTES
from glasshouse.base.errors import BackendError, DTypeError, OptionError
from glasshouse.base.flags import flags
from glasshouse.bench.cases import CASES
from glasshouse.compile.planning.plan import SMALL_BYTES

MODELS = list(CASES)


def built(name, optimizer):
    gh.random.seed(0)
    options, arrays = CASES[name].sizes(smoke=True)
    model = CASES[name].make(**options)
    return (
        model,
        CASES[name].loss,
        getattr(gh.optim, optimizer)(model.parameters(), lr=1e-3),
        arrays,
    )


def run(model, loss_of, optimizer, arrays, autocast, holds_output=False):
    """[(peak, bytes moved, FLOPs)] of two real steps."""
    inputs = [gh.asarray(a) for a in arrays]
    gh.eval(*model.parameters(), *model.buffers())
    manager, results = gh.memory.current(), []
    for _ in range(2):
        manager.counts.peak_allocated_bytes = manager.stats().allocated_bytes
        with gh.FlopCounter() as fc:
            optimizer.zero_grad()
            with gh.autocast(autocast) if autocast else contextlib.nullcontext():
                if holds_output:
                    out = model(inputs[0])
                    loss = loss_of(out, *inputs[1:])
                else:
                    loss = loss_of(model(inputs[0]), *inputs[1:])
            loss.backward()
            optimizer.step()
        results.append((manager.stats().peak_allocated_bytes, fc.total("all", "bytes"), fc.total()))
    return results


@pytest.mark.slow
@pytest.mark.parametrize("autocast", [None, "bfloat16"])
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
@pytest.mark.parametrize("name", MODELS)
def test_planned_peak_is_the_measured_one(name, optimizer, autocast):
    with flags.override(compile="always"), gh.memory.use(type(gh.memory.current())()):
        model, loss_of, opt, arrays = built(name, optimizer)
        costs = step(model, loss_of, opt, arrays, autocast=autocast)
        del model, opt
        gc.collect()
        model, loss_of, opt, arrays = built(name, optimizer)
        measured = run(model, loss_of, opt, arrays, autocast)
    assert costs.peaks == [peak for peak, *_ in measured]
    assert sum(row.nbytes for row in costs.memory) == costs.peaks[-1]
    assert costs.counter.total("all", "bytes") == measured[-1][1]
    assert costs.counter.total() == measured[-1][2]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_an_output_that_the_loop_holds_is_planned(name):
    with flags.override(compile="always"), gh.memory.use(type(gh.memory.current())()):
        model, loss_of, opt, arrays = built(name, "AdamW")
        costs = step(model, loss_of, opt, arrays, holds_output=True)
        del model, opt
        gc.collect()
        model, loss_of, opt, arrays = built(name, "AdamW")
        measured = run(model, loss_of, opt, arrays, None, holds_output=True)
    assert costs.peaks == [peak for peak, *_ in measured]
    assert sum(row.nbytes for row in costs.memory) == costs.peaks[-1]


def test_an_output_that_the_loop_holds_is_named_in_the_table():
    model = gh.nn.Linear(64, 4096)
    optimizer = gh.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = [((64, 64), "float32"), ((64,), "int64")]
    loss = gh.nn.functional.cross_entropy
    costs = step(model, loss, optimizer, inputs, holds_output=True)
    assert costs.memory_by_kind["other results"] == 64 * 4096 * 4
    assert "the model's output" in costs.table()


def small():
    model = gh.nn.Sequential(gh.nn.Linear(64, 64), gh.nn.ReLU(), gh.nn.Linear(64, 64))
    optimizer = gh.optim.AdamW(model.parameters(), lr=1e-3)
    return model, gh.nn.functional.mse_loss, optimizer, [((8, 64), "float32")] * 2


def square(y):
    return (y * y).mean()


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_a_small_step_is_taken_as_compiled_and_its_first_steps_are_told(optimizer):
    def make():
        model = gh.nn.Linear(256, 256)
        return model, getattr(gh.optim, optimizer)(model.parameters(), lr=1e-3)

    with flags.override(compile="auto"), gh.memory.use(type(gh.memory.current())()):
        model, opt = make()
        costs = step(model, square, opt, [((64, 256), "float32")])
        del model, opt
        gc.collect()
        model, opt = make()
        x, peaks = gh.asarray(np.ones((64, 256), np.float32)), []
        manager = gh.memory.current()
        for _ in range(costs.reference_steps + 5):
            manager.counts.peak_allocated_bytes = manager.stats().allocated_bytes
            opt.zero_grad()
            loss = square(model(x))
            loss.backward()
            opt.step()
            peaks.append(manager.stats().peak_allocated_bytes)
    assert costs.peak_bytes == peaks[-1] > 0
    assert abs(peaks.count(0) - costs.reference_steps) <= 1
    assert f"about {costs.reference_steps} steps run on references first" in costs.head()


def test_where_nothing_is_compiled_gradients_and_moments_are_numpys():
    with flags.override(compile="never"):
        model = gh.nn.Linear(256, 256)
        opt = gh.optim.AdamW(model.parameters(), lr=1e-3)
        costs = step(model, square, opt, [((64, 256), "float32")])
    weights, inputs = 256 * 257 * 4, 64 * 256 * 4
    assert costs.reference_steps == 0
    assert costs.peak_bytes + costs.outside_bytes == 4 * weights + inputs


def test_what_the_process_grows_by_is_told_in_parts():
    model, loss, optimizer, inputs = small()
    model.register_buffer("table", gh.asarray(np.ones((300, 300), np.float32)))
    with flags.override(compile="always"):
        costs = step(model, loss, optimizer, inputs)
    small_bytes = sum(p.nbytes for p in model.parameters() if p.nbytes < SMALL_BYTES)
    nodes = max(len(run.plan.graph.nodes) for run in costs.runs)
    assert costs.resident == {
        "memory manager": costs.peak_bytes,
        "arrays from NumPy": 300 * 300 * 4 + 2 * 8 * 64 * 4 + 4 * small_bytes,  # AdamW
        "runtime": RUNTIME_BYTES * nodes,
    }
    assert "the process grows by about" in str(costs)
    assert costs.to_dict()["resident"] == costs.resident


def test_rows_name_kinds_and_modules():
    with flags.override(compile="always"):
        costs = step(*small())
    kinds = costs.memory_by_kind
    assert kinds["parameters"] == 2 * 64 * 64 * 4  # biases are too small for the manager
    assert kinds["gradients"] == kinds["parameters"]
    assert kinds["optimizer state"] == 2 * kinds["parameters"]
    modules = {row.module for row in costs.memory if row.kind == "parameters"}
    assert modules == {"Sequential.0", "Sequential.2"}
    assert "activations" in kinds
    text = str(costs)
    for part in ("optimizer state", "Sequential", "peak"):
        assert part in text
    assert costs.to_dict()["peak_bytes"] == costs.peak_bytes
    assert max(moment.nbytes for moment in costs.timeline) <= costs.peaks[-1]


def test_model_optimizer_and_random_state_are_unchanged():
    model, loss, optimizer, inputs = small()
    before = [p.numpy().copy() for p in model.parameters()]
    seed = gh.random.default_generator().state()
    bn = gh.nn.BatchNorm1d(64)
    model.append(bn)
    step(model, loss, optimizer, inputs)
    assert gh.random.default_generator().state() == seed
    assert all((p.numpy() == b).all() for p, b in zip(model.parameters(), before, strict=False))
    assert all(p.grad is None for p in model.parameters()) and not optimizer.state
    assert bn.num_batches_tracked.item() == 0 and bn.running_mean.numpy().sum() == 0


def test_pending_weights_are_not_computed_and_not_lost():
    gh.random.seed(1)
    expected = gh.nn.Linear(64, 64).weight.numpy()
    gh.random.seed(1)
    layer = gh.nn.Linear(64, 64)
    opt = gh.optim.SGD(layer.parameters(), lr=0.1)
    step(layer, gh.nn.functional.mse_loss, opt, [((8, 64), "float32")] * 2)
    assert layer.weight.payload.value is None
    assert (layer.weight.numpy() == expected).all()


def test_models_without_storage_are_analysed():
    with gh.meta():
        model = gh.nn.Linear(100_000, 100_000)
    opt = gh.optim.SGD(model.parameters(), lr=0.1)
    costs = step(model, gh.nn.functional.mse_loss, opt, [((8, 100_000), "float32")] * 2)
    assert costs.memory_by_kind["parameters"] == 4 * (100_000**2 + 100_000)


def test_an_optimizer_may_be_made_for_the_analysis():
    model, loss, _, inputs = small()
    costs = step(model, loss, lambda p: gh.optim.SGD(p, lr=0.1, momentum=0.9), inputs)
    with flags.override(compile="always"):
        costs = step(model, loss, lambda p: gh.optim.SGD(p, lr=0.1, momentum=0.9), inputs)
    kinds = costs.memory_by_kind
    assert kinds["optimizer state"] == kinds["parameters"]


def test_reads_of_values_name_the_line():
    class Reads(gh.nn.Linear):
        def forward(self, x):
            if x.sum().item() > 0:
                return x
            return super().forward(x)

    model = Reads(4, 4)
    opt = gh.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(BackendError, match=r"got a read of .*test_step.py:\d+"):
        step(model, gh.nn.functional.mse_loss, opt, [((2, 4), "float32")] * 2)
    assert model(gh.ones((2, 4))).shape == (2, 4)  # the model works on


def test_meta_tensors_have_no_values():
    with gh.meta():
        x = gh.random.normal((1 << 20, 1 << 20))
        y = (x @ x).sum(axis=0)
        assert y.shape == (1 << 20,) and y.dtype == gh.float32
        with pytest.raises(BackendError, match=r"test_step.py:\d+"):
            bool(y[0] > 0)
        assert gh.asarray([1, 2]).numpy().tolist() == [1, 2]  # constants are known
    assert (gh.ones(3) + 1).tolist() == [2, 2, 2]


def test_max_batch_fits_and_one_more_does_not():
    model, loss, optimizer, inputs = small()
    with flags.override(compile="always"):
        budget = step(model, loss, optimizer, [((37, 64), "float32")] * 2).peak_bytes + 100
        best = max_batch(model, loss, optimizer, inputs, budget)

        def peak(batch):
            return step(model, loss, optimizer, [((batch, 64), "float32")] * 2).peak_bytes

        assert best >= 37 and peak(best) <= budget < peak(best + 1)
        with pytest.raises(OptionError, match="at least"):
            max_batch(model, loss, optimizer, inputs, 1000)


@pytest.mark.slow
def test_prediction_and_measurement_side_by_side():
    model, loss, optimizer, inputs = small()
    with flags.override(compile="always"):
        predicted = step(model, loss, optimizer, inputs)
        x, y = gh.ones((8, 64)), gh.ones((8, 64))
        gh.eval(x, y, *model.parameters())

        def train():
            optimizer.zero_grad()
            value = loss(model(x), y)
            value.backward()
            optimizer.step()
            return value

        train(), train()
        with gh.profile(profile_memory=True) as prof:
            train()
    result = compare(predicted, prof)
    lines = {line.name: line for line in result.totals}
    assert lines["FLOPs of kernels"].ratio == 1
    assert len(result.kernels) == len(predicted.kernels) and result.kernel_error >= 0
    assert "predicted" in str(result)


def test_profiles_are_saved_loaded_and_built_in(tmp_path):
    h200 = MachineProfile.load("h200")
    h200.save(tmp_path / "m.json")
    again = MachineProfile.load(tmp_path / "m.json")
    model, loss, optimizer, _ = small()
    inputs = [((1 << 16, 64), "float32")] * 2
    times = [step(model, loss, optimizer, inputs, machine=m).predicted_ns for m in (h200, again)]
    assert times[0] == times[1] > 0
    assert step(model, loss, optimizer, inputs, machine="cpu2").predicted_ns > times[0]
    with pytest.raises(OptionError, match="Did you mean 'h200'"):
        MachineProfile.load("h20")


def test_random_numbers_take_their_time():
    dropped = gh.nn.Sequential(gh.nn.Linear(64, 64), gh.nn.Dropout(0.5))
    plain = gh.nn.Sequential(gh.nn.Linear(64, 64))
    inputs, loss = [((1 << 14, 64), "float32")] * 2, gh.nn.functional.mse_loss
    slow = replace(MachineProfile.load("cpu2"), overhead_ns=0)
    slow.matrix = {**slow.matrix, "random_bits uint32": [(1.0, 1e6)]}
    with flags.override(compile="always"):
        results = [
            step(model, loss, gh.optim.SGD(model.parameters(), lr=0.1), inputs, machine=slow)
            for model in (dropped, plain)
        ]
    drawing = results[0].predicted_ns - results[1].predicted_ns
    assert drawing > 0.99 * 1e9 * (64 << 14) / 1e6


def test_ranks_add_an_all_reduce():
    with flags.override(compile="always"):
        costs = step(*small(), machine="h200")
    assert costs.with_ranks(1) == costs.predicted_ns
    assert costs.with_ranks(8) > costs.with_ranks(2) > costs.predicted_ns


def test_bad_arguments():
    model, loss, optimizer, inputs = small()
    with pytest.raises(OptionError, match="a model to call"):
        step(3, loss, optimizer, inputs)
    with pytest.raises(OptionError, match="loss to be a function"):
        step(model, 3, optimizer, inputs)
    with pytest.raises(OptionError, match="1 step or more"):
        step(model, loss, optimizer, inputs, steps=0)
    with pytest.raises(DTypeError, match="pairs of shape and dtype"):
        step(model, loss, optimizer, ["x"])
    assert np.isfinite(model(gh.ones((1, 64))).numpy()).all()
