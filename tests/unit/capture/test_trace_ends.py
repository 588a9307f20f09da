"""A trace ends with its call: no cycle keeps its tracer, and what that saw, until a collection."""

import gc
import weakref

import pytest

import glasshouse as gh
from glasshouse.capture.trace.tracer import CaptureTracer


class Thing:
    size = 2


def returns(x, thing):
    return x + thing.size


def breaks(x, thing):
    print(end="")
    return x * thing.size


def fails(x, thing):
    raise ValueError(thing.size)


def catches(x, thing):
    try:
        return thing.missing
    except AttributeError:
        return x + 1


@pytest.mark.parametrize("fn", [returns, breaks, fails, catches])
def test_nothing_of_a_trace_is_left_to_a_collection(fn):
    captured, x, thing = gh.optimize("eager")(fn), gh.ones(2), Thing()
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            try:
                captured(x, thing)
            except ValueError as error:
                assert error.args == (2,)
        assert not [o for o in gc.get_objects() if type(o) is CaptureTracer]
        ref = weakref.ref(thing)
        del thing
        assert ref() is None
    finally:
        gc.enable()
