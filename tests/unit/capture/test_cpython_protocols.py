"""Cases that CPython's own tests found in dicts of one's own, exceptions, generators, patterns,
`super`: each function does the same plain and captured, three times."""

import functools
import itertools
import operator
import sys
from collections import OrderedDict, defaultdict

import pytest

import glasshouse as gh


class Backwards(dict):
    """A dict whose own keys come in the reverse order; a comparison of `len` would see more."""

    def keys(self):
        return reversed(list(dict.keys(self)))

    __iter__ = keys

    def clear(self):
        raise AssertionError("a builtin method calls no other")


class Counted(OrderedDict):
    """Counts what is read."""

    reads = 0

    def __getitem__(self, key):
        Counted.reads += 1
        return super().__getitem__(key)


class Empty:
    """Has no attribute, and does not say of which that is told."""

    def __getattr__(self, name):
        raise AttributeError


class Loud:
    """The graph breaks where an attribute is looked for."""

    def __getattr__(self, name):
        gh.graph_break()
        raise AttributeError


class Unmatched:
    __match_args__ = (None,)


class Number(int):
    """Matches by an attribute, which an int does not."""

    __match_args__ = ("name",)
    name = "seven"


class Nothing(BaseException):
    @classmethod
    def __new__(*args, **kwargs):
        return None


def function(a=1, *, b=2):
    return a, b


def keys_in_an_order_of_their_own():
    table = Backwards([("a", 1), ("b", 2)])
    copied = {}
    copied.update(table)
    return list(dict(table)), list({**table}), list(copied)


def builtin_methods_of_a_dict_of_ones_own():
    table = Backwards([("a", 1), ("b", 2)])
    keys = list(dict.keys(table)), list(dict.items(table)), "a" in dict.keys(table)
    dict.clear(table)
    return keys, dict.__len__(table)


def last_item_without_a_read():
    Counted.reads = 0
    instance = Counted(a=1, b=2)
    before = Counted.reads
    return instance.popitem(last=False), Counted.reads - before


def missing_of_a_defaultdict_without_a_factory():
    table = defaultdict(None, a=1)
    try:
        return table["a"], table["b"]
    except KeyError as error:
        return repr(error), table


def rest_of_an_accumulation_of_nothing():
    it = itertools.accumulate([None] * 3, operator.is_)
    first = next(it)
    gh.graph_break()
    return first, list(it)


def iterator_in_what_it_iterates_over():
    items = []
    it = itertools.filterfalse(lambda x: False, items)
    items.append(it)
    same = next(it) is it
    gh.graph_break()
    return same, len(items)


def choices_are_of_their_class():
    it = itertools.combinations([1, 2, 3], 2)
    first = next(it)
    kinds = [type(make("ab", 2)).__name__ for make in (itertools.permutations, type(it))]
    gh.graph_break()
    return first, type(it), list(it), list(it), kinds


def tuples_that_nobody_holds():
    choices = len(set(map(id, itertools.combinations("abcd", 2))))
    rows = list(map(id, zip("ab", "cd", strict=True)))
    return choices, rows[0] == rows[1], len(set(map(id, list(enumerate("abc")))))


def named_arguments_of_repeat():
    return list(itertools.repeat(object=3, times=2))


def iterator_assigned_to_a_slice():
    items = [0, 1, 2, 3]
    items[1:] = reversed(range(3))
    return items


def names_of_a_class_for_a_function():
    class Wrapped:
        __defaults__ = (5,)

    def wrapper(a=1):
        return a

    result = functools.update_wrapper(wrapper, Wrapped)
    return result.__name__, result(), wrapper.__defaults__, result.__dict__["__defaults__"]


def handled_in_a_generator():
    def steps():
        try:
            raise ValueError
        except ValueError:
            yield sys.exc_info()[0]
        yield sys.exc_info()[0]
        yield sys.exc_info()[0]

    generator = steps()
    try:
        raise KeyError
    except KeyError:
        log = [next(generator), next(generator)]
    return log, next(generator)


def thrown_while_another_is_handled():
    def steps():
        try:
            yield
        except ValueError as error:
            yield type(error)
        yield sys.exc_info()[0]
        yield sys.exc_info()[0]

    generator = steps()
    next(generator)
    try:
        raise ValueError
    except ValueError as error:
        values = generator.throw(error), next(generator)
    return values, next(generator)


def value_of_a_closed_generator():
    def steps():
        try:
            yield
        except GeneratorExit:
            return 7

    generator, behind = steps(), steps()
    next(generator), next(behind)
    closed = generator.close(), generator.close()
    gh.graph_break()
    return closed, behind.close()


