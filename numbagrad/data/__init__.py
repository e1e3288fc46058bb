"""Datasets, samplers and the loader that makes batches of them."""

from . import collate, dataset, distributed, loader, sampler, worker_info
from .collate import *  # noqa: F403
from .dataset import *  # noqa: F403
from .distributed import *  # noqa: F403
from .loader import *  # noqa: F403
from .sampler import *  # noqa: F403
from .worker_info import *  # noqa: F403

__all__ = [
    *collate.__all__,
    *dataset.__all__,
    *distributed.__all__,
    *loader.__all__,
    *sampler.__all__,
    *worker_info.__all__,
]
