"""The order in memory of what is joined of parts, beside NumPy; copies are left out."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.lowering.joined_order import can_follow, order_for_chain
from glasshouse.compile.planning.plan import ProgramPlan, describe_steps
from glasshouse.compile.steps.view import View, strides_of
from glasshouse.graph import record
from glasshouse.graph.graph import graph_of
from glasshouse.graph.simplify import PASSES


def heads(seed: int):
    """A value of (images, heads, tokens, size), made by a step of its own."""
    rng = np.random.default_rng(seed)
    a, b = (gh.tensor(rng.integers(-4, 5, s).astype(np.float32)) for s in [(2, 3, 7, 5), (5, 4)])
    return gh.matmul(a, b)


def gradients_of_heads():
    """(tokens, images, 3 · heads · size) of three, as the gradient of a projection has them."""
    parts = []
    for seed in range(3):
        turned = gh.permute_dims(heads(seed), (2, 0, 1, 3))
        parts.append(gh.reshape(turned, (1, 7, 2, 12)))
    joined = gh.permute_dims(gh.concat(parts, axis=0), (1, 2, 0, 3))
    return gh.reshape(joined, (14, 36))


def turned_parts():
    """Parts of different sizes, along an axis that stays, read in another order of axes."""
    a, b = heads(0), heads(1)[:, :2]
    return gh.reshape(gh.permute_dims(gh.concat([a, b], axis=1), (2, 0, 3, 1)), (7, 40))


def taken_apart():
    """A reshape that takes apart what was one axis."""
    joined = gh.concat([heads(0), heads(1)], axis=0)
    return gh.reshape(gh.permute_dims(gh.reshape(joined, (2, 2, 21, 4)), (2, 1, 3, 0)), (21, 16))


def stacked_rows():
    """Reshapes that add the axis along which parts are joined, in the middle of others."""
    return gh.concat([gh.reshape(heads(i), (2, 1, 21, 4)) for i in range(3)], axis=1) * 2


CASES = {f.__name__: f for f in (gradients_of_heads, turned_parts, taken_apart, stacked_rows)}


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_numpy(name):
    with gh.backends.use("lazy"), flags.override(compile="always"):
        ours = CASES[name]().numpy()
    with gh.backends.use("numpy"):
        expected = CASES[name]().numpy()
    np.testing.assert_array_equal(ours, expected)


def test_each_part_is_copied_once():
    with gh.backends.use("lazy") as backend:
        backend.evaluate()
        result = gh.matmul(gradients_of_heads(), gh.tensor(np.ones((36, 4), np.float32)))
        recording = record.recorder.take()
    graph = graph_of(recording)
    for _, rewrite in PASSES:
        graph = rewrite(graph)
    steps = describe_steps(ProgramPlan(graph)).splitlines()
    del result
    copies = [line for line in steps if "concatenate" in line or "permute" in line]
    assert len(copies) == 3, steps


def test_an_order_is_chosen_only_where_the_own_one_takes_a_copy():
    graph = graph_of_chain()
    packed = View(None, 0, (3, 4, 5), strides_of((3, 4, 5)))
    assert order_for_chain(packed, graph) == (1, 0, 2)
    turned = packed._replace(strides=strides_of((3, 4, 5), (1, 0, 2)))
    assert can_follow(turned, graph) and order_for_chain(turned, graph) is None
    assert order_for_chain(packed, []) is None


def graph_of_chain():
    """A permute, and a reshape of what it turned."""
    with gh.backends.use("lazy") as backend:
        backend.evaluate()
        x = gh.tensor(np.ones((3, 4, 5), np.float32)) + 1
        y = gh.reshape(gh.permute_dims(x, (1, 0, 2)), (12, 5))
        recording = record.recorder.take()
    del y
    return [node for node in graph_of(recording).nodes if node.op in ("permute", "reshape")]


def parts_of_two(axis: int = 1):
    """Parts joined: three read the same two operands, one reads another, one has another shape."""
    a, b, c = (gh.tensor(np.arange(i, 40 + i, dtype=np.float32).reshape(5, 8)) for i in range(3))
    return gh.concat([a * b, c * 2, a - b, b * 3, b[:, :4] if axis else b[:4]], axis=axis)


@pytest.mark.parametrize("axis", [0, 1])
def test_parts_that_read_the_same_are_written_by_one_kernel(axis):
    with gh.backends.use("lazy") as backend:
        backend.evaluate()
        result = parts_of_two(axis)
        recording = record.recorder.take()
    steps = describe_steps(ProgramPlan(graph_of(recording))).splitlines()
    del result
    assert [line.count("concatenate") for line in steps if "concatenate" in line] == [1, 1, 2, 1]
    with flags.override(compile="always"):
        compiled = parts_of_two(axis).numpy()
    with gh.backends.use("numpy"):
        np.testing.assert_array_equal(compiled, parts_of_two(axis).numpy())


def test_one_kernel_fills_only_so_many_parts():
    def joined(count: int = 40):
        x = gh.tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
        return gh.concat([x * i for i in range(count)], axis=1)

    with flags.override(compile="always"):
        compiled = joined().numpy()
    with gh.backends.use("numpy"):
        np.testing.assert_array_equal(compiled, joined().numpy())


def test_parts_of_an_operand_exchange_their_places_though_nobody_reads_it_any_more():
    x = np.arange(64, dtype=np.float32)
    with flags.override(compile="always"):
        doubled = gh.tensor(x) * 2
        gh.eval(doubled)
        turned = gh.concat([doubled[32:] + doubled[:32], doubled[:32] * 3], axis=0)
        del doubled
        result = turned.numpy()
    np.testing.assert_array_equal(result, np.concatenate([2 * (x[32:] + x[:32]), 6 * x[:32]]))
