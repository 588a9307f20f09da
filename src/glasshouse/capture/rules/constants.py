"""Values that a trace relies on: their types, or all of them as constants."""

import operator
import types
from collections import OrderedDict
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from glasshouse.base.missing_names import AbsentNameError
from glasshouse.capture.frames.frame import CapturedGenerator
from glasshouse.capture.guards.outcomes import OutcomeWriter, rely_on
from glasshouse.capture.guards.program import GuardCheck
from glasshouse.capture.values.plain import (
    ARRAY_SCALARS,
    FUNCTIONS,
    NUMBERS,
    SCALARS,
    compares,
    has_own_equality,
    is_heap,
)
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import (
    Break,
    Kwargs,
    Recipe,
    SymbolicNumber,
    ValueSource,
    Var,
    computed,
)
from glasshouse.ir.node import IRNode

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
PLAIN_HASHES: tuple[Any, ...] = (tuple.__hash__, frozenset.__hash__)
COLLECTIONS = (list, tuple, dict, set, frozenset)
MUTABLE = (list, dict, set)


def typed(t: "CaptureTracer", var: Var) -> Any:
    """The value; relies on its type."""
    if t.guards.live and isinstance(var.origin, ValueSource) and not t.guards.has("eq", var.origin):
        t.guards.add("type", var.origin, type(var.value))
    if t.guards.live and type(var.value) not in t.guards.classes.behaviours:
        t.guards.classes.add(type(var.value))
    return var.value


def concretize(t: "CaptureTracer", var: Var) -> Any:
    """The value; relies on all of it.

    Raises: Break if it is computed by the graph
    """
    value, origin = var.value, var.origin
    if not t.guards.live or origin is None:
        return value
    if isinstance(origin, ValueSource):
        if type(value) in (tuple, list, set):
            for item in t.sequence(var):
                t.concretize(item)
        else:
            single = value is None or type(value) is bool
            kind = "eq" if not single and compares(value) else "is"
            if type(value) in ARRAY_SCALARS:
                kind, value = "call", GuardCheck(same_scalar, var.value, repr(var.value))
            t.guards.add(kind, origin, value)
            if type(value) is types.FunctionType:
                t.guards.add("code", origin, value.__code__)
    elif isinstance(origin, SymbolicNumber) and rely_on_number(t, origin, value):
        return value
    elif isinstance(origin, (Recipe, SymbolicNumber)):
        parts = parts_of(t, origin, var)
        if parts is None and origin.kind not in ("function", "method", "object", "traceback"):
            raise Break(f"a new {origin.kind} is needed as a constant", None)
        for part in parts or ():
            t.concretize(part)
    elif type(value) in (int, float, bool, tuple):  # made of sizes, which are now fixed
        fix_inputs(t, origin)
    else:
        raise Break("a value that the graph computes is needed", None)
    return var.value


def rely_on_number(t: "CaptureTracer", origin: SymbolicNumber, value: Any) -> bool:
    """Guard the result of arithmetic, if other numbers may give the same: step % 10."""
    outcome = OutcomeWriter(t).outcome(origin.fn, origin.args)
    if type(value) is not int or outcome is None or outcome.one_to_one:
        return False
    rely_on(t, outcome, "number", value)
    return True


def rely_on_code(t: "CaptureTracer", fn: Var) -> None:
    """Guard a function that is called: for an argument, only that it has the same code."""
    value, origin = fn.value, fn.origin
    is_argument = t.guards.live and isinstance(origin, ValueSource) and is_passed(t, origin)
    if is_argument and type(value) is types.FunctionType:
        code = t.guards.source("attr", origin, "__code__")
        t.guards.add("is", code, value.__code__)
    else:
        t.concretize(fn)


