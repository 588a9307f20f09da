"""Which branches on a tensor's value are checks: their other side only raises."""

import pytest

import glasshouse as gh
from glasshouse.capture.trace.front import FrontEnd

X = gh.tensor([1.0, 2.0])


def raises(x):
    if not (x > 0).all():
        raise ValueError("not above 0")
    return x + 1


def raises_behind_a_message(x):
    if (x < 0).any():
        worst = x.min()
        message = f"below 0: {worst}"
        raise ValueError(message)
    return x + 1


def raises_one_of_two(x):
    if x.ndim > 3 or (x < 0).any():
        raise ValueError(x.ndim) from None
    return x + 1


def goes_on(x):
    if (x > 0).all():
        x = x * 2
    return x + 1


def catches(x):
    try:
        if (x < 0).any():
            raise ValueError
    except ValueError:
        x = -x
    return x + 1


def returns(x):
    return x + 1 if (x > 0).all() else -x


def told(function, monkeypatch):
    """Return what the front end is told: whether false, and whether true, would be an error."""
    answers = []

    def checked(front, tracer, var, is_error):
        answers.append((is_error(False), is_error(True)))

    monkeypatch.setattr(FrontEnd, "checked", checked)
    result = gh.optimize("eager")(function)(X)
    assert result.tolist() == function(X).tolist()
    return answers


@pytest.mark.parametrize(
    "function, expected",
    [
        (raises, (True, False)),
        (raises_behind_a_message, (False, True)),
        (raises_one_of_two, (False, True)),
        (goes_on, (False, False)),
        (catches, (False, False)),
        (returns, (False, False)),
    ],
)
def test_a_branch_whose_other_side_only_raises_is_a_check(function, expected, monkeypatch):
    assert told(function, monkeypatch) == [expected]


def test_a_truth_that_decides_no_jump_is_no_check(monkeypatch):
    assert told(lambda x: x + (not (x > 9).all()), monkeypatch) == []
