"""Networks as estimators of scikit-learn, which has to be installed: for pipelines, searches and
cross-validation. Import them by name: `from glasshouse.fit.estimator import Classifier`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from glasshouse.autograd import no_grad
from glasshouse.base.errors import DTypeError, OptionError, ShapeError, type_name
from glasshouse.data import DataLoader, TensorDataset
from glasshouse.fit.loop import fit
from glasshouse.nn import Linear, Module, ReLU, Sequential
from glasshouse.nn.functional import cross_entropy, mse_loss, softmax
from glasshouse.ops.checks import check_integer
from glasshouse.optim import Adam
from glasshouse.tensor import Tensor, asarray, random

ROWS_AT_ONCE = 4096  # of a prediction, so that its memory is bounded


def perceptron(features: int, outputs: int) -> Module:
    """One hidden layer of 64."""
    return Sequential(Linear(features, 64), ReLU(), Linear(64, outputs))


class NetworkEstimator(BaseEstimator):
    """Base of classifiers and regressors: the network, its training, and its outputs."""

    default_loss: ClassVar[Any] = None

    def __init__(
        self,
        module: Any = None,
        *,
        loss: Any = None,
        optimizer: Any = None,
        lr: Any = 0.01,
        epochs: Any = 40,
        batch_size: Any = 32,
        callbacks: Any = (),
        autocast: Any = None,
        random_state: Any = None,
    ) -> None:
        self.module = module
        self.loss = loss
        self.optimizer = optimizer
        self.lr = lr
        self.epochs = epochs
        self.batch_size = batch_size
        self.callbacks = callbacks
        self.autocast = autocast
        self.random_state = random_state

    def begin(self, x: np.ndarray, outputs: int) -> None:
        """A new network and optimizer, for samples like those of x."""
        draws = check_random_state(self.random_state)
        self.seed_: int = int(draws.randint(2**31 - 1))
        self.draws_: dict[Any, Any] = random.Generator(self.seed_).state()
        self.epochs_: int = 0
        make_module = perceptron if self.module is None else self.module
        if isinstance(make_module, Module) or not callable(make_module):
            expected = "module to be a function (features, outputs) that makes a network"
            fix = "Write module=lambda features, outputs: …, for fit makes a new one."
            raise DTypeError(type(self).__name__, expected, type_name(make_module), fix)
        with self.own_draws():
            self.module_: Module = make_module(x.shape[1], outputs)
        make = self.optimizer or (lambda parameters: Adam(parameters, lr=self.lr))
        self.optimizer_: Any = make(self.module_.parameters())
        self.history_: list[Any] = []

    @contextmanager
    def own_draws(self) -> Iterator[None]:
        """Inside, gh.random gives this estimator's numbers; outside, it continues as before."""
        generator = random.default_generator()
        before = generator.state()
        generator.set_state(self.draws_)
        try:
            yield
        finally:
            self.draws_ = generator.state()
            generator.set_state(before)

    def train(self, x: np.ndarray, targets: np.ndarray, epochs: int) -> None:
        """So many epochs more."""
        data = DataLoader(TensorDataset(x, targets), self.batch_size, True, seed=self.seed_)
        data.set_epoch(self.epochs_)
        loss = self.loss or type(self).default_loss
        callbacks = self.callbacks or ()
        with self.own_draws():
            rows = fit(self.module_, data, loss, self.optimizer_, None, callbacks,
                       epochs=epochs, autocast=self.autocast)  # fmt: skip
        self.epochs_ += len(rows)
        self.history_ = [*self.history_, *rows]

    def outputs(self, x: Any) -> np.ndarray:
        """Outputs of the network for samples, as `scores`: (samples, outputs)."""
        check_is_fitted(self, "module_")
        x = validate_data(self, x, dtype=np.float32, allow_nd=True, reset=False)
        self.module_.eval()
        with no_grad():
            parts = [
                self.scores(self.module_(asarray(x[start : start + ROWS_AT_ONCE]))).numpy()
                for start in range(0, len(x), ROWS_AT_ONCE)
            ]
        return np.concatenate(parts)

    def scores(self, outputs: Tensor) -> Tensor:
        """Scores from the network's outputs; here the outputs themselves."""
        return outputs

    def checked_epochs(self) -> int:
        return check_integer(type(self).__name__, "epochs", self.epochs, 1)


