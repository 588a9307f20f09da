"""Least squares by gradient descent, with the gradient by hand."""

import numpy as xp
from numpy.random import default_rng

ROWS, COLUMNS, RATE = 2000, 20, 0.1


def start():
    draws = default_rng(0)
    x = draws.standard_normal((ROWS, COLUMNS))
    y = x @ draws.standard_normal(COLUMNS) + 0.5 + 0.1 * draws.standard_normal(ROWS)
    w, b = xp.zeros(COLUMNS, dtype=xp.float64), xp.zeros((), dtype=xp.float64)
    return xp.asarray(x), xp.asarray(y), w, b


def step(x, y, w, b):
    residual = x @ w + b - y
    loss = xp.mean(residual**2)
    w = w - RATE * 2 * (x.T @ residual) / y.shape[0]
    b = b - RATE * 2 * xp.mean(residual)
    return (x, y, w, b), loss
