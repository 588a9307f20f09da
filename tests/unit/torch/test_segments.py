"""Backward passes in segments: the same gradients in less memory."""

import pytest

import glasshouse as gh
from glasshouse.compile.planning import plan, plan_memory
from glasshouse.compile.programs.program import programs

torch = pytest.importorskip("torch")

from glasshouse.torch.lowering import segments  # noqa: E402
from glasshouse.torch.lowering.segments import BackwardSegment, Extent, segments_of  # noqa: E402
from glasshouse.torch.lowering.variant import CompiledVariant  # noqa: E402

WIDTH, ROWS, LAYERS = 128, 512, 6


def make_model() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = [x for _ in range(LAYERS) for x in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.Sigmoid())]
    return torch.nn.Sequential(*layers)


@pytest.fixture
def small_segments(monkeypatch):
    """Segments of a few values each; a list of the runs of segments that there were."""
    monkeypatch.setattr(segments, "SEGMENT_BYTES", ROWS * WIDTH * 4)
    runs: list[CompiledVariant] = []
    original = CompiledVariant.run_segments

    def run_segments(self, *args):
        runs.append(self)
        return original(self, *args)

    monkeypatch.setattr(CompiledVariant, "run_segments", run_segments)
    torch._dynamo.reset()
    yield runs
    torch._dynamo.reset()


def gradients(compiled: bool, retain: bool = False) -> tuple[list[torch.Tensor], int]:
    """The gradients of a second step, and the most that our manager handed out in it."""
    model = make_model()
    call = torch.compile(model, backend="glasshouse") if compiled else model
    x = torch.linspace(-1, 1, ROWS * WIDTH).reshape(ROWS, WIDTH)
    manager, before = gh.memory.current(), 0
    for _ in range(2):
        model.zero_grad()
        loss = call(x).square().sum()
        before = manager.stats().allocated_bytes
        manager.counts.peak_allocated_bytes = before
        loss.backward(retain_graph=retain)
        if retain:
            loss.backward()
    peak = manager.stats().peak_allocated_bytes - before
    return [p.grad.clone() for p in model.parameters()], peak


def test_extents_are_cut_where_enough_comes_or_goes():
    n = segments.SEGMENT_BYTES
    outputs = {0: Extent(0, 9, n), 1: Extent(6, 9, n // 2), 2: Extent(8, 9, n), 3: Extent(1, 5, n)}
    arguments = {4: Extent(0, 2, n), 5: Extent(0, 5, n // 2), 7: Extent(0, 9, n)}
    assert segments_of(10, outputs, arguments) == [
        BackwardSegment(0, 1, [0], [], []),
        BackwardSegment(1, 3, [3], [], [4]),
        BackwardSegment(3, 6, [], [3], [5]),
        BackwardSegment(6, 8, [1], [], []),
        BackwardSegment(8, 10, [2], [], [7]),
    ]
    assert segments_of(10, {0: Extent(0, 9, n)}, {1: Extent(0, 9, 1)}) == []


@pytest.mark.slow
def test_gradients_are_the_same_in_less_memory(small_segments, monkeypatch):
    want, _ = gradients(False)
    got, peak = gradients(True)
    assert small_segments and len(small_segments[-1].segments) > LAYERS
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 1 << 40)
    torch._dynamo.reset()
    del small_segments[:]
    whole, whole_peak = gradients(True)
    assert not small_segments
    for a, b, c in zip(want, got, whole, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-3)
        assert torch.equal(b, c)
    weights = LAYERS * WIDTH * WIDTH * 4
    assert peak < whole_peak - weights // 2


def language_model_gradients(compiled: bool) -> tuple[list[torch.Tensor], int]:
    """Those of an embedding, a few layers and a product with a large vocabulary, and the most that
    our manager handed out in the backward pass."""
    torch.manual_seed(0)
    words = torch.arange(ROWS) % 7
    layers = torch.nn.Embedding(32 * ROWS, WIDTH), *make_model(), torch.nn.Linear(WIDTH, 4 * ROWS)
    model = torch.nn.Sequential(*layers)
    call = torch.compile(model, backend="glasshouse") if compiled else model
    manager = gh.memory.current()
    for _ in range(2):
        model.zero_grad()
        loss = torch.nn.functional.cross_entropy(call(words), words)
        before = manager.stats().allocated_bytes
        manager.counts.peak_allocated_bytes = before
        loss.backward()
    peak = manager.stats().peak_allocated_bytes - before
    return [p.grad.clone() for p in model.parameters()], peak


@pytest.mark.slow
def test_large_values_in_between_have_memory_just_while_they_live(small_segments, monkeypatch):
    want, _ = language_model_gradients(False)
    whole, whole_peak = language_model_gradients(True)
    for module in (plan, plan_memory):
        monkeypatch.setattr(module, "APART_BYTES", ROWS * WIDTH * 4)
    torch._dynamo.reset()
    programs.clear()
    del small_segments[:]
    got, peak = language_model_gradients(True)
    assert any(segment.ended for segment in small_segments[-1].segments)
    for a, b, c in zip(want, got, whole, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-6)
        assert torch.equal(b, c)
    assert peak < whole_peak


def test_a_graph_that_is_kept_is_walked_twice(small_segments):
    want, _ = gradients(False, retain=True)
    got, _ = gradients(True, retain=True)
    assert small_segments
    for a, b in zip(want, got, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-3)


def test_profiles_and_counters_see_each_step_once(small_segments):
    model = make_model()
    call = torch.compile(model, backend="glasshouse")
    x = torch.ones(ROWS, WIDTH)
    call(x).sum().backward()
    del small_segments[:]
    with gh.profile() as prof, gh.FlopCounter() as counter:
        call(x).sum().backward()
    assert small_segments
    flops = 2 * ROWS * WIDTH * WIDTH  # of a layer; the first one's input has no gradient
    assert counter.by_phase()["backward"] == flops * (2 * LAYERS - 1)
    backward = [x for x in prof.trace.program_runs if x.program is small_segments[0].program]
    (run,) = backward
    times = [run.begin_ns, run.first_ns, *run.ends_ns, run.end_ns]
    assert times == sorted(times)
