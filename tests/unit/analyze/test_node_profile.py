"""The rows of a node profile: what is saved is counted once, whatever shares it."""

import random
from types import SimpleNamespace

import pytest

from glasshouse.analyze.cost_table import NodeCost
from glasshouse.analyze.node_profile import NodeProfiler


def profiler_of(seed: int, keeps_results: bool) -> NodeProfiler:
    """A profiler of forty nodes that make, save and save again storages of changing sizes."""
    draw = random.Random(seed)
    graph = SimpleNamespace(keeps_results=keeps_results, is_colossal=False)
    profiler = NodeProfiler(graph, None)
    for node in range(40):
        profiler.costs[node] = NodeCost(*(f"{node}" for _ in range(6)))
        new = {draw.randrange(60): draw.randrange(9) for _ in range(3)}
        saved = {draw.randrange(60): draw.randrange(9) for _ in range(3)}
        profiler.new_bytes[node], profiler.saved_by[node] = new, saved
        profiler.saved |= saved
    return profiler


def sums(profiler: NodeProfiler):
    """(bytes saved up to each node), as the union of all that is saved up to it: the clear twin."""
    counted: dict = {}
    for node in profiler.costs:
        new = profiler.new_bytes[node]
        outputs = {key: profiler.saved[key] for key in new if key in profiler.saved}
        counted |= profiler.saved_by[node]
        alive = outputs | counted
        if profiler.graph.keeps_results:
            counted = alive
        yield sum(alive.values())


@pytest.mark.parametrize("keeps_results", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_rows_sum_what_is_saved(seed, keeps_results):
    profiler = profiler_of(seed, keeps_results)
    wanted = list(sums(profiler))
    rows = profiler.rows()
    assert [row.accumulate for row in rows] == wanted
    before = [0, *wanted[:-1]]
    assert [row.incremental for row in rows] == [a - b for a, b in zip(wanted, before, strict=True)]
