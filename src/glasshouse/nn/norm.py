"""Normalisation layers."""

from glasshouse.base.errors import ShapeError
from glasshouse.base.shape import check_shape
from glasshouse.dispatch.value import as_value
from glasshouse.nn import init
from glasshouse.nn.checks import check_divides, check_floating, check_ndim, check_positive
from glasshouse.nn.functional.norm import (
    normalize_batch,
    normalize_groups,
    normalize_instance,
    normalize_layer,
    normalize_rms,
)
from glasshouse.nn.linear import new_parameter
from glasshouse.nn.module import Module
from glasshouse.tensor.creation import ones, zeros


def reset_affine(module: Module) -> None:
    """Set weight to 1 and bias to 0, where there are any."""
    if module.weight is not None:
        init.ones_(module.weight)
    if module.bias is not None:
        init.zeros_(module.bias)


class RunningNorm(Module):
    """What BatchNorm and InstanceNorm share: affine parameters, running statistics, repr."""

    ndims: tuple[int, ...] = ()
    layout = ""

    def __init__(
        self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True,
        device=None, dtype=None, *, bias=True,
    ):  # fmt: skip
        super().__init__()
        check_positive(type(self).__name__, num_features=num_features)
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        size = (num_features,)
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(name, new_parameter(size, device, dtype) if wanted else None)
        tracked = track_running_stats
        options = {"dtype": dtype, "device": device}
        self.register_buffer("running_mean", zeros(size, **options) if tracked else None)
        self.register_buffer("running_var", ones(size, **options) if tracked else None)
        self.register_buffer(
            "num_batches_tracked", zeros((), dtype="int64", device=device) if tracked else None
        )
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
        reset_affine(self)

    def check_input(self, input, batched: bool):
        """The input, if its number of axes fits and it has num_features channels."""
        name = type(self).__name__
        x = check_floating(name, input)
        check_ndim(name, x, self.ndims, self.layout)
        axis = 1 if batched else x.ndim - self.ndims[0]
        if x.shape[axis] != self.num_features:
            raise ShapeError(
                f"{name}: expected {self.num_features} channels on axis {axis}; got {x.shape}. "
                "Change num_features, or move the channels with permute."
            )
        return x

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class BatchNorm(RunningNorm):
    """What the BatchNorm layers share: `functional.batch_norm` with its parameters.
    Training uses the batch's statistics and moves the running ones; evaluation uses those. A
    momentum of None gives the plain average over all batches."""

    def forward(self, input):
        x = self.check_input(input, True)
        tracked = self.track_running_stats
        momentum = self.momentum
        if self.training and tracked and momentum is None:
            momentum = 1 / (self.num_batches_tracked.item() + 1)
        y = normalize_batch(
            type(self).__name__, x, self.running_mean if tracked else None,
            self.running_var if tracked else None, self.weight, self.bias,
            self.training or self.running_mean is None, momentum, self.eps,
        )  # fmt: skip
        if self.training and tracked:
            self.num_batches_tracked += 1
        return y


class BatchNorm1d(BatchNorm):
    """`functional.batch_norm` of (N, C) or (N, C, L). Source: arXiv:1502.03167"""

    ndims, layout = (2, 3), "(N, C) or (N, C, L)"


class BatchNorm2d(BatchNorm):
    """`functional.batch_norm` of (N, C, H, W), with weight 1 and bias 0 at first.
    Shapes: (N, C, H, W) -> (N, C, H, W). Raises: ShapeError for another number of axes or channels.
    Source: Ioffe & Szegedy 2015, arXiv:1502.03167."""

    ndims, layout = (4,), "(N, C, H, W)"


class BatchNorm3d(BatchNorm):
    """`functional.batch_norm` of (N, C, D, H, W). Source: arXiv:1502.03167"""

    ndims, layout = (5,), "(N, C, D, H, W)"


