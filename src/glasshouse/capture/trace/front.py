"""Front ends: they recognise tensors, turn calls on them into nodes, and guard them.

The interpreter, the guards and generated code know tensors only through this interface. `FrontEnd`
has the common part, which is enough for values that are never written to in place.
"""

import operator
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from glasshouse.base.errors import HiddenValueError
from glasshouse.capture.rules.class_lookups import rely_on_data
from glasshouse.capture.rules.constants import fix_inputs
from glasshouse.capture.rules.operators import IN_PLACE, is_in_place
from glasshouse.capture.rules.subscripts import note_part, note_view, put_back_first
from glasshouse.capture.trace.call_nodes import describe_call, refuse_functions
from glasshouse.capture.trace.tracer import CaptureTracer
from glasshouse.capture.values.plain import ARRAY_SCALARS, FUNCTIONS, MISSING, SCALARS
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.value_queries import ValueQueries
from glasshouse.capture.values.var import (
    Break,
    Kwargs,
    Recipe,
    SymbolicNumber,
    Then,
    UserError,
    ValueSource,
    Var,
    constant,
)
from glasshouse.ir.graph_module import GraphModule
from glasshouse.ir.node import IRNode

VARYING = {
    getattr(operator, f"{i}{name}") for name in ("add", "sub", "mul", "truediv") for i in ("", "i")
}

OWN_NAMES = ("run", "code", "graph", "training", "forward")  # of a graph's module

WRITING = set("setitem delitem setattr backward held_gradients rebind __enter__ __exit__".split())


def is_buffer(source: Any) -> bool:
    """Whether a source is an entry of a module's dict of buffers."""
    table = source.base if isinstance(source, ValueSource) and source.kind == "get" else None
    return table is not None and table.kind == "get" and table.key == "_buffers"


def converted_input(tracer: "CaptureTracer", var: Var, tensor: Any, convert: Any) -> IRNode:
    """The node of an input of the graph: a tensor, made of one of NumPy's values in each call."""
    tracer.typed(var)
    text = var.origin.text if isinstance(var.origin, ValueSource) else "number"
    node = tracer.graph.placeholder(text.replace("__dict__", ""))
    node.meta["varies"] = False
    tracer.operands.inputs.append((node, Var(tensor, SymbolicNumber(convert, (var,)))))
    return node


