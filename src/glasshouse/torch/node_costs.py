"""What each node of a traced PyTorch model costs, forward and backward, before it runs.

Each node runs by itself on tensors without contents, with gradients: PyTorch tells what it saves
for its backward pass, and the FLOP counter, or ColossalAI's formulas, what both passes take."""

from contextlib import nullcontext
from math import prod, sqrt
from unittest import mock

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.fx import Interpreter
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from glasshouse.analyze.cost_table import CostTable, NodeCost
from glasshouse.analyze.machine import MachineProfile
from glasshouse.base.errors import OptionError
from glasshouse.profile.counter import FlopCounter
from glasshouse.torch.node_trace import contentless
from glasshouse.torch.operator_cost import is_view, tensors_in

aten = torch.ops.aten
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


class ColossalMode(TorchDispatchMode):
    """Adds up what operators take, a multiply-add as 1."""

    def __init__(self):
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.total += colossal_flops(func, args, result)
        return result


def colossal_flops(func, args, result) -> int:
    """What one operator takes by ColossalAI's formulas."""
    name = func._schema.name.partition("::")[2].rstrip("_")
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


def of_convolution(out, weight, is_transposed: bool, x) -> int:
    """Multiply-adds of a convolution; its two gradients take as many each."""
    return (x if is_transposed else out).shape.numel() * prod(weight.shape[1:])


def unfused_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, **_):
    """Attention as PyTorch 1.12 composed it, of operators that keep what they read. No mask changes
    what is counted, but that of its addition."""
    query = query / sqrt(query.shape[-1])
    scores = torch.matmul(query, key.transpose(-2, -1))
    if attn_mask is not None and attn_mask.is_floating_point():
        scores = scores + attn_mask
    scores = torch.softmax(scores, dim=-1)
    if dropout_p > 0.0:
        scores = torch.dropout(scores, dropout_p, True)
    return torch.matmul(scores, value)


def counted(is_colossal: bool):
    """A context that counts operators."""
    return ColossalMode() if is_colossal else FlopCounter()


