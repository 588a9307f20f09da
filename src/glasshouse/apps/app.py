"""Base of applications: the data they read, the model they train, and the result they show."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glasshouse.nn import Module


@dataclass(frozen=True)
class AppRecipe:
    """Options that decide the numbers of a run; an application adds its own."""

    epochs: int = 10
    lr: float = 1e-3
    batch_size: int = 64
    seed: int = 0


@dataclass
class Training:
    """Arguments of `gh.fit`, and the other settings of a run.

    `assets` are the model's data beside its weights, such as the names of classes: JSON values,
    saved beside the checkpoint. `held_out` has the samples for the report. The best checkpoint is
    the one with the best `monitor`, the highest or lowest by `mode` ("max" or "min").
    """

    model: Module
    data: Any
    loss: Any
    optimizer: Any
    metrics: Any = None
    validation: Any = None
    schedule: Any = None
    schedule_every: str = "step"
    clip_norm: float | None = None
    autocast: str | None = None
    assets: dict[str, Any] = field(default_factory=dict)
    held_out: Any = None
    monitor: str = "val_loss"
    mode: str = "min"


class App:
    """Base of applications: a name, a recipe, and three methods.

    Example:
        >>> class Line(App):
        ...     name, summary = "line", "A line through points"
        ...     def make_model(self, recipe, assets):
        ...         return gh.nn.Linear(1, 1)
        >>> Line().recipe.epochs
        10
    """

    name = ""
    data_set = ""  # the table of sources.toml, unless it has the application's name
    summary = ""  # one line for `glasshouse train --help`
    recipe: AppRecipe = AppRecipe()

    @property
    def data_name(self) -> str:
        """The name of its data for `glasshouse data`."""
        return self.data_set or self.name

    def data_for(self, settings: dict[str, Any]) -> str:
        """The name of the data of a run with these settings."""
        return self.data_name

    def make_model(self, recipe: Any, assets: dict[str, Any]) -> Module:
        """The network, with new weights."""
        raise NotImplementedError

    def prepare(self, recipe: Any, folder: Path) -> Training:
        """Read the data in a folder, and make all that a run needs."""
        raise NotImplementedError

    def report(self, recipe: Any, training: Training, out: Path) -> dict[str, Any]:
        """Evaluate the trained model, write pictures to `out`, and return the final numbers."""
        raise NotImplementedError
