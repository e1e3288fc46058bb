"""Rows of the ops that move elements without changing them."""

from __future__ import annotations

from typing import Any

import numpy as np
from op_table import (
    EVERY,
    FLOATS,
    NO_METHOD,
    NUMBERS,
    Case,
    Draw,
    Sample,
    same,
    sample,
    wrong,
)

_ones = np.ones((2, 3), "float32")
_range = {"raises": IndexError, "words": "Dimension out of range"}


def moved(name: str, samples: Any, oracle: Any, **options: Any) -> Case:
    """A row for an op that only moves elements."""
    options.setdefault("dtypes", NUMBERS)
    return Case(name, samples, oracle, **options)


def _flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    shape = x.shape or (1,)
    start, end = start_dim % len(shape), end_dim % len(shape)
    return x.reshape(*shape[:start], -1 if x.size else 0, *shape[end + 1 :])


def _shape_of(*shape: Any) -> tuple[int, ...]:
    return tuple(shape[0]) if isinstance(shape[0], (tuple, list)) else shape


def _expand(x: Any, *shape: Any) -> Any:
    shape = _shape_of(*shape)
    full = (1,) * (len(shape) - x.ndim) + x.shape
    sizes = tuple(f if s == -1 else s for s, f in zip(shape, full, strict=True))
    return np.broadcast_to(x, sizes)


def _repeat(x: Any, *times: Any) -> Any:
    return np.tile(x, _shape_of(*times))


def _squeeze(x: Any, dim: Any = None) -> Any:
    if dim is None:
        return np.squeeze(x)
    dims = dim if isinstance(dim, tuple) else (dim,)
    return np.squeeze(x, tuple(d for d in dims if x.ndim and x.shape[d] == 1))


def _split(x: Any, size: Any, dim: int = 0) -> Any:
    if isinstance(size, int):
        at = list(range(size, x.shape[dim], size))
    else:
        at = list(np.cumsum(size)[:-1])
    return np.split(x, at, axis=dim)


