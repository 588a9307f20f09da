"""A recording as JSON, and back: all of it, so its tables and report equal those of the live
recording. A trace file has it after the slices, which are for viewers.

Columns are packed (zlib, base64). Shared objects (calls, code, tags) are written once, and others
refer to their places."""

import base64
import zlib
from collections.abc import Callable
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base import Spec, as_dtype
from glasshouse.base.dtype import DType
from glasshouse.compile.lowering.source_map import StepInfo, StoredValue
from glasshouse.compile.programs.executable import Program
from glasshouse.compile.steps.work import COLLECTIVE, REFERENCE, StepKind
from glasshouse.dispatch.call import Call, Cost, NamedPrimitive
from glasshouse.dispatch.fallback import Fallback, FallbackCounter
from glasshouse.dispatch.primitive import primitives
from glasshouse.dispatch.scope import Origin
from glasshouse.dispatch.watch import DeviceTimes, MessageTimes
from glasshouse.graph.node import Node
from glasshouse.memory import Tag
from glasshouse.profile import record as recorded
from glasshouse.profile.function_watch import TIMED_CALL, TimedFunctions
from glasshouse.profile.holders import HeldTensor, Holders
from glasshouse.profile.libraries import library_of
from glasshouse.profile.record import COMPUTED, RecordedRun, Threads
from glasshouse.profile.runs import ProgramStandIn
from glasshouse.profile.stacks import Stacks
from glasshouse.profile.trace import Trace, line_of

FORMAT = 1  # of this data; another one is not read
# Fields of a trace that are written as they are.
PLAIN = (
    "begin_ns end_ns began_at_ns met_at_ns dropped dropped_memory dropped_runs names phases "
    "threads with_stack with_memory before_bytes captures backend memory_limit call_costs script "
    "threads_of_kernels rank pid host unwatched_threads function_names with_functions "
    "inner_names"
).split()
RUN_FIELDS = ("begin_ns", "end_ns", "thread", "first_ns", "stack")
KINDS: dict[str, Any] = {"collective": COLLECTIVE, "reference": REFERENCE}
WORDS = (bool, int, float, str, type(None))


def pack(array: np.ndarray) -> dict[Any, Any]:
    """An array of numbers as text."""
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    text = base64.b64encode(zlib.compress(array.tobytes(), 1)).decode("ascii")
    return {"dtype": array.dtype.str, "zlib": text}


def unpack(data: dict[Any, Any]) -> np.ndarray:
    """The array that `pack` was called on."""
    array = np.frombuffer(zlib.decompress(base64.b64decode(data["zlib"])), data["dtype"])
    return array.astype(array.dtype.newbyteorder("="))


def columns_of(records: np.ndarray) -> dict[str, dict[Any, Any]]:
    """Packed columns of records."""
    return {name: pack(records[name]) for name in records.dtype.names or ()}


def records_of(data: dict[Any, Any], dtype: np.dtype[Any]) -> np.ndarray:
    """Records from packed columns; none without columns."""
    columns = {name: unpack(column) for name, column in data.items()}
    rows = np.zeros(max(map(len, columns.values()), default=0), dtype)
    for name, column in columns.items():
        rows[name] = column
    return rows


class WrittenOnce(dict[Any, Any]):
    """Place of each object in a list of descriptions."""

    def __init__(self, describe: Any) -> None:
        super().__init__()
        self.describe = describe
        self.entries: list[Any] = []
        self.alive: list[Any] = []

    def of(self, thing: Any) -> int:
        """Return the place of an object, which is described at its first use."""
        if id(thing) not in self:
            self[id(thing)] = len(self.entries)
            self.entries.append(self.describe(thing))
            self.alive.append(thing)  # another one shall not get its id
        return self[id(thing)]


# -- writing -----------------------------------------------------------------------------------


