"""Dropout in its forms. Masks come from gh.random's global generator."""

import math

from glasshouse.dispatch.value import Value
from glasshouse.nn.checks import check_floating, check_ndim, check_probability
from glasshouse.nn.functional.activation import SELU_ALPHA, SELU_SCALE
from glasshouse.nn.functional.axes import by_axes
from glasshouse.tensor import random, where


def dropout(input, p=0.5, training=True, inplace=False):
    """Each element 0 with probability p, else x / (1 - p); x itself when not training. Shapes: any
    -> the same. Raises: OptionError for p outside [0, 1]. Source: Srivastava et al. 2014."""
    x = check_floating("dropout", input)
    return drop("dropout", x, p, training, x.shape)


def drop_channels(where_: str, n: int, input, p=0.5, training=True, inplace=False) -> Value:
    """`dropout` of whole channels. Source: arXiv:1411.4280.

    Shapes: (N, C, {s}) or (C, {s}) -> the same."""
    x = check_floating(where_, input)
    check_ndim(where_, x, (n + 1, n + 2), f"channels and {n} spatial axes, with or without batch")
    return drop(where_, x, p, training, x.shape[:-n] + (1,) * n)


dropout1d, dropout2d, dropout3d = by_axes(drop_channels, "dropout")


def drop(where_: str, x: Value, p: float, training: bool, mask_shape) -> Value:
    """x where a mask of `mask_shape` is drawn to keep it, scaled to keep the expectation."""
    p = check_probability(where_, p)
    if not training or p in (0, 1):
        return x * 0 if training and p else x
    return where(random.bernoulli(1 - p, mask_shape), x * (1 / (1 - p)), 0)


def alpha_dropout(input, p=0.5, training=False, inplace=False):
    """Dropout for SELU networks: dropped elements take SELU's lower limit, and all are scaled and
    shifted so that mean 0 and variance 1 stay. Shapes: any -> the same. Raises: OptionError for p
    outside [0, 1]. Source: Klambauer et al. 2017, arXiv:1706.02515, sec. 3."""
    x = check_floating("alpha_dropout", input)
    p = check_probability("alpha_dropout", p)
    if not training or p in (0, 1):
        return x * 0 if training and p else x
    limit = -SELU_ALPHA * SELU_SCALE
    scale = 1 / math.sqrt((1 - p) * (1 + p * limit * limit))
    return where(random.bernoulli(1 - p, x.shape), x, limit) * scale - scale * p * limit
