"""The execution side as columns: the steps of all runs of Programs, and the time of each call's
kernels. Runs of one Program are processed together, as the rows of arrays."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from glasshouse.compile.lowering.source_map import StepInfo
from glasshouse.dispatch.call import Call
from glasshouse.profile.record import COMPUTED, RecordedRun

ROWS = 1 << 20  # numbers that are processed at once


class Steps(NamedTuple):
    """The execution side, a row for each step that ran: its Program and number, its times, its
    stream and device, and when the host launched it (-1 for steps that the host ran). `run` is the
    place of its run; for a call that was computed at once it is -1, and `event` is its event.
    """

    program: np.ndarray
    step: np.ndarray
    run: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    thread: np.ndarray
    device: np.ndarray
    stream: np.ndarray
    launch: np.ndarray
    launched: np.ndarray
    event: np.ndarray

    @property
    def time_ns(self) -> np.ndarray:
        return self.end - self.begin


class ProgramStandIn:
    """Stands for a Program in a recording where there is none: no plan and no code, only steps."""

    arena_bytes: int = 0

    def __init__(self, infos: list[StepInfo]) -> None:
        self.infos = infos
        self.sources: dict[Any, Any] = {}  # texts of kernels
        self.lines: dict[int, str] = {}

    def step_infos(self) -> list[StepInfo]:
        return self.infos


class CallsAtOnce(NamedTuple):
    """Calls that were computed as they were made, each a run of a Program of one step: the places
    of its event, and of its Program among `programs`."""

    programs: list[Any]
    program: np.ndarray
    event: np.ndarray


NO_CALLS = CallsAtOnce([], np.zeros(0, np.int64), np.zeros(0, np.int64))


class Share(NamedTuple):
    """The part of a step's time, FLOPs and bytes for the call at `place` in the recording."""

    program: int
    step: int
    place: int
    call: Call | None
    module: str
    phase: str
    part: float


class Unseen(NamedTuple):
    """A call that kernels computed and that no event records, because its function is captured: its
    kernels' time, over all runs."""

    share: Share
    kernel_ns: float
    runs: int


def steps_of(runs: list[RecordedRun], numbers: dict[int, int]) -> Steps:
    """The steps of all runs, run by run. `numbers` has the number of each Program, by its id."""
    counts = np.array([len(run.ends_ns) for run in runs], np.int64)
    total = int(counts.sum())
    firsts = np.cumsum(counts) - counts
    ends = np.concatenate([run.ends_ns for run in runs] or [np.zeros(0)]).astype(np.int64)
    begins = np.append(0, ends)[:-1]
    is_some = counts > 0
    started = np.array([run.first_ns or run.begin_ns for run in runs], np.int64)
    begins[firsts[is_some]] = started[is_some]
    host = np.full((4, total), -1, np.int64)  # device, stream, launch, launched
    for first, run in zip(firsts.tolist(), runs, strict=True):
        if run.device is not None:
            span = slice(first, first + len(run.ends_ns))
            begins[span] = run.begins_ns
            for column, value in zip(host, run.device[:4], strict=True):
                column[span] = value

    def of_runs(values) -> np.ndarray:
        return np.repeat(np.array(list(values), np.int64), counts)

    device, stream, launch, launched = host
    return Steps(
        of_runs(numbers[id(run.program)] for run in runs),
        np.arange(total) - np.repeat(firsts, counts),
        of_runs(range(len(runs))),
        begins,
        ends,
        of_runs(run.thread for run in runs),
        device,
        stream,
        launch,
        launched,
        np.full(total, -1, np.int64),
    )


def times_of_steps(steps: Steps) -> dict[tuple[int, int], tuple[int, int]]:
    """(ns, runs) of each (Program, step) among the rows."""
    sums, width = {}, 1 + int(steps.step.max(initial=0))
    keys, inverse = np.unique(
        steps.program.astype(np.int64) * width + steps.step, return_inverse=True
    )
    time = np.bincount(inverse, steps.time_ns, len(keys))
    runs = np.bincount(inverse, minlength=len(keys))
    for k, ns, n in zip(keys.tolist(), time.tolist(), runs.tolist(), strict=True):
        sums[divmod(k, width)] = int(ns), n
    return sums


