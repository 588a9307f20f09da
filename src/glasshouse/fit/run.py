"""State of a run of `gh.fit`: its objects, how far it is, and the numbers so far."""

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

from glasshouse.base.dtype import DType
from glasshouse.base.errors import (
    CheckpointError,
    DTypeError,
    GradError,
    OptionError,
    ShapeError,
    suggest,
    type_name,
)
from glasshouse.base.tree import flatten, tree_map
from glasshouse.dispatch.autocast import autocast as autocast_mode
from glasshouse.dispatch.value import Value
from glasshouse.distributed import BatchShare, all_gather_object, mesh, part_of_rank, share_of
from glasshouse.distributed.replicas.replicate import is_replicated, replicate
from glasshouse.fit.callbacks import Callback
from glasshouse.interop.checkpoint import detached, load_checkpoint
from glasshouse.metrics import Average, Metric
from glasshouse.nn import Module
from glasshouse.ops.checks import (
    check_integer,
    check_option,
    check_range,
    check_several,
    check_type,
)
from glasshouse.ops.process import process
from glasshouse.optim import GradScaler, LRScheduler, Optimizer, ReduceLROnPlateau
from glasshouse.tensor import Tensor, eval, random

METRICS = "Pass e.g. metrics={'accuracy': gh.metrics.Accuracy()}."
LAST = "last.safetensors"


class History(list[Any]):
    """The rows of a run, a dict of numbers an epoch; `history["loss"]` is a column.

    Example:
        >>> history = History([{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}])
        >>> history["loss"], history[-1]["epoch"]
        ([0.5, 0.25], 2)
    """

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        return [number_of(row, key, "history") for row in self]


def number_of(row: dict[Any, Any], name: str, where: str) -> float:
    """The number called `name` in a row."""
    if name not in row:
        names = ", ".join(map(repr, row))
        raise OptionError(where, f"one of {names}", repr(name), suggest(name, row))
    return row[name]


class Meters:
    """The mean loss, weighted by batch sizes, and the user's metrics."""

    def __init__(self, metrics: dict[Any, Any]) -> None:
        self.metrics: dict[Any, Any] = {"loss": Average(), **metrics}

    def fresh(self) -> "Meters":
        """The same meters with nothing in them."""
        others = {name: copy.deepcopy(m) for name, m in self.metrics.items() if name != "loss"}
        meters = Meters(others)
        meters.reset()
        return meters

    def of_all_ranks(self) -> "Meters":
        """Meters over the data of all ranks, which call this together."""
        if process.size == 1:
            return self
        synced = {name: m.synced(all_gather_object) for name, m in self.metrics.items()}
        meters = Meters({})
        meters.metrics = synced
        return meters

    def update(self, loss: Tensor, scores: Tensor, target: Tensor) -> None:
        """Take in one batch."""
        for name, metric in self.metrics.items():
            if name == "loss":
                metric.update(loss, weight=target.shape[0] if target.ndim else 1)
            else:
                metric.update(scores, target)

    def values(self) -> dict[Any, Any]:
        """The numbers so far, by name."""
        return {name: metric.value() for name, metric in self.metrics.items()}

    def reset(self) -> None:
        """Forget all batches."""
        for metric in self.metrics.values():
            metric.reset()


def metrics_by_name(metrics: Any) -> dict[Any, Any]:
    """Metrics as a dict; those of a list are named by their classes."""
    named = metrics or {}
    if not isinstance(metrics, dict):
        several = [metrics] if isinstance(metrics, Metric) else named
        several = check_several("fit", several, "metrics by name, or a list of them", METRICS)
        named = {type(metric).__name__.lower(): metric for metric in several}
        if len(named) < len(several):
            got = [type(metric).__name__ for metric in several]
            raise OptionError("fit", "metrics of different classes", got, "Give a dict by name.")
    for name, metric in named.items():
        check_type("fit", metric, Metric, f"metric {name!r} to be a Metric", METRICS)
        if name in ("loss", "epoch", "lr", "seconds"):
            raise OptionError("fit", "another name for a metric", repr(name), "It is taken.")
    return dict(named)


