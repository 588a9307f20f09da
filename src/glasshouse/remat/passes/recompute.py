"""Recomputation: cheap values of the forward pass that the backward pass computes again.

What a product or convolution made is kept; what follows from kept values by elementwise work
(activations, normalised values, dropout masks) is dropped after its last use in the forward pass,
and made again just before the backward pass reads it. In modules that were asked for, products with
little work for the bytes that they make, such as the scores of attention, count as such work; where
"+40" follows the path of a module, so do convolutions of up to 40 FLOPs a byte.

Without being asked to, this is done where it is next to free: for large values that only matrix
products read, with hundreds of operations for each byte that making them again moves."""

from collections.abc import Iterator

from glasshouse.dispatch import primitives, state
from glasshouse.graph.graph import Graph, Node, Origin, needed_nodes, users_of
from glasshouse.remat.passes.names import asked_values
from glasshouse.remat.passes.rerun import is_backward, rerun, whole_modules, within

CHEAP = ("elementwise", "compare", "cast", "movement", "create", "random")
SMALL_BYTES = 1 << 16  # smaller values are kept
FREE_BYTES = 1 << 20  # from this size on a value is dropped unasked, …
FREE_FLOPS = 300  # … if its products take this many FLOPs a byte: the pass over it is lost in them
LIGHT_FLOPS = 100  # products up to this many FLOPs for a byte of their result are light
SMALL_PART = 8  # what a reduction makes may be kept instead, if it is this many times smaller
MAX_CONE = 48  # nodes that one value may take to make again


def recompute(graph: Graph, modules: tuple[str, ...] | None = None) -> Graph:
    """The graph whose backward pass makes dropped values again: those of these modules (all below
    them too; None: of `state.recompute`), and those that are next to free."""
    if modules is None:
        modules, whole = state.recompute, whole_modules()
        graph = rerun(graph, whole) if whole else graph
    parts = [m.partition("+") for m in modules if m[-1:] != "!"]
    modules = tuple(path for path, *_ in parts)
    convs = {path: int(flops) for path, _, flops in parts if flops}
    nodes = needed_nodes(graph)
    asked, kept, between = asked_values(nodes, modules)
    light = {n.number for n in nodes if is_light(n, modules, convs)}
    dropped, pinned = droppable(nodes, graph, modules, light)
    dropped = {n: of for n, of in dropped.items() if n not in kept} | dict.fromkeys(asked, set())
    pinned, light = pinned - asked | kept, light | between
    users = users_of(nodes)
    stored = {node.number for node in nodes if waits_for_region(node, users.get(node.number, ()))}
    if not dropped:
        graph.stored = stored
        return graph
    stale = set(dropped)  # and what is computed where it is used, of something dropped
    makeable: set[int] = set()  # of kept values, without much work
    for node in nodes:
        there = node.number in pinned or is_kept(node)
        easy = is_cheap(node) or node.number in light
        if there or easy and all(x.number in makeable for x in node.inputs):
            makeable.add(node.number)
            follows = is_cheap(node) and not is_backward(node) and node.number not in pinned
            if follows and any(x.number in stale for x in node.inputs):
                stale.add(node.number)
    new = Graph()
    made: dict[int, Node] = {}
    again: dict[int, Node] = {}
    stored |= {n.number for n in nodes if n.number in pinned and holds_dropped(n, users, dropped)}

    def found(x: Node) -> Node | None:
        """What is kept, or was made again before."""
        return made[x.number] if x.number in pinned or is_kept(x) else again.get(x.number)

    def inside(x: Node) -> Node | None:
        """A dropped value, or what leads to it from kept ones."""
        stack = [x]
        while stack:
            y = stack[-1]
            missing = [z for z in y.inputs if found(z) is None] if found(y) is None else ()
            if missing:
                stack.extend(reversed(missing))
                continue
            if found(y) is None:
                new.origin = Origin(y.origin.module, "recompute", y.origin.place)
                inputs = tuple(map(found, y.inputs))
                again[y.number] = new.emit(y.op, inputs, y.attrs, y.spec, y.host)
            stack.pop()
        return found(x)

    for node in nodes:
        remade = stale if is_backward(node) else ()
        inputs = tuple(inside(x) if x.number in remade else made[x.number] for x in node.inputs)
        new.origin = node.origin
        made[node.number] = new.emit(node.op, inputs, node.attrs, node.spec, node.host)
    new.outputs = [made[node.number] for node in graph.outputs]
    new.stored = {made[number].number for number in stored}
    return new


