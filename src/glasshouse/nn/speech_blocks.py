"""Blocks of networks that hear: time-depth separable convolution, and the Conformer."""

from collections.abc import Sequence
from math import sqrt
from typing import Any

from glasshouse.base.dtype import DTypeLike
from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.dispatch.value import as_value, cast, reshape
from glasshouse.dispatch.wide import widen
from glasshouse.nn import functional, init
from glasshouse.nn.checks import check_floating, check_ndim, check_positive, check_probability
from glasshouse.nn.containers import Sequential
from glasshouse.nn.conv import Conv1d, Conv2d
from glasshouse.nn.functional.attention import attend
from glasshouse.nn.functional.norm import moments
from glasshouse.nn.functional.padding import pad
from glasshouse.nn.images import ZeroPad2d
from glasshouse.nn.layers import Dropout, ReLU, SiLU
from glasshouse.nn.linear import Linear, add_parameters
from glasshouse.nn.module import Module
from glasshouse.nn.norm import LayerNorm
from glasshouse.ops.movement import permute, section
from glasshouse.tensor import Tensor, matmul, matrix_transpose, random
from glasshouse.tensor import sqrt as root
from glasshouse.tensor import where as choose


class ScalarLayerNorm(Module):
    """(x - mean) / √(var + eps) · weight + bias over some axes, with one weight and one bias.

    Shapes: any -> the same.
    Source: Ba, Kiros & Hinton 2016, arXiv:1607.06450; one weight for all as in Flashlight.
    """

    _shown = ("axes", "eps")

    def __init__(
        self,
        axes: Sequence[int],
        eps: float = 1e-5,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.axes: tuple[int, ...] = tuple(axes)
        self.eps = eps
        add_parameters(self, device, dtype, weight=(), bias=())
        init.ones_(self.weight)
        init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        x = check_floating("ScalarLayerNorm", input)
        _, centred, var = moments(widen(x), self.axes)
        y = centred * (1 / root(var + self.eps))
        return cast(y * cast(self.weight, y.dtype) + cast(self.bias, y.dtype), x.dtype)


class TDSBlock(Module):
    """A time-depth separable block: a convolution over time with `channels` channels, shared by
    `width` features, then two linear layers over channels and features, each with a
    shortcut, then a norm.

    `right_padding` bounds how far ahead in time the convolution sees (-1: as far as it looks back).
    `norm_includes_time` takes the norms over time too.

    Shapes: (N, channels, width, T) -> the same.
    Raises: ShapeError for other sizes; OptionError for a right_padding above kernel_size - 1.
    Source: Hannun et al. 2019, arXiv:1904.02619, sec. 3; Flashlight, TDSBlock.
    """

    def __init__(
        self,
        channels: int,
        kernel_size: Any,
        width: int,
        dropout: float = 0.0,
        inner_linear_dim: int = 0,
        right_padding: int = -1,
        norm_includes_time: bool = True,
    ) -> None:
        super().__init__()
        check_positive("TDSBlock", channels=channels, kernel_size=kernel_size, width=width)
        total = kernel_size - 1
        ahead = total - total // 2 if right_padding == -1 else right_padding
        if not 0 <= ahead <= total:
            expected = f"right_padding from 0 to {total}, or -1"
            fix = "Lower it, or enlarge kernel_size."
            raise OptionError("TDSBlock", expected, right_padding, fix)
        self.channels = channels
        self.width = width
        convolution = Conv2d(channels, channels, (1, kernel_size))
        padding = ZeroPad2d((total - ahead, ahead, 0, 0))
        self.conv: Sequential = Sequential(padding, convolution, ReLU(), Dropout(dropout))
        size = channels * width
        inner = inner_linear_dim or size
        first, last = Linear(size, inner), Linear(inner, size)
        self.fc: Sequential = Sequential(first, ReLU(), Dropout(dropout), last, Dropout(dropout))
        axes = (1, 2, 3) if norm_includes_time else (1, 2)
        self.norm1: ScalarLayerNorm = ScalarLayerNorm(axes)
        self.norm2: ScalarLayerNorm = ScalarLayerNorm(axes)

    def forward(self, input: Tensor) -> Tensor:
        x = as_value(input, where="TDSBlock")
        if x.ndim != 4 or x.shape[1:3] != (self.channels, self.width):
            expected = f"an input (N, {self.channels}, {self.width}, T)"
            raise ShapeError("TDSBlock", expected, x.shape, "Time is the last axis.")
        x = self.norm1(self.conv(x) + x)
        steps = permute(x, axes=(0, 3, 2, 1))  # (N, T, width, channels)
        y = self.fc(reshape(steps, (*steps.shape[:2], self.width * self.channels)))
        y = permute(reshape(y, steps.shape), axes=(0, 3, 2, 1))
        return self.norm2(y + x)


class Conformer(Module):
    """A Conformer block: half a feed-forward layer, attention, a convolution over time and half a
    feed-forward layer, each after a norm and with a shortcut; a norm at the end.

    `pos_context` above 0 adds learned scores of relative positions for up to so many steps.
    `layer_dropout` leaves the whole block but its norm out with that probability while training.

    Shapes: (N, T, model_dim), padding_mask (N, T), True at padding -> (N, T, model_dim).
    Raises: ShapeError for other sizes, or more steps than pos_context.
    Source: Gulati et al. 2020, arXiv:2005.08100, sec. 2; Flashlight, Conformer (layer norm in the
        convolution's part).
    """

    query: Linear
    key: Linear
    value: Linear

    def __init__(
        self,
        model_dim: int,
        head_dim: int,
        mlp_dim: int,
        heads: int,
        pos_context: int,
        kernel_size: Any,
        dropout: float = 0.0,
        layer_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        sizes = {"model_dim": model_dim, "head_dim": head_dim, "mlp_dim": mlp_dim, "heads": heads}
        check_positive("Conformer", **sizes, kernel_size=kernel_size)
        check_probability("Conformer", layer_dropout)
        self.model_dim = model_dim
        self.head_dim = head_dim
        self.heads = heads
        self.pos_context = pos_context
        self.layer_dropout = layer_dropout
        positions = (2 * pos_context - 1, head_dim) if pos_context else None
        add_parameters(self, None, None, positions=positions)
        if pos_context:
            init.uniform_(self.positions, -0.1, 0.1)
        self.ff1: Sequential = feed_forward(model_dim, mlp_dim, dropout)
        self.ff2: Sequential = feed_forward(model_dim, mlp_dim, dropout)
        inner = head_dim * heads
        self.norm_attention: LayerNorm = LayerNorm(model_dim)
        self.query, self.key, self.value = (Linear(model_dim, inner) for _ in range(3))
        self.out: Linear = Linear(inner, model_dim)
        self.dropout: Any = Dropout(dropout)
        self.norm_conv1: LayerNorm = LayerNorm(model_dim)
        self.norm_conv2: LayerNorm = LayerNorm(model_dim)
        self.conv1: Linear = Linear(model_dim, 2 * model_dim)
        self.depthwise: Any = Conv1d(
            model_dim, model_dim, kernel_size, padding="same", groups=model_dim
        )
        self.conv2: Linear = Linear(model_dim, model_dim)
        self.norm: LayerNorm = LayerNorm(model_dim)

    def forward(self, input: Tensor, padding_mask: Any = None) -> Any:
        x = check_floating("Conformer", input)
        check_ndim("Conformer", x, (3,), "(N, T, model_dim)")
        if x.shape[2] != self.model_dim or 0 < self.pos_context < x.shape[1]:
            steps = f"T up to {self.pos_context}" if self.pos_context else "T"
            fix = "Cut it, or raise pos_context."
            raise ShapeError("Conformer", f"an input (N, {steps}, {self.model_dim})", x.shape, fix)
        gate = 1.0
        if self.training and self.layer_dropout:
            gate = cast(random.bernoulli(1 - self.layer_dropout, ()), x.dtype)
        x = x + self.ff1(x) * (0.5 * gate)
        x = x + self.attention(x, padding_mask) * gate
        x = x + self.convolution(x) * gate
        x = x + self.ff2(x) * (0.5 * gate)
        return self.norm(x)

    def attention(self, x: Tensor, padding_mask: Any) -> Tensor:
        normed = self.norm_attention(x)
        n, steps = x.shape[:2]
        split = (n, steps, self.heads, self.head_dim)
        parts = (layer(normed) for layer in (self.query, self.key, self.value))
        q, k, v = (permute(reshape(part, split), axes=(0, 2, 1, 3)) for part in parts)
        mask = self.scores_of_positions(q) if self.pos_context else None
        if padding_mask is not None:
            visible = reshape(~as_value(padding_mask, where="Conformer"), (n, 1, 1, steps))
            mask = visible if mask is None else choose(visible, mask, -float("inf"))
        rate = self.dropout.p if self.training else 0.0
        y = permute(attend("Conformer", q, k, v, mask, dropout_p=rate), axes=(0, 2, 1, 3))
        return self.dropout(self.out(reshape(y, (n, steps, self.heads * self.head_dim))))

    def scores_of_positions(self, q: Tensor) -> Tensor:
        """(N, heads, T, T): the score of key j for query i by their distance j - i.

        Source: Shaw et al. 2018, arXiv:1803.02155; the shift of rows by Huang et al. 2018,
            arXiv:1809.04281, sec. 3.4.1.
        """
        *lead, steps, size = q.shape
        first = self.pos_context - steps
        rows = section(self.positions, 0, first, first + 2 * steps - 1)
        scores = matmul(q * (1 / sqrt(size)), matrix_transpose(rows))  # distance 1 - T … T - 1
        flat = reshape(pad(scores, (0, 1)), (*lead, 2 * steps * steps))
        begin = steps - 1
        shifted = section(flat, len(lead), begin, begin + steps * (2 * steps - 1))
        shifted = reshape(shifted, (*lead, steps, 2 * steps - 1))
        return section(shifted, len(lead) + 1, 0, steps)

    def convolution(self, x: Tensor) -> Tensor:
        y = functional.glu(self.conv1(self.norm_conv1(x)))
        y = permute(self.depthwise(permute(y, axes=(0, 2, 1))), axes=(0, 2, 1))
        return self.dropout(self.conv2(functional.silu(self.norm_conv2(y))))


def feed_forward(size: int, inner: int, dropout: float) -> Sequential:
    first, last = Linear(size, inner), Linear(inner, size)
    return Sequential(LayerNorm(size), first, SiLU(), Dropout(dropout), last, Dropout(dropout))
