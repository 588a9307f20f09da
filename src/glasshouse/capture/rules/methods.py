"""Methods of builtin types: containers, exceptions, constants."""

import operator
import types
from collections import OrderedDict, defaultdict, deque
from contextvars import ContextVar

from glasshouse.capture.frames.frame import (
    CapturedGenerator,
    CapturedIterator,
    holds_own,
    plain_value,
)
from glasshouse.capture.rules.class_checks import ASKED, on_native_check
from glasshouse.capture.rules.objects import compares_in_python
from glasshouse.capture.rules.polyfill_calls import is_iterable
from glasshouse.capture.rules.polyfilled_methods import (
    add_all,
    extend_asking,
    extend_of,
    fromkeys_of,
    join_of,
    update_of,
    update_ordered,
)
from glasshouse.capture.rules.set_methods import SetMethodRules
from glasshouse.capture.values.arities import check_arguments
from glasshouse.capture.values.plain import (
    SCALARS,
    bound_to,
    builtin_base,
    is_heap,
    static_lookup,
    stored_keys,
)
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.signatures import without_proxy
from glasshouse.capture.values.var import Break, Recipe, ValueSource, Var, discarded

STATELESS = (*SCALARS, tuple, range, frozenset, slice)
PROTOCOL = {
    "__getitem__": operator.getitem,
    "__contains__": operator.contains,
    "__len__": len,
    "__iter__": iter,
}
WITHOUT_ARGUMENTS = {"clear", "copy", "keys", "values", "items", "reverse"}
WITH_LAST = {"popitem", "move_to_end"}
HANDED_ON = {"__call__", *ASKED.values()}
ATTRIBUTE_METHODS = {
    "__setattr__": 2,
    "__delattr__": 1,
    "__getattribute__": 1,
}  # and how many arguments
TEXTS = {"__str__", "__repr__", "__hash__", "__format__", "__reduce__"}


UNBOUND = (types.MethodDescriptorType, types.WrapperDescriptorType)
STEPS = ("__next__", "__iter__")
ITEM_METHODS = ("__getitem__", "__setitem__", "__delitem__", "__contains__")
STRAIGHT = {*ITEM_METHODS, "__len__", "__iter__", "__init__", "keys", "values", "items"}


def is_own_method(value, name: str, fn: Var) -> bool:
    """Whether a builtin method belongs to the builtin base of a container's class: `dict.pop` is
    another method than that of an OrderedDict."""
    inner = fn.origin.parts[1] if fn.is_made("method") else fn
    owner = getattr(getattr(inner, "value", None), "__objclass__", None)
    parts = (x.__dict__[name] for x in type(value).__mro__ if name in x.__dict__)
    method = next((x for x in parts if not isinstance(x, types.FunctionType)), None)
    return owner is None or method is None or owner is getattr(method, "__objclass__", owner)


def method_of(fn: Var, value, name: str):
    """The unbound builtin method under a bound one; None for others."""
    inner = fn.origin.parts[1] if fn.is_made("method") else None
    method = inner.value if isinstance(inner, Var) else static_lookup(type(value), name)[0]
    return method if isinstance(method, UNBOUND) else None


def is_hashable(value) -> bool:
    """Whether a value has a hash; no user code runs."""
    try:
        return compares_in_python(value) or hash(value) is not None
    except TypeError:
        return False


def calls_back(value, name: str) -> bool:
    """Whether a method of an OrderedDict calls methods that a subclass defines in Python."""
    if not isinstance(value, OrderedDict) or name in STRAIGHT:
        return False
    methods = (static_lookup(type(value), x)[0] for x in ITEM_METHODS)
    return any(isinstance(x, types.FunctionType) for x in methods)


