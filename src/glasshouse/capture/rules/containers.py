"""Reading and writing containers, with guards on reads and a log of writes."""

import operator
import types
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from glasshouse.capture.frames.frame import (
    END,
    EnumerateIterator,
    SequenceIterator,
    ZipIterator,
    holds_own,
)
from glasshouse.capture.guards.program import GuardCheck
from glasshouse.capture.rules.constants import compares_in_python, concrete_key
from glasshouse.capture.rules.polyfill_calls import iterates_in_python
from glasshouse.capture.values.plain import builtin_base, has_plain_items, stored_keys
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.signatures import without_proxy
from glasshouse.capture.values.var import Break, ValueSource, Var, computed, constant, last_items

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


def same_set(value: set[int], expected: tuple[type[Any], tuple[Any, ...]]) -> bool:
    """Whether a set, read by the builtin type, has these elements in this order: equal sets may
    have another."""
    base, elements = expected
    same_length = base.__len__(value) == len(elements)
    return same_length and all(map(operator.eq, base.__iter__(value), elements))


def hashes_in_python(key: Any) -> bool:
    return compares_in_python(key) and type(key).__hash__ is not object.__hash__


def lacks(value: Any, key: Any) -> bool:
    return not builtin_base(value).__contains__(value, key)


def unpack(value: Any) -> dict[Any, Any]:
    return {**value}


def hashes_by_identity(t: "CaptureTracer", key: Any) -> bool:
    """Whether no other object is equal to a key."""
    return t.look_up(type(key), "__hash__") is object.__hash__


def sequence(t: "CaptureTracer", var: Var) -> list[Var] | None:
    """The items as Vars, if they are known without running user code; else None.

    This drains an iterator, which is restored if the instruction then breaks."""
    var = without_proxy(var)
    value = var.value
    kind = type(value)
    if not t.guards.live and isinstance(value, (list, tuple, set, frozenset, dict)):
        return [Var(x) for x in value]
    if var.items is not None and isinstance(value, (list, tuple)):
        return var.items
    if isinstance(value, (list, tuple)) and has_plain_items(kind):
        return stored_items(t, var)
    if kind in (str, range, bytes):
        return [computed(x, ()) for x in t.concretize(var)]
    if isinstance(value, dict) and kind.__iter__ in (dict.__iter__, OrderedDict.__iter__):
        return [key for key, _ in t.entries(var)]
    if kind is set or kind is frozenset:
        whole_set(t, var)
        return [var.items[x][0] for x in value]
    if var.is_made("view"):
        pairs = t.entries(var.origin.parts[0])
        which = var.origin.parts[1]
        if which == "items":
            return [t.heap.new_tuple([k, v]) for k, v in pairs]
        return [pair[which == "values"] for pair in pairs]
    if isinstance(value, (SequenceIterator, ZipIterator, EnumerateIterator)):
        t.heap.drained += [(t.count, *part) for part in value.place()]
        items = []
        while (x := value.step(t)) is not END:
            items.append(x)
        return items
    if t.is_tensor(var):
        return t.front.unbind(t, var)
    return None


def stored_items(t: "CaptureTracer", var: Var) -> list[Var]:
    """The stored items of a list or tuple as Vars, even if its class iterates in another way.

    Raises: Break if its class reads items in Python
    """
    value, kind = var.value, type(var.value)
    if t.guards.live and var.items is not None:
        return var.items
    methods = [kind.__getitem__, kind.__len__]
    if t.guards.live and any(type(method) is types.FunctionType for method in methods):
        raise Break(f"the items of a {kind.__name__}", None)
    t.typed(var)
    more = last_items(var)
    plain = list if isinstance(value, list) else tuple if isinstance(value, tuple) else kind
    count = plain.__len__(value) - len(more)
    if t.guards.live and isinstance(var.origin, ValueSource):
        t.guards.add("len", var.origin, count)
    before = enumerate(plain.__getitem__(value, slice(count)))
    var.items = [*(t.heap.load(x, t.heap.sub(var, "item", i)) for i, x in before), *more]
    return var.items


def iterated(t: "CaptureTracer", var: Var) -> list[Var] | None:
    """As `sequence`, but None if the class iterates in Python."""
    return None if iterates_in_python(t, var) else t.sequence(var)


