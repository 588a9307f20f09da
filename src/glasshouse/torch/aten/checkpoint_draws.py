"""Random draws in a checkpoint, repeated in the backward pass from a key of the forward pass.

PyTorch's graphs save the state of its generator, and draw with that. We save the key of a draw
instead, 16 bytes, also where PyTorch computes the backward graph."""

from typing import Any

import torch

from glasshouse.base import having
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch import box, state
from glasshouse.dispatch.value import Value
from glasshouse.torch.aten.draws import KEY, OneKey, keys_from
from glasshouse.torch.aten.table import TABLE, call_entry, in_order, name_of
from glasshouse.torch.patches.trees import tree_map
from glasshouse.torch.tensors.dtypes import TO_TORCH, from_array, spec_of, to_array

SAVES = torch.ops.higher_order.run_and_save_rng_state
DRAWS_AGAIN = torch.ops.higher_order.run_with_rng_state


def is_ours(tensor: Any) -> bool:
    """Whether a saved state of a generator is a key of ours."""
    return isinstance(tensor, torch.Tensor) and tensor.dtype == TO_TORCH[KEY.dtype]


def keep_keys(forward: torch.fx.GraphModule, backward: torch.fx.GraphModule) -> None:
    """Have the graphs of both passes save keys in place of states."""
    saving = forward.graph.find_nodes(op="call_function", target=SAVES)
    states = [user for node in saving for user in node.users if user.args[1] == 0]
    drawing = backward.graph.find_nodes(op="call_function", target=DRAWS_AGAIN)
    for node in (*states, *(node.args[0] for node in drawing)):
        with node.meta["val"].fake_mode:
            node.meta["val"] = torch.empty(KEY.shape, dtype=TO_TORCH[KEY.dtype])


def draw_with_key(key: Value, target: Any, arguments: Any, fakes: Any) -> Any:
    """The results of an operator that draws with a key. `arguments` are those by position and by
    name, `fakes` the same as PyTorch has them.

    Raises: LookupError for an operator without an entry
    """
    entry = TABLE.get(name_of(target))
    if entry is None:
        raise LookupError(f"{target}, which draws in a checkpoint, and has no entry")
    args, named = in_order(target, *arguments)
    fake_args, fake_named = in_order(target, *fakes)
    with keys_from(OneKey(key)):
        return call_entry(entry, args, named, (*fake_args, *fake_named.values()))


def draw_again(saved: torch.Tensor, target: Any, *args: Any, **named: Any) -> Any:
    """The numbers that an operator draws again, from a key of ours or PyTorch's generator state."""
    if not is_ours(saved):
        return DRAWS_AGAIN(saved, target, *args, **named)
    backend = backends.load("numpy")

    def value_of(x):
        return box(to_array(x), spec_of(x), backend) if isinstance(x, torch.Tensor) else x

    with having(state, backend=backend, records=False, modes=()):
        arguments = tree_map(value_of, (args, named))
        results = draw_with_key(value_of(saved), target, arguments, (args, named))
        several = isinstance(results, (tuple, list))
        tensors = [from_array(x.payload.copy()) for x in (results if several else [results])]
    return tuple(tensors) if several else tensors[0]


def for_pytorch(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph for PyTorch; if it repeats draws, a copy that draws with keys."""
    if not module.graph.find_nodes(op="call_function", target=DRAWS_AGAIN):
        return module
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    for node in graph.find_nodes(op="call_function", target=DRAWS_AGAIN):
        node.target = draw_again
    return torch.fx.GraphModule(module, graph)
