"""Shapes that start the kernels' large forms: wide tiles, many parts, long rows, several tiles.

The rows of the op table are small: on a device they meet one block of most kernels. In Numba's
simulator everything is tiny already, and these take too long.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.kernels.cuda.runtime import device
from numbagrad.nn import functional as F

pytestmark = pytest.mark.cuda
slow = pytest.mark.skipif(device.simulating(), reason="too large for the simulator")

CASES: dict[str, Callable[..., Any]] = {
    "product by large tiles": lambda t: t(132, 70, 9) @ t(132, 9, 70),
    "transposed": lambda t: t(132, 9, 70).mT @ t(132, 70, 9).mT,
    "product by large tiles, of whole words": lambda t: t(132, 72, 12) @ t(132, 12, 68),
    "transposed, of whole words": lambda t: t(132, 12, 72).mT @ t(132, 68, 12).mT,
    "product by middle tiles": lambda t: t(132, 36, 40) @ t(132, 40, 36),
    "product of many steps": lambda t: t(36, 500) @ t(500, 44),
    "product in shares": lambda t: t(300, 600) @ t(600, 260),
    "product by small tiles": lambda t: t(67, 45) @ t(45, 83),
    "linear": lambda t: F.linear(t(131, 47), t(66, 47), t(66)),
    "convolution by large tiles": lambda t: F.conv2d(t(1, 1, 133, 131), t(65, 1, 3, 3), t(65)),
    "convolution by small tiles": lambda t: F.conv2d(t(3, 5, 19, 17), t(33, 5, 3, 3), stride=2),
    "transposed convolution": lambda t: F.conv_transpose2d(t(2, 9, 11, 13), t(9, 7, 3, 3)),
    "one-dimensional convolution": lambda t: F.conv1d(t(2, 3, 700), t(4, 3, 5), padding=2),
    "attention": lambda t: F.scaled_dot_product_attention(
        t(1, 2, 131, 33), t(1, 2, 70, 33), t(1, 2, 70, 65)
    ),
    "attention, causal, with shared heads": lambda t: F.scaled_dot_product_attention(
        t(1, 4, 130, 17), t(1, 2, 130, 17), t(1, 2, 130, 17), is_causal=True, enable_gqa=True
    ),
    "attention with a mask": lambda t: F.scaled_dot_product_attention(
        t(1, 2, 67, 9), t(1, 2, 129, 9), t(1, 2, 129, 9), t(67, 129)
    ),
    "sum of all": lambda t: t(70001).sum(),
    "sums by vectors": lambda t: (t(3, 20004).sum(1), t(400, 8).sum(1), t(3, 516).sum(1)),
    "sums of columns by vectors": lambda t: (t(2001, 8).sum(0), t(700, 132).sum(0), t(9, 4).sum(0)),
    "sums of long rows": lambda t: t(3, 20001).sum(1),
    "sums of columns": lambda t: t(9001, 3).sum(0),
    "sums in the middle": lambda t: t(3, 700, 5).sum(1),
    "variances": lambda t: t(3, 17001).var(1),
    "norms": lambda t: (t(3, 17001).norm(dim=1), t(17001, 3).norm(3, 0)),
    "products of rows": lambda t: (t(3, 600) * 0.01 + 1).prod(1),
    "extremes": lambda t: (t(3, 20001).amax(1), t(9001, 3).amin(0), t(40001).max()),
    "places of extremes": lambda t: (t(3, 20001).argmax(1), t(9001, 3).argmin(0)),
    "medians": lambda t: t(5, 1001).median(1).values,
    "softmax of short rows": lambda t: F.softmax(t(70, 500), 1),
    "softmax of long rows": lambda t: F.log_softmax(t(7, 3001), 1),
    "softmax of short rows by parts": lambda t: (F.softmax(t(300, 8), 1), F.softmax(t(70, 5), 1)),
    "softmax of held rows": lambda t: (F.softmax(t(3, 4096), 1), F.log_softmax(t(2, 2052), 1)),
    "softmax of endless rows": lambda t: (
        F.softmax(t(2, 9004), 1), F.log_softmax(t(1, 4999), 1), F.softmax(t(1, 9001), 1)
    ),
    "softmax of columns": lambda t: F.softmax(t(300, 70), 0),
    "layer norm": lambda t: F.layer_norm(t(37, 1025), (1025,), t(1025), t(1025)),
    "layer norm of held rows": lambda t: (
        F.layer_norm(t(3, 2052), (2052,), t(2052), t(2052)), F.layer_norm(t(131, 12), (12,), t(12))
    ),
    "batch norm of vectors": lambda t: F.batch_norm(t(1033, 9), None, None, t(9), t(9), True),
    "batch norm of images": lambda t: F.batch_norm(
        t(3, 5, 65, 67), None, None, t(5), t(5), training=True
    ),
    "group norm": lambda t: F.group_norm(t(3, 12, 17, 33), 4, t(12), t(12)),
    "cross entropy": lambda t: F.cross_entropy(t(300, 1001), t.ints(1001, 300)),
    "pooling": lambda t: (F.max_pool2d(t(2, 3, 65, 67), 3, 2), F.avg_pool2d(t(2, 3, 65, 67), 2)),
    "patches": lambda t: F.unfold(t(2, 3, 33, 35), 3),
    "running sums": lambda t: (t(3, 9001).cumsum(1), t(9001, 3).cumsum(0)),
    "running extremes": lambda t: t(3, 5001).cummax(1).values,
    "sorted rows": lambda t: t(3, 1000).sort(1).values,
    "sorted by several tiles": lambda t: t(2, 9001).sort(1, descending=True).values,
    "the largest few": lambda t: t(5, 3001).topk(7, 1).values,
    "read at places": lambda t: t(97, 33)[t.ints(97, 5001)],
    "read at the same place": lambda t: t(3, 5)[t.ints(3, 9001)],
    "embedding": lambda t: F.embedding(t.ints(97, 501), t(97, 33)),
    "gather": lambda t: t(65, 700).gather(1, t.ints(700, 65, 300)),
    "added at places": lambda t: t(41, 30).scatter_add(1, t.ints(30, 41, 700), t(41, 700)),
    "chosen by a mask": lambda t: t(130, 70)[t.ints(2, 130, 70) > 0],
    "joined": lambda t: ng.cat([t(65, 300), t(65, 7)], 1),
    "strided": lambda t: (t(130, 70).mT * 2 + t(70, 1), t(33, 65)[1::2, ::3].exp()),
    "flat by tiles": lambda t: (t(9001) * 2, t(65, 132) + t(65, 132)),
    "copies": lambda t: (t(9001).clone(), t(3, 70, 67).mT.contiguous(), t(65, 130).T.contiguous()),
    "copies of images": lambda t: t(2, 40, 9, 7).permute(0, 2, 3, 1).contiguous(),
    "broadcast by vectors": lambda t: (t(65, 132) + t(132), t(65, 132) * t(65, 1), t(9000) * t(1)),
    "strided by vectors": lambda t: (t(5, 33, 9, 8).swapaxes(1, 2) * 2).exp(),
    "lower triangle": lambda t: t(130, 131).tril(),
    "bins": lambda t: ng.bucketize(t(3001), t(500).detach().sort().values),
}  # fmt: skip


class Maker:
    """Tensors of normal numbers, the same on both devices."""

    def __init__(self, place: str, dtype: Any):
        self.place, self.dtype, self.leaves = place, dtype, []
        self.rng = np.random.default_rng(11)

    def __call__(self, *shape: int) -> Any:
        x = ng.tensor(self.rng.standard_normal(shape)).to(self.dtype).to(self.place)
        self.leaves.append(x.requires_grad_())
        return x

    def ints(self, end: int, *shape: int) -> Any:
        return ng.tensor(self.rng.integers(0, end, shape)).to(self.place)


def computed(case: Callable[..., Any], place: str, dtype: Any) -> list[np.ndarray]:
    """Results and the gradients of what they are made from."""
    make = Maker(place, dtype)
    results = case(make)
    results = results if isinstance(results, tuple) else (results,)
    floating = [r for r in results if r.requires_grad]
    rng = np.random.default_rng(5)
    weights = [ng.tensor(rng.uniform(0.5, 1.5, tuple(r.shape))).to(r.dtype) for r in floating]
    if floating:
        ng.autograd.backward(floating, [w.to(place) for w in weights])
    grads = [x.grad for x in make.leaves if x.grad is not None]
    return [x.detach().cpu().double().numpy() for x in (*results, *grads)]


@slow
@pytest.mark.parametrize("dtype", [ng.float32, ng.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_large(name: str, dtype: Any) -> None:
    tolerance = 1e-4 if dtype is ng.float32 else 1e-11
    expected = computed(CASES[name], "cpu", dtype)
    got = computed(CASES[name], "cuda", dtype)
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected, strict=True):
        scale = max(np.abs(theirs).max(), 1e-3)
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance * scale)


@slow
@pytest.mark.parametrize("kind", ["bfloat16", "float16", "tf32"])
def test_products_on_tensor_cores_by_large_tiles(kind: str) -> None:
    dtype = ng.float32 if kind == "tf32" else getattr(ng, kind)
    ng.set_float32_matmul_precision("high" if kind == "tf32" else "highest")
    try:
        for case in (lambda t: t(132, 70, 43) @ t(132, 43, 70), lambda t: t(131, 70) @ t(70, 97)):
            with ng.no_grad():
                x = case(Maker("cuda", dtype)).cpu().double().numpy()
                exact = case(Maker("cpu", ng.float64)).numpy()
            np.testing.assert_allclose(x, exact, rtol=0.02, atol=0.15)
    finally:
        ng.set_float32_matmul_precision("highest")


def products(place: str) -> list[Any]:
    """Wide products, of each kind of call."""
    t = Maker(place, ng.float32)
    bias, out = t(150), t(9, 150).detach()
    ng.addmm(out, t(9, 5).detach(), t(5, 150).detach(), out=out)
    return [
        t(9, 5) @ t(5, 150), t(5, 9).mT @ t(150, 5).mT, t(3, 9, 5) @ t(3, 5, 150),
        F.linear(t(9, 5), t(150, 5), bias), out,
    ]  # fmt: skip


def test_products_wider_than_a_grid(monkeypatch: Any) -> None:
    """A grid has 65535 blocks at most along its second dimension; the driver refuses more."""
    from numbagrad.kernels.cuda import matmul

    grids = []
    monkeypatch.setattr(matmul, "start", lambda kernel, grid, *rest: grids.append(grid))
    with ng.no_grad():
        ng.ones(1, 1, device="cuda") @ ng.empty(1, 3_000_000, device="cuda")
    assert sum([grid[1] for grid in grids]) >= 3_000_000 // 128 and all(
        [grid[1] <= 65535 for grid in grids]
    )
    monkeypatch.undo()
    monkeypatch.setattr(matmul, "MOST", 2)
    for got, expected in zip(products("cuda"), products("cpu"), strict=True):
        np.testing.assert_allclose(
            got.detach().cpu().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-5
        )


def test_products_in_shares(monkeypatch: Any) -> None:
    """Steps are counted in 32 bits: more of them are for several blocks, whose sums are added."""
    from numbagrad.kernels.cuda.runtime import product

    monkeypatch.setattr(product, "LONGEST", 4)
    for got, expected in zip(products("cuda"), products("cpu"), strict=True):
        np.testing.assert_allclose(
            got.detach().cpu().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-5
        )


@slow
@pytest.mark.parametrize(
    "tall, which", [(False, 3), (False, 1), (True, 3), (True, 2), (True, 1), (True, 0)]
)
def test_float64_on_tensor_cores(tall: bool, which: int, monkeypatch: Any) -> None:
    from numbagrad.kernels.cuda import matmul
    from numbagrad.kernels.cuda.runtime.shape import DOUBLES

    if tall and os.environ.get("NUMBAGRAD_PTX", "0") in ("", "0") and not matmul._tall():
        pytest.skip("needs compute capability 9.0")
    tile, shares = DOUBLES[which], 1 + which % 2
    monkeypatch.setattr(matmul, "_tall", lambda: tall)
    monkeypatch.setattr(matmul, "product_tile", lambda *sizes: (tile, shares))

    def case(t: Maker) -> Any:
        out, x, y = t(70, 34).detach(), t(70, 83).detach(), t(83, 34).detach()
        ng.addmm(out, x, y, out=out)
        wide = t(tile.rows + 4, 44) @ t(44, tile.cols + 2)
        return out, wide, F.linear(t(67, 45), t(35, 45), t(35)), t(2, 9, 33).mT @ t(2, 9, 18)

    expected, got = computed(case, "cpu", ng.float64), computed(case, "cuda", ng.float64)
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-13, atol=1e-13 * np.abs(theirs).max())


def grouped(place: str) -> list[Any]:
    """Convolutions of many groups, forward and backward."""
    t = Maker(place, ng.float32)
    x, weight, bias = t(2, 10, 6, 5), t(15, 2, 3, 2), t(15)
    out = F.conv2d(x, weight, bias, groups=5)
    out.backward(t(*out.shape).detach())
    back = F.conv_transpose2d(t(2, 10, 4, 3), t(10, 3, 2, 2), t(15), groups=5)
    return [out, back, x.grad, weight.grad, bias.grad]


def test_more_groups_than_a_grid_has_blocks(monkeypatch: Any) -> None:
    from numbagrad.kernels.cuda import conv

    grids = []
    x, weight = ng.ones(1, 70_000, 1, 1, device="cuda"), ng.ones(70_000, 1, 1, 1, device="cuda")
    with monkeypatch.context() as patched:
        patched.setattr(conv, "start", lambda kernel, grid, *rest: grids.append(grid))
        F.conv2d(x, weight, groups=70_000)
    assert [grid[2] for grid in grids] == [65535, 70_000 - 65535]
    monkeypatch.setattr(conv, "MOST", 2)
    for got, expected in zip(grouped("cuda"), grouped("cpu"), strict=True):
        np.testing.assert_allclose(
            got.detach().cpu().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-5
        )
