"""Recording of a profile as columns: events of the Python side and steps of the execution side.

Results are computed on demand, on whole columns."""

import copy
import os
import socket
from functools import cached_property
from itertools import takewhile
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base.errors import PACKAGE
from glasshouse.compile.lowering.source_map import StepInfo
from glasshouse.dispatch.call import Call
from glasshouse.dispatch.fallback import FallbackCounter
from glasshouse.dispatch.scope import Origin
from glasshouse.dispatch.watch import CAPTURING, COMPILING, TRACING, MessageTimes
from glasshouse.ops.process import process
from glasshouse.profile import record as recorded
from glasshouse.profile.captured import capture_data
from glasshouse.profile.holders import Holders
from glasshouse.profile.libraries import GRAPH_CODE, folders
from glasshouse.profile.record import RecordedRun
from glasshouse.profile.recording_cost import Points, costs_of_events
from glasshouse.profile.runs import (
    NO_CALLS,
    CallsAtOnce,
    Share,
    Steps,
    Unseen,
    kernel_ns_of_calls,
    steps_of,
    times_of_steps,
    with_calls_at_once,
)
from glasshouse.profile.spans import covered, nearest_around

LAUNCHER = "<frozen runpy>"  # of `python -m` and `glasshouse profile SCRIPT`
BALANCE = 8  # FLOPs that take as long as a byte, to share a fused kernel's time among its calls


class TraceEvent(NamedTuple):
    """One event of the Python side; times in ns since the profile began."""

    name: str
    kind: str
    begin_ns: int
    end_ns: int
    self_ns: int
    kernel_ns: float
    thread: str
    module: str
    phase: str
    shapes: list[Any]
    flops: int
    bytes: int
    sequence: int
    stack: list[str]


