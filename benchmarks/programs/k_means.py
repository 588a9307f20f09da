"""Clusters of points by Lloyd's iteration."""

import numpy as xp
from numpy.random import default_rng

POINTS, CLUSTERS, COLUMNS = 3000, 8, 4


def start():
    draws = default_rng(0)
    middles = 4 * draws.standard_normal((CLUSTERS, COLUMNS))
    points = middles[draws.integers(CLUSTERS, size=POINTS)]
    points = xp.asarray(points + draws.standard_normal((POINTS, COLUMNS)))
    return points, points[:CLUSTERS, :]


def step(points, centers):
    squares = xp.sum((points[:, None, :] - centers[None, :, :]) ** 2, axis=2)
    nearest = xp.argmin(squares, axis=1)
    member = nearest[:, None] == xp.arange(CLUSTERS)[None, :]
    weight = xp.astype(member, points.dtype)
    counts = xp.sum(weight, axis=0)
    sums = xp.matmul(weight.T, points)
    moved = sums / xp.where(counts > 0, counts, 1.0)[:, None]
    centers = xp.where((counts > 0)[:, None], moved, centers)
    return (points, centers), xp.mean(xp.min(squares, axis=1))
