"""Operators, truth and length: Python's protocols for them."""

import math
import operator
import sys
import types
from collections import OrderedDict
from typing import Any, NamedTuple

from glasshouse.capture.frames.frame import CapturedIterator
from glasshouse.capture.guards.outcomes import Among, OutcomeWriter, rely_on
from glasshouse.capture.rules.objects import compares_in_python
from glasshouse.capture.values.plain import ARRAY_SCALARS, FUNCTIONS, SCALARS, is_heap, type_name
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.polyfills import equal_items, unequal_items
from glasshouse.capture.values.var import (
    Break,
    SymbolicNumber,
    ValueSource,
    Var,
    computed,
    pending,
)
from glasshouse.ir.node import IRNode

NAMES = "add and floordiv lshift matmul mul mod or pow rshift sub truediv xor".split()
PLAIN = [getattr(operator, f"__{name}__") for name in NAMES]
BINARY = [*PLAIN, *(getattr(operator, f"i{name}") for name in NAMES)]
COMPARE = (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)
OF_NUMBERS = "add sub mul truediv floordiv mod pow".split()
ARITHMETIC = {
    *(getattr(operator, f"{i}{name}") for name in OF_NUMBERS for i in ("", "i")),
    *(getattr(math, name) for name in "sqrt exp log cos sin pow floor ceil tanh".split()),
    *(operator.neg, operator.pos, float, int, abs, min, max, round),
}
SURE = {
    *(getattr(operator, f"{i}{name}") for name in OF_NUMBERS[:3] for i in ("", "i")),
    *(operator.neg, operator.pos, abs, float),
}
WHOLE_DIVISIONS = {operator.mod, operator.imod, operator.floordiv, operator.ifloordiv}
REVERSED = {fn: f"__r{fn.__name__.strip('_')}__" for fn in PLAIN}
REVERSED |= zip(COMPARE, ("__gt__", "__ge__", "__eq__", "__ne__", "__lt__", "__le__"), strict=True)
IN_PLACE = dict(zip(BINARY[len(PLAIN) :], PLAIN, strict=True))
OPERATORS = {*REVERSED, *IN_PLACE}
UNARY = {operator.neg, operator.pos, operator.invert}
SET_OPERATORS = {
    operator.or_: "union",
    operator.and_: "intersection",
    operator.sub: "difference",
    operator.xor: "symmetric_difference",
}
SET_UPDATES = {
    operator.or_: "update",
    operator.and_: "intersection_update",
    operator.sub: "difference_update",
    operator.xor: "symmetric_difference_update",
}
KEYS = type({}.keys())
SEQUENCES = (list, tuple, str, bytes)  # their + and * come after those of the other side
OF_SEQUENCES = (operator.add, operator.mul, operator.mod)  # they ask the other side for items
MAX_REPEAT = 100_000
NUMBER_HINT = "each side is captured on its own; a check that only raises breaks no graph"
RESULTS = {len: int, hash: int, repr: str}
UNCHANGED = {len: range(sys.maxsize), hash: range(sys.maxsize)}  # of their results
UNLIKE_SCALARS = [kind.__eq__ for kind in (list, tuple, dict, set, frozenset)]


class OperatorAttempt(NamedTuple):
    """An operator between two values, and its candidate methods in Python's order."""

    fn: Any
    lhs: Var
    rhs: Var
    tries: list[tuple[Var, str, Var]]
    then: Any


def exact_bool(value):
    return bool(value)


def as_builtin(fn, x: Var, name: str, then):
    """A callback that gets the result of a special method of `x`, and hands it on as the builtin
    function returns it: `len` and the like check, convert and warn."""

    def convert(tracer, result):
        value = result.value
        # The type first: a range compares another type with all its items.
        fits = type(value) is RESULTS.get(fn, fn)
        if fits and (fn not in UNCHANGED or value in UNCHANGED[fn]):
            return tracer.deliver(then, result)
        if tracer.live:
            raise Break(f"{name} of a {type(x.value).__name__} gives a {type(value).__name__}")
        kind = type(type(x.value).__name__, (), {name: lambda self: value})
        return tracer.deliver(then, tracer.real_call(Var(fn), [Var(kind())], {}))

    return convert


