"""``DataLoader``: batches of a dataset, in order or shuffled.

A dataset that can collate by itself (tensors in memory) is asked for a whole batch with a slice or
an index tensor: one op per tensor. Start reading at ``DataLoader.__iter__``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..ops.create import tensor
from .collate import default_collate
from .dataset import IterableDataset, batch_fetcher
from .sampler import BatchSampler, RandomSampler, SequentialSampler

__all__ = ["DataLoader"]


class DataLoader:
    """Iterates over batches of ``dataset``.

    batch_size: None gives single samples, not collated. shuffle: a new random order each time.
    sampler, batch_sampler: other orders of indices, or of lists of them. drop_last: leave out a
    shorter last batch. collate_fn: makes a batch of a list of samples. generator: the random
    numbers of the order; after ``manual_seed`` or with a seeded one the order repeats.
    num_workers: 0; the other arguments of PyTorch's loader that move work elsewhere do not exist.

    >>> import numbagrad as ng
    >>> from numbagrad.data import TensorDataset
    >>> loader = DataLoader(TensorDataset(ng.arange(5)), batch_size=2)
    >>> [x.tolist() for (x,) in loader]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[list[int]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        *,
        generator: Any = None,
    ):
        if num_workers != 0:
            raise NotImplementedError(
                f"DataLoader: num_workers={num_workers} is not implemented; samples are loaded in "
                f"this process. Use num_workers=0."
            )
        if isinstance(dataset, IterableDataset):
            if shuffle or sampler is not None or batch_sampler is not None:
                raise ValueError(
                    "DataLoader with IterableDataset: expected unspecified shuffle, sampler and "
                    "batch_sampler option; the dataset gives the order."
                )
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, "
                    "and drop_last"
                )
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError(
                "batch_size=None option disables auto-batching and is mutually exclusive with "
                "drop_last"
            )
        elif batch_size is not None and (not isinstance(batch_size, int) or batch_size <= 0):
            raise ValueError(
                f"batch_size should be a positive integer value, but got batch_size={batch_size}"
            )
        if not isinstance(dataset, IterableDataset) and sampler is None and batch_sampler is None:
            if shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        self.dataset = dataset
        self.batch_size = batch_size
        self.sampler = sampler
        if batch_sampler is None and sampler is not None and batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_sampler = batch_sampler
        self.num_workers = 0
        self.pin_memory = pin_memory
        self.drop_last = drop_last
        self.generator = generator
        self.collate_fn = default_collate if collate_fn is None else collate_fn

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.dataset, IterableDataset):
            return self._stream()
        if self.batch_sampler is None:
            return (self.dataset[index] for index in self.sampler)  # type: ignore[union-attr]
        fetch = batch_fetcher(self.dataset)
        if fetch is not None and self.collate_fn is default_collate:
            return map(fetch, self._index_batches())
        return (self.collate_fn(self._samples(indices)) for indices in self.batch_sampler)

    def _index_batches(self) -> Iterator[Any]:
        """The batches' indices: slices where they follow each other, else index tensors."""
        batches: Any = self.batch_sampler
        sampler: Any = self.sampler
        if type(batches) is not BatchSampler or type(sampler) not in (
            SequentialSampler,
            RandomSampler,
        ):
            for indices in batches:
                yield tensor(indices)
            return
        n, size = len(sampler), batches.batch_size
        order = sampler.order() if type(sampler) is RandomSampler else None
        for start in range(0, n - size + 1 if batches.drop_last else n, size):
            part = slice(start, min(start + size, n))
            yield part if order is None else order[part]

    def _samples(self, indices: list[int]) -> list[Any]:
        fetch = getattr(self.dataset, "__getitems__", None)
        if fetch is not None:
            return fetch(indices)
        return [self.dataset[index] for index in indices]

    def _stream(self) -> Iterator[Any]:
        samples = iter(self.dataset)
        if self.batch_size is None:
            yield from samples
            return
        while batch := list(itertools.islice(samples, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self.collate_fn(batch)

    def __len__(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            n = len(self.dataset)  # type: ignore[arg-type]
            if self.batch_size is None:
                return n
            return n // self.batch_size if self.drop_last else -(-n // self.batch_size)
        held: Any = self.sampler if self.batch_sampler is None else self.batch_sampler
        return len(held)
