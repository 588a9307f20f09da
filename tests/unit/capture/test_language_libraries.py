"""Captured functions as Python: what libraries around models do: context variables, caches,
mappings made of a few methods, objects that look into their own dict."""

import abc
import collections.abc
import contextvars
import copy
import functools
import inspect
import os
import random
import threading
import types
import typing
from collections import OrderedDict
from dataclasses import dataclass, fields

import pytest
from checking import Cases, check

import glasshouse as gh

case = Cases()
X = gh.arange(6.0).reshape(2, 3)
NOTHING = contextvars.ContextVar("NOTHING")
LEVEL = contextvars.ContextVar("LEVEL", default=2)


# -- context variables -----------------------------------------------------------------------------


@case(X, whole=True)
def context_variable_is_read(x):
    return x * LEVEL.get(), NOTHING.get(None), NOTHING.get(3)


@case(X)
def context_variable_without_value(x):
    try:
        return NOTHING.get()
    except LookupError:
        return x


@case(X, whole=True)
def context_variable_is_set_and_reset(x):
    token = LEVEL.set(5)
    try:
        y = x * LEVEL.get()
    finally:
        LEVEL.reset(token)
    return y, LEVEL.get()


@case(X, whole=True)
def context_variables_within_one_another(x):
    outer = LEVEL.set(3)
    inner = LEVEL.set([x])
    other = NOTHING.set(1)
    values = LEVEL.get()[0] + 1, NOTHING.get()
    NOTHING.reset(other)
    LEVEL.reset(inner)
    values += (LEVEL.get(),)
    LEVEL.reset(outer)
    return values, LEVEL.get()


@case(X)
def context_variable_is_left_set(x):
    token = LEVEL.set(7)
    y = x + LEVEL.get()
    gh.capture.graph_break()
    value = LEVEL.get()
    LEVEL.reset(token)
    return y, value, LEVEL.get()


@case(X)
def context_variables_are_left_set(x):
    first = LEVEL.set(7)
    second = LEVEL.set(8)
    gh.capture.graph_break()
    value = LEVEL.get()
    LEVEL.reset(second)
    value = value, LEVEL.get()
    LEVEL.reset(first)
    return x + 1, value, LEVEL.get()


@case(X)
def context_variables_reset_in_another_order(x):
    first = LEVEL.set(7)
    second = LEVEL.set(8)
    LEVEL.reset(first)
    value = LEVEL.get()
    LEVEL.reset(second)
    value = value, LEVEL.get()
    LEVEL.set(2)
    return x + 1, value


@case(X)
def context_variable_of_a_collector(x):
    collected = {"a": []}
    token = NOTHING.set(collected)
    for i in range(2):
        NOTHING.get()["a"].append(x + i)
    NOTHING.reset(token)
    return collected


def test_context_variable_is_guarded():
    fast = gh.optimize("eager")(context_variable_is_read)
    assert fast(X)[0].tolist() == (X * 2).tolist()
    token = LEVEL.set(4)
    assert fast(X)[0].tolist() == (X * 4).tolist()
    other = NOTHING.set(9)
    assert fast(X)[1:] == (9, 9)
    NOTHING.reset(other)
    LEVEL.reset(token)
    assert fast(X)[0].tolist() == (X * 2).tolist()
    assert fast(X)[1:] == (None, 3)
    assert any(
        "LEVEL.get() is 4" in guard for e in fast.capture.entries for guard in map(str, e.guards)
    )


def test_context_variable_stays_set_behind_the_call():
    def sets(x):
        LEVEL.set(11)
        return x + LEVEL.get()

    for run in (gh.optimize("eager")(sets),) * 3:
        token = LEVEL.set(1)
        run(X)
        assert LEVEL.get() == 11
        LEVEL.reset(token)


