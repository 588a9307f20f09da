"""Graphs of torch.fx for the node profiler: runs their nodes, and describes their tensors.

PyTorch's hooks show the tensors that a node saves for backward. In the convention "colossal",
ColossalAI's formulas count both passes."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from math import prod, sqrt
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.fx import Interpreter

from glasshouse.analyze.cost_table import NodeCost
from glasshouse.analyze.machine import MachineProfile
from glasshouse.analyze.node_profile import NodeProfiler, ProfiledGraph
from glasshouse.profile.counter import FlopCounter
from glasshouse.torch.ahead.node_trace import contentless
from glasshouse.torch.observe.operator_cost import is_view, tensors_in
from glasshouse.torch.patches.modes import DispatchMode
from glasshouse.torch.patches.modules import FUSED_ATTENTION, IN_PROJECTION
from glasshouse.torch.patches.operators import schema_of
from glasshouse.torch.patches.tensors import storage_address
from glasshouse.torch.patches.trees import tree_map

aten: Any = torch.ops.aten
# ColossalAI's formulas, by the operator's name without overload. Sources: its `flop_mapping`.
PRODUCTS = {"mm": 0, "bmm": 0, "matmul": 0, "addmm": 1, "baddbmm": 1}  # place of the left operand
NORMS = {  # place of the scale
    "native_layer_norm": 2,
    "native_layer_norm_backward": 5,
    "native_batch_norm": 1,
    "_native_batch_norm_legit": 1,
    "native_batch_norm_backward": 2,
    "native_group_norm": 1,
    "native_group_norm_backward": 4,
}
FIXED = {"native_batch_norm": 5, "_native_batch_norm_legit": 5, "native_batch_norm_backward": 7}
ELEMENTWISE = {
    *"add div mul neg pow rsub sub sum mean sqrt rsqrt exp tanh sigmoid relu gelu silu".split(),
    *"hardswish hardtanh leaky_relu softmax log_softmax native_dropout threshold where".split(),
}


class ColossalMode(DispatchMode):
    """Adds up the FLOPs of operators, a multiply-add as 1."""

    def __init__(self) -> None:
        super().__init__()
        self.total: int = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: tuple[type[Any], ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, bool] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.total += colossal_flops(func, args, result)
        return result


def colossal_flops(func: Any, args: tuple[Any, ...], result: torch.device | torch.Tensor) -> int:
    """The FLOPs of one operator by ColossalAI's formulas."""
    name = schema_of(func).name.partition("::")[2].rstrip("_")
    plain = name.removeprefix("_").removesuffix("_data").removesuffix("_backward")
    if name in PRODUCTS:
        left = args[PRODUCTS[name]]
        return prod(tensors_in(result)[0].shape) * left.shape[-1]
    if name == "convolution":
        return of_convolution(result, args[1], args[6], args[0])
    if name == "convolution_backward":
        each = of_convolution(args[0], args[2], args[7], args[1])
        return each * sum(args[10][:2])
    if name in NORMS:
        x = args[1] if name.endswith("backward") else args[0]
        is_fixed = name in FIXED and not args[FIXED[name]]  # by running statistics
        return x.numel() * ((1 if is_fixed else 4) + (args[NORMS[name]] is not None))
    if "pool" in name:
        x = tensors_in(result)[0] if name.endswith("backward") else args[0]
        return x.numel()
    if name == "embedding":
        return args[0].numel()
    if name == "embedding_dense_backward":
        return args[2] * args[0].shape[-1]
    return args[0].numel() if plain in ELEMENTWISE and not is_view(func) else 0


def of_convolution(out: Any, weight: Any, is_transposed: bool, x: Any) -> int:
    """Multiply-adds of a convolution; its two gradients take as many each."""
    return (x if is_transposed else out).shape.numel() * prod(weight.shape[1:])


def unfused_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **_: Any,
) -> Any:
    """Attention as PyTorch 1.12 composed it, of operators that save their operands. A mask changes
    the count only by its addition."""
    query = query / sqrt(query.shape[-1])
    scores = torch.matmul(query, key.transpose(-2, -1))
    if attn_mask is not None and attn_mask.is_floating_point():
        scores = scores + attn_mask
    scores = torch.softmax(scores, dim=-1)
    if dropout_p > 0.0:
        scores = torch.dropout(scores, dropout_p, True)
    return torch.matmul(scores, value)


def separate_projections(q: Any, k: Any, v: Any, w: Any, b: Any = None) -> Any:
    """Packed projections as PyTorch 1.12 composed them: query, key and value have separate memory;
    later versions return parts of one tensor."""
    linear, width = torch.nn.functional.linear, q.shape[-1]
    if q is k and k is v:
        parts = linear(q, w, b).chunk(3, dim=-1)
    else:
        sizes = (width, 2 * width) if k is v else (width,) * 3
        weights, biases = w.split(sizes), b.split(sizes) if b is not None else (None,) * 3
        parts = [linear(*each) for each in zip((q, k, v), weights, biases)]
        parts = (parts[0], *parts[1].chunk(2, dim=-1)) if k is v else parts
    return [part.contiguous() for part in parts]


# Functions that PyTorch 1.12, which ColossalAI's analyzer ran on, composed of other operators.
FORMER = (
    (FUSED_ATTENTION, unfused_attention),
    (IN_PROJECTION, separate_projections),
)


