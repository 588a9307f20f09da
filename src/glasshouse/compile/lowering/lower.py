"""From graph to steps: which values get memory, in which layout, and which are recomputed by users.

A value gets memory (a `PlannedBuffer`) if it is an output, an operand or result of a step that is
no fused kernel, the result of a reduction, or costs more to compute again than to load. All others
are expressions that their users compute for themselves. The target's lowerers decide which nodes a
step computes (`lowerer.py`)."""

from collections import Counter
from math import prod
from typing import Any

from glasshouse.base.shape import Shape, Spec
from glasshouse.compile.kernels.c_text import is_written, numbers_of
from glasshouse.compile.lowering.complex_parts import pairs_of, reread
from glasshouse.compile.lowering.joined_order import order_for_chain
from glasshouse.compile.lowering.lowerer import Claim, claim_nodes, graph_of_node, remaining_nodes
from glasshouse.compile.steps import view as views
from glasshouse.compile.steps.expr import Expr, Exprs
from glasshouse.compile.steps.steps import (
    MAX_BUFFERS,
    MAX_ROOTS,
    FusedKernel,
    LoweredStep,
    PlannedBuffer,
    Root,
    innermost,
    order_of,
    order_of_view,
    share_an_operand,
)
from glasshouse.compile.steps.view import View, strides_of
from glasshouse.graph.graph import Graph, Node

REPEAT_COST = 40  # an expression with several users is computed again up to this cost …
REPEAT_LOADS = 2  # … and up to this many loads of the size of its domain
MAX_COST, MAX_LOADS, MAX_SIZE = 200, 16, 200  # of an expression without separate memory
REPEATED_COST = 6  # a value that is repeated is stored from this cost on …
MANY_TURNED = 1 << 16  # elements from which on operands in another order are reordered
FEW_REPEATS, LARGE_DOMAIN = 16, 1 << 14  # … if it is read so often, repeated to so many elements
REDUCTIONS = ("sum", "prod", "max", "min", "any", "all")
MOVEMENT = ("reshape", "permute", "expand", "slice", "flip", "windows")


