"""Which values the forward graph keeps for the backward graph, where memory is to be saved.

PyTorch cuts the joint graph of both passes in two. Its own partitioner plans what is computed again
for a budget that is a number from 0 (all) to 1 (nothing that costs time); here the number is looked
for that keeps within a budget in bytes."""

import copy

import torch
from torch._functorch import config
from torch._functorch.partitioners import (
    default_partition,
    min_cut_rematerialization_partition,
)
from torch.utils.checkpoint import CheckpointPolicy

from glasshouse.base.errors import OptionError
from glasshouse.base.units import MemoryBudget

TRIALS = 5  # of halving the interval of budgets
LEAST = 1e-6  # a budget of 0 would not look at what has to be kept


def kept_bytes(forward: torch.fx.GraphModule, num_fwd_outputs: int) -> int:
    """Bytes that a forward graph keeps for the backward graph, beside its inputs and results."""
    (output,) = (node for node in forward.graph.nodes if node.op == "output")
    given = [node for node in forward.graph.nodes if node.op == "placeholder"]
    free = {storage_of(node) for node in (*given, *output.args[0][:num_fwd_outputs])}
    kept = {storage_of(node): node for node in output.args[0][num_fwd_outputs:]}
    return sum(
        node.meta["val"].untyped_storage().nbytes()
        for storage, node in kept.items()
        if storage not in free
    )


def storage_of(node) -> int | None:
    """What stands for a node's memory; None for what is no tensor."""
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def dropout(x: torch.Tensor, p: float, train: bool | None):
    """`native_dropout` of operators with one result each: the partitioner draws again what is one
    of several."""
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    kept = torch.rand_like(x, dtype=torch.float32) < 1 - p
    return x * kept * (0.0 if p == 1 else 1 / (1 - p)), kept


def batch_norm(x, weight, bias, running_mean, running_var, training, momentum, epsilon):
    """`_native_batch_norm_legit_functional` whose result in training does not read the running
    statistics: computed again in the backward pass, it would read what the step has written."""
    if not training or running_mean is None or running_var is None:
        return NotImplemented
    y, mean, inverse = torch.ops.aten._native_batch_norm_legit.no_stats(
        x, weight, bias, True, momentum, epsilon
    )
    count = x.numel() // x.shape[1]
    variance = (inverse.pow(-2) - epsilon) * (count / (count - 1))
    means = torch.lerp(running_mean, mean.to(running_mean.dtype), momentum)
    variances = torch.lerp(running_var, variance.to(running_var.dtype), momentum)
    return y, mean, inverse, means, variances


DECOMPOSITIONS = {
    torch.ops.aten.native_dropout.default: dropout,
    torch.ops.aten._native_batch_norm_legit_functional.default: batch_norm,
}


def keep_draws(joint: torch.fx.GraphModule) -> None:
    """Have what draws random numbers kept, or what they are compared with: computed again, they
    would be others."""
    for node in joint.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            compared = all(user.target is torch.ops.aten.lt.Scalar for user in node.users)
            for kept in node.users if compared else (node,):
                kept.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def forget_statistics(joint: torch.fx.GraphModule) -> None:
    """Have the gradients of batch norms in training take no running statistics: they read none."""
    for node in joint.graph.find_nodes(
        op="call_function", target=torch.ops.aten.native_batch_norm_backward.default
    ):
        if node.args[7]:
            node.args = (*node.args[:3], None, None, *node.args[5:])


def written_inputs() -> set[str]:
    """The names of the inputs that the graph that is being compiled writes to."""
    context = torch._guards.TracingContext.try_get()
    if context is None or context.fw_metadata is None:
        return set()
    return {f"primals_{i + 1}" for i in context.fw_metadata.mutated_inp_runtime_indices}


def reads_written(backward: torch.fx.GraphModule, written: set[str]) -> bool:
    """Whether a backward graph reads an input that the step has written to by then."""
    return any(node.target in written for node in backward.graph.find_nodes(op="placeholder"))


def partition_within(budget: MemoryBudget):
    """A function that cuts a joint graph so that the forward graph keeps no more than a budget; of
    what the cut without recomputation keeps, where it is a part.

    It raises: OptionError, with the least that has to be kept, where that is more
    """

    def cut(joint, inputs, *, num_fwd_outputs, **named):
        def trial(part: float):
            graph = copy.deepcopy(joint)
            keep_draws(graph)
            with config.patch(activation_memory_budget=part):
                graphs = min_cut_rematerialization_partition(
                    graph, inputs, num_fwd_outputs=num_fwd_outputs, **named
                )
            if reads_written(graphs[1], written):
                return whole, whole_bytes
            return graphs, kept_bytes(graphs[0], num_fwd_outputs)

        forget_statistics(joint)
        written = written_inputs()
        whole = default_partition(
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
