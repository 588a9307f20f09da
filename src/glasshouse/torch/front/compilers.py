"""Compilers for graphs of PyTorch calls: uncompiled, as torch.fx graphs, as our Programs.

A graph of a whole training step has calls that no compiler takes: `backward()`, reads of gradients,
modes, numbers in tensors. It is compiled in segments: those calls run uncompiled, and the calls
between them are compiled when they first run."""

import functools
import inspect
import itertools
import operator
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from time import perf_counter_ns
from typing import Any

import numpy as np
import torch

from glasshouse.base.errors import OptionError
from glasshouse.capture.compilers import printed
from glasshouse.capture.programs.budget import BudgetCompiler
from glasshouse.capture.programs.program_compiler import compile_to_program
from glasshouse.capture.programs.recording_interpreter import eager
from glasshouse.capture.rules.operators import IN_PLACE, is_in_place
from glasshouse.dispatch.bind import state, watchers
from glasshouse.dispatch.watch import CAPTURED, tell
from glasshouse.ir.graph import IRGraph
from glasshouse.ir.graph_module import GraphModule
from glasshouse.ir.node import WRITING, IRNode, all_of, map_nodes
from glasshouse.torch.aten.recurrent_operators import dtype_of_products
from glasshouse.torch.front.backward_passes import Passes, is_pass, passes_through
from glasshouse.torch.front.effects import draws, written_places
from glasshouse.torch.front.names import RAISES_FOR_INTEGERS, STATE_SETTERS, WRITES, name_of
from glasshouse.torch.front.numbers import (
    add_scaling,
    is_number,
    note_inputs,
    numbers_first,
    numbers_of,
    takes_tensors,
)
from glasshouse.torch.patches.dynamo import find_backend
from glasshouse.torch.patches.fakes import FakeTensorMode
from glasshouse.torch.patches.guards import TracingContext, tracing
from glasshouse.torch.patches.modules import write_constants_as
from glasshouse.torch.patches.tensors import storage_address
from glasshouse.torch.scopes.module_scope import placed_as
from glasshouse.torch.scopes.state_modes import ModesKept, StateModes
from glasshouse.torch.tensors.access import native

DIVISIONS = RAISES_FOR_INTEGERS - {"pow"}
# The first raises for values that are no probabilities (NaN, say); its decomposition does not.
# The sizes of the others depend on lengths.
NEVER_COMPILED = {"binary_cross_entropy", "_pack_padded_sequence", "_pad_packed_sequence"}
RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu"}
# Calls that read each operand many times, so that they may write to none of them.
PRODUCTS = set("addmm addmv addbmm baddbmm addr mm bmm mv matmul einsum".split())
FEWEST_CALLS = 2  # in a segment that is worth compiling
FEWEST_SCALED = 8  # in one with numbers among its inputs, which cost time


