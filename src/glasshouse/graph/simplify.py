"""Algebraic rewriting: one pass over the graph that makes each node in its simplest form.

Every rule is exact, or changes only the order of a sum's additions. A rule is a function
`rule(graph, node, inputs) -> Node | None` listed under the card it looks at. It looks at a call and
at the nodes of its operands, and makes its own nodes in their simplest form too: so a graph that
went through the rules once has nothing left for them."""

from collections import Counter
from math import prod
from typing import Any

from glasshouse.base import Spec
from glasshouse.dispatch.call import call_of
from glasshouse.dispatch.primitive import primitives
from glasshouse.graph.composition import composed_node
from glasshouse.graph.graph import Graph, Node, transform
from glasshouse.graph.patterns import (
    cut_at_axis,
    is_deep,
    is_easy_to_sum,
    is_product,
    is_softmax,
    is_static,
    relu_operand,
    repeated_axes,
    swaps_last,
    widens,
)
from glasshouse.ops.collective_card import COLLECTIVES, leaves_operand


def simplify(graph: Graph) -> Graph:
    """The graph with all rules applied, common subexpressions and dead nodes removed."""
    if len(simple := graph.simplest) == len(graph.nodes):
        return graph

    def rule(new: Graph, node: Node, inputs):
        if node.number in simple:
            return new.emit_call(node.call, inputs)
        return simplest(new, node, inputs)

    new = transform(graph, rule)
    new.drop_unneeded()
    new.simplest = set(range(len(new.nodes)))
    return new


def simplest(graph: Graph, node: Node, inputs: tuple[Node, ...]) -> Node:
    call = node.call
    if call.host is None:
        card = primitives.get(call.name)
        if card is not None and card.composition is not None:
            composed = composed_node(card, graph, node, inputs, make)
            if composed is not None:
                return composed
        rule = RULES.get(call.name)
        simplified = None if rule is None else rule(graph, node, inputs)
        if simplified is None and inputs and card is not None and "elementwise" in card.traits:
            simplified = at_smaller_shape(graph, node, inputs)
        if simplified is not None:
            return simplified
    return graph.emit_call(call, inputs)


# -- what results show ------------------------------------------------------------------------


def reuse_results(graph: Graph) -> Graph:
    """Have later users read a result that is in memory anyway, not its operands. A relu's shows
    where x was not positive; a softmax's, e / t, times t is e. Backward needs no more."""
    if not any(relu_operand(node) is not None or is_softmax(node) for node in graph.nodes):
        return graph
    renewed: dict[int, Node] = {}  # nodes of the old graph, made from results in the new one
    changed: set[int] = set()  # numbers of the new nodes that are new, or follow from those

    def add(new: Graph, op: str, inputs, spec: Spec) -> Node:
        node = new.emit(op, inputs, {}, spec)
        changed.add(node.number)
        return node

    def rule(new: Graph, node: Node, inputs):
        if renewed:
            pairs = zip(node.inputs, inputs, strict=True)
            inputs = tuple([renewed.get(x.number, new_node) for x, new_node in pairs])
        new_node = new.emit_call(node.call, inputs)
        if node.number not in graph.simplest or any(x.number in changed for x in inputs):
            changed.add(new_node.number)
        if relu_operand(node) is not None:
            condition, zero = node.inputs[0], inputs[1]
            parts = [add(new, op, (new_node, zero), condition.spec) for op in ("less", "equal")]
            renewed[condition.number] = add(new, "bitwise_or", parts, condition.spec)
        elif is_softmax(node):
            renewed[node.inputs[0].number] = add(new, "mul", (new_node, inputs[1]), node.spec)
        return new_node

    new = transform(graph, rule)
    new.simplest = {node.number for node in new.nodes} - changed
    return new


def add_to_sums(graph: Graph) -> Graph:
    """Scatter into a sum's other operand, not into zeros that are added to it. The gradients of a
    table that is both looked up and multiplied with are such sums."""
    users = Counter(x.number for node in graph.nodes for x in node.inputs)
    users.update(node.number for node in graph.outputs)

    def is_addend(x: Node) -> bool:
        return x.op == "scatter_add" and users[x.number] == 1 and is_static(x.inputs[0], 0)

    if not any(map(is_addend, graph.nodes)):
        return graph

    def rule(new: Graph, node: Node, inputs):
        if node.op == "add" and node.host is None:
            for x, new_input, other in zip(node.inputs, inputs, reversed(inputs), strict=True):
                if is_addend(x) and new_input.op == "scatter_add":
                    return new.emit_call(new_input.call, (other, *new_input.inputs[1:]))
        return new.emit_call(node.call, inputs)

    new = transform(graph, rule)
    new.drop_unneeded()
    return new


