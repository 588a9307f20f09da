"""Symbolic trace: a model as a graph, from one run on tensors without storage.

Control flow on shapes, dtypes, Python values and module state resolves as it runs. Calls of leaf
modules, of our functions and of methods become nodes. Whatever composes them, also other libraries'
functions on our tensors, is transparent. A branch on a value is an error that names its line."""

import operator
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from inspect import BoundArguments, signature
from inspect import Parameter as Argument
from itertools import count
from typing import Any

from glasshouse.analyze.meta import is_spec, meta_backend, placed, specs_in, without_storage
from glasshouse.analyze.patching import patched_calls
from glasshouse.analyze.torch_models import is_torch_module
from glasshouse.base import OptionError, Spec, check_known, having, type_name, user_line
from glasshouse.base.upper_storeys import offered
from glasshouse.dispatch import Mode, Primitive, Value, state
from glasshouse.dispatch.autocast import autocast_modes
from glasshouse.ir import GraphModule, IRGraph
from glasshouse.ir.node import IRNode, all_of, map_nodes, parts_of, with_parts
from glasshouse.nn import Module, ModuleDict, ModuleList, Parameter, Sequential
from glasshouse.tensor import Tensor

__all__ = ["register_function", "register_leaf_module", "register_non_leaf_module",
           "register_shape_rule", "symbolic_trace"]  # fmt: skip

leaf_types: set[type[Any]] = set()
no_leaf_types: set[type[Any]] = {Sequential, ModuleList, ModuleDict}
functions: dict[
    Callable[..., Any], Callable[..., Any] | None
] = {}  # traced as one node; the value: its shape rule

NO_GRAD = ("no_grad",)
PLAIN = (bool, int, float, str, type(None))
STARS: dict[int, str] = {Argument.VAR_POSITIONAL: "*", Argument.VAR_KEYWORD: "**"}


def register_leaf_module(cls: type[Any]) -> type[Any]:
    """Trace modules of this class as one node."""
    leaf_types.add(cls)
    return cls


def register_non_leaf_module(cls: type[Any]) -> type[Any]:
    """Trace through modules of this class."""
    leaf_types.discard(cls)
    no_leaf_types.add(cls)
    return cls


