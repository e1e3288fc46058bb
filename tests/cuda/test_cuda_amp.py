"""autocast and GradScaler: which dtype each operation runs in, and what training makes of it."""

from __future__ import annotations

from typing import Any

import pytest

import numbagrad as ng
from numbagrad import amp
from numbagrad.autograd import Function
from numbagrad.errors import DTypeError

pytestmark = pytest.mark.cuda
F: Any = ng.nn.functional
HALF, SINGLE = ng.float16, ng.float32


def on_gpu(*shape: int, dtype: Any = SINGLE, grad: bool = False) -> Any:
    ng.manual_seed(1)
    return ng.rand(*shape, dtype=dtype).cuda().requires_grad_(grad)


LOWERED = {
    "mm": lambda x: x.mm(x),
    "matmul": lambda x: x @ x,
    "bmm": lambda x: ng.bmm(x[None], x[None]),
    "mv": lambda x: x.mv(x[0]),
    "linear": lambda x: F.linear(x, x, x[0]),
    "addmm": lambda x: ng.addmm(x, x, x),
    "einsum": lambda x: ng.einsum("ij,kj->ik", x, x),
    "conv1d": lambda x: F.conv1d(x[None], x[:, :, None]),
    "conv_transpose1d": lambda x: F.conv_transpose1d(x[None], x[:, :, None]),
}
RAISED = {
    "exp": lambda x: x.exp(),
    "log": lambda x: x.log(),
    "pow": lambda x: x**2,
    "sum": lambda x: x.sum(),
    "cumsum": lambda x: x.cumsum(0),
    "norm": lambda x: x.norm(),
    "softmax": lambda x: x.softmax(0),
    "layer_norm": lambda x: F.layer_norm(x, (2,)),
    "mse_loss": lambda x: F.mse_loss(x, x),
    "l1_loss": lambda x: F.l1_loss(x, x),
    "nll_loss": lambda x: F.nll_loss(x, ng.tensor([0, 1]).cuda()),
    "cross_entropy": lambda x: F.cross_entropy(x, ng.tensor([0, 1]).cuda()),
}
KEPT = {
    "relu": lambda x: x.relu(),
    "add": lambda x: x + x,
    "mean": lambda x: x.mean(),
    "view": lambda x: x.t(),
}


@pytest.mark.parametrize("name", LOWERED)
def test_products_run_in_halves(name: str) -> None:
    x = on_gpu(2, 2, grad=True)
    with ng.autocast("cuda"):
        out = LOWERED[name](x)
    assert out.dtype is HALF
    out.sum().backward()
    assert x.grad.dtype is SINGLE


@pytest.mark.parametrize("name", RAISED)
def test_what_needs_range_runs_in_float32(name: str) -> None:
    x = on_gpu(2, 2, dtype=HALF, grad=True)
    with ng.autocast("cuda"):
        out = RAISED[name](x)
    assert out.dtype is SINGLE
    out.sum().backward()
    assert x.grad.dtype is HALF


@pytest.mark.parametrize("name", KEPT)
def test_the_rest_keeps_its_dtype(name: str) -> None:
    for dtype in (HALF, SINGLE):
        with ng.autocast("cuda"):
            assert KEPT[name](on_gpu(2, 2, dtype=dtype)).dtype is dtype


def test_halves_beside_float32_become_float32() -> None:
    x, y = on_gpu(2, 2, dtype=HALF), on_gpu(2, 2)
    with ng.autocast("cuda"):
        assert (x + y).dtype is SINGLE
        assert ng.cat([x, y]).dtype is SINGLE
        assert x[0].dot(y[0]).dtype is SINGLE