class SegmentedGraph:
    """A graph that runs some of its calls uncompiled. It reports its time to watchers, and restores
    the pass that it began in."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self.inside = run

    def __call__(self, *args: Any) -> tuple[Any, ...] | None:
        begin_ns = perf_counter_ns() if watchers else 0
        before = state.phase
        try:
            return self.inside(*args)
        finally:
            state.phase = before
            if begin_ns:
                tell("region", CAPTURED, begin_ns)


class AliasedInputs:
    """A compiled graph that writes to inputs, with a plain one. Compilers assume that the same
    inputs share memory in each call; the plain graph runs where others do."""

    def __init__(self, compiled: Any, plain: Callable[..., Any], example_inputs: list[Any]) -> None:
        self.compiled, self.plain = compiled, plain
        self.pattern: list[tuple[int, int]] | None = aliases(example_inputs)
        self.shares: bytes | None = None  # the same pattern, as C reads it

    def __call__(self, *args: Any) -> Any:
        shares = sharing(args)
        if shares is None or shares != self.shares:
            if self.pattern is None or aliases(args) != self.pattern:
                return self.plain(*args)
            self.shares = shares
        return self.compiled(*args)


class Segment:
    """Calls of a graph between those that no compiler takes; compiled when they first run. Where
    the compiler raises, they run uncompiled, and `on_error` gets the error."""

    def __init__(
        self, compiler: Any, graph: torch.fx.GraphModule, is_writing: bool, on_error: Any
    ) -> None:
        self.compiler = compiler
        self.graph = graph
        self.is_writing = is_writing
        self.on_error = on_error
        self.run: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        if self.run is None:
            try:
                self.run = compiled_call(self.compiler, self.graph, list(args), self.is_writing)
            except OptionError:  # a budget that cannot be met
                raise
            except Exception as error:
                self.on_error(error)
                self.run = self.graph.forward
        return self.run(*args)


def aliases(inputs: Sequence[Any]) -> list[tuple[int, int]] | None:
    """For each tensor the number of the first one that shares its storage, and the bytes from that
    one's first element to its own. Guards fix sizes and strides, so this decides all overlaps.
    None where storages overlap, since compilers assume that they do not."""
    first: dict[int, tuple[int, int]] = {}
    ranges, pattern = [], []
    tensors = (x for x in inputs if isinstance(x, torch.Tensor) and x.layout is torch.strided)
    for i, x in enumerate(tensors):
        begin = x.storage_offset() * x.element_size()
        storage = x.untyped_storage()
        number, its_begin = first.setdefault(storage_address(storage), (i, begin))
        pattern.append((number, begin - its_begin))
        begins_at = storage.data_ptr() if number == i and x.device.type != "meta" else 0
        if begins_at and storage.nbytes():  # it has contents
            ranges.append((begins_at, begins_at + storage.nbytes()))
    return None if any(b[0] < a[1] for a, b in itertools.pairwise(sorted(ranges))) else pattern


def sharing(args: tuple[Any, ...]) -> bytes | None:
    """`aliases` in bytes, read in C: for equal dtypes they are equal only where `aliases` are.
    None where C cannot read them, or storages overlap."""
    module = native()
    return None if module is None else module.sharing(args)


def registered_compiler(name: str) -> Callable[..., Any] | None:
    """The backend of torch.compile with a name; None if there is none."""
    return find_backend(name) if name in compiler_names() else None


def compiler_names() -> list[str]:
    """The names of torch.compile's backends."""
    return torch.compiler.list_backends(exclude_tags=())


def takes_ours(compiler: Any) -> bool:
    """Whether the first parameter of a compiler is annotated as our GraphModule."""
    if compiler is compile_to_program:
        return False
    try:
        first = next(iter(inspect.signature(compiler).parameters.values()), None)
    except (TypeError, ValueError):
        return False
    note = getattr(first, "annotation", None)
    return note is GraphModule or isinstance(note, str) and note.endswith("GraphModule")


def compile_graph(compiler: Any, module: GraphModule, example_inputs: list[Any]) -> Any:
    """A function that runs a captured graph. A compiler whose first parameter is annotated as our
    GraphModule gets that, all others a torch.fx.GraphModule, as TorchDynamo's do."""
    at_entry, now = module.graph.entry_modes, StateModes()
    if compiler is printed:
        module.graph.print_tabular()
    drop_unread_numbers(module.graph)
    nodes = module.graph.nodes
    note_inputs(nodes, example_inputs)
    is_plain = any(map(is_differentiated_again, nodes)) or reads_kept_casts(nodes, at_entry)
    if compiler in (eager, printed) or is_plain:
        run = fx_module(module).forward
    elif takes_ours(compiler):
        run = compiler(module, example_inputs)
    elif (passes := passes_apart(nodes)) is not None:
        run = in_segments(compiler, module, example_inputs, passes)
    else:
        graph, is_writing = fx_module(module), any(map(writes, nodes))
        if is_own(compiler):  # a loop whose sizes grow never runs it; a budget's error needs a run
            segment = Segment(compiler, graph, is_writing, module.graph.on_error)
            return lambda *args: segment(*args)
        at_entry.set()
        try:
            run = compiled_call(compiler, graph, example_inputs, is_writing)
        finally:
            now.set()
    changes = any(node.target in STATE_SETTERS for node in nodes if node.op == "call_function")
    return ModesKept(run, at_entry) if changes else run


def is_own(compiler: Any) -> bool:
    """Whether a compiler makes our Programs."""
    return compiler is compile_to_program or isinstance(compiler, BudgetCompiler)


def drop_unread_numbers(graph: IRGraph) -> None:
    """Remove numbers from a graph that nothing reads: a check computes the same."""
    for node in reversed(list(graph.nodes)):
        if node.meta.get("hidden") and not node.users:
            graph.erase_node(node)


