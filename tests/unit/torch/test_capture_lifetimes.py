"""How long tensors live where a step of PyTorch is captured, and where it runs as Programs: as in
eager, to the last reference."""

import contextlib
import runpy
import sys
import weakref
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import glasshouse as gh  # noqa: E402
from glasshouse.capture.guards.guard_set import GuardSet  # noqa: E402
from glasshouse.capture.trace.frame_stack import FrameStack  # noqa: E402
from glasshouse.capture.trace.heap import TraceHeap  # noqa: E402
from glasshouse.capture.trace.operands import GraphOperands  # noqa: E402
from glasshouse.capture.values.var import Recipe, Var  # noqa: E402
from glasshouse.ir.graph import IRGraph  # noqa: E402
from glasshouse.torch.front import calls as front_calls  # noqa: E402
from glasshouse.torch.front import dead_values  # noqa: E402
from glasshouse.torch.front import nodes as front_nodes  # noqa: E402
from glasshouse.torch.front.checks import LeafBefore  # noqa: E402
from glasshouse.torch.front.numbers import memory_of  # noqa: E402

TRACKER = runpy.run_path(str(Path(__file__).parents[3] / "tools" / "judges" / "torch_tracker.py"))
pytestmark = pytest.mark.library_warnings


def network():
    torch.manual_seed(0)
    layers = (part for _ in range(4) for part in (nn.Linear(64, 64), nn.GELU()))
    return nn.Sequential(*layers)


def step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def peaks(fn, steps: int, rows: int) -> list[int]:
    """Bytes at the peak of each step, as PyTorch's allocator and our manager hand them out."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(rows, 64)
    first_bytes = TRACKER["own_bytes"](list(model.parameters()), x)
    with TRACKER["MemoryLog"]() as log:
        for _ in range(steps):
            with torch.profiler.record_function("step"):
                fn(model, optimizer, x)
    return log.peaks(first_bytes)


@pytest.mark.parametrize("rows", [16, 512])
def test_calls_that_are_captured_hold_no_more_than_eager(rows, monkeypatch):
    """Parameters are most of the bytes of the one, activations of the other."""
    monkeypatch.setattr(front_nodes, "COMPUTED_BYTES", 0)
    # A profiler is on, and regions of the optimizer's would break the graph. The front end has
    # imported the class itself.
    assert front_calls.record_function is torch.autograd.profiler.record_function
    monkeypatch.setattr(torch.autograd.profiler, "record_function", contextlib.nullcontext)
    captured = gh.optimize("eager")(step)
    ours = peaks(captured, 2, rows)
    assert captured.hits == 0
    for own, eager in zip(ours, peaks(step, 2, rows), strict=True):
        assert own <= 1.02 * eager


class Depthwise(nn.Module):
    """A network whose gradients lie otherwise in a Program than in eager, along an axis of one."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.deep, self.last = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Linear(8, 4)

    def forward(self, x):
        x = self.first(x).permute(0, 2, 3, 1)
        x = nn.functional.layer_norm(x, (8,)).permute(0, 3, 1, 2)
        return self.last(self.deep(x).permute(0, 2, 3, 1)).mean((1, 2))


def test_gradients_that_are_replaced_may_lie_in_any_way():
    model = Depthwise()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    captured = gh.optimize("eager")(step)
    for _ in range(2):
        captured(model, optimizer, torch.randn(2, 3, 8, 8))
    with torch.no_grad():
        model.deep.weight.grad = model.deep.weight.grad.as_strided((8, 1, 3, 3), (9, 1, 3, 1))
    captured(model, optimizer, torch.randn(2, 3, 8, 8))
    assert captured.hits == 1


def test_gradients_that_are_read_lie_as_they_did():
    """Where an operation is given a gradient, other strides are another graph."""
    weight = nn.Parameter(torch.randn(4, 3))
    accumulate = gh.optimize("eager")(lambda: weight.grad * 2)
    weight.grad = torch.randn(4, 3)
    accumulate()
    weight.grad = torch.randn(3, 4).t()
    doubled = accumulate()
    assert torch.equal(doubled, weight.grad * 2) and doubled.stride() == (1, 4)


