"""Symbolic trace: a model as a graph, found by running it once on tensors without storage.

Control flow on shapes, dtypes, Python values and module state resolves as it runs. Calls of leaf
modules, of our functions and of methods become nodes; whatever composes them, also other libraries'
functions on our tensors, is seen through. A branch on a value is an error that names its line."""

from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from glasshouse.analyze.meta import meta_backend, placed, spec_of, without_storage
from glasshouse.analyze.spelling import spelled
from glasshouse.autograd import no_grad
from glasshouse.base.errors import DTypeError, OptionError, check_known, type_name, user_line
from glasshouse.base.shape import Spec
from glasshouse.base.tree import flatten, unflatten
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch.bind import state
from glasshouse.dispatch.mode import Mode
from glasshouse.dispatch.value import Value
from glasshouse.graph.ir import Graph, Node
from glasshouse.nn.containers import ModuleDict, ModuleList, Sequential
from glasshouse.nn.graph_module import GraphModule
from glasshouse.nn.module import Module, Parameter

leaf_types: set[type] = set()
no_leaf_types: set[type] = {Sequential, ModuleList, ModuleDict}
functions: dict[Callable, Callable | None] = {}  # traced as one node; the value: its shape rule


def register_leaf_module(cls: type) -> type:
    """Trace modules of this class as one node."""
    leaf_types.add(cls)
    return cls


def register_non_leaf_module(cls: type) -> type:
    """Trace through modules of this class."""
    leaf_types.discard(cls)
    no_leaf_types.add(cls)
    return cls


def register_function(fn: Callable, shape_rule: Callable | None = None) -> Callable:
    """A function that is traced as one node: call what this returns in place of `fn`.

    `shape_rule(*args, **kwargs)`, of values or Specs, gives the result's Spec (or (shape, dtype))
    where `fn` cannot run without values; otherwise `fn` itself runs."""
    functions[fn] = shape_rule

    def call(*args, **kwargs):
        tracer = next((m for m in reversed(state.modes) if isinstance(m, Tracer)), None)
        return fn(*args, **kwargs) if tracer is None else tracer.call_opaque(fn, args, kwargs)

    return call


def register_shape_rule(fn: Callable) -> Callable:
    """Decorator: the shape rule of a registered function, in place of running it."""

    def decorate(rule: Callable) -> Callable:
        functions[fn] = rule
        return rule

    return decorate


def is_leaf(module: Module) -> bool:
    """Whether a module is traced as one node: ours, except containers, and registered ones."""
    cls = type(module)
    if cls in leaf_types:
        return True
    if cls in no_leaf_types:
        return False
    return f"{cls.__module__}.".startswith("glasshouse.nn.")


