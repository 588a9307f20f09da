"""The profiler: when to record, and how to use the trace."""

import json
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from glasshouse.base.errors import BackendError, OptionError, check_least
from glasshouse.dispatch import backend as backends
from glasshouse.ops.process import process
from glasshouse.profile.functions import PythonFunctions
from glasshouse.profile.memory import MemoryTimeline
from glasshouse.profile.memory_blocks import MOST, BlockLives
from glasshouse.profile.operator_tree import OperatorTree
from glasshouse.profile.record import STEP, EventRecorder, RecordingKind
from glasshouse.profile.recording_cost import call_costs
from glasshouse.profile.report import data_of, folded, speedscope, write_report
from glasshouse.profile.steps.breakdown import Breakdown
from glasshouse.profile.steps.step_times import InputPipeline, StepTimes
from glasshouse.profile.steps.utilisation import Utilisation
from glasshouse.profile.tables import EventAverages, KernelRows, ModuleTree, kernels, key_averages
from glasshouse.profile.text import writable
from glasshouse.profile.trace import Trace, TraceEvent
from glasshouse.profile.traces.chrome_lines import LineExporter
from glasshouse.profile.traces.hta import HtaExporter
from glasshouse.profile.traces.merging import merge
from glasshouse.profile.traces.read_trace import read_trace

MAX_EVENTS = 2_000_000  # 80 MB