class FitRun:
    """A run in progress: callbacks may read all of it, and set `stopped`."""

    def __init__(
        self, model: Any, data: Any, loss: Any, optimizer: Any, metrics: Any = None,
        callbacks: Any = (), *, validation: Any = None, schedule: Any = None,
        schedule_every: str = "epoch", clip_norm: Any = None, clip_value: Any = None,
        accumulate: int = 1, autocast: str | None = None,
    ) -> None:  # fmt: skip
        self.model: Any = check_type(
            "fit", model, Module, "a Module as model", "Subclass nn.Module."
        )
        self.data: Any = part_of_rank(check_batches("data", data))
        self.validation: Any = None
        if validation is not None:
            self.validation = part_of_rank(check_batches("validation", validation))
        self.loss = loss
        if not callable(loss) or isinstance(loss, type):
            got = f"the class {loss.__name__}" if isinstance(loss, type) else type_name(loss)
            fix = "Pass e.g. nn.functional.mse_loss, or nn.MSELoss()."
            raise DTypeError("fit", "a function of (scores, target) as loss", got, fix)
        fix = "Pass e.g. gh.optim.Adam(model.parameters())."
        self.optimizer: Any = check_type("fit", optimizer, Optimizer, "an optimizer", fix)
        check_owner(model, optimizer)
        self.ranks: int = process.size
        if self.ranks > 1 and not is_replicated(model):
            replicate(model, mesh({"data": self.ranks}))
        self.meters: Meters = Meters(metrics_by_name(metrics))
        self.callbacks: list[Any] = in_order(callbacks)
        self.schedule: Any = checked_schedule(schedule, optimizer)
        self.schedule_every: Any = check_option(
            "fit", "schedule_every", schedule_every, ("epoch", "step")
        )
        if schedule_every == "step" and isinstance(schedule, ReduceLROnPlateau):
            fix = "Leave schedule_every out."
            raise OptionError("fit", "a plateau to be looked for each epoch", "'step'", fix)
        for name, limit in (("clip_norm", clip_norm), ("clip_value", clip_value)):
            if limit is not None and not check_range("fit", name, limit, 0, math.inf):
                raise OptionError("fit", f"{name} above 0", repr(limit), "Leave it out for none.")
        self.clip_norm = clip_norm
        self.clip_value = clip_value
        self.accumulate: int = check_integer("fit", "accumulate", accumulate, 1)
        self.dtype: DType | None = None if autocast is None else autocast_mode(autocast).dtype
        is_half = self.dtype is not None and self.dtype.name == "float16"
        self.scaler: GradScaler = GradScaler(enabled=is_half)
        self.history: History = History()
        self.steps: int = 0  # updates so far
        self.place: int = 0  # batches of this epoch so far
        self.seconds: float = 0.0  # of this epoch so far
        self.stopped = False

    def autocast(self) -> Any:
        """The context of a forward pass."""
        return nullcontext() if self.dtype is None else autocast_mode(self.dtype)

    def call(self, method: Callable[..., Any]) -> None:
        """Call a method of Callback on each callback."""
        for callback in self.callbacks:
            if not (callback.on_first_rank and process.rank):
                getattr(callback, method.__name__)(self)

    def groups(self) -> Iterator[list[tuple[Any, Any, BatchShare | None]]]:
        """The batches of this epoch that are still to come, in groups of one step each; with the
        share of this rank where there are several."""
        skipped = 0 if hasattr(self.data, "load_state_dict") else self.place
        batches = islice(self.batches(self.data), skipped, None)
        while group := list(islice(batches, self.accumulate)):
            self.place += len(group)
            yield [(inputs, target, self.share(target)) for inputs, target in group]
        if not self.place:
            fix = "Check the data set, the batch size, and that it can be read again."
            raise ShapeError("fit", "at least one batch an epoch", "none", fix)

    def share(self, target: Tensor) -> BatchShare | None:
        """Which part of a batch this rank has; None on a single one."""
        if self.ranks == 1:
            return None
        return share_of(target.shape[0] if target.ndim else 1)

    def batches(self, data: Any) -> Any:
        """(inputs, target) of each batch."""
        for batch in data:
            if not isinstance(batch, (tuple, list)) or len(batch) < 2:
                got = type_name(batch)
                got += f" of {len(batch)}" if isinstance(batch, (tuple, list)) else ""
                fix = "Map the data to such tuples."
                raise ShapeError("fit", "batches (*inputs, target)", got, fix)
            *inputs, target = batch
            fix = "Collate the data to tensors."
            yield tuple(inputs), check_type("fit", target, Value, "a tensor as target", fix)

    def step_schedule(self, every: str) -> None:
        """Step the schedule if it steps once for each `every`."""
        if self.schedule is None or self.schedule_every != every:
            return
        if isinstance(self.schedule, ReduceLROnPlateau):
            row = self.history[-1]
            self.schedule.step(row.get("val_loss", row["loss"]))
        else:
            self.schedule.step()

    def end_epoch(self, row: dict[Any, Any]) -> None:
        """Note the row of an epoch that is done, and begin the next."""
        self.history.append(row)
        self.step_schedule("epoch")
        self.place, self.seconds = 0, 0.0
        self.meters.reset()

    def number(self, name: str) -> float:
        """The number of that name in the last row."""
        return number_of(self.history[-1], name, "fit")

    def state_dict(self) -> dict[Any, Any]:
        """How far the run is, as a tree of numbers; models and the like are saved beside it. All
        ranks call it together."""
        loaders = {"data": self.data, "validation": self.validation}
        everywhere = self.meters.of_all_ranks().metrics
        meters = {name: m.state_dict() for name, m in everywhere.items()}
        return {
            "history": list(self.history),
            "steps": self.steps,
            "place": self.place,
            "seconds": self.seconds,
            "meters": meters,
            "scaler": self.scaler.state_dict(),
            "callbacks": [[type(c).__name__, c.state_dict()] for c in self.callbacks],
            "loaders": {k: x.state_dict() for k, x in loaders.items() if hasattr(x, "state_dict")},
        }

    def check_state(self, state: dict[Any, Any]) -> None:
        """Raise CheckpointError if `state` belongs to other metrics or callbacks."""
        current = self.state_dict()
        for name, of in (("metrics", meter_names), ("callbacks", callback_names)):
            if of(current) != of(state):
                fix = "Resume with those that the run began with."
                raise CheckpointError("fit", f"the {name} {of(state)}", of(current), fix)

    def load_state_dict(self, state: dict[Any, Any]) -> None:
        """Continue from a state that `state_dict` returned."""
        self.history = History(state["history"])
        self.steps, self.place, self.seconds = state["steps"], state["place"], state["seconds"]
        self.scaler.load_state_dict(state["scaler"])
        for name, meter in state["meters"].items() if process.rank == 0 else ():
            self.meters.metrics[name].load_state_dict(meter)
        for callback, (_, saved_state) in zip(self.callbacks, state["callbacks"], strict=True):
            callback.load_state_dict(saved_state)
        for name, loader in state["loaders"].items():
            getattr(self, name).load_state_dict(loader)

    def resume(self, path: Path) -> None:
        """Go on from the file at `path`; from the last in a folder, if there is any."""
        if path.suffix != ".safetensors":
            folder, path = path, path / LAST
            if not path.exists():
                self.check_folder(folder)
                return
        metrics = load_checkpoint(path)["metrics"]
        if not isinstance(metrics, dict) or "fit" not in metrics:
            fix = "Load it with gh.interop.load_checkpoint."
            raise CheckpointError("fit", f"{path} to hold a run of gh.fit", "another state", fix)
        self.check_state(metrics["fit"])
        load_checkpoint(
            path,
            model=self.model,
            optimizer=self.optimizer,
            scheduler=self.schedule,
            random_state=random.default_generator(),
        )
        self.load_state_dict(metrics["fit"])

    def check_folder(self, folder: Path) -> None:
        """A folder without a checkpoint exists, or is the one that this run saves to.

        Raises: CheckpointError
        """
        saved_to = (getattr(callback, "folder", None) for callback in self.callbacks)
        if not folder.is_dir() and all(x is None or Path(x) != folder for x in saved_to):
            expected = "resume to be a file or folder of Checkpoint"
            fix = "Check the path, or pass Checkpoint of this folder as a callback."
            raise CheckpointError("fit", expected, f"{str(folder)!r}, which does not exist", fix)

    def check_number(self) -> None:
        """The loss so far is no NaN. A GradScaler leaves out steps whose gradients are not finite.

        Raises: GradError
        """
        if math.isnan(self.meters.metrics["loss"].value()) and not self.scaler.enabled:
            got = f"nan in step {self.steps} (epoch {len(self.history) + 1})"
            fix = "Check the data for nan, lower the learning rate, or set clip_norm."
            raise GradError("fit", "a loss that is a number", got, fix)

    def hold(self) -> dict[Any, Any]:
        """The state of the whole run now, for `save_checkpoint`; the run continues."""
        objects = {"model": self.model, "optimizer": self.optimizer, "scheduler": self.schedule}
        states = {name: HeldState(x) for name, x in objects.items() if x is not None}
        return {
            **states,
            "random_state": random.default_generator().state(),
            "epoch": len(self.history),
            "metrics": {"fit": HeldState(self).state},
        }


