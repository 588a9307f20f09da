"""Distributions in captured steps: part of the graph, with checks of the values or without."""

import pytest

torch = pytest.importorskip("torch")

import torch.distributions as D  # noqa: E402
from same_outcome import same_story  # noqa: E402
from torch import nn  # noqa: E402

WIDE = 6


@pytest.fixture
def unvalidated(monkeypatch):
    monkeypatch.setattr(D.Distribution, "_validate_args", False)


@pytest.fixture
def validated(monkeypatch):
    monkeypatch.setattr(D.Distribution, "_validate_args", True)  # torch.compile has set it


def triangle(x):
    return torch.tril(x.unsqueeze(-1) * x.unsqueeze(-2)) + 3 * torch.eye(x.shape[-1])


MAKERS = {  # of what a network gives
    "normal": lambda x: D.Normal(x[:, :2], x[:, 2:4].exp()),
    "independent": lambda x: D.Independent(D.Normal(x[:, :2], x[:, 2:4].exp()), 1),
    "categorical": lambda x: D.Categorical(logits=x),
    "probabilities": lambda x: D.Categorical(probs=x.softmax(-1)),
    "bernoulli": lambda x: D.Bernoulli(logits=x),
    "one hot": lambda x: D.OneHotCategorical(logits=x),
    "beta": lambda x: D.Beta(x[:, :2].exp() + 1, x[:, 2:4].exp() + 1),
    "gamma": lambda x: D.Gamma(x[:, :2].exp() + 1, x[:, 2:4].exp()),
    "laplace": lambda x: D.Laplace(x[:, :2], x[:, 2:4].exp()),
    "poisson": lambda x: D.Poisson(x.exp()),
    "several normals": lambda x: D.MultivariateNormal(x[:, :2], scale_tril=triangle(x[:, 2:4])),
    "mixture": lambda x: D.MixtureSameFamily(
        D.Categorical(logits=x[:, :3]), D.Normal(x[:, 3:], torch.ones(3))
    ),
    "transformed": lambda x: D.TransformedDistribution(
        D.Normal(x[:, :2], x[:, 2:4].exp()), [D.SigmoidTransform(), D.AffineTransform(1.0, 2.0)]
    ),
}


def likelihood(make):
    """A step that makes a network's distribution more likely to give some numbers."""

    def story():
        torch.manual_seed(0)
        net = nn.Linear(3, WIDE)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)

        def step(x):
            result = make(net(x))
            with torch.no_grad():
                sample = result.sample()
            loss = -result.log_prob(sample).mean()
            if result.has_rsample:
                loss = loss + 0.1 * result.rsample().square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss, sample

        def arguments(number):
            torch.manual_seed(number)
            return (torch.randn(5, 3),)

        return step, arguments, lambda: (net, optimizer)

    return story


@pytest.mark.parametrize("name", MAKERS)
def test_distributions_are_part_of_the_graph(name, unvalidated):
    assert not same_story(likelihood(MAKERS[name]), compiler="eager").capture.breaks


@pytest.mark.parametrize("name", MAKERS)
def test_distributions_that_look_at_values_are_part_of_the_graph(name, validated):
    assert not same_story(likelihood(MAKERS[name]), compiler="eager").capture.breaks


def test_one_distribution_that_does_not_look_at_values(validated):
    def make(x):
        return D.Normal(x[:, :2], x[:, 2:4].exp(), validate_args=False)

    assert not same_story(likelihood(make), compiler="eager").capture.breaks


def behind_writing(**options):
    """A step that makes a distribution after a write to a view, which is not put back."""

    def make():
        total = torch.zeros(4)

        def step(x):
            total[1:].add_(x.sum())
            return D.Normal(x, total.exp(), **options).log_prob(x)

        return step, lambda i: (torch.ones(2, 4) * i,), lambda: total

    return make


def test_behind_what_is_written_to_they_are_left_to_python(validated):
    same_story(behind_writing(), reason="making a Normal")


def test_behind_what_is_written_to_one_that_does_not_look_at_values(validated):
    assert not same_story(behind_writing(validate_args=False)).capture.breaks


def test_divergences(unvalidated):
    def make():
        torch.manual_seed(0)
        net = nn.Linear(3, 4)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)

        def step(x):
            mean, scale = net(x).chunk(2, 1)
            ours, normal = D.Normal(mean, scale.exp()), D.Normal(torch.zeros(2), torch.ones(2))
            loss = D.kl_divergence(ours, normal).mean() - 0.1 * ours.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        return step, lambda number: (torch.randn(5, 3),), lambda: (net, optimizer)

    assert not same_story(make, compiler="eager").capture.breaks


def test_values_outside_of_the_support_raise_as_in_eager(validated):
    def make():
        def step(x, values):
            return D.Categorical(logits=x).log_prob(values).sum()

        values = [[0, 1], [2, 0], [1, 7], [0, 0]]
        return step, lambda i: (torch.ones(2, 3), torch.tensor(values[i])), lambda: ()

    assert not same_story(make, calls=4).capture.breaks
