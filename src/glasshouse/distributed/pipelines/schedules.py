"""Schedules of pipelines: the actions of each rank in order, as lists that can be drawn, checked
and simulated before anything runs.

A model is cut into stages; a rank has one, or several (then stage s lies on rank s mod ranks). Each
microbatch goes forward through all stages and backward through all. Sends and receives are started
and not waited for: a forward or backward waits for its inputs."""

from collections.abc import Callable
from typing import Any

from glasshouse.base.errors import OptionError, check_known
from glasshouse.distributed.pipelines.simulation import (
    BACKWARD,
    FORWARD,
    RECEIVE,
    SEND,
    Action,
    ScheduleSimulation,
)
from glasshouse.ops.checks import check_integer


class Schedule:
    """The actions of each rank. `print(schedule)` draws them: a row a rank, a column a unit of
    time, in which a forward takes one unit and a backward two; dots are bubbles. Of several stages
    a rank, the second has the letter b, and so on.

    Raises: OptionError where it does not end, or does not do all of the work once
    Example:
        >>> print(make_schedule("1f1b", ranks=2, microbatches=3))
        1f1b: 2 ranks, 2 stages, 3 microbatches, bubbles 25.0 %
        rank 0  F0 F1 .  .  B0=== F2 B1=== .  B2===
        rank 1  .  F0 B0=== F1 B1=== F2 B2===
    """

    def __init__(
        self, name: str, orders: list[list[Action]], stages: int, microbatches: int
    ) -> None:
        self.name = name
        self.stages = stages
        self.microbatches = microbatches
        self.ranks: int = len(orders)
        self.actions: list[list[Action]] = with_transfers(orders, stages)
        self.simulation: ScheduleSimulation = ScheduleSimulation(self.actions, stages, microbatches)

    def __str__(self) -> str:
        share = f"{100 * self.simulation.bubble_share:.1f} %"
        sizes = f"{self.ranks} ranks, {self.stages} stages, {self.microbatches} microbatches"
        return "\n".join([f"{self.name}: {sizes}, bubbles {share}", *self.simulation.rows()])


def compute(kind: str, chunk: int, rank: int, ranks: int, microbatch: int) -> Action:
    return Action(kind, chunk * ranks + rank, microbatch)


def gpipe(rank: int, ranks: int, chunks: int, microbatches: int) -> list[Action]:
    """All forwards, then all backwards. All microbatches' activations are alive at a time.

    Source: Huang et al. 2019, GPipe.
    """
    turns = range(microbatches)
    forward = [compute(FORWARD, c, rank, ranks, i) for c in range(chunks) for i in turns]
    return forward + [
        compute(BACKWARD, c, rank, ranks, i) for c in reversed(range(chunks)) for i in turns
    ]


def one_forward_one_backward(rank: int, ranks: int, chunks: int, microbatches: int) -> list[Action]:
    """As many forwards as there are later ranks, then a forward and a backward in turn. At most
    `ranks` microbatches are alive.

    Source: Narayanan et al. 2019, PipeDream; 2021, PipeDream-Flush.
    """
    ahead = min(ranks - rank - 1, microbatches)
    return in_turn(
        [compute(FORWARD, 0, rank, ranks, i) for i in range(microbatches)],
        [compute(BACKWARD, 0, rank, ranks, i) for i in range(microbatches)],
        ahead,
    )


