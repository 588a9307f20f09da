"""Runs of `gh.fit` over several ranks give the numbers of one process."""

import io

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse import nn
from glasshouse.base.errors import ShapeError
from glasshouse.fit import Callback, Checkpoint, CSVLog, Progress

SIZE = 20  # in batches of 8 the last has 4


class Stop(Callback):
    """Ends a run as an interrupt does, after so many steps."""

    def __init__(self, steps):
        self.stops_at = steps

    def on_step(self, run):
        if run.steps == self.stops_at:
            raise KeyboardInterrupt

    def load_state_dict(self, state):
        pass


def data(kind="loader", size=8):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((SIZE, 5)).astype(np.float32)
    y = rng.integers(0, 3, SIZE)
    if kind == "list":
        parts = [slice(i, i + size) for i in range(0, SIZE, size)]
        return [(gh.asarray(x[p]), gh.asarray(y[p])) for p in parts]
    return gh.data.DataLoader(gh.data.TensorDataset(x, y), size, shuffle=True, seed=3)


def fitted(callbacks=(), stop=0, kind="loader", epochs=3, stage=0, **options):
    """(rows without times, parameters) of a run."""
    gh.random.seed(1)
    model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.4), nn.Tanh(), nn.Linear(8, 3))
    optimizer = gh.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    if stage and dist.size() > 1:
        optimizer = dist.zero(model, optimizer, dist.mesh({"data": dist.size()}), stage=stage)
    metrics, loss = gh.metrics.Accuracy(), nn.functional.cross_entropy
    options |= {"epochs": epochs, "validation": data(kind)}
    callbacks = [*callbacks, Stop(stop)]
    history = gh.fit(model, data(kind), loss, optimizer, metrics, callbacks, **options)
    rows = [{k: v for k, v in row.items() if k != "seconds"} for row in history]
    return rows, [dist.gather(p).numpy() for p in model.parameters()]


def check_equal(one, other):
    for row, expected in zip(one[0], other[0], strict=True):
        assert row == pytest.approx(expected, rel=1e-5)
    for p, expected in zip(one[1], other[1], strict=True):
        np.testing.assert_allclose(p, expected, rtol=1e-4, atol=1e-5)


CASES = {
    "loader": {},
    "list": {"kind": "list"},
    "accumulated": {"accumulate": 2, "clip_norm": 0.5},
    "captured": {"capture": True},
    "captured and accumulated": {"capture": True, "accumulate": 2, "clip_norm": 0.5},
    "captured, ZeRO 2": {"capture": True, "accumulate": 2, "clip_norm": 0.5, "stage": 2},
    "captured, ZeRO 3": {"capture": True, "accumulate": 2, "clip_norm": 0.5, "stage": 3},
}


def run_case(options):
    return fitted(**options)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_numbers_are_those_of_one_process(ranks, case):
    expected = fitted(**CASES[case])
    for own in ranks(run_case, CASES[case]):
        check_equal(own, expected)


def graphs_of_epochs(options):
    """Return the work of capture in each epoch: (graphs made, breaks)."""
    counted = []

    class Count(Callback):
        def on_epoch(self, run):
            counted.append((counters["graphs"], counters["breaks"]))

        def load_state_dict(self, state):
            pass

    counters = gh.capture.counters
    start = counters["graphs"], counters["breaks"]
    fitted([Count()], capture=True, **options)
    counted = [start, *counted]
    return [(b[0] - a[0], b[1] - a[1]) for a, b in zip(counted, counted[1:])]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"accumulate": 2, "clip_norm": 0.5}])
def test_steps_of_ranks_are_captured(ranks, options):
    for epochs in ranks(graphs_of_epochs, options):
        assert epochs[0][0] > 0
        assert epochs[-1] == (0, 0)  # all are found again


def stopped(folder, steps):
    """A run that is interrupted after so many steps, with a checkpoint of each."""
    with pytest.raises(KeyboardInterrupt):
        fitted([Checkpoint(folder, every=1)], steps)
    dist.barrier()


def resumed(folder):
    return fitted([Checkpoint(folder, every=1)], resume=folder)


@pytest.mark.slow
def test_a_stopped_run_goes_on_with_another_number_of_ranks(ranks, tmp_path):
    expected = resumed(tmp_path / "never stopped")
    ranks(stopped, tmp_path / "a", 4)
    check_equal(resumed(tmp_path / "a"), expected)
    stopped(tmp_path / "b", 5)
    for own in ranks(resumed, tmp_path / "b"):
        check_equal(own, expected)


def written(folder):
    """Return the output and files of this rank."""
    stream, name = io.StringIO(), folder / f"{dist.rank()}.csv"
    fitted([Progress(stream), CSVLog(name)])
    return stream.getvalue(), name.exists()


def test_the_first_rank_alone_prints_and_writes(ranks, tmp_path):
    (printed, has_file), other = ranks(written, tmp_path)
    assert printed.count("epoch") == 3
    assert has_file
    assert other == ("", False)


# -- parts of batches ----------------------------------------------------------------------------


def own_batches(size):
    loader = dist.part_of_rank(data(size=size))
    rows = [len(y) for _, y in loader]
    assert dist.part_of_rank(loader) is loader
    return rows, loader.state_dict()


def test_a_loader_gives_each_rank_its_rows_of_the_same_batches(ranks):
    (first, state), (second, other) = ranks(own_batches, 8)
    assert (first, second) == ([4, 4, 2], [4, 4, 2])
    assert state == other


def too_few(size):
    model = nn.Linear(5, 3)
    optimizer = gh.optim.SGD(model.parameters(), lr=0.1)
    try:
        gh.fit(model, data(size=size), nn.functional.cross_entropy, optimizer)
    except ShapeError as error:
        return str(error)
    return ""


def test_a_batch_of_fewer_rows_than_ranks_is_refused(ranks):
    for message in ranks(too_few, 1):
        assert "expected rows for each rank; got [0, 1] rows" in message


def drawn(rows):
    share = dist.share_of(rows[dist.rank()])
    gh.random.seed(5)
    with share.draws():
        samples = [gh.random.uniform((share.rows, 3)), gh.random.bernoulli(0.5, (share.rows,))]
    return [x.numpy() for x in samples], share.weight


def test_random_numbers_are_the_rows_of_those_of_one_process(ranks):
    gh.random.seed(5)
    expected = [gh.random.uniform((5, 3)).numpy(), gh.random.bernoulli(0.5, (5,)).numpy()]
    parts = ranks(drawn, [2, 3])
    assert [weight for _, weight in parts] == [0.8, 1.2]
    for i, whole in enumerate(expected):
        joined = np.concatenate([own[i] for own, _ in parts])
        np.testing.assert_array_equal(joined, whole)
