"""Batches of images mixed with themselves: each image with the one before it, and their labels."""

from typing import Any

import numpy as np

from glasshouse.base.errors import DTypeError, IndexOutOfRangeError, OptionError, ShapeError
from glasshouse.dispatch.value import Value, as_value
from glasshouse.ops.checks import check_integer


class Mixing:
    """Base of functions of ((images, labels), rng) that mix a batch: subclasses define `mixed`.
    Tensors or arrays go in, the same kind comes out, labels as probabilities.

    Shapes: images (N, C, H, W), labels (N,) -> (N, C, H, W), (N, num_classes).
    """

    def __init__(self, num_classes: int, alpha: float = 1.0) -> None:
        where = type(self).__name__
        self.num_classes: int = check_integer(where, "num_classes", num_classes, 1)
        if not alpha > 0:
            fix = "1.0 draws all parts equally."
            raise OptionError(where, "alpha above 0", repr(alpha), fix)
        self.alpha = alpha

    def __call__(self, batch: Any, rng: "np.random.Generator | None" = None) -> Any:
        where = type(self).__name__
        if rng is None:
            fix = "Give the map a seed: data.batch(64).map(fn, seed=0)."
            raise OptionError(where, "a generator of random numbers", "none", fix)
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            raise DTypeError(where, "(images, labels)", f"{batch!r:.40}", "Pass a batch of pairs.")
        arrays = [np.asarray(x) for x in batch]
        images, labels = arrays
        if images.ndim != 4 or images.dtype.kind != "f" or labels.shape != images.shape[:1]:
            expected = "floating images (N, C, H, W) and labels (N,)"
            got = f"{images.dtype} {images.shape} and {labels.shape}"
            raise ShapeError(where, expected, got, "Mix after batches are made.")
        outside = labels[(labels < 0) | (labels >= self.num_classes)]
        if outside.size:
            expected = f"labels from 0 to {self.num_classes - 1}"
            raise IndexOutOfRangeError(where, expected, int(outside[0]), "Check num_classes.")
        images, part = self.mixed(images, float(rng.beta(self.alpha, self.alpha)), rng)
        chances = np.eye(self.num_classes, dtype=np.float32)[labels]
        chances = part * chances + (1 - part) * np.roll(chances, 1, axis=0)
        result = images.astype(arrays[0].dtype), chances.astype(np.float32)
        return tuple(map(as_value, result)) if isinstance(batch[0], Value) else result

    def mixed(
        self, images: np.ndarray, part: float, rng: "np.random.Generator"
    ) -> tuple[np.ndarray, float]:
        """(the images, of which `part` is their own and the rest the one before's, that part)."""
        raise NotImplementedError(f"{type(self).__name__}: expected mixed; got none.")


class MixUp(Mixing):
    """Sums of two images, with a part of the one drawn from Beta(alpha, alpha).

    Shapes: images (N, C, H, W), labels (N,) -> (N, C, H, W), (N, num_classes).
    Raises: OptionError for alpha of 0 or below, IndexOutOfRangeError for a label that is no class.
    Source: Zhang et al. 2017, arXiv:1710.09412.
    Example:
        >>> images, labels = np.ones((2, 1, 4, 4), np.float32), np.array([0, 1])
        >>> MixUp(2)((images, labels), np.random.default_rng(0))[1].sum(axis=1).round(3).tolist()
        [1.0, 1.0]
    """

    def mixed(
        self, images: np.ndarray, part: float, rng: "np.random.Generator"
    ) -> tuple[np.ndarray, float]:
        return part * images + (1 - part) * np.roll(images, 1, axis=0), part


class CutMix(Mixing):
    """Images with a box of another one in them; the box has a share of the area drawn from
    Beta(alpha, alpha), as far as it lies inside.

    Shapes: images (N, C, H, W), labels (N,) -> (N, C, H, W), (N, num_classes).
    Raises: as MixUp's.
    Source: Yun et al. 2019, arXiv:1905.04899.
    """

    def mixed(
        self, images: np.ndarray, part: float, rng: "np.random.Generator"
    ) -> tuple[np.ndarray, float]:
        images, size = images.copy(), np.array(images.shape[2:])
        middle, half = rng.integers(size), (size * np.sqrt(1 - part) / 2).astype(int)
        low, high = np.maximum(middle - half, 0), np.minimum(middle + half, size)
        box = (..., slice(low[0], high[0]), slice(low[1], high[1]))
        images[box] = np.roll(images, 1, axis=0)[box]
        return images, 1 - float(np.prod(high - low)) / float(np.prod(size))
