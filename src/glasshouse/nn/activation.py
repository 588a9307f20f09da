"""Activation layers: the functions of `functional.activation` as modules."""

from glasshouse.base.errors import ShapeError
from glasshouse.dispatch.value import as_value
from glasshouse.nn import init
from glasshouse.nn.checks import check_positive
from glasshouse.nn.functional import activation as functional
from glasshouse.nn.layer import layer
from glasshouse.nn.linear import new_parameter
from glasshouse.nn.module import Module
from glasshouse.ops.checks import check_option
from glasshouse.tensor.elementwise import tanh

CELU = layer("CELU", functional.celu)
ELU = layer("ELU", functional.elu)
GLU = layer("GLU", functional.glu)
Hardshrink = layer("Hardshrink", functional.hardshrink, extra_repr=lambda self: str(self.lambd))
Hardsigmoid = layer("Hardsigmoid", functional.hardsigmoid)
Hardswish = layer("Hardswish", functional.hardswish)
Hardtanh = layer("Hardtanh", functional.hardtanh)
LeakyReLU = layer("LeakyReLU", functional.leaky_relu)
LogSigmoid = layer("LogSigmoid", functional.logsigmoid)
LogSoftmax = layer("LogSoftmax", functional.log_softmax, "dim")
Mish = layer("Mish", functional.mish)
ReLU = layer("ReLU", functional.relu)
ReLU6 = layer("ReLU6", functional.relu6)
SELU = layer("SELU", functional.selu)
Sigmoid = layer("Sigmoid", functional.sigmoid)
SiLU = layer("SiLU", functional.silu)
Softmax = layer("Softmax", functional.softmax, "dim")
Softmin = layer("Softmin", functional.softmin, "dim")
Softplus = layer("Softplus", functional.softplus)
Softshrink = layer("Softshrink", functional.softshrink, extra_repr=lambda self: str(self.lambd))
Softsign = layer("Softsign", functional.softsign)
Tanh = layer("Tanh", tanh)
Tanhshrink = layer("Tanhshrink", functional.tanhshrink)
Threshold = layer("Threshold", functional.threshold)


class GELU(layer("GELU", functional.gelu)):
    """x · Φ(x), exact or by tanh; see `functional.gelu`."""

    def __init__(self, approximate="none"):
        check_option("GELU", "approximate", approximate, ("none", "tanh"))
        super().__init__(approximate)


class RReLU(layer("RReLU", functional.rrelu, "lower upper inplace")):
    """Leaky ReLU with a slope drawn for each element while training; see `functional.rrelu`."""

    def forward(self, input):
        return functional.rrelu(input, self.lower, self.upper, self.training)


class Softmax2d(Module):
    """softmax over the channels. Shapes: (N, C, H, W) or (C, H, W) -> the same"""

    def forward(self, input):
        x = as_value(input, where="Softmax2d")
        if x.ndim not in (3, 4):
            raise ShapeError("Softmax2d", "(N, C, H, W) or (C, H, W)", x.shape,
                             "Reshape the input.")  # fmt: skip
        return functional.softmax(x, dim=-3)


class PReLU(Module):
    """x where x > 0, else weight · x, with one trained weight for all or one for each channel.
    Shapes: (N, num_parameters, ...) -> the same (any shape for one parameter).
    Source: He et al. 2015, arXiv:1502.01852."""

    def __init__(self, num_parameters=1, init=0.25, device=None, dtype=None):
        super().__init__()
        check_positive("PReLU", num_parameters=num_parameters)
        self.num_parameters, self.init = num_parameters, init
        self.weight = new_parameter((num_parameters,), device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set every weight to its initial value."""
        init.constant_(self.weight, self.init)

    def forward(self, input):
        return functional.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"
