"""Heat that spreads in a plate whose edges are kept cold."""

import numpy as xp

SIDE, DIFFUSION = 128, 0.2


def start():
    row = xp.arange(SIDE, dtype=xp.float64)
    x, y = xp.meshgrid(row, row, indexing="ij")
    hot = (x - SIDE / 2) ** 2 + (y - SIDE / 3) ** 2 < (SIDE / 6) ** 2
    return (100.0 * xp.astype(hot, xp.float64),)


def step(heat):
    for _ in range(4):
        new = xp.zeros_like(heat)
        inner = heat[1:-1, 1:-1]
        around = heat[:-2, 1:-1] + heat[2:, 1:-1] + heat[1:-1, :-2] + heat[1:-1, 2:]
        new[1:-1, 1:-1] = inner + DIFFUSION * (around - 4 * inner)
        heat = new
    return (heat,), xp.sum(heat)
