"""Probability distributions with PyTorch's names: draws, log-probabilities, divergences.

``Distribution`` is the base of all; start reading there, then at ``location_scale.py``.
"""

from . import constraints, transforms
from .categorical import Categorical, Multinomial, OneHotCategorical
from .distribution import Distribution
from .gamma import Beta, Chi2, Dirichlet, Gamma, StudentT
from .hazard import Exponential, Pareto, Weibull
from .independent import Independent
from .kl_pairs import kl_divergence, register_kl
from .location_scale import Cauchy, Gumbel, HalfCauchy, HalfNormal, Laplace, Normal
from .mixture import MixtureSameFamily
from .multivariate_normal import MultivariateNormal
from .probability import Bernoulli, Binomial, Geometric, Poisson
from .relaxed import (
    OneHotCategoricalStraightThrough,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
)
from .transformed import LogNormal, TransformedDistribution
from .transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    SigmoidTransform,
    TanhTransform,
    Transform,
    identity_transform,
)
from .uniform import Uniform

__all__ = [
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "Gamma",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "Laplace",
    "LogNormal",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "SigmoidTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "Weibull",
    "constraints",
    "identity_transform",
    "kl_divergence",
    "register_kl",
    "transforms",
]
