"""Calls as the user spelled them: `x.view(…)`, `relu(x)`, `x + y`, each one node of a trace.

While a model is traced, methods of tensors, and those functions of ours that the Python modules of
its classes name, go to the tracer; what they are made of is not looked at."""

import functools
import operator
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from glasshouse.analyze.meta import placed
from glasshouse.dispatch import scope_of
from glasshouse.dispatch.bind import state
from glasshouse.dispatch.value import Value
from glasshouse.ir.node import INFIX
from glasshouse.nn.module import Module
from glasshouse.tensor import random
from glasshouse.tensor.handle import Tensor

HOMES = ("glasshouse.tensor.", "glasshouse.nn.functional.")  # of functions that become nodes
NAMESPACES = (
    "glasshouse",
    "glasshouse.nn.functional",
    "glasshouse.tensor.linalg",
    "glasshouse.tensor.random",
)
CONVERTING = ("asarray", "tensor", "from_dlpack", "eval")  # what they make is a constant
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
OPERATORS = {f"__{fn.__name__.strip('_')}__": fn for fn in (*INFIX, operator.neg, operator.getitem)}


def methods() -> Iterator[tuple[str, Any, Any]]:
    """(name, method, operator or None) of what tensors compute without being changed."""
    known = {**vars(Value), **vars(Tensor)}
    for name, fn in known.items():
        reflected = name.replace("__r", "__", 1) if name.startswith("__r") else name
        plain = not name.endswith("_") and not name.startswith("_") and name not in REBINDING
        if isinstance(fn, FunctionType) and (plain or reflected in OPERATORS):
            yield name, fn, OPERATORS.get(reflected)


def functions_in(namespace: dict) -> Iterator[tuple[str, FunctionType]]:
    """(name, function) of ours that a namespace knows."""
    for name, fn in list(namespace.items()):
        ours = isinstance(fn, FunctionType) and fn.__module__.startswith(HOMES)
        if ours and fn.__name__ not in CONVERTING and not fn.__name__.startswith("_"):
            yield name, fn


@contextmanager
def spelled(model: Module, tracer, primitives: bool):
    """Inside, the calls of this thread are nodes of the tracer; with `primitives` only those of
    leaf modules, `detach` and draws of random bits, which primitives do not tell."""
    graph = tracer.graph
    paths = {id(m): path for path, m in model.named_modules() if path and tracer.is_leaf(m)}

    def watched(fn, make, run=None):
        @functools.wraps(fn)
        def call(*args, **kwargs):
            if tracer.depth or tracer not in state.modes:
                return fn(*args, **kwargs)
            return tracer.call_whole(fn, args, kwargs, make, run, new_only=True)

        return call

    def of_method(name: str, fn, symbol):
        def make(args, kwargs):
            if symbol is None:
                return graph.call_method(name, args, kwargs)
            is_reflected = name.startswith("__r") and name[3:] == symbol.__name__.strip("_") + "__"
            return graph.call_function(symbol, args[::-1] if is_reflected else args, kwargs)

        return watched(fn, make)

    def call_module(module, *args, **kwargs):
        def make(operands, named):
            node = graph.call_module(paths[id(module)], operands[1:], named)
            node.meta["module"] = scope_of(module, state.scope).path
            return node

        if tracer.depth or tracer not in state.modes or id(module) not in paths:
            return plain_call(module, *args, **kwargs)
        return tracer.call_whole(plain_call, (module, *args), kwargs, make)  # with its hooks

    def detached(x):  # a value of its own, so that the tracer can tell them apart
        known = id(x.payload) in tracer.nodes or id(x.payload) in tracer.paths
        return placed(x.spec, x.backend) if known and x.mode is None else plain_detach(x)

    def of_function(fn):
        return watched(fn, functools.partial(graph.call_function, fn))

    plain_call, plain_detach = Module.__call__, Tensor.detach
    detach = watched(plain_detach, functools.partial(graph.call_method, "detach"), detached)
    places: list[tuple] = [(Module, "__call__", call_module), (Tensor, "detach", detach)]
    if primitives:
        places.append((random, "bits", of_function(random.bits)))
    else:
        modules = {type(module).__module__ for module in model.modules()}
        places += [(Tensor, name, of_method(name, fn, symbol)) for name, fn, symbol in methods()]
        for home in map(sys.modules.get, (*modules, *NAMESPACES)):
            known = functions_in(vars(home) if home else {})
            places += [(home, name, of_function(fn)) for name, fn in known]
    with replacing:
        before = [vars(home).get(name) for home, name, _ in places]
        try:
            for home, name, made in places:
                setattr(home, name, made)
            yield
        finally:
            for (home, name, _), fn in zip(places, before, strict=True):
                setattr(home, name, fn) if fn is not None else delattr(home, name)


replacing = threading.RLock()  # one thread's calls at a time
