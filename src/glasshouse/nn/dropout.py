"""Dropout layers: active while training, the identity in evaluation."""

from functools import partial

from glasshouse.nn import functional
from glasshouse.nn.checks import check_probability
from glasshouse.nn.layer import Layer, layer


class Dropping(Layer):
    """What the dropout layers share: p, and that evaluation drops nothing."""

    def __init__(self, options: dict):
        check_probability(type(self).__name__, options["p"])
        super().__init__(options)

    def forward(self, input):
        return self.function(input, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


dropping = partial(layer, options="p inplace", base=Dropping)
Dropout = dropping("Dropout", functional.dropout)
Dropout1d = dropping("Dropout1d", functional.dropout1d)
Dropout2d = dropping("Dropout2d", functional.dropout2d)
Dropout3d = dropping("Dropout3d", functional.dropout3d)
AlphaDropout = dropping("AlphaDropout", functional.alpha_dropout)
