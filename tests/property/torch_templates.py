"""Parts of random programs of PyTorch; the templates themselves are a text beside this.

A hole such as <float> stands for a tensor that is there, <axis> for an axis of the first tensor of
its line, <1> for that tensor again."""

from pathlib import Path

# What programs call beside PyTorch: `weight` makes small numbers of any shape, `places` indices.
PRELUDE = """
import math
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

NAN, INF = math.nan, math.inf


def weight(*shape, dtype=torch.float32):
    return ((torch.arange(math.prod(shape)) * 5 % 7 - 3) * 0.25).to(dtype).reshape(shape)


def places(x, axis, count):
    return torch.arange(count) * 3 % max(1, x.shape[axis])


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 + (x > 0)


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_non_differentiable(y)
        return x.round(), y

    @staticmethod
    def backward(ctx, g, _):
        return g.clamp(-1, 1), None
"""

SHAPES = [  # each program has arguments of one row
    "(N, 3) (3, N) (1, 3) (N, 1) (3, 3) () (3,)",
    "(N, 3) (N, 3) (N, 3) (2, N, 3) (1,) (N, 0) (0,)",
    "(2, 4, 5, 6) (1, 2, 5, 6) (2, 4, 5, N) (2, 4, 1, 1) (2, 4)",
    "(2, 4, 5, 6) (2, 4, 5, 6) (2, 4, 5, 6) (4, 1, 6) (4, 5, 6)",
    "(2, N, 3) (2, 4, N) (2, 1, 3) (2, N, 3) (3,) ()",
    "(N,) (N,) () (3,) (0,) (1,) (N, N)",
    "(1, 2, 3, 4, 5) (2, 4, 5) (3, 4, 5) (5,)",
    "(7, 33) (7, 33) (33,) (33, 7) (130,) (N, 33)",
]
LAYOUTS = ["plain"] * 6 + ["transposed", "gaps", "expanded", "reversed", "last", "offset", "window"]
DTYPES = ["float32"] * 10 + ["int64"] * 3 + ["bool"] * 2 + [
    "float64", "bfloat16", "float16", "int32", "uint8", "int8", "complex64", "float64",
]  # fmt: skip
NUMBERS = "0 1 -1 2 3 0.5 -0.0 -2.5 7 1e-3 True NAN INF -INF".split()
WORDS = {  # what may stand in a hole that is for no tensor
    "number": NUMBERS,
    "factor": "1 2 0.5 -1.5 3".split(),
    "power": "2 3 0 -1 0.5 -2 1.5 1".split(),
    "small": "0 1 2".split(),
    "signed": "-2 -1 0 1 2".split(),
    "norm": "1 2 0 INF -INF 3 0.5".split(),
    "beta": "0.5 1.0 2.0".split(),
    "rounding": "'floor' 'trunc' None".split(),
    "reduce": "'sum' 'mean' 'amax' 'amin' 'prod'".split(),
    "indexreduce": "'mean' 'amax' 'amin' 'prod'".split(),
    "bag": "'sum' 'mean' 'max'".split(),
    "resize": "'nearest' 'nearest-exact' 'bilinear' 'bicubic' 'area'".split(),
    "grid": "'bilinear' 'nearest' 'bicubic'".split(),
    "border": "'zeros' 'border' 'reflection'".split(),
    "sum": "'mean' 'sum' 'none'".split(),
}


def groups_of(text: str) -> dict[str, tuple[list[str], int]]:
    """(templates, how often they are chosen) by the name of their group."""
    groups = {}
    for part in text.split("\n== ")[1:]:
        head, *lines = filter(None, part.splitlines())
        name, weight = head.split()
        groups[name] = lines, int(weight)
    return groups


GROUPS = groups_of(Path(__file__).with_suffix(".txt").read_text())
REGIONS, _ = GROUPS.pop("regions")  # what a statement may stand in
