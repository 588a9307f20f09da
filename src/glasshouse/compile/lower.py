"""From graph to steps: which values get memory, in which layout, and which are computed where used.

A value gets memory (a `Buffer`) if it is an output, an operand or result of an opaque step
(oneDNN, a host call), the result of a reduction, or costs more to compute again than to load. All
others are expressions that their users compute for themselves."""

from collections import Counter
from dataclasses import dataclass

from glasshouse.base.shape import Spec
from glasshouse.compile import view as views
from glasshouse.compile.c_text import is_written, numbers_of
from glasshouse.compile.expr import Expr, Exprs
from glasshouse.compile.steps import Buffer, Kernel, Opaque, Root, order_of
from glasshouse.compile.view import View, strides_of
from glasshouse.graph.graph import Graph, Node, users_of
from glasshouse.graph.simplify import relu_operand
from glasshouse.targets.cpu import onednn, winograd
from glasshouse.targets.cpu import windows as template

REPEAT_COST = 40  # an expression with several users is computed again up to this cost …
REPEAT_LOADS = 2  # … and up to this many loads of the size of its domain
MAX_COST, MAX_LOADS, MAX_SIZE = 200, 16, 200  # of an expression without memory of its own
REDUCTIONS = ("sum", "prod", "max", "min", "any", "all")
MOVEMENT = ("reshape", "permute", "expand", "slice", "flip", "windows")
FUSED_KINDS = ("bool", "int", "uint", "float")


