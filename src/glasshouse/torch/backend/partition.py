"""Cuts joint graphs in two, and chooses the values that the forward graph saves by a budget.

PyTorch cuts the joint graph of both passes in two. Its own partitioner plans recomputation for a
budget from 0 (all) to 1 (nothing that costs time). We search for the number that keeps within a
budget in bytes."""

import copy
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy

from glasshouse.base.errors import OptionError
from glasshouse.base.units import MemoryBudget
from glasshouse.torch.aten import norm
from glasshouse.torch.aten.checkpoint_draws import DRAWS_AGAIN, keep_keys
from glasshouse.torch.aten.norm import TENSORS
from glasshouse.torch.aten.table import CHECKS, name_of
from glasshouse.torch.backend.norm_recomputation import backward_nodes, remake_norms
from glasshouse.torch.lowering.eager_variant import POOLING
from glasshouse.torch.patches.aot import cut_within_budget, cut_without_budget, within_budget
from glasshouse.torch.patches.guards import metadata_now
from glasshouse.torch.patches.operators import BATCH_NORM, BATCH_NORM_ALONE
from glasshouse.torch.patches.tensors import storage_address
from glasshouse.torch.scopes.module_scope import PHASE

TRIALS = 5  # of halving the interval of budgets
LEAST = 1e-6  # a budget of 0 would not look at what has to be kept


def kept_bytes(forward: torch.fx.GraphModule, num_fwd_outputs: int) -> int:
    """Bytes that a forward graph keeps for the backward graph, beside its inputs and results."""
    (output,) = (node for node in forward.graph.nodes if node.op == "output")
    placeholders = [node for node in forward.graph.nodes if node.op == "placeholder"]
    free = {storage_of(node) for node in (*placeholders, *output.args[0][:num_fwd_outputs])}
    saved = {storage_of(node): node for node in output.args[0][num_fwd_outputs:]}
    return sum(
        node.meta["val"].untyped_storage().nbytes()
        for storage, node in saved.items()
        if storage not in free
    )


def storage_of(node: Any) -> int | None:
    """The address of a node's storage; None for a value that is no tensor."""
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return storage_address(value.untyped_storage()) if isinstance(value, torch.Tensor) else None


def dropout(x: torch.Tensor, p: float, train: bool | None) -> Any:
    """`native_dropout` made of operators with one result each: the partitioner would draw again one
    of several results."""
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    mask = torch.rand_like(x, dtype=torch.float32) < 1 - p
    return x * mask * (0.0 if p == 1 else 1 / (1 - p)), mask


def batch_norm(
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: Any,
    *settings: Any,
) -> Any:
    """`_native_batch_norm_legit_functional` whose result in training does not read the running
    statistics: recomputed in the backward pass, it would read those that the step has updated."""
    if not training or running_mean is None or running_var is None:
        return NotImplemented
    arguments = x, weight, bias, running_mean, running_var, training, *settings
    return norm.batch_norm_functional(*arguments, by=TENSORS)


def with_narrow_statistics(entry: Any) -> Any:
    """Build a norm of operators with one result each, whose statistics have the dtype of x."""

    def compute(x, *args):
        y, mean, inverse = entry(x, *args, by=TENSORS)
        return y, mean.to(x.dtype), inverse.to(x.dtype)

    return compute


DECOMPOSITIONS: dict[Any, Any] = {
    torch.ops.aten.native_dropout.default: dropout,
    BATCH_NORM: batch_norm,
    BATCH_NORM_ALONE: partial(norm.batch_norm_without_statistics, by=TENSORS),
    torch.ops.aten.native_layer_norm.default: with_narrow_statistics(norm.layer_norm),
    torch.ops.aten.native_group_norm.default: with_narrow_statistics(norm.group_norm),
}
PRODUCTS_WITH_BIAS = {  # and where among their arguments it is
    torch.ops.aten.convolution.default: 2,
    torch.ops.aten.addmm.default: 0,
}
REDUCTION = getattr(torch.Tag, "reduction", None)  # newer versions of PyTorch have it
SMALL = 4  # times smaller than what it is made of: a sum that is kept


def keep_draws(joint: torch.fx.GraphModule) -> None:
    """Have random draws saved, or comparisons of them: recomputed, they would be other numbers."""
    for node in joint.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            compared = all(user.target is torch.ops.aten.lt.Scalar for user in node.users)
            for result in node.users if compared else (node,):
                result.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def keep_sums(joint: torch.fx.GraphModule) -> None:
    """Have small sums of the forward pass saved: recomputed from saved or recomputed values, they
    may differ in their last bits."""
    backward = backward_nodes(joint)
    for node in joint.graph.nodes:
        if node not in backward and REDUCTION in getattr(node.target, "tags", ()):
            operands = sum(nbytes_of(x) for x in node.all_input_nodes)
            if SMALL * nbytes_of(node) <= operands:
                node.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def nbytes_of(node: torch.fx.Node) -> int:
    """The bytes of a node's value; 0 if it is no tensor."""
    value = node.meta.get("val")
    return value.nbytes if isinstance(value, torch.Tensor) else 0


