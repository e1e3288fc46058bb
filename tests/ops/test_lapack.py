"""``ng.linalg``: what is said of matrices that have no inverse, solution or triangle."""

import math
import subprocess
import sys

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.kernels.cpu import lapack

SINGULAR = [[1.0, 2.0], [2.0, 4.0]]


@pytest.mark.parametrize("compiled", [False, True])
def test_the_element_of_a_batch_that_fails_is_named(compiled):
    stack = ng.tensor([np.eye(2).tolist(), SINGULAR])
    found = {
        "inv": (r"linalg\.inv: \(Batch element 1\): The diagonal element 2", (stack,)),
        "solve": (r"linalg\.solve: \(Batch element 1\)", (stack, ng.ones(2, 2))),
        "cholesky": (r"linalg\.cholesky: \(Batch element 1\).*order 2", (stack,)),
    }
    for name, (words, args) in found.items():
        for form, how in (("", {}), ("_ex", {"check_errors": True})):
            function = getattr(ng.linalg, name + form)

            def run(*args, function=function, how=how):
                out = function(*args, **how)
                return out if isinstance(out, ng.Tensor) else out[0]

            step = ng.compile(run) if compiled else run
            with pytest.raises(ng.linalg.LinAlgError, match=words.replace(name, name + form, 1)):
                step(*args)
    assert ng.linalg.inv_ex(stack).info.tolist() == [0, 2]


def test_info_has_the_shape_of_the_matrices():
    x, y = ng.tensor(SINGULAR), ng.ones(3, 2, 2)
    assert ng.linalg.solve_ex(x, y).info.tolist() == 2
    assert ng.linalg.solve_ex(ng.stack([x, x])[:, None], y).info.tolist() == [[2], [2]]
    assert ng.linalg.solve_ex(x, ng.ones(0, 2, 2)).info.shape == ()


def test_a_matrix_with_a_nan_has_no_triangle():
    x = ng.eye(3)
    x[1, 1] = math.nan
    out, info = ng.linalg.cholesky_ex(ng.stack([ng.eye(3), x]))
    assert info.tolist() == [0, 2]
    assert out[0].equal(ng.eye(3))
    with pytest.raises(RuntimeError, match="order 2"):
        ng.linalg.cholesky(x)


def test_the_gradient_of_a_determinant_that_is_zero():
    rank_one = [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [0.0, 0.0, 0.0]]
    x = ng.tensor([[[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 3.0]], rank_one])
    x.requires_grad_()
    ng.linalg.det(x).sum().backward()
    cofactors = [[12.0, -6.0, 0.0], [-6.0, 3.0, 0.0], [0.0, 0.0, 0.0]]
    np.testing.assert_allclose(x.grad[0].numpy(), cofactors, atol=1e-5)
    np.testing.assert_allclose(x.grad[1].numpy(), 0, atol=1e-5)
    one = ng.zeros(1, 1, requires_grad=True)
    ng.linalg.det(one).backward()
    assert one.grad.tolist() == [[1.0]]


def test_upper_triangles_come_from_the_upper_half():
    x = ng.tensor([[4.0, 2.0], [99.0, 5.0]])
    assert ng.linalg.cholesky(x, upper=True).tolist() == [[2.0, 1.0], [0.0, 2.0]]


@pytest.mark.parametrize("p", ["fro", "nuc", 1, -1, math.inf, -math.inf])
def test_condition_numbers_of_singular_matrices_in_a_stack(p):
    good = [[2.0, 1.0], [1.0, 3.0]]
    found = ng.linalg.cond(ng.tensor([good, SINGULAR], dtype=ng.float64), p)
    assert found[1].item() == math.inf
    assert math.isclose(found[0].item(), np.linalg.cond(np.array(good), p))
    assert ng.linalg.cond(ng.tensor(SINGULAR), p).item() == math.inf


SHAPES = [(5, 5), (40, 40), (97, 97), (2, 130, 130), (3, 30, 30), (3, 4, 4), (0, 3, 3), (2, 0, 0)]