class TorchGraph(ProfiledGraph, Interpreter):
    """A graph of torch.fx that runs on tensors without contents."""

    is_colossal: bool
    profiler: NodeProfiler

    parameter_type: type[Any] = torch.nn.Parameter
    unknown: tuple[()] = ()  # nodes of which only the shape is known

    def __init__(
        self, module: torch.fx.GraphModule, is_colossal: bool, machine: MachineProfile
    ) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.is_colossal, self.profiler = is_colossal, NodeProfiler(self, machine)
        self.keeps_results: bool = not is_colossal
        members = (*module.parameters(), *module.buffers())
        self.member_storages: set[int] = set(map(storage, members))  # of parameters and buffers
        self.saved: list[torch.Tensor] = []  # by autograd; keeps the storages in use

    @staticmethod
    def argument_names(module: torch.fx.GraphModule) -> list[str]:
        """The names of the arguments that a graph needs."""
        return [node.target for node in module.graph.find_nodes(op="placeholder")]

    @staticmethod
    @contextmanager
    def without_contents(
        module: torch.fx.GraphModule, is_colossal: bool
    ) -> Iterator[Callable[..., Any]]:
        """Inside, a model has no contents; yields a function that makes arguments so."""
        with contentless([module]) as maker, torch.enable_grad(), ExitStack() as patched:
            for place, compose in FORMER if is_colossal else ():
                patched.enter_context(place.holding(compose))
            yield maker.input_of

    def run_node(self, n: torch.fx.Node) -> torch.Tensor:
        """The value of a node, cut off from those before it."""
        operands = [x for node in n.all_input_nodes for x in tensors_in(self.env[node])]
        return self.profiler.run(n, super().run_node, operands)

    # -- what NodeProfiler asks ------------------------------------------------------------------

    def row(self, node: torch.fx.Node) -> NodeCost:
        spec, target = node.meta.get("spec"), node.target
        name = target if isinstance(target, str) else getattr(target, "__name__", "")
        shape = str(spec) if spec is not None else ""
        return NodeCost(node.name, node.op, name, node.meta.get("module", ""), "", shape)

    def tensors_in(self, value: torch.Tensor) -> list[torch.Tensor]:
        return tensors_in(value)

    def counter(self) -> Any:
        return ColossalMode() if self.is_colossal else FlopCounter()

    def run_saving(
        self,
        compute: Callable[..., Any],
        node: torch.fx.Node,
        operands: list[Any],
        save: Callable[..., Any],
    ) -> torch.Tensor:
        def pack(x: torch.Tensor) -> torch.Tensor:
            if storage(x) not in self.member_storages:
                save(storage(x), self.bytes_of(x))
                self.saved.append(x)
            return x

        with saved_tensors_hooks(pack, same):
            return compute(node)

    def bytes_of(self, x: torch.Tensor) -> int:
        """Bytes of a tensor's memory; to ColossalAI, of its elements."""
        return x.nbytes if self.is_colossal else x.untyped_storage().nbytes()

    def new_storages(
        self, results: list[Any], operands: list[Any], saved: dict[Any, Any]
    ) -> dict[Hashable, int]:
        """Bytes of new storages; for ColossalAI, all results that are not saved yet are new."""
        old = saved.keys() if self.is_colossal else set(map(storage, operands))
        old = old | self.member_storages
        return {storage(x): self.bytes_of(x) for x in results if storage(x) not in old}

    def pull(self, node: torch.fx.Node, results: list[Any], operands: list[Any]) -> int:
        """Run a node's backward pass; returns the bytes of gradients. ColossalAI counts a gradient
        for each tensor argument, repeated ones too; otherwise only existing gradients count."""
        outputs = [x for x in results if x.requires_grad and x.grad_fn is not None]
        if outputs:
            torch.autograd.backward(outputs, [torch.zeros_like(x) for x in outputs])
        with_gradients = list({id(x): x for x in operands if x.grad is not None}.values())
        if self.is_colossal:
            args = (*node.args, *node.kwargs.values())
            values = [self.env[x] for x in args if isinstance(x, torch.fx.Node)]
            with_gradients = [x for x in values if isinstance(x, torch.Tensor)]
        for x in (*operands, *self.module.parameters()):
            x.grad = None
        return sum(x.nbytes for x in with_gradients if not isinstance(x, torch.nn.Parameter))

    def flops(
        self, node: torch.fx.Node, forward: Any, backward: Any, operands: list[Any]
    ) -> tuple[int, int]:
        if self.is_colossal:
            return forward.total, backward.total
        return super().flops(node, forward, backward, operands)

    def is_kernel(self, call: Any) -> bool:
        return call.primitive.kind != "movement"

    def module_parameters(self, node: torch.fx.Node) -> list[Any]:
        return list(self.fetch_attr(node.target).parameters())

    def detached(self, value: torch.Tensor) -> torch.Tensor:
        return tree_map(alone, value)


def storage(x: torch.Tensor) -> int:
    """The address of a tensor's storage."""
    return storage_address(x.untyped_storage())


def same(x: torch.Tensor) -> torch.Tensor:
    """The saved tensor itself, as autograd's unpack hook."""
    return x


def alone(x: torch.Tensor) -> torch.Tensor:
    """A value as a leaf of a new autograd graph."""
    if not isinstance(x, torch.Tensor) or isinstance(x, torch.nn.Parameter):
        return x
    return x.detach().requires_grad_(x.requires_grad)
