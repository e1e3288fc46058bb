"""``optim.elementwise``: optimisers from formulas, beside those that numbagrad has."""

import inspect
import math
import pickle

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn, optim
from numbagrad.errors import FormulaError


@optim.elementwise
def MyAdam(
    p, g, exp_avg, exp_avg_sq, step, *, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0
):
    """Adam, as a user writes it."""
    beta1, beta2 = betas
    if weight_decay != 0:
        g = g + weight_decay * p
    exp_avg = beta1 * exp_avg + (1 - beta1) * g
    exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * g * g
    root = math.sqrt(exp_avg_sq) * (1 / math.sqrt(1 - beta2**step)) + eps
    return p - lr / (1 - betas[0] ** step) * exp_avg / root, exp_avg, exp_avg_sq


@optim.elementwise
def Signs(p, g, before=2.0, *, lr, most=math.inf):
    """Every function of a formula that is made of others: sign, max, min, whole quotients."""
    step = max(min(abs(g) * before, most), 0.25)
    return p - lr * np.sign(g) * step - g // 100, math.exp(-abs(g)) + math.tanh(before)


@optim.elementwise
def Plain(p, g, *, lr=0.5):
    return p - lr * g


@optim.elementwise
def Once(p, g, step, *, lr=0.5):
    """Functions of options and the step's number alone, which are computed once for an array."""
    return p - lr**0.5 * math.sqrt(lr) * math.hypot(lr, 0) / (1 + math.sinh(lr / step)) * g


def net(dtype=ng.float32):
    ng.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 3)).to(dtype)


def losses(cls, compiled=False, dtype=ng.float32, steps=8, **options):
    model = net(dtype)
    x, y = ng.randn(16, 6, dtype=dtype), ng.randn(16, 3, dtype=dtype)
    optimizer = cls(model.parameters(), **options)
    schedule = optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    def step(x, y):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    run = ng.compile(step) if compiled else step
    found = []
    for _ in range(steps):
        found.append(run(x, y).item())
        schedule.step()
    return found


@pytest.mark.parametrize("lr", [0.25, 2])
def test_what_is_the_same_for_all_elements_may_be_any_function(lr):
    p, g = ng.randn(50, dtype=ng.float64).requires_grad_(), ng.randn(50, dtype=ng.float64)
    optimizer, expected = Once([p], lr=lr), p.detach().numpy().copy()
    for step in (1, 2):
        p.grad = g
        optimizer.step()
        expected -= lr * lr / (1 + math.sinh(lr / step)) * g.numpy()
    np.testing.assert_allclose(p.detach().numpy(), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1}, {"maximize": True}])
@pytest.mark.parametrize("dtype", [ng.float32, ng.float64], ids=str)
def test_a_formula_gives_what_the_optimiser_of_the_same_name_gives(dtype, options):
    assert losses(MyAdam, dtype=dtype, lr=0.01, **options) == losses(
        optim.Adam, dtype=dtype, lr=0.01, **options
    )