class ProfilerAction(Enum):
    """Action of the profiler in a step of its schedule."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def schedule(
    *, wait: int = 0, warmup: int = 0, active: int, repeat: int = 0, skip_first: int = 0
) -> Callable[[int], ProfilerAction]:
    """A schedule: skip steps, then cycles of waiting, warming up and recording `active` steps.
    `repeat` 0 repeats for ever.

    Raises: OptionError for negative numbers, or active below 1.
    Example:
        >>> plan = schedule(wait=1, active=2, repeat=1)
        >>> [plan(i).name for i in range(4)]
        ['NONE', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    counts = {"wait": wait, "warmup": warmup, "repeat": repeat, "skip_first": skip_first}
    for name, count in counts.items():
        check_least("schedule", name, count, 0, "Give a count of steps.")
    check_least("schedule", "active", active, 1, "Record a step at least.")

    def action(step: int) -> ProfilerAction:
        cycle, at = divmod(step - skip_first, wait + warmup + active)
        if step < skip_first or (repeat and cycle >= repeat) or at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        last = at == wait + warmup + active - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


class profile:
    """Records what runs inside: operator calls, modules, passes, kernels, memory; in all threads.
    schedule         which steps to record (`schedule(...)`); call `step()` at the end of each
    on_trace_ready   called with this profile when a recording has ended
    record_shapes    show operand shapes in events, traces and grouped tables
    profile_memory   record every allocation, with its owner
    with_stack       record the Python stack of every call
    with_modules     record module calls
    with_functions   record when your Python functions run, with or without operators; costs more
    inner_operators  record the operators that PyTorch's recorded operators call; costs more
    with_flops       show FLOPs in tables and traces (they are always known)
    max_events       how many events to keep; more are dropped, counted and reported
    rank             the number of this process in a merged trace; by default its rank in the world

    Raises: OptionError for bad options; BackendError if another profile is recording.
    Example:
        >>> import glasshouse as gh
        >>> with profile() as prof:
        ...     y = (gh.ones(3) + 1).numpy()
        >>> prof.key_averages().find("add").calls
        1
    """

    rank: Any
    step_num: int

    running: "profile | None" = None  # there is one at a time

    def __init__(
        self,
        *,
        schedule: Any = None,
        on_trace_ready: Any = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = True,
        with_functions: bool = False,
        inner_operators: bool = False,
        with_flops: bool = True,
        max_events: int = MAX_EVENTS,
        rank: Any = None,
    ) -> None:
        for name, fn in (("schedule", schedule), ("on_trace_ready", on_trace_ready)):
            if fn is not None and not callable(fn):
                fix = "Use gh.profile.schedule(...) or a function of the profile."
                raise OptionError("profile", f"{name} to be a function", repr(fn), fix)
        check_least("profile", "max_events", max_events, 1, "Each event takes 40 bytes.")
        self.schedule = schedule
        self.on_trace_ready = on_trace_ready
        self.record_shapes = record_shapes
        self.with_flops = with_flops
        kind = with_stack, with_modules, profile_memory, with_functions, inner_operators
        self.max_events = max_events
        self.kind: RecordingKind = RecordingKind(*kind)
        self.rank, self.step_num = process.rank if rank is None else rank, 0
        self.recorder: EventRecorder | None = None
        self.recorded: Trace | None = None
        self.step_begin_ns: int = 0

    # -- when to record ------------------------------------------------------------------------

    def start(self) -> "profile":
        """Begin, as `with` does."""
        if profile.running is not None:
            raise BackendError("profile", "no other profile to record", "one", "Stop it first.")
        self.step_num = 0
        self.enter(self.action())
        self.step_begin_ns = perf_counter_ns()
        profile.running = self
        return self

    def stop(self) -> None:
        """End the recording, after computing all that still waits."""
        if profile.running is not self:
            return
        try:
            self.end(self.action() not in (ProfilerAction.NONE, ProfilerAction.WARMUP))
        finally:
            if self.recorder is not None:
                self.recorder.stop()
                self.recorder = None
            profile.running = None

    def step(self) -> None:
        """End a step of the training loop; the schedule chooses the action in the next one. At the
        end of a recording, all that still waits is computed first.

        Raises: BackendError if the profile was not started.
        """
        if profile.running is not self:
            raise BackendError(
                "profile: expected step() between start and stop; got it outside. "
                "Call it in the with block, at the end of each step."
            )
        before = self.action()
        if self.recorder is not None:
            self.recorder.write(STEP, self.step_num, self.step_begin_ns)
            self.recorder.look_at_holders()
        self.step_num += 1
        if before is ProfilerAction.RECORD_AND_SAVE:
            self.end(save=True)
        elif before is ProfilerAction.WARMUP and self.action() is not ProfilerAction.WARMUP:
            self.end(save=False)
        self.enter(self.action())
        self.step_begin_ns = perf_counter_ns()

    def action(self) -> ProfilerAction:
        if self.schedule is None:
            return ProfilerAction.RECORD
        action = self.schedule(self.step_num)
        if not isinstance(action, ProfilerAction):
            raise OptionError(
                "profile: expected the schedule to give a ProfilerAction; got "
                f"{action!r}. Use gh.profile.schedule(...)."
            )
        return action

    def enter(self, action: ProfilerAction) -> None:
        if action is not ProfilerAction.NONE and self.recorder is None:
            self.recorder = EventRecorder(self.max_events, self.kind).start()

    def end(self, save: bool) -> None:
        if self.recorder is None:
            return
        if save:
            backends.current().sync()
        recorder, self.recorder = self.recorder, None
        recorder.stop()
        if save:
            recorder.call_costs = call_costs(recorder)
            self.recorded = Trace(recorder, self.rank)
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)

    def __enter__(self) -> "profile":
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    # -- results -------------------------------------------------------------------------------

    @property
    def trace(self) -> Trace:
        """The last recording.

        Raises: BackendError if nothing was.
        """
        if self.recorded is None:
            fix = "Leave the with block, or let the schedule come to an active step."
            raise BackendError("profile", "a recording that has ended", "none", fix)
        return self.recorded

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0
    ) -> EventAverages:
        """Group events by name, and by operand shapes or the innermost frames of the stack."""
        return key_averages(self.trace, group_by_input_shape, group_by_stack_n, self.with_flops)

    def events(self) -> list[TraceEvent]:
        """Every event of the Python side as an object."""
        return self.trace.event_list()

    def operator_tree(self) -> OperatorTree:
        """Nesting of passes, operators, those that they call, runs of Programs and their steps,
        with their own time and all of it; prints as a table."""
        return OperatorTree(self.trace)

    def kernels(self) -> KernelRows:
        """Every step of every Program that ran, the longest first; prints as a table."""
        return kernels(self.trace)

    def modules(self) -> ModuleTree:
        """Time, FLOPs and bytes by module and pass; prints as a table."""
        return ModuleTree(self.trace)

    def breakdown(self) -> Breakdown:
        """Parts of the median steady step's time, and of the recording's; prints as tables."""
        return Breakdown(self.trace)

    def step_times(self) -> StepTimes:
        """Steps of the loop, with start-up and warm-up marked, and the time of each part; prints as
        a table."""
        return StepTimes(self.trace)

    def input_pipeline(self) -> InputPipeline:
        """Waits for data in the steady steps, and their causes; prints as a table."""
        return InputPipeline(self.trace)

    def utilisation(self, slices: int = 60, steady: bool = False) -> Utilisation:
        """Activity of each thread and each stream of a device in so many slices of the recording,
        or of the time from the first steady step to the last; prints as a table.

        Raises: OptionError for less than one slice.
        """
        return Utilisation(self.trace, slices, steady)

    def functions(self) -> PythonFunctions:
        """Your Python functions with their own and total time, also those that call no operator;
        prints as a table.

        Raises: OptionError without with_functions.
        """
        if not self.trace.with_functions:
            expected, fix = "a profile with with_functions=True", "Record again with it."
            raise OptionError("functions", expected, "one without", fix)
        return PythonFunctions(self.trace)

    def memory(self) -> MemoryTimeline:
        """Memory over time, and the tensors alive at the peak; prints as a table.

        Raises: OptionError without profile_memory.
        """
        if not self.trace.with_memory:
            raise OptionError(
                "memory: expected a profile with profile_memory=True; got one "
                "without. Record again with it."
            )
        return MemoryTimeline(self.trace)

    def memory_blocks(self, most: int = MOST) -> BlockLives:
        """The largest blocks of memory over time: their lifetimes, owners, and the line and stack
        that allocated them; prints as a table.

        Raises: OptionError without profile_memory.
        """
        return BlockLives(self.memory(), most)

    def export_chrome_trace(self, path: str | Path, hta: bool = False) -> Path:
        """Write a trace for Perfetto and Chrome: .json or .json.gz.
        `hta`: for HolisticTraceAnalysis, in whole µs, with kernels as those of a device stream."""
        exporter = HtaExporter if hta else LineExporter
        return exporter(self.trace, self.record_shapes).write(path)

    def export_stacks(
        self, path: str | Path, metric: str = "kernel_ns", by: str | None = None
    ) -> None:
        """Write stacks for flame graphs: pass, then modules or Python functions (`by` "modules" or
        "functions"; functions where stacks were recorded, if left out), then the call; with the
        `metric`, "kernel_ns" or "self_ns". Folded, in µs; for speedscope if `path` is .json."""
        by = by or ("functions" if self.trace.with_stack else "modules")
        stacks, path = folded(self.trace, metric, by), writable("export_stacks", path)
        text = "".join(f"{';'.join(frames)} {ns // 1000}\n" for frames, ns in stacks)
        if path.suffix == ".json":
            text = json.dumps(speedscope(stacks))
        path.write_text(text, encoding="utf-8")

    def export_memory_timeline(self, path: str | Path) -> None:
        """Write memory over time as CSV: time_ns, allocated_bytes, reserved_bytes."""
        memory = self.memory()
        columns = np.stack([memory.time_ns, memory.allocated, memory.reserved], axis=1)
        head = "time_ns,allocated_bytes,reserved_bytes"
        path = writable("export_memory_timeline", path)
        np.savetxt(path, columns, "%d", ",", header=head, comments="")

    def export_json(self, path: str | Path) -> None:
        """Write all tables, for other programs and for `glasshouse profile --against`."""
        text = json.dumps(data_of(self.trace))
        writable("export_json", path).write_text(text, encoding="utf-8")

    def report(self, path: str | Path, against: Any = None, predicted: Any = None) -> Path:
        """Write one HTML page that needs no network; `against` is the JSON of another run,
        `predicted` the result of `gh.analyze.step` for the same step, shown beside it."""
        return write_report(self.trace, path, against, predicted)

    @classmethod
    def read(cls, path: Any) -> "profile":
        """Read a profile that `export_chrome_trace` wrote, with the whole recording; or one of
        torch.profiler, of a CPU or of GPUs. Tables, report and comparison work on it.

        Raises: OptionError for another file.
        """
        prof = cls(record_shapes=True)
        prof.recorded = read_trace(path)
        return prof

    def __str__(self) -> str:
        return self.modules().table() if self.recorded is not None else "profile: nothing recorded"

    schedule: Any = staticmethod(schedule)
    merge: Any = staticmethod(merge)
