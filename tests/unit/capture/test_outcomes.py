"""Numbers that vary: a capture relies on what an expression of one gives, not on the number."""

import math
import random
import types

import pytest

import glasshouse as gh

STATE = types.SimpleNamespace(step=0)
X = gh.arange(3.0)


def every_third(x, n):
    return x + n if n % 3 == 0 else x * n


def of_several_conditions(x, n):
    if n > 10 and n % 2:
        return x - n
    if not n:
        return x
    return x / 2 if n in (4, 6) or n == 9 else x * (n // 4)


def cosine_schedule(x, n):
    if n < 5:
        return x * (0.1 * (n + 1) / 6)
    share = (n - 5) / (30 - 5)
    return x * (0.5 * (1 + math.cos(math.pi * min(share, 1.0))))


def chosen_by_remainder(x, n):
    return x + [1.0, 2.0, 5.0][n % 3]


def powers(x, n):
    return x * 0.9**n + round(n / 4) + abs(3 - n) + max(n, 7)


def divided(x, n):
    return x / (12 - n) + 1 / (n - 3) if n != 3 else x


def of_an_attribute(x, n):
    STATE.step = n
    return of_the_state(x)


def of_the_state(x):
    STATE.step += 1
    return x * 2 if STATE.step % 5 < 2 else x


def long_loop(x, n):
    k = 0
    while k * k < n:
        k += 1
    return x + k


def in_a_range(x, n):
    return x + 1 if n in range(0, 40, 5) else x - 1 if n not in {1, 2, 3} else x


FUNCTIONS = {  # and how many captures it takes, where it has an end
    every_third: 2 + 1,
    of_several_conditions: 6 + 1,
    cosine_schedule: 2 + 1,
    chosen_by_remainder: 3 + 1,
    powers: None,
    divided: None,
    of_an_attribute: 2 + 1,
    long_loop: None,
    in_a_range: 3 + 1,
}


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("order", ["rising", "shuffled", "floats", "falling below 0"])
def test_each_call_gives_what_python_gives(fn, order):
    numbers = list(range(40))
    if order == "shuffled":
        random.Random(5).shuffle(numbers)
    elif order == "floats":
        numbers = [n / 2 for n in numbers] if fn is not chosen_by_remainder else [True, *numbers]
    elif order == "falling below 0":
        numbers = [20 - n for n in numbers]
    captured = gh.optimize("eager", nopython=True)(fn)
    for n in numbers:
        try:
            want = repr(fn(X, n).tolist())
        except (ArithmeticError, ValueError) as error:
            with pytest.raises(type(error)):
                captured(X, n)
        else:
            assert repr(captured(X, n).tolist()) == want, n
    count = FUNCTIONS[fn]
    if count is not None and order == "rising":
        assert len(captured.capture.entries) <= count


def test_what_is_relied_on_is_said_as_it_is_written():
    captured = gh.optimize("eager")(every_third)
    for n in (1, 2, 3):
        captured(X, n)
    said = [[str(x) for x in entry.guards] for entry in captured.capture.entries]
    assert "n == 1" in said[0]
    assert "not ((n % 3) == 0)" in said[1]
    assert "(n % 3) == 0" in said[2]


def test_a_number_of_another_type_is_captured_anew():
    captured = gh.optimize("eager")(lambda x, n: x * (n % 4) if n > 2 else x)
    for n in (3, 5, 6, 7.5, True, 2.5, float("nan"), float("inf"), 10**400):
        want = X * (n % 4) if n > 2 else X
        assert repr(captured(X, n)) == repr(want), n


def test_a_division_that_fails_for_one_number_fails_there():
    captured = gh.optimize("eager")(lambda x, n: x * (6 / (n - 4)))
    for n in (1, 2, 3):
        captured(X, n)
    with pytest.raises(ZeroDivisionError):
        captured(X, 4)
    assert captured(X, 7).tolist() == [0.0, 2.0, 4.0]


def test_powers_that_become_another_type_are_told_apart():
    captured = gh.optimize("eager")(lambda x, n: (x, 2**n))
    for n in (1, 2, 3, -1, 0, 5, -2):
        got = captured(X, n)[1]
        assert got == 2**n
        assert type(got) is type(2**n)
