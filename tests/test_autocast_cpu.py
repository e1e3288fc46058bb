"""autocast on the CPU: which dtype each operation runs in, as in PyTorch, and how regions nest.

``tests/cuda/test_cuda_amp.py`` is the same for a GPU.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import amp, nn
from numbagrad.autograd import Function

HALF, SINGLE = ng.bfloat16, ng.float32

LOWERED: dict[str, Any] = {
    "mm": lambda lib, x: x.mm(x),
    "matmul": lambda lib, x: x @ x,
    "bmm": lambda lib, x: lib.bmm(x[None], x[None]),
    "addmm": lambda lib, x: lib.addmm(x, x, x),
    "baddbmm": lambda lib, x: lib.baddbmm(x[None], x[None], x[None]),
    "addbmm": lambda lib, x: lib.addbmm(x, x[None], x[None]),
    "linear": lambda lib, x: lib.nn.functional.linear(x, x, x[0]),
    "einsum": lambda lib, x: lib.einsum("ij,kj->ik", x, x),
    "inner": lambda lib, x: lib.inner(x, x),
    "vecdot": lambda lib, x: lib.linalg.vecdot(x, x),
    "conv1d": lambda lib, x: lib.nn.functional.conv1d(x[None], x[:, :, None]),
    "conv2d": lambda lib, x: lib.nn.functional.conv2d(x[None, None], x[None, None]),
    "conv_transpose1d": lambda lib, x: lib.nn.functional.conv_transpose1d(x[None], x[:, :, None]),
    "prelu": lambda lib, x: lib.nn.functional.prelu(x, x[0, :1]),
    "attention": lambda lib, x: lib.nn.functional.scaled_dot_product_attention(x, x, x),
    "lstm": lambda lib, x: lib.nn.LSTM(2, 3)(x[None])[0],
    "multihead": lambda lib, x: lib.nn.MultiheadAttention(2, 1)(x[None], x[None], x[None])[0],
}
RAISED: dict[str, Any] = {
    "mse_loss": lambda lib, x: lib.nn.functional.mse_loss(x, x),
    "l1_loss": lambda lib, x: lib.nn.functional.l1_loss(x, x),
    "smooth_l1_loss": lambda lib, x: lib.nn.functional.smooth_l1_loss(x, x),
    "huber_loss": lambda lib, x: lib.nn.functional.huber_loss(x, x),
    "binary_cross_entropy": lambda lib, x: lib.nn.functional.binary_cross_entropy(x, x),
    "with_logits": lambda lib, x: lib.nn.functional.binary_cross_entropy_with_logits(x, x),
    "kl_div": lambda lib, x: lib.nn.functional.kl_div(x, x, reduction="sum"),
    "nll_loss": lambda lib, x: lib.nn.functional.nll_loss(x, lib.tensor([0, 1])),
    "cross_entropy": lambda lib, x: lib.nn.functional.cross_entropy(x, lib.tensor([0, 1])),
    "triplet": lambda lib, x: lib.nn.functional.triplet_margin_loss(x, x + 0.1, x + 0.2),
    "prod": lambda lib, x: x.prod(),
    "cdist": lambda lib, x: lib.cdist(x, x + 1),
    "trace": lambda lib, x: x.trace(),
    "quantile": lambda lib, x: x.quantile(0.5),
    "inverse": lambda lib, x: lib.inverse(x + lib.eye(2)),
    "grid_sample": lambda lib, x: lib.nn.functional.grid_sample(
        x[None, None], x[None, None], align_corners=False
    ),
    "avg_pool3d": lambda lib, x: lib.nn.functional.avg_pool3d(x[None, None, None], (1, 2, 2)),
}
KEPT: dict[str, Any] = {
    "relu": lambda lib, x: x.relu(),
    "add": lambda lib, x: x + x,
    "exp": lambda lib, x: x.exp(),
    "pow": lambda lib, x: x**2,
    "sum": lambda lib, x: x.sum(),
    "mean": lambda lib, x: x.mean(),
    "mv": lambda lib, x: lib.mv(x, x[0]),
    "dot": lambda lib, x: x[0].dot(x[1]),
    "inner of vectors": lambda lib, x: lib.inner(x[0], x[1]),
    "cumsum": lambda lib, x: x.cumsum(0),
    "norm": lambda lib, x: x.norm(),
    "softmax": lambda lib, x: x.softmax(0),
    "log_softmax": lambda lib, x: x.log_softmax(0),
    "layer_norm": lambda lib, x: lib.nn.functional.layer_norm(x, (2,)),
    "batch_norm": lambda lib, x: lib.nn.functional.batch_norm(x, None, None, training=True),
    "max_pool1d": lambda lib, x: lib.nn.functional.max_pool1d(x[None], 2),
    "gru": lambda lib, x: lib.nn.GRU(2, 3)(x[None])[0],
    "view": lambda lib, x: x.t(),
}


def given(dtype: Any = SINGLE, grad: bool = False) -> Any:
    return ng.tensor([[0.25, 0.5], [0.75, 0.3]], dtype=dtype, requires_grad=grad)


@pytest.mark.parametrize("name", LOWERED)
def test_products_run_in_halves(name: str) -> None:
    x = given(grad=True)
    with ng.autocast("cpu"):
        out = LOWERED[name](ng, x)
    assert out.dtype is HALF
    out.sum().backward()
    assert x.grad.dtype is SINGLE


@pytest.mark.parametrize("name", RAISED)
def test_losses_run_in_float32(name: str) -> None:
    x = given(HALF, True)
    with ng.autocast("cpu"):
        out = RAISED[name](ng, x)
    assert out.dtype is SINGLE
    out.sum().backward()
    assert x.grad.dtype is HALF


@pytest.mark.parametrize("name", KEPT)
def test_the_rest_keeps_its_dtype(name: str) -> None:
    for dtype in (HALF, SINGLE):
        with ng.autocast("cpu"):
            assert KEPT[name](ng, given(dtype)).dtype is dtype


@pytest.mark.parametrize("name", [*LOWERED, *RAISED, *KEPT])
def test_dtypes_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    function = (LOWERED | RAISED | KEPT)[name]
    for dtype in ("float32", "bfloat16"):
        kinds = []
        for lib in (ng, torch):
            x = lib.tensor([[0.25, 0.5], [0.75, 0.3]]).to(getattr(lib, dtype))
            with lib.autocast("cpu", dtype=lib.bfloat16):
                kinds.append(str(function(lib, x).dtype).split(".")[1])
        assert kinds[0] == kinds[1], dtype


def test_without_autocast_nothing_is_cast() -> None:
    layer, x = nn.Linear(2, 2), given()
    for _ in range(20):
        layer(x)
    with ng.autocast("cpu"):  # what is remembered of the calls before does not hold here
        assert layer(x).dtype is HALF
    with ng.autocast("cpu", enabled=False):
        assert layer(x).dtype is SINGLE
    assert layer(x).dtype is SINGLE


def test_regions_nest() -> None:
    x = given()
    assert ng.get_autocast_dtype("cpu") is HALF and ng.get_autocast_dtype("cuda") is ng.float16

    @ng.autocast("cpu", dtype=ng.float16)
    def decorated(x: Any) -> Any:
        return x @ x

    with ng.autocast("cpu"):
        assert ng.is_autocast_enabled("cpu") and not ng.is_autocast_enabled("cuda")
        assert decorated(x).dtype is ng.float16
        with ng.autocast("cuda", dtype=ng.float16):  # for tensors on a GPU
            assert ng.is_autocast_enabled("cuda") and (x @ x).dtype is HALF
        with ng.autocast("cuda", enabled=False):
            assert (x @ x).dtype is HALF
        with ng.autocast("cpu", enabled=False):
            assert not ng.is_autocast_enabled("cpu") and (x @ x).dtype is SINGLE
        assert (x @ x).dtype is HALF
    assert not ng.is_autocast_enabled("cpu") and (x @ x).dtype is SINGLE
    with pytest.raises(ZeroDivisionError), ng.autocast("cpu"):
        _ = 1 / 0
    assert (x @ x).dtype is SINGLE


def test_one_object_in_two_threads() -> None:
    region, x, kinds = ng.autocast("cpu", dtype=ng.float16), given(), []

    def inside() -> None:
        with region:
            entered.set()
            leave.wait()
        kinds.append((x @ x).dtype)

    entered, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=inside)
    with ng.autocast("cpu"):
        thread.start()
        entered.wait()
        with region:
            leave.set()
            thread.join()
            assert (x @ x).dtype is ng.float16
        assert (x @ x).dtype is HALF
    assert kinds == [SINGLE]


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="device_type must be 'cuda' or 'cpu', got 'tpu'"):
        ng.autocast("tpu")
    with pytest.raises(ValueError, match=r"dtype must be .*, got ng\.float64"):
        ng.autocast("cpu", dtype=ng.float64)


def test_weights_are_cast_once() -> None:
    layer, x = nn.Linear(2, 2, bias=False), given()
    with ng.autocast("cpu"):
        first, second = layer(x), layer(x)
        a, b = (out.grad_fn.next_functions[1][0] for out in (first, second))
        assert a is b
        with ng.no_grad():
            layer.weight.mul_(2)
        assert (layer(x) == 2 * first).all()
    (first + second).sum().backward()
    assert layer.weight.grad.dtype is SINGLE


@pytest.mark.parametrize("dtype", [ng.bfloat16, ng.float16])
def test_training(dtype: Any) -> None:
    ng.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    head = nn.Linear(8, 3)
    parameters = [*model.parameters(), *head.parameters()]
    optimizer = ng.optim.Adam(parameters, lr=3e-3)
    scaler = amp.GradScaler("cpu", enabled=dtype is ng.float16)
    x, y = ng.randn(16, 5, 8), ng.randint(0, 3, (16,))
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        with ng.autocast("cpu", dtype=dtype):
            loss = nn.functional.cross_entropy(head(model(x).mean(1)), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1
    assert all(p.dtype is p.grad.dtype is SINGLE for p in parameters)


def test_functions_of_users() -> None:
    class Square(Function):
        @staticmethod
        @amp.custom_fwd(device_type="cpu", cast_inputs=ng.float32)
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x @ x

        @staticmethod
        @amp.custom_bwd(device_type="cpu")
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g @ x.t() + x.t() @ g

    x = given(HALF, True)
    with ng.autocast("cpu"):
        out = Square.apply(x)
    assert out.dtype is SINGLE
    out.sum().backward()
    assert x.grad.dtype is HALF
    np.testing.assert_allclose(x.grad.float(), [[1.75, 2.05], [1.55, 1.85]], 2e-2)


def test_gradients_are_near_those_without() -> None:
    ng.manual_seed(1)
    x, w = ng.randn(32, 64), ng.randn(64, 16, requires_grad=True)
    (x @ w).square().mean().backward()
    exact = w.grad.clone()
    w.grad = None
    with ng.autocast("cpu"):
        loss = (x @ w).square().mean()
    loss.backward()
    np.testing.assert_allclose(w.grad, exact, 0.03, 0.03 * float(exact.abs().max()))
