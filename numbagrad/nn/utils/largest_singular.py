"""The older spectral normalisation: ``weight_orig``, ``weight_u`` and ``weight_v`` stand in the
module itself, and the vectors move at each call of the module while it trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...autograd.modes import no_grad
from ...ops.base import new_empty
from ...tensor import Tensor
from .. import functional
from ..modules.module import Module
from ..parameter import Parameter
from .computed import compute, computed_from, forget, refuse_writing
from .parametrizations import as_matrix, check_spectral_norm, improve, outputs_dim

__all__ = ["remove_spectral_norm", "spectral_norm"]


class _Iterations:
    """The hook that moves u and v before a call of the module."""

    def __init__(self, name: str, times: int, dim: int, eps: float):
        self.name, self.times, self.dim, self.eps = name, times, dim, eps

    def __call__(self, module: Any, args: tuple[Any, ...]) -> None:
        if module.training:
            with no_grad():
                original, u, v = _parts(module, self.name)
                matrix = as_matrix(original.detach(), self.dim)
                improve(matrix, u, v, self.times, self.eps, v_first=True)


def _parts(module: Any, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """What the weight is computed from: the original, u and v."""
    original, u, v = [getattr(module, f"{name}_{part}") for part in ("orig", "u", "v")]
    return original, u, v


def _reader(name: str, dim: int) -> Callable[[Any], Tensor]:
    def read(module: Any) -> Tensor:
        original, u, v = _parts(module, name)
        u, v = u.clone(), v.clone()  # a second forward changes them before backward
        return original / u.dot(as_matrix(original, dim).mv(v))

    return read


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a weight by its spectral norm (Miyato et al., 2018); returns the module.

    As ``parametrizations.spectral_norm``, but for the names of what it is computed from, and for
    the vectors: they start at random and move by n_power_iterations at each call of the module
    while training, not at each reading of the weight. dim: the dimension of the outputs; by default
    0, and 1 in transposed convolutions.
    Raises RuntimeError where the weight is normed already.

    >>> sorted(spectral_norm(ng.nn.Linear(3, 2)).state_dict())
    ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    if computed_from(module, f"{name}_orig"):
        raise RuntimeError(
            f"spectral_norm: Cannot register two spectral_norm hooks on the same parameter {name}."
        )
    weight = module._parameters.get(name)
    if weight is None:
        raise ValueError(f"spectral_norm: {type(module).__name__} has no parameter {name!r}.")
    axis = check_spectral_norm(
        weight, name, n_power_iterations, outputs_dim(module) if dim is None else dim
    )
    with no_grad():
        matrix = as_matrix(weight.detach(), axis)
        starts = [new_empty((n,), weight.dtype, weight.device).normal_(0, 1) for n in matrix.shape]
        starts = [functional.normalize(start, dim=0, eps=eps) for start in starts]
    delattr(module, name)
    module.register_parameter(f"{name}_orig", weight)
    for part, start in zip("uv", starts, strict=True):
        module.register_buffer(f"{name}_{part}", start)
    parts = f"{name}_orig, {name}_u and {name}_v"
    compute(module, name, _reader(name, axis), refuse_writing(name, parts, "spectral_norm"))
    module.register_forward_pre_hook(_Iterations(name, n_power_iterations, axis, eps))
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Make a weight under ``spectral_norm`` the Parameter that it came to; returns the module.

    Raises ValueError if the weight is not normed.
    """
    if not computed_from(module, f"{name}_orig"):
        raise ValueError(f"remove_spectral_norm: spectral_norm of '{name}' not found in {module}.")
    with no_grad():
        weight = getattr(module, name).detach().clone()
    parameter: Any = getattr(module, f"{name}_orig")
    forget(module, name)
    for part in ("orig", "u", "v"):
        delattr(module, f"{name}_{part}")
    hooks: Any = (module._hooks or {}).get("forward_pre", {})
    for key, hook in list(hooks.items()):
        if isinstance(hook, _Iterations) and hook.name == name:
            del hooks[key]
    module.register_parameter(name, Parameter(weight, parameter.requires_grad))
    return module
