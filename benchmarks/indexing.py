"""Reading and adding by index, forward and backward; the indices all differ, or collide.

Those that collide are 16 different ones: what adds to one place must not be lost, nor wait long.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import uniform
from .gradients import Gradient, suite_of

SUITE = "indexing"
DISTINCT = 16


def indices(below: int, shape: tuple[int, ...], collide: bool) -> np.ndarray:
    """int64 numbers below ``below``, evenly spread; with ``collide`` only ``DISTINCT`` of them."""
    drawn = np.random.default_rng(below).integers(0, DISTINCT if collide else below, shape)
    return drawn * (below // DISTINCT) if collide else drawn


def _rows_in_torch(lib: Any, x: Any, index: Any) -> Any:
    return lib.index_select(x, 0, index)


def _embedding_in_torch(lib: Any, weight: Any, index: Any) -> Any:
    return lib.nn.functional.embedding(index, weight)


def _bags_in_torch(lib: Any, weight: Any, index: Any) -> Any:
    return lib.nn.functional.embedding_bag(index, weight, mode="sum")


def _bags(_: Any, weight: Any, index: Any) -> Any:
    return weight[index].sum(axis=1)


def _rows(_: Any, x: Any, index: Any) -> Any:
    return x[index]


def _gather_in_torch(lib: Any, x: Any, index: Any) -> Any:
    return lib.gather(x, 1, index)


def _gather(xp: Any, x: Any, index: Any) -> Any:
    return xp.take_along_axis(x, index, axis=1)


def _scatter_add_in_torch(lib: Any, x: Any, source: Any, index: Any) -> Any:
    return lib.scatter_add(x, 0, index, source)


def _index_add_in_torch(lib: Any, x: Any, source: Any, index: Any) -> Any:
    return lib.index_add(x, 0, index, source)


def _add(xp: Any, x: Any, source: Any, index: Any) -> Any:
    if xp.__name__ == "pytensor.tensor":
        return xp.inc_subtensor(x[index], source)
    return x.at[index].add(source)


def _points(_: Any, x: Any, i: Any, j: Any) -> Any:
    return x[i, j]


def _work(collide: bool) -> list[Gradient]:
    how = "16 collide" if collide else "spread"

    def rows(n: int) -> np.ndarray:
        return indices(n, (4096,), collide)

    return [
        Gradient(
            f"gather (1024, 256), {how}",
            lambda: [uniform(1024, 256), indices(256, (1024, 256), collide)],
            *(_gather_in_torch, _gather),
        ),
        Gradient(
            f"index_select 4096 of (10000, 64), {how}",
            lambda: [uniform(10_000, 64), rows(10_000)],
            *(_rows_in_torch, _rows),
        ),
        Gradient(
            f"embedding (64, 64) of (5000, 128), {how}",
            lambda: [uniform(5000, 128), indices(5000, (64, 64), collide)],
            *(_embedding_in_torch, _rows),
        ),
        Gradient(
            f"bags of 20 of (10000, 64), {how}",
            lambda: [uniform(10_000, 64), indices(10_000, (2048, 20), collide)],
            *(_bags_in_torch, _bags, 1e-3),
        ),
        Gradient(
            f"index_add 4096 to (10000, 64), {how}",
            lambda: [uniform(10_000, 64), uniform(4096, 64), rows(10_000)],
            *(_index_add_in_torch, _add),
        ),
        Gradient(
            f"scatter_add 10^5 to 10^4, {how}",
            lambda: [uniform(10_000), uniform(100_000), indices(10_000, (100_000,), collide)],
            *(_scatter_add_in_torch, _add, 1e-3),
        ),
        Gradient(
            f"x[i, j], 10^5 of (1000, 1000), {how}",
            lambda: [uniform(1000, 1000), *(indices(n, (100_000,), collide) for n in (1000, 999))],
            *(_points, _points, 1e-3),
        ),
    ]


WORKLOADS = [work for pair in zip(_work(False), _work(True), strict=True) for work in pair]

build = suite_of(WORKLOADS)
