"""jax.random's names with jax.random's meaning: draws are functions of a key. The numbers are those
of `gh.random`, and not JAX's."""

import math
from typing import Any

from glasshouse.base import as_dtype, uint32
from glasshouse.dispatch import as_value, cast
from glasshouse.jax import functions as g
from glasshouse.tensor import Tensor
from glasshouse.tensor import random as draws
from glasshouse.tensor.random import fold_in, key, split

__all__ = ["PRNGKey", "ball", "bernoulli", "beta", "binomial", "bits", "categorical",
           "cauchy", "chisquare", "choice", "clone", "dirichlet",
           "double_sided_maxwell", "exponential", "f", "fold_in", "gamma",
           "generalized_normal", "geometric", "gumbel", "key", "key_data", "laplace",
           "loggamma", "logistic", "lognormal", "maxwell", "multivariate_normal",
           "normal", "orthogonal", "pareto", "permutation", "poisson", "rademacher",
           "randint", "rayleigh", "split", "t", "triangular", "truncated_normal",
           "uniform", "wald", "weibull_min", "wrap_key_data"]  # fmt: skip

PRNGKey = key


def clone(key: Any) -> Tensor:
    """The key again."""
    return as_value(key)


def key_data(keys: Any) -> Tensor:
    """The words of keys, which keys are here."""
    return as_value(keys)


def wrap_key_data(key_bits_array: Any, **options: Any) -> Tensor:
    """Keys of words."""
    return cast(as_value(key_bits_array), uint32)


def shape_of(shape: Any, *parameters: Any) -> tuple[int, ...]:
    """The shape of a draw: as given, or that of its parameters together."""
    if shape is not None:
        return tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    return tuple(g.broadcast_shapes(*(as_value(p).shape for p in parameters)))


def bits(key: Any, shape: Any = (), dtype: Any = None, out_sharding: Any = None) -> Tensor:
    """Uniform random bits."""
    return draws.bits(shape_of(shape), key=key)


def uniform(
    key: Any, shape: Any = (), dtype: Any = "float32", minval: Any = 0.0, maxval: Any = 1.0,
    out_sharding: Any = None,
) -> Tensor:  # fmt: skip
    """Numbers uniform in [minval, maxval)."""
    return draws.uniform(shape_of(shape), minval, maxval, dtype, key=key)


def normal(key: Any, shape: Any = (), dtype: Any = "float32", out_sharding: Any = None) -> Tensor:
    """Standard normal numbers."""
    return draws.normal(shape_of(shape), dtype=dtype, key=key)


def truncated_normal(
    key: Any, lower: float, upper: float, shape: Any = None, dtype: Any = "float32",
    out_sharding: Any = None,
) -> Tensor:  # fmt: skip
    """Standard normal numbers that lie within bounds."""
    return draws.truncated_normal(shape_of(shape, 0.0), 0.0, 1.0, lower, upper, dtype, key=key)


def randint(
    key: Any, shape: Any, minval: int, maxval: int, dtype: Any = "int64", out_sharding: Any = None
) -> Tensor:
    """Integers uniform in [minval, maxval)."""
    return draws.randint(minval, maxval, shape_of(shape), dtype, key=key)


def bernoulli(
    key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low", **options: Any
) -> Tensor:
    """True with probability p."""
    return draws.uniform(shape_of(shape, p), key=key) < p


def rademacher(key: Any, shape: Any = (), dtype: Any = "int64", out_sharding: Any = None) -> Tensor:
    """-1 or 1."""
    return cast(bernoulli(key, 0.5, shape_of(shape)), as_dtype(dtype)) * 2 - 1


def exponential(
    key: Any, shape: Any = (), dtype: Any = "float32", out_sharding: Any = None
) -> Tensor:
    """Exponential numbers of mean 1."""
    return draws.exponential(shape_of(shape), dtype=dtype, key=key)


def gumbel(
    key: Any, shape: Any = (), dtype: Any = "float32", mode: Any = None, out_sharding: Any = None
) -> Tensor:
    """Standard Gumbel numbers."""
    return draws.gumbel(shape_of(shape), dtype, key=key)


def categorical(
    key: Any, logits: Any, axis: int = -1, shape: Any = None, replace: bool = True, mode: Any = None
) -> Tensor:
    """Positions along an axis with probabilities softmax(logits); `shape` is that of the result."""
    logits = as_value(logits)
    lead = () if shape is None else tuple(shape)[: len(shape) - (logits.ndim - 1)]
    return draws.categorical(logits, axis, lead or None, key=key)


def choice(
    key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0,
    mode: Any = None, out_sharding: Any = None,
) -> Tensor:  # fmt: skip
    """Elements drawn from a, or the integers below it."""
    return draws.choice(a, shape_of(shape), replace, p, axis, key=key)


