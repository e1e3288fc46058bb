"""Transforms: values, inverses, slopes, composition; distributions turned by them."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import distributions as D
from numbagrad.distributions.transforms import InverseTransform

X = [-2.0, -0.3, 0.0, 0.7, 1.5]
MAKE = {
    "affine": lambda m, t: m.AffineTransform(0.5, -2.0),
    "affine-tensor": lambda m, t: m.AffineTransform(t([0.5]), t([-2.0, 1.0, 3.0, 0.5, 0.1])),
    "affine-event": lambda m, t: m.AffineTransform(0.5, t([2.0] * 5), event_dim=1),
    "exp": lambda m, t: m.ExpTransform(),
    "sigmoid": lambda m, t: m.SigmoidTransform(),
    "tanh": lambda m, t: m.TanhTransform(),
    "compose": lambda m, t: m.ComposeTransform([m.TanhTransform(), m.AffineTransform(1.0, 2.0)]),
    "compose-event": lambda m, t: m.ComposeTransform(
        [m.ExpTransform(), m.AffineTransform(1.0, 2.0, event_dim=1), m.TanhTransform().inv.inv]
    ),
    "inverse": lambda m, t: m.ComposeTransform([m.SigmoidTransform(), m.ExpTransform().inv]),
    "nothing": lambda m, t: m.identity_transform,
}
transforms = pytest.mark.parametrize("name", MAKE)


def double(values):
    return ng.tensor(values, dtype=ng.float64)


@transforms
def test_value_inverse_and_slope(name: str) -> None:
    transform, x = MAKE[name](D, double), double(X).requires_grad_()
    y = transform(x)
    if name != "compose-event":  # tanh has no digits left there
        np.testing.assert_allclose(transform.inv(y).detach().numpy(), X, atol=1e-12)
    (slope,) = ng.autograd.grad(y.sum(), x)
    found = transform.log_abs_det_jacobian(x, y)
    expected = slope.abs().log()
    if transform.domain.event_dim:
        expected = expected.sum(-1)
    np.testing.assert_allclose(found.detach().numpy(), expected.numpy(), rtol=1e-9, atol=1e-12)
    if name != "compose-event":
        back = transform.inv.log_abs_det_jacobian(y, x).detach().numpy()
        np.testing.assert_allclose(back, -found.detach().numpy(), rtol=1e-7, atol=1e-12)
    assert transform.bijective
    assert ((slope.sign() - transform.sign).abs() < 1e-12).all()
    assert transform.domain.check(x).all() and transform.codomain.check(y).all()


@pytest.mark.peer
@transforms
def test_as_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = MAKE[name](torch.distributions, lambda v: torch.tensor(v, dtype=torch.float64))
    ours, x = MAKE[name](D, double), double(X)
    truth = torch.tensor(X, dtype=torch.float64)
    np.testing.assert_allclose(ours(x).numpy(), theirs(truth).numpy(), rtol=1e-12)
    if name == "nothing":  # theirs is a plain 0
        return
    slope = theirs.log_abs_det_jacobian(truth, theirs(truth))
    np.testing.assert_allclose(ours.log_abs_det_jacobian(x, ours(x)).numpy(), slope, rtol=1e-9)
    assert ours.domain.event_dim == theirs.domain.event_dim
    assert ours.codomain.event_dim == theirs.codomain.event_dim


def test_events_of_transforms_become_events() -> None:
    base = D.Normal(ng.zeros(4, 3), 1.0)
    plain = D.TransformedDistribution(base, D.ExpTransform())
    assert plain.batch_shape == (4, 3) and plain.event_shape == ()
    turned = D.TransformedDistribution(base, [D.AffineTransform(0.0, 2.0, event_dim=1)])
    assert turned.batch_shape == (4,) and turned.event_shape == (3,)
    x = turned.sample((2,))
    expected = D.Normal(ng.zeros(4, 3), 2.0).log_prob(x).sum(-1)
    np.testing.assert_allclose(turned.log_prob(x).numpy(), expected.numpy(), rtol=1e-5)
    wide = turned.expand((5, 4))
    assert wide.batch_shape == (5, 4) and wide.rsample().shape == (5, 4, 3)
    assert wide.log_prob(x[:, None]).shape == (2, 5, 4)
    with pytest.raises(ValueError, match="at least 1"):
        D.TransformedDistribution(D.Normal(0.0, 1.0), D.AffineTransform(0.0, 1.0, event_dim=1))


def test_a_cache_finds_what_no_inverse_does() -> None:
    """tanh(20.) is 1 in float32: the usual squashed policy needs the x it came from."""
    base = D.Normal(ng.tensor(20.0), 1.0)
    plain = D.TransformedDistribution(base, D.TanhTransform())
    kept = D.TransformedDistribution(base, D.TanhTransform(cache_size=1))
    assert not plain.log_prob(plain.rsample()).isfinite().item()
    assert kept.log_prob(kept.rsample()).isfinite().item()
    transform = D.ExpTransform(cache_size=1)
    x = ng.tensor(1.0)
    y = transform(x)
    assert transform(x) is y and transform.inverse(y) is x
    with pytest.raises(ValueError, match="cache_size must be 0 or 1"):
        D.ExpTransform(cache_size=3)


def test_equality_and_print() -> None:
    assert D.ExpTransform() == D.ExpTransform() != D.TanhTransform()
    affine = D.AffineTransform(ng.tensor([1.0]), 2.0)
    assert affine == D.AffineTransform(ng.tensor([1.0]), 2.0)
    assert affine != D.AffineTransform(ng.tensor([2.0]), 2.0)
    assert D.ComposeTransform([affine]) == D.ComposeTransform([affine])
    assert D.ExpTransform().inv == InverseTransform(D.ExpTransform()) and affine.inv.inv is affine
    assert len({affine, D.ExpTransform()}) == 2
    assert repr(D.ComposeTransform([D.ExpTransform().inv])) == (
        "ComposeTransform([ExpTransform().inv])"
    )


def test_ones_own_transform() -> None:
    class Cube(D.Transform):
        domain = codomain = D.constraints.real
        bijective = True

        def _call(self, x):
            return x**3

        def _inverse(self, y):
            return y.sign() * y.abs() ** (1 / 3)

        def log_abs_det_jacobian(self, x, y):
            return (3 * x**2).log()

    cubed = D.TransformedDistribution(D.Uniform(1.0, 2.0), Cube())
    assert cubed.log_prob(ng.tensor(1.5**3)).exp().item() == pytest.approx(1 / (3 * 1.5**2))
    with pytest.raises(NotImplementedError, match="Cube has no sign"):
        cubed.icdf(ng.tensor(0.5))
    Cube.sign = 1  # type: ignore[assignment]
    assert cubed.icdf(ng.tensor(0.5)).item() == pytest.approx(1.5**3)
    assert Cube() != Cube()
    lacking = D.Transform()
    for call in (lacking, lacking.inverse):
        with pytest.raises(NotImplementedError, match="Transform"):
            call(ng.tensor(1.0))
    with pytest.raises(NotImplementedError, match="log_abs_det_jacobian"):
        lacking.log_abs_det_jacobian(ng.tensor(1.0), ng.tensor(1.0))


@pytest.mark.parametrize("inverse", [False, True])
def test_no_two_elements_share_a_draw(inverse: bool) -> None:
    """The base is expanded to the shape that parameters of transforms give the result."""
    ng.manual_seed(0)
    affine = D.AffineTransform(ng.zeros(3, 2), 2.0)
    transforms = [D.ExpTransform(), affine.inv if inverse else affine]
    for base in (D.Normal(0.0, 1.0), D.Normal(ng.zeros(2), 1.0)):
        turned = D.TransformedDistribution(base, transforms)
        assert turned.batch_shape == (3, 2) and turned.base_dist.batch_shape == (3, 2)
        x = turned.sample((5,))
        assert x.shape == (5, 3, 2) and len(set(x.flatten().tolist())) == 30
        assert turned.log_prob(x).shape == (5, 3, 2)
        assert turned.expand((4, 3, 2)).sample().shape == (4, 3, 2)
    events = D.AffineTransform(ng.zeros(4, 2), 2.0, event_dim=1)
    turned = D.TransformedDistribution(D.MultivariateNormal(ng.zeros(2), ng.eye(2)), events)
    assert turned.batch_shape == (4,) and turned.event_shape == (2,)
    assert turned.log_prob(turned.rsample()).shape == (4,)


def test_a_kept_pair_is_not_pickled() -> None:
    loc = ng.zeros(2).requires_grad_()
    ours = D.TransformedDistribution(D.Normal(loc, 1.0), [D.TanhTransform(cache_size=1)])
    ours.rsample()
    for other in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        x = other.rsample()
        assert other.transforms[0].inv(x) is other.transforms[0]._kept[0]


def test_shared_parameters_are_equal_while_recording() -> None:
    loc = ng.ones(2)

    @ng.compile
    def gap(mean):
        p, q = (
            D.TransformedDistribution(D.Normal(m, 1.0), [D.AffineTransform(loc, 2.0)])
            for m in (mean, 0.0)
        )
        return D.kl_divergence(p, q)

    assert gap(ng.full((2,), 2.0)).tolist() == [2.0, 2.0]
