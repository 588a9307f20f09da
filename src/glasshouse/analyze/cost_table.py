"""Symbolic profile: what each node of a traced model costs, forward and backward, before it runs.

Each node runs by itself on tensors without storage, with gradients; the tape then says what it
saves for backward, and the FLOP counter what both passes take. Storages are counted once each."""

import html
import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from math import prod
from typing import Any

from glasshouse.analyze.machine import MachineProfile
from glasshouse.analyze.meta import meta_backend, placed, specs_in, without_storage
from glasshouse.analyze.torch_models import is_torch_module, of_torch
from glasshouse.analyze.trace import functions
from glasshouse.autograd.backward import pull_back
from glasshouse.autograd.tape import Leaf
from glasshouse.base import OptionError, Spec, check_known, having, type_name
from glasshouse.dispatch import Value, full, primitives, state
from glasshouse.ir.graph_module import GraphModule, Interpreter
from glasshouse.ir.node import IRNode, all_of, map_nodes, target_name
from glasshouse.nn.module import Parameter
from glasshouse.profile.counter import FlopCounter, Sums
from glasshouse.profile.text import scaled, table

VIEWS = ("reshape", "permute", "expand", "slice", "flip", "windows")
UNSTORED = ("full", "iota", "constant")
CONVENTIONS = ("exact", "colossal")
UNITS = (("Gb", 1 << 30), ("Mb", 1 << 20), ("Kb", 1 << 10))  # bytes, as ColossalAI writes them


@dataclass
class NodeCost:
    """One node. Sizes in bytes, times in ns without fusion.

    accumulate    what is saved for backward after this node, in all
    incremental   what this node adds to it
    output, temp  its new results: that somebody saves, and that nobody does
    param         parameters that it reads
    backward      gradients that its backward makes for its operands"""

    name: str
    op: str
    target: str
    module: str
    line: str
    shape: str
    accumulate: int = 0
    incremental: int = 0
    output: int = 0
    temp: int = 0
    param: int = 0
    backward: int = 0
    forward_flops: int = 0
    backward_flops: int = 0
    forward_bytes: int = 0
    backward_bytes: int = 0
    forward_ns: float = 0.0
    backward_ns: float = 0.0


NUMBERS = tuple(f.name for f in fields(NodeCost)[6:])


