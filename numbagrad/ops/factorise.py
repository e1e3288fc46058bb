"""Factors of matrices and what is made of them: qr, eigh, svd, pinv, lstsq; part of ``ng.linalg``.

Where vectors are determined only up to sign, or up to a rotation among equal values, so is the
gradient: a loss must not depend on which of them LAPACK returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import dtypes
from ..errors import DTypeError, GradError, ShapeError
from ..kernels import machine
from ..kernels.cpu import lapack as kernels
from ..tensor import Tensor
from .base import Op, as_operand, broadcast_shape, full, new_empty, ones_like
from .comparison import logical_and
from .create import eye
from .elementwise import where
from .join import stack
from .lapack_arguments import matrix, named, of_batch, of_each
from .linalg import matmul
from .part import diag_embed, narrow
from .remembered import remembered
from .shape import tril
from .view import unsqueeze

__all__ = ["eigh", "lstsq", "pinv", "qr", "svd", "vander"]


class QR(NamedTuple):
    """The factors of ``Q @ R``."""

    Q: Tensor
    R: Tensor


class Eigh(NamedTuple):
    """Values in ascending order, and the vectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class SVD(NamedTuple):
    """The factors of ``U @ diag(S) @ Vh``."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class LeastSquares(NamedTuple):
    """A solution, the squares of what it misses, the rank, and singular values."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def _over(x: Tensor, y: Tensor) -> Tensor:
    """x divided by y, element by element, 0 where both are: no gradient, no matter the gap."""
    return where(logical_and(x.eq(0), y.eq(0)), x * 0, x / y)


def _over_beside_diagonal(x: Tensor, y: Tensor) -> Tensor:
    """``_over``, but 0 on the diagonal, where y is not looked at."""
    on = eye(x._array.shape[-1], dtype=x._dtype)
    return where(on.ne(0), x * 0, _over(x, y * (1 - on) + on))


# -- QR --------------------------------------------------------------------------------------------


class Qr(Op):
    """An orthogonal matrix times an upper triangle.

    Gradient: Walter and Lehmann (2010) for m >= n; for m < n the columns beyond the square are
    ``Q.T`` of the input's (Roberts and Roberts, 2020).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, complete: bool) -> tuple:
        *batch, m, n = x._array.shape
        k = m if complete else min(m, n)
        q = new_empty((*batch, m, k), x._dtype, x._device)
        r = new_empty((*batch, k, n), x._dtype, x._device)
        machine.launch(kernels.qr, q._array, r._array, x._array)
        ctx.save(x, q, r)
        return q, r

    @staticmethod
    def backward(ctx: Any, gq: Tensor, gr: Tensor) -> Tensor:
        x, q, r = ctx.saved_tensors
        m, n = x._array.shape[-2:]
        if q._array.shape[-1] > n:
            raise GradError(
                f"linalg.qr: The QR decomposition is not differentiable when mode='complete' and "
                f"nrows > ncols ({m} > {n}). Use mode='reduced'."
            )
        if m >= n:
            return _qr_gradient(q, r, gq, gr)
        square, rest = narrow(r, -1, 0, m), narrow(x, -1, m, n - m)
        grest = narrow(gr, -1, m, n - m)
        gfirst = _qr_gradient(q, square, gq + matmul(rest, grest.mT), narrow(gr, -1, 0, m))
        from .join import cat

        return cat([gfirst, matmul(q, grest)], -1)


def _qr_gradient(q: Tensor, r: Tensor, gq: Tensor, gr: Tensor) -> Tensor:
    from .lapack_solve import SolveTriangular

    return SolveTriangular.apply(r, _beside_triangle(q, r, gq, gr).mT, True, False).mT


@remembered
def _beside_triangle(q: Tensor, r: Tensor, gq: Tensor, gr: Tensor) -> Tensor:
    """The gradient of QR times the transpose of ``r``."""
    middle = matmul(r, gr.mT) - matmul(gq.mT, q)
    middle = tril(middle) + tril(middle, -1).mT
    return gq + matmul(q, middle)


def qr(x: Tensor, mode: str = "reduced") -> QR:
    """Q with orthonormal columns and the upper triangle R, ``Q @ R == x``; x (..., m, n).

    mode: "reduced", Q (..., m, min(m, n)); "complete", Q (..., m, m); "r", Q empty. Differentiable
    if the first min(m, n) columns are independent, and not for "complete" with m > n.

    >>> Q, R = qr(tensor([[3.0], [4.0]]))
    >>> (Q @ R).allclose(tensor([[3.0], [4.0]]))
    True
    """
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(
            f"linalg.qr: received unrecognized mode {mode!r}; use 'reduced', 'complete' or 'r'."
        )
    q, r = Qr.apply(matrix("qr", x), mode == "complete")
    return QR(new_empty((0,), x._dtype, x._device) if mode == "r" else q, r)


# -- symmetric eigenvalues -------------------------------------------------------------------------


class EighOp(Op):
    """Eigenvalues and vectors of a symmetric matrix (gradient: Giles, 2008, section 3.1)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, upper: bool) -> tuple:
        values = new_empty(x._array.shape[:-1], x._dtype, x._device)
        vectors = new_empty(x._array.shape, x._dtype, x._device)
        arrays = values._array, vectors._array, x._array
        machine.launch(named(kernels.eigh, "eigh"), *arrays, upper)
        ctx.save(values, vectors)
        return values, vectors

    @staticmethod
    def backward(ctx: Any, gvalues: Tensor, gvectors: Tensor) -> Tensor:
        values, vectors = ctx.saved_tensors
        gaps = values.unsqueeze(-2) - values.unsqueeze(-1)
        turn = matmul(vectors.mT, gvectors)
        turn = (turn - turn.mT) / 2  # so that the gradient is symmetric, as x is
        inner = _over_beside_diagonal(turn, gaps) + diag_embed(gvalues)
        return matmul(matmul(vectors, inner), vectors.mT)