class FrontEnd(ValueQueries):
    """One kind of tensor."""

    name = "none"
    in_place: frozenset[Any] = frozenset()  # functions that write to their first argument
    reentered: tuple[type[Any], ...] = ()  # contexts whose object can be entered twice
    left_to_python: tuple[str, ...] = ()  # modules whose functions are not interpreted
    looked_into: frozenset[str] = frozenset()  # exceptions among these
    yields = False  # whether other front ends capture calls that they claim
    computes_for_real = False  # whether a trace computes the results of the call
    end: Callable[["CaptureTracer"], None]  # end a trace; twice does no harm

    def claims(self, fn: Any, slots: Any) -> bool:
        """Whether a call of fn with these arguments works on the library's tensors."""
        return False

    def is_module(self, value: Any) -> bool:
        """Whether a value is a module of a neural network, captured as a whole."""
        return False

    def looks_into(
        self, tracer: "CaptureTracer", module: str, args: list[Var], kwargs: Kwargs
    ) -> bool:
        """Whether a call of a function in `left_to_python` is interpreted even so."""
        return module in self.looked_into

    def why_left(self, fn: Callable[..., Any], module: str) -> str:
        """The reason why a function in `left_to_python` is not interpreted."""
        return f"{fn.__qualname__} runs as it is"

    def named_compiler(self, name: str) -> Any:
        """The compiler that the library has under a name, or None."""
        return

    def compiler_names(self) -> list[str]:
        """The names of the compilers that the library has."""
        return []

    def compile(self, compiler: Any, module: "GraphModule", example_inputs: list[Any]) -> Any:
        """Compile a graph: the callable that the compiler returns."""
        return compiler(module, example_inputs)

    # -- tensors and their guards ---------------------------------------------------------------

    def is_tensor(self, value: Any) -> bool:
        """Whether a value is a tensor."""
        raise NotImplementedError

    def is_operation(self, fn: Any) -> bool:
        """Whether a function is a node of the graph."""
        raise NotImplementedError

    def guard(self, tracer: "CaptureTracer", var: Var) -> None:
        """Guard all that an operation may rely on: dtype, shape, and so on."""
        raise NotImplementedError

    def metadata(self, tracer: "CaptureTracer", var: Var, name: str) -> Var | None:
        """An attribute that the guards fix; None for others."""
        return None

    def run(self, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Compute while tracing.

        Raises: HiddenValueError if a tensor's value is needed
        """
        return fn(*args, **kwargs)

    def state_of(self, value: Any) -> Any:
        """The state that `restore` needs to undo later writes."""

    def restore(self, value: Any, state: Any) -> None:
        """Restore the state of a tensor."""

    def adopt(self, value: Any, result: Any) -> bool:
        """Put the graph's result into the trace's tensor; False if that is impossible."""
        return False

    def own_gradient(self, tracer: "CaptureTracer", owner: IRNode, value: Any, result: Any) -> None:
        """Put the trace's gradient object in place of the graph's, on the tensor of a node."""

    def is_owned(self, value: Any) -> bool:
        """Whether the graph's module has a tensor, as it has its parameters; others are inputs."""
        return False

    def keep(self, value: Any, link: Any, entry: Any) -> None:
        """Make a tensor that the graph owns keep an entry alive as long as the link lives."""
        raise NotImplementedError

    def is_constant(self, value: Any) -> bool:
        """Whether a value of another kind may be a constant of the graph, guarded by identity."""
        return False

    def is_key(self, value: Any) -> bool:
        """Whether a value whose class compares in Python may be a key of a dict, since no other
        value equals it."""
        return self.is_constant(value)

    def varies(self, source: ValueSource) -> bool:
        """Whether a number at a source is expected to differ from call to call."""
        return False

    def size_varies(self, tracer: "CaptureTracer", var: Var) -> bool:
        """Whether an input of the graph may have another size in a later call."""
        return False

    def as_tensor(self, number: Any) -> Any:
        """One of NumPy's numbers as a tensor, if operators accept that; else None."""
        return

    def check_numbers(self, tracer: "CaptureTracer", args: list[Var]) -> None:
        """Guard the ranges of varying numbers that an operation relies on."""

    def is_stale(self, tracer: "CaptureTracer", var: Var) -> bool:
        """Whether a value may be changed by a call that Python repeats."""
        return False

    def ambient(self, tracer: "CaptureTracer") -> None:
        """Guard the state of the library apart from the arguments: modes and so on."""

    def is_ambient(self, value: Any) -> bool:
        """Whether an object holds the state that `ambient` guards."""
        return False

    def begin(self, tracer: "CaptureTracer") -> Any:
        """Begin a trace; the tracer's `front_state`."""

    def rollback(self, tracer: "CaptureTracer") -> Callable[[], None]:
        """Undo the trace's changes of the library's state; a callable that redoes them."""
        return lambda: None

    def keeper(
        self, tracer: "CaptureTracer", wrote: bool
    ) -> Callable[[list[Any]], Callable[[], None]] | None:
        """keep(tensors), called before the graph runs, returns a callable that restores the state:
        the tensors if the graph `wrote` to any, and all else that it changes. None for nothing."""
        return None

    def leaver(self, tracer: "CaptureTracer") -> Callable[[], None] | None:
        """A callback for when an error of the graph leaves the function; None for nothing."""
        return None

    def member(self, tracer: "CaptureTracer", obj: Var, name: str) -> Var | None:
        """An attribute that an object of the library finds in its own way."""
        return None

    def is_called(self, tracer: "CaptureTracer", value: Any) -> bool:
        """Whether the graph calls an object, and so reads it when it runs."""
        return False

    def sets_plainly(self, tracer: "CaptureTracer", obj: Var, name: str, var: Var) -> bool:
        """Whether an object's own __setattr__ would act like object's."""
        return False

    def call(
        self, tracer: "CaptureTracer", fn: Var, args: list[Any], kwargs: Kwargs, then: Then
    ) -> bool:
        """Handle a call; False leaves it to the interpreter."""
        f = fn.value
        if fn.is_made("method") and self.is_tensor(fn.origin.parts[0].value):
            this, name = fn.origin.parts
            tracer.deliver(then, self.apply(tracer, "call_method", name, f, [this, *args], kwargs))
            return True
        allowed = id(f) in tracer.config.allowed
        if not allowed and (id(f) in tracer.config.disallowed or not self.is_operation(f)):
            return False
        if isinstance(fn.origin, ValueSource):
            tracer.guards.add("is", fn.origin, f)
        tracer.deliver(then, self.apply(tracer, "call_function", f, f, args, kwargs))
        return True

    def leave(self, frame: Any) -> None:
        """Note the end of an inlined frame."""

    def stop(self, tracer: "CaptureTracer") -> None:
        """Give up the trace; its values become ordinary ones."""

    # -- nodes -----------------------------------------------------------------------------------

    def lift(self, tracer: "CaptureTracer", var: Var) -> IRNode:
        """The node of a tensor or of a number that varies."""
        if isinstance(var.origin, IRNode):
            return var.origin
        lifted = tracer.operands.lifted.get(id(var))
        if lifted is not None:
            return lifted[0]
        is_tensor = self.is_tensor(var.value)
        owned = (
            is_tensor and self.is_owned(var.value) and not tracer.varying.has_identity(var.origin)
        )
        if owned or var.origin is None:
            node = self.lift_owned(tracer, var)
            if not owned:
                return node
        else:
            text = var.origin.text if isinstance(var.origin, ValueSource) else "constant"
            node = tracer.graph.placeholder(text.replace("__dict__", ""))
            tracer.operands.inputs.append((node, var))
            node.meta["varies"] = not is_tensor or self.size_varies(tracer, var)
            if is_tensor and is_buffer(var.origin):
                node.meta["buffer"] = True
            if not is_tensor:
                node.meta["number"] = True
                tracer.typed(var)
        tracer.operands.lifted[id(var)] = node, var
        if is_tensor:
            self.guard(tracer, var)
            tracer.operands.snapshots.setdefault(
                id(var.value), (var.value, self.state_of(var.value))
            )
        return node

    def lift_scalar(self, tracer: "CaptureTracer", var: Var, tensor: Any) -> IRNode:
        """The node of one of NumPy's numbers, which the graph takes as a tensor, so that its value
        may vary."""
        lifted = tracer.operands.lifted.get(id(var))
        if lifted is not None:
            return lifted[0]
        node = converted_input(tracer, var, tensor, self.as_tensor)
        tracer.operands.lifted[id(var)] = node, var
        return node

    def lift_owned(self, tracer: "CaptureTracer", var: Var) -> IRNode:
        """A tensor as an attribute of the graph's module."""
        text = var.origin.text if isinstance(var.origin, ValueSource) else "constant"
        if isinstance(var.origin, ValueSource):
            tracer.guards.add("is", var.origin, var.value)
        node = tracer.graph.get_attr(self.own(tracer, text, var.value))
        tracer.operands.lifted[id(var)] = node, var
        return node

    def own(self, tracer: "CaptureTracer", text: str, value: Any) -> str:
        """Give something to the graph's module; its name there."""
        for name, member in tracer.operands.members.items():
            if member is value:
                return name
        for part in ("__dict__", "_parameters", "_buffers", "_modules"):
            text = text.replace(part, "")
        stem = "_".join("".join(c if c.isalnum() else " " for c in text).split()) or "value"
        stem = stem if not stem[0].isdigit() else f"_{stem}"
        name, count = stem, 0
        while name in tracer.operands.members or name in OWN_NAMES:
            count += 1
            name = f"{stem}_{count}"
        tracer.operands.members[name] = value
        return name

    def operand(self, tracer: "CaptureTracer", var: Var, numbers: bool = False) -> Any:
        """A Var as an operand of a node."""
        value = var.value
        if self.is_tensor(value):
            return self.lift(tracer, var)
        if isinstance(var.origin, IRNode):
            return var.origin
        if type(value) in ARRAY_SCALARS and tracer.varies(var):
            new = self.as_tensor(value) if numbers else None
            return tracer.concretize(var) if new is None else self.lift_scalar(tracer, var, new)
        if tracer.varies(var):
            if numbers or type(value) is int:
                return self.lift(tracer, var)
            return tracer.concretize(var)
        if type(value) in (list, tuple):
            return type(value)(self.operand(tracer, x) for x in tracer.sequence(var))
        if isinstance(value, tuple) and tracer.sequence(var) is not None:
            items = [self.operand(tracer, x) for x in tracer.sequence(var)]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        if type(value) is dict:
            return {tracer.concretize(k): self.operand(tracer, v) for k, v in tracer.entries(var)}
        if isinstance(value, slice) and isinstance(var.origin, Recipe):
            return slice(*(self.operand(tracer, x) for x in var.origin.parts[1]))
        if var.origin is None or tracer.foldable(var) or self.is_constant(value):
            return tracer.concretize(var)
        raise Break(f"a {type(value).__name__} is given to an operation", None)

    def apply(
        self,
        tracer: "CaptureTracer",
        op: str,
        target: Any,
        fn: Any,
        args: list[Var],
        kwargs: dict[Any, Any],
        *,
        numbers: bool = False,
    ) -> Var:
        """Add a node for a call, computed while tracing; its result."""
        call = Var(fn) if op != "call_method" else Var(getattr(type(args[0].value), target))
        if any(isinstance(x.value, types.FunctionType) for x in (*args, *kwargs.values())):
            refuse_functions(self, tracer, fn, call, args, kwargs)
        is_shared = tracer.operands.shared and args and id(args[0].value) in tracer.operands.shared
        if is_shared and self.writes(target, args):
            tracer.stop_learning("a tensor that is another one's only for some sizes is written to")
            inputs = args[1:] if op == "call_method" else args
            return tracer.real_call(Var(fn), inputs, kwargs)
        self.before(tracer, target, args)
        depth = len(tracer.graph.nodes)
        operands = tuple(self.operand(tracer, x, numbers) for x in args)
        named = {k: self.operand(tracer, v, numbers) for k, v in kwargs.items()}
        node = tracer.graph.create_node(op, target, operands, named)
        describe_call(self, tracer, node, fn)
        values = [x.value for x in args]
        words = {k: v.value for k, v in kwargs.items()}
        try:
            result = tracer.while_handling(
                self.run, fn, values[1:] if op == "call_method" else values, words
            )
        except HiddenValueError:
            self.undo(tracer, depth)
            shown = call if op != "call_module" else Var(fn)
            name = target if isinstance(target, str) else getattr(target, "__name__", "a call")
            hint = "read values after the captured function, or accept the break"
            raise Break(f"{name}() needs a tensor's value", shown, args, kwargs, hint) from None
        except Exception as error:
            fix_inputs(tracer, node)  # with others it may not raise
            self.undo(tracer, depth)
            raise UserError(error) from None
        self.check_numbers(tracer, args)
        if node.meta["varies"] and self.count_varies(node, fn, result):
            fix_inputs(tracer, node)
        wrapped = self.wrap(tracer, node, result, args, target)
        if args and is_in_place(target):
            put_back_first(tracer, args[0])
        note_view(tracer, target, args, kwargs, wrapped)
        return wrapped

    def depends_on_varying(self, node: IRNode, fn: Any) -> bool:
        """Whether sizes or a number in the result of a node depend on values that vary from call to
        call. This is the one rule that passes provenance from operands to results. A number that is
        added to a tensor, and the like, does not change its size."""
        inputs = node.all_input_nodes
        if fn in VARYING:
            inputs = [x for x in inputs if not is_number(x)] or inputs
        return any(x.meta.get("varies") for x in inputs)

    def rank_varies(self, node: IRNode) -> bool:
        """Whether the number of axes that an operation leaves depends on sizes that vary."""
        return any(x.meta.get("rank_varies") for x in node.all_input_nodes)

    def count_varies(self, node: IRNode, fn: Callable[..., Any], result: Any) -> bool:
        """Whether an operation may give another number of results for other sizes or numbers."""
        return isinstance(result, (tuple, list)) and any(map(self.holds_tensor, result))

    def undo(self, tracer: "CaptureTracer", depth: int) -> None:
        """Remove the nodes of a call that failed."""
        for node in reversed(tracer.graph.nodes[depth:]):
            if node.op not in ("placeholder", "get_attr") and not node.users:
                tracer.graph.erase_node(node)

    def before(self, tracer: "CaptureTracer", target: Any, args: list[Any]) -> None:
        """Prepare for an operation that is about to run."""

    def writes(self, target: Any, args: Sequence[Any]) -> bool:
        """Whether an operation writes."""
        name = target if isinstance(target, str) else getattr(target, "__name__", "")
        return self.writes_to_first(target) or name in WRITING

    def writes_to_first(self, target: Any) -> bool:
        """Whether an operation writes to its first argument."""
        return target in IN_PLACE or target in self.in_place or is_in_place(target)

    def wrap(
        self, tracer: "CaptureTracer", node: IRNode, result: Any, args: list[Any], target: Any
    ) -> Var:
        """The result of a node as a Var."""
        if self.is_tensor(result):
            tracked = next(
                (x for x in args if x.value is result), tracer.heap.tracked.get(id(result))
            )
            if tracked is not None and (not node.meta["varies"] or self.writes(target, args)):
                return tracked
            self.describe(node, result)
            if tracked is not None:  # with other sizes or numbers it returns a new tensor
                tracer.operands.shared.add(id(result))
                return Var(result, node)
            return tracer.heap.track(Var(result, node))
        if isinstance(result, (tuple, list)) and any(self.holds_tensor(x) for x in result):
            parts = []
            for i, part in enumerate(result):
                item = tracer.graph.call_function(operator.getitem, (node, i))
                item.meta.update(node.meta)
                parts.append(self.wrap(tracer, item, part, [], None))
            if isinstance(result, tuple):
                if type(result) is not tuple:
                    return tracer.heap.new_tuple(parts, type(result))
                return tracer.heap.track(Var(result, Recipe("tuple"), parts))
            return tracer.heap.track(Var(result, Recipe("list"), parts))
        if isinstance(result, dict) and self.holds_tensor(result):
            raise Break("an operation gave a dict of tensors", None)
        if node.meta["varies"] and type(result) in (int, float):
            node.meta["scalar"] = True
            return Var(result, node)
        if node.meta["varies"] and not self.is_same_always(result):
            fix_inputs(tracer, node)
        if not self.writes(target, args) and result is not None and not node.users:
            tracer.graph.erase_node(node)
        if isinstance(result, (*SCALARS, tuple, list, *FUNCTIONS)) or self.is_constant(result):
            return constant(result)
        if isinstance(result, np.ndarray):  # which no node of the graph holds
            raise Break("an operation gave an array of NumPy's", None)
        return tracer.heap.track(Var(result, node))

    def is_same_always(self, value: Any) -> bool:
        """Whether a result depends on no size or number: None, a dtype."""
        return value is None

    def holds_tensor(self, value: Any) -> bool:
        inside = value if isinstance(value, (tuple, list)) else ()
        inside = value.values() if isinstance(value, dict) else inside
        return self.is_tensor(value) or any(map(self.holds_tensor, inside))

    def annotate(self, node: IRNode) -> None:
        """Note the place of a call in a model."""

    def describe(self, node: IRNode, value: Any) -> None:
        """Note the spec of a node's value."""

    # -- attributes and operators ----------------------------------------------------------------

    def attribute(self, tracer: "CaptureTracer", var: Var, name: str) -> Var:
        """tensor.name."""
        if isinstance(var.origin, ValueSource):
            self.guard(tracer, var)
        fact = self.metadata(tracer, var, name)
        if fact is not None:
            return fact
        if tracer.look_up(type(var.value), name) is MISSING:
            rely_on_data(tracer, var, name, MISSING)
            if isinstance(var.origin, ValueSource):
                tracer.guards.add("absent", tracer.guards.source("dict", var.origin), name)
        value = tracer.do(getattr, var.value, name)
        if callable(value) and not self.is_tensor(value):
            if getattr(value, "__self__", None) is var.value:
                return Var(value, Recipe("method", var, name))
            return Var(value)
        return self.apply(tracer, "call_function", getattr, getattr, [var, Var(name)], {})

    def set_attribute(
        self, tracer: "CaptureTracer", var: Var, name: str, value: Var | None
    ) -> None:
        """tensor.name = value; None deletes it."""
        if value is None:
            raise Break(
                f"attribute {name!r} of a tensor is deleted", Var(delattr), [var, Var(name)]
            )
        raise Break(f"attribute {name!r} of a tensor is set", Var(setattr), [var, Var(name), value])

    def operate(self, tracer: "CaptureTracer", fn: Callable[..., Any], args: list[Var]) -> Var:
        """An operator on tensors."""
        return self.apply(tracer, "call_function", fn, fn, args, {}, numbers=fn in VARYING)

    def unbind(self, tracer: "CaptureTracer", var: Var) -> list[Var]:
        """The tensors along the first axis."""
        count = tracer.concretize(self.length(tracer, var))
        rows = [self.operate(tracer, operator.getitem, [var, Var(i)]) for i in range(count)]
        for i, row in enumerate(rows):
            note_part(tracer, var, Var(i), row)
        return rows

    def length(self, tracer: "CaptureTracer", var: Var) -> Var:
        """len(tensor)."""
        if isinstance(var.origin, ValueSource):
            self.guard(tracer, var)
        return Var(tracer.do(len, var.value))


def is_number(node: IRNode) -> bool:
    """Whether a node is a Python number: one of the inputs that varies, or a size."""
    return bool(node.meta.get("number") or node.meta.get("scalar"))
