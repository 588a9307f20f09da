"""Normalisation layers."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from glasshouse.base import OptionError, ShapeError, check_shape
from glasshouse.base.dtype import DTypeLike
from glasshouse.base.shape import Shape
from glasshouse.dispatch.value import as_value
from glasshouse.nn import functional, init
from glasshouse.nn.checks import check_divides, check_floating, check_ndim, check_positive
from glasshouse.nn.functional.axes import AXES
from glasshouse.nn.functional.norm import batch_norm_of_ranks
from glasshouse.nn.layer import by_axes
from glasshouse.nn.linear import add_parameters
from glasshouse.nn.module import Module
from glasshouse.ops.process import ProcessGroup, process
from glasshouse.tensor import Tensor
from glasshouse.tensor.standard.creation import ones, zeros

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "CrossMapLRN2d", "GroupNorm",
           "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LayerNorm", "LocalResponseNorm",
           "RMSNorm", "SyncBatchNorm"]  # fmt: skip


class Norm(Module):
    """Base of normalization layers: optional affine weight and bias, set to 1 and 0."""

    def add_affine(
        self,
        shape: int | Sequence[int],
        weight: bool,
        bias: bool,
        device: str | None,
        dtype: DTypeLike | None,
    ) -> None:
        shapes = {"weight": shape if weight else None, "bias": shape if weight and bias else None}
        add_parameters(self, device, dtype, **shapes)

    def reset_parameters(self) -> None:
        """Set the weight to 1 and the bias to 0, where there are any."""
        for value, reset in ((self.weight, init.ones_), (self.bias, init.zeros_)):
            if value is not None:
                reset(value)


class RunningNorm(Norm):
    """Base of BatchNorm and InstanceNorm: adds running statistics to the affine parameters."""

    n = 0  # spatial axes
    _shown_first = ("num_features",)
    _shown = ("eps", "momentum", "affine", "bias", "track_running_stats")

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: str | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_positive(type(self).__name__, num_features=num_features)
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        size, track = (num_features,), track_running_stats
        self.add_affine(size, affine, bias, device, dtype)
        count = zeros((), dtype="int64", device=device) if track else None
        mean, var = (f(size, dtype=dtype, device=device) if track else None for f in (zeros, ones))
        self.register_buffer("running_mean", mean)
        self.register_buffer("running_var", var)
        self.register_buffer("num_batches_tracked", count)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Set the running mean to 0, the variance to 1 and the number of batches to 0."""
        if self.track_running_stats:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            init.zeros_(self.num_batches_tracked)

    def reset_parameters(self) -> None:
        """Set the weight to 1, the bias to 0, and the running statistics as at first."""
        self.reset_running_stats()
        super().reset_parameters()

    def check_input(self, input: Tensor, ndims: tuple[int, ...], layout: str, axis: int) -> Any:
        name = type(self).__name__
        x = check_floating(name, input)
        check_ndim(name, x, ndims, layout)
        if x.shape[axis] != self.num_features:
            expected = f"{self.num_features} channels on axis {axis % x.ndim}"
            fix = "Change num_features, or move the channels with permute."
            raise ShapeError(name, expected, x.shape, fix)
        return x


