"""``RAdam`` where PyTorch's programs look for it; it is in ``betas.py``."""

from .betas import RAdam

__all__ = ["RAdam"]
