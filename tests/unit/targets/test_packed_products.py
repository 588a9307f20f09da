"""Products with weights of few bits: as with unpacked weights, and by kernels that read bytes."""

import os
import subprocess
import sys

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.flags import flags
from glasshouse.compile.planning.plan import describe_steps
from glasshouse.compile.programs import program
from glasshouse.graph import record
from glasshouse.ops.packed import find_format, unpack
from glasshouse.ops.packed.formats import body_of
from glasshouse.targets.cpu.kernels.packed_products import MOST_ROWS

FORMS = [("Q4_1", 96), ("Q4_0", 96), ("Q8_0", 96), ("int8:96", 96), ("int4:64", 128),
         ("Q4_1", 1120), ("int4:32", 32), ("Q4_K", 512), ("Q6_K", 768)]  # fmt: skip
rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    monkeypatch.setattr(flags, "compile", "always")


def layer_of(name, rows, depth):
    """A layer with random codes, and scales of moderate size."""
    form = find_format(name)
    blocks = rng.integers(0, 256, (rows, depth // form.numbers, form.nbytes), np.uint8)
    dtype = "<f4" if name.startswith("int8") else "<f2"
    size = np.dtype(dtype).itemsize
    places = {"Q4_K": (0, 2), "Q6_K": (208,)}.get(name, range(0, form.header, size))
    for at in places:
        scales = rng.normal(0, 0.01, (*blocks.shape[:-1], 1)).astype(dtype)
        blocks[..., at : at + size] = scales.view(np.uint8)
    return nn.QuantizedLinear(gh.asarray(blocks), depth, name)


def result_of(layer, x):
    """(a layer's result, the descriptions of its steps)."""
    gh.backends.current().evaluate()
    with gh.no_grad():
        y = layer(x)
    with program.plans_kept():
        steps = program.compiled(record.describe(record.recorder.pending)).plan
    return y.numpy(), describe_steps(steps)


@pytest.mark.sample(5)
@pytest.mark.parametrize("rows", [1, 3, 4, 7, MOST_ROWS])
@pytest.mark.parametrize(("name", "depth"), FORMS)
def test_few_rows_read_packed_weights(name, depth, rows):
    layer = layer_of(name, 11, depth)
    w, x = layer.weight.numpy(), gh.random.normal((rows, depth))
    result, steps = result_of(layer, x)
    assert steps.count("few_bits matmul") == 1
    assert "kernel over" not in steps  # nothing is unpacked beside
    np.testing.assert_allclose(result, x.numpy().astype("f8") @ w.T, rtol=1e-4, atol=1e-4)


@pytest.mark.sample(6)
@pytest.mark.parametrize(("name", "depth"), FORMS)
def test_many_rows_unpack_weights_by_a_kernel(name, depth):
    layer = layer_of(name, 11, depth)
    w, x = layer.weight.numpy(), gh.random.normal((MOST_ROWS + 1, depth))
    result, steps = result_of(layer, x)
    assert steps.count("few_bits reshape") == 1
    np.testing.assert_allclose(result, x.numpy().astype("f8") @ w.T, rtol=1e-4, atol=1e-4)


@pytest.mark.sample(4)
@pytest.mark.parametrize(("name", "depth"), FORMS)
def test_the_kernel_unpacks_as_the_composition_does(monkeypatch, name, depth):
    layer = layer_of(name, 5, depth)
    gh.backends.current().evaluate()
    unpacked = layer.weight.numpy()
    monkeypatch.setattr(flags, "few_bits", False)
    np.testing.assert_allclose(layer.weight.numpy(), unpacked, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("name", "depth"), FORMS)
def test_numpy_unpacks_to_the_numbers_of_the_composition(name, depth):
    blocks = layer_of(name, 5, depth).packed
    body, rule = body_of(name, blocks.spec)
    (ours,), (expected,) = rule.compute(body, blocks.numpy()), body.compute([blocks.numpy()])
    np.testing.assert_array_equal(ours, expected)


def test_batches_of_tables_are_unpacked():
    blocks = gh.stack([layer_of("Q4_1", 3, 64).packed for _ in range(2)])
    form = find_format("Q4_1")
    expected = np.stack([unpack(x, form).numpy() for x in blocks])
    np.testing.assert_array_equal(gh.vmap(lambda x: unpack(x, form))(blocks).numpy(), expected)


def test_the_flag_takes_the_composition(monkeypatch):
    layer, x = layer_of("Q4_1", 11, 96), gh.random.normal((1, 96))
    expected, _ = result_of(layer, x)
    monkeypatch.setattr(flags, "few_bits", False)
    result, steps = result_of(layer, x)
    assert "few_bits" not in steps
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 5])
def test_bfloat16_is_summed_in_float32(rows):
    layer = layer_of("Q4_0", 11, 96)
    w, x = layer.weight.numpy(), gh.random.normal((rows, 96)).to("bfloat16")
    y, steps = result_of(layer, x)
    assert steps.count("few_bits matmul") == 1
    exact = x.to("float32").numpy().astype("f8") @ w.T
    np.testing.assert_allclose(y.astype("f8"), exact, rtol=2**-8, atol=1e-5)


def test_captured_steps_read_packed_weights():
    layer = layer_of("Q4_1", 11, 96)
    x = gh.random.normal((1, 96))
    step = gh.optimize(lambda x: layer(x) * 2)
    with gh.no_grad():
        results = [step(x).numpy() for _ in range(5)]
    assert step.hits > 1
    expected = 2 * x.numpy() @ layer.weight.numpy().T
    np.testing.assert_allclose(results[-1], expected, rtol=1e-4, atol=1e-5)


def test_a_row_is_the_same_bits_beside_others():
    layer, x = layer_of("Q4_1", 12, 96), gh.random.normal((8, 96))
    together, _ = result_of(layer, x)
    alone, _ = result_of(layer, x[3:4])
    np.testing.assert_array_equal(alone[0], together[3])


def test_other_products_of_bytes_are_left_alone():
    """A composition that differs in one call is no unpacking."""
    layer, x = layer_of("Q4_1", 11, 96), gh.random.normal((1, 96))
    weight = unpack(layer.packed ^ 1, layer.form)
    gh.backends.current().evaluate()
    y = nn.functional.linear(x, weight * 3)
    with program.plans_kept():
        steps = program.compiled(record.describe(record.recorder.pending)).plan
    assert "few_bits matmul" not in describe_steps(steps)
    changed = layer.packed.numpy() ^ 1
    w = nn.QuantizedLinear(gh.asarray(changed), 96, "Q4_1").weight.numpy()
    np.testing.assert_allclose(y.numpy(), 3 * x.numpy() @ w.T, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["-mno-avx512f", "-mno-avx2 -mno-f16c -mno-avx512f"])
def test_narrower_processors_compute_the_same(tmp_path, flag):
    """A compiler that is told to leave wide registers alone makes the other branches."""
    wrapper = tmp_path / "cc"
    wrapper.write_text(f'#!/bin/sh\nexec gcc "$@" {flag}\n')
    wrapper.chmod(0o755)
    tests = f"{__file__}::test_few_rows_read_packed_weights"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests]
    environment = {**os.environ, "GH_CC": str(wrapper), "GH_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