def _chunk(x: Any, chunks: int, dim: int = 0) -> Any:
    return _split(x, -(-x.shape[dim] // chunks), dim)


def _transposed(x: Any, *dims: Any) -> Any:
    return np.transpose(x, _shape_of(*dims))


def _lists(draw: Draw) -> list[Sample]:
    return [
        sample([draw(2, 3), draw(1, 3)]),
        sample((draw(2, 3), draw(2, 1), draw(2, 2)), 1),
        sample([draw(2, 3), draw(2, 3)], dim=-1),
        sample([draw(2, 3)]),
        sample([draw(0, 3), draw(2, 3)], kind="empty"),
        sample([draw(0, 3), draw(0, 3)], kind="empty"),
    ]


def _equal_lists(draw: Draw) -> list[Sample]:
    return [
        sample([draw(2, 3), draw(2, 3)]),
        sample((draw(2, 3), draw(2, 3), draw(2, 3)), 1),
        sample([draw(2, 3), draw(2, 3)], dim=-1),
        sample([draw(), draw()], kind="scalar"),
        sample([draw(0, 3), draw(0, 3)], kind="empty"),
    ]


def _plain_lists(draw: Draw) -> list[Sample]:
    return [sample([draw(2, 3), draw(2, 3)]), sample([draw(3), draw(3)])]


def _reshapes(draw: Draw) -> list[Sample]:
    return [
        sample(draw(2, 6), (3, 4)),
        sample(draw(2, 6), (-1,)),
        sample(draw(2, 6), (3, -1, 2)),
        sample(draw(), (1, 1), kind="scalar"),
        sample(draw(1), (), kind="scalar"),
        sample(draw(0, 3), (3, 0), kind="empty"),
        sample(draw(0, 3), (-1, 3), kind="empty"),
    ]


def _triangles(draw: Draw) -> list[Sample]:
    return [
        sample(draw(3, 4)),
        sample(draw(4, 3), 1),
        sample(draw(2, 3, 3), -1),
        sample(draw(3, 3), diagonal=2),
        sample(draw(0, 3), kind="empty"),
    ]


def _meshgrid(*arrays: Any, indexing: str = "ij") -> Any:
    return np.meshgrid(*arrays, indexing=indexing)


def _unflatten(x: Any, dim: int, sizes: Any) -> Any:
    dim = dim % x.ndim
    return x.reshape(*x.shape[:dim], *sizes, *x.shape[dim + 1 :])


def _atleast_3d(x: Any) -> Any:
    return x if x.ndim >= 3 else x.reshape((1,) * (3 - x.ndim) + x.shape)


def _as_strided(x: Any, size: Any, stride: Any, offset: int = 0) -> Any:
    flat = x.reshape(-1)
    at = offset + sum(i * s for i, s in zip(np.indices(size), stride, strict=True))
    return flat[at]


_reshape_errors = (
    wrong(_ones, (4,), raises=RuntimeError, words="invalid for input of size 6"),
    wrong(_ones, (-1, 4), raises=RuntimeError, words="invalid for input of size 6"),
    wrong(_ones, (-1, -1), raises=RuntimeError, words="one dimension can be inferred"),
)

CASES = [
    moved("reshape", _reshapes, np.reshape, dtypes=EVERY, errors=_reshape_errors),
    moved(
        "reshape-method",
        lambda d: [sample(d(2, 6), 3, 4), sample(d(2, 6), -1)],
        lambda x, *shape: x.reshape(shape),
        call=lambda x, *shape: x.reshape(*shape),
    ),
    moved(
        "view",
        lambda d: [*_reshapes(d), sample(d(2, 6), 3, 4), sample(d(2, 6), -1)],
        lambda x, *shape: x.reshape(_shape_of(*shape) if shape != ((),) else ()),
        call=lambda x, *shape: x.contiguous().view(*shape),
        errors=_reshape_errors,
    ),
    moved(
        "view-strided",
        lambda d: [],
        np.reshape,
        call=lambda x, *shape: x.t().view(*shape),
        dtypes=(),
        errors=(wrong(_ones, 6, raises=RuntimeError, words="view size is not compatible"),),
    ),
    moved(
        "view_as",
        lambda d: [sample(d(2, 3), np.ones((3, 2)))],
        lambda x, y: x.reshape(y.shape),
        call=lambda x, y: x.contiguous().view_as(y),
        orders=0,
    ),
    moved(
        "flatten",
        lambda d: [
            sample(d(2, 3, 2)),
            sample(d(2, 3, 2), 1),
            sample(d(2, 3, 2), 0, 1),
            sample(d(2, 3, 2), start_dim=-2),
            sample(d(), kind="scalar"),
            sample(d(0, 3), kind="empty"),
        ],
        _flatten,
        errors=(
            wrong(_ones, 2, **_range),
            wrong(_ones, 1, 0, raises=RuntimeError, words="start_dim cannot come after end_dim"),
        ),
    ),
    moved("ravel", lambda d: [sample(d(2, 3)), sample(d(), kind="scalar")], np.ravel),
    moved(
        "unflatten",
        lambda d: [sample(d(2, 6), 1, (2, 3)), sample(d(4, 3), 0, (2, 2))],
        _unflatten,
    ),
    moved(
        "transpose",
        lambda d: [
            sample(d(2, 3), 0, 1),
            sample(d(2, 3, 4), -1, 0),
            sample(d(), 0, -1, kind="scalar"),
            sample(d(0, 3), 0, 1, kind="empty"),
        ],
        lambda x, a, b: np.swapaxes(x, a, b) if x.ndim else x,
        dtypes=EVERY,
        inplace="transpose_",
        errors=(wrong(_ones, 0, 2, **_range),),
    ),
    moved("swapaxes", lambda d: [sample(d(2, 3, 4), 0, 2)], np.swapaxes, inplace="swapaxes_"),
    moved("swapdims", lambda d: [sample(d(2, 3, 4), 0, 2)], np.swapaxes, inplace="swapdims_"),
    moved(
        "t",
        lambda d: [
            sample(d(2, 3)),
            sample(d(3)),
            sample(d(), kind="scalar"),
            sample(d(0, 3), kind="empty"),
        ],
        np.transpose,
        inplace="t_",
        errors=(
            wrong(np.ones((2, 2, 2)), raises=RuntimeError, words="expects a tensor with <= 2"),
        ),
    ),
    moved("T", lambda d: [sample(d(2, 3))], np.transpose, call=lambda x: x.T),
    moved("mT", lambda d: [sample(d(2, 2, 3))], lambda x: x.swapaxes(1, 2), call=lambda x: x.mT),
    moved(
        "permute",
        lambda d: [
            sample(d(2, 3, 4), (2, 0, 1)),
            sample(d(2, 3), (-1, 0)),
            sample(d(), (), kind="scalar"),
            sample(d(0, 3), (1, 0), kind="empty"),
        ],
        _transposed,
        errors=(
            wrong(_ones, (0, 0), raises=RuntimeError, words="duplicate|repeated|multiple"),
            wrong(_ones, (0,), raises=RuntimeError, words="permute|number of dim"),
            wrong(_ones, (0, 2), **_range),
        ),
    ),
    moved(
        "permute-method",
        lambda d: [sample(d(2, 3, 4), 2, 0, 1)],
        _transposed,
        call=lambda x, *dims: x.permute(*dims),
    ),
    moved(
        "movedim",
        lambda d: [sample(d(2, 3, 4), 0, 2), sample(d(2, 3, 4), (0, 1), (-1, 0))],
        np.moveaxis,
        aliases=("moveaxis",),
    ),
    moved(
        "unsqueeze",
        lambda d: [
            sample(d(2, 3), 0),
            sample(d(2, 3), -1),
            sample(d(2, 3), dim=1),
            sample(d(), 0, kind="scalar"),
            sample(d(0, 3), 1, kind="empty"),
        ],
        lambda x, dim: np.expand_dims(x, dim),
        inplace="unsqueeze_",
        errors=(wrong(_ones, 3, **_range),),
    ),
    moved(
        "squeeze",
        lambda d: [
            sample(d(1, 3, 1)),
            sample(d(1, 3, 1), 0),
            sample(d(1, 3, 1), 1),
            sample(d(1, 3, 1), dim=-1),
            sample(d(1, 3, 1), (0, 2)),
            sample(d(), kind="scalar"),
            sample(d(), 0, kind="scalar"),
            sample(d(0, 1), kind="empty"),
        ],
        _squeeze,
        inplace="squeeze_",
        errors=(wrong(_ones, 2, **_range),),
    ),
    moved(
        "expand",
        lambda d: [
            sample(d(1, 3), 2, 3),
            sample(d(3), (2, 3)),
            sample(d(2, 1), -1, 4),
            sample(d(), 2, 2, kind="scalar"),
            sample(d(1, 3), 0, 3, kind="empty"),
        ],
        _expand,
        call=lambda x, *shape: x.expand(*shape),
        errors=(wrong(_ones, 4, 3, raises=RuntimeError, words="must match the existing size"),),
    ),
    moved(
        "expand_as",
        lambda d: [sample(d(1, 3), np.ones((2, 3)))],
        lambda x, y: np.broadcast_to(x, y.shape),
        call=lambda x, y: x.expand_as(y),
        orders=0,
    ),
    moved("broadcast_to", lambda d: [sample(d(1, 3), (2, 3))], np.broadcast_to),
    moved(
        "broadcast_tensors",
        lambda d: [sample(d(1, 3), d(2, 1))],
        np.broadcast_arrays,
        method=NO_METHOD,
    ),
    moved(
        "cat",
        _lists,
        lambda xs, dim=0: np.concatenate(xs, axis=dim),
        dtypes=EVERY,
        method=NO_METHOD,
        errors=(
            wrong([], raises=(RuntimeError, ValueError), words="non-empty"),
            wrong([_ones, np.ones((2, 4), "float32")], raises=RuntimeError, words="Sizes of tens"),
            wrong([_ones, _ones], 2, **_range),
        ),
    ),
    moved(
        "cat-promoted",
        lambda d: [sample([d(2, 3), np.ones((1, 3), "float64")])],
        np.concatenate,
        function="cat",
        method=NO_METHOD,
        result=lambda _: "float64",
        orders=0,
    ),
    moved(
        "concat",
        _lists,
        lambda xs, dim=0: np.concatenate(xs, axis=dim),
        method=NO_METHOD,
        aliases=("concatenate",),
    ),
    moved(
        "stack",
        _equal_lists,
        lambda xs, dim=0: np.stack(xs, axis=dim),
        method=NO_METHOD,
        errors=(
            wrong([], raises=(RuntimeError, ValueError), words="non-empty"),
            wrong(
                [_ones, np.ones(3, "float32")],
                raises=RuntimeError,
                words="expects each tensor to be equal size",
            ),
            wrong([_ones, _ones], 3, **_range),
        ),
    ),
    moved("hstack", _plain_lists, np.hstack, method=NO_METHOD),
    moved("vstack", _plain_lists, np.vstack, method=NO_METHOD, aliases=("row_stack",)),
    moved("dstack", _plain_lists, np.dstack, method=NO_METHOD),
    moved("column_stack", _plain_lists, np.column_stack, method=NO_METHOD),
    moved(
        "split",
        lambda d: [
            sample(d(5, 2), 2),
            sample(d(2, 5), [1, 4], 1),
            sample(d(2, 6), 3, dim=-1),
            sample(d(0, 3), 1, 1, kind="empty"),
        ],
        _split,
        errors=(
            wrong(_ones, [1, 2], 0, raises=RuntimeError, words="split_with_sizes|sum exactly"),
            wrong(_ones, 1, 2, **_range),
            wrong(_ones, -1, raises=RuntimeError, words="non-negative"),
        ),
    ),
    moved(
        "chunk",
        lambda d: [sample(d(5, 2), 2), sample(d(2, 6), 3, 1), sample(d(2, 5), 4, dim=-1)],
        _chunk,
        errors=(
            wrong(_ones, 0, raises=RuntimeError, words="greater than 0"),
            wrong(_ones, 1, 2, **_range),
        ),
    ),
    moved(
        "tensor_split",
        lambda d: [sample(d(7, 2), 3), sample(d(2, 6), (1, 4), 1)],
        lambda x, at, dim=0: np.array_split(x, at, axis=dim),
    ),
    moved(
        "unbind",
        lambda d: [sample(d(2, 3)), sample(d(2, 3), 1)],
        lambda x, dim=0: list(np.moveaxis(x, dim, 0)),
        errors=(wrong(_ones, 2, **_range),),
    ),
    moved(
        "repeat",
        lambda d: [
            sample(d(2, 3), 2, 1),
            sample(d(3), (2, 2)),
            sample(d(2, 1), 2, 1, 3),
            sample(d(), 3, kind="scalar"),
            sample(d(2, 3), 0, 1, kind="empty"),
        ],
        _repeat,
        call=lambda x, *times: x.repeat(*times),
        errors=(wrong(_ones, 2, raises=RuntimeError, words="dimensions of repeat"),),
    ),
    moved("tile", lambda d: [sample(d(2, 3), (2,)), sample(d(3), (2, 2))], np.tile),
    moved(
        "repeat_interleave",
        lambda d: [sample(d(2, 3), 2), sample(d(2, 3), 2, 1), sample(d(3, 2), 3, dim=0)],
        lambda x, times, dim=None: np.repeat(x, times, axis=dim),
    ),
    moved(
        "repeat_interleave-counts",
        lambda d: [
            sample(d(3, 2), np.array([1, 0, 2]), dim=0),
            sample(d(3, 2), np.array([1, 0, 2]), dim=0, output_size=3),
        ],
        lambda x, times, dim, output_size=None: np.repeat(x, times, axis=dim),
        errors=(
            wrong(_ones, np.array([1, 2]), 0, output_size=4, raises=RuntimeError, words="size"),
            wrong(_ones, 2, 0, output_size=5, raises=RuntimeError, words="Invalid output_size"),
        ),
    ),
    moved(
        "flip",
        lambda d: [
            sample(d(2, 3), (0,)),
            sample(d(2, 3, 2), (0, -1)),
            sample(d(0, 3), (1,), kind="empty"),
        ],
        lambda x, dims: np.flip(x, dims),
        errors=(wrong(_ones, (2,), **_range),),
    ),
    moved("fliplr", lambda d: [sample(d(2, 3))], np.fliplr),
    moved("flipud", lambda d: [sample(d(2, 3))], np.flipud),
    moved("rot90", lambda d: [sample(d(2, 3)), sample(d(2, 3), 2)], np.rot90),
    moved(
        "roll",
        lambda d: [sample(d(2, 3), 1), sample(d(2, 3), 2, 1), sample(d(2, 3), (1, -1), (0, 1))],
        lambda x, shifts, dims=None: np.roll(x, shifts, dims),
    ),
    moved(
        "narrow",
        lambda d: [sample(d(4, 3), 0, 1, 2), sample(d(2, 3), -1, 0, 2)],
        lambda x, dim, start, length: x.take(range(start, start + length), axis=dim),
        errors=(
            wrong(_ones, 0, 1, 2, raises=RuntimeError, words="exceeds dimension size"),
            wrong(_ones, 2, 0, 1, **_range),
        ),
    ),
    moved(
        "select",
        lambda d: [sample(d(4, 3), 0, 1), sample(d(2, 3), 1, -1)],
        lambda x, dim, at: x.take(at, axis=dim),
        errors=(wrong(_ones, 0, 2, raises=IndexError, words="out of range"),),
    ),
    moved(
        "tril",
        _triangles,
        lambda x, diagonal=0: np.tril(x, diagonal),
        inplace="tril_",
        errors=(wrong(np.ones(3, "float32"), raises=RuntimeError, words="at least 2 dim"),),
    ),
    moved(
        "triu",
        _triangles,
        lambda x, diagonal=0: np.triu(x, diagonal),
        inplace="triu_",
        errors=(wrong(np.ones(3, "float32"), raises=RuntimeError, words="at least 2 dim"),),
    ),
    moved(
        "diag",
        lambda d: [sample(d(3)), sample(d(3), 1), sample(d(3, 4)), sample(d(3, 4), -1)],
        np.diag,
    ),
    moved(
        "diagonal",
        lambda d: [sample(d(3, 4)), sample(d(2, 3, 3), 1, 1, 2)],
        lambda x, offset=0, dim1=0, dim2=1: np.diagonal(x, offset, dim1, dim2),
    ),
    moved(
        "diag_embed",
        lambda d: [sample(d(2, 3)), sample(d(3))],
        lambda x: x[..., None] * np.eye(x.shape[-1], dtype=x.dtype),
    ),
    moved(
        "unfold",
        lambda d: [sample(d(2, 6), 1, 3, 2), sample(d(5), 0, 2, 1)],
        lambda x, dim, size, step: (
            np.moveaxis(np.lib.stride_tricks.sliding_window_view(x, size, axis=dim), dim, 0)[
                ::step
            ].swapaxes(0, dim)
            if dim
            else np.lib.stride_tricks.sliding_window_view(x, size, axis=0)[::step]
        ),
        call=lambda x, *how: x.unfold(*how),
    ),
    moved("meshgrid", lambda d: [sample(d(2), d(3), indexing="ij")], _meshgrid, method=NO_METHOD),
    moved("atleast_3d", lambda d: [sample(d()), sample(d(2, 3, 1))], _atleast_3d, method=NO_METHOD),
    moved("atleast_1d", lambda d: [sample(d()), sample(d(2))], np.atleast_1d, method=NO_METHOD),
    moved("atleast_2d", lambda d: [sample(d()), sample(d(2))], np.atleast_2d, method=NO_METHOD),
    moved(
        "contiguous",
        lambda d: [sample(d(2, 3)), sample(d(), kind="scalar"), sample(d(0, 3), kind="empty")],
        np.copy,
        call=lambda x: x.t().contiguous().t(),
    ),
    moved("detach", lambda d: [sample(d(2, 3))], np.copy, call=lambda x: x.detach(), orders=0),
    moved(
        "as_strided",
        lambda d: [sample(d(2, 6), (2, 3), (6, 2)), sample(d(6), (3, 2), (2, 1))],
        _as_strided,
        call=lambda x, *how: x.contiguous().as_strided(*how),
    ),
    moved(
        "reshape_as",
        lambda d: [sample(d(2, 3), np.ones((3, 2)))],
        lambda x, y: x.reshape(y.shape),
        call=lambda x, y: x.reshape_as(y),
        orders=0,
    ),
    Case(
        "broadcast_shapes",
        lambda d: [sample((2, 1), (3,)), sample((), (4,))],
        np.broadcast_shapes,
        method=NO_METHOD,
        dtypes=("float32",),
        result=None,
        orders=0,
        errors=(wrong((2,), (3,), raises=RuntimeError, words="[Ss]hape"),),
    ),
    Case(
        "numel",
        lambda d: [sample(d(2, 3)), sample(d()), sample(d(0, 3))],
        np.size,
        dtypes=NUMBERS,
        result=None,
        orders=0,
    ),
    Case(
        "size",
        lambda d: [sample(d(2, 3)), sample(d()), sample(d(0, 3))],
        np.shape,
        call=lambda x: tuple(x.size()),
        dtypes=NUMBERS,
        result=None,
        orders=0,
    ),
    Case(
        "size-dim",
        lambda d: [sample(d(2, 3), 1), sample(d(0, 3), -2)],
        lambda x, dim: x.shape[dim],
        call=lambda x, dim: x.size(dim),
        result=None,
        orders=0,
        errors=(wrong(_ones, 2, **_range),),
    ),
    Case(
        "dim",
        lambda d: [sample(d(2, 3)), sample(d())],
        np.ndim,
        call=lambda x: (x.dim(), x.ndim)[0],
        result=None,
        orders=0,
    ),
    Case(
        "item",
        lambda d: [sample(d(1, 1)), sample(d())],
        lambda x: x.item(),
        call=lambda x: x.item(),
        dtypes=EVERY,
        result=None,
        orders=0,
        errors=(
            wrong(_ones, raises=(RuntimeError, ValueError), words="cannot be converted to Scalar"),
        ),
    ),
    Case(
        "tolist",
        lambda d: [sample(d(2, 3)), sample(d()), sample(d(0, 3))],
        lambda x: x.tolist(),
        call=lambda x: x.tolist(),
        dtypes=EVERY,
        result=None,
        orders=0,
    ),
    Case(
        "len",
        lambda d: [sample(d(2, 3)), sample(d(0, 3))],
        len,
        call=len,
        result=None,
        orders=0,
        errors=(wrong(np.ones((), "float32"), raises=TypeError, words="0-d tensor"),),
    ),
    Case(
        "iterate",
        lambda d: [sample(d(2, 3)), sample(d(3)), sample(d(0, 3), kind="empty")],
        list,
        call=list,
        dtypes=NUMBERS,
        result=same,
        errors=(wrong(np.ones((), "float32"), raises=TypeError, words="0-d tensor"),),
    ),
    Case(
        "cpu",
        lambda d: [sample(d(2, 3))],
        np.copy,
        call=lambda x: x.cpu(),
        dtypes=FLOATS,
    ),
    Case(
        "numpy",
        lambda d: [sample(d(2, 3)), sample(d())],
        np.copy,
        call=lambda x: x.numpy(),
        dtypes=EVERY,
        result=None,
        orders=0,
    ),
]