def forget_statistics(joint: torch.fx.GraphModule) -> None:
    """Have the gradients of batch norms in training take no running statistics: they read none."""
    for node in joint.graph.find_nodes(
        op="call_function", target=torch.ops.aten.native_batch_norm_backward.default
    ):
        if node.args[7]:
            node.args = (*node.args[:3], None, None, *node.args[5:])


def forget_places(joint: torch.fx.GraphModule) -> None:
    """Have the gradients of max pooling take no places. They find them again in the operand, so the
    forward pass neither makes nor saves them."""
    for operator in POOLING:  # (g, pooled, *options, places)
        for node in joint.graph.find_nodes(op="call_function", target=operator):
            pooled = node.args[1]
            node.args = (*node.args[:-1], pooled)


def written_inputs() -> set[str]:
    """The names of the inputs that the graph under compilation writes to."""
    metadata = metadata_now()
    if metadata is None:
        return set()
    return {f"primals_{i + 1}" for i in metadata.mutated_inp_runtime_indices}


def reads_written(backward: torch.fx.GraphModule, inputs: set[str]) -> bool:
    """Whether a backward graph reads an input that the step has written to by then."""
    return any(node.target in inputs for node in backward.graph.find_nodes(op="placeholder"))


def hide_biases(backward: torch.fx.GraphModule) -> None:
    """Hide from a backward graph that it recomputes products with a bias. Where the compiler sees
    that the bias is the same for all terms, it splits sums, which changes last bits. The maximum of
    a value with itself is that value, and hides how it was computed."""
    graph = backward.graph
    for target, place in PRODUCTS_WITH_BIAS.items():
        for node in graph.find_nodes(op="call_function", target=target):
            if node.args[place] is None:
                continue
            with graph.inserting_after(node):
                same = graph.call_function(torch.ops.aten.maximum.default, (node, node))
            same.meta = dict(node.meta)
            node.replace_all_uses_with(
                same, delete_user_cb=lambda user, same=same: user is not same
            )
    backward.recompile()


def place_recomputed(forward: torch.fx.GraphModule, backward: torch.fx.GraphModule) -> None:
    """Mark the operators of a backward graph that recompute those of the forward graph."""
    computed = {node.name for node in forward.graph.nodes if node.op == "call_function"}
    for node in backward.graph.nodes:
        is_repeated = node.op == "call_function" and node.name in computed
        if is_repeated or node.target is DRAWS_AGAIN:
            node.meta[PHASE] = "recompute"


def checked_once(cut: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that cuts a joint graph: the backward graph repeats no check of the forward
    pass, and draws again from keys. PyTorch puts a check into both graphs if the backward graph has
    its operands."""

    @wraps(cut)
    def cut_so(joint, inputs, **named):
        forward, backward = cut(joint, inputs, **named)
        keep_keys(forward, backward)
        place_recomputed(forward, backward)
        checks = [
            node
            for node in backward.graph.nodes
            if name_of(node.target) in CHECKS and node.meta.get("partitioner_tag") == "is_forward"
        ]
        for node in checks:
            backward.graph.erase_node(node)
        if checks:
            backward.graph.eliminate_dead_code()
            backward.recompile()
        return forward, backward

    return cut_so


@checked_once
def partition(joint: Any, inputs: tuple[list[torch.Tensor], ...], **named: Any) -> tuple[Any, ...]:
    """PyTorch's cut without recomputation, after our changes of pooling and norms: it recomputes
    only values that are cheaper to recompute than to save."""
    forget_places(joint)
    remake_norms(joint)
    return cut_without_budget(joint, inputs, **named)


def partition_within(budget: MemoryBudget) -> Any:
    """A function that cuts a joint graph so that the forward graph saves no more than a budget. A
    relative budget is a part of the bytes that the cut without recomputation saves.

    It raises: OptionError, with the least that has to be kept, for a smaller budget
    """

    @checked_once
    def cut(joint, inputs, *, num_fwd_outputs, **named):
        def trial(part: float):
            graph = copy.deepcopy(joint)
            keep_draws(graph)
            keep_sums(graph)
            with within_budget(activation_memory_budget=part):
                graphs = cut_within_budget(graph, inputs, num_fwd_outputs=num_fwd_outputs, **named)
            if reads_written(graphs[1], mutated):
                return whole, whole_bytes
            hide_biases(graphs[1])
            return graphs, kept_bytes(graphs[0], num_fwd_outputs)

        forget_statistics(joint)
        forget_places(joint)
        mutated = written_inputs()
        whole = cut_without_budget(
            copy.deepcopy(joint), inputs, num_fwd_outputs=num_fwd_outputs, **named
        )
        whole_bytes = kept_bytes(whole[0], num_fwd_outputs)
        allowed = budget.bytes_of(whole_bytes)
        if whole_bytes <= allowed:
            return whole
        best, nbytes = trial(1.0)
        if nbytes <= allowed:
            return best
        best, least = trial(LEAST)
        if least > allowed:
            raise OptionError(
                "memory_budget",
                f"at least {least:,} bytes, which the forward pass has to keep of {whole_bytes:,}",
                str(budget),
                "Raise it to that, or use smaller batches.",
            )
        low, high = LEAST, 1.0
        for _ in range(TRIALS):
            middle = (low + high) / 2
            graphs, nbytes = trial(middle)
            if nbytes <= allowed:
                best, low = graphs, middle
            else:
                high = middle
        return best

    return cut
