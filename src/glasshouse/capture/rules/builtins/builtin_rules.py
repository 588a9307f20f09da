"""Rules of builtin functions and classes: rule(tracer, fn, args, kwargs, then)."""

import abc
import copy
import inspect
import itertools
import math
import operator
import os
import threading
import types
import typing
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from glasshouse.capture.frames.frame import (
    CapturedIterator,
    ChoicesIterator,
    EnumerateIterator,
    ReversedIterator,
    SequenceIterator,
    ZipIterator,
    type_of,
)
from glasshouse.capture.guards.program import GuardCheck
from glasshouse.capture.rules.attributes import attribute_or
from glasshouse.capture.rules.builtins.class_checks import (
    on_isinstance,
    on_issubclass,
    on_native_check,
)
from glasshouse.capture.rules.builtins.container_rules import (
    as_list,
    on_defaultdict,
    on_dict,
    on_sequence,
)
from glasshouse.capture.rules.builtins.copies import on_copy
from glasshouse.capture.rules.builtins.library_rules import RULES
from glasshouse.capture.rules.class_attributes import make_super, super_of_frame
from glasshouse.capture.rules.class_lookups import has_own_text
from glasshouse.capture.rules.constants import (
    all_foldable,
    call_concrete,
    concrete_key,
    says_the_same,
)
from glasshouse.capture.rules.descriptors import bound_method
from glasshouse.capture.rules.identity import identical
from glasshouse.capture.rules.new_objects import new_set
from glasshouse.capture.rules.numbers import is_number_call
from glasshouse.capture.rules.operators import as_builtin, length
from glasshouse.capture.rules.subscripts import get_item, search, set_item
from glasshouse.capture.values.arities import check_arguments
from glasshouse.capture.values.plain import ARRAY_SCALARS, MISSING
from glasshouse.capture.values.polyfills import (
    POLYFILLS,
    call_until,
    check_islice,
    check_reverse,
    order_of,
    reversed_of,
    total_of,
)
from glasshouse.capture.values.signatures import on_signature
from glasshouse.capture.values.var import (
    Break,
    Kwargs,
    Recipe,
    ValueSource,
    Var,
    computed,
    constant,
)

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


# Functions of `operator` that write to their first argument, or call it.
PLAIN = {name.rstrip("_") for name in vars(operator)}
WRITING = {name for name in PLAIN if name[0] == "i" and name[1:] in PLAIN}
WRITING |= {f"__{name}__" for name in WRITING}
WRITING |= {"setitem", "delitem", "__setitem__", "__delitem__", "call", "__call__"}
WRITING |= {"iconcat", "__iconcat__", "concat", "__concat__"}
# Functions of constants alone, whose result is the same each time.
PURE: set[Any] = {
    abs,
    ascii,
    bin,
    chr,
    divmod,
    format,
    hex,
    oct,
    ord,
    pow,
    round,
    *filter(callable, vars(math).values()),
    *(fn for name, fn in vars(operator).items() if callable(fn) and name not in WRITING),
}


PRINT_HINT = "print after the captured function, or accept the break"


def breaking(what: str, is_called: bool = True, hint: str = "") -> Any:
    """The rule that leaves a call to Python, or, unless it `is_called`, the instruction."""

    def rule(t, fn, args, kwargs, then):
        reason = f"{what} {'of' if what == 'call' else 'a'} {fn.value.__name__}"
        called = fn if is_called and (args or fn.value not in (vars, dir)) else None
        raise Break(reason, called, args, kwargs, hint)

    return rule


def simple(rule: Any) -> Any:
    """The rule of a builtin that takes no keywords: rule(tracer, args, then)."""

    def checked(t, fn, args, kwargs, then):
        if kwargs:
            return t.deliver(then, t.real_call(fn, args, kwargs))  # raises
        return rule(t, args, then)

    return checked