class Trace:
    """A recording that has ended. `rank` tells processes apart when traces are merged."""

    begin_ns: int
    end_ns: int
    began_at_ns: int
    met_at_ns: int
    dropped_memory: int
    dropped_runs: int
    names: list[Any]
    phases: list[Any]
    threads: list[str]
    stacks: list[list[tuple[Any, ...]]]
    program_runs: "list[RecordedRun]"
    tags: list[Any]
    live: dict[Any, Any]
    holders: Holders
    with_stack: bool
    with_memory: bool
    functions: np.ndarray
    function_names: list[list[Any]]
    inner_operators: np.ndarray
    inner_names: list[Any]
    captures: list[dict[Any, Any]]
    fallbacks: "FallbackCounter"
    backend: str
    memory_limit: Any
    call_costs: dict[str, Points]
    script: str
    threads_of_kernels: int

    def __init__(self, recorder: recorded.RecordingColumns, rank: int = 0) -> None:
        self.events: np.ndarray = recorder.events()
        self.begin_ns, self.end_ns = recorder.begin_ns, recorder.end_ns
        self.began_at_ns, self.met_at_ns = recorder.began_at_ns, process.met_at_ns
        self.dropped: int = max(0, recorder.count - recorder.room)
        self.dropped_memory, self.dropped_runs = recorder.dropped_memory, recorder.dropped_runs
        self.names, self.phases = list(recorder.names), list(recorded.phases)
        self.threads, self.stacks = recorder.threads.names, recorder.stacks.stacks
        self.scopes: list[Any] = list(recorded.scopes)
        self.runs: list[RecordedRun] = recorded.runs_of(recorder)
        self.messages: list[MessageTimes] = recorder.messages
        self.unwatched_threads: list[Any] = list(recorder.unwatched_threads)
        self.program_runs = list(self.runs)  # without those of calls that were computed at once
        self.kernels_of_calls: Trace | None = None  # see at_once.py
        self.calls_at_once: CallsAtOnce = NO_CALLS
        self.memory: np.ndarray = recorder.memory()
        self.tags, self.live = list(recorder.tags), recorder.live
        self.holders = recorder.holders
        self.with_stack, self.with_memory = recorder.with_stack, recorder.wants_allocations
        self.before_bytes: tuple[int, ...] = tuple(
            n + recorder.existing_bytes for n in recorder.bytes_before
        )
        self.functions, self.function_names = recorder.functions.events, recorder.functions.names
        self.with_functions: bool = recorder.with_functions
        self.inner_operators, self.inner_names = recorder.inner_operators, recorder.inner_names
        self.captures, self.fallbacks = capture_data(), recorder.fallbacks
        self.backend, self.memory_limit = recorder.backend.name, recorder.memory_limit
        self.call_costs = recorder.call_costs  # of recording itself, by library
        self.script, self.threads_of_kernels = recorder.script, recorder.threads_of_kernels
        self.rank = rank
        self.pid: int = os.getpid()
        self.host: str = socket.gethostname()

    @classmethod
    def worked_out(cls) -> set[str]:
        """Names of the results that are cached."""
        return {name for name, x in vars(cls).items() if isinstance(x, cached_property)}

    def plain_copy(self) -> "Trace":
        """A copy without cached results."""
        other = copy.copy(self)
        for name in [name for name in vars(other) if name in self.worked_out()]:
            delattr(other, name)
        other.kernels_of_calls = None
        return other

    # -- the Python side -----------------------------------------------------------------------

    @cached_property
    def parents(self) -> np.ndarray:
        """The event that each event lies in on its thread, or -1."""
        events = self.events
        return nearest_around(events["begin"], events["end"], events["thread"])

    @cached_property
    def self_ns(self) -> np.ndarray:
        """Time of each event that neither events nor kernels within it took."""
        events, steps = self.events, self.steps
        on_host = steps.device < 0
        begin, end, thread = (
            np.concatenate([events[name].astype(np.int64), getattr(steps, name)[on_host]])
            for name in ("begin", "end", "thread")
        )
        around, time = nearest_around(begin, end, thread), end - begin
        inside = around >= 0
        inner = np.bincount(around[inside], time[inside], len(time)).astype(np.int64)
        return (time - inner)[: len(events)]

    @cached_property
    def cost_ns(self) -> np.ndarray:
        """Cost of recording each event: that of a call; 0 for others."""
        return costs_of_events(self.events, self.call_costs)

    @cached_property
    def is_op(self) -> np.ndarray:
        return self.events["kind"] <= recorded.COMPUTED

    def name_of(self, event: Any) -> str:
        kind, what = int(event["kind"]), int(event["what"])
        if kind <= recorded.COMPUTED:
            return self.call_name(what)
        if kind == recorded.MODULE:
            return self.scopes[event["scope"]].rpartition(".")[2]
        if kind == recorded.STEP:
            return f"ProfilerStep#{what}"
        name = self.names[what]  # PyTorch's nodes are called AddmmBackward0
        return name + "_backward" * (kind == recorded.PULL and "Backward" not in name)

    def call_name(self, what: int) -> str:
        return recorded.calls[what].primitive.name

    def name_of_share(self, share: Share) -> str:
        if share.call is not None:
            return share.call.primitive.name
        return self.info(share.program, share.step).name

    def users(self, stack: int) -> list[tuple[Any, ...]]:
        """(code, instruction) of the user's functions, the innermost first, but the launcher."""
        inner = takewhile(lambda at: at[0].co_filename != LAUNCHER, self.stacks[stack])
        others = (PACKAGE, GRAPH_CODE, *folders)
        return [at for at in inner if not at[0].co_filename.startswith(others)]

    def frames(self, stack: int) -> list[str]:
        """The user's frames of a stack, the innermost first: "file.py(12): function"."""
        return [
            f"{code.co_filename}({line_of(code, lasti)}): {code.co_name}"
            for code, lasti in self.users(stack)
        ]

    def codes(self, stack: int) -> list[tuple[Any, ...]]:
        """The user's functions of a stack, the outermost first: (code, "file.py(1): function")."""
        return [
            (code, f"{code.co_filename}({code.co_firstlineno}): {code.co_name}")
            for code, _ in reversed(self.users(stack))
        ]

    def event_list(self) -> list[TraceEvent]:
        kernel, events = self.kernel_ns_of_events, []
        for i, e in enumerate(self.events):
            call = recorded.calls[e["what"]] if e["kind"] <= recorded.COMPUTED else None
            cost = call.cost if call else None
            events.append(
                TraceEvent(
                    self.name_of(e),
                    recorded.KINDS[e["kind"]],
                    int(e["begin"]) - self.begin_ns,
                    int(e["end"]) - self.begin_ns,
                    int(self.self_ns[i]),
                    float(kernel[i]),
                    self.threads[e["thread"]],
                    self.scopes[e["scope"]],
                    self.phases[e["phase"]],
                    [spec.shape for spec in call.specs] if call else [],
                    cost.flops if cost else 0,
                    cost.bytes if cost else 0,
                    int(e["seq"]),
                    self.frames(e["stack"]),
                )
            )
        return events

    @cached_property
    def marks(self) -> np.ndarray:
        """The events of steps that `step()` ended."""
        return self.events[self.events["kind"] == recorded.STEP]

    def loop_steps(self) -> list[tuple[int, int, int]]:
        """(number, begin, end) of each step of the user's loop: as marked by `step()`, else from
        the end of one optimizer pass, with all that is computed then, to the end of the next. The
        first of those begins with the recording, imports included."""
        if len(self.marks):
            return [(int(e["what"]), int(e["begin"]), int(e["end"])) for e in self.marks]
        ends = self.regions("optimizer")["end"].tolist()
        runs = np.array([(r.begin_ns, r.end_ns) for r in self.program_runs], np.int64)
        runs = runs.reshape(-1, 2)
        runs = runs[np.argsort(runs[:, 0], kind="stable")]
        at = np.searchsorted(runs[:, 0], [*ends, self.end_ns]).tolist()  # the first run from then
        ends = [
            int(runs[run, 1]) if run < following else end
            for end, run, following in zip(ends, at, at[1:], strict=False)
        ]
        begins = [self.begin_ns, *ends][: len(ends)]
        return [(i, *pair) for i, pair in enumerate(zip(begins, ends, strict=True))]

    @cached_property
    def compiling(self) -> np.ndarray:
        """Regions in which Programs are compiled and functions captured; one may lie in another."""
        return np.concatenate([self.regions(name) for name in (COMPILING, CAPTURING, TRACING)])

    def regions(self, name: str) -> np.ndarray:
        number = self.names.index(name) if name in self.names else -1
        is_region = self.events["kind"] == recorded.REGION
        return self.events[is_region & (self.events["what"] == number)]

    @property
    def compile_ns(self) -> int:
        return int(self.compile_ns_within(self.begin_ns, self.end_ns))

    def compile_ns_within(self, begin: int | np.ndarray, end: int | np.ndarray) -> Any:
        """The time spent on compiling between two moments, or the moments of two columns."""
        return covered([(self.compiling["begin"], self.compiling["end"])], begin, end)

    def step_ns(self) -> list[int]:
        """Ns of each step without compiling."""
        steps = np.array(self.loop_steps(), np.int64).reshape(-1, 3)
        begins, ends = steps[:, 1], steps[:, 2]
        return (ends - begins - self.compile_ns_within(begins, ends)).tolist()

    # -- the execution side --------------------------------------------------------------------

    @cached_property
    def programs_of_runs(self) -> list[Any]:
        return list({id(run.program): run.program for run in self.runs}.values())

    @property
    def programs(self) -> list[Any]:
        return self.programs_of_runs + self.calls_at_once.programs

    @cached_property
    def number_of(self) -> dict[int, int]:
        return {id(program): i for i, program in enumerate(self.programs)}

    @cached_property
    def steps(self) -> Steps:
        """Every step that ran, in order; on backends that compute at once each call is a step."""
        steps = steps_of(self.runs, self.number_of)
        if not len(self.calls_at_once.event):
            return steps
        first = len(self.programs_of_runs)
        return with_calls_at_once(steps, self.runs, self.calls_at_once, self.events, first)

    @cached_property
    def infos(self) -> list[list[StepInfo]]:
        """The steps of each Program."""
        return [program.step_infos() for program in self.programs]

    def info(self, program: int, step: int) -> StepInfo:
        return self.infos[program][step]

    def events_of_step(self, row: int) -> np.ndarray:
        """The events of the run that a row of `steps` is of, by place in the recording."""
        run = int(self.steps.run[row])
        return self.runs[run].events if run >= 0 else self.steps.event[row : row + 1]

    @cached_property
    def shares(self) -> list[Share]:
        """Calls that the steps of each Program work for; the parts of a step add up to 1."""
        shares = []
        for number, infos in enumerate(self.infos):
            events = self.last_events[number]
            for step, info in enumerate(infos):
                shares += shares_of(self, number, step, info, events)
        return shares

    @cached_property
    def time_of_steps(self) -> dict[tuple[int, int], tuple[int, int]]:
        """(ns, runs) of each (Program, step), over all runs."""
        return times_of_steps(self.steps)

    @cached_property
    def kernel_ns_of_calls(self) -> tuple[np.ndarray, list[Unseen]]:
        """Time of the kernels that computed each event's call, and each call that has no event."""
        return kernel_ns_of_calls(self)

    @property
    def kernel_ns_of_events(self) -> np.ndarray:
        return self.kernel_ns_of_calls[0]

    @property
    def unseen(self) -> list[Unseen]:
        return self.kernel_ns_of_calls[1]

    def line(self, program: int, place: int) -> str:
        """The user's line of a call, "file.py:12": as capture recorded it, else from its stack. A
        gradient has the line of its forward call."""
        origin = getattr(self.programs[program], "lines", {}).get(place, "")
        events = self.last_events[program]
        if not origin and 0 <= place < len(events) and events[place] >= 0:
            return self.line_of_event(events[place])
        return origin

    def line_of_event(self, event: int) -> str:
        """The user's line of a call that was recorded with its stack; a gradient has the line of
        its forward call."""
        if not self.with_stack:
            return ""
        forward = int(self.differentiated(np.array([event]))[0])
        frames = self.frames(int(self.events["stack"][forward]))
        return frames[0].partition("):")[0].replace("(", ":") if frames else ""

    def differentiated(self, places: np.ndarray) -> np.ndarray:
        """The forward call of each gradient's event; the event itself if it has none."""
        rows, (numbers, first) = self.events[places], self.first_of_node
        if not len(numbers):
            return places
        at = np.minimum(np.searchsorted(numbers, rows["seq"]), len(numbers) - 1)
        is_gradient = rows["phase"] == recorded.phases["backward"]
        return np.where(is_gradient & (numbers[at] == rows["seq"]), first[at], places)

    @cached_property
    def first_of_node(self) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of nodes on the tape, in order, and the first call recorded of each."""
        places = np.flatnonzero(self.is_op & (self.events["seq"] >= 0))
        numbers, first = np.unique(self.events["seq"][places], return_index=True)
        return numbers, places[first]

    @cached_property
    def last_events(self) -> list[np.ndarray]:
        last = {id(run.program): run.events for run in self.runs}
        of_programs = [last[id(program)] for program in self.programs_of_runs]
        calls = self.calls_at_once
        latest = np.zeros(len(calls.programs), np.int64)
        np.maximum.at(latest, calls.program, calls.event)
        return of_programs + list(latest[:, None])

    @cached_property
    def ranks(self) -> list[int]:
        groups = [info.group for infos in self.infos for info in infos]
        return sorted({self.rank, *(rank for group in groups for rank in group)})

    @property
    def kernel_ns(self) -> int:
        now = self.events["kind"] == recorded.COMPUTED
        computed = (self.events["end"] - self.events["begin"])[now].sum()
        return int(self.steps.time_ns.sum() + computed)

    @property
    def wall_ns(self) -> int:
        return self.end_ns - self.begin_ns


def shares_of(
    trace: Trace, program: int, step: int, info: StepInfo, events: np.ndarray
) -> list[Share]:
    if not info.sources:
        origin = info.origin
        return [Share(program, step, origin.place, None, *where(trace, origin, events), 1.0)]
    weights = [weight(source.call) for source in info.sources]
    whole = sum(weights)
    return [
        Share(
            program,
            step,
            source.origin.place,
            source.call,
            *where(trace, source.origin, events),
            w / whole if whole else 1 / len(weights),
        )
        for source, w in zip(info.sources, weights, strict=True)
    ]


def weight(call: Call) -> float:
    """About how long a call takes, against the others in its kernel."""
    if call.primitive.kind in ("create", "movement"):
        return 0.0
    return call.cost.bytes + call.cost.flops / BALANCE


def where(trace: Trace, origin: Origin, events: np.ndarray) -> tuple[str, str]:
    """Module and pass of a recorded call: from its event, else from compilation."""
    if 0 <= origin.place < len(events) and events[origin.place] >= 0:
        event = trace.events[events[origin.place]]
        return trace.scopes[event["scope"]], trace.phases[event["phase"]]
    return origin.module, origin.phase


def line_of(code: CodeType, lasti: int) -> int:
    for start, end, line in code.co_lines():
        if start <= lasti < end:
            return line or code.co_firstlineno
    return code.co_firstlineno
