"""What a step costs on each rank, ahead of time, beside what real ranks take."""

import pytest
from planned_steps import WIDTHS, build, measured, predicted, sent_so_far, train_step

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse.base.errors import OptionError

CASES = [
    *(("by_rows", "mlp", size, stage) for size, stage in ((2, 0), (2, 1), (2, 2), (2, 3), (4, 3))),
    *(("by_plan", "decoder", 2, plan) for plan in ("tensor", "sequence", "context")),
    *(("by_stages", "mlp", 2, schedule) for schedule in ("gpipe", "1f1b", "interleaved")),
]


@pytest.mark.parametrize(("way", "kind", "size", "option"), CASES)
def test_peaks_and_bytes_sent_of_each_rank_are_as_predicted(ranks, way, kind, size, option):
    found = ranks(measured, way, kind, size, option, size=size)
    for own, steps in zip(predicted(way, kind, size, option), found, strict=True):
        assert own.peaks == [peak for peak, *_ in steps]
        sent = sum(own.sent_bytes.values())
        assert steps[-1][1:] == (sent, sent)


def test_what_stages_pass_on_is_counted_as_sent_along_their_axis():
    first, last = predicted("by_stages", "mlp", 2, "1f1b", steps=1)
    crossing = 16 * WIDTHS[2] * 4  # rows, width and bytes of what crosses the cut in a direction
    assert first.sent_bytes["send", "pipe"] == last.sent_bytes["send", "pipe"] == crossing


def test_only_the_ranks_that_are_asked_for_are_analysed():
    assert len(predicted("by_rows", "mlp", 4, 0, ranks=[3], steps=1)) == 1
    with pytest.raises(OptionError, match="from 0 to 3"):
        predicted("by_rows", "mlp", 4, 0, ranks=[4])


def test_ranks_take_less_memory_the_more_they_share_out():
    costs = [predicted("by_rows", "mlp", 2, stage, ranks=[0])[0] for stage in range(4)]
    peaks = [own.peak_bytes for own in costs]
    assert peaks == sorted({*peaks}, reverse=True)


def asked_in_earnest(stage):
    """Bytes sent in the first step of a model on real ranks, as two analyses say, and really."""
    model, loss_of, optimizer, specs = build("by_rows", "mlp", dist.size(), stage)
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
    predicted("by_rows", "mlp", 2, 0, ranks=[0], steps=1)
    drawn = gh.random.normal((3,)).tolist()
    gh.random.seed(1)
    assert drawn == gh.random.normal((3,)).tolist()
