"""Garbage waits while TorchDynamo traces a program for our backend, and then no longer."""

import gc

import pytest

torch = pytest.importorskip("torch")

from torch._dynamo.callback import callback_handler  # noqa: E402

from glasshouse.torch.backend import trace_hooks  # noqa: E402
from glasshouse.torch.backend.entry_point import glasshouse  # noqa: E402
from glasshouse.torch.patches.dynamo import backend_within, callbacks  # noqa: E402
from glasshouse.torch.patches.names import are_found  # noqa: E402

pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.skipif(
        not are_found(callbacks, backend_within), reason="a PyTorch that does not tell the backend"
    ),
]


@pytest.fixture
def collects_while_traced():
    """Whether garbage is collected in each trace; seen after our own callback."""
    torch._dynamo.reset()
    log = []

    def look(*_told):
        log.append(gc.isenabled())

    callback_handler.register_start_callback(look)
    yield log
    callback_handler.remove_start_callback(look)


def program(x):
    return (x * 2).cos()


@pytest.mark.parametrize("options", [{}, {"options": {"threads": 1}}])
def test_garbage_waits_while_a_program_is_traced_for_us(collects_while_traced, options):
    x = torch.ones(3)
    result = torch.compile(program, backend=glasshouse, **options)(x)
    torch.testing.assert_close(result, program(x))
    assert collects_while_traced == [False]
    assert gc.isenabled()


def test_it_does_not_wait_for_other_backends(collects_while_traced):
    torch.compile(program, backend="eager")(torch.ones(3))
    assert collects_while_traced == [True]


def test_garbage_is_collected_after_a_trace_that_failed(collects_while_traced):
    def fails(x):
        return x @ torch.ones(7, 7)

    with pytest.raises(Exception, match="size|shape"):
        torch.compile(fails, backend=glasshouse, fullgraph=True)(torch.ones(3))
    assert collects_while_traced == [False]
    assert gc.isenabled()


def test_who_collects_no_garbage_goes_without_afterwards_too(collects_while_traced):
    gc.disable()
    try:
        torch.compile(program, backend=glasshouse)(torch.ones(3))
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert collects_while_traced == [False]


@pytest.fixture
def nothing_frozen():
    """Our tests freeze what they import."""
    gc.unfreeze()
    yield
    gc.freeze()


def test_what_survives_a_trace_counts_as_long_lived(nothing_frozen):
    results = [[] for _ in range(3)]
    gc.disable()
    try:
        trace_hooks.Heap().make_old()
        young = {id(x) for generation in (0, 1) for x in gc.get_objects(generation)}
    finally:
        gc.enable()
    assert not young.intersection(map(id, results))
    assert gc.get_freeze_count() == 0


def test_what_the_user_has_frozen_stays_so(nothing_frozen):
    gc.freeze()
    trace_hooks.Heap().make_old()
    assert gc.get_freeze_count()


def test_frozen_objects_are_counted_once(nothing_frozen, monkeypatch):
    gc.freeze()
    heap = trace_hooks.Heap()
    heap.make_old()
    monkeypatch.setattr(gc, "get_freeze_count", None)  # it goes through all of them
    heap.make_old()
    assert heap.has_frozen
