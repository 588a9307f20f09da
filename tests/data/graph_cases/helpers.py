"""Helpers that functions import relatively."""

SCALE = 3


def shifted(x):
    return x + 0.25
