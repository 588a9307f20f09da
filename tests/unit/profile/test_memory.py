"""Memory at the peak, tensor by tensor; the arena of a Program taken apart."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.dispatch.backend import use_backend
from glasshouse.nn import functional as F
from glasshouse.profile.memory import UNUSED, sizes_in_arena, values_in_arena
from glasshouse.profile.naming import name_of_value
from glasshouse.profile.report import data_of


@pytest.fixture(scope="module")
def trained():
    """A profile of a captured training step whose Program has an arena."""
    layers = [gh.nn.Linear(64, 256), gh.nn.ReLU(), gh.nn.Linear(256, 256), gh.nn.ReLU()]
    model = gh.nn.Sequential(*layers, gh.nn.Linear(256, 8))
    optimizer = gh.optim.SGD(model.parameters(), lr=0.1)
    x = gh.asarray(np.ones((128, 64), np.float32))
    y = gh.asarray(np.arange(128) % 8)

    @gh.optimize
    def step():
        optimizer.zero_grad()
        loss = gh.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    with flags.override(compile="always"):
        for _ in range(3):
            step().item()
        with gh.profile(profile_memory=True, with_stack=True) as prof:
            for _ in range(3):
                step().item()
                prof.step()
    yield prof
    gh.reset()


def test_values_in_an_arena_do_not_overlap_nor_reach_beyond_it(trained):
    for program in trained.trace.programs:
        for values in values_in_arena(program):
            places = sorted((v.at, v.at + v.nbytes) for v, _ in values)
            assert all(a[1] <= b[0] for a, b in zip(places, places[1:], strict=False))
            assert not places or places[-1][1] <= program.arena_bytes


def test_the_peak_is_taken_apart_tensor_by_tensor(trained):
    memory = trained.memory()
    tensors = memory.tensors
    blocks = sum(a.nbytes for a in memory.alive)
    assert sum(t.nbytes for t in tensors) == blocks <= memory.peak_bytes
    inside = [t for t in tensors if t.in_arena and t.tag != UNUSED]
    assert {t.tag.module for t in inside} & {"Sequential.1", "Sequential.3"}
    assert all(t.spec for t in inside) and any(__file__ in t.line for t in inside)
    unused = sum(t.nbytes for t in tensors if t.tag == UNUSED)
    assert unused < 0.1 * memory.peak_bytes
    assert "(arena)" in memory.table() and "\narena " not in memory.table().replace(str(UNUSED), "")


def test_outputs_have_their_shapes_and_lines_too(trained):
    outside = [t for t in trained.memory().tensors if not t.in_arena and t.tag.phase == "backward"]
    assert outside and all(t.spec and __file__ in t.line for t in outside)


@pytest.mark.parametrize(
    ("fn", "names"),
    [
        (F.relu, {"relu"}),
        (lambda x: F.softmax(x, dim=-1), {"exp in softmax", "softmax"}),
        (lambda x: x * 2, {"mul"}),
    ],
)
def test_values_are_named_by_the_functions_that_they_are_of(fn, names):
    with use_backend("lazy"), flags.override(compile="always"):
        x = gh.randn(64, 256)
        with gh.profile(profile_memory=True) as prof:
            fn(gh.exp(x) if names == {"mul"} else x).numpy()
    infos = [info for program in prof.trace.programs for info in program.step_infos()]
    stored = {name_of_value(info, v) for info in infos for v in (*info.arena, *info.outputs)}
    assert stored & names, stored


def test_what_is_in_use_is_at_most_what_is_allocated(trained):
    memory = trained.memory()
    assert len(memory.in_use) > 0
    for times, nbytes in memory.in_use:
        assert len(times) == len(nbytes) and nbytes.max() <= memory.peak_bytes
        assert (np.diff(times) >= 0).all()
    program = max(trained.trace.programs, key=lambda p: p.arena_bytes)
    assert max(sum(sizes.values()) for sizes in sizes_in_arena(program)) <= program.arena_bytes


def test_the_report_has_the_tensors(trained):
    memory = data_of(trained.trace)["memory"]
    assert sum(t[3] for t in memory["tensors"]) <= memory["peak_bytes"]
    assert all(len(times) == len(nbytes) > 1 for times, nbytes in memory["in_use"])
    assert len(memory["in_use"]) > 0


def test_a_table_ends_with_all_others(trained):
    text = trained.memory().table(row_limit=2)
    assert "others (" in text
