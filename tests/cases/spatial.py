"""Rows of padding, patches, resizing, sampling, distances and bags, of ``nn.functional``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from op_table import NO_METHOD, NUMBERS, Case, Sample, same, sample, wrong

from . import spatial_pool


def _row(name: str, samples: Any, oracle: Any, **options: Any) -> Case:
    function = "nn.functional." + name.split("-")[0]
    return Case(name, samples, oracle, function=function, method=NO_METHOD, **options)


def _pad(x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    widths = [(0, 0)] * x.ndim
    for k in range(len(pad) // 2):
        widths[-1 - k] = tuple(pad[2 * k : 2 * k + 2])
    cut = tuple(
        slice(max(-b, 0), n - max(-a, 0)) for n, (b, a) in zip(x.shape, widths, strict=True)
    )
    widths = [(max(b, 0), max(a, 0)) for b, a in widths]
    if not x.ndim:
        return x
    if mode == "constant":
        return np.pad(x[cut], widths, constant_values=value or 0)
    name = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    return np.pad(x[cut], widths, mode=name)


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)


def _unfold(x: Any, kernel: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    if x.ndim == 3:
        return _unfold(x[None], kernel, dilation, padding, stride)[0]
    (dh, dw), (ph, pw), (sh, sw) = _pair(dilation), _pair(padding), _pair(stride)
    x = np.pad(x, [(0, 0), (0, 0), (ph, ph), (pw, pw)])
    kh, kw = [d * (k - 1) + 1 for d, k in zip((dh, dw), _pair(kernel), strict=True)]
    seen = np.lib.stride_tricks.sliding_window_view(x, (kh, kw), (2, 3))
    seen = seen[:, :, ::sh, ::sw, ::dh, ::dw].transpose(0, 1, 4, 5, 2, 3)
    n, c, i, j, *places = seen.shape
    return seen.reshape(n, c * i * j, places[0] * places[1])


def _fold(x: Any, size: Any, *window: Any, **options: Any) -> Any:
    """Each column added where ``_unfold`` reads the numbers of elements."""
    if x.ndim == 2:
        return _fold(x[None], size, *window, **options)[0]
    height, width = _pair(size)
    numbers = np.arange(1, height * width + 1).reshape(1, 1, height, width)
    to = _unfold(numbers, *window, **options)[0]
    columns = x.reshape(len(x), x.shape[1] // len(to), *to.shape)
    out = np.zeros((*columns.shape[:2], height * width + 1))
    for n, c in np.ndindex(*columns.shape[:2]):
        np.add.at(out[n, c], to, columns[n, c])
    return out[:, :, 1:].reshape(*columns.shape[:2], height, width)


def _mirrored(t: Any, n: int, corners: Any) -> Any:
    low, span = (0, n - 1) if corners else (-0.5, n)
    if not span:
        return np.zeros_like(t)
    return np.interp((t - low) % (2 * span), [0, span, 2 * span], [low, low + span, low])


def _cubic(t: Any) -> Any:
    t, a = np.abs(t), -0.75
    near, far = ((a + 2) * t - a - 3) * t * t + 1, ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0))


def _grid_sample(
    x: Any,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: Any = None,
) -> Any:
    """A matrix of weights for each dimension, then a product with each place's image."""
    sizes, rank, cubic = x.shape[2:], grid.shape[-1], mode == "bicubic"
    factors = []
    for d, n in enumerate(sizes):
        t = grid[..., rank - 1 - d].reshape(len(grid), math.prod(grid.shape[1:-1]))
        t = (t + 1) / 2 * (n - 1) if align_corners else ((t + 1) * n - 1) / 2
        if not cubic and padding_mode != "zeros":
            t = _mirrored(t, n, align_corners) if padding_mode == "reflection" else t
            t = np.clip(t, 0, n - 1)
        weights = np.zeros((*t.shape, n))
        for k in np.arange(-1, 3) if cubic else np.arange(2):
            at = np.floor(t) + k
            value = _cubic(t - at) if cubic else 1 - np.abs(t - at)
            value = np.float64(at == np.rint(t)) if mode == "nearest" else value
            if cubic and padding_mode == "reflection":
                at = _mirrored(at, n, align_corners)
            at = at if padding_mode == "zeros" else np.clip(at, 0, n - 1)
            weights += (at[..., None] == np.arange(n)) * value[..., None]
        factors.append(weights)
    letters = "dhw"[-rank:]
    text = ",".join(f"np{letter}" for letter in letters)
    out = np.einsum(f"nc{letters},{text}->ncp", x, *factors)
    return out.reshape(*x.shape[:2], *grid.shape[1:-1])


