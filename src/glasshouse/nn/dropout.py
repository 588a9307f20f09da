"""Dropout layers: active while training, the identity in evaluation."""

from glasshouse.nn.checks import check_probability
from glasshouse.nn.functional.dropout import alpha_dropout, dropout, dropout1d, dropout2d, dropout3d
from glasshouse.nn.module import Module


class Dropout(Module):
    """Each element 0 with probability p, else x / (1 - p). Source: Srivastava et al. 2014
    Raises: OptionError for p outside [0, 1]."""

    drop = staticmethod(dropout)

    def __init__(self, p=0.5, inplace=False):
        super().__init__()
        check_probability(type(self).__name__, p)
        self.p, self.inplace = p, inplace

    def forward(self, input):
        return self.drop(input, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout1d(Dropout):
    """Whole channels of (N, C, L) dropped. Source: Tompson et al. 2014, arXiv:1411.4280"""

    drop = staticmethod(dropout1d)


class Dropout2d(Dropout):
    """Whole channels of (N, C, H, W) dropped. Source: Tompson et al. 2014, arXiv:1411.4280"""

    drop = staticmethod(dropout2d)


class Dropout3d(Dropout):
    """Whole channels of (N, C, D, H, W) dropped. Source: Tompson et al. 2014, arXiv:1411.4280"""

    drop = staticmethod(dropout3d)


class AlphaDropout(Dropout):
    """`functional.alpha_dropout`, for SELU networks. Source: arXiv:1706.02515"""

    drop = staticmethod(alpha_dropout)
