"""Wrong parameters and values raise, and say what came; validation can be turned off."""

from __future__ import annotations

import re

import pytest

import numbagrad as ng
from numbagrad import distributions as D
from numbagrad.distributions import constraints
from numbagrad.errors import ShapeError

from .rows import ROWS, Row

rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)


@rows
def test_bad_parameters(row: Row) -> None:
    (name, bad) = next(iter(row.bad.items()))
    parameters = {**row.tensors(), name: ng.tensor(bad, dtype=ng.float64)}
    kind = {"weights": "probs", "high": "low"}.get(name, name)
    with pytest.raises(ValueError, match=f"Expected parameter {kind} .*satisfy|to be positive"):
        row.of(parameters)


@rows
def test_values_out_of_the_support(row: Row) -> None:
    if row.wrong is None:
        return
    dtype = ng.int64 if row.name == "Categorical" else ng.float64
    with pytest.raises(ValueError, match="to be within the support"):
        row.build().log_prob(ng.tensor(row.wrong, dtype=dtype))


@rows
def test_values_that_are_no_events(row: Row) -> None:
    ours = row.build()
    with pytest.raises(ValueError, match="must be a Tensor, got float"):
        ours.log_prob(0.5)
    with pytest.raises(ValueError, match=r"must match|event_shape"):
        ours.log_prob(ng.zeros(*ours.sample((3,)).shape[:-1], 7))


def test_the_message_names_all() -> None:
    with pytest.raises(ValueError) as caught:
        D.Normal(ng.zeros(2), ng.tensor([1.0, -1.0]))
    assert str(caught.value) == (
        "Expected parameter scale (Tensor of shape (2,)) of distribution Normal(loc: ng.Size([2]), "
        "scale: ng.Size([2])) to satisfy the constraint GreaterThan(lower_bound=0.0), but found "
        "invalid values:\ntensor([ 1., -1.])"
    )
    with pytest.raises(ValueError) as caught:
        D.Categorical(logits=ng.zeros(3)).log_prob(ng.tensor(7))
    assert str(caught.value) == (
        "Expected value argument (Tensor of shape ()) to be within the support "
        "(IntegerInterval(lower_bound=0, upper_bound=2)) of the distribution "
        "Categorical(logits: ng.Size([3])), but found invalid values:\n7"
    )


def test_it_can_be_turned_off() -> None:
    wrong = D.Normal(0.0, -1.0, validate_args=False)
    assert wrong.log_prob(ng.tensor(0.0)).isnan().item()
    assert D.HalfNormal(1.0, validate_args=False).log_prob(ng.tensor(-1.0)).item() == -float("inf")
    D.Distribution.set_default_validate_args(False)
    try:
        D.Normal(0.0, -1.0)
        with pytest.raises(ValueError, match="Expected parameter scale"):
            D.Normal(0.0, -1.0, validate_args=True)
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="expected a bool"):
        D.Distribution.set_default_validate_args(2)


def test_one_of_two_parameters() -> None:
    half = ng.tensor([0.5, 0.5])
    for make in (D.Bernoulli, D.Categorical, D.Geometric, D.OneHotCategorical, D.Binomial):
        for given in ({}, {"probs": half, "logits": half}):
            with pytest.raises(ValueError, match="but not both"):
                make(**given)
    with pytest.raises(ValueError, match="must be specified"):
        D.MultivariateNormal(half)
    with pytest.raises(ValueError, match="at least one-dimensional"):
        D.Categorical(logits=ng.tensor(1.0))
    with pytest.raises(ValueError, match="at least one-dimensional"):
        D.Dirichlet(ng.tensor(1.0))
    with pytest.raises(ValueError, match="at least one-dimensional"):
        D.MultivariateNormal(ng.tensor(1.0), ng.eye(1))
    with pytest.raises(ValueError, match="two-dimensional"):
        D.MultivariateNormal(half, half)
    with pytest.raises(NotImplementedError, match="inhomogeneous"):
        D.Multinomial(half, probs=half)
    with pytest.raises(NotImplementedError, match="Inhomogeneous"):
        D.Binomial(ng.tensor([1.0, 2.0]), probs=half).entropy()


def test_wrappers_refuse() -> None:
    normal = D.Normal(ng.zeros(3), 1.0)
    with pytest.raises(ValueError, match="actual 2 vs 1"):
        D.Independent(normal, 2)
    with pytest.raises(ValueError, match="needs to be an instance"):
        D.MixtureSameFamily(normal, normal)
    weights = D.Categorical(logits=ng.zeros(2))
    with pytest.raises(ValueError, match=re.escape("component` (2) does not equal")):
        D.MixtureSameFamily(weights, normal)
    with pytest.raises(ValueError, match="needs a batch dimension"):
        D.MixtureSameFamily(weights, D.Normal(0.0, 1.0))
    with pytest.raises(ValueError, match="must be a Transform or a list"):
        D.TransformedDistribution(normal, "exp")


def test_the_base_class_says_what_is_missing() -> None:
    class Sure(D.Distribution):
        pass

    sure = Sure()
    for name in ("support", "mean", "mode", "variance", "stddev"):
        with pytest.raises(NotImplementedError, match="Sure has no"):
            getattr(sure, name)
    for call in (sure.sample, sure.entropy, sure.enumerate_support):
        with pytest.raises(NotImplementedError, match="Sure has no"):
            call()
    for call in (sure.log_prob, sure.cdf, sure.icdf):
        with pytest.raises(NotImplementedError, match="Sure has no"):
            call(ng.tensor(0.0))
    with pytest.raises(NotImplementedError, match="check"):
        constraints.Constraint().check(ng.zeros(1))


