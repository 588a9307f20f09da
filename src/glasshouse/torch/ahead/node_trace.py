"""A PyTorch model's forward as a graph of torch.fx, for arguments with known sizes.

Each value of the trace has a tensor without contents, on which the model's operations run at once.
So sizes, dtypes and known whole numbers have values, and need no nodes."""

import functools
import inspect
import operator
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from glasshouse.analyze.meta import is_spec
from glasshouse.analyze.trace import STARS, arguments_of
from glasshouse.base import Spec
from glasshouse.base.errors import BackendError, DTypeError, type_name
from glasshouse.torch.ahead.eager import place_of
from glasshouse.torch.ahead.no_contents import (
    NEEDS_CONTENTS,
    Contentless,
    ContentlessMode,
    is_pair_of_torch,
    without_contents,
)
from glasshouse.torch.patches.modules import call_traced
from glasshouse.torch.patches.trees import tree_leaves, tree_map
from glasshouse.torch.tensors.dtypes import FROM_TORCH, spec_of

WHERE = "symbolic_trace"
CREATING = {  # functions that make a tensor from no tensors
    getattr(torch, name)
    for name in """arange empty eye full linspace logspace ones rand randint randn randperm
        scalar_tensor tensor zeros""".split()
}


class ValueProxy(torch.fx.Proxy):
    """A proxy in the trace, with its contentless `value`."""

    def __init__(self, node: torch.fx.Node, tracer: "ForwardTracer") -> None:
        super().__init__(node, tracer)
        self.value: Any = None

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.value, name)
        if callable(attribute) and isinstance(self.value, torch.Tensor):
            return functools.partial(self.tracer.create_method, name, self)
        if any(isinstance(x, torch.Tensor) for x in tree_leaves(attribute)):
            return self.tracer.create_proxy("call_function", getattr, (self, name), {})
        return attribute

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self.value)))

    def __len__(self) -> int:
        return len(self.value)

    def __contains__(self, key: Any) -> bool:
        return key in self.value

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    __index__ = __int__

    def __setitem__(self, key: Any, value: Any) -> None:
        self.tracer.create_proxy("call_function", operator.setitem, (self, key, value), {})

    def keys(self) -> Any:
        """The keys of a mapping."""
        return self.value.keys()


