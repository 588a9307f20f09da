"""Recomputation: cheap values of the forward pass that the backward pass computes again.

Results of products and convolutions are kept. Values that elementwise work computes from kept ones
(activations, normalised values, dropout masks) are dropped after their last use in the forward
pass, and recomputed just before the backward pass reads them. In requested modules, products with
few FLOPs per byte of their result, such as the scores of attention, count as such work; so do
convolutions, up to the FLOPs per byte that the request names.

Without a request, this is done where it is nearly free: for large values that only matrix products
read, with hundreds of operations for each byte that recomputing them moves."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from glasshouse.dispatch import primitives, state
from glasshouse.graph.graph import Graph, Node, is_backward, needed_nodes, users_of
from glasshouse.graph.recompute.request import NOTHING, ElementwiseWork, RecomputeRequest
from glasshouse.graph.recompute.rerun import is_within, rerun
from glasshouse.graph.recompute.values import requested_values

CHEAP = ("elementwise", "compare", "cast", "movement", "create", "random")
SMALL_BYTES = 1 << 16  # smaller values are kept
FREE_BYTES = 1 << 20  # from this size on a value is dropped unasked, …
FREE_FLOPS = 300  # … if its products take this many FLOPs a byte: the pass over it is lost in them
LIGHT_FLOPS = 100  # products up to this many FLOPs for a byte of their result are light
SMALL_PART = 8  # a reduction's result may be kept instead, if it is this many times smaller
MAX_CONE = 48  # nodes that one value may take to make again


def recompute(graph: Graph, request: RecomputeRequest | None = None) -> Graph:
    """The graph whose backward pass makes dropped values again: those of a request (this thread's
    unless given), and those that are next to free."""
    if request is None:
        request = state.recompute or NOTHING
    if request.modules:
        graph = rerun(graph, request.modules)
    nodes = needed_nodes(graph)
    users = users_of(nodes)
    choice = choose_dropped(graph, nodes, users, request)
    stored = {node.number for node in nodes if waits_for_region(node, users.get(node.number, ()))}
    if not choice.dropped:
        graph.stored = stored
        return graph
    for node in nodes:
        if node.number in choice.kept and holds_dropped(node, users, choice.dropped):
            stored.add(node.number)
    return Remaking(graph, nodes, choice).rewritten(stored)


class DropChoice(NamedTuple):
    """Numbers of nodes: the values that the forward pass drops, those that are kept to make them
    of, and the products and convolutions that are light enough to be computed again."""

    dropped: set[int]
    kept: set[int]
    light: set[int]


def choose_dropped(
    graph: Graph, nodes: list[Node], users: dict[int, list[Node]], request: RecomputeRequest
) -> DropChoice:
    """Choose the values to drop: those requested by name, and those that the elementwise work of
    the requested modules can make again."""
    if not request and all(nbytes_of(node) < FREE_BYTES for node in nodes):
        return DropChoice(set(), set(), set())
    remade, saved, between = requested_values(nodes, request)
    light = {n.number for n in nodes if is_light(n, request.elementwise)}
    search = DropSearch(graph, nodes, users, request, light)
    search.run()
    dropped = search.leaves_of.keys() - saved | remade
    return DropChoice(dropped, search.kept - remade | saved, light | between)


class DropSearch:
    """Looks for forward values that the backward pass can recompute.

    light       numbers of light products and convolutions
    requested   numbers of the values in the requested modules
    read        numbers of the values that the backward pass reads, also through views
    leaves_of   by the number of a dropped value, the kept ones it is recomputed from
    kept        numbers of all of those"""

    def __init__(
        self, graph: Graph, nodes: Any, users: Any, request: RecomputeRequest, light: set[int]
    ) -> None:
        self.nodes = nodes
        self.users = users
        self.light = light
        self.outputs: set[int] = {node.number for node in graph.outputs}
        paths = tuple(work.module for work in request.elementwise)
        self.requested: set[Any] = {n.number for n in nodes if is_within(n.origin.module, paths)}
        self.read: set[Any] = {
            n.number for n in nodes if any(map(is_backward, users.get(n.number, ())))
        }
        for node in reversed(nodes):  # who reads a view reads what it is a view of
            is_forward_view = not is_backward(node) and is_cheap(node) and is_view(node)
            if node.number in self.read and is_forward_view:
                self.read.update(x.number for x in node.inputs)
        self.leaves_of: dict[int, set[int]] = {}
        self.kept: set[int] = set()

    def run(self) -> None:
        """Decide for each candidate, the largest first."""
        candidates = [node for node in self.nodes if self.is_candidate(node)]
        homes = {n.number: n.origin.module for n in candidates}
        for node in sorted(candidates, key=lambda n: -nbytes_of(n)):
            if node.number in self.kept:
                continue
            is_requested = node.number in self.requested
            own_home = homes[node.number] if is_requested else None
            elsewhere = (number for number, home in homes.items() if home != own_home)
            leaves = Cone(self, node, self.kept.union(elsewhere), is_requested).leaves()
            if leaves is not None:
                self.leaves_of[node.number] = leaves
                self.kept |= leaves

    def is_candidate(self, node: Node) -> bool:
        """Whether it may be worth dropping a value."""
        number = node.number
        lies_in_memory = number in self.read and number not in self.outputs and not is_view(node)
        if not lies_in_memory or is_backward(node) or nbytes_of(node) < SMALL_BYTES:
            return False
        if number in self.light:
            return True
        if not is_cheap(node):
            return False
        is_requested = number in self.requested
        if feeds_opaque(node, self.users) and (is_requested or is_next_to_free(node, self.users)):
            return True
        return is_requested and follows_light(node, self.light)


class Cone:
    """Search for the kept values that one value can be made again from. It passes through other
    dropped values in the same module only: long chains would all be made at once. If its module is
    requested, it passes light products too and keeps small reductions. Values in `fixed` stay."""

    def __init__(self, search: DropSearch, top: Node, fixed: set[int], is_requested: bool) -> None:
        self.search = search
        self.top = top
        self.fixed = fixed
        self.is_requested = is_requested
        self.visited: dict[int, set[int] | None] = {}

    def leaves(self) -> set[int] | None:
        """Numbers of the kept values; None if something else is needed, or too much work."""
        return self.leaves_of_operands(self.top)

    def leaves_of_operands(self, x: Node) -> set[int] | None:
        together: set[int] = set()
        for y in x.inputs:
            leaves = self.leaves_at(y)
            if leaves is None:
                return None
            together |= leaves
        return together

    def leaves_at(self, x: Node) -> set[int] | None:
        if is_kept(x):
            return set()
        if x.number not in self.visited:
            self.visited[x.number] = None  # while it is being looked at
            self.visited[x.number] = self.leaves_through(x)
        return self.visited[x.number]

    def leaves_through(self, x: Node) -> set[int] | None:
        search, is_requested = self.search, self.is_requested
        if x.number in search.leaves_of:
            is_near = is_requested and x.origin.module == self.top.origin.module
            return search.leaves_of[x.number] if is_near else None
        if len(self.visited) > MAX_CONE:
            return None
        readable = x.number in search.read and not is_view(x)
        if readable and (x.number in self.fixed or not is_cheap(x) or ends_product(x, search.read)):
            return {x.number}
        is_small = SMALL_PART * nbytes_of(x) <= nbytes_of(self.top)
        if is_requested and is_small and kind_of(x) == "reduce" and not is_backward(x):
            return {x.number}
        may_pass = is_cheap(x) or is_requested and x.number in search.light
        leaves = self.leaves_of_operands(x) if may_pass else None
        # A value that backward reads anyway will do, if it cannot be made from another.
        return {x.number} if leaves is None and readable else leaves


class Remaking:
    """The rewriting of a graph whose backward pass recomputes dropped values.

    copies   by number in the old graph, the nodes of the new one
    remade   the same for recomputed values"""

    def __init__(self, graph: Graph, nodes: list[Node], choice: DropChoice) -> None:
        self.old = graph
        self.nodes = nodes
        self.choice = choice
        self.new: Graph = Graph()
        self.copies: dict[int, Node] = {}
        self.remade: dict[int, Node] = {}

    def rewritten(self, stored: set[int]) -> Graph:
        """The new graph; `stored` has the numbers of old nodes that are to have memory."""
        gone = self.unavailable_in_backward()
        for node in self.nodes:
            remade = gone if is_backward(node) else ()
            inputs = tuple(
                self.remake(x) if x.number in remade else self.copies[x.number] for x in node.inputs
            )
            self.new.origin = node.origin
            copy = self.new.emit_call(node.call, inputs)
            self.copies[node.number] = copy
        self.new.outputs = [self.copies[node.number] for node in self.old.outputs]
        self.new.stored = {self.copies[number].number for number in stored}
        return self.new

    def unavailable_in_backward(self) -> set[int]:
        """Numbers of the values that the backward pass does not have: the dropped ones, and cheap
        ones that are computed from them where they are used."""
        dropped, saved, light = self.choice
        gone, makeable = set(dropped), set[int]()  # makeable of saved values, without much work
        for node in self.nodes:
            easy = is_cheap(node) or node.number in light
            stays = node.number in saved or is_kept(node)
            if stays or easy and all(x.number in makeable for x in node.inputs):
                makeable.add(node.number)
                follows = is_cheap(node) and not is_backward(node) and node.number not in saved
                if follows and any(x.number in gone for x in node.inputs):
                    gone.add(node.number)
        return gone

    def available(self, x: Node) -> Node | None:
        """The new node of a value that is kept, or was made again before."""
        if x.number in self.choice.kept or is_kept(x):
            return self.copies[x.number]
        return self.remade.get(x.number)

    def remake(self, x: Node) -> Node | None:
        """The new node of a dropped value, made again from kept ones."""
        stack = [x]
        while stack:
            y = stack[-1]
            if self.available(y) is None:
                missing = [z for z in y.inputs if self.available(z) is None]
                if missing:
                    stack.extend(reversed(missing))
                    continue
                self.new.origin = y.origin._replace(phase="recompute", rerun=0)
                inputs = tuple(map(self.available, y.inputs))
                self.remade[y.number] = self.new.emit_call(y.call, inputs)
            stack.pop()
        return self.available(x)


# -- tests of single nodes -------------------------------------------------------------------------


def kind_of(node: Node) -> str:
    card = primitives.get(node.op)
    return "" if card is None else card.kind


def nbytes_of(node: Node) -> int:
    """Bytes of a value; 0 for those of several results."""
    return 0 if isinstance(node.spec, tuple) else node.spec.nbytes


def is_cheap(node: Node) -> bool:
    """Whether making a value again is elementwise work, which kernels do."""
    card = primitives.get(node.op)
    if node.host is not None or card is None or card.kind not in CHEAP:
        return False
    return card.kernel is not None or "elementwise" not in card.traits


def is_light(node: Node, elementwise: tuple[ElementwiseWork, ...]) -> bool:
    """Whether a product takes as long as moving it; for a convolution, its module's limit."""
    if node.host is not None or node.op not in ("matmul", "conv"):
        return False
    works = [work for work in elementwise if is_within(node.origin.module, (work.module,))]
    if not works:
        return False
    limit = LIGHT_FLOPS if node.op == "matmul" else max(work.conv_limit for work in works)
    flops = primitives[node.op].flops(*(x.spec for x in node.inputs), **node.attrs)
    return flops <= limit * nbytes_of(node)


