"""Kullback-Leibler divergences, a formula for each pair of classes."""

from collections.abc import Callable
from typing import Any

from glasshouse.base import ShapeError
from glasshouse.distributions import continuous, discrete
from glasshouse.distributions.distribution import Distribution, Independent, summed
from glasshouse.distributions.multivariate import MultivariateNormal
from glasshouse.tensor import abs as abs_
from glasshouse.tensor import exp, inf, linalg, log, logical_and, square, where
from glasshouse.tensor import sum as sum_
from glasshouse.tensor.special import xlogy

__all__ = ["kl_divergence", "register_kl"]

FORMULAS: dict[tuple[type[Any], type[Any]], Callable[[Any, Any], Any]] = {}
digamma: Any = continuous.digamma
lgamma: Any = continuous.lgamma


def register_kl(p: type[Any], q: type[Any]) -> Callable[[Any], Any]:
    """Decorate a function `(p, q) -> divergence` of distributions of these classes.

    Example:
        >>> class Own(gh.distributions.Normal): ...
        >>> register_kl(Own, Own)(lambda p, q: gh.abs(p.loc - q.loc))(Own(0, 1), Own(3, 1)).item()
        3.0
    """

    def register(formula: Any) -> Any:
        FORMULAS[p, q] = formula
        return formula

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Any:
    """The expectation under p of log p - log q.

    Shapes: -> the batches of p and q, broadcast.
    Raises: NotImplementedError for a pair of classes without a formula.
    Source: standard.
    Example:
        >>> from glasshouse.distributions import Normal
        >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0)).item()
        0.5
    """
    for kind in type(p).__mro__:
        for other in type(q).__mro__:
            if (kind, other) in FORMULAS:
                return FORMULAS[kind, other](p, q)
    names = f"{type(p).__name__} and {type(q).__name__}"
    classes = ", ".join(sorted({kind.__name__ for kind, _ in FORMULAS}))
    raise NotImplementedError(
        f"kl_divergence: expected a pair of one of {classes}; got {names}. "
        f"Register the formula with register_kl."
    )


@register_kl(continuous.Normal, continuous.Normal)
def of_normals(p: Any, q: Any) -> Any:
    ratio = square(p.scale / q.scale)
    return 0.5 * (ratio + square((p.loc - q.loc) / q.scale) - 1 - log(ratio))


@register_kl(continuous.Uniform, continuous.Uniform)
def of_uniforms(p: Any, q: Any) -> Any:
    within = logical_and(q.low <= p.low, p.high <= q.high)
    return where(within, log((q.high - q.low) / (p.high - p.low)), inf)


@register_kl(continuous.Laplace, continuous.Laplace)
def of_laplaces(p: Any, q: Any) -> Any:
    ratio, distance = p.scale / q.scale, abs_(p.loc - q.loc)
    return -log(ratio) + distance / q.scale + ratio * exp(-distance / p.scale) - 1


@register_kl(continuous.Exponential, continuous.Exponential)
def of_exponentials(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return ratio - 1 - log(ratio)


@register_kl(continuous.Gamma, continuous.Gamma)
def of_gammas(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    terms = b * log(p.rate / q.rate) + lgamma(b) - lgamma(a)
    return terms + (a - b) * digamma(a) + (q.rate - p.rate) * (a / p.rate)


@register_kl(continuous.Beta, continuous.Beta)
def of_betas(p: Any, q: Any) -> Any:
    pairs = (p.concentration1, q.concentration1), (p.concentration0, q.concentration0)
    terms = sum((a - b) * digamma(a) for a, b in pairs)
    normalizers = q.log_normalizer() - p.log_normalizer()
    return normalizers + terms + (q.total - p.total) * digamma(p.total)


@register_kl(continuous.Dirichlet, continuous.Dirichlet)
def of_dirichlets(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    terms = sum_((a - b) * (digamma(a) - digamma(p.total)[..., None]), axis=-1)
    return q.log_normalizer() - p.log_normalizer() + terms


@register_kl(discrete.Bernoulli, discrete.Bernoulli)
def of_bernoullis(p: Any, q: Any) -> Any:
    ones = xlogy(p.probs, p.probs) - xlogy(p.probs, q.probs)
    rest = 1 - p.probs
    return ones + xlogy(rest, rest) - xlogy(rest, 1 - q.probs)


@register_kl(discrete.Geometric, discrete.Geometric)
def of_geometrics(p: Any, q: Any) -> Any:
    return -p.entropy() - q.log_prob(p.mean)


@register_kl(discrete.Categorical, discrete.Categorical)
def of_categoricals(p: Any, q: Any) -> Any:
    terms = p.probs * (p.logits - q.logits)
    terms = where(q.probs == 0, inf, terms)
    return sum_(where(p.probs == 0, 0.0, terms), axis=-1)


@register_kl(discrete.Poisson, discrete.Poisson)
def of_poissons(p: Any, q: Any) -> Any:
    return p.rate * (log(p.rate) - log(q.rate)) - p.rate + q.rate


@register_kl(MultivariateNormal, MultivariateNormal)
def of_vectors(p: Any, q: Any) -> Any:
    inner = linalg.solve_triangular(q.scale_tril, p.scale_tril, upper=False)
    trace = sum_(square(inner), axis=(-2, -1))
    distance = sum_(square(q.whitened(q.loc - p.loc, q.scale_tril)), axis=-1)
    determinants = q.half_log_det() - p.half_log_det()
    return determinants + 0.5 * (trace + distance - p.event_shape[0])


@register_kl(Independent, Independent)
def of_independents(p: Any, q: Any) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        got = f"{p.reinterpreted_batch_ndims} and {q.reinterpreted_batch_ndims}"
        raise ShapeError("kl_divergence", "as many axes of both events", got, "Make them equal.")
    return summed(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
