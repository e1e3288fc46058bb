"""Max pooling over windows at random places: PyTorch's windows for the same random numbers."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn

F = nn.functional
DRAW = np.random.default_rng(0)
IMAGE = DRAW.permutation(2 * 3 * 9 * 8 * 7).reshape(2, 3, 9, 8, 7) * 0.01
SAMPLES = DRAW.random((2, 3, 3))
HOW = [(2, 4, None), ((2, 3, 1), (5, 4, 3), None), (2, 1, None), (3, None, (0.5, 0.6, 0.7))]


def call(lib, rank, x, kernel, size, ratio, samples, indices=True):
    cut = [v[:rank] if isinstance(v, tuple) else v for v in (kernel, size, ratio)]
    function = getattr(lib.nn.functional, f"fractional_max_pool{rank}d")
    return function(x, *cut, return_indices=indices, _random_samples=samples)


@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("rank", [2, 3])
def test_windows_are_torchs(rank, how):
    torch = pytest.importorskip("torch")
    found = []
    for lib in (ng, torch):
        x = lib.tensor(IMAGE[(..., 0) if rank == 2 else ...].copy(), requires_grad=True)
        samples = lib.tensor(SAMPLES[..., :rank].copy())
        values, indices = call(lib, rank, x, *how, samples)
        values.square().sum().backward()
        single = call(lib, rank, x[0], *how, samples[:1], indices=False)
        found.append([t.detach().numpy() for t in (values, indices, x.grad, single)])
    for mine, his in zip(*found, strict=True):
        np.testing.assert_array_equal(mine.shape, his.shape)
        np.testing.assert_allclose(mine, his, rtol=1e-12)


@pytest.mark.parametrize("rank", [2, 3])
def test_gradients_and_compiled(rank):
    x = ng.tensor(IMAGE[:1, :1, :4, :4, :4][(..., 0) if rank == 2 else ...].copy())
    samples = ng.tensor(SAMPLES[:1, :1, :rank].copy())

    def pool(x):
        return call(ng, rank, x, 2, 2, None, samples, indices=False)

    assert ng.autograd.gradcheck(pool, x.clone().requires_grad_())
    assert ng.autograd.gradgradcheck(lambda x: pool(x) ** 2, x.clone().requires_grad_())
    assert ng.compile(pool)(x).equal(pool(x))
    turned = x.transpose(-1, -2).contiguous().transpose(-1, -2)
    assert pool(turned).equal(pool(x)) and pool(x.float()).dtype is ng.float32


def test_layers():
    x = ng.tensor(IMAGE)
    ng.manual_seed(0)
    layer = nn.FractionalMaxPool3d(2, output_ratio=0.5, return_indices=True)
    values, indices = layer(x)
    assert values.shape == (2, 3, 4, 4, 3) and values.equal(
        x.flatten(2).gather(2, indices.flatten(2)).reshape(values.shape)
    )
    assert not layer(x)[1].equal(indices)
    fixed = nn.FractionalMaxPool2d(
        2, output_size=3, _random_samples=ng.tensor(SAMPLES[..., :2].copy())
    )
    assert fixed(x[..., 0]).equal(fixed(x[..., 0]))
    named = F.fractional_max_pool2d_with_indices(x[..., 0], 2, 3)
    assert len(named) == 2


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (lambda x: F.fractional_max_pool2d(x, 2), "either an output_size or an output_ratio"),
        (lambda x: F.fractional_max_pool2d(x, 4, 9), "too large relative to the input"),
        (lambda x: F.fractional_max_pool2d(x[0, 0], 2, 2), "Expected 3D or 4D input"),
        (lambda x: F.fractional_max_pool2d(x, (2, 2, 2), 2), "or 2 of them"),
        (lambda x: nn.FractionalMaxPool2d(2, 2, 0.5), "either an output size, or a pooling ratio"),
        (lambda x: nn.FractionalMaxPool2d(2, output_ratio=1.5), "between 0 and 1"),
    ],
)
def test_mistakes_are_named(run, words):
    with pytest.raises(ValueError, match=words):
        run(ng.tensor(IMAGE[..., 0].copy()))


def test_tables_that_are_given():
    table = ng.ones(4, 2)
    made = nn.Embedding(4, 2, None, None, 2.0, False, False, table, True)
    assert not made.weight.requires_grad and made(ng.tensor([1])).tolist() == [[1.0, 1.0]]
    made.weight.data.fill_(3.0)
    assert table[0, 0].item() == 3.0
    bag = nn.EmbeddingBag(4, 2, None, 2.0, False, "sum", False, table, True)
    assert bag.include_last_offset and bag.weight.requires_grad
    with pytest.raises(ValueError, match="Shape of weight does not match"):
        nn.Embedding(3, 2, _weight=table)