class Classifier(ClassifierMixin, NetworkEstimator):
    """A network that predicts classes, as an estimator of scikit-learn.

    `module(features, classes)` makes the network, whose outputs are scores; a hidden layer of 64
    unless given. `loss(scores, class numbers)` is the cross entropy unless given, and
    `optimizer(parameters)` Adam with the rate `lr`. `callbacks` and `autocast` are those of gh.fit.
    Samples are float32; the state of gh.random does not change.

    Raises: as gh.fit, and scikit-learn's errors for bad X and y.
    Example:
        >>> x = np.array([[0.0], [1.0], [2.0], [3.0]])
        >>> model = Classifier(epochs=100, random_state=0).fit(x, ["low", "low", "high", "high"])
        >>> model.predict([[0.0], [3.0]]).tolist()
        ['low', 'high']
    """

    classes_: np.ndarray

    default_loss: ClassVar[Any] = staticmethod(cross_entropy)

    def fit(self, X: Any, y: Any) -> Self:
        """Train a new network on samples X and their classes y; the estimator itself."""
        epochs = self.checked_epochs()
        x, y = self.checked(X, y, reset=True)
        self.classes_, targets = np.unique(y, return_inverse=True)
        self.begin(x, len(self.classes_))
        self.train(x, targets, epochs)
        return self

    def partial_fit(self, X: np.ndarray, y: np.ndarray, classes: Any = None) -> Self:
        """One epoch more on X and y; the first call takes all `classes`. The estimator itself.

        Raises: OptionError if the first call gives no classes, or y has others.
        """
        begins = not hasattr(self, "module_")
        x, y = self.checked(X, y, reset=begins)
        if begins:
            if classes is None:
                fix = "Pass classes=np.unique(all_labels)."
                raise OptionError("partial_fit", "all classes in the first call", "none", fix)
            self.classes_ = np.unique(classes)
            self.begin(x, len(self.classes_))
        targets = np.searchsorted(self.classes_, y).clip(0, len(self.classes_) - 1)
        unknown = y[self.classes_[targets] != y]
        if unknown.size:
            fix = "Give all classes in the first call."
            expected = f"classes of {self.classes_.tolist()}"
            raise OptionError("partial_fit", expected, unknown[0], fix)
        self.train(x, targets, 1)
        return self

    def checked(self, x: Any, y: Any, reset: bool) -> tuple[np.ndarray, ...]:
        x, y = validate_data(self, x, y, dtype=np.float32, allow_nd=True, reset=reset)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        return x, y

    def scores(self, outputs: Tensor) -> Tensor:
        if outputs.shape[1:] != (len(self.classes_),):
            expected = f"scores (samples, {len(self.classes_)}) of the module"
            raise ShapeError("Classifier", expected, outputs.shape, "Give it as many outputs.")
        return softmax(outputs, 1)

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class: (samples, classes)."""
        return self.outputs(X)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each sample."""
        best = self.outputs(X).argmax(1)
        return self.classes_[best]


class Regressor(RegressorMixin, NetworkEstimator):
    """A network that predicts numbers, as an estimator of scikit-learn.

    As `Classifier`, with the mean squared error as loss. Targets (samples,) or (samples, outputs)
    are scaled to mean 0 and variance 1, as they are in the first fit, and predictions back.

    Raises: as gh.fit, and scikit-learn's errors for bad X and y.
    Example:
        >>> x = np.linspace(-1, 1, 64)[:, None]
        >>> Regressor(random_state=0).fit(x, 100 * x[:, 0]).score(x, 100 * x[:, 0]) > 0.99
        True
    """

    default_loss: ClassVar[Any] = staticmethod(mse_loss)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Train a new network on samples X and their numbers y; the estimator itself."""
        epochs = self.checked_epochs()
        x, y = self.checked(X, y, reset=True)
        self.begin_with(x, y)
        self.train(x, self.scale_targets(y), epochs)
        return self

    def partial_fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        """One epoch more on X and y; the estimator itself."""
        begins = not hasattr(self, "module_")
        x, y = self.checked(X, y, reset=begins)
        if begins:
            self.begin_with(x, y)
        self.train(x, self.scale_targets(y), 1)
        return self

    def checked(self, x: Any, y: Any, reset: bool) -> tuple[np.ndarray, ...]:
        options = {"dtype": np.float32, "allow_nd": True, "multi_output": True, "y_numeric": True}
        return validate_data(self, x, y, reset=reset, **options)

    def begin_with(self, x: np.ndarray, y: np.ndarray) -> None:
        """A new network, and the scale of its targets."""
        self.target_shape_: tuple[Any, ...] = y.shape[1:]
        self.target_mean_: Any = y.mean(0)
        deviation = y.std(0)
        self.target_scale_: np.ndarray = np.where(deviation > 0, deviation, 1.0)
        self.begin(x, int(np.prod(y.shape[1:], dtype=int)))

    def scale_targets(self, y: np.ndarray) -> np.ndarray:
        """Targets as the network sees them: (samples, outputs)."""
        if y.shape[1:] != self.target_shape_:
            fix = "Fit a new estimator for other targets."
            raise ShapeError("Regressor", f"targets (samples, *{self.target_shape_})", y.shape, fix)
        scaled = (y - self.target_mean_) / self.target_scale_
        return scaled.reshape(len(y), -1).astype(np.float32)

    def predict(self, X: Any) -> np.ndarray:
        """The numbers of each sample: (samples,) or (samples, outputs)."""
        outputs = self.outputs(X)
        numbers = outputs.reshape(len(outputs), *self.target_shape_).astype(np.float64)
        return numbers * self.target_scale_ + self.target_mean_
