"""Cost of recording a call, measured on a small program of each library in the recording.

It is measured once a process for each kind of recording, right after the first recording of that
kind, so no recording contains the measurement. It runs in a separate thread, where the user has set
no modes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import thread_time_ns
from typing import Any

import numpy as np

from glasshouse.dispatch.value import as_value
from glasshouse.dispatch.watch import told
from glasshouse.ops.elementwise import add
from glasshouse.profile import record as recorded
from glasshouse.profile.libraries import library_of, programs

ROUNDS, CALLS = 7, 64
costs: dict[tuple[Any, ...], float] = {}  # ns a call, by library and kind of recording


def our_program() -> None:
    """Calls that are recorded and never computed."""
    x = as_value(np.ones(4, np.float32))
    for _ in range(CALLS):
        x = add(x, x)


programs[""] = our_program


def call_costs(recorder: recorded.EventRecorder) -> dict[str, float]:
    """Ns of each call in a recording that has ended, by library."""
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


def measure(program: Callable[[], None], kind: recorded.RecordingKind) -> float:
    """Ns that recording adds to a call of a program."""
    recorder = recorded.EventRecorder(1 << 14, kind)
    with told([], []):
        program()
        without = least_ns(program)
    recorder.start()
    try:
        with told([recorder], [recorder]):
            program()  # the cost of each kind of call is worked out here
            recorded_ns = least_ns(program)
    finally:
        recorder.stop()
    calls = int((recorder.events()["kind"] <= recorded.COMPUTED).sum()) / (ROUNDS + 1)
    return max(0.0, recorded_ns - without) / max(1.0, calls)


def least_ns(program: Callable[[], None]) -> int:
    """Least ns of processor time of a program."""
    times = []
    for _ in range(ROUNDS):
        begin_ns = thread_time_ns()
        program()
        times.append(thread_time_ns() - begin_ns)
    return min(times)
