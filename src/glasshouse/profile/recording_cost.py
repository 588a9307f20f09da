"""Cost of recording a call, measured on a small program of each library in the recording.

Recording touches code and objects of its own. They are in the core's caches while calls are small;
a kernel that moves more than the caches hold drives them out, and recording the next call takes
several times as long. So the cost is measured with sweeps of several sizes between the calls, and
each call costs what was measured for the bytes that the call before it moved.

It is measured once a process for each kind of recording, right after the first recording of that
kind, so no recording contains the measurement. It runs in a separate thread, where the user has set
no modes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from time import thread_time_ns
from typing import Any

import numpy as np

from glasshouse.dispatch.value import as_value
from glasshouse.dispatch.watch import told
from glasshouse.ops.elementwise import add
from glasshouse.profile import record as recorded
from glasshouse.profile.libraries import library_of, programs

ROUNDS, CALLS = 5, 8
# Bytes between calls: none, up to more than the caches of a core hold.
SWEEPS = (0, 1 << 19, 1 << 21, 1 << 23)
Points = list[list[float]]  # [bytes moved before a call, ns of recording it], in their order
costs: dict[tuple[Any, ...], Points] = {}  # by library and kind of recording


class Sweep:
    """Moves so many bytes through the caches at each call, and counts calls and ns of that."""

    def __init__(self, nbytes: int) -> None:
        self.data: np.ndarray = np.zeros(nbytes // 8, np.int64)
        self.ns = self.count = 0

    def __call__(self) -> None:
        begin_ns = thread_time_ns()
        self.count += 1
        self.data += 1
        self.ns += thread_time_ns() - begin_ns


def our_program(between: Callable[[], None]) -> None:
    """Calls that are recorded and never computed."""
    x = as_value(np.ones(4, np.float32))
    for _ in range(CALLS):
        between()
        x = add(x, x)


programs[""] = our_program


def call_costs(recorder: recorded.EventRecorder) -> dict[str, Points]:
    """Ns of each call in a recording that has ended, by library, at the bytes moved before."""
    kind = recorder.kind
    events = recorder.events()
    whats = np.unique(events["what"][events["kind"] <= recorded.COMPUTED]).tolist()
    libraries = {library_of(recorded.calls[what]) for what in whats}
    for library in libraries:
        if (library, *kind) not in costs:
            with ThreadPoolExecutor(1) as pool:
                measured = pool.submit(measure, programs[library], kind).result()
            costs[library, *kind] = measured
    return {library: costs[library, *kind] for library in libraries}


def measure(program: Callable[..., None], kind: recorded.RecordingKind) -> Points:
    """Ns that recording adds to a call of a program, at the bytes that were moved before it."""
    recorder = recorded.EventRecorder(1 << 14, kind)
    with told([], []):
        program(counter := Sweep(0))
        without = usual_times(program)
    recorder.start()
    try:
        with told([recorder], [recorder]):
            recorded_ns = usual_times(program)  # the first run works out each call's cost
    finally:
        recorder.stop()
    runs = len(SWEEPS) * ROUNDS + 1
    calls = (recorder.events()["kind"] <= recorded.COMPUTED).sum() / runs
    return points_from(np.subtract(recorded_ns, without), calls, counter.count)


def points_from(added_ns: np.ndarray, calls: float, sweeps: int) -> Points:
    """Ns of recording a call after each sweep, from those that recording adds to a program: calls
    without a sweep before them cost as much as they do without any."""
    added_ns = np.maximum.accumulate(np.maximum(0, added_ns))
    costs_ns = added_ns[0] / max(1, calls) + (added_ns - added_ns[0]) / max(1, sweeps)
    return [[float(size), float(ns)] for size, ns in zip(SWEEPS, costs_ns, strict=True)]


def usual_times(program: Callable[..., None]) -> list[float]:
    """Usual ns of processor time of a program's calls with each sweep between them."""
    program(Sweep(0))
    return [median(ns_of_calls(program, size) for _ in range(ROUNDS)) for size in SWEEPS]


def ns_of_calls(program: Callable[..., None], size: int) -> int:
    """Ns of a program's calls, without the sweeps between them."""
    sweep, begin_ns = Sweep(size), thread_time_ns()
    program(sweep)
    return thread_time_ns() - begin_ns - sweep.ns


def costs_of_events(events: np.ndarray, call_costs: dict[str, Points]) -> np.ndarray:
    """Ns of recording each event: of a call, at the bytes that the call before it in its thread
    moved; 0 for others. A call that is only recorded moves none."""
    cost, places = np.zeros(len(events)), np.flatnonzero(events["kind"] <= recorded.COMPUTED)
    if not call_costs or not len(places):
        return cost
    events = events[places]
    whats, inverse = np.unique(events["what"], return_inverse=True)
    calls = [recorded.calls[what] for what in whats.tolist()]
    moved = np.array([call.cost.bytes for call in calls], float)[inverse]
    moved[events["kind"] != recorded.COMPUTED] = 0
    order = np.argsort(events["thread"], kind="stable")
    is_first = np.diff(events["thread"][order], prepend=-1) != 0
    before = np.zeros(len(places))
    before[order] = np.where(is_first, 0, np.roll(moved[order], 1))
    libraries = np.array([library_of(call) for call in calls])[inverse]
    for library, points in call_costs.items():
        here = libraries == library
        cost[places[here]] = np.interp(before[here], *np.transpose(points))
    return cost
