"""Averages of weights along training: stochastic weight averaging, exponential averages (EMA)."""

import itertools
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

from glasshouse.autograd import no_grad
from glasshouse.base.errors import DTypeError, OptionError, type_name
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch import cast
from glasshouse.nn.module import Module
from glasshouse.nn.norm import BatchNorm
from glasshouse.ops.checks import check_range, check_type
from glasshouse.optim.lr_scheduler.cycles import SWALR as SWALR
from glasshouse.tensor import asarray


def get_swa_avg_fn() -> Callable[..., Any]:
    """The function of (average, value, n) that gives the average of n + 1 values:

        average + (value - average) / (n + 1)

    Source: Izmailov et al. 2018, arXiv:1803.05407, algorithm 1.
    """
    return lambda average, value, count: average + (value - average) / (count + 1)


def get_ema_avg_fn(decay: float = 0.999) -> Callable[..., Any]:
    """The function of (average, value, n) that gives decay * average + (1 - decay) * value.

    Raises: OptionError for a decay outside [0, 1].
    """
    decay = check_range("get_ema_avg_fn", "decay", decay, 0, 1)
    return lambda average, value, count: average * decay + value * (1 - decay)


def for_all(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The form of an averaging function that writes to a list of averages."""

    def update(averages, values, count) -> None:
        with no_grad():
            for average, value in zip(averages, values, strict=True):
                average.in_place("averaging", cast(fn(average, value, count), average.dtype))

    return update


def get_swa_multi_avg_fn() -> Callable[..., Any]:
    """`get_swa_avg_fn` for a list of averages, which are written to, and one of values."""
    return for_all(get_swa_avg_fn())


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[..., Any]:
    """`get_ema_avg_fn` for a list of averages, which are written to, and one of values.

    Raises: OptionError for a decay outside [0, 1].
    """
    return for_all(get_ema_avg_fn(decay))


class AveragedModel(Module):
    """A copy of a model whose parameters are averages; `update_parameters(model)` takes in those of
    the model as it is now. The first call copies it; `avg_fn(average, value, n)` gives the next
    average, or `multi_avg_fn(averages, values, n)` writes it, where n is how many were averaged.
    Without either all count alike. Buffers are copied, or with `use_buffers` averaged too.

    Raises: OptionError if both functions are given; DTypeError if `model` is no Module.
    Source: Izmailov et al. 2018, arXiv:1803.05407; the interface is PyTorch's.
    Example:
        >>> model = gh.nn.Linear(2, 1)
        >>> average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5))
        >>> for _ in range(3):
        ...     average.update_parameters(model)
        >>> average.n_averaged.item(), average(gh.ones((1, 2))).shape
        (3, (1, 1))
    """

    def __init__(
        self,
        model: Module,
        device: str | None = None,
        avg_fn: Callable[..., Any] | None = None,
        multi_avg_fn: Callable[..., Any] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(model, Module):
            raise DTypeError("AveragedModel", "a Module", type_name(model), "Pass the model.")
        if avg_fn is not None and multi_avg_fn is not None:
            fix = "Leave one of them out."
            raise OptionError("AveragedModel", "avg_fn or multi_avg_fn", "both", fix)
        self.module: Module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", asarray(0, dtype="int64"))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the parameters of `model` into the average; all of it is one Program."""
        count = self.n_averaged.item()
        averages, values = list(self.module.parameters()), list(model.parameters())
        buffers = list(zip(self.module.buffers(), model.buffers(), strict=True))
        if self.use_buffers:
            averages += [average for average, _ in buffers]
            values += [other for _, other in buffers]
        if len(averages) != len(values):
            expected = f"a model with {len(averages)} tensors to average"
            fix = "Pass the model that was copied."
            raise OptionError("update_parameters", expected, len(values), fix)
        with no_grad():
            if count == 0:
                copies: Any = zip(averages, values, strict=True)
            else:
                copies = []
                update = self.multi_avg_fn or for_all(self.avg_fn or get_swa_avg_fn())
                update(averages, [value.detach() for value in values], count)
            for average, other in itertools.chain(copies, () if self.use_buffers else buffers):
                average.in_place("update_parameters", other.detach())
            self.n_averaged += 1
        backends.current().evaluate()


def update_bn(loader: Iterable[Any], model: Any, device: str | None = None) -> None:
    """Recompute the running statistics of a model's batch normalisations from the batches of
    `loader`: tensors, or tuples and lists with the input first. All batches count alike."""
    check_type("update_bn", model, Module, "a Module as model", "Pass (loader, model).")
    norms = [module for module in model.modules() if isinstance(module, BatchNorm)]
    if not norms:
        return
    momenta, was_training = [norm.momentum for norm in norms], model.training
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    model.train()
    try:
        with no_grad():
            for batch in loader:
                x = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(x if device is None else x.to(device))
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        model.train(was_training)
