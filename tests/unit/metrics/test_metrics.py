"""Metrics against direct formulas; states; bad calls."""

import json
import math

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import (
    CheckpointError,
    DTypeError,
    IndexOutOfRangeError,
    OptionError,
    ShapeError,
)
from glasshouse.metrics import Accuracy, Average, Count, EditDistance, Throughput, Timer, TopK

rng = np.random.default_rng(0)


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self):
        return self.now


def test_average_equals_numpy_on_any_grouping():
    values, weights = rng.normal(5, 2, 60), rng.uniform(0, 3, 60)
    mean = np.average(values, weights=weights)
    variance = np.average((values - mean) ** 2, weights=weights)
    one_by_one, in_groups = Average(), Average()
    for v, w in zip(values, weights, strict=True):
        one_by_one.update(v, w)
    in_groups.update(values[:7], weights[:7])
    in_groups.update(gh.asarray(values[7:]), gh.asarray(weights[7:]))
    for average in (one_by_one, in_groups):
        assert average.value() == pytest.approx(mean, rel=1e-13)
        assert average.variance() == pytest.approx(variance, rel=1e-12)
        assert average.std() == pytest.approx(math.sqrt(variance), rel=1e-12)


def test_average_does_not_cancel():
    average = Average()
    average.update(np.array([1e9, 1e9 + 1, 1e9 + 2]))
    assert average.variance() == pytest.approx(2 / 3, rel=1e-9)


def test_average_before_the_first_update_and_after_reset():
    average = Average()
    assert math.isnan(average.value())
    assert math.isnan(average.variance())
    average.update(3)
    average.update(np.zeros(0))
    average.update(5, weight=0)
    assert average.value() == 3
    average.reset()
    assert math.isnan(average.value())


def test_average_passes_nan_and_inf_on():
    average = Average()
    average.update(math.inf)
    assert average.value() == math.inf
    average.update(math.nan)
    assert math.isnan(average.value())


def test_average_takes_a_loss_that_requires_grad():
    average = Average()
    average.update(gh.tensor(2.0, requires_grad=True), weight=4)
    assert (average.value(), average.weight) == (2.0, 4.0)


@pytest.mark.parametrize("k", [1, 3, 6])
def test_topk_equals_sorting(k):
    scores, targets = rng.normal(size=(40, 6)), rng.integers(0, 6, 40)
    best = np.argsort(-scores, axis=1)[:, :k]
    expected = (best == targets[:, None]).any(axis=1).mean()
    metric = TopK(k)
    metric.update(gh.asarray(scores[:15]), gh.asarray(targets[:15]))
    metric.update(scores[15:], targets[15:])
    assert metric.value() == expected


def test_accuracy_of_scores_equals_accuracy_of_their_argmax():
    scores, targets = rng.normal(size=(4, 5, 2, 3)), rng.integers(0, 5, (4, 2, 3))
    by_scores, by_classes = Accuracy(), Accuracy()
    by_scores.update(scores, targets)
    by_classes.update(scores.argmax(axis=1), targets)
    assert by_scores.value() == by_classes.value() == (scores.argmax(1) == targets).mean()


def test_ties_and_nan_scores():
    accuracy = Accuracy()
    accuracy.update([[1.0, 1.0]], [0])
    assert accuracy.value() == 1
    accuracy.reset()
    accuracy.update([[1.0, 1.0]], [1])
    accuracy.update([[math.nan, 1.0]], [0])
    assert accuracy.value() == 0


def test_ignore_index():
    accuracy = Accuracy(ignore_index=-100)
    accuracy.update([[0.0, 1.0], [0.0, 1.0]], [1, -100])
    accuracy.update([1, 0], [-100, 1])
    assert (accuracy.correct, accuracy.total) == (1, 2)


def test_count():
    count = Count()
    count.update()
    count.update(gh.asarray([2, 3]))
    assert count.value() == 6
    assert isinstance(count.value(), int)


def test_timer_and_throughput():
    clock = Clock()
    timer, rate = Timer(clock), Throughput(clock)
    with timer:
        clock.now = 2.0
        assert timer.value() == 2.0
    clock.now = 5.0
    assert timer.value() == 2.0
    timer.update(1.5)
    assert timer.value() == 3.5
    rate.update(10)
    assert rate.value() == 2.0
    rate.stop()
    clock.now = 100.0
    rate.start()
    rate.update(10)
    assert rate.value() == 4.0
    rate.reset()
    assert math.isnan(rate.value())


