"""Convolutions by Winograd's algorithm: those of the references, for every shape, vector width and
number of threads; what they write, count and where they are used."""

import ctypes
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.building import toolchain
from glasshouse.compile.planning.plan import ProgramPlan
from glasshouse.compile.programs import program
from glasshouse.dispatch import backend as backends
from glasshouse.graph import record
from glasshouse.nn.functional import conv2d, relu
from glasshouse.ops.contract import conv, conv_data_grad, conv_weight_grad
from glasshouse.targets.cpu import CPU
from glasshouse.targets.cpu.kernels import weight_gradients, winograd
from glasshouse.targets.cpu.onednn import library as onednn

PASSES = ("conv", "conv_data_grad", "conv_weight_grad")
# Of the largest element: about three times the error of a direct sum (docs/inside/numerics.md).
TOLERANCE = 1e-5
ROUNDING = 2**-8  # of bfloat16: sums are float32, and only their results are rounded
SHAPES = {  # images, channels, made, height, width, padding
    "whole tiles and vectors": (2, 32, 64, 8, 12, ((1, 1), (1, 1))),
    "parts of tiles and vectors": (3, 20, 37, 7, 5, ((1, 1), (1, 1))),
    "no padding": (2, 16, 16, 9, 6, ((0, 0), (0, 0))),
    "all padding": (1, 5, 3, 4, 6, ((2, 2), (2, 2))),
    "uneven padding": (2, 17, 33, 6, 7, ((0, 2), (3, 1))),
    "one position": (1, 1, 1, 1, 1, ((1, 1), (1, 1))),
    "many blocks": (4, 18, 16, 30, 31, ((1, 1), (0, 1))),
    "few tiles, many channels": (2, 150, 165, 7, 6, ((1, 1), (1, 1))),
}


@pytest.fixture
def everywhere(monkeypatch):
    """Also where it is slower; Programs made here are of no use to others."""
    monkeypatch.setattr(winograd, "is_faster", lambda node: True)
    monkeypatch.setattr(program, "programs", {})


@pytest.fixture
def quickly(monkeypatch):
    """Compiled with fewer optimisations: it takes a third of the time, and results are the same."""
    options = ["-O1" if option == "-O3" else option for option in toolchain.OPTIONS]
    caches = toolchain.identity, toolchain.identity_digest
    for cached in caches:
        cached.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(toolchain, "OPTIONS", options)
        yield
    for cached in caches:
        cached.cache_clear()


def operands(shape, seed: int = 0):
    """(x, w, g) of a shape: data, weights and a gradient of the results."""
    images, channels, out_channels, height, width, padding = shape
    size = [n + sum(pair) - 2 for n, pair in zip((height, width), padding, strict=True)]
    rng = np.random.default_rng(seed)
    shapes = (
        (images, channels, height, width),
        (out_channels, channels, 3, 3),
        (images, out_channels, *size),
    )
    return [rng.standard_normal(s, np.float32) for s in shapes]


def passes(shape, x, w, g) -> dict:
    """The convolution and its gradients, with the current backend."""
    options = {"stride": (1, 1), "padding": shape[5], "dilation": (1, 1), "groups": 1}
    x, w, g = map(gh.asarray, (x, w, g))
    return {
        "conv": conv(x, w, **options),
        "conv_data_grad": conv_data_grad(g, w, shape=shape[3:5], **options),
        "conv_weight_grad": conv_weight_grad(x, g, shape=(3, 3), **options),
    }


def check(shape, seed: int = 0, dtype: str = "float32") -> None:
    """All passes are those of the references in double precision."""
    inputs = [a.astype(gh.asarray(0, dtype=dtype).dtype.np) for a in operands(shape, seed)]
    with flags.override(compile="always"), program.plans_kept():
        result = passes(shape, *inputs)
        backends.current().evaluate([y.payload for y in result.values()])
    kinds = [
        step.lowerer.label
        for entry in program.programs.values()
        for step in entry.program.plan.schedule
    ]
    assert kinds.count("winograd") == 3
    with gh.backends.use("numpy"):
        expected = passes(shape, *(a.astype(np.float64) for a in inputs))
    for name in PASSES:
        y, z = result[name].numpy(), expected[name].numpy()
        error = TOLERANCE if dtype == "float32" else ROUNDING
        y = y.astype(np.float64)
        np.testing.assert_allclose(y, z, rtol=0, atol=error * np.abs(z).max(), err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", SHAPES)
def test_passes_are_those_of_the_references(everywhere, quickly, monkeypatch, name, dtype):
    monkeypatch.setattr(winograd, "BRIEF", True)
    check(SHAPES[name], dtype=dtype)


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_passes_of_any_shape_are_those_of_the_references(data):
    draw = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    padding = tuple((draw(0, 3), draw(0, 3)) for _ in range(2))
    size = [draw(max(1, 3 - sum(pair)), 11) for pair in padding]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd, "is_faster", lambda node: True)
        patch.setattr(program, "programs", {})
        check((draw(1, 3), draw(1, 80), draw(1, 80), *size, padding), draw(0, 9))