def test_a_distribution_of_ones_own() -> None:
    class Triangle(D.Distribution):
        arg_constraints = {"width": constraints.positive, "height": constraints.dependent}
        has_rsample = True

        def __init__(self, width, validate_args=None):
            self.width, self.height = width, 2 / width
            super().__init__(width.shape, validate_args=validate_args)

        @constraints.dependent_property(is_discrete=False, event_dim=0)
        def support(self):
            return constraints.half_open_interval(0.0, self.width)

        def rsample(self, sample_shape=()):
            return self.width * ng.rand(self._extended_shape(sample_shape)).sqrt()

        def log_prob(self, value):
            self._checked(value)
            return (2 * value / self.width**2).log()

    mine = Triangle(ng.tensor([1.0, 2.0])).expand((3, 2))
    assert mine.sample((5,)).shape == (5, 3, 2) and mine.log_prob(ng.ones(2) / 2).shape == (3, 2)
    assert mine.height.shape == (3, 2)  # expanded, though not checked
    with pytest.raises(ValueError, match="Expected parameter width"):
        Triangle(ng.tensor([0.0]))
    with pytest.raises(ValueError, match="within the support"):
        mine.log_prob(ng.tensor(2.0))


CHECKS = [
    (constraints.boolean, [0.0, 1.0, 0.5], [True, True, False]),
    (constraints.nonnegative_integer, [0.0, 2.0, 0.5], [True, True, False]),
    (constraints.integer_interval(1, 3), [0.0, 3.0, 1.5], [False, True, False]),
    (constraints.unit_interval, [0.0, 1.0, 1.5], [True, True, False]),
    (constraints.half_open_interval(0.0, 1.0), [0.0, 1.0, 0.5], [True, False, True]),
    (constraints.less_than(1.0), [0.0, 1.0, 1.5], [True, False, False]),
    (constraints.greater_than_eq(1.0), [0.0, 1.0, 1.5], [False, True, True]),
    (constraints.real, [0.0, float("nan"), float("inf")], [True, False, True]),
    (constraints.real_vector, [[0.0, float("nan")], [0.0, 1.0]], [False, True]),
    (constraints.one_hot, [[0.0, 1.0], [1.0, 1.0], [0.5, 0.5]], [True, False, False]),
    (constraints.simplex, [[0.0, 1.0], [1.0, 1.0], [-0.5, 1.5]], [True, False, False]),
    (constraints.multinomial(3), [[1.0, 2.0], [0.5, 2.5], [1.0, 1.0]], [True, False, False]),
    (constraints.lower_cholesky, [[[1.0, 0], [2, 1]], [[1.0, 1], [0, 1]]], [True, False]),
    (constraints.positive_definite, [[[2.0, 1], [1, 2]], [[2.0, 1], [0, 2]]], [True, False]),
]


@pytest.mark.parametrize(("constraint", "values", "expected"), CHECKS, ids=lambda v: repr(v)[:30])
def test_constraints(constraint, values, expected) -> None:
    assert constraint.check(ng.tensor(values)).tolist() == expected


def test_a_softmax_of_many_classes_is_a_simplex() -> None:
    ng.manual_seed(0)
    assert constraints.simplex.check(ng.randn(50, 5000).softmax(-1)).all()


def test_printed() -> None:
    normal = D.Normal(ng.zeros(2, 3), 1.0)
    assert repr(D.Normal(0.0, 1.0)) == "Normal(loc: 0.0, scale: 1.0)"
    assert repr(D.Independent(normal, 1)) == (
        "Independent(Normal(loc: ng.Size([2, 3]), scale: ng.Size([2, 3])), 1)"
    )
    assert (
        repr(D.LogNormal(0.0, 1.0)) == "LogNormal(Normal(loc: 0.0, scale: 1.0), [ExpTransform()])"
    )
    weights = D.Categorical(logits=ng.zeros(3))
    assert "Categorical(logits: ng.Size([2, 3]))" in repr(D.MixtureSameFamily(weights, normal))
    assert repr(constraints.unit_interval) == "Interval(lower_bound=0.0, upper_bound=1.0)"
    assert repr(constraints.real_vector) == "IndependentConstraint(Real(), 1)"


def test_matrices_of_normal_vectors() -> None:
    loc = ng.zeros(2)
    with pytest.raises(ValueError, match=r"Expected parameter covariance_matrix.*PositiveDefinite"):
        D.MultivariateNormal(loc, ng.tensor([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(ShapeError, match="loc has 2 elements, so scale_tril must end in"):
        D.MultivariateNormal(loc, scale_tril=ng.eye(3))
    with pytest.raises(ValueError, match="loc must be a Tensor, got list"):
        D.MultivariateNormal([0.0, 0.0], ng.eye(2))
    with pytest.raises(ValueError, match="precision_matrix must be a Tensor, got float"):
        D.MultivariateNormal(loc, precision_matrix=1.0)


@pytest.mark.parametrize(
    "distribution",
    [
        D.Normal(0.0, 1.0),
        D.Categorical(ng.ones(3)),
        D.Multinomial(2, ng.ones(3)),
        D.Gamma(ng.ones(2), 1.0),
        D.Independent(D.Bernoulli(ng.ones(2)), 1),
        D.LogNormal(0.0, 1.0),
    ],
    ids=lambda d: type(d).__name__,
)
def test_a_number_is_no_shape_of_draws(distribution) -> None:
    with pytest.raises(TypeError, match=r"sample_shape must be a tuple of ints, got 3. Write \(3,"):
        distribution.sample(3)