class CreatingMode(TorchFunctionMode):
    """Records functions that make tensors as nodes."""

    def __init__(self, tracer: "ForwardTracer") -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: tuple[type[Any], ...],
        args: tuple[torch.Tensor, ...] = (),
        kwargs: Any = None,
    ) -> Any:
        if func in CREATING and not self.tracer.is_inside:
            return self.tracer.create_proxy("call_function", func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


class ForwardTracer(torch.fx.Tracer):
    """Traces a forward; a module for which `is_leaf` is true is one node."""

    proxy_buffer_attributes = True

    def __init__(
        self, bound: inspect.BoundArguments, is_leaf: Callable[..., Any] | None, mode: Any
    ) -> None:
        super().__init__()
        self.bound = bound
        self.is_leaf = is_leaf
        self.mode = mode
        self.is_inside: bool = False  # whether a node's call runs
        self.paths: list[str] = [""]  # of the running modules

    # -- what torch.fx calls -------------------------------------------------------------------

    def proxy(self, node: torch.fx.Node) -> ValueProxy:
        """The proxy of a node's value in the model's code."""
        return ValueProxy(node, self)

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is one node."""
        return self.is_leaf(m) if self.is_leaf else super().is_leaf_module(m, module_qualified_name)

    def call_module(
        self,
        m: torch.nn.Module,
        forward: Callable[..., Any],
        args: tuple[ValueProxy, ...],
        kwargs: dict[Any, Any],
    ) -> ValueProxy:
        """A call of a module."""
        if self.is_inside:
            return forward(*args, **kwargs)
        self.paths.append(self.path_of_module(m))
        try:
            return super().call_module(m, forward, args, kwargs)
        finally:
            self.paths.pop()

    def getattr(
        self,
        attr: str,
        attr_val: torch.nn.Module | torch.Tensor,
        parameter_proxy_cache: dict[Any, Any],
    ) -> Any:
        """A parameter or buffer that a module reads."""
        if self.is_inside:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Callable[..., Any], list[torch.nn.Module]]:
        """The forward, with placeholders for arguments with tensors, and its model."""
        bound, named = self.bound, self.bound.arguments
        for name, value in named.items():
            named[name] = self.argument(name, value)
        if any(bound.signature.parameters[name].kind in STARS for name in named):
            return lambda model: root_fn(model, *bound.args, **bound.kwargs), [self.root]
        return functools.partial(root_fn, **named), [self.root]

    def create_proxy(
        self,
        kind: str,
        target: Any,
        args: tuple[ValueProxy, ...],
        kwargs: dict[Any, Any],
        name: Any = None,
        type_expr: Any = None,
        *_: Any,
    ) -> ValueProxy:
        """The result of a call: a proxy where it has tensors, else the value itself."""
        if kind in ("placeholder", "output"):
            return super().create_proxy(kind, target, args, kwargs, name, type_expr)
        value = self.run_call(kind, target, *tree_map(value_of, (args, kwargs)))
        has_tensors = any(isinstance(x, torch.Tensor) for x in tree_leaves(value))
        is_part = target is operator.getitem and isinstance(args[0].value, (tuple, list))
        if not has_tensors and not is_part:
            return value
        proxy = super().create_proxy(kind, target, args, kwargs, name, type_expr)
        proxy.value = value
        proxy.node.meta |= {"module": self.paths[-1], "value": value, "spec": specs_in(value)}
        return proxy if has_tensors else value

    # -- calls of nodes ------------------------------------------------------------------------

    def create_method(self, name: str, *args: Any, **named: Any) -> Any:
        """The result of a method's call, as `create_proxy` gives it."""
        return self.create_proxy("call_method", name, args, named)

    def argument(self, name: str, value: torch.Tensor) -> ValueProxy:
        """A placeholder for a value with tensors; any other value as it is."""
        if not any(isinstance(x, torch.Tensor) for x in tree_leaves(value)):
            return value
        proxy = super().create_proxy("placeholder", name, (), {})
        proxy.value = value
        proxy.node.meta |= {"module": "", "value": value, "spec": specs_in(value)}
        return proxy

    def run_call(self, kind: str, target: Any, args: Any, named: dict[Any, Any]) -> torch.Tensor:
        """The result of a call on tensors without contents."""
        self.is_inside = True
        try:
            if kind == "call_function":
                return target(*args, **named)
            if kind == "call_method":
                return getattr(args[0], target)(*args[1:], **named)
            if kind == "get_attr":
                return operator.attrgetter(target)(self.root)
            return call_traced(self.root.get_submodule(target), *args, **named)
        finally:
            self.is_inside = False


def value_of(x: ValueProxy) -> torch.Tensor:
    """The value of a proxy, in slices too; any other value as it is."""
    if isinstance(x, slice):
        return slice(value_of(x.start), value_of(x.stop), value_of(x.step))
    return x.value if isinstance(x, ValueProxy) else x


def specs_in(value: torch.Tensor) -> Spec:
    """Shapes and dtypes of tensors in a value; None for a dtype that we do not have."""

    def of(x):
        is_ours = isinstance(x, torch.Tensor) and x.dtype in FROM_TORCH
        return spec_of(x) if is_ours else None

    return tree_map(of, value)


@contextmanager
def contentless(modules: list[Any]) -> Iterator[Contentless]:
    """Inside, modules have no contents; yields the maker of such arguments. Errors name the
    place."""
    mode = ContentlessMode()
    maker = Contentless(mode)
    try:
        with ExitStack() as stack:
            stack.enter_context(without_contents(modules, None, maker))
            stack.enter_context(mode)
            yield maker
    except NEEDS_CONTENTS as error:
        expected, fix = "a program that reads no values", "Decide by shapes or dtypes there."
        raise BackendError(WHERE, expected, place_of(mode, error, modules[0]), fix) from error


def traced(
    model: torch.nn.Module,
    meta_args: list[tuple[tuple[Any, ...], str]] | None = None,
    concrete_args: dict[Any, Any] | None = None,
    is_leaf: Callable[[torch.nn.Module], bool] | None = None,
) -> torch.fx.GraphModule:
    """The graph of a model's forward, as torch.fx has it; `meta` of a node has its "spec" and its
    "module".

    Raises: OptionError for arguments; BackendError, with the line, if a value is read
    """
    is_alone = is_spec(meta_args) or is_pair_of_torch(meta_args)
    bound = arguments_of(model, [meta_args] if is_alone else meta_args, concrete_args or {})
    with contentless([model]) as maker:
        try:
            bound.arguments |= {name: maker.input_of(x) for name, x in bound.arguments.items()}
        except TypeError as error:
            expected, fix = "tensors, or pairs of shape and dtype", "Write ((8, 3), torch.float32)."
            raise DTypeError(WHERE, expected, type_name(meta_args), fix) from error
        tracer = ForwardTracer(bound, is_leaf, maker.mode)
        with CreatingMode(tracer):
            graph = tracer.trace(model)
    for node in graph.nodes:
        node.meta.pop("value", None)
    return torch.fx.GraphModule(model, graph)