def attribute_that_an_error_is_about():
    names = []
    for result in (Empty(), Loud()):
        try:
            result.missing
        except AttributeError as error:
            gh.graph_break()
            names.append((error.name, type(error.obj)))
    return names


def cause_that_is_a_class():
    try:
        raise KeyError from ValueError
    except KeyError as error:
        return type(error.__cause__), error.__suppress_context__


def cause_that_makes_no_exception():
    if sys.version_info < (3, 13):
        return None
    try:
        raise KeyError from Nothing
    except TypeError as error:
        return str(error)


def pattern_of_something_unnamed():
    try:
        match Unmatched():
            case Unmatched(found):
                return found
    except TypeError as error:
        return str(error)


def pattern_of_a_number_with_names():
    match Number(7):
        case Number(name):
            return name


def too_many_patterns():
    try:
        match 7:
            case int(low, high):
                return low, high
    except TypeError as error:
        return str(error)


def attributes_of_a_function():
    before = function.__qualname__
    function.__qualname__, function.mark = "other", 3
    values = before, function.__qualname__, function.mark, dict(function.__dict__)
    function.__qualname__ = before
    del function.mark
    return values


def defaults_of_a_function():
    def inner(a=1, *, b=2):
        return a, b

    function.__defaults__, inner.__defaults__, inner.__kwdefaults__ = (5,), (6,), {"b": 7}
    values = function(), inner()
    function.__defaults__ = (1,)
    return values, function()


def class_of_super():
    class Base:
        def parts(self):
            return super().__class__, super().__thisclass__.__name__, super().__self__ is self

    return Base().parts()


def super_without_anything():
    def deleted(this):
        del this
        super()

    class Outside:
        def none():
            super()

    log = []
    for fn, args in ((Outside.none, ()), (deleted, (1,)), (lambda this: super(), (1,))):
        try:
            fn(*args)
        except RuntimeError as error:
            log.append(str(error))
    return log


def grouped():
    groups = defaultdict(list)
    for number in range(5):
        groups[number % 2].append(number)
    return groups, len(groups)


def counted():
    counts = defaultdict(int, {"a": 3}, b=2)
    counts["c"] += 1
    return counts, counts["a"], counts.get("d"), "d" in counts


def without_a_default():
    table = defaultdict(None, x=1)
    try:
        return table["y"]
    except KeyError as error:
        return table, error


def no_factory():
    try:
        return defaultdict(3)
    except TypeError as error:
        return str(error)


PLAIN = [
    fn
    for name, fn in list(globals().items())
    if getattr(fn, "__module__", "") == __name__ and not isinstance(fn, type)
    if fn is not function
]


@pytest.mark.parametrize("fn", PLAIN, ids=lambda fn: fn.__name__)
def test_a_function_does_what_it_does_in_python(fn):
    fast = gh.optimize("eager")(fn)
    for _ in range(3):
        assert repr(fast()) == repr(fn())


@pytest.mark.parametrize("fn", [grouped, counted, without_a_default])
def test_defaultdicts_break_no_graph(fn):
    fast = gh.optimize("eager")(fn)
    fast()
    assert not fast.capture.breaks


def test_the_order_of_an_ordered_dict_is_guarded():
    table = OrderedDict(a=1, b=2)
    fast = gh.optimize("eager")(lambda table: [*table])
    for _ in range(4):
        assert fast(table) == list(table)
        table.move_to_end("a", last=list(table)[0] == "a")


def test_a_super_of_ones_own_is_called():
    names = {}
    exec(
        "class Mine:\n    def __init__(self, *args): self.args = args\n"
        "class Base:\n    def read(self): return super(1, 2).args, super().args",
        names,
    )
    fast = gh.optimize("eager")(names["Base"].read)
    for mine in (True, False):
        names.pop("super", None)
        if mine:
            names["super"] = names["Mine"]
            assert fast(names["Base"]()) == ((1, 2), ())
        else:
            with pytest.raises(TypeError):
                fast(names["Base"]())


def test_what_is_said_of_a_guard_runs_nothing_of_the_users():
    class Told:
        def __repr__(self):
            raise AssertionError("a guard was described by the user's code")

    fast = gh.optimize("eager")(lambda value: 1 if value is None else 2)
    assert [fast(x) for x in (None, Told(), (Told(),), [Told()], None)] == [1, 2, 2, 2, 1]
    assert "<tuple>" in str(fast.capture.recompiles)
