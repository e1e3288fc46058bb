"""Tools around training: ``checkpoint``."""

from . import checkpoint

__all__ = ["checkpoint"]