def fix_inputs(t: "CaptureTracer", node: IRNode) -> None:
    """Rely on all free sizes and numbers that a node was computed from."""
    inputs_by_node = {id(placeholder): var for placeholder, var in t.operands.inputs}
    waiting, visited = [node], {id(node)}
    while waiting:
        node = waiting.pop()
        if node.meta.get("hidden"):
            raise Break("a number that a tensor holds is needed as a constant")
        node.meta["varies"] = False
        var = inputs_by_node.get(id(node))
        if var is not None and t.is_tensor(var):
            for item in t.sequence(t.front.metadata(t, var, "shape")):
                t.concretize(item)
        elif var is not None:
            t.concretize(var)
        inputs = [x for x in node.all_input_nodes if id(x) not in visited]
        visited.update(map(id, inputs))
        waiting += inputs


def parts_of(t: "CaptureTracer", origin: Any, var: Var) -> list[Var] | None:
    """The Vars that make up something new, without a dict's keys; None if there is more."""
    if isinstance(origin, SymbolicNumber):
        return list(origin.args)
    if origin.kind in ("list", "tuple", "set"):
        return t.sequence(var)
    if origin.kind == "dict":
        return [value for _, value in t.entries(var)]
    return [origin.parts[0], *origin.parts[1]] if origin.kind == "call" else None


def is_passed(t: "CaptureTracer", source: ValueSource) -> bool:
    """Whether a source starts at an argument."""
    while source.base is not None:
        source = source.base
    return source.kind == "slot"


def foldable(t: "CaptureTracer", var: Var) -> bool:
    """Whether guarding a value does not make the graph too special."""
    value, origin = var.value, var.origin
    computed = isinstance(origin, (SymbolicNumber, IRNode)) and type(value) in (int, float, bool)
    if computed or t.varies(var):
        return True
    if t.is_tensor(var):
        return False
    if isinstance(origin, Recipe):
        # Later uses may run methods of its class, which may read anything.
        of_class = origin.kind == "call" and is_heap(type(value))
        if of_class or id(var) in t.heap.folding:  # it contains itself
            return False
        t.heap.folding.add(id(var))
        try:
            parts = parts_of(t, origin, var)
            return parts is not None and all(map(t.foldable, parts))
        finally:
            t.heap.folding.discard(id(var))
    if origin is None:
        return not isinstance(value, CapturedGenerator)
    if isinstance(origin, ValueSource):
        if type(value) is tuple:
            return all(t.foldable(x) for x in t.sequence(var))
        plain = compares(value) or isinstance(value, FUNCTIONS)
        return plain or t.front.is_constant(value)
    return False


def is_same_object(t: "CaptureTracer", var: Var) -> bool:
    """Whether a value has a source and is equal only to itself."""
    if not isinstance(var.origin, ValueSource) or t.is_tensor(var):
        return False
    names = ("__hash__", "__eq__")
    return all(t.look_up(type(var.value), x) is getattr(object, x) for x in names)


def all_foldable(t: "CaptureTracer", args: Sequence[Any], kwargs: Kwargs | None = None) -> bool:
    return all(map(t.foldable, (*args, *(kwargs or {}).values())))


def call_concrete(
    t: "CaptureTracer", fn: Callable[..., Any], args: list[Any], kwargs: Kwargs | None = None
) -> Any:
    """Call fn on values, and rely on them."""
    words = {k: t.concretize(v) for k, v in (kwargs or {}).items()}
    return t.do(fn, *map(t.concretize, args), **words)


def varies(t: "CaptureTracer", var: Var) -> bool:
    """Whether a number may be another one in a later call."""
    if type(var.origin) is SymbolicNumber:
        return True
    if type(var.value) in ARRAY_SCALARS:
        return t.guards.live and isinstance(var.origin, ValueSource)
    if (
        type(var.value) not in NUMBERS
        or not isinstance(var.origin, ValueSource)
        or not t.guards.live
    ):
        return False
    return not t.guards.has("eq", var.origin) and t.varying.has(var.origin)


