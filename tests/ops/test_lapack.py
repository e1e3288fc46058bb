"""``ng.linalg``: what is said of matrices that have no inverse, solution or triangle."""

import math

import numpy as np
import pytest

import numbagrad as ng

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