def test_context_variable_where_a_call_raises():
    @gh.optimize("eager")
    def raises(x, wrong):
        token = LEVEL.set(6)
        try:
            if wrong:
                raise ValueError(wrong)
            return x * LEVEL.get()
        finally:
            LEVEL.reset(token)

    for wrong in (False, True, False, True):
        try:
            assert raises(X, wrong).tolist() == (X * 6).tolist()
        except ValueError:
            assert wrong
        assert LEVEL.get() == 2


# -- caches ----------------------------------------------------------------------------------------


class Teller:
    def __init__(self):
        self.told = []

    @functools.lru_cache  # noqa: B019
    def once(self, text):
        self.told.append(text)


TELLER = Teller()


def test_cached_method_runs_once():
    @gh.optimize("eager")
    def tells(x):
        TELLER.once("a")
        return x + 1

    for _ in range(3):
        assert tells(X).tolist() == (X + 1).tolist()
    assert TELLER.told == ["a"]
    assert not tells.capture.breaks


# -- mappings --------------------------------------------------------------------------------------


class Layered(collections.abc.MutableMapping):
    shared = {"a": 1, "b": 2}

    def __init__(self):
        self.own = {}

    def __getitem__(self, key):
        return self.own[key] if key in self.own else self.shared[key]

    def __setitem__(self, key, value):
        self.own[key] = value

    def __delitem__(self, key):
        del self.own[key]

    def __iter__(self):
        return iter({**self.shared, **self.own})

    def __len__(self):
        return len(self.shared.keys() | self.own.keys())


@case(X, Layered(), whole=True)
def mapping_of_few_methods(x, m):
    results = "a" in m, "z" in m, m.get("b"), m.get("z", 5)
    m["a"] = 3
    m.setdefault("c", 4)
    return x * m["a"], results, m.own


@case(X, Layered(), hit=False)
def mapping_is_walked(x, m):
    m.update({"c": 7}, d=8)
    total = sum(v for _, v in m.items())
    return x + total, [*m.values()], m.pop("c"), sorted(m)


@case(X, whole=True)
def environment_is_read(x):
    return x + len(os.environ.get("GH_NOT_THERE", "abc")), "GH_NOT_THERE" in os.environ


def test_environment_is_guarded(monkeypatch):
    fast = gh.optimize("eager")(environment_is_read)
    assert fast(X)[1] is False
    monkeypatch.setenv("GH_NOT_THERE", "12345")
    assert fast(X)[1] is True
    assert fast(X)[0].tolist() == (X + 5).tolist()
    monkeypatch.setenv("GH_NOT_THERE", "1")
    assert fast(X)[0].tolist() == (X + 1).tolist()


# -- dicts with items of their own -----------------------------------------------------------------


class Output(OrderedDict):
    """Items by name or number; attributes are items."""

    def __post_init__(self):
        rest = fields(self)[1:]
        if all(self.__dict__.get(field.name) is None for field in rest):
            self["alone"] = True
        for field in fields(self):
            value = self.__dict__.get(field.name)
            if value is not None:
                self[field.name] = value

    def __getitem__(self, key):
        if isinstance(key, str):
            return dict(self.items())[key]
        return self.to_tuple()[key]

    def __setattr__(self, name, value):
        if value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def to_tuple(self):
        return tuple(self[k] for k in self.keys())


@dataclass
class Two(Output):
    first: object = None
    second: object = None


@case(X, whole=True)
def dict_with_items_of_its_own(x):
    instance = Two(x + 1, second=x * 2)
    instance.second = instance["first"] + instance[1]
    return instance[0], instance.second, [*instance], instance.to_tuple()[1:]


@case(X, whole=True)
def dict_with_items_of_its_own_alone(x):
    return Two(first=x + 1)


@case(Two(X, X + 1))
def dict_with_items_of_its_own_is_given(m):
    return m["first"] + m[1], m.second, len(m)


@case(Two(X, X + 1))
def dict_with_items_of_its_own_is_changed(m):
    m.first = m[1] * 2
    return m["first"]