def make(graph: Graph, op: str, *inputs: Node, **attrs: Any) -> Node:
    call = call_of(primitives[op], [x.spec for x in inputs], attrs)
    return simplest(graph, Node(call, inputs), inputs)


def make_again(graph: Graph, x: Node, *inputs: Node, **attrs: Any) -> Node:
    """Another call of x's primitive, which does x's work: profiles show it as x."""
    before, graph.origin = graph.origin, x.origin
    try:
        return make(graph, x.op, *inputs, **attrs)
    finally:
        graph.origin = before


def reshaped(graph: Graph, x: Node, shape: tuple[int, ...]) -> Node:
    return x if x.shape == tuple(shape) else make(graph, "reshape", x, shape=tuple(shape))


def expanded(graph: Graph, x: Node, shape: tuple[int, ...]) -> Node:
    return x if x.shape == tuple(shape) else make(graph, "expand", x, shape=tuple(shape))


def full_like(graph: Graph, x: Node, shape: tuple[int, ...]) -> Node:
    """The `full` node x in another shape."""
    return graph.emit("full", (), {**x.attrs, "shape": tuple(shape)}, Spec(tuple(shape), x.dtype))


# -- movement ---------------------------------------------------------------------------------


def shape_rule(graph: Graph, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """Of reshape, expand and slice: of no effect, of one number, and one after the other."""
    (x,) = inputs
    if x.shape == node.shape:
        return x
    if x.op == "full":
        return full_like(graph, x, node.shape)
    if x.op == node.op != "slice":
        return make(graph, x.op, x.inputs[0], shape=node.shape)
    return None


def permute_rule(graph: Graph, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    (x,), axes = inputs, node.attrs["axes"]
    if axes == tuple(range(len(axes))):
        return x
    if x.op == "full":
        return full_like(graph, x, node.shape)
    if x.op == "permute":
        before = x.attrs["axes"]
        return make(graph, "permute", x.inputs[0], axes=tuple(before[i] for i in axes))
    if swaps_last(axes) and is_product(x):
        # The gradient of a weight, which PyTorch's habit keeps transposed, perhaps after a cast.
        if x.op == "cast":
            turned = make(graph, "permute", x.inputs[0], axes=axes)
            return make_again(graph, x, turned, dtype=x.dtype)
        a, b = (make(graph, "permute", y, axes=axes) for y in reversed(x.inputs))
        return make_again(graph, x, a, b)
    moving = [axis for axis in axes if x.shape[axis] != 1]
    if moving == sorted(moving):  # only axes of size 1 move
        return reshaped(graph, x, node.shape)
    return None


def pad_rule(graph: Graph, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    return inputs[0] if not any(any(width) for width in node.attrs["widths"]) else None


def concatenate_rule(graph: Graph, node: Node, inputs: tuple[Node, ...]) -> Node:
    axis = node.attrs["axis"]
    if len(inputs) == 1:
        return inputs[0]
    nested = [x.op == "concatenate" and x.attrs["axis"] == axis for x in inputs]
    if any(nested):
        parts = [x.inputs if inside else (x,) for x, inside in zip(inputs, nested, strict=True)]
        return make(graph, "concatenate", *(y for part in parts for y in part), axis=axis)
    return stack_of_reshapes(graph, node, inputs, axis)


def stack_of_reshapes(graph: Graph, node: Node, inputs: tuple[Node, ...], axis: int) -> Any:
    """Reshaped values side by side along an axis that their reshapes leave alone, as a reshape of
    the values side by side: one copy of all at most, instead of a copy of each."""
    if any(x.op != "reshape" or x.host is not None for x in inputs):
        return None
    cuts = [cut_at_axis(x.inputs[0].shape, x.shape, axis) for x in inputs]
    if cuts[0] is None or any(cut != cuts[0] for cut in cuts):
        return None
    before, after = cuts[0]
    shapes = [(*before, x.shape[axis], *after) for x in inputs]
    if all(x.shape == shape for x, shape in zip(inputs, shapes, strict=True)):
        return None
    parts = [reshaped(graph, x.inputs[0], s) for x, s in zip(inputs, shapes, strict=True)]
    return reshaped(graph, make(graph, "concatenate", *parts, axis=len(before)), node.shape)


def sum_of_neighbours(graph: Graph, x: Node, y: Node) -> Any:
    """pad(a) + pad(b) with zeros, where a and b lie side by side, as pad(concatenate(a, b)). So the
    gradients of the parts of a tensor become one tensor, instead of one each of full size."""
    if not (x.op == y.op == "pad" and x.attrs["value"] == y.attrs["value"] == 0):
        return None
    first, second = x.attrs["widths"], y.attrs["widths"]
    differ = [i for i, (v, w) in enumerate(zip(first, second, strict=True)) if v != w]
    if len(differ) != 1:
        return None
    (axis,) = differ
    if first[axis][0] > second[axis][0]:
        x, y, first, second = y, x, second, first
    (low, _, inner), (start, high, other) = first[axis], second[axis]
    a, b = x.inputs[0], y.inputs[0]
    if inner or other or low < 0 or high < 0 or low + a.shape[axis] != start:
        return None
    widths = (*first[:axis], (low, high, 0), *first[axis + 1 :])
    joined = make(graph, "concatenate", a, b, axis=axis)
    return make(graph, "pad", joined, widths=widths, value=x.attrs["value"])


# -- arithmetic -------------------------------------------------------------------------------


def cast_rule(graph: Graph, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    (x,) = inputs
    if x.dtype is node.dtype:
        return x
    if x.op == "cast" and x.inputs[0].dtype is node.dtype and widens(node.dtype, x.dtype):
        return x.inputs[0]
    value = x.attrs["value"] if x.op == "full" else None
    is_number = isinstance(value, (int, float)) and node.dtype.is_floating
    if not is_number or float(node.dtype.np.type(value)) != value:
        return None
    attrs = {"shape": x.shape, "value": float(value), "dtype": node.dtype}
    return graph.emit("full", (), attrs, node.spec)


OPPOSITE = {"add": "sub", "sub": "add"}


def arithmetic_rule(graph: Graph, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """Drop a constant that changes nothing; with a negative term, use the opposite operation."""
    (x, y), op, is_bool = inputs, node.op, node.dtype.is_bool
    # x + (-0.0) is x; x + 0.0 turns only -0.0 into 0.0, which sums do anyway.
    neutral = 0 if op in OPPOSITE else 1
    if is_static(y, neutral) and not (op == "div" and node.dtype.is_integer):
        return x
    if op in ("add", "mul") and is_static(x, neutral):
        return y
    if op in OPPOSITE and y.op == "neg" and not is_bool:
        return make(graph, OPPOSITE[op], x, y.inputs[0])
    if op == "mul" and is_static(y, -1) and not is_bool:
        return make(graph, "neg", x)
    return sum_of_neighbours(graph, x, y) if op == "add" else None


def neg_rule(graph: Graph, node: Node, inputs: tuple[Node, ...]) -> Any:
    return inputs[0].inputs[0] if inputs[0].op == "neg" else None


def where_rule(graph: Graph, node: Node, inputs: tuple[Node, ...]) -> Any:
    condition, x, y = inputs
    if x is y:
        return x
    if condition.op == "full" and condition.attrs["value"] is not None:
        return x if condition.attrs["value"] else y
    return None


# -- broadcast operands -----------------------------------------------------------------------


def shrunk(graph: Graph, x: Node, axes: frozenset[int]) -> Node:
    shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    return full_like(graph, x, shape) if x.op == "full" else expanded(graph, x.inputs[0], shape)


def at_smaller_shape(graph: Graph, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """An elementwise operation on values repeated along the same axes, done before repeating."""
    if any(x.call.name not in ("full", "expand") for x in inputs):
        return None
    common = frozenset(i for i, n in enumerate(node.shape) if n != 1)
    for x in inputs:
        axes = repeated_axes(x)
        common = common if axes is None else common & axes
    if not common or 0 in node.shape:
        return None
    small = [shrunk(graph, x, common) for x in inputs]
    shape = tuple(1 if i in common else n for i, n in enumerate(node.shape))
    spec = Spec(shape, node.dtype)
    call = call_of(primitives[node.op], [x.spec for x in small], node.attrs, spec)
    result = Node(call, tuple(small))
    return expanded(graph, simplest(graph, result, tuple(small)), node.shape)


# -- sums -------------------------------------------------------------------------------------


def dropped(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def without_axes(graph: Graph, x: Node, axes: tuple[int, ...]) -> Node | None:
    """A value that is repeated along all of `axes` (or has size 1 there), without them."""
    repeated = repeated_axes(x)
    if repeated is None:
        return full_like(graph, x, dropped(x.shape, axes))
    if all(i in repeated or x.shape[i] == 1 for i in axes):
        return reshaped(graph, shrunk(graph, x, frozenset(axes) & repeated), dropped(x.shape, axes))
    return None


def sum_rule(graph: Graph, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    (x,), axes = inputs, node.attrs["axes"]
    if not node.dtype.is_inexact:
        return None
    if all(x.shape[i] == 1 for i in axes):
        return reshaped(graph, x, node.shape)
    whole = without_axes(graph, x, axes)
    if whole is not None:
        count = prod(x.shape[i] for i in axes)
        attrs = {"shape": node.shape, "value": float(count), "dtype": node.dtype}
        return make(graph, "mul", whole, graph.emit("full", (), attrs, node.spec))
    if is_deep(x):
        return None
    if x.op == "neg":
        return make(graph, "neg", make(graph, "sum", x.inputs[0], axes=axes))
    if x.op in ("mul", "div"):
        return sum_of_product(graph, x, axes)
    return sum_of_terms(graph, x, axes) if x.op in ("add", "sub") else None


def sum_of_product(graph: Graph, x: Node, axes: tuple[int, ...]) -> Node | None:
    """A factor that is constant along the summed axes goes outside."""
    a, b = x.inputs
    constant = without_axes(graph, b, axes)
    if constant is not None:
        return make(graph, x.op, make(graph, "sum", a, axes=axes), constant)
    if x.op == "mul":
        constant = without_axes(graph, a, axes)
        if constant is not None:
            return make(graph, "mul", make(graph, "sum", b, axes=axes), constant)
    return None


def sum_of_terms(graph: Graph, x: Node, axes: tuple[int, ...]) -> Node | None:
    """The sum of a sum, taken apart where one term then needs no pass over memory of its own."""
    if not any(is_easy_to_sum(term, axes) for term in x.inputs):
        return None
    return make(graph, x.op, *(make(graph, "sum", term, axes=axes) for term in x.inputs))


# -- collectives ------------------------------------------------------------------------------


def collective_rule(graph: Any, node: Any, inputs: Any) -> Any:
    """Of a group of one, the operand; of others, along the first axis, which needs no copy."""
    (x,), way, attrs = inputs, COLLECTIVES[node.op], node.attrs
    size = attrs["group"].size
    if size == 1:
        return x if leaves_operand(attrs) else None
    if not any(attrs[axis] for axis in way.axes):
        return None
    axis, count = (attrs[way.cut], size) if way.cut else (0, 1)
    parts = parts_in_front(graph, x, axis, count)
    parts = make(graph, node.op, parts, **attrs | dict.fromkeys(way.axes, 0))
    if way.join:
        return joined(graph, parts, attrs[way.join], node.shape)
    return reshaped(graph, parts, node.shape)


def parts_in_front(graph: Graph, x: Node, axis: int, count: int) -> Node:
    """The equal parts of x along an axis, along a new axis in front."""
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    parts = reshaped(graph, x, (*before, count, x.shape[axis] // count, *after))
    others = (i for i in range(len(parts.shape)) if i != axis)
    return make(graph, "permute", parts, axes=(axis, *others))


def joined(graph: Graph, parts: Node, axis: int, shape: Any) -> Node:
    """Parts that are stacked along the first axis, joined along `axis` of a part."""
    others = [*range(1, len(parts.shape))]
    others.insert(axis, 0)
    return reshaped(graph, make(graph, "permute", parts, axes=tuple(others)), shape)


RULES = {
    "reshape": shape_rule,
    "expand": shape_rule,
    "slice": shape_rule,
    "permute": permute_rule,
    "pad": pad_rule,
    "concatenate": concatenate_rule,
    "cast": cast_rule,
    "neg": neg_rule,
    "where": where_rule,
    "sum": sum_rule,
}
RULES |= dict.fromkeys(("add", "sub", "mul", "div"), arithmetic_rule)
RULES |= dict.fromkeys(COLLECTIVES, collective_rule)

# The compiler's passes over a graph, in order: name and function.
PASSES = (
    ("simplify", simplify),
    ("reuse_results", reuse_results),
    ("add_to_sums", add_to_sums),
    ("simplify_again", simplify),
)