def waits_for_region(node: Node, users) -> bool:
    """Whether a large sum of gradients is read only after a checkpointed region has run again:
    unless it is stored, all of its terms have to wait."""
    if node.origin.phase != "backward" or nbytes_of(node) < FREE_BYTES or not is_cheap(node):
        return False
    terms = {x.number for x in node.inputs if 2 * nbytes_of(x) >= nbytes_of(node)}
    return len(terms) > 1 and bool(users) and all(u.origin.again > node.origin.again for u in users)


def kind_of(node: Node) -> str:
    card = primitives.get(node.op)
    return "" if card is None else card.kind


def is_cheap(node: Node) -> bool:
    """Whether making a value again is elementwise work."""
    return node.host is None and kind_of(node) in CHEAP


def is_light(node: Node, modules: tuple[str, ...], convs: dict[str, int]) -> bool:
    """Whether a product takes as long as moving it; a convolution, what its module allows."""
    limit = 0
    if node.op == "matmul" and within(node.origin.module, modules):
        limit = LIGHT_FLOPS
    elif node.op == "conv":
        limit = max((n for m, n in convs.items() if within(node.origin.module, (m,))), default=0)
    if not limit or node.host is not None:
        return False
    flops = primitives[node.op].flops(*(x.spec for x in node.inputs), **node.attrs)
    return flops <= limit * nbytes_of(node)


def behind_light(node: Node, light: set[int]) -> bool:
    """Whether a value follows on a light product by some elementwise work in its module."""
    stack, seen = list(node.inputs), {node.number}
    while stack and len(seen) < MAX_CONE:
        x = stack.pop()
        if x.number in light:
            return True
        if x.number not in seen and is_cheap(x) and x.origin.module == node.origin.module:
            seen.add(x.number)
            stack.extend(x.inputs)
    return False


def nbytes_of(node: Node) -> int:
    """Bytes of a value; 0 for those of several results."""
    return 0 if isinstance(node.spec, tuple) else node.spec.nbytes


def is_kept(node: Node) -> bool:
    """Whether a value is there in the backward pass in any case: an input, or small."""
    if node.op == "input":
        return True
    return nbytes_of(node) < SMALL_BYTES and node.op not in ("full", "iota")


def droppable(nodes: list[Node], graph: Graph, modules: tuple[str, ...], light: set[int]):
    """Numbers of forward values to make again for backward, and of what is kept for that."""
    users = users_of(nodes)
    outputs = {node.number for node in graph.outputs}
    read = {n.number for n in nodes if any(map(is_backward, users.get(n.number, ())))}
    for node in reversed(nodes):  # who reads a view reads what it is a view of
        if node.number in read and not is_backward(node) and is_cheap(node) and is_view(node):
            read.update(x.number for x in node.inputs)
    asked = {n.number for n in nodes if within(n.origin.module, modules)}
    found = [
        n
        for n in nodes
        if n.number in read
        and n.number not in outputs
        and not is_backward(n)
        and (is_cheap(n) or n.number in light)
        and not is_view(n)
        and nbytes_of(n) >= SMALL_BYTES
        and (
            feeds_opaque(n, users)
            and (n.number in asked or is_next_to_free(n, users))
            or n.number in light
            or n.number in asked
            and behind_light(n, light)
        )
    ]
    dropped: dict[int, set[int]] = {}  # with the kept values that each is made of
    pinned: set[int] = set()
    homes = {n.number: n.origin.module for n in found}
    for node in sorted(found, key=lambda n: -nbytes_of(n)):
        if node.number not in pinned:
            near = homes[node.number] if node.number in asked else None
            held = pinned.union(number for number, home in homes.items() if home != near)
            leaves = cone_of(node, dropped, held, read, light, node.number in asked)
            if leaves is not None:
                dropped[node.number] = leaves
                pinned |= leaves
    return dropped, pinned


