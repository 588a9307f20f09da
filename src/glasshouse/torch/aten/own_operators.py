"""Operators of ours for PyTorch's graphs, whose bodies are entries of the table.

Programs compute the entries; where a graph is left to PyTorch, the bodies run the same entries."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from glasshouse.base.flags import having
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch.bind import state
from glasshouse.dispatch.watch import unwatched
from glasshouse.tensor.torch_names.creation import from_numpy
from glasshouse.torch.aten.norm import batch_norm_again, group_norm_again, layer_norm_again
from glasshouse.torch.patches.trees import tree_map, tree_map_only
from glasshouse.torch.tensors.dtypes import from_array, to_array


def by_entry(entry: Callable[..., Any], *args: Any) -> Any:
    """Run an entry of the table on tensors: the body of our operators when PyTorch runs them.
    The NumPy backend computes call by call, and watchers are not notified."""
    plain = having(
        state, backend=backends.load("numpy"), modes=(), records=False, values_hidden=False
    )
    with unwatched(), plain:
        values = tree_map_only(Tensor, lambda x: from_numpy(to_array(x)), args)
        results = entry(*values)
        results = tuple(results) if isinstance(results, list) else results
        return tree_map(lambda x: from_array(x.numpy().copy()), results)


def own_operator(entry: Callable[..., Any], schema: str, empty: Callable[..., Any]) -> Any:
    """The operator of PyTorch's whose body is an entry of the table, by its name; `empty` makes its
    results without contents."""

    def body(*args):
        return by_entry(entry, *args)

    name = f"glasshouse::{entry.__name__}"
    operator = torch.library.custom_op(name, body, mutates_args=(), schema=schema)
    operator.register_fake(empty)
    return operator


def norm_again(entry: Callable[..., Any]) -> Any:
    """The operator that computes a norm's result from its statistics."""
    operands = "(Tensor x, Tensor mean, Tensor scale, Tensor? weight, Tensor? bias) -> Tensor"
    own_operator(entry, operands, lambda x, *_: torch.empty_like(x))
    return getattr(torch.ops.glasshouse, entry.__name__).default


BATCH_NORM_AGAIN, GROUP_NORM_AGAIN, LAYER_NORM_AGAIN = map(
    norm_again, (batch_norm_again, group_norm_again, layer_norm_again)
)
