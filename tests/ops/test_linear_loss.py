"""The cross entropy of a linear layer, by blocks of classes and in one."""

import itertools

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.autograd import gradcheck, gradgradcheck
from numbagrad.errors import DimError, DTypeError, ShapeError
from numbagrad.kernels import blocks
from numbagrad.nn import functional as F
from numbagrad.ops import linear_loss
from numbagrad.utils.checkpoint import checkpoint

BLOCKS = nn.LinearCrossEntropyOptions()
N, K, C = 5, 4, 11


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Of three classes, the last one of two."""
    monkeypatch.setattr(linear_loss, "_width", lambda n, c, itemsize: 3)


def drawn(dtype=ng.float64, seed=0):
    rng = np.random.default_rng(seed)

    def tensor(*shape):
        return ng.tensor(rng.standard_normal(shape), dtype=dtype, requires_grad=True)

    return tensor(N, K), tensor(C, K), tensor(C), ng.tensor([3, 0, 10, 7, 3])


OPTIONS = [
    dict(zip(("reduction", "label_smoothing", "ignore_index"), values, strict=True))
    for values in itertools.product(["mean", "sum", "none"], [0.0, 0.3], [None, 3])
]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_blocks_give_what_one_loss_gives(options, biased, weighted):
    x, w, bias, target = drawn()
    weight = ng.linspace(0.5, 2.0, C, dtype=ng.float64) if weighted else None
    linear_bias = bias if biased else None
    found = F.linear_cross_entropy(
        x, w, target, linear_bias=linear_bias, weight=weight, options=BLOCKS, **options
    )
    assert type(found.grad_fn).__name__ == "LinearCrossEntropyBackward"
    plain = {**options, "ignore_index": options["ignore_index"] or -100}
    expected = F.cross_entropy(F.linear(x, w, linear_bias), target, weight=weight, **plain)
    np.testing.assert_allclose(found.detach(), expected.detach(), 1e-12)
    inputs = [x, w, *([bias] if biased else [])]
    g = ng.rand(found.shape, dtype=ng.float64)
    for a, b in zip(
        ng.autograd.grad(found, inputs, g), ng.autograd.grad(expected, inputs, g), strict=True
    ):
        np.testing.assert_allclose(a, b, 1e-10, 1e-14)


@pytest.mark.parametrize("options", OPTIONS[::3], ids=str)
def test_gradients_of_both_orders(options):
    x, w, bias, target = drawn()

    def loss(x, w, bias):
        return F.linear_cross_entropy(x, w, target, linear_bias=bias, options=BLOCKS, **options)

    assert gradcheck(loss, (x, w, bias))
    assert gradgradcheck(loss, (x, w, bias))


@pytest.mark.parametrize("needed", [(1, 0, 0), (0, 1, 0), (0, 0, 1)])
def test_only_what_needs_a_gradient_gets_one(needed):
    tensors = [t.detach().requires_grad_(bool(k)) for t, k in zip(drawn()[:3], needed, strict=True)]
    x, w, bias = tensors
    target = drawn()[3]
    F.linear_cross_entropy(x, w, target, linear_bias=bias, options=BLOCKS).backward()
    assert [t.grad is not None for t in tensors] == [bool(k) for k in needed]


def test_twice_through_one_graph():
    x, w, _, target = drawn()
    loss = F.linear_cross_entropy(x, w, target, options=BLOCKS)
    loss.backward(retain_graph=True)
    once = w.grad.clone()
    loss.backward()
    np.testing.assert_allclose(w.grad, 2 * once)


@pytest.mark.parametrize("dtype", [ng.float32, ng.float64])
def test_unusual_logits(dtype):
    """Very large ones, far apart, none but the lowest, and NaN in one row alone."""
    inf = float("inf")
    w = ng.eye(C, dtype=dtype)
    rows = ng.zeros(6, C, dtype=dtype)
    rows[0] = 1e4 * ng.arange(C)
    rows[1, 4] = 3e4
    rows[2] = -1e4
    rows[3, 2] = float("nan")
    rows[4] = ng.tensor([-300.0 * k for k in range(C)])
    bias = ng.zeros(C, dtype=dtype)
    target = ng.tensor([0, 4, 1, 1, 10, 5])
    options = {"reduction": "none"}
    found = F.linear_cross_entropy(rows, w, target, linear_bias=bias, options=BLOCKS, **options)
    expected = F.cross_entropy(rows @ w + bias, target, **options)
    np.testing.assert_allclose(found, expected, 1e-6)
    bias[:6] = -inf  # the first two blocks have no chance at all
    found = F.linear_cross_entropy(rows, w, target, linear_bias=bias, options=BLOCKS, **options)
    expected = F.cross_entropy(rows @ w + bias, target, **options)
    np.testing.assert_allclose(found, expected, 1e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e4, 1e34])
def test_smoothing_of_large_logits(offset, weighted):
    rng = np.random.default_rng(0)
    x, w = (ng.tensor(rng.standard_normal(s), dtype=ng.float32) for s in ((6, 8), (500, 8)))
    bias = ng.tensor(rng.standard_normal(500) + offset, dtype=ng.float32)
    target = ng.randint(0, 500, (6,))
    weight = ng.rand(500) if weighted else None
    options = {"label_smoothing": 0.1, "weight": weight}
    found = F.linear_cross_entropy(x, w, target, linear_bias=bias, options=BLOCKS, **options)
    expected = F.cross_entropy(F.linear(x, w, bias), target, **options)
    np.testing.assert_allclose(found, expected, 1e-5)


def test_within_checkpoint_and_beside_autocast():
    x, w, _, target = drawn()

    def loss(x, w):
        return F.linear_cross_entropy(x, w, target, options=BLOCKS)

    checkpoint(loss, x, w, use_reentrant=False).backward()
    expected = ng.autograd.grad(loss(x, w), w)[0]
    np.testing.assert_allclose(w.grad, expected)
    with ng.autocast("cpu", enabled=False):
        assert type(loss(x, w).grad_fn).__name__ == "LinearCrossEntropyBackward"


def test_no_row_and_all_ignored():
    x, w, _, _ = drawn()
    none = F.linear_cross_entropy(x[:0], w, ng.zeros(0, dtype=ng.int64), options=BLOCKS)
    assert none.isnan()
    target = ng.full((N,), -100)
    loss = F.linear_cross_entropy(x, w, target, options=BLOCKS)
    assert loss.isnan()
    loss.backward()
    assert not x.grad.any() and not w.grad.any()


def test_a_compiled_step(monkeypatch):
    x, w, bias, target = drawn(ng.float32)
    optimizer = ng.optim.SGD([w, bias], 0.5)

    def step(x, target):
        optimizer.zero_grad()
        loss = F.linear_cross_entropy(x, w, target, linear_bias=bias, options=BLOCKS)
        loss.backward()
        optimizer.step()
        return loss

    begin = w.detach().clone(), bias.detach().clone()
    eager = [step(x, target).item() for _ in range(3)]
    with ng.no_grad():
        w.copy_(begin[0])
        bias.copy_(begin[1])
    compiled = ng.compile(step)
    assert [compiled(x, target).item() for _ in range(3)] == pytest.approx(eager, rel=1e-5)
    assert eager[2] < eager[0]
    with pytest.raises(DimError, match="linear_cross_entropy: Target is out of bounds for 11"):
        compiled(x, target + 1)


def test_large_losses_go_by_blocks_and_need_little_memory(monkeypatch):
    monkeypatch.undo()
    n, k, c = 1024, 16, 16384  # 64 MB of logits
    assert linear_loss.in_blocks(n, k, c, 4) and not linear_loss.in_blocks(64, k, c, 4)
    x = ng.randn(n, k, requires_grad=True)
    w = ng.randn(c, k, requires_grad=True)
    target = ng.randint(0, c, (n,))
    before = blocks.kept_bytes()
    loss = F.linear_cross_entropy(x, w, target)
    loss.backward()
    assert blocks.kept_bytes() - before < 8 << 20
    found = loss.item(), x.grad.clone(), w.grad.clone()
    x.grad = w.grad = None
    expected = F.cross_entropy(x @ w.T, target)
    expected.backward()
    assert found[0] == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(found[1], x.grad, 1e-3, 1e-6)
    np.testing.assert_allclose(found[2], w.grad, 1e-3, 1e-6)


# -- errors, and what PyTorch has ------------------------------------------------------------------


def test_errors_name_the_op():
    x, w, bias, target = drawn()
    name = "^linear_cross_entropy: "
    for options in ({}, {"options": BLOCKS}):
        with pytest.raises(ShapeError, match=name + "expected input"):
            F.linear_cross_entropy(x[:, :3], w, target, **options)
        with pytest.raises(ShapeError, match=name + "expected linear_bias"):
            F.linear_cross_entropy(x, w, target, linear_bias=bias[:3], **options)
    with pytest.raises(DimError, match=name + "Target 11 is out of bounds"):
        F.linear_cross_entropy(x, w, target + 1, options=BLOCKS)
    with pytest.raises(ShapeError, match=name + "Expected input batch_size"):
        F.linear_cross_entropy(x, w, target[:3], options=BLOCKS)
    with pytest.raises(ShapeError, match=name + "weight tensor"):
        F.linear_cross_entropy(x, w, target, weight=ng.ones(C), options=BLOCKS)
    with pytest.raises(ShapeError, match=name + "linear_weight .* needs an input"):
        F.linear_cross_entropy(x[0], w.reshape(C, 1, K), target)
    with pytest.raises(DTypeError, match=name + "input, linear_weight and linear_bias"):
        F.linear_cross_entropy(x, w.float(), target)
    with pytest.raises(ValueError, match=name + "label_smoothing"):
        F.linear_cross_entropy(x, w, target, label_smoothing=2.0)
    with pytest.raises(ShapeError, match=name + "ignore_index"):
        F.linear_cross_entropy(x, w, ng.ones(N, C, dtype=x.dtype), ignore_index=-1)
    with pytest.raises(ValueError, match="LinearCrossEntropyLoss: label_smoothing"):
        nn.LinearCrossEntropyLoss(3, C, label_smoothing=7.0)
    with pytest.raises(ShapeError, match="LinearCrossEntropyLoss: weight"):
        nn.LinearCrossEntropyLoss(3, C, weight=ng.ones(5))


@pytest.mark.parametrize(
    "wrong",
    [
        {"acc_policy": "fast"},
        {"batch_chunk_size": 0},
        {"acc_dtype": "float"},
        {"chunking_method": "aspect_ratio:0"},
        {"chunking_method": "rows"},
    ],
    ids=str,
)
def test_options_that_pytorch_refuses(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        nn.LinearCrossEntropyOptions(**wrong)


@pytest.mark.parametrize("out_features", [(), (4, 3)])
@pytest.mark.parametrize("bias", [False, True])
def test_the_module_beside_pytorch(out_features, bias):
    torch = pytest.importorskip("torch")
    if not hasattr(torch.nn, "LinearCrossEntropyLoss"):
        pytest.skip("an older PyTorch")
    options = {"out_features": out_features, "bias": bias, "label_smoothing": 0.1}
    ours = nn.LinearCrossEntropyLoss(K, C, **options)
    theirs = torch.nn.LinearCrossEntropyLoss(K, C, **options)
    state = {k: ng.tensor(v.numpy()) for k, v in theirs.state_dict().items()}
    ours.load_state_dict(state)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((N, K)).astype("float32")
    target = rng.integers(0, C, (N, *out_features))
    found = ours(ng.tensor(x), ng.tensor(target))
    expected = theirs(torch.tensor(x), torch.tensor(target))
    found.backward()
    expected.backward()
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.grad, q.grad.numpy(), 1e-4, 1e-6, err_msg=name)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert ours.extra_repr() == theirs.extra_repr()


def test_chances_and_halves_take_the_plain_way():
    x, w, _, _ = drawn(ng.float32)
    chances = ng.softmax(ng.randn(N, C), 1)
    expected = F.cross_entropy(F.linear(x, w), chances)
    with pytest.warns(UserWarning, match="linear_cross_entropy: options ignored"):
        assert ng.equal(F.linear_cross_entropy(x, w, chances, options=BLOCKS), expected)
    with pytest.warns(UserWarning, match="bfloat16"):
        half = F.linear_cross_entropy(x.bfloat16(), w.bfloat16(), drawn()[3], options=BLOCKS)
    assert half.dtype is ng.bfloat16
    with ng.autocast("cpu"), pytest.warns(UserWarning, match="in an autocast"):
        assert F.linear_cross_entropy(x, w, drawn()[3], options=BLOCKS).dtype is ng.float32