def _affine_grid(theta: Any, size: Any, align_corners: Any = None) -> Any:
    lines = [np.linspace(-1, 1, n) * (1 if align_corners else (n - 1) / n) for n in size[2:]]
    mesh = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(size[2:])], -1)
    return np.einsum("...j,nij->n...i", mesh, theta)


def _places(n: int, size: int, corners: Any) -> Any:
    if corners:
        return np.arange(size) * ((n - 1) / max(size - 1, 1))
    return np.clip((np.arange(size) + 0.5) * n / size - 0.5, 0, None)


def _interpolate(
    x: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners=None
) -> Any:
    for k in range(x.ndim - 2):
        n = x.shape[k + 2]
        target = int(n * scale_factor) if size is None else size
        target = target[k] if isinstance(target, tuple) else target
        if mode == "nearest":
            x = x.take(np.arange(target) * n // target, axis=k + 2)
            continue
        at = _places(n, target, align_corners)
        low = at.astype(int)
        weight = (at - low).reshape([-1 if d == k + 2 else 1 for d in range(x.ndim)])
        high = x.take(np.minimum(low + 1, n - 1), axis=k + 2)
        x = (1 - weight) * x.take(low, axis=k + 2) + weight * high
    return x


def _resized_cubic(x: Any, size: Any, mode: str, align_corners: Any = False) -> Any:
    def at(t: Any) -> Any:
        t = np.abs(t)
        near, far = (1.25 * t - 2.25) * t**2 + 1, -0.75 * (t**3 - 5 * t**2 + 8 * t - 4)
        return np.where(t <= 1, near, np.where(t < 2, far, 0))

    for k, target in zip((2, 3), size, strict=True):
        n = x.shape[k]
        places = (np.arange(target) + 0.5) * n / target - 0.5
        places = np.arange(target) * ((n - 1) / (target - 1)) if align_corners else places
        weight = np.zeros((target, n))
        for j in range(-3, n + 3):  # beyond the edges the edges go on
            weight[:, min(max(j, 0), n - 1)] += at(places - j)
        x = np.moveaxis(np.tensordot(x, weight, (k, 1)), -1, k)
    return x


def _shuffle(x: Any, r: int) -> Any:
    *batch, c, h, w = x.shape
    x = x.reshape(-1, c // (r * r), r, r, h, w).transpose(0, 1, 4, 2, 5, 3)
    return x.reshape(*batch, c // (r * r), h * r, w * r)


def _unshuffle(x: Any, r: int) -> Any:
    *batch, c, h, w = x.shape
    x = x.reshape(-1, c, h // r, r, w // r, r).transpose(0, 1, 3, 5, 2, 4)
    return x.reshape(*batch, c * r * r, h // r, w // r)


def _distance(x: Any, y: Any, p: float = 2, eps: float = 1e-6, keepdim: bool = False) -> Any:
    return np.linalg.norm(x - y + eps, p, axis=-1, keepdims=keepdim)


def _pairs(x: Any, p: float = 2.0) -> Any:
    first, second = np.triu_indices(len(x), 1)
    return np.linalg.norm(x[first] - x[second], p, axis=-1)


def _cosine_loss(x: Any, y: Any, target: Any, margin: float = 0, reduction: str = "mean") -> Any:
    lengths = (np.sum(x * x, -1) + 1e-12) * (np.sum(y * y, -1) + 1e-12)
    cosine = np.sum(x * y, -1) / np.sqrt(lengths)
    losses = np.where(target == 1, 1 - cosine, np.maximum(0, cosine - margin))
    return {"mean": np.mean, "sum": np.sum, "none": np.asarray}[reduction](losses)


def _triplet(
    a: Any, p: Any, n: Any, margin: float = 1, swap: bool = False, reduction: str = "mean"
) -> Any:
    far = _distance(a, n)
    far = np.minimum(far, _distance(p, n)) if swap else far
    losses = np.maximum(0, margin + _distance(a, p) - far)
    return {"mean": np.mean, "sum": np.sum, "none": np.asarray}[reduction](losses)


def _bag(
    index: Any, weight: Any, offsets: Any = None, mode: str = "mean", per_sample_weights: Any = None
) -> Any:
    def pieces(x: Any) -> list[Any]:
        return list(x) if offsets is None else np.split(x, offsets[1:])

    bags = pieces(index)
    if per_sample_weights is not None:
        pairs = zip(pieces(per_sample_weights), bags, strict=True)
        return np.stack([(factors[:, None] * weight[b]).sum(0) for factors, b in pairs])
    reduce = {"mean": np.mean, "sum": np.sum, "max": np.max}[mode]
    return np.stack([reduce(weight[b], 0) if len(b) else weight[0] * 0 for b in bags])


def _bags(d: Any) -> list[Sample]:
    index = np.array([[0, 2, 2], [3, 1, 0]])
    flat, starts = np.array([0, 2, 2, 3, 1]), np.array([0, 2, 2, 4])
    return [
        sample(index, d(4, 2)),
        *[sample(index, d.distinct(4, 2), mode=mode) for mode in ("sum", "max")],
        sample(index, d(4, 2), mode="sum", per_sample_weights=d(2, 3)),
        sample(flat, d(4, 2), starts),
        sample(flat, d(4, 2), starts, mode="sum", per_sample_weights=d(5)),
        sample(flat, d.distinct(4, 2), starts, mode="max"),
    ]


def _of(*shape: int) -> np.ndarray:
    return np.ones(shape, "float32")


_two = np.array([0, 1])
_signs = np.array([1, -1, -1])

CASES = [
    *spatial_pool.CASES,
    _row(
        "pad",
        lambda d: [
            sample(d(2, 3), (1, 2)),
            sample(d(2, 3), (0, 1, 2, 0), value=1.5 if d.floating else 2),
            sample(d(2, 3), (-1, 1, 1, -1)),
            sample(d(), (), kind="scalar"),
            sample(d(0, 3), (1, 1, 0, 1), kind="empty"),
        ],
        _pad,
        dtypes=NUMBERS,
        result=same,
        errors=(
            wrong(_of(2), (1,), raises=RuntimeError, words="divisible by 2"),
            wrong(_of(2), (1, 1, 1, 1), raises=RuntimeError, words="two times the input dim|Padd"),
            wrong(
                _of(2, 3), (-2, -2), raises=RuntimeError, words="negative output size|non-negative"
            ),
        ),
    ),
    _row(
        "pad-edges",
        lambda d: [
            sample(d(2, 3), (2, 1), "reflect"),
            sample(d(2, 3, 4), (1, 2, 2, 0), "reflect"),
            sample(d(2, 3), (2, 4), "replicate"),
            sample(d(2, 3, 2), (1, 0, 3, 2), "circular"),
        ],
        _pad,
        errors=(
            wrong(_of(2, 3), (3, 0), "reflect", raises=RuntimeError, words="should be less than"),
            wrong(_of(2, 0), (2, 4), "replicate", raises=RuntimeError, words="non-zero"),
            wrong(
                _of(2, 3),
                (1, 0),
                "other",
                raises=(ValueError, NotImplementedError),
                words="[Uu]nrecogni",
            ),
        ),
    ),
    _row(
        "unfold-patches",
        lambda d: [
            sample(d(2, 2, 3, 4), 2),
            sample(d(2, 5, 4), (3, 2), dilation=(1, 2), padding=(2, 1), stride=(2, 1)),
            sample(d(0, 2, 3, 4), 2, kind="empty"),
        ],
        _unfold,
        errors=(
            wrong(_of(2, 3), 2, raises=RuntimeError, words="Expected 3D or 4D"),
            wrong(_of(1, 2, 3), 3, raises=RuntimeError, words="sliding"),
            wrong(_of(1, 2, 3), 2, stride=0, raises=RuntimeError, words="stride should be greater"),
        ),
    ),
    _row(
        "fold",
        lambda d: [
            sample(d(2, 8, 6), (3, 4), 2),
            sample(d(12, 16), (5, 4), (3, 2), dilation=(1, 2), padding=(2, 1), stride=(2, 1)),
            sample(d(0, 4, 6), (3, 4), 2, kind="empty"),
        ],
        _fold,
        errors=(
            wrong(_of(1, 2, 3, 4), 2, 2, raises=RuntimeError, words="Expected 2D or 3D"),
            wrong(_of(1, 7, 4), 3, 2, raises=RuntimeError, words="divisible by the product"),
            wrong(_of(1, 8, 5), 3, 2, raises=RuntimeError, words="number of sliding blocks"),
        ),
    ),
    _row(
        "grid_sample",
        lambda d: [
            sample(d(2, 3, 4, 3), d(2, 3, 2, 2) / 2, align_corners=False),
            sample(d(1, 2, 3, 4), d(1, 3, 2, 2), "bilinear", "border", True),
            sample(d(1, 2, 3, 4), d(1, 3, 2, 2), padding_mode="reflection", align_corners=False),
            sample(d(1, 2, 3, 4), d(1, 3, 2, 2), "nearest", "reflection", False),
            sample(d(1, 2, 2, 3, 4), d(1, 2, 1, 2, 3) / 2, align_corners=False),
            sample(d(1, 1, 2, 1, 2), d(1, 2, 1, 1, 3), "nearest", "border", False),
            sample(d(0, 2, 3, 4), d(0, 2, 2, 2), kind="empty"),
        ],
        _grid_sample,
        rtol32=1e-4,
        orders=1,  # PyTorch has no second gradient; the row below tests ours
        errors=(
            wrong(_of(1, 1, 2, 2), _of(1, 2, 2, 2), "other", raises=ValueError, words="mode to be"),
            wrong(_of(1, 2, 2), _of(1, 2, 2), raises=RuntimeError, words="dimensions"),
            wrong(_of(1, 1, 2, 2), _of(2, 2, 2, 2), raises=RuntimeError, words="same batch size"),
            wrong(_of(1, 1, 2, 2), _of(1, 2, 2, 3), raises=RuntimeError, words="size 2 in last"),
        ),
    ),
    _row(
        "grid_sample-cubic",
        lambda d: [
            sample(d(2, 2, 4, 3), d(2, 3, 2, 2) / 2, "bicubic", align_corners=False),
            sample(d(1, 1, 3, 4), d(1, 3, 2, 2) * 2, "bicubic", "border", True),
            sample(d(1, 1, 3, 4), d(1, 3, 2, 2) * 2, "bicubic", "reflection", True),
            sample(d(1, 1, 3, 4), d(1, 3, 2, 2) * 2, "bicubic", "reflection", False),
        ],
        _grid_sample,
        rtol64=1e-11,
        rtol32=1e-4,
        orders=1,
        errors=(
            wrong(
                _of(1, 1, 2, 2, 2),
                _of(1, 2, 2, 2, 3),
                "bicubic",
                raises=RuntimeError,
                words="only supports 4D",
            ),
        ),
    ),
    _row(
        "grid_sample-twice",
        lambda d: [
            sample(d(1, 2, 2, 2, 3), d(1, 2, 1, 1, 3) / 2, padding_mode="reflection"),
            sample(d(1, 2, 4, 3), d(1, 2, 1, 2) / 2, "bicubic"),
        ],
        _grid_sample,
        rtol64=1e-11,
        rtol32=1e-4,
        peer=False,
    ),
    _row(
        "affine_grid",
        lambda d: [
            sample(d(2, 2, 3), (2, 1, 2, 3)),
            sample(d(1, 3, 4), (1, 2, 2, 3, 2), align_corners=True),
        ],
        _affine_grid,
        errors=(
            wrong(_of(1, 2, 2), (1, 1, 2, 2), raises=RuntimeError, words="affine matrices"),
            wrong(_of(1, 2, 3), (1, 1, 2), raises=NotImplementedError, words="only supports 4D"),
        ),
    ),
    _row(
        "interpolate",
        lambda d: [
            sample(d(1, 2, 3), scale_factor=2.0),
            sample(d(1, 2, 4, 3), size=(3, 5)),
            sample(d(1, 1, 2, 2, 2), size=3),
        ],
        _interpolate,
        errors=(
            wrong(_of(2, 3), size=2, raises=(NotImplementedError, ValueError), words="3D, 4D"),
            wrong(_of(1, 2, 3), raises=ValueError, words="size or scale_factor"),
        ),
    ),
    _row(
        "interpolate-linear",
        lambda d: [
            sample(d(1, 2, 3), size=5, mode="linear"),
            sample(d(1, 2, 3), scale_factor=1.3, mode="linear"),  # as many again
            sample(d(1, 2, 3, 4), size=(5, 2), mode="bilinear"),
            sample(d(1, 2, 3, 4), size=(5, 7), mode="bilinear", align_corners=True),
            sample(d(1, 1, 2, 2, 2), scale_factor=2.0, mode="trilinear", align_corners=False),
        ],
        _interpolate,
        rtol64=1e-11,
    ),
    _row(
        "interpolate-cubic",
        lambda d: [
            sample(d(1, 2, 3, 4), size=(7, 2), mode="bicubic"),
            sample(d(1, 1, 3, 2), size=(4, 5), mode="bicubic", align_corners=True),
        ],
        _resized_cubic,
        rtol64=1e-11,
    ),
    _row(
        "interpolate-area",
        lambda d: [sample(d(1, 2, 4, 6), size=(2, 3), mode="area")],
        lambda x, size, mode: x.reshape(1, 2, 2, 2, 3, 2).mean((3, 5)),
    ),
    _row(
        "pixel_shuffle",
        lambda d: [sample(d(1, 8, 2, 3), 2), sample(d(9, 1, 2), 3)],
        _shuffle,
        dtypes=NUMBERS,
        result=same,
        errors=(wrong(_of(3, 2, 2), 2, raises=RuntimeError, words="divisible"),),
    ),
    _row(
        "pixel_unshuffle",
        lambda d: [sample(d(1, 2, 4, 6), 2), sample(d(1, 3, 6), 3)],
        _unshuffle,
        dtypes=NUMBERS,
        result=same,
        errors=(wrong(_of(3, 3, 2), 2, raises=RuntimeError, words="divisible"),),
    ),
    _row(
        "pairwise_distance",
        lambda d: [
            sample(d(2, 3), d(2, 3) + 7),
            sample(d(2, 3), d(3) + 7, 1.0, 1e-3, True, kind="broadcast"),
        ],
        _distance,
    ),
    _row(
        "pdist",
        lambda d: [
            sample(d(4, 3)),
            *[sample(d(3, 2), p) for p in (3.0, 1, float("inf"))],
            sample(d(1, 3), kind="empty"),
        ],
        _pairs,
        orders=1,  # PyTorch has no second gradient
        errors=(
            wrong(_of(2), raises=RuntimeError, words="only supports 2D tensors, got: 1D"),
            wrong(_two[:, None], raises=RuntimeError, words="floating-point dtypes"),
            wrong(_of(2, 2), -1, raises=(RuntimeError, ValueError), words="non-negative p"),
        ),
    ),
    _row(
        "pdist-twice",
        lambda d: [sample(d(4, 3), p) for p in (2.0, 3.0)],
        _pairs,
        peer=False,
    ),
    _row(
        "cosine_embedding_loss",
        lambda d: [
            sample(d(3, 4), d(3, 4) + 1, _signs),
            sample(d(3, 4), d(3, 4) + 1, _signs, margin=-0.9, reduction="sum"),
            sample(d(3, 4), d(3, 4) + 1, _signs, reduction="none"),
        ],
        _cosine_loss,
        errors=(wrong(_of(2, 3), _of(2, 3), _of(2, 3), raises=RuntimeError, words="target"),),
    ),
    *[
        _row(
            name,
            lambda d: [
                sample(d(3, 4), d(3, 4), d(3, 4) + 1),
                sample(d(3, 4), d(3, 4), d(3, 4) + 1, margin=2.0, reduction="none"),
                sample(d(3, 4), d(3, 4), d(3, 4) + 1, swap=True, reduction="sum"),
            ],
            _triplet,
            errors=(
                wrong(*[_of(2)] * 3, reduction="max", raises=ValueError, words="valid value"),
                wrong(*[_of(2)] * 3, margin=0.0, raises=ValueError, words="greater than 0"),
                wrong(_of(2, 3), _of(2, 3), _of(2, 4), raises=RuntimeError, words=blamed),
            ),
        )
        for name, blamed in (
            ("triplet_margin_loss", "triplet_margin_loss: The size"),
            ("triplet_margin_with_distance_loss", "pairwise_distance: The size"),
        )
    ],
    _row(
        "embedding_bag",
        _bags,
        _bag,
        errors=(
            wrong(
                np.zeros((1, 2), "int64"),
                _of(2, 3),
                mode="other",
                raises=ValueError,
                words="one of sum, mean or max|mode",
            ),
            wrong(_two, _of(2, 3), np.array([1]), raises=RuntimeError, words="has to be 0"),
            wrong(_two, _of(2, 3), np.array([0, 5]), raises=RuntimeError, words="greater than in"),
        ),
        orders=1,  # PyTorch has no second gradient
    ),
]
