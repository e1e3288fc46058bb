"""A tensor without dims beside one with dims of a narrower dtype, as PyTorch takes it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import numbagrad as ng

COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
STEPS = (*COMPARED, "maximum", "minimum", "fmax", "fmin", "fmod", "remainder", "floor_divide")
VALUES = (0.1, 3, -4, 300)
KINDS = ("float64", "float32", "int64", "int32", "int8", "uint8")


def both(library, name, kinds, value, turned):
    wide, narrow = (getattr(library, kind) for kind in kinds)
    zero = library.tensor(value).to(wide)
    pair = zero, library.tensor([0.1, 3, 1, 44]).to(narrow)
    out = getattr(library, name)(*(pair[::-1] if turned else pair))
    return str(out.dtype).partition(".")[2], out.tolist()


@pytest.mark.peer
@pytest.mark.parametrize("name", STEPS)
def test_it_is_cast_before_what_a_last_bit_decides(name):
    torch = pytest.importorskip("torch")
    for kinds in itertools.product(KINDS, KINDS):
        for value, turned in itertools.product(VALUES, (False, True)):
            if value < 0 and kinds[0] == "uint8":
                continue
            try:
                expected = both(torch, name, kinds, value, turned)
            except RuntimeError:  # a division by an integer 0
                continue
            for _ in range(2):  # the second time the cast is remembered
                dtype, found = both(ng, name, kinds, value, turned)
                assert dtype == expected[0], (kinds, value, turned)
                np.testing.assert_array_equal(found, expected[1], f"{kinds} {value} {turned}")


def test_what_is_compared_is_the_number_of_the_narrower_dtype():
    x, tenth = ng.tensor([0.1, 0.2]), ng.tensor(0.1, dtype=ng.float64)
    assert (x == tenth).tolist() == [True, False]
    assert ng.compile(lambda x, y: x == y)(x, tenth).tolist() == [True, False]
    assert (x.bfloat16() == tenth).tolist() == [True, False]
    assert (ng.tensor([44, -3], dtype=ng.int8) < ng.tensor(300)).tolist() == [False, True]


def test_gradients_keep_the_dtype_of_each():
    x = ng.tensor([0.1, 0.4], requires_grad=True)
    limit = ng.tensor(0.25, dtype=ng.float64, requires_grad=True)
    ng.maximum(x, limit).sum().backward()
    assert x.grad.dtype is ng.float32 and x.grad.tolist() == [0.0, 1.0]
    assert limit.grad.dtype is ng.float64 and limit.grad.item() == 1.0
    np.testing.assert_array_equal(
        ng.func.vmap(ng.maximum, (0, None))(x.detach(), limit.detach()), [0.25, np.float32(0.4)]
    )
