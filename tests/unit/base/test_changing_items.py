"""Dictionaries of the whole process are read while other threads change them."""

import gc
from contextlib import contextmanager

import pytest

import glasshouse as gh
from glasshouse.base.interpreter import items_of
from glasshouse.base.shape import Spec
from glasshouse.compile.programs import program
from glasshouse.dispatch import call
from glasshouse.dispatch.scope import Origin
from glasshouse.profile.counter import FlopCounter

ENTRIES = 5_000  # more than the tuples that CPython has ready, which start no collection


@contextmanager
def changed_at_collections(mapping, key, value):
    """Add to a dictionary at each collection of garbage, and remove it at the next, as another
    thread does that takes its turn there; collections are frequent."""

    def change(phase, info):
        if phase == "start" and mapping.pop(key, None) is None:
            mapping[key] = value

    before = gc.get_threshold()
    gc.callbacks.append(change)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(change)
        mapping.pop(key, None)


def test_items_that_do_not_change_are_all_there():
    mapping = {number: str(number) for number in range(ENTRIES)}
    with changed_at_collections(mapping, "other", "value"):
        items = items_of(mapping)
    assert [item for item in items if item[0] != "other"] == list(mapping.items())


@pytest.fixture
def many_programs(monkeypatch):
    entries = {("many", number): program.ProgramEntry(1) for number in range(ENTRIES)}
    monkeypatch.setattr(program, "programs", entries)
    return entries


def test_programs_are_evicted_while_others_are_added(many_programs):
    kept = program.ProgramEntry(1)
    with changed_at_collections(many_programs, "other", program.ProgramEntry(1)):
        for _ in range(3):
            program.evict_programs(kept)


def test_unused_calls_are_dropped_while_others_are_added(monkeypatch):
    calls = {number: object() for number in range(ENTRIES)}
    monkeypatch.setattr(call, "calls", calls)
    monkeypatch.setattr(call.CallLimit, "now", call.CallLimit.now)
    with changed_at_collections(calls, "other", "value"):
        call.drop_unused_calls()
    assert not calls


def test_counts_are_read_while_others_are_added():
    spec = Spec((2,), gh.float32)
    addition = call.call_of(gh.primitives["add"], (spec, spec), {})
    counter = FlopCounter()
    counter.counts.update({(addition, Origin(place=n)): [1] for n in range(ENTRIES)})
    with changed_at_collections(counter.counts, (addition, Origin()), [1]):
        assert counter.sent_bytes() == {}
