"""Every metric with nothing, one sample, and one class alone: a number or nan, and a repr."""

import math

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import metrics

pytestmark = pytest.mark.quick

NUMBERS, CLASSES, WORDS = "numbers", "classes", "words"
BOX = {"boxes": [[0.0, 0.0, 4.0, 4.0]], "scores": [0.5], "labels": [1]}
NO_BOX = {"boxes": np.zeros((0, 4)), "scores": np.zeros(0), "labels": np.zeros(0, np.int64)}


def pairs(scores, targets):
    """Scores and targets of n samples; nothing, one, and three of one class."""
    return [(scores(n), targets(n)) for n in (0, 1, 3)]


def binary(n):
    return np.linspace(0.2, 0.9, n)


def rows(n):
    return np.tile(np.array([[0.2, 0.8]]), (n, 1))


def ones(n):
    return np.ones(n, np.int64)


def texts(n):
    return ["a b c d"] * n


BY_ROWS, OF_REALS = pairs(rows, ones), pairs(binary, binary)
# Updates with nothing, with one sample, with one class; None: an empty update is refused by name.
CASES = {
    metrics.Accuracy: (metrics.Accuracy, BY_ROWS),
    metrics.TopK: (lambda: metrics.TopK(1), BY_ROWS),
    metrics.ConfusionMatrix: (lambda: metrics.ConfusionMatrix(2), pairs(ones, ones)),
    metrics.F1: (lambda: metrics.F1(2), pairs(ones, ones)),
    metrics.IoU: (lambda: metrics.IoU(2), pairs(ones, ones)),
    metrics.Precision: (lambda: metrics.Precision(2), pairs(ones, ones)),
    metrics.Recall: (lambda: metrics.Recall(2), pairs(ones, ones)),
    metrics.ROCAUC: (metrics.ROCAUC, pairs(binary, ones)),
    metrics.AveragePrecision: (metrics.AveragePrecision, pairs(binary, ones)),
    metrics.CalibrationError: (metrics.CalibrationError, BY_ROWS),
    metrics.MeanAveragePrecision: (
        metrics.MeanAveragePrecision,
        [([], []), ([NO_BOX], [NO_BOX]), ([BOX], [BOX])],
    ),
    metrics.EditDistance: (metrics.EditDistance, [("", ""), ("a", "a"), ("aaa", "aaa")]),
    metrics.CharErrorRate: (metrics.CharErrorRate, [("", ""), ("a", "a"), ("aaa", "aaa")]),
    metrics.WordErrorRate: (metrics.WordErrorRate, [("", ""), ("a", "a"), ("a a", "a a")]),
    metrics.BLEU: (metrics.BLEU, pairs(texts, texts)),
    metrics.Perplexity: (metrics.Perplexity, BY_ROWS),
    metrics.BitsPerCharacter: (metrics.BitsPerCharacter, BY_ROWS),
    metrics.Average: (metrics.Average, [(np.zeros(0),), (np.ones(1),), (np.ones(3),)]),
    metrics.Count: (metrics.Count, [(0,), (1,), (3,)]),
    metrics.Timer: (metrics.Timer, [(0.0,), (1.0,), (3.0,)]),
    metrics.Throughput: (metrics.Throughput, [(0,), (1,), (3,)]),
    metrics.PeakMemory: (metrics.PeakMemory, [(), (), ()]),
    **{
        kind: (kind, OF_REALS)
        for kind in (
            metrics.MeanAbsoluteError, metrics.MeanSquaredError, metrics.RootMeanSquaredError,
            metrics.R2, metrics.Pearson, metrics.Spearman, metrics.ExplainedVariance,
        )
    },
}  # fmt: skip
KINDS = sorted(CASES, key=lambda kind: kind.__name__)


def as_tensor(x):
    return gh.asarray(x) if isinstance(x, np.ndarray) else x


def number_of(value) -> float:
    value = value.get("map", 0.0) if isinstance(value, dict) else value
    return float(np.asarray(value, np.float64).sum())


def test_every_metric_is_among_the_cases():
    public = [getattr(metrics, name) for name in dir(metrics)]
    kinds = {x for x in public if isinstance(x, type) and issubclass(x, metrics.Metric)}
    assert kinds - {metrics.Metric} == set(CASES)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_nothing_has_a_value_and_a_repr(kind):
    make, (nothing, *_) = CASES[kind]
    metric = make()
    before = repr(metric)
    assert before.startswith(f"{kind.__name__}(")
    first = number_of(metric.value())
    assert math.isnan(first) or first == 0
    if kind not in (metrics.Timer, metrics.Throughput, metrics.PeakMemory):  # these look at a clock
        metric.update(*map(as_tensor, nothing))
        np.testing.assert_equal(number_of(metric.value()), first)
        assert repr(metric) == before


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("number", [1, 2], ids=["one sample", "one class"])
def test_few_samples_have_a_value_that_survives_merging_with_nothing(kind, number):
    make, updates = CASES[kind]
    metric, empty = make(), make()
    metric.update(*map(as_tensor, updates[number]))
    value = number_of(metric.value())
    assert repr(metric).startswith(f"{kind.__name__}(")
    if kind in (metrics.PeakMemory, metrics.Throughput):  # another value at another time
        return
    state = metric.state_dict()
    metric.merge(empty.state())
    np.testing.assert_equal(number_of(metric.value()), value)
    again = make()
    again.load_state_dict(state)
    np.testing.assert_equal(number_of(again.value()), value)
    metric.reset()
    assert repr(metric) == repr(make())
