"""Transforms of vectors, matrices and pieces, and the registries that choose them, as PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import distributions as D

DRAW = np.random.default_rng(4)
VECTORS, SQUARES = DRAW.standard_normal((2, 6)), DRAW.standard_normal((2, 3, 3))
POSITIVE = DRAW.uniform(0.2, 3.0, (2, 4))

# How it is made of either library, and what it is tried on.
MAKE = {
    "softplus": (lambda m, t: m.transforms.SoftplusTransform(), VECTORS),
    "power": (lambda m, t: m.PowerTransform(t([2.0, -1.0, 0.5, 3.0])), POSITIVE),
    "abs": (lambda m, t: m.AbsTransform(), VECTORS),
    "cdf": (lambda m, t: m.CumulativeDistributionTransform(m.Normal(t(0.5), t(2.0))), VECTORS),
    "softmax": (lambda m, t: m.SoftmaxTransform(), VECTORS),
    "sticks": (lambda m, t: m.StickBreakingTransform(), VECTORS),
    "triangle": (lambda m, t: m.LowerCholeskyTransform(), SQUARES),
    "covariance": (lambda m, t: m.transforms.PositiveDefiniteTransform(), SQUARES),
    "correlation": (lambda m, t: m.CorrCholeskyTransform(), VECTORS),
    "event": (lambda m, t: m.IndependentTransform(m.ExpTransform(), 1), VECTORS),
    "shape": (lambda m, t: m.ReshapeTransform((6,), (2, 3)), VECTORS),
    "stack": (
        lambda m, t: m.StackTransform([m.ExpTransform(), m.AffineTransform(1.0, 2.0)]),
        VECTORS,
    ),
    "cat": (
        lambda m, t: m.CatTransform([m.ExpTransform(), m.SigmoidTransform()], -1, [2, 4]),
        VECTORS,
    ),
}
NO_SLOPE = ("abs", "softmax", "triangle", "covariance")
BROKEN = ("cat",)  # PyTorch's asks its parts for an event_dim that they do not have


def double(values):
    return ng.tensor(values, dtype=ng.float64)


@pytest.mark.parametrize("name", MAKE)
def test_as_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    make, values = MAKE[name]
    theirs = make(torch.distributions, lambda v: torch.tensor(v, dtype=torch.float64))
    ours, x, truth = make(D, double), double(values), torch.tensor(values)
    y, expected = ours(x), theirs(truth)
    np.testing.assert_allclose(y.numpy(), expected.numpy(), rtol=1e-12)
    back = theirs.inv(expected).numpy()
    np.testing.assert_allclose(ours.inv(y).numpy(), back, rtol=1e-8, atol=1e-10)
    assert ours.bijective == theirs.bijective and ours.codomain.check(y).all()
    assert ours.domain.event_dim == theirs.domain.event_dim
    assert ours.codomain.event_dim == theirs.codomain.event_dim
    assert ours.forward_shape(x.shape) == tuple(y.shape)
    assert ours.inverse_shape(y.shape) == tuple(x.shape)
    if name in NO_SLOPE:
        with pytest.raises(NotImplementedError):
            ours.log_abs_det_jacobian(x, y)
    elif name not in BROKEN:
        slope = theirs.log_abs_det_jacobian(truth, expected).numpy()
        np.testing.assert_allclose(ours.log_abs_det_jacobian(x, y).numpy(), slope, rtol=1e-9)


@pytest.mark.parametrize("name", [n for n in MAKE if n not in NO_SLOPE])
def test_gradients_and_compiled(name: str) -> None:
    make, values = MAKE[name]
    ours, x = make(D, double), double(values).requires_grad_()

    def both(x):
        y = ours(x)
        return y, ours.inv(y), ours.log_abs_det_jacobian(x, y)

    assert ng.autograd.gradcheck(both, x)
    found = ng.compile(both)(x.detach())
    for mine, eager in zip(found, both(x.detach()), strict=True):
        np.testing.assert_allclose(mine.numpy(), eager.numpy(), rtol=1e-10, atol=1e-12)


def test_slopes_of_pieces() -> None:
    parts = [D.ExpTransform(), D.StickBreakingTransform()]
    x = double(VECTORS)
    cat = D.CatTransform([D.ExpTransform(), D.AffineTransform(0.0, 3.0)], -1, [2, 4])
    found = cat.log_abs_det_jacobian(x, cat(x)).numpy()
    np.testing.assert_allclose(found[:, :2], VECTORS[:, :2])
    np.testing.assert_allclose(found[:, 2:], np.log(3.0))
    whole = D.CatTransform([D.IndependentTransform(parts[0], 1), D.ExpTransform()], -1, [2, 4])
    found = whole.log_abs_det_jacobian(x, whole(x)).numpy()
    np.testing.assert_allclose(found, VECTORS.sum(1))


def test_kept_pairs_and_equality() -> None:
    plain = D.StickBreakingTransform()
    kept = plain.with_cache()
    x = double(VECTORS)
    assert plain == kept and kept.with_cache(1) is kept
    assert kept.inverse(kept(x)) is x and plain.inverse(plain(x)) is not x
    assert D.PowerTransform(2.0) == D.PowerTransform(2.0) != D.PowerTransform(3.0)
    assert D.ReshapeTransform((2,), (1, 2)) != D.ReshapeTransform((2,), (2, 1))
    parts = [D.ExpTransform()] * 2
    assert D.StackTransform(parts, 1) == D.StackTransform(parts, 1) != D.StackTransform(parts)


CONSTRAINTS = {
    "real": lambda c: c.real,
    "positive": lambda c: c.positive,
    "nonnegative": lambda c: c.nonnegative,
    "greater": lambda c: c.greater_than(-1.5),
    "less": lambda c: c.less_than(2.5),
    "unit": lambda c: c.unit_interval,
    "interval": lambda c: c.interval(-1.0, 3.0),
    "half open": lambda c: c.half_open_interval(0.0, 2.0),
    "vector": lambda c: c.real_vector,
    "shares": lambda c: c.simplex,
    "independent": lambda c: c.independent(c.positive, 1),
    "correlation": lambda c: c.corr_cholesky,
    "triangle": lambda c: c.lower_cholesky,
    "covariance": lambda c: c.positive_definite,
    "semidefinite": lambda c: c.positive_semidefinite,
    "stack": lambda c: c.stack([c.positive, c.real], 0),
    "cat": lambda c: c.cat([c.positive, c.unit_interval], -1, [1, 5]),
}


@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_registries(name: str, registry: str) -> None:
    torch = pytest.importorskip("torch")
    make = CONSTRAINTS[name]
    values = SQUARES if name in ("triangle", "covariance", "semidefinite") else VECTORS
    if values is SQUARES and registry == "biject_to":
        with pytest.raises(NotImplementedError, match="Cannot transform"):
            D.biject_to(make(D.constraints))
        return
    constraint = make(D.constraints)
    ours = getattr(D, registry)(constraint)
    theirs = getattr(torch.distributions, registry)(make(torch.distributions.constraints))
    y = ours(double(values))
    np.testing.assert_allclose(y.numpy(), theirs(torch.tensor(values)).numpy(), rtol=1e-12)
    assert constraint.check(y).all() and ours.codomain.check(y).all()


def test_a_constraint_of_ones_own() -> None:
    class Even(D.constraints.Constraint):
        pass

    registry = type(D.biject_to)()
    with pytest.raises(NotImplementedError, match="Cannot transform Even constraints"):
        registry(Even())

    @registry.register(Even)
    def doubled(constraint):
        return D.AffineTransform(0.0, 2.0)

    assert registry(Even())(ng.tensor(3.0)).item() == 6.0
    with pytest.raises(TypeError, match="Expected constraint to be either"):
        registry.register(3.0, doubled)
    with pytest.raises(NotImplementedError, match="IntegerGreaterThan"):
        D.biject_to(D.constraints.nonnegative_integer)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: D.CorrCholeskyTransform()(ng.ones(4)), "not a flattened lower-diagonal"),
        (lambda: D.ReshapeTransform((2,), (3,)), "different numbers of elements"),
        (lambda: D.ReshapeTransform((2,), (2, 1))(ng.ones(3)), "Shape mismatch"),
        (lambda: D.StackTransform([D.ExpTransform()])(ng.ones(3)), "dimension 0 must be 1"),
        (lambda: D.CatTransform([D.ExpTransform()], lengths=[1, 2]), "2 lengths for 1"),
        (lambda: D.CatTransform([1]), "expected Transforms"),
        (lambda: D.StickBreakingTransform().forward_shape(()), "Too few dimensions"),
    ],
)
def test_mistakes_are_named(call, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


def test_matrices() -> None:
    c = D.constraints
    upper, odd = double([[1.0, 2.0], [0.0, 1.0]]), ng.ones(2, 3)
    assert c.square.check(upper).item() and not c.square.check(odd).item()
    assert not c.symmetric.check(upper).item() and not c.symmetric.check(odd).item()
    assert c.symmetric.check(upper + upper.T).item()
    assert c.lower_triangular.check(upper.T).item() and not c.lower_triangular.check(upper).item()
    assert c.positive_semidefinite.check(ng.ones(2, 2)).item()
    assert not c.positive_semidefinite.check(-ng.ones(2, 2)).item()
    assert not c.corr_cholesky.check(upper.T).item()
    assert c.is_dependent(c.dependent) and not c.is_dependent(c.real)
    assert c.positive_integer.check(ng.tensor([0.0, 1.0, 1.5])).tolist() == [False, True, False]
