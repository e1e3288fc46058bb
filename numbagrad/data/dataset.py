"""Datasets: what a loader draws samples from."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import GenericAlias
from typing import Any

from ..dtypes import int64
from ..ops.from_data import tensor
from ..ops.random import randperm
from ..tensor import Tensor

__all__ = [
    "ChainDataset",
    "ConcatDataset",
    "Dataset",
    "IterableDataset",
    "StackDataset",
    "Subset",
    "TensorDataset",
    "random_split",
]


class Dataset:
    """Samples by index: a subclass defines ``__getitem__`` and, for most loaders, ``__len__``.

    ``__getitems__(indices)``, if defined, returns the samples of a whole batch as a list;
    ``collated_batch(indices)``, for an index tensor or a slice, returns them collated, which
    spares the loader the samples.
    """

    __class_getitem__: Any = classmethod(GenericAlias)  # Dataset[int], for annotations and bases

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """Samples in a stream: a subclass defines ``__iter__``."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other: Dataset) -> Any:
        return ChainDataset([self, other])


class ChainDataset(IterableDataset):
    """One stream after the other.

    >>> import numbagrad as ng
    >>> class Count(IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(2))
    >>> list(ChainDataset([Count(), Count()]))
    [0, 1, 0, 1]
    """

    def __init__(self, datasets: Iterable[Dataset]):
        self.datasets = datasets

    def _streams(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise TypeError(
                    f"ChainDataset only supports IterableDataset, got {type(dataset).__name__}. "
                    f"ConcatDataset takes those with indices."
                )
            yield dataset

    def __iter__(self) -> Iterator[Any]:
        for dataset in self._streams():
            yield from dataset

    def __len__(self) -> int:
        return sum([len(dataset) for dataset in self._streams()])


class TensorDataset(Dataset):
    """Rows of tensors of equal length; a sample is a tuple.

    >>> import numbagrad as ng
    >>> TensorDataset(ng.tensor([1.0, 2.0]), ng.tensor([0, 1]))[1]
    (tensor(2.), tensor(1))
    """

    def __init__(self, *tensors: Tensor):
        lengths = {rows.shape[0] for rows in tensors}
        if len(lengths) > 1:
            raise ValueError(
                f"Size mismatch between tensors: TensorDataset got first dimensions "
                f"{[rows.shape[0] for rows in tensors]}; they must be equal."
            )
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple([rows[index] for rows in self.tensors])

    def __len__(self) -> int:
        return self.tensors[0].shape[0]

    def collated_batch(self, indices: Any) -> list[Tensor]:
        """Copies of the rows at ``indices``, an index tensor or a slice: one gather per tensor."""
        if isinstance(indices, slice):  # a view would let in-place work reach the dataset
            return [rows[indices].clone() for rows in self.tensors]
        return [rows[indices] for rows in self.tensors]


class Subset(Dataset):
    """The samples of ``dataset`` at ``indices``."""

    def __init__(self, dataset: Dataset, indices: Sequence[int]):
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def collated_batch(self) -> Callable[[Any], Any]:
        """As that of ``dataset``, if it has one."""
        fetch = batch_fetcher(self.dataset)
        if fetch is None:
            raise AttributeError("the dataset of this Subset has no collated_batch")
        positions = tensor(list(self.indices), dtype=int64)
        return lambda indices: fetch(positions[indices])


def batch_fetcher(dataset: Any) -> Callable[[Any], Any] | None:
    """``dataset.collated_batch``; None if there is none, or if a subclass redefined its samples."""
    for cls in type(dataset).__mro__:
        if "collated_batch" in vars(cls):
            return getattr(dataset, "collated_batch", None)
        if "__getitem__" in vars(cls) or "__getitems__" in vars(cls):
            return None
    return None


class ConcatDataset(Dataset):
    """One dataset after the other."""

    def __init__(self, datasets: Iterable[Dataset]):
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise TypeError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = list(
            itertools.accumulate(len(d) for d in self.datasets)  # type: ignore[arg-type]
        )

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} samples")
        index %= len(self)
        number = bisect.bisect_right(self.cumulative_sizes, index)
        before = self.cumulative_sizes[number - 1] if number else 0
        return self.datasets[number][index - before]


class StackDataset(Dataset):
    """Datasets of equal length side by side; a sample is a tuple, or a dict if they have names.

    >>> StackDataset(image=[1, 2], label=[3, 4])[0]
    {'image': 1, 'label': 3}
    """

    def __init__(self, *args: Any, **kwargs: Any):
        if bool(args) == bool(kwargs):
            raise ValueError(
                "StackDataset: takes datasets either by position or by name, and at least one."
            )
        self.datasets: Any = args or kwargs
        lengths = {len(dataset) for dataset in args or kwargs.values()}
        if len(lengths) > 1:
            raise ValueError(
                f"StackDataset: Size mismatch between datasets, got lengths {sorted(lengths)}."
            )
        self._length = lengths.pop()

    def _joined(self, parts: list[Any]) -> Any:
        if isinstance(self.datasets, dict):
            return dict(zip(self.datasets, parts, strict=True))
        return tuple(parts)

    def _members(self) -> list[Any]:
        named = isinstance(self.datasets, dict)
        return list(self.datasets.values() if named else self.datasets)

    def __getitem__(self, index: Any) -> Any:
        return self._joined([dataset[index] for dataset in self._members()])

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """The samples of a batch, from datasets that give several at once or one by one."""
        columns = []
        for dataset in self._members():
            many = getattr(dataset, "__getitems__", None)
            found = [dataset[i] for i in indices] if many is None else many(indices)
            if len(found) != len(indices):
                raise ValueError(
                    f"StackDataset: a dataset gave {len(found)} samples for {len(indices)} indices."
                )
            columns.append(found)
        return [self._joined(list(parts)) for parts in zip(*columns, strict=True)]

    def __len__(self) -> int:
        return self._length


def random_split(dataset: Dataset, lengths: Sequence[float], generator: Any = None) -> list[Subset]:
    """Disjoint random subsets of ``dataset``.

    lengths: their sizes, which sum to that of ``dataset``; or fractions that sum to one, where
    what is left by rounding down goes to the first ones, one each.
    """
    total = len(dataset)  # type: ignore[arg-type]
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        for i, fraction in enumerate(lengths):
            if not 0 <= fraction <= 1:
                raise ValueError(f"Fraction at index {i} is not between 0 and 1")
        sizes = [math.floor(total * fraction) for fraction in lengths]
        for i in range(total - sum(sizes)):
            sizes[i % len(sizes)] += 1
    else:
        sizes = [int(length) for length in lengths]
    if sum(sizes) != total:
        raise ValueError(
            f"Sum of input lengths does not equal the length of the input dataset: "
            f"{sum(sizes)} and {total}."
        )
    order = randperm(total, generator=generator).tolist()
    ends = itertools.accumulate(sizes)
    return [Subset(dataset, order[e - n : e]) for e, n in zip(ends, sizes, strict=True)]
