"""A weight whose columns, or rows, are orthonormal; ``parametrizations`` exports ``orthogonal``."""

from __future__ import annotations

from ...autograd.modes import no_grad
from ...dtypes import finfo
from ...ops.base import new_empty
from ...ops.comparison import allclose
from ...ops.create import eye, zeros
from ...ops.elementwise import where
from ...ops.join import cat
from ...ops.lapack import matrix_exp, qr, solve, solve_triangular
from ...ops.shape import tril, triu
from ...tensor import Tensor
from ..modules.module import Module
from .parametrize import register_parametrization

__all__ = ["Orthogonal", "orthogonal"]


def _identity(like: Tensor, n: int, k: int | None = None) -> Tensor:
    return eye(n, k, dtype=like.dtype, device=like.device)


def _by_exponential(x: Tensor) -> Tensor:
    return matrix_exp(_skew(x))[..., : x.shape[-1]]


def _by_cayley(x: Tensor) -> Tensor:
    skew, ones = _skew(x) * 0.5, _identity(x, x.shape[-2])
    return solve(ones - skew, ones + skew)[..., : x.shape[-1]]


def _skew(x: Tensor) -> Tensor:
    """The lower triangle of x (..., n, k) less its transpose: (..., n, n)."""
    n, k = x.shape[-2:]
    x = tril(x)
    if n != k:
        rest = zeros(*x.shape[:-1], n - k, dtype=x.dtype, device=x.device)
        x = cat([x, rest], -1)
    return x - x.mT


def _by_reflections(x: Tensor) -> Tensor:
    """``H1 H2 ... Hk``, each ``I - 2 v v.T / (v.T v)``, times the signs on the diagonal of x.

    v: the columns of the lower triangle, with ones on the diagonal. The product is ``I - V T V.T``,
    ``T**-1`` the upper triangle of ``V.T V`` with half its diagonal (Schreiber and van Loan, 1989).
    """
    n, k = x.shape[-2:]
    v = tril(x, -1) + _identity(x, n, k)
    products = v.mT @ v
    inverse = triu(products) - products * _identity(x, k) * 0.5
    q = _identity(x, n, k) - v @ solve_triangular(inverse, v[..., :k, :].mT, upper=True)
    signs = x.detach().diagonal(dim1=-2, dim2=-1).int()
    return q * signs.unsqueeze(-2)


MAPS = {"matrix_exp": _by_exponential, "cayley": _by_cayley, "householder": _by_reflections}


def _orthonormal(x: Tensor) -> Tensor:
    """The Q of x (..., n, k) that belongs to an R with a positive diagonal."""
    q, r = qr(x)
    return q * r.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


def _is_orthonormal(x: Tensor) -> bool:
    n, k = x.shape[-2:]
    near = 10 * n * finfo(x.dtype).eps
    return allclose(x.mT @ x, _identity(x, k).expand(*x.shape[:-2], k, k), atol=near)


def _reflectors(x: Tensor) -> Tensor:
    """What ``_by_reflections`` makes x (..., n, k) of, if its columns are orthonormal."""
    k = x.shape[-1]
    r, out = x.clone(), zeros(*x.shape, dtype=x.dtype, device=x.device)
    for i in range(k):
        column = r[..., i:, i]
        first, below = column[..., 0], column[..., 1:].square().sum(-1)
        none = below.eq(0)
        length = (first.square() + below).sqrt()
        new = where(none, first, -length.copysign(first))
        v = column / where(none, 1.0, first - new).unsqueeze(-1)
        v[..., 0] = 1.0
        v[..., 1:] = where(none.unsqueeze(-1), 0.0, v[..., 1:])
        tau = where(none, 0.0, (new - first) / new)[..., None, None]
        rest = r[..., i:, i:]
        r[..., i:, i:] = rest - tau * (v.unsqueeze(-1) @ (v.unsqueeze(-2) @ rest))
        out[..., i:, i] = v
        out[..., i, i] = where(none, -new.sign(), new.sign())
    return out


class Orthogonal(Module):
    """A matrix with orthonormal columns, or rows if there are fewer, made of any of its shape.

    orthogonal_map: a name of ``MAPS``. use_trivialization: as a factor behind ``base``, the matrix
    that was assigned (Lezcano-Casado, 2019), so that any may be.
    """

    base: Tensor

    def __init__(self, weight: Tensor, orthogonal_map: str, *, use_trivialization: bool = True):
        super().__init__()
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        """The matrix."""
        wide = X.shape[-2] < X.shape[-1]
        q = MAPS[self.orthogonal_map](X.mT if wide else X)
        if hasattr(self, "base"):
            q = self.base @ q
        return q.mT if wide else q

    def right_inverse(self, Q: Tensor) -> Tensor:
        """What is to be learned, so that the matrix is ``Q``, or the nearest by its QR factors."""
        if Q.shape != self.shape:
            raise ValueError(
                f"orthogonal: the weight is of shape {list(self.shape)}, but what was assigned is "
                f"{list(Q.shape)}."
            )
        with no_grad():
            wide = Q.shape[-2] < Q.shape[-1]
            given = Q.mT if wide else Q
            if not hasattr(self, "base"):
                return self._without_base(given, wide)
            n, k = given.shape[-2:]
            if n != k:
                more = new_empty((*given.shape[:-1], n - k), Q.dtype, Q.device).normal_(0, 1)
                given = cat([given, more], -1)
            held = n == k and _is_orthonormal(given)
            self.base = given.clone() if held else _orthonormal(given)
            return -_identity(Q, *Q.shape[-2:]).expand(Q.shape).clone()

    def _without_base(self, given: Tensor, wide: bool) -> Tensor:
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                f"orthogonal: with use_trivialization=False only the map 'householder' can be "
                f"assigned to, this one is {self.orthogonal_map!r}."
            )
        found = _reflectors(given)
        return found.mT if wide else found


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Module:
    """Keep the columns of a weight (..., n, k) orthonormal, or if n < k its rows.

    orthogonal_map: "matrix_exp" (the exponential of ``A - A.T``), "cayley" (``(I + A / 2) /
    (I - A / 2)`` of it), or "householder" (a product of reflections); by default the first for
    squares, else the last. use_trivialization: multiply what these give by the matrix that was last
    assigned; without it only "householder" can be assigned to. Returns the module.

    >>> layer = orthogonal(ng.nn.Linear(3, 3))
    >>> (layer.weight @ layer.weight.T).allclose(ng.eye(3), atol=1e-6)
    True
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(
            f"orthogonal: {type(module).__name__} has no parameter or buffer {name!r}."
        )
    if weight.dim() < 2:
        raise ValueError(
            f"orthogonal: {name} must be a matrix or a batch of matrices, but has shape "
            f"{list(weight.shape)}."
        )
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square else "householder"
    if orthogonal_map not in MAPS:
        raise ValueError(
            f"orthogonal: orthogonal_map must be one of {', '.join(map(repr, MAPS))}, got "
            f"{orthogonal_map!r}."
        )
    made = Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    return register_parametrization(module, name, made, unsafe=True)