def register_function(
    fn: Callable[..., Any], shape_rule: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """Register a function to be traced as one node: call the result in place of `fn`.

    `shape_rule(*args, **kwargs)`, of values or Specs, gives the result's Spec (or (shape, dtype))
    where `fn` cannot run without values; otherwise `fn` itself runs."""
    functions[fn] = shape_rule

    def call(*args, **kwargs):
        tracer = next((m for m in reversed(state.modes) if isinstance(m, Tracer)), None)
        return fn(*args, **kwargs) if tracer is None else tracer.call_opaque(fn, args, kwargs)

    return call


def register_shape_rule(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the shape rule of a registered function, in place of running it."""

    def decorate(rule: Callable[..., Any]) -> Callable[..., Any]:
        functions[fn] = rule
        return rule

    return decorate


def our_layers(module: Module) -> bool:
    """Whether a module is traced as one node: ours, except containers, and registered ones."""
    cls = type(module)
    ours = f"{cls.__module__}.".startswith("glasshouse.nn.")
    return cls in leaf_types or ours and cls not in no_leaf_types


class Tracer(Mode):
    """Writes a node for each call from outside of the leaf modules."""

    def __init__(
        self, model: Module, graph: IRGraph, is_leaf: Callable[..., Any], with_regions: bool
    ) -> None:
        self.model = model
        self.graph = graph
        self.is_leaf = is_leaf
        self.with_regions = with_regions
        self.nodes: dict[int, IRNode] = {}  # by the id of the payload
        self.payloads: list[Any] = []  # payloads, so that ids stay theirs
        self.began: dict[str, Any] = {name: tensor.payload for name, tensor in members_of(model)}
        self.paths: dict[int, str] = {id(data): name for name, data in self.began.items()}
        self.handles: dict[int, str] = {id(tensor): name for name, tensor in members_of(model)}
        self.inputs: list[tuple[IRNode, Tensor, Any]] = []  # with their payloads
        self.constants: dict[str, Value] = {}
        self.regions: dict[int, IRNode] = {}  # the first node of each
        self.depth: int = 0
        self.num_outer: int = len(autocast_modes())

    def know(self, value: Any, node: IRNode) -> None:
        self.nodes[id(value.payload)] = node
        self.payloads.append(value.payload)

    def describe(self, node: IRNode, out: Tensor) -> None:
        specs = [x.spec for x in all_of(Value, out)]
        node.meta["spec"] = specs[0] if len(specs) == 1 else tuple(specs) or None
        node.meta.setdefault("module", "" if state.scope is None else state.scope.path)
        node.meta["line"] = user_line()
        if self.with_regions and state.region is not None:
            node.meta["checkpoint"] = state.region
            self.regions.setdefault(state.region, node)
        casts = [("autocast", mode.dtype.name, mode.enabled) for mode in autocast_modes()]
        stops = [NO_GRAD] if state.records is False else []  # the user's own no_grad
        if within := (*stops, *casts[self.num_outer :]):
            node.meta["within"] = within

    def node_of(self, x: Any) -> Any:
        """Node of a value; a read of the model's member, or of a constant."""
        node = self.nodes.get(id(x.payload))
        if node is None:
            path = self.paths.get(id(x.payload))
            if path is None:
                names = (f"constant_{n}" for n in count(len(self.constants)))
                path = next(name for name in names if not hasattr(self.model, name))
                self.constants[path] = x
            node = self.read(path, x)
            self.know(x, node)
        elif isinstance(x, Parameter) and node.op != "get_attr":
            node = self.write(self.read(self.handles[id(x)], x), x)  # gradients are for the handle
        return node

    def read(self, path: str, x: Tensor) -> IRNode:
        first = self.regions.get(state.region)  # reads of members stand ahead of a region
        with self.graph.inserting_before(first) if first else nullcontext():
            node = self.graph.get_attr(path)
        node.meta["spec"] = x.spec
        return node

    def write(self, place: IRNode, x: Tensor) -> IRNode:
        """Write to a member or input, whose node then has the value of `x`."""
        node = self.graph.call_method("copy_", (place, self.nodes[id(x.payload)]))
        if isinstance(x, Parameter):
            node.meta["within"] = (NO_GRAD,)
        x.payload = placed(x.spec, x.backend).payload  # its source may still be used
        self.know(x, place)
        return place

    def process(
        self,
        primitive: Primitive,
        args: tuple[Tensor, ...],
        attrs: dict[str, Any],
        below: Callable[..., Any],
    ) -> Tensor:
        if self.depth:
            return below(primitive, args, attrs)
        operands = tuple(map(self.node_of, args))
        out = below(primitive, args, attrs)
        self.give_out(self.graph.call_function(primitive, operands, attrs), out)
        return out

    def give_out(self, node: IRNode, out: Tensor) -> None:
        """Assign a node's values to it; those of a container are taken from it one by one."""
        self.describe(node, out)
        if isinstance(out, Value):
            self.know(out, node)
            return
        read = operator.getitem if isinstance(out, (list, tuple, dict)) else getattr
        for key, part in (parts_of(out) or {}).items():
            if all_of(Value, part):
                self.give_out(self.graph.call_function(read, (node, key)), part)

    def write_back(self, model: Module) -> None:
        """Write nodes that leave the forward's final values in members and inputs."""
        values: list[tuple[str | IRNode, Tensor, Any]] = []
        values += ((name, x, self.began.get(name)) for name, x in members_of(model))
        values += self.inputs
        for place, x, before in values:
            node = self.nodes.get(id(x.payload))
            if before is not x.payload and node is not None and node.op != "get_attr":
                self.write(self.read(place, x) if isinstance(place, str) else place, x)

    def result_of(self, x: Any) -> Any:
        """Operand of the graph for a result.

        Raises: OptionError for tensors in an object of another kind
        """
        if isinstance(x, Value):
            return self.node_of(x)
        if parts_of(x) is None and all_of(Value, getattr(x, "__dict__", None)):
            expected = "tensors in lists, tuples, dicts or dataclasses as results"
            raise OptionError("symbolic_trace", expected, type_name(x), "Return its tensors.")
        return with_parts(x, self.result_of)

    def argument(self, target: str, x: Any) -> Any:
        """Tensors for the Specs of an argument; a value of Python's is unchanged, and no
        placeholder."""
        specs = x if isinstance(x, PLAIN) else specs_in("symbolic_trace", x)
        if not all_of(Spec, specs):
            return specs
        node = self.graph.placeholder(target)
        value = map_nodes(specs, lambda spec: placed(spec, state.backend), Spec)
        self.give_out(node, value)
        self.inputs += [(self.nodes[id(x.payload)], x, x.payload) for x in all_of(Value, value)]
        return value

    def call_whole(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, int],
        make: Callable[..., Any],
        run: Callable[..., Any] | None = None,
        new_only: bool = False,
    ) -> Tensor:
        """Run a call as one node, which `make(operands, named)` writes, and return its result.
        `run` computes it in place of `fn`. `new_only`: no node if it returns no new value."""
        if self.depth or any(x.mode is not None for x in all_of(Value, (args, kwargs))):
            return fn(*args, **kwargs)  # within a node; in a transform, which is transparent
        operands, named = map_nodes((args, kwargs), self.node_of, Value)
        self.depth += 1  # calls within belong to the node
        try:
            out = (run or fn)(*args, **kwargs)
        finally:
            self.depth -= 1
        if not new_only or any(id(x.payload) not in self.nodes for x in all_of(Value, out)):
            self.give_out(make(operands, named), out)
        return out

    def call_opaque(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Tensor:
        rule, make = functions[fn], partial(self.graph.call_function, fn)
        run = None if rule is None else partial(result_of_rule, "register_function", rule)
        return self.call_whole(fn, args, kwargs, make, run)


def result_of_rule(where: str, rule: Callable[..., Any], *args: Any, **kwargs: Any) -> Tensor:
    """A tensor of the shape that a registered function's rule gives."""
    return placed(specs_in(where, rule(*args, **kwargs)), state.backend)


@contextmanager
def forwards_replaced(model: Module, paths: Any, make: Callable[..., Any]) -> Iterator[None]:
    """Inside, `make(path, module)` makes the forward of modules where it has not been replaced."""
    replaced = []
    try:
        for path in paths:
            module = model.get_submodule(path)
            if "forward" not in module.__dict__:
                module.__dict__["forward"] = make(path, module)
                replaced.append(module)
        yield
    finally:
        for module in replaced:
            del module.__dict__["forward"]


def members_of(model: Module) -> list[tuple[str, Tensor]]:
    """The parameters and buffers by path."""
    return [*model.named_parameters(), *model.named_buffers()]


def arguments_of(model: Any, inputs: Any, concrete: Any) -> BoundArguments:
    """The arguments of the forward of a model, ours or PyTorch's, in order.

    Raises: OptionError for arguments that it does not take
    """
    if not isinstance(inputs, (dict, list, tuple, type(None))) or not isinstance(concrete, dict):
        expected = "meta_args as a dict by name or a sequence, and concrete_args as a dict"
        raise OptionError("symbolic_trace", expected, type_name(inputs), "Write {'x': tensor}.")
    where, what, args, named = "symbolic_trace", signature(model.forward), inputs or (), {}
    if isinstance(inputs, dict):
        args, named = (), inputs
    is_open = any(p.kind == p.VAR_KEYWORD for p in what.parameters.values())
    for name in (*concrete, *(() if is_open else named)):
        check_known(where, f"arguments of {type(model).__name__}.forward", name, what.parameters)
    free = [p for name, p in what.parameters.items() if name not in concrete]
    free = [p.replace(kind=max(p.kind, p.POSITIONAL_OR_KEYWORD)) for p in free]  # all have names
    try:
        arguments = what.replace(parameters=free).bind(*args, **named).arguments
    except TypeError as error:
        expected = f"arguments of {type(model).__name__}.forward{what}"
        raise OptionError(where, expected, error, "Give them by name.") from None
    arguments |= concrete
    return BoundArguments(
        what, OrderedDict((n, arguments[n]) for n in what.parameters if n in arguments)
    )


def symbolic_trace(
    model: Any,
    meta_args: Any = None,
    concrete_args: dict[Any, Any] | None = None,
    *,
    trace_act_ckpt: bool = True,
    is_leaf: Callable[[Module], bool] = our_layers,
    bias_addition_split: bool = False,
    primitives: bool = False,
) -> Any:
    """Trace a model's forward to a graph, for arguments like these; nothing is computed.

    meta_args            {name: tensor, Spec or (shape, dtype)}, or a sequence of them in order;
                         lists, tuples, dicts and dataclasses of them are possible
    concrete_args        {name: value} that the graph is specialised to
    trace_act_ckpt       keep checkpoint regions, also in the code
    is_leaf              which modules become one node: ours, and none of the user's, unless given
    bias_addition_split  linear and convolution without bias, and its addition apart
    primitives           see through functions and methods, to the primitives that they call

    Of a torch.nn.Module: a torch.fx.GraphModule, in which layers of torch.nn are nodes; parts of
    results that are no tensors are none.

    Raises: OptionError, DTypeError for arguments; BackendError, with the line, if a value is read
    Example:
        >>> import glasshouse as gh
        >>> gm = symbolic_trace(gh.nn.Sequential(gh.nn.Linear(2, 3)), [((1, 2), "float32")])
        >>> gm.graph.print_tabular()
        opcode       name    target  args       kwargs
        placeholder  input_  input   ()         {}
        call_module  _0      0       (input_,)  {}
        output       out     output  (_0,)      {}
    """
    if is_torch_module(model):
        is_split = bias_addition_split or primitives
        return trace_of_torch(model, meta_args, concrete_args, is_leaf, is_split)
    if not isinstance(model, Module):
        fix = "Wrap the function in one."
        raise OptionError("symbolic_trace", "a Module", type_name(model), fix)
    concrete = concrete_args or {}
    inputs = [meta_args] if is_spec(meta_args) else meta_args
    bound = arguments_of(model, inputs, concrete)
    graph, backend = IRGraph(), meta_backend()
    # 0 is not False: nothing is recorded, though no no_grad of the model's says so.
    with having(state, backend=backend, records=0), without_storage(model, None, backend):
        tracer = Tracer(model, graph, is_leaf, trace_act_ckpt)
        for name in [name for name in bound.arguments if name not in concrete]:
            stars = STARS.get(bound.signature.parameters[name].kind, "")
            bound.arguments[name] = tracer.argument(stars + name, bound.arguments[name])
        with tracer, patched_calls(model, tracer, primitives):
            out = model(*bound.args, **bound.kwargs)
        result = tracer.result_of(out)
        tracer.write_back(model)
        graph.create_node("output", "output", (result,), name="out")
    graph.eliminate_dead_code()
    module = GraphModule(model, graph, tracer.constants)
    return split_biases(module) if bias_addition_split else module


def trace_of_torch(
    model: Any,
    meta_args: list[tuple[tuple[Any, ...], str]],
    concrete_args: Any,
    is_leaf: Callable[..., Any],
    is_split: bool,
) -> Any:
    """Trace a torch.nn.Module's forward to a graph.

    Raises: OptionError for options that only our models have
    """
    if is_split:
        expected = "neither bias_addition_split nor primitives for a torch.nn.Module"
        raise OptionError("symbolic_trace", expected, "one", "Leave it out.")
    leaf_test = None if is_leaf is our_layers else is_leaf
    return offered("torch", "traced")(model, meta_args, concrete_args, leaf_test)


def split_biases(module: GraphModule) -> GraphModule:
    """Split linear and convolution modules into the same without bias, and a separate addition."""
    graph = module.graph
    for node in graph.find("call_module"):
        layer = module.member(node.target)
        bias = getattr(layer, "bias", None)
        if type(layer).__name__ not in SPLIT or not isinstance(bias, Parameter):
            continue
        spec: Spec = node.meta["spec"]
        path = f"{node.target.replace('.', '_')}_without_bias"
        plain = object.__new__(type(layer))
        plain.__dict__.update(layer.__dict__)
        plain.__dict__["_parameters"] = {**layer._parameters, "bias": None}
        module.add_module(path, plain)
        with graph.inserting_before(node):
            product = graph.call_module(path, node.args, node.kwargs)
            read = graph.get_attr(f"{node.target}.bias")
            if len(spec.shape) > 2 and type(layer).__name__ != "Linear":
                shape = (len(bias), *(1,) * (len(spec.shape) - 2))
                read = graph.call_method("reshape", (read, shape))
            total = graph.call_function(add_bias, (product, read))
        product.meta, total.meta = dict(node.meta), dict(node.meta)
        node.replace_all_uses_with(total)
        graph.erase_node(node)
    return module.recompile()


SPLIT = tuple("Linear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d".split())


def add_bias(x: Any, bias: Any) -> Any:
    """x + bias: the addition that `bias_addition_split` takes out of a layer."""
    return x + bias
