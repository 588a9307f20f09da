"""Calls of public functions with NumPy arrays, found by trying: arguments by the parameters' names,
arrays of several ranks and dtypes for all others."""

import inspect
import itertools
from functools import cache, partial

import numpy as np

import glasshouse as gh
from glasshouse.base import flatten

MOST_TRIES = 100  # for a call that a function takes
POOLS = ("matrix", "vector", "image", "line", "volume", "rows", "batches", "indices", "mask")


def make(kind: str) -> np.ndarray:
    """An array of this kind; the same at every call."""
    rng = np.random.default_rng(len(kind))
    if kind == "matrix":
        half = rng.random((3, 3), np.float32)
        return half @ half.T / 4 + np.eye(3, dtype=np.float32) / 2
    if kind == "indices":
        return np.array([0, 2, 1])
    if kind == "mask":
        return np.array([[True, False, True]] * 3)
    shapes = {
        "vector": (3,),
        "image": (1, 4, 8, 8),
        "line": (1, 4, 8),
        "volume": (1, 4, 4, 4, 4),
        "rows": (4, 3),
        "batches": (2, 3, 3),
        "bias": (4,),
        "kernel1": (4, 4, 2),
        "kernel2": (4, 4, 2, 2),
        "kernel3": (4, 4, 2, 2, 2),
        "grid": (1, 2, 2, 2),
    }
    if kind in shapes:
        return rng.random(shapes[kind], np.float32) * 0.8 + 0.1
    return np.array(kind_values[kind])


kind_values = {
    "classes": [0, 2, 1],
    "signs": [1.0, -1.0, 1.0],
    "index_column": [[0], [2], [1]],
    "index_matrix": [[0, 1, 2], [2, 1, 0], [1, 1, 1]],
    "lengths": [3, 2, 1],
    "number": 2.0,
    "pivots": [[1, 2, 3]],
}


class Made(str):
    """The kind of an array, in place of one among the arguments."""


def kinds(*names: str) -> tuple:
    return tuple(map(Made, names))


# What a parameter of this name gets; every other gets an array of each kind in POOLS.
ARGUMENTS = {
    **dict.fromkeys(("axis", "axis1", "axis2"), (0, 1)),
    "axes": (0, (0, 1), (1, 0)),
    **dict.fromkeys(("kernel_size", "chunks", "num_groups", "groups", "num_heads", "k"), (2, 3)),
    **dict.fromkeys(("output_size", "upscale_factor", "downscale_factor"), (2, (2, 2))),
    **dict.fromkeys(("n", "start", "end", "stop", "num", "steps", "length", "bins"), (1, 3)),
    **dict.fromkeys(("shape", "size", "sizes"), ((3, 3), (9,), (3,))),
    **dict.fromkeys(("repetitions", "repeats", "shift", "indices_or_sections"), (1, (2, 1))),
    **dict.fromkeys(("pad", "pad_width"), ((1, 1), 1)),
    "normalized_shape": ((3,), (8, 8)),
    **dict.fromkeys(("dtype", "type"), (gh.float32, gh.float64)),
    **dict.fromkeys(("threshold", "value", "exponent", "p"), (0.5, *kinds("vector", "number"))),
    "n_fft": (4,),
    "reduce": ("sum",),
    "norm_type": (2,),
    **dict.fromkeys(("max_norm", "maxnorm"), (1.0,)),
    **dict.fromkeys(("index", "indices"), kinds("indices", "index_column", "index_matrix")),
    **dict.fromkeys(("condition", "mask"), kinds("mask", "indices")),
    "pivots": kinds("indices", "pivots"),
    **dict.fromkeys(("lengths", "offsets", "input_lengths", "target_lengths"), kinds("lengths")),
    **dict.fromkeys(("target", "targets"), kinds(*POOLS, "classes", "signs")),
    "weight": kinds("rows", "matrix", "bias", "kernel1", "kernel2", "kernel3"),
    "grid": kinds("grid"),
    "bias": kinds("bias", "vector"),
    "key": (0, slice(1, 3), *kinds("indices", "mask")),
}
OPTIONS = ("weight", "bias", "mask", "attn_mask", "pos_weight", "running_mean", "running_var", "q",
           "weights", "min", "max", "fill_value", "out_proj_bias", "initial", "where")  # fmt: skip


def parameters_of(fn) -> list[str] | None:
    """The names of the arguments that a call needs; one of those that it takes any number of."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return None
    kinds_needed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [
        p.name
        for p in parameters
        if (p.default is p.empty and p.kind in kinds_needed) or p.kind is p.VAR_POSITIONAL
    ]


def choices(names: list[str]):
    """Lists of arguments to try: first those with arrays of one kind where any may stand."""
    options = [ARGUMENTS.get(name, kinds(*POOLS)) for name in names]
    for kind in POOLS:
        yield from itertools.product(*(ARGUMENTS.get(name, kinds(kind)) for name in names))
    yield from itertools.product(*options)


def filled(arguments) -> list:
    return [make(x) if isinstance(x, Made) else x for x in arguments]


def results_of(out) -> list:
    """The contents of the tensors of a result, read now."""
    leaves, _ = flatten(out)
    return [x.numpy().copy() for x in leaves if isinstance(x, gh.Tensor)]


def computed(fn, arguments) -> list:
    """Return the result of a call; random numbers are the same each time."""
    gh.random.seed(0)
    return results_of(fn(*filled(arguments)))


def computed_late(fn, arguments) -> list:
    """Return the result of a call, read after the arrays among its arguments were overwritten."""
    gh.random.seed(0)
    inputs = filled(arguments)
    out = fn(*inputs)
    for x in inputs:
        if isinstance(x, np.ndarray):
            overwrite(x)
    return results_of(out)


def succeeds(fn, arguments) -> bool:
    try:
        return bool(computed(fn, arguments))
    except Exception:  # another kind of array may fit
        return False


@cache
def call_of(fn) -> tuple | None:
    """Arguments, arrays among them, with which `fn` can be called and gives tensors."""
    names = parameters_of(fn)
    if not names:
        return None
    tries = (x for x in choices(names) if any(isinstance(part, Made) for part in x))
    tries = itertools.islice(tries, MOST_TRIES)
    return next((arguments for arguments in tries if succeeds(fn, arguments)), None)


@cache
def optional_calls(fn) -> list:
    """(`fn` with one more array by name, the arguments) for the options that take one."""
    results = []
    for name in set(OPTIONS) & set(inspect.signature(fn).parameters):
        with_array = partial(with_option, fn, name)
        calls = ((*call_of(fn), Made(kind)) for kind in (*POOLS, "bias", "number"))
        arguments = next((x for x in calls if succeeds(with_array, x)), None)
        if arguments is not None:
            results.append((with_array, arguments))
    return results


def with_option(fn, name: str, *arguments):
    *plain, option = arguments
    return fn(*plain, **{name: option})


def overwrite(array: np.ndarray) -> None:
    """Other contents, which are valid indices, lengths and probabilities."""
    if array.dtype == bool:
        array[...] = ~array
    else:
        array[...] = 1 if array.dtype.kind in "iu" else 0.421