class OperatorRules:
    """The part of the tracer that applies operators."""

    def may_vary(self, fn) -> bool:
        """Whether each call may do arithmetic again: it cannot raise, or is the library's."""
        return fn in SURE or fn in ARITHMETIC and self.frames[-1].trusted

    def is_number_call(self, args) -> bool:
        return (
            bool(args)
            and any(self.varies(x) for x in args)
            and all(
                type(x.value) in (int, float, *ARRAY_SCALARS)
                and (x.origin is None or isinstance(x.origin, (ValueSource, SymbolicNumber)))
                for x in args
            )
        )

    def is_size_call(self, args) -> bool:
        """Whether arithmetic is on sizes that the graph computes."""
        return any(isinstance(x.origin, IRNode) for x in args) and all(
            type(x.value) in (int, float) for x in args
        )

    def of_numbers(self, fn, args) -> Var | None:
        """An operation on numbers, some of which vary. Later calls do it again, or rely on its
        outcome; None if they rely on the numbers."""
        if self.may_vary(fn) or divides_by_constant(fn, args):
            return self.number(fn, args)
        tells = fn is bool or fn in COMPARE or isinstance(fn, Among)
        outcome = OutcomeWriter(self).outcome(fn, args) if tells or fn in ARITHMETIC else None
        if outcome is None:
            return None
        try:
            value = fn(*(x.value for x in args))
        except (ArithmeticError, TypeError, ValueError):
            return None
        if tells:
            rely_on(self, outcome, "truth", value)
            return Var(value)
        if type(value) not in (int, float):
            return None
        rely_on(self, outcome, "type", type(value))
        return self.number(fn, args)

    def number(self, fn, args) -> Var:
        """The Var of arithmetic that later calls do again."""
        for x in args:
            self.typed(x)
        return Var(self.do(fn, *(x.value for x in args)), SymbolicNumber(fn, tuple(args)))

    @pending
    def unary(self, fn, x: Var, then=None):
        """-x, +x, ~x."""
        if not self.live:
            return self.give(then, self.do(fn, x.value))
        if self.is_tensor(x):
            return self.deliver(then, self.front.operate(self, fn, [x]))
        if fn in ARITHMETIC and self.is_size_call([x]):
            result = self.front.apply(self, "call_function", fn, fn, [x], {}, numbers=True)
            return self.deliver(then, result)
        result = self.of_numbers(fn, [x]) if self.is_number_call([x]) else None
        if result is not None:
            return self.deliver(then, result)
        if self.foldable(x):
            return self.deliver(then, computed(self.do(fn, self.concretize(x)), [x.value]))
        if self.call_own(x, method_name(fn), [], then):
            return None
        raise Break(f"{fn.__name__} of a {type(x.value).__name__}", Var(fn), [x])

    @pending
    def binary(self, fn, lhs: Var, rhs: Var, then=None):
        """An operator between two values."""
        if not self.live:
            return self.give(then, self.do(fn, lhs.value, rhs.value))
        if self.is_tensor(lhs) or self.is_tensor(rhs):
            user = [x for x in (lhs, rhs) if not self.is_tensor(x) and self.user_operator(x, fn)]
            if not user:
                return self.deliver(then, self.front.operate(self, fn, [lhs, rhs]))
        if fn in ARITHMETIC and self.is_size_call([lhs, rhs]):
            result = self.front.apply(self, "call_function", fn, fn, [lhs, rhs], {}, numbers=True)
            return self.deliver(then, result)
        if fn in COMPARE and self.is_size_call([lhs, rhs]):
            answer = self.front.of_held_numbers(self, fn, [lhs, rhs])
            if answer is not None:
                return self.deliver(then, answer)
        result = self.of_numbers(fn, [lhs, rhs]) if self.is_number_call([lhs, rhs]) else None
        if result is not None:
            return self.deliver(then, result)
        if self.user_operator(lhs, fn) or self.user_operator(rhs, fn):
            return self.user_binary(fn, lhs, rhs, then)
        joined = self.sequence_operator(fn, lhs, rhs)
        if joined is not None:
            return self.deliver(then, joined)
        if self.foldable(lhs) and self.foldable(rhs):
            a, b = self.concretize(lhs), self.concretize(rhs)
            if fn is operator.pow and isinstance(b, int) and isinstance(a, int) and b > MAX_REPEAT:
                raise Break("a very large power", Var(fn), [lhs, rhs])
            return self.deliver(then, computed(self.do(fn, a, b), [a, b]))
        if fn in (operator.eq, operator.ne):
            equal = self.equality(lhs, rhs)
            if equal is not None:
                return self.give(then, equal is (fn is operator.eq))
            if type(lhs.value) is type(rhs.value) and type(lhs.value) in (list, tuple):
                way = equal_items if fn is operator.eq else unequal_items
                return self.call_function(Var(way), [lhs, rhs], {}, then)
        kinds = f"{type(lhs.value).__name__} and {type(rhs.value).__name__}"
        raise Break(f"{fn.__name__} of {kinds}", Var(fn), [lhs, rhs])

    def user_operator(self, x: Var, fn) -> bool:
        """Whether a class defines an operator in Python."""
        if isinstance(x.value, (FUNCTIONS, *SCALARS)) and not isinstance(x.value, type):
            return False
        plain = IN_PLACE.get(fn, fn)
        names = (method_name(fn), REVERSED.get(plain, ""), method_name(plain))
        return any(self.own_method(x, name) for name in names if name)

    def user_binary(self, fn, lhs: Var, rhs: Var, then):
        """An operator that a user's class defines: each candidate in Python's order."""
        plain = IN_PLACE.get(fn, fn)
        tries = [(lhs, method_name(fn), rhs)]
        if plain is not fn:
            tries.append((lhs, method_name(plain), rhs))
        reverse = (rhs, REVERSED.get(plain, ""), lhs)
        left_type, right_type = type(self.typed(lhs)), type(self.typed(rhs))
        late = plain in (operator.add, operator.mul) and issubclass(left_type, SEQUENCES)
        late = late and not any(self.own_method(lhs, name) for _, name, _ in tries)
        if late and is_heap(left_type):
            reason = f"{fn.__name__} of a {left_type.__name__} and a {right_type.__name__}"
            raise Break(reason, Var(fn), [lhs, rhs])
        if late or (
            right_type is not left_type
            and issubclass(right_type, left_type)
            and (
                plain in COMPARE
                or self.own_method(rhs, reverse[1]) is not self.own_method(lhs, reverse[1])
            )
        ):
            tries.insert(0, reverse)
        elif right_type is not left_type or plain in COMPARE:
            tries.append(reverse)
        tries = [t for t in tries if t[1] and self.has(t[0], t[1])]

        return self.attempt(OperatorAttempt(fn, lhs, rhs, tries, then), 0)

    def attempt(self, tried: "OperatorAttempt", number: int):
        """Call a candidate method of an operator; the next one if it gives NotImplemented."""
        if number == len(tried.tries):
            return self.no_method(tried)
        x, name, y = tried.tries[number]
        method = self.look_up(type(x.value), name)

        def after(t, result):
            if result.value is NotImplemented:
                return t.attempt(tried, number + 1)
            return t.deliver(tried.then, result)

        eq = self.own_method(x, "__eq__")
        if name == "__ne__" and eq is not None and not isinstance(method, types.FunctionType):

            def negate(t, result):
                if result.value is NotImplemented:
                    return t.attempt(tried, number + 1)
                return t.truth(result, lambda t2, flag: t2.give(tried.then, not flag))

            return self.call(Var(eq), [x, y], {}, negate)
        if not isinstance(method, types.FunctionType):
            plain = IN_PLACE.get(tried.fn, tried.fn)
            takes_all = plain in OF_SEQUENCES and issubclass(type(x.value), SEQUENCES)
            if not (self.foldable(x) and self.foldable(y)) and takes_all:
                raise Break(f"{name} of a {type(x.value).__name__}", Var(tried.fn), [x, y])
            if not (self.foldable(x) and self.foldable(y)):
                return self.attempt(tried, number + 1)  # a builtin refuses a user's class
            return self.builtin_method(Var(method), x, name, [y], {}, after)
        return self.call(Var(method), [x, y], {}, after)

    def no_method(self, tried: "OperatorAttempt"):
        """Apply an operator without a method: == and != compare identities, others raise."""
        fn, lhs, rhs = tried.fn, tried.lhs, tried.rhs
        if fn in (operator.eq, operator.ne):
            return self.give(tried.then, self.identical(lhs, rhs) is (fn is operator.eq))
        kinds = {type(x.value): x.value for x in (lhs, rhs)}
        for kind in kinds:
            if kind.__module__ != "builtins":
                kinds[kind] = type(kind.__name__, (), {})()  # it defines no operator either
        return self.do(fn, kinds[type(lhs.value)], kinds[type(rhs.value)])  # raises

    def sequence_operator(self, fn, lhs: Var, rhs: Var) -> Var | None:
        """+ and * of lists and tuples whose items are Vars."""
        plain = IN_PLACE.get(fn, fn)
        a, b = lhs.value, rhs.value
        if plain is operator.add and type(a) is type(b) and type(a) in (list, tuple):
            if fn is not plain and type(a) is list:
                self.extend(lhs, "extend", rhs)
                return lhs
            joined = [*self.sequence(lhs), *self.sequence(rhs)]
            if type(a) is tuple and not (a and b):
                return lhs if a else rhs
            return self.new_list(joined) if type(a) is list else self.new_tuple(joined)
        if fn is operator.iadd and type(a) is list:
            items = self.iterated(rhs)
            if items is not None:
                for x in list(items):
                    self.container_method(lhs, "append", [x])
                return lhs
        if plain is operator.mul:
            seq, times = (lhs, rhs) if isinstance(a, (list, tuple)) else (rhs, lhs)
            counted = isinstance(times.value, int) and self.foldable(times)
            if type(seq.value) is tuple and counted and self.concretize(times) == 1:
                return seq
            if type(seq.value) in (list, tuple) and counted:
                items = self.sequence(seq) * self.concretize(times)
                if fn is not plain and seq is lhs and type(seq.value) is list:
                    return self.replace_all(lhs, items)
                return self.new_list(items) if type(seq.value) is list else self.new_tuple(items)
        if plain is operator.or_ and type(a) is dict and type(b) is dict:
            if fn is not plain:
                self.extend(lhs, "update", rhs)
                return lhs
            return self.new_dict([*self.entries(lhs), *self.entries(rhs)])
        if fn is plain and fn in SET_OPERATORS and KEYS in (type(a), type(b)):
            return self.operator_of_keys(fn, lhs, rhs)
        if plain in SET_OPERATORS and isinstance(b, (set, frozenset)) and type(a) is set:
            if fn is plain:
                return self.set_method(lhs, SET_OPERATORS[plain], [rhs])
            self.set_method(lhs, SET_UPDATES[plain], [rhs])
            return lhs
        if fn is not plain and isinstance(a, (list, set, dict)):
            raise Break(f"{fn.__name__} of a {type(a).__name__}", Var(fn), [lhs, rhs])
        return None

    def operator_of_keys(self, fn, lhs: Var, rhs: Var) -> Var | None:
        """The set of an operator on keys of dicts, or on keys and another set."""
        if not all(isinstance(x.value, (KEYS, set, frozenset)) for x in (lhs, rhs)):
            return None
        items = [self.iterated(x) for x in (lhs, rhs)]
        if None in items:
            return None
        a, b = (self.new_set(list(x)) for x in items)
        return self.set_method(a, SET_OPERATORS[fn], [b])

    def replace_all(self, target: Var, items: list[Var]) -> Var:
        """Replace the contents of a list."""
        self.container_method(target, "clear", [])
        for x in items:
            self.container_method(target, "append", [x])
        return target

    def equality(self, lhs: Var, rhs: Var) -> bool | None:
        """== of containers and plain objects; None if unknown."""
        a, b = self.typed(lhs), self.typed(rhs)
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and type(a) is type(b):
            xs, ys = self.sequence(lhs), self.sequence(rhs)
            if xs is None or ys is None:
                return None
            if len(xs) != len(ys):
                return False
            for x, y in zip(xs, ys, strict=True):
                same = x is y or self.same_item(x, y)
                if same is not True:
                    return same
            return True
        if self.is_dict(lhs) and self.is_dict(rhs):
            xs, ys = dict(self.values_by_key(lhs)), dict(self.values_by_key(rhs))
            if xs.keys() != ys.keys():
                return False
            if isinstance(a, OrderedDict) and isinstance(b, OrderedDict) and [*xs] != [*ys]:
                return False
            parts = [self.same_item(xs[k], ys[k]) for k in xs]
            return None if None in parts else all(parts)
        if self.is_tensor(lhs) or self.is_tensor(rhs):
            return None
        if compares_in_python(a) or compares_in_python(b):
            return None
        plain = (object.__eq__, type.__eq__)
        left_eq, right_eq = (self.look_up(type(x), "__eq__") for x in (a, b))
        unlike = type(a) is not type(b) and (
            (type(a) in SCALARS and right_eq in (*plain, *UNLIKE_SCALARS))
            or (type(b) in SCALARS and left_eq in (*plain, *UNLIKE_SCALARS))
        )
        by_identity = left_eq in plain and right_eq in plain
        if by_identity or a is None or b is None or unlike:
            return self.identical(lhs, rhs)
        return None

    def same_item(self, x: Var, y: Var) -> bool | None:
        """Whether two items are equal; None if unknown."""
        equal = self.of_numbers(operator.eq, [x, y]) if self.is_number_call([x, y]) else None
        if equal is not None:
            return equal.value
        if self.foldable(x) and self.foldable(y):
            one, other = self.concretize(x), self.concretize(y)
            return one is other or one == other
        return self.equality(x, y)

    def values_by_key(self, var: Var):
        return [(k.value, v) for k, v in self.entries(var)]

    @pending
    def truth(self, x: Var, then):
        """bool(x), given to `then(tracer, flag)`."""
        value = x.value
        if value is NotImplemented and self.live:  # which warns, or raises
            raise Break("the truth of NotImplemented", Var(exact_bool), [x])
        if self.live and self.front.is_hidden(x):
            reason = "a branch on a number that a tensor holds"
            raise Break(reason, Var(exact_bool), [x], hint=NUMBER_HINT)
        if value is True or value is False or value is None:
            self.concretize(x)
            return then(self, bool(value))
        if not self.live:
            return then(self, self.do(bool, value))
        if self.is_tensor(x):
            flag = self.front.truth(self, x)
            if flag is None:
                hint = "use gh.where, or let it break: each side is captured on its own"
                raise Break("a branch on a tensor's value", Var(exact_bool), [x], hint=hint)
            return then(self, flag)
        result = self.of_numbers(bool, [x]) if self.is_number_call([x]) else None
        if result is not None:
            return then(self, result.value)
        if self.foldable(x) and type(value) in SCALARS:
            return then(self, bool(self.concretize(x)))
        for name, fn in (("__bool__", bool), ("__len__", len)):
            decide = as_builtin(fn, x, name, lambda t, v: t.truth(v, then))
            if self.call_own(x, name, [], decide):
                return None
            if self.has(x, name):
                break
        else:
            self.typed(x)
            return then(self, True)
        if isinstance(value, (list, tuple, dict, set, frozenset)):
            self.length(x, lambda t, v: None)
            return then(self, bool(value))
        if self.foldable(x):
            return then(self, bool(self.concretize(x)))
        raise Break(f"the truth of a {type(value).__name__}", Var(exact_bool), [x])

    @pending
    def length(self, x: Var, then):
        """len(x)."""
        value = x.value
        if self.is_tensor(x):
            return self.deliver(then, self.front.length(self, x))
        if self.call_own(x, "__len__", [], as_builtin(len, x, "__len__", then)):
            return None
        if self.is_dict(x):
            self.whole_dict(x)
            return self.deliver(then, computed(len(value), ()))
        if x.is_made("view"):
            return self.length(x.origin.parts[0], then)
        if self.live and not self.has(x, "__len__"):
            kind = type(value.native()) if isinstance(value, CapturedIterator) else type(value)
            self.fail(TypeError(f"object of type {type_name(kind)!r} has no len()"), kind)
        if type(value) in (str, bytes, range):
            return self.deliver(then, computed(self.do(len, self.concretize(x)), ()))
        items = self.sequence(x)
        if items is None:
            raise Break(f"the length of a {type(value).__name__}", Var(len), [x])
        return self.deliver(then, computed(len(items), ()))


def divides_by_constant(fn, args) -> bool:
    """Whether this is // or % of whole numbers by a constant, which cannot raise."""
    whole = fn in WHOLE_DIVISIONS and all(type(x.value) is int for x in args)
    return whole and args[1].origin is None and args[1].value != 0


def method_name(fn) -> str:
    return f"__{fn.__name__.strip('_')}__"
