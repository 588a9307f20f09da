"""Distributions on random parameters, compared with torch.distributions and scipy."""

import numpy as np
import pytest

import glasshouse as gh

torch = pytest.importorskip("torch")
stats = pytest.importorskip("scipy.stats")
ours, theirs = gh.distributions, torch.distributions
DRAWS = np.random.default_rng(0)


def real(*shape):
    return DRAWS.standard_normal(shape)


def positive(*shape):
    return DRAWS.uniform(0.3, 3.0, shape)


def share(*shape):
    return DRAWS.uniform(0.1, 0.9, shape)


def covariance(n):
    half = DRAWS.standard_normal((2, n, n))
    return half @ half.transpose(0, 2, 1) + n * np.eye(n)


def count(*shape):
    return DRAWS.integers(0, 4, shape).astype(float)


def simplex(*shape):
    samples = DRAWS.uniform(0.2, 1.0, shape)
    return samples / samples.sum(-1, keepdims=True)


LOW = real(3)
# name: (class, its arguments twice, a value)
CASES = {
    "normal": ("Normal", lambda: (real(2, 3), positive(3)), real(2, 3)),
    "log normal": ("LogNormal", lambda: (real(2, 3), share(3)), positive(2, 3)),
    "uniform": ("Uniform", lambda: (LOW - share(3), LOW + positive(3)), LOW + 0.1),
    "Laplace": ("Laplace", lambda: (real(2, 3), positive(3)), real(4, 2, 3)),
    "exponential": ("Exponential", lambda: (positive(3),), positive(3)),
    "gamma": ("Gamma", lambda: (positive(2, 1), positive(3)), positive(2, 3)),
    "beta": ("Beta", lambda: (positive(2, 1), positive(3)), share(2, 3)),
    "Dirichlet": ("Dirichlet", lambda: (positive(2, 4),), simplex(2, 4)),
    "Bernoulli": ("Bernoulli", lambda: (share(2, 3),), DRAWS.integers(0, 2, (2, 3)).astype(float)),
    "Bernoulli by logits": ("Bernoulli", lambda: {"logits": real(3)}, np.asarray([0.0, 1.0, 1.0])),
    "geometric": ("Geometric", lambda: (share(3),), count(3)),
    "categorical": ("Categorical", lambda: (positive(2, 4),), DRAWS.integers(0, 4, (3, 2))),
    "categorical by logits": ("Categorical", lambda: {"logits": real(2, 4)}, np.asarray([3, 0])),
    "one hot": ("OneHotCategorical", lambda: (positive(2, 4),), np.eye(4)[[2, 3]]),
    "Poisson": ("Poisson", lambda: (positive(3),), count(3)),
    "vector by covariance": (
        "MultivariateNormal",
        lambda: {"loc": real(3), "covariance_matrix": covariance(3)},
        real(5, 2, 3),
    ),
    "vector by precision": (
        "MultivariateNormal",
        lambda: {"loc": real(2, 3), "precision_matrix": covariance(3)},
        real(2, 3),
    ),
    "vector by its factor": (
        "MultivariateNormal",
        lambda: {"loc": real(3), "scale_tril": np.linalg.cholesky(covariance(3))},
        real(2, 3),
    ),
}
MOMENTS = "mean mode variance stddev batch_shape event_shape".split()


def pair(name, again=0):
    """The distribution of a case, here and there, and a value."""
    kind, arguments, value = CASES[name]
    for _ in range(again + 1):
        args = arguments()
    args, kwargs = ((), args) if isinstance(args, dict) else (args, {})
    here = getattr(ours, kind)(
        *map(gh.asarray, args), **{k: gh.asarray(v) for k, v in kwargs.items()}
    )
    there = getattr(theirs, kind)(
        *map(torch.tensor, args), **{k: torch.tensor(v) for k, v in kwargs.items()}
    )
    return here, there, value


