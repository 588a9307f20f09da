"""Random Python functions, run plain and captured: results, effects, exceptions with their lines,
printed text and reference counts are equal.

GH_FUZZ=20000 makes that many functions; it needs nothing but the library, so it runs on every
Python that capture supports. `tools/fuzz_capture.py` is the long mode: it survives crashes, and
makes failing functions small.
"""

import os

import pytest
from differential import check_seed, make_settings, minimise, pick_mode
from random_functions import RandomFunction

COUNT = int(os.environ.get("GH_FUZZ", "600"))
PARTS = 20
COMPILED = 0.01  # of the functions become Programs
# Functions that still differ, and in what of Python's semantics.
KNOWN = {
    139: "what a generator that is let go of in the middle did comes before another effect",
    225: "an error of an iterator that a comprehension begins has the comprehension's line too",
    238: "an AttributeError without arguments that __getattr__ raises does not refer to the object",
    427: "as 238",
    512: "as 139",
    431: "an error of an operation that is raised in a handler has no context",
}


@pytest.mark.parametrize("part", range(PARTS))
def test_random_functions(part):
    for seed in range(part * COUNT // PARTS, (part + 1) * COUNT // PARTS):
        mode = pick_mode(seed, COMPILED)
        if seed in KNOWN:
            with pytest.raises(AssertionError):
                check_seed(seed, mode)
        else:
            check_seed(seed, mode)


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
