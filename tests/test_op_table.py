"""The generic tests of the op table, tested: each must fail on a row that is wrong in one way."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import test_ops
from op_table import Case, Draw, Sample, floating, sample, unary, wrong

import numbagrad as ng

EXP = unary("exp", np.exp, dtypes=("float64", "float32"), special=False)


@ng.elementwise(grad_x=lambda g, out: g * out * 1.001)
def exp_with_a_gradient_off_by_a_thousandth(x):
    return math.exp(x)


@ng.elementwise
def exp_off_by_a_thousandth(x):
    return math.exp(x) * 1.001


def writes_into_its_input(x):
    out = x.exp()
    x.detach().mul_(2)
    return out


def ignores_strides(x):
    if x.is_contiguous():
        return x.exp()
    return x.contiguous().exp().flatten().flip((0,)).reshape(x.shape)


def forgets_no_grad(x):
    return x.exp() if x.requires_grad else x.exp().requires_grad_()


def cuts_the_graph(x):
    return x.detach().exp()


def test_the_right_row_passes():
    test_ops.test_value(EXP, "float64")
    test_ops.test_value(EXP, "float32")
    test_ops.test_gradient(EXP)
    test_ops.test_second_gradient(EXP)
    test_ops.test_strided(EXP)
    test_ops.test_float32_near_float64(EXP)
    test_ops.test_inputs_are_left_alone(EXP)
    test_ops.test_node_only_where_asked(EXP)
    test_ops.test_method_equals_function(EXP)


def test_a_value_off_by_a_thousandth_is_found():
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        test_ops.test_value(replace(EXP, call=exp_off_by_a_thousandth), "float32")


def test_a_gradient_off_by_a_thousandth_is_found():
    row = replace(EXP, call=exp_with_a_gradient_off_by_a_thousandth)
    test_ops.test_value(row, "float64")
    for test in (test_ops.test_gradient, test_ops.test_second_gradient):
        with pytest.raises(RuntimeError, match="output 0"):
            test(row)


def test_a_wrong_dtype_or_shape_is_found():
    with pytest.raises(AssertionError, match="output 0"):
        test_ops.test_value(replace(EXP, call=lambda x: x.exp().double()), "float32")
    with pytest.raises(AssertionError, match="shape"):
        test_ops.test_value(replace(EXP, call=lambda x: x.exp().unsqueeze(0)), "float32")


@pytest.mark.parametrize(
    "call,test",
    [
        (ignores_strides, test_ops.test_strided),
        (writes_into_its_input, test_ops.test_inputs_are_left_alone),
        (forgets_no_grad, test_ops.test_node_only_where_asked),
        (cuts_the_graph, test_ops.test_node_only_where_asked),
    ],
    ids=lambda value: value.__name__,
)
def test_a_row_wrong_in_one_way_fails(call, test):
    with pytest.raises((AssertionError, RuntimeError)):
        test(replace(EXP, call=call))


def test_a_method_or_an_alias_that_differs_is_found():
    with pytest.raises(AssertionError):
        test_ops.test_method_equals_function(replace(EXP, method="expm1"))
    with pytest.raises(AssertionError):
        test_ops.test_aliases_are_the_function(replace(EXP, aliases=("expm1",)))
    with pytest.raises(AssertionError):
        test_ops.test_in_place_equals_out_of_place(replace(EXP, inplace="expm1_"))


def test_an_error_that_does_not_come_or_says_something_else_is_found():
    x = np.ones(3, "float32")
    row = replace(EXP, errors=(wrong(x, raises=RuntimeError, words="anything"),))
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_ops.test_wrong_input(row, 0)
    row = replace(EXP, call=lambda x: x.sum(5), errors=(wrong(x, raises=IndexError, words="no"),))
    with pytest.raises(AssertionError, match="Regex"):
        test_ops.test_wrong_input(row, 0)


def test_a_missing_row_is_found(monkeypatch):
    monkeypatch.setattr(test_ops, "ALL", [c for c in test_ops.ALL if c.function_name != "tanh"])
    with pytest.raises(AssertionError, match=r"elementwise\.tanh"):
        test_ops.test_every_exported_op_has_a_row()


def test_draws_keep_to_their_domain_and_are_the_same_each_time():
    draw = Draw("float64", (-1, 1), avoid=(0.0,))
    values = draw(1000)
    assert values.min() >= -1
    assert values.max() <= 1
    assert np.abs(values).min() >= 0.04
    np.testing.assert_array_equal(Draw("float64", (-1, 1), avoid=(0.0,))(1000), values)
    assert Draw("uint8", (-3, 3))(1000).min() == 0
    distinct = np.sort(Draw("float32").distinct(3, 4).reshape(-1))
    assert np.diff(distinct).min() >= 0.49


def test_a_case_names_itself():
    row = Case("sum-dim", lambda d: [sample(d(2))], np.sum, result=floating)
    assert (row.function_name, row.method_name) == ("sum", "sum")
    assert replace(row, function="nn.functional.gelu").method_name == "gelu"
    assert replace(row, method="-").method_name == ""
    assert replace(row, call=len).function_name == ""
    assert isinstance(row.calls("float32")[0], Sample)
