"""The differentiable decoder against CTC and ASG, against sums over all texts; its gradients."""

import itertools

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn, speech
from glasshouse.nn import functional as F

TOKENS = ["", "a", "b"]
MODEL = speech.train_ngrams([list("ab"), list("aab"), list("ba")], order=2)
WORDS = speech.train_ngrams(["a ab", "ab b a", "b"], order=2)
rng = np.random.default_rng(0)
EMISSIONS = rng.normal(size=(2, 4, 3))
TARGETS, FRAMES, SIZES = [[1, 2], [2, 0]], [4, 3], [2, 1]


def criterion(*args, **options):
    return speech.BeamCriterion(*args, **{"beam_size": 10**5} | options).double()


def test_a_wide_beam_over_probabilities_is_ctc():
    x = F.log_softmax(gh.asarray(EMISSIONS), dim=2)
    expected = F.ctc_loss(x.transpose(0, 1), TARGETS, FRAMES, SIZES, reduction="none").mean()
    got = criterion(TOKENS)(x, TARGETS, FRAMES, SIZES)
    assert got.item() == pytest.approx(expected.item())


def test_a_wide_beam_without_a_blank_is_asg():
    transitions = rng.normal(size=(3, 3))
    loss = criterion(TOKENS, blank=None)
    with gh.no_grad():
        loss.transitions.copy_(gh.asarray(transitions))
    rows = gh.asarray(EMISSIONS).transpose(0, 1)
    expected = F.asg_loss(rows, TARGETS, FRAMES, SIZES, transitions, reduction="none").mean()
    assert loss(EMISSIONS, TARGETS, FRAMES, SIZES).item() == pytest.approx(expected.item())


def plain(x, target, gain):
    """-log of the target's share of the sum over all texts, text by text."""
    totals = {}
    for path in itertools.product(range(3), repeat=len(x)):
        text = tuple(t for t, _ in itertools.groupby(path) if t)
        score = sum(row[t] for row, t in zip(x, path))
        totals[text] = np.logaddexp(totals.get(text, -np.inf), score)
    scores = {text: total + gain(text) for text, total in totals.items()}
    return np.logaddexp.reduce(list(scores.values())) - scores[target]


def test_scores_of_a_language_model_of_tokens_are_added():
    def gain(text):
        return 0.7 * MODEL.score_text([TOKENS[t] for t in text]) + 0.3 * len(text)

    loss = criterion(TOKENS, MODEL, lm_weight=0.7, word_score=0.3)
    got = loss(EMISSIONS[:1], [[1, 2]], [4], [2]).item()
    assert got == pytest.approx(plain(EMISSIONS[0], (1, 2), gain), rel=1e-6)


def test_scores_of_a_language_model_of_words_are_added():
    tokens = ["", " ", "a"]

    def gain(text):
        words = "".join(tokens[t] for t in text).split()
        return 0.7 * WORDS.score_text(words) + 0.3 * len(words)

    loss = criterion(tokens, WORDS, boundary=" ", lm_weight=0.7, word_score=0.3)
    got = loss(EMISSIONS[:1], [[2, 1, 2]], [4], [3]).item()
    assert got == pytest.approx(plain(EMISSIONS[0], (2, 1, 2), gain), rel=1e-6)


@pytest.mark.sample(4)
@pytest.mark.parametrize("blank", [0, None])
@pytest.mark.parametrize("beam_size", [4, 10**5])
@pytest.mark.parametrize("prune", [True, False])
def test_gradients_equal_finite_differences(blank, beam_size, prune):
    options = {"blank": blank, "beam_size": beam_size, "prune": prune, "lm_weight": 0.5}
    loss = criterion(TOKENS, MODEL, **options)
    x = gh.asarray(EMISSIONS).requires_grad_()
    parameters = [x, *loss.parameters()]
    loss(x, TARGETS, FRAMES, SIZES).backward()
    assert len(parameters) == (3 if blank == 0 else 4)
    for parameter in parameters:
        direction = gh.asarray(rng.normal(size=parameter.shape))
        slope = (parameter.grad * direction).sum().item()
        values = []
        for step in (1e-6, -1e-6):
            with gh.no_grad():
                parameter.copy_(parameter + direction * step)
                values.append(loss(x, TARGETS, FRAMES, SIZES).item())
                parameter.copy_(parameter - direction * step)
        assert slope == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-4, abs=1e-8)


def test_pruning_leaves_nodes_out_and_changes_nothing():
    x = rng.normal(size=(1, 40, 3)) * 2
    losses, nodes = [], []
    for prune in (False, True):
        loss = criterion(TOKENS, MODEL, beam_size=12, prune=prune)
        losses.append(loss(x, [[1, 2, 1]], [40], [3]).item())
        nodes.append(loss.search(x[0]).counts()[0])
    assert losses[0] == pytest.approx(losses[1])
    assert nodes[1] < nodes[0] / 2


def test_the_loss_is_positive_where_the_target_is_not_in_the_beam():
    x = np.full((1, 6, 3), -9.0)
    x[0, :, 2] = 9.0
    value = criterion(TOKENS, beam_size=1)(x, [[1, 1]], [6], [2]).item()
    assert 60 < value < 130


@pytest.mark.slow
def test_a_recogniser_and_its_weights_learn():
    gh.random.seed(0)
    loss = speech.BeamCriterion(TOKENS, MODEL, beam_size=20)
    model = nn.Linear(5, 3)
    x = gh.random.normal((2, 10, 5))
    optimizer = gh.optim.Adam([*model.parameters(), *loss.parameters()], lr=0.05)
    values = []
    for _ in range(15):
        optimizer.zero_grad()
        value = loss(model(x), [[1, 2, 1], [2, 1, 0]], [10, 10], [3, 2])
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert values[-1] < 0.7 * values[0]
    assert loss.lm_weight.item() != 1.0


BAD = [
    (lambda: speech.BeamCriterion(TOKENS, beam_size=0), gh.OptionError, "beam_size"),
    (lambda: speech.BeamCriterion(TOKENS, boundary="|"), gh.OptionError, "boundary"),
    (
        lambda: criterion(TOKENS)(EMISSIONS[..., :2], TARGETS, FRAMES, SIZES),
        gh.ShapeError,
        r"\(2, 4, 2\)",
    ),
    (
        lambda: criterion(TOKENS)(EMISSIONS, [[1, 5], [1, 1]], FRAMES, SIZES),
        gh.IndexOutOfRangeError,
        "5",
    ),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_calls(number):
    call, error, text = BAD[number]
    with pytest.raises(error, match=text):
        call()
