"""Which worker of a loader this process is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["WorkerInfo", "get_worker_info"]


@dataclass(frozen=True)
class WorkerInfo:
    """Which worker this process is: ``id`` of ``num_workers``, its ``seed``, its ``dataset``."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


current: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker process of a loader, which one it is; elsewhere None.

    An IterableDataset gives each worker its share with it.

    >>> get_worker_info() is None
    True
    """
    return current
