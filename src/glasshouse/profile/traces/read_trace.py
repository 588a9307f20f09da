"""Reader of traces that torch.profiler wrote, of a CPU or of GPUs, as a profile recorded here.

It has the same tables, report and comparison. Operators that PyTorch only composes from others
(aten::linear) are calls without a kernel; operators within one that computes are left out, as the
FLOP counter does. Kernels of a device belong to the operator that launched them. FLOPs are known
where the trace has shapes and PyTorch is installed.

Source: the trace event format; names and args as Kineto writes them"""

import importlib.util
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base import OptionError, Spec, as_dtype, float32
from glasshouse.base.upper_storeys import offered
from glasshouse.compile.steps.work import StepKind
from glasshouse.dispatch.call import Call, Cost, NamedPrimitive
from glasshouse.dispatch.scope import Origin
from glasshouse.dispatch.watch import DeviceTimes
from glasshouse.memory import Tag
from glasshouse.profile import record as recorded
from glasshouse.profile.at_once import SingleCall
from glasshouse.profile.record import Numbers
from glasshouse.profile.trace import Trace
from glasshouse.profile.traces import chrome
from glasshouse.profile.traces.recording_data import (
    FORMAT,
    FileRecording,
    ReadBackend,
    ReadStacks,
    ReadThreads,
    StoredCode,
    trace_of,
)

ENGINE = "autograd::engine::evaluate_function: "
OPTIMIZER = "Optimizer.step#"
HOST_CATEGORIES = ("cpu_op", "user_annotation", "python_function")
NOTHING = Cost(0, 0, 0, 0, 0)
# Files of libraries: Kineto names them from the folder of packages on, or in full.
LIBRARY_FILE = re.compile(r"(.*/(site|dist)-packages/)?torch/|<|.*/lib/python3\.\d+/\w+\.py")
LAUNCH_CATEGORIES = ("cuda_runtime", "cuda_driver")
KNOWN_DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "long int": "int64",
    "int": "int32",
    "short int": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "bool": "bool",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
}


class DeviceKernel(StepKind):
    """A kernel of a device, from a trace."""

    label = "kernel"


class DeviceCopy(StepKind):
    """A copy to, from or on a device, from a trace."""

    label = "copy"


DEVICE_KINDS: dict[str, Any] = {
    "kernel": DeviceKernel(),
    "gpu_memcpy": DeviceCopy(),
    "gpu_memset": DeviceCopy(),
}


@cache
def cost_reader() -> Any:
    """Return the reader of costs of PyTorch's operators; None where PyTorch is not installed."""
    if importlib.util.find_spec("torch") is None:
        return None
    return offered("torch", "costs of a trace")


class ReadSlice(NamedTuple):
    """A slice of a trace; ns since it began."""

    begin: int
    end: int
    name: str
    category: str
    thread: Any
    args: dict[Any, Any]


class Running(NamedTuple):
    """A slice that is open while the slices within it are read."""

    end: int
    scope: str
    phase: str
    stack: tuple[Any, ...]
    whole: bool  # an operator that computes: slices within it are left out


