"""Specialised kernels: the same bits as the general ones, with fewer branches and parameters."""

from __future__ import annotations

import ast
import itertools
import os
import subprocess
import sys

import numba
import numpy as np
import pytest

from numbagrad.kernels.cpu import (
    create,
    index,
    join,
    layer_norm,
    loss,
    matmul,
    plane_loss,
    random,
    reduce,
    scan,
    search,
    sort,
    triangle,
)
from numbagrad.kernels.inner import device
from numbagrad.kernels.lists import ListKernel
from numbagrad.kernels.machine import Kernel, kernel
from numbagrad.kernels.specialise import specialise
from numbagrad.optim import rules
from numbagrad.optim.rules import kernel_of

ONE, TWO, THREE = 1, 2, 3
STRANGE = [(0, 0, np.inf), (1, slice(None), -np.inf), (2, 1, np.nan)]


def floats(*shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def logits(n=40, c=7):
    x = floats(n, c)
    for row, columns, value in STRANGE:
        x[row, columns] = value
    return x


def classes(n=40, c=7):
    target = np.random.default_rng(1).integers(0, c, n)
    target[[3, 5]] = -100, c
    return target


def loss_arrays(**more):
    weight = np.abs(floats(7, seed=2))
    arrays = {"out": floats(1), "losses": floats(40), "lse": floats(40), "norm": floats(1)}
    arrays |= {"bad": np.zeros(1, np.int64), "x": logits(), "target": classes(), "weight": weight}
    return arrays | more


def modes(**values):
    """Every combination of the values of some parameters."""
    return [dict(zip(values, v, strict=True)) for v in itertools.product(*values.values())]


STATE = np.array([5, 9], np.int64)
CLASSES = {"weighted": [False, True], "reduction": [loss.NONE, loss.MEAN, loss.SUM]}

# kernel, its arrays, its other arguments for each run
ROWS = [
    (
        loss.cross_entropy,
        loss_arrays(),
        modes(**CLASSES, ignore=[-100], smoothing=[0.0, 0.1]),
    ),
    (
        loss.cross_entropy_grad,
        loss_arrays(gx=floats(40, 7), g=floats(40)),
        modes(**CLASSES, ignore=[-100], smoothing=[0.0, 0.1]),
    ),
    (
        plane_loss.cross_entropy_of_planes,
        loss_arrays(lse=floats(40), x=floats(5, 7, 8)),
        modes(weighted=[False, True], ignore=[-100], smoothing=[0.0, 0.1], reduction=[loss.SUM]),
    ),
    (
        plane_loss.cross_entropy_of_planes_grad,
        loss_arrays(gx=floats(5, 7, 8), g=floats(40), lse=floats(40), x=floats(5, 7, 8)),
        modes(**CLASSES, ignore=[-100], smoothing=[0.0, 0.1]),
    ),
    (
        loss.nll,
        loss_arrays(x=floats(40, 7, 1)),
        modes(weighted=[False, True], ignore=[-100], reduction=[loss.SUM]),
    ),
    (
        loss.nll_grad,
        loss_arrays(gx=floats(40, 7, 1), g=floats(40)),
        modes(**CLASSES, ignore=[-100]),
    ),
    (
        loss.target_rows,
        loss_arrays(out=floats(40, 7)),
        modes(weighted=[False, True], ignore=[-100], smoothing=[0.0, 0.1]),
    ),
    (
        layer_norm.layer_norm,
        {"out": floats(9, 33), "mean": floats(9), "rstd": floats(9), "x": floats(9, 33)}
        | {"weight": floats(33, seed=1), "bias": floats(33, seed=2)},
        modes(eps=[1e-5], affine=[0, 1, 2, 3]),
    ),
    (
        layer_norm.layer_norm_grad,
        {"gx": floats(9, 33), "gweight": floats(33), "gbias": floats(33), "g": floats(9, 33)}
        | {"x": floats(9, 33), "mean": floats(9), "rstd": floats(9), "weight": floats(33, seed=1)},
        modes(affine=[0, 1, 2, 3]),
    ),
    (
        matmul.mm,
        {"out": floats(6, 6), "x": floats(6, 6, seed=1), "y": floats(6, 6, seed=2)},
        modes(transx=[0, 1], transy=[0], accumulate=[1]),
    ),
    (
        matmul.addmm,
        {"out": floats(6, 6), "x": floats(6, 6), "y": floats(6, 6), "bias": floats(6)},
        modes(transx=[0], transy=[1]),
    ),
    (
        random.dropout,
        {"out": floats(103), "x": floats(103), "state": STATE},
        modes(p=[0.0, 0.3], scale=[1 / 0.7]),
    ),
    (random.uniform, {"out": floats(103), "state": STATE}, modes(low=[-0.1], high=[0.3])),
    (random.normal, {"out": floats(103), "state": STATE}, modes(mean=[0.5], std=[1.5])),
    (random.integers, {"out": floats(103), "state": STATE}, modes(low=[-3], span=[0, 7])),
    (
        reduce.norm,
        {"out": floats(3, 1, 5), "x": floats(3, 40, 5)},
        modes(p=[2.0, 3.0, -np.inf]),
    ),
    (reduce.mean, {"out": floats(3, 1, 5), "x": floats(3, 40, 5)}, modes(count=[40.0])),
    (scan.cumsum, {"out": floats(3, 9, 5), "x": floats(3, 9, 5)}, modes(reverse=[False, True])),
    (
        scan.recurrence,
        {"out": floats(3, 9, 5), "a": floats(3, 9, 5), "b": floats(3, 9, 5, seed=1)},
        modes(driven=[False, True], start=[0.5], reverse=[False, True]),
    ),
    (
        search.search,
        {"out": np.zeros((3, 8), np.int64), "edges": np.sort(floats(3, 9)), "values": floats(3, 8)},
        modes(right=[False, True], rows=[False, True]),
    ),
    (
        sort.topk,
        {"values": floats(3, 2), "indices": np.zeros((3, 2), np.int64), "x": floats(3, 9)},
        modes(smallest=[False, True]),
    ),
    (
        triangle.triangle,
        {"out": floats(2, 5, 6), "x": floats(2, 5, 6)},
        modes(diagonal=[-1, 0, 2], upper=[False, True]),
    ),
    (
        index.take,
        {"out": floats(2, 3, 4), "bad": np.zeros(1, np.int64), "x": floats(2, 5, 4)}
        | {"index": np.array([4, -2, 0])},
        modes(wrap=[False, True], skip=[-1, 4]),
    ),
    (create.arange, {"out": floats(9)}, modes(start=[0, 0.5], step=[2, -0.5])),
    (join.place, {"out": floats(3, 9), "x": floats(3, 4)}, modes(start=[0, 5])),
]


def name_of(row):
    return f"{row[0].function.__module__.rpartition('.')[2]}.{row[0].__name__}"


def names(function):
    code = getattr(function, "py_func", function).__code__
    return code.co_varnames[: code.co_argcount]


def run(one, arguments, parameters):
    """The arguments after a run on copies of the arrays."""
    copies = {n: a.copy() if isinstance(a, np.ndarray) else a for n, a in arguments.items()}
    one(*[copies[n] for n in parameters])
    return copies


def assert_same_bits(found, expected):
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_the_bits_are_those_of_the_general_kernel(row):
    general, arrays, scalars = row
    for values in scalars:
        special = specialise(general, values)
        assert type(special) is type(general)
        assert not set(special.parameters) & {n for n in values if type(values[n]) is not float}
        arguments = {**arrays, **values}
        expected = run(general, arguments, names(general.function))
        assert_same_bits(run(special, arguments, special.parameters), expected)


def test_with_threads_too():
    arrays = loss_arrays(losses=floats(5000), lse=floats(5000))
    arrays |= {"x": floats(5000, 7), "target": np.zeros(5000, np.int64)}
    values = {"weighted": False, "ignore": -100, "smoothing": 0.0, "reduction": loss.MEAN}
    special = specialise(loss.cross_entropy, values)
    arguments = {**arrays, **values}
    expected = run(loss.cross_entropy, arguments, names(loss.cross_entropy.function))
    assert_same_bits(run(special, arguments, special.parameters), expected)
    assert special._parallel is not None


def test_list_kernels():
    kernel = kernel_of(rules.momentum_sgd)
    for nesterov in (0.0, 1.0):
        special = specialise(kernel, {"o_nesterov": nesterov, "o_decay": 0.0})
        assert type(special) is ListKernel and special.outputs == 2
        results = []
        for one, scalars in (
            (kernel, (1.0, 0.1, 0.0, 0.9, 0.1, nesterov)),
            (special, (1.0, 0.1, 0.9, 0.1)),
        ):
            params, buffers = [floats(3), floats(2, 4)], [floats(3), floats(2, 4)]
            grads = [floats(3, seed=1), floats(2, 4, seed=1)]
            one(params, buffers, grads, lambda scalars=scalars: scalars)
            results.append(dict(enumerate([*params, *buffers])))
        assert_same_bits(*results)


def test_unused_arrays_leave_and_branches_go():
    values = {"weighted": False, "smoothing": 0.0, "reduction": loss.MEAN}
    special = specialise(loss.cross_entropy, values)
    assert special.parameters == ("out", "losses", "lse", "norm", "bad", "x", "target", "ignore")
    assert special.outputs == 5
    text = special._options["source"]
    helper = next(d for d in ast.parse(text).body if isinstance(d, ast.FunctionDef))
    assert helper.name == "reduce_losses_1"
    assert "weight" not in {a.arg for a in helper.args.args}


def test_an_unused_output_is_not_counted():
    values = {"weighted": False, "smoothing": 0.0, "reduction": loss.NONE}
    special = specialise(loss.cross_entropy, values)
    assert special.outputs == 4 and special.parameters[0] == "losses"


def test_equal_requests_give_one_result():
    same = specialise(layer_norm.layer_norm, {"affine": 1})
    assert specialise(layer_norm.layer_norm, {"affine": 1}) is same
    assert specialise(layer_norm.layer_norm, {"affine": True}) is not same
    assert specialise(create.arange, {"start": 0.0}) is not specialise(
        create.arange, {"start": -0.0}
    )


# What the folding does, on functions of this file ------------------------------------------------


@device
def choose(x, first):
    if first:
        return x[0]
    return x[1]


@device
def countdown(out, k, step):
    if step and k > 0:
        out[0] += k
        countdown(out, k - step, step)


@kernel
def everything(out, x, mode, flag, scale):
    """out (n), x (n) C."""
    for i in range(x.size):
        if mode == ONE:
            out[i] = x[i]
            continue
        elif mode == TWO and not flag:
            out[i] = -(x[i] ** TWO)
        else:
            pass
        if flag or mode & 1:
            out[i] += scale if flag else choose(x, mode == THREE)
    while flag:
        out[0] += choose(x, True) + choose(x, False)
        flag = False
    if mode == -1 or scale == np.inf:
        return
    out[0] += ~mode + -mode + (mode + 1) // 2


@kernel
def overwritten(out, n):
    n += 1
    out[0] = n


@kernel
def recursive(out, k, step):
    countdown(out, k, step)


@kernel
def nothing(out, on):
    if on:
        out[0] = 1


@pytest.mark.parametrize("mode", [-1, 1, 2, 3])
@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("scale", [0.5, np.inf])
def test_folding(mode, flag, scale):
    arguments = {"out": floats(4, dtype="float64"), "x": floats(4, seed=1, dtype="float64")}
    arguments |= {"mode": mode, "flag": flag, "scale": scale}
    expected = run(everything, arguments, names(everything.function))
    for known in (["mode"], ["flag", "scale"], ["mode", "flag", "scale"]):
        values = {n: arguments[n] for n in known}
        special = specialise(everything, values)
        assert_same_bits(run(special, arguments, special.parameters), expected)


def test_a_parameter_that_is_overwritten_becomes_a_variable():
    out = np.zeros(1)
    specialise(overwritten, {"n": 4})(out)
    assert out[0] == 5


def test_a_kernel_of_which_nothing_is_left():
    special = specialise(nothing, {"on": False})
    assert special.parameters == () and special.outputs == 0
    special()


def test_plain_functions():
    special = specialise(overwritten.function, {"n": 4})
    out = np.zeros(1)
    numba.njit(special)(out)
    assert out[0] == 5 and special.parameters == ("out",)


def test_wrong_requests():
    def inner(out, n):
        out[0] = n + closed_over

    closed_over = 1
    with pytest.raises(ValueError, match=r"no parameters \['m'\]"):
        specialise(overwritten, {"m": 4})
    with pytest.raises(ValueError, match="no function of a module"):
        specialise(Kernel(inner), {"n": 4})
    with pytest.raises(ValueError, match="no source"):
        namespace = {"__name__": "elsewhere"}
        exec("def made(out, n):\n    out[0] = n\n", namespace)
        specialise(Kernel(namespace["made"]), {"n": 4})


def test_as_plain_python():
    code = (
        "import numpy as np\n"
        "from numbagrad.kernels.cpu import layer_norm\n"
        "from numbagrad.kernels.specialise import specialise\n"
        "out, mean, x = np.empty((2, 3)), np.empty(2), np.arange(6.0).reshape(2, 3)\n"
        "special = specialise(layer_norm.layer_norm, {'affine': 2, 'eps': 0.0})\n"
        "assert special.parameters == ('out', 'mean', 'rstd', 'x', 'bias')\n"
        "special(out, mean, mean.copy(), x, np.ones(3))\n"
        "np.testing.assert_allclose(out[0], 1 + np.array([-1, 0, 1]) * 1.5**0.5)\n"
    )
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