def whole_set(t: "CaptureTracer", var: Var) -> None:
    """Make all elements of a set known and guarded."""
    if var.items is None:
        refuse_keys(t, var)
        if t.guards.live and isinstance(var.origin, ValueSource):
            t.typed(var)
            elements = stored_keys(var.value)
            expected = builtin_base(var.value), elements
            check = GuardCheck(same_set, expected, f"set is {set(elements)!r}")
            t.guards.add("call", var.origin, check)
        var.items = {x: (Var(x),) for x in stored_keys(var.value)}


def merged(t: "CaptureTracer", var: Var) -> list[Var] | None:
    """As `iterated`, for `set` and its methods, which ask no class of sets how to iterate."""
    if not isinstance(var.value, (set, frozenset)):
        return t.iterated(var)
    if not t.guards.live:
        return [Var(x) for x in stored_keys(var.value)]
    whole_set(t, var)
    return [var.items[x][0] for x in stored_keys(var.value)]


def is_dict(t: "CaptureTracer", var: Var) -> bool:
    kind, plain = type(var.value), (dict.__iter__, OrderedDict.__iter__)
    reads = isinstance(var.value, dict) and kind.__getitem__ is dict.__getitem__
    return reads and kind.__iter__ in plain


def is_merged_as_dict(t: "CaptureTracer", var: Var, ordered: bool = False) -> bool:
    """Whether `dict.update` and `**` (`ordered`: `OrderedDict.update`) read the stored items of
    a mapping. They do not call `keys` of a dict, unless its class iterates in Python."""
    mapping = without_proxy(var)
    if not isinstance(mapping.value, dict):
        return False
    kind = type(mapping.value)
    asks = ordered or mapping is not var
    if not asks and t.look_up(kind, "__iter__") is dict.__iter__:
        return True
    return is_dict(t, mapping) and t.own_method(mapping, "keys") is None


def entries(t: "CaptureTracer", var: Var) -> list[tuple[Var, Var]]:
    """All (key, value) of a dict, guarded."""
    var = without_proxy(var)
    if not t.guards.live:
        return [(Var(k), Var(dict.__getitem__(var.value, k))) for k in stored_keys(var.value)]
    whole_dict(t, var)
    return [(var.items[k][0], var.items[k][1]) for k in stored_keys(var.value)]


def unpack_pairs(t: "CaptureTracer", var: Var) -> list[tuple[Var, Var]]:
    """All (key, value) of an unpacked mapping: a dict may iterate in Python."""
    if is_merged_as_dict(t, var):
        return t.entries(var)
    return [(Var(k), Var(v)) for k, v in t.do(unpack, var.value).items()]


def refuse_keys(t: "CaptureTracer", var: Var) -> None:
    """Break where the keys of a dict or set are compared by the user's code."""
    for key in builtin_base(var.value).__iter__(var.value):
        if hashes_in_python(key) and not t.front.is_key(key):
            raise Break(f"a {type(key).__name__}, whose class compares in Python, is a key")


def whole_dict(t: "CaptureTracer", var: Var) -> None:
    """Make all keys of a dict known and guarded."""
    if var.origin is None or var.is_new:
        if var.items is None:
            pairs = dict.items(var.value)
            var.items = {k: (constant(k), constant(v)) for k, v in pairs}
        return
    sharpen(t, var)
    if id(var) not in t.heap.whole:
        refuse_keys(t, var)
        t.heap.whole[id(var)] = var
        if var.items is None:
            var.items = {}
        keys = t.heap.original_keys.get(id(var), stored_keys(var.value))
        if t.guards.live and isinstance(var.origin, ValueSource):
            t.typed(var)
            t.guards.add("keys", var.origin, keys)
        for key in keys:
            value = t.entry(var, key)
            if value is not None and key not in t.heap.deleted.get(id(var), ()):
                var.items[key] = constant(key), value  # a write does not replace the key