def compiled_call(compiler: Any, graph: Any, example_inputs: list[Any], is_writing: bool) -> Any:
    """The function that a compiler returns for a torch.fx graph."""
    is_ours = is_own(compiler)
    if is_ours:
        budget = getattr(compiler, "budget", None)
        # These import TorchDynamo, which takes a second.
        compiler = import_module("glasshouse.torch.backend.entry_point").glasshouse
        to_keep = import_module("glasshouse.torch.front.captured_key").fakes_for
        if budget is not None:
            compiler = functools.partial(compiler, options={"memory_budget": budget})
    # PyTorch's partitioner draws numbers. In the context AOTAutograd notes which results are saved
    # for the backward pass alone: their Program chooses their layout.
    fakes, _alive = FakeTensorMode(), []
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")
        if is_ours:
            fakes, _alive = to_keep(graph, example_inputs, aliases)
        with tracing(TracingContext(fakes)):
            compiled = compiler(graph, example_inputs)
    fakes.fake_tensor_converter.meta_converter.describer.lookup_tensor.clear()  # for swap_tensors
    return AliasedInputs(compiled, graph.forward, example_inputs) if is_writing else compiled


def is_differentiated_again(node: IRNode) -> bool:
    """Whether a node computes gradients that have gradients (`create_graph`), which AOTAutograd's
    graphs do not support."""
    if not is_pass(node):
        return False
    place = 4 if node.target is torch.autograd.grad else 3
    create_graph = node.args[place] if len(node.args) > place else node.kwargs.get("create_graph")
    return bool(create_graph)


def writes(node: IRNode) -> bool:
    """Whether a node may write to a tensor."""
    name = name_of(node.target)
    in_place = is_in_place(node.target) or name in WRITES or name in WRITING
    by_schema = draws(node.target, node.args) or written_places(node.target)
    return in_place or bool(by_schema) or "out" in node.kwargs


# -- graphs with calls that no compiler takes ------------------------------------------------------


def is_left(node: IRNode) -> bool:
    """Whether no compiler takes a call: it runs uncompiled."""
    if not node.op.startswith("call_"):
        return False
    target = node.target
    if node.meta.get("hidden") or numbers_of(node) and not takes_tensors(node):
        return True
    if may_divide_by_zero(node) or reads_what_it_writes(node):
        return True
    if is_loop_of_eagers(node) or is_drawn_from(node):
        return True
    if (
        is_pass(node)
        or target in ("requires_grad_", setattr)
        or target in STATE_SETTERS
        or node.kwargs.get("requires_grad")  # its result is a leaf
        or name_of(target) in NEVER_COMPILED
    ):
        return True
    if target is operator.getitem and isinstance(node.args[0], IRNode):
        return is_left(node.args[0])
    return target is getattr and node.args[1] in ("grad", "data")


def is_drawn_from(node: IRNode) -> bool:
    """Whether a call is `random_(from, to)`: torch.fx cannot write its overload "from" as
    Python."""
    if name_of(node.target) != "random_":
        return False
    return len(node.args) > 1 and len(node.args) + ("to" in node.kwargs) > 2


def is_loop_of_eagers(node: IRNode) -> bool:
    """Whether a call is a recurrent layer that our operators leave to eager: for its dtypes, or for
    a PackedSequence, where the fourth argument is no flag."""
    if name_of(node.target) not in RECURRENT:
        return False
    is_packed = len(node.args) < 4 or not isinstance(node.args[3], bool)
    dtypes = {x.meta.get("dtype") for x in node.all_input_nodes}
    return is_packed or dtype_of_products(dtypes, node.meta["autocast"]) is None


def written_by(node: IRNode) -> list[IRNode]:
    """The operands that a call writes to, as its name, its schema or `out` says."""
    in_place = is_in_place(node.target) or name_of(node.target) in WRITING
    places = written_places(node.target) or (0,) * in_place
    targets = [node.args[i] for i in places if i < len(node.args)]
    return all_of(IRNode, [targets, node.kwargs.get("out")])


