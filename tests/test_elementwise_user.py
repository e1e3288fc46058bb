"""``@ng.elementwise``: a plain scalar function as a differentiable op of any order."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import numbagrad as ng
from numbagrad.errors import FormulaError
from numbagrad.kernels import derive
from numbagrad.kernels import expr as formulas
from numbagrad.kernels.formula import Formula

SCALE = 2.5


def array(*shape, low=-2.0, high=2.0, dtype="float64"):
    return np.random.default_rng(7).uniform(low, high, shape).astype(dtype)


def check(op, *arrays, oracle):
    """Values in float32 and float64 against the oracle, gradient and second gradient."""
    expected = np.vectorize(oracle, otypes=["float64"])(*np.broadcast_arrays(*arrays))
    for dtype, tolerance in (("float64", 1e-13), ("float32", 2e-6)):
        out = op(*[ng.tensor(a.astype(dtype)) for a in arrays])
        assert out.dtype.name == dtype
        np.testing.assert_allclose(out.numpy(), expected, rtol=tolerance, atol=tolerance)
    inputs = [ng.tensor(a).requires_grad_() for a in arrays]
    assert ng.autograd.gradcheck(op, inputs)
    assert ng.autograd.gradgradcheck(op, inputs)


def test_one_argument():
    @ng.elementwise
    def bump(x):
        return math.exp(-x * x) / 2

    check(bump, array(2, 3), oracle=bump.__wrapped__)


def test_several_arguments_broadcast():
    @ng.elementwise
    def mixture(x, y, weight):
        return weight * x + (1 - weight) * y**2

    check(mixture, array(2, 1), array(3), array(), oracle=mixture.__wrapped__)


def test_if_else_statements():
    @ng.elementwise
    def piecewise(x):
        if x > 1:
            return x * x
        elif x > 0:
            y = x
        else:
            y = math.sin(x)
        return 2 * y

    x = np.array([-2.0, -0.5, 0.5, 0.9, 1.5, 2.0])
    check(piecewise, x, oracle=piecewise.__wrapped__)


def test_a_branch_that_assigns():
    @ng.elementwise
    def clipped(x):
        scale = 1.0
        if x < 0:
            scale = 0.1
            x = -x
        return scale * x

    check(clipped, np.array([-2.0, -0.5, 0.5, 2.0]), oracle=clipped.__wrapped__)


def test_conditional_expressions_and_truth():
    @ng.elementwise
    def gate(x, y):
        return x * y if (x > 0 and not y > 1) or x < -1 else (x if y != 0 else 0.0)

    check(
        gate,
        np.array([-2.0, -0.5, 0.5, 1.5]),
        np.array([[0.5], [1.5], [-0.7]]),
        oracle=gate.__wrapped__,
    )


def test_a_branch_not_taken_adds_no_nan():
    @ng.elementwise
    def safe_log(x):
        return math.log(x) if x > 0 else 0.0

    x = ng.tensor([0.0, -1.0, 2.0], dtype=ng.float64).requires_grad_()
    safe_log(x).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.5]


def test_local_variables_and_augmented_assignment():
    @ng.elementwise
    def horner(x):
        total = 3.0
        total *= x
        total += 2
        square: float = x * x
        a, b = total, square
        return a * b - total / (1 + square)

    check(horner, array(5), oracle=horner.__wrapped__)


FUNCTIONS_OF_ONE = {
    "exp": lambda x: math.exp(x),
    "expm1": lambda x: math.expm1(x),
    "log": lambda x: math.log(x),
    "log2": lambda x: math.log2(x),
    "log10": lambda x: math.log10(x),
    "log1p": lambda x: math.log1p(x),
    "sqrt": lambda x: math.sqrt(x),
    "sin": lambda x: math.sin(x),
    "cos": lambda x: math.cos(x),
    "tan": lambda x: math.tan(x),
    "asin": lambda x: math.asin(x),
    "acos": lambda x: math.acos(x),
    "atan": lambda x: math.atan(x),
    "sinh": lambda x: math.sinh(x),
    "cosh": lambda x: math.cosh(x),
    "tanh": lambda x: math.tanh(x),
    "asinh": lambda x: math.asinh(x),
    "acosh": lambda x: math.acosh(x),
    "atanh": lambda x: math.atanh(x),
    "erf": lambda x: math.erf(x),
    "erfc": lambda x: math.erfc(x),
    "fabs": lambda x: math.fabs(x),
}


@pytest.mark.parametrize("name", FUNCTIONS_OF_ONE)
def test_math_functions(name):
    low, high = {
        "log": (0.3, 3), "log2": (0.3, 3), "log10": (0.3, 3), "log1p": (-0.6, 2),
        "sqrt": (0.3, 3), "acosh": (1.3, 3), "asin": (-0.8, 0.8), "acos": (-0.8, 0.8),
        "atanh": (-0.8, 0.8), "tan": (-1, 1), "fabs": (0.2, 2),
    }.get(name, (-1.5, 1.5))  # fmt: skip
    function = FUNCTIONS_OF_ONE[name]
    check(ng.elementwise(function), array(5, low=low, high=high), oracle=function)


FUNCTIONS_OF_TWO = {
    "atan2": lambda x, y: math.atan2(x, y),
    "hypot": lambda x, y: math.hypot(x, y),
    "pow": lambda x, y: math.pow(x, y),
    "max": lambda x, y: max(x, y),
    "min": lambda x, y: min(x, y, 1.0),
    "copysign": lambda x, y: math.copysign(x, -y),
    "mod": lambda x, y: x % y,
    "abs": lambda x, y: abs(x - y),
    "floor": lambda x, y: math.floor(x) * y,
}


@pytest.mark.parametrize("name", FUNCTIONS_OF_TWO)
def test_functions_of_two(name):
    oracle = FUNCTIONS_OF_TWO[name]
    first, second = array(3, low=0.3, high=2), array(2, 1, low=0.35, high=1.8) + 0.07
    check(ng.elementwise(oracle), first, second, oracle=oracle)


def test_comparisons_give_bools():
    @ng.elementwise
    def inside(x):
        return -1 < x <= 1

    out = inside(ng.tensor([-2.0, -1.0, 0.0, 1.0, 1.5]))
    assert out.dtype is ng.bool
    assert out.tolist() == [False, False, True, True, False]
    assert not inside(ng.tensor([1.0], requires_grad=True)).requires_grad


def test_constants_of_module_and_closure():
    shift = 0.25

    @ng.elementwise
    def affine(x):
        return SCALE * x + shift + math.pi

    check(affine, array(4), oracle=lambda x: 2.5 * x + 0.25 + math.pi)


def test_a_formula_calls_another():
    def square(x):
        return x * x

    @ng.elementwise
    def quartic(x):
        return square(square(x)) + ng.relu(x)

    check(quartic, np.array([-1.5, 0.7, 1.2]), oracle=lambda x: x**4 + max(x, 0))


def test_defaults_and_keywords():
    @ng.elementwise
    def leak(x, slope=0.1, shift=0.0):
        return (x if x > 0 else slope * x) + shift

    x = ng.tensor([-1.0, 2.0], dtype=ng.float64)
    np.testing.assert_allclose(leak(x).numpy(), [-0.1, 2.0])
    np.testing.assert_allclose(leak(x, 0.5).numpy(), [-0.5, 2.0])
    np.testing.assert_allclose(leak(x, shift=1.0).numpy(), [0.9, 3.0])
    np.testing.assert_allclose(leak(x, slope=ng.tensor([0.3])).numpy(), [-0.3, 2.0], rtol=1e-6)
    with pytest.raises(TypeError, match="slpoe"):
        leak(x, slpoe=1.0)
    with pytest.raises(TypeError, match="argument"):
        leak(x, 1, 2, 3)
    with pytest.raises(TypeError, match="argument"):
        leak()


def test_hand_written_gradient_is_the_one_used():
    @ng.elementwise(grad_x=lambda g, out: g * out * 3)
    def wrong_on_purpose(x):
        return math.exp(x)

    x = ng.tensor([0.0, 1.0], dtype=ng.float64, requires_grad=True)
    wrong_on_purpose(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 3 * np.exp([0.0, 1.0]))


def test_hand_written_gradient_beside_a_derived_one():
    @ng.elementwise(grad_x=lambda g, x, y: g * y * math.cos(x * y))
    def wave(x, y):
        return math.sin(x * y)

    check(wave, array(2, 2), array(2), oracle=wave.__wrapped__)


def test_a_gradient_for_no_input_is_refused():
    with pytest.raises(FormulaError, match="grad_z names no input"):
        ng.elementwise(lambda x: x, grad_z=lambda g: g)
    with pytest.raises(TypeError, match="slope"):
        ng.elementwise(lambda x: x, slope=lambda g: g)


def test_third_order():
    @ng.elementwise
    def cubic(x):
        return x**3 * math.exp(x)

    x = ng.tensor([0.3, -0.7, 1.1], dtype=ng.float64, requires_grad=True)
    y = cubic(x)
    for _ in range(3):
        (y,) = ng.autograd.grad(y.sum(), x, create_graph=True)
    a = x.detach().numpy()
    np.testing.assert_allclose(
        y.detach().numpy(), np.exp(a) * (a**3 + 9 * a**2 + 18 * a + 6), rtol=1e-12
    )


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_integers_become_the_default_float(dtype):
    @ng.elementwise
    def half(x):
        return x / 2

    out = half(ng.tensor([1, 0, 1]).to(getattr(ng, dtype)))
    assert out.dtype is ng.float32
    assert out.tolist() == [0.5, 0.0, 0.5]


def test_float32_is_computed_in_float32():
    @ng.elementwise
    def third(x):
        return x * 0.1 + 1 / 3

    x = np.float32(1.7)
    expected = np.float32(np.float32(x * np.float32(0.1)) + np.float32(1 / 3))
    assert abs(third(ng.tensor(x)).item() - float(expected)) <= np.spacing(expected)


def test_layouts_empty_and_0_d():
    @ng.elementwise
    def double(x):
        return 2 * x

    a = array(3, 4)
    np.testing.assert_array_equal(double(ng.tensor(a).t()).numpy(), 2 * a.T)
    np.testing.assert_array_equal(double(ng.tensor(a)[:, ::2]).numpy(), 2 * a[:, ::2])
    assert double(ng.tensor(1.5)).item() == 3.0
    assert tuple(double(ng.zeros(0, 3)).shape) == (0, 3)
    with pytest.raises(TypeError, match="Tensor"):
        double(1.5)
    with pytest.raises(RuntimeError, match="must match"):
        ng.elementwise(lambda x, y: x + y)(ng.zeros(2), ng.zeros(3))


def test_documentation_and_name_are_kept():
    @ng.elementwise
    def named(x):
        """What it is."""
        return x

    assert named.__name__ == "named"
    assert named.__doc__ == "What it is."
    x = ng.ones(1, requires_grad=True)
    assert ng.elementwise(lambda x: 3 * x)(x).requires_grad


# ---------------------------------------------------------------- what is no formula


def loop(x):
    for _ in range(3):
        x = x * x
    return x


def while_loop(x):
    while x > 1:
        x = x / 2
    return x


def unknown(x):
    return math.gamma(x)


def method(x):
    return x.sum()


def no_return(x):
    x + 1


def half_a_return(x):
    if x > 0:
        return x


def undefined(x):
    return x + not_defined_anywhere  # noqa: F821


def text(x):
    return "x"


def star(*x):
    return x[0]


def perhaps_unset(x):
    if x > 0:
        y = x
    return y


def list_inside(x):
    return [x][0]


@pytest.mark.parametrize(
    "function,line,words",
    [
        (loop, 1, "loop"),
        (while_loop, 1, "loop"),
        (unknown, 1, "gamma"),
        (method, 1, "reads x.sum, but x is a number"),
        (no_return, 1, "uses Expr"),
        (half_a_return, 1, "return"),
        (undefined, 1, "reads not_defined_anywhere, which is not defined"),
        (text, 1, "Constant"),
        (star, 0, "args"),
        (perhaps_unset, 3, "reads y, which has no value on every path"),
        (list_inside, 1, "Subscript"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_no_formula_is_refused_with_its_line(function, line, words):
    first = inspect.getsourcelines(function)[1]
    with pytest.raises(FormulaError) as caught:
        ng.elementwise(function)
    message = str(caught.value)
    assert words in message
    assert f"{__file__}:{first + line} " in message


def test_source_that_cannot_be_read():
    namespace = {}
    exec("def made(x):\n    return x\n", namespace)
    with pytest.raises(FormulaError, match="source of made cannot be read"):
        ng.elementwise(namespace["made"])
    with pytest.raises(FormulaError, match="plain Python function"):
        ng.elementwise(math.sin)


# ---------------------------------------------------------------- derive, on random formulas


def leaf():
    return st.one_of(
        st.sampled_from([formulas.symbol("x"), formulas.symbol("y")]),
        st.sampled_from([-2.0, 0.5, 1.0, 3.0]).map(formulas.constant),
    )


def grow(children):
    """One operation on trees, kept where it is smooth and finite."""
    build = formulas.build
    return st.one_of(
        st.tuples(st.sampled_from(["add", "sub", "mul"]), children, children).map(
            lambda t: build(*t)
        ),
        st.tuples(
            st.sampled_from(["sin", "cos", "tanh", "atan", "erf", "sigmoid", "asinh"]), children
        ).map(lambda t: build(*t)),
        children.map(lambda e: build("exp", build("sin", e))),
        children.map(lambda e: build("log", build("add", formulas.constant(2), build("cos", e)))),
        children.map(lambda e: build("sqrt", build("add", formulas.ONE, build("mul", e, e)))),
        st.tuples(children, children).map(
            lambda t: build("div", t[0], build("add", formulas.ONE, build("mul", t[1], t[1])))
        ),
        st.tuples(children, children, children).map(
            lambda t: build("where", formulas.expr("lt", t[0], t[1]), t[1], t[2])
        ),
        st.tuples(children, st.sampled_from([2, 3])).map(
            lambda t: build("pow", t[0], formulas.constant(t[1]))
        ),
    )


TREES = st.recursive(leaf(), grow, max_leaves=8)
BY_OP = {
    "add": lambda x, y: x + y, "plus": lambda x, y: x + y,
    "sub": lambda x, y: x - y, "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y, "neg": lambda x: -x, "pow": lambda x, y: x**y,
    "lt": lambda x, y: x < y, "eq": lambda x, y: x == y, "ge": lambda x, y: x >= y,
    "and": lambda x, y: bool(x) and bool(y), "where": lambda c, x, y: x if c else y,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "sign": lambda x: (x > 0) - (x < 0),
}  # fmt: skip


def evaluate(root, **inputs):
    """The value of an expression by plain Python, and the values of its conditions."""
    values = {}
    for node in formulas.topological([root]):
        if node.op == "input":
            values[node] = inputs[node.value]
        elif node.op == "const":
            values[node] = node.value
        else:
            function = BY_OP.get(node.op) or getattr(math, node.op)
            values[node] = function(*[values[a] for a in node.args])
    branches = tuple(values[n] for n in formulas.topological([root]) if n.op == "lt")
    return values[root], branches


@settings(max_examples=200, deadline=None)
@given(tree=TREES, x=st.floats(-1.5, 1.5), y=st.floats(-1.5, 1.5))
def test_derivatives_of_random_formulas(tree, x, y):
    formula = Formula("random", ("x", "y"), tree)
    step = 1e-5
    for wrt in ("x", "y"):
        derived = derive.derivative(formula, wrt)
        point = {"x": x, "y": y}
        ends = [evaluate(tree, **{**point, wrt: point[wrt] + sign * step}) for sign in (-1, 1)]
        try:
            middle = evaluate(tree, **point)
        except OverflowError:
            return
        if not ends[0][1] == ends[1][1] == middle[1]:
            return  # a branch changes within the step
        if abs(middle[0]) > 1e4:
            return  # the difference would be all rounding
        slope, _ = evaluate(derived.body, **point, **{derived.inputs[0]: 1.0})
        measured = (ends[1][0] - ends[0][0]) / (2 * step)
        assert slope == pytest.approx(measured, rel=1e-4, abs=1e-4 * (1 + abs(middle[0]))), formula


@settings(max_examples=100, deadline=None)
@given(tree=TREES, x=st.floats(-1.0, 1.0), y=st.floats(-1.0, 1.0))
def test_second_derivatives_commute(tree, x, y):
    """d2f / dx dy is d2f / dy dx."""
    formula = Formula("random", ("x", "y"), tree)
    mixed = []
    for first, second in (("x", "y"), ("y", "x")):
        once = derive.derivative(formula, first)
        slope = formulas.substitute(once.body, {once.inputs[0]: formulas.ONE})
        twice = derive.derivative(Formula("once", ("x", "y"), slope), second)
        mixed.append(evaluate(twice.body, x=x, y=y, **{twice.inputs[0]: 1.0})[0])
    assert mixed[0] == pytest.approx(mixed[1], rel=1e-8, abs=1e-8)


def test_a_formula_prints_itself():
    def f(x, y):
        return x * y if x > 0 else -y

    text = str(Formula.from_function(f))
    assert text == "f(x, y) = ((x * y) if (x > 0) else (-y))"


def test_inputs_with_names_of_ours():
    @ng.elementwise(grad_twice=lambda g, x: g * x)
    def product(x, twice):
        return x * twice

    @ng.elementwise
    def picks(x, picked):
        return x if x > picked else picked * 2

    a = ng.tensor([2.0, 3.0], requires_grad=True)
    product(a, a).sum().backward()
    assert a.grad.tolist() == [4.0, 6.0]
    assert picks(a, ng.tensor([1.0, 4.0])).tolist() == [2.0, 8.0]