class Tracer(Mode):
    """Writes a node for each call that comes from outside of the leaf modules."""

    def __init__(self, model: Module, graph: Graph, is_leaf: Callable, with_regions: bool):
        self.model, self.graph, self.is_leaf = model, graph, is_leaf
        self.with_regions = with_regions
        self.nodes: dict[int, Node] = {}  # by the id of the payload
        self.kept: list = []  # payloads, so that ids stay theirs
        self.paths: dict[int, str] = {}
        self.constants: dict[str, Value] = {}
        self.depth = 0
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            self.paths[id(tensor.data)] = name

    def know(self, value, node: Node) -> None:
        self.nodes[id(value.data)] = node
        self.kept.append(value.data)

    def describe(self, node: Node, out) -> None:
        specs = [x.spec for x in flatten(out)[0] if isinstance(x, Value)]
        node.meta["spec"] = specs[0] if len(specs) == 1 else tuple(specs) or None
        node.meta["module"] = "" if state.scope is None else state.scope.path
        node.meta["line"] = user_line()
        if self.with_regions and state.region is not None:
            node.meta["checkpoint"] = state.region

    def node_of(self, x) -> Any:
        """The node that gives a value; a read of the model's member, or of a constant."""
        if not isinstance(x, Value):
            return x
        node = self.nodes.get(id(x.data))
        if node is None:
            path = self.paths.get(id(x.data))
            if path is None:
                path = f"constant_{len(self.constants)}"
                self.constants[path] = x
            node = self.graph.get_attr(path)
            node.meta["spec"] = x.spec
            self.know(x, node)
        return node

    def operands(self, args, kwargs):
        leaves, treedef = flatten((args, kwargs))
        return unflatten(treedef, [self.node_of(x) for x in leaves])

    def process(self, primitive, args, attrs, below):
        if self.depth:
            return below(primitive, args, attrs)
        operands = tuple(map(self.node_of, args))
        out = below(primitive, args, attrs)
        node = self.graph.call_function(primitive, operands, attrs)
        self.describe(node, out)
        self.give_out(node, out)
        return out

    def give_out(self, node: Node, out) -> None:
        """Note the values of a node; those of a tuple are taken from it one by one."""
        if isinstance(out, Value):
            self.know(out, node)
            return
        for i, part in enumerate(out if isinstance(out, (tuple, list)) else ()):
            if isinstance(part, Value):
                taken = self.graph.call_method("__getitem__", (node, i))
                self.describe(taken, part)
                self.know(part, taken)

    def call_whole(
        self, fn: Callable, args, kwargs, make: Callable, run: Callable | None = None,
        new_only: bool = False,
    ):  # fmt: skip
        """A call that is one node, which `make(operands, named)` writes, and what it gives. `run`
        computes it in place of `fn`. `new_only`: no node if it gives no new value."""
        if self.depth:
            return fn(*args, **kwargs)
        operands, named = self.operands(args, kwargs)
        self.depth += 1  # calls within belong to the node
        try:
            out = (run or fn)(*args, **kwargs)
        finally:
            self.depth -= 1
        values = (x for x in flatten(out)[0] if isinstance(x, Value))
        if not new_only or any(id(x.data) not in self.nodes for x in values):
            node = make(operands, named)
            self.describe(node, out)
            self.give_out(node, out)
        return out

    def call_opaque(self, fn: Callable, args, kwargs):
        def run(*args, **kwargs):
            spec = spec_of("register_function", functions[fn](*args, **kwargs))
            return placed(spec, state.backend)

        make = partial(self.graph.call_function, fn)
        return self.call_whole(fn, args, kwargs, make, functions[fn] and run)


@contextmanager
def forwards_replaced(model: Module, paths, make: Callable):
    """Inside, `make(path, module)` gives the forward of modules where it has not been replaced."""
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


def leaves_watched(model: Module, tracer: Tracer):
    paths = [path for path, module in model.named_modules() if path and tracer.is_leaf(module)]

    def watched(path: str, module: Module):
        make, plain = partial(tracer.graph.call_module, path), module.forward
        return lambda *args, **kwargs: tracer.call_whole(plain, args, kwargs, make)

    return forwards_replaced(model, paths, watched)


def argument_names(model: Module, given: dict) -> list[str]:
    """The arguments of the model's forward, in order. Raises: OptionError for what is none"""
    code = type(model).forward.__code__
    names = list(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])
    what = f"arguments of {type(model).__name__}.forward ({', '.join(names)})"
    for name in given:
        check_known("symbolic_trace", what, name, names)
    return [name for name in names if name in given]


