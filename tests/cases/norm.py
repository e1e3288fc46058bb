"""Rows of softmax and its kin, of the normalisations and of embedding."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special
from op_table import FLOATS, NO_METHOD, Case, Draw, DTypeName, Sample, float64, sample, wrong

_ones = np.ones((2, 3), "float32")
_range = wrong(_ones, 2, raises=IndexError, words="Dimension out of range")
_ints = wrong(np.ones((2, 3), "int64"), 1, raises=RuntimeError, words="not implemented|floating")
_functional = "nn.functional."


def _dims(draw: Draw) -> list[Sample]:
    return [
        sample(draw(2, 3), 1),
        sample(draw(2, 3), 0),
        sample(draw(3, 1), 0),
        sample(draw(1, 3, 1), 1),
        sample(draw(2, 3, 2), dim=-2),
        sample(draw(), 0, kind="scalar"),
        sample(draw(0, 3), 1, kind="empty"),
        sample(draw(0, 3), 0, kind="empty"),
    ]


def _large(draw: Draw) -> list[Sample]:
    return [sample(np.array([[1000.0, 999.0, -1000.0], [80, 88, 90]], draw.dtype), 1)]


def _along(function: Any) -> Any:
    def oracle(x: Any, dim: int) -> Any:
        if x.size == 0:
            return x.copy()
        return function(x, axis=dim if x.ndim else None)

    return oracle


def layer_norm(x: Any, shape: Any, weight: Any = 1.0, bias: Any = 0.0, eps: float = 1e-5) -> Any:
    """Each sample to mean 0 and variance 1 over its last dims."""
    axes = tuple(range(-len(shape), 0))
    mean = x.mean(axes, keepdims=True)
    return (x - mean) / np.sqrt(x.var(axes, keepdims=True) + eps) * weight + bias


def rms_norm(x: Any, shape: Any, weight: Any = 1.0, eps: float = 1e-5) -> Any:
    """Each sample to mean square 1 over its last dims."""
    axes = tuple(range(-len(shape), 0))
    return x / np.sqrt((x * x).mean(axes, keepdims=True) + eps) * weight


CASES = [
    Case("softmax", _dims, _along(scipy.special.softmax), errors=(_range, _ints)),
    Case("softmax-large", _large, _along(scipy.special.softmax), orders=0),
    Case(
        "softmax-dtype",
        lambda d: [sample(d(2, 3), 1, dtype=DTypeName("float64"))],
        lambda x, dim, dtype: scipy.special.softmax(x, axis=dim),
        dtypes=(*FLOATS, "int64"),
        result=float64,
        orders=0,
    ),
    Case("log_softmax", _dims, _along(scipy.special.log_softmax), errors=(_range, _ints)),
    Case("log_softmax-large", _large, _along(scipy.special.log_softmax), orders=0),
    Case(
        "softmax-functional",
        _dims,
        _along(scipy.special.softmax),
        function=_functional + "softmax",
        method=NO_METHOD,
    ),
    Case(
        "log_softmax-functional",
        _dims,
        _along(scipy.special.log_softmax),
        function=_functional + "log_softmax",
        method=NO_METHOD,
    ),
    Case(
        "softmin",
        _dims,
        _along(lambda x, axis: scipy.special.softmax(-x, axis=axis)),
        function=_functional + "softmin",
        method=NO_METHOD,
    ),
    Case(
        "layer_norm",
        lambda d: [
            sample(d(2, 3), (3,)),
            sample(d(2, 3), (3,), d(3), d(3)),
            sample(d(2, 2, 3), (2, 3), d(2, 3), d(2, 3)),
            sample(d(2, 3), (3,), d(3)),
            sample(d(2, 3), (3,), eps=0.1),
            sample(d(0, 3), (3,), d(3), d(3), kind="empty"),
        ],
        layer_norm,
        function=_functional + "layer_norm",
        method=NO_METHOD,
        rtol64=1e-10,
        rtol32=1e-4,
        errors=(
            wrong(_ones, (4,), raises=RuntimeError, words="normalized_shape"),
            wrong(_ones, (3,), np.ones(2, "float32"), raises=RuntimeError, words="weight.*shape"),
        ),
    ),
    Case(
        "rms_norm",
        lambda d: [sample(d(2, 3), (3,), eps=1e-5), sample(d(2, 3), (3,), d(3), 1e-5)],
        rms_norm,
        function=_functional + "rms_norm",
        method=NO_METHOD,
        rtol64=1e-10,
        rtol32=1e-4,
    ),
    Case(
        "normalize",
        lambda d: [sample(d(2, 3)), sample(d(2, 3), dim=0)],
        lambda x, dim=1: x / np.linalg.norm(x, axis=dim, keepdims=True),
        function=_functional + "normalize",
        method=NO_METHOD,
    ),
    Case(
        "embedding",
        lambda d: [
            sample(np.array([[0, 2], [1, 2]]), d(3, 4)),
            sample(np.array(1), d(3, 4), kind="scalar"),
            sample(np.zeros((0, 2), "int64"), d(3, 4), kind="empty"),
        ],
        lambda at, table: table[at],
        function=_functional + "embedding",
        method=NO_METHOD,
        errors=(wrong(np.array([3]), np.ones((3, 2)), raises=IndexError, words="out of range"),),
    ),
    Case(
        "one_hot",
        lambda d: [sample(np.array([0, 2, 1])), sample(np.array([[0], [1]]), 4)],
        lambda at, count=-1: np.eye(count if count > 0 else at.max() + 1, dtype="int64")[at],
        function=_functional + "one_hot",
        method=NO_METHOD,
        dtypes=("int64",),
        orders=0,
    ),
]


def _local_response(x: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0):
    squares = np.zeros_like(x)
    for c in range(x.shape[1]):
        near = x[:, max(0, c - size // 2) : c + (size - 1) // 2 + 1]
        squares[:, c] = (near * near).sum(1) / size
    return x / (k + alpha * squares) ** beta


CASES.append(
    Case(
        "local_response_norm",
        lambda d: [
            sample(d(2, 4, 3), 2),
            sample(d(2, 5, 2, 3), 3, 0.5, 0.6, 2.0),
            sample(d(1, 3, 2, 1, 2), 5, alpha=2.0),
            sample(d(2, 3, 0), 2, kind="empty"),
        ],
        _local_response,
        function=_functional + "local_response_norm",
        method=NO_METHOD,
        errors=(wrong(_ones, 2, raises=ValueError, words="Expected 3D or higher"),),
    )
)