class BatchNorm(RunningNorm):
    """`functional.batch_norm` of (N, C, {s}), with weight 1 and bias 0 at first; 1d also of (N, C).

    Training uses the batch's statistics and moves the running ones; evaluation uses those. A
    momentum of None gives the plain average over all batches.

    Shapes: (N, C, {s}) -> the same.
    Raises: ShapeError for another number of axes or channels.
    Source: Ioffe & Szegedy 2015, arXiv:1502.03167.
    """

    def checked(self, input: Tensor) -> Tensor:
        ndims, layout = (self.n + 2,), f"(N, C, {AXES[self.n]})"
        ndims, layout = ((2, 3), f"(N, C) or {layout}") if self.n == 1 else (ndims, layout)
        return self.check_input(input, ndims, layout, 1)

    def forward(self, input: Tensor) -> Tensor:
        x = self.checked(input)
        tracked, momentum = self.track_running_stats, self.momentum
        if self.training and tracked and momentum is None:
            momentum = 1 / (self.num_batches_tracked.item() + 1)
        mean, variance = (self.running_mean, self.running_var) if tracked else (None, None)
        training = self.training or self.running_mean is None
        y = self.normalized(x, mean, variance, training, momentum)
        if self.training and tracked:
            self.num_batches_tracked += 1
        return y

    def normalized(
        self,
        x: Any,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        training: bool,
        momentum: Any,
    ) -> Tensor:
        """The result, by statistics of this batch or the running ones."""
        tensors = (x, running_mean, running_var, self.weight, self.bias)
        name = type(self).__name__
        return functional.batch_norm(*tensors, training, momentum, self.eps, _where=name)


BatchNorm3d: type[Any]
BatchNorm2d: type[Any]
BatchNorm1d: type[Any]
BatchNorm1d, BatchNorm2d, BatchNorm3d = by_axes(BatchNorm)


class SyncBatchNorm(BatchNorm):
    """BatchNorm of inputs with any number of axes. In training, statistics are those of the batches
    of all ranks of `process_group`, by default all that there are.

    Shapes: (N, C, ...) -> the same.
    Raises: ShapeError for fewer than two axes or another number of channels; OptionError for
        another process_group.
    Source: Ioffe & Szegedy 2015, arXiv:1502.03167; synchronized: PyTorch.
    """

    def __init__(
        self,
        num_features: int,
        eps: Any = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: int | None = None,
        device: str | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ) -> None:
        if process_group is not None and not isinstance(process_group, ProcessGroup):
            expected = "a ProcessGroup, or None for all ranks"
            fix = "Take one of gh.distributed."
            raise OptionError("SyncBatchNorm", expected, repr(process_group), fix)
        options = (eps, momentum, affine, track_running_stats, device, dtype)
        super().__init__(num_features, *options, bias=bias)
        self.process_group = process_group

    def normalized(
        self, x: Any, running_mean: Any, running_var: Any, training: bool, momentum: Any
    ) -> Tensor:
        group = process.world if self.process_group is None else self.process_group
        if not training or group.size == 1 or not self.training:
            return super().normalized(x, running_mean, running_var, training, momentum)
        running = (running_mean, running_var)
        return batch_norm_of_ranks(x, *running, self.weight, self.bias, momentum, self.eps, group)

    def checked(self, input: Tensor) -> Tensor:
        x = as_value(input, where="SyncBatchNorm")
        return self.check_input(x, tuple(range(2, max(x.ndim, 2) + 1)), "(N, C, ...)", 1)

    @classmethod
    def convert_sync_batchnorm(cls, module: Any, process_group: Any = None) -> Module:
        """`module` with each BatchNorm in it (or itself) replaced by a SyncBatchNorm that has its
        parameters and statistics."""
        if isinstance(module, BatchNorm) and not isinstance(module, cls):
            options = (module.eps, module.momentum, module.affine, module.track_running_stats)
            converted = cls(module.num_features, *options, process_group)
            converted._parameters.update(module._parameters)
            converted._buffers.update(module._buffers)
            converted.training = module.training
            return converted
        for name, child in module.named_children():
            module._modules[name] = cls.convert_sync_batchnorm(child, process_group)
        return module