class Lowered(dict):
    def __getitem__(self, key):
        return super().__getitem__(key.lower())

    def __contains__(self, key):
        return super().__contains__(key.lower())


class Filled(Lowered):
    def __missing__(self, key):
        self[key] = len(self)
        return 10


@case(X, Lowered(a=2), whole=True)
def dict_asks_its_base(x, d):
    return x * d["A"], "A" in d, "B" in d, [*d.items()]


@case(X, Lowered(a=2))
def dict_asks_its_base_in_vain(x, d):
    try:
        return x * d["B"]
    except KeyError as error:
        return x, error.args


@case(X, Filled(a=2), whole=True)
def dict_fills_what_its_base_lacks(x, d):
    return x * d["B"], x + d["A"], [*d.items()]


@case(X, whole=True)
def new_dict_asks_its_base(x):
    d = Lowered(a=x)
    return d["A"] + 1, "B" in d


# -- the dict of something new ---------------------------------------------------------------------


class Holder:
    kind = "none"

    def __init__(self, **fields):
        self.size = 1
        self.__dict__.update(fields)
        self.kind = "some"

    def names(self):
        return [k for k, v in self.__dict__.items() if v is not None]


@case(X, whole=True)
def dict_of_a_new_object(x):
    instance = Holder(a=x, b=None)
    instance.__dict__["c"] = x + instance.size
    instance.size = 4
    del instance.b
    return instance.names(), instance.c * instance.size, instance.kind, instance


@case(X)
def dict_of_a_new_object_is_kept(x):
    instance = Holder(a=x)
    own = instance.__dict__
    gh.capture.graph_break()
    own["a"] = x + 1
    instance.later = 2
    return instance.a, own["later"], own is instance.__dict__


@case(X, whole=True)
def dict_of_a_new_object_is_returned(x):
    instance = Holder(a=x + 1)
    return instance, instance.__dict__


# -- signatures ------------------------------------------------------------------------------------


class Chunked:
    def one(self, x, y=2):
        return x * y


@case(X, Chunked(), whole=True)
def signature_of_a_method(x, c):
    return c.one(x), len(inspect.signature(c.one).parameters)


@case(X, Chunked(), whole=True)
def names_in_a_signature(x, c):
    parameters = inspect.signature(c.one).parameters
    names = set(parameters.keys())
    kept = {k: v for k, v in {"y": 3, "z": 4}.items() if k in names}
    return c.one(x, **kept), list(parameters), [p.name for p in parameters.values()]


# -- results that a cache keeps --------------------------------------------------------------------


class Plan:
    """An object made of a text once."""

    def __init__(self, text):
        self.factors, self.uses = [int(x) for x in text.split()], []


@functools.lru_cache
def plan_of(text):
    return Plan(text)


@functools.lru_cache
def factors_of(plan, count):
    return plan.factors[:count], {"count": count}


@case(X, whole=True)
def object_of_a_cache(x):
    plan = plan_of("2 3 4")
    return x * plan.factors[1], plan is plan_of("2 3 4")


@case(X, whole=True)
def lists_that_a_cache_makes_of_an_object(x):
    factors, words = factors_of(plan_of("2 3"), 2)
    return x * factors[0] + words["count"], factors is factors_of(plan_of("2 3"), 2)[0]


def test_what_a_cache_has_is_found_as_it_is_then():
    captured = gh.optimize("eager")(lambda x: x * plan_of("5").factors[0])
    assert captured(gh.ones(1)).tolist() == [5.0]
    plan_of("5").factors[0] = 7
    assert captured(gh.ones(1)).tolist() == [7.0]
    plan_of.cache_clear()
    assert captured(gh.ones(1)).tolist() == [5.0]


# -- sets ------------------------------------------------------------------------------------------

WAYS = {"same", "valid", "full"}


@case(X, whole=True)
def text_of_a_set(x):
    return x + 1, f"one of {WAYS}", str(WAYS), repr(frozenset(WAYS)), f"{WAYS!r}"


