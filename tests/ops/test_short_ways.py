"""Short ways of small ops: fewer steps of Python, with the effects of the long ways."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.nn import functional as F
from numbagrad.ops import inplace, remembered

NAMES = "add_ sub_ mul_ div_".split()


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch):
    """These are the ways that a call takes before its kind is remembered."""
    monkeypatch.setattr(remembered, "AFTER", 1 << 30)
    remembered.forget()


@pytest.fixture
def short(monkeypatch):
    """Whether each call so far went the short way."""
    seen, original = [], inplace.written

    def noted(op, x, y):
        seen.append(original(op, x, y))
        return seen[-1]

    monkeypatch.setattr(inplace, "written", noted)
    return seen


def pair(*shape, dtype=ng.float32):
    return [ng.rand(*shape, dtype=dtype) + 0.5 for _ in range(2)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [ng.float32, ng.float64])
def test_as_the_op_itself(name, dtype, short):
    x, y = pair(3, 4, dtype=dtype)
    for other in (y, 1.5, 2, True, x):
        expected = getattr(x, name[:-1])(other)
        memory, version = x.data_ptr(), x._version
        assert getattr(x, name)(other) is x
        assert x.tolist() == expected.tolist()
        assert (x.data_ptr(), x._version) == (memory, version + 1)
    assert short == [True] * 5


def test_integers_count(short):
    count = ng.zeros(3, dtype=ng.int64)
    count.add_(1)
    count += ng.tensor([1, 2, 3])
    assert count.tolist() == [2, 3, 4] and short == [True, True]
    with pytest.raises(ng.errors.DTypeError):
        count.add_(1.5)
    with pytest.raises(ng.errors.DTypeError):
        count.div_(2)
    with pytest.raises(ng.errors.DTypeError):
        ng.ones(2, dtype=ng.bool).sub_(ng.ones(2, dtype=ng.bool))
    assert count.tolist() == [2, 3, 4] and not any(short[2:])


def test_what_overlaps_is_computed_first(short):
    x = ng.arange(6.0)
    x[1:].add_(x[:-1])
    assert x.tolist() == [0, 1, 3, 5, 7, 9]
    square = ng.arange(9.0).view(3, 3)
    square.add_(square.t())
    assert square.tolist() == [[0, 4, 8], [4, 8, 12], [8, 12, 16]]
    assert not any(short)


def test_operands_of_other_kinds(short):
    x, y = pair(3, 4)
    whole = x.clone()
    x.add_(y.double()).add_(y, alpha=2).t().add_(y.t())
    np.testing.assert_allclose(x.numpy(), (whole + 4 * y).numpy(), rtol=1e-6)
    assert short == [False, True]


def test_histories_are_kept(short):
    x, y = pair(3)
    weight = ng.ones(3, requires_grad=True)
    x.add_(weight)
    x.mul_(2.0)
    x.sum().backward()
    assert weight.grad.tolist() == [2, 2, 2] and not any(short)
    with pytest.raises(ng.errors.GradError, match="leaf"):
        weight.add_(1.0)
    with ng.no_grad():
        weight.add_(y)
    assert short[-1] and weight.requires_grad and weight.is_leaf
    product = weight * weight
    with ng.no_grad():
        weight.mul_(0.5)
    with pytest.raises(ng.errors.GradError, match="inplace operation"):
        product.sum().backward()


# -- ops of one operand, and of three --------------------------------------------------------------

ALONE = "exp_ log_ sqrt_ rsqrt_ sin_ cos_ tanh_ reciprocal_".split()
SEVERAL = {
    "lerp_": [("y", 0.25), ("y", "z")],
    "addcmul_": [("y", "z"), ("y", "y"), ("x", "x")],
    "addcdiv_": [("y", "z")],
}


@pytest.fixture
def all_short(monkeypatch):
    """Whether each call so far went the short way of ``all_written``."""
    seen, original = [], inplace.all_written

    def noted(*args):
        seen.append(original(*args))
        return seen[-1]

    monkeypatch.setattr(inplace, "all_written", noted)
    return seen


@pytest.mark.parametrize("dtype", [ng.float32, ng.float64])
@pytest.mark.parametrize("name", ALONE)
def test_of_itself_alone(name, dtype, all_short):
    x, _ = pair(3, 4, dtype=dtype)
    expected, memory, version = getattr(x, name[:-1])(), x.data_ptr(), x._version
    assert getattr(x, name)() is x
    assert x.tolist() == expected.tolist() and (x.data_ptr(), x._version) == (memory, version + 1)
    assert all_short == [True]


@pytest.mark.parametrize("name", SEVERAL)
def test_of_several(name, all_short):
    for operands in SEVERAL[name]:
        x, y = pair(3, 4)
        given = {"x": x, "y": y, "z": y * 0.5 + 0.1}
        args = [given.get(o, o) for o in operands]
        expected, version = getattr(x, name[:-1])(*args), x._version
        assert getattr(x, name)(*args) is x
        assert x.tolist() == expected.tolist() and x._version == version + 1
    assert all(all_short)


def test_of_several_by_keyword(all_short):
    x, y = pair(3, 4)
    expected = x.addcmul(y, y, value=-0.5)
    assert x.addcmul_(y, y, value=-0.5).tolist() == expected.tolist()
    with pytest.raises(TypeError):
        x.addcmul_(y, y, weight=1.0)
    with pytest.raises(TypeError):
        x.addcmul_(y)
    assert x.tolist() == expected.tolist() and all_short == [True, False, False]


def test_of_several_with_histories_and_other_shapes(all_short):
    x, y = pair(3, 4)
    weight = ng.ones(3, 4, requires_grad=True)
    x.addcmul_(y, weight)
    x.sum().backward()
    assert weight.grad.tolist() == y.tolist()
    with pytest.raises(ng.errors.GradError):
        weight.exp_()
    with ng.no_grad():
        weight.exp_()
    np.testing.assert_allclose(weight.detach().numpy(), np.e, rtol=1e-6)
    z = ng.arange(4.0)
    z[1:].lerp_(z[:-1], 0.5)
    assert z.tolist() == [0.0, 0.5, 1.5, 2.5]
    z.lerp_(ng.tensor(1.0), 1.0)
    assert z.tolist() == [1.0] * 4 and all_short == [False, False, True, False, True]


# -- writing over everything -----------------------------------------------------------------------


def test_overwriting_keeps_the_rules():
    x, y = pair(3, 4)
    memory, version = x.data_ptr(), x._version
    assert x.zero_() is x and x.copy_(y) is x and x.fill_(2.5) is x
    assert x.tolist() == [[2.5] * 4] * 3 and (x.data_ptr(), x._version) == (memory, version + 3)
    assert x.copy_(y.double()).tolist() == y.tolist()
    assert x.copy_(y[0]).tolist() == [y[0].tolist()] * 3
    assert x.copy_(x) is x
    mask = ng.ones(3, dtype=ng.bool)
    assert mask.zero_().tolist() == [False] * 3
    whole = ng.arange(3)
    assert whole.zero_().tolist() == [0] * 3 and whole.copy_(x[0, :3]).dtype is ng.int64
    x.t()[1].zero_()
    assert x[:, 1].tolist() == [0.0] * 3


def test_overwriting_what_was_saved_is_found():
    weight, x = ng.ones(3, requires_grad=True), ng.ones(3)
    product = weight * x
    x.zero_()
    with pytest.raises(ng.errors.VersionError):
        product.sum().backward()
    with pytest.raises(ng.errors.GradError):
        weight.zero_()
    with ng.no_grad():
        weight.copy_(ng.arange(3.0))
    assert weight.requires_grad and weight.tolist() == [0, 1, 2]
    hidden = weight * 2
    hidden.zero_()
    hidden.sum().backward()
    assert weight.grad.tolist() == [0, 0, 0]


# -- other short ways ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [ng.float32, ng.float64, ng.int64])
def test_a_matrix_by_a_vector(dtype):
    x = ng.arange(12).reshape(3, 4).to(dtype)
    v = ng.arange(4).to(dtype)
    for left, right in [(x, v), (x.t().contiguous().t(), v), (x, ng.arange(8).to(dtype)[::2] // 2)]:
        out = left @ right
        assert out.tolist() == [14, 38, 62] and out.dtype is dtype and out._base is None
    if dtype.is_floating_point:
        v.requires_grad_()
        (x @ v).sum().backward()
        assert v.grad.tolist() == [12, 15, 18, 21]


def test_traces():
    for shape in [(3, 4), (4, 3), (1, 1), (0, 3)]:
        x = ng.randn(*shape, dtype=ng.double)
        np.testing.assert_allclose(x.trace().item(), np.trace(x.numpy()), rtol=1e-12)
        np.testing.assert_allclose(x.t().trace().item(), np.trace(x.numpy()), rtol=1e-12)
    x = ng.randn(3, 4, requires_grad=True)
    x.trace().backward()
    assert x.grad.tolist() == np.eye(3, 4).tolist()


def test_an_index_changed_before_backward_is_found():
    x, index = ng.randn(4, 3, requires_grad=True), ng.tensor([0, 2])
    out = x.index_select(0, index)
    index.zero_()
    with pytest.raises(ng.errors.VersionError):
        out.sum().backward()


@pytest.mark.parametrize("name", "float32 float64 float16 bfloat16 int8 int64 bool".split())
def test_few_numbers_are_joined(name):
    x = (ng.rand(3, 4) * 3).to(getattr(ng, name))
    turned, nothing = x.t().contiguous().t(), x[:0]
    rows = x.tolist()
    assert ng.cat([x, turned, nothing, x[1:]]).tolist() == [*rows, *rows, *rows[1:]]
    assert ng.stack([x, turned]).tolist() == [rows, rows]
    assert ng.stack([x[0, 0], x[1, 1]]).tolist() == [rows[0][0], rows[1][1]]
    assert ng.stack([turned, x], -1).tolist() == [[[n, n] for n in row] for row in rows]
    assert ng.cat([x, turned], 1).tolist() == [row + row for row in rows]


# -- writing where it is ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["mul_", "exp_", "clamp_", "relu_", "masked_fill_", "lerp_", "add_"]
)
def test_large_ones_are_written_where_they_are(name):
    x = ng.randn(1 << 10, 1 << 8)
    mask, row = x > 0.5, ng.randn(1 << 8)
    calls = {
        "mul_": [(2.0,), (x,), (row,)],
        "clamp_": [(-0.5, 0.5), (0.0,), (None, 0.25)],
        "masked_fill_": [(mask, 0.5), (mask[:, :1], -1)],
        "lerp_": [(row, 0.5)],
        "add_": [(row,), (row[:1],), (x,), (row, {"alpha": 0.5}), (x, {"alpha": 2})],
        "sub_": [(row,), (row, {"alpha": 0.5})],
        "pow_": [(2,), (3,), (0.5,)],
        "atan2_": [(row,)],
    }
    for given in calls.get(name, [()]):
        options = given[-1] if given and isinstance(given[-1], dict) else {}
        args = given[: len(given) - bool(options)]
        half = x.clone()[:, : 1 << 7]
        for target in (x.clone(),) if name == "masked_fill_" else (x.clone(), half):
            cut = target.size(1)
            fitting = [target if a is x else row[:cut] if a is row else a for a in args]
            expected, version = getattr(target, name[:-1])(*fitting, **options), target._version
            memory = target.data_ptr()
            assert getattr(target, name)(*fitting, **options) is target
            same = (target == expected) | (expected != expected)
            assert same.all().item() and target._version == version + 1
            assert target.data_ptr() == memory


def test_operands_that_do_not_fit_change_nothing():
    x = ng.ones(1 << 9, 1 << 9)
    for wrong in (ng.ones(3), ng.ones(2, 1 << 9, 1 << 9)):
        with pytest.raises(ng.errors.ShapeError):
            x.mul_(wrong)
    with pytest.raises(ng.errors.GradError, match="memory location"):
        ng.ones(1, 1 << 18).expand(2, -1).mul_(2.0)
    with pytest.raises(ng.errors.DTypeError):
        x.masked_fill_(x, 1.0)
    with pytest.raises(ValueError):
        x.clamp_()
    assert x.min().item() == x.max().item() == 1.0 and x._version == 0


WRITES = {
    "index_add_": lambda x, i, v: (0, i, v),
    "index_copy_": lambda x, i, v: (0, i, v),
    "index_fill_": lambda x, i, v: (0, i, 2.5),
    "index_put_": lambda x, i, v: ((i,), v),
    "put_": lambda x, i, v: (i, v[:, 0]),
    "scatter_": lambda x, i, v: (0, i[:, None].expand(4, 3), v),
    "scatter_add_": lambda x, i, v: (0, i[:, None].expand(4, 3), v),
    "scatter_reduce_": lambda x, i, v: (0, i[:, None].expand(4, 3), v, "amax"),
    "index_reduce_": lambda x, i, v: (0, i, v, "prod"),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("columns", [3, 5])
def test_few_elements_of_many_are_written(name, columns, monkeypatch):
    if columns == 5 and not name.startswith("scatter"):
        columns = 3
    x, v = ng.randn(6, columns), ng.randn(4, 3)
    i = ng.tensor([4, 0, 4, 2])
    args = WRITES[name](x, i, v)
    expected, memory, version = getattr(x, name[:-1])(*args), x.data_ptr(), x._version
    with monkeypatch.context() as patch:
        patch.setattr(inplace, "assign", None)  # which would copy all
        assert getattr(x, name)(*args) is x
    assert x.tolist() == expected.tolist()
    assert (x.data_ptr(), x._version) == (memory, version + 1)
    # what is stored by columns, has a history, or is read too
    turned = expected.t().contiguous().t()
    getattr(turned, name)(*args)
    assert turned.tolist() == getattr(expected, name[:-1])(*args).tolist()
    weight = expected.clone().requires_grad_()
    hidden = weight * 1.0
    getattr(hidden, name)(*args)
    hidden.sum().backward()
    grad, weight.grad = weight.grad, None
    getattr(weight * 1.0, name[:-1])(*args).sum().backward()
    assert weight.grad.tolist() == grad.tolist()
    with pytest.raises(ng.errors.GradError, match="leaf"):
        getattr(weight, name)(*args)
    with ng.no_grad():
        getattr(weight, name)(*args)
    assert weight.tolist() == getattr(expected, name[:-1])(*args).tolist() and weight.is_leaf


@pytest.mark.parametrize("name", WRITES)
def test_a_wrong_index_changes_nothing(name):
    x, v = ng.randn(6, 3), ng.randn(4, 3)
    before, version = x.tolist(), x._version
    with pytest.raises(IndexError, match=name[:-1].replace("scatter_add", "scatter")):
        getattr(x, name)(*WRITES[name](x, ng.tensor([4, 0, 99, 2]), v))
    assert x.tolist() == before and x._version == version
    assert getattr(x, name)(*WRITES[name](x, ng.tensor([4, 0, 1, 2]), v)) is x


@pytest.mark.parametrize("how", ["sum", "mean", "prod", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_what_meets_is_joined_in_place(how, include_self):
    x, v, i = ng.randn(6, 3), ng.randn(4, 3), ng.tensor([4, 0, 4, 2])
    index = i[:, None].expand(4, 3)
    expected = x.scatter_reduce(0, index, v, how, include_self=include_self)
    memory = x.data_ptr()
    assert x.scatter_reduce_(0, index, v, how, include_self=include_self) is x
    assert x.tolist() == expected.tolist() and x.data_ptr() == memory


@pytest.mark.parametrize("name", WRITES)
def test_few_elements_of_a_captured_tensor_are_written(name):
    x, v, i = ng.randn(6, 3), ng.randn(4, 3), ng.tensor([4, 0, 4, 2])
    y = x.clone()

    @ng.compile
    def step(i, v):
        getattr(x, name)(*WRITES[name](x, i, v))
        return x.sum()

    for at in (i, i - 0, ng.tensor([1, 1, 5, 3])):
        getattr(y, name)(*WRITES[name](y, at, v))
        np.testing.assert_allclose(step(at, v).item(), y.sum().item(), rtol=1e-5)
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-6)
    before = x.tolist()
    with pytest.raises(IndexError):
        step(ng.tensor([0, 0, 77, 1]), v)
    assert x.tolist() == before
    program = str(step.program)
    if name != "put_":  # which goes through a view
        assert "for (6, 3)" not in program, program  # nothing goes over all of x


def test_values_of_the_tensor_itself_are_read_first():
    x = ng.arange(6.0)
    x.index_copy_(0, ng.tensor([1, 2, 3]), x[:3])
    assert x.tolist() == [0, 0, 1, 2, 4, 5]
    x.scatter_add_(0, ng.tensor([1, 2, 3]), x[:3])
    assert x.tolist() == [0, 0, 1, 3, 4, 5]
    counts = ng.tensor([0, 1, 1, 3])
    counts.index_add_(0, counts, counts)
    assert counts.tolist() == [0, 3, 1, 6]
    source = ng.ones(3, requires_grad=True)
    x.index_add_(0, ng.tensor([0, 0, 1]), source)
    x.sum().backward()
    assert source.grad.tolist() == [1, 1, 1]


def test_entries_of_a_column():
    x = ng.zeros(5, 4, 3)
    rows = ng.tensor([3, 1])
    x[rows, 2, 1] = ng.tensor([1.0, 2.0])
    x[:, 0][rows] = 5.0
    x[rows, :, 2] = 7.0
    x[:, rows, 0] = 9.0
    expected = np.zeros((5, 4, 3))
    at = rows.numpy()
    expected[at, 2, 1] = [1, 2]
    expected[:, 0][at] = 5
    expected[at, :, 2] = 7
    expected[:, at, 0] = 9
    assert x.tolist() == expected.tolist()
    before = x.tolist()
    with pytest.raises(IndexError):
        x[ng.tensor([0, 8]), 2, 1] = 4.0
    assert x.tolist() == before


def test_views_are_written_where_they_are(all_short, short):
    x = ng.randn(6, 4)
    expected = x.clone().numpy()
    x[:, :2].mul_(2.0).add_(1.0)
    x[1:3].exp_()
    x.t()[3].neg_()
    expected[:, :2] = expected[:, :2] * np.float32(2) + np.float32(1)
    expected[1:3] = np.exp(expected[1:3])
    expected[:, 3] = -expected[:, 3]
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-6)
    assert short == [True, True] and all_short == [True, True]
    weight = ng.ones(4, 3, requires_grad=True)
    hidden = weight * 1.0
    hidden[:2].mul_(3.0)
    hidden[2:].exp_()
    hidden.sum().backward()
    assert weight.grad.tolist() == [[3.0] * 3] * 2 + [[np.float32(np.e)] * 3] * 2
    assert short[2:] == [False] and all_short[2:] == [False]


def test_one_of_each_row_of_many():
    x = ng.randn(5000, 7, requires_grad=True)
    index = ng.randint(0, 7, (5000, 1))
    out = x.gather(1, index)
    assert out.tolist() == np.take_along_axis(x.detach().numpy(), index.numpy(), 1).tolist()
    out.sum().backward()
    assert x.grad.sum(1).tolist() == [1.0] * 5000
    for place in (0, 1023, 1024, 4999):
        wrong = index.clone()
        wrong[place] = 7 if place % 2 else -1
        with pytest.raises(IndexError, match="out of bounds"):
            x.gather(1, wrong)


KEYS = {
    "range beside places": lambda k: (range(4), np.arange(k, k + 4) % 3),
    "list beside places": lambda k: ([0, k % 4, 2], np.arange(3)),
    "list after a slice": lambda k: (slice(None), [k % 3, 0]),
    "list": lambda k: [k % 4, 1],
    "list with a slice": lambda k: [slice(0, 2), k % 3],
    "range that falls": lambda k: range(3, -1, -1 - k % 3),
    "mask": lambda k: ([True, False, k % 2 == 0, True], 1),
    "empty": lambda k: [],
}


@pytest.mark.parametrize("row", KEYS)
def test_lists_and_ranges_between_brackets(row):
    """Many calls of a kind, the last of which are remembered, with other values in them."""
    for k in range(24):
        key = KEYS[row](k)
        plain = tuple(key) if row == "list with a slice" else key
        plain = list(key) if isinstance(key, range) else plain
        plain = np.empty(0, np.int64) if row == "empty" else plain
        given = key
        if type(key) is tuple:
            given = tuple(ng.tensor(p) if isinstance(p, np.ndarray) else p for p in key)
        expected = np.arange(12.0).reshape(4, 3)
        x = ng.tensor(expected)
        assert x[given].tolist() == expected[plain].tolist()
        x[given] = float(k)
        expected[plain] = float(k)
        assert x.tolist() == expected.tolist()


def test_counts_that_repeat_rows():
    x = ng.randn(4, 3, dtype=ng.double, requires_grad=True)
    counts = ng.tensor([2, 0, 1, 3])
    out = x.repeat_interleave(counts, 0)
    assert out.tolist() == np.repeat(x.detach().numpy(), counts.numpy(), 0).tolist()
    assert ng.autograd.gradcheck(lambda x: x.repeat_interleave(counts, 0), (x,))


def test_large_ones_of_any_layout():
    n = 1 << 18
    x = ng.arange(float(n))
    expected = x.numpy().copy()
    expected[1:] = expected[1:] + expected[:-1]
    x[1:].add_(x[:-1])  # which reads what it writes
    assert (x.numpy() == expected).all()
    x, y, row = ng.randn(600, 700), ng.randn(700, 600), ng.randn(350)
    expected = x.numpy() * y.numpy().T
    expected[:, ::2] *= row.numpy()
    x.mul_(y.t())
    x[:, ::2].mul_(row)
    assert (x.numpy() == expected).all()
    square = ng.randn(512, 512)
    expected = square.numpy() + square.numpy().T
    assert (square.add_(square.t()).numpy() == expected).all()
    x, y = ng.randn(300, 90, 10), ng.randn(9, 90, 300)
    expected = x.numpy().copy()
    expected[:, :, 1:] *= y.numpy().transpose(2, 1, 0)
    x.permute(2, 1, 0)[1:].mul_(y)
    assert (x.numpy() == expected).all()


@pytest.mark.parametrize("dtype", [ng.float16, ng.bfloat16])
def test_large_halves(dtype):
    x = ng.randn(1000, 300).to(dtype)
    expected = (x * 2 + 1).tanh()
    assert (x.mul_(2).add_(1).tanh_() == expected).all()


def test_operands_that_were_left_out_are_the_defaults():
    x = ng.tensor([[-1.0, 2.0]], requires_grad=True)
    for function, given in ((F.elu, (1.0,)), (F.softplus, (1.0, 20.0)), (F.celu, (1.0,))):
        short, whole = function(x), function(x, *given)
        assert short.tolist() == whole.tolist()
        assert ng.autograd.grad(short.sum(), x)[0].tolist() == (
            ng.autograd.grad(whole.sum(), x)[0].tolist()
        )


def test_three_operands_by_the_short_way_notice_what_changes():
    x = ng.tensor([0.5, 1.0, 2.0], requires_grad=True)
    middle = x * 1.0
    out = F.softplus(middle, 2.0)
    middle.mul_(3.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
    wide = ng.tensor([1.0, 2.0, 3.0], dtype=ng.float64, requires_grad=True)
    ng.addcmul(x, wide, wide, value=2.0).sum().backward()
    assert (x.grad.dtype, wide.grad.dtype) == (ng.float32, ng.float64)
    assert wide.grad.tolist() == [4.0, 8.0, 12.0]


def test_three_operands_of_which_some_need_gradients():
    for needed in ((True, False), (False, True), (True, True)):
        x, y = (ng.tensor([1.0, 4.0]).requires_grad_(each) for each in needed)
        ng.lerp(x, y, 0.25).sum().backward()
        assert [None if t.grad is None else t.grad.tolist() for t in (x, y)] == [
            [factor] * 2 if each else None
            for each, factor in zip(needed, (0.75, 0.25), strict=True)
        ]
