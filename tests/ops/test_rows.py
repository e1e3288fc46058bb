"""Rows of a few numbers with gaps between them: gathered, computed and scattered many at a time."""

import numpy as np
import pytest

import numbagrad as ng

DTYPES = [np.int8, np.int16, np.float32, np.float64, np.int64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_of_rows_are_written_and_nothing_else(dtype):
    rng = np.random.default_rng(0)
    for rows, width in ((1, 5), (300, 18), (70, 64), (40, 65), (3, 300)):
        whole = rng.integers(-20, 20, (rows, width)).astype(dtype)
        for part in (np.s_[:, 1:4], np.s_[:, :-1], np.s_[::2], np.s_[:, ::2], np.s_[1:, 2:]):
            mine, expected = ng.tensor(whole.copy()), whole.copy()
            expected[part] += dtype(3)
            mine[part].add_(3)
            assert (mine.numpy() == expected).all(), (rows, width, part)
            other = rng.integers(-20, 20, expected[part].shape).astype(dtype)
            expected[part] = other
            mine[part] = ng.tensor(other)
            assert (mine.numpy() == expected).all(), (rows, width, part)
            expected[part] *= other[:1]
            mine[part].mul_(ng.tensor(other[:1]))
            assert (mine.numpy() == expected).all(), (rows, width, part)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_any_order(dtype):
    x = np.random.default_rng(1).integers(-20, 20, (13, 40, 6)).astype(dtype)
    mine = ng.tensor(x)
    for function, expected in (
        (lambda t: t.flip(0), x[::-1]),
        (lambda t: t.flip(0, 2), x[::-1, :, ::-1]),
        (lambda t: t.transpose(0, 1).contiguous(), x.transpose(1, 0, 2)),
        (lambda t: t.permute(2, 1, 0) + 1, x.transpose(2, 1, 0) + dtype(1)),
        (lambda t: t.repeat_interleave(3, 1), x.repeat(3, 1)),
        (lambda t: t.roll(2, 1), np.roll(x, 2, 1)),
        (lambda t: t[:, 3:30, 1:5] * t[:, 4:31, :1], x[:, 3:30, 1:5] * x[:, 4:31, :1]),
    ):
        assert (function(mine).numpy() == expected).all()


def test_threads_share_rows_with_gaps():
    x = np.random.default_rng(2).standard_normal((9000, 20)).astype(np.float32)
    threads = ng.get_num_threads()
    results = []
    for count in (1, 2):
        ng.set_num_threads(count)
        mine = ng.tensor(x.copy())
        mine[:, 3:17].exp_()
        results.append(mine.numpy())
    ng.set_num_threads(threads)
    assert (results[0] == results[1]).all()
    assert np.allclose(results[0][:, 3:17], np.exp(x[:, 3:17]), rtol=1e-6)
    assert (results[0][:, [0, 1, 2, 17, 18, 19]] == x[:, [0, 1, 2, 17, 18, 19]]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_small_products_of_a_batch(dtype):
    rng = np.random.default_rng(3)
    for n, k, m in ((1, 1, 1), (1, 16, 1), (3, 3, 3), (3, 3, 1), (4, 4, 4), (8, 5, 9), (1, 40, 1)):
        x = rng.standard_normal((50, n, k)).astype(dtype)
        y = rng.standard_normal((50, k, m)).astype(dtype)
        wide = rng.standard_normal((50, 2 * k, 3 * m)).astype(dtype)
        turned = np.ascontiguousarray(x.transpose(0, 2, 1))
        mine = [ng.tensor(a) for a in (x, y, wide, turned)]
        tolerance = {"rtol": 1e-4, "atol": 1e-5}
        assert np.allclose((mine[0] @ mine[1]).numpy(), x @ y, **tolerance)
        assert np.allclose((mine[3].transpose(1, 2) @ mine[1]).numpy(), x @ y, **tolerance)
        gaps = (mine[0] @ mine[2][:, ::2, ::3]).numpy()
        assert np.allclose(gaps, x @ wide[:, ::2, ::3], **tolerance)
        assert np.allclose((mine[0][:1] @ mine[1]).numpy(), x[:1] @ y, **tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_matrix_times_a_vector(dtype):
    rng = np.random.default_rng(4)
    for n, k in ((1, 1), (7, 16), (11, 31), (3, 300), (40, 1000), (0, 20), (5, 0)):
        x, v = rng.standard_normal((n, k)).astype(dtype), rng.standard_normal(k).astype(dtype)
        start, wide = rng.standard_normal(n).astype(dtype), rng.standard_normal((n, 2 * k))
        mine = [ng.tensor(a) for a in (x, v, start, wide.astype(dtype))]
        tolerance = {"rtol": 1e-4, "atol": 1e-4}
        assert np.allclose((mine[0] @ mine[1]).numpy(), x @ v, **tolerance)
        assert np.allclose((mine[1] @ mine[0].t()).numpy(), x @ v, **tolerance)
        assert np.allclose((mine[3][:, k:] @ mine[1]).numpy(), wide[:, k:] @ v, **tolerance)
        assert np.allclose(ng.addmv(mine[2], mine[0], mine[1]).numpy(), start + x @ v, **tolerance)
        assert np.allclose(ng.dot(mine[1], mine[1]).numpy(), v @ v, **tolerance)


@pytest.mark.parametrize("equation", ["bi,bi->bi", "bi,b->ib", "b,bi->ib", "i,bji->bij", ",i->i"])
def test_einsum_without_sums(equation):
    sizes = {"b": 3, "i": 4, "j": 2}
    terms = equation.split("->")[0].split(",")
    rng = np.random.default_rng(5)
    given = [rng.standard_normal([sizes[c] for c in term]) for term in terms]
    mine = [ng.tensor(a, requires_grad=True) for a in given]
    assert np.allclose(ng.einsum(equation, *mine).detach().numpy(), np.einsum(equation, *given))
    assert ng.autograd.gradcheck(lambda *t: ng.einsum(equation, *t), tuple(mine))


def test_whole_powers_are_products():
    x = ng.tensor([-2.0, 0.5, 3.0], dtype=ng.double, requires_grad=True)
    for exponent in (-1, -1.0, 2, 3, 3.0):
        assert np.allclose((x**exponent).tolist(), x.detach().numpy() ** exponent)
        assert ng.autograd.gradcheck(lambda x, e=exponent: x**e, (x,))
        assert ng.autograd.gradgradcheck(lambda x, e=exponent: x**e, (x,))
    whole = ng.tensor([2, 3])
    assert (whole**3).dtype is ng.int64 and (whole**3).tolist() == [8, 27]
    assert (whole**3.0).dtype is ng.float32 and (whole**-1.0).tolist()[0] == 0.5
    assert x.detach().clone().pow_(3).tolist() == [-8.0, 0.125, 27.0]
