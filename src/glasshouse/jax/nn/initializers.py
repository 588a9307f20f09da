"""jax.nn.initializers: functions that give functions of (key, shape, dtype)."""

import math
from collections.abc import Callable
from typing import Any

from glasshouse.jax import functions as g
from glasshouse.jax import random
from glasshouse.jax.numpy.arrays import cast
from glasshouse.ops.checks import check_option
from glasshouse.tensor import Tensor

__all__ = ["Initializer", "constant", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform",
           "kaiming_normal", "kaiming_uniform", "lecun_normal", "lecun_uniform", "normal", "ones",
           "orthogonal", "truncated_normal", "uniform", "variance_scaling", "xavier_normal",
           "xavier_uniform", "zeros"]  # fmt: skip

Initializer = Callable[..., Tensor]
OF_TRUNCATED = 0.87962566103423978  # the deviation of a normal number held within -2 and 2


def zeros(key: Any, shape: Any, dtype: Any = "float32", out_sharding: Any = None) -> Tensor:
    """Zeros."""
    return g.zeros(tuple(shape), dtype=dtype)


def ones(key: Any, shape: Any, dtype: Any = "float32", out_sharding: Any = None) -> Tensor:
    """Ones."""
    return g.ones(tuple(shape), dtype=dtype)


def constant(value: Any, dtype: Any = "float32") -> Initializer:
    """An initializer that gives a value everywhere."""
    return lambda key, shape, dtype=dtype: cast(
        g.broadcast_to(g.asarray(value), tuple(shape)), dtype
    )


def uniform(scale: Any = 1e-2, dtype: Any = "float32") -> Initializer:
    """An initializer of numbers uniform in [0, scale)."""
    return lambda key, shape, dtype=dtype: random.uniform(key, shape, dtype) * scale


def normal(stddev: Any = 1e-2, dtype: Any = "float32") -> Initializer:
    """An initializer of normal numbers."""
    return lambda key, shape, dtype=dtype: random.normal(key, shape, dtype) * stddev


def truncated_normal(
    stddev: Any = 1e-2, dtype: Any = "float32", lower: float = -2.0, upper: float = 2.0
) -> Initializer:
    """An initializer of normal numbers held within bounds, in units of `stddev`."""
    return lambda key, shape, dtype=dtype: (
        random.truncated_normal(key, lower, upper, shape, dtype) * stddev
    )


def variance_scaling(
    scale: float,
    mode: str,
    distribution: str,
    in_axis: Any = -2,
    out_axis: Any = -1,
    batch_axis: Any = (),
    dtype: Any = "float32",
) -> Initializer:
    """An initializer of variance scale / n, where n is the number of inputs ("fan_in"), of outputs
    ("fan_out"), or their mean ("fan_avg").

    Raises: OptionError for another mode or distribution.
    """
    check_option("variance_scaling", "mode", mode, ("fan_in", "fan_out", "fan_avg"))
    kinds = ("normal", "truncated_normal", "uniform")
    check_option("variance_scaling", "distribution", distribution, kinds)

    def init(key: Any, shape: Any, dtype: Any = dtype, out_sharding: Any = None) -> Tensor:
        def sizes(axes):
            return math.prod(
                shape[i] for i in (axes if isinstance(axes, (tuple, list)) else (axes,))
            )

        field = math.prod(shape) / (sizes(in_axis) * sizes(out_axis) * sizes(batch_axis))
        fan_in, fan_out = sizes(in_axis) * field, sizes(out_axis) * field
        count = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[mode]
        variance = scale / max(count, 1e-30)
        if distribution == "normal":
            return random.normal(key, shape, dtype) * math.sqrt(variance)
        if distribution == "uniform":
            return random.uniform(key, shape, dtype, -1.0, 1.0) * math.sqrt(3 * variance)
        stddev = math.sqrt(variance) / OF_TRUNCATED
        return random.truncated_normal(key, -2.0, 2.0, shape, dtype) * stddev

    return init


def variance_initializer(scale: float, mode: str, distribution: str, about: str) -> Any:
    """A function that gives `variance_scaling` with constants."""

    def initializer(
        in_axis: Any = -2, out_axis: Any = -1, batch_axis: Any = (), dtype: Any = "float32"
    ) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    initializer.__doc__ = f"An initializer of {about}."
    return initializer


glorot_uniform: Any = variance_initializer(1.0, "fan_avg", "uniform", "Glorot's, uniform")
glorot_normal: Any = variance_initializer(1.0, "fan_avg", "truncated_normal", "Glorot's, normal")
lecun_uniform: Any = variance_initializer(1.0, "fan_in", "uniform", "LeCun's, uniform")
lecun_normal: Any = variance_initializer(1.0, "fan_in", "truncated_normal", "LeCun's, normal")
he_uniform: Any = variance_initializer(2.0, "fan_in", "uniform", "He's, uniform")
he_normal: Any = variance_initializer(2.0, "fan_in", "truncated_normal", "He's, normal")
xavier_uniform: Any = glorot_uniform
xavier_normal: Any = glorot_normal
kaiming_uniform: Any = he_uniform
kaiming_normal: Any = he_normal


def orthogonal(scale: float = 1.0, column_axis: int = -1, dtype: Any = "float32") -> Initializer:
    """An initializer of matrices with orthogonal rows or columns."""

    def init(key: Any, shape: Any, dtype: Any = dtype, out_sharding: Any = None) -> Tensor:
        columns = shape[column_axis]
        rows = math.prod(shape) // columns
        tall = random.normal(key, (max(rows, columns), min(rows, columns)), dtype)
        q, r = g.qr(tall)
        q = q * g.sign(g.diagonal(r))
        q = q.mT if rows < columns else q
        q = g.reshape(
            q, (*(n for i, n in enumerate(shape) if i != column_axis % len(shape)), columns)
        )
        return scale * g.moveaxis(q, -1, column_axis)

    return init
