"""Bags of rows of a table, beside PyTorch's and beside sums of single rows."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.autograd import gradcheck, gradgradcheck

F = ng.nn.functional
RNG = np.random.default_rng(7)
MODES = ["sum", "mean", "max"]


def expected(index, weight, starts, mode, factors=None, padding=None):
    """The same of single rows, a bag after the other."""
    rows = []
    for begin, end in zip(starts, [*starts[1:], len(index)], strict=True):
        kept = [i for i in range(begin, end) if int(index[i]) != padding]
        if not kept:
            rows.append(weight[0] * 0)
            continue
        bag = weight[index[kept]]
        if factors is not None:
            bag = bag * factors[kept].unsqueeze(1)
        rows.append(bag.max(0).values if mode == "max" else getattr(bag, mode)(0))
    return ng.stack(rows)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("columns", [1, 7, 16, 33, 100, 150])
@pytest.mark.parametrize("dtype", [ng.float32, ng.double])
def test_bags_are_made_of_rows(mode, columns, dtype):
    rng = np.random.default_rng(columns)  # the same numbers, whichever tests ran before
    ng.manual_seed(columns)
    weight = ng.tensor(rng.standard_normal((11, columns)), dtype=dtype, requires_grad=True)
    index = ng.tensor(rng.integers(0, 11, 40))
    # Sums of up to 40 numbers of about 1, in two orders: each addition rounds by half of eps.
    bound = 40 * ng.finfo(dtype).eps
    for padding in (None, 3):
        for starts in ([0], [0, 0, 5, 6, 6, 30, 40], list(range(0, 40, 4)), sorted([0, 39])):
            theirs = expected(index, weight, starts, mode, padding=padding)
            found = [(index, ng.tensor(starts))]
            if len(starts) == 10:
                found.append((index.view(10, 4), None))
            for given, offsets in found:
                ours = F.embedding_bag(given, weight, offsets, mode=mode, padding_idx=padding)
                tolerance = {"rtol": 1e-5, "atol": bound} if dtype is ng.float32 else {}
                ng.testing.assert_close(ours, theirs, check_stride=False, **tolerance or {})
                g = ng.randn_like(ours)
                grads = [
                    ng.autograd.grad(y, weight, g, retain_graph=True)[0] for y in (ours, theirs)
                ]
                ng.testing.assert_close(*grads, check_stride=False, **tolerance)


@pytest.mark.parametrize("offsets", [None, [0, 2, 2, 5]])
@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("mode", MODES)
def test_both_gradients(mode, padding, offsets):
    weight = ng.tensor(RNG.standard_normal((5, 3)), requires_grad=True)
    index, starts = ng.tensor([0, 4, 4, 2, 1, 0]), None
    if offsets is None:
        index = index.view(2, 3)
    else:
        starts = ng.tensor(offsets)

    def bags(weight, factors=None):
        return F.embedding_bag(
            *(index, weight, starts), mode=mode, per_sample_weights=factors, padding_idx=padding
        )

    assert gradcheck(bags, (weight,)) and gradgradcheck(bags, (weight,))
    if mode == "sum":
        factors = ng.tensor(RNG.standard_normal(tuple(index.shape)), requires_grad=True)
        assert gradcheck(bags, (weight, factors)) and gradgradcheck(bags, (weight, factors))
        theirs = expected(
            *(index.view(-1), weight, offsets or [0, 3], mode, factors.view(-1), padding)
        )
        ng.testing.assert_close(bags(weight, factors), theirs)


@pytest.mark.peer
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("include_last", [False, True])
@pytest.mark.parametrize("kind", ["int64", "int32"])
def test_as_pytorch(mode, include_last, kind):
    torch = pytest.importorskip("torch")
    weight, index = RNG.standard_normal((9, 20)), RNG.integers(0, 9, 17).astype(kind)
    starts = np.array([0, 3, 3, 9, 17] if include_last else [0, 3, 3, 9]).astype(kind)
    results = []
    for lib in (torch, ng):
        w = lib.tensor(weight, requires_grad=True)
        factors = lib.tensor(np.arange(17.0), requires_grad=True) if mode == "sum" else None
        out = lib.nn.functional.embedding_bag(
            *(lib.tensor(index), w, lib.tensor(starts)),
            mode=mode,
            include_last_offset=include_last,
            per_sample_weights=factors,
        )
        (out * out).sum().backward()
        results.append([t.detach().numpy() for t in (out, w.grad)])
        if factors is not None:
            results[-1].append(factors.grad.numpy())
    for theirs, ours in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_the_first_of_the_largest_gets_the_gradient():
    weight = ng.tensor([[1.0, 5.0], [1.0, 5.0], [-np.inf, -np.inf]], requires_grad=True)
    out = F.embedding_bag(ng.tensor([2, 1, 0, 2]), weight, ng.tensor([0, 3, 4, 4]), mode="max")
    assert out.tolist() == [[1.0, 5.0], [-np.inf, -np.inf], [0.0, 0.0], [0.0, 0.0]]
    out.sum().backward()
    assert weight.grad.tolist() == [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("mode", MODES)
def test_not_a_number(mode):
    weight = ng.ones(3, 20)
    weight[1, 4] = np.nan
    for index in ([0, 1, 2], [1, 0, 2], [2, 0, 1]):
        found = F.embedding_bag(ng.tensor([index]), weight, mode=mode)
        assert found.isnan().nonzero().tolist() == [[0, 4]]


@pytest.mark.parametrize("mode", MODES)
def test_nothing(mode):
    weight = ng.ones(3, 2, requires_grad=True)
    none = ng.empty(0, dtype=ng.long)
    for index, starts, shape in (
        (none, ng.tensor([0, 0]), (2, 2)),
        (ng.tensor([1, 2]), none, (0, 2)),
        (none.view(4, 0), None, (4, 2)),
        (none.view(0, 4), None, (0, 2)),
        (none, ng.tensor([0]), (1, 2)),
    ):
        out = F.embedding_bag(index, weight, starts, mode=mode)
        assert out.shape == shape and not out.any()
        assert not ng.autograd.grad(out.sum(), weight)[0].any()
    assert F.embedding_bag(ng.tensor([[0]]), ng.ones(3, 0), mode=mode).shape == (1, 0)
    factors = ng.ones(2, requires_grad=True)
    out = F.embedding_bag(ng.tensor([1, 2]), weight, none, mode="sum", per_sample_weights=factors)
    assert ng.autograd.grad(out.sum(), factors)[0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_bad_places(mode, compiled):
    weight = ng.ones(4, 2)
    index = ng.tensor([0, 1, 2, 3])

    def bags(index, starts):
        return F.embedding_bag(index, weight, starts, mode=mode)

    def with_end(index, starts):
        return F.embedding_bag(index, weight, starts, mode=mode, include_last_offset=True)

    run, run_last = (ng.compile(f) if compiled else f for f in (bags, with_end))
    assert run(index, ng.tensor([0, 2])).shape == (2, 2)
    for starts in ([1, 2], [0, 5], [0, -1], [-1, 2]):
        with pytest.raises(ng.errors.ShapeError, match="embedding_bag: offsets"):
            run(index, ng.tensor(starts))
    for starts in ([0, 2, 9], [0, 2, -3], [0, 2, 1], [1]):
        with pytest.raises(ng.errors.ShapeError, match="embedding_bag: offsets"):
            run_last(index, ng.tensor(starts))
    assert run_last(index, ng.tensor([0, 2, 4])).shape == (2, 2)
    with pytest.raises(ng.errors.ShapeError, match="at least 1-long"):
        run_last(index, ng.empty(0, dtype=ng.long))
    for wrong in (4, -1):
        with pytest.raises(IndexError, match=r"embedding_bag: .*index .* out of"):
            run(ng.tensor([0, wrong, 2, 3]), ng.tensor([0, 2]))
    assert run(index, ng.tensor([0, 2])).shape == (2, 2)


@pytest.mark.parametrize("mode", MODES)
def test_the_same_bits_on_more_threads_and_compiled(mode):
    weight = ng.randn(3000, 40, requires_grad=True)
    index, starts = ng.randint(0, 3000, (900,)), ng.arange(0, 900, 9)

    def bags(index, starts):
        weight.grad = None
        out = F.embedding_bag(index, weight, starts, mode=mode)
        out.square().sum().backward()
        return out, weight.grad

    before, found = ng.get_num_threads(), []
    try:
        for threads in (1, 2):
            ng.set_num_threads(threads)
            for run in (bags, ng.compile(bags)):
                found.append([t.detach().clone() for t in run(index, starts)])
    finally:
        ng.set_num_threads(before)
    for other in found[1:]:
        assert other[0].equal(found[0][0]) and other[1].allclose(found[0][1], 1e-6, 1e-6)
    assert found[2][1].equal(found[0][1])


@pytest.mark.parametrize("dtype", [ng.float16, ng.bfloat16])
@pytest.mark.parametrize("mode", MODES)
def test_halves(mode, dtype):
    weight = ng.randn(6, 5).to(dtype).requires_grad_()
    index, starts = ng.tensor([0, 5, 5, 2, 1]), ng.tensor([0, 2, 2])
    out = F.embedding_bag(index, weight, starts, mode=mode)
    assert out.dtype is dtype
    wide = weight.detach().float().requires_grad_()
    theirs = F.embedding_bag(index, wide, starts, mode=mode)
    assert out.equal(theirs.to(dtype))
    out.float().sum().backward()
    theirs.sum().backward()
    assert weight.grad.equal(wide.grad.to(dtype))


def test_vmap():
    weights, index = ng.randn(3, 5, 4), ng.tensor([[0, 1], [4, 4]])
    for mode in MODES:
        found = ng.vmap(lambda w, mode=mode: F.embedding_bag(index, w, mode=mode))(weights)
        each = ng.stack([F.embedding_bag(index, w, mode=mode) for w in weights])
        assert found.allclose(each)
