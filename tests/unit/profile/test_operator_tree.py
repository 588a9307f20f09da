"""Operators inside of operators, with own times and all of them."""

import json
from itertools import pairwise

import numpy as np
import pytest
from tests.unit.profile.fabricated import MS, Clock
from tests.unit.profile.test_utilisation import PROGRAM

import glasshouse as gh
from glasshouse.dispatch.watch import tell
from glasshouse.profile.operator_tree import MODE, RECORDING, OperatorTree
from glasshouse.profile.report import data_of


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


# (depth, name, ms from, ms to) of what a library notes in a step of 30 ms.
INNER = [
    (0, "aten::conv2d", 0, 16),
    (1, "aten::convolution", 1, 15),
    (2, MODE, 2, 14),
    (3, "aten::convolution", 4, 13),
    (4, "aten::_convolution", 5, 13),
    (5, "aten::mkldnn_convolution", 6, 12),
    (0, "autograd::engine::evaluate_function: X", 17, 20),
    (1, "X", 17, 20),
    (0, "aten::conv2d", 20, 22),
]
# (depth, name): total, self, calls.
EXPECTED = {
    (0, "aten::conv2d"): (18, 4, 2),
    (1, "aten::convolution"): (14, 3, 1),
    (2, RECORDING): (3, 3, 1),
    (2, "aten::_convolution"): (8, 2, 1),
    (3, "aten::mkldnn_convolution"): (6, 6, 1),
    (0, "X"): (3, 3, 1),
}
STEPS = 5


@pytest.fixture
def recorded(clock):
    begins = []
    with gh.profile() as prof:
        recorder = prof.recorder
        for i in range(STEPS):
            begins.append(clock.ns)
            clock.pass_time(30 + 100 * (not i))  # the first one is slow
            prof.step()
        names = [name for _ in begins for _, name, _, _ in INNER]
        times = [(b + f * MS, b + t * MS) for b in begins for _, _, f, t in INNER]
        recorder.read_inner_operators = lambda: (np.array(times), names)
    return prof


def rows_ms(tree):
    return {(row.depth, row.name): (row.total_ns / MS, row.self_ns / MS, row.calls) for row in tree}


def test_times_nest_and_what_the_dispatcher_calls_again_is_one_row(recorded):
    result = rows_ms(recorded.operator_tree())
    assert result == {key: pytest.approx(row) for key, row in EXPECTED.items()}


def test_rows_follow_what_they_lie_in(recorded):
    tree = recorded.operator_tree()
    for place, row in enumerate(tree):
        assert row.parent < place
        assert row.depth == (tree[row.parent].depth + 1 if row.parent >= 0 else 0)
    top = [row.total_ns for row in tree if not row.depth]
    assert top == sorted(top, reverse=True)
    assert sum(row.self_ns for row in tree) == pytest.approx(sum(top))


def test_the_longest_rows_have_those_around_them(recorded):
    tree = recorded.operator_tree()
    names = [row.name for _, row in tree.longest(4)]
    assert names == ["aten::conv2d", "aten::convolution", *names[2:]] and len(names) == 4
    assert "and 2 shorter ones" in tree.table(4)
    assert "    aten::_convolution" in str(tree)


def test_runs_of_programs_lie_in_passes_and_steps_in_runs(clock):
    with gh.profile() as prof:
        for _ in range(3):
            begin_ns = clock.ns
            clock.tell_run(PROGRAM, (5, 3, 2))
            clock.pass_time(2)
            tell("region", "optimizer", begin_ns)
            prof.step()
    rows = [(row.depth, row.total_ns / MS, row.self_ns / MS) for row in prof.operator_tree()]
    assert rows == [(0, 12, 2), (1, 10, 0), (2, 5, 5), (2, 3, 3), (2, 2, 2)]


def test_the_tree_is_read_back(recorded, tmp_path):
    again = gh.profile.read(recorded.export_chrome_trace(tmp_path / "t.json"))
    assert str(again.operator_tree()) == str(recorded.operator_tree())
    tree = json.loads(json.dumps(data_of(recorded.trace)["operator_tree"]))
    assert tree == json.loads(json.dumps(data_of(again.trace)["operator_tree"]))


def test_a_recording_of_nothing_has_no_rows():
    with gh.profile() as prof:
        pass
    assert not prof.operator_tree() and str(prof.operator_tree())


@pytest.mark.parametrize("inner", [False, True])
def test_pytorchs_inner_operators_are_seen_where_they_are_asked_for(inner):
    torch = pytest.importorskip("torch")
    net = torch.nn.Conv2d(3, 4, 3)
    with gh.profile(inner_operators=inner) as prof:
        for _ in range(4):
            net(torch.ones(1, 3, 8, 8)).sum().backward()
            prof.step()
    tree = prof.operator_tree()
    paths = {path_of(tree, row) for row in tree}
    chain = ("aten::conv2d", "aten::convolution", "aten::_convolution")
    assert (chain in paths) == inner
    assert any(path[-1].startswith("aten::convolution_backward") for path in paths)
    assert all(a != b for path in paths for a, b in pairwise(path))
    assert sum(row.self_ns for row in tree) <= 1.01 * prof.breakdown().steps.median_ns
    assert (
        len({row.name for row in prof.key_averages()} & set(chain)) == 1
    )  # the tables are as ever
    assert not torch.autograd._profiler_enabled()


def path_of(tree: OperatorTree, row) -> tuple[str, ...]:
    above = path_of(tree, tree[row.parent]) if row.parent >= 0 else ()
    return (*above, row.name)


def test_pytorchs_profiler_in_use_is_left_alone():
    torch = pytest.importorskip("torch")
    with torch.profiler.profile() as theirs, gh.profile(inner_operators=True) as prof:
        torch.ones(3) + 1
    assert not len(prof.trace.inner_operators) and len(theirs.events())