def interleaved(rank: int, ranks: int, chunks: int, microbatches: int) -> list[Action]:
    """One forward and one backward in turn with several stages a rank: microbatches go through them
    in groups of `ranks`. Bubbles become shorter by the number of stages a rank.

    Source: Narayanan et al. 2021, Efficient large-scale language model training, 2.2.
    """
    if microbatches % ranks:
        expected = f"microbatches that {ranks} ranks divide"
        raise OptionError("interleaved", expected, microbatches, "Take more, or another schedule.")
    total, lap = microbatches * chunks, ranks * chunks
    places = [(k // lap * ranks + k % ranks, k % lap // ranks) for k in range(total)]
    ahead = min(2 * (ranks - rank - 1) + (chunks - 1) * ranks, total)
    return in_turn(
        [compute(FORWARD, c, rank, ranks, i) for i, c in places],
        [compute(BACKWARD, chunks - 1 - c, rank, ranks, i) for i, c in places],
        ahead,
    )


def in_turn(forwards: list[Any], backwards: list[Any], ahead: int) -> list[Action]:
    """`ahead` forwards, then a forward and a backward in turn."""
    pairs = zip(forwards[ahead:], backwards, strict=False)
    count = len(forwards) - ahead
    return [*forwards[:ahead], *(action for pair in pairs for action in pair), *backwards[count:]]


schedules: dict[str, Callable[[int, int, int, int], list[Action]]] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "interleaved": interleaved,
}


def make_schedule(
    schedule: str | Callable[..., Any] = "1f1b",
    *,
    ranks: int,
    microbatches: int,
    stages: int | None = None,
) -> Schedule:
    """The schedule of that name ("gpipe", "1f1b", "interleaved"), or of a function
    `(rank, ranks, stages a rank, microbatches)` that gives a rank's forwards and backwards.

    Raises: OptionError for another name, numbers that do not divide, or a function whose lists do
        not end or do not do all of the work
    """
    where = "make_schedule"
    check_integer(where, "ranks", ranks, 1)
    check_integer(where, "microbatches", microbatches, 1)
    stages = ranks if stages is None else check_integer(where, "stages", stages, 1)
    if not callable(schedule):
        check_known(where, f"one of {', '.join(schedules)} as schedule", schedule, schedules)
    name = schedule if isinstance(schedule, str) else schedule.__name__
    fits = stages == ranks if name == "1f1b" else stages % ranks == 0
    if not fits:
        expected = f"{ranks} stages" if name == "1f1b" else f"stages that {ranks} ranks divide"
        fix = 'Split in other places, or take schedule="interleaved".'
        raise OptionError(where, f"{expected} with {name}", stages, fix)
    order = schedules[schedule] if isinstance(schedule, str) else schedule
    orders = [order(rank, ranks, stages // ranks, microbatches) for rank in range(ranks)]
    return Schedule(name, orders, stages, microbatches)


def forwards_only(ranks: int, stages: int, microbatches: int) -> list[list[Action]]:
    """The actions of ranks that compute forwards alone."""
    chunks = range(stages // ranks)
    turns = [(i, c) for i in range(microbatches) for c in chunks]
    orders = [[compute(FORWARD, c, rank, ranks, i) for i, c in turns] for rank in range(ranks)]
    return with_transfers(orders, stages)


def with_transfers(orders: list[list[Action]], stages: int) -> list[list[Action]]:
    """Add sends and receives between ranks. A rank receives from another in the order in which that
    one sends, one forward or backward ahead."""
    sent: dict[
        tuple[int, int], list[tuple[Any, ...]]
    ] = {}  # by channel (from, to): results in order
    for rank, order in enumerate(orders):
        for action in order:
            to = peer_of(action.reader(stages), len(orders), rank)
            if to is not None:
                sent.setdefault((rank, to), []).append(action.result)
    return [transfers_of(rank, orders, stages, sent) for rank in range(len(orders))]


def peer_of(stage: int | None, ranks: int, rank: int) -> int | None:
    """Rank of a stage; None if it is this one, or there is no stage."""
    return None if stage is None or stage % ranks == rank else stage % ranks


def transfers_of(
    rank: int, orders: list[list[Action]], stages: int, sent: dict[Any, Any]
) -> list[Action]:
    actions: list[Action] = []
    order, ranks = orders[rank], len(orders)
    coming = {peer: list(sent.get((peer, rank), ())) for peer in range(ranks)}
    for i, action in enumerate(order):
        for needy in order[i : i + 2]:
            operand = needy.operand(stages)
            peer = peer_of(operand and operand[1], ranks, rank)
            while peer is not None and operand in coming[peer]:
                of, stage, microbatch = coming[peer].pop(0)
                actions.append(Action(RECEIVE, stage, microbatch, of, peer))
        actions.append(action)
        to = peer_of(action.reader(stages), ranks, rank)
        if to is not None:
            actions.append(Action(SEND, action.stage, action.microbatch, action.kind, to))
    return actions
