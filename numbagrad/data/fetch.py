"""From indices to a batch: what a loader does here or in its workers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .collate import default_collate
from .dataset import IterableDataset, batch_fetcher

__all__: list[str] = []


@dataclass(frozen=True)
class Fetcher:
    """The parts of a loader that a worker needs.

    single: whether a sample is a batch; collate_fn gets it as it is. batch_size: of a stream, or
    None.
    """

    dataset: Any
    collate_fn: Callable[[Any], Any]
    batch_size: int | None
    drop_last: bool
    single: bool

    @property
    def is_stream(self) -> bool:
        """Whether the dataset gives the order."""
        return isinstance(self.dataset, IterableDataset)

    @property
    def whole(self) -> Callable[[Any], Any] | None:
        """What makes a batch of an index tensor or a slice, if the dataset can."""
        if self.single or self.collate_fn is not default_collate:
            return None
        return batch_fetcher(self.dataset)

    @property
    def batch(self) -> Callable[[Any], Any]:
        """What makes a batch of the indices that the loader sends."""
        if self.single:
            return self._converted
        return self.whole or self._collated

    def _converted(self, index: int) -> Any:
        return self.collate_fn(self.dataset[index])

    def _collated(self, indices: list[int]) -> Any:
        many = getattr(self.dataset, "__getitems__", None)
        samples = many(indices) if many is not None else [self.dataset[i] for i in indices]
        return self.collate_fn(samples)

    def stream(self) -> Iterator[Any]:
        """The batches of an IterableDataset."""
        samples = iter(self.dataset)
        if self.batch_size is None:
            yield from map(self.collate_fn, samples)
            return
        while batch := list(itertools.islice(samples, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self.collate_fn(batch)
