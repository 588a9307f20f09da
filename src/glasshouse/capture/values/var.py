"""Values of the interpreter: real values that know where they come from.

The first call of a function is run by the interpreter for real; a Var pairs each value with its
origin, from which a later call finds or makes the same: None (a constant), a ValueSource (a path
from the arguments), an IRNode (computed by the graph), a Recipe (a new container, object, function,
…), or a SymbolicNumber (arithmetic on numbers that vary)."""

import functools
import operator
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from glasshouse.capture.values.plain import SCALARS, attribute_of_c, is_small

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


class ValueSource:
    """A path from a call's arguments to a value: `kind` is a step from `base`, named by `key`.

    Kinds: slot (number), const (an object), dict (an instance's dict), get (of a dict), item (of a
    sequence), cell (its contents), attr (getattr), type, lookup (a class attribute), handled (the
    exception that is being handled where the call is)."""

    __slots__ = ("kind", "base", "key", "named")

    def __init__(self, kind: str, base: "ValueSource | None", key: Any, named: str | None) -> None:
        self.kind: str = kind
        self.base: Any = base  # a ValueSource, or None
        self.key: Any = key
        self.named: Any = named

    @property
    def text(self) -> str:
        """The path as Python."""
        if self.named is None:
            kind, base, key = self.kind, self.base, self.key
            if kind == "get" and base.kind == "dict" and isinstance(key, str):
                base, kind = base.base, "attr"
            if kind == "get" and type(key) not in SCALARS:
                key = f"<{type(key).__name__} at {id(key):#x}>"
            elif kind == "get":
                key = repr(key)
            self.named = STEPS[kind][0].format(base.text, key)
        return self.named

    def __repr__(self) -> str:
        return self.text


def varying_name(source: ValueSource) -> str:
    """The name in `varying` for a source with another object in each call."""
    return f"each {source.text}"


def stored(cls: type[Any], name: str) -> Any:
    """A class attribute as it is stored."""
    return next(c.__dict__[name] for c in cls.__mro__ if name in c.__dict__)


def stored_item(values: dict[Any, Any], key: Any) -> Any:
    """The value of a dict at a key, without `__missing__`, which may change the dict."""
    if not dict.__contains__(values, key):
        raise KeyError(key)
    return dict.__getitem__(values, key)


# Kind of a step: (its text, a function that takes it).
STEPS: dict[str, Any] = {
    "dict": ("{}.__dict__", lambda x, _: attribute_of_c(x, "__dict__")),
    "get": ("{}[{}]", stored_item),
    "item": ("{}[{}]", operator.getitem),
    "attr": ("{}.{}", attribute_of_c),
    "lookup": ("{}.{}", stored),
    "cell": ("{}.cell_contents", lambda x, _: x.cell_contents),
    "type": ("type({})", lambda x, _: type(x)),
}


