"""Attention with formulas for scores: against PyTorch's, its own plain operations, and mistakes.

Few formulas, for each is compiled: masks differ by the numbers of a tensor that they read.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.kernels.cpu import attention as attention_kernels
from numbagrad.kernels.cpu import flex_attention as flex_kernels
from numbagrad.nn.attention.flex_attention import (
    and_masks,
    create_block_mask,
    flex_attention,
    noop_mask,
    or_masks,
)
from numbagrad.ops.score_formula import score_of

WIDE, NARROW, BEHIND = (0, 1000), (0, 40), (5, 1000)


def window_of(limits):
    """Keys that lie so far behind a query; a query near the beginning may see none."""

    def behind(b, h, q_idx, kv_idx):
        return (q_idx - kv_idx >= limits[0]) & (q_idx - kv_idx < limits[1])

    return behind


def capped_of(lib, slopes, cap):
    """ALiBi's slopes and a soft cap."""

    def capped(score, b, h, q_idx, kv_idx):
        return cap * lib.tanh((score + slopes[h] * abs(q_idx - kv_idx)) / cap)

    return capped


def relative_of(table, length):
    """A bias for each distance, of half as many rows as heads."""

    def relative(score, b, h, q_idx, kv_idx):
        return score + table[h // 2][q_idx - kv_idx + length - 1]

    return relative


def documents_of(ids):
    """Tokens of one document see each other."""

    def together(b, h, q_idx, kv_idx):
        return ids[b, q_idx] == ids[b, kv_idx]

    return together


def arrays(q, k=None, v=None, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=s).astype(dtype) for s in (q, k or q, v or k or q)]


def leaves(*given):
    return [ng.tensor(a, requires_grad=a.dtype.kind == "f") for a in given]


def check_gradients(outputs, inputs, rtol=1e-9, atol=1e-10):
    """The kernel's gradients are those of plain operations, as with create_graph."""
    rng = np.random.default_rng(9)
    incoming = [ng.tensor(rng.normal(size=o.shape), dtype=o.dtype) for o in outputs]
    mine = ng.autograd.grad(outputs, inputs, incoming, retain_graph=True)
    plain = ng.autograd.grad(outputs, inputs, incoming, create_graph=True)
    for x, y in zip(mine, plain, strict=True):
        assert x.isfinite().all()
        np.testing.assert_allclose(x.numpy(), y.detach().numpy(), rtol, atol)


def check(shapes, mods, captured=(), masks=None, batch=None, **options):
    """Result, lse and gradients of the same call of both libraries.

    mods, masks: from a library and captured tensors to a function.
    """
    torch = pytest.importorskip("torch")
    peer = pytest.importorskip("torch.nn.attention.flex_attention")
    given = [*arrays(*shapes), *captured]
    mine, theirs = leaves(*given), [torch.tensor(a) for a in given]
    lengths = shapes[0][2], shapes[-1][2] if len(shapes) > 1 else shapes[0][2]
    found = []
    for lib, xs, attend, make in (
        (ng, mine, flex_attention, create_block_mask),
        (torch, theirs, peer.flex_attention, peer.create_block_mask),
    ):
        more = {} if lib is ng else {"device": "cpu"}
        mask = masks and make(masks(lib, *xs[3:]), batch, None, *lengths, **more)
        mod = mods and mods(lib, *xs[3:])
        with torch.no_grad():
            found.append(attend(*xs[:3], mod, mask or None, return_lse=True, **options))
    for x, y in zip(*found, strict=True):
        np.testing.assert_allclose(x.detach().numpy(), y.numpy(), 1e-9, 1e-10)
    check_gradients(found[0], [x for x in mine if x.requires_grad])


pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without:UserWarning")


@pytest.mark.peer
@pytest.mark.parametrize(
    "shapes", [[(2, 2, 70, 4)], [(1, 2, 5, 3), (1, 2, 300, 3), (1, 2, 300, 2)]]
)
def test_without_formulas(shapes):
    check(shapes, None)