def symbolic_trace(
    model: Module, meta_args=None, concrete_args: dict | None = None, *, trace_act_ckpt=True,
    is_leaf: Callable[[Module], bool] = is_leaf, bias_addition_split: bool = False,
    primitives: bool = False,
) -> GraphModule:  # fmt: skip
    """The graph of a model's forward for arguments like these; nothing is computed.

    meta_args            {name: tensor, Spec or (shape, dtype)}, or a sequence of them in order;
                         lists and dicts of them are possible
    concrete_args        {name: value} that the graph is specialised to
    trace_act_ckpt       keep checkpoint regions, also in the code
    is_leaf              which modules become one node: ours, and none of the user's, unless given
    bias_addition_split  linear and convolution without bias, and its addition apart
    primitives           see through functions and methods, to the primitives that they call

    Raises:  OptionError, DTypeError for wrong arguments; BackendError, with the line, where a value
             is read
    Example: >>> import glasshouse as gh
             >>> gm = symbolic_trace(gh.nn.Sequential(gh.nn.Linear(2, 3)), [((1, 2), "float32")])
             >>> gm.graph.print_tabular()
             opcode       name    target  args       kwargs
             placeholder  input_  input   ()         {}
             call_module  _0      0       (input_,)  {}
             output       out     output  (_0,)      {}"""
    if not isinstance(model, Module):
        fix = "Wrap the function in one."
        raise OptionError("symbolic_trace", "a Module", type_name(model), fix)
    given = as_arguments(model, meta_args, concrete_args or {})
    graph, backend = Graph(), meta_backend()
    with backends.use(backend), no_grad(), without_storage(model, None, backend):
        tracer = Tracer(model, graph, is_leaf, trace_act_ckpt)
        names = argument_names(model, given)
        values = {name: argument(tracer, name, given[name], backend) for name in names}
        values |= concrete_args or {}
        spelling = nullcontext() if primitives else spelled(model, tracer)
        with tracer, leaves_watched(model, tracer), spelling:
            out = model(**values)
        leaves, treedef = flatten(out)
        result = unflatten(treedef, [tracer.node_of(x) for x in leaves])
        graph.create_node("output", "output", (result,), name="out")
    graph.eliminate_dead_code()
    module = GraphModule(with_constants(model, tracer.constants), graph)
    return split_biases(module) if bias_addition_split else module


def as_arguments(model: Module, meta_args, concrete: dict) -> dict:
    if isinstance(meta_args, dict):
        argument_names(model, meta_args)
        return meta_args
    code = type(model).forward.__code__
    names = [n for n in code.co_varnames[1 : code.co_argcount] if n not in concrete]
    given = list(meta_args or ())
    if len(given) > len(names):
        expected = f"at most {len(names)} arguments ({', '.join(names)})"
        raise OptionError("symbolic_trace", expected, len(given), "Give them by name.")
    return dict(zip(names, given, strict=False))


def argument(tracer: Tracer, name: str, given, backend):
    """The value of an argument: a tensor for a spec, and so inside lists and dicts."""
    if isinstance(given, dict):
        return {k: argument(tracer, f"{name}_{k}", v, backend) for k, v in given.items()}
    if isinstance(given, list):
        return [argument(tracer, f"{name}_{i}", v, backend) for i, v in enumerate(given)]
    try:
        spec = spec_of("symbolic_trace", given)
    except DTypeError:
        if given is None or isinstance(given, (bool, int, float, str)):
            return given
        raise
    node = tracer.graph.placeholder(name)
    value = placed(spec, backend)
    node.meta["spec"] = spec
    tracer.know(value, node)
    return value


def with_constants(model: Module, constants: dict[str, Value]) -> Module:
    """A module with the members of the model, and tensors that its code made."""
    holder = Module()
    for kind in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
        holder.__dict__[kind].update(model.__dict__[kind])
    holder.__dict__["training"] = model.training
    for name, value in constants.items():
        holder.register_buffer(name, value, persistent=False)
    return holder


def split_biases(module: GraphModule) -> GraphModule:
    """Linear and convolution modules as the same without bias, and an addition of its own."""
    graph = module.graph
    for node in graph.find("call_module"):
        layer = module.member(node.target)
        bias = getattr(layer, "bias", None)
        if type(layer).__name__ not in SPLIT or not isinstance(bias, Parameter):
            continue
        spec: Spec = node.meta["spec"]
        path = f"{node.target.replace('.', '_')}_without_bias"
        plain = type(layer).__new__(type(layer))
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


SPLIT = ("Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d",
         "ConvTranspose3d")  # fmt: skip


def add_bias(x, bias):
    """x + bias: what `bias_addition_split` takes out of a layer."""
    return x + bias