class NodeProfiler(Interpreter):
    """Runs every node by itself, and notes what it costs."""

    def __init__(self, module: torch.fx.GraphModule, is_colossal: bool, machine: MachineProfile):
        super().__init__(module, garbage_collect_values=False)
        self.is_colossal, self.machine = is_colossal, machine
        self.costs: dict[torch.fx.Node, NodeCost] = {}
        held = (*module.parameters(), *module.buffers())
        self.own = set(map(storage, held))  # of parameters and buffers
        self.saved: dict[int, int] = {}  # bytes by storage
        self.new_bytes: dict[torch.fx.Node, dict[int, int]] = {}
        self.ledgers: dict[torch.fx.Node, dict[int, int]] = {}  # what is saved after each node
        self.kept: list = []  # tensors, so that storages stay theirs

    def run_node(self, n: torch.fx.Node):
        """The value of a node, cut off from those before it."""
        spec = n.meta.get("spec")
        name = n.target if isinstance(n.target, str) else getattr(n.target, "__name__", "")
        place = n.meta.get("module", "")
        shape = str(spec) if spec is not None else ""
        cost = self.costs[n] = NodeCost(n.name, n.op, name, place, "", shape)
        self.new_bytes[n] = {}
        if n.op in ("placeholder", "get_attr", "output"):
            value = super().run_node(n)
            if n.op == "placeholder":
                self.note_new(n, tensors_in(value), set())
            return value
        before = [x for y in n.all_input_nodes for x in tensors_in(self.env[y])]
        with counted(self.is_colossal) as forward, saved_tensors_hooks(self.save, same):
            out = super().run_node(n)
        self.kept.append(out)
        results = tensors_in(out)
        self.note_new(n, results, set(map(storage, before)))
        self.ledgers[n] = dict(self.saved)
        with counted(self.is_colossal) as backward:
            self.pull(n, cost, results, before)
        self.note_work(cost, forward, backward)
        read = [x for x in before if isinstance(x, torch.nn.Parameter)]
        if n.op == "call_module":
            read += self.fetch_attr(n.target).parameters()
        cost.param = sum({id(p): p.nbytes for p in read}.values())
        return pytree.tree_map(alone, out)

    def save(self, x: torch.Tensor) -> torch.Tensor:
        """Autograd saves a tensor."""
        where = storage(x)
        if where not in self.own:
            self.saved[where] = self.bytes_of(x)
            self.kept.append(x)
        return x

    def bytes_of(self, x: torch.Tensor) -> int:
        """Bytes of a tensor's memory; to ColossalAI, of its elements."""
        return x.nbytes if self.is_colossal else x.untyped_storage().nbytes()

    def note_new(self, node: torch.fx.Node, results, old: set[int]) -> None:
        """What memory a node makes; to ColossalAI, all results are new that are not saved yet."""
        old = (self.saved.keys() if self.is_colossal else old) | self.own
        for x in results:
            if storage(x) not in old:
                self.new_bytes[node][storage(x)] = self.bytes_of(x)

    def pull(self, node: torch.fx.Node, cost: NodeCost, results, operands) -> None:
        """Run the backward pass of a node alone, for zeros. ColossalAI lists a gradient for each
        argument that is a tensor, as often as it is one; else there are those that are made."""
        outputs = [x for x in results if x.requires_grad and x.grad_fn is not None]
        if outputs:
            torch.autograd.backward(outputs, [torch.zeros_like(x) for x in outputs])
        given = {id(x): x for x in operands if x.grad is not None}.values()
        if self.is_colossal:
            args = (*node.args, *node.kwargs.values())
            values = [self.env[x] for x in args if isinstance(x, torch.fx.Node)]
            given = [x for x in values if isinstance(x, torch.Tensor)]
        cost.backward = sum(x.nbytes for x in given if not isinstance(x, torch.nn.Parameter))
        for x in (*operands, *self.module.parameters()):
            x.grad = None

    def note_work(self, cost: NodeCost, forward, backward) -> None:
        """FLOPs, bytes and time of both passes."""
        if self.is_colossal:
            cost.forward_flops, cost.backward_flops = forward.total, backward.total
            return
        cost.forward_flops, cost.backward_flops = forward.total("all"), backward.total("all")
        cost.forward_bytes, cost.backward_bytes = forward.bytes, backward.bytes
        cost.forward_ns, cost.backward_ns = map(self.ns_of, (forward, backward))

    def ns_of(self, counter: FlopCounter) -> float:
        """ns of what was counted, each call a kernel of its own."""
        counts = counter.counts.items()
        return sum(
            n * self.machine.ns_of_call(call)
            for (call, _), (n,) in counts
            if call.primitive.kind != "movement"
        )

    def finish(self) -> list[NodeCost]:
        """The rows. What is saved counts where it was made, or else where it was first saved."""
        before: dict[int, int] = {}
        for node, cost in self.costs.items():
            ledger, new = self.ledgers.get(node, before), self.new_bytes[node]
            kept = {key: self.saved[key] for key in new if key in self.saved}
            if not self.is_colossal:
                ledger = before | ledger
            cost.output = sum(kept.values())
            cost.temp = sum(n for key, n in new.items() if key not in kept)
            cost.accumulate = sum((kept | ledger).values())
            before = ledger if self.is_colossal else kept | ledger
        rows = list(self.costs.values())
        for row, last in zip(rows[1:], rows, strict=False):
            row.incremental = row.accumulate - last.accumulate
        if not self.is_colossal and rows:  # the first row shows no increment there
            rows[0].incremental = rows[0].accumulate
        return rows


def storage(x: torch.Tensor) -> int:
    """What tells memory apart."""
    return x.untyped_storage()._cdata


def same(x: torch.Tensor) -> torch.Tensor:
    """What autograd saved."""
    return x


def alone(x):
    """A value as the beginning of a graph of its own."""
    if not isinstance(x, torch.Tensor) or isinstance(x, torch.nn.Parameter):
        return x
    return x.detach().requires_grad_(x.requires_grad)


def profiled(
    module: torch.fx.GraphModule, args, convention: str, machine: MachineProfile
) -> CostTable:
    """What each node costs for arguments like these; also in each node's `meta["cost"]`.

    Raises: OptionError where there are more or fewer arguments
    """
    names = [node.target for node in module.graph.find_nodes(op="placeholder")]
    if len(args) != len(names):
        expected = f"{len(names)} arguments ({', '.join(names)})"
        fix = "Give what was traced, in order."
        raise OptionError("symbolic_profile", expected, len(args), fix)
    is_colossal, functional = convention == "colossal", torch.nn.functional
    attention = mock.patch.object(functional, "scaled_dot_product_attention", unfused_attention)
    patched = attention if is_colossal else nullcontext()
    with contentless([module]) as made, torch.enable_grad(), patched:
        profiler = NodeProfiler(module, is_colossal, machine)
        profiler.run(*map(made.input_of, args))
    for node, cost in profiler.costs.items():
        node.meta["cost"] = cost
    return CostTable(profiler.finish(), convention, [])