def recording_data(trace: Trace) -> dict[Any, Any]:
    """All of a recording."""
    calls, codes = WrittenOnce(call_data), WrittenOnce(code_data)
    events, scopes = event_columns(trace, calls)
    return {
        "format": FORMAT,
        **{name: getattr(trace, name) for name in PLAIN},
        "events": events,
        "scopes": scopes,
        "stacks": [
            [[codes.of(code), line_of(code, at)] for code, at in trace.users(stack)]
            for stack in range(len(trace.stacks))
        ],
        "codes": codes.entries,
        "programs": [
            program_data(program, infos, calls)
            for program, infos in zip(trace.programs, trace.infos, strict=True)
        ],
        "runs": runs_data(trace),
        "messages": [list(message) for message in trace.messages],
        "functions": columns_of(trace.functions),
        "inner_operators": columns_of(trace.inner_operators),
        "memory": columns_of(trace.memory),
        "tags": [list(tag) for tag in trace.tags],
        "live": [[address, nbytes, list(tag)] for address, (nbytes, tag) in trace.live.items()],
        "holders": holders_data(trace),
        "fallbacks": {
            "cards": dict(trace.fallbacks),
            "rows": [[*row, count] for row, count in trace.fallbacks.rows.items()],
            "uncompiled": dict(trace.fallbacks.uncompiled),
        },
        "calls": calls.entries,
    }


def event_columns(trace: Trace, calls: WrittenOnce) -> tuple[dict[Any, Any], list[str]]:
    """The events, with the places of their calls and scopes, and the scopes."""
    events = trace.events.copy()
    numbers, place = np.unique(events["what"][trace.is_op], return_inverse=True)
    places = [calls.of(recorded.calls[number]) for number in numbers.tolist()]
    events["what"][trace.is_op] = np.array(places, np.int32)[place.ravel()]
    scope_numbers, events["scope"] = np.unique(events["scope"], return_inverse=True)
    return columns_of(events), [trace.scopes[scope] for scope in scope_numbers.tolist()]


def holders_data(trace: Trace) -> dict[Any, Any]:
    """Tensors that models and optimizers held, as JSON: (address, tag, spec) at each look and of
    those that existed before, (Program, place, tag, spec) of calls in Programs."""
    holders, numbers = trace.holders, trace.number_of
    return {
        "blocks": [
            [rows, [[address, *tensor] for address, tensor in blocks.items()]]
            for rows, blocks in holders.blocks
        ],
        "existing": [[address, *tensor] for address, tensor in holders.existing.items()],
        "places": [
            [numbers[program], place, *tensor]
            for (program, place), tensor in holders.places.items()
        ],
    }


def call_data(call: Call) -> dict[Any, Any]:
    return {
        "name": call.name,
        "library": library_of(call),
        "kind": call.primitive.kind,
        "operands": [spec_data(spec) for spec in call.specs],
        "results": [spec_data(spec) for spec in call.outs],
        "is_tuple": isinstance(call.out, tuple),
        "attrs": {name: value_data(value) for name, value in call.attrs.items()},
        "cost": list(call.cost),
    }


def spec_data(spec: Spec) -> list[Any]:
    return [list(spec.shape), spec.dtype.name]


def value_data(value: Any) -> Any:
    """Describe an attr: a value without a JSON form is marked, an unreadable one is its text."""
    if type(value) in WORDS:
        return value
    if isinstance(value, tuple):
        return {"tuple": [value_data(x) for x in value]}
    return {"dtype": value.name} if isinstance(value, DType) else {"text": repr(value)}


def code_data(code: CodeType) -> list[Any]:
    return [code.co_filename, code.co_firstlineno, code.co_name]


def program_data(program: Program, infos: list[StepInfo], calls: WrittenOnce) -> dict[Any, Any]:
    texts = {i: program.sources[i] for i in {x.number for x in infos} if i in program.sources}
    return {
        "arena_bytes": program.arena_bytes,
        "lines": list(getattr(program, "lines", {}).items()),
        "sources": [[i, text.named(f"kernel{i}")] for i, text in sorted(texts.items())],
        "steps": [step_data(info, calls) for info in infos],
    }


