"""`gh.fit`: the training loop. It reads from top to bottom; its state is in run.py."""

import time
from contextlib import nullcontext
from typing import Any

from glasshouse.autograd import no_grad
from glasshouse.base.errors import ShapeError
from glasshouse.capture import optimize
from glasshouse.dispatch.value import Value
from glasshouse.distributed.replicas.replicate import no_sync
from glasshouse.fit.callbacks import Callback
from glasshouse.fit.run import FitRun, History
from glasshouse.nn import Module
from glasshouse.ops.checks import check_integer, check_path, check_type
from glasshouse.optim import clip_grad_norm_, clip_grad_value_
from glasshouse.tensor import Tensor


def fit(
    model: Module,
    data: Any,
    loss: Any,
    optimizer: Any,
    metrics: Any = None,
    callbacks: Any = (),
    *,
    epochs: int = 1,
    validation: Any = None,
    schedule: Any = None,
    schedule_every: str = "epoch",
    clip_norm: float | None = None,
    clip_value: float | None = None,
    accumulate: int = 1,
    autocast: str | None = None,
    capture: bool = False,
    resume: Any = None,
) -> History:
    """Train `model` in place until it has seen `data` `epochs` times; a row of numbers an epoch.

    `data` and `validation` give batches (*inputs, target), epoch after epoch: a DataLoader, or a
    list. A step is loss(model(*inputs), target), backward and optimizer.step(). `metrics` are
    meters by name, or a list of them, updated with (scores, target). `callbacks` are called after
    each step and epoch. `schedule` steps every "epoch" or "step"; one that waits for a plateau gets
    the validation loss, if there is one. `accumulate` batches make one step, whose gradient is the
    mean of theirs. Gradients are clipped to `clip_norm`, or each element to `clip_value`.
    `autocast` is "bfloat16" or "float16", the latter with a GradScaler. With `capture` a step is
    captured by gh.optimize.

    On several ranks (gh.distributed.init), each trains on its rows of every batch, with one set of
    parameters: the numbers are those of one process, but for rounding. Rows of the history are of
    all ranks; those callbacks that write do so on the first.

    `resume` is a file of `Checkpoint`, also one made in the middle of an epoch, or its folder,
    which may be empty yet; one that does not exist is refused, unless a `Checkpoint` of this run
    makes it. The run continues with the bits of one that was never stopped, if
    all is built as it was then, the data is a DataLoader (other data is read again up to that
    place), and random numbers are gh.random's.

    Raises: OptionError, DTypeError for arguments that do not fit together; CheckpointError for a
        file that is not a run of these objects, or does not exist; ShapeError for batches or losses
        of another form; GradError after the first step whose loss is NaN.
    Example:
        >>> x = np.linspace(-1, 1, 8, dtype=np.float32)[:, None]
        >>> data = gh.data.DataLoader(gh.data.TensorDataset(x, 2 * x), batch_size=4)
        >>> line = nn.Linear(1, 1)
        >>> opt = gh.optim.SGD(line.parameters(), lr=0.1)
        >>> history = gh.fit(line, data, nn.functional.mse_loss, opt, epochs=20)
        >>> len(history), history["loss"][-1] < history["loss"][0]
        (20, True)
    """
    epochs = check_integer("fit", "epochs", epochs, 0)
    run = FitRun(model, data, loss, optimizer, metrics, callbacks, validation=validation,
                 schedule=schedule, schedule_every=schedule_every, clip_norm=clip_norm,
                 clip_value=clip_value, accumulate=accumulate, autocast=autocast)  # fmt: skip
    if resume is not None:
        run.resume(check_path("fit", resume))
    step = optimize(train_step) if capture else train_step
    try:
        run.call(Callback.on_start)
        while len(run.history) < epochs and not run.stopped:
            train_epoch(run, step)
            run.call(Callback.on_epoch)
    finally:
        run.call(Callback.on_end)
    return run.history


def train_epoch(run: FitRun, step: Any) -> None:
    """The rest of one epoch, validation and all; adds its row to the history."""
    started = time.perf_counter() - run.seconds
    run.model.train()
    for group in run.groups():
        for (loss, scores), (_, target, _) in zip(step(run, group), group, strict=True):
            run.meters.update(loss, scores, target)
        run.steps += 1
        run.check_number()
        run.step_schedule("step")
        run.seconds = time.perf_counter() - started
        run.call(Callback.on_step)
    row = {"epoch": len(run.history) + 1, "lr": float(run.optimizer.param_groups[0]["lr"])}
    row |= run.meters.of_all_ranks().values()
    if run.validation is not None:
        row |= evaluate(run)
    run.end_epoch({**row, "seconds": time.perf_counter() - started})


def train_step(run: FitRun, group: list[Any]) -> list[Any]:
    """One update by the mean gradient of a group of batches: [(loss, scores)] of each; scores are
    None without metrics."""
    has_metrics = len(run.meters.metrics) > 1  # the loss is one; to end at it is faster
    run.optimizer.zero_grad()
    results = []
    for number, (inputs, target, share) in enumerate(group):
        with run.autocast(), share.draws() if share else nullcontext():
            scores = run.model(*inputs)
            loss = check_loss(run.loss(scores, target))
        part = loss / len(group) if len(group) > 1 else loss
        is_last = number + 1 == len(group)
        with nullcontext() if is_last else no_sync(run.model):
            run.scaler.scale(part * share.weight if share else part).backward()
        results.append((loss, scores if has_metrics else None))
    if run.clip_norm is not None or run.clip_value is not None:
        run.scaler.unscale_(run.optimizer)
    if run.clip_norm is not None:
        clip_grad_norm_(run.model.parameters(), run.clip_norm)
    if run.clip_value is not None:
        clip_grad_value_(run.model.parameters(), run.clip_value)
    run.scaler.step(run.optimizer)
    run.scaler.update()
    return results


def check_loss(loss: Tensor | float) -> Tensor:
    """The loss is a tensor."""
    fix = "Return the result of a loss of nn.functional, not its item()."
    return check_type("fit", loss, Value, "a tensor of the loss", fix)


def evaluate(run: FitRun) -> dict[Any, Any]:
    """Loss and metrics on the validation data, their names with "val_" in front."""
    run.model.eval()
    meters = run.meters.fresh()
    with no_grad(), run.autocast():
        for inputs, target in run.batches(run.validation):
            if run.ranks > 1 and not target.shape[0]:  # fewer rows than ranks
                continue
            scores = run.model(*inputs)
            meters.update(run.loss(scores, target), scores, target)
    meters = meters.of_all_ranks()
    if not meters.metrics["loss"].weight:
        fix = "Check the data set and the batch size."
        raise ShapeError("fit", "at least one batch of validation", "none", fix)
    return {f"val_{name}": value for name, value in meters.values().items()}
