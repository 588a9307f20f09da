"""Operators, truth and length: Python's protocols for them."""

import operator
import sys
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from glasshouse.capture.frames.frame import CapturedIterator
from glasshouse.capture.rules.builtins.container_methods import container_method
from glasshouse.capture.rules.builtins.methods import builtin_method
from glasshouse.capture.rules.builtins.set_methods import set_method
from glasshouse.capture.rules.constants import compares_in_python
from glasshouse.capture.rules.containers import is_dict, whole_dict
from glasshouse.capture.rules.identity import identical
from glasshouse.capture.rules.new_objects import new_dict, new_set
from glasshouse.capture.rules.numbers import (
    ARITHMETIC,
    COMPARE,
    all_vary,
    is_number_call,
    is_size_call,
    of_numbers,
)
from glasshouse.capture.values.plain import (
    FUNCTIONS,
    SCALARS,
    is_heap,
    is_subtype,
    type_name,
)
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.polyfills import equal_items, unequal_items
from glasshouse.capture.values.var import (
    Break,
    SymbolicNumber,
    Then,
    Var,
    computed,
    pending,
)

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


NAMES = "add and floordiv lshift matmul mul mod or pow rshift sub truediv xor".split()
PLAIN = [getattr(operator, f"__{name}__") for name in NAMES]
BINARY = [*PLAIN, *(getattr(operator, f"i{name}") for name in NAMES)]
REVERSED = {fn: f"__r{fn.__name__.strip('_')}__" for fn in PLAIN}
REVERSED |= zip(COMPARE, ("__gt__", "__ge__", "__eq__", "__ne__", "__lt__", "__le__"), strict=True)
IN_PLACE = dict(zip(BINARY[len(PLAIN) :], PLAIN, strict=True))
OPERATORS = {*REVERSED, *IN_PLACE}
UNARY: set[Any] = {operator.neg, operator.pos, operator.invert}
SET_OPERATORS: dict[Any, Any] = {
    operator.or_: "union",
    operator.and_: "intersection",
    operator.sub: "difference",
    operator.xor: "symmetric_difference",
}
SET_UPDATES: dict[Any, Any] = {
    operator.or_: "update",
    operator.and_: "intersection_update",
    operator.sub: "difference_update",
    operator.xor: "symmetric_difference_update",
}
KEYS: type[Any] = type({}.keys())
SEQUENCES = (list, tuple, str, bytes)  # their + and * come after those of the other side
OF_SEQUENCES = (operator.add, operator.mul, operator.mod)  # they ask the other side for items
MAX_REPEAT = 100_000
NUMBER_HINT = "each side is captured on its own; a check that only raises breaks no graph"
RESULTS: dict[Any, Any] = {len: int, hash: int, repr: str}
UNCHANGED: dict[Any, Any] = {len: range(sys.maxsize), hash: range(sys.maxsize)}  # of their results
UNLIKE_SCALARS: list[Any] = [kind.__eq__ for kind in (list, tuple, dict, set, frozenset)]


class OperatorAttempt(NamedTuple):
    """An operator between two values, and its candidate methods in Python's order."""

    fn: Any
    lhs: Var
    rhs: Var
    tries: list[tuple[Var, str, Var]]
    then: Any


def exact_bool(value: Any) -> bool:
    return bool(value)


def as_builtin(fn: Callable[..., Any], x: Var, name: str, then: Then) -> Callable[..., Any]:
    """A callback that gets the result of a special method of `x`, and hands it on as the builtin
    function returns it: `len` and the like check, convert and warn."""

    def convert(tracer, result):
        value = result.value
        # The type first: a range compares another type with all its items.
        fits = type(value) is RESULTS.get(fn, fn)
        if fits and (fn not in UNCHANGED or value in UNCHANGED[fn]):
            return tracer.deliver(then, result)
        if tracer.guards.live:
            raise Break(f"{name} of a {type(x.value).__name__} gives a {type(value).__name__}")
        kind = type(type(x.value).__name__, (), {name: lambda self: value})
        return tracer.deliver(then, tracer.real_call(Var(fn), [Var(kind())], {}))

    return convert


