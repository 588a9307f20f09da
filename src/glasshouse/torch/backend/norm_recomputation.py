"""Recomputation of norms in the backward pass, so that the forward pass need not save them.

The gradient of an activation such as silu reads its operand. Where that is the result of a norm, it
is a few operations on each element of the norm's operand, which the norm's own gradient reads at
the same place: recomputing it costs less than storing and loading it."""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from glasshouse.torch.aten.own_operators import (
    BATCH_NORM_AGAIN,
    GROUP_NORM_AGAIN,
    LAYER_NORM_AGAIN,
)
from glasshouse.torch.patches.operators import BATCH_NORM, BATCH_NORM_ALONE

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

# The operator, and the places of two arguments: the weight, before the bias; true in training.
NORMS: dict[Any, Any] = {
    BATCH_NORM: (BATCH_NORM_AGAIN, 1, 5),
    BATCH_NORM_ALONE: (BATCH_NORM_AGAIN, 1, 3),
    aten.native_layer_norm.default: (LAYER_NORM_AGAIN, 2, None),
    aten.native_group_norm.default: (GROUP_NORM_AGAIN, 1, None),
}
KEEPS_BIAS = {aten.native_layer_norm.default}  # of eager's; that of the others may be written to


def add_call(place: Node, like: Node, target: Callable[..., Any], *args: Any) -> Node:
    """The node of a call before `place`, in the pass and module of `like`."""
    with place.graph.inserting_before(place):
        node = place.graph.call_function(target, args)
    value = target(*(x.meta["val"] if isinstance(x, Node) else x for x in args))
    node.meta = {key: x for key, x in like.meta.items() if key != "tensor_meta"} | {"val": value}
    return node


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
        compute, at, training = NORMS[norm.target]
        results = results_of(norm)
        if not {0, 1, 2} <= set(results) or (training is not None and not norm.args[training]):
            continue
        y, mean, scale = (results[number] for number in range(3))
        read_through_copies(y)
        readers = sorted((user for user in y.users if user in backward), key=places.get)
        if readers and all(map(is_pointwise, readers)):
            place = max((y, mean, scale), key=places.get).next
            weight, bias = norm.args[at : at + 2]
            if bias is not None and norm.target not in KEEPS_BIAS:
                bias = add_call(place, y, aten.clone.default, bias)
            operands = norm.args[0], mean, scale, weight, bias
            backward_y = add_call(readers[0], readers[0], compute, *operands)
            y.replace_all_uses_with(backward_y, delete_user_cb=backward.__contains__)
            if compute is BATCH_NORM_AGAIN:  # both passes use the same numbers
                y.replace_all_uses_with(add_call(place, y, compute, *operands))
    joint.recompile()
