"""Builtins and methods of containers with arguments that fit and that do not, equal elements that
are not the same, and what cannot be hashed: results and errors, to the letter, are plain Python's.
"""

import itertools
import random
from collections import OrderedDict, defaultdict, deque

import pytest

import glasshouse as gh

CONTAINERS = {
    dict: ("{1: 'a', 2: 'b'}", "{}"),
    OrderedDict: ("OrderedDict([(1, 'a'), (2, 'b')])", "OrderedDict()"),
    defaultdict: ("defaultdict(list, {1: 2})",),
    list: ("[2, 1, 1.0]", "[]"),
    set: ("{1, 2}", "set()"),
    frozenset: ("frozenset({1, 2})",),
    str: ("'ab a'",),
    bytes: ("b'ab'",),
    tuple: ("(1, 2, 1)",),
    deque: ("deque([1, 2])",),
    range: ("range(3)",),
    int: ("5",),
}
# These say where an object is, or make a class or a copy by a protocol of their own.
UNTRIED = set(
    "__reduce__ __reduce_ex__ __getstate__ __init_subclass__ __subclasshook__ __dir__ __sizeof__ "
    "__class_getitem__ __getnewargs__ __class__ __hash__ __repr__ __str__ __new__ "
    "__getattribute__ __setattr__ __delattr__".split()
)
ARGUMENTS = (
    "", "1", "[1]", "'a'", "None", "1, 2", "[], 1", "1, 2, 3", "1, 2, 3, 4", "key=1", "True", "1.0",
    "[[1], [2]]", "{1: 2}", "x=1, y=2", "(1, 2)", "[(1, 2)]", "{True}", "object", "default=3",
    "[1], last=2", "{True, 2.0}", "[True, 1]", "[1, 2, 3], [4]", "([],)",
)  # fmt: skip
OF_BUILTINS = (
    *ARGUMENTS, "'ba', reverse=[1]", "'ba', reverse=None", "'ba', reverse=1.5", "[1, 'a']",
    "'ba', key=1", "'ab', 'cd'", "'ab', 1", "int, 1", "'1', base=2", "[1], start=2",
    "[1], start='a'", "[1], [2], strict=1", "[1, 2], key=None, default=1", "int, [1], strict=True",
    "[1, 2], default=3", "[1], 1", "len, [1, 'ab']", "[{}]", "{}, {}", "2, 3, 5", "iter([1])",
    "[1], r=2", "'a', repeat=2", "[1, True, 1.0]", "[(1, 2), (True, 3)]", "v for v in [[1]]",
)  # fmt: skip
BUILTINS = (
    "abs all any bool bytes callable dict divmod enumerate filter float frozenset getattr hasattr "
    "int isinstance iter len list map max min next pow range reversed round set slice sorted str "
    "sum tuple zip OrderedDict defaultdict"
).split()
BUILTINS += [f"itertools.{name}" for name in dir(itertools) if name[0] != "_" and name != "tee"]
FORMS = (
    "def fn(t, x):\n    return {call}, x",
    "def fn(t, x):\n    x = {made}\n    return {call}, x",
    "def fn(t, x):\n    try:\n        r = {call}\n    except Exception as e:\n"
    "        r = e.__class__, str(e)\n    return r, x, t + 1",
)


def shown(x, depth=0) -> str:
    """A value with its types, of an iterator what it gives."""
    if isinstance(x, (list, tuple, set, frozenset, deque)):
        return f"{type(x).__name__}{[shown(v, depth) for v in x]}"
    if isinstance(x, dict):
        return f"{type(x).__name__}{[(shown(k), shown(v)) for k, v in x.items()]}"
    if hasattr(x, "__next__") and depth < 3:
        try:
            return f"{type(x).__name__}{[shown(v, depth + 1) for v in itertools.islice(x, 6)]}"
        except Exception as error:
            return f"{type(x).__name__}: {error!r}"
    plain = isinstance(x, (str, int, float, bytes, type(None), type))
    return repr(x) if plain else type(x).__name__


def outcome(fn, x) -> tuple[str, str]:
    try:
        result = shown(fn(gh.ones(1), x))
    except Exception as error:
        result = f"{error!r} {error.__cause__!r} {error.__context__!r}"
    return result, shown(x)


def cases():
    """(source, argument) of functions that call one thing."""
    for kind, result in CONTAINERS.items():
        for name in dir(kind):
            if name not in UNTRIED and callable(getattr(kind, name)):
                for x, args, form in itertools.product(result, ARGUMENTS, FORMS):
                    yield form.format(call=f"x.{name}({args})", made=x), x
    for name, args, form in itertools.product(BUILTINS, OF_BUILTINS, FORMS[::2]):
        yield form.format(call=f"{name}({args})", made="0"), "0"


@pytest.mark.parametrize("part", range(8))
def test_calls_are_as_in_python(part):
    chosen = random.Random(part).sample(sorted(cases()), 150)
    wrong = []
    for source, result in chosen:
        space = dict(globals())
        try:
            exec(source, space)
        except SyntaxError:  # a generator among other arguments
            continue
        plain = [outcome(space["fn"], eval(result)) for _ in range(2)]
        captured = gh.optimize("eager")(space["fn"])
        got = [outcome(captured, eval(result)) for _ in range(2)]
        if got != plain:
            wrong.append((source, result, plain, got))
    assert wrong == []


EQUALS = (
    "{v: v for v in x}", "{v for v in x}", "set(v for v in x)", "dict.fromkeys(x)", "{*x, 2.0}",
    "dict((v, 1) for v in x)", "{x[0]: 0} | {x[1]: 1}", "{x[0]} | {x[1]}", "{x[0]} & {x[1]}",
    "{x[0], 2} & {x[1]}", "{x[0]} ^ {x[1], 3}", "{x[1], 2, 3} - {2.0}", "{2: 0, x[0]: 1, x[1]: 2}",
    "{x[0]}.union([x[1]], [x[2]])", "frozenset(x)", "{x[0]}.intersection([x[1]])",
    "OrderedDict(a=1, b=2) == OrderedDict(b=2, a=1)", "OrderedDict(a=1, b=2) == dict(b=2, a=1)",
    "OrderedDict(a=1, b=2) != OrderedDict(b=2, a=1)", "{1} in [{True}]",
    "{x[0]} in {frozenset({1})}",
)  # fmt: skip


@pytest.mark.parametrize("text", EQUALS)
@pytest.mark.parametrize("items", list(itertools.permutations((1, True, 1.0))))
def test_of_equal_elements_the_right_one_is_found(text, items):
    fn = eval(f"lambda t, x: {text}", dict(globals()))
    captured = gh.optimize("eager")(fn)
    for x in (list(items), list(items), items[::-1]):
        assert outcome(captured, x) == outcome(fn, x)


def test_a_class_is_as_true_as_its_metaclass_says():
    class Meta(type):
        def __bool__(cls):
            return cls.truth

    class A(metaclass=Meta):
        truth = False

    @gh.optimize("eager")
    def fn(x):
        return x * (1 if A else 2)

    assert [fn(gh.ones(1)).item() for _ in range(3)] == [2.0] * 3
