import pytest

from glasshouse.base.errors import OptionError
from glasshouse.distributed.pipelines.schedules import Schedule, forwards_only, make_schedule
from glasshouse.distributed.pipelines.simulation import Action, ScheduleSimulation

pytestmark = pytest.mark.quick

CASES = [
    (name, ranks, chunks, microbatches)
    for name in ("gpipe", "1f1b", "interleaved")
    for ranks in (1, 2, 3, 4)
    for chunks in (1, 2, 3)
    for microbatches in (ranks, 2 * ranks, 4 * ranks)
    if chunks == 1 or name != "1f1b"
]


def made(name, ranks, chunks, microbatches):
    return make_schedule(name, ranks=ranks, microbatches=microbatches, stages=ranks * chunks)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bubbles_are_those_of_the_formula(case):
    name, ranks, chunks, microbatches = case
    expected = (ranks - 1) / (microbatches * chunks + ranks - 1)  # Narayanan et al. 2021, 2.2
    assert made(*case).simulation.bubble_share == pytest.approx(expected)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_most_alive_is_that_of_the_formula(case):
    name, ranks, chunks, microbatches = case
    total = microbatches * chunks
    expected = {
        "gpipe": lambda rank: total,
        "1f1b": lambda rank: min(ranks - rank, total),
        "interleaved": lambda rank: min(2 * (ranks - rank - 1) + (chunks - 1) * ranks + 1, total),
    }[name]
    simulation = made(*case).simulation
    assert [simulation.most_alive(r) for r in range(ranks)] == [*map(expected, range(ranks))]


def test_a_forward_gpipe_of_odd_microbatches_ends():
    assert made("gpipe", 3, 2, 5).simulation.total == 5 * 2 * 3 + 2 * 3


def test_transfers_take_time():
    quick = made("1f1b", 2, 1, 4)
    slow = ScheduleSimulation(quick.actions, 2, 4, transfer=1.0)
    assert slow.total == quick.simulation.total + 2 * 1.0 + 2 * 1.0


def test_the_picture_shows_ranks_over_time():
    assert str(made("1f1b", 2, 1, 3)).splitlines() == [
        "1f1b: 2 ranks, 2 stages, 3 microbatches, bubbles 25.0 %",
        "rank 0  F0 F1 .  .  B0=== F2 B1=== .  B2===",
        "rank 1  .  F0 B0=== F1 B1=== F2 B2===",
    ]


def test_receives_come_in_the_order_of_sends():
    schedule = made("interleaved", 2, 3, 4)
    for to, own in enumerate(schedule.actions):
        peer = 1 - to
        sent = [a.result for a in schedule.actions[peer] if a.kind == "send"]
        assert [a.result for a in own if a.kind == "receive"] == sent


def test_forwards_alone_pass_on_every_microbatch():
    first, last = forwards_only(2, 2, 3)
    assert [str(a) for a in first if a.kind == "send"] == [
        f"send forward {i} of stage 0 to rank 1" for i in range(3)
    ]
    assert [a.result for a in last if a.kind == "receive"] == [("forward", 0, i) for i in range(3)]


def both(*orders):
    return Schedule("own", [list(order) for order in orders], len(orders), 1)


F0, F1 = Action("forward", 0, 0), Action("forward", 1, 0)
B0, B1 = Action("backward", 0, 0), Action("backward", 1, 0)


def test_a_deadlock_names_what_ranks_wait_in():
    with pytest.raises(OptionError, match="rank 0 in backward 0 of stage 0; rank 1 in backward"):
        both([B0, F0], [B1, F1])


def test_missing_work_is_named():
    with pytest.raises(OptionError, match="got backward 0 of stage 0 0 times"):
        both([F0], [F1, B1])


def test_work_done_twice_is_named():
    with pytest.raises(OptionError, match="got backward 0 of stage 1 2 times"):
        both([F0, B0], [F1, B1, B1])


def test_receives_in_another_order_are_named():
    sends = [Action("send", 0, i, "forward", 1) for i in (0, 1)]
    asks = [Action("receive", 0, i, "forward", 0) for i in (1, 0)]
    actions = [[F0, Action("forward", 0, 1), *sends], [*asks, F1, Action("forward", 1, 1)]]
    with pytest.raises(OptionError, match="expected forward 1 of stage 0 to come from rank 0"):
        ScheduleSimulation(actions, 2, 2)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"schedule": "1f1c", "ranks": 2, "microbatches": 2}, "1f1b"),
        ({"schedule": "1f1b", "ranks": 2, "microbatches": 2, "stages": 4}, "2 stages with 1f1b"),
        ({"schedule": "gpipe", "ranks": 2, "microbatches": 2, "stages": 3}, "that 2 ranks divide"),
        ({"schedule": "interleaved", "ranks": 2, "microbatches": 3, "stages": 4}, "microbatches"),
        ({"schedule": "gpipe", "ranks": 2, "microbatches": 0}, "microbatches"),
    ],
)
def test_what_does_not_fit_is_refused(options, match):
    with pytest.raises(OptionError, match=match):
        make_schedule(**options)


def test_a_function_is_a_schedule():
    def backwards_at_once(rank, ranks, chunks, microbatches):
        turns = range(microbatches)
        return [Action(kind, rank, i) for i in turns for kind in ("forward", "backward")]

    schedule = make_schedule(backwards_at_once, ranks=2, microbatches=3)
    assert schedule.name == "backwards_at_once"
    assert schedule.simulation.most_alive(0) == 1