def check_count(fn: Var, args: list[Any], kwargs: Kwargs) -> None:
    """Check that a rule covers this number of arguments; Python makes other calls.

    Raises: Break
    """
    least, most = COUNTS.get(fn.value, (0, len(args)))
    check_arguments(fn, args, kwargs)
    if fn.value in COUNTS and (kwargs or not least <= len(args) <= most):
        raise Break(f"call of {fn.value.__name__} with other arguments", fn, args, kwargs)


def polyfilled(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any) -> Any:
    return t.call_polyfill(fn, args, kwargs, then)


def on_type(t: "CaptureTracer", fn: Var, args: list[Any], kwargs: Kwargs, then: Any) -> Any:
    if len(args) == 1:
        return t.give(then, type_of(t.typed(args[0])))
    raise Break("a class is made", fn, args, kwargs)


def on_bool(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any) -> Any:
    if not args:
        return t.give(then, False)
    return t.truth(args[0], lambda t2, flag: t2.give(then, flag))


def name_of(t: "CaptureTracer", fn: Var, args: list[Any]) -> str:
    """The name of an attribute, the second argument; Python raises for a wrong one."""
    name = t.concretize(args[1])
    if not isinstance(name, str):
        t.do(fn.value, None, name, *[None][: len(args) - 2])
    return name


def on_getattr(t: "CaptureTracer", fn: Var, args: list[Any], kwargs: Kwargs, then: Any) -> Any:
    name = name_of(t, fn, args)
    if len(args) == 2:
        return t.get_attribute(args[0], name, then)
    other = lambda t2: t2.deliver(then, args[2])  # noqa: E731
    return attribute_or(t, (fn, args), args[0], name, then, other)


def on_hasattr(t: "CaptureTracer", fn: Var, args: list[Any], kwargs: Kwargs, then: Any) -> Any:
    name = name_of(t, fn, args)
    return attribute_or(
        t,
        (fn, args),
        args[0],
        name,
        lambda t2, v: t2.give(then, True),
        lambda t2: t2.give(then, False),
    )


def on_setattr(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any) -> Any:
    value = args[2] if len(args) > 2 else None
    return t.set_attribute(args[0], name_of(t, fn, args), value, then)


def on_iter(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any) -> Any:
    if len(args) == 2 and not callable(t.typed(args[0])):
        raise Break("iter of what cannot be called", fn, args)
    if len(args) == 2:
        return t.call_function(Var(call_until), args, {}, then)
    return t.get_iter(args[0], then)


def on_super(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any) -> Any:
    if len(args) == 1:
        raise Break("super of a class alone", fn, args)
    return t.deliver(then, make_super(t, args[0], args[1]) if args else super_of_frame(t))


def on_enumerate(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any) -> Any:
    start = args[1] if len(args) > 1 else kwargs.get("start", Var(0))
    if type(start.value) is not int:
        raise Break("enumerate from another number than it takes", fn, args, kwargs)

    def wrap(t2, it):
        if isinstance(it.value, (SequenceIterator, ZipIterator, EnumerateIterator)) and t2.foldable(
            start
        ):
            return t2.deliver(
                then,
                t2.heap.track(Var(EnumerateIterator(it, t2.concretize(start)), Recipe("iterator"))),
            )
        return t2.call_function(Var(POLYFILLS[enumerate]), [it, start], {}, then)

    return t.get_iter(args[0], wrap)


def on_zip(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any) -> Any:
    simple = (SequenceIterator, ZipIterator, EnumerateIterator, range)
    if kwargs or any(not isinstance(x.value, simple) and t.iterated(x) is None for x in args):
        return t.call_polyfill(fn, args, kwargs, then)
    inners = []
    for x in args:
        t.get_iter(x, lambda t2, it: inners.append(it))
    return t.deliver(then, t.heap.track(Var(ZipIterator(inners), Recipe("iterator"))))


