"""Sequences of different lengths: packing, padding, and recurrent layers over what is packed."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.autograd import gradcheck, gradgradcheck
from numbagrad.errors import RecordingError
from numbagrad.nn.utils import rnn

LAYERS = {
    "RNN": {},
    "RNN relu": {"nonlinearity": "relu"},
    "LSTM": {},
    "LSTM projected": {"proj_size": 2},
    "GRU": {},
}
FORMS = {
    "one": {},
    "both directions": {"num_layers": 2, "bidirectional": True},
    "deep": {"num_layers": 3, "bias": False, "batch_first": True},
}
LENGTHS = [3, 7, 1, 7, 2, 3, 1, 5, 3, 2, 1]  # more rows than one task of the kernels takes


def layer_of(library, name, form, features=3, size=4):
    return getattr(library.nn, name.split()[0])(features, size, **LAYERS[name], **FORMS[form])


def states_of(layer, n, draw):
    count = layer.num_layers * (1 + layer.bidirectional)
    widths = [layer.proj_size or layer.hidden_size, layer.hidden_size]
    return [draw.standard_normal((count, n, w)) for w in widths[: 1 + (layer.mode == "LSTM")]]


def run(layer, given, states):
    pair = layer.mode == "LSTM"
    out, last = layer(given, (tuple(states) if pair else states[0]) if states else None)
    return out, list(last) if pair else [last]


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("form", FORMS)
def test_a_packed_sequence_is_as_if_it_were_alone(name, form):
    ng.manual_seed(0)
    layer, draw = layer_of(ng, name, form).double(), np.random.default_rng(0)
    sequences = [ng.tensor(draw.standard_normal((k, 3))).requires_grad_() for k in LENGTHS]
    states = [ng.tensor(s).requires_grad_() for s in states_of(layer, len(LENGTHS), draw)]
    inputs = [*sequences, *states, *layer.parameters()]
    out, last = run(layer, rnn.pack_sequence(sequences, enforce_sorted=False), states)
    outs = rnn.unpack_sequence(out)
    loss = sum([(t * t).sum() for t in (*outs, *last)])
    grads = ng.autograd.grad(loss, inputs)
    loss = 0
    for i, sequence in enumerate(sequences):
        x = sequence.unsqueeze(0 if layer.batch_first else 1)
        alone, ends = run(layer, x, [s[:, i : i + 1] for s in states])
        np.testing.assert_allclose(
            outs[i].detach(), alone.reshape(len(sequence), -1).detach(), atol=1e-12
        )
        for mine, theirs in zip(last, ends, strict=True):
            np.testing.assert_allclose(mine[:, i].detach(), theirs[:, 0].detach(), atol=1e-12)
        loss = loss + sum([(t * t).sum() for t in (alone, *ends)])
    for mine, theirs in zip(grads, ng.autograd.grad(loss, inputs), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-10)


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_what_is_packed(name):
    ng.manual_seed(1)
    layer = layer_of(ng, name, "one", 2, 3).double()
    wide = getattr(ng.nn, name.split()[0])(2, 3, bidirectional=True, **LAYERS[name]).double()
    for each in (layer, wide) if name == "LSTM" else (wide,):
        data = ng.randn(6, 2, dtype=ng.float64).requires_grad_()
        weights = [p.detach().requires_grad_() for p in each.parameters()]
        names = [n for n, _ in each.named_parameters()]

        def call(data, *weights, each=each, names=names):
            packed = rnn.PackedSequence(data, ng.tensor([3, 2, 1]))
            out, last = nn.utils.stateless.functional_call(
                each, dict(zip(names, weights, strict=True)), (packed,)
            )
            return (out.data, *(last if each.mode == "LSTM" else (last,)))

        assert gradcheck(call, (data, *weights))
        assert gradgradcheck(call, (data, *weights))


@pytest.mark.peer
@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LAYERS)
def test_packed_layers_are_torchs(name, form, enforce_sorted):
    torch = pytest.importorskip("torch")
    theirs, ours = (layer_of(lib, name, form).double() for lib in (torch, ng))
    ours.load_state_dict({k: ng.tensor(t.numpy()) for k, t in theirs.state_dict().items()})
    draw = np.random.default_rng(0)
    lengths = sorted(LENGTHS)[::-1] if enforce_sorted else LENGTHS
    first = ours.batch_first
    x = draw.standard_normal((len(lengths), 7, 3) if first else (7, len(lengths), 3))
    arrays, found = [x, *states_of(ours, len(lengths), draw)], []
    for library, layer in ((torch, theirs), (ng, ours)):
        utils = library.nn.utils.rnn
        inputs = [library.tensor(a).requires_grad_() for a in arrays]
        packed = utils.pack_padded_sequence(inputs[0], lengths, first, enforce_sorted)
        out, last = run(layer, packed, inputs[1:])
        padded, sizes = utils.pad_packed_sequence(out, first, -2.0, 9)
        sum([(t * t).sum() for t in (padded, *last)]).backward()
        grads = [t.grad for t in (*inputs, *layer.parameters())]
        found.append([t.detach().numpy() for t in (padded, sizes, *last, out.batch_sizes, *grads)])
    for expected, got in zip(*found, strict=True):
        assert got.shape == expected.shape and got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, atol=1e-10)


def test_padding_and_packing_undo_each_other():
    draw = np.random.default_rng(0)
    sequences = [ng.tensor(draw.standard_normal((k, 2, 3))) for k in LENGTHS]
    packed = rnn.pack_sequence(sequences, enforce_sorted=False)
    assert packed.batch_sizes.tolist() == [11, 8, 6, 3, 3, 2, 2]
    assert packed.sorted_indices[:2].tolist() == [1, 3]
    for first in (False, True):
        padded = rnn.pad_sequence(sequences, first, 0.5)
        assert padded.shape == ((11, 7, 2, 3) if first else (7, 11, 2, 3))
        assert padded.sum().item() == pytest.approx(
            sum(x.sum().item() for x in sequences) + 0.5 * 6 * (77 - sum(LENGTHS))
        )
        again, lengths = rnn.pad_packed_sequence(packed, first, 0.5)
        assert np.array_equal(again, padded) and lengths.tolist() == LENGTHS
        assert lengths.dtype is ng.int64
        other = rnn.pack_padded_sequence(padded, lengths, first, enforce_sorted=False)
        assert np.array_equal(other.data, packed.data)
        for x, y in zip(rnn.unpad_sequence(padded, LENGTHS, first), sequences, strict=True):
            assert np.array_equal(x, y)
    for x, y in zip(rnn.unpack_sequence(packed), sequences, strict=True):
        assert np.array_equal(x, y)
    longer, _ = rnn.pad_packed_sequence(packed, total_length=9)
    assert longer.shape[0] == 9 and not longer[7:].any()
    left = rnn.pad_sequence([ng.tensor([1, 2]), ng.tensor([3])], True, padding_side="left")
    assert left.tolist() == [[1, 2], [0, 3]]
    assert rnn.pad_sequence([ng.zeros(0, 2), ng.ones(1, 2)]).shape == (1, 2, 2)


def test_gradients_of_padding_and_packing():
    draw = np.random.default_rng(0)
    sequences = [ng.tensor(draw.standard_normal((k, 2))).requires_grad_() for k in (2, 3, 1)]

    def padded(*sequences):
        return rnn.pad_sequence(sequences)

    def packed(*sequences):
        return rnn.pack_sequence(sequences, enforce_sorted=False).data

    def around(x):
        return rnn.pad_packed_sequence(rnn.pack_padded_sequence(x, [3, 2], True), True)[0]

    for call in (padded, packed):
        assert gradcheck(call, sequences) and gradgradcheck(call, sequences)
    x = ng.tensor(draw.standard_normal((2, 3, 2))).requires_grad_()
    assert gradcheck(around, (x,)) and gradgradcheck(around, (x,))


def test_a_packed_sequence_converts():
    packed = rnn.pack_sequence([ng.ones(3, 2), ng.ones(1, 2)], enforce_sorted=False)
    assert isinstance(packed, rnn.PackedSequence) and not packed.is_cuda
    for changed in (packed.double(), packed.to(ng.float64)):
        assert changed.data.dtype is ng.float64 and changed.sorted_indices.dtype is ng.int64
    assert packed.half().data.dtype is ng.float16
    for name in ("long", "int", "short", "byte"):
        assert getattr(packed, name)().data.dtype is getattr(packed.data, name)().dtype
    assert packed.char().data.dtype is ng.int8
    mixed = [ng.tensor([1, 2]), ng.tensor([3.5])]
    assert rnn.pad_sequence(mixed).dtype is rnn.pack_sequence(mixed).data.dtype is ng.int64
    data, sizes, into, back = packed.cpu()
    assert data.shape == (4, 2) and sizes.tolist() == [2, 1, 1]
    assert into.tolist() == back.tolist() == [0, 1]
    made = rnn.PackedSequence(data, sizes, ng.tensor([1, 0]))
    assert made.unsorted_indices.tolist() == [1, 0]
    assert rnn.invert_permutation(None) is None


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_results_do_not_depend_on_threads(name):
    ng.manual_seed(0)
    layer = getattr(nn, name)(32, 64)
    x, found = ng.randn(20, 64, 32), []
    packed = rnn.pack_padded_sequence(x, [20] * 20 + [13] * 30 + [1] * 14)
    for threads in (1, 2):
        before = ng.get_num_threads()
        ng.set_num_threads(min(threads, before))
        layer.zero_grad()
        out, _ = layer(packed)
        (out.data * out.data).sum().backward()
        found.append([out.data.detach().numpy(), *[p.grad.numpy() for p in layer.parameters()]])
        ng.set_num_threads(before)
    for one, two in zip(*found, strict=True):
        assert np.array_equal(one, two)


def test_a_compiled_step_packs():
    ng.manual_seed(0)
    embed, layer = nn.Embedding(7, 4), nn.LSTM(4, 5, batch_first=True)
    words = ng.randint(0, 7, (3, 6))
    lengths = [6, 2, 4]

    def step(words):
        for p in (*embed.parameters(), *layer.parameters()):
            p.grad = None
        packed = rnn.pack_padded_sequence(embed(words), lengths, True, enforce_sorted=False)
        out, (h, _) = layer(packed)
        padded, _ = rnn.pad_packed_sequence(out, True)
        loss = (padded * padded).sum() + h.sum()
        loss.backward()
        return loss

    compiled = ng.compile(step)
    for _ in range(2):
        mine = compiled(words).item(), [p.grad.numpy().copy() for p in layer.parameters()]
        theirs = step(words).item(), [p.grad.numpy() for p in layer.parameters()]
        assert mine[0] == pytest.approx(theirs[0], rel=1e-5)
        for a, b in zip(mine[1], theirs[1], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_a_compiled_function_wants_lengths_as_numbers():
    layer, x = nn.GRU(4, 3), ng.ones(3, 2, 4)
    packed = ng.compile(lambda x, lengths: layer(rnn.pack_padded_sequence(x, lengths))[1])
    for lengths in ([3, 1], [2, 2], [3, 1]):
        expected = layer(rnn.pack_padded_sequence(x, lengths))[1].detach()
        np.testing.assert_allclose(packed(x, lengths).detach(), expected, rtol=1e-5)
    with pytest.raises(RecordingError, match=r"list of ints.*lengths\.tolist\(\)"):
        packed(x, ng.tensor([3, 1]))
    with pytest.raises(RecordingError, match="pack them inside"):
        ng.compile(layer)(rnn.pack_padded_sequence(x, [3, 1]))


X = ng.ones(3, 2, 4)
PACKED = rnn.pack_padded_sequence(X, [3, 1])
MISTAKES = [
    (lambda: rnn.pack_padded_sequence(X, [1, 3]), ValueError, "sorted in decreasing order.*1, 3"),
    (lambda: rnn.pack_padded_sequence(X, [3]), RuntimeError, r"got 1 \(batch_size=2\)"),
    (lambda: rnn.pack_padded_sequence(X, [3, 0]), ValueError, "from 1 to 3.*found 0"),
    (lambda: rnn.pack_padded_sequence(X, [4, 1]), ValueError, "found 4 in 'lengths'"),
    (lambda: rnn.pack_padded_sequence(X, ng.tensor([3.0, 1.0])), RuntimeError, r"\.long\(\)"),
    (lambda: rnn.pack_padded_sequence(ng.ones(3), [3]), RuntimeError, "at least 2 dims, got 1"),
    (lambda: rnn.pack_padded_sequence(ng.ones(3, 0, 4), []), RuntimeError, "empty tensors"),
    (lambda: rnn.pack_sequence([]), ValueError, "pack_sequence: received an empty list"),
    (lambda: rnn.pack_sequence([X[0, 0], X[0]]), RuntimeError, "all dims but the first"),
    (lambda: rnn.pack_sequence([ng.ones(0, 2)]), ValueError, "greater than 0"),
    (lambda: rnn.pad_sequence([]), ValueError, "pad_sequence: received an empty list"),
    (lambda: rnn.pad_sequence(3), TypeError, "Expected iterable.*int"),
    (lambda: rnn.pad_sequence([X], padding_side="up"), ValueError, "'left' or 'right', got 'up'"),
    (lambda: rnn.pad_packed_sequence(PACKED, total_length=2), ValueError, "total_length=2 and max"),
    (lambda: rnn.unpad_sequence(X, [1, 4]), ValueError, "from 0 to 3.*found 4"),
    (lambda: rnn.PackedSequence(X, ng.tensor([1.0])), RuntimeError, "batch_sizes must be int64"),
    (lambda: rnn.PackedSequence(X, ng.tensor([[1]])), RuntimeError, "must have one dimension"),
    (
        lambda: nn.GRU(4, 3)(rnn.PackedSequence(X[:, 0], ng.tensor([1, 2]))),
        RuntimeError,
        r"batch_sizes \[1, 2\] must be positive, never grow",
    ),
    (
        lambda: nn.GRU(4, 3)(rnn.PackedSequence(X[:, 0], ng.tensor([2, 2]))),
        RuntimeError,
        "add up to the 3 rows",
    ),
    (lambda: nn.LSTM(4, 3)(PACKED._replace(data=X)), RuntimeError, "2D, packed, got 3D"),
    (lambda: nn.GRU(4, 3)(PACKED, ng.ones(1, 3, 3)), RuntimeError, "Expected hidden size"),
]


@pytest.mark.parametrize(("call", "error", "words"), MISTAKES)
def test_mistakes_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()