@pending
def unary(t: "CaptureTracer", fn: Callable[..., Any], x: Var, then: Any = None) -> Any:
    """-x, +x, ~x."""
    if not t.guards.live:
        return t.give(then, t.do(fn, x.value))
    if t.is_tensor(x):
        return t.deliver(then, t.front.operate(t, fn, [x]))
    if fn in ARITHMETIC and is_size_call(t, [x]):
        result = t.front.apply(t, "call_function", fn, fn, [x], {}, numbers=True)
        return t.deliver(then, result)
    result = of_numbers(t, fn, [x]) if is_number_call(t, [x]) else None
    if result is not None:
        return t.deliver(then, result)
    if t.foldable(x):
        return t.deliver(then, computed(t.do(fn, t.concretize(x)), [x.value]))
    if t.call_own(x, method_name(fn), [], then):
        return None
    raise Break(f"{fn.__name__} of a {type(x.value).__name__}", Var(fn), [x])


@pending
def binary(t: "CaptureTracer", fn: Callable[..., Any], lhs: Var, rhs: Var, then: Any = None) -> Any:
    """An operator between two values."""
    if not t.guards.live:
        return t.give(then, t.do(fn, lhs.value, rhs.value))
    if t.is_tensor(lhs) or t.is_tensor(rhs):
        user = [x for x in (lhs, rhs) if not t.is_tensor(x) and user_operator(t, x, fn)]
        if not user:
            return t.deliver(then, t.front.operate(t, fn, [lhs, rhs]))
    if fn in ARITHMETIC and is_size_call(t, [lhs, rhs]):
        result = t.front.apply(t, "call_function", fn, fn, [lhs, rhs], {}, numbers=True)
        return t.deliver(then, result)
    if fn in COMPARE and is_size_call(t, [lhs, rhs]):
        answer = t.front.of_held_numbers(t, fn, [lhs, rhs])
        if answer is not None:
            return t.deliver(then, answer)
    result = of_numbers(t, fn, [lhs, rhs]) if is_number_call(t, [lhs, rhs]) else None
    if result is not None:
        return t.deliver(then, result)
    if user_operator(t, lhs, fn) or user_operator(t, rhs, fn):
        return user_binary(t, fn, lhs, rhs, then)
    joined = sequence_operator(t, fn, lhs, rhs)
    if joined is not None:
        return t.deliver(then, joined)
    if t.foldable(lhs) and t.foldable(rhs):
        a, b = t.concretize(lhs), t.concretize(rhs)
        if fn is operator.pow and isinstance(b, int) and isinstance(a, int) and b > MAX_REPEAT:
            raise Break("a very large power", Var(fn), [lhs, rhs])
        return t.deliver(then, computed(t.do(fn, a, b), [a, b]))
    if fn in (operator.eq, operator.ne):
        equal = equality(t, lhs, rhs)
        if equal is not None:
            return t.give(then, equal is (fn is operator.eq))
        if type(lhs.value) is type(rhs.value) and type(lhs.value) in (list, tuple):
            way = equal_items if fn is operator.eq else unequal_items
            return t.call_function(Var(way), [lhs, rhs], {}, then)
    kinds = f"{type(lhs.value).__name__} and {type(rhs.value).__name__}"
    raise Break(f"{fn.__name__} of {kinds}", Var(fn), [lhs, rhs])


def user_operator(t: "CaptureTracer", x: Var, fn: Callable[..., Any]) -> bool:
    """Whether a class defines an operator in Python."""
    if isinstance(x.value, (FUNCTIONS, *SCALARS)) and not isinstance(x.value, type):
        return False
    plain = IN_PLACE.get(fn, fn)
    names = (method_name(fn), REVERSED.get(plain, ""), method_name(plain))
    return any(t.own_method(x, name) for name in names if name)


