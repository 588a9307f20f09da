"""Patching of calls while a model is traced: `x.view(…)`, `relu(x)`, `x + y` become one node
each, as the user wrote them.

Methods of tensors, and those functions of ours that the Python modules of the model's classes name,
go to the tracer, without the calls inside them. All threads look a name up in one place; so a patch
first checks that the tracer is among the modes of its own thread, and else makes the plain call. A
thread that keeps a patch keeps the plain function: when the trace is over, the patch drops the
tracer. Traces of several threads take turns."""

import functools
import operator
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import TYPE_CHECKING, Any

from glasshouse.analyze.meta import placed
from glasshouse.dispatch import Value, scope_of, state
from glasshouse.ir.node import INFIX, IRNode
from glasshouse.nn.module import Module
from glasshouse.tensor import Tensor, random

if TYPE_CHECKING:
    from glasshouse.analyze.trace import Tracer
    from glasshouse.ir.graph import IRGraph


HOMES = ("glasshouse.tensor.", "glasshouse.nn.functional.")  # of functions that become nodes
NAMESPACES = (
    "glasshouse",
    "glasshouse.nn.functional",
    "glasshouse.tensor.linalg",
    "glasshouse.tensor.random",
)
CONVERTING = ("asarray", "tensor", "from_dlpack", "eval")  # calls that make constants
REBINDING = (
    "backward",
    "register_hook",
    "retain_grad",
    "store_grad",
    "rebind",
    "write",
    "in_place",
    "detach",
)
OPERATORS: dict[Any, Any] = {
    f"__{fn.__name__.strip('_')}__": fn for fn in (*INFIX, operator.neg, operator.getitem)
}


def methods() -> Iterator[tuple[str, Any, Any]]:
    """(name, method, operator or None) of methods that do not change their tensor."""
    for name, fn in {**vars(Value), **vars(Tensor)}.items():
        reflected = name.replace("__r", "__", 1) if name.startswith("__r") else name
        plain = not name.endswith("_") and not name.startswith("_") and name not in REBINDING
        if isinstance(fn, FunctionType) and (plain or reflected in OPERATORS):
            yield name, fn, OPERATORS.get(reflected)


def functions_in(namespace: dict[Any, Any]) -> Iterator[tuple[str, FunctionType]]:
    """(name, function) of our functions in a namespace."""
    for name, fn in list(namespace.items()):
        ours = isinstance(fn, FunctionType) and fn.__module__.startswith(HOMES)
        if ours and fn.__name__ not in CONVERTING and not fn.__name__.startswith("_"):
            yield name, fn


class CallPatches:
    """Replacements of calls in a model's forward, which make them nodes of a tracer."""

    model: Module
    tracer: "Tracer"
    graph: "IRGraph"
    is_open: bool = True  # until the trace ends

    def __init__(self, model: Module, tracer: "Tracer") -> None:
        self.model, self.tracer, self.graph = model, tracer, tracer.graph
        leaves = [(path, m) for path, m in model.named_modules() if path and tracer.is_leaf(m)]
        self.paths: dict[int, Any] = {id(module): path for path, module in leaves}

    @property
    def is_traced(self) -> bool:
        """Whether a call of this thread becomes a node: it traces, and is not within a node."""
        return self.is_open and self.tracer in state.modes and not self.tracer.depth

    def end(self) -> None:
        """End the trace: a patch that outlives it becomes the plain function, without the trace."""
        self.is_open = False
        del self.model, self.tracer, self.graph
        self.paths.clear()

    def replacement(
        self,
        fn: Callable[..., Any],
        make: Callable[..., Any],
        run: Callable[..., Any] | None = None,
    ) -> Callable[..., Any]:
        """Build a function that is one node, which `make(operands, named)` writes; `run` computes
        it in place of `fn`."""

        @functools.wraps(fn)
        def call(*args, **kwargs):
            if not self.is_traced:
                return fn(*args, **kwargs)
            return self.tracer.call_whole(fn, args, kwargs, make, run, new_only=True)

        return call

    def function(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Replace a function."""

        def make(args, kwargs):
            return self.graph.call_function(fn, args, kwargs)

        return self.replacement(fn, make)

    def method(
        self, name: str, fn: Callable[..., Any], operator_fn: Callable[..., Any] | None
    ) -> Callable[..., Any]:
        """Replace a method of tensors; a method of an operator becomes that operator."""
        if operator_fn is None:
            return self.replacement(fn, functools.partial(self.call_method, name))
        is_reflected = name == f"__r{operator_fn.__name__.strip('_')}__"

        def make(args, kwargs):
            return self.graph.call_function(
                operator_fn, args[::-1] if is_reflected else args, kwargs
            )

        return self.replacement(fn, make)

    def call_method(
        self, name: str, args: tuple[IRNode | int, ...], kwargs: dict[str, int]
    ) -> IRNode:
        return self.graph.call_method(name, args, kwargs)

    def module_call(self) -> Callable[..., Any]:
        """Replace `Module.__call__`: leaf modules are nodes, with their hooks."""
        plain_call = Module.__call__

        def call_module(module, *args, **kwargs):
            def make(operands, named):
                node = self.graph.call_module(self.paths[id(module)], operands[1:], named)
                node.meta["module"] = scope_of(module, state.scope).path
                return node

            if not self.is_traced or id(module) not in self.paths:
                return plain_call(module, *args, **kwargs)
            return self.tracer.call_whole(plain_call, (module, *args), kwargs, make)

        return call_module

    def detach(self) -> Callable[..., Any]:
        """Replace `Tensor.detach`: its result is a new value, so that the tracer can tell it from
        its operand."""
        plain_detach = Tensor.detach

        def run(x):
            is_traced = id(x.payload) in self.tracer.nodes or id(x.payload) in self.tracer.paths
            return placed(x.spec, x.backend) if is_traced and x.mode is None else plain_detach(x)

        return self.replacement(plain_detach, functools.partial(self.call_method, "detach"), run)

    def places(self, primitives: bool) -> list[tuple[Any, str, Any]]:
        """Places to replace: (class or module, name, replacement). With `primitives` only calls of
        leaf modules, `detach` and draws of random bits, which primitives do not show."""
        always = [(Module, "__call__", self.module_call()), (Tensor, "detach", self.detach())]
        if primitives:
            return [*always, (random, "bits", self.function(random.bits))]
        modules = {type(module).__module__ for module in self.model.modules()}
        tensor_methods = [(Tensor, name, self.method(name, fn, op)) for name, fn, op in methods()]
        functions: list[tuple[Any, str, Any]] = []
        for home in filter(None, map(sys.modules.get, (*modules, *NAMESPACES))):
            functions += [(home, name, self.function(fn)) for name, fn in functions_in(vars(home))]
        return [*always, *tensor_methods, *functions]


@contextmanager
def patched_calls(model: Module, tracer: "Tracer", primitives: bool) -> Iterator[None]:
    """Inside, the calls of this thread are nodes of the tracer."""
    with traces_in_turn:
        patches = CallPatches(model, tracer)
        places = patches.places(primitives)
        before = [vars(home).get(name) for home, name, _ in places]
        try:
            for home, name, replacement in places:
                setattr(home, name, replacement)
            yield
        finally:
            for (home, name, _), fn in zip(places, before, strict=True):
                setattr(home, name, fn) if fn is not None else delattr(home, name)
            patches.end()


traces_in_turn: "threading.RLock" = threading.RLock()
