"""Layers that are a function and its options: activations, dropout, pooling, patches."""

from functools import partial
from typing import Any

from glasshouse.base.dtype import DTypeLike
from glasshouse.base.errors import ShapeError
from glasshouse.dispatch.value import as_value
from glasshouse.nn import functional, init
from glasshouse.nn.checks import check_positive, check_probability
from glasshouse.nn.functional import pool as pooling
from glasshouse.nn.layer import Layer, by_axes, layer
from glasshouse.nn.linear import add_parameters
from glasshouse.nn.module import Module
from glasshouse.ops.checks import check_option
from glasshouse.tensor import Tensor

__all__ = ["AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d",
           "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AlphaDropout", "AvgPool1d", "AvgPool2d",
           "AvgPool3d", "CELU", "DropPath", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "ELU",
           "FeatureAlphaDropout", "Fold", "GEGLU", "GELU", "GLU", "Hardshrink", "Hardsigmoid",
           "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid", "LogSoftmax", "MaxPool1d",
           "MaxPool2d", "MaxPool3d", "Mish", "PReLU", "RReLU", "ReGLU", "ReLU", "ReLU6", "SELU",
           "SiLU", "Sigmoid", "Softmax", "Softmax2d", "Softmin", "Softplus", "Softshrink",
           "Softsign", "SwiGLU", "Tanh", "Tanhshrink", "Threshold", "Unfold"]  # fmt: skip

CELU = layer("CELU", functional.celu)
ELU = layer("ELU", functional.elu)
GLU = layer("GLU", functional.glu)
GEGLU = layer("GEGLU", functional.geglu)
ReGLU: type[Any] = layer("ReGLU", functional.reglu)
SwiGLU: type[Any] = layer("SwiGLU", functional.swiglu)
Hardshrink: type[Any] = layer(
    "Hardshrink", functional.hardshrink, extra_repr=lambda self: str(self.lambd)
)
Hardsigmoid: type[Any] = layer("Hardsigmoid", functional.hardsigmoid)
Hardswish: type[Any] = layer("Hardswish", functional.hardswish)
Hardtanh: type[Any] = layer("Hardtanh", functional.hardtanh)
LeakyReLU: type[Any] = layer("LeakyReLU", functional.leaky_relu)
LogSigmoid: type[Any] = layer("LogSigmoid", functional.logsigmoid)
LogSoftmax: type[Any] = layer("LogSoftmax", functional.log_softmax, "dim")
Mish: type[Any] = layer("Mish", functional.mish)
ReLU: type[Any] = layer("ReLU", functional.relu)
ReLU6: type[Any] = layer("ReLU6", functional.relu6)
RReLU: type[Any] = layer("RReLU", functional.rrelu, "lower upper inplace")
SELU = layer("SELU", functional.selu)
Sigmoid: type[Any] = layer("Sigmoid", functional.sigmoid)
SiLU: type[Any] = layer("SiLU", functional.silu)
Softmax: type[Any] = layer("Softmax", functional.softmax, "dim")
Softmin: type[Any] = layer("Softmin", functional.softmin, "dim")
Softplus: type[Any] = layer("Softplus", functional.softplus)
Softshrink: type[Any] = layer(
    "Softshrink", functional.softshrink, extra_repr=lambda self: str(self.lambd)
)
Softsign: type[Any] = layer("Softsign", functional.softsign)
Tanh: type[Any] = layer("Tanh", functional.tanh)
Tanhshrink: type[Any] = layer("Tanhshrink", functional.tanhshrink)
Threshold: type[Any] = layer("Threshold", functional.threshold)


class GELU(layer("GELU", functional.gelu)):  # type: ignore[misc]  # layer makes a class
    """x · Φ(x), exact or by tanh; see `functional.gelu`."""

    def __init__(self, approximate: str = "none") -> None:
        check_option("GELU", "approximate", approximate, ("none", "tanh"))
        super().__init__(approximate)


class Softmax2d(Module):
    """softmax over the channels.

    Shapes: (N, C, H, W) or (C, H, W) -> the same
    """

    def forward(self, input: Tensor) -> Tensor:
        x = as_value(input, where="Softmax2d")
        if x.ndim not in (3, 4):
            raise ShapeError("Softmax2d", "(N, C, H, W) or (C, H, W)", x.shape, "Reshape it.")
        return functional.softmax(x, dim=-3)


