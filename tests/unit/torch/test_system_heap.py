"""New memory that PyTorch takes from the system: the C library's heap, and real page faults."""

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from glasshouse.torch.tensors.system_heap import FIRST_THRESHOLD, LAST_THRESHOLD, SystemHeap

MIB = 1 << 20
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")

STEPS = """
import json, resource, sys
import torch
import glasshouse as gh

torch.set_num_threads(1)
sizes, kind = json.loads(sys.argv[1])
model = torch.nn.Sequential(*(torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])))
optimizer = getattr(torch.optim, kind)(model.parameters(), lr=1e-3)
x, y = torch.rand(8, sizes[0]), torch.rand(8, sizes[-1])
loss = torch.nn.MSELoss()
found = gh.analyze.step(model, loss, optimizer, [x, y], machine="cpu2", convention="torch")

def step():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    optimizer.zero_grad()
    output = model(x)
    value = loss(output, y)
    value.backward()
    optimizer.step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults = [step() for _ in range(5)][-1]
print(json.dumps([found.new_bytes, faults * resource.getpagesize()]))
"""


def test_what_is_larger_than_the_threshold_is_mapped_on_its_own():
    heap = SystemHeap()
    assert heap.allocate(FIRST_THRESHOLD + 1) == (None, FIRST_THRESHOLD + 1)
    assert heap.allocate(FIRST_THRESHOLD) == (0, FIRST_THRESHOLD)


def test_the_threshold_grows_to_what_was_mapped_and_freed():
    heap = SystemHeap()
    heap.free(heap.allocate(MIB)[0], MIB)
    assert heap.allocate(MIB) == (0, MIB)


def test_the_threshold_does_not_grow_above_its_limit():
    heap = SystemHeap()
    heap.free(heap.allocate(LAST_THRESHOLD + 1)[0], LAST_THRESHOLD + 1)
    assert heap.threshold == FIRST_THRESHOLD


def test_a_hole_is_filled_by_what_fits_and_nothing_of_it_is_new():
    heap = SystemHeap()
    first, _ = heap.allocate(1000)
    heap.allocate(1000)
    heap.free(first, 1000)
    assert heap.allocate(400) == (0, 0)
    assert heap.allocate(600) == (400, 0)
    assert heap.allocate(1) == (2000, 1)


def test_the_smallest_hole_that_fits_is_filled():
    heap = SystemHeap()
    places = [heap.allocate(nbytes)[0] for nbytes in (300, 1, 200, 1)]
    heap.free(places[0], 300)
    heap.free(places[2], 200)
    assert heap.allocate(150) == (places[2], 0)


def test_holes_beside_each_other_are_one():
    heap = SystemHeap()
    places = [heap.allocate(100)[0] for _ in range(4)]
    for number in (0, 2, 1):
        heap.free(places[number], 100)
    assert heap.holes == [(0, 300)]


def test_a_hole_at_the_end_is_made_longer():
    heap = SystemHeap()
    heap.free(heap.allocate(100)[0], 100)
    assert heap.allocate(150) == (0, 50)


def test_a_long_hole_at_the_end_goes_back_to_the_system():
    heap = SystemHeap()
    places = [heap.allocate(FIRST_THRESHOLD)[0] for _ in range(2)]
    heap.free(places[0], FIRST_THRESHOLD)
    assert heap.end == 2 * FIRST_THRESHOLD
    heap.free(places[1], FIRST_THRESHOLD)
    assert (heap.end, heap.holes) == (0, [])


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
@pytest.mark.skipif(
    not HUGE_PAGES.exists() or "[always]" in HUGE_PAGES.read_text(), reason="pages of other sizes"
)
@pytest.mark.parametrize("sizes", [(3072, 3072, 64), (64, 3000, 3200)])
def test_new_bytes_are_those_of_page_faults(sizes):
    """Weights are above what any threshold grows to, whatever the process did before."""
    inputs = json.dumps([sizes, "AdamW"])
    run = subprocess.run(
        [sys.executable, "-c", STEPS, inputs], capture_output=True, text=True, check=True
    )
    predicted, measured = json.loads(run.stdout)
    assert predicted > 10 * MIB
    assert measured == pytest.approx(predicted, rel=0.1, abs=2 * MIB)
