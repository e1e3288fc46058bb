"""``ExponentialFamily`` as a base, and ``distributions.utils``."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import distributions as D

NINE = "Bernoulli Beta ContinuousBernoulli Dirichlet Exponential Gamma Normal Poisson Wishart"


def test_who_is_one() -> None:
    found = {n for n in D.__all__ if isinstance(getattr(D, n), type)}
    found = {n for n in found if issubclass(getattr(D, n), D.ExponentialFamily)}
    assert found == {*NINE.split(), "Chi2", "ExponentialFamily"}
    torch = pytest.importorskip("torch")
    theirs = torch.distributions
    for name in D.__all__:
        if isinstance(getattr(theirs, name, None), type) and isinstance(getattr(D, name), type):
            ours = issubclass(getattr(D, name), D.ExponentialFamily)
            assert ours is issubclass(getattr(theirs, name), theirs.ExponentialFamily), name


class Rate(D.ExponentialFamily):
    """Exponential, by what a subclass has to say."""

    arg_constraints = {"rate": D.constraints.positive}
    _mean_carrier_measure = 0

    def __init__(self, rate):
        self.rate = rate
        super().__init__(rate.shape)

    @property
    def _natural_params(self):
        return (-self.rate,)

    def _log_normalizer(self, x):
        return -(-x).log()


class Rates(Rate):
    """A vector of them as one event."""

    def __init__(self, rate):
        self.rate = rate
        D.Distribution.__init__(self, (), rate.shape)

    def _log_normalizer(self, x):
        return -(-x).log().sum()


def test_entropy_and_divergence_follow_from_the_normaliser() -> None:
    a, b = (ng.tensor(v, dtype=ng.float64, requires_grad=True) for v in ([0.5, 3.0], [1.0, 0.2]))
    plain = D.Exponential(a), D.Exponential(b)
    entropy, gap = Rate(a).entropy(), D.kl_divergence(Rate(a), Rate(b))
    assert entropy.allclose(plain[0].entropy()) and gap.allclose(D.kl_divergence(*plain))
    for mine, theirs in ((entropy, plain[0].entropy()), (gap, D.kl_divergence(*plain))):
        found = ng.autograd.grad(mine.sum(), (a, b), allow_unused=True)
        expected = ng.autograd.grad(theirs.sum(), (a, b), allow_unused=True)
        for g, h in zip(found, expected, strict=True):
            assert h is None or g.allclose(h)
    whole = Rates(a.detach())
    assert whole.entropy().shape == () and not whole.entropy().requires_grad
    assert whole.entropy().item() == pytest.approx(entropy.sum().item())
    assert D.kl_divergence(whole, Rates(b.detach())).item() == pytest.approx(gap.sum().item())


def test_what_is_not_given_is_missing() -> None:
    with pytest.raises(NotImplementedError, match="Poisson has no entropy"):
        D.Poisson(1.0).entropy()
    with pytest.raises(NotImplementedError, match="No KL"):
        D.kl_divergence(Rate(ng.ones(1)), D.Exponential(ng.ones(1)))

    class Bare(D.ExponentialFamily):
        pass

    with pytest.raises(NotImplementedError, match="No KL"):
        D.kl_divergence(Bare(), Bare())


def test_probabilities_and_logits() -> None:
    utils = D.utils
    p = ng.tensor([[0.2, 0.3, 0.5], [0.0, 0.5, 0.5]])
    for binary in (False, True):
        logits = utils.probs_to_logits(p, is_binary=binary)
        assert logits.isfinite().all()
        assert utils.logits_to_probs(logits, is_binary=binary).allclose(p, atol=1e-6)
    assert 0 < utils.clamp_probs(ng.zeros(1)).item() < 1e-6
    x, y = utils.broadcast_all(ng.ones(2, 1), ng.ones(3))
    assert x.shape == y.shape == (2, 3) and utils.euler_constant == pytest.approx(np.euler_gamma)


def test_triangles_as_vectors() -> None:
    utils = D.utils
    for n, diag in ((1, 0), (3, 0), (4, -1), (3, 1), (4, -2)):
        matrix = ng.arange(1.0, 2 * n * n + 1).reshape(2, n, n).tril(diag)
        vector = utils.tril_matrix_to_vec(matrix, diag)
        assert utils.vec_to_tril_matrix(vector, diag).equal(matrix)
    with pytest.raises(ValueError, match="outside"):
        utils.tril_matrix_to_vec(ng.eye(2), 2)


def test_a_lazy_property_is_computed_once() -> None:
    class Square:
        side = 3
        count = 0

        @D.utils.lazy_property
        def area(self):
            """The area."""
            self.count += 1
            return self.side**2

    square = Square()
    assert square.area == square.area == 9 and square.count == 1
    assert Square.area.__doc__ == "The area."
    other = Square()
    other.area = 5
    assert other.area == 5 and other.count == 0
