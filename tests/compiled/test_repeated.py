"""Arguments that are one object: as eagerly, whichever were one object in the calls before."""

from __future__ import annotations

import itertools

import pytest

import numbagrad as ng


def _patterns(count):
    """Which arguments are one object: each way to part ``count`` of them."""
    for places in itertools.product(range(count), repeat=count):
        if all(p <= max([-1, *places[:k]]) + 1 for k, p in enumerate(places)):
            yield places


def _given(places, needs):
    values = [ng.tensor([1.0 + k, -2.0, 0.5 * k], requires_grad=needs) for k in range(len(places))]
    return [values[p] for p in places]


def _identity(a, b, c):
    return a * (1 + 2 * (a is b) + 4 * (b is c) + 8 * (a is c))


def _written(a, b, c):
    a.add_(1)
    b.mul_(c)
    return a + b + c


def _differentiated(a, b, c):
    return ng.autograd.grad((a * b * b + c).sum(), [a, b, c])


def _accumulated(a, b, c):
    (a * b * b * c).sum().backward()
    return a.grad.clone(), b.grad.clone(), c.grad.clone()


def _left(a, b, c):
    return (a * b * b * c).sum()


@pytest.mark.parametrize("function", [_identity, _written, _differentiated, _accumulated, _left])
def test_every_pattern_is_as_eagerly(function):
    compiled = ng.compile(function)
    needs = function not in (_identity, _written)
    for places in [*_patterns(3), *_patterns(3)]:
        found = []
        for run in (function, compiled):
            given = _given(places, needs)
            out = run(*given)
            if function is _left:
                out.backward()
            outs = out if isinstance(out, tuple) else (out,)
            grads = [t.grad for t in given]
            found.append([None if t is None else t.tolist() for t in (*outs, *given, *grads)])
        assert found[0] == found[1], places
    assert compiled.cache_info().recordings <= 5


@pytest.mark.parametrize("repeated", [0, 3])
def test_of_many_arguments_two_are_one(repeated):
    def same(*tensors):
        return tensors[0] * sum(a is b for a, b in itertools.combinations(tensors, 2))

    compiled = ng.compile(same)
    xs = [ng.ones(2) for _ in range(7)]
    assert compiled(*xs).tolist() == [0.0, 0.0]
    assert compiled(*xs[:6], xs[repeated]).tolist() == [1.0, 1.0]
    assert compiled(*xs).tolist() == [0.0, 0.0]
    assert compiled.cache_info().recordings == 2


def test_many_arguments_without_comparisons_need_no_pairs():
    compiled = ng.compile(lambda a, b, c, d, e: a + b + c + d + e)
    xs = [ng.ones(2) for _ in range(5)]
    assert compiled(*xs).tolist() == [5.0, 5.0]
    assert compiled(xs[0], *xs[:4]).tolist() == [5.0, 5.0]


def test_one_object_in_containers_and_results():
    compiled = ng.compile(lambda d: (d["a"] is d["b"], d["a"], d["b"], d["a"] + d["b"]))
    x, y = ng.ones(2), ng.ones(2)
    same, a, b, total = compiled({"a": x, "b": x})
    assert same and a is x and b is x and total.tolist() == [2.0, 2.0]
    same, a, b, _ = compiled({"a": x, "b": y})
    assert not same and a is x and b is y


def test_turning_one_turns_the_other():
    def turned(a, b):
        a.requires_grad_()
        return a * b

    compiled = ng.compile(turned)
    x = ng.full((2,), 3.0)
    compiled(x, x).sum().backward()
    assert x.grad.tolist() == [6.0, 6.0]


@pytest.mark.parametrize("first", ["left", "right"])
def test_arguments_that_overlap(first):
    def shifted(a, b):
        a.mul_(2)
        b.add_(a)
        return a * b

    compiled = ng.compile(shifted)
    for run in (compiled, compiled):
        found = []
        for each in (shifted, run):
            x = ng.arange(5).float()
            parts = (x[:4], x[1:]) if first == "left" else (x[1:], x[:4])
            found.append((each(*parts).tolist(), x.tolist()))
        assert found[0] == found[1]


def test_a_module_that_knows_what_it_was_given():
    class Cached(ng.nn.Module):
        def __init__(self):
            super().__init__()
            self.last = None

        def forward(self, x):
            out = x * 2 if self.last is x else x * 3
            self.last = x
            return out

    x, y = ng.ones(1), ng.ones(1)
    compiled, plain = ng.compile(Cached()), Cached()
    for given in (x, x, y, x, x, y, y):
        assert compiled(given).item() == plain(given).item()
