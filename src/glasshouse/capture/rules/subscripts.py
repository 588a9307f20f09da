"""Items of containers: search, indexing, assignment and deletion."""

import math
import operator
import types
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from glasshouse.capture.frames.frame import CapturedGenerator, CapturedIterator
from glasshouse.capture.guards.outcomes import Among
from glasshouse.capture.rules.class_lookups import known_object
from glasshouse.capture.rules.constants import call_concrete, concrete_key
from glasshouse.capture.rules.containers import is_dict, set_key, stored_items, whole_set
from glasshouse.capture.rules.descriptors import bound_method
from glasshouse.capture.rules.numbers import is_number_call, of_numbers
from glasshouse.capture.rules.operators import same_item
from glasshouse.capture.values.plain import MISSING, is_trusted
from glasshouse.capture.values.polyfills import contains_in
from glasshouse.capture.values.signatures import without_proxy
from glasshouse.capture.values.var import (
    Break,
    Kwargs,
    Var,
    constant,
    discarded,
    pending,
    without_result,
)
from glasshouse.tensor.parts import (
    NO_WRITE,
    PROPERTIES,
    RESHAPING,
    VIEWS,
    is_basic,
    links_at,
    shares_memory,
    warn_of_name,
    write_view_,
)

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


ITEM_GETTERS: tuple[Any, ...] = (list.__getitem__, tuple.__getitem__)


def contains(container: Any, element: Any) -> bool | None:
    return element in container


def not_contains(container: Any, element: Any) -> bool:
    return element not in container


def store(container: Any, key: Any, value: Any) -> None:
    container[key] = value


def delete(container: Any, key: Any) -> None:
    del container[key]


def is_form(function: types.FunctionType) -> bool:
    """Whether a `__class_getitem__` only makes a form of a generic class."""
    return function.__module__ == "typing" or is_trusted(function.__module__ or "")


@pending
def search(
    t: "CaptureTracer", container: Var, element: Var, inverted: bool, then: Any = None
) -> Any:
    """element in container."""
    container = without_proxy(container)
    value = container.value
    fn = not_contains if inverted else contains
    if not t.guards.live:
        return t.give(then, t.do(fn, value, element.value))

    def done(t, v):
        return t.truth(v, lambda t2, flag: t2.give(then, flag is not inverted))

    if t.call_own(container, "__contains__", [element], done):
        return None
    if isinstance(value, (CapturedGenerator, CapturedIterator)):
        return t.call_function(Var(contains_in), [container, element], {}, done)
    contained, base = None, container
    if container.is_made("view") and container.origin.parts[1] == "keys":
        base = container.origin.parts[0]
    if is_dict(t, base) or base is not container and isinstance(base.value, dict):
        contained = t.entry(base, concrete_key(t, element)) is not None
    elif is_number_call(t, [element]) and is_of_constants(t, container):
        contained = among(t, container, element)
    elif isinstance(value, (set, frozenset)):
        whole_set(t, container)
        contained = t.do(value.__contains__, set_key(t, element))
    elif t.foldable(container) and t.foldable(element):
        contained = t.do(contains, t.concretize(container), t.concretize(element))
    elif isinstance(value, (list, tuple)) and not stored_items(t, container):
        contained = False  # for any element
    elif isinstance(value, (list, tuple)) and not t.is_tensor(element):
        items = stored_items(t, container)
        parts = [x is element or same_item(t, x, element) for x in items]
        contained = next((p for p in parts if p is not False), False)  # None: not known
    listed = t.sequence(container) if isinstance(value, (list, tuple)) else None
    if contained is None and listed and not any(map(t.is_tensor, [element, *listed])):
        return t.call_function(Var(contains_in), [container, element], {}, done)
    if contained is None:
        raise Break("a search in a container", Var(fn), [container, element])
    return t.give(then, contained is not inverted)


