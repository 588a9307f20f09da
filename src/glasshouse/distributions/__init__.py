"""Probability distributions under PyTorch's names: draws, densities, entropies, divergences."""

from glasshouse.distributions.continuous import *
from glasshouse.distributions.discrete import *
from glasshouse.distributions.distribution import Distribution, Independent
from glasshouse.distributions.divergence import kl_divergence, register_kl
from glasshouse.distributions.multivariate import MultivariateNormal
