"""Random Python functions, run plain and captured: results, effects, exceptions with their lines,
printed text and reference counts are equal.

GH_FUZZ=20000 makes that many functions; it needs nothing but the library, so it runs on every
Python that capture supports. `tools/fuzzers/fuzz_capture.py` is the long mode: it survives crashes,
and makes failing functions small."""

import os

import pytest
from differential import check_seed, make_settings, minimise, pick_mode
from random_functions import RandomFunction

COUNT = int(os.environ.get("GH_FUZZ", "300"))
PARTS = 10
COMPILED = 0.01  # of the functions become Programs


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_random_functions(part):
    for seed in range(part * COUNT // PARTS, (part + 1) * COUNT // PARTS):
        check_seed(seed, pick_mode(seed, COMPILED))


def test_a_seed_gives_the_same_function():
    assert RandomFunction(7).text == RandomFunction(7).text != RandomFunction(8).text


def test_failing_functions_are_made_small():
    """With a fault that only the number of calls and one expression decide."""
    seed = next(s for s in range(1000) if "items.append" in RandomFunction(s).text)
    text = RandomFunction(seed).text

    def fails(smaller, calls, mode):
        wrong = "items.append" in smaller and len(calls) > 1
        return "result" if wrong else None

    small, calls = minimise(text, make_settings(3), "eager", fails)
    assert len(calls) == 2
    assert len(small.splitlines()) <= 2 < len(text.splitlines())