def reads_what_it_writes(node: IRNode) -> bool:
    """Whether a call writes to memory that it reads elsewhere, or to one place several times. Only
    PyTorch defines the result."""
    targets = written_by(node)
    if any(x.meta.get("overlaps") for x in targets):
        return True
    if name_of(node.target) == "setitem" and is_view_again(*node.args):
        return False
    memories = {x.meta.get("memory", x) for x in targets}
    if name_of(node.target).strip("_") in PRODUCTS:
        read = all_of(IRNode, node.args[0 if "out" in node.kwargs else 1 :])
    else:
        read = [x for x in node.all_input_nodes if x not in targets]
    return any(x.meta.get("memory", x) in memories for x in read)


def is_view_again(x: IRNode, key: Any, value: Any) -> bool:
    """Whether x[key] = value is the last part of x[key] += …: the value is there already."""
    is_read = isinstance(value, IRNode) and value.target is operator.getitem
    return is_read and value.args == (x, key)


def reads_kept_casts(nodes: list[IRNode], before: StateModes) -> bool:
    """Whether a weight is read under autocast after a write to it: PyTorch keeps its cast until the
    outermost region ends, of which a compiler knows nothing. A region that is open `before` the
    call spans several calls."""
    changed: set[int | None] = set()
    for node in [*nodes, *nodes] if before.autocast[0] and before.cache else nodes:
        if node.target is torch.clear_autocast_cache:
            changed.clear()
        if not node.meta.get("keeps_casts"):
            continue
        if targets := written_by(node):
            changed |= {x.meta.get("memory") for x in targets if x.meta.get("requires_grad")}
        elif any(x.meta.get("memory") in changed for x in node.all_input_nodes):
            return True
    return False


def may_divide_by_zero(node: IRNode) -> bool:
    """Whether a call divides whole numbers by a tensor of them: PyTorch raises for a 0, Programs do
    not."""
    if name_of(node.target).strip("_").removeprefix("i") not in DIVISIONS:
        return False
    divisors = [*node.args[1:], *node.kwargs.values()]
    dtypes = [x.meta.get("dtype") for x in (node, *node.all_input_nodes)]
    return any(isinstance(x, IRNode) for x in divisors) and not any(
        x is not None and (x.is_floating_point or x.is_complex) for x in dtypes
    )


def passes_apart(nodes: list[IRNode]) -> dict[IRNode, Passes] | None:
    """The passes through each call of a graph that cannot be compiled as one; None if it can."""
    passes = passes_through(nodes, writes)
    is_one = len({*passes.values()}) <= 1
    return None if is_one and not any(is_left(x) or numbers_of(x) for x in nodes) else passes


def in_segments(
    compiler: Any, module: GraphModule, example_inputs: list[Any], passes: dict[IRNode, Passes]
) -> Callable[..., Any]:
    """A function that runs a graph in segments: some calls run uncompiled, the others are compiled
    together where the same passes go through them."""
    graph, new_nodes, waiting = torch.fx.Graph(), dict[Any, Any](), list[Any]()
    nodes = []
    for node in module.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            new_nodes[node] = graph.create_node(node.op, node.target, (), {}, node.name)
        else:
            nodes.append(node)
    ordered = numbers_first(nodes, is_left, writes)
    through: Passes | None = None  # the passes through the waiting calls
    running = None  # the node that began a pass, unless it is the forward pass
    for node in ordered:
        is_compiled = node.op.startswith("call_") and not is_left(node)
        node_passes = passes.get(node)
        differs = node_passes is not None and through is not None and node_passes != through
        if not is_compiled or differs:
            running = tell_pass(graph, running, waiting)
            add_segment(compiler, graph, new_nodes, waiting, module.graph.on_error)
            waiting, through = [], None
        if is_compiled:
            waiting.append(node)
            through = through if node_passes is None else node_passes
        else:
            running = tell_pass(graph, running, [node])
            add_node(graph, new_nodes, node)
    run = SegmentedGraph(torch.fx.GraphModule(members_of(module), graph).forward)
    if ordered == nodes:
        return run
    return AliasedInputs(run, fx_module(module).forward, example_inputs)


