"""Items of containers: search, indexing, assignment and deletion."""

import math
import operator
import types
from collections import defaultdict

from glasshouse.capture.frames.frame import CapturedGenerator, CapturedIterator
from glasshouse.capture.guards.outcomes import Among
from glasshouse.capture.values.plain import MISSING, is_trusted
from glasshouse.capture.values.polyfills import contains_in
from glasshouse.capture.values.signatures import without_proxy
from glasshouse.capture.values.var import Break, Var, constant, discarded, pending, without_result

ITEM_GETTERS = (list.__getitem__, tuple.__getitem__)


def contains(container, element):
    return element in container


def not_contains(container, element):
    return element not in container


def store(container, key, value):
    container[key] = value


def delete(container, key):
    del container[key]


def is_form(function: types.FunctionType) -> bool:
    """Whether a `__class_getitem__` only makes a form of a generic class."""
    return function.__module__ == "typing" or is_trusted(function.__module__ or "")


class SubscriptRules:
    """`element in container`, `container[key]`, and assignments to it."""

    @pending
    def contains(self, container: Var, element: Var, inverted: bool, then=None):
        """element in container."""
        container = without_proxy(container)
        value = container.value
        fn = not_contains if inverted else contains
        if not self.live:
            return self.give(then, self.do(fn, value, element.value))

        def done(t, v):
            return t.truth(v, lambda t2, flag: t2.give(then, flag is not inverted))

        if self.call_own(container, "__contains__", [element], done):
            return None
        if isinstance(value, (CapturedGenerator, CapturedIterator)):
            return self.call_function(Var(contains_in), [container, element], {}, done)
        contained, base = None, container
        if container.is_made("view") and container.origin.parts[1] == "keys":
            base = container.origin.parts[0]
        if self.is_dict(base) or base is not container and isinstance(base.value, dict):
            contained = self.entry(base, self.concrete_key(element)) is not None
        elif self.is_number_call([element]) and self.is_of_constants(container):
            contained = self.among(container, element)
        elif isinstance(value, (set, frozenset)):
            self.whole_set(container)
            contained = self.do(value.__contains__, self.set_key(element))
        elif self.foldable(container) and self.foldable(element):
            contained = self.do(contains, self.concretize(container), self.concretize(element))
        elif isinstance(value, (list, tuple)) and not self.stored_items(container):
            contained = False  # for any element
        elif isinstance(value, (list, tuple)) and not self.is_tensor(element):
            items = self.stored_items(container)
            parts = [x is element or self.same_item(x, element) for x in items]
            contained = next((p for p in parts if p is not False), False)  # None: not known
        listed = self.sequence(container) if isinstance(value, (list, tuple)) else None
        if contained is None and listed and not any(map(self.is_tensor, [element, *listed])):
            return self.call_function(Var(contains_in), [container, element], {}, done)
        if contained is None:
            raise Break("a search in a container", Var(fn), [container, element])
        return self.give(then, contained is not inverted)

    def is_of_constants(self, container: Var) -> bool:
        """Whether something is a plain container of numbers that do not vary."""
        kinds = (list, tuple, set, frozenset, range)
        if type(container.value) not in kinds:
            return False
        return all(
            type(x.value) in (int, float) and math.isfinite(x.value) and not self.varies(x)
            for x in self.sequence(container)
        )

    def among(self, container: Var, element: Var) -> bool:
        """Whether a number that varies is in a container of constants."""
        values = self.concretize(container)
        frozen = values if type(values) in (tuple, range) else tuple(values)
        result = self.of_numbers(Among(frozen), [element])
        if result is not None:
            return result.value
        return self.do(contains, values, self.concretize(element))

    @pending
    def get_item(self, obj: Var, key: Var, then=None):
        """obj[key]."""
        obj = without_proxy(obj)
        value = obj.value
        if not self.live:
            return self.give(then, self.do(operator.getitem, value, key.value))
        if self.is_tensor(obj):
            return self.deliver(then, self.front.operate(self, operator.getitem, [obj, key]))
        if isinstance(value, type):
            return self.class_item(obj, key, then)
        if self.call_own(obj, "__getitem__", [key], then):
            return None
        if isinstance(value, dict):
            item = self.entry(obj, self.concrete_key(key))
            if item is not None:
                return self.deliver(then, item)
            if self.call_own(obj, "__missing__", [key], then):
                return None
            if isinstance(value, defaultdict):
                return self.default_item(obj, key, then)
            self.fail(KeyError(key.value))
        if isinstance(value, (list, tuple)) and self.foldable(key):
            items, raw = self.stored_items(obj), self.concretize(key)
            if isinstance(raw, slice):
                make = self.new_list if isinstance(value, list) else self.new_tuple
                if type(value) is tuple and raw == slice(None):
                    return self.deliver(then, obj)
                result = make(self.do(operator.getitem, items, raw))
                if self.look_up(type(value), "__getitem__") not in ITEM_GETTERS:
                    return self.call(Var(type(value)), [result], {}, then)  # a torch.Size
                return self.deliver(then, result)
            self.do(operator.getitem, value, raw)
            return self.deliver(then, items[raw])
        if self.foldable(obj) and self.foldable(key):
            return self.deliver(then, constant(self.call_concrete(operator.getitem, [obj, key])))
        raise Break(f"indexing of a {type(value).__name__}", Var(operator.getitem), [obj, key])

    def class_item(self, cls: Var, key: Var, then):
        """An item of a class, by its metaclass or its `__class_getitem__`."""
        self.concretize(cls)
        if self.call_own(cls, "__getitem__", [key], then):
            return None
        method = self.look_up(self.concretize(cls), "__class_getitem__")
        function = method.__func__ if isinstance(method, classmethod) else None
        indexed = self.look_up(type(cls.value), "__getitem__") is not MISSING
        if isinstance(function, types.FunctionType) and not indexed and not is_form(function):
            return self.call(self.bound(cls, Var(function)), [key], {}, then)
        return self.give(then, self.call_concrete(operator.getitem, [cls, key]))

    def default_item(self, obj: Var, key: Var, then):
        """Make a missing item of a defaultdict."""
        if obj.is_made("defaultdict"):
            factory = obj.origin.parts[0]
        else:
            source = self.sub(obj, "attr", "default_factory")
            factory = self.load(obj.value.default_factory, source)
        if factory.value is None:
            self.concretize(factory)
            self.fail(KeyError(key.value))

        def keep(tracer, item):
            tracer.store_item(obj, key, item)
            return tracer.deliver(then, item)

        return self.call(factory, [], {}, keep)

    @pending
    def set_item(self, obj: Var, key: Var, value: Var | None, then=discarded):
        """obj[key] = value (None deletes); the result goes to `then`."""
        target, write = obj.value, delete if value is None else store
        args = [obj, key] if value is None else [obj, key, value]
        if not self.live:
            self.do(write, *(x.value for x in args))
            return self.give(then, None)
        if self.scheduled and self.front.is_stale(self, obj):
            raise Break("a write after a scheduler's step", Var(write), args)
        if self.is_tensor(obj) and value is not None:
            self.front.operate(self, operator.setitem, args)
            return self.give(then, None)
        name = "__setitem__" if value is not None else "__delitem__"
        if self.call_own(obj, name, args[1:], without_result(then)):
            return None
        plain = type(target) is list and isinstance(key.value, (int, slice)) and self.foldable(key)
        if plain:
            self.concretize(key)
        if plain or isinstance(target, dict):
            self.store_item(obj, key, value)
            return self.give(then, None)
        raise Break(f"item assignment to a {type(target).__name__}", Var(write), args)