def entry(t: "CaptureTracer", var: Var, key: Any) -> Var | None:
    """The Var at a key of a dict, guarded; None for a missing key."""
    if t.effects.scheduled and t.front.is_stale(t, var):
        raise Break("a read after a scheduler's step")
    sharpen(t, var)
    if not t.guards.live:
        there = dict.__contains__(var.value, key)
        return Var(dict.__getitem__(var.value, key)) if there else None
    if var.items is None:
        if var.origin is None:
            whole_dict(t, var)
        else:
            var.items = {}
    items: Any = var.items
    pair = items.get(key)
    if pair is not None:
        return pair[1]
    if var.is_new or var.origin is None or key in t.heap.deleted.get(id(var), ()):
        return None
    if not dict.__contains__(var.value, key):
        if t.guards.live and isinstance(var.origin, ValueSource) and id(var) not in t.heap.whole:
            t.typed(var)
            if type(key) in (str, int) or hashes_by_identity(t, key):
                t.guards.add("absent", var.origin, key)
            else:
                t.guards.add("call", var.origin, GuardCheck(lacks, key, f"lacks {key!r}"))
        return None
    t.typed(var)
    value = t.heap.load(dict.__getitem__(var.value, key), t.heap.entry_source(var.origin, key))
    items[key] = (constant(key), value)
    return value


def sharpen(t: "CaptureTracer", var: Var) -> None:
    """Rely on the keys of earlier writes to a dict, since it is read now."""
    for key, value in t.heap.blurred.pop(id(var), ()):
        raw = concrete_key(t, key)
        old = var.items.get(raw)
        var.items[raw] = (old[0] if old else key, value)


def store_unsharp(t: "CaptureTracer", var: Var, key: Var, value: Var | None) -> bool:
    """var[key] = value for a dict from an argument, if this or an earlier key is a number that
    varies; else False."""
    is_argument = isinstance(var.value, dict) and isinstance(var.origin, ValueSource)
    unsharp = is_argument and (id(var) in t.heap.blurred or t.varies(key))
    if not unsharp or value is None or holds_own(value.value):
        return False
    raw = key.value if t.varies(key) else concrete_key(t, key)
    t.typed(var)
    if var.items is None:
        var.items = {}
    t.heap.original_keys.setdefault(id(var), stored_keys(var.value))
    t.heap.blurred.setdefault(id(var), []).append((key, value))
    builtin_base(var.value).__setitem__(var.value, raw, value.value)
    t.effects.write(var, ("item", key, value))
    return True


def store_item(t: "CaptureTracer", var: Var, key: Var, value: Var | None) -> None:
    """var[key] = value for a list or dict (None deletes), not reading a dict's old value."""
    if store_unsharp(t, var, key, value):
        return
    sharpen(t, var)
    base = builtin_base(var.value)
    raw = t.concretize(key) if base is list else concrete_key(t, key)
    if not t.guards.live:
        t.heap.hand_over([value] if value is not None else ())
        args = (var.value, raw) if value is None else (var.value, raw, value.value)
        t.do(base.__delitem__ if value is None else base.__setitem__, *args)
        return
    if isinstance(var.value, dict):
        if id(var) not in t.heap.original_keys and not var.is_new:
            t.heap.original_keys[id(var)] = stored_keys(var.value)
            t.typed(var)
        if var.items is None:
            var.items = {}
        if value is None:
            if t.entry(var, raw) is None:
                t.fail(KeyError(raw))
            base.__delitem__(var.value, raw)
            del var.items[raw]
            t.heap.deleted.setdefault(id(var), set()).add(raw)
        else:
            old = var.items.get(raw)
            if old is not None and old[1] is value and not t.effects.scheduled:
                return  # it is there already
            base.__setitem__(var.value, raw, value.value)
            var.items[raw] = (old[0] if old else key, value)
    else:
        items = stored_items(t, var)
        if value is None:
            t.do(list.__delitem__, var.value, raw)
            del items[raw]
        elif isinstance(raw, slice):
            new = t.iterated(value)
            if new is None:
                raise Break("assignment of a slice", None)
            t.do(list.__setitem__, var.value, raw, [x.value for x in new])
            items[raw] = new
            value = t.heap.new_list(new)  # an iterator has nothing left
        else:
            t.do(list.__setitem__, var.value, raw, value.value)
            items[raw] = value
    if not var.is_new:
        t.effects.write(var, ("item", key, value))


def set_key(t: "CaptureTracer", var: Var) -> Any:
    """The key to look up in a set: a set stands for the frozenset of its elements."""
    if not isinstance(var.value, set):
        return concrete_key(t, var)
    whole_set(t, var)
    return frozenset(var.value)
