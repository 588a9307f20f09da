"""Pooling layers, and the patch layers Unfold and Fold."""

from glasshouse.nn.functional import padding
from glasshouse.nn.functional.pool import (
    pool_average,
    pool_average_adaptive,
    pool_max,
    pool_max_adaptive,
)
from glasshouse.nn.module import Module


class Pool(Module):
    """What the pooling layers share: the number of spatial axes, and a repr of the options."""

    n = 0
    shown: tuple[str, ...] = ()

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self.shown)


class MaxPool(Pool):
    """What the max pooling layers share."""

    shown = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

    def __init__(
        self, kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False
    ):
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, input):
        return pool_max(
            type(self).__name__, self.n, input, self.kernel_size, self.stride, self.padding,
            self.dilation, self.ceil_mode, self.return_indices,
        )  # fmt: skip


class MaxPool1d(MaxPool):
    """`functional.max_pool1d`. Shapes: (N, C, L) -> (N, C, L')"""

    n = 1


class MaxPool2d(MaxPool):
    """`functional.max_pool2d`. Shapes: (N, C, H, W) -> (N, C, H', W')"""

    n = 2


class MaxPool3d(MaxPool):
    """`functional.max_pool3d`. Shapes: (N, C, D, H, W) -> (N, C, D', H', W')"""

    n = 3


class AvgPool(Pool):
    """What the average pooling layers share."""

    shown = ("kernel_size", "stride", "padding")

    def __init__(
        self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True,
        divisor_override=None,
    ):  # fmt: skip
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding, self.ceil_mode = padding, ceil_mode
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override

    def forward(self, input):
        return pool_average(
            type(self).__name__, self.n, input, self.kernel_size, self.stride, self.padding,
            self.ceil_mode, self.count_include_pad, self.divisor_override,
        )  # fmt: skip


class AvgPool1d(AvgPool):
    """`functional.avg_pool1d`. Shapes: (N, C, L) -> (N, C, L')"""

    n = 1

    def __init__(
        self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True
    ):
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)


class AvgPool2d(AvgPool):
    """`functional.avg_pool2d`. Shapes: (N, C, H, W) -> (N, C, H', W')"""

    n = 2


class AvgPool3d(AvgPool):
    """`functional.avg_pool3d`. Shapes: (N, C, D, H, W) -> (N, C, D', H', W')"""

    n = 3


class AdaptiveAvgPool(Pool):
    """What the adaptive average pooling layers share."""

    shown = ("output_size",)

    def __init__(self, output_size):
        super().__init__()
        self.output_size = output_size

    def forward(self, input):
        return pool_average_adaptive(type(self).__name__, self.n, input, self.output_size)


class AdaptiveAvgPool1d(AdaptiveAvgPool):
    """`functional.adaptive_avg_pool1d`. Shapes: (N, C, L) -> (N, C, output_size)"""

    n = 1


class AdaptiveAvgPool2d(AdaptiveAvgPool):
    """`functional.adaptive_avg_pool2d`. Shapes: (N, C, H, W) -> (N, C, *output_size)"""

    n = 2


class AdaptiveAvgPool3d(AdaptiveAvgPool):
    """`functional.adaptive_avg_pool3d`. Shapes: (N, C, D, H, W) -> (N, C, *output_size)"""

    n = 3


class AdaptiveMaxPool(Pool):
    """What the adaptive max pooling layers share."""

    shown = ("output_size",)

    def __init__(self, output_size, return_indices=False):
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def forward(self, input):
        return pool_max_adaptive(
            type(self).__name__, self.n, input, self.output_size, self.return_indices
        )


class AdaptiveMaxPool1d(AdaptiveMaxPool):
    """`functional.adaptive_max_pool1d`. Shapes: (N, C, L) -> (N, C, output_size)"""

    n = 1


class AdaptiveMaxPool2d(AdaptiveMaxPool):
    """`functional.adaptive_max_pool2d`. Shapes: (N, C, H, W) -> (N, C, *output_size)"""

    n = 2


class AdaptiveMaxPool3d(AdaptiveMaxPool):
    """`functional.adaptive_max_pool3d`. Shapes: (N, C, D, H, W) -> (N, C, *output_size)"""

    n = 3


class Unfold(Pool):
    """`functional.unfold`. Shapes: (N, C, H, W) -> (N, C · kh · kw, L)"""

    shown = ("kernel_size", "dilation", "padding", "stride")

    def __init__(self, kernel_size, dilation=1, padding=0, stride=1):
        super().__init__()
        self.kernel_size, self.dilation = kernel_size, dilation
        self.padding, self.stride = padding, stride

    def forward(self, input):
        return padding.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(Pool):
    """`functional.fold`. Shapes: (N, C · kh · kw, L) -> (N, C, *output_size)"""

    shown = ("output_size", "kernel_size", "dilation", "padding", "stride")

    def __init__(self, output_size, kernel_size, dilation=1, padding=0, stride=1):
        super().__init__()
        self.output_size, self.kernel_size = output_size, kernel_size
        self.dilation, self.padding, self.stride = dilation, padding, stride

    def forward(self, input):
        return padding.fold(
            input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )
