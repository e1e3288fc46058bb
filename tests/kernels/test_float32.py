"""Kernels of float32 that compute in it: a plain number among floats makes all of it float64."""

import re

import pytest
from numba import types

from numbagrad.kernels.cpu import attention, recurrent

i64, f64 = types.int64, types.float64


def array(rank, layout="C"):
    return types.Array(types.float32, rank, layout)


def wide_arithmetic(function, *signature):
    """The sums, differences and products of float64 in a function, as LLVM has them."""
    dispatcher = function.dispatcher
    dispatcher.compile(signature)
    text = dispatcher.inspect_llvm(signature)
    return re.findall(r"= f(?:add|sub|mul|div).*double.*", text)


ROWS = {
    "lstm_row": (array(3), *[i64] * 5),
    "lstm_row_grad": (array(3), array(1), *[i64] * 7),
    "gru_row": (array(3), *[i64] * 6),
    "gru_row_grad": (array(3), *[i64] * 8),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_step_of_a_recurrent_layer(name):
    assert not wide_arithmetic(getattr(recurrent, name), *ROWS[name])


def test_the_gradient_of_scores():
    a4 = array(4, "A")
    words = types.Array(i64, 1, "A")
    found = wide_arithmetic(
        attention.score_grads,
        *(array(2), array(2), array(1), a4, array(3, "A"), a4, a4, a4, words, f64, f64, f64),
        *(types.Tuple((a4, i64, i64)), *[i64] * 7),
    )
    # Once for a row, what dropout does with its probability: a number, no vectors.
    assert not [line for line in found if " x double>" in line]
    assert len(found) <= 4
