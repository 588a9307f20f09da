"""Pooling layers, and the patch layers Unfold and Fold."""

from functools import partial

from glasshouse.nn.functional import padding
from glasshouse.nn.functional import pool as functional
from glasshouse.nn.layer import Layer, by_axes, layer


class Pool(Layer):
    """What the pooling layers share: the number of spatial axes `n`; by default stride = kernel."""

    n = 0

    def __init__(self, options: dict):
        if options.get("stride", ()) is None:
            options["stride"] = options["kernel_size"]
        super().__init__(options)

    def forward(self, input):
        return self.function(type(self).__name__, self.n, input, **self.chosen())


DOC = "{n} spatial axes pooled. Shapes: (N, C, {s}) -> (N, C, {t})"
pool = partial(layer, base=Pool, __doc__=DOC)
MaxPool = pool("MaxPool", functional.max_pool,
               "kernel_size stride padding dilation return_indices ceil_mode",
               shown=("kernel_size", "stride", "padding", "dilation", "ceil_mode"))  # fmt: skip
AvgPool = pool("AvgPool", functional.avg_pool,
               "kernel_size stride padding ceil_mode count_include_pad divisor_override",
               shown=("kernel_size", "stride", "padding"))  # fmt: skip
AdaptiveAvgPool = pool("AdaptiveAvgPool", functional.adaptive_avg_pool, "output_size")
AdaptiveMaxPool = pool("AdaptiveMaxPool", functional.adaptive_max_pool,
                       "output_size return_indices", shown=("output_size",))  # fmt: skip

MaxPool1d, MaxPool2d, MaxPool3d = by_axes(MaxPool)
AvgPool1d, AvgPool2d, AvgPool3d = by_axes(AvgPool)
AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d = by_axes(AdaptiveAvgPool)
AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d = by_axes(AdaptiveMaxPool)
Unfold = layer("Unfold", padding.unfold)
Fold = layer("Fold", padding.fold)