def step_data(info: StepInfo, calls: WrittenOnce) -> dict[Any, Any]:
    kind = info.step_kind
    return info._asdict() | {
        "step_kind": {
            "name": next((name for name, standard in KINDS.items() if standard == kind), ""),
            "label": kind.label,
            "is_host": kind.is_host,
        },
        "sources": [[calls.of(source.call), list(source.origin)] for source in info.sources],
    }


def runs_data(trace: Trace) -> dict[Any, Any]:
    runs = trace.runs
    columns = {
        "program": [trace.number_of[id(run.program)] for run in runs],
        "ends": [len(run.ends_ns) for run in runs],
        "events": [len(run.events) for run in runs],
    } | {name: [getattr(run, name) for run in runs] for name in RUN_FIELDS}
    none = np.zeros(0, np.int64)
    arrays = {name: [none, *(getattr(r, name) for r in runs)] for name in ("ends_ns", "events")}
    devices = {i: run.device for i, run in enumerate(runs) if run.device is not None}
    return {
        "counts": {name: pack(np.array(values, np.int64)) for name, values in columns.items()},
        "arrays": {
            name: pack(np.concatenate([np.zeros(0, np.int64), *values]))
            for name, values in arrays.items()
        },
        "devices": [
            [i, device.device, *(np.asarray(x).tolist() for x in device[1:])]
            for i, device in devices.items()
        ],
        "transfers": [
            [i, [list(x) for x in r.transfers]] for i, r in enumerate(runs) if r.transfers
        ],
    }


# -- reading -----------------------------------------------------------------------------------


class ShownValue(str):
    """A value of which only the text was written; prints as it."""

    __slots__ = ()
    __repr__: Callable[..., str] = str.__str__


class StoredKind(StepKind):
    """A kind of step from a file: only the label of its lowerer is known."""

    def __init__(self, label: str, is_host: bool) -> None:
        self.label = label
        self.is_host = is_host


class StoredCode(NamedTuple):
    """A code object in the stacks of a file; the place in it is the line."""

    co_filename: str
    co_firstlineno: int
    co_name: str
    lines: tuple[int, ...]

    def co_lines(self) -> Any:
        return ((line, line + 1, line) for line in self.lines)


class StoredText(NamedTuple):
    """The C of a kernel."""

    text: str

    def named(self, _name: str) -> str:
        return self.text


class StoredProgram(ProgramStandIn):
    """A Program that was read."""

    def __init__(self, data: dict[Any, Any], calls: list[Call]) -> None:
        super().__init__([step_of(step, calls) for step in data["steps"]])
        self.arena_bytes, self.lines = data["arena_bytes"], dict(data["lines"])
        self.sources = {i: StoredText(text) for i, text in data["sources"]}


class ReadBackend(NamedTuple):
    """Backend of a trace's calls, by name."""

    name: str


class ReadThreads(Threads):
    """Names of threads, by number."""

    def __init__(self, names: list[str]) -> None:
        self.names = names


class ReadStacks(Stacks):
    """Stacks, by number."""

    def __init__(self, stacks: list[list[tuple[Any, ...]]]) -> None:
        self.stacks = stacks


class FileRecording:
    """A recording from a file, in a recorder's form, for a `Trace`; missing data is empty."""

    room = count = existing_bytes = dropped_memory = dropped_runs = threads_of_kernels = 0
    begin_ns = end_ns = began_at_ns = 0
    bytes_before: tuple[int, ...] = 0, 0
    with_stack = with_functions = wants_allocations = False
    script = ""
    memory_limit: Any = None
    unwatched_threads: Any = ()

    def __init__(self) -> None:
        self.names: Any = recorded.Numbers()
        self.tags: Any = recorded.Numbers()
        self.runs: list[RecordedRun] = []
        self.messages: list[MessageTimes] = []
        self.live: dict[Any, Any] = {}
        self.holders: Holders = Holders()
        self.inner_operators: np.ndarray = np.zeros(0, TIMED_CALL)
        self.functions: TimedFunctions = TimedFunctions(self.inner_operators, [])
        self.inner_names: list[Any] = []
        self.fallbacks: FallbackCounter = FallbackCounter()
        self.call_costs: dict[Any, Any] = {}


