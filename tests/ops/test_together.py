"""Operations whose kernels take rows, places or edges together: sizes at which those groups end."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import numbagrad as ng
import numbagrad.nn.functional as F
from numbagrad.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(5)


def numbers(*shape):
    return RNG.standard_normal(shape)


def needing(*shape):
    return ng.tensor(numbers(*shape), requires_grad=True)


# -- places ----------------------------------------------------------------------------------------


def read_at(x, at):
    """x (c, h, w) at places (p, 2) by two taps along each axis, zeros outside: (c, p)."""
    out = np.zeros((len(x), len(at)))
    for p, (tx, ty) in enumerate(at):
        for i, j in itertools.product((0, 1), repeat=2):
            column, row = int(np.floor(tx)) + i, int(np.floor(ty)) + j
            if 0 <= column < x.shape[2] and 0 <= row < x.shape[1]:
                out[:, p] += (1 - abs(tx - column)) * (1 - abs(ty - row)) * x[:, row, column]
    return out


@pytest.mark.parametrize("channels, count", [(1, 63), (17, 65), (3, 300)])
def test_grid_sample_of_more_places_and_channels_than_a_block(channels, count):
    x, grid = needing(2, channels, 4, 5), needing(2, 1, count, 2)
    out = F.grid_sample(x, grid, align_corners=False)
    at = ((grid.detach().numpy() + 1) * (5, 4) - 1)[:, 0] / 2
    expected = np.stack([read_at(*pair) for pair in zip(x.detach().numpy(), at, strict=True)])
    assert np.allclose(out.detach().numpy()[:, :, 0], expected)
    g = numbers(*out.shape)
    out.backward(ng.tensor(g))
    # It is linear in x, so its gradient is the other way round.
    assert (x.grad * x).sum().item() == pytest.approx((g * out.detach().numpy()).sum())
    step = 1e-6 * ng.tensor(numbers(*grid.shape))
    ahead, behind = (F.grid_sample(x, grid + s, align_corners=False) for s in (step, -step))
    change = ((ahead - behind) * ng.tensor(g)).sum().item() / 2
    assert change == pytest.approx((grid.grad * step).sum().item(), rel=1e-3, abs=1e-8)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample_of_many_channels_is_that_of_each(mode, padding, dtype):
    kind = getattr(ng, dtype)
    for channels, count, corners in ((8, 70, True), (17, 257, False), (33, 30, False)):
        x = ng.tensor(numbers(2, channels, 4, 7), dtype=kind)
        grid = ng.tensor(numbers(2, 1, count, 2), dtype=kind)
        out = F.grid_sample(x, grid, mode, padding, corners)
        each = [F.grid_sample(part, grid, mode, padding, corners) for part in x.split(3, 1)]
        error = {"float64": 1e-13, "float32": 1e-5, "float16": 5e-3}[dtype]
        assert np.allclose(out.double().numpy(), ng.cat(each, 1).double().numpy(), error, error)


def each_channel(x, grid):
    """Volumes read a channel after the other."""
    parts = [ng.tensor(x[:, c : c + 1]) for c in range(x.shape[1])]
    parts = [F.grid_sample(part, ng.tensor(grid), align_corners=False) for part in parts]
    return ng.cat(parts, 1).numpy()


def test_grid_sample_of_many_channels_of_volumes():
    x, grid = numbers(2, 12, 3, 4, 5), numbers(2, 9, 5, 3, 3)
    out = F.grid_sample(ng.tensor(x), ng.tensor(grid), align_corners=False)
    assert np.allclose(out.numpy(), each_channel(x, grid), 1e-13, 1e-13)
    x[0, 3], x[1, 0, 0, 0] = np.nan, np.inf
    grid[1, 0, 0, 0] = np.nan
    out = F.grid_sample(ng.tensor(x), ng.tensor(grid), align_corners=False)
    assert np.allclose(out.numpy(), each_channel(x, grid), 1e-13, 1e-13, equal_nan=True)
    assert not out[:, :, 0, 0, 0][1].numpy().any()


def test_grid_sample_reads_nothing_at_places_that_are_no_numbers():
    grid = ng.tensor([[[[np.nan, 0.0], [3e20, 0.0], [0.0, 0.0]]]])
    found = F.grid_sample(ng.ones(1, 1, 2, 2), grid, align_corners=False)
    assert found.tolist() == [[[[0.0, 0.0, 1.0]]]]
    inf = ng.full((1, 1, 2, 2), np.inf)
    outside = F.grid_sample(inf, ng.tensor([[[[-1.0, -1.0]]]]), align_corners=False)
    assert outside.item() == np.inf  # three taps read nothing, not 0 times infinity


# -- edges -----------------------------------------------------------------------------------------

NUMPY_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@pytest.mark.parametrize("mode", NUMPY_MODES)
@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (0, 3, 2, 0), (4, 4, 3, 3), (2, 0, 0, 1)])
def test_pad_by_edges(mode, pads):
    x = needing(1, 2, 4, 5)
    widths = [(0, 0), (0, 0), pads[2:], pads[:2]]
    out = F.pad(x, pads, mode)
    assert np.array_equal(
        out.detach().numpy(), np.pad(x.detach().numpy(), widths, NUMPY_MODES[mode])
    )
    assert ng.compile(lambda t: F.pad(t, pads, mode))(x.detach()).equal(out.detach())
    assert gradcheck(lambda t: F.pad(t, pads, mode) ** 2, (x,))
    assert gradgradcheck(lambda t: F.pad(t, pads, mode) ** 2, (x,))


def test_pad_without_width_is_a_copy():
    x = ng.ones(1, 2, 3)
    assert F.pad(x, (0, 0), "reflect").data_ptr() != x.data_ptr()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int16", "bool"])
@pytest.mark.parametrize("n", [1, 15, 16, 17, 63, 65, 130, 1100])
def test_flip_of_vectors_and_what_is_left(dtype, n):
    x = (numbers(2, n) * 50).astype(dtype)
    assert np.array_equal(ng.tensor(x).flip(1).numpy(), x[:, ::-1])
    for k in range(4):
        assert np.array_equal(ng.tensor(x).rot90(k).numpy(), np.rot90(x, k))


# -- rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 3), (65, 3), (130, 16), (5, 1000), (3, 5000), (4, 0)])
def test_log_softmax_of_rows_whose_logarithms_are_taken_together(shape):
    x = numbers(*shape).astype(np.float32)
    with np.errstate(divide="ignore"):
        expected = x - np.log(np.exp(x.astype(np.float64)).sum(1, keepdims=True))
    assert np.allclose(ng.tensor(x).log_softmax(1).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
@pytest.mark.parametrize("n", [1, 48, 49, 300, 2000])
def test_kthvalue_is_that_of_a_stable_sort(dtype, n):
    x = np.abs(numbers(3, n) * 20).round().astype(dtype)
    for k in {0, (n - 1) // 2, n - 1}:
        found = ng.tensor(x).kthvalue(k + 1, 1)
        assert np.array_equal(found.indices.numpy(), np.argsort(x, 1, kind="stable")[:, k])
        assert np.array_equal(found.values.numpy(), np.sort(x, 1)[:, k])


def test_median_takes_the_first_nan():
    x = numbers(2, 200).astype(np.float32)
    x[1, [70, 30]] = np.nan
    values, indices = ng.tensor(x).median(1)
    assert values[0].item() == np.sort(x[0])[99] and np.isnan(values[1].item())
    assert indices[1].item() == 30


@pytest.mark.parametrize("shape", [(17, 3), (8, 2), (2, 3, 9), (2, 3, 600)])
def test_gradient_of_a_product_of_many_rows(shape):
    x, dim = needing(*shape), 1
    x.prod(dim).sum().backward()
    others = [np.delete(x.detach().numpy(), j, dim).prod(dim) for j in range(shape[dim])]
    assert np.allclose(x.grad.numpy(), np.stack(others, dim))


def test_nonzero_of_rows_without_any_and_of_the_last():
    for shape in ((5, 7), (2, 3, 4), (6,), (3, 1)):
        for share in (0.0, 0.1, 1.0):
            x = RNG.random(shape) < share
            assert np.array_equal(ng.tensor(x).nonzero().numpy(), np.argwhere(x))


# -- bags, vectors of three, choices ---------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("padding_idx", [None, -1])
@pytest.mark.parametrize("d", [1, 300])
def test_bags_are_the_sums_of_embeddings(mode, padding_idx, d):
    weight, index = needing(6, d), ng.tensor([[0, 5, 5], [1, 1, 2], [5, 5, 5], [3, 0, 5]])
    found = F.embedding_bag(index, weight, mode=mode, padding_idx=padding_idx)
    kept = ng.ones(4, 3, 1, dtype=ng.double)
    if padding_idx is not None:
        kept = index.ne(5).double().unsqueeze(2)
    expected = (weight[index] * kept).sum(1)
    if mode == "mean":
        expected = expected / kept.sum(1).clamp(min=1)
    assert found.allclose(expected)
    g = ng.tensor(numbers(*found.shape))
    ours, theirs = (ng.autograd.grad(y, weight, g)[0] for y in (found, expected))
    assert ours.allclose(theirs)
    assert d > 1 or gradgradcheck(
        lambda w: F.embedding_bag(index, w, mode=mode, padding_idx=padding_idx) ** 2, (weight,)
    )


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_cross_along_any_dim_and_broadcast(dim, dtype):
    x, y = (numbers(3, 3, 3) * 9).astype(dtype), (numbers(3, 3, 3) * 9).astype(dtype)
    found = ng.cross(ng.tensor(x), ng.tensor(y), dim=dim)
    assert np.allclose(found.numpy(), np.cross(x, y, axis=dim), atol=1e-4)
    x, y = needing(2, 3, 4), needing(3, 1)
    assert gradcheck(lambda a, b: ng.cross(a, b, dim=1), (x, y))
    assert gradgradcheck(lambda a, b: ng.cross(a, b, dim=1), (x, y))


def test_cross_of_halves_and_bools():
    x = ng.tensor([1.0, 0.0, 0.0]).half()
    assert ng.cross(x, x.roll(1)).tolist() == [0.0, 0.0, 1.0]
    with pytest.raises(TypeError, match="cross: not implemented for bools"):
        ng.cross(x.bool(), x.bool())


@pytest.mark.parametrize("again", [False, True])
def test_combinations_are_those_of_itertools(again):
    choose = itertools.combinations_with_replacement if again else itertools.combinations
    for n, r in itertools.product((0, 1, 4, 7), (1, 2, 3)):
        found = ng.combinations(ng.arange(n), r, again).tolist()
        assert found == [list(row) for row in choose(range(n), r)]