class Lowering:
    """Walks a graph once, and makes kernels and opaque steps in its order."""

    def __init__(self, graph: Graph):
        self.graph, self.exprs = graph, Exprs()
        self.buffers: list[Buffer] = []
        self.steps: list[Kernel | Opaque] = []
        self.expr: dict[int, Expr] = {}  # what users of a node compute
        self.uses = Counter(x.number for node in graph.nodes for x in node.inputs)
        self.is_output = {node.number for node in graph.outputs}
        self.wanted = self.operands_of_opaque() | graph.stored
        self.epilogues = find_epilogues(graph)
        self.put_off = {n.number for e in self.epilogues.values() for n in e.inside}
        self.outputs: list[View] = []
        self.results: dict[int, list[Buffer]] = {}  # of nodes with several results

    def operands_of_opaque(self) -> set[int]:
        """Nodes that an opaque step reads, perhaps through movement."""
        wanted: set[int] = set()
        for node in self.graph.nodes:
            if node.op in ("input", "full", "pick") or node.host is None and is_fusable(node):
                continue
            for x in node.inputs:
                while x.op in MOVEMENT and x.host is None:
                    x = x.inputs[0]
                wanted.add(x.number)
        return wanted

    def run(self) -> "Lowering":
        for node in self.graph.nodes:
            self.visit(node)
        self.outputs = [self.output_view(node) for node in self.graph.outputs]
        return self

    def buffer(self, spec: Spec, order=None, node=None) -> Buffer:
        made = Buffer(len(self.buffers), spec, order, node)
        self.buffers.append(made)
        return made

    # -- one node ------------------------------------------------------------------------------

    def visit(self, node: Node) -> None:
        """Give the node an expression, and where it needs one a step and memory."""
        if node.number in self.epilogues:
            self.visit_epilogue(self.epilogues[node.number], node)
        elif node.number not in self.put_off:
            self.visit_plain(node)

    def visit_epilogue(self, epilogue: "Epilogue", last: Node) -> None:
        bias = None if epilogue.bias is None else self.row_major(epilogue.bias)
        if self.plan_product(epilogue.node, bias, epilogue.relu):
            self.expr[last.number] = self.expr[epilogue.node.number]
        else:
            for node in (*epilogue.inside, last):
                self.visit_plain(node)

    def visit_plain(self, node: Node) -> None:
        op = node.op
        if op == "input":
            buffer = self.buffer(node.spec, node=node)
            buffer.place, buffer.at = "input", node.attrs["number"]
            self.expr[node.number] = self.exprs.load(buffer.view())
        elif op == "pick":
            made = self.results[node.inputs[0].number][node.attrs["number"]]
            self.expr[node.number] = self.exprs.load(made.view())
        elif node.host is not None or not is_fusable(node):
            self.visit_opaque(node)
        elif op in MOVEMENT:
            self.visit_movement(node)
        elif op in REDUCTIONS:
            self.visit_reduction(node)
        elif op in ("pad", "concatenate"):
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
        operands = [self.expr[x.number] for x in node.inputs]
        return make(op, operands, node.dtype, value=numbers_of(node.attrs) or None)

    def random_bits(self, node: Node) -> Expr:
        """The counter is the position in row-major order; the key's words are loaded."""
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
        """Move every view in the operand's expression; where that fails, store the operand."""
        (x,) = node.inputs

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
        buffer = self.buffer(node.spec, reduced_order(order_of(expr, x.shape), axes), node)
        root = Root(kept_view(buffer.view(), x.shape, axes), expr, node.op, node)
        self.steps.append(Kernel(x.shape, [root], axes))
        self.expr[node.number] = self.exprs.load(buffer.view())

    def visit_pad(self, node: Node) -> None:
        """A fill of the whole, then the operand into its part."""
        (x,), widths = node.inputs, node.attrs["widths"]
        cut = self.expr[x.number]
        whole = self.buffer(node.spec, order_of(cut, node.shape), node).view()
        self.fill(node, whole, self.exprs.make("full", (), node.dtype, value=node.attrs["value"]))
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
        whole, at = self.buffer(node.spec, order, node).view(), 0
        for x in node.inputs:
            part = whole._replace(offset=at * whole.strides[axis], shape=x.shape)
            self.fill(node, part, self.expr[x.number])
            at += x.shape[axis]
        self.expr[node.number] = self.exprs.load(whole)

    def visit_opaque(self, node: Node) -> None:
        if is_product(node) and self.plan_product(node):
            return
        if node.host is None and template.is_supported(node):
            template.plan(self, node)
            return
        specs = node.spec if isinstance(node.spec, tuple) else (node.spec,)
        sources = [self.operand_view(x) for x in node.inputs]
        results = [self.buffer(spec, node=node) for spec in specs]
        self.add_opaque("host", node, sources, results)
        self.hand_out(node, results)

    def plan_product(self, node: Node, bias=None, relu=False) -> bool:
        """Add the step of a product or convolution; False where there is no fast way."""
        if winograd.is_supported(node):
            return winograd.plan(self, node, bias, relu)
        return onednn.is_supported(node) and onednn.plan(self, node, bias)

    def fill(self, node: Node, part: View, expr: Expr) -> None:
        """A kernel that writes a part of a buffer to which other steps write too."""
        self.steps.append(Kernel(part.shape, [Root(part, expr, node=node)], None, False))

    def add_opaque(self, kind: str, node: Node, sources, results, plan=None, scratch=()) -> None:
        self.steps.append(Opaque(kind, node, sources, results, plan, list(scratch)))

    def hand_out(self, node: Node, results: list[Buffer]) -> None:
        """From now on users of the node load these results."""
        if isinstance(node.spec, tuple):
            self.results[node.number] = results
        else:
            self.expr[node.number] = self.exprs.load(results[0].view())

    # -- memory --------------------------------------------------------------------------------

    def needs_memory(self, node: Node, expr: Expr) -> bool:
        """Whether the value is stored, rather than computed again by each user."""
        if not expr.args:
            return False
        if node.number in self.wanted or node.number in self.is_output:
            return True
        if expr.cost > MAX_COST or len(expr.loads) > MAX_LOADS or expr.size > MAX_SIZE:
            return True
        if self.uses[node.number] < 2 or (expr.cost < MAX_COST / 2 and is_per_row(expr)):
            return False
        size = node.spec.size
        big = {v.base for v in expr.loads if 2 * v.base.spec.size >= size}
        return expr.cost > REPEAT_COST or len(big) > REPEAT_LOADS

    def materialise(self, node: Node, row_major: bool = False, order=None) -> Buffer:
        """Store a node's value: a kernel, a buffer, and from now on a load for its users."""
        expr = self.expr[node.number]
        if order is None and not row_major and node.number not in self.is_output:
            order = order_of(expr, node.shape)
        buffer = self.buffer(node.spec, order, node)
        self.steps.append(Kernel(node.shape, [Root(buffer.view(), expr, node=node)], None))
        self.expr[node.number] = self.exprs.load(buffer.view())
        return buffer

    def operand_view(self, node: Node) -> View:
        if self.expr[node.number].op != "load":
            self.materialise(node)
        return self.expr[node.number].view

    def row_major(self, node: Node) -> View:
        """The node's value in memory, packed in row-major order."""
        view = self.operand_view(node)
        if not views.same_strides(view, strides_of(view.shape)):
            self.materialise(node, row_major=True)
            view = self.expr[node.number].view
        return view

    def output_view(self, node: Node) -> View:
        """An output: a whole row-major buffer of its own."""
        view = self.expr[node.number].view if self.expr[node.number].op == "load" else None
        fits = (
            view is not None
            and view.is_contiguous
            and view.base.spec.size == node.spec.size
            and view.base.place != "input"
            and view.base.is_row_major
            and view.base.dtype is node.dtype
        )
        if not fits:
            self.materialise(node, row_major=True)
        return self.expr[node.number].view