class InstanceNorm(RunningNorm):
    """What the InstanceNorm layers share: `functional.instance_norm` with its parameters."""

    def __init__(
        self, num_features, eps=1e-5, momentum=0.1, affine=False, track_running_stats=False,
        device=None, dtype=None, *, bias=True,
    ):  # fmt: skip
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def forward(self, input):
        x = self.check_input(input, False)
        single = x.ndim < max(self.ndims)
        y = normalize_instance(
            type(self).__name__, x.reshape((1, *x.shape)) if single else x, self.running_mean,
            self.running_var, self.weight, self.bias,
            self.training or not self.track_running_stats, self.momentum, self.eps,
        )  # fmt: skip
        return y.reshape(x.shape)


class InstanceNorm1d(InstanceNorm):
    """`functional.instance_norm` of (N, C, L) or (C, L). Source: arXiv:1607.08022"""

    ndims, layout = (2, 3), "(C, L) or (N, C, L)"


class InstanceNorm2d(InstanceNorm):
    """`functional.instance_norm` of (N, C, H, W) or (C, H, W). Source: arXiv:1607.08022"""

    ndims, layout = (3, 4), "(C, H, W) or (N, C, H, W)"


class InstanceNorm3d(InstanceNorm):
    """`functional.instance_norm` of (N, C, D, H, W) or (C, D, H, W). Source: arXiv:1607.08022"""

    ndims, layout = (4, 5), "(C, D, H, W) or (N, C, D, H, W)"


class LayerNorm(Module):
    """`functional.layer_norm`, with weight 1 and bias 0 at first.
    Shapes: (..., *normalized_shape) -> the same. Raises: ShapeError if the input does not end in
    normalized_shape. Source: Ba, Kiros & Hinton 2016, arXiv:1607.06450."""

    def __init__(
        self,
        normalized_shape,
        eps=1e-5,
        elementwise_affine=True,
        bias=True,
        device=None,
        dtype=None,
    ):
        super().__init__()
        self.normalized_shape = check_shape("LayerNorm", normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        shape = self.normalized_shape
        for name, wanted in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            self.register_parameter(name, new_parameter(shape, device, dtype) if wanted else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to 1 and the bias to 0."""
        reset_affine(self)

    def forward(self, input):
        return normalize_layer(
            "LayerNorm", input, self.normalized_shape, self.weight, self.bias, self.eps
        )

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """`functional.rms_norm`, with weight 1 at first; eps is the dtype's unless given.
    Shapes: (..., *normalized_shape) -> the same. Source: Zhang & Sennrich 2019, arXiv:1910.07467.
    """

    def __init__(
        self, normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None
    ):
        super().__init__()
        self.normalized_shape = check_shape("RMSNorm", normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        weight = new_parameter(self.normalized_shape, device, dtype) if elementwise_affine else None
        self.register_parameter("weight", weight)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input):
        return normalize_rms("RMSNorm", input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class GroupNorm(Module):
    """`functional.group_norm`, with weight 1 and bias 0 at first.
    Shapes: (N, num_channels, ...) -> the same. Raises: OptionError unless num_groups divides
    num_channels. Source: Wu & He 2018, arXiv:1803.08494."""

    def __init__(
        self, num_groups, num_channels, eps=1e-5, affine=True, device=None, dtype=None, *, bias=True
    ):
        super().__init__()
        check_positive("GroupNorm", num_channels=num_channels)
        check_divides("GroupNorm", "num_channels", num_channels, "num_groups", num_groups)
        self.num_groups, self.num_channels = num_groups, num_channels
        self.eps, self.affine = eps, affine
        size = (num_channels,)
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(name, new_parameter(size, device, dtype) if wanted else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to 1 and the bias to 0."""
        reset_affine(self)

    def forward(self, input):
        x = as_value(input, where="GroupNorm")
        if x.ndim < 2 or x.shape[1] != self.num_channels:
            raise ShapeError(
                f"GroupNorm: expected {self.num_channels} channels on axis 1; got {x.shape}. "
                "Change num_channels, or move the channels with permute."
            )
        return normalize_groups("GroupNorm", x, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )
