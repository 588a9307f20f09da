"""Metrics of predictions against scikit-learn, SciPy and COCO's evaluation; states of parts of the
data merge to that of the whole."""

import json
import math
import pickle

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import metrics
from glasshouse.base.errors import (
    CheckpointError,
    DTypeError,
    IndexOutOfRangeError,
    OptionError,
    ShapeError,
)
from glasshouse.metrics import (
    F1,
    R2,
    ROCAUC,
    AveragePrecision,
    BitsPerCharacter,
    CalibrationError,
    CharErrorRate,
    ConfusionMatrix,
    ExplainedVariance,
    IoU,
    MeanAbsoluteError,
    MeanAveragePrecision,
    MeanSquaredError,
    PeakMemory,
    Pearson,
    Perplexity,
    Precision,
    Recall,
    RootMeanSquaredError,
    Spearman,
    Throughput,
    WordErrorRate,
    box_iou,
)

sklearn = pytest.importorskip("sklearn.metrics")
stats = pytest.importorskip("scipy.stats")
rng = np.random.default_rng(0)
TRUE, PREDICTED = rng.integers(0, 4, 60), rng.integers(0, 4, 60)
TRUE[TRUE == 3] = 2  # a class that is only predicted
SCORES = rng.normal(size=(60, 3)).round(1)  # with ties
LABELS = rng.integers(0, 3, 60)
X = rng.normal(size=60).round(1)
Y = 0.5 * X + rng.normal(size=60) + 1000


def in_parts(make, *arrays):
    """A metric that took in the data in parts: merged from three, one of them empty."""
    parts = [make() for _ in range(3)]
    parts[0].update(*(a[:7] for a in arrays))
    parts[1].update(*(gh.asarray(a[7:40]) for a in arrays))
    parts[1].update(*(a[40:] for a in arrays))
    for part in parts[1:]:
        parts[0].merge(part.state())
    return parts[0]


@pytest.mark.parametrize("average", ["micro", "macro", "weighted", None])
@pytest.mark.parametrize(
    "kind, theirs",
    [
        (Precision, sklearn.precision_score),
        (Recall, sklearn.recall_score),
        (F1, sklearn.f1_score),
        (IoU, sklearn.jaccard_score),
    ],
)
def test_class_metrics_equal_scikit_learns(kind, theirs, average):
    metric = in_parts(lambda: kind(4, average), PREDICTED, TRUE)
    expected = theirs(TRUE, PREDICTED, average=average, zero_division=0)
    np.testing.assert_allclose(metric.value(), expected)


def test_classes_that_are_not_there_do_not_count_in_a_macro_average():
    metric = F1(9)
    metric.update(PREDICTED, TRUE)
    assert metric.value() == pytest.approx(sklearn.f1_score(TRUE, PREDICTED, average="macro"))


@pytest.mark.parametrize("normalize", [None, "true", "pred", "all"])
def test_confusion_matrix_equals_scikit_learns(normalize):
    metric = in_parts(lambda: ConfusionMatrix(4, normalize=normalize), PREDICTED, TRUE)
    expected = sklearn.confusion_matrix(TRUE, PREDICTED, normalize=normalize)
    np.testing.assert_allclose(metric.value(), expected)


def test_confusion_of_scores_and_of_images():
    scores, targets = rng.normal(size=(2, 3, 4, 5)), rng.integers(0, 3, (2, 4, 5))
    targets[0, 0, 0] = 9
    metric = IoU(3, None, ignore_index=9)
    metric.update(gh.asarray(scores), targets)
    counts = targets != 9
    classes = scores.argmax(1)[counts]
    expected = sklearn.jaccard_score(targets[counts], classes, average=None)
    np.testing.assert_allclose(metric.value(), expected)


@pytest.mark.parametrize(
    "kind, theirs", [(ROCAUC, "roc_auc_score"), (AveragePrecision, "average_precision_score")]
)
@pytest.mark.parametrize("average", ["macro", "weighted", None])
def test_areas_equal_scikit_learns(kind, theirs, average):
    theirs = getattr(sklearn, theirs)
    hot = np.eye(3, dtype=int)[LABELS]
    metric = in_parts(lambda: kind(average), SCORES, LABELS)
    np.testing.assert_allclose(metric.value(), theirs(hot, SCORES, average=average))
    several = rng.integers(0, 2, (60, 3))
    metric = in_parts(lambda: kind(average), SCORES, several)
    np.testing.assert_allclose(metric.value(), theirs(several, SCORES, average=average))
    one = in_parts(kind, SCORES[:, 0], several[:, 0])
    np.testing.assert_allclose(one.value(), theirs(several[:, 0], SCORES[:, 0]))


def test_an_area_without_one_of_the_classes_is_nan():
    metric = ROCAUC()
    metric.update([0.1, 0.2], [1, 1])
    assert math.isnan(metric.value()) and math.isnan(AveragePrecision().value())


@pytest.mark.parametrize(
    "kind, theirs",
    [
        (MeanSquaredError, sklearn.mean_squared_error),
        (RootMeanSquaredError, sklearn.root_mean_squared_error),
        (MeanAbsoluteError, sklearn.mean_absolute_error),
        (R2, sklearn.r2_score),
        (ExplainedVariance, sklearn.explained_variance_score),
        (Pearson, lambda y, x: stats.pearsonr(y, x).statistic),
        (Spearman, lambda y, x: stats.spearmanr(y, x).statistic),
    ],
)
def test_regression_equals_scikit_learns(kind, theirs):
    np.testing.assert_allclose(in_parts(kind, X, Y).value(), theirs(Y, X), rtol=1e-9)


def test_spreads_do_not_cancel():
    metric = in_parts(Pearson, X * 1e-3 + 1e6, Y)
    assert metric.value() == pytest.approx(stats.pearsonr(X, Y).statistic, rel=1e-6)


def test_constant_predictions():
    for kind, expected in ((Pearson, math.nan), (Spearman, math.nan), (R2, 0.0)):
        metric = kind()
        metric.update([1.0, 2.0], [3.0, 3.0])
        assert metric.value() == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_calibration_error_is_its_formula(norm):
    p = rng.dirichlet(np.ones(3), size=60)
    confidence, right = p.max(1), p.argmax(1) == LABELS
    terms = []
    for low in np.arange(10) / 10:
        inside = (confidence > low) & (confidence <= low + 0.1)
        if inside.any():
            terms.append((inside.mean(), abs(right[inside].mean() - confidence[inside].mean())))
    share, gap = np.array(terms).T
    expected = {"l1": share @ gap, "l2": math.sqrt(share @ gap**2), "max": gap.max()}[norm]
    metric = in_parts(lambda: CalibrationError(10, norm), p, LABELS)
    assert metric.value() == pytest.approx(expected)


def test_perplexity_is_the_exponential_of_the_cross_entropy():
    targets = LABELS.copy()
    targets[:5] = -1
    metric = in_parts(lambda: Perplexity(ignore_index=-1), SCORES, targets)
    x, y = gh.asarray(SCORES), gh.asarray(targets)
    expected = gh.nn.functional.cross_entropy(x, y, ignore_index=-1).item()
    assert metric.value() == pytest.approx(math.exp(expected))


def test_error_rates_of_words_and_characters():
    words, characters = WordErrorRate(), CharErrorRate()
    for metric in (words, characters):
        metric.update("the cat sat", "the bat sat down")
        metric.update("", "on")
    assert (words.distance(), words.length) == (3, 5)
    assert (characters.distance(), characters.length) == (8, 18)


@pytest.mark.parametrize("kind", [WordErrorRate, CharErrorRate])
def test_error_rates_of_lists_are_those_of_their_texts(kind):
    predicted, targets = ["the cat sat", ""], ["the bat sat down", "on"]
    one_by_one, together = kind(), kind()
    for pair in zip(predicted, targets, strict=True):
        one_by_one.update(*pair)
    together.update(predicted, targets)
    assert together.state() == one_by_one.state()


