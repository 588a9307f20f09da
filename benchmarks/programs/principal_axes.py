"""The largest principal axes of a cloud of points by orthogonal iteration."""

import numpy as xp
from numpy.random import default_rng

ROWS, COLUMNS, AXES = 1500, 40, 5


def start():
    draws = default_rng(0)
    mixing = draws.standard_normal((COLUMNS, COLUMNS)) * 0.9 ** draws.permutation(COLUMNS)
    points = xp.asarray(draws.standard_normal((ROWS, COLUMNS)) @ mixing.T)
    axes = xp.linalg.qr(xp.asarray(draws.standard_normal((COLUMNS, AXES))))[0]
    return points, axes


def step(points, axes):
    centred = points - xp.mean(points, axis=0, keepdims=True)
    covariance = xp.matmul(centred.T, centred) / (points.shape[0] - 1)
    axes, _ = xp.linalg.qr(xp.matmul(covariance, axes))
    explained = xp.trace(xp.matmul(axes.T, xp.matmul(covariance, axes)))
    return (points, axes), explained / xp.trace(covariance)
