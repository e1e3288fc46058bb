"""``numbagrad.data`` where PyTorch's programs look for it."""

from ...data import *  # noqa: F403
from ...data import __all__ as __all__
from . import dataloader, dataset, distributed, sampler  # noqa: F401
