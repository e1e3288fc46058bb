"""Attention layers against PyTorch's, by their state_dict, and how they behave on their own."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn

HIDDEN = np.triu(np.ones((5, 5), bool), 1)
PADDED = np.array([[False] * 5, [False, False, False, True, True]])
CAUSAL = {"attn_mask": HIDDEN, "is_causal": True}
BEHIND = {"add_bias_kv": True, "add_zero_attn": True}
SELF, FIRST = (5, 2, 8), (2, 5, 8)
CROSS = (4, 2, 8), (5, 2, 6), (5, 2, 3)
EACH = np.stack([HIDDEN * -1.5, HIDDEN * 2.0, HIDDEN * 0.5, HIDDEN * -9.0])

HEADS = [
    ({}, [SELF], {}),
    ({"bias": False}, [SELF], {"need_weights": False}),
    ({"batch_first": True}, [FIRST], {"attn_mask": HIDDEN, "need_weights": False}),
    ({}, [SELF], {**CAUSAL, "need_weights": False}),
    ({}, [SELF], {**CAUSAL, "average_attn_weights": False}),
    ({"batch_first": True}, [FIRST], {"key_padding_mask": PADDED, "attn_mask": HIDDEN}),
    (BEHIND, [SELF], {"need_weights": False}),
    (
        {**BEHIND, "batch_first": True},
        [FIRST],
        {"attn_mask": HIDDEN, "key_padding_mask": PADDED, "need_weights": False},
    ),
    ({}, [SELF], {"attn_mask": EACH, "need_weights": False}),
    ({"kdim": 6, "vdim": 3}, CROSS, {"key_padding_mask": PADDED}),
    ({"kdim": 6, "vdim": 3, "bias": False}, CROSS, {"need_weights": False}),
    ({}, [(4, 2, 8), (5, 2, 8), (5, 2, 8)], {}),
    ({}, [(5, 8)], {"key_padding_mask": PADDED[1], "attn_mask": HIDDEN}),
    ({"batch_first": True}, [(5, 8)], {"need_weights": False}),
]

MASKS = {"src_mask": HIDDEN, "src_key_padding_mask": PADDED}
LAYERS = [
    ({}, [SELF], {}),
    ({"batch_first": True}, [FIRST], {"src_mask": HIDDEN, "is_causal": True}),
    ({"norm_first": True, "activation": "gelu"}, [SELF], MASKS),
    ({"bias": False, "layer_norm_eps": 0.1, "batch_first": True}, [FIRST], MASKS),
]


def check(ours, theirs, shapes, masks):
    """Results, and gradients of inputs and parameters, of layers with the same numbers."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    for p in theirs.parameters():
        p.data.copy_(torch.tensor(rng.normal(size=p.shape)))
    state = {key: ng.tensor(value.numpy()) for key, value in theirs.state_dict().items()}
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict(state)
    weights, found = rng.normal(size=shapes[0]), []
    arrays = [rng.normal(size=shape) for shape in shapes]
    for lib, layer in ((ng, ours), (torch, theirs)):
        xs = [lib.tensor(a, requires_grad=True) for a in arrays]
        given = xs * (3 if len(xs) == 1 and isinstance(layer, lib.nn.MultiheadAttention) else 1)
        more = {k: lib.tensor(v) if isinstance(v, np.ndarray) else v for k, v in masks.items()}
        out = layer(*given, **more)
        outs = list(out) if isinstance(out, tuple) else [out]
        outs[0].backward(lib.tensor(weights))
        grads = [t.grad for t in [*xs, *layer.parameters()]]
        found.append([t if t is None else t.detach().numpy() for t in [*outs, *grads]])
    for i, (mine, other) in enumerate(zip(*found, strict=True)):
        assert (mine is None) == (other is None), i
        if mine is not None:
            np.testing.assert_allclose(mine, other, 1e-8, 1e-8, err_msg=str(i))


@pytest.mark.peer
@pytest.mark.parametrize("options,shapes,masks", HEADS)
def test_multihead_attention_is_torchs(options, shapes, masks):
    torch = pytest.importorskip("torch")
    layers = [lib.nn.MultiheadAttention(8, 2, **options).double() for lib in (ng, torch)]
    check(*layers, shapes, masks)