class Lowering:
    """Walks a graph once, and makes fused kernels and the lowerers' steps in its order."""

    def __init__(self, graph: Graph, target: Any) -> None:
        self.graph = graph
        self.target = target
        self.exprs: Exprs = Exprs()
        self.buffers: list[PlannedBuffer] = []
        self.steps: list[FusedKernel | LoweredStep] = []
        # The expressions that users of a node compute; None for pairs of parts, which need none.
        self.expr: dict[int, Any] = dict.fromkeys(pairs_of(graph))
        self.uses: Counter[Any] = Counter(x.number for node in graph.nodes for x in node.inputs)
        moved = (node for node in graph.nodes if node.op in ("reshape", "permute"))
        self.turned: dict[Any, Node] = {
            node.inputs[0].number: node for node in moved if node.host is None
        }
        self.is_output: set[int] = {node.number for node in graph.outputs}
        self.is_row_major_output: set[int] = {
            node.number for i, node in enumerate(graph.outputs) if i not in target.free_outputs
        }
        self.claims: dict[int, Claim] = claim_nodes(graph, target.lowerers)
        self.in_memory: set[int] = self.operands_in_memory() | graph.stored
        self.is_summed: set[int] = self.summed_later()
        self.outputs: list[View] = []
        self.results: dict[int, list[PlannedBuffer]] = {}  # of nodes with several results
        self.row_reductions: set[PlannedBuffer] = set()  # along the innermost axis in memory

    def operands_in_memory(self) -> set[int]:
        """Nodes that a step other than a fused kernel reads, perhaps through movement."""
        numbers: set[int] = set()
        for claim in self.claims.values():
            if claim.lowerer is not self.target.fused:
                for x in claim.reads or ():
                    while x.op in MOVEMENT and x.host is None:
                        x = x.inputs[0]
                    numbers.add(x.number)
        return numbers

    def summed_later(self) -> set[int]:
        """Nodes that reductions read, directly or through elementwise calls."""
        numbers: set[int] = set()
        for node in reversed(self.graph.nodes):
            follows, claim = (
                node.op in REDUCTIONS or node.number in numbers,
                self.claims.get(node.number),
            )
            if follows and claim is not None and claim.lowerer is self.target.fused:
                numbers.update(x.number for x in node.inputs if x.op not in MOVEMENT)
        return numbers

    def run(self) -> "Lowering":
        for node in self.graph.nodes:
            self.visit(node)
        free = self.target.free_outputs
        self.outputs = [
            self.output_view(node, i in free) for i, node in enumerate(self.graph.outputs)
        ]
        return self

    def buffer(
        self, spec: Spec, order: tuple[int, ...] | None = None, node: Node | None = None
    ) -> PlannedBuffer:
        buffer = PlannedBuffer(len(self.buffers), spec, order, node)
        self.buffers.append(buffer)
        return buffer

    # -- one node ------------------------------------------------------------------------------

    def visit(self, node: Node) -> None:
        """Give the node an expression, and a step and memory if it needs them."""
        if node.op == "input":
            buffer = self.buffer(node.spec, node=node)
            buffer.place, buffer.at = "input", node.attrs["number"]
            self.expr[node.number] = self.exprs.load(buffer.view())
        elif node.op == "pick":
            picked = self.results[node.inputs[0].number][node.attrs["number"]]
            self.expr[node.number] = self.exprs.load(picked.view())
        elif (claim := self.claims[node.number]).last is node:
            self.plan_claim(claim)

    def plan_claim(self, claim: Claim) -> None:
        """Plan the steps of a claim; if its lowerer cannot after all, those of others."""
        if not claim.lowerer.plan(self, claim):
            for node in claim.nodes:
                self.plan_without(claim.lowerer, node)
        elif len(claim.nodes) > 1:
            self.plan_remaining(claim)

    def plan_without(self, lowerer: Any, node: Node) -> None:
        """Plan a node by the first lowerer after `lowerer` that takes it alone."""
        lowerers = self.target.lowerers
        for other in lowerers[lowerers.index(lowerer) + 1 :]:
            claims = claim_nodes(graph_of_node(node), [other])
            if claims and other.plan(self, claims[node.number]):
                return
        raise AssertionError(f"lower: no lowerer of {self.target.name} takes {node!r}")

    def plan_remaining(self, claim: Claim) -> None:
        """Plan, by others, the nodes of a claim that are needed beside its results."""
        within = Counter(x.number for node in claim.nodes for x in node.inputs)
        numbers = {node.number for node in claim.nodes}
        outside = {n for n in numbers if n in self.is_output or self.uses[n] > within[n]}
        for node in remaining_nodes(claim, outside):
            self.plan_without(claim.lowerer, node)

    def plan_fused(self, node: Node) -> None:
        """Make a node part of the fused kernels that use it, or start one where it needs memory."""
        op = node.op
        if op in MOVEMENT:
            self.visit_movement(node)
        elif op in REDUCTIONS:
            self.visit_reduction(node)
        elif op in ("pad", "concatenate"):
            if node.number not in self.expr:
                (self.visit_pad if op == "pad" else self.visit_concatenate)(node)
        else:
            expr = self.expr[node.number] = self.elementwise(node)
            if self.needs_memory(node, expr):
                self.materialise(node)

    def elementwise(self, node: Node) -> Expr:
        make, op = self.exprs.make, node.op
        if op == "full":
            value = node.attrs["value"]
            if value is None:
                return make("scalar", (), node.dtype, value=node.attrs["number"])
            return make("full", (), node.dtype, value=value)
        if op == "iota":
            return make("iota", (), node.dtype, View(None, 0, node.shape, (1,) * len(node.shape)))
        if op == "random_bits":
            return self.random_bits(node)
        if op == "gather":
            return self.gather(node)
        if op == "bitcast" and node.inputs[0].dtype.is_complex != node.dtype.is_complex:
            return reread(self, node)
        operands = [self.expr[x.number] for x in node.inputs]
        if node.number in self.is_summed and node.spec.size >= MANY_TURNED:
            operands = self.align_operands(node, operands)
        return make(op, operands, node.dtype, value=numbers_of(node.attrs) or None)

    def align_operands(self, node: Node, operands: list[Expr]) -> list[Expr]:
        """Bring operands into one order in memory: that of an operand which is not row by row, such
        as a step of a convolution prefers. Kernels that sum operands read across memory would read
        them again for each sum, each element in another cache line."""
        last, target_order = innermost(None, node.shape), None
        orders = [order_of(x, node.shape) for x in operands]
        along = [None if order is None else innermost(order, node.shape) for order in orders]
        for order, axis in zip(orders, along, strict=True):
            target_order = (
                order if target_order is None and axis not in (None, last) else target_order
            )
        if target_order is None:
            return operands
        pairs = zip(node.inputs, operands, along, strict=True)
        return [self.copied(x, target_order) if axis == last else expr for x, expr, axis in pairs]

    def copied(self, node: Node, order: Any) -> Expr:
        """Store a value in an order by a separate kernel, which reads across memory just once; from
        now on its users load the copy, but an output keeps its value."""
        view = self.buffer(node.spec, order, node).view()
        root = Root(view, self.expr[node.number], node=node)
        kernel = FusedKernel(self.target.fused, node.shape, [root], None, mergeable=False)
        self.steps.append(kernel)
        loaded = self.exprs.load(view)
        if node.number not in self.is_output:
            self.expr[node.number] = loaded
        return loaded

    def random_bits(self, node: Node) -> Expr:
        """Draw random bits: the counter is the row-major position; the key's words are loaded."""
        key, still = self.expr[node.inputs[0].number], (0,) * len(node.shape)

        def word(i: int):
            return lambda v: View(v.base, v.offset + i * v.strides[0], node.shape, still)

        words = [self.exprs.moved(key, word(i)) for i in range(4)]
        position = View(None, 0, node.shape, strides_of(node.shape))
        return self.exprs.make("random", words, node.dtype, position)

    def gather(self, node: Node) -> Expr:
        """table[..., index, ...]: a view of the table that the index moves along its axis."""
        table, index = node.inputs
        axis, rank = node.attrs["axis"], len(index.shape)
        view = self.operand_view(table)
        before, after = view.strides[:axis], view.strides[axis + 1 :]
        spread = View(view.base, view.offset, node.shape, (*before, *(0,) * rank, *after))

        def widen(v):
            strides = (0,) * axis + v.strides + (0,) * (len(node.shape) - axis - rank)
            return View(v.base, v.offset, node.shape, strides)

        position = self.exprs.moved(self.expr[index.number], widen)
        value = (view.strides[axis], table.shape[axis])
        return self.exprs.make("gather", (position,), node.dtype, spread, value)

    def visit_movement(self, node: Node) -> None:
        """Move every view in the operand's expression; if that fails, store the operand."""
        (x,) = node.inputs
        if node.op == "expand" and self.is_worth_storing(x, node):
            self.materialise(x)

        def move_view(view: View) -> View | None:
            return move(node.op, view, node.shape, node.attrs)

        moved = self.exprs.moved(self.expr[x.number], move_view)
        if moved is None:
            self.materialise(x, row_major=True)
            moved = self.exprs.moved(self.expr[x.number], move_view)
        assert moved is not None, f"lower: {node!r} of a row-major buffer needs no copy"
        self.expr[node.number] = moved

    def visit_reduction(self, node: Node) -> None:
        (x,), axes = node.inputs, node.attrs["axes"]
        expr = self.expr[x.number]
        if not axes:
            self.expr[node.number] = expr
            return
        order = order_of(expr, x.shape)
        buffer = self.buffer(node.spec, reduced_order(order, axes), node)
        if innermost(order, x.shape) in axes:
            self.row_reductions.add(buffer)
        root = Root(views.kept(buffer.view(), x.shape, axes), expr, node.op, node)
        self.add_kernel(x.shape, [root], axes)
        self.expr[node.number] = self.exprs.load(buffer.view())

    def visit_pad(self, node: Node) -> None:
        """Fill the whole, or the parts before and after the operand along one axis, then copy the
        operand into its part."""
        (x,), widths = node.inputs, node.attrs["widths"]
        cut = self.expr[x.number]
        whole = self.buffer(node.spec, order_of(cut, node.shape), node).view()
        number = self.exprs.make("full", (), node.dtype, value=node.attrs["value"])
        for part in views.around(whole, widths):
            self.fill(node, part, number)
        starts, stops, source = [], [], []
        for n, (low, _high, interior), total in zip(x.shape, widths, node.shape, strict=True):
            step = interior + 1
            first = max(0, -(low // step))
            starts.append(first)
            stops.append(max(first, min(n, -((low - total) // step))))
            source.append(low + first * step)
        steps = (1,) * len(starts)
        expr = self.exprs.moved(cut, lambda v: views.sliced(v, starts, stops, steps))
        assert expr is not None
        shape = tuple(b - a for a, b in zip(starts, stops, strict=True))
        strides = tuple(s * (w[2] + 1) for s, w in zip(whole.strides, widths, strict=True))
        offset = sum(a * s for a, s in zip(source, whole.strides, strict=True))
        self.fill(node, View(whole.base, offset, shape, strides), expr)
        self.expr[node.number] = self.exprs.load(whole)

    def visit_concatenate(self, node: Node) -> None:
        axis = node.attrs["axis"]
        order = order_of(self.expr[node.inputs[0].number], node.inputs[0].shape)
        view = View(None, 0, node.shape, strides_of(node.shape, order))
        order, at = order_for_chain(view, self.chain_from(node)) or order, 0
        whole = self.buffer(node.spec, order, node).view()
        kernel: FusedKernel | None = None
        for x in node.inputs:
            part = whole._replace(offset=at * whole.strides[axis], shape=x.shape)
            root = Root(part, self.expr[x.number], node=node)
            if kernel is None or not shares_reads(kernel, x.shape, root):
                kernel = FusedKernel(self.target.fused, x.shape, [], None, mergeable=False)
                self.steps.append(kernel)
            kernel.roots.append(root)
            at += x.shape[axis]
        self.expr[node.number] = self.exprs.load(whole)

    def chain_from(self, node: Node) -> list[Node]:
        """Reshapes and permutes that read a value, each the only reader of the one before."""
        chain: list[Node] = []
        while self.uses[node.number] == 1 and node.number not in self.is_output:
            turned = self.turned.get(node.number)
            if turned is None:
                break
            chain.append(turned)
            node = turned
        return chain

    def fill(self, node: Node, part: View, expr: Expr) -> None:
        """Add a kernel that writes a part of a buffer to which other steps write too."""
        self.add_kernel(part.shape, [Root(part, expr, node=node)], None, False)

    def add_kernel(
        self, domain: Shape, roots: list[Root], axes: Shape | None, mergeable: bool = True
    ) -> None:
        self.steps.append(FusedKernel(self.target.fused, domain, roots, axes, mergeable))

    def add_step(
        self,
        lowerer: Any,
        node: Node,
        sources: list[View],
        results: list[PlannedBuffer],
        plan: Any = None,
        **more: Any,
    ) -> None:
        """Add a step of a lowerer, for `node`, with `scratch` buffers and the nodes that it
        `computes`, if these are not just `node`."""
        more = {"computes": [node], **more}
        self.steps.append(LoweredStep(lowerer, node, sources, results, plan, **more))

    def hand_out(self, node: Node, results: list[PlannedBuffer]) -> None:
        """Let users of the node load these results from now on."""
        if isinstance(node.spec, tuple):
            self.results[node.number] = results
        else:
            self.expr[node.number] = self.exprs.load(results[0].view())

    # -- memory --------------------------------------------------------------------------------

    def needs_memory(self, node: Node, expr: Expr) -> bool:
        """Whether the value is stored, rather than computed again by each user."""
        if not expr.args:
            return False
        if node.number in self.in_memory or node.number in self.is_output:
            return True
        if expr.cost > MAX_COST or len(expr.loads) > MAX_LOADS or expr.size > MAX_SIZE:
            return True
        if self.uses[node.number] < 2 or (expr.cost < MAX_COST / 2 and self.is_per_row(expr)):
            return False
        size = node.spec.size
        big = {v.base for v in expr.loads if 2 * v.base.spec.size >= size}
        return expr.cost > REPEAT_COST or len(big) > REPEAT_LOADS

    def is_worth_storing(self, x: Node, repeated: Node) -> bool:
        """Whether a value is stored before it is repeated, rather than recomputed each time."""
        expr, size = self.expr[x.number], repeated.spec.size
        if expr.cost < REPEATED_COST or x.spec.size == 1 or not expr.loads or self.of_rows(expr):
            return False
        readings = size * self.uses[repeated.number]  # each reader would compute it again
        return size >= LARGE_DOMAIN and readings >= FEW_REPEATS * x.spec.size

    def is_per_row(self, expr: Expr) -> bool:
        """Whether a value depends on reductions of rows only: once a row is enough."""
        return bool(expr.loads) and all(view.base in self.row_reductions for view in expr.loads)

    def of_rows(self, expr: Expr) -> bool:
        """Whether a value depends on reductions of rows, and may be fused with them."""
        return any(view.base in self.row_reductions for view in expr.loads)

    def materialise(
        self, node: Node, row_major: bool = False, order: tuple[int, ...] | None = None
    ) -> PlannedBuffer:
        """Store a node's value: a kernel, a buffer, and from now on a load for its users."""
        expr = self.expr[node.number]
        if order is None and not row_major and node.number not in self.is_row_major_output:
            order = order_of(expr, node.shape)
        buffer = self.buffer(node.spec, order, node)
        self.add_kernel(node.shape, [Root(buffer.view(), expr, node=node)], None)
        self.expr[node.number] = self.exprs.load(buffer.view())
        return buffer

    def operand_view(self, node: Node) -> View:
        if self.expr[node.number].op != "load":
            self.materialise(node)
        return self.expr[node.number].view

    def row_major(self, node: Node) -> View:
        """Pack the node's value in memory in row-major order."""
        view = self.operand_view(node)
        if not views.same_strides(view, strides_of(view.shape)):
            self.materialise(node, row_major=True)
            view = self.expr[node.number].view
        return view

    def is_read_once(self, node: Node, view: View) -> bool:
        """Whether a view shows a whole buffer, and only the value of a node that has one reader."""
        base = view.base
        if base.place != "arena" or base.spec.size != prod(view.shape):
            return False
        while self.uses[node.number] == 1 and node.number not in self.is_output:
            if node is base.node or node.op not in MOVEMENT:
                return node is base.node
            node = node.inputs[0]
        return False

    def output_view(self, node: Node, free: bool) -> View:
        """View of an output: a whole buffer, row-major unless its order is free."""
        view = self.expr[node.number].view if self.expr[node.number].op == "load" else None
        fits = (
            view is not None
            and (is_packed(view) if free else view.is_contiguous and view.base.is_row_major)
            and view.base.spec.size == node.spec.size
            and view.base.place != "input"
            and view.base.dtype is node.dtype
        )
        if not fits:
            self.materialise(node, row_major=not free)
        return self.expr[node.number].view


def move(op: str, view: View, shape: tuple[int, ...], attrs: dict[str, Any]) -> View | None:
    if op == "reshape":
        return views.reshaped(view, shape)
    if op == "permute":
        return views.permuted(view, attrs["axes"])
    if op == "expand":
        return views.expanded(view, shape)
    if op == "slice":
        return views.sliced(view, attrs["starts"], attrs["stops"], attrs["steps"])
    if op == "flip":
        return views.flipped(view, attrs["axes"])
    return views.windowed(view, attrs["size"], attrs["stride"], attrs["dilation"])


def shares_reads(kernel: FusedKernel, shape: tuple[int, ...], root: Root) -> bool:
    """Whether a kernel that fills parts of a buffer fills a further one for less than another
    kernel would: it reads operands of it already."""
    reads, more = kernel.reads(), {v.base for v in root.expr.loads}
    fits = len(kernel.roots) < MAX_ROOTS and len(reads | more) < MAX_BUFFERS
    return fits and kernel.domain == shape and share_an_operand(reads, more, prod(shape))


def is_packed(view: View) -> bool:
    """Whether a view shows all elements between its first and its last, each once."""
    strides = strides_of(view.shape, order_of_view(view))
    return view.offset == 0 and views.same_strides(view, strides)


def is_fusable(node: Node) -> bool:
    op = node.op
    specs = [node.spec, *(x.spec for x in node.inputs)]
    if any(isinstance(s, tuple) for s in specs):
        return False
    if op in MOVEMENT or op in ("pad", "concatenate", "full", "iota", "bitcast"):
        return True
    if op == "gather":  # of an empty table there is no element to read, not even at a wrong index
        return node.inputs[0].spec.size > 0
    if op in REDUCTIONS:
        return node.inputs[0].spec.size > 0
    return node.inputs[0].shape == (4,) if op == "random_bits" else is_written(node)


def reduced_order(order: Any, axes: tuple[int, ...]) -> Any:
    if order is None:
        return None
    others = [i for i in range(len(order)) if i not in axes]
    return tuple(others.index(i) for i in order if i not in axes)