def eigh(x: Tensor, UPLO: str = "L") -> Eigh:
    """Eigenvalues, ascending, and orthonormal eigenvectors (columns) of symmetric matrices.

    Only the lower triangle of x is read, or the upper one for UPLO="U"; the gradient is that of the
    whole symmetric matrix. The gradient through the vectors needs distinct eigenvalues.

    >>> eigh(tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues.tolist()
    [1.0, 2.0]
    """
    if UPLO not in ("L", "U"):
        raise ValueError(f"linalg.eigh: Expected UPLO argument to be 'L' or 'U', but got {UPLO!r}.")
    return Eigh(*EighOp.apply(matrix("eigh", x, square=True), UPLO == "U"))


# -- singular values -------------------------------------------------------------------------------


class Svd(Op):
    """Singular values and vectors (gradient: Townsend, 2016, equation 17 for each factor)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, full_matrices: bool) -> tuple:
        *batch, m, n = x._array.shape
        k = min(m, n)
        u = new_empty((*batch, m, m if full_matrices else k), x._dtype, x._device)
        s = new_empty((*batch, k), x._dtype, x._device)
        vh = new_empty((*batch, n if full_matrices else k, n), x._dtype, x._device)
        machine.launch(named(kernels.svd, "svd"), u._array, s._array, vh._array, x._array)
        ctx.save(u, s, vh)
        return u, s, vh

    @staticmethod
    def backward(ctx: Any, gu: Tensor, gs: Tensor, gvh: Tensor) -> Tensor:
        u, s, vh = ctx.saved_tensors
        k = s._array.shape[-1]
        for g, dim in ((gu, -1), (gvh, -2)):
            extra = g._array.shape[dim] - k
            if extra and bool(narrow(g, dim, k, extra).ne(0).any()):
                raise GradError(
                    "linalg.svd: the singular vectors beyond the smaller dimension are not "
                    "determined by the input and have no gradient. Use full_matrices=False."
                )
        u, gu = narrow(u, -1, 0, k), narrow(gu, -1, 0, k)
        v, gv = narrow(vh, -2, 0, k).mT, narrow(gvh, -2, 0, k).mT
        row, column = s.unsqueeze(-2), s.unsqueeze(-1)
        gaps = (row - column) * (row + column)
        turn_u, turn_v = matmul(u.mT, gu), matmul(v.mT, gv)
        inner = (
            _over_beside_diagonal(turn_u - turn_u.mT, gaps) * row
            + _over_beside_diagonal(turn_v - turn_v.mT, gaps) * column
        )
        out = matmul(matmul(u, inner + diag_embed(gs)), v.mT)
        if u._array.shape[-2] > k:
            out = out + matmul(_over(gu - matmul(u, turn_u), row), v.mT)
        if v._array.shape[-2] > k:
            out = out + matmul(u, _over(gv - matmul(v, turn_v), row).mT)
        return out


def svd(x: Tensor, full_matrices: bool = True) -> SVD:
    """``U @ diag(S) @ Vh == x`` with orthonormal columns of U and rows of Vh, S descending.

    x (..., m, n), k the smaller of m and n: S (..., k); U (..., m, m) and Vh (..., n, n), or
    (..., m, k) and (..., k, n) without full_matrices. The gradient through the vectors needs
    distinct singular values, above 0 unless m == n; the vectors beyond k have none.

    >>> svd(tensor([[0.0, 2.0], [1.0, 0.0]])).S.tolist()
    [2.0, 1.0]
    """
    return SVD(*Svd.apply(matrix("svd", x), bool(full_matrices)))


# -- what needs no full rank -----------------------------------------------------------------------


def _pinv_gradient(x: Tensor, out: Tensor, g: Tensor) -> Tensor:
    """Golub and Pereyra (1973), equation 4.12, transposed; no matrix is larger than x."""
    m, n = x._array.shape[-2:]
    if m < n:
        return _pinv_gradient(x.mT, out.mT, g.mT).mT
    turned = out.mT
    first = matmul(g.mT, matmul(out, turned))
    inner = matmul(g, turned)
    last = inner.mT - matmul(inner.mT, matmul(out, x)) - inner
    return first - matmul(x, matmul(out, first)) + matmul(turned, last)


class Pinv(Op):
    """The pseudo-inverse of Moore and Penrose, of matrices whose rank does not change nearby."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rcond: float, atol: float) -> Tensor:
        *batch, m, n = x._array.shape
        out = new_empty((*batch, n, m), x._dtype, x._device)
        machine.launch(named(kernels.pinv, "pinv"), out._array, x._array, rcond, atol)
        ctx.save(x, out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        x, out = ctx.saved_tensors
        return _pinv_gradient(x, out, g)


def _rcond(x: Tensor, rcond: float | None) -> float:
    """PyTorch's default: the precision of the dtype times the larger dimension."""
    return dtypes.finfo(x._dtype).eps * max(x._array.shape[-2:]) if rcond is None else float(rcond)


def pinv(
    x: Tensor,
    rcond: float | None = None,
    hermitian: bool = False,
    *,
    atol: float | None = None,
    rtol: float | None = None,
) -> Tensor:
    """The pseudo-inverses (..., n, m) of matrices (..., m, n).

    Singular values below atol, or below rcond (or rtol, its newer name) times the largest, count as
    0; rcond: by default the dtype's eps times the larger of m and n, or 0 where atol is more than
    0. hermitian: x is symmetric. The gradient holds where the rank stays the same.

    >>> pinv(tensor([[2.0], [0.0]])).tolist()
    [[0.5, 0.0]]
    """
    x = matrix("pinv", x, square=hermitian)
    if not isinstance(atol, (int, float, type(None))):
        raise TypeError(
            f"linalg.pinv: atol must be a number, got {type(atol).__name__}. Where limits differ "
            f"call it for each matrix."
        )
    relative = rtol if rcond is None else rcond
    if atol and relative is None:
        relative = 0.0
    return Pinv.apply(x, _rcond(x, relative), float(atol or 0.0))


class Lstsq(Op):
    """The shortest solution of a least squares problem; gradient: that of ``pinv(x) @ y``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, rcond: float) -> tuple:
        *batch, _, n = x._array.shape
        out = new_empty((*batch, n, y._array.shape[-1]), x._dtype, x._device)
        rank = new_empty(batch, dtypes.int64, x._device)
        left = new_empty((*batch, y._array.shape[-1]), x._dtype, x._device)
        arrays = out._array, rank._array, left._array, x._array, y._array
        machine.launch(named(kernels.lstsq, "lstsq"), *arrays, rcond)
        ctx.save(x, y)
        ctx.rcond = rcond
        return out, rank, left

    @staticmethod
    def backward(ctx: Any, g: Tensor, *_: Any) -> tuple:
        x, y = ctx.saved_tensors
        inverse = Pinv.apply(x, ctx.rcond, 0.0)
        gx = _pinv_gradient(x, inverse, matmul(g, y.mT)) if ctx.needs_input_grad[0] else None
        return gx, matmul(inverse.mT, g)


def lstsq(
    x: Tensor, y: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> LeastSquares:
    """The solution of least norm that makes ``x @ solution`` nearest to y; y (..., m, k), or one
    vector (m) for each matrix: the solution is one then too.

    residuals: the sums of squares of what is missed, where m > n and the rank is n, else empty;
    they carry no gradient. rank int64, of each x; empty for driver "gels", which supposes full
    rank. singular_values: of each x for "gelsd" and "gelss", else empty. Those, and "gelsy", the
    default, are LAPACK's ways to the same solution: here all go one way.

    >>> lstsq(tensor([[1.0], [1.0]]), tensor([[1.0], [3.0]])).solution.tolist()
    [[2.0]]
    """
    matrix("lstsq", x)
    vector = as_operand("lstsq", y)._array.shape == x._array.shape[:-1]
    if vector:
        y = unsqueeze(y, -1)
    if y._array.ndim < 2:
        raise ShapeError(
            f"linalg.lstsq: B must be matrices (..., m, k), or a vector (m) for each matrix A "
            f"(..., m, n), got A {list(x._array.shape)} and B {list(y._array.shape)}."
        )
    matrix("lstsq", y)
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise ValueError(
            f"linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss), got "
            f"{driver!r}."
        )
    if x._dtype is not y._dtype:
        raise DTypeError(
            f"linalg.lstsq: Expected A and B of the same dtype, got {x._dtype} and {y._dtype}."
        )
    m, n = x._array.shape[-2:]
    if y._array.shape[-2] != m:
        raise ShapeError(
            f"linalg.lstsq: input.size(-2) should match other.size(-2), got A "
            f"{list(x._array.shape)} and B {list(y._array.shape)}."
        )
    batch = broadcast_shape("linalg.lstsq", x._array.shape[:-2], y._array.shape[:-2])
    every = of_batch(x, batch)
    solution, rank, left = Lstsq.apply(every, of_batch(y, batch), _rcond(x, rcond))
    none = new_empty((0,), x._dtype, x._device)
    known = m > n and not machine.recording and bool((rank._array == n).all())
    values = none
    if driver in ("gelsd", "gelss"):
        from .spectra import svdvals

        values = svdvals(x.detach())
    rank = of_each(rank, x._array.shape[:-2])
    rank = new_empty((0,), dtypes.int64, x._device) if driver == "gels" else rank
    if vector:
        solution = solution.squeeze(-1)
    return LeastSquares(solution, left.detach() if known else none, rank, values)


@remembered
def vander(x: Tensor, N: int | None = None, *, increasing: bool = False) -> Tensor:
    """The powers of a vector as columns: ``x ** (N - 1)`` to ``x ** 0``, or the other way round.

    N: how many, by default as many as x has elements. (``linalg.vander`` of PyTorch increases.)

    >>> vander(tensor([2, 3])).tolist()
    [[2, 1], [3, 1]]
    """
    if as_operand("vander", x)._array.ndim != 1:
        raise ShapeError(f"vander: x must be a one-dimensional tensor, got {list(x._array.shape)}.")
    count = x._array.size if N is None else N
    if count < 0:
        raise ValueError(f"vander: N must be non-negative, got {N}.")
    if not count:
        return full((x._array.size, 0), 0, x._dtype, x._device)
    return powers(x, range(count) if increasing else range(count)[::-1])


def powers(x: Tensor, exponents: Sequence[int]) -> Tensor:
    """``x`` to each of ``exponents``, along a new last dimension; of bools int64."""
    x = x.long() if x._dtype is dtypes.bool_ else x
    return stack([x**k if k else ones_like(x) for k in exponents], -1)
