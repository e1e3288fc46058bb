"""Rows of the functions that make or fill tensors; random ones are held to range and shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import op_table
from op_table import (
    EVERY,
    FLOATS,
    NO_METHOD,
    NUMBERS,
    Case,
    DTypeName,
    float32,
    float64,
    index,
    same,
    sample,
    wrong,
)


def _library(name: str) -> Any:
    return getattr(op_table.LIBRARY, name)


def made(name: str, *samples: Any, oracle: Any, **options: Any) -> Case:
    """A row for a function without a tensor argument."""
    options.setdefault("result", float32)
    return Case(
        name,
        lambda d: list(samples),
        oracle,
        method=NO_METHOD,
        dtypes=("float32",),
        orders=0,
        **options,
    )


def _sizes(function: Any) -> Any:
    def oracle(*size: Any, dtype: Any = None) -> Any:
        return function(size[0] if isinstance(size[0], (tuple, list)) else size)

    return oracle


def _diagonal_filled(x: Any, value: Any, wrap: bool = False) -> Any:
    out = x.copy()
    np.fill_diagonal(out, value, wrap)
    return out


_shapes = (sample(2, 3), sample((2, 3)), sample(0, 3, kind="empty"), sample(()))
_negative = wrong(2, -1, raises=RuntimeError, words="negative")
_double = sample(2, dtype=DTypeName("float64"))


def like(name: str, oracle: Any, *args: Any) -> Case:
    """A row for ``zeros_like`` and its kin."""
    return Case(
        name,
        lambda d: [
            sample(d(2, 3), *args),
            sample(d(), *args),
            sample(d(0, 3), *args, kind="empty"),
        ],
        oracle,
        method=NO_METHOD,
        dtypes=EVERY,
        orders=0,
    )


def method_new(name: str, oracle: Any, *args: Any) -> Case:
    """A row for ``x.new_zeros`` and its kin."""
    return Case(
        name,
        lambda d: [sample(d(3), (2, 2), *args), sample(d(3), (0, 2), *args)],
        lambda x, shape, *args: oracle(shape, *args),
        call=lambda x, *how: getattr(x, name)(*how),
        dtypes=NUMBERS,
        orders=0,
    )


def filled(name: str, oracle: Any, *args: Any, dtypes: Any = NUMBERS) -> Case:
    """A row for an in-place method that overwrites: the gradient of the old values is zero."""
    return Case(
        name,
        lambda d: [
            sample(d(2, 3), *args),
            sample(d(), *args),
            sample(d(0, 3), *args, kind="empty"),
        ],
        oracle,
        call=lambda x, *args: getattr(x.clone(), name)(*args),
        dtypes=dtypes,
    )


def random(name: str, low: float, high: float, *args: Any, **options: Any) -> Case:
    """A row for a random function: its dtype and range; distributions are tested elsewhere."""

    def call(*size: Any, **kwargs: Any) -> Any:
        x = _library(name)(*args, *size, **kwargs)
        return x, bool((x >= low).all()), bool((x <= high).all())

    options.setdefault("result", float32)
    shape = (2, 3)
    return Case(
        name,
        lambda d: [sample(*((shape,) if args else shape))],
        lambda *size: (None, True, True),
        call=call,
        dtypes=("float32",),
        orders=0,
        **options,
    )


def random_method(name: str, low: float, high: float, *args: Any) -> Case:
    """A row for an in-place random method."""

    def call(x: Any) -> Any:
        x = getattr(x.clone(), name)(*args)
        return x, bool((x >= low).all()), bool((x <= high).all())

    return Case(
        name,
        lambda d: [sample(d(2, 3)), sample(d(0, 3))],
        lambda x: (None, True, True),
        call=call,
        dtypes=FLOATS,
        orders=0,
    )


CASES = [
    made("zeros", *_shapes, oracle=_sizes(np.zeros), errors=(_negative,)),
    made("ones", *_shapes, oracle=_sizes(np.ones), errors=(_negative,)),
    made("zeros-dtype", _double, oracle=_sizes(np.zeros), result=float64),
    made("ones-dtype", _double, oracle=_sizes(np.ones), result=float64),
    made(
        "empty",
        *_shapes,
        oracle=lambda *size: size[0] if isinstance(size[0], tuple) else size,
        call=lambda *size: tuple(_library("empty")(*size).shape),
        result=None,
    ),
    made("full", sample((2, 3), 1.5), sample((), 2.0), oracle=np.full),
    made("full-int", sample((2, 3), 2), oracle=np.full, result=index),
    made("full-bool", sample((2,), True), oracle=np.full, result=lambda _: "bool"),
    made("eye", sample(3), sample(2, 3), sample(0), oracle=np.eye),
    made(
        "arange",
        sample(4),
        sample(1, 5),
        sample(5, 0, -2),
        sample(0),
        oracle=np.arange,
        result=index,
        errors=(
            wrong(0, 3, 0, raises=RuntimeError, words="nonzero"),
            wrong(0, 3, -1, raises=RuntimeError, words="sign|inconsistent"),
        ),
    ),
    made("arange-float", sample(0, 1, 0.25), sample(2.5), oracle=np.arange),
    made(
        "linspace",
        sample(0, 1, 5),
        sample(3, -2, 4),
        sample(1, 2, 1),
        sample(1, 2, 0, kind="empty"),
        oracle=np.linspace,
        errors=(wrong(0, 1, -1, raises=RuntimeError, words="non-negative"),),
    ),
    made("logspace", sample(0, 2, 3), oracle=np.logspace),
    made(
        "tensor",
        sample([[1.0, 2], [3, 4]]),
        sample(2.5),
        sample([]),
        oracle=np.array,
        errors=(
            wrong([[1.0], [1.0, 2.0]], raises=ValueError, words="expected sequence|length"),
            wrong(["a"], raises=(TypeError, ValueError), words="str|dtype|type"),
        ),
    ),
    made("tensor-int", sample([1, 2]), sample(3), oracle=np.array, result=index),
    made("tensor-bool", sample([True, False]), oracle=np.array, result=lambda _: "bool"),
    made(
        "tensor-dtype",
        sample([1, 2], dtype=DTypeName("float64")),
        oracle=np.array,
        result=float64,
    ),
    made("as_tensor", sample([1.0, 2.0]), oracle=np.array),
    made("asarray", sample([1.0, 2.0]), oracle=np.array),
    Case(
        "as_tensor-array",
        lambda d: [sample(d(2, 3))],
        np.copy,
        call=lambda x: _library("as_tensor")(x.detach().numpy()),
        dtypes=EVERY,
        orders=0,
    ),
    Case(
        "from_numpy",
        lambda d: [sample(d(2, 3)), sample(d()), sample(d(0, 3))],
        np.copy,
        call=lambda x: _library("from_numpy")(x.detach().numpy()),
        dtypes=EVERY,
        orders=0,
    ),
    Case(
        "from_dlpack",
        lambda d: [sample(d(2, 3)), sample(d()), sample(d(0, 3))],
        np.copy,
        call=lambda x: _library("from_dlpack")(x.detach()),
        dtypes=EVERY,
        orders=0,
    ),
    Case(
        "to_dlpack",
        lambda d: [sample(d(2, 3)), sample(d()), sample(d(0, 3))],
        np.copy,
        call=lambda x: _library("from_dlpack")(_library("to_dlpack")(x.detach())),
        dtypes=EVERY,
        orders=0,
    ),
    Case(
        "empty_permuted",
        lambda d: [sample((2, 3, 4), (0, 2, 1)), sample((2, 3), (1, 0))],
        lambda size, order: {(2, 3, 4): (12, 1, 3), (2, 3): (1, 2)}[size],
        call=lambda *how: _library("empty_permuted")(*how).stride(),
        dtypes=("float32",),
        result=None,
        orders=0,
    ),
    made(
        "tril_indices",
        sample(3, 4),
        sample(3, 3, -1),
        oracle=lambda n, m, k=0: np.stack(np.tril_indices(n, k, m)),
        result=index,
    ),
    made(
        "triu_indices",
        sample(3, 4),
        sample(3, 3, 1),
        oracle=lambda n, m, k=0: np.stack(np.triu_indices(n, k, m)),
        result=index,
    ),
    like("zeros_like", np.zeros_like),
    like("ones_like", np.ones_like),
    like("full_like", np.full_like, 1),
    Case(
        "empty_like",
        lambda d: [sample(d(2, 3))],
        np.shape,
        call=lambda x: tuple(_library("empty_like")(x).shape),
        dtypes=EVERY,
        result=None,
        orders=0,
    ),
    method_new("new_zeros", np.zeros),
    method_new("new_ones", np.ones),
    Case(
        "new_empty",
        lambda d: [sample(d(3), (2, 2))],
        lambda x, shape: shape,
        call=lambda x, shape: tuple(x.new_empty(shape).shape),
        result=None,
        orders=0,
    ),
    method_new("new_full", np.full, 2),
    Case(
        "new_tensor",
        lambda d: [sample(d(2))],
        lambda x: np.array([1, 2]),
        call=lambda x: x.new_tensor([1, 2]),
        dtypes=NUMBERS,
        orders=0,
    ),
    filled("zero_", np.zeros_like),
    filled("fill_", np.full_like, 2),
    Case(
        "fill_diagonal_",
        lambda d: [
            sample(d(2, 3), 2),
            sample(d(7, 2), 1.5, True),
            sample(d(7, 2), 1.5),
            sample(d(2, 2, 2), 3),
            sample(d(0, 2), 1, kind="empty"),
        ],
        _diagonal_filled,
        call=lambda x, *args: x.clone().fill_diagonal_(*args),
        dtypes=NUMBERS,
        errors=(
            wrong(np.ones(3, "float32"), 1, raises=RuntimeError, words="larger than 1"),
            wrong(np.ones((2, 3, 2), "float32"), 1, raises=RuntimeError, words="equal length"),
        ),
    ),
    Case(
        "copy_",
        lambda d: [
            sample(d(2, 3), d(2, 3)),
            sample(d(2, 3), d(3)),
            sample(d(2, 3), np.ones((2, 3), "int64")),
        ],
        lambda x, y: np.broadcast_to(y, x.shape),
        call=lambda x, y: x.clone().copy_(y),
        dtypes=NUMBERS,
        result=same,
        errors=(
            wrong(
                np.ones(3, "float32"),
                np.ones((2, 3), "float32"),
                raises=RuntimeError,
                words="broadcast|must match",
            ),
        ),
    ),
    random("rand", 0, 1),
    random("randn", -10, 10),
    random("randint", 2, 4, 2, 5, result=index),
    Case(
        "rand_like",
        lambda d: [sample(d(2, 3))],
        lambda x: (None, True),
        call=lambda x: (lambda y: (y, bool((y < 1).all())))(_library("rand_like")(x)),
        orders=0,
    ),
    Case(
        "randn_like",
        lambda d: [sample(d(2, 3))],
        lambda x: (None, True),
        call=lambda x: (lambda y: (y, tuple(y.shape) == (2, 3)))(_library("randn_like")(x)),
        orders=0,
    ),
    made(
        "randperm",
        sample(5),
        sample(0),
        oracle=np.arange,
        call=lambda n: _library("randperm")(n).sort()[0],
        result=index,
    ),
    random("normal", -20, 20, 1.0, 2.0),
    Case(
        "randint_like",
        lambda d: [sample(d(2, 3), 2, 5)],
        lambda x, low, high: (None, True),
        call=lambda x, low, high: (lambda y: (y, bool(((y >= low) & (y < high)).all())))(
            _library("randint_like")(x, low, high)
        ),
        orders=0,
    ),
    Case(
        "dropout",
        lambda d: [
            sample(d(2, 3), 0.0),
            sample(d(2, 3), 0.5, False),
            sample(d(0, 3), 0.0, kind="empty"),
        ],
        lambda x, p, training=True: x,
        function="nn.functional.dropout",
        method=NO_METHOD,
        errors=(
            wrong(
                np.ones(3, "float32"),
                1.5,
                raises=(ValueError, RuntimeError),
                words="between 0 and 1",
            ),
        ),
    ),
    Case(
        "dropout-all",
        lambda d: [sample(d(2, 3), 1.0)],
        lambda x, p: 0 * x,
        function="nn.functional.dropout",
        method=NO_METHOD,
    ),
    random_method("bernoulli_", 0, 1, 0.5),
    random_method("exponential_", 0, 1e3, 2.0),
    random_method("random_", 0, 5, 6),
    random_method("cauchy_", -np.inf, np.inf, 1.0, 2.0),
    random_method("log_normal_", 0, np.inf, 0.5, 0.25),
    random_method("geometric_", 1, 1e4, 0.3),
    random_method("uniform_", -2, 3, -2, 3),
    random_method("normal_", -20, 20, 1, 2),
    Case(
        "bernoulli",
        lambda d: [sample(np.array([0.0, 1.0, 1.0], d.dtype))],
        np.copy,
        method=NO_METHOD,
        orders=0,
    ),
    Case(
        "multinomial",
        lambda d: [
            sample(np.array([0.0, 1.0, 0.0], d.dtype), 1),
            sample(np.array([[0.0, 0.0, 2.0], [1.0, 0.0, 0.0]], d.dtype), 2, True),
        ],
        lambda p, n, replacement=False: np.repeat(p.argmax(-1)[..., None], n, -1),
        result=index,
        orders=0,
        repeats=False,
        errors=(
            wrong(np.ones(3, "float32"), 4, raises=RuntimeError, words="cannot sample|without"),
            wrong(-np.ones(3, "float32"), 1, raises=RuntimeError, words="< 0|negative"),
        ),
    ),
]