def same(here, there):
    np.testing.assert_allclose(np.asarray(here), np.asarray(there), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_densities_are_those_of_torch(name):
    here, there, value = pair(name)
    same(here.log_prob(gh.asarray(value)), there.log_prob(torch.tensor(value)))


@pytest.mark.parametrize("name", CASES)
def test_moments_and_entropy_are_those_of_torch(name):
    here, there, _ = pair(name)
    for moment in (*MOMENTS, "entropy"):
        try:
            expected = getattr(there, moment)
            expected = expected() if callable(expected) else expected
        except (NotImplementedError, AttributeError):
            continue
        if moment in ("mean", "variance", "stddev") and bool(torch.isnan(expected).all()):
            continue  # a class has no mean
        if moment == "mode" and CASES[name][0] in ("Beta", "Dirichlet", "Uniform", "Geometric"):
            continue
        result = getattr(here, moment)
        result = result() if callable(result) else result
        same(result, expected)


@pytest.mark.parametrize("name", CASES)
def test_divergences_are_those_of_torch(name):
    (p, p_there, _), (q, q_there, _) = pair(name), pair(name, again=1)
    if CASES[name][0] == "Uniform":
        q, q_there = ours.Uniform(p.low - 1, p.high + 1), None
        expected = np.log((np.asarray(p.high - p.low) + 2) / np.asarray(p.high - p.low))
    else:
        expected = theirs.kl_divergence(p_there, q_there)
    same(ours.kl_divergence(p, q), expected)


@pytest.mark.parametrize("name", ["normal", "log normal", "uniform", "Laplace", "exponential"])
def test_cumulative_probabilities_are_those_of_torch(name):
    here, there, value = pair(name)
    same(here.cdf(gh.asarray(value)), there.cdf(torch.tensor(value)))
    same(
        here.icdf(gh.asarray(0.3, dtype=gh.float64)),
        there.icdf(torch.tensor(0.3, dtype=torch.float64)),
    )


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_densities_are_those_of_torch(name):
    kind, arguments, value = CASES[name]
    args = arguments()
    named = (
        args
        if isinstance(args, dict)
        else dict(zip(getattr(ours, kind).PARAMETERS or ("probs",), args, strict=True))
    )
    inputs = {k: gh.asarray(v).requires_grad_() for k, v in named.items()}
    there = {k: torch.tensor(v, requires_grad=True) for k, v in named.items()}
    getattr(ours, kind)(**inputs).log_prob(gh.asarray(value)).sum().backward()
    getattr(theirs, kind)(**there).log_prob(torch.tensor(value)).sum().backward()
    for key, x in inputs.items():
        same(x.grad, there[key].grad)


# -- draws -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_draws_have_the_mean_and_variance_of_the_distribution(name):
    gh.random.seed(0)
    here, _, _ = pair(name)
    samples = np.asarray(here.sample((20000,)))
    assert samples.shape == (20000, *here.batch_shape, *here.event_shape)
    if CASES[name][0] == "Categorical":
        share = np.stack([(samples == i).mean(0) for i in range(4)], -1)
        np.testing.assert_allclose(share, np.asarray(here.probs), atol=0.02)
        return
    spread = np.sqrt(np.asarray(here.variance))
    np.testing.assert_allclose(samples.mean(0), np.asarray(here.mean), atol=0.06 * spread.max())
    np.testing.assert_allclose(samples.std(0), spread, rtol=0.12)


@pytest.mark.parametrize(
    "kind, args, law",
    [
        ("Normal", (0.5, 2.0), stats.norm(0.5, 2.0)),
        ("Laplace", (0.5, 2.0), stats.laplace(0.5, 2.0)),
        ("Exponential", (2.0,), stats.expon(scale=0.5)),
        ("Uniform", (-1.0, 3.0), stats.uniform(-1.0, 4.0)),
        ("LogNormal", (0.1, 0.5), stats.lognorm(0.5, scale=np.exp(0.1))),
        ("Gamma", (2.0, 3.0), stats.gamma(2.0, scale=1 / 3)),
        ("Beta", (2.0, 3.0), stats.beta(2.0, 3.0)),
    ],
)
def test_draws_follow_the_law_of_scipy(kind, args, law):
    gh.random.seed(1)
    samples = np.asarray(getattr(ours, kind)(*args).sample((2000,)))
    assert stats.kstest(samples, law.cdf).pvalue > 1e-3


def test_draws_with_a_gradient_pass_it_to_the_parameters():
    loc, scale = gh.zeros(3).requires_grad_(), gh.ones(3).requires_grad_()
    samples = ours.Normal(loc, scale).rsample((5,))
    samples.sum().backward()
    assert loc.grad.tolist() == [5.0, 5.0, 5.0]
    np.testing.assert_allclose(
        np.asarray(scale.grad), np.asarray(samples.detach()).sum(0), rtol=1e-5
    )
    assert not ours.Normal(loc, scale).sample().requires_grad


def test_draws_without_a_gradient_say_so():
    with pytest.raises(NotImplementedError, match=r"Bernoulli.rsample: .* Use sample\(\)"):
        ours.Bernoulli(0.5).rsample()


# -- batches and events ------------------------------------------------------------------------


def test_independent_axes_are_those_of_one_event():
    loc, value = real(2, 3), real(4, 2, 3)
    here = ours.Independent(ours.Normal(gh.asarray(loc), 1.0), 1)
    there = theirs.Independent(theirs.Normal(torch.tensor(loc), 1.0), 1)
    same(here.log_prob(gh.asarray(value)), there.log_prob(torch.tensor(value)))
    same(here.entropy(), there.entropy())
    assert (here.batch_shape, here.event_shape) == ((2,), (3,))
    other = ours.Independent(ours.Normal(gh.asarray(loc) + 1, 1.0), 1)
    same(ours.kl_divergence(here, other), [1.5, 1.5])
    assert here.expand((4, 2)).sample((5,)).shape == (5, 4, 2, 3)


@pytest.mark.parametrize("name", CASES)
def test_a_distribution_expands_to_a_larger_batch(name):
    here, _, _ = pair(name)
    large = here.expand((5, *here.batch_shape))
    assert large.batch_shape == (5, *here.batch_shape)
    assert large.sample().shape == (5, *here.batch_shape, *here.event_shape)


def test_pairs_without_a_formula_are_refused_and_can_be_registered():
    with pytest.raises(NotImplementedError, match="got Normal and Uniform"):
        ours.kl_divergence(ours.Normal(0.0, 1.0), ours.Uniform(0.0, 1.0))


@pytest.mark.parametrize("arguments", [{}, {"probs": [0.5], "logits": [0.0]}])
def test_one_of_probabilities_and_logits_is_needed(arguments):
    with pytest.raises(gh.OptionError, match="expected probs or logits"):
        ours.Categorical(**arguments)


def test_numbers_take_the_dtype_of_tensors():
    assert ours.Normal(gh.zeros(2, dtype=gh.float64), 1).scale.dtype == gh.float64
    assert ours.Normal(0, 1).loc.dtype == gh.float32


@pytest.mark.quick("distributions")
def test_a_captured_step_with_a_distribution_is_one_program():
    def loss(logits, actions):
        policy = ours.Categorical(logits=logits)
        return -policy.log_prob(actions).mean() - 0.01 * policy.entropy().mean()

    step = gh.optimize(loss, nopython=True)
    logits, actions = gh.random.normal((8, 4)), gh.asarray([0, 1, 2, 3] * 2)
    values = [step(logits, actions).item() for _ in range(3)]
    assert step.hits == 2
    np.testing.assert_allclose(values, loss(logits, actions).item(), rtol=1e-6)