def is_of_constants(t: "CaptureTracer", container: Var) -> bool:
    """Whether something is a plain container of numbers that do not vary."""
    kinds = (list, tuple, set, frozenset, range)
    if type(container.value) not in kinds:
        return False
    return all(
        type(x.value) in (int, float) and math.isfinite(x.value) and not t.varies(x)
        for x in t.sequence(container)
    )


def among(t: "CaptureTracer", container: Var, element: Var) -> bool:
    """Whether a number that varies is in a container of constants."""
    values = t.concretize(container)
    frozen = values if type(values) in (tuple, range) else tuple(values)
    result = of_numbers(t, Among(frozen), [element])
    if result is not None:
        return result.value
    return t.do(contains, values, t.concretize(element))


@pending
def get_item(t: "CaptureTracer", obj: Var, key: Var, then: Any = None) -> Any:
    """obj[key]."""
    obj = without_proxy(obj)
    value = obj.value
    if not t.guards.live:
        return t.give(then, t.do(operator.getitem, value, key.value))
    if t.is_tensor(obj):
        part = t.front.operate(t, operator.getitem, [obj, key])
        if is_basic(key.value):
            note_part(t, obj, key, part)
        return t.deliver(then, part)
    if isinstance(value, type):
        return class_item(t, obj, key, then)
    if t.call_own(obj, "__getitem__", [key], then):
        return None
    if isinstance(value, dict):
        item = t.entry(obj, concrete_key(t, key))
        if item is not None:
            return t.deliver(then, item)
        if t.call_own(obj, "__missing__", [key], then):
            return None
        if isinstance(value, defaultdict):
            return default_item(t, obj, key, then)
        t.fail(KeyError(key.value))
    if isinstance(value, (list, tuple)) and t.foldable(key):
        items, raw = stored_items(t, obj), t.concretize(key)
        if isinstance(raw, slice):
            make = t.heap.new_list if isinstance(value, list) else t.heap.new_tuple
            if type(value) is tuple and raw == slice(None):
                return t.deliver(then, obj)
            result = make(t.do(operator.getitem, items, raw))
            if t.look_up(type(value), "__getitem__") not in ITEM_GETTERS:
                return t.call(Var(type(value)), [result], {}, then)  # a torch.Size
            return t.deliver(then, result)
        t.do(operator.getitem, value, raw)
        return t.deliver(then, items[raw])
    if t.foldable(obj) and t.foldable(key):
        item = constant(call_concrete(t, operator.getitem, [obj, key]))
        return t.deliver(then, known_object(t, item.value) if item.origin is None else item)
    raise Break(f"indexing of a {type(value).__name__}", Var(operator.getitem), [obj, key])


def class_item(t: "CaptureTracer", cls: Var, key: Var, then: Any) -> Any:
    """An item of a class, by its metaclass or its `__class_getitem__`."""
    t.concretize(cls)
    if t.call_own(cls, "__getitem__", [key], then):
        return None
    method = t.look_up(t.concretize(cls), "__class_getitem__")
    function = method.__func__ if isinstance(method, classmethod) else None
    indexed = t.look_up(type(cls.value), "__getitem__") is not MISSING
    if isinstance(function, types.FunctionType) and not indexed and not is_form(function):
        return t.call(bound_method(t, cls, Var(function)), [key], {}, then)
    return t.give(then, call_concrete(t, operator.getitem, [cls, key]))


def default_item(t: "CaptureTracer", obj: Var, key: Var, then: Any) -> Any:
    """Make a missing item of a defaultdict."""
    if obj.is_made("defaultdict"):
        factory = obj.origin.parts[0]
    else:
        source = t.heap.sub(obj, "attr", "default_factory")
        factory = t.heap.load(obj.value.default_factory, source)
    if factory.value is None:
        t.concretize(factory)
        t.fail(KeyError(key.value))

    def keep(tracer, item):
        tracer.store_item(obj, key, item)
        return tracer.deliver(then, item)

    return t.call(factory, [], {}, keep)


def parts_of(t: "CaptureTracer") -> dict[Any, Any] | None:
    """The parts of tensors that the trace has cut out: (part, whole, step) by the part's Var, where
    a step is a key or a `ViewCall`. None where parts share memory with the whole: PyTorch's."""
    return getattr(t.front_state, "parts", None)


