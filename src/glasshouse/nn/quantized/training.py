"""Training with rounding: layers compute with the numbers that 8 bits will hold, and gradients pass
as if nothing had been rounded."""

from collections.abc import Sequence
from typing import Any

from glasshouse.autograd import no_grad
from glasshouse.base.dtype import bool_, float32
from glasshouse.base.errors import OptionError
from glasshouse.dispatch.value import cast
from glasshouse.nn.conv import Conv
from glasshouse.nn.module import Module
from glasshouse.nn.quantized.integers import EDGE, LEAST, MOST, measured, spread
from glasshouse.nn.quantized.selection import find_layers
from glasshouse.nn.utils.parametrize import is_parametrized, register_parametrization
from glasshouse.ops.checks import check_option, check_type
from glasshouse.tensor import Tensor, abs, clip, round, zeros
from glasshouse.tensor import where as choose
from glasshouse.tensor.standard import reduce

SCHEMES = ("int8", "int8_dynamic", "int8_static")
PACE = 0.1  # of the running range towards a batch's


def rounded_through(x: Tensor) -> Tensor:
    """The nearest whole numbers, with the gradient of x: the difference is exact.

    Source: Bengio et al. 2013, arXiv:1308.3432, sec. 4.
    """
    return x + (round(x) - x).detach()


class WeightRounding(Module):
    """A parametrization: the weight as its codes of 8 bits and the scales of its rows give it.

    Source: Jacob et al. 2018, arXiv:1712.05877, sec. 3.
    """

    def forward(self, weight: Tensor) -> Tensor:
        axes = tuple(range(1, weight.ndim))
        scale = reduce.max(abs(weight.detach()), axis=axes, keepdims=True) / EDGE
        scale = choose(scale == 0, scale + 1, scale)
        return rounded_through(weight / scale) * scale


class InputRounding(Module):
    """The inputs of a layer as their codes give them: within a running range of the batches that
    it was trained on, or, where it is dynamic, the range over `axes` of each call. Numbers outside
    of the range get no gradient.

    Source: Jacob et al. 2018, arXiv:1712.05877, sec. 3.1.
    """

    _shown = ("is_dynamic",)

    def __init__(self, is_dynamic: bool, is_conv: bool) -> None:
        super().__init__()
        self.is_dynamic = is_dynamic
        self.is_conv = is_conv
        self.register_buffer("low", zeros((), dtype=float32))
        self.register_buffer("high", zeros((), dtype=float32))
        self.register_buffer("has_seen", zeros((), dtype=bool_))

    def forward(self, input: Tensor) -> Tensor:
        x = cast(input, float32).detach()
        if self.is_dynamic:
            axes = tuple(range(1, x.ndim)) if self.is_conv else (x.ndim - 1,)
            scale, zero = measured(x, axes)
        else:
            if self.training:
                self.note_range(x)
            scale, zero = spread(self.low, self.high)
        codes = clip(rounded_through(cast(input, float32) / scale) + zero, LEAST, MOST)
        return cast((codes - zero) * scale, input.dtype)

    def note_range(self, x: Tensor) -> None:
        """Move the running range towards a batch's; the first batch sets it."""
        with no_grad():
            for end, now in ((self.low, reduce.min(x)), (self.high, reduce.max(x))):
                end.copy_(choose(self.has_seen, end + PACE * (now - end), now))
            self.has_seen.fill_(True)


def round_input(layer: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a layer's call, of which the first is rounded: a hook."""
    return layer.input_rounding(args[0]), *args[1:]


def round_in_training(model: Any, scheme: str = "int8_static", *, skip: Sequence[str] = ()) -> Any:
    """The model, whose Linear and convolution layers from now on compute with rounded weights
    (through `parametrize`), and with rounded inputs: within running ranges for "int8_static", those
    of each call for "int8_dynamic"; "int8" rounds weights alone. Train it a while, then call
    `quantize` with the same scheme: ranges need no other batches.

    Raises: OptionError for another scheme, or a model that rounds already.
    Source: Jacob et al. 2018, arXiv:1712.05877, sec. 3.
    Example:
        >>> net = gh.nn.Sequential(gh.nn.Linear(4, 2))
        >>> _ = gh.nn.round_in_training(net)(gh.ones((3, 4)))  # a training step would follow
        >>> gh.quantize(net.eval(), "int8_static")[0].is_dynamic
        False
    """
    where = "round_in_training"
    check_type(where, model, Module, "a Module", "Pass the model.")
    check_option(where, "scheme", scheme, SCHEMES)
    layers = {id(layer): layer for _, layer in find_layers(where, model, skip)}
    for layer in layers.values():
        if is_parametrized(layer, "weight"):
            fix = "Call it once, before training."
            raise OptionError(where, "weights that are parameters", "others", fix)
    for layer in layers.values():
        register_parametrization(layer, "weight", WeightRounding())
        if scheme != "int8":
            rounding = InputRounding(scheme == "int8_dynamic", isinstance(layer, Conv))
            layer.input_rounding = rounding.train(layer.training)
            layer.register_forward_pre_hook(round_input)
    return model
