"""What a profile recorded, as columns: events of the Python side and steps of the execution side.

Nothing here is worked out before it is asked for; all is done on whole columns."""

import os
import socket
from functools import cached_property
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base.errors import PACKAGE
from glasshouse.dispatch.call import Call
from glasshouse.dispatch.watch import CAPTURING, COMPILING
from glasshouse.ops.collective import process
from glasshouse.profile import record as recorded
from glasshouse.profile.captured import capture_data
from glasshouse.profile.libraries import folders

HOST = (-1, -1, -1, -1)  # device, stream, launch of what no device ran
GRAPH_CODE = "<eval_with_key>"  # how names of files begin that torch.fx writes graphs as
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
    shapes: list
    flops: int
    bytes: int
    sequence: int
    stack: list[str]


class Steps(NamedTuple):
    """The execution side, a row for each step that ran: which step of which Program, and when; on
    which stream of which device, and when the host handed it over (-1 for what the host ran)."""

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

    @property
    def time_ns(self) -> np.ndarray:
        return self.end - self.begin


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
    """A call that kernels computed and that was not told while this was recorded, for its
    function is captured: its kernels' time, over all runs."""

    share: Share
    kernel_ns: float
    runs: int


def nearest_around(begin: np.ndarray, end: np.ndarray, thread: np.ndarray) -> np.ndarray:
    """The place of the shortest span of the same thread that each one lies in, or -1; of equal ones
    the first is around the others."""
    order = np.lexsort((-end, begin, thread))
    ends, threads = end[order].tolist(), thread[order].tolist()
    around = np.full(len(order), -1, np.int64)
    open_spans: list[tuple[int, int]] = []
    for i, place in enumerate(order.tolist()):
        if i and threads[i] != threads[i - 1]:
            open_spans.clear()
        while open_spans and open_spans[-1][0] < ends[i]:
            open_spans.pop()
        if open_spans:
            around[place] = open_spans[-1][1]
        open_spans.append((ends[i], place))
    return around


