"""The cross entropy of a linear layer by blocks of classes, on a GPU as on the CPU."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.nn import functional as F
from numbagrad.ops import linear_loss

pytestmark = pytest.mark.cuda
N, K, C = 5, 4, 11


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four classes, the last one of three."""
    monkeypatch.setattr(linear_loss, "_width", lambda n, c, itemsize: 4)


def run(device: str, dtype: ng.dtype, weighted: bool, **options: object) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    x, w, bias = (
        ng.tensor(rng.standard_normal(shape), dtype=dtype, device=device, requires_grad=True)
        for shape in ((N, K), (C, K), (C,))
    )
    target = ng.tensor([3, 0, 10, -100, 3], device=device)
    weight = ng.linspace(0.5, 2.0, C, dtype=dtype, device=device) if weighted else None
    loss = F.linear_cross_entropy(
        x, w, target, linear_bias=bias, weight=weight, options="blocks", **options
    )
    assert type(loss.grad_fn).__name__ == "LinearCrossEntropyBackward"
    loss.backward(ng.ones_like(loss))
    return [t.detach().cpu().numpy() for t in (loss, x.grad, w.grad, bias.grad)]


@pytest.mark.parametrize("dtype", [ng.float32, ng.float64], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("reduction", "smoothing"), list(itertools.product(["mean", "none"], [0.0, 0.2]))
)
def test_a_gpu_gives_what_the_cpu_does(
    reduction: str, smoothing: float, weighted: bool, dtype: ng.dtype
) -> None:
    options = {"reduction": reduction, "label_smoothing": smoothing}
    tolerance = 1e-4 if dtype is ng.float32 else 1e-10
    found = run("cuda", dtype, weighted, **options)
    for a, b in zip(found, run("cpu", dtype, weighted, **options), strict=True):
        np.testing.assert_allclose(a, b, tolerance, tolerance)


def test_a_wrong_class_is_named() -> None:
    x, w = ng.ones(2, K, device="cuda"), ng.ones(C, K, device="cuda")
    target = ng.tensor([0, 11], device="cuda")
    with pytest.raises(IndexError, match=r"linear_cross_entropy: Target .*11 classes"):
        F.linear_cross_entropy(x, w, target, options="blocks").item()
        ng.cuda.synchronize()