def is_kept(node: Node) -> bool:
    """Whether the backward pass always has a value: an input, a collective's result, or a small
    one."""
    if node.op == "input" or node.call.is_collective:
        return True
    return nbytes_of(node) < SMALL_BYTES and node.op not in ("full", "iota")


def is_view(node: Node) -> bool:
    """Whether a value is another shape of its operand, or made from none."""
    return kind_of(node) in ("movement", "create")


def ends_product(node: Node, read: set[int]) -> bool:
    """Whether a value follows directly on one that backward lacks: the bias after a product."""
    return any(not is_cheap(x) and x.number not in read and not is_kept(x) for x in node.inputs)


# -- tests of a node and those around it -----------------------------------------------------------


def readers(node: Node, users: dict[int, list[Node]]) -> Iterator[Node]:
    """Nodes that read a value, perhaps through views."""
    stack = list(users.get(node.number, ()))
    while stack:
        user = stack.pop()
        if kind_of(user) == "movement":
            stack.extend(users.get(user.number, ()))
        else:
            yield user


def feeds_opaque(node: Node, users: dict[int, list[Node]]) -> bool:
    """Whether a product, convolution or the like reads a value: then it must lie in memory."""
    return any(not is_cheap(x) and kind_of(x) != "reduce" for x in readers(node, users))


