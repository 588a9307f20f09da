"""Kernels of one pattern are written once, and read as if each had been written by itself."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.kernels import emit_c, kernel_pattern
from glasshouse.compile.planning.plan import PASSES, ProgramPlan
from glasshouse.compile.programs.code import assemble
from glasshouse.graph import record
from glasshouse.graph.graph import graph_of, transform
from glasshouse.graph.simplify import simplest, simplify
from glasshouse.nn import functional as F

SHAPES = [(8, 16), (9, 16), (16, 9), (1, 16), (8, 1), (3, 4096), (3, 4097), (5000, 3), (2, 70000)]


@pytest.fixture(autouse=True)
def no_template():
    kernel_pattern.templates.clear()
    yield
    kernel_pattern.templates.clear()


def draw(*shape):
    return gh.asarray(np.ones(shape, np.float32))


def graph_from(make):
    """The graph of what a function records, before the passes."""
    with gh.backends.use("lazy") as backend:
        backend.evaluate()
        results = make()
        recording = record.recorder.take()
    graph = graph_of(recording)
    del results
    return graph


def emitted(make):
    """The arguments and the text of each step."""
    graph = graph_from(make)
    for _, rewrite in PASSES:
        graph = rewrite(graph)
    return [(step.args, step.what) for step in assemble(ProgramPlan(graph)).steps]


def mixed(shape):
    """Rows, columns, strides that are equal by chance or not, counts, a gather."""
    x, y = draw(*shape), draw(*shape[::-1])
    z = F.softmax(x + gh.permute_dims(y, (1, 0)), dim=-1) / 100
    rows = gh.arange(shape[0]) % 4
    total = z.mean(axis=0) + F.embedding(rows, draw(shape[0], shape[1])).mean(axis=0)
    return z * 37, total, gh.concat([x, x * 2], axis=1)[:, 1:], x.max(axis=1), x.sum()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_text_is_that_of_a_kernel_written_by_itself(shape):
    alone = emitted(lambda: mixed(shape))
    kernel_pattern.templates.clear()
    for other in SHAPES:
        emitted(lambda other=other: mixed(other))
    assert emitted(lambda: mixed(shape)) == alone


def test_equal_layers_and_other_sizes_are_written_once(monkeypatch):
    written = []
    write = emit_c.KernelEmitter.emit

    def counted(emitter):
        written.append(emitter.kernel)
        return write(emitter)

    def layers(n, count):
        x = draw(n, 48)
        for _ in range(count):
            x = F.layer_norm(F.gelu(x @ draw(48, 48)), (48,), draw(48), draw(48))
        return (x,)

    monkeypatch.setattr(emit_c.KernelEmitter, "emit", counted)
    two = len(emitted(lambda: layers(20, 2)))
    one = len(written)
    assert len(emitted(lambda: layers(20, 6))) > two
    emitted(lambda: layers(36, 6))
    assert len(written) == one


def test_verification_writes_each_kernel_anew(monkeypatch):
    def wrong(pattern):
        pattern.key = ()  # all kernels are one

    fill = kernel_pattern.KernelPattern.__init__
    monkeypatch.setattr(
        kernel_pattern.KernelPattern,
        "__init__",
        lambda self, *args: (fill(self, *args), wrong(self))[0],
    )
    with flags.override(verify=True), pytest.raises((AssertionError, IndexError)):
        emitted(lambda: mixed((8, 16)))


@pytest.mark.parametrize("shape", SHAPES[:4])
def test_rules_leave_nothing_for_a_second_time(shape):
    def make():
        x = gh.tensor(np.ones(shape, np.float32), requires_grad=True)
        h = F.relu(F.layer_norm(x, shape[1:], draw(shape[1]), draw(shape[1])) @ draw(shape[1], 5))
        loss = F.cross_entropy(F.softmax(h, dim=-1) + 0, gh.asarray(np.zeros(shape[0], np.int64)))
        loss.backward()
        return x.grad, (0 - loss) * 1, gh.concat([x[:, :1], x[:, 1:]], axis=1).sum()

    graph = simplify(graph_from(make))
    assert str(transform(graph, simplest)) == str(graph)
    for _, rewrite in PASSES[1:]:
        graph = rewrite(graph)
    assert str(simplify(transform(graph, simplest))) == str(graph)
