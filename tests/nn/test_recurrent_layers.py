"""Recurrent layers: PyTorch's numbers, names and refusals; cells step by step; compiled steps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.ops import recurrent_layers
from numbagrad.ops.remembered import remembering

LAYERS = {
    "RNN": {},
    "RNN relu": {"nonlinearity": "relu"},
    "LSTM": {},
    "LSTM projected": {"proj_size": 2},
    "GRU": {},
}
FORMS = [
    {},
    {"num_layers": 2, "bidirectional": True},
    {"num_layers": 3, "bias": False, "batch_first": True},
]


def layer_of(library, name, **options):
    return getattr(library.nn, name.split()[0])(3, 4, **LAYERS[name], **options)


def outcome(library, layer, arrays, with_states):
    """Output, last states and gradients of a call."""
    layer.zero_grad()
    x, *states = [library.tensor(a).requires_grad_() for a in arrays]
    pair = isinstance(layer, library.nn.LSTM)
    hx = (tuple(states) if pair else states[0]) if with_states else None
    out, last = layer(x, hx)
    lasts = last if pair else (last,)
    sum([(t * t).sum() for t in (out, *lasts)]).backward()
    grads = [t.grad for t in (x, *states, *layer.parameters()) if t.grad is not None]
    return [t.detach().numpy() for t in (out, *lasts, *grads)]


@pytest.mark.peer
@pytest.mark.parametrize("form", FORMS, ids=["one", "both directions", "deep"])
@pytest.mark.parametrize("name", LAYERS)
def test_layer_is_torchs(name, form):
    torch = pytest.importorskip("torch")
    theirs = layer_of(torch, name, **form).double()
    ours = layer_of(ng, name, **form).double()
    state = theirs.state_dict()
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict({key: ng.tensor(t.numpy()) for key, t in state.items()})
    assert repr(ours) == repr(theirs)
    assert [len(w) for w in ours.all_weights] == [len(w) for w in theirs.all_weights]
    count = form.get("num_layers", 1) * (1 + form.get("bidirectional", False))
    draw = np.random.default_rng(0)
    n = 5 if form.get("batch_first") else 9  # as many rows as two tasks of the kernels take
    for batch, with_states in itertools.product(((n,), ()), (True, False)):
        width = LAYERS[name].get("proj_size", 4)
        shapes = (*((5, 9) if batch else (5,)), 3), (count, *batch, width), (count, *batch, 4)
        arrays = [draw.normal(size=shape) for shape in shapes]
        found = [
            outcome(library, layer, arrays, with_states)
            for library, layer in ((ng, ours), (torch, theirs))
        ]
        for mine, other in zip(*found, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", [name for name in LAYERS if name != "LSTM projected"])
def test_layer_is_its_cell_step_by_step(name):
    ng.manual_seed(0)
    layer = layer_of(ng, name).double()
    cell = getattr(nn, name.split()[0] + "Cell")(3, 4, **LAYERS[name]).double()
    cell.load_state_dict({k.removesuffix("_l0"): v for k, v in layer.state_dict().items()})
    x = ng.randn(6, 2, 3, dtype=ng.double)
    out, last = layer(x)
    state = None
    for t in range(6):
        state = cell(x[t], state)
        h = state[0] if name == "LSTM" else state
        np.testing.assert_allclose(out[t].detach(), h.detach(), rtol=1e-12, atol=1e-14)
    ends = (last, (state,)) if name != "LSTM" else (last, state)
    for mine, other in zip([ends[0]] if name != "LSTM" else ends[0], ends[1], strict=True):
        np.testing.assert_allclose(mine[0].detach(), other.detach(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["RNN", "LSTM", "LSTM projected", "GRU"])
def test_a_compiled_step_trains_as_the_eager_one(name):
    weights = []
    for whole in (lambda step: step, ng.compile):
        ng.manual_seed(0)
        layer, head = layer_of(ng, name), nn.Linear(LAYERS[name].get("proj_size", 4), 2)
        parameters = [*layer.parameters(), *head.parameters()]
        optimizer = ng.optim.SGD(parameters, lr=0.1)

        def step(x, y, layer=layer, head=head, optimizer=optimizer):
            optimizer.zero_grad()
            out, _ = layer(x)
            loss = nn.functional.cross_entropy(head(out).flatten(0, 1), y)
            loss.backward()
            optimizer.step()
            return loss

        run = whole(step)
        for rows in (2, 2, 1):  # another number of rows, and of the same code
            ng.manual_seed(rows)
            run(ng.randn(5, rows, 3), ng.randint(0, 2, (5 * rows,)))
        weights.append([p.detach().numpy().copy() for p in parameters])
    for mine, other in zip(*weights, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-7)


def test_states_that_depend_on_one_another_have_right_second_gradients():
    ng.manual_seed(0)
    layer = nn.LSTM(2, 2).double()
    x = ng.randn(3, 1, 2, dtype=ng.double, requires_grad=True)

    def tied(x):
        h = x[:1] * 2
        return layer(x, (h, h))[0]

    assert ng.autograd.gradcheck(tied, x)
    assert ng.autograd.gradgradcheck(tied, x)


def test_what_is_kept_for_the_gradient_goes_with_it():
    layer = nn.LSTM(3, 4)
    out, _ = layer(ng.randn(5, 2, 3))
    out.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        out.sum().backward()


def test_last_states_have_their_own_memory():
    out, (h, c) = nn.LSTM(3, 4)(ng.randn(5, 2, 3))
    for t in (h, c):
        assert not np.may_share_memory(t.detach().numpy(), out.detach().numpy())


def test_results_do_not_depend_on_threads():
    layer, found, before = nn.GRU(16, 64), [], ng.get_num_threads()
    x = ng.randn(12, 24, 16)
    for threads in {1, before}:
        ng.set_num_threads(threads)
        layer.zero_grad()
        layer(x)[0].sum().backward()
        found.append([p.grad.tolist() for p in layer.parameters()])
    ng.set_num_threads(before)
    assert all(grads == found[0] for grads in found)


def test_dropout_acts_between_layers_while_training():
    layer = nn.LSTM(3, 64, 2, dropout=0.5)
    x = ng.randn(4, 2, 3)
    ng.manual_seed(0)
    first, second = layer(x)[0], layer(x)[0]
    assert not ng.equal(first, second)
    assert ng.equal(layer.eval()(x)[0], layer(x)[0])
    with pytest.warns(UserWarning, match="num_layers greater than 1"):
        nn.GRU(3, 4, dropout=0.5)


def test_an_empty_batch_gives_empty_results_and_zero_gradients():
    layer = nn.GRU(3, 4)
    out, last = layer(ng.ones(5, 0, 3))
    assert out.shape == (5, 0, 4) and last.shape == (1, 0, 4)
    out.sum().backward()
    assert all(not p.grad.any().item() for p in layer.parameters())


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: nn.RNN(3, 4, nonlinearity="sigmoid"), ValueError, "Unknown nonlinearity"),
        (lambda: nn.LSTM(3, 4, dropout=1.5), ValueError, r"dropout should be a number in range"),
        (lambda: nn.LSTM(3, 0), ValueError, "hidden_size must be greater than zero"),
        (lambda: nn.LSTM(3, 4, num_layers=0), ValueError, "num_layers must be greater than zero"),
        (lambda: nn.LSTM(3, 4.5), TypeError, "hidden_size should be of type int"),
        (lambda: nn.LSTM(3, 4, proj_size=4), ValueError, "LSTM: proj_size has to be smaller"),
        (lambda: nn.LSTM(3, 4, proj_size=-1), ValueError, "should be a positive integer or zero"),
        (lambda: nn.LSTM(3, 4, proj_size=2.0), TypeError, "proj_size should be of type int"),
        (lambda: nn.GRU(3, 4, proj_size=2), ValueError, "only supported for LSTM.* Put a Linear"),
        (lambda: nn.GRU(3, 4, bias=1), TypeError, "bias should be of type bool"),
        (lambda: nn.GRU(3, 4)(ng.ones(3)), ValueError, "Expected input to be 2D or 3D, got 1D"),
        (lambda: nn.GRU(3, 4)(ng.ones(0, 2, 3)), RuntimeError, "larger than 0"),
        (lambda: nn.GRU(3, 4)(ng.ones(5, 2, 2)), RuntimeError, r"Expected 3, got 2"),
        (
            lambda: nn.GRU(3, 4)(ng.ones(5, 2, 3), ng.ones(2, 4)),
            RuntimeError,
            "For batched 3-D input, hx should also be 3-D but got 2-D",
        ),
        (
            lambda: nn.GRU(3, 4)(ng.ones(5, 2, 3), ng.ones(1, 3, 4)),
            RuntimeError,
            r"Expected hidden size \(1, 2, 4\), got \[1, 3, 4\]",
        ),
        (
            lambda: nn.LSTM(3, 4)(ng.ones(5, 3), (ng.ones(1, 4), ng.ones(2, 4))),
            RuntimeError,
            r"Expected hidden\[1\] size",
        ),
        (
            lambda: nn.LSTM(3, 4, proj_size=2)(ng.ones(5, 3), (ng.ones(1, 4), ng.ones(1, 4))),
            RuntimeError,
            r"Expected hidden\[0\] size \(1, 1, 2\), got \[1, 1, 4\]",
        ),
        (lambda: nn.LSTM(3, 4)(ng.ones(5, 2, 3), ng.ones(1, 2, 4)), TypeError, "pair of tensors"),
        (lambda: nn.GRU(3, 4)(ng.ones(5, 2, 3).double()), TypeError, "does not match weight dtype"),
        (lambda: nn.GRU(3, 4)([1.0]), TypeError, "must be Tensor"),
    ],
)
def test_mistakes_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_initial_range_and_conversion():
    layer = nn.LSTM(3, 100, 2, dtype=ng.float64)
    for parameter in layer.parameters():
        values = parameter.detach().numpy()
        assert values.dtype == "float64"
        assert 0.09 < np.abs(values).max() <= 0.1 and abs(values.mean()) < 0.02
    layer.flatten_parameters()
    assert layer.float()(ng.ones(2, 1, 3))[0].dtype is ng.float32


@pytest.mark.parametrize("form", FORMS, ids=["one", "both directions", "deep"])
@pytest.mark.parametrize("name", LAYERS)
def test_calls_that_are_remembered_give_the_same(name, form):
    """Forward and backward are launched alone from the sixteenth call on, whatever is used."""
    ng.manual_seed(0)
    layer = layer_of(ng, name, **form)
    x = ng.randn(5, 2, 3, requires_grad=True)
    first: dict[str, list] = {}
    for _ in range(20):
        for used in ("out", "last", "both"):
            layer.zero_grad()
            x.grad = None
            out, last = layer(x)
            last = last[-1] if isinstance(last, tuple) else last
            loss = {"out": (out * out).sum(), "last": (last * last).sum()}
            (loss[used] if used in loss else loss["out"] + loss["last"]).backward()
            found = [out, last, x.grad, *[p.grad for p in layer.parameters()]]
            found = [None if t is None else t.detach().clone() for t in found]
            for mine, other in zip(first.setdefault(used, found), found, strict=True):
                assert mine is other is None or ng.equal(mine, other)
    if remembering():
        op = getattr(recurrent_layers, name.split()[0].capitalize())
        back = getattr(recurrent_layers, f"_{name.split()[0].lower()}_grads")
        assert op._memory.last and back.__globals__["_memory"].last


@pytest.mark.parametrize("name", LAYERS)
def test_no_states_are_zeros(name):
    layer = layer_of(ng, name).double()
    x = ng.randn(5, 2, 3, dtype=ng.double, requires_grad=True)
    h, c = ng.zeros(1, 2, LAYERS[name].get("proj_size", 4)).double(), ng.zeros(1, 2, 4).double()
    hx = (h, c) if isinstance(layer, nn.LSTM) else h
    found = []
    for states in (None, hx):
        layer.zero_grad()
        out, _ = layer(x, states)
        (g,) = ng.autograd.grad((out**3).sum(), x, create_graph=True)
        (g * g).sum().backward()
        found.append([out.detach(), g.detach(), x.grad, *[p.grad for p in layer.parameters()]])
        x.grad = None
    for mine, other in zip(*found, strict=True):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-10, atol=1e-12)


def test_what_is_kept_goes_through_the_hooks_of_saved_tensors():
    kept = []

    def pack(t):
        kept.append(t.shape)
        return t

    layer = nn.LSTM(3, 4)
    with ng.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out, _ = layer(ng.randn(5, 2, 3))
    assert (5, 2, 16) in kept and kept.count((5, 2, 4)) == 2  # gates; cells and output
    out.sum().backward()


def test_a_pair_of_states_is_a_pair():
    layer = nn.LSTM(3, 4)
    with pytest.raises(ValueError, match=r"lstm: expected two hidden states, \(h, c\), but got 1"):
        ng.lstm(
            ng.randn(5, 2, 3), [ng.zeros(1, 2, 4)], layer.all_weights[0], True, 1, 0.0, *[False] * 3
        )


def test_second_gradients_of_a_projection_alone():
    """Of one step c does not depend on it."""
    layer = nn.LSTM(3, 4, proj_size=2)
    for name, p in layer.named_parameters():
        p.requires_grad_(name.startswith("weight_hr"))
    _, (h, c) = layer(ng.randn(1, 2, 3))
    (g,) = ng.autograd.grad((c**2).sum() + (h**2).sum(), layer.weight_hr_l0, create_graph=True)
    (second,) = ng.autograd.grad(g.sum(), layer.weight_hr_l0)
    assert g.shape == second.shape == (2, 4)