@pytest.mark.parametrize("large", [lapack.LARGE, 20])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_matrix_a_stack_and_large_ones_agree(monkeypatch, shape, dtype, large):
    monkeypatch.setattr(lapack, "LARGE", large)
    draw = np.random.default_rng(0)
    n = shape[-1]
    array = (draw.standard_normal(shape) + (3 + n**0.5) * np.eye(n)).astype(dtype)
    sides = draw.standard_normal((*shape[:-1], 3)).astype(dtype)
    x, y, tolerance = ng.tensor(array), ng.tensor(sides), 2e3 * np.finfo(dtype).eps
    turned = ng.tensor(array.swapaxes(-1, -2).copy()).mT

    def agree(out, expected):
        assert out.dtype == x.dtype
        np.testing.assert_allclose(out.numpy(), expected, tolerance, tolerance)

    for each in (x, turned):
        agree(ng.linalg.inv(each), np.linalg.inv(array))
        agree(ng.linalg.solve(each, y), np.linalg.solve(array, sides))
        for upper in (True, False):
            triangle = np.triu(array) if upper else np.tril(array)
            expected = np.linalg.solve(triangle, sides)
            agree(ng.linalg.solve_triangular(each, y, upper=upper), expected)
        agree(ng.linalg.lu_solve(*ng.linalg.lu_factor(each), y), np.linalg.solve(array, sides))
        sign, size = ng.linalg.slogdet(each)
        agree(sign * size, np.prod(np.linalg.slogdet(array), 0))
        definite = each @ each.mT + ng.eye(shape[-1], dtype=x.dtype)
        triangle = ng.linalg.cholesky(definite)
        agree(triangle, np.linalg.cholesky(definite.numpy()))
        q, r = ng.linalg.qr(each)
        agree(q @ r, array)
        agree(q.mT @ q, np.broadcast_to(np.eye(shape[-1]), shape))
        assert r.tril(-1).abs().sum() == 0


@pytest.mark.parametrize("n", [3, 30, 70])
def test_a_large_matrix_that_is_singular_is_named_too(n):
    x = ng.eye(n)
    x[1, 1] = 0
    for stack in (x, ng.stack([ng.eye(n), x])):
        assert ng.linalg.inv_ex(stack).info.flatten().tolist()[-1] == 2
        result, info = ng.linalg.solve_ex(stack, ng.ones(n, 2).expand(*stack.shape[:-1], 2))
        assert info.flatten().tolist()[-1] == 2 and result.reshape((-1, n, 2))[-1].isnan().all()
        with pytest.raises(ng.linalg.LinAlgError, match="diagonal element 2"):
            ng.linalg.inv(stack)


@pytest.mark.parametrize("shape", [(4, 4), (3, 5, 5), (0, 2, 2)])
def test_values_without_a_gradient_are_those_with_one(shape):
    array = np.random.default_rng(1).standard_normal(shape)
    array = array + array.swapaxes(-1, -2)
    x, leaf = ng.tensor(array), ng.tensor(array, requires_grad=True)
    for f in (ng.linalg.svdvals, ng.linalg.eigvalsh, lambda x: ng.linalg.eigvalsh(x, "U")):
        np.testing.assert_allclose(f(x).numpy(), f(leaf).detach().numpy(), 1e-12, 1e-12)
    assert ng.linalg.svdvals(x[..., :3]).shape == (*shape[:-2], min(3, shape[-1]))


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_gradients_of_determinants_of_a_stack_with_singular_matrices(zeros):
    array = np.random.default_rng(2).standard_normal((3, 3, 3))
    array[:zeros, 0] = array[:zeros, 1]
    x = ng.tensor(array, requires_grad=True)
    assert ng.autograd.gradcheck(ng.linalg.det, x)


