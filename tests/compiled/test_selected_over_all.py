"""What goes over all rows that a mask selects in a compiled function, and what is returned."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.errors import RecordingError
from numbagrad.nn import functional as F

from .selecting import MASKS, agree, taught


def parts(*found):
    """The numbers of results of any shape, one after another."""
    return ng.cat([f.reshape(-1).double() for f in found])


def top(x, m):
    found = x[m].topk(1, 0)
    return parts(found.values, found.indices, x[m][:, 0].topk(1, largest=False)[0])


# name: function of x (5, 3), y (5, 3), a mask (5), ints (5)
ROWS = {
    "largest": lambda x, y, m, k: parts(x[m].max(), x[m].amax(0), x[m].amax(), k[m].max()),
    "least": lambda x, y, m, k: parts(x[m].min(), x[m].amin(0), x[m].amin((0, 1)), k[m].min()),
    "with places": lambda x, y, m, k: parts(*x[m].max(0), *x[m].min(0, keepdim=True)),
    "places": lambda x, y, m, k: parts(
        x[m].argmax(), x[m].argmin(0), x[m][:, 1].argmax(), k[m].argmin()
    ),
    "both": lambda x, y, m, k: parts(*x[m].aminmax(dim=0), *ng.aminmax(y[m])),
    "larger of two": lambda x, y, m, k: ng.max(x[m], y[m]).sum() + x[m].maximum(y[m]).sum(),
    "spread": lambda x, y, m, k: parts(x[m].std(), x[m].var(0), x[m].std(0, keepdim=True)),
    "spread of all": lambda x, y, m, k: parts(
        x[m].var(unbiased=False), x[m].std(0, correction=0), x[m].var(axis=0, keepdims=True)
    ),
    "spread and mean": lambda x, y, m, k: parts(*ng.std_mean(x[m]), *ng.var_mean(y[m], 0)),
    "standard scores": lambda x, y, m, k: ((x[m] - x[m].mean(0)) / (x[m].std(0) + 1)).exp().sum(),
    "norms": lambda x, y, m, k: parts(
        x[m].norm(), x[m].norm(dim=0), x[m].norm(1), x[m].norm(0, 0).detach()
    ),
    "norm of infinity": lambda x, y, m, k: parts(x[m].norm(float("inf"), 0)),
    "log of sum": lambda x, y, m, k: parts(x[m].logsumexp(0), x[m].logsumexp((0, 1))),
    "softmax of rows": lambda x, y, m, k: (
        (x[m].softmax(0) * y[m]).sum() + (x[m].log_softmax(0) * y[m]).sum()
    ),
    "softmin of rows": lambda x, y, m, k: (F.softmin(x[m], 0) * y[m]).sum(0),
    "running sums": lambda x, y, m, k: (
        (x[m].cumsum(0) * y[m]).sum() + (k[m].cumsum(0) * k[m]).sum() + x[m][:, 0].cumprod(0).sum()
    ),
    "in order": lambda x, y, m, k: (
        x[m].sort(0).values.cumsum(0).sum(0) + x[m][:, 0].sort(descending=True)[1].sum()
    ),
    "ints in order": lambda x, y, m, k: (k[m].sort().values * k[m].argsort().sort()[0]).sum(),
    "first by order": lambda x, y, m, k: x[m].argsort(0).sum(0) * x.sum(),
    "a row": lambda x, y, m, k: parts(x[m][0], x[m][-1] * 2, x[m][0, 1:], x[m][-1, 0]),
    "a range": lambda x, y, m, k: x[m][1:].sum(0) + x[m][:-1].exp().sum(0) + x[m][:2, 1].sum(),
    "steps": lambda x, y, m, k: x[m][::2].sum(0) - x[m][1::2].sum(0) + x[m][-2:].sum(),
    "neighbours": lambda x, y, m, k: x[m][1:].mean(0) + x[m][:-1].mean(0),
    "rows by an index": lambda x, y, m, k: (x[m][ng.tensor([0, -1, 0])] * y[:3]).sum(0),
    "another mask": lambda x, y, m, k: (
        x[m][x[m][:, 0] > 0].sum(0) + (y[m][(x[m] > -9).all(1)] * 2).sum()
    ),
    "logs of some": lambda x, y, m, k: (
        (z := x[m])[z[:, 0] > 0][:, 0].log().sum() + (1 / y[m][:1].exp().sub(1)).sum()
    ),
    "by an order": lambda x, y, m, k: (
        (z := x[m])[z[:, 1].argsort()].cumsum(0).cumsum(0)[:, 2].sum() + y[m][1:][:1].sum()
    ),
    "joined": lambda x, y, m, k: ng.cat([x[m], y[~m], x[:2]]).exp().sum(0),
    "side by side": lambda x, y, m, k: ng.cat([x[m], y[m] * 2], 1).softmax(1)[:, :2].sum(0),
    "stacked": lambda x, y, m, k: ng.stack([x[m], y[m]], 1).softmax(1).mean((0, 2)),
    "columns": lambda x, y, m, k: x[m].T @ y[m] + x[m].t().matmul(x[m]) + x[m].mT @ y[m],
    "covariance": lambda x, y, m, k: (z := x[m] - x[m].mean(0)).t() @ z,
    "turned within": lambda x, y, m, k: x[m].unsqueeze(2).transpose(1, 2).mT.sum(0),
}
RAISES = (
    "norm of infinity",
    "largest",
    "least",
    "with places",
    "places",
    "both",
    "a row",
    "rows by an index",
)
"""Those that raise eagerly where nothing is selected."""


def operands(mask, dtype=ng.float64):
    ng.manual_seed(3)
    x, y = (ng.randn(5, 3, dtype=dtype).requires_grad_() for _ in range(2))
    return x, y, ng.tensor(MASKS[mask]), ng.tensor([7, 2, 4, 1, 0])


@pytest.mark.parametrize("name", ROWS)
def test_as_eagerly_with_each_mask(name):
    compiled = ng.compile(lambda *given: taught(ROWS[name], given))
    for mask in MASKS:
        if mask == "none" and name in RAISES:
            with pytest.raises((RuntimeError, IndexError)):
                taught(ROWS[name], operands(mask))
            with pytest.raises((RuntimeError, IndexError)):
                compiled(*operands(mask))
            continue
        expected, got = taught(ROWS[name], operands(mask)), compiled(*operands(mask))
        agree(got, expected, 1e-12, mask)
    assert compiled.cache_info().recordings == 1


@pytest.mark.parametrize("name", ["spread", "softmax of rows", "in order", "columns", "largest"])
def test_in_floats_and_halves(name):
    for dtype, near in ((ng.float32, 1e-5), (ng.bfloat16, 0.06)):
        compiled = ng.compile(ROWS[name])
        for mask in ("some", "all"):
            expected = ROWS[name](*operands(mask, dtype)).detach().double().numpy()
            got = compiled(*operands(mask, dtype)).detach().double().numpy()
            np.testing.assert_allclose(got, expected, near, near)


def test_the_best_that_there_are_are_asked_of_each_call():
    compiled = ng.compile(top)
    for mask in ("some", "all", "others"):
        x, _, m, _ = operands(mask)
        np.testing.assert_array_equal(compiled(x, m).tolist(), top(x, m).tolist())
    x, _, m, _ = operands("none")
    with pytest.raises(ng.errors.ShapeError, match=r"topk.*1 of 0 that a mask selects"):
        compiled(x, m)


def test_the_least_stay_before_nan():
    x, m = ng.tensor([np.nan, 1.0, 2.0, 3.0]), ng.tensor([True, False, True, True])
    function = lambda x, m: parts(*x[m].topk(3, largest=False))  # noqa: E731
    np.testing.assert_array_equal(ng.compile(function)(x, m).numpy(), function(x, m).numpy())


def test_a_row_may_be_copied_and_written():
    function = lambda x, m: x[m][0].clone().mul_(2) + x[m][np.int64(1)] + x[m].norm(None)  # noqa: E731
    x, m = ng.arange(6.0).reshape(3, 2), ng.tensor([True, False, True])
    assert ng.allclose(ng.compile(function)(x, m), function(x, m))


def test_numbers_that_are_not_finite_stay_theirs():
    x = ng.tensor([[np.nan, 1.0], [-np.inf, np.inf], [3.0, -np.inf], [np.nan, np.nan]])
    function = lambda x, m: parts(  # noqa: E731
        x[m].amax(0), x[m].min(0)[0], x[m].sort(0)[0].nan_to_num(5.0).cumsum(0)[-1], x[m].argmax(0)
    )
    compiled = ng.compile(function)
    for mask in (
        [True, True, False, True],
        [False, True, True, False],
        [False, False, True, False],
    ):
        m = ng.tensor(mask)
        np.testing.assert_array_equal(compiled(x, m).numpy(), function(x, m).numpy())


# -- returned --------------------------------------------------------------------------------------


def found(x, m):
    """Boxes over a threshold, in order, as detectors return them."""
    boxes, scores = x[m], x[m][:, 0]
    values, order = scores.sort(descending=True)
    return {"boxes": boxes * 2, "where": [ng.where(m)[0], m.nonzero()], "scores": (values, order)}


def test_a_call_returns_as_many_rows_as_are_selected():
    compiled = ng.compile(found)
    for mask in MASKS:
        x, _, m, _ = operands(mask)
        expected, got = found(x, m), compiled(x, m)
        assert got["boxes"].requires_grad
        for e, g in zip(
            (expected["boxes"], *expected["where"], *expected["scores"]),
            (got["boxes"], *got["where"], *got["scores"]),
            strict=True,
        ):
            assert e.dtype is g.dtype and type(g) is ng.Tensor
            np.testing.assert_array_equal(g.detach().numpy(), e.detach().numpy())
    assert compiled.cache_info().recordings == 1


def test_a_gradient_goes_through_what_is_returned():
    compiled = ng.compile(lambda x, m: (x[m].exp(), x[m].T))
    for mask in ("some", "all", "none"):
        x, _, m, _ = operands(mask)
        rows, turned = compiled(x, m)
        (got,) = ng.autograd.grad((rows**2).sum() + turned.sin().sum(), x)
        (expected,) = ng.autograd.grad((x[m].exp() ** 2).sum() + x[m].T.sin().sum(), x)
        np.testing.assert_allclose(got.numpy(), expected.numpy(), 1e-12)
    x, _, m, _ = operands("some")
    assert ng.autograd.gradcheck(lambda x: compiled(x, m)[0], (x,))


# -- what is not possible --------------------------------------------------------------------------


def changed(rows, key):
    rows[key].mul_(2)
    return rows.sum()


def beside(rows):
    first = rows[0]
    rows.add_(1)
    return first


REFUSED = {
    "from behind": (lambda x, m: x[m][::-1], "an index of rows"),
    "negative step": (lambda x, m: x[m][ng.tensor([[0]])], "an index of rows"),
    "a norm that zeros change": (lambda x, m: x[m].norm(-1), "norm of order -1"),
    "a product of both": (lambda x, m: x[m] @ x[m].T, "matmul with the transpose"),
    "sum of columns": (lambda x, m: x[m].T.sum(1), "the transpose of it"),
    "stacked": (lambda x, m: ng.stack([x[m], x[m]]), "stack over all rows"),
    "logs of ints": (lambda x, m: x[m].long().logsumexp(0), "logsumexp of ints"),
    "turned with others": (lambda x, m: x[m].T @ x[: m.shape[0] - 1], "does not fit"),
    "another half": (lambda x, m: x[m].T @ x[~m], "two masks select different"),
    "a row that is not there": (lambda x, m: x[m][2], "out of bounds"),
    "a range written": (lambda x, m: changed(x[m], slice(1, None)), "mul_ beside a view"),
    "a row written": (lambda x, m: changed(x[m], 0), r"one of the rows .* cannot be written"),
    "a part of a row written": (lambda x, m: changed(x[m][0], slice(1, None)), "cannot be written"),
    "rows written beside a row": (lambda x, m: beside(x[m]), "add_ beside a view"),
    "two indices": (lambda x, m: x[m][ng.tensor([0, 1]), ng.tensor([0, 1])], "such an index"),
    "an index beyond": (lambda x, m: x[m][ng.tensor([0, 2])], "out of bounds"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    function, words = REFUSED[name]
    x, m = ng.randn(4, 2), ng.tensor([True, False, True, False])
    with pytest.raises((RecordingError, ValueError, IndexError), match=words):
        ng.compile(function)(x, m)