def tell_pass(graph: torch.fx.Graph, running: Any, nodes: list[IRNode]) -> Any:
    """Assign the calls that are added from here on to the pass of some nodes. `running` is the node
    that began the current pass; returns the node that begins the new one, None for a forward
    pass."""
    phases = ("forward" if x.op == "output" else x.meta.get("phase") for x in nodes)
    phase = next(filter(None, phases), None)
    before = "forward" if running is None else running.args[0]
    if phase is None or phase == before:
        return running
    if running is not None:
        graph.call_function(end_pass, (before, running))
    return None if phase == "forward" else graph.call_function(begin_pass, (phase,))


def begin_pass(phase: str) -> int:
    """Begin a pass; returns the time, or 0 if nobody watches."""
    state.phase = phase
    return perf_counter_ns() if watchers else 0


def end_pass(phase: str, begin_ns: int) -> None:
    """End a pass, and report it."""
    state.phase = "forward"
    if begin_ns:
        tell("region", phase, begin_ns)


def add_node(graph: torch.fx.Graph, new_nodes: dict[Any, Any], node: IRNode) -> None:
    """Add a node as it is to a torch.fx graph."""
    args, named = (map_nodes(x, new_nodes.__getitem__) for x in (node.args, node.kwargs))
    target = "output" if node.op == "output" else node.target
    if node.op == "call_function" and args and not isinstance(args[0], torch.fx.Node):
        target = IN_PLACE.get(target, target)  # torch.fx would write 0 += x
    with placed_as(node, graph):
        new_nodes[node] = graph.create_node(node.op, target, args, named, node.name)
    if "dtype" in node.meta:
        new_nodes[node].meta["dtype"] = node.meta["dtype"]


def add_segment(
    compiler: Any, graph: torch.fx.Graph, new_nodes: Any, nodes: list[IRNode], on_error: Any
) -> None:
    """Add calls as one compiled segment, or uncompiled where they are few."""
    few = FEWEST_SCALED if any(map(numbers_of, nodes)) else FEWEST_CALLS
    if len(nodes) < few:
        for node in nodes:
            add_node(graph, new_nodes, node)
        return
    inside = set(nodes)
    inputs = [*dict.fromkeys(x for n in nodes for x in n.all_input_nodes if x not in inside)]
    results = [n for n in nodes if any(user not in inside for user in n.users)]
    dtypes = {node.args[0].meta["dtype"] for node in nodes if numbers_of(node)}
    given_as = dtypes.pop() if len(dtypes) == 1 else torch.float64  # each call then casts it
    inside_graph = segment_graph(nodes, inputs, results, given_as)
    segment = Segment(compiler, inside_graph, any(map(writes, nodes)), on_error)
    numbers = [i for i, x in enumerate(inputs) if is_number(x)]

    def run_segment(*args):
        if not numbers:
            return segment(*args)
        values = list(args)
        tensors = torch.tensor([values[i] for i in numbers], dtype=given_as).unbind()
        for i, tensor in zip(numbers, tensors, strict=True):
            values[i] = tensor
        return segment(*values)

    whole = graph.call_function(run_segment, tuple(new_nodes[x] for x in inputs))
    for i, node in enumerate(results):
        new_nodes[node] = graph.call_function(operator.getitem, (whole, i))


def segment_graph(
    nodes: list[IRNode], inputs: list[IRNode], results: list[IRNode], given_as: torch.dtype
) -> torch.fx.GraphModule:
    """Some calls as a separate graph, whose number inputs are tensors of a dtype."""
    graph = torch.fx.Graph()
    new_nodes = {node: graph.placeholder(node.name) for node in inputs}
    for node in nodes:
        if numbers_of(node):
            add_scaling(graph, new_nodes, node, given_as)
        else:
            add_node(graph, new_nodes, node)
    graph.output(tuple(new_nodes[x] for x in results))
    return torch.fx.GraphModule({}, graph)


# The repr of NumPy's numbers needs this import in torch.fx's Python.
write_constants_as("np", "import numpy as np", np)


def fx_module(module: GraphModule) -> torch.fx.GraphModule:
    """A whole graph as torch.fx has it."""
    graph, new_nodes = torch.fx.Graph(), dict[Any, Any]()
    for node in module.graph.nodes:
        add_node(graph, new_nodes, node)
    return torch.fx.GraphModule(members_of(module), graph)


def members_of(module: GraphModule) -> dict[Any, Any]:
    """The tensors that are members of a graph, by name."""
    return {x.target: module.member(x.target) for x in module.graph.find("get_attr")}