def is_next_to_free(node: Node, users: dict[int, list[Node]]) -> bool:
    """Whether making a value again is lost in the products of the backward pass that read it."""
    if nbytes_of(node) < FREE_BYTES:
        return False
    products = [x for x in readers(node, users) if is_backward(x)]
    least = FREE_FLOPS * nbytes_of(node)
    return bool(products) and all(
        x.op == "matmul" and primitives["matmul"].flops(*(y.spec for y in x.inputs)) >= least
        for x in products
    )


def follows_light(node: Node, light: set[int]) -> bool:
    """Whether a value follows on a light product by some elementwise work in its module."""
    stack, visited = list(node.inputs), {node.number}
    while stack and len(visited) < MAX_CONE:
        x = stack.pop()
        if x.number in light:
            return True
        if x.number not in visited and is_cheap(x) and x.origin.module == node.origin.module:
            visited.add(x.number)
            stack.extend(x.inputs)
    return False


def waits_for_region(node: Node, users: Any) -> bool:
    """Whether a large sum of gradients is read only after a checkpointed region has run again:
    unless it is stored, all of its terms have to wait."""
    if node.origin.phase != "backward" or nbytes_of(node) < FREE_BYTES or not is_cheap(node):
        return False
    terms = {x.number for x in node.inputs if 2 * nbytes_of(x) >= nbytes_of(node)}
    return len(terms) > 1 and bool(users) and all(u.origin.rerun > node.origin.rerun for u in users)


def holds_dropped(node: Node, users: dict[int, list[Node]], dropped: set[int]) -> bool:
    """Whether a kept elementwise value is made from a dropped one and others as large, as a sum of
    two branches is: unless it is stored itself, all of them have to stay for it."""
    if not is_cheap(node) or is_view(node):
        return False
    stack, bases = list(node.inputs), set()
    visited = {node.number}
    while stack and len(visited) < MAX_CONE:
        x = stack.pop()
        if x.number in visited or 2 * nbytes_of(x) < nbytes_of(node) or x.op in ("full", "iota"):
            continue
        visited.add(x.number)
        stays = x.number in dropped or feeds_opaque(x, users)
        if is_cheap(x) and (is_view(x) or not stays):
            stack.extend(x.inputs)
        else:
            bases.add(x.number)
    return len(bases) > 1 and any(number in dropped for number in bases)