class PReLU(Module):
    """x where x > 0, else weight · x, with one trained weight for all or one for each channel.

    Shapes: (N, num_parameters, ...) -> the same.
    Source: He et al. 2015, arXiv:1502.01852.
    """

    _shown = ("num_parameters",)

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        check_positive("PReLU", num_parameters=num_parameters)
        self.num_parameters = num_parameters
        self.init = init
        add_parameters(self, device, dtype, weight=(num_parameters,))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set every weight to its initial value."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return functional.prelu(input, self.weight)


class Dropping(Layer):
    """Base of dropout layers: checks p, and shows it in the repr."""

    def __init__(self, options: dict[Any, Any]) -> None:
        check_probability(type(self).__name__, options["p"])
        super().__init__(options)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


dropping: partial[type[Any]] = partial(layer, options="p inplace", base=Dropping)
Dropout: type[Any] = dropping("Dropout", functional.dropout)
Dropout1d: type[Any] = dropping("Dropout1d", functional.dropout1d)
Dropout2d: type[Any] = dropping("Dropout2d", functional.dropout2d)
Dropout3d: type[Any] = dropping("Dropout3d", functional.dropout3d)
AlphaDropout: type[Any] = dropping("AlphaDropout", functional.alpha_dropout)
FeatureAlphaDropout: type[Any] = dropping("FeatureAlphaDropout", functional.feature_alpha_dropout)


class DropPath(layer("DropPath", functional.drop_path, "p mode")):  # type: ignore[misc]  # layer makes a class
    """`functional.drop_path` as a layer: stochastic depth, by sample or by batch.

    Shapes: (N, ...) -> the same.
    Source: Huang et al. 2016, arXiv:1603.09382, eq. 2.
    """

    def __init__(self, p: float = 0.5, mode: str = "row") -> None:
        check_probability("DropPath", p)
        check_option("DropPath", "mode", mode, ("row", "batch"))
        super().__init__(p, mode)


class PoolLayer(Layer):
    """Base of pooling layers over `n` spatial axes; by default stride = kernel_size."""

    n = 0

    def __init__(self, options: dict[Any, Any]) -> None:
        if options.get("stride", ()) is None:
            options["stride"] = options["kernel_size"]
        super().__init__(options)

    def forward(self, input: Any) -> Any:
        return self.function(type(self).__name__, self.n, input, **self.chosen())


DOC = "{n} spatial axes pooled. Shapes: (N, C, {s}) -> (N, C, {t})"
pool: partial[type[Any]] = partial(layer, base=PoolLayer, __doc__=DOC)
MaxPool: type[Any] = pool(
    "MaxPool",
    pooling.max_pool,
    "kernel_size stride padding dilation return_indices ceil_mode",
    shown=("kernel_size", "stride", "padding", "dilation", "ceil_mode"),
)
AvgPool: type[Any] = pool(
    "AvgPool",
    pooling.avg_pool,
    "kernel_size stride padding ceil_mode count_include_pad divisor_override",
    shown=("kernel_size", "stride", "padding"),
)
AdaptiveAvgPool: type[Any] = pool("AdaptiveAvgPool", pooling.adaptive_avg_pool, "output_size")
AdaptiveMaxPool: type[Any] = pool(
    "AdaptiveMaxPool",
    pooling.adaptive_max_pool,
    "output_size return_indices",
    shown=("output_size",),
)

MaxPool3d: type[Any]
MaxPool2d: type[Any]
MaxPool1d: type[Any]
MaxPool1d, MaxPool2d, MaxPool3d = by_axes(MaxPool)
AvgPool3d: type[Any]
AvgPool2d: type[Any]
AvgPool1d: type[Any]
AvgPool1d, AvgPool2d, AvgPool3d = by_axes(AvgPool)
AdaptiveAvgPool3d: type[Any]
AdaptiveAvgPool2d: type[Any]
AdaptiveAvgPool1d: type[Any]
AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d = by_axes(AdaptiveAvgPool)
AdaptiveMaxPool3d: type[Any]
AdaptiveMaxPool2d: type[Any]
AdaptiveMaxPool1d: type[Any]
AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d = by_axes(AdaptiveMaxPool)
Unfold: type[Any] = layer("Unfold", functional.unfold)
Fold: type[Any] = layer("Fold", functional.fold)
