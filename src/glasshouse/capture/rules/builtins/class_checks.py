"""isinstance and issubclass: by the order of bases, by registered classes, and by checks of a
metaclass."""

import abc
import builtins
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from glasshouse.capture.frames.frame import CapturedGenerator, CapturedIterator, type_of
from glasshouse.capture.guards.program import GuardCheck
from glasshouse.capture.rules.class_lookups import rely_on_bases
from glasshouse.capture.rules.constants import all_foldable
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, Kwargs, Var

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


SAFE_CHECKS = ("abc", "typing", "enum")  # modules whose checks ask nothing but classes
ASKED = {"isinstance": "__instancecheck__", "issubclass": "__subclasscheck__"}


def each_kind(kinds: Any) -> list[Any]:
    """The classes in a tuple or union, which may be nested; another value alone."""
    if isinstance(kinds, types.UnionType):
        kinds = kinds.__args__
    return [x for kind in kinds for x in each_kind(kind)] if isinstance(kinds, tuple) else [kinds]


def own_check(t: "CaptureTracer", kind: Any, name: str) -> types.FunctionType | None:
    """The check of a metaclass in Python, but for those of SAFE_CHECKS; None if there is none."""
    check = t.look_up(type(kind), name)
    is_users = isinstance(check, types.FunctionType) and check.__module__ not in SAFE_CHECKS
    return check if is_users else None


def on_isinstance(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any) -> Any:
    value, kinds = t.typed(args[0]), t.concretize(args[1])
    if isinstance(value, (CapturedGenerator, CapturedIterator)):
        if has_own_checks(t, kinds, fn.value):
            raise Break("isinstance of an iterator with a check of its own", fn, args)
        return t.give(then, t.do(issubclass, type_of(value), kinds))
    return check_classes(t, fn.value, args[0], kinds, type(value), then)


def on_issubclass(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any) -> Any:
    if not all_foldable(t, args):
        raise Break("call of issubclass", fn, args)
    cls, kinds = map(t.concretize, args)
    return check_classes(t, fn.value, args[0], kinds, cls, then)


def has_own_checks(t: "CaptureTracer", kinds: Any, asks: Callable[..., Any]) -> bool:
    """Whether the user's code decides the instances or subclasses of one of some classes."""
    return any(own_check(t, kind, ASKED[asks.__name__]) for kind in each_kind(kinds))


def check_classes(
    t: "CaptureTracer", asks: Callable[..., Any], var: Var, kinds: Any, cls: type[Any], then: Any
) -> Any:
    """isinstance or issubclass of a Var whose class is `cls`; a metaclass's check is inlined."""
    if has_own_checks(t, kinds, asks):
        return check_in_order(t, asks, var, each_kind(kinds), cls, then)
    answer = t.do(asks, var.value, kinds)
    rely_on_bases(t, cls)
    rely_on_registry(t, cls, kinds)
    return t.give(then, answer)


def check_in_order(
    t: "CaptureTracer",
    asks: Callable[..., Any],
    var: Var,
    kinds: list[Any],
    cls: type[Any],
    then: Any,
) -> Any:
    """`check_classes` for one class after the other, until one says yes."""
    if not kinds:
        return t.give(then, False)
    kind, *more = kinds
    check = own_check(t, kind, ASKED[asks.__name__])

    def decided(tracer, flag):
        if flag:
            return tracer.give(then, True)
        return check_in_order(tracer, asks, var, more, cls, then)

    if check is None:
        return check_classes(t, asks, var, kind, cls, lambda t2, v: decided(t2, v.value))
    if asks is builtins.isinstance and cls is kind:  # Python asks no metaclass then
        return t.give(then, True)
    return t.call(Var(check), [Var(kind), var], {}, lambda t2, v: t2.truth(v, decided))


def on_native_check(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any) -> Any:
    """The checks of `type` and `ABCMeta`, called by the check of a metaclass."""
    kind, subject = t.concretize(args[0]), args[1]
    of_instance = fn.value.__name__ == ASKED["isinstance"]
    value = t.typed(subject) if of_instance else t.concretize(subject)
    answer, cls = t.do(fn.value, kind, value), type(value) if of_instance else value
    rely_on_bases(t, cls)
    rely_on_registry(t, cls, kind)
    return t.give(then, answer)


class RegisteredAnswers:
    """Answers of abstract classes, as (class, abstract class, answer), and Python's count of
    registrations: while that is the same, no answer changes."""

    def __init__(self) -> None:
        self.token: object = abc.get_cache_token()
        self.answers: list[tuple[type[Any], type[Any], bool]] = []

    def hold(self) -> bool:
        """Whether the answers are still the same; imports register classes all the time."""
        token = abc.get_cache_token()
        if token != self.token:
            if any(issubclass(cls, kind) is not answer for cls, kind, answer in self.answers):
                return False
            self.token = token
        return True


def rely_on_registry(t: "CaptureTracer", cls: Any, kinds: Any) -> None:
    """Guard the answers of abstract classes on a class that does not inherit from them."""
    for kind in each_kind(kinds):
        if t.guards.live and issubclass(type(kind), abc.ABCMeta) and kind not in cls.__mro__:
            registered = t.guards.once.get(RegisteredAnswers)
            if registered is None:
                registered = t.guards.once[RegisteredAnswers] = RegisteredAnswers()
                check = GuardCheck(still_hold, registered, "abstract classes say the same")
                t.guards.add("call", t.guards.source("const", None, abc.ABCMeta, "ABCMeta"), check)
            registered.answers.append((cls, kind, issubclass(cls, kind)))


def still_hold(_: Any, answers: RegisteredAnswers) -> bool:
    return answers.hold()
