"""Rows of pooling beyond conv.py: of volumes, by powers, with indices, and undone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from op_table import NO_METHOD, Case, index, same, sample, wrong

from .conv import adaptive, avg_pool, max_pool


def _row(name: str, samples: Any, oracle: Any, *errors: Any, **options: Any) -> Case:
    function = "nn.functional." + name.split("-")[0]
    return Case(
        name, samples, oracle, function=function, method=NO_METHOD, errors=errors, **options
    )


def _sizes(value: Any, rank: int) -> tuple[int, ...]:
    return (value,) * rank if isinstance(value, int) else tuple(value)


def _unpool(rank: int) -> Any:
    """The oracle of max_unpool1d to max_unpool3d: one element after the other."""

    def oracle(
        x: Any, at: Any, kernel: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
    ) -> Any:
        kernel, padding = _sizes(kernel, rank), _sizes(padding, rank)
        strides = kernel if stride is None else _sizes(stride, rank)
        small = x.shape[-rank:]
        moves = zip(small, strides, kernel, padding, strict=True)
        sizes = tuple((n - 1) * s + k - 2 * p for n, s, k, p in moves)
        sizes = sizes if output_size is None else tuple(output_size)[-rank:]
        out = np.zeros((*x.shape[:-rank], *sizes), x.dtype)
        planes = out.reshape(math.prod(x.shape[:-rank]), math.prod(sizes))
        entries = x.reshape(len(planes), math.prod(small))
        for plane, values, places in zip(planes, entries, at.reshape(entries.shape), strict=True):
            for value, place in zip(values, places, strict=True):
                plane[place] = value
        return out

    return oracle


def _power(rank: int) -> Any:
    """The oracle of lp_pool1d to lp_pool3d, by those of the other pools."""

    def oracle(x: Any, p: float, kernel: Any, stride: Any = None, ceil_mode: bool = False) -> Any:
        moves: dict[str, Any] = {"stride": stride, "ceil_mode": ceil_mode}
        if math.isinf(p):
            sign = math.copysign(1, p)
            return sign * max_pool(rank)(sign * np.abs(x), kernel, **moves)
        means = avg_pool(rank)(x**p, kernel, **moves)
        return (means * math.prod(_sizes(kernel, rank))) ** (1 / p)

    return oracle


def _with_indices(oracle: Any) -> Any:
    return lambda *args, **kwargs: oracle(*args, **{**kwargs, "return_indices": True})


def _places(d: Any, planes: tuple[int, ...], count: int, size: int) -> np.ndarray:
    """Distinct places for each plane."""
    found = [d.permutation(size)[:count] for _ in range(math.prod(planes))]
    return np.array(found, "int64").reshape(*planes, count)


_x = np.ones((1, 2, 2), "float32")
_at = np.array([[[0, 3], [1, 2]]])
_image = np.ones((1, 1, 4, 4), "float32")

CASES = [
    _row(
        "max_unpool1d",
        lambda d: [
            sample(d(2, 2, 3), _places(d, (2, 2), 3, 6), 2),
            sample(d(2, 3), _places(d, (2,), 3, 5), 3, 2, 1, (6,)),
            sample(d(2, 2, 2), _places(d, (2, 2), 2, 4), (2,), output_size=(2, 2, 5)),
            sample(d(0, 2, 3), np.zeros((0, 2, 3), "int64"), 2, kind="empty"),
        ],
        _unpool(1),
        wrong(_x, _at + 2, 2, raises=(RuntimeError, IndexError), words="invalid max index"),
        wrong(_x, _at - 1, 2, raises=(RuntimeError, IndexError), words="invalid max index.* -1"),
        wrong(_x, _at[..., :1], 2, raises=RuntimeError, words="Expected shape of indices"),
        wrong(_x, _at.astype("int32"), 2, raises=RuntimeError, words="type int64 but got: Int"),
        wrong(_x, _at, 2, output_size=(6,), raises=ValueError, words="must be between 2 and 6"),
        wrong(_x, _at, 2, output_size=(6, 6), raises=ValueError, words="containing 1 or 3"),
        wrong(_x, _at, 1, 1, 2, raises=ValueError, words="non-negative spatial"),
        wrong(_x[0, 0], _at[0, 0], 2, raises=RuntimeError, words="[234][dD] or"),
        wrong(_x[:, :0], _at[:, :0], 2, raises=RuntimeError, words="non-zero"),
    ),
    _row(
        "max_unpool2d",
        lambda d: [
            sample(d(2, 2, 2, 3), _places(d, (2, 2), 6, 24).reshape(2, 2, 2, 3), 2),
            sample(d(2, 2, 2), _places(d, (2,), 4, 9).reshape(2, 2, 2), (3, 2), (2, 1), (1, 0)),
        ],
        _unpool(2),
    ),
    _row(
        "max_unpool3d",
        lambda d: [sample(d(1, 2, 2, 1, 2), _places(d, (2,), 4, 32).reshape(1, 2, 2, 1, 2), 2)],
        _unpool(3),
    ),
    _row(
        "lp_pool1d",
        lambda d: [
            sample(d(2, 2, 7), 2, 3),
            sample(d(2, 6), 2.5, 2, 1),
            sample(d(2, 6), 3.0, 4, ceil_mode=True),
            sample(d(1, 2, 4), 1, 2),
            sample(d.distinct(2, 5), float("inf"), 2),
            sample(d.distinct(2, 5), -float("inf"), 2, ceil_mode=True),
            sample(d(0, 2, 4), 2, 2, kind="empty"),
        ],
        _power(1),
        wrong(_x, 2, 3, raises=RuntimeError, words="[Oo]utput size"),
        wrong(_x, 2, 2, 0, raises=RuntimeError, words="stride"),
        wrong(_x, 0, 2, raises=(ValueError, ZeroDivisionError), words="norm_type|division"),
        domain=(0.3, 3.0),
    ),
    _row(
        "lp_pool2d",
        lambda d: [sample(d(2, 2, 4, 6), 2, (2, 3)), sample(d(2, 5, 5), 1.5, 2, (2, 1))],
        _power(2),
        domain=(0.3, 3.0),
    ),
    _row(
        "lp_pool3d",
        lambda d: [sample(d(1, 2, 3, 4, 4), 3, 2, 1)],
        _power(3),
        domain=(0.3, 3.0),
    ),
    _row(
        "adaptive_avg_pool3d",
        lambda d: [
            sample(d(1, 2, 3, 5, 2), (2, 3, None)),
            sample(d(2, 3, 2, 4), 2),
            sample(d(0, 2, 2, 3, 2), 1, kind="empty"),
        ],
        adaptive(3, False),
        wrong(_x, 2, raises=RuntimeError, words="Expected 4D or 5D"),
        wrong(_image[None], (1, 2), raises=RuntimeError, words="output_size"),
    ),
    _row(
        "adaptive_max_pool3d",
        lambda d: [sample(d.distinct(1, 2, 3, 5, 2), (2, 3, None), return_indices=True)],
        adaptive(3, True),
        wrong(_image[None], (1, 2), raises=RuntimeError, words="output_size"),
        result=(same, index),
    ),
    *[
        _row(
            f"max_pool{rank}d_with_indices",
            lambda d, rank=rank: [sample(d.distinct(1, 2, *(3, 4, 4)[:rank]), 2, 1)],
            _with_indices(max_pool(rank)),
            result=(same, index),
        )
        for rank in (1, 2, 3)
    ],
    *[
        _row(
            f"adaptive_max_pool{rank}d_with_indices",
            lambda d, rank=rank: [sample(d.distinct(1, 2, *(3, 5, 4)[:rank]), 2)],
            _with_indices(adaptive(rank, True)),
            result=(same, index),
        )
        for rank in (1, 2, 3)
    ],
]
