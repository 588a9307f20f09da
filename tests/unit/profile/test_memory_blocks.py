"""Blocks of memory over time: whose each was, from when to when, and who asked for it."""

import json

import numpy as np
import pytest
from tests.unit.profile.fabricated import MS, Clock

import glasshouse as gh
from glasshouse.base import OptionError
from glasshouse.base.flags import flags
from glasshouse.memory import Tag
from glasshouse.profile.holders import OTHERS, kind_of
from glasshouse.profile.report import data_of

pytestmark = pytest.mark.usefixtures("own_memory")


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_a_block_is_there_from_its_allocation_to_its_end(clock):
    large, small, kept = (Tag(name) for name in ("large", "small", "kept"))
    with gh.profile(profile_memory=True) as prof:
        tell = prof.recorder.library_memory
        tell("existed", 1, 500, kept, "float32[125]")
        clock.pass_time(1)
        tell("alloc", 2, 4_000, large)
        clock.pass_time(2)
        tell("alloc", 3, 30, small)
        tell("free", 2, 4_000, large)
        clock.pass_time(3)
        tell("alloc", 2, 40, small)  # where another one was
        clock.pass_time(4)
    results = [
        (b.tag, b.nbytes, b.begin_ns / MS, b.end_ns / MS)
        for b in prof.memory_blocks()
        if b.tag in (large, small, kept)
    ]
    assert results == [
        (large, 4_000, 1, 3),
        (kept, 500, 0, 10),
        (small, 40, 6, 10),
        (small, 30, 3, 10),
    ]
    assert [b.nbytes for b in prof.memory_blocks(1)] == [4_000]
    assert "large" in str(prof.memory_blocks())


def assert_blocks_are_what_is_allocated(prof):
    """At each moment the blocks that are there have the bytes that are allocated then."""
    memory, blocks = prof.memory(), prof.memory_blocks(10**6)
    begins, ends, nbytes = np.array([(b.begin_ns, b.end_ns, b.nbytes) for b in blocks]).T
    is_last = np.append(np.diff(memory.time_ns) > 0, True)  # of those at one time
    for time_ns, allocated in zip(memory.time_ns[is_last], memory.allocated[is_last], strict=True):
        inside = (begins <= time_ns) & ((time_ns < ends) | (ends == prof.trace.wall_ns))
        assert nbytes[inside].sum() == pytest.approx(allocated, abs=64 * len(blocks))
    assert max(nbytes) == blocks[0].nbytes


def test_blocks_of_ours_add_up_and_have_their_line(tmp_path):
    model = gh.nn.Sequential(gh.nn.Linear(64, 256), gh.nn.ReLU(), gh.nn.Linear(256, 8))
    optimizer = gh.optim.AdamW(model.parameters(), lr=0.1)
    x = gh.asarray(np.ones((128, 64), np.float32))
    with flags.override(compile="always"), gh.profile(profile_memory=True, with_stack=True) as prof:
        for _ in range(3):
            optimizer.zero_grad()
            (model(x) ** 2).mean().backward()
            optimizer.step()
            model[0].weight.numpy()
            prof.step()
    blocks, memory = prof.memory_blocks(10**6), prof.memory()
    at_peak = [b for b in blocks if b.begin_ns <= memory.peak_ns < b.end_ns]
    assert sum(b.nbytes for b in at_peak) == sum(a.nbytes for a in memory.alive)
    blocks = prof.memory_blocks()
    weight = [b for b in blocks if b.nbytes == 64 * 256 * 4 and b.begin_ns]
    assert weight and all(b.stack and __file__ in b.line for b in weight if b.spec)
    again = gh.profile.read(prof.export_chrome_trace(tmp_path / "t.json"))
    assert str(again.memory_blocks()) == str(blocks)
    assert [b.stack for b in again.memory_blocks()] == [b.stack for b in blocks]
    live, stored = (json.dumps(data_of(p.trace)["memory"]["blocks"]) for p in (prof, again))
    assert live == stored


def test_blocks_of_pytorch_have_operator_shape_and_stack():
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU())
    optimizer, x = torch.optim.AdamW(net.parameters()), torch.ones(128, 64)
    with gh.profile(profile_memory=True, with_stack=True) as prof:
        for _ in range(3):
            net(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            prof.step()
    assert_blocks_are_what_is_allocated(prof)
    blocks = prof.memory_blocks()
    relu = [b for b in blocks if b.tag.primitive == "aten::relu"]
    assert len(relu) == 3 and all(b.spec == "float32[128, 256]" for b in relu)
    first = test_blocks_of_pytorch_have_operator_shape_and_stack.__code__.co_firstlineno
    assert all(b.stack[0].startswith(f"{__file__}({first + 6})") for b in relu)
    shown = data_of(prof.trace)["memory"]  # the page too has shapes and lines
    assert [row[6] for row in shown["blocks"]] == [b.spec for b in blocks]
    assert any(row[0] == "aten::relu" and row[4] and row[5] for row in shown["tensors"])
    kinds = {kind_of(b.tag) for b in blocks}
    assert {"parameters", "gradients", "optimizer state", OTHERS} <= kinds


def test_without_memory_there_are_none():
    with gh.profile() as prof:
        pass
    with pytest.raises(OptionError, match="profile_memory"):
        prof.memory_blocks()
