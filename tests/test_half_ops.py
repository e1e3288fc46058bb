"""Halves on the CPU: every row of the op table, training, users' kernels, against float32.

What an operation gives for halves is what it gives for the same numbers in float32, rounded once or
a few times. ``tests/compiled/test_compiled_halves.py`` holds compiled functions against these.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest
from cases import ALL
from halved import run, second
from numba import njit
from op_table import Case, Sample

import numbagrad as ng
from numbagrad import nn
from numbagrad.autograd import Function
from numbagrad.errors import DTypeError

F: Any = nn.functional
EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}

OTHERS = set(
    """
    zeros ones full eye arange-float linspace logspace tensor as_tensor asarray scalar_tensor range
    bartlett_window hann_window blackman_window hamming_window kaiser_window rand randn normal
    from_numpy as_tensor-array frombuffer numpy float
    """.split()
)
"""Rows whose dtype is not that of an argument, and those that go through NumPy."""
LACKING = set(
    """
    nextafter ctc_loss quantile quantile-lower nanquantile polygamma-method
    """.split()
)
"""Rows that are for float32 and float64 alone, as in PyTorch, or leave the range of float16."""


def differs(case: Case, call: Sample, dtype: str) -> str | None:
    """What is wrong with a row in halves."""
    kind, eps = getattr(ng, dtype), EPS[dtype]
    expected, truths = run(case, call, kind, lambda half: half.float())
    got, grads = run(case, call, kind)
    for out, truth in zip([*got, *grads], [*expected, *truths], strict=True):
        if (out is None) != (truth is None) or out is None:
            if out is not truth:
                return f"is {out}, expected {truth}"
            continue
        if out.shape != truth.shape:
            return f"has shape {out.shape}, expected {truth.shape}"
        if truth.dtype is ng.float32 and out.dtype is not kind:
            return f"has dtype {out.dtype}"
        x, y = (t.detach().double().numpy() for t in (out, truth))
        scale = max(1.0, float(np.abs(np.nan_to_num(y, posinf=0, neginf=0)).max(initial=0)))
        if not np.allclose(x, y, 6 * eps, 6 * eps * scale, equal_nan=True):
            return f"is {x}, expected {y}"
    return None


def second_differs(case: Case, call: Sample, dtype: str) -> str | None:
    """What is wrong with the second gradients of a row in halves."""
    kind, eps = getattr(ng, dtype), EPS[dtype]
    first, truths = second(case, call, kind, lambda half: half.float())
    _, got = second(case, call, kind)
    if len(got) != len(truths):
        return f"there are {len(got)}, expected {len(truths)}"
    sizes = [float(g.detach().abs().max()) for g in first if g is not None and g.numel()]
    for out, truth in zip(got, truths, strict=True):
        if out is None or truth is None:
            if out is not truth:
                return f"is {out}, expected {truth}"
            continue
        if out.shape != truth.shape or out.dtype is not kind:
            return f"is {out.dtype} of {out.shape}, expected {truth.shape}"
        x, y = (t.detach().double().numpy() for t in (out, truth))
        scale = max(1.0, *sizes, float(np.abs(np.nan_to_num(y, posinf=0, neginf=0)).max(initial=0)))
        if not np.allclose(x, y, 12 * eps, 12 * eps * scale, equal_nan=True):
            return f"is {x}, expected {y}"
    return None


ROWS = [case for case in ALL if "float32" in case.dtypes and case.name not in OTHERS | LACKING]
GROUPS = [ROWS[k : k + 24] for k in range(0, len(ROWS), 24)]


def half_of(case: Case) -> str:
    """The half of a row: one, for each kernel of it is compiled."""
    return list(EPS)[ROWS.index(case) % 2]


@pytest.mark.parametrize("rows", GROUPS, ids=lambda rows: f"{rows[0].name}..{rows[-1].name}")
def test_rows_in_halves(rows: list[Case]) -> None:
    """Dtypes and numbers, of results and gradients; of each row one half."""
    wrong = []
    for case in rows:
        dtype = half_of(case)
        firsts = {c.kind: c for c in reversed(case.calls("float32"))}
        for call in [firsts[kind] for kind in ("plain", "empty") if kind in firsts]:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                found = differs(case, call, dtype)
            if found:
                wrong.append(f"{case.name} {dtype} {call}: {found}")
    assert not wrong, "\n".join(wrong)


TWICE = [case for case in ROWS if case.orders >= 2]


@pytest.mark.parametrize("part", range(8))
def test_second_gradients_in_halves(part: int) -> None:
    """Of each row one half, against float32 of the same numbers.

    A second gradient is made of first ones that were rounded already, and of their differences: it
    may be off by twice as many roundings of the largest number on the way, which the first
    gradients tell.
    """
    wrong = []
    for case in TWICE[part::8]:
        dtype = half_of(case)
        call = next((c for c in case.calls("float32") if c.kind == "plain"), None)
        if call is None:
            continue
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = second_differs(case, call, dtype)
        if found:
            wrong.append(f"{case.name} {dtype} {call}: {found}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ["nextafter", "ctc_loss", "quantile"])
def test_what_needs_float32_names_the_way_out(name: str) -> None:
    case = next(c for c in ALL if c.name == name)
    call = next(c for c in case.calls("float32") if c.kind == "plain")
    with pytest.raises(DTypeError, match=r"\.float\(\)"):
        run(case, call, ng.bfloat16)


def test_errors_name_the_operation() -> None:
    x = ng.ones(2, 3, dtype=ng.bfloat16)
    with pytest.raises(RuntimeError, match=r"^matmul: .*2x3 and 2x3"):
        x @ x
    with pytest.raises(DTypeError, match=r"^matmul: .*bfloat16"):
        x @ ng.ones(3, 2)
    with pytest.raises(IndexError, match="out of bounds"):
        x.gather(1, ng.tensor([[3], [0]]))
    with pytest.raises(DTypeError, match="layer_norm: expected weight to have the dtype"):
        F.layer_norm(x, (3,), ng.ones(3, dtype=ng.float64))
    assert x.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_sums_are_made_in_float32() -> None:
    """A sum of ones in bfloat16 would end at 256."""
    x = ng.ones(3000, dtype=ng.bfloat16)
    assert x.sum().item() == 3008 and x.mean().item() == 1 and x.dot(x).item() == 3008
    assert (x[None] @ x[:, None]).item() == 3008
    assert x.cumsum(0)[-1].item() == 3008
    out = ng.zeros(1, dtype=ng.float16).index_add(0, ng.zeros(3000, dtype=ng.int64), x.half())
    assert out.item() == 3000


def test_large_tensors_of_zeros() -> None:
    x = ng.zeros(400, 512, dtype=ng.bfloat16)
    assert not (x + 1 != 1).any()
    x.add_(3)
    assert x.zero_().sum().item() == 0 and ng.zeros_like(x).abs().max().item() == 0


def test_attention_keeps_its_sums_in_float32() -> None:
    """Probabilities are made again from logarithms of sums, which halves would spoil."""
    ng.manual_seed(0)
    q, k, v = (ng.randn(1, 2, 64, 16).mul_(4).bfloat16().requires_grad_() for _ in range(3))
    F.scaled_dot_product_attention(q, k, v).sum().backward()
    wide = [t.detach().float().requires_grad_() for t in (q, k, v)]
    F.scaled_dot_product_attention(*wide).sum().backward()
    for half, single in zip((q, k, v), wide, strict=True):
        error = (half.grad.float() - single.grad).abs().max() / single.grad.abs().max()
        assert error < 2 * EPS["bfloat16"]


MIXED = {
    "layer_norm": lambda x, w: F.layer_norm(x, (6,), w, w),
    "rms_norm": lambda x, w: F.rms_norm(x, (6,), w),
    "group_norm": lambda x, w: F.group_norm(x, 2, w, w),
    "instance_norm": lambda x, w: F.instance_norm(x[..., None].expand(8, 6, 3), None, None, w, w),
    "batch_norm": lambda x, w: F.batch_norm(x, None, None, w, w, training=True),
    "batch_norm, statistics": lambda x, w: F.batch_norm(x, w.detach(), w.detach(), w, w),
}


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("name", MIXED)
def test_norms_of_halves_beside_float32(name: str, dtype: str) -> None:
    ng.manual_seed(0)
    x = ng.randn(8, 6).to(getattr(ng, dtype))
    w = ng.rand(6) + 0.5
    x0, w0, x1, w1 = (t.clone().requires_grad_() for t in (x, w, x.float(), w))
    out, truth = MIXED[name](x0, w0), MIXED[name](x1, w1)
    assert out.dtype is x.dtype
    out.square().sum().backward()
    truth.square().sum().backward()
    assert x0.grad.dtype is x.dtype and w0.grad.dtype is ng.float32
    tolerance = 16 * EPS[dtype]
    np.testing.assert_allclose(out.detach().float(), truth.detach(), tolerance, tolerance)
    np.testing.assert_allclose(w0.grad, w1.grad, tolerance, tolerance * float(w1.grad.abs().max()))


def test_running_statistics_move_in_their_own_dtype() -> None:
    x = ng.linspace(-1, 3, 40).reshape(8, 5)
    for dtype in (ng.bfloat16, ng.float32):
        mean, variance = ng.zeros(5, dtype=dtype), ng.ones(5, dtype=dtype)
        F.batch_norm(x.bfloat16(), mean, variance, training=True, momentum=0.5)
        assert mean.dtype is variance.dtype is dtype
        np.testing.assert_allclose(mean.float(), x.mean(0) / 2, 2**-6, 2**-6)
        np.testing.assert_allclose(variance.float(), (x.var(0) + 1) / 2, 2**-6, 2**-6)


@pytest.mark.parametrize("dtype", EPS)
def test_models_train_in_halves(dtype: str) -> None:
    """Each kind of layer, and optimisers with their states in halves, near float32."""
    ng.manual_seed(0)
    single = nn.Sequential(
        *(
            nn.Conv2d(1, 4, 3, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        ),
        *(nn.Linear(36, 16), nn.LayerNorm(16), nn.GELU(), nn.Dropout(0.0), nn.Linear(16, 10)),
    )
    kind = getattr(ng, dtype)
    x, y = ng.randn(32, 1, 8, 8), ng.randint(0, 10, (32,))
    ends = []
    for model, given in ((single, x), (copy.deepcopy(single).to(kind), x.to(kind))):
        # Adam's second moments, squares of gradients, leave the range of float16.
        optimizer = ng.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for _ in range(15):
            loss = F.cross_entropy(model(given), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert loss.dtype is given.dtype
        ends.append(loss.item())
    assert abs(ends[0] - ends[1]) < 0.1 and ends[1] < 1.7


OPTIMIZERS = {
    "sgd": lambda p: ng.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: ng.optim.Adam(p, lr=0.1, amsgrad=True),
    "rmsprop": lambda p: ng.optim.RMSprop(p, lr=0.1),
    "adagrad": lambda p: ng.optim.Adagrad(p, lr=0.1),
    "lion": lambda p: ng.optim.Lion(p, lr=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_take_halves(name: str) -> None:
    p = ng.full((5,), 2.0, dtype=ng.bfloat16).requires_grad_()
    optimizer = OPTIMIZERS[name]([p])
    for _ in range(20):
        p.grad = 2 * p.detach()
        optimizer.step()
    assert p.dtype is ng.bfloat16 and (p.abs() < 1.5).all()
    tensors = [t for t in optimizer.state[p].values() if isinstance(t, ng.Tensor) and t.dim()]
    assert all(t.dtype is ng.bfloat16 for t in tensors)


def test_clipping_and_scaling_take_halves() -> None:
    p = nn.Parameter(ng.zeros(4, dtype=ng.float16))
    p.grad = ng.full((4,), 2.0, dtype=ng.float16)
    assert nn.utils.clip_grad_norm_([p], 1.0).item() == 4
    assert p.grad.tolist() == [0.5] * 4


@njit
def doubled(out, x):
    for i in range(x.size):
        out[i] = x[i] * 2 + 1


class Doubled(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        out = ng.empty_like(x)
        ng.launch(doubled, out, x)
        return out

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return 2 * g


@pytest.mark.parametrize("dtype", EPS)
def test_kernels_of_users_see_float32(dtype: str) -> None:
    x = ng.tensor([1.0, 2.5, -3.0], dtype=getattr(ng, dtype), requires_grad=True)
    out = Doubled.apply(x)
    assert out.dtype is x.dtype and out.tolist() == [3, 6, -5]
    out.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_an_array_given_twice_is_one_array() -> None:
    """An operation in place: its kernel reads what it writes."""
    x = ng.tensor([3.0, 1.0, 2.0], dtype=ng.bfloat16)
    x.index_add_(0, ng.tensor([0, 0]), ng.tensor([1.0, 1.0], dtype=ng.bfloat16))
    assert x.tolist() == [5, 1, 2]
    x.cumsum_(0)
    assert x.tolist() == [5, 6, 8]


@njit
def doubled_backwards(out, x):
    for i in range(out.size):
        out[i] = x[i] * 2


def test_arrays_that_overlap_have_one_copy() -> None:
    """A function that says nothing of its outputs may write any of them."""
    for dtype in (ng.float32, ng.bfloat16, ng.float16):
        x = ng.arange(8).to(dtype)
        ng.launch(doubled_backwards, x[0:4], x)
        assert x.tolist() == [0, 2, 4, 6, 4, 5, 6, 7]
        ng.launch(doubled_backwards, x[2:6], x[0:4])
        assert x.tolist() == [0, 2, 0, 4, 0, 8, 6, 7]
        ng.launch(doubled_backwards, x[::2], x[1::2])
        assert x.tolist() == [4, 2, 8, 4, 16, 8, 14, 7]

        @ng.compile
        def within(x: Any) -> None:
            ng.launch(doubled_backwards, x[0:4], x)
            ng.launch(doubled_backwards, x[2:6], x[0:4])

        x = ng.arange(8).to(dtype)
        within(x)
        assert x.tolist() == [0, 2, 0, 4, 0, 8, 6, 7]


LARGE: dict[str, Any] = {
    "var": lambda x: x.var(1),
    "std": lambda x: x.std(1),
    "var_mean": lambda x: ng.var_mean(x, 1)[0],
    "median": lambda x: x.median(1).values,
    "kthvalue": lambda x: x.kthvalue(2, 1).values,
    "any": lambda x: (x > 9).any(1),
    "all": lambda x: x.all(1),
    "count_nonzero": lambda x: ng.count_nonzero(x, 1),
    "searchsorted": lambda x: ng.searchsorted(ng.arange(5).to(x.dtype), x),
    "bucketize": lambda x: ng.bucketize(x, ng.arange(5).to(x.dtype)),
    "sum": lambda x: x.sum(0),
    "softmax": lambda x: x.softmax(1),
    "argmax": lambda x: x.argmax(1),
    "sort": lambda x: x.sort(1).values,
}


@pytest.mark.parametrize("name", LARGE)
def test_large_tensors(name: str) -> None:
    """Of which threads have parts; the first array of a kernel need not be of halves."""
    ng.manual_seed(0)
    x = ng.randn(60000, 3).bfloat16()
    got, expected = LARGE[name](x), LARGE[name](x.float())
    assert got.dtype is (ng.bfloat16 if expected.dtype.is_floating_point else expected.dtype)
    np.testing.assert_allclose(got.double(), expected.double(), 2**-7, 2**-7)


def test_small_tensors_become_zero() -> None:
    x = ng.ones(6, 6, dtype=ng.bfloat16)
    assert x.zero_().sum().item() == 0 and x[0, 0].zero_().item() == 0
    layer = nn.BatchNorm1d(3, dtype=ng.bfloat16)
    layer(ng.ones(4, 3, dtype=ng.bfloat16)).sum().backward()
    layer.zero_grad(set_to_none=False)
    assert layer.bias.grad.tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_states_follow_the_dtype_of_their_parameter(name: str) -> None:
    """A kernel reads the state as what the parameter is."""
    ends = []
    for kinds in (["float32"] * 3, ["bfloat16", "float32", "float64"]):
        p = nn.Parameter(ng.linspace(1, 2, 40))
        optimizer = OPTIMIZERS[name]([p])
        for kind in kinds:
            p.data, p.grad = p.data.to(getattr(ng, kind)), None
            p.grad = 2 * p.detach()
            optimizer.step()
        ends.append(p.detach().double().numpy())
    np.testing.assert_allclose(ends[1], ends[0], 0.02, 0.02)


def test_norms_name_the_dtype_they_were_given() -> None:
    x = ng.ones(2, 3, dtype=ng.bfloat16)
    for other in (ng.float16, ng.float64, ng.int64):
        w = ng.ones(3, dtype=other)
        for call in (
            lambda w: F.layer_norm(x, (3,), w),
            lambda w: F.batch_norm(x, None, None, w, training=True),
            lambda w: F.rms_norm(x, (3,), w),
        ):
            with pytest.raises(DTypeError, match=r"weight to have the dtype of input, ng\.bf"):
                call(w)


def test_attention_takes_a_mask_of_float32() -> None:
    q = ng.randn(1, 2, 4, 8).bfloat16()
    mask = ng.zeros(4, 4).masked_fill(ng.ones(4, 4).triu(1).bool(), -float("inf"))
    out = F.scaled_dot_product_attention(q, q, q, mask)
    assert (out == F.scaled_dot_product_attention(q, q, q, is_causal=True)).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_deviations_whose_squares_are_beyond_a_half(dtype):
    x = ng.tensor([[-3000.0, 3000.0, 1000.0], [1.0, 2.0, 4.0]], dtype=getattr(ng, dtype))
    expected = x.float().std(1)
    for call in (ng.std, ng.compile(lambda x, dim: ng.std(x, dim))):
        found = call(x, 1)
        assert found.dtype is x.dtype
        np.testing.assert_allclose(found.float().numpy(), expected.numpy(), 5e-3)
    wide = ng.arange(70000.0).to(x.dtype)  # in pieces
    np.testing.assert_allclose(wide.std().item(), wide.float().std().item(), 5e-3)


def test_gradients_of_small_norms() -> None:
    """1 / norm is more than float16 holds, x / norm is not."""
    for p in (2, 3, 2.5):
        x = ng.full((1, 2), 1e-5, dtype=ng.float16, requires_grad=True)
        x.norm(p, dim=1).sum().backward()
        wide = x.detach().float().requires_grad_()
        wide.norm(p, dim=1).sum().backward()
        assert ng.allclose(x.grad.float(), wide.grad, rtol=0.06)
