"""``AdamW`` where PyTorch's programs look for it; it is in ``adam.py``."""

from .adam import AdamW

__all__ = ["AdamW"]