@dataclass
class Epilogue:
    """What follows a product or convolution `node` and can be done with it: + bias, then relu
    where that is Winograd's, for oneDNN's makes 0 of NaN.
    `inside` are the nodes, `node` among them, whose values nobody else needs."""

    node: Node
    bias: Node | None
    relu: bool
    inside: list[Node]


def find_epilogues(graph: Graph) -> dict[int, Epilogue]:
    """By the number of the last node: what is done together with its product."""
    users = users_of(graph.nodes)
    outputs = {node.number for node in graph.outputs}
    found = {}
    for node in graph.nodes:
        if node.op not in ("matmul", "conv") or not is_product(node) or node.number in outputs:
            continue
        last, bias, inside = node, None, []
        for user in users.get(node.number, ()):
            vector = bias_of(user, node)
            if vector is not None and len(users[node.number]) == 1:
                last, bias, inside = user, vector, [node]
        relu = relu_after(last, users, outputs) if winograd.is_supported(node) else None
        if relu is not None:
            inside += [last, *relu[:-1]]
            last = relu[-1]
        if last is not node:
            found[last.number] = Epilogue(node, bias, relu is not None, inside)
    return found


def is_product(node: Node) -> bool:
    """Whether there is a step for a product or convolution other than the host's."""
    return not node.host and (winograd.is_supported(node) or onednn.is_supported(node))


def bias_of(user: Node, node: Node) -> Node | None:
    """The vector that `user` adds to the channels of `node`, if that is what it does."""
    if user.op != "add" or user.host or user.inputs[0] is user.inputs[1]:
        return None
    other = user.inputs[1] if user.inputs[0] is node else user.inputs[0]
    channels = 1 if node.op == "conv" else node.spec.ndim - 1
    size = node.shape[channels]
    if other.op != "expand":
        return None
    small = other.inputs[0]
    if small.spec.size != size or small.shape[channels] != size or size == 1:
        return None
    if small.op == "reshape" and small.inputs[0].shape == (size,):
        return small.inputs[0]
    return small if small.shape == (size,) else None


def relu_after(node: Node, users, outputs) -> list[Node] | None:
    """The nodes of a relu of `node` in order, if nobody else needs `node`."""
    if node.number in outputs:
        return None
    for last in users.get(node.number, ()):
        if relu_operand(last) is node:
            condition = last.inputs[0]
            parts = list(condition.inputs)
            alone = all(len(users[n.number]) == 1 for n in (condition, *parts))
            if alone and len(users[node.number]) == 3 and condition.number not in outputs:
                return [*parts, condition, last]
    return None


def move(op: str, view: View, shape, attrs) -> View | None:
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


def is_fusable(node: Node) -> bool:
    op = node.op
    specs = [node.spec, *(x.spec for x in node.inputs)]
    if any(isinstance(s, tuple) or s.dtype.kind not in FUSED_KINDS for s in specs):
        return False
    if op in MOVEMENT or op in ("pad", "concatenate", "full", "iota", "gather", "bitcast"):
        return True
    if op in REDUCTIONS:
        return node.inputs[0].spec.size > 0
    return node.inputs[0].shape == (4,) if op == "random_bits" else is_written(node)


def is_per_row(expr: Expr) -> bool:
    """Whether a value depends on results of reductions of rows only: once a row is enough."""
    return bool(expr.loads) and all(
        (node := v.base.node) is not None
        and node.op in REDUCTIONS
        and node.inputs[0].spec.ndim - 1 in node.attrs["axes"]
        for v in expr.loads
    )


def reduced_order(order, axes):
    if order is None:
        return None
    kept = [i for i in range(len(order)) if i not in axes]
    return tuple(kept.index(i) for i in order if i not in axes)


def kept_view(view: View, domain, axes) -> View:
    """The view of a reduction's result over the domain: stride 0 along the reduced axes."""
    strides = iter(view.strides)
    spread = tuple(0 if i in axes else next(strides) for i in range(len(domain)))
    return View(view.base, 0, tuple(domain), spread)
