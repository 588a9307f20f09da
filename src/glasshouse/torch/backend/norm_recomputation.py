"""Recomputation of norms in the backward pass, so that the forward pass need not save them.

The gradient of an activation such as silu reads its operand. Where that is the result of a norm, it
is a few operations on each element of the norm's operand, which the norm's own gradient reads at
the same place: recomputing it costs less than storing and loading it."""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from glasshouse.torch.patches.operators import BATCH_NORM, BATCH_NORM_ALONE
from glasshouse.torch.tensors.dtypes import NARROW

aten: Any = torch.ops.aten
POINTWISE = torch.Tag.pointwise
# PyTorch does not mark all of them as pointwise.
GRADIENTS_OF_ACTIVATIONS = {
    aten.elu_backward.default,
    aten.hardsigmoid_backward.default,
    aten.hardswish_backward.default,
    aten.hardtanh_backward.default,
    aten.leaky_relu_backward.default,
    aten.log_sigmoid_backward.default,
    aten.mish_backward.default,
    aten.softplus_backward.default,
}


class NodeWriter:
    """Adds calls to a graph, in order before `place`, in the pass and module of `like`."""

    def __init__(self, place: Node, like: Node) -> None:
        self.place = place
        self.like = like

    def __call__(self, target: Callable[..., Any], *args: Any) -> Node:
        """The node of a call of an operator."""
        with self.place.graph.inserting_before(self.place):
            node = self.place.graph.call_function(target, args)
        node.meta = {key: x for key, x in self.like.meta.items() if key != "tensor_meta"}
        node.meta["val"] = target(*(x.meta["val"] if isinstance(x, Node) else x for x in args))
        return node

    def cast(self, x: Node, dtype: torch.dtype) -> Node:
        """A tensor in a dtype."""
        return x if x.meta["val"].dtype == dtype else self(aten.to.dtype, x, dtype)

    def wide(self, x: Node) -> Node:
        """Narrow floats as float32."""
        return self.cast(x, torch.float32) if x.meta["val"].dtype in NARROW else x

    def by_channel(self, vector: Node, ndim: int) -> Node:
        """One value a channel, over (N, C, ...)."""
        return self(aten.view.default, vector, [-1, *(1,) * (ndim - 2)])

    def scale(self, x: Node, mean: Node, *factors: Node | None) -> Node:
        """x - mean times each of the factors that is there."""
        y = self(aten.sub.Tensor, self.wide(x), mean)
        for factor in factors:
            if factor is not None:
                y = self(aten.mul.Tensor, y, factor)
        return y

    def shifted(self, y: Node, bias: Node | None, dtype: torch.dtype) -> Node:
        """y plus a bias if there is one, in a dtype."""
        if bias is not None:
            y = self(aten.add.Tensor, y, bias)
        return self.cast(y, dtype)


def of_batch(forward: NodeWriter, backward: NodeWriter, norm: Node, mean: Node, scale: Node) -> Any:
    """The result of a batch norm for each pass. Both use the same numbers, so that no element
    differs."""
    x, weight, bias = norm.args[:3]
    wide, ndim = forward.wide(mean).meta["val"].dtype, x.meta["val"].ndim
    factor = forward.cast(scale, torch.float64)
    if weight is not None:
        factor = forward(aten.mul.Tensor, factor, forward.cast(weight, torch.float64))
    factor, bias = forward.cast(factor, wide), kept_bias(forward, bias)

    def remake(by: NodeWriter) -> Node:
        vectors = [None if v is None else by.by_channel(v, ndim) for v in (mean, factor, bias)]
        y = by.scale(x, *vectors[:2])
        return by.shifted(y, vectors[2], x.meta["val"].dtype)

    return remake(forward), remake(backward)


def of_layer(forward: NodeWriter, backward: NodeWriter, norm: Node, mean: Node, scale: Node) -> Any:
    """The result of a norm over the last axes, recomputed as its entry in the table does."""
    x, _shape, weight, bias = norm.args[:4]
    y = backward.scale(x, mean, scale, weight)
    return None, backward.shifted(y, bias, x.meta["val"].dtype)