def test_equal_sets_with_another_order_are_told_apart():
    captured = gh.optimize("eager")(lambda x, s: (x + 1, list(s)))
    for inputs in ({8, 0}, {0, 8}, {8, 0}):
        assert captured(gh.ones(1), inputs)[1] == list(inputs)


def sets_of(x, s):
    """Sets made in every way of `s`, which changes too."""
    copied, grown, frozen, mixed = set(s), {*s}, frozenset(s), {1, *s, 2}
    copied.add(77)
    grown |= {5, 8, 4000}
    mixed.update(frozen)
    mixed ^= {16, 24}
    results = [
        s.copy(),
        s | {1000},
        s & s,
        s - {1000},
        s.union([8, 16]),
        copied,
        grown,
        frozen,
        mixed,
    ]
    s |= {8, 3, 400}
    s.intersection_update([8, 3, *frozen])
    s.discard(3)
    return x + 1, results, [list(y) for y in results], list(s)


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_a_set_follows_how_it_was_made(seed):
    # Multiples of 8 want the same place in a small table: the first that comes gets it.
    numbers = [8 * n for n in random.Random(seed).sample(range(60), 2 + seed % 10)]
    plain, inputs = set(numbers), set(numbers)
    want = sets_of(gh.ones(1), plain)
    captured = gh.optimize("eager", nopython=True)(sets_of)
    _, result, orders, order = captured(gh.ones(1), inputs)
    assert [list(y) for y in result] == orders == want[2]
    assert list(inputs) == order == want[3] == list(plain)


def overlapping_sets(x, s):
    """Sets whose tables grew because a part of `s` was added again."""
    first = next(iter(s))
    grown, changed = {*s}, set(s)
    grown |= {first}
    changed.update(s, {first})
    results = [s | {first}, s | s, {first} | s, s.union({first}, s), grown, changed, s ^ {first, 9}]
    return x + 1, results, [list(y) for y in results]


@pytest.mark.parametrize("seed", range(20))
def test_a_replayed_call_makes_sets_of_the_same_order(seed):
    numbers = random.Random(seed).sample(range(60), 2 + seed % 10)
    captured = gh.optimize("eager", nopython=True)(overlapping_sets)
    for _ in range(3):
        _, result, orders = captured(gh.ones(1), set(numbers))
        want = overlapping_sets(gh.ones(1), set(numbers))[2]
        assert [list(y) for y in result] == orders == want


# -- imports ---------------------------------------------------------------------------------------


def relative_imports(x):
    from . import plain
    from .plain import is_library

    return x + 1, plain.is_heap(int), is_library(int)


def test_relative_imports_of_what_is_loaded_are_captured():
    own = {"__package__": "glasshouse.capture.values", "__name__": "elsewhere", "__spec__": None}
    names = globals() | own
    fn = types.FunctionType(relative_imports.__code__, names)
    check(fn, X, whole=True)


# -- classes whose metaclass says what belongs to them ---------------------------------------------


class Marks(type):
    def __instancecheck__(cls, obj):
        return super().__instancecheck__(obj) or getattr(obj, "marked", False)

    def __subclasscheck__(cls, other):
        return super().__subclasscheck__(other) or other is int


class Marked(metaclass=Marks):
    pass


class Registered(abc.ABC):  # noqa: B024
    @classmethod
    def __subclasshook__(cls, other):
        return hasattr(other, "marked") or NotImplemented


class StrictMarks(abc.ABCMeta):
    def __instancecheck__(cls, obj):
        return super().__instancecheck__(obj) and obj.marked


class Strict(Registered, metaclass=StrictMarks):
    pass


class Mark(Strict):
    marked = False