def on_reversed(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any) -> Any:
    if t.call_own(args[0], "__reversed__", [], then):
        return None
    if type(args[0].value) is range:  # of any length
        iterator = SequenceIterator(Var(t.concretize(args[0])[::-1]))
        return t.deliver(then, t.heap.track(Var(iterator, Recipe("iterator"))))
    kind = type_of(args[0].value)
    if all(t.look_up(kind, x) is MISSING for x in ("__reversed__", "__getitem__")):
        raise Break("reversed of what has no order", fn, args)
    items = None if isinstance(args[0].value, CapturedIterator) else t.sequence(args[0])
    if items is not None:
        return t.deliver(
            then, t.heap.track(Var(ReversedIterator(args[0], items[::-1]), Recipe("iterator")))
        )
    if t.own_method(args[0], "__getitem__"):
        return t.call_function(Var(reversed_of), args, {}, then)
    raise Break("reversed", fn, args)


def in_polyfill(t: "CaptureTracer") -> bool:
    """Whether the running frame is that of a polyfill."""
    return t.frames[-1].globals is call_until.__globals__


def on_id(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any) -> Any:
    var = args[0]
    if isinstance(var.origin, ValueSource) and t.guards.live:
        t.guards.add("is", var.origin, var.value)
    elif var.origin is not None and (in_polyfill(t) or not t.frames[-1].trusted):
        raise Break("the id of something new", fn, args)
    return t.give(then, id(var.value))


def on_choices(t: "CaptureTracer", fn: Any, args: Any, kwargs: Any, then: Any) -> Any:
    """permutations and combinations, computed on the places of the items."""
    items = t.iterated(args[0])
    if items is None or not all(t.foldable(x) for x in (*args[1:], *kwargs.values())):
        raise Break(f"call of {fn.value.__name__}", fn, args, kwargs)
    words = {k: t.concretize(v) for k, v in kwargs.items()}
    places = t.do(fn.value, range(len(items)), *(t.concretize(x) for x in args[1:]), **words)
    choices = [t.heap.new_tuple([items[i] for i in choice]) for choice in places]
    parts = [*args[1:], *kwargs.values()]
    iterator = ChoicesIterator(fn.value, t.heap.new_tuple(items), parts, choices)
    return t.deliver(then, t.heap.track(Var(iterator, Recipe("iterator"))))


def on_sum(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any) -> Any:
    """sum: for numbers by Python itself, with its order and precision."""
    items: Any = t.iterated(args[0]) if len(args) in (1, 2) and not t.is_tensor(args[0]) else None
    if items is not None and isinstance(args[0].value, CapturedIterator):
        args = [t.heap.new_list(items), *args[1:]]
    start = args[1] if len(args) > 1 else kwargs.get("start", Var(0))
    plain = items is not None and not any(map(t.front.is_hidden, items))
    if not plain or any(type(x.value) not in (int, float) for x in (*items, start)):
        return polyfilled(t, fn, args, kwargs, then)
    if is_number_call(t, [start, *items]):
        return t.deliver(then, t.number(total_of, [start, *items]))
    if all_foldable(t, [start, *items]):
        return t.deliver(then, computed(call_concrete(t, total_of, [start, *items]), ()))
    return polyfilled(t, fn, args, kwargs, then)


def on_type_form(t: "CaptureTracer", fn: Any, args: Any, kwargs: Any, then: Any) -> Any:
    """typing.get_origin and get_args, whose results are constant."""
    return t.deliver(then, constant(call_concrete(t, fn.value, args, kwargs)))


def on_place(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any) -> Any:
    """The place of the call, such as its thread: a constant that is guarded."""
    value = t.do(fn.value)
    base = t.guards.source("const", None, fn.value, fn.value.__name__)
    t.guards.add("call", base, GuardCheck(tells, value, f"gives {value}"))
    return t.give(then, value)


def tells(fn: Callable[..., Any], value: Any) -> bool:
    return fn() == value


def on_check_islice(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any) -> Any:
    return t.give(then, call_concrete(t, check_islice, args))


def on_check_reverse(
    t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any
) -> Any:
    if not t.foldable(args[0]):
        raise Break("sorting by an order that is not known", fn, args, kwargs)
    return t.give(then, call_concrete(t, check_reverse, args))


def on_order(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any) -> Any:
    if not all_foldable(t, args):
        raise Break("sorting by values that are not known", fn, args)
    return t.deliver(then, constant(call_concrete(t, order_of, args)))