@pytest.mark.parametrize(("channels", "most"), [(64, 0.58e-6), (512, 0.8e-6)])
def test_errors_are_those_of_short_sums(everywhere, channels, most):
    """Added up 32 at a time, products of 64 channels have an error of 0.62e-6; in one chain, those
    of 512 have one of 2e-6."""
    shape = (1, channels, 32, 16, 16, ((1, 1), (1, 1)))
    x, w, g = operands(shape)
    with flags.override(compile="always"):
        result = passes(shape, x, w, g)["conv"].numpy()
    with gh.backends.use("numpy"):
        exact = passes(shape, *(a.astype(np.float64) for a in (x, w, g)))["conv"].numpy()
    assert np.linalg.norm(result - exact) <= most * np.linalg.norm(exact)


def steps_of(shape) -> dict:
    """The planned step of each pass; nothing is compiled."""
    result = passes(shape, *operands(shape))
    plan = ProgramPlan(program.rewritten(program.graph_of(record.recorder.take())))
    steps = {s.node.op: s for s in plan.schedule if s.lowerer.label == "winograd"}
    assert steps.keys() == result.keys()
    return steps


def last(a):
    """(N, C, H, W) as it lies in memory."""
    return np.moveaxis(a, 1, -1)


def compile_kernels(steps: dict, options=()) -> dict:
    """The function of each pass; what matters is what it writes, not how fast."""
    named = [step.lowerer.emit(step).what.named(op) for op, step in steps.items()]
    text = CPU.dialect.file_of(named)
    library = toolchain.compile_one(text, ("-O1", *options))
    return {op: getattr(library, op) for op in steps}


def run_kernel(kernel, step, shape) -> list[np.ndarray]:
    """The buffers of a step, guards around them, after its kernel has run."""
    x, w, g = operands(shape)
    options = {
        "conv": (last(x), w),
        "conv_data_grad": (last(g), w),
        "conv_weight_grad": (last(x), last(g)),
    }
    args = step.lowerer.emit(step).args
    buffers = [np.full(b.spec.size + 2 * GUARD, np.nan, np.float32) for b, _ in args]
    for buffer, value in zip(buffers, options[step.node.op], strict=False):
        buffer[GUARD:-GUARD] = value.ravel()
    kernel((ctypes.c_void_p * len(buffers))(*(b[GUARD:].ctypes.data for b in buffers)))
    return buffers


GUARD = 64  # floats on both sides of a buffer
WIDTHS = {"as it is": (), "avx2": ("-mno-avx512f",), "sse": ("-mno-avx",)}


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", list(SHAPES)[1:])
def test_kernels_of_any_vector_width_write_to_their_buffers_only(everywhere, name, width):
    shape = SHAPES[name]
    with gh.backends.use("numpy"):
        expected = passes(shape, *operands(shape))
    steps = steps_of(shape)
    kernels = compile_kernels(steps, WIDTHS[width])
    for op, step in steps.items():
        buffers = run_kernel(kernels[op], step, shape)
        assert all(np.isnan(part).all() for b in buffers for part in (b[:GUARD], b[-GUARD:]))
        y = expected[op].numpy()
        y = (y if op == "conv_weight_grad" else last(y)).ravel()
        np.testing.assert_allclose(buffers[2][GUARD:-GUARD], y, 0, TOLERANCE * np.abs(y).max())


