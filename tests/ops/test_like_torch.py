"""Arguments at the edge that PyTorch takes too: 0-d indices, sizes of 1, limits of ints."""

from __future__ import annotations

import pytest

import numbagrad as ng

LINES = """
    L.take_along_dim(m, L.tensor([[-1, 0], [1, -3]]), 1)
    L.take_along_dim(m, L.tensor([[-2]]), dim=0)
    x.gather(0, one)
    x.gather(-1, L.tensor([0, 0]))
    v.gather(0, L.tensor(1))
    x.scatter(0, one, y)
    x.scatter(0, L.tensor(0), y.detach().reshape(1))
    x.scatter_add(0, L.tensor([0, 0]), v)
    v.scatter_add(0, L.tensor(1), y)
    x.scatter_reduce(0, one, y, "prod")
    x.index_add(0, one, y)
    x.index_copy(0, one, y)
    x.index_copy(0, L.tensor(0), y.detach().reshape(1))
    x.index_reduce(0, one, y, "prod")
    L.tensordot(m, L.ones(1, 2, dtype=L.float64), dims=1)
    L.tensordot(m, m[:1], dims=([0, 1], [0, 1]))
    L.tensordot(m[:, :1], m, dims=([1], [1]))
    L.nn.functional.hardtanh(L.tensor([-3, 0, 5]), -1.5, 2.5)
    L.nn.functional.hardtanh_(L.tensor([-3, 0, 5]))
    L.nn.functional.relu6(L.tensor([-3, 0, 9]))
    v.scatter_add(0, L.tensor([], dtype=L.int64), v[L.tensor([], dtype=L.int64)])
    L.zeros(4, dtype=L.float64).scatter_add(0, L.tensor([], dtype=L.int64), v[:0])
    L.zeros(4, dtype=L.float64).scatter(0, L.tensor([], dtype=L.int64), v[:0])
    L.zeros(4, dtype=L.float64).scatter_add_(0, L.tensor([], dtype=L.int64), v[:0])
    L.zeros(4, dtype=L.float64).scatter_reduce(0, L.tensor([], dtype=L.int64), v[:0], "amax")
    L.zeros(4, 2, dtype=L.float64).index_reduce(0, L.tensor([], dtype=L.int64), m[:0, :2], "mean")
    L.atan2(v * 0, v * 0)
    L.atan2(L.stack([x, x * 0]), L.stack([x * 0, x * 0]))
    L.remainder(L.tensor([1.0, -7, 5, -1]), L.stack([x * 0 + 0.1, y * 0 + 2, x - 9, y + L.inf]))
    L.nn.functional.cosine_embedding_loss(m, m.flip(0), L.tensor([-1]), reduction="none")
    L.nn.functional.cosine_embedding_loss(m, m[:1] + 1, L.tensor([1, -1]), margin=-0.9)
""".strip().split("\n")


@pytest.mark.parametrize("line", [line.strip() for line in LINES])
def test_values_and_gradients_are_pytorchs(line):
    torch = pytest.importorskip("torch")
    found = []
    for lib in (ng, torch):
        leaves = {
            name: lib.tensor(value, dtype=lib.float64, requires_grad=True)
            for name, value in {"x": 3.0, "y": 5.0, "v": [1.0, 2.0]}.items()
        }
        m = lib.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]], dtype=lib.float64, requires_grad=True)
        leaves["m"] = m
        out = eval(line, {"L": lib, "one": lib.tensor([0]), **leaves})
        if out.requires_grad:
            (out * out).sum().backward()
        grads = [None if t.grad is None else t.grad.tolist() for t in leaves.values()]
        found.append((out.tolist(), str(out.dtype).split(".")[1], grads))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        ("ng.take_along_dim(m, ng.tensor([[-4]]), 1)", IndexError, "index -4 is out of bounds"),
        ("ng.take_along_dim(m, ng.tensor([[3]]), 1)", IndexError, "index 3 is out of bounds"),
        ("m.sum().index_select(0, ng.tensor([0, 0]))", ValueError, "only 1 value, got 2"),
        ("ng.tensordot(m, ng.ones(2, 2), dims=1)", ValueError, "need to match"),
        ("F.hardtanh(ng.tensor([True]))", TypeError, "hardtanh: not possible for ng.bool"),
        ("F.hardtanh(ng.ones(2, dtype=ng.uint8))", TypeError, "not possible for ng.uint8"),
    ],
)
def test_what_does_not_fit_is_refused(line, error, words):
    with pytest.raises(error, match=words):
        eval(line, {"ng": ng, "F": ng.nn.functional, "m": ng.ones(2, 3)})


@pytest.mark.parametrize("x", [-0.5, -1.5, -2.5, -0.25, -0.75, -0.2, -3.9, 0.5])
def test_third_derivatives_of_lgamma_where_tan_has_its_poles(x):
    given = ng.tensor(x, dtype=ng.float64, requires_grad=True)
    value = ng.lgamma(given)
    for order in range(1, 4):
        (value,) = ng.autograd.grad(value, given, create_graph=True)
        assert value.item() == pytest.approx(ng.polygamma(order - 1, given).item(), rel=1e-12)


def test_indices_from_the_end_compile():
    m, at = ng.tensor([[1.0, 2.0, 3.0]]), ng.tensor([[-1, 0]])
    assert ng.compile(ng.take_along_dim)(m, at, 1).tolist() == [[3.0, 1.0]]
