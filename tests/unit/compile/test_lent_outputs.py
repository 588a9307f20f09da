"""Values in between that lie in outputs: nothing is overwritten that is still read."""

import itertools

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base import having
from glasshouse.base.flags import flags
from glasshouse.compile.lowering.target import current_target
from glasshouse.compile.planning.plan_memory import aligned_bytes
from glasshouse.compile.programs import program
from glasshouse.dispatch.bind import state
from glasshouse.graph import record

SIDE = 768  # a matrix is above the smallest that is lent


def chain(x, w):
    """Products of which each lives for a while; the results are written one after the other."""
    a = x @ w
    b = a @ w
    c = gh.sin(b @ a.T)
    d = c @ w + a
    return b + 1, d @ c, c.sum(), gh.exp(-d * d)


def table(x, w):
    """The gradient of a table that is looked up and multiplied with: scattered into a product."""
    rows = gh.asarray(np.arange(0, SIDE, 3) % 50)

    def loss(w):
        return (gh.sin(w[rows] @ w.T) * 0.1).sum()

    return gh.grad(loss)(w), (x @ w) @ x, x + w


def computed(function, lends: bool):
    """Results of a function as one Program, and its plan."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((SIDE, SIDE)).astype(np.float32) / 28 for _ in range(2)]
    target = current_target().extension(("lends", lends), lends_outputs=lends)
    with (
        flags.override(compile="always"),
        gh.backends.use("lazy"),
        having(state, compile_target=target),
        program.plans_kept(),
    ):
        results = function(*map(gh.asarray, arrays))
        kernel_program = program.compiled(record.describe(record.recorder.pending))
        gh.eval(*results)
    return [x.numpy() for x in results], kernel_program.plan


@pytest.mark.parametrize("function", [chain, table])
def test_results_are_the_same_and_the_arena_is_smaller(function):
    plain, plan = computed(function, False)
    lent, smaller = computed(function, True)
    for a, b in zip(plain, lent, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not any(buffer.host for step in plan.schedule for buffer in step.writes())
    assert smaller.arena_bytes < plan.arena_bytes
    check_guests(smaller)


def check_guests(plan):
    """Check that a guest in an output ends before that is written, and lies apart from other
    guests."""
    lives = {}
    for i, step in enumerate(plan.schedule):
        for buffer in (*step.writes(), *step.reads()):
            lives.setdefault(buffer, [i, i])[1] = i
    guests = [buffer for buffer in lives if buffer.host is not None]
    assert guests
    for buffer in guests:
        assert aligned_bytes(buffer) <= aligned_bytes(buffer.host)
        last, written = lives[buffer][1], lives[buffer.host][0]
        in_place = last == written and buffer.spec == buffer.host.spec
        assert last < written or in_place
    for a, b in itertools.combinations(guests, 2):
        if a.host is b.host:
            first, second = sorted((lives[a], lives[b]))
            assert first[1] <= second[0]


def test_a_product_that_is_scattered_into_lies_where_the_sum_goes():
    _, plan = computed(table, True)
    added = next(x for x in plan.schedule if x.node is not None and x.node.op == "scatter_add")
    target = next(iter(added.writes()))
    assert target in added.reads()
    results = {b for x in plan.schedule for b in x.writes() if b.host is target}
    assert results  # the product is computed there …
    copies = [x for x in plan.schedule if x.node is None and x.reads() & results]
    assert not any(target in x.writes() for x in copies)  # … and not copied


def gradients(x, w):
    """A large value whose last reader was recorded last, with much in between."""
    wide = gh.sin(x @ w)
    y = wide @ w
    for _ in range(6):
        y = gh.sin(y @ w)
    return y, wide.T @ x


def test_what_ends_a_large_value_runs_as_soon_as_it_can():
    plain, _ = computed(gradients, False)
    lent, plan = computed(gradients, True)
    for a, b in zip(plain, lent, strict=True):
        np.testing.assert_array_equal(a, b)
    order = plan.schedule
    ends = next(i for i, x in enumerate(order) if plan.output_buffers[1] in x.writes())
    assert ends < len(order) - 6
    written = set()
    for step in order:  # everything is there when it is read
        assert all(b in written or b.place == "input" for b in step.reads() - step.writes())
        written |= step.writes()
