"""The cache key of a captured graph in PyTorch's cache, beside its code: all that AOTAutograd
sees of its inputs and modes. TorchDynamo's graphs have guards for that.

A graph with anything that this cannot describe has no key, and is traced in each process."""

import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from glasshouse.torch.front.state import (
    OTHER_READERS,
    PLAIN_CLASSES,
    READERS,
    has_hooks,
    others_watch,
    read_mode,
)
from glasshouse.torch.patches.fakes import FakeTensorMode
from glasshouse.torch.patches.modes import uses_mkldnn
from glasshouse.torch.patches.operators import OpOverload
from glasshouse.torch.patches.tensors import is_view
from glasshouse.torch.patches.trees import tree_leaves

CODE_WORDS = (bool, int, float, complex, str, slice, type(None), type(Ellipsis))
TORCH_WORDS = (torch.dtype, torch.device, torch.layout, torch.memory_format)
DESCRIBED: set[Any] = {*CODE_WORDS, *TORCH_WORDS, torch.fx.Node}  # code describes these types fully
OWN_OPERATORS = {"aten", "prims"}
CHOICES = (  # functions that decide PyTorch's operators for attention and products
    torch.backends.cuda.flash_sdp_enabled,
    torch.backends.cuda.mem_efficient_sdp_enabled,
    torch.backends.cuda.math_sdp_enabled,
    torch.backends.cuda.cudnn_sdp_enabled,
    torch.get_float32_matmul_precision,
    uses_mkldnn,
)


def fakes_for(
    graph: torch.fx.GraphModule, inputs: list[Any], aliases: Callable[..., Any]
) -> tuple[FakeTensorMode, list[Any]]:
    """The mode of the fake tensors that AOTAutograd traces a graph with, and fake tensors that must
    live meanwhile. For a graph that can be cached they have fixed sizes, as PyTorch's cache
    expects, and its nodes say which values are tensors. `aliases` says which tensors share memory,
    and where."""
    key = captured_key(graph, inputs, aliases)
    if not key:
        return FakeTensorMode(), []
    graph.meta["captured"] = key
    for node in graph.graph.nodes:
        if node.op in ("placeholder", "get_attr") or "dtype" in node.meta:
            node.meta["example_value"] = None  # the cache only asks whether it exists
    sizes = ShapeEnv(allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)
    fakes = FakeTensorMode(shape_env=sizes)
    return fakes, [fakes.from_tensor(x, static_shapes=True) for x in tensors_of(graph, inputs)]


def tensors_of(graph: torch.fx.GraphModule, inputs: list[Any]) -> list[Any]:
    """The tensors that AOTAutograd takes as a graph's inputs: inputs, parameters and buffers."""
    return [*inputs, *graph.parameters(), *graph.buffers()]


def captured_key(
    graph: torch.fx.GraphModule, inputs: list[Any], aliases: Callable[..., Any]
) -> str:
    """A description of inputs and modes for the cache key; "" for a graph that is not cached."""
    tensors = tensors_of(graph, inputs)
    if others_watch() or not all(map(is_plain_tensor, tensors)):
        return ""
    if not all(map(is_described, graph.graph.nodes)):
        return ""
    modes = [read_mode(fn, argument) for fn, argument in (*READERS, *OTHER_READERS)]
    modes += [fn() for fn in CHOICES]
    return repr([*map(describe_tensor, tensors), aliases(tensors), modes, sys.version])


def is_plain_tensor(x: Any) -> bool:
    """Whether `describe_tensor` says all of a tensor."""
    return type(x) in PLAIN_CLASSES and x.layout is torch.strided and not has_hooks(x)


def describe_tensor(x: torch.Tensor) -> tuple[Any, ...]:
    """All properties of a tensor that AOTAutograd may see."""
    place = tuple(x.shape), x.stride(), x.storage_offset(), x.untyped_storage().nbytes()
    autograd = x.requires_grad, x.is_leaf, x.is_inference(), is_view(x)
    return type(x).__name__, x.dtype, x.device, place, autograd, x.is_conj(), x.is_neg()


def is_described(node: torch.fx.Node) -> bool:
    """Whether the code of a node says all of it: a function or method of PyTorch's, or Python's
    own, on tensors and constants."""
    if node.op == "call_function" and not is_known(node.target):
        return False
    words = tree_leaves((node.args, node.kwargs))
    parts = [y for x in words for y in ([x.start, x.stop, x.step] if type(x) is slice else [x])]
    return all(type(x) in DESCRIBED for x in parts)


def is_known(function: Any) -> bool:
    """Whether a function is fixed by its name and PyTorch's version."""
    if isinstance(function, OpOverload):
        return function.namespace in OWN_OPERATORS
    if isinstance(function, types.BuiltinFunctionType):
        return isinstance(function.__self__, (types.ModuleType, type(None)))
    return getattr(torch.nn.functional, getattr(function, "__name__", ""), None) is function
