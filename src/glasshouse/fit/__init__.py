"""A short training loop, its callbacks, and estimators for scikit-learn (by name:
`from glasshouse.fit.estimator import Classifier`). Its use is optional."""

from glasshouse.fit import calling
from glasshouse.fit.callbacks import Callback, CSVLog, EarlyStopping, Progress, TensorBoard
from glasshouse.fit.checkpoints import Checkpoint
from glasshouse.fit.loop import fit
from glasshouse.fit.run import FitRun, History

__all__ = [
    "CSVLog", "Callback", "Checkpoint", "EarlyStopping", "FitRun", "History", "Progress",
    "TensorBoard", "fit",
]  # fmt: skip