def on_new_tuple(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any) -> Any:
    items = t.iterated(args[1]) if len(args) == 2 else None
    if items is None:
        raise Break("a call of __new__", fn, args, kwargs)
    return t.deliver(then, t.heap.new_tuple(items, t.concretize(args[0])))


def on_str(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any) -> Any:
    if args and has_own_text(t, args[0]):
        names = ("__str__", "__repr__") if fn.value is str else ("__repr__",)
        name = next((x for x in names if t.own_method(args[0], x)), None)
        if name is not None:
            t.call_own(args[0], name, [], as_builtin(fn.value, args[0], name, then))
            return None
    if not args or t.foldable(args[0]) or is_constant_set(t, args[0]):
        return t.give(then, t.do(fn.value, *(t.concretize(x) for x in args)))
    cls = type(t.typed(args[0]))
    if isinstance(args[0].value, BaseException) and says_the_same(t, args[0], fn.value):
        return t.give(then, t.do(fn.value, args[0].value))
    for name in ("__str__", "__repr__") if fn.value is str else ("__repr__",):
        if t.call_own(args[0], name, [], as_builtin(fn.value, args[0], name, then)):
            return None
        if getattr(cls, name) is not object.__str__:
            break
    raise Break(f"the text of a {cls.__name__}", fn, args)


def is_constant_set(t: "CaptureTracer", var: Var) -> bool:
    """Whether a value is a set of constants: any read relies on all of it."""
    return type(var.value) in (set, frozenset) and all(map(t.foldable, t.sequence(var)))


def on_hash(t: "CaptureTracer", args: list[Var], then: Any) -> Any:
    convert = as_builtin(hash, args[0], "__hash__", lambda t2, v: t2.give(then, t2.concretize(v)))
    if t.call_own(args[0], "__hash__", [], convert):
        return None
    if not t.foldable(args[0]):
        raise Break("call of hash", Var(hash), args)
    return t.deliver(then, computed(call_concrete(t, hash, args), ()))


def on_number(t: "CaptureTracer", fn: Var, args: list[Any], kwargs: Kwargs, then: Any) -> Any:
    """int(x), float(x)."""
    if len(args) == 1 and is_number_call(t, args):
        return t.deliver(then, t.number(fn.value, args))
    result = t.front.number_of(t, fn.value, args[0]) if len(args) == 1 else None
    if result is not None:
        return t.deliver(then, result)
    if all_foldable(t, args, kwargs):
        number = call_concrete(t, fn.value, args, kwargs)
        return t.deliver(then, computed(number, [x.value for x in args]))
    if len(args) == 1 and t.is_tensor(args[0]) and t.front.is_invariant(t, args[0]):
        return t.give(then, t.do(fn.value, args[0].value))
    name = f"__{fn.value.__name__}__"
    convert = as_builtin(fn.value, args[0], name, then)
    if not t.is_tensor(args[0]) and len(args) == 1 and t.call_own(args[0], name, [], convert):
        return None
    raise Break(f"{fn.value.__name__} of a {type(args[0].value).__name__}", fn, args, kwargs)


def on_pure(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any) -> Any:
    if fn.value is slice:
        return t.deliver(then, t.heap.new_slice(args))
    if fn.value is frozenset and len(args) == 1 and type(args[0].value) is frozenset:
        return t.deliver(then, args[0])
    if fn.value is frozenset and args:
        items = t.iterated(args[0])
        if items is not None:
            keys = [concrete_key(t, x) for x in items]
            made_of = args[0].value if type(args[0].value) is set else keys
            return t.give(then, frozenset(made_of))
    if all_foldable(t, args, kwargs):
        result = call_concrete(t, fn.value, args, kwargs)
        return t.deliver(then, computed(result, [x.value for x in args]))
    raise Break(f"making a {fn.value.__name__}", fn, args, kwargs)


