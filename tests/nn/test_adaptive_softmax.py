"""AdaptiveLogSoftmaxWithLoss: its chances, its loss, what it predicts, what it refuses."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn

TARGETS = [0, 5, 2, 9, 3, 1, 4]


def made(**options):
    ng.manual_seed(3)
    return nn.AdaptiveLogSoftmaxWithLoss(8, 10, [2, 5], div_value=2.0, **options).double()


def rows(count=7):
    return ng.tensor(np.random.default_rng(0).standard_normal((count, 8)))


def log_softmax(x):
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def by_hand(module, x):
    """Log-chances of all classes, in NumPy."""
    weights = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    head = log_softmax(x @ weights["head.weight"].T + weights.get("head.bias", 0))
    parts = [head[:, :2]]
    for i in range(2):
        inner = x @ weights[f"tail.{i}.0.weight"].T @ weights[f"tail.{i}.1.weight"].T
        parts.append(log_softmax(inner) + head[:, 2 + i : 3 + i])
    return np.concatenate(parts, 1)


@pytest.mark.parametrize("bias", [False, True])
def test_chances_loss_and_prediction(bias):
    module, x = made(head_bias=bias), rows()
    chances = by_hand(module, x.numpy())
    np.testing.assert_allclose(np.exp(chances).sum(1), 1)
    np.testing.assert_allclose(module.log_prob(x).detach(), chances, rtol=1e-12)
    assert module.predict(x).tolist() == chances.argmax(1).tolist()
    picked = chances[np.arange(len(TARGETS)), TARGETS]
    output, loss = module(x, ng.tensor(TARGETS))
    np.testing.assert_allclose(output.detach(), picked, rtol=1e-12)
    assert loss.item() == pytest.approx(-picked.mean())
    single = module(x[1], ng.tensor(TARGETS[1]))
    assert single.output.shape == () and single.output.item() == pytest.approx(picked[1])
    assert single.loss.item() == pytest.approx(-picked[1])


@pytest.mark.parametrize("scale", [0.0, 50.0, -50.0])
def test_prediction_from_the_head_the_clusters_and_both(scale):
    module, x = made(head_bias=True), rows(20)
    with ng.no_grad():
        module.head.bias[2:] = scale
    chances = by_hand(module, x.numpy())
    assert module.predict(x).tolist() == chances.argmax(1).tolist()


def test_compiled_is_the_same():
    module, x, target = made(), rows(), ng.tensor(TARGETS)

    def step(x, target):
        output, loss = module(x, target)
        return output, loss, *ng.autograd.grad(loss, list(module.parameters()))

    run = ng.compile(step)
    for _ in range(2):
        for a, b in zip(run(x, target), step(x, target), strict=True):
            np.testing.assert_allclose(a.detach(), b.detach(), rtol=1e-11, atol=1e-14)
    assert ng.compile(module.predict)(x).tolist() == module.predict(x).tolist()
    for bad in (-1, 10):
        with pytest.raises(IndexError, match=r"AdaptiveLogSoftmaxWithLoss: index .* out of bounds"):
            run(x, target.clone().index_fill(0, ng.tensor([3]), bad))


def test_gradients_of_any_order():
    module, target = made(), ng.tensor(TARGETS)
    x = rows().requires_grad_()
    assert ng.autograd.gradcheck(lambda x: module(x, target).output, x)
    assert ng.autograd.gradgradcheck(lambda x: module(x, target).loss, x)
    assert ng.autograd.gradgradcheck(module.log_prob, rows(2).requires_grad_())


def test_a_cluster_that_no_target_has_is_not_computed():
    module = made()
    module(rows(2), ng.tensor([0, 3])).loss.backward()
    assert module.tail[0][0].weight.grad is not None and module.tail[1][0].weight.grad is None


@pytest.mark.peer
def test_it_is_torchs():
    torch = pytest.importorskip("torch")
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(8, 10, [2, 5], 2.0, True).double()
    ours = made(head_bias=True)
    assert repr(ours) == repr(theirs) and list(ours.state_dict()) == list(theirs.state_dict())
    state = theirs.state_dict().items()
    ours.load_state_dict({name: ng.tensor(tensor.numpy()) for name, tensor in state})
    array, found = rows().numpy(), []
    for library, module in ((torch, theirs), (ng, ours)):
        x = library.tensor(array).requires_grad_()
        output, loss = module(x, library.tensor(TARGETS))
        (loss + (output * output).sum()).backward()
        results = [output, loss, module.log_prob(x), module.predict(x), x.grad]
        results += [parameter.grad for parameter in module.parameters()]
        found.append([tensor.detach().numpy() for tensor in results])
        found[-1].append(np.array([module.head_size, module.n_clusters, *module.cutoffs]))
    for other, mine in zip(*found, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-12)


def test_empty_batch():
    module = made()
    x = ng.zeros(0, 8, dtype=ng.float64)
    output, loss = module(x, ng.zeros(0, dtype=ng.int64))
    assert output.shape == (0,) and bool(loss.isnan())
    assert module.log_prob(x).shape == (0, 10) and module.predict(x).shape == (0,)


def test_it_copies_and_pickles_and_starts_anew():
    module, x = made(), rows()
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert ng.equal(twin.log_prob(x), module.log_prob(x))
    before = module.tail[0][1].weight.detach().clone()
    module.reset_parameters()
    assert not ng.equal(module.tail[0][1].weight, before)


def test_what_is_refused():
    for cutoffs in ([2, 2], [5, 2], [0, 3], [2, 10], [2.5], [-1, 3]):
        with pytest.raises(ValueError, match=r"unique, positive .* n_classes-1 = 9, got \["):
            nn.AdaptiveLogSoftmaxWithLoss(8, 10, cutoffs)
    with pytest.raises(ValueError, match="AdaptiveLogSoftmaxWithLoss: cutoffs should be a seq"):
        nn.AdaptiveLogSoftmaxWithLoss(8, 10, [])
    module, x = made(), rows(3)
    for given, target, words in (
        (x, ng.tensor([[0, 1, 2]]), "multi-target not supported"),
        (x, ng.tensor([0, 1]), "same size in the batch dimension"),
        (x, ng.tensor(0), r"0D target tensor expects 1D .* size \[3, 8\]"),
        (x[0], ng.tensor([0]), "1D target tensor expects 2D"),
    ):
        with pytest.raises(RuntimeError, match=f"AdaptiveLogSoftmaxWithLoss: .*{words}"):
            module(given, target)
    for bad in ([0, 1, 10], [-1, 0, 10]):
        with pytest.raises(IndexError, match=rf"\[0, 9\], but values in range \[{bad[0]}, 10\]"):
            module(x, ng.tensor(bad))
    with pytest.raises(TypeError, match="AdaptiveLogSoftmaxWithLoss: Expected dtype int64"):
        module(x, ng.zeros(3))
