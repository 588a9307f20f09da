"""Profiles of machines: what their rates say of times."""

from dataclasses import replace

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.analyze import MachineProfile
from glasshouse.base.flags import flags
from glasshouse.compile.steps.work import StepKind, product_of


@pytest.mark.quick
def test_new_pages_take_time_at_their_own_rate():
    machine = replace(MachineProfile.load("cpu2"), new_bytes_per_s=4e9)
    assert machine.new_pages_ns(1 << 20) == pytest.approx((1 << 20) / 4)
    assert replace(machine, new_bytes_per_s=0.0).new_pages_ns(1 << 20) == 0


@pytest.mark.quick
def test_rates_stand_in_for_those_with_a_word_more():
    rates = {"matmul float32": 1.0, "conv float32": 2.0, "conv depthwise float32": 3.0}
    rates |= {"matmul bfloat16": 4.0, "conv depthwise strided template float32": 5.0}
    matrix = {name: [(1.0, rate)] for name, rate in rates.items()}
    machine = replace(MachineProfile.load("cpu2"), matrix=matrix)

    def rate(primitive, dtype="float32"):
        return machine.rates(primitive, dtype)[0][1]

    assert rate("conv depthwise strided template") == 5
    assert rate("conv depthwise strided") == rate("conv depthwise") == 3
    assert rate("conv strided") == rate("conv winograd") == 2
    assert rate("matmul flat") == rate("something else") == 1
    assert rate("conv depthwise", "bfloat16") == 4  # of products, before another dtype


def test_depthwise_convolutions_are_products_of_their_own():
    def product(groups, stride=1, channels=4):
        with gh.FlopCounter() as counter:
            x, w = gh.ones((1, channels, 6, 6)), gh.ones((channels, channels // groups, 3, 3))
            gh.nn.functional.conv2d(x, w, groups=groups, stride=stride)
        counter.digest()
        calls = [call for call, _ in counter.counts if call.primitive.name == "conv"]
        return product_of(calls[0])

    assert product(1, channels=16) == "conv"
    assert product(2, channels=16) == "conv"
    assert product(1) == "conv few" and product(1, stride=2) == "conv few strided"
    assert product(4) == "conv depthwise"
    assert product(4, stride=2) == "conv depthwise strided"


def test_what_moves_first_takes_the_time_of_both():
    machine = replace(
        MachineProfile.load("cpu2"),
        matrix={"conv float32": [(1.0, 1e9)]},
        bandwidth=[(1.0, 1e9)],
        overhead_ns=0.0,
    )
    kind = StepKind()
    assert kind.estimate(["conv float32"], [1000, 0, 0, 3000], machine) == pytest.approx(3000)
    kind.moves_first = True
    assert kind.estimate(["conv float32"], [1000, 0, 0, 3000], machine) == pytest.approx(4000)


@pytest.mark.parametrize(("width", "rest"), [(7, 1.0), (14, 6 / 14), (16, 0.0), (20, 4 / 20)])
def test_elements_that_fill_no_vector_have_a_rate_of_their_own(width, rest):
    x = gh.asarray(np.ones((64, width + 1), np.float32))
    with gh.profile() as prof, flags.override(compile="always"):
        gh.tanh(x[:, :width]).numpy()
    trace = prof.trace
    info = trace.info(int(trace.steps.program[-1]), int(trace.steps.step[-1]))
    assert info.rest == pytest.approx(rest)
    slow = {"rests of rows float32": [(1.0, 1e6)]}
    machine = replace(MachineProfile.load("cpu2"), elementwise=1e9, overhead_ns=0.0)
    whole = max(machine.moving_s(info.bytes), info.flops / 1e9)
    assert machine.ns(info) == pytest.approx(1e9 * whole)  # a profile without that rate
    machine.matrix = machine.matrix | slow
    expected = info.flops * (1 - rest) / 1e9 + round(info.flops * rest) / 1e6
    assert machine.ns(info) == pytest.approx(1e9 * max(machine.moving_s(info.bytes), expected))


@pytest.mark.parametrize("seed", range(6))
def test_a_result_in_place_of_an_operand_is_not_moved_again(seed):
    """In random kernels: each operand and each result elsewhere is moved once."""
    rng = np.random.default_rng(seed)
    operands, results, size = *rng.integers(1, 5, 2).tolist(), int(rng.integers(1 << 12, 1 << 14))
    in_place = int(rng.integers(0, min(operands, results) + 1))
    machine = replace(
        MachineProfile.load("cpu2"), bandwidth=[(1.0, 1e9)], elementwise=1e30, overhead_ns=0.0
    )
    work = [4 * size * (operands + results), 4 * size * in_place, 0]
    estimate = StepKind().estimate
    expected = 4 * size * (operands + results - in_place)
    assert estimate([], work, machine) == pytest.approx(expected)
    machine.writes_beside = False
    assert estimate([], work, machine) == pytest.approx(4 * size * (operands + results))


@pytest.mark.parametrize(("optimizer", "tensors"), [("SGD", 1), ("Adam", 3), ("AdamW", 3)])
def test_updates_of_optimizers_are_in_place(optimizer, tensors):
    """An update reads the gradient, parameter and state, and writes all but the gradient."""
    model = gh.nn.Linear(128, 96, bias=False)
    opt = getattr(gh.optim, optimizer)(model.parameters(), lr=0.1)
    inputs = [((64, 128), "float32"), ((64, 96), "float32")]
    costs = gh.analyze.step(model, gh.nn.functional.mse_loss, opt, inputs)
    infos = [info for run in costs.runs for info in run.plan.step_infos()]
    overwritten = [x.overwritten_bytes for x in infos if x.origins[-1].phase == "optimizer"]
    assert overwritten == [tensors * 4 * 128 * 96]
    assert sum(x.overwritten_bytes for x in infos) - overwritten[0] < overwritten[0]
