"""``NAdam`` where PyTorch's programs look for it; it is in ``betas.py``."""

from .betas import NAdam

__all__ = ["NAdam"]
