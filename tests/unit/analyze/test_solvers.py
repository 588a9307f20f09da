"""Which values are kept: a minimum cut and the chain's program against the exact optimum."""

import itertools

import numpy as np
import pytest

from glasshouse.analyze.planner import solvers
from glasshouse.analyze.planner.chain import Option, Stage, cheapest
from glasshouse.analyze.planner.solvers import (
    FlowNetwork,
    PricedCuts,
    SolverValue,
    cut_at,
    exact,
    min_cut,
    without_needless,
)

BACKWARD = 2  # a backward pass takes about twice as long as a forward pass


def network(rng, count: int, chain: bool) -> list[SolverValue]:
    """A forward pass of elementwise work and products, all of it read by its backward pass or by
    what follows; products cost a hundred times as much a byte."""
    values: list[SolverValue] = []
    for i in range(count):
        nbytes = int(rng.integers(1, 64)) << 16
        is_product = rng.random() < 0.3
        ns = float(nbytes * rng.uniform(0.5, 2) * (1 if is_product else 0.01))
        before = range(max(0, i - 1 if chain else i - 6), i)
        size = min(len(before), 1 if chain else int(rng.integers(1, 4)))
        parents = tuple(sorted(rng.choice(before, size, replace=False).tolist())) if i else ()
        read = rng.random() < 0.7 or i == count - 1
        reads = (float(2 * count - i - 1), float(2 * count - i)) if read else None
        values.append(SolverValue(nbytes, ns if i else None, parents, reads))
    return values


def step_ns(values) -> float:
    return (1 + BACKWARD) * sum(v.ns or 0.0 for v in values)


def brute(values, room: int) -> float | None:
    """The least ns over all choices of what is kept."""
    costs = []
    for bits in itertools.product((False, True), repeat=len(values)):
        kept = {i for i, bit in enumerate(bits) if bit}
        result = without_needless(values, kept, set(range(len(values))) - kept)
        if result.nbytes <= room and all(values[i].ns is not None for i in result.remade):
            costs.append(result.ns)
    return min(costs, default=None)


@pytest.mark.quick
def test_the_exact_solver_is_exact():
    pytest.importorskip("scipy")
    rng = np.random.default_rng(0)
    refused = 0
    for trial in range(24):
        values = network(rng, 9, chain=trial % 2 == 0)
        whole = sum(v.nbytes for v in values if v.reads)
        room = int(whole * rng.uniform(0.05, 0.9))
        best, result = brute(values, room), exact(values, room)
        assert (best is None) == (result is None)
        refused += best is None
        if result is not None:
            assert result.nbytes <= room and result.ns == pytest.approx(best, rel=1e-6)
    assert refused < 12


@pytest.mark.parametrize("chain", [True, False])
def test_min_cuts_are_near_the_exact_optimum_on_graphs_of_up_to_60_values(chain):
    pytest.importorskip("scipy")
    rng, compared = np.random.default_rng(1), 0
    for count in (12, 24, 36, 48, 60):
        for part in (0.75, 0.5, 0.3):
            values = network(rng, count, chain)
            room = int(part * sum(v.nbytes for v in values if v.reads))
            best, result = exact(values, room), min_cut(values, room)
            assert (best is None) == (result is None)
            if best is not None:
                assert result.nbytes <= room and best.nbytes <= room
                assert step_ns(values) + result.ns <= 1.03 * (step_ns(values) + best.ns)
                compared += 1
    assert compared > 10


def options_of(rng, count: int) -> list[list[Option]]:
    return [
        [
            Option(i, Stage(*rng.integers(1, 50, 2).tolist(), float(rng.integers(100, 150))))
            for i in range(3)
        ]
        for _ in range(count)
    ]


def exact_chain(options, around, room: int) -> float | None:
    """The least time of a chain by a mixed-integer program over its options."""
    optimize = pytest.importorskip("scipy.optimize")
    costs = np.array([o.stage.ns for own in options for o in own])
    ways, rows, most = len(options[0]), [], []
    for i in range(len(options) + 1):
        held = np.zeros(len(costs))
        for j, own in enumerate(options[:i]):
            held[j * ways : (j + 1) * ways] = [o.stage.held_bytes for o in own]
        rows.append(held), most.append(room - around[i])
        if i < len(options):
            used = held.copy()
            used[i * ways : (i + 1) * ways] = [o.stage.used_bytes for o in options[i]]
            rows.append(used), most.append(room)
    one = np.kron(np.eye(len(options)), np.ones(ways))
    limits = [
        optimize.LinearConstraint(np.array(rows), -np.inf, most),
        optimize.LinearConstraint(one, 1, 1),
    ]
    result = optimize.milp(
        costs, integrality=np.ones(len(costs)), bounds=(0, 1), constraints=limits
    )
    return None if result.x is None else float(result.fun)


def test_chains_are_solved_to_the_exact_optimum():
    rng, compared = np.random.default_rng(2), 0
    for count in (5, 20, 40, 60):
        for part in (0.3, 0.5, 0.7):
            options = options_of(rng, count)
            around = rng.integers(0, 40, count + 1).tolist()
            room = int(part * 25 * count) + 60
            best, result = exact_chain(options, around, room), cheapest(options, around, room)
            assert (best is None) == (result is None)
            if best is not None:
                total = sum(options[i][n].stage.ns for i, n in enumerate(result))
                assert total <= 1.03 * best
                compared += 1
    assert compared > 6


def test_what_is_made_again_counts_while_it_is_alive():
    """A chain of which only the ends can be kept: made at once, it is all there at once."""
    pytest.importorskip("scipy")
    values = [SolverValue(1, None, (), (9.0, 9.0))]
    values += [SolverValue(10, 1.0, (i,), (8.0 - i, 9.0 - i)) for i in range(6)]
    assert exact(values, 1).remade == frozenset(range(1, 7))
    assert exact(values, 1, [(3.0, 61)]).remade == frozenset(range(1, 7))
    assert exact(values, 1, [(3.0, 45)]) is None
    half = exact(values, 21, [(3.0, 45)])
    assert half is not None and half.ns < 6


def test_a_cut_is_a_minimum():
    flow = FlowNetwork(4)
    for a, b, capacity in ((0, 1, 3.0), (0, 2, 2.0), (1, 2, 1.0), (1, 3, 2.0), (2, 3, 4.0)):
        flow.add(a, b, capacity)
    assert flow.cut(0, 3) == [True, False, False, False]
    values = [
        SolverValue(8, None),
        SolverValue(8, 1.0, (0,), (1.0, 2.0)),
        SolverValue(None, 5.0, (1,), (0.0, 1.0)),
    ]
    assert cut_at(values, 0.0).kept == {1} and cut_at(values, 0.0).remade == {2}


@pytest.mark.parametrize("chain", [False, True])
def test_cuts_between_two_that_are_equal_are_not_computed(chain, monkeypatch):
    rng = np.random.default_rng(7)
    values = network(rng, 40, chain)
    prices = [0.0, *(10.0 ** rng.uniform(-4, 2, 200))]
    wanted = [cut_at(values, price) for price in prices]
    computed = []

    def counted(values, price):
        computed.append(price)
        return cut_at(values, price)

    monkeypatch.setattr(solvers, "cut_at", counted)
    cuts = PricedCuts(values)
    assert [cuts.at(price) for price in prices] == wanted
    assert len({choice.kept for choice in wanted}) <= len(computed) < len(prices) / 2
