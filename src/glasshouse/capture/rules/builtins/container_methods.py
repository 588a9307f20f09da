"""Methods of lists and dicts that change them, or give parts of them."""

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from glasshouse.capture.frames.frame import plain_value
from glasshouse.capture.rules.builtins.polyfilled_methods import (
    add_all,
    extend_asking,
    extend_of,
    update_of,
    update_ordered,
)
from glasshouse.capture.rules.builtins.set_methods import note_method, set_method
from glasshouse.capture.rules.constants import all_foldable, compares_in_python
from glasshouse.capture.rules.containers import is_merged_as_dict, merged, whole_dict
from glasshouse.capture.rules.new_objects import new_dict
from glasshouse.capture.values.plain import builtin_base, stored_keys
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, Kwargs, Recipe, Then, ValueSource, Var, discarded

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


WITHOUT_ARGUMENTS = {"clear", "copy", "keys", "values", "items", "reverse"}
WITH_LAST = {"popitem", "move_to_end"}


def container_method(
    t: "CaptureTracer",
    this: Var,
    name: str,
    args: list[Any],
    kwargs: Kwargs | None = None,
    fn: Var | None = None,
) -> Var:
    """Apply one of the remaining methods of containers to the value and to its Vars."""
    value, kwargs = this.value, kwargs or {}
    if name in WITHOUT_ARGUMENTS and (args or kwargs):
        t.do(getattr(builtin_base(value), name), value, *map(plain_value, args))  # raises
    if kwargs and name not in WITH_LAST:
        reason = f"method {name} of a {type(value).__name__} with keywords"
        raise Break(reason, fn or Var(getattr(value, name)), args, kwargs)
    if name in WITH_LAST and isinstance(value, OrderedDict):
        return move_or_pop(t, this, name, args, kwargs)
    if isinstance(value, list):
        result = list_method(t, this, name, args)
    elif isinstance(value, dict):
        result = dict_method(t, this, name, args)
    else:
        result = set_method(t, this, name, args)
    if result is None:
        reason = f"method {name} of a {type(value).__name__}"
        raise Break(reason, fn or Var(getattr(value, name)), args, kwargs)
    return result


def move_or_pop(t: "CaptureTracer", this: Var, name: str, args: Any, kwargs: Any) -> Var:
    """popitem and move_to_end of an OrderedDict."""
    whole_dict(t, this)
    value = this.value
    place = [t.concretize(x) for x in args]
    words = {k: t.concretize(v) for k, v in kwargs.items()}
    if name == "move_to_end":
        t.do(OrderedDict.move_to_end, value, *place, **words)
        last = Var(words.get("last", place[1] if len(place) > 1 else True))
        note_method(t, this, name, [args[0] if args else Var(words["key"]), last])
        return Var(None)
    keys = OrderedDict.fromkeys(OrderedDict.__iter__(value))
    key, _ = t.do(keys.popitem, *place, **words)
    pair = this.items[key]
    t.store_item(this, pair[0], None)
    return t.heap.new_tuple([pair[0], pair[1]])


def list_method(t: "CaptureTracer", this: Var, name: str, args: list[Any]) -> Var | None:
    value = this.value
    unread = this.items is None and isinstance(this.origin, ValueSource)
    if name == "append" and len(args) == 1 and unread and t.guards.live:
        list.append(value, args[0].value)
        note_method(t, this, name, args)
        return Var(None)
    items = t.sequence(this)
    if items is None:  # its class reads it in Python
        return None
    if name in ("append", "insert", "pop", "clear", "reverse"):
        count = 0 if name == "append" else 1
        place, more = [t.concretize(x) for x in args[:count]], args[count:]
        t.do(getattr(list, name), value, *place, *(x.value for x in more))
        result = getattr(items, name)(*place, *more)
        note_method(t, this, name, args)
        return result if name == "pop" else Var(None)
    if name == "copy":
        return t.heap.new_list(items)
    if name in ("index", "count", "remove"):
        if any(compares_in_python(x.value) for x in (*items, *args)):
            return None
        if not all_foldable(t, (*items, args[0])):
            same = any(x is args[0] or x.value is args[0].value for x in items)
            if not same or t.is_tensor(args[0]):
                return None
        for x in filter(t.foldable, (*items, *args)):
            t.concretize(x)
        before = list(value)
        result = t.do(getattr(list, name), value, *(x.value for x in args))
        if name == "remove":
            del items[before.index(args[0].value)]
            note_method(t, this, name, args)
        return Var(result)
    return None


