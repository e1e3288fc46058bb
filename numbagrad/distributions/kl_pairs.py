"""The Kullback and Leibler divergences of pairs of distributions.

Those of one family stand first. ``KL(p || q)`` is minus the entropy of p, minus the mean of log q
over p; what that mean needs of p (``_mean_log``, ``_mean_exp`` ...) is in small tables, from which
the pairs of two families follow. Where p has values that q has not, it is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..kernels import machine
from ..ops.activation import softplus
from ..ops.comparison import eq
from ..ops.elementwise import abs, erf, exp, expm1, log, log1p, square, where
from ..ops.gamma import digamma, lgamma
from ..ops.lapack_solve import solve_triangular
from ..ops.reduce import sum
from ..tensor import Tensor
from .categorical import ByClass, Categorical, OneHotCategorical
from .continuous_bernoulli import ContinuousBernoulli
from .distribution import Distribution, broadcast_all, infinite_like
from .exponential_family import ExponentialFamily, bregman
from .gamma import Beta, Dirichlet, Gamma, log_beta
from .hazard import Exponential, Pareto
from .kl import kl_divergence, register_kl, unknown
from .location_scale import EULER, Cauchy, Gumbel, HalfCauchy, HalfNormal, Laplace, Normal
from .low_rank import LowRankMultivariateNormal
from .multivariate_normal import MultivariateNormal
from .probability import Bernoulli, Binomial, ByProbability, Geometric, Poisson
from .uniform import Uniform
from .wishart import Wishart

__all__ = ["kl_divergence", "register_kl"]


# -- of one family ---------------------------------------------------------------------------------


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = p.scale / q.scale
    return 0.5 * (square(ratio) + square((p.loc - q.loc) / q.scale) - 1) - log(ratio)


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    ratio = p.scale / q.scale
    return 0.5 * (square(ratio) - 1) - log(ratio)


@register_kl(MultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _multivariate_normal(p: Any, q: Any) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError(
            "KL-divergence between two Multivariate Normals with different event shapes cannot be "
            f"computed: {p.event_shape} and {q.event_shape}."
        )
    spread = solve_triangular(q.scale_tril, p.scale_tril, upper=False)
    apart = solve_triangular(q.scale_tril, (q.loc - p.loc).unsqueeze(-1), upper=False)
    distance = sum(square(spread), (-2, -1)) + sum(square(apart), (-2, -1))
    return q._half_log_det() - p._half_log_det() + 0.5 * (distance - p.event_shape[0])


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    return log(q.scale / p.scale) + _mean_distance[Laplace](p, q.loc) / q.scale - 1


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    # Chyzak, Nielsen, "A closed-form formula for the KL divergence between Cauchy distributions",
    # 2019.
    return log(square(p.scale + q.scale) + square(p.loc - q.loc)) - log(4 * p.scale * q.scale)


@register_kl(HalfCauchy, HalfCauchy)
def _half_cauchy(p: HalfCauchy, q: HalfCauchy) -> Tensor:
    return 2 * log(p.scale + q.scale) - log(4 * p.scale * q.scale)  # both halves are the same


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    found = b * log(p.rate / q.rate) + lgamma(b) - lgamma(a)
    return found + (a - b) * digamma(a) + (q.rate - p.rate) * (a / p.rate)


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - log(ratio)


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    found = q.alpha * log(p.scale / q.scale) - log(ratio) + ratio - 1
    return where(p.scale >= q.scale, found, math.inf)


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    found = log_beta(c, d) - log_beta(a, b) + (a - c) * digamma(a) + (b - d) * digamma(b)
    return found + (c + d - a - b) * digamma(a + b)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = sum(a, -1, keepdim=True)
    found = sum(lgamma(b) - lgamma(a) + (a - b) * (digamma(a) - digamma(total)), -1)
    return found + lgamma(sum(a, -1)) - lgamma(sum(b, -1))


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    inside = (q.low <= p.low) & (p.high <= q.high)
    return where(inside, log((q.high - q.low) / (p.high - p.low)), math.inf)


def _by_class(p: ByClass, q: ByClass) -> Tensor:
    never, lacking = eq(p.probs, 0), eq(q.probs, 0)
    # Chosen before the product: of logits of -inf a later choice would leave gradients of NaN.
    gap = where(never, 0.0, p.logits) - where(never | lacking, 0.0, q.logits)
    return sum(where(lacking & ~never, math.inf, p.probs * gap), -1)


register_kl(Categorical, Categorical)(_by_class)
register_kl(OneHotCategorical, OneHotCategorical)(_by_class)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: ByProbability, q: ByProbability) -> Tensor:
    a, b = p.logits, q.logits
    found = p.probs * (a - b) + softplus(b) - softplus(a)
    never = (eq(q.probs, 0) & (p.probs > 0)) | (eq(q.probs, 1) & (p.probs < 1))
    return where(never, math.inf, found)


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    n, m = p.total_count, q.total_count
    if not machine.is_recording() and (n < m).any():
        raise NotImplementedError(
            "kl_divergence: the divergence of a binomial from one of more draws has no closed form."
        )
    return where(n > m, math.inf, n * _bernoulli(p, q))


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return _bernoulli(p, q) / p.probs


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    none = eq(p.rate, 0)
    ratio = where(none, 1.0, p.rate) / where(none, 1.0, q.rate)
    return p.rate * log(ratio) - (p.rate - q.rate)


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return q.rate - p.probs * log(q.rate) - p.entropy()


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    return _over_gumbel(p, q)


@register_kl(Wishart, Wishart)
def _wishart(p: Wishart, q: Wishart) -> Tensor:
    spread = sum(square(solve_triangular(q.scale_tril, p.scale_tril, upper=False)), (-2, -1))
    found = q._log_norm() - p._log_norm() + 0.5 * (p.df - q.df) * p._mean_log_det()
    return found + 0.5 * p.df * (spread - p.event_shape[-1])


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    if type(p) is not type(q):
        raise unknown(p, q)
    try:
        here, there = p._natural_params, q._natural_params
    except NotImplementedError:
        raise unknown(p, q) from None
    return bregman(p, there, here) - bregman(p, here, here)


# -- means over p ----------------------------------------------------------------------------------


def _mean_log_uniform(p: Uniform) -> Tensor:
    def part(x: Tensor) -> Tensor:
        return where(x > 0, x * log(where(x > 0, x, 1.0)), 0.0)

    return (part(p.high) - part(p.low)) / (p.high - p.low) - 1


_mean_log: dict[type, Callable[[Any], Tensor]] = {
    Beta: lambda p: digamma(p.concentration1) - digamma(p.concentration1 + p.concentration0),
    Exponential: lambda p: -EULER - log(p.rate),
    Gamma: lambda p: digamma(p.concentration) - log(p.rate),
    Pareto: lambda p: log(p.scale) + 1 / p.alpha,
    Uniform: _mean_log_uniform,
}
"""The mean of log x."""


def _mean_exp_uniform(p: Uniform, t: Tensor) -> Tensor:
    return exp(p.low * t) * expm1((p.high - p.low) * t) / ((p.high - p.low) * t)


_mean_exp: dict[type, Callable[[Any, Tensor], Tensor]] = {
    Exponential: lambda p, t: p.rate / (p.rate - t),
    Gamma: lambda p, t: exp(-p.concentration * log1p(-t / p.rate)),
    Gumbel: lambda p, t: exp(p.loc * t + lgamma(1 - p.scale * t)),
    Normal: lambda p, t: exp(p.loc * t + 0.5 * square(p.scale * t)),
    Uniform: _mean_exp_uniform,
}
"""The mean of exp(t x), for t < 0."""


def _mean_distance_laplace(p: Laplace, x: Tensor) -> Tensor:
    gap = abs(p.loc - x)
    return gap + p.scale * exp(-gap / p.scale)


def _mean_distance_normal(p: Normal, x: Tensor) -> Tensor:
    z = (p.loc - x) / p.scale
    near = math.sqrt(2 / math.pi) * exp(-0.5 * square(z))
    return p.scale * (near + z * erf(z * math.sqrt(0.5)))


_mean_distance: dict[type, Callable[[Any, Tensor], Tensor]] = {
    Laplace: _mean_distance_laplace,
    Normal: _mean_distance_normal,
}
"""The mean of abs(x - y)."""


# -- of two families -------------------------------------------------------------------------------

_positive = (Beta, Exponential, Gamma, Pareto)
"""Families whose values are never negative; of a ``Uniform`` it depends."""


def _of(table: dict[type, Callable], p: Distribution) -> Callable:
    return next(table[kind] for kind in type(p).__mro__ if kind in table)


def _where_positive(p: Any, found: Tensor) -> Tensor:
    """Infinity where a uniform p has negative values."""
    return where(p.low >= 0, found, math.inf) if isinstance(p, Uniform) else found


def _over_normal(p: Any, q: Normal) -> Tensor:
    distance = (p.variance + square(p.mean - q.loc)) / square(q.scale)
    return 0.5 * (distance + math.log(2 * math.pi)) + log(q.scale) - p.entropy()


def _over_exponential(p: Any, q: Exponential) -> Tensor:
    return _where_positive(p, q.rate * p.mean - log(q.rate) - p.entropy())


def _over_gamma(p: Any, q: Gamma) -> Tensor:
    a, rate = q.concentration, q.rate
    found = lgamma(a) - a * log(rate) - (a - 1) * _of(_mean_log, p)(p) + rate * p.mean
    return _where_positive(p, found - p.entropy())


def _over_gumbel(p: Any, q: Gumbel) -> Tensor:
    tail = exp(q.loc / q.scale) * _of(_mean_exp, p)(p, -1 / q.scale)
    return log(q.scale) + (p.mean - q.loc) / q.scale + tail - p.entropy()


def _over_laplace(p: Any, q: Laplace) -> Tensor:
    found = log(2 * q.scale) + _of(_mean_distance, p)(p, q.loc) / q.scale
    return found - p.entropy()


def _uniform_over_beta(p: Uniform, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    rest = Uniform(1 - p.high, 1 - p.low, validate_args=False)
    found = log_beta(a, b) - (a - 1) * _mean_log_uniform(p) - (b - 1) * _mean_log_uniform(rest)
    return where((p.low >= 0) & (p.high <= 1), found - p.entropy(), math.inf)


def _uniform_over_pareto(p: Uniform, q: Pareto) -> Tensor:
    found = (q.alpha + 1) * _mean_log_uniform(p) - log(q.alpha) - q.alpha * log(q.scale)
    return where(p.low >= q.scale, found - p.entropy(), math.inf)


def _beta_over_uniform(p: Any, q: Uniform) -> Tensor:
    return where((q.low <= 0) & (q.high >= 1), log(q.high - q.low) - p.entropy(), math.inf)


def _over_continuous_bernoulli(p: Any, q: ContinuousBernoulli) -> Tensor:
    found = q.cross_entropy(p.mean) - p.entropy()
    if isinstance(p, Uniform):
        return where((p.low >= 0) & (p.high <= 1), found, math.inf)
    return found


def _infinite(p: Any, q: Any) -> Tensor:
    return infinite_like(broadcast_all(p.mean, q.mean)[0])


def _register(families: tuple[type, ...], type_q: type, function: Callable) -> None:
    for type_p in families:
        register_kl(type_p, type_q)(function)


_register((Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel), Normal, _over_normal)
_register((Laplace, Pareto, Uniform), Normal, _over_normal)
_register((Beta, ContinuousBernoulli, Gamma, Pareto, Uniform), Exponential, _over_exponential)
_register((Beta, Exponential, Pareto, Uniform), Gamma, _over_gamma)
_register((Exponential, Gamma, Normal, Uniform), Gumbel, _over_gumbel)
_register((Normal,), Laplace, _over_laplace)
_register((Uniform,), Beta, _uniform_over_beta)
_register((Uniform,), Pareto, _uniform_over_pareto)
_register((Beta, ContinuousBernoulli), Uniform, _beta_over_uniform)
_register((Beta, ContinuousBernoulli, Uniform), ContinuousBernoulli, _over_continuous_bernoulli)
_register((Exponential, Gamma, Gumbel, Laplace, Normal, Pareto), ContinuousBernoulli, _infinite)
_register((Exponential, Gamma, Gumbel, Laplace, Normal, Pareto), Beta, _infinite)
_register((Exponential, Gamma, Gumbel, Laplace, Normal, Pareto), Uniform, _infinite)
_register((Beta, Exponential, Gamma, Gumbel, Laplace, Normal), Pareto, _infinite)
_register((ContinuousBernoulli,), Pareto, _infinite)
_register((Gumbel, Laplace, Normal), Exponential, _infinite)
_register((Gumbel, Laplace, Normal), Gamma, _infinite)
_register((Poisson,), Bernoulli, _infinite)
_register((Poisson,), Binomial, _infinite)