def user_binary(t: "CaptureTracer", fn: Callable[..., Any], lhs: Var, rhs: Var, then: Any) -> Any:
    """An operator that a user's class defines: each candidate in Python's order."""
    plain = IN_PLACE.get(fn, fn)
    tries = [(lhs, method_name(fn), rhs)]
    if plain is not fn:
        tries.append((lhs, method_name(plain), rhs))
    reverse = (rhs, REVERSED.get(plain, ""), lhs)
    left_type, right_type = type(t.typed(lhs)), type(t.typed(rhs))
    late = plain in (operator.add, operator.mul) and issubclass(left_type, SEQUENCES)
    late = late and not any(t.own_method(lhs, name) for _, name, _ in tries)
    if late and is_heap(left_type):
        reason = f"{fn.__name__} of a {left_type.__name__} and a {right_type.__name__}"
        raise Break(reason, Var(fn), [lhs, rhs])
    if late or (
        right_type is not left_type
        and is_subtype(right_type, left_type)
        and (plain in COMPARE or t.own_method(rhs, reverse[1]) is not t.own_method(lhs, reverse[1]))
    ):
        tries.insert(0, reverse)
    elif right_type is not left_type or plain in COMPARE:
        tries.append(reverse)
    tries = [x for x in tries if x[1] and t.has(x[0], x[1])]

    return attempt(t, OperatorAttempt(fn, lhs, rhs, tries, then), 0)


def attempt(t: "CaptureTracer", tried: "OperatorAttempt", number: int) -> Any:
    """Call a candidate method of an operator; the next one if it gives NotImplemented."""
    if number == len(tried.tries):
        return no_method(t, tried)
    x, name, y = tried.tries[number]
    method = t.look_up(type(x.value), name)

    def after(t, result):
        if result.value is NotImplemented:
            return attempt(t, tried, number + 1)
        return t.deliver(tried.then, result)

    eq = t.own_method(x, "__eq__")
    if name == "__ne__" and eq is not None and not isinstance(method, types.FunctionType):

        def negate(t, result):
            if result.value is NotImplemented:
                return attempt(t, tried, number + 1)
            return t.truth(result, lambda t2, flag: t2.give(tried.then, not flag))

        return t.call(Var(eq), [x, y], {}, negate)
    if not isinstance(method, types.FunctionType):
        plain = IN_PLACE.get(tried.fn, tried.fn)
        takes_all = plain in OF_SEQUENCES and issubclass(type(x.value), SEQUENCES)
        if not (t.foldable(x) and t.foldable(y)) and takes_all:
            raise Break(f"{name} of a {type(x.value).__name__}", Var(tried.fn), [x, y])
        if not (t.foldable(x) and t.foldable(y)):
            return attempt(t, tried, number + 1)  # a builtin refuses a user's class
        return builtin_method(t, Var(method), x, name, [y], {}, after)
    return t.call(Var(method), [x, y], {}, after)


def no_method(t: "CaptureTracer", tried: "OperatorAttempt") -> Any:
    """Apply an operator without a method: == and != compare identities, others raise."""
    fn, lhs, rhs = tried.fn, tried.lhs, tried.rhs
    if fn in (operator.eq, operator.ne):
        return t.give(tried.then, identical(t, lhs, rhs) is (fn is operator.eq))
    kinds = {type(x.value): x.value for x in (lhs, rhs)}
    for kind in kinds:
        if kind.__module__ != "builtins":
            kinds[kind] = type(kind.__name__, (), {})()  # it defines no operator either
    try:
        return t.give(tried.then, fn(kinds[type(lhs.value)], kinds[type(rhs.value)]))
    except TypeError as error:
        return t.fail(error, lhs.value, rhs.value)


