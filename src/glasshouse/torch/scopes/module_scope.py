"""The module of a call in a PyTorch model, and how graphs of torch.fx note it.

TorchDynamo notes `nn_module_stack` and `stack_trace`. AOTAutograd copies them to the operators of a
call, and to those of its gradient."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from types import CodeType
from typing import Any

import torch

from glasshouse.base import having
from glasshouse.dispatch.bind import state
from glasshouse.dispatch.scope import Scope, name_within, scope_of
from glasshouse.ir.node import IRNode
from glasshouse.torch.patches.dynamo import InstructionTranslator
from glasshouse.torch.patches.modules import CHILDREN, children_of

SELF = "L['self']"  # TorchDynamo's name for the module whose method it compiles
PHASE = "glasshouse_phase"  # a key of `meta["custom"]`, and of `meta` in graphs from the disk


class TorchScope(Scope):
    """A running PyTorch module. Paths begin below the outermost module, as in `state_dict`:
    encoder.layer.3.attention. The outermost module has the name of its class."""

    __slots__ = ()

    @property
    def path(self) -> str:
        """The names down to the module."""
        if self.full_name is None:
            parent = self.parent
            if parent is None:
                self.full_name: str = self.kind
            else:
                name = name_inside(parent.module(), self.module()) or self.kind
                self.full_name = name if parent.parent is None else f"{parent.path}.{name}"
        return self.full_name


def name_inside(parent: torch.nn.Module, module: torch.nn.Module) -> str | None:
    """The name of a module in the one that calls it, mostly its parent."""
    inside = {} if parent is None else children_of(parent)
    names = (name for name, inner in inside.items() if inner is module and inner is not None)
    return next(names, None) or name_within(parent, module)


def in_torch_module(module: torch.nn.Module) -> having:
    """A context in which calls belong to a PyTorch module, inside the running one."""
    return having(state, scope=scope_of(module, state.scope, TorchScope))


def in_optimizer(step: torch.optim.Optimizer) -> having:
    """A context in which calls belong to an optimizer's step."""
    return having(state, scope=None, phase="optimizer")


@contextmanager
def placed_as(node: IRNode, graph: torch.fx.Graph) -> Iterator[None]:
    """Inside, nodes added to a graph get the place of a captured node: module, pass and the user's
    line."""
    before = len(graph.nodes)
    yield
    meta = meta_of_place(node)
    for new_node in islice(reversed(graph.nodes), len(graph.nodes) - before):
        new_node.meta.update(meta)


def name_root(graph: torch.fx.Graph) -> None:
    """Name the module whose method TorchDynamo compiles, in the nodes of the method's own calls:
    TorchDynamo names only modules that the method calls."""
    try:
        frame = InstructionTranslator.current_tx().output.root_tx
        root = own_module(frame.f_code, frame.f_locals)
    except AttributeError:  # the graph is not one of TorchDynamo's
        return
    if root is not None:
        stack = {SELF: (SELF, type(root))}
        for node in graph.nodes:
            if node.op.startswith("call_") and not node.meta.get("nn_module_stack"):
                node.meta["nn_module_stack"] = stack


def own_module(code: CodeType, variables: dict[Any, Any]) -> torch.nn.Module | None:
    """The module whose method a function is: its first argument, under any name."""
    first = variables.get(code.co_varnames[0]) if code.co_argcount else None
    method = getattr(type(first), code.co_name, None)
    root = first if getattr(method, "__code__", None) is code else variables.get("self")
    return root if isinstance(root, torch.nn.Module) else None


def meta_of_place(node: IRNode) -> dict[str, Any]:
    """The `meta` of torch.fx nodes for a captured node's place: its module, pass and line."""
    scope, line = node.meta.get("scope"), node.meta.get("user")
    meta: dict[str, Any] = {}
    if scope is not None:
        meta["nn_module_stack"] = {scope.path: (scope.path, scope.kind)}
    if node.meta.get("phase") == "optimizer":
        meta["custom"] = {PHASE: "optimizer"}
    if line:
        file, _, number = line.rpartition(":")
        meta["stack_trace"] = f'File "{file}", line {number}, in a captured function\n'
    return meta


def module_path(node: torch.fx.Node) -> str:
    """The path of the module that called an operator, such as "encoder.layer.3.attention"; its
    class for the model itself. A sum of gradients, which autograd adds, belongs to the module whose
    gradient came last, as in eager."""
    if "module_path" in node.meta:  # of a graph from the disk
        return node.meta["module_path"]
    if node.meta.get("is_gradient_acc") and node.all_input_nodes:
        return module_path(max(node.all_input_nodes))
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return ""
    path, kind = list(stack.values())[-1]
    words = [w for w in re.findall(r"\w+", path) if w not in ("getattr", CHILDREN)]
    names = words[2:] if words[:1] == ["L"] else words  # L['self'] stands for the model
    return ".".join(names) or (kind if isinstance(kind, str) else kind.__name__)


def phase_of(node: torch.fx.Node) -> str:
    """The pass that an operator outside of backward graphs belongs to."""
    if PHASE in node.meta:  # of a graph from the disk
        return node.meta[PHASE]
    return (node.meta.get("custom") or {}).get(PHASE, "forward")