def permutation(
    key: Any, x: Any, axis: int = 0, independent: bool = False, out_sharding: Any = None
) -> Tensor:
    """The slices of x along an axis in random order, or the integers below it; each line in another
    order if `independent`."""
    if not independent:
        return draws.permutation(x, axis, key=key)
    x = as_value(x)
    order = g.argsort(draws.uniform(x.shape, key=key), axis=axis)
    return g.take_along_axis(x, order, axis=axis)


def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = "float32", **options: Any) -> Tensor:
    """Numbers with the gamma distribution of shape a."""
    return draws.gamma(shape_of(shape, a), a, dtype=dtype, key=key)


def loggamma(key: Any, a: Any, shape: Any = None, dtype: Any = "float32", **options: Any) -> Tensor:
    """The logarithms of numbers with the gamma distribution."""
    return g.log(gamma(key, a, shape, dtype))


def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = "float32") -> Tensor:
    """Numbers with the beta distribution."""
    return draws.beta(shape_of(shape, a, b), a, b, dtype, key=key)


def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = "float32") -> Tensor:
    """Numbers that add up to 1, with the Dirichlet distribution."""
    alpha = as_value(alpha)
    lead = alpha.shape[:-1] if shape is None else tuple(shape)
    x = gamma(key, alpha, (*lead, alpha.shape[-1]), dtype)
    return x / g.sum(x, axis=-1, keepdims=True)


def chisquare(key: Any, df: Any, shape: Any = None, dtype: Any = "float32") -> Tensor:
    """Numbers with the chi-square distribution."""
    return 2 * gamma(key, 0.5 * as_value(df, None), shape_of(shape, df), dtype)


def f(key: Any, dfnum: Any, dfden: Any, shape: Any = None, dtype: Any = "float32") -> Tensor:
    """Numbers with the F distribution."""
    first, second = split(key)
    sizes = shape_of(shape, dfnum, dfden)
    above = chisquare(first, dfnum, sizes, dtype) / dfnum
    return above / (chisquare(second, dfden, sizes, dtype) / dfden)


def t(key: Any, df: Any, shape: Any = (), dtype: Any = "float32", **options: Any) -> Tensor:
    """Numbers with Student's distribution."""
    first, second = split(key)
    sizes = shape_of(shape, df)
    return normal(first, sizes, dtype) * g.sqrt(df / chisquare(second, df, sizes, dtype))


def cauchy(key: Any, shape: Any = (), dtype: Any = "float32", **options: Any) -> Tensor:
    """Numbers with the Cauchy distribution."""
    return g.tan(math.pi * (uniform(key, shape, dtype, 1e-7, 1.0) - 0.5))


def laplace(key: Any, shape: Any = (), dtype: Any = "float32", **options: Any) -> Tensor:
    """Numbers with the Laplace distribution."""
    u = uniform(key, shape, dtype, -1 + 1e-7, 1.0)
    return -g.sign(u) * g.log1p(-g.abs(u))


def logistic(key: Any, shape: Any = (), dtype: Any = "float32", **options: Any) -> Tensor:
    """Numbers with the logistic distribution."""
    u = uniform(key, shape, dtype, 1e-7, 1.0)
    return g.log(u) - g.log1p(-u)


def lognormal(key: Any, sigma: Any = 1.0, shape: Any = None, dtype: Any = "float32") -> Tensor:
    """exp of normal numbers of deviation sigma."""
    return g.exp(normal(key, shape_of(shape, sigma), dtype) * sigma)


def pareto(key: Any, b: Any, shape: Any = None, dtype: Any = "float32") -> Tensor:
    """Numbers with the Pareto distribution."""
    return g.exp(exponential(key, shape_of(shape, b), dtype) / b)


def rayleigh(key: Any, scale: Any, shape: Any = None, dtype: Any = "float32") -> Tensor:
    """Numbers with the Rayleigh distribution."""
    return scale * g.sqrt(2 * exponential(key, shape_of(shape, scale), dtype))


def weibull_min(
    key: Any,
    scale: Any,
    concentration: Any,
    shape: Any = (),
    dtype: Any = "float32",
    **options: Any,
) -> Tensor:
    """Numbers with the Weibull distribution."""
    return scale * exponential(key, shape_of(shape), dtype) ** (1.0 / concentration)


def triangular(
    key: Any, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = "float32"
) -> Tensor:
    """Numbers with the triangular distribution."""
    u = uniform(key, shape_of(shape, left, mode, right), dtype)
    part = (mode - left) / (right - left)
    below = left + g.sqrt(u * (right - left) * (mode - left))
    above = right - g.sqrt((1 - u) * (right - left) * (right - mode))
    return g.where(u < part, below, above)


