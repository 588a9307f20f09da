"""Calls of functions under `functools.lru_cache`: for constants they give one object."""

from glasshouse.capture.guards import GuardCheck
from glasshouse.capture.plain import is_instance as isinstance
from glasshouse.capture.values import Break, Var, constant


class CachedCallRules:
    """The part of the tracer that calls what keeps its results."""

    def call_cached(self, fn: Var, args, kwargs, then):
        """A call of a function that keeps its results: what it gives is found there again."""
        given = [*args, *kwargs.values()]
        objects = [x for x in given if not self.foldable(x)]
        if not all(map(self.is_same_object, objects)):
            return self.call(Var(fn.value.__wrapped__), args, kwargs, then)
        self.concretize(fn)
        result = self.call_concrete(fn.value, args, kwargs)
        if not self.live:
            return self.give(then, result)
        if self.is_plain(result) and not has_mutable(result):
            return self.deliver(then, constant(result))
        if any(x.origin.kind != "const" for x in objects):  # a guard would keep them alive
            reason = f"{fn.value.__name__} gives a {type(result).__name__}"
            raise Break(reason, fn, args, kwargs)
        words = {k: v.value for k, v in kwargs.items()}
        return self.deliver(then, self.kept_result(fn, [x.value for x in args], words, result))

    def kept_result(self, fn: Var, args: list, kwargs: dict, result) -> Var:
        """What a cache has for some arguments, guarded to be the same object."""
        f = fn.value
        check = GuardCheck(gives, (args, kwargs, result), f"gives one {type(result).__name__}")
        self.guards.add("call", self.guards.source("const", None, f, f.__name__), check)
        source = self.guards.source("const", None, result, f"{f.__name__}(…)")
        return self.load(result, source)


def gives(f, wanted) -> bool:
    """Whether a function gives an object for some arguments."""
    args, kwargs, result = wanted
    return f(*args, **kwargs) is result


def has_mutable(value) -> bool:
    """Whether a plain value has in it what can be written to."""
    if isinstance(value, (list, dict, set)):
        return True
    return isinstance(value, (tuple, frozenset)) and any(map(has_mutable, value))