@pytest.mark.peer
@pytest.mark.parametrize("limits", [WIDE, NARROW, BEHIND])
@pytest.mark.parametrize(
    "shapes,options",
    [
        ([(1, 4, 150, 4), (1, 2, 150, 4)], {"enable_gqa": True, "scale": 0.3}),
        ([(1, 2, 131, 4), (1, 2, 270, 4), (1, 2, 270, 3)], {}),
    ],
)
def test_masks(limits, shapes, options):
    def masks(lib, limits):
        return window_of(limits)

    check(shapes, None, [np.array(limits)], masks, **options)


@pytest.mark.peer
def test_slopes_and_caps():
    def capped(lib, slopes, cap, limits):
        return capped_of(lib, slopes, cap)

    def masks(lib, slopes, cap, limits):
        return window_of(limits)

    captured = np.array([-0.5, -0.1]), np.array(3.0), np.array(NARROW)
    check([(2, 2, 140, 4)], capped, captured, masks)


@pytest.mark.peer
def test_relative_bias_in_documents():
    rng = np.random.default_rng(1)
    table, ids = rng.normal(size=(2, 279)), np.sort(rng.integers(0, 4, (2, 140)))

    def relative(lib, table, ids):
        return relative_of(table, 140)

    def masks(lib, table, ids):
        return documents_of(ids)

    check([(2, 4, 140, 4)], relative, [table, ids], masks, batch=2)


def test_gradients_of_captured_tensors_are_the_same_on_any_number_of_threads():
    given = arrays((2, 2, 300, 16), dtype="float32")
    q, k, v, slopes, cap = leaves(*given, np.array([-0.5, -0.1], "float32"), np.float32(3.0))
    mask = create_block_mask(
        window_of(ng.tensor(NARROW)), None, None, 300, 300, BLOCK_SIZE=(50, 64)
    )
    threads, found = ng.get_num_threads(), []
    try:
        for n in (1, threads):
            ng.set_num_threads(n)
            outputs = flex_attention(q, k, v, capped_of(ng, slopes, cap), mask, return_lse=True)
            grads = ng.autograd.grad(outputs[0].square().sum(), (q, k, v, slopes, cap))
            found.append([x.detach().numpy() for x in (*outputs, *grads)])
    finally:
        ng.set_num_threads(threads)
    for x, y in zip(*found, strict=True):
        np.testing.assert_array_equal(x, y)


def test_derivatives_of_both_orders():
    q, k, v, slopes, cap = leaves(
        *arrays((1, 2, 3, 2), (1, 2, 5, 2)), np.array([-0.5, -0.1]), np.array(3.0)
    )
    limits = ng.tensor((-1, 2))
    mask = create_block_mask(window_of(limits), None, None, 3, 5, BLOCK_SIZE=2)

    def attend(q, k, v, slopes, cap):
        return flex_attention(q, k, v, capped_of(ng, slopes, cap), mask, return_lse=True)

    assert ng.autograd.gradcheck(attend, (q, k, v, slopes, cap))
    assert ng.autograd.gradgradcheck(attend, (q, k, v, slopes, cap))


def test_heads_cut_out_of_rows_and_one_tensor_for_all():
    (x,) = leaves(np.random.default_rng(0).normal(size=(2, 70, 3, 2, 4)))
    cut = [each.transpose(1, 2) for each in x.unbind(2)]
    whole = [each.contiguous() for each in cut]
    assert flex_attention(*cut).equal(flex_attention(*whole))
    check_gradients([flex_attention(*cut)], [x])
    same = cut[0]
    check_gradients([flex_attention(same, same, same)], [x])
    one = [each[:1] for each in cut]
    np.testing.assert_allclose(
        flex_attention(cut[0], one[1], one[2])[1].detach().numpy(),
        flex_attention(cut[0][1:], one[1], one[2])[0].detach().numpy(),
    )


