"""Rows of scaled dot product attention: masks, causal, shared heads, sizes of all kinds."""

from __future__ import annotations

from typing import Any

import numpy as np
from op_table import Case, Draw, Fixed, Sample, sample, wrong

_NAME = "scaled_dot_product_attention"


def attention(
    q: Any, k: Any, v: Any, mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Softmax of whole rows; a row without a score that is finite is 0."""
    if enable_gqa:
        times = q.shape[-3] // k.shape[-3]
        k, v = np.repeat(k, times, -3), np.repeat(v, times, -3)
    scores = np.einsum("...le,...se->...ls", q, k)
    scores = scores * (max(q.shape[-1], 1) ** -0.5 if scale is None else scale)
    if is_causal:
        mask = np.tril(np.ones(scores.shape[-2:], bool))
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if not scores.shape[-1]:
        return np.zeros((*scores.shape[:-1], v.shape[-1]))
    weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e300))
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1, total) @ v


def _plain(d: Draw) -> list[Sample]:
    return [
        sample(d(2, 2, 3, 4), d(2, 2, 5, 4), d(2, 2, 5, 3)),
        sample(d(2, 3, 2), d(2, 3, 2), d(2, 3, 2), is_causal=True),
        sample(d(3, 2), d(4, 2), d(4, 5), scale=-0.5),
        sample(d(2, 1, 2, 3, 2), d(2, 1, 2, 2, 2), d(2, 1, 2, 2, 2), scale=0.0),
        sample(d(1, 2, 5, 2), d(1, 2, 3, 2), d(1, 2, 3, 2), is_causal=True),
        sample(d(2, 2, 3, 2), d(1, 2, 4, 2), d(4, 2), kind="broadcast"),
        sample(d(1, 2, 0, 4), d(1, 2, 3, 4), d(1, 2, 3, 4), kind="empty"),
        sample(d(1, 2, 3, 4), d(1, 2, 0, 4), d(1, 2, 0, 4), kind="empty"),
        sample(d(2, 3, 0), d(2, 4, 0), d(2, 4, 2), kind="empty"),
    ]


def _masked(d: Draw) -> list[Sample]:
    dead = np.ones((3, 4), bool)
    dead[1] = False
    dead[2, 1:] = False
    hidden = np.where(d.mask(3, 4), d(3, 4), -np.inf).astype(d.dtype)
    hidden[0, 0] = 0.0
    shapes = (2, 2, 3, 2), (2, 2, 4, 2), (2, 2, 4, 3)
    return [
        sample(*[d(*s) for s in shapes], d(2, 1, 3, 4)),
        sample(*[d(*s) for s in shapes], d(2, 1, 4)),
        sample(*[d(*s) for s in shapes], d(3, 1)),
        sample(*[d(*s) for s in shapes], d(1, 2, 1, 4)),
        sample(*[d(*s) for s in shapes], dead),
        sample(*[d(*s) for s in shapes], d.mask(2, 1, 1, 4)),
        sample(*[d(*s) for s in shapes], Fixed(hidden)),
        sample(d(2, 1, 2, 3, 2), d(2, 1, 2, 2, 2), d(2, 1, 2, 2, 2), d(1, 1, 2, 3, 2)),
    ]


def _shared(d: Draw) -> list[Sample]:
    return [
        sample(d(2, 4, 3, 2), d(2, 2, 5, 2), d(2, 2, 5, 3), enable_gqa=True),
        sample(d(1, 3, 3, 2), d(1, 1, 3, 2), d(1, 1, 3, 3), is_causal=True, enable_gqa=True),
    ]


def _long(d: Draw) -> list[Sample]:
    """Several blocks of rows and of columns, with a score in each that outweighs the last."""
    q, k, v = d(1, 1, 70, 2), d(1, 1, 520, 2), d(1, 1, 520, 1)
    k[0, 0, 300] *= 20
    return [
        sample(q, k, v),
        sample(d(1, 1, 130, 2), d(1, 1, 300, 2), d(1, 1, 300, 1), is_causal=True),
        sample(d(1, 1, 70, 2), d(1, 1, 260, 2), d(1, 1, 260, 1), d.mask(70, 260)),
    ]


def _row(name: str, samples: Any, *errors: Any, **options: Any) -> Case:
    common = {"rtol64": 1e-9, "rtol32": 1e-4, "method": "-", "domain": (-1.5, 1.5)}
    options = common | {"function": f"nn.functional.{_NAME}"} | options
    return Case(name, samples, attention, errors=errors, **options)


_x = np.ones((2, 3, 4), "float32")


def _refused(*args: Any, words: str, **kwargs: Any) -> Any:
    return wrong(*args, raises=RuntimeError, words=words, **kwargs)


def _flexible(d: Draw) -> list[Sample]:
    return [
        sample(d(2, 2, 3, 4), d(2, 2, 5, 4), d(2, 2, 5, 3)),
        sample(d(1, 4, 3, 2), d(1, 2, 5, 2), d(1, 2, 5, 3), scale=-0.5, enable_gqa=True),
        sample(d(2, 2, 3, 2), d(1, 2, 4, 2), d(1, 2, 4, 2), kind="broadcast"),
        sample(d(1, 2, 0, 4), d(1, 2, 3, 4), d(1, 2, 3, 4), kind="empty"),
        sample(d(1, 2, 3, 4), d(1, 2, 0, 4), d(1, 2, 0, 4), kind="empty"),
    ]


_FLEX = "nn.attention.flex_attention.flex_attention"

CASES = [
    _row(
        _NAME,
        _plain,
        _refused(_x[0, 0], _x, _x, words="at least 2 dimensional"),
        _refused(_x, _x.astype("float64"), _x, words="same dtype"),
        _refused(_x, _x[..., :2], _x, words="size"),
        _refused(*[_x.astype("int64")] * 3, words="not implemented for|expected"),
        _refused(_x, _x, _x, np.ones((3, 3), bool), is_causal=True, words="Explicit attn_mask"),
        _refused(_x, _x, _x, np.ones((3, 3), "float64"), words="attn_mask dtype"),
        _refused(_x, _x, _x, np.ones((2, 2), "float32"), words="must match"),
        _refused(_x, np.ones((3, 3, 4), "float32"), _x, words="must match|size"),
        _refused(
            *(np.ones((1, 4, 3, 2), "float32"), *[np.ones((1, 3, 3, 2), "float32")] * 2),
            enable_gqa=True,
            words="must divide",
        ),
    ),
    _row(f"{_NAME}-mask", _masked),
    _row(f"{_NAME}-shared", _shared),
    _row(f"{_NAME}-long", _long, orders=0),
    _row(
        "flex_attention",
        _flexible,
        _refused(_x, _x, _x, words="4-dimensional"),
        _refused(*[np.ones((1, 2, 3, 4), "int64")] * 3, words="needs float32 or float64"),
        function=_FLEX,
        peer=False,  # PyTorch's has no gradients on the CPU; see tests/nn/test_flex_attention.py
    ),
]
