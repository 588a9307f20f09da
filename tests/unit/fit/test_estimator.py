"""Networks as estimators: scikit-learn's own checks, searches, pipelines, pickles."""

import pickle

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn

pytest.importorskip("sklearn", minversion="1.6")
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from glasshouse.fit import EarlyStopping
from glasshouse.fit.estimator import Classifier, Regressor

rng = np.random.default_rng(0)
X = rng.normal(size=(80, 3))
Y = np.where(X[:, 0] > 0, "right", "left")
Z = 50 + 10 * X[:, 0] - 5 * X[:, 1]


def quick(kind, **options):
    return kind(epochs=12, lr=0.05, random_state=0, **options)


CHECKS = [
    (f"{kind.__name__}-{check.func.__name__}-{number}", kind, check)
    for kind in (Classifier, Regressor)
    for number, (_, check) in enumerate(estimator_checks_generator(quick(kind), legacy=True))
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "check"), [c[1:] for c in CHECKS], ids=[c[0] for c in CHECKS])
def test_a_check_of_scikit_learn(kind, check):
    check(quick(kind))


@pytest.mark.slow
def test_digits_are_read():
    images, labels = load_digits(return_X_y=True)
    model = Classifier(epochs=10, random_state=0).fit(images[:1200] / 16, labels[:1200])
    assert model.score(images[1200:] / 16, labels[1200:]) > 0.9
    proba = model.predict_proba(images[1200:1210] / 16)
    np.testing.assert_allclose(proba.sum(1), 1, rtol=1e-6)
    np.testing.assert_array_equal(proba.argmax(1), model.predict(images[1200:1210] / 16))


def test_images_go_to_networks_that_take_images():
    def network(channels, classes):
        return nn.Sequential(
            nn.Conv2d(channels, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 2 * 2, classes)
        )

    images = rng.normal(size=(40, 2, 4, 4))
    labels = (images[:, 0].mean((1, 2)) > 0).astype(int)
    assert quick(Classifier, module=network).fit(images, labels).score(images, labels) > 0.9


def test_a_search_in_a_pipeline_finds_the_better_rate():
    search = GridSearchCV(
        make_pipeline(StandardScaler(), quick(Classifier)), {"classifier__lr": [1e-7, 0.05]}, cv=2
    )
    search.fit(X, Y)
    assert search.best_params_ == {"classifier__lr": 0.05} and search.best_score_ > 0.85
    assert cross_val_score(quick(Regressor), X, Z, cv=2).min() > 0.8


@pytest.mark.parametrize(("kind", "y"), [(Classifier, Y), (Regressor, Z)])
def test_clones_are_unfitted_and_pickles_are_the_same(kind, y):
    model = quick(kind, batch_size=16).fit(X, y)
    other = clone(model)
    assert other.get_params() == model.get_params() and not hasattr(other, "module_")
    np.testing.assert_array_equal(other.fit(X, y).predict(X), model.predict(X))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    again.partial_fit(X, y)
    np.testing.assert_array_equal(again.predict(X), model.partial_fit(X, y).predict(X))


def test_parts_make_the_whole():
    whole = quick(Classifier).fit(X, Y)
    parts = quick(Classifier)
    for _ in range(12):
        parts.partial_fit(X, Y, classes=["left", "right"])
    np.testing.assert_array_equal(parts.predict_proba(X), whole.predict_proba(X))
    assert len(parts.history_) == len(whole.history_) == 12


def test_several_targets_keep_their_shape():
    targets = np.stack([Z, -Z], 1)
    model = quick(Regressor).fit(X, targets)
    assert model.predict(X).shape == (80, 2) and model.score(X, targets) > 0.9


def test_random_numbers_of_others_are_left_alone():
    gh.random.seed(5)
    before = gh.random.default_generator().state()
    quick(Classifier).fit(X, Y)
    assert gh.random.default_generator().state() == before


@pytest.mark.slow
def test_callbacks_and_options_reach_the_loop():
    stopping = EarlyStopping("loss", patience=1, min_delta=100.0)
    model = quick(Classifier, callbacks=[stopping], autocast="bfloat16").fit(X, Y)
    assert len(model.history_) == 2


BAD_CALLS = {
    "module-name": (lambda: Classifier("perceptron").fit(X, Y), "got str"),
    "module-made": (lambda: Regressor(nn.Linear(2, 1)).fit(X, Z), "Linear"),
    "classes": (lambda: Classifier().partial_fit(X, Y), "all classes"),
    "unknown-class": (lambda: Classifier().partial_fit(X, Y, classes=["left"]), "right"),
    "epochs": (lambda: Classifier(epochs=0).fit(X, Y), "0"),
    "batch-size": (lambda: Classifier(batch_size=0).fit(X, Y), "0"),
    "outputs": (lambda: Classifier(lambda n, k: nn.Linear(n, 3)).fit(X, Y).predict(X), "(80, 3)"),
    "targets": (lambda: Regressor().fit(X, Z).partial_fit(X, Z[:, None]), "(80, 1)"),
    "autocast": (lambda: Classifier(autocast="int8").fit(X, Y), "int8"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_a_wrong_call_says_what_came(name):
    call, part = BAD_CALLS[name]
    with pytest.raises((ValueError, TypeError), match="expected .*; got ") as caught:
        call()
    assert part in str(caught.value)