@pytest.mark.parametrize("q,k", [((1, 2, 0, 4), (1, 2, 3, 4)), ((1, 2, 3, 4), (1, 2, 0, 4))])
def test_without_queries_or_keys(q, k):
    xs = leaves(*arrays(q, k))
    out, lse = flex_attention(*xs, return_lse=True)
    assert out.shape == q and not out.any() and lse.shape == q[:3]
    out.sum().backward()
    assert not any(x.grad.any() for x in xs)


def test_queries_that_see_nothing_give_zeros():
    xs = leaves(*arrays((1, 2, 131, 4), (1, 2, 270, 4), (1, 2, 270, 3)))
    mask = create_block_mask(window_of(ng.tensor(BEHIND)), None, None, 131, 270)
    out, lse = flex_attention(*xs, block_mask=mask, return_lse=True)
    assert not out[:, :, :5].any() and (lse[:, :, :5] == -math.inf).all()
    grads = ng.autograd.grad(out.sum(), xs)
    assert all(g.isfinite().all() for g in grads) and not grads[0][:, :, :5].any()


def test_compiled_training_step_is_the_eager_one():
    def trained(whole):
        ng.manual_seed(0)
        net = nn.Linear(8, 24).double()
        slopes = nn.Parameter(ng.tensor([-0.5, -0.1], dtype=ng.double))
        cap = nn.Parameter(ng.tensor(3.0).double())
        optimizer = ng.optim.SGD([*net.parameters(), slopes, cap], 0.5)
        mask = create_block_mask(window_of(ng.tensor((-1, 2))), None, None, 6, 6)

        def step(x):
            optimizer.zero_grad()
            heads = net(x).reshape(2, 6, 3, 2, 4).permute(2, 0, 3, 1, 4)
            loss = flex_attention(*heads, capped_of(ng, slopes, cap), mask).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        step, x = whole(step), ng.randn(2, 6, 8, dtype=ng.double)
        return [step(x).item() for _ in range(3)] + slopes.detach().tolist()

    np.testing.assert_allclose(trained(ng.compile), trained(lambda step: step), rtol=1e-12)


def test_numbers_that_a_formula_finds_by_name_are_followed():
    plain = True

    def tempered(score, b, h, q_idx, kv_idx):
        return score if plain else 0.0 * score

    xs = [ng.tensor(a) for a in arrays((1, 1, 3, 2))]
    compiled = ng.compile(lambda q, k, v: flex_attention(q, k, v, tempered))
    assert compiled(*xs).equal(flex_attention(*xs))
    plain = False
    mean = xs[2].mean(2, keepdim=True).expand(1, 1, 3, 2)
    for attended in (compiled(*xs), flex_attention(*xs, tempered)):
        np.testing.assert_allclose(attended.numpy(), mean.numpy(), rtol=1e-12)


def test_block_masks_tell_what_is_left_out():
    def causal(b, h, q_idx, kv_idx):
        return q_idx >= kv_idx

    def near(b, h, q_idx, kv_idx):
        return abs(q_idx - kv_idx) < 8

    def kinds(mask):
        return create_block_mask(mask, None, None, 40, 40, BLOCK_SIZE=(16, 8)).kinds[0, 0].tolist()

    below = [[1, 1, 0, 0, 0], [2, 2, 1, 1, 0], [2, 2, 2, 2, 1]]
    assert kinds(causal) == below and kinds(and_masks(noop_mask, causal)) == below
    assert kinds(and_masks(causal, near)) == [[1, 1, 0, 0, 0], [0, 1, 1, 1, 0], [0, 0, 0, 1, 1]]
    assert kinds(or_masks(causal, near)) == [[2, 1, 1, 0, 0], [2, 2, 2, 1, 1], [2] * 5]
    mask = create_block_mask(causal, 2, 3, 40, 40, BLOCK_SIZE=(16, 8))
    assert mask.shape == (2, 3, 40, 40) and mask.numel() == 9600
    assert mask.to_dense()[1, 2].tolist() == [[min(n, 1) for n in row] for row in below]
    assert mask.sparsity() == pytest.approx(100 * 4 / 15) and mask.to("cpu").shape == mask.shape
    assert repr(mask) == "BlockMask(shape=(2, 3, 40, 40), BLOCK_SIZE=(16, 8))"