def of_groups(
    forward: NodeWriter, backward: NodeWriter, norm: Node, mean: Node, scale: Node
) -> Any:
    """The result of a norm over groups of channels, recomputed as its entry does."""
    x, weight, bias, _images, channels, _size, groups, _epsilon = norm.args
    ndim = x.meta["val"].ndim
    parts = channels // groups

    def by_group(statistic: Node) -> Node:
        apart = backward(aten.unsqueeze.default, statistic, 2)
        every = backward(aten.expand.default, apart, [-1, -1, parts])
        packed = backward(aten.clone.default, every)
        return backward(aten.view.default, packed, [-1, channels, *(1,) * (ndim - 2)])

    def by_channel(vector: Node | None) -> Node | None:
        return None if vector is None else backward.by_channel(backward.wide(vector), ndim)

    y = backward.scale(x, by_group(mean), by_group(scale), by_channel(weight))
    return None, backward.shifted(y, by_channel(kept_bias(forward, bias)), x.meta["val"].dtype)


def kept_bias(forward: NodeWriter, bias: Node | None) -> Node | None:
    """A copy of a bias: eager keeps none, so it may be written to before the backward pass."""
    return None if bias is None else forward(aten.clone.default, bias)


NORMS: dict[Any, Any] = {
    BATCH_NORM: (of_batch, 5),
    BATCH_NORM_ALONE: (of_batch, 3),
    aten.native_layer_norm.default: (of_layer, None),
    aten.native_group_norm.default: (of_groups, None),
}  # the function that recomputes the result, and the argument that is true in training


def backward_nodes(joint: GraphModule) -> set[Node]:
    """The nodes of a joint graph that depend on a gradient of its results."""
    backward: set[Node] = set()
    for node in joint.graph.nodes:
        is_tangent = node.op == "placeholder" and "tangents" in node.target
        if is_tangent or not backward.isdisjoint(node.all_input_nodes):
            backward.add(node)
    return backward


def is_pointwise(node: Node) -> bool:
    """Whether a node computes each element from those at the same place."""
    target = node.target
    return target in GRADIENTS_OF_ACTIVATIONS or POINTWISE in getattr(target, "tags", ())


def results_of(norm: Node) -> dict[int, Node]:
    """The results of a norm that are read, by their numbers."""
    return {user.args[1]: user for user in norm.users if user.target is operator.getitem}


def read_through_copies(y: Node) -> None:
    """Have readers of a value's copy read the value itself: PyTorch makes a copy where an
    activation overwrites its operand. Results of the graph stay copies."""
    for copy in [user for user in y.users if user.target is aten.clone.default]:
        copy.replace_all_uses_with(y, delete_user_cb=lambda user: user.op != "output")


def remake_norms(joint: GraphModule) -> None:
    """Have the backward pass recompute results of norms that only pointwise operators read."""
    backward = backward_nodes(joint)
    places: Any = {node: place for place, node in enumerate(joint.graph.nodes)}
    for norm in [node for node in joint.graph.nodes if node.target in NORMS]:
        make, training = NORMS[norm.target]
        results = results_of(norm)
        if not {0, 1, 2} <= set(results) or (training is not None and not norm.args[training]):
            continue
        y, mean, scale = (results[number] for number in range(3))
        read_through_copies(y)
        readers = sorted((user for user in y.users if user in backward), key=places.get)
        if readers and all(map(is_pointwise, readers)):
            place = max((y, mean, scale), key=places.get).next
            writers = NodeWriter(place, y), NodeWriter(readers[0], readers[0])
            forward_y, backward_y = make(*writers, norm, mean, scale)
            y.replace_all_uses_with(backward_y, delete_user_cb=backward.__contains__)
            if forward_y is not None:
                y.replace_all_uses_with(forward_y)
    joint.recompile()