class InstanceNorm(RunningNorm):
    """`functional.instance_norm` of (N, C, {s}) or (C, {s}).

    Source: arXiv:1607.08022
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: str | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ) -> None:
        options = (eps, momentum, affine, track_running_stats, device, dtype)
        super().__init__(num_features, *options, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        s, ndims = AXES[self.n], (self.n + 1, self.n + 2)
        x = self.check_input(input, ndims, f"(C, {s}) or (N, C, {s})", -1 - self.n)
        batch = x.reshape((1, *x.shape)) if x.ndim == self.n + 1 else x
        tensors = (self.running_mean, self.running_var, self.weight, self.bias)
        options = (self.training or not self.track_running_stats, self.momentum or 0.0, self.eps)
        name = type(self).__name__
        return functional.instance_norm(batch, *tensors, *options, _where=name).reshape(x.shape)


InstanceNorm3d: type[Any]
InstanceNorm2d: type[Any]
InstanceNorm1d: type[Any]
InstanceNorm1d, InstanceNorm2d, InstanceNorm3d = by_axes(InstanceNorm)


class LayerNorm(Norm):
    """`functional.layer_norm`, with weight 1 and bias 0 at first.

    Shapes: (..., *normalized_shape) -> the same.
    Raises: ShapeError if the input does not end in normalized_shape.
    Source: Ba, Kiros & Hinton 2016, arXiv:1607.06450.
    """

    _shown_first, _shown = ("normalized_shape",), ("eps", "elementwise_affine", "bias")

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape: Shape = check_shape(type(self).__name__, normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.add_affine(self.normalized_shape, elementwise_affine, bias, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        affine = (self.weight, self.bias, self.eps)
        return functional.layer_norm(input, self.normalized_shape, *affine, _where="LayerNorm")


class RMSNorm(Norm):
    """`functional.rms_norm`, with weight 1 at first; eps is the dtype's unless given.

    Shapes: (..., *normalized_shape) -> the same.
    Source: Zhang & Sennrich 2019, arXiv:1910.07467.
    """

    _shown_first = ("normalized_shape",)
    _shown = ("eps", "elementwise_affine")
    bias: Any = None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape: Shape = check_shape("RMSNorm", normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        shape = self.normalized_shape if elementwise_affine else None
        add_parameters(self, device, dtype, weight=shape)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        options = (self.normalized_shape, self.weight, self.eps)
        return functional.rms_norm(input, *options, _where="RMSNorm")


class GroupNorm(Norm):
    """`functional.group_norm`, with weight 1 and bias 0 at first.

    Shapes: (N, C, ...) -> the same.
    Raises: OptionError unless num_groups divides C.
    Source: Wu & He 2018, arXiv:1803.08494.
    """

    _shown_first, _shown = ("num_groups", "num_channels"), ("eps", "affine", "bias")

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: str | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_positive("GroupNorm", num_channels=num_channels)
        check_divides("GroupNorm", "num_channels", num_channels, "num_groups", num_groups)
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self.add_affine((num_channels,), affine, bias, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        x = as_value(input, where="GroupNorm")
        if x.ndim < 2 or x.shape[1] != self.num_channels:
            fix = "Change num_channels, or move the channels with permute."
            raise ShapeError("GroupNorm", f"{self.num_channels} channels on axis 1", x.shape, fix)
        options = (self.num_groups, self.weight, self.bias, self.eps)
        return functional.group_norm(x, *options, _where="GroupNorm")


class LocalResponseNorm(Module):
    """`functional.local_response_norm` as a layer.

    Shapes: (N, C, ...) -> the same.
    Source: Krizhevsky et al. 2012, sec. 3.3.
    """

    _shown_first, _shown = ("size",), ("alpha", "beta", "k")
    function: ClassVar[Callable[..., Any]] = staticmethod(functional.local_response_norm)

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        check_positive(type(self).__name__, size=size)
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        return self.function(input, self.size, self.alpha, self.beta, self.k)


class CrossMapLRN2d(LocalResponseNorm):
    """`functional.cross_map_lrn2d` as a layer.

    Shapes: (N, C, H, W) -> the same.
    Source: Krizhevsky et al. 2012, sec. 3.3.
    """

    function: ClassVar[Callable[..., Any]] = staticmethod(functional.cross_map_lrn2d)

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)
