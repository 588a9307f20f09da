"""From a graph of torch.fx to a recording of primitives: its nodes run once through the table.

Tensors have no storage meanwhile, and sizes are numbers. An input keeps PyTorch's layout: one with
axes in another order is read through a permutation, never copied."""

import operator
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.fx import Node as FxNode
from torch.fx.node import map_arg

import glasshouse.torch.aten  # noqa: F401  (fills the table)
from glasshouse.base import BackendError, DTypeError, Spec, having, int64, uint8
from glasshouse.base.errors import PACKAGE
from glasshouse.base.flags import flags
from glasshouse.compile.lowering.source_map import counts_of
from glasshouse.compile.programs.binding import Source, SourceKind, Sources
from glasshouse.compile.programs.recording import RecordingBackend
from glasshouse.dispatch import Value, box, cast, full, primitives, state
from glasshouse.dispatch.scope import Scope
from glasshouse.graph import record
from glasshouse.graph.record import Recorder
from glasshouse.ops.movement import inverse_permutation, permute
from glasshouse.targets.cpu import CPU
from glasshouse.tensor import Tensor
from glasshouse.torch.aten.draws import KeyInputs, keys_from
from glasshouse.torch.aten.higher_order import call_higher_order
from glasshouse.torch.aten.table import CHECKS, TABLE, call_entry, in_order, name_of
from glasshouse.torch.lowering.host import call_in_torch, result_of
from glasshouse.torch.lowering.results import GraphResults, Output, dense_output
from glasshouse.torch.patches.fakes import FakeTensor
from glasshouse.torch.patches.operators import HigherOrderOperator, OpOverload, schema_of
from glasshouse.torch.patches.trees import tree_map
from glasshouse.torch.scopes.module_scope import module_path, phase_of
from glasshouse.torch.tensors.dtypes import FROM_TORCH, spec_of, to_array
from glasshouse.torch.tensors.layout import layout_of
from glasshouse.torch.tensors.sizes import SizeValues

TORCH = str(Path(torch.__file__).parent)
STRIDED = ("as_strided.default", "as_strided_scatter.default")


class InputArray:
    """A placeholder of an input's array: its spec without contents."""

    __slots__ = ("spec", "base")

    def __init__(self, spec: Spec) -> None:
        self.spec: Spec = spec
        self.base: Any = None


class TraceBackend(RecordingBackend):
    """Records the primitives that a graph calls; computes nothing."""

    name = "trace"
    target = CPU  # the default target of Programs
    checks_indices = False

    def __init__(self) -> None:
        super().__init__()
        self.recorder: Recorder = record.Recorder()

    def execute(self, recording: Any) -> None:
        raise BackendError(
            "torch.compile",
            "operators that read no values while they are traced",
            "one that does",
            "Report it with the model.",
        )

    def input(self, spec: Spec) -> Value:
        """A placeholder of a run's input."""
        return box(record.computed(InputArray(spec), spec, owned=False), spec, self)


trace_backend: TraceBackend = TraceBackend()  # one for all: each thread has its own recorder there


class ModuleScope(Scope):
    """The module of a PyTorch model that a call belongs to, as profiles and reports print it."""

    __slots__ = ()

    def __init__(self, path: str) -> None:
        self.module, self.parent, self.kind = (lambda: None), None, path
        self.full_name, self.inner, self.origins = path, {}, None


class RecordingFacts(NamedTuple):
    """The facts of a recording that a run of its Program needs: the number of its calls, their
    costs, the specs of its leaves, packed scalars, and whether it indexes elements."""

    calls: int
    counts: list[Any] | bytes
    specs: list[Spec]
    scalars: list[bytes]
    indexes: bool

    @classmethod
    def of(cls, recording: Any) -> "RecordingFacts":
        """The facts of a recording."""
        nodes, specs = recording.nodes, [x.spec for x in recording.leaves]
        indexes = any(x.op in record.INDEXED for x in nodes)
        return cls(len(nodes), counts_of(recording), specs, recording.scalars, indexes)


