"""The part of a dataset that one of several processes goes over."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ..ops.random import randperm
from ..random import Generator
from .sampler import Sampler

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler):
    """Every ``num_replicas``-th index of an order that processes share, from the ``rank``-th on.

    Numbagrad starts no processes: num_replicas says how many there are, rank which this is. All of
    them take num_samples indices, total_size together: the first ones again at the end, or with
    drop_last none of the last. shuffle: a random order, of ``seed`` and the epoch that
    ``set_epoch`` told; without a call before each epoch the order is the same. Raises ValueError if
    rank is none of 0 to num_replicas - 1.

    >>> list(DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False))
    [1, 3, 0]
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ):
        if num_replicas is None or rank is None:
            raise ValueError(
                "DistributedSampler: num_replicas and rank are needed: numbagrad knows of no other "
                "process. Pass how many there are, and which of them this is."
            )
        if not 0 <= rank < num_replicas:
            raise ValueError(
                f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]"
            )
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        self.shuffle = shuffle
        self.seed = seed
        each = len(dataset) / num_replicas
        self.num_samples = math.floor(each) if drop_last else math.ceil(each)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        n = len(self.dataset)
        order = list(range(n))
        if self.shuffle:
            order = randperm(n, generator=Generator().manual_seed(self.seed + self.epoch)).tolist()
        if n and not self.drop_last:
            order *= -(-self.total_size // n)
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Let the next order be that of ``epoch``."""
        self.epoch = epoch