@pytest.mark.peer
@pytest.mark.parametrize("options,shapes,masks", LAYERS)
def test_encoder_layer_is_torchs(options, shapes, masks):
    torch = pytest.importorskip("torch")
    check(
        *[
            lib.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, **options).double()
            for lib in (ng, torch)
        ],
        *(shapes, masks),
    )


@pytest.mark.peer
def test_encoder_is_torchs():
    torch = pytest.importorskip("torch")
    encoders = []
    for lib in (ng, torch):
        layer = lib.nn.TransformerEncoderLayer(8, 2, 16, 0.0, norm_first=True)
        norm = lib.nn.LayerNorm(8)
        encoders.append(
            lib.nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=False).double()
        )
    check(*encoders, [SELF], {"mask": HIDDEN, "src_key_padding_mask": PADDED})


MEMORY = (7, 2, 8)
FAR = np.array([[False] * 7, [False] * 5 + [True] * 2])
DECODERS = [
    ({}, [SELF, MEMORY], {}),
    ({"batch_first": True}, [FIRST, (2, 7, 8)], {"tgt_mask": HIDDEN, "tgt_is_causal": True}),
    (
        {"norm_first": True, "activation": "gelu"},
        [SELF, MEMORY],
        {"tgt_mask": HIDDEN, "memory_key_padding_mask": FAR, "tgt_key_padding_mask": PADDED},
    ),
    ({"bias": False, "layer_norm_eps": 0.1}, [SELF, MEMORY], {"memory_mask": np.eye(5, 7) * -2.0}),
]


@pytest.mark.peer
@pytest.mark.parametrize("options,shapes,masks", DECODERS)
def test_decoder_layer_is_torchs(options, shapes, masks):
    torch = pytest.importorskip("torch")
    check(
        *[
            lib.nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, **options).double()
            for lib in (ng, torch)
        ],
        *(shapes, masks),
    )


@pytest.mark.peer
@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer_is_torchs(norm_first):
    torch = pytest.importorskip("torch")
    options = {"dropout": 0.0, "norm_first": norm_first, "batch_first": True}
    both = [lib.nn.Transformer(8, 2, 2, 2, 16, **options).double() for lib in (ng, torch)]
    masks = {"tgt_mask": HIDDEN, "src_key_padding_mask": PADDED}
    check(*both, [FIRST, FIRST], masks | {"memory_key_padding_mask": PADDED})


def test_transformer_begins_and_refuses():
    ng.manual_seed(0)
    model = nn.Transformer(8, 2, 1, 1, 16)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    assert all(p.abs().max().item() <= (6 / sum(p.shape)) ** 0.5 for p in matrices)
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    assert mask.tolist() == [[0, -np.inf, -np.inf], [0, 0, -np.inf], [0, 0, 0]]
    with pytest.raises(RuntimeError, match="batch number of src and tgt must be equal, got 2 and"):
        model(ng.ones(5, 2, 8), ng.ones(5, 3, 8))
    with pytest.raises(RuntimeError, match="must be equal to d_model 8, got 8 and 6"):
        model(ng.ones(5, 2, 8), ng.ones(5, 2, 6))
    with pytest.raises(RuntimeError, match="TransformerDecoderLayer: activation should be"):
        nn.TransformerDecoderLayer(8, 2, activation="tanh")


def test_where_torch_gives_nan_and_where_zero():
    """A row that may look nowhere: with weights as softmax has it, without them 0."""
    layer = nn.MultiheadAttention(4, 2, bias=False)
    x, hidden = ng.ones(3, 1, 4), ng.ones(1, 3, dtype=ng.bool)
    assert layer(x, x, x, key_padding_mask=hidden)[0].isnan().all()
    assert (layer(x, x, x, key_padding_mask=hidden, need_weights=False)[0] == 0).all()


def test_first_numbers():
    ng.manual_seed(0)
    layer = nn.MultiheadAttention(64, 4, add_bias_kv=True)
    bound = (6 / (64 + 192)) ** 0.5
    assert layer.in_proj_weight.abs().max().item() <= bound
    assert abs(layer.in_proj_weight.std().item() - bound / 3**0.5) < 0.01 * bound
    assert not layer.in_proj_bias.any() and not layer.out_proj.bias.any()
    assert layer.bias_k.std().item() > 0