def sequence_operator(t: "CaptureTracer", fn: Callable[..., Any], lhs: Var, rhs: Var) -> Var | None:
    """+ and * of lists and tuples whose items are Vars."""
    plain = IN_PLACE.get(fn, fn)
    a, b = lhs.value, rhs.value
    if plain is operator.add and type(a) is type(b) and type(a) in (list, tuple):
        if fn is not plain and type(a) is list:
            t.extend(lhs, "extend", rhs)
            return lhs
        joined = [*t.sequence(lhs), *t.sequence(rhs)]
        if type(a) is tuple and not (a and b):
            return lhs if a else rhs
        return t.heap.new_list(joined) if type(a) is list else t.heap.new_tuple(joined)
    if fn is operator.iadd and type(a) is list:
        items = t.iterated(rhs)
        if items is not None:
            for x in list(items):
                container_method(t, lhs, "append", [x])
            return lhs
    if plain is operator.mul:
        seq, times = (lhs, rhs) if isinstance(a, (list, tuple)) else (rhs, lhs)
        counted = isinstance(times.value, int) and t.foldable(times)
        if type(seq.value) is tuple and counted and t.concretize(times) == 1:
            return seq
        if type(seq.value) in (list, tuple) and counted:
            items = t.sequence(seq) * t.concretize(times)
            if fn is not plain and seq is lhs and type(seq.value) is list:
                return replace_all(t, lhs, items)
            return t.heap.new_list(items) if type(seq.value) is list else t.heap.new_tuple(items)
    if plain is operator.or_ and type(a) is dict and type(b) is dict:
        if fn is not plain:
            t.extend(lhs, "update", rhs)
            return lhs
        return new_dict(t, [*t.entries(lhs), *t.entries(rhs)])
    if fn is plain and fn in SET_OPERATORS and KEYS in (type(a), type(b)):
        return operator_of_keys(t, fn, lhs, rhs)
    if plain in SET_OPERATORS and isinstance(b, (set, frozenset)) and type(a) is set:
        if fn is plain:
            return set_method(t, lhs, SET_OPERATORS[plain], [rhs])
        set_method(t, lhs, SET_UPDATES[plain], [rhs])
        return lhs
    if fn is not plain and isinstance(a, (list, set, dict)):
        raise Break(f"{fn.__name__} of a {type(a).__name__}", Var(fn), [lhs, rhs])
    return None


def operator_of_keys(t: "CaptureTracer", fn: Callable[..., Any], lhs: Var, rhs: Var) -> Var | None:
    """The set of an operator on keys of dicts, or on keys and another set."""
    if not all(isinstance(x.value, (KEYS, set, frozenset)) for x in (lhs, rhs)):
        return None
    items = [t.iterated(x) for x in (lhs, rhs)]
    if None in items:
        return None
    a, b = (new_set(t, list(x)) for x in items)
    return set_method(t, a, SET_OPERATORS[fn], [b])


def replace_all(t: "CaptureTracer", target: Var, items: list[Var]) -> Var:
    """Replace the contents of a list."""
    container_method(t, target, "clear", [])
    for x in items:
        container_method(t, target, "append", [x])
    return target


def equality(t: "CaptureTracer", lhs: Var, rhs: Var) -> bool | None:
    """== of containers and plain objects; None if unknown."""
    a, b = t.typed(lhs), t.typed(rhs)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and type(a) is type(b):
        xs, ys = t.sequence(lhs), t.sequence(rhs)
        if xs is None or ys is None:
            return None
        if len(xs) != len(ys):
            return False
        for x, y in zip(xs, ys, strict=True):
            same = x is y or same_item(t, x, y)
            if same is not True:
                return same
        return True
    if is_dict(t, lhs) and is_dict(t, rhs):
        xs, ys = dict(values_by_key(t, lhs)), dict(values_by_key(t, rhs))
        if xs.keys() != ys.keys():
            return False
        if isinstance(a, OrderedDict) and isinstance(b, OrderedDict) and [*xs] != [*ys]:
            return False
        parts = [same_item(t, xs[k], ys[k]) for k in xs]
        return None if None in parts else all(parts)
    if t.is_tensor(lhs) or t.is_tensor(rhs):
        return None
    if compares_in_python(a) or compares_in_python(b):
        return None
    plain = (object.__eq__, type.__eq__)
    left_eq, right_eq = (t.look_up(type(x), "__eq__") for x in (a, b))
    unlike = type(a) is not type(b) and (
        (type(a) in SCALARS and right_eq in (*plain, *UNLIKE_SCALARS))
        or (type(b) in SCALARS and left_eq in (*plain, *UNLIKE_SCALARS))
    )
    by_identity = left_eq in plain and right_eq in plain
    if by_identity or a is None or b is None or unlike:
        return identical(t, lhs, rhs)
    return None