class StoredRecording(FileRecording):
    """Recording of ours that was read back."""

    def __init__(self, data: dict[Any, Any]) -> None:
        super().__init__()
        vars(self).update({name: data[name] for name in PLAIN if name in data})
        for library, points in self.call_costs.items():
            if not isinstance(points, list):  # of an earlier version: the same for all calls
                self.call_costs[library] = [[0.0, points]]
        self.data = data
        calls = [call_of(call) for call in data["calls"]]
        recorded.calls.update({call.number: call for call in calls})
        self.table: np.ndarray = self.read_events(calls)
        self.count, self.tags = data["dropped"], [Tag(*tag) for tag in data["tags"]]
        self.threads: ReadThreads = ReadThreads(data["threads"])
        self.stacks: ReadStacks = ReadStacks(stacks_of(data))
        programs = [StoredProgram(program, calls) for program in data["programs"]]
        self.runs: list[RecordedRun] = runs_of(data["runs"], programs)
        self.holders: Holders = holders_of(data["holders"], programs)
        self.messages = [MessageTimes(*message_of(message)) for message in data["messages"]]
        self.live = {address: (nbytes, Tag(*tag)) for address, nbytes, tag in data["live"]}
        self.wants_allocations: bool = data["with_memory"]
        self.bytes_before: tuple[int, ...] = tuple(data["before_bytes"])
        self.fallbacks: FallbackCounter = fallbacks_of(data)
        self.backend: ReadBackend = ReadBackend(data["backend"])
        functions = records_of(data.get("functions", {}), TIMED_CALL)
        self.functions = TimedFunctions(functions, data.get("function_names", []))
        self.inner_operators = records_of(data.get("inner_operators", {}), TIMED_CALL)

    def read_events(self, calls: list[Call]) -> np.ndarray:
        events = records_of(self.data["events"], recorded.EVENT)
        is_op = events["kind"] <= COMPUTED
        numbers = np.array([call.number for call in calls], np.int64)
        events["what"][is_op] = numbers[events["what"][is_op]]
        for name, words in (("scope", self.data["scopes"]), ("phase", self.data["phases"])):
            table = recorded.scopes if name == "scope" else recorded.phases
            events[name] = np.array([table[word] for word in words], np.int64)[events[name]]
        return events

    def events(self) -> np.ndarray:
        """The events, as records."""
        return self.table

    def memory(self) -> np.ndarray:
        """Allocations and frees as records."""
        return records_of(self.data["memory"], recorded.MEMORY)


def trace_of(data: dict[Any, Any]) -> Trace:
    """The recording that `recording_data` was called on."""
    trace = Trace(StoredRecording(data), data["rank"])
    for name in ("met_at_ns", "pid", "host"):
        setattr(trace, name, data[name])
    trace.captures = [capture | {"place": tuple(capture["place"])} for capture in data["captures"]]
    return trace


def call_of(data: dict[Any, Any]) -> Call:
    """Read a call: with its card, if there is one and all attrs were written."""
    attrs = {name: value_of(value) for name, value in data["attrs"].items()}
    is_whole = not data["library"] and not any(map(is_shown, attrs.values()))
    card = primitives.get(data["name"]) if is_whole else None
    specs, outs = (tuple(map(spec_of, data[name])) for name in ("operands", "results"))
    primitive = card or NamedPrimitive(data["name"], data["kind"], data["library"])
    call = Call(primitive, specs, attrs, outs if data["is_tuple"] else outs[0])
    call.cached_cost = Cost(*data["cost"])
    return call