def test_binary_cross_entropy_is_refused() -> None:
    x = on_gpu(2, 2)
    with ng.autocast("cuda"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        F.binary_cross_entropy(x, x)


def test_regions_nest() -> None:
    x = on_gpu(2, 2)

    @ng.autocast("cuda", dtype=ng.bfloat16)
    def decorated(x: Any) -> Any:
        return x @ x

    with ng.autocast("cuda", dtype=ng.float16):
        assert ng.is_autocast_enabled() and ng.get_autocast_dtype() is HALF
        assert decorated(x).dtype is ng.bfloat16
        with ng.autocast("cuda", enabled=False):
            assert not ng.is_autocast_enabled()
            assert (x @ x).dtype is SINGLE
        assert (x @ x).dtype is HALF
    assert not ng.is_autocast_enabled() and (x @ x).dtype is SINGLE


def test_an_error_ends_the_region() -> None:
    with pytest.raises(ZeroDivisionError), ng.autocast("cuda"):
        _ = 1 / 0
    assert not ng.is_autocast_enabled()


def test_what_is_not_float32_on_the_gpu_stays() -> None:
    host, double = ng.rand(2, 2), on_gpu(2, 2, dtype=ng.float64)
    with ng.autocast("cuda"):
        assert (host @ host).dtype is SINGLE
        assert (double @ double).dtype is ng.float64


def test_wrong_arguments() -> None:
    with ng.autocast("cpu", enabled=False):
        pass
    with pytest.raises(ValueError, match=r"float16 or ng\.bfloat16"):
        ng.autocast("cuda", dtype=ng.float32)
    with pytest.raises(ValueError, match="'cuda' or 'cpu'"):
        ng.autocast("tpu")


def test_a_weight_is_cast_once() -> None:
    weight, x = on_gpu(2, 2, grad=True), on_gpu(2, 2)
    with ng.autocast("cuda"):
        first, second = F.linear(x, weight), F.linear(x, weight)
        casts = {id(out.grad_fn.next_functions[1][0]) for out in (first, second)}
        assert len(casts) == 1
        with ng.no_grad():
            weight.add_(1)
        third = F.linear(x, weight)
        assert id(third.grad_fn.next_functions[1][0]) not in casts
    assert third.sum().item() > first.sum().item()
    (first + second).float().sum().backward()
    assert weight.grad.dtype is SINGLE
    with ng.autocast("cuda", cache_enabled=False):
        outs = [F.linear(x, weight) for _ in range(2)]
        assert len({id(out.grad_fn.next_functions[1][0]) for out in outs}) == 2


def test_backward_runs_outside_of_the_region() -> None:
    x = on_gpu(2, 2, grad=True)
    with ng.autocast("cuda"):
        (x @ x).float().sum().backward()
    assert x.grad.dtype is SINGLE


def test_a_checkpoint_computes_again_as_before() -> None:
    x = on_gpu(2, 2, grad=True)
    kinds = []

    def product(x: Any) -> Any:
        y = x @ x
        kinds.append(y.dtype)
        return y

    with ng.autocast("cuda", dtype=ng.bfloat16):
        y = ng.utils.checkpoint.checkpoint(product, x, early_stop=False)
    y.float().sum().backward()
    assert kinds == [ng.bfloat16] * 2


class Doubled(Function):
    """Its forward wants float32."""

    @staticmethod
    @amp.custom_fwd(cast_inputs=ng.float32)
    def forward(ctx: Any, x: Any) -> Any:
        assert not ng.is_autocast_enabled()
        return x + x

    @staticmethod
    @amp.custom_bwd
    def backward(ctx: Any, g: Any) -> Any:
        return g + g


class Squared(Function):
    """Runs under the autocast, forward and backward."""

    seen: list = []

    @staticmethod
    @amp.custom_fwd
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x @ x

    @staticmethod
    @amp.custom_bwd
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        Squared.seen.append(ng.is_autocast_enabled())
        return g @ x.t() + x.t() @ g


def test_functions_of_the_user() -> None:
    x = on_gpu(2, 2, dtype=HALF, grad=True)
    with ng.autocast("cuda"):
        out = Doubled.apply(x)
    assert out.dtype is SINGLE
    out.sum().backward()
    assert x.grad.dtype is HALF and x.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    y = on_gpu(2, 2, grad=True)
    with ng.autocast("cuda"):
        out = Squared.apply(y)
    assert out.dtype is HALF
    out.float().sum().backward()
    assert Squared.seen == [True] and y.grad.dtype is SINGLE


# -- GradScaler ------------------------------------------------------------------------------------


def test_training_with_a_scaler() -> None:
    ng.manual_seed(0)
    model = ng.nn.Sequential(ng.nn.Linear(3, 4), ng.nn.ReLU(), ng.nn.Linear(4, 2)).cuda()
    optimizer = ng.optim.SGD(model.parameters(), lr=0.1)
    scaler = amp.GradScaler(init_scale=2.0**10, growth_interval=2)
    x = on_gpu(4, 3)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        with ng.autocast("cuda", dtype=ng.float16):
            loss = F.mse_loss(model(x), x[:, :2])
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        ng.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert scaler.get_scale() == 2.0**11
    assert all(p.dtype is SINGLE and p.grad.dtype is SINGLE for p in model.parameters())


@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
def test_a_step_with_an_overflow_is_skipped(bad: float) -> None:
    p, q = on_gpu(2, grad=True), on_gpu(3, grad=True)
    before = p.tolist()
    optimizer = ng.optim.SGD([p, q], lr=1.0)
    scaler = amp.GradScaler(init_scale=8.0)
    p.grad, q.grad = ng.ones(2).cuda(), ng.tensor([1.0, bad, 1.0]).cuda()
    assert scaler.step(optimizer) is None
    scaler.update()
    assert p.tolist() == before and scaler.get_scale() == 4.0
    p.grad, q.grad = ng.full((2,), 4.0).cuda(), ng.zeros(3).cuda()
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == pytest.approx([b - 1.0 for b in before])


def test_a_scaler_says_what_is_wrong() -> None:
    p = on_gpu(2, grad=True)
    optimizer = ng.optim.SGD([p], lr=1.0)
    scaler = amp.GradScaler(init_scale=8.0)
    with pytest.raises(RuntimeError, match="no step"):
        scaler.update()
    p.grad = ng.ones(2).cuda()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="step"):
        scaler.step(optimizer)
    scaler.update()
    half = on_gpu(2, dtype=HALF, grad=True)
    half.grad = ng.ones(2, dtype=HALF).cuda()
    with pytest.raises(DTypeError, match="FP16"):
        scaler.unscale_(ng.optim.SGD([half], lr=1.0))
    with pytest.raises(ValueError, match="growth_factor"):
        amp.GradScaler(growth_factor=1.0)