class HeldState:
    """The state of an object as it was, for a thread to write while the object changes."""

    def __init__(self, x: Any) -> None:
        self.state: Any = tree_map(detached, x.state_dict())
        eval(*filter(is_value, flatten(self.state)[0]))

    def state_dict(self) -> dict[Any, Any]:
        """The state."""
        return self.state


def is_value(leaf: Any) -> bool:
    return isinstance(leaf, Value)


def meter_names(state: dict[Any, Any]) -> list[Any]:
    return sorted(state["meters"])


def callback_names(state: dict[Any, Any]) -> list[Any]:
    return [name for name, _ in state["callbacks"]]


def check_batches(name: str, data: Any) -> Any:
    if not hasattr(data, "__iter__") or hasattr(data, "__next__"):
        got, fix = type_name(data), "Pass a gh.data.DataLoader."
        raise DTypeError("fit", f"{name} that can be read again each epoch", got, fix)
    return data


def check_owner(model: Any, optimizer: Optimizer) -> None:
    """The optimizer has a parameter of the model at least."""
    ids = {id(p) for p in model.parameters()}
    if ids and ids.isdisjoint(id(p) for group in optimizer.param_groups for p in group["params"]):
        fix = "Make it with model.parameters()."
        raise OptionError("fit", "an optimizer of the model's parameters", "one of others", fix)


def in_order(callbacks: Any) -> list[Any]:
    """The callbacks, those that save the others' state last."""
    several = [callbacks] if isinstance(callbacks, Callback) else callbacks
    several = check_several("fit", several, "a list of callbacks", "Pass e.g. [Progress()].")
    for callback in several:
        check_type("fit", callback, Callback, "callbacks", "Subclass gh's Callback.")
    return sorted(several, key=lambda callback: callback.goes_last)


def checked_schedule(schedule: Any, optimizer: Optimizer) -> Any:
    if schedule is None:
        return None
    fix = "Pass e.g. gh.optim.StepLR(optimizer, 10)."
    check_type("fit", schedule, LRScheduler, "a schedule", fix)
    if schedule.optimizer is not optimizer:
        fix = "Make it with the optimizer that is passed."
        raise OptionError("fit", "a schedule of this optimizer", "one of another", fix)
    return schedule
