"""``Normal`` where PyTorch's programs look for it."""

from .location_scale import Normal

__all__ = ["Normal"]