class ReadRecording(FileRecording):
    """Recording that a file of another profiler holds."""

    def __init__(self, data: dict[Any, Any]) -> None:
        super().__init__()
        records = [e for e in data["traceEvents"] if "ts" in e and e.get("ph") in ("X", "i")]
        start_us = min((e["ts"] for e in records), default=0)
        self.began_at_ns: int = data.get("baseTimeNanoseconds", 0)
        slices = sorted((slice_of(e, start_us) for e in records), key=lambda s: (s.begin, -s.end))
        self.end_ns: int = max((s.end for s in slices), default=0)
        self.rows: list[tuple[Any, ...]] = []
        self.thread_numbers: Numbers = recorded.Numbers()
        self.stack_numbers: Numbers = recorded.Numbers({(): 0})
        self.backend: ReadBackend = ReadBackend("torch.profiler")
        self.with_stack: bool = any(s.category == "python_function" for s in slices)
        self.read_host(slices)
        self.read_device(slices)
        self.memory_rows: np.ndarray = self.read_memory(slices)
        self.wants_allocations: bool = bool(len(self.memory_rows))
        self.room = self.count = len(self.rows)
        self.threads: ReadThreads = ReadThreads([f"thread {tid}" for _, tid in self.thread_numbers])
        self.stacks: ReadStacks = ReadStacks([list(stack) for stack in self.stack_numbers])

    def events(self) -> np.ndarray:
        """The events of the host, as records."""
        return np.array(self.rows, recorded.EVENT)

    def memory(self) -> np.ndarray:
        """Allocations and frees as records."""
        return self.memory_rows

    # -- the host ------------------------------------------------------------------------------

    def read_host(self, slices: list[ReadSlice]) -> None:
        self.event_of: dict[int, int] = {}  # by External id, also of slices within operators
        self.forward: dict[
            int, tuple[str, tuple[Any, ...]]
        ] = {}  # (module, stack) by number of the node
        by_thread: dict[Any, list[ReadSlice]] = defaultdict(list)
        for s in slices:
            if s.category in HOST_CATEGORIES:
                by_thread[s.thread].append(s)
        threads = sorted(by_thread, key=lambda t: by_thread[t][0].args.get("Fwd thread id", 0) > 0)
        for thread in threads:  # those of backward passes alone come last
            self.read_thread(self.thread_numbers[thread], by_thread[thread])

    def read_thread(self, thread: int, slices: list[ReadSlice]) -> None:
        opened = [Running(1 << 62, "", "forward", (), False)]
        children = inner_operators(slices)
        for s, has_inner in zip(slices, children, strict=True):
            while opened[-1].end <= s.begin and len(opened) > 1:
                opened.pop()
            opened.append(self.read_slice(thread, s, opened[-1], has_inner))

    def read_slice(self, thread: int, s: ReadSlice, outer: Running, has_inner: bool) -> Running:
        """Write the event of a slice, and return its state for the slices within it."""
        if s.category == "python_function":
            return self.read_function(thread, s, outer)
        if s.category == "user_annotation":
            return self.read_annotation(thread, s, outer)
        number = s.args.get("Sequence number", -1)
        if outer.whole:
            if "External id" in s.args:
                self.event_of[s.args["External id"]] = len(self.rows) - 1
            return outer._replace(end=s.end)
        if s.name.startswith(ENGINE):
            module, stack = self.forward.get(number, ("", ()))
            inner = Running(s.end, module, "backward", stack, False)
            self.write(
                thread, s, recorded.PULL, self.names[s.name.removeprefix(ENGINE)], inner, number
            )
            return inner
        if "::" not in s.name or s.name.startswith("torch::autograd"):  # a node within the engine's
            return outer._replace(end=s.end)
        return self.read_operator(thread, s, outer, has_inner, number)

    def read_function(self, thread: int, s: ReadSlice, outer: Running) -> Running:
        if s.name.startswith("nn.Module: "):
            name = s.name.removeprefix("nn.Module: ")
            inner = outer._replace(end=s.end, scope=f"{outer.scope}.{name}".lstrip("."))
            self.write(thread, s, recorded.MODULE, 0, inner, -1)
            return inner
        at = re.match(r"(.+)\((\d+)\): (.+)", s.name)
        if at is None or is_library(at[1]):
            return outer._replace(end=s.end)
        line = int(at[2])
        code = StoredCode(at[1], line, at[3], (line,))
        return outer._replace(end=s.end, stack=((code, line), *outer.stack))

    def read_annotation(self, thread: int, s: ReadSlice, outer: Running) -> Running:
        step = re.match(r"ProfilerStep\s*#\s*(\d+)", s.name)
        if step is not None:
            self.write(thread, s, recorded.STEP, int(step[1]), outer, -1)
        elif s.name.startswith(OPTIMIZER):
            inner = outer._replace(end=s.end, phase="optimizer", scope="")
            self.write(thread, s, recorded.REGION, self.names["optimizer"], inner, -1)
            return inner
        else:
            self.write(thread, s, recorded.ANNOTATION, self.names[s.name], outer, -1)
        return outer._replace(end=s.end)

    def read_operator(
        self, thread: int, s: ReadSlice, outer: Running, has_inner: bool, number: int
    ) -> Running:
        whole = not is_composite(s.name, has_inner)
        call = call_of(s, whole)
        recorded.calls[call.number] = call
        if "External id" in s.args:
            self.event_of[s.args["External id"]] = len(self.rows)
        if number >= 0 and outer.phase == "forward":
            self.forward.setdefault(number, (outer.scope, outer.stack))
        self.write(
            thread, s, recorded.COMPUTED if whole else recorded.RECORDED, call.number, outer, number
        )
        return outer._replace(end=s.end, whole=whole)

    def write(
        self, thread: int, s: ReadSlice, kind: int, what: int, where: Running, seq: int
    ) -> None:
        self.rows.append(
            (
                s.begin,
                s.end,
                what,
                recorded.scopes[where.scope],
                seq,
                self.stack_numbers[where.stack],
                thread,
                kind,
                recorded.phases[where.phase],
            )
        )

    # -- devices -------------------------------------------------------------------------------

    def read_device(self, slices: list[ReadSlice]) -> None:
        """Kernels and copies, each as a run of a Program of one step."""
        launches = {
            s.args["correlation"]: s
            for s in slices
            if s.category in LAUNCH_CATEGORIES and "correlation" in s.args
        }
        programs: dict[tuple[Any, ...], SingleCall] = {}
        first: dict[int, int] = {}  # the kernel that gets an operator's FLOPs: its longest
        kernels = [s for s in slices if s.category in DEVICE_KINDS]
        owners = [self.event_of.get(s.args.get("External id", -1), -1) for s in kernels]
        for i, (s, owner) in enumerate(zip(kernels, owners, strict=True)):
            best = first.setdefault(owner, i)
            if s.end - s.begin > kernels[best].end - kernels[best].begin:
                first[owner] = i
        for i, (s, owner) in enumerate(zip(kernels, owners, strict=True)):
            program = self.program_of(s, owner, first[owner] == i and owner >= 0, programs)
            launch = launches.get(s.args.get("correlation", -1), s)
            self.runs.append(self.run_of(s, owner, program, launch))
        for owner in {owner for owner in owners if owner >= 0}:  # its time is the device's
            row = self.rows[owner]
            self.rows[owner] = (*row[:7], recorded.RECORDED, row[8])

    def program_of(
        self, s: ReadSlice, owner: int, has_call: bool, programs: dict[Any, Any]
    ) -> SingleCall:
        scope, phase, what = "", "other", -1
        if owner >= 0:
            _, _, what, number, _, _, _, _, pass_number = self.rows[owner]
            scope = list(recorded.scopes)[number]
            phase = list(recorded.phases)[pass_number]
        key = s.name, what if has_call else -1, scope, phase
        if key not in programs:
            call = recorded.calls[what] if has_call else None
            origin = Origin(scope, phase, 0 if owner >= 0 else -1)
            programs[key] = SingleCall(s.name, call, origin, DEVICE_KINDS[s.category])
        return programs[key]

    def run_of(
        self, s: ReadSlice, owner: int, program: SingleCall, launch: ReadSlice
    ) -> recorded.RecordedRun:
        times = (np.array([t]) for t in (launch.begin, launch.end, s.begin))
        device = s.args.get("device", 0), s.args.get("stream", 0)
        on = DeviceTimes(int(device[0]), np.array([int(device[1])]), *times)
        ends, events = np.array([s.end]), np.array([owner])
        thread = self.rows[owner][6] if owner >= 0 else 0
        return recorded.RecordedRun(program, s.begin, ends, s.end, events, thread, s.begin, on)

    # -- memory --------------------------------------------------------------------------------

    def read_memory(self, slices: list[ReadSlice]) -> np.ndarray:
        """Allocations of the device that has most, or of the host; the trace names no owners."""
        records = [s for s in slices if s.name == "[memory]" and "Bytes" in s.args]
        kinds = {s.args.get("Device Type", 0) for s in records}
        records = [s for s in records if s.args.get("Device Type", 0) == max(kinds)]
        alloc, free = recorded.MEMORY_KINDS.index("alloc"), recorded.MEMORY_KINDS.index("free")
        rows = []
        for s in records:
            nbytes = s.args["Bytes"]
            total = s.args.get("Total Allocated", 0)
            reserved = max(total, s.args.get("Total Reserved", 0))
            kind = alloc if nbytes > 0 else free
            address = int(s.args.get("Addr", 0)) & (1 << 63) - 1
            tag = self.tags[Tag("not told")]
            rows.append((s.begin, address, abs(nbytes), total, reserved, tag, kind))
        return np.array(rows, recorded.MEMORY)


