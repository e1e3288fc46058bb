"""Arguments that no row of the table has: bounds the wrong way round, ints, one variable, 0-d."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import numbagrad as ng
import numbagrad.nn.functional as F

inf, nan = math.inf, math.nan


def test_what_is_constant_in_steps_has_a_gradient_of_zeros():
    x = ng.tensor([[1.5, -2.5]], requires_grad=True)
    y = ng.tensor([[1.0], [2.0]], requires_grad=True)
    for function in (ng.ceil, ng.round, ng.sign):
        (g,) = ng.autograd.grad(function(x).sum(), x)
        assert g.tolist() == [[0.0, 0.0]]
    gx, gy = ng.autograd.grad(ng.div(x, y, rounding_mode="floor").sum(), (x, y))
    assert gx.tolist() == [[0.0, 0.0]] and gy.tolist() == [[0.0], [0.0]]
    (g,) = ng.autograd.grad(ng.copysign(x.detach(), y).sum(), y)
    assert g.tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize("middle", [ng.median, ng.nanmedian])
def test_the_median_of_nothing_has_an_empty_gradient(middle):
    x = ng.zeros(0, 2, requires_grad=True)
    out = middle(x)
    out.backward()
    assert math.isnan(out.item()) and x.grad.shape == (0, 2)


def test_what_is_written_into_no_elements_keeps_its_history():
    x = ng.zeros(3, 0, requires_grad=True)
    y = x * 1.0
    y[1:3] = 1.0
    y.sum().backward()
    assert x.grad.shape == (3, 0)


@pytest.mark.parametrize("name", "gelu silu mish selu hardswish hardsigmoid logsigmoid".split())
def test_activations_of_ints_are_floats(name):
    function = getattr(F, name)
    ints = ng.tensor([-2, 0, 1, 4])
    assert function(ints).dtype is ng.float32
    assert function(ints).tolist() == function(ints.float()).tolist()


def test_softsign_and_tanhshrink_of_ints():
    x = ng.tensor([-1, 3])
    assert F.softsign(x).tolist() == [-0.5, 0.75]
    np.testing.assert_allclose(F.tanhshrink(x).numpy(), [-1 + math.tanh(1), 3 - math.tanh(3)])
    assert F.relu6(ng.tensor([-1, 3, 9])).tolist() == [0, 3, 6]
    assert F.relu6(x).dtype is ng.int64


def test_zero_to_a_negative_integer_power():
    x = ng.tensor([0, 1, -1, 2])
    assert x.pow(ng.tensor(-1)).tolist() == [0, 1, -1, 0]
    assert x.pow(ng.tensor([-2, -2, -2, 3])).tolist() == [0, 1, 1, 8]


def test_ranges_of_ints_between_floats():
    assert ng.arange(0.1, -7.9, -4.0, dtype=ng.int64).tolist() == [0, -4]
    assert ng.arange(0.1, 7.9, 1.7, dtype=ng.int32).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="step must be nonzero"):
        ng.arange(0, 5, 0.5, dtype=ng.int64)
    assert ng.linspace(4.3, 1.9, 5, dtype=ng.int32).tolist() == [4, 3, 2, 1, 1]
    assert ng.logspace(4.3, -3, 4, 5.0, dtype=ng.int64).tolist() == [625, 14, 0, 0]


def test_cosine_similarity_along_a_dim_that_broadcasts():
    x, y = ng.tensor([[[3.0], [4.0]]]), ng.tensor([[[1.0]], [[-1.0]]])
    expected = [[7 / 5 / math.sqrt(2)], [-7 / 5 / math.sqrt(2)]]
    np.testing.assert_allclose(F.cosine_similarity(x, y, dim=-2).numpy(), expected, rtol=1e-6)


def test_cov_and_corrcoef_of_one_variable_are_numbers():
    x = ng.tensor([[1.0, 2.0]])
    assert ng.cov(x).tolist() == 0.5
    assert ng.corrcoef(x).tolist() == 1.0


def test_circular_padding_wraps_what_is_left():
    x = ng.tensor([[0, 1, 2, 3]])
    assert F.pad(x, (-1, 2), mode="circular").tolist() == [[1, 2, 3, 1, 2]]
    assert F.pad(x, (-2, 3), mode="reflect").tolist() == [[2, 3, 2, 1, 0]]
    assert F.pad(x, (-1, 0), mode="circular").tolist() == [[1, 2, 3]]
    assert F.pad(x, (0, -2), mode="circular").tolist() == [[0, 1]]
    assert F.pad(x, (-1, -1), mode="circular").tolist() == [[1, 2]]


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_padding_never_returns_memory_of_its_input(mode):
    x = ng.ones(2, 4)
    F.pad(x, (-1, 0), mode=mode).zero_()
    F.pad(x, (0, 0), mode=mode).zero_()
    assert x.tolist() == [[1.0] * 4] * 2


def test_padding_of_an_empty_batch():
    assert F.pad(ng.zeros(0, 3, 3), (1, 2), mode="reflect").shape == (0, 3, 6)


def test_kl_div_of_what_is_no_probability():
    x = ng.tensor([0.5, 1.0], requires_grad=True)
    out = F.kl_div(x, ng.tensor([-1.0, 0.0]), reduction="none")
    assert math.isnan(out[0].item()) and out[1].item() == 0.0
    assert F.kl_div(x[0], ng.tensor(1.0), reduction="batchmean").item() == -0.5


def test_losses_take_what_broadcasts():
    x = ng.ones(4, 3)
    (expected,) = {0.5 * (math.log(2.0) + 0.5)}
    for shape in ((1, 3), (4, 1), (4,)):
        loss = F.gaussian_nll_loss(x, x * 0, ng.full(shape, 2.0))
        assert loss.item() == pytest.approx(expected, rel=1e-6)
    with pytest.raises(ValueError, match="incorrect size"):
        F.gaussian_nll_loss(x, x, ng.ones(1, 1))
    row = ng.tensor([1.0, 2.0, 3.0])
    one = F.multi_margin_loss(row, ng.tensor([1]))
    assert one.item() == F.multi_margin_loss(row, ng.tensor(1)).item()


def test_diff_with_what_stands_beside():
    x = ng.tensor([1, 3, 6])
    assert ng.diff(x, 1, 0, ng.tensor([0]), ng.tensor([9])).tolist() == [1, 2, 3, 3]
    assert ng.diff(x[None], prepend=ng.tensor([[0]])).tolist() == [[1, 2, 3]]
    assert ng.diff(x, 0, append=ng.tensor([1])).tolist() == [1, 3, 6]


def test_quantile_and_unique_of_a_number():
    x = ng.tensor(2.0)
    assert ng.quantile(x, ng.tensor([0.1, 0.5]), dim=-1).tolist() == [2.0, 2.0]
    assert ng.unique(x, return_inverse=True)[1].shape == ()


def test_gradient_without_spacing():
    assert ng.gradient(ng.tensor([1.0, 4.0, 9.0]), spacing=None)[0].tolist() == [3.0, 4.0, 5.0]


def test_i0_and_logit_have_gradients_beyond_their_range():
    x = ng.tensor([800.0, -800.0], dtype=ng.double, requires_grad=True)
    assert ng.autograd.grad(ng.i0(x).sum(), x)[0].tolist() == [inf, -inf]
    x = ng.tensor([0.0, 1.0, 0.5, -1.0], requires_grad=True)
    *known, outside = ng.autograd.grad(ng.logit(x).sum(), x)[0].tolist()
    assert known == [inf, inf, 4.0] and math.isnan(outside)


def test_singular_values_that_are_equal_have_a_gradient():
    x = ng.eye(3, dtype=ng.double, requires_grad=True)
    (g,) = ng.autograd.grad(ng.linalg.norm(x, "nuc"), x)
    np.testing.assert_allclose(g.numpy(), np.eye(3), atol=1e-15)
    (g,) = ng.autograd.grad(ng.linalg.eigvalsh(x).sum(), x)
    np.testing.assert_allclose(g.numpy(), np.eye(3), atol=1e-15)
    x = ng.zeros(2, 3, dtype=ng.double, requires_grad=True)
    (g,) = ng.autograd.grad(ng.norm(x, "nuc"), x)
    np.testing.assert_allclose((g @ g.t()).numpy(), np.eye(2), atol=1e-15)


def test_solve_with_a_vector_for_each_matrix():
    a = ng.tensor([[[2.0, 0.0], [0.0, 4.0]], [[1.0, 1.0], [0.0, 1.0]]])
    b = ng.tensor([[2.0, 4.0], [3.0, 1.0]])
    assert ng.linalg.solve(a, b).tolist() == [[1.0, 1.0], [2.0, 1.0]]


def test_searchsorted_by_side_and_sorter():
    edges, order = ng.tensor([3.0, 1.0, 2.0]), ng.tensor([1, 2, 0])
    value = ng.tensor([2.0])
    assert ng.searchsorted(edges, value, sorter=order).tolist() == [1]
    assert ng.searchsorted(edges, value, side="right", sorter=order).tolist() == [2]


def test_addbmm_keeps_its_dtype():
    x = ng.ones(2, 2, dtype=ng.int32)
    assert ng.addbmm(x, x[None], x[None]).dtype is ng.int32
    assert ng.broadcast_shapes((5, 1), 4) == (5, 4)


FILLED = {
    ("bool", 2): True, ("bool", float("nan")): True, ("bool", 0.0): False, ("int64", 1.9): 1,
    ("int32", -1.9): -1, ("uint8", -1): 255, ("uint8", True): 1, ("float32", 2**30): 2.0**30,
    ("uint8", 256): None, ("uint8", -256): None, ("int8", 128.0): None, ("int64", 2**63): None,
    ("int32", float("nan")): None, ("int32", float("inf")): None, ("float32", 1e39): None,
    ("float16", 70000): None, ("float16", float("inf")): float("inf"), ("float64", 1j): None,
}  # fmt: skip
"""What PyTorch makes of a number that is filled in; None where it raises."""


@pytest.mark.parametrize(("dtype", "value"), FILLED)
def test_numbers_become_what_the_dtype_holds(dtype, value):
    x, mask = ng.zeros(3, dtype=getattr(ng, dtype)), ng.tensor([True, False, True])
    expected = FILLED[dtype, value]
    for fill in (ng.masked_fill, ng.Tensor.masked_fill_):
        if expected is None:
            with pytest.raises(TypeError, match=r"masked_fill: value .* cannot be converted"):
                fill(x, mask, value)
            assert not x.any()
        else:
            assert fill(x.clone(), mask, value).tolist() == [expected, x[1].item(), expected]


WRONG: list[tuple[Any, type[Exception], str]] = [
    (lambda x: F.softshrink(x, -0.5), ValueError, "lambda must be greater or equal to 0"),
    (lambda x: F.prelu(x, ng.ones(1, 3)), RuntimeError, "scalar or 1D tensor"),
    (lambda x: ng.isclose(x, x, rtol=-1.0), ValueError, "rtol must be greater"),
    (lambda x: ng.diff(x, -1), RuntimeError, "order must be non-negative"),
    (lambda x: ng.flipud(x[0, 0]), RuntimeError, "Input must be >= 1-d"),
    (lambda x: ng.rot90(x, 1, [0]), RuntimeError, "total rotation dims == 2"),
    (lambda x: x.masked_fill(x > 0, ng.ones(1)), RuntimeError, "0-dimensional value tensor"),
    (lambda x: ng.nn.Linear(-1, 3), RuntimeError, "negative dimension -1"),
    (lambda x: ng.linalg.cross(x, x[:, :1]), RuntimeError, "must have length 3"),
    (lambda x: ng.cdist(x, x, 2.0, "fast"), ValueError, "valid value for compute_mode"),
    (lambda x: F.cross_entropy(x, x, ignore_index=1), RuntimeError, "ignore_index is not support"),
    (lambda x: F.batch_norm(x, None, None, training=True, eps=-1.0), ValueError, "eps must not"),
    (lambda x: ng.searchsorted(x[0], x[0], side="up"), ValueError, "side can only be"),
    (lambda x: ng.searchsorted(x[0], x[0], side="left", right=True), ValueError, "opposites"),
    (
        lambda x: ng.searchsorted(x, x, sorter=ng.zeros(3, dtype=ng.long)),
        RuntimeError,
        "boundary and sorter must have the same size",
    ),
]


@pytest.mark.parametrize(("call", "kind", "words"), WRONG, ids=[w[2] for w in WRONG])
def test_what_cannot_be_is_refused(call, kind, words):
    with pytest.raises(kind, match=words):
        call(ng.ones(2, 3))


def test_lerp_meets_its_ends():
    start, end = ng.tensor([1e8, -inf, 3.0]), ng.tensor([1.0, 3.0, -7.1])
    for weight in (1.0, ng.ones(3), ng.tensor(1.0)):
        found = ng.lerp(start, end, weight)
        assert found[::2].tolist() == [1.0, np.float32(-7.1)]
    assert ng.lerp(start, end, 0.0)[::2].tolist() == [1e8, 3.0]
    assert ng.lerp(start, end, 0.9)[1] == -inf
    assert ng.tensor([-inf, 1.0, 2.0, 3.0]).quantile(0.3) == -inf


@pytest.mark.parametrize("name, limit", [("smooth_l1_loss", "beta"), ("huber_loss", "delta")])
@pytest.mark.parametrize("width", [0.5, 1.0, 2.0])
def test_rounded_losses_are_squares_where_input_equals_target(name, limit, width):
    """Where they meet the second derivative is that of the square, and none from the limit on."""
    y = ng.zeros(5, dtype=ng.float64, requires_grad=True)
    x = ng.tensor([0.0, 0.25, -0.25, width, -3.0], dtype=ng.float64, requires_grad=True)
    loss = getattr(F, name)(x, y, reduction="sum", **{limit: width})
    gx, gy = ng.autograd.grad(loss, (x, y), create_graph=True)
    scale = 1 / width if limit == "beta" else 1.0
    slope = 1.0 if limit == "beta" else width
    expected = [0.0, 0.25 * scale, -0.25 * scale, slope, -slope]
    assert gx.tolist() == expected and gy.tolist() == [-g for g in expected]
    curved = [scale, scale, scale, 0.0, 0.0]
    for gradient, sign in ((gx, 1), (gy, -1)):
        found = ng.autograd.grad(gradient.sum(), (x, y), retain_graph=True)
        assert found[0].tolist() == [sign * c for c in curved]
        assert found[1].tolist() == [-sign * c for c in curved]


@pytest.mark.parametrize("p, expected", [(1, [0.25, -0.5, 0.0, 0.25]), (2, [0.5, -1.5, 0.0, 1.0])])
def test_a_score_that_is_right_on_the_margin_costs_nothing(p, expected):
    x = ng.tensor([[0.0, 0.0, -1.0, 1.0]], requires_grad=True)
    F.multi_margin_loss(x, ng.tensor([1]), p=p).backward()
    assert x.grad.tolist() == [expected]


def test_a_padding_that_takes_no_value_may_be_given_none():
    x = ng.ones(1, 2, 3)
    for mode in ("replicate", "reflect", "circular"):
        assert F.pad(x, (1, 1), mode, 0.0).tolist() == F.pad(x, (1, 1), mode).tolist()
        with pytest.raises(ValueError, match=f"pad: Padding mode '{mode}' doesn't take in value"):
            F.pad(x, (1, 1), mode, 2.0)


def test_groups_of_one_value_have_no_variance():
    for shape, groups in (((1, 4), 4), ((1, 2, 1), 2)):
        with pytest.raises(ValueError, match="group_norm: Expected more than 1 value per channel"):
            F.group_norm(ng.ones(shape), groups)
    assert F.group_norm(ng.ones(2, 4), 4).tolist() == [[0.0] * 4] * 2


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8"])
def test_quotients_of_integers_towards_zero_are_exact(dtype):
    limits, random = np.iinfo(dtype), np.random.default_rng(0)
    x, y = random.integers(limits.min, limits.max, (2, 200), dtype=dtype)
    x[:4], y[:4] = [limits.max, limits.min, limits.max - 1, limits.min + 1], [1, 1, 2, 2]
    y[y == 0] = 3
    expected = [
        abs(int(a)) // abs(int(b)) * (-1 if (a < 0) != (b < 0) else 1)
        for a, b in zip(x, y, strict=True)
    ]
    for divide in (ng.div, ng.compile(ng.div)):
        out = divide(ng.from_numpy(x), ng.from_numpy(y), rounding_mode="trunc")
        assert str(out.dtype) == f"ng.{dtype}" and out.tolist() == expected
