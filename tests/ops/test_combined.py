"""Operations made of others: what a row of the table does not show."""

from __future__ import annotations

import math

import numpy as np
import pytest

import numbagrad as ng


def test_triangles_are_solved_by_substitution():
    draw = np.random.default_rng(0)
    lower, y = np.tril(draw.standard_normal((50, 50))), draw.standard_normal((50, 1))
    expected = []  # in long double: such triangles are far from well conditioned
    for i in range(50):
        known = np.longdouble(y[i, 0]) - sum(
            np.longdouble(lower[i, j]) * expected[j] for j in range(i)
        )
        expected.append(known / np.longdouble(lower[i, i]))
    out = ng.linalg.solve_triangular(ng.tensor(lower), ng.tensor(y), upper=False)
    np.testing.assert_allclose(out[:, 0], np.array(expected, float), rtol=1e-10)
    singular = ng.tensor([[[1.0, 2.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 2.0]]])
    out = ng.linalg.solve_triangular(singular, ng.ones(2, 1), upper=True)
    assert out.squeeze(-1).tolist() == [[-math.inf, math.inf], [1.0, 0.5]]
    assert ng.linalg.solve_triangular(ng.ones(2, 2), ng.ones(2, 0), upper=True).shape == (2, 0)


def test_ranks_and_conditions_at_the_edges():
    draw = np.random.default_rng(0)
    x = ng.tensor(draw.standard_normal((6, 3)) @ draw.standard_normal((3, 6)))
    assert ng.linalg.matrix_rank(x, atol=0.0).item() == 3
    both = ng.tensor([0.0, 0.1], dtype=ng.float64)
    assert ng.linalg.matrix_rank(ng.stack([x, x]), atol=both).tolist() == [3, 3]
    assert ng.linalg.matrix_rank(ng.zeros(2, 0)).item() == 0
    stack = ng.tensor([[[1.0, 2.0], [2.0, 4.0]], [[1.0, 0.0], [0.0, 1.0]]])
    assert ng.linalg.cond(stack, 1).tolist() == [math.inf, 1.0]
    assert ng.linalg.cond(ng.zeros(2, 2), "fro").item() == math.inf
    assert ng.linalg.cond(ng.zeros(0, 0)).item() == 0
    with pytest.raises(ValueError, match=r"linalg\.cond: p must be one of .*, got 3"):
        ng.linalg.cond(stack, 3)


def test_runs_of_nothing_and_of_one_number():
    assert ng.unique_consecutive(ng.tensor([])).shape == (0,)
    assert ng.unique_consecutive(ng.zeros(0, 2), dim=0).shape == (0, 2)
    found, where = ng.unique_consecutive(ng.tensor(3.0), return_inverse=True)
    assert found.tolist() == [3.0] and where.shape == ()


def test_blocks_take_the_dtype_of_matrices():
    number = ng.tensor(3.5, dtype=ng.float64)
    assert ng.block_diag(ng.tensor([[1.0]]), number).dtype is ng.float32
    assert ng.block_diag().shape == (1, 0)


X = ng.tensor([[0.0, 1.0, 2.0, 5.0], [2.0, 1.0, 0.0, 3.0]])
MISTAKES = [
    (lambda: ng.cov(X, fweights=ng.tensor([-1, 1, 1, 1])), ValueError, "fweights cannot be neg"),
    (lambda: ng.cov(X, aweights=ng.tensor([-1.0, 1, 1, 1])), ValueError, "aweights cannot be neg"),
    (lambda: ng.cov(X, fweights=ng.zeros(4, dtype=ng.int64)), ValueError, "sum to zero"),
    (lambda: ng.cov(X > 1), RuntimeError, "bool dtype is not supported"),
    (lambda: ng.trapezoid(X[0], X), RuntimeError, "as many dimensions as y, 1, or one, got 2"),
    (lambda: X.float_power_(2), RuntimeError, r"float_power_ has dtype ng.float32.*\.double\(\)"),
    (lambda: ng.logaddexp2(ng.tensor([1]), ng.tensor([1])), RuntimeError, "not implemented for ng"),
    (lambda: ng.linalg.vecdot(X, X.double()), RuntimeError, "vectors of the same dtype"),
]


@pytest.mark.parametrize(("call", "error", "words"), MISTAKES)
def test_mistakes_are_named(call, error, words):
    before = X.tolist()
    with pytest.raises(error, match=words):
        call()
    assert X.tolist() == before


def test_a_compiled_step_takes_weights():
    weights = ng.tensor([1, 2, 1, 3])
    compiled = ng.compile(lambda x, w: ng.cov(x, fweights=w))
    np.testing.assert_allclose(compiled(X, weights), ng.cov(X, fweights=weights), rtol=1e-6)
