"""Gradients of log_prob, of entropy and of draws."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

import numbagrad as ng
from numbagrad import distributions as D
from numbagrad.autograd import gradcheck, gradgradcheck

from .rows import ROWS, Row

GAMMAS = ("Gamma", "Chi2", "Beta", "Dirichlet", "StudentT", "FisherSnedecor", "InverseGamma")
GAMMAS += ("Wishart",)
FREE = [row for row in ROWS if not {"covariance_matrix", "precision_matrix"} & {*row.parameters}]
rows = pytest.mark.parametrize("row", FREE, ids=lambda row: row.id)


@pytest.fixture(autouse=True)
def unchecked():
    """A step of a finite difference leaves the simplex."""
    D.Distribution.set_default_validate_args(False)
    yield
    D.Distribution.set_default_validate_args(True)


def leaves(row: Row) -> list[ng.Tensor]:
    return [p.requires_grad_() for p in row.tensors().values()]


@rows
def test_log_prob(row: Row) -> None:
    x = ng.tensor(row.values, dtype=ng.float64).requires_grad_(not row.discrete)

    def log_prob(x, *parameters):
        x = (x + x.mT) / 2 if row.name == "Wishart" else x
        return row.of(dict(zip(row.parameters, parameters, strict=True))).log_prob(x)

    inputs = (x, *leaves(row))
    assert gradcheck(log_prob, inputs) and gradgradcheck(log_prob, inputs)


@rows
def test_entropy(row: Row) -> None:
    if not row.has("entropy"):
        return

    def entropy(*parameters):
        return row.of(dict(zip(row.parameters, parameters, strict=True))).entropy()

    assert gradcheck(entropy, tuple(leaves(row)))


@rows
def test_cdf(row: Row) -> None:
    if not row.has("cdf"):
        return
    x = ng.tensor(row.values, dtype=ng.float64, requires_grad=True)

    def cdf(x, *parameters):
        return row.of(dict(zip(row.parameters, parameters, strict=True))).cdf(x)

    assert gradcheck(cdf, (x, *leaves(row)))


SMOOTH = [r for r in FREE if r.name not in (*GAMMAS, "OneHotCategoricalStraightThrough")]


@pytest.mark.parametrize("row", SMOOTH, ids=lambda row: row.id)
def test_draws_move_with_their_parameters(row: Row) -> None:
    """With the same random numbers a draw is a smooth function of the parameters."""
    if not row.build().has_rsample:
        return

    def draw(*parameters):
        ng.manual_seed(3)
        return row.of(dict(zip(row.parameters, parameters, strict=True))).rsample((2,))

    assert gradcheck(draw, tuple(leaves(row)))


def test_a_straight_through_gradient_is_that_of_the_chances() -> None:
    logits = ng.tensor([0.2, -0.5, 1.3], dtype=ng.float64, requires_grad=True)
    value = ng.tensor([1.0, 2.0, 4.0], dtype=ng.float64)
    drawn = D.OneHotCategoricalStraightThrough(logits=logits).rsample((5,))
    assert ((drawn == 0) | (drawn == 1)).all() and (drawn.sum(-1) == 1).all()
    (found,) = ng.autograd.grad((drawn[0] * value).sum(), logits)
    (expected,) = ng.autograd.grad((logits.softmax(-1) * value).sum(), logits)
    np.testing.assert_allclose(found.numpy(), expected.numpy())


def test_covariance_and_precision() -> None:
    factor = ng.tensor([[1.0, 0.0], [0.5, 2.0]], dtype=ng.float64, requires_grad=True)
    loc = ng.tensor([0.3, 0.1], dtype=ng.float64, requires_grad=True)
    for name in ("covariance_matrix", "precision_matrix"):

        def both(loc, factor, name=name):
            ng.manual_seed(4)
            normal = D.MultivariateNormal(loc, **{name: factor @ factor.mT})
            return normal.log_prob(loc * 2 + 1), normal.rsample((2,)), normal.entropy()

        assert gradcheck(both, (loc, factor))

        def of_matrices(factor, name=name):
            ng.manual_seed(4)
            wishart = D.Wishart(3.5, **{name: factor @ factor.mT})
            return wishart.log_prob(wishart.mean), wishart.rsample((2,)), wishart.entropy()

        assert gradcheck(of_matrices, (factor,))


def quantile_slope(quantile, a: float, h: float) -> np.ndarray:
    """The derivative of a quantile by a parameter, by Richardson's differences."""
    wide = (quantile(a + h) - quantile(a - h)) / (2 * h)
    wider = (quantile(a + 2 * h) - quantile(a - 2 * h)) / (4 * h)
    return (4 * wide - wider) / 3