def images(seed: int):
    """Predictions and targets of 12 images: boxes of three sizes and classes, some crowds."""
    rng = np.random.default_rng(seed)
    predictions, targets = [], []
    for _ in range(12):
        m = rng.integers(0, 6)
        corner = rng.uniform(0, 200, (m, 2))
        size = rng.choice([15, 60, 150], (m, 1)) * rng.uniform(0.5, 1.5, (m, 2))
        true, labels = np.hstack([corner, corner + size]), rng.integers(0, 3, m)
        crowd = (rng.uniform(size=m) < 0.15).astype(int)
        of = np.repeat(np.arange(m), rng.integers(0, 3, m) if m else np.zeros(0, int))
        near = true[of] + rng.normal(0, 6, (len(of), 4))
        near[:, 2:] = np.maximum(near[:, 2:], near[:, :2] + 1)
        kept = np.where(rng.uniform(size=len(of)) < 0.8, labels[of], rng.integers(0, 3, len(of)))
        more = rng.integers(0, 3)
        corner = rng.uniform(0, 200, (more, 2))
        other = np.hstack([corner, corner + rng.uniform(5, 100, (more, 2))])
        predictions.append(
            {
                "boxes": np.vstack([near, other]),
                "scores": rng.uniform(size=len(of) + more).round(2),
                "labels": np.concatenate([kept, rng.integers(0, 3, more)]),
            }
        )
        targets.append({"boxes": true, "labels": labels, "crowd": crowd})
    return predictions, targets


def test_mean_average_precision_is_cocos():
    """The numbers are those of pycocotools 2.0.11 for these boxes."""
    predictions, targets = images(0)
    first, second = MeanAveragePrecision(), MeanAveragePrecision()
    first.update(predictions[:5], targets[:5])
    second.update(predictions[5:], targets[5:])
    first.merge(second.state())
    expected = {
        "map": 0.178706954,
        "map_50": 0.264131413,
        "map_75": 0.216596660,
        "map_small": 0.005544554,
        "map_medium": 0.389231495,
        "map_large": 0.528712871,
        "mar": 0.320909091,
    }
    value = first.value()
    assert value.pop("per_class").keys() == {0, 1, 2}
    assert value == pytest.approx(expected, abs=1e-8)


def test_average_precision_of_boxes_by_hand():
    """Three targets, hits at scores 0.9 and 0.7, a miss between: precision 1 up to recall 1/3, then
    2/3 up to 2/3."""
    boxes = [[0, 0, 10, 10], [20, 0, 30, 10], [40, 0, 50, 10]]
    predicted = [[0, 0, 10, 10], [60, 0, 70, 10], [20, 0, 30, 9]]
    metric = MeanAveragePrecision([0.5])
    options = {"boxes": predicted, "scores": [0.9, 0.8, 0.7], "labels": [1, 1, 1]}
    metric.update([options], [{"boxes": boxes, "labels": [1, 1, 1]}])
    assert metric.value()["map"] == pytest.approx((34 * 1 + 33 * 2 / 3) / 101)
    assert metric.value()["mar"] == pytest.approx(2 / 3)
    np.testing.assert_allclose(box_iou(predicted[2:], boxes[1:]), [[0.9, 0]])


def test_peak_memory_and_merged_throughput():
    peak = PeakMemory()
    peak.update()
    assert peak.value()["managed_bytes"] == gh.memory.stats().peak_allocated_bytes
    assert peak.value()["resident_bytes"] > 1 << 24
    rates = [Throughput(clock=lambda: 0.0) for _ in range(2)]
    for rate, seconds in zip(rates, (2.0, 4.0), strict=True):
        rate.update(20)
        rate.stop()
        rate.elapsed_s = seconds
    rates[0].merge(rates[1].state())
    assert rates[0].value() == 10.0  # 40 items in the 4 seconds of both