def test_a_step_inside_try_keeps_no_gradients_that_it_replaces():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    alive: list[int] = []
    before: list[weakref.ref] = []

    def compiler(graph, _inputs):
        def run(*args):
            alive.append(sum(gradient() is not None for gradient in before))
            return graph(*args)

        return run

    def loss_of(x):
        try:
            return model(x).square().mean()
        except ValueError:
            return model(x).sum()

    @gh.optimize(compiler)
    def train(x):
        optimizer.zero_grad()
        loss = loss_of(x)
        loss.backward()
        optimizer.step()

    x = torch.randn(16, 64)
    for _ in range(3):
        train(x)
    before += [weakref.ref(p.grad.untyped_storage()) for p in model.parameters()]
    alive.clear()
    train(x)
    assert train.hits == 2
    assert alive and not any(alive)


def test_a_gradient_is_restored_or_zeros_stand_for_it():
    kept, gone, none = (nn.Parameter(torch.randn(3, 2)) for _ in range(3))
    kept.grad, gone.grad = torch.ones(3, 2), torch.ones(3, 2)
    gradient = kept.grad
    before = [LeafBefore(x) for x in (kept, gone, none)]
    kept.grad, gone.grad, none.grad = None, None, torch.ones(3, 2)
    for leaf in before:
        leaf.restore_gradient()
    assert kept.grad is gradient and none.grad is None
    assert gone.grad.shape == (3, 2) and gone.grad.untyped_storage().nbytes() == 4


class Trace:
    """The parts of a trace that `drop_dead_values` reads."""

    def __init__(self, *variables: Var):
        self.heap, self.operands = TraceHeap(GuardSet(FrameStack())), GraphOperands()
        self.heap.tracked = {id(x.value): x for x in variables}


def node():
    return IRGraph().placeholder("x")


def test_what_nothing_refers_to_is_dropped_with_what_is_in_it():
    parts = [Var(torch.ones(2), node()), Var(torch.ones(3), node())]
    whole = Var([x.value for x in parts], Recipe("list"), list(parts))
    trace = Trace(*parts, whole)
    dead_values.drop_dead_values(trace)
    assert len(trace.heap.tracked) == 3
    del whole
    dead_values.drop_dead_values(trace)
    assert list(trace.heap.tracked.values()) == parts  # which this test has
    parts.pop()
    dead_values.drop_dead_values(trace)
    assert list(trace.heap.tracked.values()) == parts


def test_what_python_or_a_trace_has_is_not_dropped():
    value = torch.ones(2)
    trace = Trace(Var(value, node()), Var(torch.ones(3), node(), {"grad": Var(None)}))
    dead_values.drop_dead_values(trace)
    assert len(trace.heap.tracked) == 2


def test_what_autograd_has_is_dropped():
    x = torch.ones(3, requires_grad=True)
    trace = Trace(Var(x * 2, node()))
    (output,) = trace.heap.tracked.values()
    result = output.value.square().sum()
    reference = weakref.ref(output.value.untyped_storage())
    del output
    dead_values.drop_dead_values(trace)
    assert not trace.heap.tracked and reference() is not None  # autograd has it still
    result.backward()
    assert reference() is None
    assert x.grad.tolist() == [8, 8, 8]


def test_references_are_counted_as_python_counts_them():
    value = object()
    counted, more = (dead_values.count_references({0: Var(x)}, 0)[1] for x in (object(), value))
    assert more == counted + 1 and sys.getrefcount(value) >= 2


def test_memories_have_numbers_that_are_not_used_again():
    first = torch.ones(3)
    view, number = first.view(3, 1), memory_of(first)
    assert memory_of(view) == number
    del first
    assert memory_of(view) == number
    del view
    assert memory_of(torch.ones(3)) != number