def test_dropout_is_for_training():
    ng.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    x = ng.randn(2, 5, 8)
    assert not ng.equal(layer(x), layer(x))
    layer.eval()
    assert ng.equal(layer(x), layer(x))


def test_compiled_training_step_is_the_eager_one():
    def trained(whole):
        ng.manual_seed(0)
        net = nn.TransformerEncoderLayer(8, 2, 16, norm_first=True, batch_first=True).double()
        optimizer = ng.optim.SGD(net.parameters(), 0.1)
        mask = ng.tensor(HIDDEN)

        def step(x):
            optimizer.zero_grad()
            loss = net(x, mask, is_causal=True).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        step = whole(step)
        x = ng.randn(2, 5, 8, dtype=ng.double)
        return [step(x).item() for _ in range(3)]

    eager, compiled = trained(lambda step: step), trained(ng.compile)
    np.testing.assert_allclose(compiled, eager, rtol=1e-12)


@pytest.mark.parametrize(
    "call,error,words",
    [
        (lambda: nn.MultiheadAttention(8, 3), ValueError, "divisible"),
        (lambda: nn.MultiheadAttention(0, 1), ValueError, "greater than 0"),
        (lambda: nn.TransformerEncoderLayer(8, 2, activation="tanh"), RuntimeError, "relu/gelu"),
        (lambda: heads()(*[ng.ones(5, 2, 8)] * 3, is_causal=True), RuntimeError, "Need attn_mask"),
        (lambda: heads()(*[ng.ones(2, 5, 2, 8)] * 3), RuntimeError, "2D or batched 3D"),
        (
            lambda: heads()(ng.ones(5, 2, 8), ng.ones(4, 2, 8), ng.ones(3, 2, 8)),
            RuntimeError,
            "does not match value shape",
        ),
        (
            lambda: heads()(*[ng.ones(5, 2, 8)] * 3, attn_mask=ng.ones(4, 5)),
            RuntimeError,
            "should be",
        ),
        (
            lambda: heads()(*[ng.ones(5, 2, 8)] * 3, key_padding_mask=ng.ones(2, 4)),
            RuntimeError,
            "key_padding_mask of size",
        ),
        (
            lambda: heads()(*[ng.ones(5, 2, 8)] * 3, key_padding_mask=ng.ones(5)),
            RuntimeError,
            "expected key_padding_mask",
        ),
        (
            lambda: heads()(*[ng.ones(5, 2, 8)] * 3, attn_mask=ng.ones(5, 5, dtype=ng.long)),
            TypeError,
            "bool and floating",
        ),
    ],
)
def test_mistakes(call, error, words):
    with pytest.raises(error, match=words):
        call()


def heads():
    return nn.MultiheadAttention(8, 2)


def test_gradients_drop_what_forward_dropped():
    arguments = [ng.randn(1, 2, n, 3, dtype=ng.double, requires_grad=True) for n in (3, 5, 5)]

    def dropped(*tensors):
        ng.manual_seed(1)
        return nn.functional.scaled_dot_product_attention(*tensors, dropout_p=0.4)

    whole = nn.functional.scaled_dot_product_attention(*arguments)
    assert not ng.allclose(dropped(*arguments), whole)
    assert ng.autograd.gradcheck(dropped, arguments)
    assert ng.autograd.gradgradcheck(dropped, arguments)


@pytest.mark.parametrize("length", [5, 33, 130, 300])
@pytest.mark.parametrize("causal", [False, True])
def test_huge_scores_have_finite_gradients(length, causal):
    """Scores are computed again for the gradient: what rounding makes of them is no overflow."""
    q, k, v = (ng.randn(1, 2, length, 16).mul_(size).requires_grad_() for size in (1e6, 1e6, 1.0))
    out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    out.sum().backward()
    assert out.isfinite().all()
    assert v.grad.isfinite().all() and v.grad.abs().max() <= 1.001 * length
    assert q.grad.isfinite().all() and k.grad.isfinite().all()
