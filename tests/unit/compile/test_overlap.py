"""The order of steps with collectives: they start early, end late, and cost little memory."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.lowering.source_map import StepInfo
from glasshouse.compile.planning.overlap import MOST_GROWTH, live_bytes
from glasshouse.compile.planning.plan import ProgramPlan, rewritten
from glasshouse.graph.graph import graph_of
from glasshouse.graph.record import describe, recorder
from glasshouse.ops import collective
from glasshouse.ops.process import ALONE, PAIR

SIZE = 128


def plan_of(function, *shapes) -> ProgramPlan:
    """The plan of a function of tensors of these shapes, for rank 0 of 2; products have no scratch
    memory."""
    gh.eval()
    xs = [gh.asarray(np.zeros(shape, np.float32)) for shape in shapes]
    results = function(*xs)
    pending = recorder.pending
    recorder.forget()
    with flags.override(bf16x6=False):
        plan = ProgramPlan(rewritten(graph_of(describe(pending))))
    del results
    return plan


def words(plan) -> list[str]:
    """The steps by name, without groups and sizes."""
    return [info.name.partition(" world")[0] for info in plan.step_infos()]


def start_of(plan):
    """The step that starts the only collective of a plan, or does all of it."""
    steps = [
        step for step in plan.schedule if step.node is not None and step.node.call.is_collective
    ]
    return steps[0]


def total(x):
    return collective.all_reduce(x, group=PAIR, reduce="sum", replicated=True)


def gathered(x):
    return collective.all_gather(x, group=PAIR, axis=0, replicated=False)


SQUARE = (SIZE, SIZE)


def test_others_run_between_start_and_wait():
    def work(a, b):
        first = total(a @ b)
        return (b @ b) @ a + first

    assert words(plan_of(work, SQUARE, SQUARE)) == [
        "matmul",
        "start all_reduce",
        "matmul",
        "matmul",
        "all_reduce",
        "add",
    ]


def test_what_reads_a_sum_waits_until_others_are_computed():
    """As the means of gradients of ZeRO 2, beside which the backward pass goes on."""

    def work(a, b, large):
        square = large @ large  # there until the end, so that a sum more is a small part of memory
        first = total(a @ b) * 0.5
        second = total(b @ a) * 0.5
        return first, second, square @ large

    result = words(plan_of(work, SQUARE, SQUARE, (4 * SIZE, 4 * SIZE)))
    assert [word for word in result if word != "reorder"] == [
        "matmul",
        "matmul",
        "start all_reduce",
        "matmul",
        "start all_reduce",
        "all_reduce",
        "mul",
        "matmul",
        "all_reduce",
        "mul",
    ]


def test_what_the_next_collective_needs_does_not_wait_for_more():
    def work(a, b):
        halved = total(a @ b) * 0.5
        beside = a + b
        return total(halved @ b), beside

    assert words(plan_of(work, SQUARE, SQUARE)) == [
        "matmul",
        "start all_reduce",
        "add",
        "all_reduce",
        "mul",
        "matmul",
        "all_reduce",
    ]


def test_starts_stay_in_the_order_of_the_calls():
    def work(a, b):
        c = a @ b
        for _ in range(3):
            c = c @ b
        late, early = total(c), total(a + 1)  # of which the second could start first
        return late + early

    result = plan_of(work, SQUARE, SQUARE)
    starts = [
        step.node.inputs[0].op for step in result.schedule if getattr(step, "part", "") == "start"
    ]
    assert starts == ["matmul", "add"]


def test_a_collective_of_a_collective_waits_for_it():
    def work(a):
        once = total(a)
        return once @ a, total(once + 1), total(total(a * 3))

    result = words(plan_of(work, SQUARE))
    assert result.count("start all_reduce") == 2 and result.count("all_reduce") == 4
    assert result.index("all_reduce") < result.index("add") < len(result) - 2


def test_what_nothing_runs_beside_is_one_step():
    assert words(plan_of(lambda a: total(total(a) * 1.5), SQUARE)) == [
        "all_reduce",
        "mul",
        "all_reduce",
    ]
    assert words(plan_of(lambda a: total(total(a)), SQUARE)) == ["all_reduce"] * 2


def test_a_value_that_nobody_else_reads_is_replaced_where_it_lies():
    plan = plan_of(lambda a, b: total(a @ b), SQUARE, SQUARE)
    start = start_of(plan)
    assert plan.arena_bytes < 4 * SIZE * SIZE and start.reads() == start.writes()


def test_a_value_of_another_shape_is_replaced_too():
    plan = plan_of(lambda a, b: total((a @ b).reshape(-1)).reshape(SQUARE) * 2 + a, SQUARE, SQUARE)
    start = start_of(plan)
    assert start.reads() == start.writes()
    assert words(plan)[-1] == "mul + add"


def test_what_others_read_too_is_not_replaced():
    def work(a, b):
        c = a @ b
        return total(c) + c

    plan = plan_of(work, SQUARE, SQUARE)
    start = start_of(plan)
    assert start.reads().isdisjoint(start.writes())


def test_inputs_are_not_replaced():
    plan = plan_of(total, SQUARE)
    assert all(step.reads().isdisjoint(step.writes()) for step in plan.schedule)


def test_gathers_of_what_is_there_from_the_start_do_not_all_begin_at_once():
    def work(x, *parts):
        for part in parts:
            x = gh.tanh(x @ gathered(part))
        return x

    layers = 16
    plan = plan_of(work, SQUARE, *[(SIZE // 2, SIZE)] * layers)
    result = words(plan)
    blocking = 2 * 4 * SIZE * SIZE + 4 * SIZE * SIZE  # of one layer: operand, weight, result
    assert result.index("all_gather") < 4
    assert live_bytes(plan.schedule).max() <= blocking + blocking // MOST_GROWTH
    assert sum(word == "all_gather" for word in result) == layers


def test_scattered_sums_are_waited_for_before_their_operands_pile_up():
    def work(x, *weights):
        return [collective.reduce_scatter(x @ w, group=PAIR, axis=0) for w in weights]

    plan = plan_of(work, SQUARE, *[SQUARE] * 12)
    alone = plan_of(work, SQUARE, SQUARE)
    assert plan.arena_bytes <= 2 * alone.arena_bytes


def test_plans_do_not_depend_on_when_they_are_made():
    def work(a, b):
        return [total(a @ b), gathered(a), total(a * b)]

    assert words(plan_of(work, SQUARE, SQUARE)) == words(plan_of(work, SQUARE, SQUARE))


def test_steps_have_names_groups_and_kinds():
    infos: list[StepInfo] = plan_of(lambda a: (total(a), a @ a.mT), (1000, 1050)).step_infos()
    infos = [info for info in infos if info.group]
    assert [info.name for info in infos] == [
        "start all_reduce world 4.2 MB",
        "all_reduce world 4.2 MB",
    ]
    assert all(info.group == (0, 1) and info.kind == "between ranks" for info in infos)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_collectives_along_any_axis_are_steps_of_their_own(axis):
    def work(x):
        return [
            collective.all_gather(x, group=PAIR, axis=axis, replicated=False),
            collective.reduce_scatter(x, group=PAIR, axis=axis),
            collective.all_to_all(x, group=PAIR, split=axis, concat=2 - axis),
            collective.broadcast(x, group=PAIR, root=1),
            collective.collective_permute(x, group=PAIR, pairs=((0, 1),)),
        ]

    plan = plan_of(work, (4, 6, 8))
    assert not any(step.lowerer is plan.target.host for step in plan.schedule)
    with flags.override(strict=True):
        plan_of(work, (4, 6, 8))


def test_groups_of_one_cost_nothing():
    alone = ALONE

    def work(x):
        y = collective.all_reduce(x * 2, group=alone, reduce="sum", replicated=False)
        return collective.all_gather(y, group=alone, axis=1, replicated=True) + 1

    assert words(plan_of(work, SQUARE)) == ["mul + add"]