def concrete_key(t: "CaptureTracer", var: Var) -> Any:
    """A dict key: relies on a constant, or on the identity of an object."""
    value, origin = var.value, var.origin
    if not t.guards.live:
        return value
    scalar = type(value) in SCALARS
    if not scalar:
        check_hash(t, var)
    if isinstance(origin, ValueSource) and not scalar and type(value) is not tuple:
        t.guards.add("is", origin, value)
    elif type(value) is tuple or isinstance(origin, (ValueSource, SymbolicNumber)):
        t.concretize(var)
        t.do(hash, value)  # of a tuple it may raise
    elif isinstance(origin, IRNode):
        raise Break("a tensor that the graph computes is used as a key", None)
    return value


def check_hash(t: "CaptureTracer", key: Var) -> None:
    """Refuse keys that user code compares, and those without a hash."""
    value = key.value
    hashes = t.look_up(type(value), "__hash__")
    # No other key has the hash of an object.
    by_identity = hashes is object.__hash__ or t.front.is_key(value)
    if compares_in_python(value) and not by_identity:
        raise Break(f"a {type(value).__name__}, whose class compares in Python, is a key")
    if hashes is None:
        t.do(hash, t.typed(key))  # raises


def same_scalar(value: Any, expected: Any) -> bool:
    """Whether two of NumPy's numbers are the same to the bit."""
    return type(value) is type(expected) and value.tobytes() == expected.tobytes()


def compares_in_python(value: Any) -> bool:
    """Whether user code defines the equality or hash of a value."""
    if isinstance(value, (tuple, frozenset)) and type(value).__hash__ in PLAIN_HASHES:
        return any(map(compares_in_python, value))
    cls = type(value)
    if cls in SCALARS or isinstance(value, FUNCTIONS):
        return False
    if isinstance(value, Enum) and cls.__hash__ is Enum.__hash__:
        return False
    return has_own_equality(cls)


def fold(
    t: "CaptureTracer", fn: Var, f: Callable[..., Any], args: list[Any], kwargs: Kwargs, then: Any
) -> Any:
    """Call a function of constants; the result is a constant."""
    result = call_concrete(t, f, args, kwargs)
    shares = isinstance(result, COLLECTIONS) and any(holds_new(t, x) for x in args)
    if not is_plain(t, result) or shares:
        reason = f"{getattr(f, '__name__', f)} gives a {type(result).__name__}"
        raise Break(reason, fn, args, kwargs)
    operands = [x.value for x in (*args, *kwargs.values())]
    return t.deliver(then, computed(result, operands))


def holds_new(t: "CaptureTracer", var: Var) -> bool:
    """Whether a container holds a mutable object, which a result may share."""
    inside = t.sequence(var) if isinstance(var.value, COLLECTIONS) else None
    return any(isinstance(x.value, MUTABLE) or holds_new(t, x) for x in inside or ())


def is_plain(t: "CaptureTracer", value: Any) -> bool:
    """Whether a value may be kept from one call to the next."""
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(is_plain(t, x) for x in value)
    if type(value) in (dict, OrderedDict):
        return all(is_plain(t, x) for pair in value.items() for x in pair)
    plain = (*SCALARS, *FUNCTIONS, range, slice, types.MethodType, *GETTERS)
    return isinstance(value, plain) or t.front.is_constant(value)


def says_the_same(t: "CaptureTracer", error: Var, how: type[Any]) -> bool:
    """Whether str or repr of an exception is the same in each call."""
    value, origin = error.value, error.origin
    method = t.look_up(type(value), f"__{how.__name__}__")
    if type(value) is AbsentNameError:  # its text follows from its names, and the library's
        return True
    if isinstance(method, types.FunctionType) or not isinstance(origin, Recipe):
        return False
    if origin.kind == "exception_value":
        return is_plain(t, value.args)
    parts = origin.parts[1] if origin.kind in ("call", "exception") else [error]
    if not all(map(t.foldable, parts)):
        return False
    for part in parts:
        t.concretize(part)
    return True