def test_a_scaler_is_saved_and_may_be_disabled() -> None:
    scaler = amp.GradScaler(init_scale=8.0, growth_interval=5)
    other = amp.GradScaler()
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == scaler.state_dict() and other.get_scale() == 8.0
    idle = amp.GradScaler(enabled=False)
    p = on_gpu(2, grad=True)
    optimizer = ng.optim.SGD([p], lr=1.0)
    loss = p.sum()
    assert idle.scale(loss) is loss and idle.state_dict() == {} and idle.get_scale() == 1.0
    loss.backward()
    before = p.tolist()
    idle.step(optimizer)
    idle.update()
    assert p.tolist() == pytest.approx([b - 1.0 for b in before])


# -- compiled steps --------------------------------------------------------------------------------


def trained(compiled: bool) -> list[float]:
    ng.manual_seed(0)
    nn = ng.nn
    net: Any = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 2)).cuda()
    optimizer = ng.optim.Adam(net.parameters(), lr=1e-2)
    x, y = on_gpu(5, 3), ng.tensor([0, 1, 0, 1, 1]).cuda()

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        with ng.autocast("cuda", dtype=ng.bfloat16):
            loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = ng.compile(step) if compiled else step
    return [run(x, y).item() for _ in range(3)]


def test_a_compiled_step_does_what_the_eager_one_does() -> None:
    assert trained(True) == trained(False)


def test_a_compiled_step_is_recorded_for_each_autocast() -> None:
    @ng.compile
    def product(x: Any) -> Any:
        return x @ x

    x = on_gpu(2, 2)
    kinds = [product(x).dtype]
    for dtype in (ng.float16, ng.bfloat16):
        with ng.autocast("cuda", dtype=dtype):
            kinds += [product(x).dtype, product(x).dtype]
    kinds.append(product(x).dtype)
    halves = [ng.float16] * 2 + [ng.bfloat16] * 2
    assert kinds == [SINGLE, *halves, SINGLE]
    assert product.cache_info().recordings == 3


def test_fused_halves_are_rounded_where_eager_ones_are() -> None:
    def chain(x: Any) -> Any:
        y = (x * 2 + 1).exp()
        z = x.float().to(ng.bfloat16)
        return y, y.float() * 3, z.sum(0), z.float(), ng.full_like(x, 0.1).float() + x.float()

    x = on_gpu(3, 4, dtype=HALF)
    for got, expected in zip(ng.compile(chain)(x), chain(x), strict=True):
        assert got.dtype is expected.dtype
        assert got.float().tolist() == expected.float().tolist()


def test_a_scaler_stays_outside() -> None:
    scaler = amp.GradScaler()

    @ng.compile
    def step(x: Any) -> Any:
        return scaler.scale(x)

    with pytest.raises(ng.errors.RecordingError, match=r"GradScaler\.scale.*test_cuda_amp"):
        step(on_gpu(2))