def wald(key: Any, mean: Any, shape: Any = None, dtype: Any = "float32") -> Tensor:
    """Numbers with the Wald distribution of scale 1.

    Source: Michael, Schucany & Haas 1976.
    """
    first, second = split(key)
    sizes = shape_of(shape, mean)
    y = normal(first, sizes, dtype) ** 2
    x = mean + mean * mean * y / 2 - mean / 2 * g.sqrt(4 * mean * y + mean * mean * y * y)
    return g.where(uniform(second, sizes, dtype) <= mean / (mean + x), x, mean * mean / x)


def maxwell(key: Any, shape: Any = (), dtype: Any = "float32") -> Tensor:
    """The lengths of normal vectors of three."""
    x = normal(key, (*shape_of(shape), 3), dtype)
    return g.sqrt(g.sum(x * x, axis=-1))


def double_sided_maxwell(
    key: Any, loc: Any, scale: Any, shape: Any = (), dtype: Any = "float32"
) -> Tensor:
    """Maxwell numbers with a sign, moved and scaled."""
    first, second = split(key)
    return maxwell(first, shape, dtype) * rademacher(second, shape, dtype) * scale + loc


def geometric(key: Any, p: Any, shape: Any = None, dtype: Any = "int64") -> Tensor:
    """The number of tries until the first success."""
    u = uniform(key, shape_of(shape, p), "float32", 1e-7, 1.0)
    return cast(g.floor(g.log(u) / g.log1p(-as_value(p))) + 1, as_dtype(dtype))


def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = "int64") -> Tensor:
    """Numbers with the Poisson distribution, by its distribution function below 30, else from a
    normal number.

    Source: Hörmann 1993, for why the two differ little there.
    """
    sizes = shape_of(shape, lam)
    lam = g.broadcast_to(as_value(lam), sizes)
    first, second = split(key)
    u = uniform(first, sizes)
    low = g.minimum(lam, 30.0)
    term = g.exp(-low)
    total, count = term, term * 0
    for k in range(1, 90):
        count = count + g.where(u > total, 1.0, 0.0)
        term = term * low / k
        total = total + term
    large = g.maximum(g.floor(lam + g.sqrt(lam) * normal(second, sizes) + 0.5), 0.0)
    return cast(g.where(lam < 30, count, large), as_dtype(dtype))


def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = "float32") -> Tensor:
    """The number of successes in n tries; n is known, and tries are drawn one by one."""
    sizes = shape_of(shape, n, p)
    most = int(g.max(as_value(n)).item())
    tries = uniform(key, (most, *sizes)) < p
    counts = g.reshape(g.arange(most), (most, *(1,) * len(sizes))) < as_value(n)
    return cast(g.sum(cast(tries & counts, as_dtype("int32")), axis=0), as_dtype(dtype))


def generalized_normal(key: Any, p: Any, shape: Any = (), dtype: Any = "float32") -> Tensor:
    """Numbers with density proportional to exp(-|x|^p)."""
    first, second = split(key)
    size = gamma(first, 1 / p, shape_of(shape), dtype) ** (1 / p)
    return size * rademacher(second, shape_of(shape), dtype)


def ball(key: Any, d: int, p: Any = 2, shape: Any = (), dtype: Any = "float32") -> Tensor:
    """Points uniform in the ball of d axes, of the p-norm."""
    first, second = split(key)
    x = generalized_normal(first, p, (*shape_of(shape), d), dtype)
    e = exponential(second, shape_of(shape), dtype)
    length = (g.sum(g.abs(x) ** p, axis=-1) + e) ** (1 / p)
    return x / g.expand_dims(length, axis=-1)


def multivariate_normal(
    key: Any,
    mean: Any,
    cov: Any,
    shape: Any = None,
    dtype: Any = "float32",
    method: str = "cholesky",
) -> Tensor:
    """Normal vectors with a mean and covariances."""
    mean, cov = as_value(mean), as_value(cov)
    lead = g.broadcast_shapes(mean.shape[:-1], cov.shape[:-2]) if shape is None else tuple(shape)
    z = normal(key, (*lead, mean.shape[-1]), dtype)
    return mean + (g.cholesky(cov) @ g.expand_dims(z, axis=-1))[..., 0]


def orthogonal(
    key: Any, n: int, shape: Any = (), dtype: Any = "float32", m: int | None = None
) -> Tensor:
    """Orthogonal matrices, uniform."""
    q, r = g.qr(normal(key, (*shape_of(shape), n, n if m is None else m), dtype))
    return q * g.expand_dims(g.sign(g.diagonal(r, 0, r.ndim - 2, r.ndim - 1)), axis=-2)
