"""Models of speech."""

import math

import numpy as np

from glasshouse import nn
from glasshouse.base.errors import ShapeError
from glasshouse.dispatch.value import adopt, as_value
from glasshouse.nn.functional import glu
from glasshouse.tensor import Tensor

__all__ = ["AsrTransformer"]


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
        self.features, self.max_len = features, max_len
        self.norm = nn.LayerNorm(features)
        self.conv = nn.Conv1d(features, 2 * dim, 7, stride=3, padding=3)
        self.register_buffer("positions", sinusoids(max_len, dim), persistent=False)
        self.dropout = nn.Dropout(dropout)
        options = (dim, heads, ff, dropout, "relu")
        stack = (nn.TransformerEncoderLayer(*options, batch_first=True) for _ in range(layers))
        self.layers, self.output = nn.Sequential(*stack), nn.Linear(dim, labels)

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