def dict_method(t: "CaptureTracer", this: Var, name: str, args: list[Var]) -> Var | None:
    value = this.value
    if name in ("keys", "values", "items"):
        return Var(getattr(builtin_base(value), name)(value), Recipe("view", this, name))
    if name == "copy":
        cls = type(value)
        if cls not in (dict, OrderedDict):
            return None
        return new_dict(t, t.entries(this), cls)
    if name in ("clear", "popitem"):
        whole_dict(t, this)
        if name == "popitem" and value:
            key = next(reversed(value))
            pair = this.items[key]
            t.store_item(this, pair[0], None)
            return t.heap.new_tuple([pair[0], pair[1]])
        if name == "clear":
            t.heap.deleted.setdefault(id(this), set()).update(value)
            if not this.is_new:
                t.heap.original_keys.setdefault(id(this), stored_keys(value))
            builtin_base(value).clear(value)
            this.items.clear()
            note_method(t, this, name, [])
            return Var(None)
    return None


def extend(
    t: "CaptureTracer",
    this: Var,
    how: str,
    *args: Var,
    kwargs: Kwargs | None = None,
    then: Then = None,
) -> Any:
    """list.extend, set.update, dict.update."""
    finish, kwargs = then or discarded, kwargs or {}
    if isinstance(this.value, dict):
        if len(args) > 1:
            t.do(getattr(this.value, how), *map(plain_value, args))  # raises
        other, ordered = args[0] if args else None, isinstance(this.value, OrderedDict)
        if other is not None and is_merged_as_dict(t, other, ordered):
            for key, value in t.entries(other):
                t.store_item(this, key, value)
            other = None
        if other is not None:
            way = update_ordered if ordered else update_of
            return t.call_function(Var(way), [this, other], kwargs, finish)
        for key, value in kwargs.items():
            t.store_item(this, Var(key), value)
        return finish(t, Var(None))
    if len(args) > 1:
        rest = args[1:]
        return t.extend(this, how, args[0], then=lambda t, v: t.extend(this, how, *rest, then=then))
    is_set = isinstance(this.value, set)
    items = merged(t, args[0]) if is_set else t.iterated(args[0])
    if items is None:
        fn = add_all if is_set else extension(t, args[0])
        return t.call_function(Var(fn), [this, args[0]], {}, finish)
    if is_set and isinstance(args[0].value, (set, frozenset)):
        container_method(t, this, "update", [args[0]])
        return finish(t, Var(None))
    name = "append" if isinstance(this.value, list) else "add"
    for x in list(items):
        container_method(t, this, name, [x])
    return finish(t, Var(None))


def extension(t: "CaptureTracer", x: Var) -> Callable[..., Any]:
    """The polyfill of `list.extend`: one that asks for a length if the user's code gives it."""
    tells = any(t.own_method(x, name) for name in ("__len__", "__length_hint__"))
    return extend_asking if tells else extend_of


def sort(t: "CaptureTracer", fn: Var, this: Var, args: list[Var], kwargs: Kwargs, then: Any) -> Any:
    """list.sort, by way of sorted."""
    if args or not kwargs.keys() <= {"key", "reverse"}:
        raise Break("call of sort with other arguments", fn, args, kwargs)

    def place(tracer, items):
        whole = Var(slice(None))
        tracer.store_item(this, whole, items)
        return tracer.give(then, None)

    return t.call(Var(sorted), [this], kwargs, place)
