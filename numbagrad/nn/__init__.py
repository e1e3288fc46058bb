"""Neural networks: modules, their functional twins, initialisation, work on parameters."""

from . import attention, functional, init, modules, utils
from .modules import *  # noqa: F403
from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

__all__ = [
    "Buffer",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "attention",
    "functional",
    "init",
    "modules",
    "utils",
    *modules.__all__,
]
