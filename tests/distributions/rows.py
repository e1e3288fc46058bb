"""One row per distribution: parameters, values, SciPy's distribution of the same name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

import numbagrad as ng
from numbagrad import distributions as D


@dataclass(frozen=True)
class Row:
    """A distribution, which ``build`` makes of either library.

    parameters: batches of two. values: the batch along the last dimension, that of events after
    it. scipy: of the parameters, a frozen distribution. wrong: a value out of the support.
    """

    name: str
    parameters: dict[str, Any]
    values: Any
    scipy: Callable[..., Any] | None = None
    bad: dict[str, Any] = field(default_factory=dict)
    wrong: Any = None
    discrete: bool = False
    lacks: str = ""
    make: Callable[..., Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return "-".join([self.name, *[k for k in self.parameters if k in ("logits", "probs")]])

    def build(self, module: Any = D, tensor: Any = ng.tensor, dtype: Any = ng.float64) -> Any:
        """The distribution with constant parameters, its last argument validating."""
        return self.of(self.tensors(tensor, dtype), module)

    def tensors(self, tensor: Any = ng.tensor, dtype: Any = ng.float64) -> dict[str, Any]:
        return {k: tensor(v, dtype=dtype) for k, v in self.parameters.items()}

    def of(self, parameters: dict[str, Any], module: Any = D) -> Any:
        """The distribution with these parameters."""
        if self.make is not None:
            return self.make(module, **parameters)
        return getattr(module, self.name)(**self.options, **parameters)

    def has(self, method: str) -> bool:
        return method not in self.lacks.split()

    def frozen(self) -> Any:
        assert self.scipy is not None
        return self.scipy(**{k: np.array(v) for k, v in self.parameters.items()})


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


POSITIVE = [[0.05, 0.3], [1.0, 4.0], [2.5, 0.7]]
REAL = [[-1.5, 0.0], [0.3, 2.0], [4.0, -3.0]]
TWO = {"loc": [0.5, -1.0], "scale": [0.7, 2.0]}
BAD_SCALE = {"scale": [1.0, -1.0]}
UNIT = [[0.05, 0.3], [0.5, 0.99]]
CLASSES = [[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]]
LOGITS = [[0.2, -0.5, 1.3], [0.0, 2.0, -2.0]]
TRIL = [[[1.0, 0.0], [0.5, 2.0]], [[0.7, 0.0], [-0.3, 0.4]]]
COVARIANCE = (np.array(TRIL) @ np.array(TRIL).swapaxes(-1, -2)).tolist()
PRECISION = np.linalg.inv(COVARIANCE)
PRECISION = ((PRECISION + PRECISION.swapaxes(-1, -2)) / 2).tolist()
LOC = [[0.0, 1.0], [2.0, -1.0]]
VECTORS = [[[0.3, 0.2], [2.5, -1.1]], [[-1.0, 3.0], [1.0, 0.0]]]
MATRICES = [[[[2.0, 0.3], [0.3, 1.0]], [[0.5, 0.1], [0.1, 3.0]]]]


def _gauss(loc, scale):
    return stats.norm(loc, scale)


def _mixture(module, weights, loc, scale):
    return module.MixtureSameFamily(module.Categorical(probs=weights), module.Normal(loc, scale))


def _squashed(module, loc, scale):
    affine = module.AffineTransform(0.5, -2.0)
    return module.TransformedDistribution(
        module.Normal(loc, scale), [module.TanhTransform(), affine]
    )


NO_CDF = "cdf icdf"
ROWS = [
    Row("Normal", TWO, REAL, _gauss, BAD_SCALE, float("nan")),
    Row("Laplace", TWO, REAL, lambda loc, scale: stats.laplace(loc, scale), BAD_SCALE, np.nan),
    Row("Gumbel", TWO, REAL, lambda loc, scale: stats.gumbel_r(loc, scale), BAD_SCALE, np.nan),
    Row("Cauchy", TWO, REAL, lambda loc, scale: stats.cauchy(loc, scale), BAD_SCALE, np.nan),
    Row("HalfNormal", {"scale": [0.7, 2.0]}, POSITIVE,
        lambda scale: stats.halfnorm(0, scale), BAD_SCALE, -1.0),
    Row("HalfCauchy", {"scale": [0.7, 2.0]}, POSITIVE,
        lambda scale: stats.halfcauchy(0, scale), BAD_SCALE, -1.0),
    Row("LogNormal", TWO, POSITIVE,
        lambda loc, scale: stats.lognorm(scale, scale=np.exp(loc)), BAD_SCALE, -1.0),
    Row("Uniform", {"low": [0.0, -1.0], "high": [3.0, 5.0]}, [[0.1, 0.2], [2.0, 4.9]],
        lambda low, high: stats.uniform(low, high - low), {"high": [-1.0, 5.0]}, 9.0),
    Row("Exponential", {"rate": [0.5, 3.0]}, POSITIVE,
        lambda rate: stats.expon(scale=1 / rate), {"rate": [0.0, 1.0]}, -1.0),
    Row("Weibull", {"scale": [0.5, 2.0], "concentration": [1.5, 3.0]}, POSITIVE,
        lambda scale, concentration: stats.weibull_min(concentration, scale=scale),
        BAD_SCALE, -1.0),
    Row("Pareto", {"scale": [0.5, 2.0], "alpha": [2.5, 4.0]}, [[0.7, 2.1], [3.0, 9.0]],
        lambda scale, alpha: stats.pareto(alpha, scale=scale), {"alpha": [0.0, 1.0]}, 0.1),
    Row("Gamma", {"concentration": [0.4, 3.0], "rate": [0.5, 2.0]}, POSITIVE,
        lambda concentration, rate: stats.gamma(concentration, scale=1 / rate),
        {"rate": [0.0, 1.0]}, -1.0, lacks="icdf"),
    Row("Chi2", {"df": [1.5, 6.0]}, POSITIVE, stats.chi2, {"df": [0.0, 1.0]}, -1.0, lacks="icdf"),
    Row("Beta", {"concentration1": [0.5, 3.0], "concentration0": [2.0, 1.5]}, UNIT,
        lambda concentration1, concentration0: stats.beta(concentration1, concentration0),
        {"concentration0": [0.0, 1.0]}, 1.5, lacks=NO_CDF),
    Row("StudentT", {"df": [2.5, 9.0], **TWO}, REAL, stats.t, BAD_SCALE, np.nan, lacks=NO_CDF),
    Row("GeneralizedPareto", {**TWO, "concentration": [0.2, -0.3]}, [[0.7, 2.1], [3.0, 4.0]],
        lambda loc, scale, concentration: stats.genpareto(concentration, loc, scale),
        BAD_SCALE, 9.0),
    Row("Kumaraswamy", {"concentration1": [1.5, 3.0], "concentration0": [2.0, 1.5]}, UNIT, None,
        {"concentration0": [0.0, 1.0]}, 1.5),
    Row("FisherSnedecor", {"df1": [3.5, 6.0], "df2": [9.0, 12.0]}, POSITIVE,
        lambda df1, df2: stats.f(df1, df2), {"df2": [0.0, 1.0]}, -1.0, lacks=NO_CDF + " entropy"),
    Row("InverseGamma", {"concentration": [5.5, 9.0], "rate": [0.5, 2.0]}, POSITIVE,
        lambda concentration, rate: stats.invgamma(concentration, scale=rate),
        {"rate": [0.0, 1.0]}, -1.0, lacks="icdf"),
    Row("VonMises", {"loc": [0.0, 0.0], "concentration": [0.5, 6.0]}, REAL,
        lambda loc, concentration: stats.vonmises(concentration, loc),
        {"concentration": [0.0, 1.0]}, np.nan, lacks=NO_CDF + " entropy"),
    Row("LogisticNormal", TWO, [[[0.2, 0.3, 0.5]], [[0.1, 0.8, 0.1]]], None, BAD_SCALE,
        [0.5, 0.6, 0.1], lacks=NO_CDF + " mean variance mode entropy"),
    Row("LKJCholesky", {"concentration": [0.5, 3.0]},
        [[[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.6, 0.8]], np.eye(3).tolist()], None,
        {"concentration": [0.0, 1.0]}, [[1.0, 0.0, 0.0], [0.6, 0.9, 0.0], [0.0, 0.6, 0.8]],
        lacks=NO_CDF + " mean variance mode entropy", options={"dim": 3}),
    Row("LowRankMultivariateNormal",
        {"loc": LOC, "cov_factor": [[[1.0], [0.5]], [[0.2], [-1.0]]],
         "cov_diag": [[0.5, 1.0], [2.0, 0.3]]},
        VECTORS, None, {"cov_diag": [[1.0, 0.0]]}, [np.nan, 1.0], lacks=NO_CDF),
    Row("ContinuousBernoulli", {"probs": [0.3, 0.4995]}, UNIT, None, {"probs": [0.3, 1.1]}, 1.5,
        lacks="mode"),
    Row("ContinuousBernoulli", {"logits": [-1.3, 2.5]}, UNIT, None, {"logits": [np.nan, 1.0]}, 1.5,
        lacks="mode"),
    Row("Wishart", {"df": [2.5, 6.0], "scale_tril": TRIL}, MATRICES, None, {"df": [-1.0, 3.0]},
        [[1.0, 2.0], [2.0, 1.0]], lacks=NO_CDF),
    Row("Wishart", {"df": [2.5, 6.0], "covariance_matrix": COVARIANCE}, MATRICES, None,
        {"covariance_matrix": [[[1.0, 1.0], [0.0, 1.0]]]}, [[1.0, 2.0], [2.0, 1.0]], lacks=NO_CDF),
    Row("Wishart", {"df": [2.5, 6.0], "precision_matrix": PRECISION}, MATRICES, None,
        {"precision_matrix": [[[1.0, 1.0], [0.0, 1.0]]]}, [[1.0, 2.0], [2.0, 1.0]], lacks=NO_CDF),
    Row("NegativeBinomial", {"total_count": [2.5, 6.0], "probs": [0.3, 0.6]},
        [[0.0, 5.0], [4.0, 12.0]],
        lambda total_count, probs: stats.nbinom(total_count, 1 - probs),
        {"total_count": [-1.0, 1.0]}, 0.5, True, NO_CDF + " entropy"),
    Row("NegativeBinomial", {"logits": [-0.7, 0.4]}, [[0.0, 5.0], [4.0, 12.0]],
        lambda logits: stats.nbinom(3, 1 - _sigmoid(logits)), {"logits": [np.nan, 1.0]}, -1.0, True,
        NO_CDF + " entropy", options={"total_count": 3}),
    Row("Bernoulli", {"probs": [0.3, 0.8]}, [[0.0, 1.0], [1.0, 0.0]],
        lambda probs: stats.bernoulli(probs), {"probs": [0.3, 1.1]}, 0.5, True, NO_CDF),
    Row("Bernoulli", {"logits": [-1.3, 0.8]}, [[0.0, 1.0], [1.0, 0.0]],
        lambda logits: stats.bernoulli(_sigmoid(logits)), {"logits": [np.nan, 1.0]}, 2.0, True,
        NO_CDF),
    Row("Binomial", {"probs": [0.3, 0.8]}, [[0.0, 5.0], [4.0, 2.0]],
        lambda probs: stats.binom(5, probs), {"probs": [-0.3, 0.5]}, 6.0, True, NO_CDF,
        options={"total_count": 5}),
    Row("Binomial", {"logits": [-1.3, 0.8]}, [[0.0, 5.0], [4.0, 2.0]],
        lambda logits: stats.binom(5, _sigmoid(logits)), {"logits": [np.nan, 0.5]}, 0.5, True,
        NO_CDF, options={"total_count": 5}),
    Row("Geometric", {"probs": [0.3, 0.8]}, [[0.0, 5.0], [4.0, 2.0]],
        lambda probs: stats.geom(probs, -1), {"probs": [0.0, 0.5]}, -1.0, True, NO_CDF),
    Row("Geometric", {"logits": [-1.3, 0.8]}, [[0.0, 5.0], [4.0, 2.0]],
        lambda logits: stats.geom(_sigmoid(logits), -1), {"logits": [np.nan, 0.5]}, 0.5, True,
        NO_CDF),
    Row("Poisson", {"rate": [0.3, 8.0]}, [[0.0, 5.0], [4.0, 12.0]],
        lambda rate: stats.poisson(rate), {"rate": [-0.3, 0.5]}, 0.5, True, NO_CDF + " entropy"),
    Row("Categorical", {"probs": CLASSES}, [[0, 1], [2, 2]], None,
        {"probs": [[0.5, -0.5, 1.0]]}, 3, True, NO_CDF),
    Row("Categorical", {"logits": LOGITS}, [[0, 1], [2, 2]], None,
        {"logits": [[0.5, np.nan, 1.0]]}, -1, True, NO_CDF),
    Row("OneHotCategorical", {"probs": CLASSES}, [[[1.0, 0, 0], [0, 0, 1]], [[0, 1, 0]] * 2], None,
        {"probs": [[0.5, -0.5, 1.0]]}, [1.0, 1, 0], True, NO_CDF),
    Row("OneHotCategorical", {"logits": LOGITS}, [[[1.0, 0, 0], [0, 0, 1]], [[0, 1, 0]] * 2], None,
        {"logits": [[0.5, np.nan, 1.0]]}, [0.5, 0.5, 0], True, NO_CDF),
    Row("OneHotCategoricalStraightThrough", {"logits": LOGITS}, [[[1.0, 0, 0], [0, 0, 1]]], None,
        {"logits": [[0.5, np.nan, 1.0]]}, [0.5, 0.5, 0], True, NO_CDF),
    Row("Multinomial", {"probs": CLASSES}, [[[2.0, 1, 1], [0, 0, 4]], [[1, 3, 0]] * 2], None,
        {"probs": [[0.5, -0.5, 1.0]]}, [1.0, 1, 0], True, NO_CDF + " mode",
        options={"total_count": 4}),
    Row("Multinomial", {"logits": LOGITS}, [[[2.0, 1, 1], [0, 0, 4]], [[1, 3, 0]] * 2], None,
        {"logits": [[0.5, np.nan, 1.0]]}, [1.0, 1.5, 1.5], True, NO_CDF + " mode",
        options={"total_count": 4}),
    Row("Dirichlet", {"concentration": [[0.5, 2.0, 3.0], [1.5, 1.0, 0.8]]},
        [[[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]]], None, {"concentration": [[1.0, 0.0, 1.0]]},
        [0.5, 0.6, 0.1], lacks=NO_CDF),
    Row("MultivariateNormal", {"loc": LOC, "scale_tril": TRIL}, VECTORS, None,
        {"scale_tril": [[[1.0, 1.0], [0.0, 1.0]]]}, [np.nan, 1.0], lacks=NO_CDF),
    Row("MultivariateNormal", {"loc": LOC, "covariance_matrix": COVARIANCE}, VECTORS, None,
        {"covariance_matrix": [[[1.0, 1.0], [0.0, 1.0]]]}, [np.nan, 1.0], lacks=NO_CDF),
    Row("MultivariateNormal", {"loc": LOC, "precision_matrix": PRECISION}, VECTORS, None,
        {"precision_matrix": [[[1.0, 1.0], [0.0, 1.0]]]}, [np.nan, 1.0], lacks=NO_CDF),
    Row("RelaxedBernoulli", {"temperature": 0.7, "probs": [0.3, 0.8]}, UNIT, None,
        {"probs": [0.3, 1.1]}, 1.5, lacks=NO_CDF + " mean variance mode entropy"),
    Row("RelaxedBernoulli", {"temperature": 0.7, "logits": [-1.3, 0.8]}, UNIT, None,
        {"logits": [np.nan, 1.1]}, 1.5, lacks=NO_CDF + " mean variance mode entropy"),
    Row("RelaxedOneHotCategorical", {"temperature": 0.7, "probs": CLASSES},
        [[[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]]], None, {"probs": [[0.5, -0.5, 1.0]]},
        [0.5, 0.6, 0.1], lacks=NO_CDF + " mean variance mode entropy"),
    Row("Independent", TWO, REAL, None, BAD_SCALE, lacks=NO_CDF,
        make=lambda module, **p: module.Independent(module.Normal(**p), 1)),
    Row("MixtureSameFamily",
        {"weights": [[0.3, 0.7], [0.5, 0.5]], "loc": LOC, "scale": [[1.0, 0.5], [2.0, 0.3]]},
        REAL, None, {"weights": [[0.5, -0.5]]}, lacks="icdf mode entropy", make=_mixture),
    Row("TransformedDistribution", TWO, [[-1.0, 0.4], [2.3, 1.1]], None, BAD_SCALE,
        lacks="mean variance mode entropy", make=_squashed),
]  # fmt: skip