def with_calls_at_once(
    steps: Steps, runs: list[Any], calls: CallsAtOnce, events: np.ndarray, first: int
) -> Steps:
    """All steps in the order in which their runs began, with calls that were computed at once
    among them; their Programs are numbered from `first` on."""
    count, call_events = len(calls.event), events[calls.event]
    none, zeros = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    times = call_events["begin"], call_events["end"], call_events["thread"].astype(np.int64)
    streams = none, none, none, none  # the host runs them
    single = Steps(first + calls.program, zeros, none, *times, *streams, calls.event)
    began = np.array([run.begin_ns for run in runs], np.int64)[steps.run]
    order = np.argsort(np.concatenate((began, call_events["begin"])), kind="stable")
    return Steps(*(np.concatenate(x)[order] for x in zip(steps, single, strict=True)))


def kernel_ns_of_calls(trace: Any) -> tuple[np.ndarray, list[Unseen]]:
    """Ns of the kernels that computed each event's call, and each call without an event; a fused
    kernel's time is shared out among its calls."""
    events = trace.events
    unseen: dict[tuple[int, int, int], Unseen] = {}  # by Program, place and call
    kernel_ns = np.zeros(len(events))
    placed: dict[int, list[Share]] = {}
    caller: dict[tuple[int, int], Share] = {}  # the owners of a copy
    for share in trace.shares:
        if share.place >= 0:
            placed.setdefault(share.program, []).append(share)
            if share.call is not None and share.part:
                caller.setdefault((share.program, share.place), share)
    for program, runs in runs_by_program(trace.runs, trace.number_of).items():
        if shares := placed.get(program):
            without = np.zeros((2, len(shares)))  # of those without an event: ns, runs
            for ns, places in times_of_shares(runs, shares):
                is_seen = places >= 0
                np.add.at(kernel_ns, places[is_seen], ns[is_seen])
                without += (ns * ~is_seen).sum(0), (~is_seen).sum(0)
            for i in np.flatnonzero(without[1]).tolist():
                share = shares[i]
                if share.call is None:
                    share = caller.get((program, share.place), share)
                key = program, share.place, id(share.call)
                ns, count = float(without[0, i]), int(without[1, i])  # all its steps count the same
                before = unseen.get(key, Unseen(share, 0.0, 0))
                unseen[key] = before._replace(kernel_ns=before.kernel_ns + ns, runs=count)
    now = events["kind"] == COMPUTED
    now[trace.calls_at_once.event] = True
    kernel_ns[now] = (events["end"] - events["begin"])[now]
    return kernel_ns, list(unseen.values())


def runs_by_program(runs: list[Any], numbers: dict[int, int]) -> dict[int, list[Any]]:
    """The runs of each Program, by its number."""
    by_program: dict[int, list[Any]] = {}
    for run in runs:
        by_program.setdefault(numbers[id(run.program)], []).append(run)
    return by_program


def times_of_shares(
    runs: list[Any], shares: list[Share]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(ns, event or -1) of each share, a row for each run of one Program; as many runs at once as
    fill arrays of a fitting size."""
    steps, places = (np.array([s[i] for s in shares], np.int64) for i in (1, 2))
    parts = np.array([share.part for share in shares])
    at_once = max(1, ROWS // len(shares))
    for first in range(0, len(runs), at_once):
        some = runs[first : first + at_once]
        ends = np.stack([run.ends_ns for run in some])
        if any(run.device is not None for run in some):
            begins = np.stack([run.begins_ns for run in some])
        else:
            started = np.array([[run.first_ns or run.begin_ns] for run in some], np.int64)
            begins = np.concatenate((started, ends), axis=1)[:, :-1]
        yield (ends - begins)[:, steps] * parts, np.stack([run.events for run in some])[:, places]