@pytest.mark.parametrize("a", [0.2, 0.9, 3.0, 30.0, 90.0, 1000.0])
def test_gamma_draws_move_along_their_quantile(a: float) -> None:
    ng.manual_seed(5)
    shape = ng.full((200,), a, dtype=ng.float64).requires_grad_()
    x = D.Gamma(shape, 2.0).rsample()
    x.sum().backward()
    z = 2 * x.detach().numpy()
    u = special.gammainc(a, z)
    some = (u > 1e-6) & (u < 0.999)
    expected = quantile_slope(lambda s: special.gammaincinv(s, u), a, 1e-3 * a) / 2
    np.testing.assert_allclose(shape.grad.numpy()[some], expected[some], rtol=1e-5)


@pytest.mark.parametrize("make", ["Beta", "Dirichlet", "StudentT", "Chi2"])
def test_means_move_as_they_should(make: str) -> None:
    """The derivative of the mean of x ** 2 by a parameter, from draws and from the moments."""
    n = 100_000
    ng.manual_seed(6)
    a = ng.tensor(7.0, dtype=ng.float64, requires_grad=True)
    b = ng.tensor(2.0, dtype=ng.float64)
    ours = {
        "Beta": lambda: D.Beta(a, b),
        "Dirichlet": lambda: D.Dirichlet(ng.stack([a, b])),
        "StudentT": lambda: D.StudentT(a),
        "Chi2": lambda: D.Chi2(a),
    }[make]()
    x = ours.rsample((n,))
    x = x[:, 0] if make == "Dirichlet" else x
    each = ng.autograd.grad((x * x).mean(), a)[0].item()
    exact = (ours.variance + ours.mean**2).reshape((-1,))[0]
    expected = ng.autograd.grad(exact, a)[0].item()
    assert each == pytest.approx(expected, rel=0.05)


def test_gammas_cdf_is_scipys() -> None:
    a = ng.tensor([0.3, 5.0, 100.0, 1e4], dtype=ng.float64)
    x = a * 1.02
    np.testing.assert_allclose(
        D.Gamma(a, 1.0).cdf(x).numpy(), stats.gamma(a.numpy()).cdf(x.numpy()), rtol=1e-10
    )


def test_slopes_where_branches_meet() -> None:
    """At the centre of a Laplace, and at 0, where the logarithms of a gamma are infinite."""
    x = ng.tensor([0.0, 800.0, -800.0], dtype=ng.float64, requires_grad=True)
    D.Laplace(0.0, 1.0).cdf(x).sum().backward()
    assert x.grad.tolist() == [0.5, 0, 0]
    p = ng.tensor([0.5, 1e-9], dtype=ng.float64, requires_grad=True)
    quantiles = D.Laplace(0.0, 1.0).icdf(p)
    quantiles.sum().backward()
    np.testing.assert_allclose(p.grad.numpy(), [2, 1e9])
    assert quantiles[1].item() == pytest.approx(np.log(2e-9), rel=1e-12)
    for shape in (0.5, 1.0, 2.0):
        a = ng.tensor(shape, dtype=ng.float64, requires_grad=True)
        value = ng.tensor(0.0, dtype=ng.float64, requires_grad=True)
        D.Gamma(a, 1.0).cdf(value).backward()
        assert a.grad.item() == 0
        assert value.grad.item() == {0.5: np.inf, 1.0: 1.0, 2.0: 0.0}[shape]


def test_the_second_derivative_by_a_shape_raises() -> None:
    shape = ng.tensor(2.0, requires_grad=True)
    (slope,) = ng.autograd.grad(D.Gamma(shape, 1.0).rsample(), shape, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivative by the shape"):
        slope.backward()
