"""The loader, and how it makes batches, where PyTorch's programs look for them."""

from ...data import collate, loader
from ...data.collate import *  # noqa: F403
from ...data.loader import *  # noqa: F403

__all__ = [*collate.__all__, *loader.__all__]
