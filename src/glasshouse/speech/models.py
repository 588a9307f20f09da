"""Models of speech."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from glasshouse import nn
from glasshouse.base.errors import ShapeError
from glasshouse.dispatch.value import adopt, as_value
from glasshouse.nn.functional import glu, pad
from glasshouse.speech.whisper import WhisperConfig, WhisperForConditionalGeneration
from glasshouse.tensor import Tensor

__all__ = ["TDSCTC", "AsrTransformer", "ConformerCTC", "WhisperConfig",
           "WhisperForConditionalGeneration"]  # fmt: skip


def sinusoids(length: int, dim: int) -> Tensor:
    """Positions as sines (even features) and cosines (odd ones) of falling frequencies.

    Shapes: -> (length, dim).
    Source: Vaswani et al. 2017, arXiv:1706.03762, sec. 3.5.
    Example:
        >>> sinusoids(2, 2).tolist()
        [[0.0, 1.0], [0.8414709568023682, 0.5403022766113281]]
    """
    angles = np.arange(length)[:, None] * np.exp(-math.log(1e4) / dim * np.arange(0, dim, 2))
    waves = np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(length, -1)
    return adopt(waves[:, :dim].astype(np.float32))


class AsrTransformer(nn.Module):
    """Scores of labels for each third frame of speech, to be trained with `functional.ctc_loss`.
    Norm of the features, a convolution over time (kernel 7, stride 3) gated by GLU, sinusoidal
    positions, post-norm encoder layers with ReLU, a linear layer; 256,048,318 parameters.

    Shapes: features (N, T, features), (T + 2) // 3 at most max_len -> (N, (T + 2) // 3, labels).
    Raises: ShapeError for other shapes.
    Source: Kahn et al. 2022, arXiv:2201.12465, table 3 (the benchmark); Dauphin et al. 2016,
        arXiv:1612.08083 (GLU).
    Example:
        >>> model = AsrTransformer(features=8, labels=5, layers=1, dim=8, heads=2, ff=16)
        >>> model(gh.zeros((2, 30, 8))).shape
        (2, 10, 5)
    """

    def __init__(
        self,
        features: int = 80,
        labels: int = 30,
        layers: int = 36,
        dim: int = 768,
        heads: int = 4,
        ff: int = 3072,
        dropout: float = 0.0,
        max_len: int = 4096,
    ) -> None:
        super().__init__()
        self.features = features
        self.max_len = max_len
        self.norm: nn.LayerNorm = nn.LayerNorm(features)
        self.conv: Any = nn.Conv1d(features, 2 * dim, 7, stride=3, padding=3)
        self.register_buffer("positions", sinusoids(max_len, dim), persistent=False)
        self.dropout: Any = nn.Dropout(dropout)
        options = (dim, heads, ff, dropout, "relu")
        stack = (nn.TransformerEncoderLayer(*options, batch_first=True) for _ in range(layers))
        self.layers: nn.Sequential = nn.Sequential(*stack)
        self.output: nn.Linear = nn.Linear(dim, labels)

    def forward(self, features: Tensor) -> Tensor:
        x = as_value(features, where="AsrTransformer")
        if x.ndim != 3 or x.shape[2] != self.features or self.frames(x.shape[1]) > self.max_len:
            expected = f"(N, T, {self.features}) with T at most {3 * self.max_len}"
            fix = "Cut the recording, or raise max_len."
            raise ShapeError("AsrTransformer", expected, x.shape, fix)
        x = glu(self.conv(self.norm(x).transpose(1, 2)), dim=1).transpose(1, 2)  # (N, T', dim)
        x = self.dropout(x + self.positions[: x.shape[1]])
        return self.output(self.layers(x))

    @staticmethod
    def frames(length: int) -> int:
        """How many frames the scores have for a recording of `length` frames (or an array)."""
        return (length + 2) // 3


class ConformerCTC(nn.Module):
    """Scores of labels for each fourth frame of speech: two convolutions of stride 2 over bands and
    time, a linear layer, Conformer blocks, a linear layer. With its defaults the medium Conformer.

    Shapes: features (N, T, features), padding_mask (N, frames(T)), True at padding
        -> (N, frames(T), labels).
    Raises: ShapeError for other shapes, or fewer than 7 frames.
    Source: Gulati et al. 2020, arXiv:2005.08100, fig. 1 and table 1.
    Example:
        >>> model = ConformerCTC(8, labels=5, layers=1, dim=8, heads=2, pos_context=16)
        >>> model(gh.zeros((2, 30, 8))).shape, model.frames(30)
        ((2, 6, 5), 6)
    """

    def __init__(
        self,
        features: int = 80,
        labels: int = 30,
        layers: int = 16,
        dim: int = 256,
        heads: int = 4,
        kernel_size: int = 31,
        pos_context: int = 1024,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.features = features
        self.conv: nn.Sequential = nn.Sequential(
            nn.Conv2d(1, dim, 3, stride=2), nn.ReLU(), nn.Conv2d(dim, dim, 3, stride=2), nn.ReLU()
        )
        self.input: nn.Linear = nn.Linear(dim * self.frames(features), dim)
        self.dropout: Any = nn.Dropout(dropout)
        options = (dim, dim // heads, 4 * dim, heads, pos_context, kernel_size, dropout)
        self.layers: nn.ModuleList = nn.ModuleList(nn.Conformer(*options) for _ in range(layers))
        self.output: nn.Linear = nn.Linear(dim, labels)

    def forward(self, features: Tensor, padding_mask: Any = None) -> Tensor:
        x = as_value(features, where="ConformerCTC")
        if x.ndim != 3 or x.shape[2] != self.features or x.shape[1] < 7:
            expected = f"(N, T, {self.features}) with T at least 7"
            raise ShapeError("ConformerCTC", expected, x.shape, "Time is the second axis.")
        x = self.conv(x[:, None]).transpose(1, 2)  # (N, T', dim, bands)
        x = self.dropout(self.input(x.reshape((*x.shape[:2], -1))))
        for layer in self.layers:
            x = layer(x, padding_mask)
        return self.output(x)

    @staticmethod
    def frames(length: int) -> int:
        """How many frames the scores have for a recording of `length` frames (or an array)."""
        return ((length - 1) // 2 - 1) // 2


class TDSCTC(nn.Module):
    """Scores of labels for each eighth frame of speech: three groups of time-depth separable
    blocks, each after a convolution of stride 2 that widens the channels, and a linear layer.

    Shapes: features (N, T, features) -> (N, frames(T), labels).
    Raises: ShapeError for other shapes.
    Source: Hannun et al. 2019, arXiv:1904.02619, sec. 3.
    Example:
        >>> model = TDSCTC(8, labels=5, channels=(2, 3), blocks=(1, 1), kernel_size=5)
        >>> model(gh.zeros((2, 30, 8))).shape, model.frames(30)
        ((2, 8, 5), 8)
    """

    def __init__(
        self,
        features: int = 80,
        labels: int = 30,
        channels: Sequence[int] = (10, 14, 18),
        blocks: Sequence[int] = (5, 6, 10),
        kernel_size: int = 21,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.features = features
        self.groups: int = len(channels)
        parts: list[nn.Module] = []
        for before, size, count in zip((1, *channels), channels, blocks):
            parts.append(nn.Conv2d(before, size, (1, kernel_size), stride=(1, 2), padding="valid"))
            parts += [nn.ReLU(), nn.Dropout(dropout)]
            parts += [nn.TDSBlock(size, kernel_size, features, dropout) for _ in range(count)]
        self.body: nn.ModuleList = nn.ModuleList(parts)
        self.kernel_size = kernel_size
        self.output: nn.Linear = nn.Linear(channels[-1] * features, labels)

    def forward(self, features: Tensor) -> Tensor:
        x = as_value(features, where="TDSCTC")
        if x.ndim != 3 or x.shape[2] != self.features or not x.shape[1]:
            expected = f"(N, T, {self.features}) with a frame or more"
            raise ShapeError("TDSCTC", expected, x.shape, "Time is the second axis.")
        x = x.transpose(1, 2)[:, None]  # (N, 1, features, T)
        for part in self.body:
            if isinstance(part, nn.Conv2d):  # so that each second frame has an output
                x = pad(x, (self.kernel_size // 2, (self.kernel_size - 1) // 2))
            x = part(x)
        n, channels, width, steps = x.shape
        return self.output(x.reshape((n, channels * width, steps)).transpose(1, 2))

    def frames(self, length: int) -> int:
        """How many frames the scores have for a recording of `length` frames (or an array)."""
        for _ in range(self.groups):
            length = (length + 1) // 2
        return length