def slice_of(e: dict[Any, Any], start_us: float) -> ReadSlice:
    begin = round((e["ts"] - start_us) * 1000)
    end = begin + round(e.get("dur", 0) * 1000)
    place = e.get("pid"), e.get("tid")
    return ReadSlice(begin, end, e["name"], e.get("cat") or "", place, e.get("args") or {})


def is_library(path: str) -> bool:
    """Whether a file is PyTorch's or Python's own."""
    first = path.partition("/")[0].removesuffix(".py")
    return first in sys.stdlib_module_names or LIBRARY_FILE.match(path) is not None


def inner_operators(slices: list[ReadSlice]) -> list[bool]:
    """Whether an operator lies within each slice."""
    has_inner = [False] * len(slices)
    opened: list[int] = []
    for i, s in enumerate(slices):
        while opened and slices[opened[-1]].end <= s.begin:
            opened.pop()
        if s.category == "cpu_op":
            for place in opened:
                has_inner[place] = True
        opened.append(i)
    return has_inner


def is_composite(name: str, has_inner: bool) -> bool:
    """Whether an operator is composed of others; as PyTorch says, or because others lie in it."""
    reader = cost_reader()
    composite = reader.is_composite(name) if reader is not None else None
    return has_inner if composite is None else composite and has_inner


