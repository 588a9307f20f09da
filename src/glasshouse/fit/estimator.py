"""Networks as estimators of scikit-learn, which has to be installed: for pipelines, searches and
cross-validation. Import them by name: `from glasshouse.fit.estimator import Classifier`."""

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted, validate_data

from glasshouse.autograd import no_grad
from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.data import DataLoader, TensorDataset
from glasshouse.fit.loop import fit
from glasshouse.nn import Linear, Module, ReLU, Sequential
from glasshouse.nn.functional import cross_entropy, mse_loss, softmax
from glasshouse.ops.checks import check_integer
from glasshouse.optim import Adam
from glasshouse.tensor import asarray, random

ROWS_AT_ONCE = 4096  # of a prediction, whose memory is bounded so


def perceptron(features: int, outputs: int) -> Module:
    """One hidden layer of 64."""
    return Sequential(Linear(features, 64), ReLU(), Linear(64, outputs))