STATES = {
    "F1": (lambda: F1(4), (PREDICTED, TRUE)),
    "ROCAUC": (ROCAUC, (SCORES, LABELS)),
    "Pearson": (Pearson, (X, Y)),
    "Spearman": (Spearman, (X, Y)),
    "Average": (metrics.Average, (X,)),
    "TopK": (lambda: metrics.TopK(2), (SCORES, LABELS)),
}


@pytest.mark.parametrize("name", STATES)
def test_states_survive_json_and_merge(name):
    make, data = STATES[name]
    metric, other = in_parts(make, *data), make()
    other.load_state_dict(json.loads(json.dumps(metric.state_dict())))
    assert other.value() == metric.value()
    whole = make()
    whole.update(*data)
    assert whole.value() == pytest.approx(metric.value())
    with pytest.raises(CheckpointError):
        other.merge({"other": 1})
    other.reset()
    fresh = make()
    assert other.state_dict() == fresh.state_dict()


SPLIT = {
    "BitsPerCharacter": (BitsPerCharacter, (SCORES, LABELS)),
    **STATES,
    "ConfusionMatrix": (lambda: ConfusionMatrix(4), (PREDICTED, TRUE)),
    "AveragePrecision": (AveragePrecision, (SCORES, LABELS)),
    "CalibrationError": (CalibrationError, (np.full((60, 3), 1 / 3), LABELS)),
    "Perplexity": (Perplexity, (SCORES, LABELS)),
    "R2": (R2, (X, Y)),
    "Count": (metrics.Count, (TRUE,)),
    "Timer": (metrics.Timer, (TRUE,)),
    "EditDistance": (metrics.EditDistance, (PREDICTED, TRUE)),
}


@pytest.mark.parametrize("name", SPLIT)
def test_processes_add_up_to_the_whole(name):
    make, data = SPLIT[name]
    parts = [make() for _ in range(3)]
    for part, rows in zip(parts, (slice(0, 7), slice(7, 8), slice(8, 60)), strict=True):
        part.update(*(array[rows] for array in data))
    before = parts[1].state_dict()
    sent = pickle.dumps([part.state() for part in parts])  # as between processes
    totals = [part.synced(lambda state: pickle.loads(sent)) for part in parts]
    parts[0].merge(parts[1].state())
    parts[0].merge(parts[2].state())
    assert all(np.array_equal(total.value(), parts[0].value()) for total in totals)
    assert parts[1].state_dict() == before


def test_images_of_all_processes_are_told_apart():
    parts = [MeanAveragePrecision() for _ in range(2)]
    for part in parts:
        part.update(*one_image())
    total = parts[0].synced(lambda state: [state, parts[1].state()])
    assert total.images == 2 and total.value()["map"] == 1.0


def test_bits_per_character_are_the_cross_entropy_of_tokens_by_their_characters():
    x, y = gh.asarray(SCORES), gh.asarray(LABELS)
    nats = gh.nn.functional.cross_entropy(x, y, reduction="sum").item()
    plain, counted = BitsPerCharacter(), BitsPerCharacter()
    plain.update(SCORES, LABELS)
    assert plain.value() == pytest.approx(nats / math.log(2) / len(LABELS))
    for rows, characters in ((slice(0, 7), 30), (slice(7, None), 170)):
        counted.update(SCORES[rows], LABELS[rows], characters)
    assert counted.value() == pytest.approx(nats / math.log(2) / 200)
    with pytest.raises(OptionError, match="characters to be an integer"):
        counted.update(SCORES, LABELS, -1)
    assert counted.characters == 200


def test_a_perplexity_beyond_float64_is_infinite():
    metric = Perplexity()
    metric.update([[0.0, -1e6]], [1])
    assert metric.value() == math.inf


def test_bleu_needs_sacrebleu_or_is_its_score():
    try:
        import sacrebleu
    except ImportError:
        with pytest.raises(OptionError, match="pip install sacrebleu"):
            metrics.BLEU()
        return
    texts = ["the cat sat on the mat today", "it is raining again in the north"]
    targets = ["the cat sat on a mat today", "it is raining in the north again"]
    first, second = metrics.BLEU(), metrics.BLEU()
    first.update(texts[0], targets[0])
    second.update(texts[1], [targets[1]])
    first.merge(second.state())
    assert first.value() == pytest.approx(sacrebleu.corpus_bleu(texts, [targets]).score)
    both = metrics.BLEU()
    both.update(texts, [[targets[0], texts[0]], targets[1]])
    expected = sacrebleu.corpus_bleu(texts, [targets, [texts[0], None]]).score
    assert both.value() == pytest.approx(expected)


