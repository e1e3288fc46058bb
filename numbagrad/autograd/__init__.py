"""Automatic differentiation for users: ``Function``, ``grad``, grad modes, ``gradcheck``."""

from typing import TYPE_CHECKING

from ..later import asked_for
from . import functional, grad_mode, graph
from .anomaly import detect_anomaly, set_detect_anomaly
from .function import Function, FunctionCtx, once_differentiable
from .modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .passes import backward, grad
from .variable import Variable

if TYPE_CHECKING:
    from .differences import gradcheck, gradgradcheck

__all__ = [
    "Function",
    "FunctionCtx",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "functional",
    "grad",
    "grad_mode",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "once_differentiable",
    "set_detect_anomaly",
    "set_grad_enabled",
]

__getattr__ = asked_for(__name__, {"gradcheck": "differences", "gradgradcheck": "differences"})


def __dir__() -> list[str]:
    return [*globals(), *__all__]
