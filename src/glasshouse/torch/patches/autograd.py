"""Autograd's nodes and engine, checkpoints, distributions, and fetchers of data loaders."""

import operator
from collections.abc import Callable
from typing import Any

import torch

from glasshouse.torch.patches.names import attribute, has_attribute, private, slot

current_node: Any = private(
    "torch._C:_current_autograd_node",
    "2.6",
    "say which module a backward operator belongs to",
    without=lambda: None,
)
next_number: Any = private(
    "torch.autograd:_get_sequence_nr",
    "2.6",
    "say in which module nodes were made",
    without=lambda: 0,
)
NODE = torch.empty(0, requires_grad=True).sum().grad_fn
HAS_NUMBERS = has_attribute(
    "torch.autograd.graph:Node._sequence_nr", "2.6", "say in which module nodes were made", NODE
)
number_of: Any = operator.methodcaller("_sequence_nr") if HAS_NUMBERS else lambda node: -1
ENGINE = slot("torch.autograd:_engine_run_backward", "2.6", "see backward passes")
CheckpointFrame: Any = private(
    "torch.utils.checkpoint:_CheckpointFrame", "2.6", "see what checkpoints compute again"
)
Recomputation: Any = private(
    "torch.utils.checkpoint:_recomputation_hook", "2.6", "see what checkpoints compute again"
)
validates_arguments: Callable[..., Any] = attribute(
    "torch.distributions:Distribution._validate_args",
    "2.6",
    "look into distributions that do not look at values",
    without=lambda distribution: True,
)
MapFetcher: Any = private(
    "torch.utils.data._utils.fetch:_MapDatasetFetcher", "2.6", "time loaders' reading"
)
IterableFetcher: Any = private(
    "torch.utils.data._utils.fetch:_IterableDatasetFetcher", "2.6", "time loaders' reading"
)
