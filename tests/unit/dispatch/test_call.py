"""Calls: equal ones are one object, different ones are not, and unused ones go."""

import gc
import pickle

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base import Spec
from glasshouse.dispatch import call as module
from glasshouse.dispatch.call import PICK, call_of, calls, input_call, pick_call, source_call

pytestmark = pytest.mark.quick

X = Spec((2, 3), gh.float32)
CARD = gh.primitives


def test_equal_calls_are_one_object():
    assert call_of(CARD["sum"], (X,), {"axes": (0,)}) is call_of(CARD["sum"], [X], {"axes": (0,)})
    assert call_of(CARD["sum"], (X,), {"axes": (0,)}) is not call_of(
        CARD["sum"], (X,), {"axes": (1,)}
    )
    assert call_of(CARD["add"], (X, X), {}, None, np.add) is not call_of(CARD["add"], (X, X), {})


def test_values_that_are_equal_and_not_the_same_make_different_calls():
    padded = [
        call_of(CARD["pad"], (X,), {"widths": ((0, 0, 0), (1, 1, 0)), "value": value})
        for value in (0, 0.0, -0.0, False, np.float32(0), float("nan"))
    ]
    assert len({c.number for c in padded}) == len(padded)
    again = call_of(CARD["pad"], (X,), {"widths": ((0, 0, 0), (1, 1, 0)), "value": float("nan")})
    assert again is padded[-1]


def test_a_value_from_outside_is_no_part_of_a_call():
    def full(value):
        return source_call(CARD["full"], {"shape": (2,), "value": value, "dtype": gh.float32})

    assert full(0.125) is full(0.25) and full(0.125).attrs["value"] is None
    assert full(2.0) is not full(3.0) and full(2.0).attrs["value"] == 2.0
    arrays = [source_call(CARD["constant"], {"value": np.full(3, i, "f")}) for i in range(2)]
    assert arrays[0] is arrays[1] and arrays[0].out == Spec((3,), gh.float32)


def test_calls_are_themselves_when_they_are_unpickled():
    results = [
        call_of(CARD["sum"], (X,), {"axes": (0,)}),
        input_call(3, X),
        source_call(CARD["constant"], {"value": np.zeros(3, "f")}),
        source_call(CARD["full"], {"shape": (2,), "value": 0.3, "dtype": gh.float32}),
        pick_call(call_of(CARD["qr"], (X,), {"mode": "reduced"}), 0),
    ]
    assert all(pickle.loads(pickle.dumps(call)) is call for call in results)


def test_pick_is_one_result():
    qr = call_of(CARD["qr"], (X,), {"mode": "reduced"})
    pick = pick_call(qr, 1)
    assert pick.primitive is PICK and pick.out == qr.outs[1]
    assert pick.compute(("q", "r")) == "r" and pick.cost.flops == 0


def test_attrs_that_cannot_be_hashed_make_a_call_of_their_own():
    before = len(calls)
    first, second = (call_of(CARD["sum"], (X,), {"axes": [0]}, X) for _ in range(2))
    assert first is not second and len(calls) == before


def test_calls_that_nobody_refers_to_go(monkeypatch):
    gc.collect()
    module.drop_unused_calls()
    kept = call_of(CARD["exp"], (Spec((7, 77), gh.float32),), {})
    monkeypatch.setattr(module.CallLimit, "now", len(calls) + 50)
    for n in range(2000):
        call_of(CARD["exp"], (Spec((n, 78), gh.float32),), {})
        assert len(calls) <= max(module.CallLimit.now, module.MOST_CALLS)
    assert len(calls) < 2000 or module.CallLimit.now >= module.MOST_CALLS
    module.drop_unused_calls()
    assert call_of(CARD["exp"], (Spec((7, 77), gh.float32),), {}) is kept
    assert not any(key[-1] == Spec((5, 78), gh.float32) for key in calls)
