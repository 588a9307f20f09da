"""Methods of sets, applied to the real values, which keep the first of equal elements."""

from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.plain import stored_keys
from glasshouse.capture.values.var import Var

SET_ALGEBRA = {
    "union",
    "intersection",
    "difference",
    "symmetric_difference",
    "issubset",
    "issuperset",
    "isdisjoint",
    "update",
    "intersection_update",
    "difference_update",
    "symmetric_difference_update",
}


class SetMethodRules:
    """The part of the tracer that calls methods of sets."""

    def set_method(self, this: Var, name: str, args) -> Var | None:
        self.whole_set(this)
        items, value = this.items, this.value
        if name in ("add", "discard", "remove"):
            key = self.concrete_key(args[0]) if name == "add" else self.set_key(args[0])
            if name == "remove" and not set.__contains__(value, key):
                self.fail(KeyError(args[0].value))  # the key itself, not the frozenset
            self.do(getattr(set, name), value, key)
            items.pop(key, None) if name != "add" else items.setdefault(key, (args[0],))
        elif name == "clear":
            set.clear(value)
            items.clear()
        elif name == "copy":
            return self.new_set([x[0] for x in items.values()], set(value))
        elif name == "pop" and value:
            return items.pop(self.pop_element(this))[0]
        elif name in SET_ALGEBRA:
            return self.set_algebra(this, name, args)
        else:
            return None
        self.note_method(this, name, args)
        return Var(None)

    def set_algebra(self, this: Var, name: str, args) -> Var | None:
        """Combine this set with others: a new set, a change of this one, or an answer.

        Python does it on the real values, since the way a set is made decides its order."""
        reads = self.iterated if name == "isdisjoint" else self.merged
        others = [reads(x) for x in args]
        if None in others:
            return None
        real = [
            x.value
            if isinstance(x.value, (set, frozenset))
            else [self.concrete_key(y) for y in other]
            for x, other in zip(args, others, strict=True)
        ]
        # The identity of an element tells its Var, also among equal ones.
        elements = {id(y.value): y for other in (self.merged(this), *others) for y in other}
        result = self.do(getattr(set, name), this.value, *real)
        if isinstance(result, (set, frozenset)):
            return self.new_set([elements[id(x)] for x in result], result)
        if result is not None:
            return Var(result)
        arguments = [self.new_set(other, set(x)) for other, x in zip(others, real, strict=True)]
        this.items = {x: (elements[id(x)],) for x in stored_keys(this.value)}
        self.note_method(this, name, arguments)
        return Var(None)

    def pop_element(self, this: Var):
        """Take an element out of a set."""
        element = set.pop(this.value)
        if not this.is_new:
            self.write(this, ("method", "discard", [Var(element)]))
        return element