@pytest.mark.parametrize("shape", [(3, 3), (2, 60, 60)])
def test_gradients_by_factors_that_are_kept(shape):
    draw = np.random.default_rng(3)
    x = draw.standard_normal(shape) + 2 * np.eye(shape[-1])
    y = draw.standard_normal((*shape[:-1], 2))
    leaves = [ng.tensor(a, requires_grad=True) for a in (x, y)]
    out = ng.linalg.solve(*leaves)
    first = ng.autograd.grad(out.square().sum(), leaves, create_graph=True)
    second = ng.autograd.grad(sum(g.square().sum() for g in first), leaves)

    torch = pytest.importorskip("torch")
    theirs = [torch.tensor(a, requires_grad=True) for a in (x, y)]
    out = torch.linalg.solve(*theirs)
    known = torch.autograd.grad(out.square().sum(), theirs, create_graph=True)
    again = torch.autograd.grad(sum(g.square().sum() for g in known), theirs)
    for ours, expected in zip((*first, *second), (*known, *again), strict=True):
        scale = expected.abs().max().item()
        np.testing.assert_allclose(
            ours.detach().numpy(), expected.detach().numpy(), 0, 1e-8 * scale
        )


@pytest.mark.parametrize("n", [3, 40, 60])
def test_numbers_that_are_not_reach_results_and_nothing_hangs(n):
    x = ng.eye(n)
    x[n - 1, 0] = math.nan
    assert ng.linalg.inv_ex(x).inverse.isnan().any()
    assert ng.linalg.solve_ex(x, ng.ones(n, 1)).result.isnan().any()
    assert ng.linalg.slogdet(x * math.nan).logabsdet.isnan().item()
    assert ng.linalg.cholesky_ex(x).info.item() == n
    infinite = ng.eye(n)
    infinite[0, n - 1] = math.inf
    ng.linalg.inv_ex(infinite)


@pytest.mark.parametrize("shape", [(9, 9), (70, 30), (3, 40, 11), (12, 50), (5, 1), (1, 1), (3, 0)])
@pytest.mark.parametrize("dtype, scale", [("float32", 1e30), ("float64", 1e-200), ("float64", 1)])
def test_orthogonal_factors_as_lapack_has_them(shape, dtype, scale):
    array = (np.random.default_rng(4).standard_normal(shape) * scale).astype(dtype)
    close = 50 * np.finfo(dtype).eps
    for mode in ("reduced", "complete"):
        q, r = (v.numpy() for v in ng.linalg.qr(ng.tensor(array), mode))
        known_q, known_r = np.linalg.qr(array, mode)
        np.testing.assert_allclose(
            q[..., : min(shape[-2:])], known_q[..., : min(shape[-2:])], 0, close
        )
        np.testing.assert_allclose(r / scale, known_r / scale, 0, 20 * close)
        turned = q.swapaxes(-1, -2)
        np.testing.assert_allclose(
            turned @ q, np.broadcast_to(np.eye(q.shape[-1]), (turned @ q).shape), 0, close
        )


def test_a_column_whose_numbers_are_far_apart():
    x = ng.tensor([[1e25], [1e-10], [0.0]])
    q, r = ng.linalg.qr(x)
    np.testing.assert_allclose(r.item(), -1e25, 1e-6)
    np.testing.assert_allclose(q[:, 0].tolist(), [-1, 0, 0], 0, 1e-6)


@pytest.mark.parametrize("shape", [(8, 3), (2, 30, 5), (6, 4), (3, 5), (200, 70)])
@pytest.mark.parametrize("lost", [0, 1])
def test_least_squares_as_by_singular_values(shape, lost):
    draw = np.random.default_rng(5)
    x, y = draw.standard_normal(shape), draw.standard_normal((*shape[:-1], 2))
    if lost:
        x[..., -1] = x[..., 0]
    out, left, rank, _ = ng.linalg.lstsq(ng.tensor(x), ng.tensor(y))
    expected = np.linalg.pinv(x) @ y
    np.testing.assert_allclose(out.numpy(), expected, 1e-9, 1e-9)
    full = min(shape[-2:]) - (lost if shape[-2] >= shape[-1] else 0)
    assert (rank == full).all().item()
    if full == shape[-1] < shape[-2]:
        np.testing.assert_allclose(left.numpy(), np.square(x @ expected - y).sum(-2), 1e-9)
    else:
        assert left.shape == (0,)


@pytest.mark.parametrize("shape", [(8, 3), (3, 8), (5, 5), (2, 7, 2), (150, 70)])
def test_pseudo_inverses_of_high_and_of_lost_rank(shape):
    x = np.random.default_rng(6).standard_normal(shape)
    x[..., -1] = x[..., 0]
    np.testing.assert_allclose(ng.linalg.pinv(ng.tensor(x)).numpy(), np.linalg.pinv(x), 1e-9, 1e-9)