@pytest.mark.parametrize(
    ("predicted", "target", "edits"),
    [
        ("kitten", "sitting", (1, 0, 2)),
        ("", "abc", (3, 0, 0)),
        ("abc", "", (0, 3, 0)),
        ("abc", "abc", (0, 0, 0)),
        ([1, 2, 3], [1, 3], (0, 1, 0)),
        (["the", "cat"], ["the", "black", "cat"], (1, 0, 0)),
    ],
)
def test_edit_distance(predicted, target, edits):
    metric = EditDistance()
    metric.update(predicted, target)
    assert (metric.insertions, metric.deletions, metric.substitutions) == edits
    expected = sum(edits) / len(target) if target else math.nan
    assert metric.value() == pytest.approx(expected, nan_ok=True)


def test_edit_distance_of_tensors_adds_up():
    metric = EditDistance()
    metric.update(gh.asarray([1, 2, 3]), gh.asarray([1, 2]))
    metric.update(gh.asarray([4]), gh.asarray([5, 6]))
    assert (metric.distance(), metric.length, metric.value()) == (3, 4, 0.75)


def updated(metric):
    if isinstance(metric, TopK):
        metric.update([[0.1, 0.9], [0.2, 0.8]], [1, 0])
    elif isinstance(metric, EditDistance):
        metric.update("ab", "ac")
    else:
        metric.update(2.5)
    return metric


@pytest.mark.parametrize("kind", [Average, Accuracy, Count, EditDistance])
def test_states_survive_json(kind):
    metric, other = updated(kind()), kind()
    other.load_state_dict(json.loads(json.dumps(metric.state_dict())))
    assert other.value() == metric.value()
    assert repr(other) == repr(metric)
    updated(other)
    with pytest.raises(CheckpointError, match=kind.__name__):
        other.load_state_dict({"unknown": 1})
    with pytest.raises(CheckpointError):
        other.load_state_dict(dict.fromkeys(other.state_dict(), "x"))


def test_timer_state_holds_the_time_so_far():
    clock = Clock()
    timer = Timer(clock).start()
    clock.now = 3.0
    other = Timer(clock)
    other.load_state_dict(timer.state_dict())
    clock.now = 9.0
    assert other.value() == 3.0


BAD_CALLS = [
    (lambda: Average().update("x"), DTypeError, "value to be real numbers; got str 'x'"),
    (lambda: Average().update(1j), DTypeError, "complex128"),
    (lambda: Average().update([[1], [1, 2]]), DTypeError, "list"),
    (lambda: Average().update(1, weight=-1), OptionError, "weights >= 0; got -1"),
    (lambda: Average().update(1, weight=math.nan), OptionError, "finite weights"),
    (lambda: Average().update([1, 2], weight=[1, 2, 3]), ShapeError, r"\(2,\).*\(3,\)"),
    (lambda: Average().update(None), DTypeError, "NoneType"),
    (lambda: TopK(0), OptionError, "k to be an integer >= 1; got 0"),
    (lambda: TopK(2.0), OptionError, "got 2.0"),
    (lambda: TopK(3).update([[1.0, 2.0]], [0]), ShapeError, "k = 3 classes; got 2"),
    (lambda: TopK(1).update([[1.0, 2.0]], [0, 1]), ShapeError, r"\(1, 2\) and \(2,\)"),
    (lambda: TopK(1).update([1.0], [0]), ShapeError, r"\(N, C, \*S\)"),
    (lambda: TopK(1).update([[1.0, 2.0]], [0.5]), DTypeError, "integer class numbers"),
    (lambda: Accuracy().update([[1.0, 2.0]], [2]), IndexOutOfRangeError, "from 0 to 1; got 2"),
    (lambda: Accuracy().update([[1.0, 2.0]], [-1]), IndexOutOfRangeError, "ignore_index"),
    (lambda: Accuracy().update([0.5], [1]), DTypeError, "predicted classes"),
    (lambda: Count().update("a"), DTypeError, "amount"),
    (lambda: Timer().update(-1), OptionError, "seconds >= 0; got -1"),
    (lambda: Throughput().update(None), DTypeError, "items"),
    (lambda: EditDistance().update(3, "a"), DTypeError, "predicted to be one sequence; got int"),
    (lambda: EditDistance().update("a", np.ones((2, 2))), DTypeError, r"target.*\(2, 2\)"),
]


@pytest.mark.parametrize("number", range(len(BAD_CALLS)))
def test_bad_calls(number):
    call, error, text = BAD_CALLS[number]
    with pytest.raises(error, match=text):
        call()


def test_a_bad_update_changes_nothing():
    accuracy = Accuracy()
    accuracy.update([[1.0, 2.0]], [1])
    with pytest.raises(IndexOutOfRangeError):
        accuracy.update([[1.0, 2.0], [1.0, 2.0]], [1, 7])
    assert accuracy.state_dict() == {"correct": 1, "total": 1}