class LoweredGraph(NamedTuple):
    """A graph as a recording: `sources` are those of its leaves, `outputs` describe the results of
    the graph, `draws` is the number of keys of a run, `lines` has the user's line of each call by
    its place in the recording, `unknown` counts the operators that PyTorch computes. The last
    outputs are no results: they are the new contents of the inputs numbered in `writes`.
    `stable` are the inputs that are seldom written to. A graph from the disk has `facts` in place
    of the recording, and `code_key`, the key of its Program's code."""

    recording: record.Recording | None
    sources: list[Source]
    outputs: list[Output]
    draws: int
    lines: dict[int, str]
    writes: list[int]
    phase: str
    unknown: dict[str, int]
    stable: tuple[int, ...] = ()
    facts: RecordingFacts | None = None
    code_key: str = ""
    structure: str = ""

    def to_keep(self, code_key: str, structure: str) -> "LoweredGraph":
        """A copy for the disk, with `facts` in place of the recording."""
        facts = RecordingFacts.of(self.recording)
        facts = facts._replace(counts=pickle.dumps(facts.counts))
        return self._replace(recording=None, facts=facts, code_key=code_key, structure=structure)


ALL = 1 << 30
WRITE = torch.ops.aten.copy_.default  # to an input: AOTAutograd's graphs have no other


