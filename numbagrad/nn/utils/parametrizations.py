"""Parametrizations to use: ``weight_norm spectral_norm``, and ``orthogonal``."""

from __future__ import annotations

from ...autograd.modes import no_grad
from ...errors import ShapeError
from ...ops.base import new_empty
from ...tensor import Tensor
from .. import functional
from ..modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ..modules.module import Module
from .orthonormal import orthogonal
from .parametrize import register_parametrization

__all__ = ["norm_except_dim", "orthogonal", "spectral_norm", "weight_norm"]


def norm_except_dim(v: Tensor, dim: int) -> Tensor:
    """The 2-norms over all dims but ``dim``, which are kept with size 1; -1: one norm, 0-d."""
    if dim == -1:
        return v.norm()
    rest = tuple(d for d in range(v.dim()) if d != dim % v.dim())
    return v.norm(2, rest, keepdim=True) if rest else v.abs()


class WeightNorm(Module):
    """``g v / norm(v)``, of the length g and the direction v."""

    def __init__(self, dim: int | None = 0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, g: Tensor, v: Tensor) -> Tensor:
        """The weight."""
        return v * (g / norm_except_dim(v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Length and direction of ``weight``."""
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Learn the length and the direction of a weight apart (Salimans and Kingma, 2016).

    dim: the dimension of the outputs, each of which has its own length; None for one length. The
    parameters are ``parametrizations.<name>.original0`` (lengths) and ``original1``. Returns the
    module.

    >>> layer = weight_norm(ng.nn.Linear(3, 2))
    >>> [tuple(p.shape) for p in layer.parameters()]
    [(2,), (2, 1), (2, 3)]
    """
    return register_parametrization(module, name, WeightNorm(dim), unsafe=True)


def check_spectral_norm(weight: Tensor, name: str, n_power_iterations: int, dim: int) -> int:
    """``dim`` counted from 0; refuse what spectral normalisation cannot take."""
    if not weight.numel():
        raise ShapeError(f"spectral_norm: {name} is empty, of shape {list(weight.shape)}.")
    rank = weight.dim()
    if not -rank <= dim < rank:
        raise IndexError(
            f"spectral_norm: Dimension out of range (expected to be in range of [-{rank}, "
            f"{rank - 1}] but got {dim})."
        )
    if n_power_iterations <= 0:
        raise ValueError(
            f"spectral_norm: Expected n_power_iterations to be positive, but got "
            f"n_power_iterations={n_power_iterations}."
        )
    return dim % rank


def outputs_dim(module: Module) -> int:
    """The dimension of the outputs in a weight of ``module``."""
    turned = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
    return 1 if isinstance(module, turned) else 0


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """``weight`` with ``dim`` first, the others flattened."""
    rows = weight.movedim(dim, 0)
    return rows.flatten(1) if rows.dim() > 1 else rows.unsqueeze(1)


def improve(
    matrix: Tensor, u: Tensor, v: Tensor, times: int, eps: float, v_first: bool = False
) -> None:
    """Power iterations: bring u and v closer to the singular vectors of the largest value."""
    halves = [(u, matrix, v), (v, matrix.t(), u)]
    for _ in range(times):
        for held, factor, other in reversed(halves) if v_first else halves:
            held.copy_(functional.normalize(factor.mv(other), dim=0, eps=eps))


class SpectralNorm(Module):
    """``weight`` over its largest singular value, found by power iterations while training."""

    _u: Tensor
    _v: Tensor

    def __init__(
        self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ):
        super().__init__()
        self.dim, self.eps = check_spectral_norm(weight, "weight", n_power_iterations, dim), eps
        self.n_power_iterations = n_power_iterations
        if weight.dim() > 1:
            with no_grad():
                matrix = as_matrix(weight.detach(), self.dim)
                for name, size in zip(("_u", "_v"), matrix.shape, strict=True):
                    start = new_empty((size,), weight.dtype, weight.device).normal_(0, 1)
                    self.register_buffer(name, functional.normalize(start, dim=0, eps=eps))
                improve(matrix, self._u, self._v, 15, eps)

    def forward(self, weight: Tensor) -> Tensor:
        """The weight, scaled."""
        if weight.dim() == 1:
            return functional.normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            with no_grad():
                improve(matrix.detach(), self._u, self._v, self.n_power_iterations, self.eps)
        u, v = self._u.clone(), self._v.clone()  # a second forward changes them before backward
        return weight / u.dot(matrix.mv(v))

    def right_inverse(self, value: Tensor) -> Tensor:
        """``value``: it is taken to be of norm 1."""
        return value


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a weight by its spectral norm (Miyato et al., 2018); returns the module.

    dim: the dimension of the outputs; by default 0, and 1 in transposed convolutions. The norm is
    that of the weight as a matrix, from the vectors ``parametrizations.<name>.0._u`` and ``_v``,
    which each reading of the weight while training moves by n_power_iterations.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(
            f"spectral_norm: Module '{module}' has no parameter or buffer with name '{name}'."
        )
    dim = check_spectral_norm(
        weight, name, n_power_iterations, outputs_dim(module) if dim is None else dim
    )
    made = SpectralNorm(weight, n_power_iterations, dim, eps)
    return register_parametrization(module, name, made)
