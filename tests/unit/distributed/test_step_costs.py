"""Costs of a step on each rank, ahead of time, beside those of real ranks."""

import pytest
from parallel_models import Scheme
from planned_steps import WIDTHS, build, measured, predicted, sent_so_far, train_step

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse.analyze import MachineProfile
from glasshouse.base.errors import OptionError
from glasshouse.base.processes import count_cores
from glasshouse.compile.building import toolchain
from glasshouse.compile.lowering.target import current_target

DATA, PIPE, TWO_BY_TWO = {"data": 2}, {"pipe": 2}, {"data": 2, "tensor": 2}
CASES = [
    *(("mlp", Scheme(DATA, stage=stage)) for stage in range(4)),
    ("mlp", Scheme({"data": 4}, stage=3)),
    ("large mlp", Scheme(DATA, stage=1)),
    *(("decoder", Scheme({"tensor": 2}, plan)) for plan in ("tensor", "sequence")),
    ("decoder", Scheme({"context": 2}, "context")),
    *(("mlp", Scheme(PIPE, schedule=schedule)) for schedule in ("gpipe", "1f1b", "interleaved")),
    ("decoder", Scheme(TWO_BY_TWO, "tensor")),
    ("decoder", Scheme(TWO_BY_TWO, "sequence", stage=3)),
    ("decoder", Scheme({"data": 2, "context": 2}, "context", stage=2)),
    ("decoder", Scheme({"pipe": 2, "tensor": 2}, "tensor", schedule="1f1b")),
    ("mlp", Scheme({"data": 2, "pipe": 2}, stage=1, schedule="1f1b")),
    ("mlp", Scheme({"data": 2, "pipe": 2}, schedule="interleaved")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "scheme"), CASES)
def test_peaks_and_bytes_sent_of_each_rank_are_as_predicted(ranks, kind, scheme):
    result = ranks(measured, kind, scheme, size=scheme.ranks)
    for own, steps in zip(predicted(kind, scheme), result, strict=True):
        assert own.peaks == [peak for peak, *_ in steps]
        sent = sum(own.sent_bytes.values())
        assert steps[-1][1:] == (sent, sent)


def test_what_stages_pass_on_is_counted_as_sent_along_their_axis():
    first, last = predicted("mlp", Scheme(PIPE, schedule="1f1b"), steps=1)
    crossing = 16 * WIDTHS["mlp"][2] * 4  # rows, width and bytes of what goes one way over the cut
    assert first.sent_bytes["send", "pipe"] == last.sent_bytes["send", "pipe"] == crossing


def test_what_stages_pass_on_takes_its_time_on_the_link():
    link = MachineProfile("here", {"matmul float32": [(1, 1e10)]}, [(1, 1e10)], 1e9, 0.0)
    link.link_bytes_per_s = 1e6
    for own in predicted("mlp", Scheme(PIPE, schedule="1f1b"), steps=1, machine=link):
        assert own.communication_ns == pytest.approx(1e3 * sum(own.sent_bytes.values()))
        assert own.predicted_ns == pytest.approx(
            own.kernel_ns + 1e3 * own.sent_bytes["send", "pipe"]
        )


def test_only_the_ranks_that_are_asked_for_are_analysed():
    assert len(predicted("mlp", Scheme({"data": 4}), ranks=[3], steps=1)) == 1
    with pytest.raises(OptionError, match="from 0 to 3"):
        predicted("mlp", Scheme({"data": 4}), ranks=[4])


def test_ranks_have_their_part_of_the_cores(monkeypatch):
    """A rank's number of cores decides how much memory its kernels work in."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    results = []

    def noted():
        results.append((toolchain.count_threads(), current_target().threads))
        return build("mlp", Scheme(DATA))

    with toolchain.threads_used(3):
        dist.step_costs(noted, 2, ranks=[0], steps=1)
        assert toolchain.count_threads() == 3
    own = max(1, count_cores() // 2)
    assert results == [(own, own)]


def test_ranks_take_less_memory_the_more_they_share_out():
    schemes = [Scheme(DATA, stage=stage) for stage in range(4)]
    costs = [predicted("mlp", scheme, ranks=[0])[0] for scheme in schemes]
    peaks = [own.peak_bytes for own in costs]
    assert peaks == sorted({*peaks}, reverse=True)


def test_without_a_state_zero_1_takes_the_rows_of_a_parameter_more_than_data_parallel():
    schemes = [Scheme(DATA, stage=stage) for stage in range(2)]
    plain, shared = (predicted("wide mlp", scheme, "SGD", ranks=[0])[0] for scheme in schemes)
    row_bytes = 4 * WIDTHS["wide mlp"][0]
    assert shared.peak_bytes - plain.peak_bytes <= row_bytes * WIDTHS["wide mlp"][1] / 2


def test_zero_1_of_a_pipeline_sums_gradients_once_a_step():
    schemes = [Scheme(DATA | PIPE, stage=stage, schedule="1f1b") for stage in range(2)]
    costs = [predicted("mlp", scheme, ranks=[0], steps=1)[0] for scheme in schemes]
    plain, shared = (own.sent_bytes["all_reduce", "data"] for own in costs)
    assert shared == plain - 4  # of the mean of losses


def asked_in_earnest(stage):
    """Bytes sent in the first step of a model on real ranks, as two analyses say, and really."""
    model, loss_of, optimizer, specs = build("mlp", Scheme({"data": dist.size()}, stage=stage))
    gh.eval(*model.parameters())
    costs = [gh.analyze.step(model, loss_of, optimizer, specs, steps=1) for _ in range(2)]
    before = sent_so_far()
    train_step(model, loss_of, optimizer, [gh.ones(shape) for shape, _ in specs])
    return [sum(own.sent_bytes.values()) for own in costs], sent_so_far() - before


@pytest.mark.parametrize("stage", [0, 3])
def test_an_analysis_on_real_ranks_leaves_the_first_step_as_it_was(ranks, stage):
    for asked, sent in ranks(asked_in_earnest, stage):
        assert asked == [sent, sent]


def test_random_numbers_afterwards_are_those_that_would_have_come():
    gh.random.seed(1)
    predicted("mlp", Scheme(DATA), ranks=[0], steps=1)
    samples = gh.random.normal((3,)).tolist()
    gh.random.seed(1)
    assert samples == gh.random.normal((3,)).tolist()