def test_kernels_are_kept_on_disk():
    """Addresses of this process in their code, as of a function that is passed, would forbid it."""
    xs = [ng.tensor(a) for a in arrays((1, 1, 3, 2))]
    flex_attention(*xs)
    nn.functional.scaled_dot_product_attention(*xs)
    score, _ = score_of("flex_attention", None, None)
    for kernel in (flex_kernels.flex_attention(score), attention_kernels.attention):
        made = kernel.serial
        assert made.signatures
        assert all(made._cache.path(s, made.targetctx).exists() for s in made.signatures)


x4, short = ng.ones(1, 2, 3, 4), ng.ones(2)


def attend(mod=None, mask=None, q=x4, k=x4, v=x4):
    return lambda: flex_attention(q, k, v, mod, mask)


@pytest.mark.parametrize(
    "call,error,words",
    [
        (attend(q=x4[0]), ng.errors.ShapeError, "4-dimensional.*unsqueeze"),
        (attend(k=x4.double()), ng.errors.DTypeError, "same dtype.*Convert"),
        (attend(q=x4[..., :2]), ng.errors.ShapeError, "features of query"),
        (attend(q=ng.ones(1, 4, 3, 4)), ng.errors.ShapeError, "Hq=4.*enable_gqa=True"),
        (attend(mod=3), TypeError, "score_mod must be a function"),
        (attend(lambda s, b, h, q: s), TypeError, "must take 5 arguments.*takes"),
        (attend(lambda s, b, h, q, k: print(s)), TypeError, "score_mod is no formula.*calls print"),
        (attend(lambda s, b, h, q, k: s + short), TypeError, "tensor of 1 dims, without"),
        (attend(lambda s, b, h, q, k: s + short[q, k]), TypeError, "2 of its 1 indices"),
        (attend(lambda s, b, h, q, k: s + short[q / 2]), TypeError, "q / 2 of short, which is no"),
        (attend(lambda s, b, h, q, k: s + [1, 2][q]), TypeError, "does not know"),
        (attend(mask=3), TypeError, "must be a BlockMask.*create_block_mask"),
        (lambda: create_block_mask(lambda b, h: True, None, None, 3, 3), TypeError, "4 arguments"),
        (lambda: create_block_mask(noop_mask, None, None, -1, 3), ValueError, "Q_LEN=-1"),
        (lambda: and_masks(3, noop_mask), RuntimeError, "callable"),
    ],
)
def test_mistakes(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_mistakes_that_kernels_find():
    xs = [ng.tensor(a) for a in arrays((1, 4, 140, 4))]
    with pytest.raises(IndexError, match=r"table of shape \[2, 7\] is read out of bounds"):
        together = documents_of(ng.zeros(1, 140, dtype=ng.int64))
        mask = create_block_mask(together, None, None, 140, 140)
        flex_attention(*xs, relative_of(ng.ones(2, 7, dtype=ng.double), 140), mask)
    mask = create_block_mask(window_of(ng.tensor(WIDE)), None, None, 140, 130)
    with pytest.raises(ValueError, match="KV_LEN=130, but got q_len=140 and kv_len=140"):
        flex_attention(*xs, block_mask=mask)
    mask = create_block_mask(window_of(ng.tensor(WIDE)), 1, 3, 140, 140)
    with pytest.raises(ValueError, match=r"created for H=3, but query has H=4.*H=None"):
        flex_attention(*xs, block_mask=mask)