class Profiler(Interpreter):
    """Runs every node by itself, and notes what it costs."""

    def __init__(self, module: GraphModule, convention: str, machine: MachineProfile):
        super().__init__(module)
        self.convention, self.machine = convention, machine
        self.costs: dict[IRNode, NodeCost] = {}
        self.saved: dict[int, int] = {}  # bytes by the id of the storage
        self.saved_by: dict[IRNode, set[int]] = {}
        self.new_bytes: dict[IRNode, dict[int, int]] = {}
        self.kept: list = []  # payloads, so that ids stay theirs
        self.unknown: list[str] = []  # nodes of which no more is known than a shape
        self.params = {id(p.payload) for p in module.parameters()}
        self.params |= {id(b.payload) for b in module.buffers()}

    def run_node(self, node: IRNode):
        spec = node.meta.get("spec")
        cost = self.costs[node] = NodeCost(
            node.name,
            node.op,
            target_name(node.target),
            node.meta.get("module", ""),
            node.meta.get("line", ""),
            "" if spec is None else str(spec),
        )
        self.saved_by[node], self.new_bytes[node] = set(), {}
        if node.op in ("placeholder", "get_attr", "output"):
            value = super().run_node(node)
            for x in all_of(Value, value) if node.op == "placeholder" else ():
                self.new_bytes[node][id(x.payload)] = x.nbytes
            return value
        with FlopCounter() as forward:
            out = super().run_node(node)
        self.kept.append(out)
        results = all_of(Value, out)
        operands = [x for n in node.all_input_nodes for x in all_of(Value, self.env[n])]
        self.count_storage(node, results, operands)
        with FlopCounter() as backward:
            self.pull(cost, results, operands)
        self.count_work(node, cost, forward, backward, operands)
        read = [x for x in operands if isinstance(x, Parameter)]
        if node.op == "call_module":
            read += self.module.member(node.target).parameters()
        cost.param = sum({id(p): p.nbytes for p in read}.values())
        return map_nodes(out, alone, Value)

    def call_function(self, target, args, kwargs):
        """A registered function is its shape rule here."""
        if functions.get(target) is None:
            return super().call_function(target, args, kwargs)
        self.unknown.append(next(reversed(self.costs.values())).name)
        spec = specs_in("symbolic_profile", functions[target](*args, **kwargs))
        return placed(spec, state.backend)

    def count_storage(self, node: IRNode, results, operands) -> None:
        """What the node makes, and what its part of the tape keeps."""
        before = {id(storage(x.payload)) for x in operands}
        for x in results:
            root = storage(x.payload)
            if id(root) not in before and root is not None:
                self.new_bytes[node][id(root)] = root.spec.nbytes
        places = tape_behind(results)
        statistics = self.convention == "colossal" and operands and statistics_of(self, node)
        if statistics and places:  # there a normalisation keeps its operand and two numbers a row
            root, places = storage(operands[0].payload), []
            for key, nbytes in ((id(root), root.spec.nbytes), (-id(node), statistics)):
                self.saved.setdefault(key, nbytes)
                self.saved_by[node].add(key)
        for place in places:
            for data in (*place.saved, *place.saved_out) if hasattr(place, "saved") else ():
                root = storage(data)
                if root is not None and id(data) not in self.params and id(root) not in self.params:
                    self.saved.setdefault(id(root), root.spec.nbytes)
                    self.saved_by[node].add(id(root))

    def pull(self, cost: NodeCost, results, operands) -> None:
        outputs = [x for x in results if x.tape_entry is not None]
        if not outputs:
            return
        reached = (place.tensor() for place in tape_behind(outputs) if isinstance(place, Leaf))
        inputs = [x for x in reached if x is not None]
        seeds = [full(x.shape, 0, x.dtype) for x in outputs]
        pull_back("symbolic_profile", outputs, inputs, seeds, True, False)
        own = {id(x) for x in operands if not isinstance(x, Parameter)}
        cost.backward = sum(x.nbytes for x in inputs if id(x) in own)

    def count_work(self, node: IRNode, cost: NodeCost, forward, backward, operands) -> None:
        if self.convention == "colossal":
            flops = colossal_flops(self, node, forward, backward, operands)
            cost.backward = sum(x.nbytes for x in operands if not isinstance(x, Parameter))
        else:
            flops = forward.total("all"), backward.total("all")
        cost.forward_flops, cost.backward_flops = flops
        cost.forward_bytes, cost.backward_bytes = forward.bytes, backward.bytes
        cost.forward_ns, cost.backward_ns = (time_of(c, self.machine) for c in (forward, backward))

    def finish(self) -> list[NodeCost]:
        counted: set[int] = set()
        total = 0
        for node, cost in self.costs.items():
            saved_later = {key for key in self.new_bytes[node] if key in self.saved}
            cost.output = sum(self.new_bytes[node][key] for key in saved_later)
            cost.temp = sum(n for key, n in self.new_bytes[node].items() if key not in saved_later)
            added = (self.saved_by[node] | saved_later) - counted
            cost.incremental = sum(self.saved[key] for key in added)
            counted |= added
            total += cost.incremental
            cost.accumulate = total
            if self.convention == "colossal" and len(counted) == len(added):
                cost.incremental = 0  # the first row shows no increment there
        return list(self.costs.values())


def storage(data) -> Any:
    """The payload whose memory a payload is a view of; None for what needs no memory."""
    while data is not None and getattr(data, "value", None) is None and data.inputs:
        if data.op not in VIEWS:
            return data
        data = data.inputs[0]
    call = getattr(data, "call", None)
    return None if call is not None and call.name in UNSTORED else data


def alone(x: Value) -> Value:
    """The same value as the beginning of a tape of its own."""
    if isinstance(x, Parameter) or x.tape_entry is None:
        return x
    return x.detach().requires_grad_()


def tape_behind(outputs) -> list:
    """The nodes and leaves of the tape that outputs depend on."""
    reached: dict[int, Any] = {}
    stack = [x.tape_entry for x in outputs if x.tape_entry is not None]
    while stack:
        place = stack.pop()
        if id(place) not in reached:
            reached[id(place)] = place
            parents = () if isinstance(place, Leaf) else place.parents
            stack += [parent[0] for parent in parents if parent is not None]
    return list(reached.values())