@pytest.mark.parametrize("shape", [(6, 2), (2, 6), (4, 4)])
def test_gradients_of_pseudo_inverses_and_least_squares(shape):
    x = ng.tensor(np.random.default_rng(7).standard_normal(shape), requires_grad=True)
    y = ng.tensor(np.random.default_rng(8).standard_normal((shape[0], 3)), requires_grad=True)

    def solution(x, y):
        return ng.linalg.lstsq(x, y)[0]

    for function, given in ((ng.linalg.pinv, (x,)), (solution, (x, y))):
        assert ng.autograd.gradcheck(function, given)
        assert ng.autograd.gradgradcheck(function, given)


def test_few_elements_compile_nothing():
    program = """
import numbagrad as ng
from numbagrad.kernels.cpu import reflections, spectra, triangles
x = ng.eye(3) * 2 + 0.1
for f in "cholesky det eigh eigvalsh inv lu_factor pinv qr slogdet svd svdvals".split():
    getattr(ng.linalg, f)(x)
ng.linalg.solve(x, x), ng.linalg.lstsq(x, x), ng.linalg.solve_triangular(x, x, upper=True)
kernels = (reflections.qr, spectra.eigh, spectra.svd, triangles.lu, triangles.substitute)
print([k.__name__ for k in kernels if k._serial is not None or k._parallel is not None])
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.stdout.strip() == "[]", found.stdout + found.stderr


@pytest.mark.parametrize("name", ["eigh", "eigvalsh", "pinv", "svd", "svdvals"])
@pytest.mark.parametrize("n", [3, 60])
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_what_is_not_finite_is_refused_by_name(name, n, value, capfd):
    x = ng.eye(n)
    x[1, 1] = value
    run = ng.compile(getattr(ng.linalg, name))
    for function in (getattr(ng.linalg, name), run):
        with pytest.raises(ng.linalg.LinAlgError, match=f"linalg.{name}: "):
            function(x)
    assert "illegal value" not in "".join(capfd.readouterr())


def test_a_triangle_that_is_not_read_may_hold_anything():
    for n in (3, 60):
        x = ng.eye(n)
        x[0, 1] = math.nan
        assert ng.linalg.eigvalsh(x, "L").tolist() == [1.0] * n
        assert ng.linalg.eigh(x, "L").eigenvalues.tolist() == [1.0] * n


def test_gradients_of_symmetric_matrices_are_symmetric():
    """Whichever triangle is read, and of both orders."""
    a = np.random.default_rng(0).normal(size=(2, 4, 4))
    for triangle in "LU":
        x = ng.tensor(a, requires_grad=True)
        values, vectors = ng.linalg.eigh(x, triangle)
        (g,) = ng.autograd.grad((vectors**4).sum() + (values**2).sum(), x, create_graph=True)
        (h,) = ng.autograd.grad((g * ng.tensor(a)).sum(), x)
        for gradient in (g, h):
            turned = gradient.detach().mT
            np.testing.assert_allclose(gradient.detach().numpy(), turned.numpy(), atol=1e-9)
    x = ng.tensor([[7.0, -1.0], [-1.0, 6.0]], dtype=ng.float64, requires_grad=True)
    (g,) = ng.autograd.grad(ng.linalg.eigvalsh(x)[0], x, create_graph=True)
    (h,) = ng.autograd.grad(g[0, 0] + 2 * g[1, 0], x)
    expected = [[-0.35777, -0.17889], [-0.17889, 0.35777]]
    np.testing.assert_allclose(h.numpy(), expected, atol=1e-4)


def test_a_tolerance_of_older_code():
    x = ng.tensor([[7.0, -1.0], [-1.0, 6.0]])
    ranks = [ng.linalg.matrix_rank(x, 6.5), ng.linalg.matrix_rank(x, tol=6.5, hermitian=True)]
    assert [rank.item() for rank in ranks] == [1, 1]
    with pytest.raises(TypeError, match="matrix_rank: tol stands for atol and rtol"):
        ng.linalg.matrix_rank(x, 6.5, atol=1.0)
