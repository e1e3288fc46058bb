"""A tensor that comes as an argument and that the function also knows by itself."""

import pytest

import numbagrad as ng


def leaf(*values):
    return ng.tensor(list(values), requires_grad=True)


def returned_gradient(compiled):
    x, y = leaf(1.0, 2.0), leaf(5.0, 2.0)

    @compiled
    def step(a):
        x.grad = None
        (a * a).sum().backward()
        return x.grad

    yield step(x).tolist()
    yield step(x).tolist()
    yield step(y), y.grad.tolist(), x.grad
    yield step(x).tolist(), x.grad.tolist()
    yield step(y), y.grad.tolist()


def added_gradient(compiled):
    x = leaf(1.0, 2.0)

    @compiled
    def step(a):
        (a * 3).sum().backward()
        return x.grad

    yield step(x).tolist()
    yield step(x).tolist(), x.grad.tolist()


def read_gradient(compiled):
    x = leaf(1.0, 2.0)

    @compiled
    def read(a):
        return (a * 2).sum() if x.grad is None else (a * x.grad).sum()

    yield read(x).item()
    x.grad = ng.tensor([3.0, 4.0])
    yield read(x).item()
    x.grad = ng.tensor([5.0, 4.0])
    yield read(x).item()


def parameter(compiled):
    weight = leaf(1.0, 2.0)
    optimizer = ng.optim.SGD([weight], lr=0.25)

    @compiled
    def step(a):
        optimizer.zero_grad()
        loss = (a * a).sum()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        yield step(weight).item(), weight.tolist(), weight.grad.tolist()


@pytest.mark.parametrize("program", [returned_gradient, added_gradient, read_gradient, parameter])
def test_it_is_one_tensor(program):
    assert list(program(ng.compile)) == list(program(lambda function: function))


def test_others_are_not_recorded_again():
    x = leaf(1.0, 2.0)

    @ng.compile
    def step(a):
        x.grad = None
        (a * x).sum().backward()
        return x.grad

    for k in range(5):
        assert step(leaf(k, 1.0)).tolist() == [k, 1.0]
    assert step.cache_info().recordings == 1


def test_windows_that_overlap_are_not_written():
    def function(x):
        y = x * 1.0
        y.unfold(0, 3, 1).add_(1.0)
        return y

    with pytest.raises(ng.errors.RecordingError, match="refers to a single memory location"):
        ng.compile(function)(ng.ones(5))
