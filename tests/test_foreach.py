"""``_foreach_*``: each is the method of each tensor, compared with PyTorch where it is there."""

from __future__ import annotations

import pytest

import numbagrad as ng
from numbagrad import foreach

LISTS = """
    _foreach_add(x, y)
    _foreach_add(x, y, alpha=-0.5)
    _foreach_add(x, 2)
    _foreach_add(x, [1.5, -2])
    _foreach_add(x, s, alpha=3)
    _foreach_sub(x, y, alpha=2)
    _foreach_sub(x, [1, 2])
    _foreach_mul(x, s)
    _foreach_mul(x, [2, 3])
    _foreach_mul(x, y)
    _foreach_div(x, y)
    _foreach_div(x, s)
    _foreach_div(x, 2)
    _foreach_addcmul(x, y, z)
    _foreach_addcmul(x, y, z, value=0.5)
    _foreach_addcmul(x, y, z, [0.5, 2])
    _foreach_addcdiv(x, y, z, -0.1)
    _foreach_addcdiv(x, y, z, w)
    _foreach_lerp(x, y, 0.25)
    _foreach_lerp(x, y, z)
    _foreach_lerp(x, y, weight=[0.1, 0.2])
    _foreach_pow(x, 2)
    _foreach_pow(x, y)
    _foreach_pow(x, [2, 3])
    _foreach_maximum(x, y)
    _foreach_maximum(x, 1.5)
    _foreach_minimum(x, [1, 2.5])
    _foreach_clamp_min(x, 1.5)
    _foreach_clamp_max(x, y)
""".strip().split("\n")

ALONE = """
    _foreach_pow(2.0, x)
    _foreach_norm(x)
    _foreach_norm(x, ord=1)
    _foreach_norm(x, float("inf"), dtype=L.float64)
    _foreach_powsum(x, 3)
    _foreach_max(x)
    _foreach_clone(x)
    _foreach_mm([m, m + 1], [m, m])
    [_foreach_copy_(x, y), x]
    [_foreach_zero_(x), x]
""".strip().split("\n")


def given(lib, line):
    """The names of a line."""
    lists = {
        "x": [[1.0, 2.0, 0.5], [[3.0], [0.25]]],
        "y": [[0.5, 3.0, 2.0], [[1.5], [2.0]]],
        "z": [[2.0, 0.5, 1.0], [[4.0], [0.5]]],
    }
    names = {n: [lib.tensor(rows) for rows in both] for n, both in lists.items()}
    names |= {"s": lib.tensor(1.5), "w": lib.tensor([0.5, 2.0]), "L": lib}
    names["m"] = lib.tensor([[1.0, 2.0], [3.0, 4.0]])
    head = line.replace("[", " ").replace("(", " ").split()[0]
    return names | {head: getattr(lib, head)}


def plain(found):
    if isinstance(found, (list, tuple)):
        return [plain(each) for each in found]
    return str(found.dtype).split(".")[1], [round(v, 5) for v in found.reshape(-1).tolist()]


def with_both(line):
    torch = pytest.importorskip("torch")
    found = [plain(eval(line, given(lib, line))) for lib in (ng, torch)]
    assert found[0] == found[1]


@pytest.mark.parametrize("line", [line.strip() for line in [*LISTS, *ALONE]])
def test_lists_as_pytorchs(line):
    with_both(line)


@pytest.mark.parametrize("line", [line.strip() for line in LISTS])
def test_lists_written_in_place(line):
    name, _, rest = line.strip().partition("(")
    with_both(f"[{name}_({rest}, x]")


@pytest.mark.parametrize("name", foreach.UNARY)
def test_functions_of_one(name):
    x = [ng.tensor([0.5, 0.25]), ng.tensor([[0.75]])]
    before = [t.clone() for t in x]
    found = getattr(ng, f"_foreach_{name}")(x)
    assert type(found) is tuple and plain(x) == plain(before)
    assert plain(found) == plain([getattr(t, name)() for t in x])
    written = getattr(ng, f"_foreach_{name}_")(x)
    assert written is x and plain(x) == plain(found)


def test_names_are_pytorchs():
    torch = pytest.importorskip("torch")
    assert set(foreach.FUNCTIONS) <= set(dir(torch))
    assert all(f.__doc__ and getattr(ng, n) is f for n, f in foreach.FUNCTIONS.items())


def test_gradients_pass():
    x, y = ng.ones(2, requires_grad=True), ng.full((2,), 3.0, requires_grad=True)
    out = ng._foreach_mul([x, y], [y, x])
    (out[0].sum() + out[1].sum()).backward()
    assert x.grad.tolist() == [6.0, 6.0] and y.grad.tolist() == [2.0, 2.0]


def test_an_optimiser_of_ones_own():
    def step(params, grads, averages):
        with ng.no_grad():
            ng._foreach_lerp_(averages, grads, 0.1)
            roots = ng._foreach_add(ng._foreach_sqrt(ng._foreach_mul(grads, grads)), 1e-8)
            ng._foreach_addcdiv_(params, averages, roots, value=-0.5)

    params = [ng.ones(3), ng.ones(2, 2)]
    grads = [ng.full((3,), 2.0), ng.full((2, 2), -4.0)]
    averages = [ng.zeros(3), ng.zeros(2, 2)]
    compiled = ng.compile(step)
    for run in (step, compiled, compiled):
        run(params, grads, averages)
    assert averages[0].allclose(ng.full((3,), 2 * (1 - 0.9**3)))
    assert params[0][0].item() == pytest.approx(1 - 0.5 * (0.1 + 0.19 + 0.271), rel=1e-5)
    assert params[1][0, 0].item() == pytest.approx(1 + 0.5 * (0.1 + 0.19 + 0.271), rel=1e-5)


def test_lists_that_do_not_fit():
    x = [ng.ones(2), ng.ones(3)]
    for call, error, words in (
        (lambda: ng._foreach_add([], 1), RuntimeError, "at least one tensor"),
        (lambda: ng._foreach_add(x, x[:1]), RuntimeError, "same number of tensors, got 2 and 1"),
        (lambda: ng._foreach_add(x, [1.0]), RuntimeError, "same number"),
        (lambda: ng._foreach_mul(x, ng.ones(2)), RuntimeError, "expected to be 0 dim"),
        (lambda: ng._foreach_sqrt(ng.ones(2)), TypeError, "expected a list or tuple of Tensors"),
        (lambda: ng._foreach_lerp(x, 2.0, 0.1), TypeError, "expected a list or tuple of Tensors"),
        (lambda: ng._foreach_copy_(x, [1, 2]), TypeError, "expected a list or tuple of Tensors"),
    ):
        with pytest.raises(error, match=words):
            call()