CLASSES = {f: polyfilled for f in POLYFILLS if isinstance(f, type)}
CLASSES |= {
    bool: on_bool,
    list: on_sequence(as_list),
    dict: on_dict(dict),
    OrderedDict: on_dict(OrderedDict),
    defaultdict: on_defaultdict,
    tuple: on_sequence(lambda t, items: t.heap.new_tuple(items)),
    enumerate: on_enumerate,
    zip: on_zip,
    set: on_sequence(lambda t, items: new_set(t, items)),
    reversed: on_reversed,
    super: on_super,
    type: on_type,
    str: on_str,
    int: on_number,
    float: on_number,
    object: simple(
        lambda t, args, then: t.deliver(
            then, t.heap.track(Var(object(), Recipe("object", object), {}))
        )
    ),
    types.MethodType: simple(
        lambda t, args, then: t.deliver(then, bound_method(t, args[1], args[0]))
    ),
}
CLASSES |= dict.fromkeys((property, deque), breaking("making"))
CLASSES |= dict.fromkeys(ARRAY_SCALARS, on_pure)
CLASSES |= dict.fromkeys((range, complex, bytes, frozenset, slice), on_pure)
CLASSES |= dict.fromkeys(
    (itertools.permutations, itertools.combinations, itertools.combinations_with_replacement),
    on_choices,
)
BUILTINS: dict[Any, Any] = {
    isinstance: on_isinstance,
    abc.ABCMeta.__instancecheck__: on_native_check,
    abc.ABCMeta.__subclasscheck__: on_native_check,
    issubclass: on_issubclass,
    getattr: on_getattr,
    hasattr: on_hasattr,
    setattr: on_setattr,
    delattr: on_setattr,
    iter: on_iter,
    id: on_id,
    tuple.__new__: on_new_tuple,
    order_of: on_order,
    check_islice: on_check_islice,
    check_reverse: on_check_reverse,
    sum: on_sum,
    inspect.signature: on_signature,
    copy.copy: on_copy(deep=False),
    copy.deepcopy: on_copy(deep=True),
    typing.get_origin: on_type_form,
    typing.get_args: on_type_form,
    threading.get_ident: on_place,
    os.getpid: on_place,
    repr: on_str,
    hash: simple(on_hash),
    print: breaking("call", hint=PRINT_HINT),
    len: simple(lambda t, args, then: length(t, args[0], then)),
    next: simple(lambda t, args, then: t.next_of(args[0], [*args, None][1], then)),
    callable: simple(lambda t, args, then: t.give(then, callable(t.typed(args[0])))),
}
BUILTINS |= RULES
BUILTINS |= {
    operator.getitem: simple(lambda t, args, then: get_item(t, *args, then)),
    operator.setitem: simple(lambda t, args, then: set_item(t, *args, then)),
    operator.delitem: simple(lambda t, args, then: set_item(t, *args, None, then)),
    operator.contains: simple(lambda t, args, then: search(t, *args, False, then)),
    operator.is_: simple(lambda t, args, then: t.give(then, identical(t, *args))),
    operator.is_not: simple(lambda t, args, then: t.give(then, not identical(t, *args))),
    operator.truth: on_bool,
    operator.not_: simple(
        lambda t, args, then: t.truth(args[0], lambda t2, flag: t2.give(then, not flag))
    ),
}
# The (least, most) positional arguments that these rules cover.
COUNTS: dict[Any, tuple[int, int]] = {
    **dict.fromkeys((isinstance, issubclass, hasattr, delattr), (2, 2)),
    getattr: (2, 3),
    setattr: (3, 3),
}
COUNTS |= dict.fromkeys((id, len, callable, repr, hash, reversed), (1, 1))
COUNTS |= {iter: (1, 2), next: (1, 2), bool: (0, 1), super: (0, 2), type: (1, 3)}
COUNTS |= dict.fromkeys((int, float, str), (0, 3))
BUILTINS |= dict.fromkeys(
    (eval, exec, globals, locals, breakpoint, compile), breaking("call", False)
)
BUILTINS |= dict.fromkeys((vars, dir, input, open), breaking("call"))