def readers(node: Node, users: dict[int, list[Node]]) -> Iterator[Node]:
    """Who reads a value, perhaps through views."""
    stack = list(users.get(node.number, ()))
    while stack:
        user = stack.pop()
        if kind_of(user) == "movement":
            stack.extend(users.get(user.number, ()))
        else:
            yield user


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


def feeds_opaque(node: Node, users: dict[int, list[Node]]) -> bool:
    """Whether a product, convolution or the like reads a value: then it must lie in memory."""
    return any(not is_cheap(x) and kind_of(x) != "reduce" for x in readers(node, users))


def is_view(node: Node) -> bool:
    return primitives[node.op].kind in ("movement", "create")


def cone_of(
    node: Node, dropped, held: set[int], read: set[int], light: set[int], asked: bool
) -> set[int] | None:
    """The kept values that a value can be made of; None if something else is needed, or too much
    work. Other dropped values are passed in the same module only: long chains of them would all be
    made at once. `asked`: light products are passed too, and small results of reductions kept."""
    known: dict[int, set[int] | None] = {}

    def leaves_of(x: Node) -> set[int] | None:
        if is_kept(x):
            return set()
        if x.number not in known:
            known[x.number] = None  # while it is being looked at
            known[x.number] = found_at(x)
        return known[x.number]

    def found_at(x: Node) -> set[int] | None:
        if x.number in dropped:
            near = asked and x.origin.module == node.origin.module
            return dropped[x.number] if near else None
        if len(known) > MAX_CONE:
            return None
        readable = x.number in read and not is_view(x)
        if readable and (x.number in held or not is_cheap(x) or ends_product(x, read)):
            return {x.number}
        small = SMALL_PART * nbytes_of(x) <= nbytes_of(node)
        if asked and small and kind_of(x) == "reduce" and not is_backward(x):
            return {x.number}
        deeper = all_leaves(x) if is_cheap(x) or asked and x.number in light else None
        # What backward reads in any case will do, if it cannot be made of something else.
        return {x.number} if deeper is None and readable else deeper

    def all_leaves(x: Node) -> set[int] | None:
        found: set[int] = set()
        for y in x.inputs:
            leaves = leaves_of(y)
            if leaves is None:
                return None
            found |= leaves
        return found

    return all_leaves(node)


def holds_dropped(node: Node, users: dict[int, list[Node]], dropped) -> bool:
    """Whether an elementwise value that is kept is made of a dropped one and of others as large, a
    sum of two branches: unless it is stored itself, all of them have to stay for it."""
    if not is_cheap(node) or is_view(node):
        return False
    stack, bases = list(node.inputs), set()
    seen = {node.number}
    while stack and len(seen) < MAX_CONE:
        x = stack.pop()
        if x.number in seen or 2 * nbytes_of(x) < nbytes_of(node) or x.op in ("full", "iota"):
            continue
        seen.add(x.number)
        stays = x.number in dropped or feeds_opaque(x, users)
        if is_cheap(x) and (is_view(x) or not stays):
            stack.extend(x.inputs)
        else:
            bases.add(x.number)
    return len(bases) > 1 and any(number in dropped for number in bases)


def ends_product(node: Node, read: set[int]) -> bool:
    """Whether a value follows directly on one that backward lacks: the bias behind a product."""
    return any(not is_cheap(x) and x.number not in read and not is_kept(x) for x in node.inputs)
