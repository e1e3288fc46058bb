"""``fastmath``: other orders of the same sums, with common factors taken out."""

from __future__ import annotations

import copy
import math
import random

import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.compiled.factor import _WRITTEN, _in_loop
from numbagrad.compiled.program import Line, Loop, Operand, Store, Value
from numbagrad.kernels.expr import Expr, add, constant, mul, neg, sub, symbol

from .made import Maker, whole


def chain(x):
    y = x
    for k in range(6):
        y = y * x + (0.5 - 0.25 * k)
    return y


def both(x, g):
    y = chain(x)
    return y.detach(), ng.autograd.grad(y, x, g)[0]


def operations(function):
    """How often a program multiplies or adds."""
    body = str(function.program)
    return sum(body.count(sign) for sign in (" * ", " + ", " - "))


@pytest.mark.parametrize("dtype", [ng.float32, ng.float64])
def test_the_same_numbers_from_fewer_operations(dtype):
    x = ng.rand(1003, dtype=dtype, requires_grad=True)
    g = ng.rand(1003, dtype=dtype)
    written, reordered = ng.compile(both), ng.compile(both, fastmath=True)
    for found in (written(x, g), reordered(x, g)):
        for a, b in zip(found, both(x, g), strict=True):
            within = 20 * ng.finfo(dtype).eps  # numbers of about 1 that cancel
            assert ng.allclose(a, b, rtol=within, atol=within)
    assert operations(reordered) <= operations(written) == 22  # one by one 28


def polynomial(x, y):
    return x * y + x * y * y + x * x * y


def test_what_is_written_keeps_its_order():
    x, y = ng.rand(1003), ng.rand(1003)
    exact, reordered = ng.compile(polynomial), ng.compile(polynomial, fastmath=True)
    assert ng.allclose(exact(x, y), reordered(x, y))
    assert operations(reordered) < operations(exact) == 6

    def with_gradient(x, y):
        out = polynomial(x, y)
        return out.detach(), ng.autograd.grad(out, x, y.detach())[0]

    x.requires_grad_()
    assert ng.equal(ng.compile(with_gradient)(x, y)[0], exact(x.detach(), y))


def test_parts_of_a_formulas_gradient():
    """Derived from a scalar formula: its parts are added in no order that anybody wrote."""

    @ng.elementwise
    def cubic(x, a):
        return ((a * x + a) * x + a) * x

    x = ng.rand(100, dtype=ng.double, requires_grad=True)
    a = ng.rand(100, dtype=ng.double)
    step = ng.compile(lambda x, a: ng.autograd.grad(cubic(x, a).sum(), x)[0])
    assert ng.allclose(step(x, a), ng.autograd.grad(cubic(x, a).sum(), x)[0], rtol=1e-14)
    assert ng.allclose(step(x, a), a * (3 * x * x + 2 * x + 1), rtol=1e-14)


def test_code_of_the_two_is_not_mixed_up():
    """Both have the text of the plain form here: nothing can be factored out."""

    def total(x, y):
        return ((x + y) - x) - y

    x, y = ng.full((100,), 1e8), ng.full((100,), 3.0)
    reordered = ng.compile(total, fastmath=True)
    written = ng.compile(total)
    for _ in range(2):
        assert reordered(x, y).tolist() == [0.0] * 100
        assert written(x, y).tolist() == total(x, y).tolist() != [0.0] * 100