class ViewCall(NamedTuple):
    """A method or property that shows a tensor's elements, see `tensor.parts.TensorView`."""

    name: str
    inputs: list[Var]
    options: dict[str, Var]
    item: int | None = None

    @property
    def steps(self) -> int:
        return 1 + (self.item is not None)


def note_part(t: "CaptureTracer", whole: Var, step: Any, part: Var) -> None:
    """Remember that a step takes a part from a whole."""
    if (parts := parts_of(t)) is None:
        return
    if type(part.value) is tuple:
        for i, item in enumerate(t.sequence(part)):
            parts[id(item)] = item, whole, step._replace(item=i)
    elif part.value is not whole.value:  # which a view of all is
        parts[id(part)] = part, whole, step


def note_view(t: "CaptureTracer", target: Any, args: list[Var], kwargs: Kwargs, part: Var) -> None:
    """`note_part` of the result of a call, if that is a method or property of a tensor's views."""
    if target is getattr and args[1].value in PROPERTIES:
        note_part(t, args[0], ViewCall(args[1].value, [], {}), part)
    elif isinstance(target, str) and target in VIEWS:
        note_part(t, args[0], ViewCall(target, args[1:], kwargs), part)


def note_data(t: "CaptureTracer", tensor: Var, data: Var) -> None:
    """Remember that x.data is a part of the same whole as x."""
    parts = parts_of(t) or {}
    if id(tensor) in parts:
        parts[id(data)] = data, *parts[id(tensor)][1:]


def put_back(t: "CaptureTracer", part: Var, links: int) -> None:
    """Write a modified part back into the tensor it was cut from: x[i][j] = v, see
    tensor/parts.py."""
    parts = parts_of(t) or {}
    if id(part) not in parts or links == NO_WRITE or not shares_memory(part.value.cut_from):
        return
    if links == 0 and getattr(parts[id(part)][2], "name", "") not in RESHAPING:
        line: Any = t.frames.line
        warn_of_name(*line)
    while id(part) in parts:
        _, whole, step = parts[id(part)]
        links -= step.steps if type(step) is ViewCall else 1
        if links < 0:
            break
        if type(step) is ViewCall:
            inputs = [whole, part, Var(step.name), Var(step.item), *step.inputs]
            write = write_view_
            t.front.apply(t, "call_function", write, write, inputs, step.options)
        else:
            t.front.operate(t, operator.setitem, [whole, step, part])
        part = whole


def put_back_first(t: "CaptureTracer", part: Var) -> None:
    """`put_back` after a call that writes to a part: x[i].fill_(v). The user's statement says
    whether the part has a name, as in a call that runs."""
    frame = next((f for f in reversed(t.frames) if not f.trusted), None)
    if frame is not None and id(part) in (parts_of(t) or ()):
        put_back(t, part, links_at(frame.root, frame.code.instructions[frame.at].offset))


@pending
def set_item(
    t: "CaptureTracer", obj: Var, key: Var, value: Var | None, then: Callable[..., Any] = discarded
) -> Any:
    """obj[key] = value (None deletes); the result goes to `then`."""
    target, write = obj.value, delete if value is None else store
    args = [obj, key] if value is None else [obj, key, value]
    if not t.guards.live:
        t.do(write, *(x.value for x in args))
        return t.give(then, None)
    if t.is_tensor(obj) and value is not None:
        t.front.operate(t, operator.setitem, args)
        return t.give(then, None)
    name = "__setitem__" if value is not None else "__delitem__"
    if t.call_own(obj, name, args[1:], without_result(then)):
        return None
    plain = type(target) is list and isinstance(key.value, (int, slice)) and t.foldable(key)
    if plain:
        t.concretize(key)
    if plain or isinstance(target, dict):
        t.store_item(obj, key, value)
        return t.give(then, None)
    raise Break(f"item assignment to a {type(target).__name__}", Var(write), args)