class GraphLowering:
    """Runs the nodes of one graph for inputs of given sizes and layouts. The first `visible`
    results are for the user, the others for the backward graph."""

    def __init__(
        self,
        module: torch.fx.GraphModule,
        inputs: list[torch.Tensor],
        phase: str,
        visible: int = ALL,
        stable: tuple[int, ...] = (),
        nested: Callable[..., Any] = lambda module: module,
    ) -> None:
        self.module = module
        self.arguments: list[Any] = inputs
        self.phase = phase
        self.visible = visible
        self.nested = nested  # makes a function that runs a graph among an operator's arguments
        self.backend: TraceBackend = trace_backend
        self.values: dict[FxNode, Any] = {}
        self.sources: Sources = Sources()
        self.placeholders: list[Value] = []  # alive, as their payloads' ids are in `sources`
        self.keys: KeyInputs = KeyInputs(self.backend.input)
        self.unknown: dict[str, int] = {}  # operators without an entry, and how often
        self.input_number: dict[FxNode, int] = {}
        self.sizes: SizeValues = SizeValues()
        self.scopes: dict[str, ModuleScope] = {}
        self.stable = stable  # numbers of inputs that are seldom written to
        self.line_of: dict[int, str] = {}  # the user's, by the identity of what is recorded
        self.effects: list[Value] = []  # of operators that have no result
        self.writes: dict[int, Value] = {}  # new contents of inputs, by their numbers

    def run(self) -> LoweredGraph:
        """The recording of the graph's outputs."""
        phase = "forward" if self.phase == "forward" else "backward"
        with having(state, backend=self.backend, records=False, phase=phase), keys_from(self.keys):
            return self.finish(self.lower(self.module, self.place_input))

    def lower(self, module: torch.fx.GraphModule, place_input: Callable[..., Any]) -> FxNode:
        """Lower the nodes of this graph, or of one that it calls; returns its output node.
        `place_input` takes the node of an input, and its number."""
        number = 0
        for node in module.graph.nodes:
            if node.op == "placeholder":
                place_input(node, number)
                number += 1
            elif node.op == "get_attr":
                self.values[node] = self.place_constant(module, node)
            elif node.op == "call_function" and not is_dropped_draw(node):
                self.values[node] = self.call(node)
            elif node.op == "output":
                return node
        raise AssertionError("a graph ends with its outputs")

    # -- what goes in --------------------------------------------------------------------------

    def place_input(self, node: FxNode, number: int) -> None:
        promised, argument = node.meta.get("val"), self.arguments[number]
        if argument is None and isinstance(promised, torch.Tensor):  # an undefined gradient
            self.values[node] = full(tuple(promised.shape), 0, FROM_TORCH[promised.dtype])
            return
        self.values[node] = self.value_of_input(number, argument)
        self.input_number[node] = number
        self.sizes.take_input(promised, argument)

    def value_of_input(self, number: int, argument: torch.Tensor) -> Any:
        if not isinstance(argument, torch.Tensor):
            return argument
        layout = layout_of(argument)
        spec = Spec(layout.sizes, FROM_TORCH[argument.dtype])
        leaf = self.backend.input(spec)
        self.sources[id(leaf.payload)] = Source(SourceKind.INPUT, number)
        self.placeholders.append(leaf)
        if layout.order == tuple(range(len(layout.order))):
            return leaf
        return permute(leaf, axes=inverse_permutation(layout.order))

    def place_constant(self, module: torch.fx.GraphModule, node: FxNode) -> Any:
        """A tensor that is a member of the graph: each run reads its memory."""
        member = module
        for name in node.target.split("."):
            member = getattr(member, name)
        if not isinstance(member, torch.Tensor):
            return member
        member = member.contiguous()
        is_fake = isinstance(member, FakeTensor)  # then the graph will not run
        array = None if is_fake else to_array(member)
        value = self.backend.input(spec_of(member))
        self.sources[id(value.payload)] = Source(SourceKind.CONSTANT, array)
        self.placeholders.append(value)
        return value

    # -- one node ------------------------------------------------------------------------------

    def call(self, node: FxNode) -> Any:
        args, named = map_arg((node.args, node.kwargs), self.values.__getitem__)
        target = node.target
        if isinstance(target, HigherOrderOperator):
            return call_higher_order(self, node, args, named)
        if target is WRITE and node.args[0] in self.input_number:
            return self.write(self.input_number[node.args[0]], args[1])
        if isinstance(target, OpOverload) and schema_of(target).is_mutable:
            raise LookupError(f"{target}, which writes to its operands")
        if not isinstance(target, OpOverload):
            return plain_call(target, args, named)
        if str(target) in SIZES:
            return SIZES[str(target)](*args)
        pending = self.backend.recorder.pending
        first = len(pending)
        phase = phase_of(node)
        if self.phase == "backward" and phase != "recompute":
            phase = state.phase
        with having(state, scope=self.scope_at(module_path(node)), phase=phase):
            result = self.operate(node, target, args, named)
        self.line_of |= dict.fromkeys(map(id, pending[first:]), line_of(node))
        return result

    def write(self, number: int, value: Tensor) -> Value:
        """Note the new contents of an input."""
        argument = self.arguments[number]
        if not isinstance(value, Value) or value.shape != tuple(argument.shape):
            raise LookupError("a copy into an input of another shape")
        self.writes[number] = cast(value, FROM_TORCH[argument.dtype])
        return value

    def written_output(self, number: int) -> Output:
        """The output that writes the new contents of an input, in its layout."""
        argument = self.arguments[number]
        return dense_output(self.writes[number], layout_of(argument), argument.dtype)

    def scope_at(self, path: str) -> ModuleScope | None:
        """The scope of a module, one for each path; None outside of all."""
        if path and path not in self.scopes:
            self.scopes[path] = ModuleScope(path)
        return self.scopes.get(path)

    def operate(
        self, node: FxNode, target: Any, args: tuple[Any, ...], named: dict[Any, Any]
    ) -> Any:
        """The result of an operator by its entry; by PyTorch where there is none."""
        entry = TABLE.get(name_of(target))
        if entry is not None:
            operands, by_name = in_order(target, args, named)
            try:
                if name_of(target) in STRIDED:
                    return self.operate_on_memory(node, entry, operands, by_name)
                fakes = map_arg((node.args, node.kwargs), fake_of)
                fake_args, fake_named = in_order(target, *fakes)
                result = call_entry(entry, operands, by_name, (*fake_args, *fake_named.values()))
                return self.cast_result(node, result)
            except (NotImplementedError, DTypeError):  # what the table has no composition for
                pass
        return self.without_entry(node, target, args, named, node.meta.get("val"))

    def operate_on_memory(self, node: FxNode, entry: Any, args: Any, named: dict[Any, Any]) -> Any:
        """The result of an operator that names elements by their places in memory: its operand is
        passed with the axes in PyTorch's order in memory."""
        x, *rest = args
        fake = self.sizes.concrete(node.args[0].meta["val"])
        layout = layout_of(fake)
        if not layout.dense or fake.storage_offset():
            raise LookupError(f"{node.target} of a view with gaps")
        result = entry.compute(permute(x, axes=layout.order) if x.ndim else x, *rest, **named)
        if node.target is torch.ops.aten.as_strided_scatter.default and x.ndim:
            result = permute(result, axes=inverse_permutation(layout.order))
        return self.cast_result(node, result)

    def check(self, value: Value) -> None:
        """Have a run stop where a value is 0, like one with an index out of range: PyTorch then
        runs the calls, and raises its error."""
        outside = cast(value == 0, int64)
        table = full((1,), 1, uint8)
        self.effects.append(primitives["gather"](table, outside.reshape(1), axis=0))

    def without_entry(
        self, node: FxNode, target: Any, args: Any, named: dict[Any, Any], fake: Any
    ) -> Any:
        """The result of an operator without an entry; None of a check, which is a step of ours."""
        if name_of(target) in CHECKS:
            return self.check(args[0])
        return self.in_torch(node, target, args, named, fake)

    def in_torch(
        self, node: FxNode, target: Any, args: Any, named: dict[Any, Any], fake: Any
    ) -> Any:
        """The result of an operator that PyTorch itself computes, as a step of the host.

        Raises: BackendError if strict is set
        """
        self.refuse_if_strict(node, str(target))
        fakes = map_arg((node.args[len(node.args) - len(args) :], node.kwargs), fake_of)
        ordered = in_order(target, args, named), in_order(target, *fakes)
        return self.host_step(target, *ordered, fake)

    def refuse_if_strict(self, node: FxNode, operator: str) -> None:
        """Refuse an operator that PyTorch would compute.

        Raises: BackendError if strict is set
        """
        if flags.strict:
            raise BackendError(
                ", ".join(filter(None, ("torch.compile", module_path(node), line_of(node)))),
                "operators with an entry (docs/reference/torch_operators.md): GH_STRICT is set",
                operator,
                "Unset GH_STRICT, and PyTorch computes it as a step of the host.",
            )

    def host_step(self, target: Any, arguments: Any, fakes: Any, fake: Any) -> Any:
        """The results of an operator that PyTorch computes in a step of the host; None for results
        that are no tensors."""
        self.unknown[str(target)] = self.unknown.get(str(target), 0) + 1
        fakes = tree_map(self.sizes.concrete, fakes)
        several = isinstance(fake, (tuple, list))
        promised = [] if fake is None else [*fake] if several else [fake]
        results = [result_of(x, self.sizes) for x in promised if x is not None]
        values = call_in_torch(target, arguments, fakes, results)
        if not results:
            self.effects.extend(values)
            return [None] * len(promised) if several else values
        remaining = iter(values)
        ordered = [None if x is None else next(remaining) for x in promised]
        return ordered if several else ordered[0]

    def cast_result(self, node: FxNode, result: Any) -> Any:
        """The result of an entry, in the dtypes that PyTorch promises.

        Raises: BackendError where a shape is another
        """
        fake = node.meta.get("val")
        if isinstance(result, Value):
            return self.matched(node, result, fake)
        if isinstance(result, (tuple, list)):
            fakes = fake if isinstance(fake, (tuple, list)) else (None,) * len(result)
            return [self.matched(node, x, f) for x, f in zip(result, fakes)]
        return result

    def matched(self, node: FxNode, value: Any, fake: torch.Tensor | None) -> Any:
        if not isinstance(fake, torch.Tensor) or not isinstance(value, Value):
            return value
        expected = tuple(fake.shape)
        if all(isinstance(n, int) for n in expected) and expected != value.shape:
            raise BackendError(
                f"torch.compile: {node.target}",
                f"a result of shape {expected}",
                value.shape,
                "Report it with the model.",
            )
        return cast(value, FROM_TORCH[fake.dtype])

    # -- what comes out ------------------------------------------------------------------------

    def finish(self, node: FxNode) -> LoweredGraph:
        flat = node.args[0]
        flat = list(flat) if isinstance(flat, (tuple, list)) else [flat]
        results = GraphResults(self.values, self.input_number, self.sizes, self.visible)
        writes = [number for number, value in self.writes.items() if value.size]
        all_outputs = [*results.outputs(flat), *map(self.written_output, writes)]
        values = [what for kind, what, *_ in all_outputs if kind.is_computed] + self.effects
        values += self.refusals(flat)
        results.forget()  # values without references are no outputs
        self.writes.clear()
        recording = take_recording(self.backend.recorder, values)
        places = (
            {}
            if recording is None
            else {id(recording.nodes[at]): i for i, at in enumerate(recording.outputs)}
        )
        outputs = [
            out._replace(what=places[id(out.what.payload)]) if out.kind.is_computed else out
            for out in all_outputs
        ]
        self.sources.number(SourceKind.KEY, [key.payload for key in self.keys.keys])
        nodes, leaves = ([], []) if recording is None else (recording.nodes, recording.leaves)
        sources = [self.sources.get(id(x)) or Source(SourceKind.CONSTANT, x.value) for x in leaves]
        lines = {i: line for i, x in enumerate(nodes) if (line := self.line_of.get(id(x)))}
        details = lines, writes, self.phase, self.unknown, tuple(self.stable)
        return LoweredGraph(recording, sources, outputs, len(self.keys.keys), *details)

    def refusals(self, results: list[Any]) -> list[Value]:
        """Results without elements whose computation may meet an index out of range."""
        values = [self.values[x] for x in results if isinstance(x, FxNode)]
        empty = [x for x in values if isinstance(x, Value) and x.size == 0]
        return [x for x in empty if any(map(record.may_refuse, record.with_ancestors([x.payload])))]


