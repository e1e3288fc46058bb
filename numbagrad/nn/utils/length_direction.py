"""The older weight normalisation: ``weight_g`` and ``weight_v`` stand in the module itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...autograd.modes import no_grad
from ...tensor import Tensor
from ..modules.module import Module
from ..parameter import Parameter
from .computed import compute, computed_from, forget, refuse_writing
from .parametrizations import norm_except_dim

__all__ = ["remove_weight_norm", "weight_norm"]


def _reader(name: str, dim: int) -> Callable[[Any], Tensor]:
    def read(module: Any) -> Tensor:
        v = getattr(module, f"{name}_v")
        return v * (getattr(module, f"{name}_g") / norm_except_dim(v, dim))

    return read


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Learn the length ``weight_g`` and the direction ``weight_v`` of a weight; returns the module.

    As ``parametrizations.weight_norm``, but for the names of the parameters. dim: the dimension of
    the outputs, each of which has its own length; None for one length.
    Raises RuntimeError where the weight is normed already.

    >>> [n for n, _ in weight_norm(ng.nn.Linear(3, 2)).named_parameters()]
    ['bias', 'weight_g', 'weight_v']
    """
    if computed_from(module, f"{name}_g"):
        raise RuntimeError(
            f"weight_norm: Cannot register two weight_norm hooks on the same parameter {name}."
        )
    weight = module._parameters.get(name)
    if weight is None:
        raise ValueError(f"weight_norm: {type(module).__name__} has no parameter {name!r}.")
    axis = -1 if dim is None else dim
    with no_grad():
        g = norm_except_dim(weight.detach(), axis)
    delattr(module, name)
    module.register_parameter(f"{name}_g", Parameter(g))
    module.register_parameter(f"{name}_v", Parameter(weight.data))
    write = refuse_writing(name, f"{name}_g and {name}_v", "weight_norm")
    compute(module, name, _reader(name, axis), write)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make what ``weight_norm`` split one Parameter again; returns the module.

    Raises ValueError if the weight is not normed.
    """
    if not computed_from(module, f"{name}_g"):
        raise ValueError(f"remove_weight_norm: weight_norm of '{name}' not found in {module}.")
    with no_grad():
        weight = getattr(module, name).detach().clone()
    forget(module, name)
    delattr(module, f"{name}_g")
    delattr(module, f"{name}_v")
    module.register_parameter(name, Parameter(weight))
    return module