def test_nan_and_infinities_stay():
    x = ng.tensor([math.inf, -math.inf, math.nan, 0.0, 1.0])

    def f(x):
        return x * x + x * 2.0 + ng.where(ng.isnan(x), ng.zeros(5), x), ng.isinf(x * x)

    for a, b in zip(ng.compile(f, fastmath=True)(x), f(x), strict=True):
        assert ng.equal(ng.nan_to_num(a), ng.nan_to_num(b))
        assert ng.equal(a != a, b != b)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_training_step(threads):
    before = ng.get_num_threads()
    ng.set_num_threads(threads)
    try:
        ng.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 16), nn.GELU(approximate="tanh"), nn.Linear(16, 3))
        x, labels = ng.randn(32, 5), ng.randint(0, 3, (32,))
        found = []
        for fastmath in (False, True):
            net = copy.deepcopy(model)
            optimizer = ng.optim.Adam(net.parameters(), lr=1e-2)

            @ng.compile(fastmath=fastmath)
            def step(x, labels, net=net, optimizer=optimizer):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(net(x), labels)
                loss.backward()
                optimizer.step()
                return loss

            found.append([step(x, labels).item() for _ in range(30)])
        assert found[0] == pytest.approx(found[1], rel=1e-4)
        assert found[1][-1] < 0.8 * found[1][0]
    finally:
        ng.set_num_threads(before)


def test_gradients_of_a_result():
    """Forward and backward are two programs then."""
    written, reordered = ng.compile(chain), ng.compile(chain, fastmath=True)
    x = ng.rand(50, dtype=ng.double, requires_grad=True)
    a, b = (ng.autograd.grad(f(x).sum(), x)[0] for f in (written, reordered))
    assert ng.allclose(a, b, rtol=1e-14, atol=0.0)
    assert ng.autograd.gradcheck(reordered, (x,))


def test_of_a_module_and_with_check_finite():
    module = ng.compile(nn.Linear(3, 2), fastmath=True)
    assert module(ng.ones(1, 3)).shape == (1, 2)
    checked = ng.compile(lambda x: (x * x + x * 3.0).log(), fastmath=True, check_finite=True)
    with pytest.raises(ng.errors.NonFiniteError, match="log"):
        checked(ng.zeros(3))


@pytest.mark.parametrize("wrong", [{"reassoc"}, 1, None, "yes"])
def test_what_is_no_bool_is_refused(wrong):
    with pytest.raises(TypeError, match=r"compile: fastmath is True or False, got "):
        ng.compile(chain, fastmath=wrong)


@pytest.mark.parametrize("steps", [3, 40])
def test_what_has_too_many_factors_is_left(steps):
    """Squared and doubled 40 times, a sum would have 2^40 of them."""

    def squared(x):
        for _ in range(steps):
            x = x * x
        return x + x * 2.0

    def doubled(x):
        y = x * 1e-9
        for _ in range(steps):
            y = y + y
        return x * y + x

    x = ng.full((5,), 0.999, requires_grad=True)
    for f in (squared, doubled):
        g = ng.autograd.grad(f(x).sum(), x)[0]
        again = ng.compile(lambda x, f=f: ng.autograd.grad(f(x).sum(), x)[0], fastmath=True)(x)
        assert ng.allclose(g, again, rtol=1e-4)


# ---------------------------------------------------------------- the rule itself


def loop_of(*lines: Line, stored: str) -> Loop:
    made = Maker()
    for name in ("input x", "input y", "input z", "fresh out"):
        made.buffer(*name.split(), 6)
    view = whole(6)
    ins = [Operand(Value(made.buffers[n], 0), view) for n in "xyz"]
    out = Operand(Value(made.buffers["out"], 1), view)
    return Loop((out,), tuple(ins), (), (), (6,), ("x", "y", "z"), (), lines, (Store(stored),))


X, Y, Z = map(symbol, "xyz")


def value(node: Expr, names: dict[str, int]) -> int:
    """An expression of whole numbers, exactly."""
    if node.op == "input":
        return names[node.value]
    if node.op == "const":
        return node.value
    args = [value(a, names) for a in node.args]
    return {
        "add": lambda: args[0] + args[1],
        "sub": lambda: args[0] - args[1],
        "mul": lambda: args[0] * args[1],
        "neg": lambda: -args[0],
    }[node.op]()


