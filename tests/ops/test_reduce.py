"""What the op table cannot say of reductions, scans and sorts: layouts, ties, zeros, precision."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import numbagrad as ng
from numbagrad.autograd import gradcheck, gradgradcheck


def tensor(array, **options):
    return ng.tensor(np.array(array), **options)


def double(array):
    return tensor(np.asarray(array, np.float64), requires_grad=True)


def sample(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


NUMPY = {"sum": np.sum, "mean": np.mean, "amax": np.max, "amin": np.min, "var": np.var}


@settings(max_examples=150, deadline=None)
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    data=st.data(),
    name=st.sampled_from(sorted(NUMPY)),
    keepdim=st.booleans(),
)
def test_any_dims_of_any_layout(shape, data, name, keepdim):
    rank = len(shape)
    order = data.draw(st.permutations(range(rank)))
    dims = tuple(data.draw(st.sets(st.integers(-rank, -1), min_size=1)))
    base = sample(*shape)
    x = tensor(base).permute(*order)
    array = base.transpose(order)
    if data.draw(st.booleans()):
        x, array = x[..., ::2], array[..., ::2]
    options = {"correction": 0} if name == "var" else {}
    got = getattr(x, name)(dims, keepdim=keepdim, **options).numpy()
    expected = NUMPY[name](array, axis=dims, keepdims=keepdim)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)


def test_permuted_input_is_reduced_where_it_lies():
    """A transposed matrix is contiguous in memory order: nothing is copied."""
    launched = []

    class Spy:
        def __getattr__(self, name):
            return getattr(copy, name)

        def __call__(self, *args):
            launched.append(args)
            copy(*args)

    import numbagrad.ops.axes as axes
    import numbagrad.ops.base as base

    copy = base.copy_kernel
    x = tensor(sample(3, 4, 5))
    try:
        base.copy_kernel = axes.copy_kernel = Spy()
        for view, dim in [(x, (0, 2)), (x.permute(2, 0, 1), 0), (x.permute(0, 2, 1), (1, 2))]:
            view.sum(dim)
        assert not launched
        x.permute(1, 0, 2).sum(2)  # the result would come out transposed
        assert launched
    finally:
        base.copy_kernel = axes.copy_kernel = copy


def test_indices_of_transposed_input():
    x = sample(3, 4, 5)
    for order in itertools.permutations(range(3)):
        view, array = tensor(x).permute(*order), x.transpose(order)
        for dim in range(3):
            assert view.argmax(dim).tolist() == array.argmax(dim).tolist()
            assert view.min(dim).indices.tolist() == array.argmin(dim).tolist()
        assert view.argmax().item() == array.argmax()


def test_large_reductions_through_pieces():
    x = np.random.default_rng(0).random((3, 400, 300), np.float32)
    t = tensor(x)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(t.sum().item(), wide.sum(), rtol=1e-6)
    np.testing.assert_allclose(t.mean().item(), wide.mean(), rtol=1e-6)
    np.testing.assert_allclose(t.var().item(), wide.var(ddof=1), rtol=1e-6)
    np.testing.assert_allclose(t.norm().item(), np.sqrt((wide**2).sum()), rtol=1e-6)
    np.testing.assert_allclose(t.sum((0, 1)).numpy(), wide.sum((0, 1)), rtol=1e-6)
    np.testing.assert_allclose(t.var(1).numpy(), wide.var(1, ddof=1), rtol=1e-5)
    assert t.argmax().item() == x.argmax()
    assert t.count_nonzero().item() == np.count_nonzero(x)
    values, indices = t.reshape(-1).max(0)
    assert (values.item(), indices.item()) == (x.max(), x.argmax())


def test_mean_of_large_numbers_has_a_small_variance():
    x = tensor((1e4 + sample(1000)).astype(np.float32))
    exact = x.numpy().astype(np.float64).var(ddof=1)
    assert abs(x.var().item() / exact - 1) < 1e-5


# -- gradients -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["max", "min", "amax", "amin"])
def test_ties_share_the_gradient_of_a_full_extreme(name):
    x = tensor([2.0, 2.0, 2.0], requires_grad=True)
    getattr(x, name)().backward()
    np.testing.assert_allclose(x.grad.numpy(), [1 / 3] * 3)


def test_ties_of_max_along_a_dim_go_to_the_first():
    x = tensor([[1.0, 3.0, 3.0]], requires_grad=True)
    values, indices = x.max(1)
    values.sum().backward()
    assert indices.tolist() == [1]
    assert x.grad.tolist() == [[0.0, 1.0, 0.0]]


def test_indices_changed_before_backward_are_noticed():
    for call in (lambda x: x.max(0), lambda x: x.sort(), lambda x: x.cummax(0)):
        values, indices = call(tensor([1.0, 2.0], requires_grad=True))
        indices.add_(100)
        with pytest.raises(ng.errors.VersionError):
            values.sum().backward()


def test_nan_is_the_extreme_and_gets_the_gradient():
    x = tensor([1.0, np.nan, 3.0], requires_grad=True)
    out = x.max()
    out.backward()
    assert np.isnan(out.item())
    assert x.grad.tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, np.inf])
def test_norm_of_zeros_has_gradient_zero(p):
    x = tensor(np.zeros(3), requires_grad=True)
    (g,) = ng.autograd.grad(x.norm(p), x, create_graph=True)
    assert np.abs(g.detach().numpy()).max() <= (0 if p != np.inf else 1)
    if p == 2:
        (h,) = ng.autograd.grad(g.sum(), x)
        assert h.tolist() == [0.0, 0.0, 0.0]


def test_std_of_equal_elements_has_gradient_zero():
    x = tensor([2.0, 2.0], requires_grad=True)
    x.std().backward()
    assert x.grad.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("zeros", [0, 1, 2, 3])
def test_products_with_zeros_differentiate_twice(zeros):
    for places in itertools.islice(itertools.combinations(range(4), zeros), 3):
        x = sample(4) + 2
        x[list(places)] = 0
        x = double(x)
        assert gradcheck(lambda t: t.prod(), (x,))
        assert gradgradcheck(lambda t: t.prod(), (x,))
        assert gradgradcheck(lambda t: t.cumprod(0), (x,))


def test_third_derivative_of_a_product():
    x = double([2.0, 0.0, 3.0])
    (g,) = ng.autograd.grad(x.prod(), x, create_graph=True)
    (h,) = ng.autograd.grad(g[0], x, create_graph=True)
    (t,) = ng.autograd.grad(h[1], x)
    assert t.tolist() == [0.0, 0.0, 1.0]  # d3 (a b c) / da db dc


SMOOTH = {
    "sum": lambda x: x.sum((0, 2)) ** 2,
    "mean": lambda x: x.mean(1, keepdim=True) ** 2,
    "var": lambda x: x.var((0, 2)),
    "std": lambda x: x.std(1),
    "norm": lambda x: x.norm(2, (0, 1)),
    "norm3": lambda x: x.norm(3),
    "norm_inf": lambda x: x.norm(float("inf"), 1) ** 2,
    "amax": lambda x: x.amax((0, 2)) ** 2,
    "max": lambda x: x.max(1).values ** 2,
    "cummin": lambda x: x.cummin(2).values ** 2,
    "cumsum": lambda x: x.cumsum(1) ** 2,
    "sort": lambda x: x.sort(1, descending=True).values ** 3,
    "topk": lambda x: x.topk(2, 0).values ** 3,
    "median": lambda x: x.median(0).values ** 2,
    "kthvalue": lambda x: x.kthvalue(2, 2).values ** 2,
}


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_on_permuted_input(name):
    x = double(sample(2, 3, 4))
    assert gradcheck(lambda t: SMOOTH[name](t.permute(2, 0, 1)), (x,))
    assert gradgradcheck(lambda t: SMOOTH[name](t.permute(2, 0, 1)), (x,))


# -- forms of the call -----------------------------------------------------------------------------


def test_max_has_three_forms():
    x = tensor([[1.0, 5.0], [4.0, 3.0]])
    assert ng.max(x).item() == 5.0
    result = ng.max(x, 0)
    assert type(result).__name__ == "Extreme" and result.indices.tolist() == [1, 0]
    assert ng.max(x, tensor([[2.0, 2.0], [2.0, 9.0]])).tolist() == [[2.0, 5.0], [4.0, 9.0]]
    assert ng.max(x, dim=1, keepdim=True).values.tolist() == [[5.0], [4.0]]


def test_var_takes_unbiased_in_place_of_dim():
    x = tensor([1.0, 3.0])
    assert x.var(False).item() == 1.0
    assert x.var(unbiased=False).item() == 1.0
    assert x.var(0, False).item() == 1.0
    assert x.var(correction=0).item() == 1.0
    assert [t.item() for t in ng.std_mean(x, False)] == [1.0, 2.0]


def test_sum_over_no_elements():
    assert ng.tensor(np.zeros((0, 3))).sum(0).tolist() == [0.0, 0.0, 0.0]
    assert ng.tensor(np.zeros((2, 0))).prod(1).tolist() == [1.0, 1.0]
    assert np.isnan(ng.tensor(np.zeros((0,))).mean().item())
    assert ng.tensor(np.zeros((0, 3))).amax(1).shape == (0,)


def test_sum_into_a_narrow_dtype_wraps():
    assert tensor([200, 100]).sum(dtype=ng.uint8).item() == 44


def test_unique_along_a_dim():
    x = tensor([[2, 1], [0, 3], [2, 1]])
    rows, inverse, counts = ng.unique(x, dim=0, return_inverse=True, return_counts=True)
    assert rows.tolist() == [[0, 3], [2, 1]]
    assert inverse.tolist() == [1, 0, 1]
    assert counts.tolist() == [1, 2]


def test_sort_puts_nan_last_and_keeps_the_order_of_ties():
    x = tensor([2.0, np.nan, 1.0, 2.0, np.nan, -np.inf])
    assert x.argsort().tolist() == [5, 2, 0, 3, 1, 4]
    assert x.argsort(descending=True).tolist() == [1, 4, 0, 3, 2, 5]
    assert x.topk(3).indices.tolist() == [1, 4, 0]
    assert x.topk(2, largest=False).indices.tolist() == [5, 2]
    assert np.isnan(x.median().item())


@pytest.mark.parametrize("seed", range(3))
def test_searchsorted_of_rows(seed):
    edges = np.sort(sample(3, 9, seed=seed), 1)
    values = np.concatenate([edges[:, :4], sample(3, 5, seed=seed + 9)], 1)
    for right, side in [(False, "left"), (True, "right")]:
        got = ng.searchsorted(tensor(edges), tensor(values), right=right).numpy()
        for row in range(3):
            np.testing.assert_array_equal(got[row], np.searchsorted(edges[row], values[row], side))


def test_cumsum_in_place():
    x = tensor([1.0, 2.0, 3.0])
    x.cumsum_(0)
    assert x.tolist() == [1.0, 3.0, 6.0]


ERRORS = {
    "mean of ints": (lambda x: x.long().mean(), RuntimeError, "floating point or complex dtype"),
    "var of ints": (lambda x: x.long().var(), RuntimeError, "floating point"),
    "norm of ints": (lambda x: x.long().norm(), RuntimeError, "floating point"),
    "argmax of bools": (lambda x: (x > 0).argmax(), RuntimeError, "bool"),
    "max of nothing": (lambda x: x[:0].max(), RuntimeError, "input.numel() == 0"),
    "max along nothing": (lambda x: x[:0].max(0), IndexError, "non-zero size"),
    "amin of nothing": (lambda x: x[:0].amin((0, 1)), IndexError, "non-zero size"),
    "dim too large": (lambda x: x.sum(2), IndexError, "Dimension out of range"),
    "dim twice": (lambda x: x.sum((0, -2)), RuntimeError, "multiple times"),
    "k too large": (lambda x: x.topk(4), RuntimeError, "out of range"),
    "k from 1": (lambda x: x.kthvalue(0), RuntimeError, "out of range"),
    "norm of nothing": (lambda x: x[:0].norm(float("inf")), RuntimeError, "identity"),
    "several dims": (lambda x: x.max((0, 1)), TypeError, "amax"),
    "bins": (lambda x: x.histc(0), ValueError, "bins"),
    "negative": (lambda x: tensor([-1]).bincount(), RuntimeError, "non-negative"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, error, words = ERRORS[name]
    with pytest.raises(error) as caught:
        call(tensor(sample(2, 3)))
    assert words in str(caught.value)


@pytest.mark.parametrize("dtype", [ng.float32, ng.float64, ng.float16, ng.bfloat16, ng.int32])
@pytest.mark.parametrize(
    "shape, repeated",
    [
        ((1, 5, 7), (64, 5, 7)),
        ((5, 1, 7), (5, 33, 7)),
        ((5, 7, 1), (5, 7, 9)),
        ((1, 5, 1), (3, 5, 9)),
        ((), (4, 5)),
    ],
)
def test_sums_and_means_of_what_repeats_itself(shape, repeated, dtype):
    few = tensor(sample(*shape) * 4).to(dtype)
    x = few.expand(repeated)
    for count in range(len(repeated) + 1):
        for dims in itertools.combinations(range(len(repeated)), count):
            for f in (ng.sum, ng.mean) if dtype.is_floating_point else (ng.sum,):
                out, expected = f(x, dims, True), f(x.clone(), dims, True)
                assert out.dtype == expected.dtype and out.shape == expected.shape
                tolerance = 0 if dtype is ng.int32 else 1e4 * ng.finfo(dtype).eps
                out, expected = out.double().numpy(), expected.double().numpy()
                np.testing.assert_allclose(out, expected, tolerance, tolerance)
                assert f(x, dims).shape == f(x.clone(), dims).shape


def test_sums_of_what_repeats_itself_have_gradients():
    f = lambda x: (x.expand(6, 3, 4) ** 1).sum(0) * x.expand(6, 3, 4).mean((0, 2), keepdim=True)  # noqa: E731
    assert gradcheck(f, double(sample(3, 1)))
    assert gradgradcheck(f, double(sample(3, 1)))
    assert ng.tensor([np.inf, np.nan]).expand(9, 2).sum(0).isfinite().sum() == 0


@pytest.mark.parametrize("dtype", [ng.float32, ng.float64, ng.float16, ng.bfloat16])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, 0), (7, 300), (300, 7), (2, 600, 500)])
def test_sums_without_nan_are_those_of_numpy(shape, dtype):
    array = sample(*shape)
    array = np.where(array > 0.3, np.nan, np.clip(array, -0.01, 1))
    x = tensor(array).to(dtype)
    tolerance = 1e3 * ng.finfo(dtype).eps
    for dim in (None, *range(x.ndim)):
        out, expected = ng.nansum(x, dim), np.nansum(x.double().numpy(), dim)
        assert out.dtype == dtype
        np.testing.assert_allclose(out.double().numpy(), expected, tolerance, tolerance)
    assert (
        ng.nansum(x.double().mT if x.ndim > 1 else x.double(), 0 if x.ndim else None)
        .isfinite()
        .all()
    )


@pytest.mark.parametrize("shape", [(5,), (7, 300), (300, 7)])
def test_norms_of_order_three(shape):
    array = sample(*shape)
    array[0] = 0
    for dim in (None, *range(len(shape))):
        f = lambda x, dim=dim: x.norm(3.0, dim)  # noqa: E731
        expected = (np.abs(array) ** 3).sum(dim) ** (1 / 3)
        np.testing.assert_allclose(f(tensor(array)).numpy(), expected, 1e-12)
    small = double(array[:3, :4] if len(shape) > 1 else array)
    assert gradcheck(lambda x: x.norm(3.0, 0), small)
    assert gradgradcheck(lambda x: x.norm(3.0), small)
    x = ng.zeros(3, requires_grad=True)
    x.norm(3).backward()
    assert x.grad.tolist() == [0, 0, 0]
    assert np.isnan(tensor([np.nan, 1.0]).norm(3).item())
    assert tensor([np.inf, 1.0]).norm(3).item() == np.inf
    assert 0 < ng.tensor([1e20, 1e20]).norm(3).item() < np.inf


def test_the_larger_of_two_tensors_has_no_dim():
    x, y = ng.tensor([1.0, 4.0]), ng.tensor([3.0, 2.0])
    assert ng.max(x, y).tolist() == x.max(other=y).tolist() == [3.0, 4.0]
    for wrong in (
        lambda: ng.max(x, y, y),
        lambda: x.max(y, True),
        lambda: ng.min(x, 0, other=y),
    ):
        with pytest.raises(TypeError, match="of two tensors there is neither dim nor keepdim"):
            wrong()


@pytest.mark.parametrize("dtype", [ng.float32, ng.int64, ng.bool, ng.bfloat16])
@pytest.mark.parametrize("n", [1, 1024, 1025, 300_000])
def test_one_other_element_anywhere(dtype, n):
    x = ng.ones(n, dtype=dtype)
    assert ng.equal(x, x.clone()) and x.equal(ng.ones(2 * n, dtype=dtype)[::2])
    for at in {0, n // 2, n - 1}:
        y = x.clone()
        y[at] = 0
        assert not ng.equal(x, y) and not y.equal(x)
    assert not ng.equal(x, x[:-1])


def test_a_mean_of_numbers_in_another_dtype():
    x = ng.tensor([[1.0, float("nan"), 4.0]])
    mean = ng.nanmean(x, 1, dtype=ng.float64)
    assert mean.dtype is ng.float64 and mean.tolist() == [2.5]