def same_item(t: "CaptureTracer", x: Var, y: Var) -> bool | None:
    """Whether two items are equal; None if unknown."""
    equal = of_numbers(t, operator.eq, [x, y]) if is_number_call(t, [x, y]) else None
    if equal is not None:
        return equal.value
    if t.foldable(x) and t.foldable(y):
        one, other = t.concretize(x), t.concretize(y)
        return one is other or one == other
    return equality(t, x, y)


def values_by_key(t: "CaptureTracer", var: Var) -> Any:
    return [(k.value, v) for k, v in t.entries(var)]


@pending
def truth(t: "CaptureTracer", x: Var, then: Callable[..., Any]) -> Any:
    """bool(x), given to `then(tracer, flag)`."""
    value = x.value
    if value is NotImplemented and t.guards.live:  # which warns, or raises
        raise Break("the truth of NotImplemented", Var(exact_bool), [x])
    if t.guards.live and t.front.is_hidden(x):
        reason = "a branch on a number that a tensor holds"
        raise Break(reason, Var(exact_bool), [x], hint=NUMBER_HINT)
    if t.guards.live and isinstance(x.origin, SymbolicNumber) and all_vary(t, [x]):
        reason = "a branch on numbers that differ from call to call"
        raise Break(reason, Var(exact_bool), [x], hint=NUMBER_HINT)
    if value is True or value is False or value is None:
        t.concretize(x)
        return then(t, bool(value))
    if not t.guards.live:
        return then(t, t.do(bool, value))
    if t.is_tensor(x):
        flag = t.front.truth(t, x)
        if flag is None:
            hint = "use gh.where, or let it break: each side is captured on its own"
            raise Break("a branch on a tensor's value", Var(exact_bool), [x], hint=hint)
        return then(t, flag)
    result = of_numbers(t, bool, [x]) if is_number_call(t, [x]) else None
    if result is not None:
        return then(t, result.value)
    if t.foldable(x) and type(value) in SCALARS:
        return then(t, bool(t.concretize(x)))
    for name, fn in (("__bool__", bool), ("__len__", len)):
        decide = as_builtin(fn, x, name, lambda t, v: t.truth(v, then))
        if t.call_own(x, name, [], decide):
            return None
        if t.has(x, name):
            break
    else:
        t.typed(x)
        return then(t, True)
    if isinstance(value, (list, tuple, dict, set, frozenset)):
        length(t, x, lambda t, v: None)
        return then(t, bool(value))
    if t.foldable(x):
        return then(t, bool(t.concretize(x)))
    raise Break(f"the truth of a {type(value).__name__}", Var(exact_bool), [x])


@pending
def length(t: "CaptureTracer", x: Var, then: Then) -> Any:
    """len(x)."""
    value = x.value
    if t.is_tensor(x):
        return t.deliver(then, t.front.length(t, x))
    if t.call_own(x, "__len__", [], as_builtin(len, x, "__len__", then)):
        return None
    if is_dict(t, x):
        whole_dict(t, x)
        return t.deliver(then, computed(len(value), ()))
    if x.is_made("view"):
        return length(t, x.origin.parts[0], then)
    if t.guards.live and not t.has(x, "__len__"):
        kind = type(value.native()) if isinstance(value, CapturedIterator) else type(value)
        t.fail(TypeError(f"object of type {type_name(kind)!r} has no len()"), kind)
    if type(value) in (str, bytes, range):
        return t.deliver(then, computed(t.do(len, t.concretize(x)), ()))
    items = t.sequence(x)
    if items is None:
        raise Break(f"the length of a {type(value).__name__}", Var(len), [x])
    return t.deliver(then, computed(len(items), ()))


def method_name(fn: Callable[..., Any]) -> str:
    return f"__{fn.__name__.strip('_')}__"


def is_in_place(target: Any) -> bool:
    """Whether a function or method writes to its operand, by its name: add_, not operator.and_."""
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    plain = getattr(target, "__module__", None) == "_operator"
    return name.endswith("_") and not name.endswith("__") and not plain
