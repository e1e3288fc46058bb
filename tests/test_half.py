"""float16 and bfloat16 on the CPU: their bits and what moves them; operations: test_half_ops.py."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.errors import DTypeError
from numbagrad.kernels.halves import decoded, encoded
from numbagrad.tensor import wrap

HALVES = ("float16", "bfloat16")
FLOATS = np.concatenate(
    [
        np.random.default_rng(0).integers(0, 1 << 32, 1 << 14, np.uint32).view(np.float32),
        np.linspace(-70000, 70000, 1001, dtype=np.float32),
        np.array(
            [0, -0.0, 2.0**-24, 2.0**-25, 2.0**-25 * 1.001, 2.0**-14, 65504, 65519.99, 65520, 65536,
             3.4e38, np.inf, -np.inf, np.nan, 1 + 2.0**-8, 1 + 2.0**-8 + 2.0**-20, 1 + 3 * 2.0**-8],
            np.float32,
        ),
    ]
)  # fmt: skip


def words(x: Any) -> np.ndarray:
    return x._array.view(np.uint16)


def every(dtype: str) -> Any:
    """All numbers of a half."""
    kind = getattr(ng, dtype)
    return wrap(np.arange(1 << 16, dtype=np.uint16).view(kind.numpy), kind)


def test_float16_is_rounded_as_numpy_does() -> None:
    with np.errstate(over="ignore"):
        expected = FLOATS.astype(np.float16)
    real = ~np.isnan(FLOATS)
    got = ng.tensor(FLOATS).half()
    assert (words(got) == expected.view(np.uint16))[real].all()
    assert got.isnan().sum().item() == (~real).sum()
    np.testing.assert_array_equal(
        every("float16").float().numpy(), every("float16").numpy().astype(np.float32)
    )


def test_bfloat16_is_rounded_to_the_nearest_even() -> None:
    got = ng.tensor(FLOATS).bfloat16()
    host = encoded(FLOATS, ng.bfloat16.numpy)
    real = ~np.isnan(FLOATS)
    assert (words(got) == host.view(np.uint16))[real].all()
    assert got.isnan().sum().item() == (~real).sum()
    x = every("bfloat16")
    np.testing.assert_array_equal(x.float().numpy(), decoded(x._array))
    finite = x.isfinite().numpy()
    assert (words(x.float().bfloat16()) == words(x))[finite].all()
    ties = ng.tensor([1 + 2.0**-8, 1 + 3 * 2.0**-8]).bfloat16()
    assert ties.tolist() == [1.0, 1 + 2.0**-6]


@pytest.mark.parametrize("dtype", HALVES)
def test_words_are_those_of_torch(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.tensor(FLOATS).to(getattr(torch, dtype)).view(torch.int16).numpy()
    real = ~np.isnan(FLOATS)
    assert (words(ng.tensor(FLOATS).to(getattr(ng, dtype))) == theirs.view(np.uint16))[real].all()


@pytest.mark.parametrize("name", ["eps", "max", "min", "tiny", "bits", "smallest_normal"])
@pytest.mark.parametrize("dtype", HALVES)
def test_finfo_is_that_of_torch(dtype: str, name: str) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = (getattr(m.finfo(getattr(m, dtype)), name) for m in (ng, torch))
    assert float(ours) == float(theirs)


@pytest.mark.parametrize("dtype", HALVES)
def test_elementwise_operations_compute_in_float32(dtype: str) -> None:
    kind = getattr(ng, dtype)
    x = ng.tensor([0.5, 1.25, -2.0], dtype=kind, requires_grad=True)
    y = (x * x + 1.5).exp()
    assert y.dtype is kind
    expected = ((x.detach().float() ** 2).to(kind).float() + 1.5).to(kind).float().exp().to(kind)
    assert y.tolist() == expected.tolist()
    y.backward(ng.ones_like(y))
    assert x.grad.dtype is kind
    assert (x > 0).tolist() == [True, True, False]
    assert (x.detach() + ng.ones(3)).dtype is ng.float32
    x.detach().mul_(2)
    assert x.tolist() == [1.0, 2.5, -4.0]


@pytest.mark.parametrize("dtype", HALVES)
def test_created_moved_and_shown(dtype: str) -> None:
    kind = getattr(ng, dtype)
    x = ng.tensor([[1, 2.5], [3, 4]], dtype=kind)
    assert repr(x).endswith(f"dtype=ng.{dtype})") and "2.5000" in repr(x)
    assert x.element_size() == 2 and x[1, 0].item() == 3.0 and bool(x[0, 0])
    assert x.t().contiguous().tolist() == [[1, 3], [2.5, 4]]
    assert ng.cat([x, x]).shape == (4, 2) and ng.stack([x, x]).dtype is kind
    assert x[ng.tensor([1])].tolist() == [[3, 4]] and x[x > 2].tolist() == [2.5, 3, 4]
    assert x.gather(1, ng.tensor([[1], [0]])).tolist() == [[2.5], [3]]
    x[0] = 7.0
    x[ng.tensor([1]), ng.tensor([1])] = 9.0
    assert x.tolist() == [[7, 7], [3, 9]]
    made = [ng.zeros(2, dtype=kind), ng.ones(2, dtype=kind), ng.full((2,), 0.5, dtype=kind)]
    assert [m.tolist() for m in made] == [[0, 0], [1, 1], [0.5, 0.5]]
    assert ng.tensor([made[0][0], made[1][0]]).tolist() == [0, 1]
    assert x.float().to(kind).dtype is kind and x.new_tensor([1]).dtype is kind
    assert x.type() == {"float16": "ng.HalfTensor", "bfloat16": "ng.BFloat16Tensor"}[dtype]
    assert pickle.loads(pickle.dumps(kind)) is kind
    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.clone()):
        assert other.dtype is kind and other.tolist() == x.tolist()
    ng.manual_seed(0)
    drawn = ng.randn(4, dtype=kind)
    ng.manual_seed(0)
    assert drawn.tolist() == ng.randn(4).to(kind).tolist()


@pytest.mark.parametrize("dtype", HALVES)
def test_saved_and_loaded(dtype: str, tmp_path: Path) -> None:
    kind = getattr(ng, dtype)
    state = {"w": ng.rand(2, 3).to(kind), "e": ng.empty(0, 2, dtype=kind), "s": ng.ones(2)}
    ng.save(state, tmp_path / "f")
    found = ng.load(tmp_path / "f")
    assert all(found[k].dtype is state[k].dtype for k in state)
    assert all(found[k].tolist() == state[k].tolist() for k in state)
    torch = pytest.importorskip("torch")
    files = pytest.importorskip("safetensors.torch")
    theirs = files.load_file(tmp_path / "f")
    assert theirs["w"].dtype is getattr(torch, dtype)
    assert theirs["w"].tolist() == state["w"].tolist()
    files.save_file({"a": theirs["w"]}, tmp_path / "g")
    (back,) = ng.load(tmp_path / "g").values()
    assert back.dtype is kind and back.tolist() == state["w"].tolist()


def test_modules() -> None:
    net = ng.nn.Sequential(ng.nn.Linear(2, 3), ng.nn.BatchNorm1d(3))
    assert {p.dtype for p in net.half().parameters()} == {ng.float16}
    assert {p.dtype for p in net.bfloat16().parameters()} == {ng.bfloat16}
    assert net[1].num_batches_tracked.dtype is ng.int64
    assert {p.dtype for p in net.float().parameters()} == {ng.float32}


def test_numpy() -> None:
    assert ng.ones(2, dtype=ng.float16).numpy().dtype == np.float16
    assert ng.from_numpy(np.ones(2, np.float16)).dtype is ng.float16
    with pytest.raises(DTypeError, match=r"NumPy has no bfloat16.*\.float\(\)"):
        ng.ones(2, dtype=ng.bfloat16).numpy()


@pytest.mark.parametrize("dtype", [ng.bfloat16, ng.float16])
def test_a_half_may_be_the_default(dtype: ng.dtype) -> None:
    ng.set_default_dtype(dtype)
    try:
        made = [ng.tensor([0.5]), ng.zeros(2), ng.randn(2), ng.arange(2.0), ng.tensor([1, 2]) / 2]
        net = ng.nn.Linear(4, 2)
        x = ng.ones(3, 4)
        net(x).sum().backward()
        assert {t.dtype for t in (*made, *net.parameters(), net.weight.grad, net(x))} == {dtype}
        assert repr(made[0]) == "tensor([0.5000])"
    finally:
        ng.set_default_dtype(ng.float32)
    assert ng.tensor([0.5]).dtype is ng.float32
