"""``DataLoader``: batches of a dataset, in order or shuffled, made here or by worker processes.

A dataset that can collate by itself (tensors in memory) is asked for a whole batch with a slice or
an index tensor: one op per tensor. Start reading at ``DataLoader.__iter__``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import GenericAlias
from typing import Any

from ..kernels import machine
from ..ops.from_data import tensor
from ..ops.random import randint, state_for
from .collate import default_collate, default_convert
from .dataset import IterableDataset
from .fetch import Fetcher
from .sampler import BatchSampler, RandomSampler, SequentialSampler

__all__ = ["DataLoader"]


_FIXED = frozenset(
    ["batch_sampler", "batch_size", "dataset", "drop_last", "persistent_workers", "sampler"]
)
"""Attributes that say how batches are made, when a loader is."""


class DataLoader:
    """Iterates over batches of ``dataset``.

    batch_size: None gives single samples, by ``default_convert`` or collate_fn. shuffle: a new
    random order each time. sampler, batch_sampler: other orders of indices, or of lists of them.
    drop_last: leave out a shorter last batch. collate_fn: makes a batch of a list of samples.
    generator: the random numbers of the order and of the workers' seeds; after ``manual_seed`` or
    with a seeded one all of it repeats.

    num_workers: processes that make the batches; the order is that of ``num_workers=0``, where
    they are made in this process. Worker k seeds ``random``, NumPy and numbagrad from ``base_seed +
    k``, drawn anew for each iteration, then calls ``worker_init_fn(k)``; ``get_worker_info()``
    tells the dataset where it is. prefetch_factor: batches that each worker is ahead, 2 by default.
    persistent_workers: keep the processes for the next iteration. timeout: seconds to wait for a
    batch, 0 for ever. multiprocessing_context: a start method or a context, by default Python's;
    with "spawn" the dataset is pickled and the script needs ``if __name__ == "__main__"``. Tensors
    come through shared memory. An error in a worker is raised here with the worker's traceback; a
    worker that dies raises WorkerError, a RuntimeError. For tensors in memory workers only add
    work. pin_memory and pin_memory_device are accepted for PyTorch's sake, and in_order=False,
    which allows another order and demands none.

    >>> import numbagrad as ng
    >>> from numbagrad.data import TensorDataset
    >>> loader = DataLoader(TensorDataset(ng.arange(5)), batch_size=2)
    >>> [x.tolist() for (x,) in loader]
    [[0, 1], [2, 3], [4]]
    """

    __class_getitem__: Any = classmethod(GenericAlias)  # DataLoader[int], for annotations

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
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ):
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        self.multiprocessing_context = _context(multiprocessing_context, num_workers)
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
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.in_order = in_order
        self.drop_last = drop_last
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.generator = generator
        self.prefetch_factor = prefetch_factor or (2 if num_workers else None)
        self.persistent_workers = persistent_workers
        single = batch_size is None and self.batch_sampler is None
        usual = default_convert if single else default_collate
        self.collate_fn = usual if collate_fn is None else collate_fn
        self._batches: Any = None  # the iterator of persistent workers

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and "_batches" in vars(self):
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized: "
                f"make another."
            )
        super().__setattr__(name, value)

    def __iter__(self) -> Iterator[Any]:
        machine.outside("iterating a DataLoader", "Pass each batch to the compiled step.")
        fetcher = self._fetcher()
        if self.num_workers:
            base_seed = int(randint(0, 2**63 - 1, (1,), generator=self.generator).item())
            return self._by_workers(fetcher, base_seed)
        # Without workers nobody asks for a seed, but what follows must not depend on their number.
        state_for(self.generator, 1, 2)
        if fetcher.is_stream:
            return Batches(self, fetcher.stream())
        return Batches(self, map(fetcher.batch, self.index_source()))

    def _fetcher(self) -> Fetcher:
        single = self.batch_sampler is None
        return Fetcher(self.dataset, self.collate_fn, self.batch_size, self.drop_last, single)

    def _by_workers(self, fetcher: Fetcher, base_seed: int) -> Iterator[Any]:
        from .worker_pool import WorkerBatches  # with multiprocessing: seldom needed

        held = self._batches
        if held is not None and held.alive:
            held.restart(self)
            return held
        made = WorkerBatches(self, fetcher, base_seed)
        if self.persistent_workers:
            self._batches = made
        return made

    def index_source(self) -> Iterator[Any]:
        """What the batches are made from: an index, a list of them, an index tensor or a slice."""
        if self.batch_sampler is None:
            return iter(self.sampler)  # type: ignore[arg-type]
        if self._fetcher().whole is None:
            return iter(self.batch_sampler)
        return _index_batches(self.batch_sampler, self.sampler)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_batches": None}

    def __len__(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            n = len(self.dataset)  # type: ignore[arg-type]
            if self.batch_size is None:
                return n
            return n // self.batch_size if self.drop_last else -(-n // self.batch_size)
        held: Any = self.sampler if self.batch_sampler is None else self.batch_sampler
        return len(held)


class Batches:
    """The batches of one iteration, which no recorded function may take: it runs once."""

    __slots__ = ("__weakref__", "_loader", "_source")

    def __init__(self, loader: DataLoader, source: Iterator[Any]):
        self._loader = loader
        self._source = source

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if machine.recording:
            refuse()
        return next(self._source)


def refuse() -> None:
    """Raise where a compiled function is recorded, before a batch is taken."""
    way_out = "Take it outside, and pass it as an argument."
    machine.outside("taking the next batch of a DataLoader", way_out)


def _index_batches(batches: Any, sampler: Any) -> Iterator[Any]:
    """The batches' indices: slices where they follow each other, else index tensors."""
    if type(batches) is not BatchSampler or type(sampler) not in (SequentialSampler, RandomSampler):
        for indices in batches:
            yield tensor(indices)
        return
    n, size = len(sampler), batches.batch_size
    order = sampler.order() if type(sampler) is RandomSampler else None
    for start in range(0, n - size + 1 if batches.drop_last else n, size):
        part = slice(start, min(start + size, n))
        yield part if order is None else order[part]


def _check_workers(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool
) -> None:
    if num_workers < 0:
        raise ValueError(
            "num_workers option should be non-negative; use num_workers=0 to load in this process."
        )
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if prefetch_factor is not None and num_workers == 0:
        raise ValueError("prefetch_factor option could only be specified with num_workers > 0")
    if prefetch_factor is not None and prefetch_factor < 1:
        raise ValueError(f"prefetch_factor option should be positive, got {prefetch_factor}")
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


def _context(given: Any, num_workers: int) -> Any:
    """The multiprocessing context that a user has asked for, by name or as such."""
    if given is None:
        return None
    if num_workers == 0:
        raise ValueError("multiprocessing_context can only be used with num_workers > 0")
    import multiprocessing  # 10 ms that a program without workers does not spend

    if isinstance(given, str):
        known = multiprocessing.get_all_start_methods()
        if given not in known:
            raise ValueError(
                f"multiprocessing_context option should specify a valid start method in {known}, "
                f"but got {given!r}"
            )
        return multiprocessing.get_context(given)
    if not hasattr(given, "Process"):
        raise TypeError(
            f"multiprocessing_context option should be a context or a start method, but got "
            f"{type(given).__name__}"
        )
    return given
