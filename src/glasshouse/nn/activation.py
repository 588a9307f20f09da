"""Activation layers: the functions of `functional.activation` as modules."""

from glasshouse.base.errors import ShapeError
from glasshouse.dispatch.value import as_value
from glasshouse.nn import init
from glasshouse.nn.checks import check_option, check_positive
from glasshouse.nn.functional import activation as functional
from glasshouse.nn.linear import new_parameter
from glasshouse.nn.module import Module
from glasshouse.tensor.elementwise import tanh


class Activation(Module):
    """A function without parameters; its options are attributes of the same names."""

    function = staticmethod(functional.relu)

    def __init__(self, **options):
        super().__init__()
        self._options = tuple(options)
        for name, value in options.items():
            setattr(self, name, value)

    def forward(self, input):
        return self.function(input, **{name: getattr(self, name) for name in self._options})

    def extra_repr(self) -> str:
        shown = {name: getattr(self, name) for name in self._options}
        if shown.get("inplace") is False:
            del shown["inplace"]
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())


class InPlace(Activation):
    """An activation whose only option is `inplace`."""

    def __init__(self, inplace=False):
        super().__init__(inplace=inplace)


class Plain(Activation):
    """An activation without options."""

    def __init__(self):
        super().__init__()


class ReLU(InPlace):
    """max(x, 0); see `functional.relu`."""


class ReLU6(InPlace):
    """min(max(x, 0), 6); see `functional.relu6`."""

    function = staticmethod(functional.relu6)


class SiLU(InPlace):
    """x · sigmoid(x); see `functional.silu`."""

    function = staticmethod(functional.silu)


class Mish(InPlace):
    """x · tanh(softplus(x)); see `functional.mish`."""

    function = staticmethod(functional.mish)


class SELU(InPlace):
    """Scaled ELU that keeps mean 0 and variance 1; see `functional.selu`."""

    function = staticmethod(functional.selu)


class Hardswish(InPlace):
    """x · relu6(x + 3) / 6; see `functional.hardswish`."""

    function = staticmethod(functional.hardswish)


class Hardsigmoid(InPlace):
    """relu6(x + 3) / 6; see `functional.hardsigmoid`."""

    function = staticmethod(functional.hardsigmoid)


class Sigmoid(Plain):
    """1 / (1 + exp(-x)); see `functional.sigmoid`."""

    function = staticmethod(functional.sigmoid)


class Tanh(Plain):
    """The hyperbolic tangent."""

    function = staticmethod(tanh)


class LogSigmoid(Plain):
    """log(sigmoid(x)); see `functional.logsigmoid`."""

    function = staticmethod(functional.logsigmoid)


class Softsign(Plain):
    """x / (1 + |x|)."""

    function = staticmethod(functional.softsign)


class Tanhshrink(Plain):
    """x - tanh(x)."""

    function = staticmethod(functional.tanhshrink)


class LeakyReLU(Activation):
    """x where x > 0, else negative_slope · x; see `functional.leaky_relu`."""

    function = staticmethod(functional.leaky_relu)

    def __init__(self, negative_slope=0.01, inplace=False):
        super().__init__(negative_slope=negative_slope, inplace=inplace)


class ELU(Activation):
    """x where x > 0, else alpha · (exp(x) - 1); see `functional.elu`."""

    function = staticmethod(functional.elu)

    def __init__(self, alpha=1.0, inplace=False):
        super().__init__(alpha=alpha, inplace=inplace)


class CELU(Activation):
    """x where x > 0, else alpha · (exp(x / alpha) - 1); see `functional.celu`."""

    function = staticmethod(functional.celu)

    def __init__(self, alpha=1.0, inplace=False):
        super().__init__(alpha=alpha, inplace=inplace)


class GELU(Activation):
    """x · Φ(x), exact or by tanh; see `functional.gelu`."""

    function = staticmethod(functional.gelu)

    def __init__(self, approximate="none"):
        check_option("GELU", "approximate", approximate, ("none", "tanh"))
        super().__init__(approximate=approximate)


class Softplus(Activation):
    """log(1 + exp(beta · x)) / beta; see `functional.softplus`."""

    function = staticmethod(functional.softplus)

    def __init__(self, beta=1.0, threshold=20.0):
        super().__init__(beta=beta, threshold=threshold)


class Hardtanh(Activation):
    """x clipped to [min_val, max_val]; see `functional.hardtanh`."""

    function = staticmethod(functional.hardtanh)

    def __init__(self, min_val=-1.0, max_val=1.0, inplace=False):
        super().__init__(min_val=min_val, max_val=max_val, inplace=inplace)


class Threshold(Activation):
    """x where x > threshold, else value."""

    function = staticmethod(functional.threshold)

    def __init__(self, threshold, value, inplace=False):
        super().__init__(threshold=threshold, value=value, inplace=inplace)


class Softshrink(Activation):
    """sign(x) · max(|x| - lambd, 0)."""

    function = staticmethod(functional.softshrink)

    def __init__(self, lambd=0.5):
        super().__init__(lambd=lambd)

    def extra_repr(self) -> str:
        return str(self.lambd)


class Hardshrink(Softshrink):
    """x where |x| > lambd, else 0."""

    function = staticmethod(functional.hardshrink)


class GLU(Activation):
    """a · sigmoid(b) of the halves of x along dim; see `functional.glu`."""

    function = staticmethod(functional.glu)

    def __init__(self, dim=-1):
        super().__init__(dim=dim)


class Softmax(Activation):
    """exp(x) / sum(exp(x)) along dim; see `functional.softmax`."""

    function = staticmethod(functional.softmax)

    def __init__(self, dim=None):
        super().__init__(dim=dim)


class Softmin(Softmax):
    """softmax(-x) along dim."""

    function = staticmethod(functional.softmin)


class LogSoftmax(Softmax):
    """log(softmax(x)) along dim; see `functional.log_softmax`."""

    function = staticmethod(functional.log_softmax)


class Softmax2d(Module):
    """softmax over the channels. Shapes: (N, C, H, W) or (C, H, W) -> the same"""

    def forward(self, input):
        x = as_value(input, where="Softmax2d")
        if x.ndim not in (3, 4):
            raise ShapeError(
                f"Softmax2d: expected (N, C, H, W) or (C, H, W); got {x.shape}. Reshape the input."
            )
        return functional.softmax(x, dim=-3)


class RReLU(Activation):
    """Leaky ReLU with a slope drawn for each element while training; see `functional.rrelu`."""

    function = staticmethod(functional.rrelu)

    def __init__(self, lower=1 / 8, upper=1 / 3, inplace=False):
        super().__init__(lower=lower, upper=upper, inplace=inplace)

    def forward(self, input):
        return functional.rrelu(input, self.lower, self.upper, self.training)


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