@case(X, Chunked(), Marked(), Mark(), whole=True)
def isinstance_by_a_metaclass(x, other, own, mark):
    kinds = (str, (Marked, bytes))
    asked = [isinstance(each, kinds) for each in (other, own, 3)]
    asked += [isinstance(other, Marked | int), isinstance(mark, Strict), isinstance(x, Marked)]
    mark.marked = other.marked = True
    asked += [isinstance(mark, Strict), isinstance(other, Marked)]
    return x + sum(asked), asked


@case(X, whole=True)
def issubclass_by_a_metaclass(x):
    return x + 1, [issubclass(each, (str, Marked)) for each in (int, float, Marked, str)]


# -- what libraries make themselves: sequences, mappings, forms of types ---------------------------


class Layers(collections.abc.Sequence):
    """A view, whose iterator is a generator that yields inside `try`."""

    def __init__(self, numbers):
        self.numbers = numbers

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, i):
        return self.numbers[i] * 2


class Batch(collections.UserDict):
    """As a tokenizer gives one: a mapping that is no dict."""

    def __getitem__(self, key):
        return self.data[key]


class Reversed:
    """A mapping of two methods alone."""

    def __init__(self, **items):
        self.items = items

    def keys(self):
        return reversed(list(self.items))

    def __getitem__(self, key):
        return self.items[key] + 1


@case(X, [3, 4], whole=True)
def a_generator_inside_of_try_is_let_go(x, numbers):
    layers = Layers([1, 2, 3, *numbers])
    pairs = list(zip("ab", layers, strict=False))
    first = next(iter(layers))
    for each in layers:
        if each > 3:
            break
    return x * each + first, pairs, list(layers)


def yields_in(how, log):
    if how == "errors":
        try:
            yield 1
            yield 2
        except (ValueError, KeyError):
            log.append("caught")
    elif how == "every error":
        try:
            yield 1
        except Exception:
            log.append("caught")
    elif how == "exits":
        try:
            yield 1
        except BaseException:
            log.append("let go")
            raise
    else:
        try:
            yield 1
        finally:
            log.append("finally")


@case(X, [], hit=False)
def generators_that_are_let_go_do_what_python_does(x, log):
    for how in ("errors", "every error", "exits", "finally"):
        for number in yields_in(how, log):
            log.append(number)
            break
        log.append(next(yields_in(how, log)))
        log += [a for a, _ in zip("x", yields_in(how, log), strict=False)]
    return x + len(log), log


def named_words(**words):
    return {key: words[key] for key in words}


@case(X, Batch(a=2, b=3), Reversed(c=4, d=5), whole=True)
def mappings_are_unpacked(x, batch, other):
    words = named_words(**batch, **other)
    batch["a"] = 7
    results = {"z": 1, **other, **batch}
    return x * words["a"] + len(batch), words, results, list(batch), "b" in batch, batch.get("q", 5)


@case(X)
def mappings_with_a_key_twice(x):
    return x, named_words(**Reversed(a=1), a=2)


@case(X)
def what_is_no_mapping(x):
    return x, named_words(**x.shape)


FORM = typing.Optional[typing.Dict[str, typing.List[int]]]  # noqa: UP006, UP045


@case(X, whole=True)
def forms_of_types(x):
    inside = typing.get_args(FORM)[0]
    origins = [typing.get_origin(form) for form in (FORM, inside, int, list[int], int | None)]
    return x + len(typing.get_args(inside)), origins, typing.get_args(list[int]), inside


# -- copies ----------------------------------------------------------------------------------------


class Settings:
    """An object as configurations are: attributes that are set and found by its class's code."""

    kind = "settings"

    def __init__(self, **values):
        self.__dict__.update(values)

    def __getattribute__(self, name):
        return super().__getattribute__("depth" if name == "layers" else name)

    def __setattr__(self, name, value):
        if name == "kind":
            raise ValueError(name)
        super().__setattr__(name, value)


class OwnCopy:
    def __deepcopy__(self, memo):
        return "copied"


def settings():
    instance = Settings(depth=2, names=["a", {"b": (1, [3])}], of={1, 2}, act=len, none=None)
    instance.again, instance.names2 = instance, instance.names
    return instance