def spec_of(data: list[Any]) -> Spec:
    shape, dtype = data
    return Spec(tuple(shape), as_dtype(dtype))


def value_of(data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    (form, value), *_ = data.items()
    if form == "tuple":
        return tuple(value_of(x) for x in value)
    return as_dtype(value) if form == "dtype" else ShownValue(value)


def is_shown(value: Any) -> bool:
    """Whether only the text of a value, or of a part of it, is known."""
    return isinstance(value, ShownValue) or (isinstance(value, tuple) and any(map(is_shown, value)))


def step_of(data: dict[Any, Any], calls: list[Call]) -> StepInfo:
    kind = data["step_kind"]
    sources = [Node(calls[call], (), Origin(*origin)) for call, origin in data["sources"]]
    step_kind = KINDS.get(kind["name"]) or StoredKind(kind["label"], kind["is_host"])
    stored = {name: tuple(map(stored_value, data[name])) for name in ("arena", "outputs")}
    changed = {"step_kind": step_kind, "sources": sources, "origin": Origin(*data["origin"])}
    return StepInfo(**data | changed | stored | {"group": tuple(data["group"])})


def stored_value(data: list[Any]) -> StoredValue:
    value = StoredValue(*data)
    return value._replace(origin=Origin(*value.origin))


def message_of(data: list[Any]) -> list[Any]:
    return [tuple(x) if isinstance(x, list) else x for x in data]


def stacks_of(data: dict[Any, Any]) -> list[list[tuple[Any, ...]]]:
    lines: list[set[int]] = [set() for _ in data["codes"]]
    for stack in data["stacks"]:
        for code, line in stack:
            lines[code].add(line)
    codes = [
        StoredCode(file, first, name, tuple(sorted(code_lines)))
        for (file, first, name), code_lines in zip(data["codes"], lines)
    ]
    return [[(codes[code], line) for code, line in stack] for stack in data["stacks"]]


def runs_of(data: dict[Any, Any], programs: list[StoredProgram]) -> list[RecordedRun]:
    columns = {name: unpack(column) for name, column in data["counts"].items()}
    ends, events = (
        np.split(unpack(data["arrays"][name]), np.cumsum(columns[count])[:-1])
        for name, count in (("ends_ns", "ends"), ("events", "events"))
    )
    devices = {
        i: DeviceTimes(device, *(np.array(x) if isinstance(x, list) else x for x in others))
        for i, device, *others in data["devices"]
    }
    transfers = {i: tuple(map(tuple, items)) for i, items in data["transfers"]}
    rows = zip(columns["program"].tolist(), *(columns[name].tolist() for name in RUN_FIELDS))
    return [
        RecordedRun(
            programs[program],
            begin,
            ends[i],
            end,
            events[i],
            thread,
            first,
            devices.get(i),
            stack,
            transfers.get(i, ()),
        )
        for i, (program, begin, end, thread, first, stack) in enumerate(rows)
    ]


def holders_of(data: dict[Any, Any], programs: list[StoredProgram]) -> Holders:
    holders = Holders()
    for rows, blocks in data["blocks"]:
        tensors = {address: HeldTensor(Tag(*tag), spec) for address, tag, spec in blocks}
        holders.blocks.append((rows, tensors))
    for address, tag, spec in data["existing"]:
        holders.existing[address] = HeldTensor(Tag(*tag), spec)
    for program, place, tag, spec in data["places"]:
        holders.places[id(programs[program]), place] = HeldTensor(Tag(*tag), spec)
    return holders


def fallbacks_of(data: dict[Any, Any]) -> FallbackCounter:
    fallbacks = data["fallbacks"]
    rows = {Fallback(*row): count for *row, count in fallbacks["rows"]}
    return FallbackCounter(fallbacks["cards"], rows=rows, uncompiled=fallbacks["uncompiled"])
