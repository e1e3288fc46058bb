"""``Adamax`` where PyTorch's programs look for it; it is in ``betas.py``."""

from .betas import Adamax

__all__ = ["Adamax"]
