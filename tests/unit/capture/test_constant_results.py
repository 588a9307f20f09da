"""Results of parameters alone stay from run to run in inference, while the parameters stay."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.flags import flags
from glasshouse.capture.programs import first_run
from glasshouse.compile.programs.executable import Program
from glasshouse.compile.programs.run_memory import ConstantResults
from glasshouse.targets.cpu.onednn.byte_products import has_exact_sums


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    monkeypatch.setattr(flags, "compile", "always")


@pytest.fixture
def first_steps(monkeypatch):
    """The steps with which runs began that have such results."""
    steps, original = [], ConstantResults.first_step

    def noted(self, *args):
        steps.append(original(self, *args))
        return steps[-1]

    monkeypatch.setattr(ConstantResults, "first_step", noted)
    return steps


def convolutions():
    head = [nn.Conv2d(3, 24, 3), nn.BatchNorm2d(24), nn.ReLU()]
    return nn.Sequential(*head, nn.Conv2d(24, 40, 3, stride=2), nn.Flatten(), nn.Linear(1440, 5))


MODELS = {
    "convolutions": (convolutions, (2, 3, 16, 16)),
    "one axis": (lambda: nn.Sequential(nn.Conv1d(8, 24, 3), nn.ReLU()), (2, 8, 9)),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(8, 24, 3)), (1, 8, 5, 5)),
    "linear": (lambda: nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 9)), (40, 64)),
}


def prepared(name, dtype="float32"):
    """(a model, an input, the captured call, the plain call)."""
    make, shape = MODELS[name]
    gh.random.seed(0)
    model, x = make().eval(), gh.random.normal(shape)
    model.shape = shape
    if dtype == "bfloat16":
        model, x = model.to(dtype=dtype), x.to(dtype)
    step = gh.optimize(lambda x: model(x))

    def computed(fn):
        with gh.no_grad(), gh.autocast(enabled=dtype == "autocast"):
            return fn(x).astype("float32").numpy().copy()

    def captured():
        return computed(step)

    def plain():
        return computed(model)

    return model, captured, plain


def assert_follows(result, expected, name="convolutions", dtype="float32"):
    """The bits of the plain call; where a norm went into weights, its numbers but for rounding."""
    if name == "convolutions":
        close = 1e-6 if dtype == "float32" else 2e-2
        np.testing.assert_allclose(result, expected, 1e-5, close * np.abs(expected).max())
    else:
        np.testing.assert_array_equal(result, expected)


def train(model, optimize):
    """A training step, which may overwrite the memory of parameters."""
    optimizer = gh.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    run = gh.optimize(step) if optimize else step
    for _ in range(4):
        run(gh.ones(model.shape, dtype=next(model.parameters()).dtype))


def assign(model):
    with gh.no_grad():
        for p in model.parameters():
            p.copy_(p * 0.5)


def fill(model):
    with gh.no_grad():
        for p in model.parameters():
            p.zero_()


def load(model):
    model.load_state_dict({k: v * 2 for k, v in model.state_dict().items()})


def replace_one(model):
    module = next(m for m in model.modules() if hasattr(m, "weight"))
    module.weight = nn.Parameter(module.weight.detach() * 3)


CHANGES = {
    "nothing": lambda model: None,
    "assigned": assign,
    "loaded": load,
    "one replaced": replace_one,
    "trained": lambda model: train(model, False),
    "trained by a captured step": lambda model: train(model, True),
    "filled": fill,
}


@pytest.mark.sample(36)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "autocast"])
@pytest.mark.parametrize("name", MODELS)
def test_results_follow_the_parameters(name, dtype, change):
    model, captured, plain = prepared(name, dtype)
    for _ in range(2):
        for _ in range(4):
            assert_follows(captured(), plain(), name, dtype)
        CHANGES[change](model)


def test_steps_of_parameters_run_once(first_steps):
    _, captured, plain = prepared("convolutions")
    for _ in range(6):
        result = captured()
    assert first_steps[0] == 0 and len(set(first_steps[1:])) == 1 and first_steps[-1] > 0
    assert_follows(result, plain())


def test_two_models_of_one_program_do_not_read_each_others(first_steps):
    one, two = prepared("convolutions"), prepared("convolutions")
    assign(two[0])
    for _ in range(4):
        for _, captured, plain in (one, two, two):
            assert_follows(captured(), plain())
    assert not np.array_equal(one[1](), two[1]())
    assert max(first_steps) > 0


def test_arrays_are_freed_with_the_parameters(monkeypatch):
    used, original = set(), ConstantResults.first_step
    monkeypatch.setattr(
        ConstantResults, "first_step", lambda self, *args: used.add(self) or original(self, *args)
    )
    model, captured, _ = prepared("convolutions")
    for _ in range(3):
        captured()
    (results,) = used
    arrays = [weakref.ref(array) for array in results.arrays]
    assert arrays and all(array() is not None for array in arrays)
    replace_one(model)
    gh.eval(*model.parameters())  # until then the new ones need the old ones
    gc.collect()
    assert results.arrays == [] and all(array() is None for array in arrays)


class Codes(nn.Module):
    """A product by a buffer of bytes that lies row by row, traced as Python."""

    def __init__(self, rows):
        super().__init__()
        rng = np.random.default_rng(0)
        self.register_buffer("codes", gh.asarray(rng.integers(-99, 99, (256, 192)).astype("int8")))
        self.x = rng.integers(-99, 99, (rows, 256)).astype("int8")

    def product(self, x):
        return gh.matmul(x.astype("int32"), self.codes.astype("int32"))

    def expected(self):
        return self.x.astype("int32") @ self.codes.numpy().astype("int32")


@pytest.mark.skipif(not has_exact_sums(), reason="oneDNN has no exact sums here")
@pytest.mark.parametrize("rows", [1, 8, 200])
def test_bytes_of_a_buffer_stay_as_the_product_wants_them(first_steps, rows):
    model = Codes(rows)
    step, x = gh.optimize(lambda x: model.product(x)), gh.asarray(model.x)
    for change in (1, -2):
        with gh.no_grad():
            for _ in range(4):
                np.testing.assert_array_equal(step(x).numpy(), model.expected())
            model.codes = model.codes * change
    assert first_steps[-1] > 0


@pytest.mark.parametrize("rows", [8, 40])
def test_products_of_bfloat16_by_weights_in_a_kept_layout(rows):
    gh.random.seed(0)
    model = nn.Linear(96, 80).to(dtype="bfloat16")
    x = gh.random.normal((rows, 96)).to("bfloat16")
    step = gh.optimize(lambda x: model(x))
    for change in (assign, load):
        with gh.no_grad():
            for _ in range(4):
                y, same = step(x), model(x)
                np.testing.assert_allclose(*(t.astype("float32").numpy() for t in (y, same)), 1e-2)
        change(model)


def test_large_parameters_get_no_second_copy(monkeypatch, first_steps):
    _, captured, plain = prepared("convolutions")
    monkeypatch.setattr(first_run, "MOST_STABLE_BYTES", 10_000)
    for _ in range(4):
        np.testing.assert_array_equal(captured(), plain())
    assert first_steps == []


def test_a_step_that_trains_keeps_none(first_steps):
    model = convolutions()
    model.shape = MODELS["convolutions"][1]
    train(model, True)
    assert first_steps == []


def test_a_run_that_fails_leaves_no_results(monkeypatch, first_steps):
    model, captured, plain = prepared("convolutions")
    captured()
    captured()
    original = Program.run_steps
    monkeypatch.setattr(Program, "run_steps", lambda *args, **more: 1 / 0)
    assign(model)
    with pytest.raises(ZeroDivisionError):
        captured()
    monkeypatch.setattr(Program, "run_steps", original)
    for _ in range(2):
        assert_follows(captured(), plain())


def test_threads_share_a_program(first_steps):
    one, two = prepared("convolutions"), prepared("convolutions")
    load(two[0])
    expected = [plain() for *_, plain in (one, two)]
    for _, captured, _ in (one, two):
        captured()
        captured()
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda i: (i % 2, (one, two)[i % 2][1]()), range(40)))
    for which, result in results:
        assert_follows(result, expected[which])


def test_looks_for_the_first_nan_run_all_steps(first_steps):
    _, captured, plain = prepared("convolutions")
    for _ in range(4):
        captured()
    with gh.detect_anomaly():
        for _ in range(4):
            result = captured()
    assert_follows(result, plain())


def test_runs_that_name_no_parameters_run_all_steps():
    results = ConstantResults([(None, (2,), np.dtype("float32"), 8, None)], 3)
    for _ in range(3):
        assert results.first_step((), [], None) == 0
        results.fill((), [])


def test_numbers_of_a_call_beside_parameters_count(first_steps):
    conv = nn.Conv2d(8, 16, 3)

    def scaled(x, factor):
        return nn.functional.conv2d(x, conv.weight * factor)

    step, x = gh.optimize(scaled), gh.ones((1, 8, 9, 9))
    with gh.no_grad():
        for factor in (1.0, 2.0, 3.0, 3.0, 3.5, 1.0):
            np.testing.assert_array_equal(step(x, factor).numpy(), scaled(x, factor).numpy())
    assert max(first_steps) > 0


def test_later_runs_take_no_more_memory():
    _, captured, _ = prepared("convolutions")
    for _ in range(3):
        captured()
    manager = gh.memory.current()
    gc.collect()
    before = manager.stats().allocated_bytes
    captured()
    assert manager.stats().allocated_bytes == before