class Recipe:
    """A recipe for something new: `kind` and its parts.

    Kinds: list, tuple, dict, set (from `items` of the Var), object (a class), call (a function with
    Var arguments), function, cell."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind: str, *parts: Any) -> None:
        self.kind: str = kind
        self.parts: tuple[Any, ...] = parts


class SymbolicNumber:
    """A Python number computed from numbers that vary: fn(*args)."""

    __slots__ = ("fn", "args")

    def __init__(self, fn: Callable[..., Any], args: tuple["Var", ...]) -> None:
        self.fn: Callable[..., Any] = fn
        self.args: tuple[Var, ...] = args


class Var:
    """A value and its origin.

    `items` has its known contents: a list of Vars (list, tuple), {key: (key Var, Var)}
    (dict, set), {name: Var} (attributes of an object, None for a deleted one), a Var (cell). `log`
    lists the writes to an existing object, which later calls repeat."""

    __slots__ = ("value", "origin", "items", "log")

    def __init__(self, value: Any, origin: Any = None, items: Any = None) -> None:
        self.value: Any = value
        self.origin: Any = origin
        self.items: Any = items
        self.log: list[Any] | None = None

    @property
    def is_new(self) -> bool:
        return isinstance(self.origin, Recipe)

    def is_made(self, kind: str) -> bool:
        """Whether it is something new of a kind."""
        return isinstance(self.origin, Recipe) and self.origin.kind == kind

    def __repr__(self) -> str:
        return f"Var({self.value!r:.60}, {self.origin!r})"


Kwargs = dict[str, Var]  # the keywords of a call
Then = Callable[..., Any] | None  # what goes on with the result


class NewNumber(Var):
    """A number that Python computes in each call: equal, and a new object each time."""

    __slots__ = ()


def computed(value: Any, operands: Sequence[Any]) -> Var:
    """A Var of the result of a computation on constant operands."""
    number = type(value) in (int, float, complex) and not any(value is x for x in operands)
    is_new = number and not (type(value) is int and is_small(value))
    return NewNumber(value) if is_new else constant(value)


def last_items(var: Var) -> list[Var]:
    """The items at the end of a list or tuple: all items where they are known, else those that were
    appended to it."""
    if var.items is None:
        return [args[0] for _, _, args in var.log or ()]
    return var.items


class Null:
    """The value on the stack where CPython has NULL."""


NULL = Var(Null)


def constant(value: Any) -> Var:
    """A Var of a value that is the same in each call; lists and dicts in it are made each time."""
    kind = type(value)
    if kind in SCALARS:
        return Var(value)
    if kind in (list, tuple):
        items = [constant(x) for x in value]
        if kind is tuple and all(x.origin is None for x in items):
            return Var(value, None, items)
        return Var(value, Recipe(kind.__name__), items)
    if kind in (dict, OrderedDict):
        items = {k: (constant(k), constant(v)) for k, v in value.items()}
        return Var(value, Recipe("dict", kind), items)
    if kind is set:
        return Var(value, Recipe("set"), {k: (constant(k),) for k in value})
    return Var(value)


def is_new_container(var: Var) -> bool:
    """Whether a new list or dict has attributes: one of a user's class, or an OrderedDict."""
    ordered = var.is_made("dict") and type(var.value) is OrderedDict
    return ordered or var.is_made("subdict") or var.is_made("sublist")


class Break(Exception):
    """The end of the graph: Python calls `fn(*args, **kwargs)`, and the rest is captured
    separately. With `fn` None the instruction itself and all after it run in Python."""

    # The use of the result, if it is not pushed onto the stack: jump is ((target, items dropped) if
    # true, the same if false), loop the end of a loop that needs its next item, discard means no
    # result. With `then` an operation waits for it.
    jump: tuple[Any, ...] | None = None
    loop: int | None = None
    discard: bool = False
    continuation_fixed: bool = False
    then: Any = None

    def __init__(
        self,
        reason: str,
        fn: Var | None = None,
        args: Any = (),
        kwargs: "dict[str, Var] | None" = None,
        hint: str = "",
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fn = fn
        self.hint = hint
        self.args_ = args
        self.kwargs: dict[str, Var] = kwargs or {}

    def fix_continuation(self) -> None:
        """Note that the instruction itself decides the use of the result."""
        self.then = None
        self.continuation_fixed = True


def discarded(tracer: "CaptureTracer", var: "Var") -> None:
    """Drop a result that nobody wants, such as that of `__setitem__`."""


def without_result(then: Callable[..., Any] | None) -> Callable[..., Any]:
    """A callback for the result of a method that writes: `then` gets None instead."""
    return then if then is discarded else lambda tracer, var: tracer.give(then, None)


def pending(method: Any) -> Any:
    """Decorate a method whose argument `then` gets the result: a Break inside notes `then`."""
    code = method.__code__
    place = code.co_varnames[: code.co_argcount].index("then")
    usual = method.__defaults__[-1] if method.__defaults__ else None

    @functools.wraps(method)
    def wrapped(*args, **kwargs):
        try:
            return method(*args, **kwargs)
        except Break as graph_break:
            then = args[place] if len(args) > place else kwargs.get("then", usual)
            if then is discarded:
                graph_break.discard = (
                    graph_break.discard or graph_break.then is None and graph_break.fn is not None
                )
                graph_break.continuation_fixed = True
            elif (
                then is not None and graph_break.then is None and not graph_break.continuation_fixed
            ):
                graph_break.then = then
            raise

    return wrapped


class UserError(Exception):
    """An error of the user's program."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class CannotRebuild(Exception):
    """Something new that a later call cannot make again; `site` is its origin."""

    def __init__(self, what: str, site: tuple[Any, ...] | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.site = site