read_calls: dict[tuple[Any, ...], Call] = {}


def call_of(s: ReadSlice, whole: bool) -> Call:
    """The call of an operator with these shapes and dtypes, one object for equal ones."""
    dims, types = s.args.get("Input Dims", ()), s.args.get("Input type", ())
    concrete = s.args.get("Concrete Inputs", ())
    key = s.name, repr(dims), repr(types), repr(concrete), whole
    if key not in read_calls:
        specs = tuple(specs_of(dims, types))
        call = read_calls[key] = Call(NamedPrimitive(s.name, "read"), specs, attrs_of(concrete), ())
        call.cached_cost = NOTHING
        reader = cost_reader()
        if whole and reader is not None and dims:
            call.cached_cost = reader.cost(s.name, dims, types, concrete) or NOTHING
    return read_calls[key]


def specs_of(dims: tuple[Any, ...], types: tuple[Any, ...]) -> Iterator[Any]:
    for shape, dtype in zip(dims, types):
        if dtype in KNOWN_DTYPES and all(isinstance(n, int) for n in shape):
            yield Spec(tuple(shape), as_dtype(KNOWN_DTYPES[dtype]))
        elif dtype == "TensorList":
            yield from (Spec(tuple(part), float32) for part in shape if isinstance(part, list))


def attrs_of(concrete: tuple[Any, ...]) -> dict[Any, Any]:
    return {f"argument {i}": value for i, value in enumerate(concrete) if value != ""}


def read_trace(path: Any, rank: int = 0) -> Trace:
    """Read a trace that torch.profiler wrote (`export_chrome_trace`), packed or not; of one that we
    wrote the whole recording.

    Raises: OptionError for another file.
    """
    try:
        recording = chrome.read_recording(path)
        if recording is not None and recording.get("format") == FORMAT:
            return trace_of(recording)
        data = chrome.read(path)
        if not isinstance(data.get("traceEvents"), list):
            raise ValueError("no traceEvents")
    except (ValueError, AttributeError, UnicodeDecodeError) as error:
        fix = "Write one with torch.profiler's export_chrome_trace."
        raise OptionError("profile.read", "a trace", f"{Path(path).name} ({error})", fix) from error
    trace = Trace(ReadRecording(data), data.get("distributedInfo", {}).get("rank", rank))
    trace.script = str(path)
    trace.host, trace.captures = data.get("host_name", ""), []
    return trace