def one_image(**changed):
    prediction = {"boxes": [[0, 0, 1, 1]], "scores": [0.5], "labels": [0]} | changed
    return [prediction], [{"boxes": [[0, 0, 1, 1]], "labels": [0]}]


BAD_CALLS = [
    (lambda: ConfusionMatrix(0), OptionError, "num_classes to be an integer >= 1; got 0"),
    (lambda: ConfusionMatrix(2, normalize="rows"), OptionError, "rows"),
    (lambda: ConfusionMatrix(2).update([0], [0, 1]), ShapeError, r"classes \(2,\)"),
    (lambda: ConfusionMatrix(2).update([0, 2], [0, 1]), IndexOutOfRangeError, "from 0 to 1; got 2"),
    (lambda: ConfusionMatrix(2).update([0.0, 1.0], [0, 1]), DTypeError, "integer class"),
    (lambda: F1(2, "mean"), OptionError, "average"),
    (lambda: ROCAUC("micro"), OptionError, "micro"),
    (lambda: ROCAUC().update([0.1, 0.2], [0, 2]), IndexOutOfRangeError, "0 to 1; got 2"),
    (lambda: ROCAUC().update([0.1, math.nan], [0, 1]), OptionError, "finite scores"),
    (lambda: ROCAUC().update([0.1, 0.2], [0]), ShapeError, r"\(2,\) and \(1,\)"),
    (lambda: AveragePrecision().update(np.ones((1, 1, 1)), [1]), ShapeError, r"\(1, 1, 1\)"),
    (lambda: CalibrationError(0), OptionError, "bins"),
    (lambda: CalibrationError(norm="l3"), OptionError, "l3"),
    (lambda: CalibrationError().update([[1.5, -0.5]], [0]), OptionError, "from 0 to 1"),
    (lambda: CalibrationError().update([0.5], [0, 1]), ShapeError, r"\(1, 2\) and \(2,\)"),
    (lambda: MeanSquaredError().update([1.0], [1.0, 2.0]), ShapeError, r"\(1,\) and \(2,\)"),
    (lambda: Spearman().update(["a"], [1.0]), DTypeError, "real numbers"),
    (lambda: Perplexity().update([[0.0, 1.0]], [2]), IndexOutOfRangeError, "0 to 1; got 2"),
    (lambda: Perplexity().update([[0.0, 1.0]], [0, 1]), ShapeError, r"\(1, 2\) and \(2,\)"),
    (lambda: WordErrorRate().update(["a"], "a"), DTypeError, "list of targets for a list of texts"),
    (lambda: WordErrorRate().update([1], ["a"]), DTypeError, "predicted to be a string; got int"),
    (lambda: CharErrorRate().update(["a"], []), ShapeError, "got 0 for 1"),
    (lambda: MeanAveragePrecision([0.0]), OptionError, r"\(0, 1\]"),
    (lambda: MeanAveragePrecision(max_detections=0), OptionError, "max_detections"),
    (lambda: MeanAveragePrecision().update([], [{}]), ShapeError, "0 and 1"),
    (lambda: MeanAveragePrecision().update(*one_image(scores=[])), ShapeError, "score of"),
    (lambda: MeanAveragePrecision().update(*one_image(boxes=[[0, 0, 1]])), ShapeError, r"\(1, 3\)"),
    (lambda: box_iou([[2, 0, 1, 1]], []), OptionError, "x1 <= x2"),
]


@pytest.mark.parametrize("number", range(len(BAD_CALLS)))
def test_bad_calls(number):
    call, error, text = BAD_CALLS[number]
    with pytest.raises(error, match=text):
        call()