def test_compiled_steps_take_it_in():
    compiled = losses(MyAdam, compiled=True, lr=0.01)
    np.testing.assert_allclose(compiled, losses(MyAdam, lr=0.01), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_and_first_values(dtype):
    given = np.array([-300.0, -1.5, -0.0, 0.0, 0.01, 2.0, 250.0, np.nan], dtype)
    p = ng.tensor(np.linspace(-1, 1, given.size).astype(dtype)).requires_grad_()
    expected, before = p.detach().numpy().astype("float64"), np.full(given.size, 2.0)
    optimizer = Signs([p], lr=0.5, most=3.0)
    for _ in range(2):
        p.grad = ng.tensor(given)
        optimizer.step()
        g = given.astype("float64")
        step = np.maximum(np.minimum(np.abs(g) * before, 3.0), 0.25)
        expected = expected - 0.5 * np.sign(g) * step - np.floor(g / 100)
        before = np.exp(-np.abs(g)) + np.tanh(before)
    rtol = 1e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(p.detach().numpy(), expected, rtol=rtol)
    np.testing.assert_allclose(optimizer.state[p]["before"].numpy(), before, rtol=rtol, atol=1e-37)


def test_it_is_a_whole_optimiser():
    model = net()
    first, second = list(model.parameters())[:2], list(model.parameters())[2:]
    groups = [{"params": first}, {"params": second, "lr": 0.5}]
    optimizer = MyAdam(groups, 0.25, weight_decay=0.1)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.5]
    for param in model.parameters():
        param.grad = ng.ones(param.shape)
    optimizer.step()
    saved = pickle.loads(pickle.dumps(optimizer.state_dict()))
    assert set(saved["state"][0]) == {"step", "exp_avg", "exp_avg_sq"}
    other = MyAdam([{"params": first}, {"params": second}])
    other.load_state_dict(saved)
    assert other.state[first[0]]["step"].item() == 1
    assert other.param_groups[1]["lr"] == 0.5
    assert "lr: 0.25" in repr(optimizer) and repr(optimizer).startswith("MyAdam (")
    assert str(inspect.signature(Plain)) == "(params, *, lr=0.5, maximize=False)"
    assert MyAdam.__doc__ == "Adam, as a user writes it."


def test_a_schedule_moves_one_of_the_betas():
    x = ng.ones(2).requires_grad_()
    optimizer = MyAdam([x], lr=0.1, weight_decay=0.0)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)
    first = optimizer.param_groups[0]["betas"]
    x.grad = ng.ones(2)
    optimizer.step()
    schedule.step()
    assert optimizer.param_groups[0]["betas"][0] < first[0]


def test_no_state_and_no_element():
    empty = ng.ones(0, 3).requires_grad_()
    x = ng.tensor([1.0, 2.0]).requires_grad_()
    x.grad, empty.grad = ng.tensor([2.0, -2.0]), ng.ones(0, 3)
    optimizer = Plain([x, empty])
    optimizer.step()
    assert x.tolist() == [0.0, 3.0] and not optimizer.state[x]


def test_what_is_wrong_is_said():
    x = [ng.ones(2).requires_grad_()]
    with pytest.raises(TypeError, match=r"Signs: missing a required argument: 'lr'.*\(lr, most="):
        Signs(x)
    with pytest.raises(TypeError, match="momentum"):
        Plain(x, momentum=0.9)
    with pytest.raises(TypeError, match="Plain: the option lr is a number, got 'fast'"):
        Plain(x, lr="fast")
    for wrong in (0.9, (0.9,), (0.9, 0.99, 0.999), ("a", "b")):
        with pytest.raises(TypeError, match="the option betas is a tuple of 2 numbers, got"):
            MyAdam(x, betas=wrong)
    with pytest.raises(TypeError, match="Few: an update returns the new parameter and then first"):

        @optim.elementwise
        def Few(p, g, first, *, lr):
            return p - lr * first

    with pytest.raises(TypeError, match="One: an update takes a parameter's element and its grad"):

        @optim.elementwise
        def One(p):
            return p

    with pytest.raises(TypeError, match=r"made with def, got <function .*<lambda>"):
        optim.elementwise(lambda p, g: p - g)

    with pytest.raises(TypeError, match="Twice names something maximize"):

        @optim.elementwise
        def Twice(p, g, *, maximize):
            return p - g

    with pytest.raises(FormulaError, match=r"test_optim_elementwise.py:\d+ has a loop"):

        @optim.elementwise
        def Loop(p, g, *, lr):
            for _ in range(3):
                p = p - lr * g
            return p

    with pytest.raises(FormulaError, match="returns 1 values on one path, 2"):

        @optim.elementwise
        def Either(p, g, first, *, lr):
            if lr > 0:
                return p
            return p, first