def take_recording(recorder: Recorder, values: list[Tensor]) -> record.Recording | None:
    """The recording of these values; other pending calls are dropped."""
    payloads = list(dict.fromkeys(value.payload for value in values))
    if not payloads:
        recorder.forget()
        return None
    pending = record.with_ancestors(payloads)
    recorder.forget()
    return record.describe(pending, payloads)


def is_dropped_draw(node: FxNode) -> bool:
    """Whether a node draws random numbers that nobody reads: PyTorch leaves such nodes in graphs
    that it cuts, and each draw would take numbers from the later ones."""
    tags = getattr(node.target, "tags", ())
    return not node.users and torch.Tag.nondeterministic_seeded in tags


def fake_of(node: FxNode) -> torch.Tensor:
    return node.meta.get("val")


def line_of(node: FxNode) -> str:
    """The user's line that called an operator, such as "model.py:31"; lines inside PyTorch and this
    package do not count. "" where it is unknown."""
    lines = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    lines = [line for line in lines if not line[0].startswith((TORCH, PACKAGE))]
    return f"{lines[-1][0]}:{lines[-1][1]}" if lines else ""


def plain_call(
    target: Callable[..., Any], args: tuple[list[Tensor | None], int], named: dict[Any, Any]
) -> Any:
    """The result of a Python function in a graph: arithmetic of sizes, or an item of a tuple."""
    if target is operator.getitem:
        return args[0][args[1]]
    return target(*args, **named)


SIZES: dict[str, Callable[..., Any]] = {
    "aten.sym_size.int": lambda x, axis: x.shape[axis],
    "aten.sym_numel.default": lambda x: x.size,
    "aten.sym_stride.int": lambda x, axis: row_major_stride(x, axis),
    "aten.sym_storage_offset.default": lambda x: 0,
}


def row_major_stride(x: Value, axis: int) -> int:
    step = 1
    for n in x.shape[axis % x.ndim + 1 :]:
        step *= n
    return step


def debug_unknown(unknown: dict[str, int]) -> None:
    if flags.debug and unknown:
        listed = ", ".join(f"{name} ({n})" for name, n in unknown.items())
        print(f"[gh] torch.compile: computed by PyTorch itself: {listed}")