@pytest.mark.parametrize("name", ["many blocks", "few tiles, many channels"])
def test_results_do_not_depend_on_the_number_of_threads(everywhere, name):
    openmp = ctypes.CDLL("libgomp.so.1")
    threads = openmp.omp_get_max_threads()
    steps = steps_of(SHAPES[name])
    kernels = compile_kernels(steps)
    for op, step in steps.items():
        results = []
        for count in (1, 2, 3):
            openmp.omp_set_num_threads(count)
            try:
                results.append(run_kernel(kernels[op], step, SHAPES[name])[2])
            finally:
                openmp.omp_set_num_threads(threads)
        assert all(np.array_equal(results[0], y, equal_nan=True) for y in results)


@pytest.mark.slow
@pytest.mark.parametrize("biased", [False, True])
def test_bias_and_relu_are_part_of_the_kernel(everywhere, biased):
    x, w, _ = operands((2, 16, 19, 8, 9, ((1, 1), (1, 1))))
    x[0, 0, 0, 0] = np.nan
    bias = np.linspace(-1, 1, 19, dtype=np.float32) if biased else None

    def layer():
        return relu(conv2d(gh.asarray(x), gh.asarray(w), bias, padding=1))

    with flags.override(compile="always"), program.plans_kept():
        result = layer().numpy()
    (entry,) = program.programs.values()
    names = [info.name for info in entry.program.step_infos() if info.kind == "winograd"]
    assert len(names) == 1 and "where" in names[0]
    with gh.backends.use("numpy"):
        expected = layer().numpy()
    # A tile with a NaN in it may have more NaNs than the definition, none fewer.
    assert np.isnan(result[np.isnan(expected)]).all() and not np.isnan(result[1]).any()
    sound = ~np.isnan(result)
    np.testing.assert_allclose(result[sound], expected[sound], rtol=0, atol=1e-4)


def trained():
    """A layer's results, and those of its gradients, where the algorithm is used by itself."""
    x, w, g = operands((4, 32, 48, 24, 24, ((1, 1), (1, 1))))
    x, w = (gh.tensor(a, requires_grad=True) for a in (x, w))
    y = conv2d(x, w, padding=1)
    y.backward(gh.asarray(g))
    backends.current().evaluate([t.payload for t in (y, x.grad, w.grad)])
    return [t.numpy() for t in (y, x.grad, w.grad)]


def kinds_and_flops():
    """Kinds of the convolutions of all Programs, what they count and what they do."""
    infos = [
        i for e in program.programs.values() for i in e.program.step_infos() if "conv" in i.name
    ]
    return (
        {i.kind for i in infos},
        sum(i.flops for i in infos),
        sum(i.executed_flops for i in infos),
    )


@pytest.mark.slow
@pytest.mark.parametrize("on", [True, False])
def test_flag_turns_it_off(monkeypatch, on):
    monkeypatch.setattr(program, "programs", {})
    with flags.override(compile="always", winograd=on):
        result = trained()
        kinds, flops, executed = kinds_and_flops()
    defined = 3 * 2 * prod((4, 48, 24, 24)) * 32 * 9
    others = {"onednn", "panels"} if weight_gradients.LANES >= 8 else {"onednn"}
    assert kinds == ({"winograd"} if on else others)
    assert flops == defined and executed == (defined // 4 if on else defined)
    with flags.override(compile="always", winograd=not on):
        twin = trained()
    for y, z in zip(result, twin, strict=True):
        np.testing.assert_allclose(y, z, rtol=0, atol=TOLERANCE * np.abs(z).max())


@pytest.mark.parametrize(
    "options",
    [
        {"stride": 2},
        {"dilation": 2},
        {"groups": 2},
        {"kernel": 5},
        {"dtype": "bfloat16"},
        {"channels": 16},
        {"images": 1},
    ],
)
def test_other_convolutions_are_direct(monkeypatch, options):
    monkeypatch.setattr(program, "programs", {})
    images, channels, kernel, dtype = (
        options.pop(name, default)
        for name, default in (("images", 4), ("channels", 32), ("kernel", 3), ("dtype", "float32"))
    )
    x = gh.ones((images, channels, 12, 12)).astype(dtype)
    w = gh.ones((32, channels // options.get("groups", 1), kernel, kernel)).astype(dtype)
    with flags.override(compile="always"):
        conv2d(x, w, padding=1, **options).numpy()
    kinds, flops, executed = kinds_and_flops()
    if dtype not in onednn.library().dtypes:  # widened, and no other one
        assert kinds == {"winograd"}
    else:
        assert kinds == {"onednn"} and flops == executed