def evaluated(loop: Loop, names: dict[str, int]) -> int:
    names = dict(names)
    for line in loop.lines:
        names[line.name] = value(line.expr, names)
    return names[loop.stores[0].line]


def count(loop: Loop) -> int:
    def below(node: Expr, seen: set[Expr]) -> int:
        if node in seen or not node.args:
            return 0
        seen.add(node)
        return 1 + sum(below(a, seen) for a in node.args)

    seen: set[Expr] = set()
    return sum(below(line.expr, seen) for line in loop.lines)


def made_up(rng: random.Random) -> Loop:
    """Some products, each of earlier ones, and a sum of them with signs."""
    names = [X, Y, Z]
    lines = []
    for k in range(rng.randint(1, 5)):
        body = mul(rng.choice(names), rng.choice(names))
        if rng.random() < 0.3:
            body = neg(body)
        if rng.random() < 0.2:
            body = add(body, rng.choice(names))
        lines.append(Line(f"v{k}", body, "float64", "float64"))
        names.append(symbol(f"v{k}"))
    total = rng.choice(names)
    for _ in range(rng.randint(1, 8)):
        term = rng.choice(names)
        for _ in range(rng.randint(0, 3)):
            term = mul(term, rng.choice([*names, constant(rng.choice([2, 3, -1]))]))
        total = (add if rng.random() < 0.6 else sub)(total, term)
    lines.append(Line("total", total, "float64", "float64"))
    return loop_of(*lines, stored="total")


def test_factored_sums_are_the_same_polynomials():
    rng = random.Random(0)
    fewer = 0
    for _ in range(400):
        loop = made_up(rng)
        found = _in_loop(loop, _WRITTEN)
        for _ in range(3):
            names = {name: rng.randint(-9, 9) for name in "xyz"}
            assert evaluated(found, names) == evaluated(loop, names), (loop, found)
        assert count(found) <= count(loop)
        fewer += count(found) < count(loop)
    assert fewer > 100


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (add(mul(X, Y), mul(X, Z)), "x * (y + z)"),
        (sub(mul(X, Y), mul(Z, X)), "x * (y - z)"),
        (add(add(mul(X, X), mul(X, Y)), mul(Z, X)), "x * ((x + y) + z)"),
        (add(mul(X, Y), Z), "(x * y) + z"),
        (add(mul(X, Y), X), "(x * y) + x"),  # x * (y + 1) is no shorter
        (sub(mul(neg(X), Y), mul(X, Z)), "x * (-(y) - z)"),
    ],
)
def test_what_is_taken_out(body, wanted):
    found = _in_loop(loop_of(Line("v", body, "float32", "float32"), stored="v"), _WRITTEN)
    assert repr(found.lines[-1]).partition(" = ")[2].replace("(-y)", "-(y)") == wanted


def test_other_types_stay():
    """A sum in double precision of products in single precision is not taken apart."""
    products = [Line(f"p{k}", mul(X, b), "float32", "float32") for k, b in enumerate((Y, Z))]
    total = Line("total", add(symbol("p0"), symbol("p1")), "float64", "float64")
    loop = loop_of(*products, total, stored="total")
    assert _in_loop(loop, _WRITTEN) is loop
    half = Line("v", add(mul(X, Y), mul(X, Z)), "float32", "float32", "float16")
    loop = loop_of(half, stored="v")
    assert _in_loop(loop, _WRITTEN) is loop


@pytest.mark.parametrize("factor", [math.inf, math.nan])
def test_parts_of_a_gradient_that_cancel_are_no_zero_where_they_are_not_finite(factor):
    """The gradient of x and of its mean, which over one number is itself."""

    def apart(x):
        return ((x - x.mean(1, keepdim=True)) ** 2).sum() * factor

    for function in (apart, ng.compile(apart)):
        x = ng.ones(2, 1, requires_grad=True)
        function(x).backward()
        assert x.grad.isnan().all()