def time_of(counter: FlopCounter, machine: MachineProfile) -> float:
    """ns of what was counted, each call a kernel of its own."""
    counter.digest()
    return sum(n * machine.ns_of_call(call) for (call, _), (n,) in counter.counts.items())


# -- ColossalAI's convention --------------------------------------------------------------------

# Take 5 operations for each element of the first operand, forward and backward. Source: its
# formulas, with a multiply-add as 1.
NORMS = ("LayerNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm")
POOLS = ("MaxPool", "AvgPool", "AdaptiveAvgPool", "AdaptiveMaxPool")
ATTENTION = ("MultiheadAttention", "ScaledDotProductAttention")


def colossal_flops(profiler, node: IRNode, forward, backward, operands) -> tuple[int, int]:
    macs = tuple(counter.total() // 2 for counter in (forward, backward))
    size = prod(operands[0].shape) if operands else 0
    layer = profiler.module.member(node.target) if node.op == "call_module" else None
    words = target_name(node.target).split("_")  # those of "layer_norm" are those of LayerNorm
    name = type(layer).__name__ if layer else "".join(map(str.title, words))
    if name.startswith(POOLS):
        return size, prod(node.meta["spec"].shape)
    if name in ATTENTION:  # softmax beside the products: read and written, 4 bytes each
        scores = sum(row.bytes // 8 for row in forward.rows("all") if row.primitive == "exp")
        return macs[0] + scores, macs[1] + scores
    kinds = {primitives[row.primitive].kind for row in forward.rows("all")}
    if any(macs) or kinds <= {"movement", "create"} or name == "Dropout" and layer and layer.p == 0:
        return macs
    each = 5 if name in NORMS else 1
    if layer and name.endswith("Norm") and getattr(layer, "weight", None) is None:
        each = 4
    return each * size, each * size


def statistics_of(profiler, node: IRNode) -> int:
    """Bytes of the means and deviations that ATen's normalisations keep; 0 for other nodes."""
    layer = profiler.module.member(node.target) if node.op == "call_module" else None
    if not type(layer).__name__.startswith(("LayerNorm", "BatchNorm")):
        return 0
    spec = node.meta["spec"]
    shape = getattr(layer, "normalized_shape", None)
    row = prod(shape) if shape else spec.size // spec.shape[1]
    return 2 * 4 * spec.size // row


def colossal_size(nbytes: float) -> str:
    for unit, size in UNITS:
        if nbytes >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{int(nbytes)} b"


def colossal_count(flops: float) -> str:
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if flops > size:
            return f"{flops / size:.2f} {unit}FLOPs"
    return f"{int(flops)} FLOPs"


# -- the table -----------------------------------------------------------------------------------


class CostTable:
    """The rows of `symbolic_profile`, in the order of the graph; prints as a table. `unknown` names
    the nodes whose FLOPs, time and gradients nobody knows."""

    def __init__(self, rows: list[NodeCost], convention: str, unknown: list[str]):
        self.rows, self.convention, self.unknown = rows, convention, unknown

    def __iter__(self):
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: int | str) -> NodeCost:
        if isinstance(key, int):
            return self.rows[key]
        named = {row.name: row for row in self.rows}
        return named[check_known("symbolic_profile", "the name of a node", key, named)]

    def total(self, column: str) -> float:
        """The sum of a column; of `accumulate`, its last value."""
        check_known("total", "a column", column, NUMBERS)
        if column == "accumulate":
            return self.rows[-1].accumulate if self.rows else 0
        return sum(getattr(row, column) for row in self.rows)

    def sorted(self, column: str) -> "CostTable":
        """The rows with the largest in a column first."""
        self.total(column)
        rows = sorted(self.rows, key=lambda row: -getattr(row, column))
        return CostTable(rows, self.convention, self.unknown)

    def table(self, row_limit: int | None = None) -> str:
        """The rows and their totals as text."""
        size: Callable = colossal_size if self.convention == "colossal" else size_of
        count: Callable = colossal_count if self.convention == "colossal" else scaled
        shown = [(name, count if "flops" in name else size) for name in NUMBERS[:8]]
        lines = [
            [row.name, row.op, row.shape, *(show(getattr(row, c)) for c, show in shown)]
            for row in self.rows[:row_limit]
        ]
        lines.append(["total", "", "", *(show(self.total(c)) for c, show in shown)])
        heads = ["node", "op", "shape", *(c.replace("_", " ") for c, _ in shown)]
        note = f"not counted: {', '.join(self.unknown)}\n" if self.unknown else ""
        return table(heads, lines, left=3, limit=44) + "\n" + note

    def modules(self, depth: int = 2) -> str:
        """The sums by module as text."""
        sums, columns = Sums(), ("incremental", "temp", "param", "forward_flops", "backward_flops")
        for row in self.rows:
            path = ".".join(row.module.split(".")[:depth])
            sums.add(path or "(none)", *(getattr(row, c) for c in columns))
        lines = [[path, *map(size_of, n[:3]), *map(scaled, n[3:])] for path, n in sums.items()]
        return table(["module", *(c.replace("_", " ") for c in columns)], lines) + "\n"

    def __str__(self):
        return self.table()

    def to_dicts(self) -> list[dict]:
        """A dict for each row."""
        return [dict(vars(row)) for row in self.rows]

    def to_json(self) -> str:
        return json.dumps(self.to_dicts())

    def to_pandas(self):
        """A pandas DataFrame; pandas must be installed."""
        import pandas

        return pandas.DataFrame(self.to_dicts())

    def to_html(self) -> str:
        """A table for a web page."""
        head = "".join(f"<th>{f.name}</th>" for f in fields(NodeCost))
        cells = ([f"<td>{html.escape(str(v))}</td>" for v in vars(row).values()] for row in self)
        body = "".join(f"<tr>{''.join(own)}</tr>" for own in cells)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def size_of(nbytes: float) -> str:
    return scaled(nbytes, "B")


def symbolic_profile(
    gm: GraphModule,
    *args,
    verbose: bool = False,
    convention: str = "exact",
    machine: MachineProfile | str = "cpu2",
) -> CostTable:
    """What each node of a traced model costs for arguments like these (tensors, Specs or (shape,
    dtype)); also in each node's `meta["cost"]`.

    convention  "exact", or "colossal": ColossalAI's columns, with a multiply-add as 1
    verbose     print the table

    Raises: OptionError for an unknown convention, or what was not traced
    Example:
        >>> import glasshouse as gh
        >>> from glasshouse.analyze import symbolic_trace
        >>> spec = ((8, 4), "float32")
        >>> gm = symbolic_trace(gh.nn.Sequential(gh.nn.Linear(4, 2)), [spec])
        >>> cost_table = symbolic_profile(gm, spec)
        >>> cost_table.total("forward_flops"), cost_table.total("param")
        (144, 40)
    """
    where = "symbolic_profile"
    check_known(where, f"one of {', '.join(CONVENTIONS)}", convention, CONVENTIONS)
    profile = MachineProfile.load(machine)
    if is_torch_module(gm) and hasattr(gm, "graph"):
        cost_table = of_torch("node_costs").profiled(gm, args, convention, profile)
        if verbose:
            print(cost_table)
        return cost_table
    if not isinstance(gm, GraphModule):
        raise OptionError(where, "a traced module", type_name(gm), "Use symbolic_trace.")
    names = [node.target for node in gm.graph.find("placeholder") if not node.args]
    if len(args) != len(names) and "*" not in "".join(names):
        expected = f"{len(names)} arguments ({', '.join(names)})"
        raise OptionError(where, expected, len(args), "Give what was traced, in order.")
    backend = meta_backend()
    with having(state, backend=backend), without_storage(gm, None, backend):
        specs = [specs_in(where, x) for x in args]
        inputs = map_nodes(specs, lambda spec: placed(spec, backend), Spec)
        profiler = Profiler(gm, convention, profile)
        profiler.run(*inputs)
    cost_table = CostTable(profiler.finish(), convention, profiler.unknown)
    for node, cost in profiler.costs.items():
        node.meta["cost"] = cost
    if verbose:
        print(cost_table)
    return cost_table
