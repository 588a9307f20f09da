"""Products of matrices of many sizes and layouts, and which steps compute them."""

import numpy as np

import glasshouse as gh
from glasshouse.compile.programs import program

SHAPES = {  # items, rows, terms, columns
    "whole panels": ((), 64, 64, 96),
    "parts of panels": ((), 77, 45, 83),
    "one tile": ((), 16, 32, 16),
    "part of a tile": ((), 5, 3, 7),
    "one element": ((), 1, 1, 1),
    "many terms": ((), 70, 1700, 33),
    "many rows": ((), 1100, 40, 48),
    "many columns": ((), 40, 70, 1100),
    "a stack": ((3,), 50, 33, 65),
    "axes of stacks": ((2, 1, 3), 20, 40, 30),
}
LAID_OUT = {
    "rows": (False, False),
    "first": (True, False),
    "second": (False, True),
    "both": (True, True),
}


def operand(values: np.ndarray, across: bool) -> gh.Tensor:
    """A stack of matrices, perhaps with its columns in memory."""
    if not across:
        return gh.asarray(values)
    return gh.asarray(np.ascontiguousarray(values.swapaxes(-1, -2))).mT


def kinds() -> list[str]:
    entries = [entry.program for entry in program.programs.values() if entry.program]
    return [info.kind for p in entries for info in p.step_infos()]