@case(X, settings(), whole=True)
def deep_copies_of_objects(x, inputs):
    other = copy.deepcopy(inputs)
    other.depth = inputs.layers + 5
    other.names.append(7)
    other.names[1]["b"][1].append(inputs.depth)
    delattr(other, "none")
    same = [other.again is other, other.names2 is other.names, other.names is inputs.names]
    names = [name for name in other.__dict__ if name.startswith("d")]
    return x * other.layers + inputs.depth, same, other.names, inputs.names, names, other.of


@case(X, settings(), whole=True)
def flat_copies(x, inputs):
    other, items, words = copy.copy(inputs), [1, [2]], {"a": [1], 3: (4,)}
    other.depth = 9
    copied = copy.copy(items), copy.copy(words), copy.copy({3, 4}), copy.copy((1, 2))
    same = [other.names is inputs.names, copied[0][1] is items[1], copied[1]["a"] is words["a"]]
    return x + other.depth - inputs.depth, same, copied


@case(X, [[1, 2], [3]], whole=True)
def deep_copies_of_what_is_new(x, rows):
    rows = [*rows, rows[0]]
    copied = copy.deepcopy(rows)
    copied[0].append(x.shape[0])
    return x + len(rows[0]), copied, copied[2] is copied[0], rows


class Telling:
    """An object that tells what it is asked for, and does not have."""

    def __init__(self, log):
        self.value = log

    def __getattr__(self, name):
        LOG.append(name)
        raise AttributeError(name)


class TellingAll(Telling):
    def __getattribute__(self, name):
        LOG.append(f"at all {name}")
        return super().__getattribute__(name)


LOG: list[str] = []


def empty(kind):
    result = kind(1)
    del result.value
    return result


@case(X, Telling([1]), empty(Telling), whole=True, hit=False)
@case(X, TellingAll([1]), empty(TellingAll), hit=False)
def copies_of_what_tells_what_it_is_asked_for(x, some, none):
    LOG.clear()
    results = [copy.copy(some), copy.deepcopy(some), copy.copy(none), copy.deepcopy(none)]
    messages = list(LOG)
    return x + len(messages), messages, [y.value for y in results[:2]]


@case(X, whole=True)
def a_deep_copy_of_a_tuple_in_itself(x):
    inputs = ([],)
    inputs[0].append(inputs)
    result = copy.deepcopy(inputs)
    return x + 1, result[0][0] is result, result is inputs, result[0] is inputs[0]


@case(X, OwnCopy())
def copies_in_a_way_of_their_own(x, other):
    return x + 1, copy.deepcopy([other]), copy.deepcopy(OrderedDict(a=1)), copy.deepcopy(x)


def test_copies_of_one_object_are_not_taken_for_those_of_two():
    captured = gh.optimize("eager")(lambda x, rows: (x, copy.deepcopy(rows)))
    one, other = [1], [1]
    for inputs in ([one, one], [one, other], [one, one]):
        result = captured(X, inputs)[1]
        assert (result[0] is result[1]) == (inputs[0] is inputs[1])


# -- where a call runs -----------------------------------------------------------------------------

BY_THREAD = {}


@case(X, whole=True)
def thread_of_a_call(x):
    return x + 1, threading.get_ident() in BY_THREAD, os.getpid() > 0


def test_a_call_in_another_thread_has_its_own_number():
    captured = gh.optimize("eager")(lambda x: (x + 1, threading.get_ident()))
    numbers = [captured(gh.ones(1))[1]]
    thread = threading.Thread(target=lambda: numbers.append(captured(gh.ones(1))[1]))
    thread.start()
    number = thread.ident
    thread.join()
    assert numbers == [threading.get_ident(), number]


@pytest.mark.parametrize(("fn", "args", "options"), case)
def test_libraries(fn, args, options):
    check(fn, *args, **options)