class MethodRules(SetMethodRules):
    """The part of the tracer that calls methods of builtin types."""

    def call_builtin_method(self, fn: Var, args, kwargs, then):
        """Call a method of a builtin type, bound to a Var."""
        this, inner = fn.origin.parts
        if isinstance(inner, Var):  # super().method, where the method is builtin
            return self.builtin_method(fn, this, inner.value.__name__, args, kwargs, then)
        return self.builtin_method(fn, this, inner, args, kwargs, then)

    def bound_builtin(self, fn: Var, this: Var, name: str, args, kwargs) -> tuple[Var, Var]:
        """The method bound to an object, and the object, a dict in place of a proxy of it."""
        proxy, this = this, without_proxy(this)
        value = this.value
        if this is not proxy and hasattr(dict, name):
            fn = Var(getattr(value, name), Recipe("method", this, name))
        if isinstance(fn.value, UNBOUND):
            if isinstance(value, CapturedIterator) and name not in STEPS:
                raise Break(f"method {name} of an iterator", fn, [this, *args], kwargs)
            bound = self.do(bound_to, fn.value, value)
            fn = Var(bound, Recipe("method", this, Var(fn.value)))
        method = method_of(fn, value, name)
        if method is not None:
            check_arguments(Var(method), [this, *args], kwargs)
        return fn, this

    def builtin_method(self, fn: Var, this: Var, name: str, args, kwargs, then):
        """this.name(*args) of a builtin type."""
        fn, this = self.bound_builtin(fn, this, name, args, kwargs)
        value = this.value
        if isinstance(value, CapturedGenerator):
            return self.generator_method(this, name, args, then)
        if isinstance(value, ContextVar):
            return self.context_method(fn, this, name, args, kwargs, then)
        if name in ("__init__", "__init_subclass__") and not isinstance(value, (list, dict, set)):
            if name == "__init__":
                self.initialise(fn, this, args, kwargs)
            return self.give(then, None)
        if len(args) == ATTRIBUTE_METHODS.get(name) and not kwargs:
            return attribute_method(self, fn, this, name, args, then)
        if name == "__new__":
            return self.object_new(fn, this, args, kwargs, then)
        if isinstance(value, type) and name in HANDED_ON:
            return self.method_of_type(fn, this, name, args, kwargs, then)
        if name == "__eq__" and self.look_up(type(value), name) is object.__eq__ and args:
            same = self.identical(this, args[0])
            return self.give(then, True if same else NotImplemented)
        if name in TEXTS and not self.foldable(this):
            raise Break(f"{name} of a {type(value).__name__}", fn, args, kwargs)
        if name in PROTOCOL and self.own_method(this, name) is not None:
            return self.ask_base(fn, this, name, args, kwargs, then)
        if name in PROTOCOL and isinstance(value, (list, dict, set, tuple)):
            self.typed(this)
            return self.call(Var(PROTOCOL[name]), [this, *args], kwargs, then)
        if isinstance(value, (list, dict, set)) and not self.is_tensor(this):
            return self.container_call(fn, this, name, args, kwargs, then)
        if this.is_made("view") and name == "__iter__":
            return self.get_iter(this, then)
        if isinstance(value, tuple) and name in ("index", "count"):
            if self.all_foldable([*self.sequence(this), *args]):
                return self.give(
                    then, self.call_concrete(getattr(self.concretize(this), name), args)
                )
            raise Break(f"method {name} of a tuple", fn, [*args])
        if isinstance(value, str) and name == "join" and len(args) == 1:
            return self.join(fn, this, args[0], then)
        if isinstance(value, str) and name == "format" and not self.all_foldable(args, kwargs):
            raise Break("formatting of a value", fn, args, kwargs)
        if name == "fromkeys" and isinstance(value, type) and issubclass(value, dict) and args:
            return self.call_function(Var(fromkeys_of), [this, *args], kwargs, then)
        return self.plain_method(fn, this, name, args, kwargs, then)

    def method_of_type(self, fn: Var, this: Var, name: str, args, kwargs, then):
        """Call a method of `type` from the same method of a metaclass."""
        cls = this.value
        if name != "__call__":
            return on_native_check(self, Var(getattr(type, name)), [this, *args], kwargs, then)
        if getattr(fn.value, "__objclass__", None) is not type or not is_heap(cls):
            raise Break(f"making a {cls.__name__}", fn, args, kwargs)
        self.concretize(this)
        return self.instantiate(this, cls, args, kwargs, then)

    def plain_method(self, fn: Var, this: Var, name: str, args, kwargs, then):
        """Call a method without a rule: folded if its result is constant."""
        value = this.value
        stateless = isinstance(value, (*STATELESS, type)) or self.front.is_constant(value)
        stateless = stateless and name not in ("__subclasses__", "__enter__", "__exit__")
        if stateless and self.all_foldable([this, *args], kwargs):
            if (method := method_of(fn, value, name)) is not None:
                return self.fold(Var(method), method, [this, *args], kwargs, then)
            method = (
                getattr(self.concretize(this), name) if not isinstance(fn.value, type) else fn.value
            )
            return self.fold(fn, method, args, kwargs, then)
        if name == "__iter__":
            return self.get_iter(this, then)
        if name == "__next__":
            return self.next_of(this, None, then)
        if type(value) is deque and name in ("append", "appendleft") and len(args) == 1:
            return self.append_to_deque(fn, this, name, args, kwargs, then)
        raise Break(f"method {name} of a {type(value).__name__}", fn, args, kwargs)

    def ask_base(self, fn: Var, this: Var, name: str, args, kwargs, then):
        """Call a builtin method of a container whose class overrides it: only the item of a dict,
        or whether it exists."""
        reads_item = isinstance(this.value, dict) and name in ("__getitem__", "__contains__")
        if not reads_item or len(args) != 1 or kwargs:
            kind = type(this.value).__name__
            raise Break(f"{name} of a builtin base of a {kind}", fn, args, kwargs)
        item = self.entry(this, self.concrete_key(args[0]))
        if name == "__contains__":
            return self.give(then, item is not None)
        if item is None and self.call_own(this, "__missing__", args, then):
            return None
        if item is None:
            self.fail(KeyError(args[0].value))
        return self.deliver(then, item)

    def initialise(self, fn: Var, this: Var, args, kwargs) -> None:
        """Call the `__init__` of a property, or of a builtin type without state of its own in C."""
        if this.is_made("property") and fn.value.__objclass__ is property:
            self.do(
                fn.value, *map(plain_value, args), **{k: plain_value(v) for k, v in kwargs.items()}
            )
            this.origin = Recipe("property", type(this.value), args, kwargs)
            return
        if not self.is_plain_init(fn.value):
            raise Break(f"__init__ of a {type(this.value).__name__}", fn, args, kwargs)
        if isinstance(this.value, BaseException) and this.is_new:
            self.do(fn.value, *(x.value for x in args), **kwargs)  # with keywords it raises
            this.origin = Recipe("exception", type(this.value), args)
        else:
            self.do(fn.value, *map(plain_value, args), **kwargs)  # may raise

    def is_plain_init(self, fn) -> bool:
        """Whether a builtin `__init__` does nothing but keep an exception's arguments."""
        owner = getattr(fn, "__objclass__", None)
        small = BaseException.__basicsize__
        error = isinstance(owner, type) and issubclass(owner, BaseException)
        return owner is object or error and owner.__basicsize__ == small

    def join(self, fn: Var, this: Var, parts: Var, then):
        """str.join."""
        if not is_iterable(self, parts):
            self.typed(parts)
            self.do(str.join, self.concretize(this), parts.value)  # raises
        items = self.sequence(parts)
        if items is None:
            return self.call_function(Var(join_of), [this, parts], {}, then)
        if not all(self.foldable(x) for x in items):
            raise Break("joining of values", fn, [self.new_list(items)])
        values = [self.concretize(x) for x in items]
        return self.give(then, self.do(self.concretize(this).join, values))

    def object_new(self, fn: Var, this: Var, args, kwargs, then):
        """object.__new__(cls)."""
        cls = self.concretize(args[0]) if args else None
        plain = isinstance(cls, type) and cls.__new__ is object.__new__
        if plain or fn.value is object.__new__ or this.value is object:
            words = {k: v.value for k, v in kwargs.items()}
            value = self.do(object.__new__, *(x.value for x in args), **words)
            obj = Var(value, Recipe("object", cls), {})
            return self.deliver(then, self.track(obj))
        raise Break("a call of __new__", fn, args, kwargs)

    # -- containers ----------------------------------------------------------------------------

    def container_call(self, fn: Var, this: Var, name: str, args, kwargs, then):
        """Call a method of a list, dict or set."""
        value = this.value
        self.typed(this)
        makes = isinstance(value, defaultdict) and name == "__init__"
        if makes or not is_own_method(value, name, fn) or calls_back(value, name):
            raise Break(f"method {name} of a {type(value).__name__}", fn, args, kwargs)
        if name in ("__ior__", "__iadd__") and len(args) == 1:
            if isinstance(value, set) and not isinstance(args[0].value, (set, frozenset)):
                raise Break(f"{name} of a set", fn, args, kwargs)
            how = "extend" if isinstance(value, list) else "update"
            return self.extend(this, how, *args, then=lambda t, v: t.deliver(then, this))
        if name in ("extend", "update", "__init__"):
            if not args and not kwargs and (name != "__init__" or isinstance(value, dict)):
                return self.give(then, None)
            how = "extend" if isinstance(value, list) else "update"
            if name == "__init__" and not isinstance(value, dict):
                self.container_method(this, "clear", [])
            if not args and not kwargs:
                return self.give(then, None)
            return self.extend(this, how, *args, then=lambda t, v: t.give(then, None), **kwargs)
        if name == "sort" and isinstance(value, list):
            return self.sort(fn, this, args, kwargs, then)
        if name in ("__setitem__", "__delitem__"):
            self.store_item(this, args[0], args[1] if name == "__setitem__" else None)
            return self.give(then, None)
        if isinstance(value, dict) and name in ("get", "setdefault", "pop") and 0 < len(args) < 3:
            if kwargs:
                raise Break(f"method {name} of a dict with keywords", fn, args, kwargs)
            entry = self.dict_get(this, name, args)
            if entry is not None:
                return self.deliver(then, entry)
        return self.deliver(then, self.container_method(this, name, args, kwargs, fn))

    def append_to_deque(self, fn: Var, this: Var, name: str, args, kwargs, then):
        """Append to a deque that is passed: to read one breaks the graph."""
        is_argument = isinstance(this.origin, ValueSource)
        if not is_argument or kwargs or holds_own(args[0].value):
            raise Break(f"method {name} of a deque", fn, args, kwargs)
        self.typed(this)
        getattr(deque, name)(this.value, args[0].value)
        self.note_method(this, name, args)
        return self.give(then, None)

    def dict_get(self, this: Var, name: str, args) -> Var | None:
        """get, setdefault and pop of a dict; None where there is no such key and no default."""
        key = args[0]
        default = args[1] if len(args) > 1 else (None if name == "pop" else Var(None))
        empty = name == "pop" and type(this.value) is dict and not this.value
        if empty and not is_hashable(key.value):
            self.whole_dict(this)  # an empty dict asks for no hash
            value = None
        else:
            value = self.entry(this, self.concrete_key(key))
        if value is not None:
            if name == "pop":
                self.store_item(this, key, None)
            return value
        if default is None:
            self.fail(KeyError(key.value))
        if name == "setdefault":
            self.store_item(this, key, default)
        return default

    def container_method(self, this: Var, name: str, args, kwargs=None, fn=None) -> Var:
        """Apply one of the remaining methods of containers to the value and to its Vars."""
        value, kwargs = this.value, kwargs or {}
        if name in WITHOUT_ARGUMENTS and (args or kwargs):
            self.do(getattr(builtin_base(value), name), value, *map(plain_value, args))  # raises
        if kwargs and name not in WITH_LAST:
            reason = f"method {name} of a {type(value).__name__} with keywords"
            raise Break(reason, fn or Var(getattr(value, name)), args, kwargs)
        if name in WITH_LAST and isinstance(value, OrderedDict):
            return self.move_or_pop(this, name, args, kwargs)
        if isinstance(value, list):
            result = self.list_method(this, name, args)
        elif isinstance(value, dict):
            result = self.dict_method(this, name, args)
        else:
            result = self.set_method(this, name, args)
        if result is None:
            reason = f"method {name} of a {type(value).__name__}"
            raise Break(reason, fn or Var(getattr(value, name)), args, kwargs)
        return result

    def move_or_pop(self, this: Var, name: str, args, kwargs) -> Var:
        """popitem and move_to_end of an OrderedDict."""
        self.whole_dict(this)
        value = this.value
        place = [self.concretize(x) for x in args]
        words = {k: self.concretize(v) for k, v in kwargs.items()}
        if name == "move_to_end":
            self.do(OrderedDict.move_to_end, value, *place, **words)
            last = Var(words.get("last", place[1] if len(place) > 1 else True))
            self.note_method(this, name, [args[0] if args else Var(words["key"]), last])
            return Var(None)
        keys = OrderedDict.fromkeys(OrderedDict.__iter__(value))
        key, _ = self.do(keys.popitem, *place, **words)
        pair = this.items[key]
        self.store_item(this, pair[0], None)
        return self.new_tuple([pair[0], pair[1]])

    def list_method(self, this: Var, name: str, args) -> Var | None:
        value = this.value
        unread = this.items is None and isinstance(this.origin, ValueSource)
        if name == "append" and len(args) == 1 and unread and self.live:
            list.append(value, args[0].value)
            self.note_method(this, name, args)
            return Var(None)
        items = self.sequence(this)
        if items is None:  # its class reads it in Python
            return None
        if name in ("append", "insert", "pop", "clear", "reverse"):
            count = 0 if name == "append" else 1
            place, more = [self.concretize(x) for x in args[:count]], args[count:]
            self.do(getattr(list, name), value, *place, *(x.value for x in more))
            result = getattr(items, name)(*place, *more)
            self.note_method(this, name, args)
            return result if name == "pop" else Var(None)
        if name == "copy":
            return self.new_list(items)
        if name in ("index", "count", "remove"):
            if any(compares_in_python(x.value) for x in (*items, *args)):
                return None
            if not self.all_foldable((*items, args[0])):
                same = any(x is args[0] or x.value is args[0].value for x in items)
                if not same or self.is_tensor(args[0]):
                    return None
            for x in filter(self.foldable, (*items, *args)):
                self.concretize(x)
            before = list(value)
            result = self.do(getattr(list, name), value, *(x.value for x in args))
            if name == "remove":
                del items[before.index(args[0].value)]
                self.note_method(this, name, args)
            return Var(result)
        return None

    def dict_method(self, this: Var, name: str, args) -> Var | None:
        value = this.value
        if name in ("keys", "values", "items"):
            return Var(getattr(builtin_base(value), name)(value), Recipe("view", this, name))
        if name == "copy":
            cls = type(value)
            if cls not in (dict, OrderedDict):
                return None
            return self.new_dict(self.entries(this), cls)
        if name in ("clear", "popitem"):
            self.whole_dict(this)
            if name == "popitem" and value:
                key = next(reversed(value))
                pair = this.items[key]
                self.store_item(this, pair[0], None)
                return self.new_tuple([pair[0], pair[1]])
            if name == "clear":
                self.deleted.setdefault(id(this), set()).update(value)
                if not this.is_new:
                    self.original_keys.setdefault(id(this), stored_keys(value))
                builtin_base(value).clear(value)
                this.items.clear()
                self.note_method(this, name, [])
                return Var(None)
        return None

    def note_method(self, this: Var, name: str, args) -> None:
        if not this.is_new:
            self.write(this, ("method", name, list(args)))

    def extend(self, this: Var, how: str, *args, then=None, **kwargs):
        """list.extend, set.update, dict.update."""
        finish = then or discarded
        if isinstance(this.value, dict):
            if len(args) > 1:
                self.do(getattr(this.value, how), *map(plain_value, args))  # raises
            other, ordered = args[0] if args else None, isinstance(this.value, OrderedDict)
            if other is not None and self.is_merged_as_dict(other, ordered):
                for key, value in self.entries(other):
                    self.store_item(this, key, value)
                other = None
            if other is not None:
                way = update_ordered if ordered else update_of
                return self.call_function(Var(way), [this, other], kwargs, finish)
            for key, value in kwargs.items():
                self.store_item(this, Var(key), value)
            return finish(self, Var(None))
        if len(args) > 1:
            rest = args[1:]
            return self.extend(
                this, how, args[0], then=lambda t, v: t.extend(this, how, *rest, then=then)
            )
        is_set = isinstance(this.value, set)
        items = self.merged(args[0]) if is_set else self.iterated(args[0])
        if items is None:
            fn = add_all if is_set else self.extension(args[0])
            return self.call_function(Var(fn), [this, args[0]], {}, finish)
        if is_set and isinstance(args[0].value, (set, frozenset)):
            self.container_method(this, "update", [args[0]])
            return finish(self, Var(None))
        name = "append" if isinstance(this.value, list) else "add"
        for x in list(items):
            self.container_method(this, name, [x])
        return finish(self, Var(None))

    def extension(self, x: Var):
        """The polyfill of `list.extend`: one that asks for a length if the user's code gives it."""
        tells = any(self.own_method(x, name) for name in ("__len__", "__length_hint__"))
        return extend_asking if tells else extend_of

    def sort(self, fn: Var, this: Var, args, kwargs, then):
        """list.sort, by way of sorted."""
        if args or not kwargs.keys() <= {"key", "reverse"}:
            raise Break("call of sort with other arguments", fn, args, kwargs)

        def place(tracer, items):
            whole = Var(slice(None))
            tracer.store_item(this, whole, items)
            return tracer.give(then, None)

        return self.call(Var(sorted), [this], kwargs, place)


def attribute_method(trace, fn: Var, this: Var, name: str, args, then):
    """`__getattribute__`, `__setattr__` or `__delattr__` of object, called by name."""
    value = this.value
    if name != "__getattribute__" and isinstance(value, type):
        raise Break(f"{name} of a class", fn, args)
    if name == "__getattribute__":
        if isinstance(value, (type, types.ModuleType)):
            raise Break(f"{name} of a {type(value).__name__}", fn, args)
        return trace.get_attribute(this, trace.concretize(args[0]), then, plain=True)
    new_value = args[1] if name == "__setattr__" else None
    return trace.set_plain(this, trace.concretize(args[0]), new_value, then)