class Trace:
    """A recording that has ended. `rank` tells processes apart when traces are merged."""

    def __init__(self, recorder: recorded.EventRecorder, rank: int = 0):
        self.events = recorder.events()
        self.begin_ns, self.end_ns = recorder.begin_ns, recorder.end_ns
        self.began_at_ns, self.met_at_ns = recorder.began_at_ns, process.met_at_ns
        self.dropped = max(0, recorder.count - recorder.room)
        self.dropped_memory, self.dropped_runs = recorder.dropped_memory, recorder.dropped_runs
        self.names, self.phases = list(recorder.names), list(recorded.phases)
        self.threads, self.stacks = recorder.threads.names, recorder.stacks.stacks
        self.scopes = list(recorded.scopes)
        self.runs = list(recorder.runs)
        self.messages = recorder.messages
        self.program_runs = recorder.runs  # without those of calls that were computed at once
        self.kernels_of_calls: Trace | None = None  # see at_once.py
        self.memory = recorder.memory()
        self.tags, self.live = list(recorder.tags), recorder.live
        self.with_stack, self.with_memory = recorder.with_stack, recorder.wants_allocations
        self.before_bytes = tuple(n + recorder.existing_bytes for n in recorder.bytes_before)
        self.captures, self.fallbacks = capture_data(recorder.captured_before), recorder.fallbacks
        self.backend, self.memory_limit = recorder.backend.name, recorder.memory_limit
        self.script, self.threads_of_kernels = recorder.script, recorder.threads_of_kernels
        self.rank, self.pid, self.host = rank, os.getpid(), socket.gethostname()

    @classmethod
    def worked_out(cls) -> set[str]:
        """Names of what is kept once it was asked for."""
        return {name for name, x in vars(cls).items() if isinstance(x, cached_property)}

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
    def is_op(self) -> np.ndarray:
        return self.events["kind"] <= recorded.COMPUTED

    def name_of(self, event) -> str:
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

    def users(self, stack: int) -> list[tuple]:
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

    def codes(self, stack: int) -> list[tuple]:
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

    def loop_steps(self) -> list[tuple[int, int, int]]:
        """(number, begin, end) of each step of the user's loop: as marked by `step()`, else from
        the end of one optimizer pass, with what is computed then, to that of the next."""
        events = self.events
        marks = events[events["kind"] == recorded.STEP]
        if len(marks):
            return [(int(e["what"]), int(e["begin"]), int(e["end"])) for e in marks]
        ends = self.regions("optimizer")["end"].tolist()
        until = [*ends[1:], self.end_ns]
        ends = [
            next((run.end_ns for run in self.program_runs if end <= run.begin_ns < following), end)
            for end, following in zip(ends, until, strict=False)
        ]
        begins = [self.begin_ns, *ends][: len(ends)]
        return [(i, *pair) for i, pair in enumerate(zip(begins, ends, strict=True))]

    @cached_property
    def compiling(self) -> np.ndarray:
        return np.concatenate([self.regions(name) for name in (COMPILING, CAPTURING)])

    def regions(self, name: str) -> np.ndarray:
        number = self.names.index(name) if name in self.names else -1
        is_region = self.events["kind"] == recorded.REGION
        return self.events[is_region & (self.events["what"] == number)]

    @property
    def compile_ns(self) -> int:
        return int((self.compiling["end"] - self.compiling["begin"]).sum())

    def step_ns(self) -> list[int]:
        events = self.compiling
        time = events["end"] - events["begin"]
        return [
            end - begin - int(time[(events["begin"] >= begin) & (events["end"] <= end)].sum())
            for _, begin, end in self.loop_steps()
        ]

    # -- the execution side --------------------------------------------------------------------

    @cached_property
    def programs(self) -> list[Any]:
        return list({id(run.program): run.program for run in self.runs}.values())

    @cached_property
    def number_of(self) -> dict[int, int]:
        return {id(program): i for i, program in enumerate(self.programs)}

    @cached_property
    def steps(self) -> Steps:
        """Every step that ran, in order; on backends that compute at once each call is a step."""
        columns: list[list[np.ndarray]] = [[] for _ in Steps._fields]
        for i, run in enumerate(self.runs):
            count, number = len(run.ends_ns), self.number_of[id(run.program)]
            device = run.device[:4] if run.device is not None else HOST
            row = (number, np.arange(count), i, run.begins_ns, run.ends_ns, run.thread, *device)
            for column, value in zip(columns, row, strict=True):
                column.append(np.broadcast_to(value, count))
        return Steps(*(np.concatenate(c) if c else np.zeros(0, np.int64) for c in columns))

    def info(self, program: int, step: int):
        return self.programs[program].step_infos()[step]

    @cached_property
    def shares(self) -> list[Share]:
        """Whom the steps of each Program work for; the parts of a step add up to 1."""
        shares = []
        for number, program in enumerate(self.programs):
            events = self.last_events[number]
            for step, info in enumerate(program.step_infos()):
                shares += shares_of(self, number, step, info, events)
        return shares

    @cached_property
    def time_of_steps(self) -> dict[tuple[int, int], tuple[int, int]]:
        steps, sums = self.steps, {}
        width = 1 + max((int(s) for s in steps.step), default=0)
        key = steps.program.astype(np.int64) * width + steps.step
        keys, inverse = np.unique(key, return_inverse=True)
        time = np.bincount(inverse, steps.time_ns, len(keys))
        runs = np.bincount(inverse, minlength=len(keys))
        for k, ns, n in zip(keys.tolist(), time.tolist(), runs.tolist(), strict=True):
            sums[divmod(k, width)] = int(ns), n
        return sums

    @cached_property
    def kernel_ns_of_calls(self) -> tuple[np.ndarray, list[Unseen]]:
        """Time of kernels that computed each event's call, and that of calls which are no event;
        that of a fused kernel is shared out."""
        kernel_ns = np.zeros(len(self.events))
        placed: dict[int, list[Share]] = {}
        caller: dict[tuple[int, int], Share] = {}  # whom a copy is for
        for share in self.shares:
            if share.place >= 0:
                placed.setdefault(share.program, []).append(share)
                if share.call is not None and share.part:
                    caller.setdefault((share.program, share.place), share)
        unseen: dict[tuple[int, int, int], list] = {}
        for run in self.runs:
            program = self.number_of[id(run.program)]
            shares = placed.get(program, [])
            time = (run.ends_ns - run.begins_ns)[[share.step for share in shares]]
            time = time * [share.part for share in shares]
            event = run.events[[share.place for share in shares]]
            np.add.at(kernel_ns, event[event >= 0], time[event >= 0])
            for i in np.flatnonzero(event < 0):
                share = shares[i]
                if share.call is None:
                    share = caller.get((program, share.place), share)
                key = program, share.place, id(share.call)
                total = unseen.setdefault(key, [share, 0.0, set()])
                total[1] += time[i]
                total[2].add(id(run))
        now = self.events["kind"] == recorded.COMPUTED
        kernel_ns[now] = (self.events["end"] - self.events["begin"])[now]
        return kernel_ns, [Unseen(share, ns, len(runs)) for share, ns, runs in unseen.values()]

    @property
    def kernel_ns_of_events(self) -> np.ndarray:
        return self.kernel_ns_of_calls[0]

    @property
    def unseen(self) -> list[Unseen]:
        return self.kernel_ns_of_calls[1]

    def line(self, program: int, place: int) -> str:
        """The user's line of a call, "file.py:12": as capture noted it, else from its stack. For a
        gradient that of its forward call."""
        origin = getattr(self.programs[program], "lines", {}).get(place, "")
        events = self.last_events[program]
        if not origin and 0 <= place < len(events) and events[place] >= 0:
            return self.line_of_event(events[place])
        return origin

    def line_of_event(self, event: int) -> str:
        """The user's line of a call that was noted with its stack; for a gradient that of its
        forward call."""
        if not self.with_stack:
            return ""
        frames = self.frames(int(self.events[self.differentiated(event)]["stack"]))
        return frames[0].partition("):")[0].replace("(", ":") if frames else ""

    def differentiated(self, event: int) -> int:
        """The forward call of a gradient's event; the event itself if it is none's."""
        e = self.events[event]
        if self.phases[e["phase"]] != "backward" or e["seq"] < 0:
            return event
        return self.first_of_node.get(int(e["seq"]), event)

    @cached_property
    def first_of_node(self) -> dict[int, int]:
        """The first call that is recorded of each node on the tape, by the node's number."""
        places = np.flatnonzero(self.is_op & (self.events["seq"] >= 0))
        numbers, first = np.unique(self.events["seq"][places], return_index=True)
        return dict(zip(numbers.tolist(), places[first].tolist(), strict=True))

    @cached_property
    def last_events(self) -> list[np.ndarray]:
        last = {id(run.program): run.events for run in self.runs}
        return [last[id(program)] for program in self.programs]

    @cached_property
    def ranks(self) -> list[int]:
        infos = [info for program in self.programs for info in program.step_infos()]
        return sorted({self.rank, *(rank for info in infos for rank in info.group)})

    @property
    def kernel_ns(self) -> int:
        now = self.events["kind"] == recorded.COMPUTED
        computed = (self.events["end"] - self.events["begin"])[now].sum()
        return int(self.steps.time_ns.sum() + computed)

    @property
    def wall_ns(self) -> int:
        return self.end_ns - self.begin_ns


def shares_of(trace: Trace, program: int, step: int, info, events) -> list[Share]:
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


def where(trace: Trace, origin, events) -> tuple[str, str]:
    """Module and pass of a recorded call: as it was told now, else as it was compiled."""
    if 0 <= origin.place < len(events) and events[origin.place] >= 0:
        event = trace.events[events[origin.place]]
        return trace.scopes[event["scope"]], trace.phases[event["phase"]]
    return origin.module, origin.phase


def line_of(code, lasti: int) -> int:
    for start, end, line in code.co_lines():
        if start <= lasti < end:
            return line or code.co_firstlineno
    return code.co_firstlineno
