"""Attributes and identity of numbers that vary, and results that a cache keeps."""

import functools
import itertools

import pytest

import glasshouse as gh

TEXTS = ("n", "(n + 1)", "(n * 2 - 1)", "(-n)", "abs(n)", "(n + m)", "m")
ATTRIBUTES = ("real", "imag", "numerator", "denominator")


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", ATTRIBUTES)
@pytest.mark.parametrize("dynamic", [False, True])
def test_attributes_of_computed_numbers(text, name, dynamic):
    fn = eval(f"lambda x, n, m: x * {text}.{name}")
    captured = gh.optimize("eager", dynamic=dynamic)(fn)
    for n, m in ((1, 1), (2, 1), (3, 5), (4, 7), (-2, 0)):
        assert captured(gh.ones(1), n, m).item() == fn(gh.ones(1), n, m).item()


def copied(value):
    """An equal value, another object where there can be one."""
    return type(value)(repr(value)) if type(value) in (int, float) else "".join([*value])


VALUES = (1000.5, 1.0, 5, 10**20, "long enough", "a")
PAIRS = ("a is b", "a is not b", "a is c", "(a is b) is True", "[a is b, b is c][0]", "a + a is b")


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("text", PAIRS)
def test_identity_of_equal_values(value, text):
    fn = eval(f"lambda x, a, b: x * (1 if {text} else 2)", {"c": value})
    captured = gh.optimize("eager")(fn)
    same, other = (value, value), (value, copied(value))
    copy = copied(value)
    for a, b in (same, other, same, other[::-1], (copy, copy), same):
        assert captured(gh.ones(1), a, b).item() == fn(gh.ones(1), a, b).item()


RESULTS = ("n * state['k']", "n * 1.5 * state['k']", "str(state['k'])", "(n, state['k'])", "None")


@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("events", list(itertools.product((None, "clear", "change"), repeat=3)))
def test_results_of_a_cache(result, events):
    outcomes = []
    for capture in (lambda fn: fn, gh.optimize("eager")):
        state, calls = {"k": 1}, []

        def cached(n, calls=calls, state=state):
            calls.append(n)
            return eval(result, {"n": n, "state": state})

        cached = functools.lru_cache(cached)
        fn, got = capture(lambda x, f=cached: (x * 1, f(2))), []
        for event in (None, *events):
            if event == "clear":
                cached.cache_clear()
            if event == "change":
                state["k"] += 1
            got.append(fn(gh.ones(1))[1])
        outcomes.append((got, calls))
    assert outcomes[0] == outcomes[1]


CONSTANTS = (1.25, 2j, 123456, 10**20, -6)
SAME = ("c", "[c][0]", "(c, 1)[0]", "{1: c}[1]", "c and c", "(lambda a=c: a)()", "(lambda: c)()")
NEW = """-c; c * 2; c + 0; c ** 2; (lambda: c * 3)(); type(c)(repr(c)); sum([c, 1]); len("a" * 300)
list(range(1000, 1003))[1]; [i for i in range(1000, 1003)][1]; next(iter(range(1000, 1003)))
list(enumerate("ab", 1000))[1][0]; hash("abc"); len(range(5000)); complex(1.5)"""
NEW = tuple(x.strip() for x in NEW.replace("\n", ";").split(";"))
KEEPS_KEPT = """def fn(x):
    global kept
    c = {constant!r}
    same = kept is ({text})
    kept = {text}
    return x, [kept, kept], (kept, 1), (c, c), same
"""


@pytest.mark.parametrize("constant", CONSTANTS)
@pytest.mark.parametrize("text", [*SAME, *NEW])
def test_a_number_is_the_object_that_it_is_in_plain_python(text, constant):
    names: dict = {}
    exec(KEEPS_KEPT.format(text=text, constant=constant), names)
    outcomes = []
    for call in (names["fn"], gh.optimize("eager")(names["fn"])):
        names["kept"] = None
        results = [call(gh.ones(1)) for _ in range(4)]
        values = [[row[0], row[1], pair[0], *both] for _, row, pair, both, _ in results]
        same = [[a is b for a in flat for b in flat] for flat in values]
        ids = [id(flat[0]) for flat in values]
        outcomes.append((values, same, [ids.index(x) for x in ids], [x[-1] for x in results]))
    assert outcomes[0] == outcomes[1]
