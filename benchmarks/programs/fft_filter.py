"""Noise taken from a signal in the frequency domain, a little more in each round."""

import numpy as xp
from numpy.random import default_rng

SAMPLES, RATE = 8192, 1000.0


def start():
    draws = default_rng(0)
    time = xp.arange(SAMPLES, dtype=xp.float64) / RATE
    clean = xp.sin(2 * xp.pi * 5 * time) + 0.5 * xp.cos(2 * xp.pi * 12 * time)
    noisy = clean + xp.asarray(0.4 * draws.standard_normal(SAMPLES))
    return clean, noisy, noisy


def step(clean, noisy, signal):
    spectrum = xp.fft.rfft(signal)
    frequency = xp.fft.rfftfreq(SAMPLES, d=1 / RATE)
    response = 1 / xp.sqrt(1 + (frequency / 40.0) ** 8)
    strength = xp.abs(spectrum)
    kept = xp.where(strength > 0.02 * xp.max(strength), spectrum, 0.2 * spectrum)
    filtered = xp.fft.irfft(kept * response, n=SAMPLES)
    signal = 0.9 * filtered + 0.1 * noisy
    return (clean, noisy, signal), xp.sqrt(xp.mean((signal - clean) ** 2))
