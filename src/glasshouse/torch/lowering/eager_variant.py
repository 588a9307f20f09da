"""The fallback of a graph: PyTorch itself computes it, in place of a Program."""

import operator
from typing import Any

import torch

from glasshouse.torch.aten.checkpoint_draws import for_pytorch
from glasshouse.torch.tensors.sizes import SizeValues

aten: Any = torch.ops.aten
POOLING = {  # gradient: the operator that makes its places
    aten.max_pool2d_with_indices_backward.default: aten.max_pool2d_with_indices.default,
    aten.max_pool3d_with_indices_backward.default: aten.max_pool3d_with_indices.default,
}


class EagerVariant:
    """A graph that PyTorch computes operator by operator, where no Program could be made."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        find_places(module)
        self.module: torch.fx.GraphModule = for_pytorch(module)
        self.unknown: dict[str, int] = {"the whole graph": 1}
        self.inputs: list[Any] = [node for node in module.graph.nodes if node.op == "placeholder"]

    def run(self, args: Any) -> list[Any]:
        """The results, as of a compiled graph."""
        if any(map(lies_otherwise, self.inputs, args)):
            args = self.as_traced(args)
        results = self.module(*args)
        return list(results) if isinstance(results, (tuple, list)) else [results]

    def as_traced(self, args: Any) -> list[Any]:
        """The arguments with the strides that the graph was traced for."""
        values = SizeValues()
        fakes = [node.meta.get("val") for node in self.inputs]
        for fake, x in zip(fakes, args, strict=True):
            values.take_sizes(fake, x)
        return [as_fake(values.concrete(fake), x) for fake, x in zip(fakes, args, strict=True)]


def as_fake(fake: Any, x: Any) -> Any:
    """An argument with the strides of the tensor that stood for it."""
    if x is None and isinstance(fake, torch.Tensor):
        return torch.zeros(fake.shape, dtype=fake.dtype)
    if not isinstance(x, torch.Tensor) or not isinstance(fake, torch.Tensor):
        return x
    if x.stride() == fake.stride():
        return x
    return torch.empty_strided(x.shape, fake.stride(), dtype=x.dtype).copy_(x)


def find_places(module: torch.fx.GraphModule) -> None:
    """Have the gradients of max pooling take places, which our cut of a joint graph leaves out."""
    graph = module.graph
    for gradient, pooling in POOLING.items():
        for node in graph.find_nodes(op="call_function", target=gradient):
            g, pooled, *options, places = node.args
            if places is pooled:
                with graph.inserting_before(node):
                    pair = graph.call_function(pooling, (pooled, *options))
                    places = graph.call_function(operator.getitem, (pair, 1))
                node.args = (g, pooled, *options, places)
                module.recompile()


def lies_otherwise(node: torch.fx.Node, x: Any) -> bool:
    """Whether an argument may lie otherwise than the graph was traced for: a tensor that our
    Program saved for the backward graph may have its axes in another order, and an undefined
    gradient is None. Where sizes are symbols a tensor without gaps fits any reshape."""
    fake = node.meta.get("val")
    if not isinstance(x, torch.Tensor) or not isinstance(fake, torch.Tensor):
        return x is None and isinstance(fake, torch.Tensor)
    strides = fake.stride()
    is_known = all(type(n) is int for n in strides)
    return x.stride() != strides if is_known else not x.is_contiguous()
