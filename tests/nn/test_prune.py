"""nn.utils.prune: masks, names and gradients are PyTorch's; what is pruned stays so."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.nn.utils import prune

WEIGHT = np.random.default_rng(1).standard_normal((4, 3, 2, 2)).astype("float32")
MASK = (np.arange(48).reshape(WEIGHT.shape) % 3 > 0).astype("float32")
SCORES = -np.abs(WEIGHT)

HOW = {
    "l1 part": lambda lib, p, m: p.l1_unstructured(m, "weight", 0.3),
    "l1 count": lambda lib, p, m: p.l1_unstructured(m, "weight", 7),
    "l1 scores": lambda lib, p, m: p.l1_unstructured(m, "weight", 7, lib.tensor(SCORES)),
    "l2 slices": lambda lib, p, m: p.ln_structured(m, "weight", 0.5, 2, 0),
    "l1 slices, last": lambda lib, p, m: p.ln_structured(m, "weight", 1, n=1, dim=-1),
    "mask": lambda lib, p, m: p.custom_from_mask(m, "weight", lib.tensor(MASK)),
    "nothing": lambda lib, p, m: p.identity(m, "weight"),
    "none": lambda lib, p, m: p.l1_unstructured(m, "weight", 0),
}


def layer(lib):
    made = lib.nn.Conv2d(3, 4, 2)
    made.weight.data.copy_(lib.tensor(WEIGHT))
    made.bias.data.copy_(lib.tensor([1.0, -0.5, 0.25, 2.0]))
    return made


def pair():
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch.nn.utils.prune")
    return [(lib, lib.nn.utils.prune, layer(lib)) for lib in (ng, torch)]


def compared(found):
    (_, _, mine), (_, _, his) = found
    ours, theirs = mine.state_dict(), his.state_dict()
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name].numpy(), value.numpy())
    np.testing.assert_array_equal(mine.weight.detach().numpy(), his.weight.detach().numpy())


@pytest.mark.parametrize("second", ["l1 part", "l2 slices", "mask"])
@pytest.mark.parametrize("first", HOW)
def test_masks_are_torchs(first, second):
    found = pair()
    for step in (first, second):
        for lib, p, module in found:
            assert HOW[step](lib, p, module) is module and p.is_pruned(module)
        compared(found)
    for _, p, module in found:
        p.remove(module, "weight")
        assert not p.is_pruned(module)
    compared(found)


def test_all_together_and_again():
    found = pair()
    for amount in (0.5, 5):
        for _, p, module in found:
            both = [(module, "weight"), (module, "bias")]
            p.global_unstructured(both, pruning_method=p.L1Unstructured, amount=amount)
        compared(found)
    scores = {lib: {(m, "bias"): lib.tensor([9.0, 9.0, 9.0, 0.0])} for lib, _, m in found}
    for lib, p, module in found:
        both = [(module, "weight"), (module, "bias")]
        p.global_unstructured(both, p.L1Unstructured, scores[lib], amount=0.1)
    compared(found)


def test_random_ones_are_as_many():
    module = prune.random_unstructured(layer(ng), "weight", 0.25)
    prune.random_structured(module, "weight", 2, 0)
    empty = module.weight_mask.sum((1, 2, 3)).eq(0)
    assert module.weight.eq(0).sum().item() >= 24 and empty.sum().item() == 2
    assert isinstance(module._pruning["weight"], prune.PruningContainer)
    assert [type(m).__name__ for m in module._pruning["weight"]] == [
        "RandomUnstructured",
        "RandomStructured",
    ]


@pytest.mark.parametrize("wrap", [lambda f: f, ng.compile], ids=["eager", "compiled"])
def test_training_leaves_zeros_where_they_are(wrap):
    module = prune.l1_unstructured(nn.Linear(4, 3), "weight", 0.5)
    held, mask = module.weight_orig, module.weight_mask.clone()
    optimizer = ng.optim.SGD(module.parameters(), 0.1)
    x = ng.randn(5, 4)

    @wrap
    def step(x):
        optimizer.zero_grad()
        module(x).square().sum().backward()
        optimizer.step()

    before = module.weight.detach().clone()
    for _ in range(2):
        step(x)
    assert module.weight.eq(0).equal(mask.eq(0)) and not module.weight.equal(before)
    assert held.grad[mask.eq(0)].eq(0).all()
    prune.remove(module, "weight")
    assert module.weight is held and held.eq(0).equal(mask.eq(0))


def test_copies_are_pruned_on_their_own():
    module = prune.l1_unstructured(nn.Linear(4, 3), "weight", 0.5)
    other = copy.deepcopy(module)
    prune.l1_unstructured(other, "weight", 0.5)
    assert module.weight.ne(0).sum().item() == 6 and other.weight.ne(0).sum().item() == 3
    prune.remove(other, "weight")
    assert prune.is_pruned(nn.Sequential(module)) and not prune.is_pruned(other)


class EveryOther(prune.BasePruningMethod):
    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        mask = default_mask.clone()
        mask.view(-1)[::2] = 0
        return mask


def test_a_method_of_ones_own():
    module = nn.Linear(4, 1)
    EveryOther.apply(module, "weight")
    assert module.weight_mask.tolist() == [[0.0, 1.0, 0.0, 1.0]]
    EveryOther.apply(module, "weight")
    assert module.weight_mask.tolist() == [[0.0, 0.0, 0.0, 1.0]]
    assert prune.L1Unstructured(1).prune(ng.tensor([3.0, -1.0, 2.0])).tolist() == [3.0, 0.0, 2.0]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda m: prune.l1_unstructured(m, "weight", 1.5), ValueError, r"range \[0, 1\]"),
        (lambda m: prune.l1_unstructured(m, "weight", -1), ValueError, "an int from 0 on"),
        (lambda m: prune.l1_unstructured(m, "weight", "all"), TypeError, "Invalid type"),
        (lambda m: prune.l1_unstructured(m, "weight", 99), ValueError, "more than the"),
        (lambda m: prune.l1_unstructured(m, "wait", 1), AttributeError, "no parameter 'wait'"),
        (lambda m: prune.ln_structured(m, "bias", 1, 2, 0), ValueError, "two and more dimensions"),
        (lambda m: prune.ln_structured(m, "weight", 1, 2, 4), IndexError, "Invalid index 4"),
        (lambda m: prune.custom_from_mask(m, "weight", ng.ones(2)), ValueError, "shape"),
        (lambda m: prune.remove(m, "weight"), ValueError, "is not pruned"),
        (
            lambda m: prune.global_unstructured([(m, "weight")], prune.RandomStructured, amount=1),
            TypeError,
            "must be of type 'unstructured'",
        ),
    ],
)
def test_mistakes_change_nothing(call, error, words):
    module = layer(ng)
    held = module.weight
    with pytest.raises(error, match=words):
        call(module)
    assert module.weight is held and list(module.state_dict()) == ["weight", "bias"]


def test_what_is_pruned_is_not_assigned_to():
    module = prune.identity(nn.Linear(2, 2), "weight")
    with pytest.raises(AttributeError, match="weight is weight_orig times weight_mask"):
        module.weight = ng.ones(2, 2)
