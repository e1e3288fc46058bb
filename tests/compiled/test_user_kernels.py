"""Users' own kernels inside a compiled function: called natively, or fused where formulas."""

from __future__ import annotations

import math

import numba
import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn, optim
from numbagrad.autograd import Function
from numbagrad.errors import RecordingError
from numbagrad.kernels.machine import Kernel

from .following import assert_same, snapshot

CALLS: list = []


@numba.njit
def cube(out, x):
    for i in range(x.size):
        out.flat[i] = x.flat[i] ** 3


@numba.njit
def scaled_square_grad(gx, g, x, scale):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            gx[i, j] = scale * 2 * x[i, j] * g[i, j]


@numba.njit
def scaled_square(out, x, scale):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = scale * x[i, j] * x[i, j]


@ng.kernel
def row_sums(out, x):
    """out (n,) C; x (n, m) C."""
    for i in range(x.shape[0]):
        out[i] = 0
        for j in range(x.shape[1]):
            out[i] += x[i, j]


def plain(out, x):
    """Not compiled: it counts its calls and may use all of Python."""
    CALLS.append(x.shape)
    out[...] = np.sort(x, axis=-1)


def refusing(out, x):
    if x.min() < 0:
        raise ValueError("refusing: x must not be negative")
    out[...] = x


@numba.njit
def dividing(out, x, n):
    for i in range(x.size):
        out.flat[i] = x.flat[i] / n


class ScaledSquare(Function):
    """scale * x ** 2 with a kernel each way."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        out = ng.empty_like(x)
        ng.launch(scaled_square, out, x, scale)
        return out

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        gx = ng.empty_like(x)
        ng.launch(scaled_square_grad, gx, g.contiguous(), x, ctx.scale)
        return gx, None


def through(which, shape=None, *numbers):
    """A Function that launches ``which`` forward."""

    class Launched(Function):
        @staticmethod
        def forward(ctx, x):
            out = ng.empty(*(shape or x.shape), dtype=x.dtype)
            ng.launch(which, out, x, *numbers)
            return out

    return Launched.apply


def data(*shape, dtype=ng.float32):
    return ng.tensor(np.random.default_rng(0).standard_normal(shape), dtype=dtype)


KERNELS = {
    "njit": through(cube),
    "kernel": through(row_sums, (4,)),
    "python": through(plain),
    "number": through(dividing, None, 3.0),
    "int": through(dividing, None, 3),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", [ng.float32, ng.float64])
def test_launch(name, dtype):
    op = KERNELS[name]

    def work(x):
        return op(x * 2.0 + 1.0).tanh() * 3.0

    compiled = ng.compile(work)
    for k in range(3):
        x = data(4, 3, dtype=dtype) * (k + 1.0)
        np.testing.assert_allclose(compiled(x).numpy(), work(x).numpy(), 3e-6)
    assert compiled.cache_info().recordings == 1


def test_python_kernels_run_at_each_call():
    compiled = ng.compile(lambda x: through(plain)(x * 1.0))
    CALLS.clear()
    compiled.warmup(data(2, 3))
    assert not CALLS
    for _ in range(4):
        compiled(data(2, 3))
    assert CALLS == [(2, 3)] * 4


def test_function_trains_as_eagerly():
    def make():
        ng.manual_seed(0)
        layer = nn.Linear(3, 4)
        optimizer = optim.SGD(layer.parameters(), lr=0.1)

        def step(x, scale):
            optimizer.zero_grad()
            loss = ScaledSquare.apply(layer(x), scale).mean()
            loss.backward()
            optimizer.step()
            return loss

        return layer, step

    (one, eager), (two, step) = make(), make()
    compiled = ng.compile(step)
    for k in range(5):
        x = data(6, 3)
        assert compiled(x, 0.5 + k).item() == pytest.approx(eager(x, 0.5 + k).item(), rel=1e-5)
        assert_same(snapshot(two), snapshot(one))
    assert compiled.cache_info().recordings == 1
    assert "scaled_square(" in str(compiled.program)
    assert "scaled_square_grad(" in str(compiled.program)


def test_function_from_outside():
    compiled = ng.compile(lambda x: ScaledSquare.apply(x.exp(), 0.5).sum())
    for _ in range(2):
        x = data(4, 3).requires_grad_()
        compiled(x).backward()
        found = x.grad.numpy().copy()
        x.grad = None
        ScaledSquare.apply(x.exp(), 0.5).sum().backward()
        np.testing.assert_allclose(found, x.grad.numpy(), 1e-5)


def test_batch_sizes():
    compiled = ng.compile(lambda x: ScaledSquare.apply(x, 2.0).sum(1))
    for n in (4, 2, 6, 1, 3):
        found = compiled(data(n, 3)).numpy()
        np.testing.assert_allclose(found, ScaledSquare.apply(data(n, 3), 2.0).sum(1).numpy(), 1e-5)
    assert compiled.cache_info().compilations <= 3


# -- formulas --------------------------------------------------------------------------------------


@ng.elementwise
def wave(x, y):
    return math.sin(x) * math.exp(-y * y)


@ng.elementwise
def smooth(x):
    return x * x / (1 + abs(x))


def loops(program):
    return [i for i in program.instructions if type(i).__name__ == "Loop"]


def test_formulas_fuse_with_their_neighbours():
    compiled = ng.compile(lambda x, y: (wave(x * 2.0, y) + smooth(y)).relu() * 3.0)
    x, y = data(4, 3), data(4, 3)
    expected = ((wave(x * 2.0, y) + smooth(y)).relu() * 3.0).numpy()
    np.testing.assert_allclose(compiled(x, y).numpy(), expected, 1e-5, 1e-6)
    assert len(compiled.program.instructions) == len(loops(compiled.program)) == 1


def test_gradients_of_formulas_fuse():
    weight = data(4, 3).requires_grad_()

    def step(x):
        weight.grad = None
        smooth(wave(weight * x, x) * 2.0).sum().backward()

    compiled = ng.compile(step)
    for _ in range(2):
        step(data(4, 3))
        expected = weight.grad.numpy().copy()
        compiled(data(4, 3))
        np.testing.assert_allclose(weight.grad.numpy(), expected, 1e-5, 1e-6)
    assert len(compiled.program.instructions) == len(loops(compiled.program)) == 1


# -- kernels that raise ----------------------------------------------------------------------------


def test_a_kernel_that_raises():
    compiled = ng.compile(lambda x: through(refusing)(x * 1.0) + 1.0)
    x = data(2, 3).abs()
    assert compiled(x).tolist() == (x + 1.0).tolist()
    with pytest.raises(ValueError, match="must not be negative"):
        compiled(-x - 1.0)
    assert compiled(x).tolist() == (x + 1.0).tolist()


def test_an_njit_kernel_that_raises():
    @numba.njit
    def picky(out, x):
        if x[0] < 0:
            raise ValueError("picky: x[0] is negative")
        out[0] = x[0]

    compiled = ng.compile(lambda x: through(picky)(x * 1.0))
    assert compiled(ng.ones(1)).tolist() == [1.0]
    with pytest.raises(ValueError, match="picky"):
        compiled(-ng.ones(1))
    assert compiled(ng.ones(1)).tolist() == [1.0]


def test_a_kernel_that_does_not_compile():
    @numba.njit
    def hopeless(out, x):
        out[0] = x + "text"

    with pytest.raises(RecordingError, match="hopeless"):
        ng.compile(lambda x: through(hopeless)(x * 1.0))(ng.ones(1))


def test_arrays_written_behind_the_verbs():
    class Sneaky(Function):
        @staticmethod
        def forward(ctx, x):
            out = ng.empty_like(x)
            np.multiply(x._array, 2, out=out._array)
            return out

    with pytest.raises(RecordingError, match=r"numpy\.multiply.*test_user_kernels\.py"):
        ng.compile(lambda x: Sneaky.apply(x))(ng.ones(3))

    class Writing(Function):
        @staticmethod
        def forward(ctx, x):
            out = ng.empty_like(x)
            out._array[0] = 1.0
            return out

    with pytest.raises(RecordingError, match="writing an element"):
        ng.compile(lambda x: Writing.apply(x))(ng.ones(3))

    class Direct(Function):
        @staticmethod
        def forward(ctx, x):
            out = ng.empty_like(x)
            cube(out._array, x._array)
            return out

    with pytest.raises(RecordingError, match=r"launch\(kernel"):
        ng.compile(lambda x: Direct.apply(x))(ng.ones(3))


def test_kernel_objects_keep_their_name():
    assert isinstance(row_sums, Kernel) and row_sums.__name__ == "row_sums"
    compiled = ng.compile(lambda x: through(row_sums, (4,))(x))
    compiled.warmup(data(4, 3))
    assert "row_sums" in str(compiled.program) and "row_sums" in compiled.source


def scaled_by(factor):
    power = (lambda number: number)(factor)

    @numba.njit
    def inner(number):
        return number * power

    @numba.njit
    def scaled(out, x):
        for i in range(x.size):
            out[i] = inner(x[i]) + factor

    return scaled


def formula_scaled_by(factor):
    @ng.elementwise
    def scaled(x):
        return x * factor + factor

    return scaled


def test_numbers_that_kernels_made_inside_close_over():
    """They are compiled in: another number is another recording."""

    def launches(x, factor):
        out = ng.empty_like(x)
        ng.launch(scaled_by(factor), out, x)
        return out + factor

    def formula(x, factor):
        return formula_scaled_by(factor * 2.0)(x) + factor

    for function in (launches, formula):
        compiled, x = ng.compile(function), ng.tensor([1.0, -2.0])
        for factor in (1.0, 2.0, 1.0):
            assert ng.equal(compiled(x, factor), function(x, factor))
        assert compiled.cache_info().recordings == 2

    calls = {"n": 0.0}

    def counts(x):
        calls["n"] += 1.0
        return formula_scaled_by(calls["n"])(x)

    with pytest.raises(RecordingError, match=r"counts .*decides"):
        ng.compile(counts)(ng.ones(1))
    assert calls == {"n": 0.0}


@numba.njit
def turned(out, x, by):
    for i in range(x.size):
        out[i] = x[(i + by) % x.size]


@numba.njit
def first_of(out, x, count):
    out[:] = 0
    for i in range(count):
        out[i] = x[i]


@numba.njit
def mixture(out, x, a, n, b):
    for i in range(x.size):
        out[i] = x[i] * a + 100 * n + b


def in_python(out, x, a):
    assert a.__class__ in (int, float)
    out[...] = x * a


def launched(kernel, x, *numbers):
    out = ng.empty_like(x)
    ng.launch(kernel, out, x, *numbers)
    return out


@pytest.mark.parametrize("dtype", [ng.float32, ng.int64])
@pytest.mark.parametrize("kernel", [turned, first_of, in_python, Kernel(turned.py_func)])
def test_whole_numbers_of_calls_are_whole_numbers_of_kernels(kernel, dtype):
    compiled = ng.compile(lambda x, n: launched(kernel, x, n + 1))
    x = ng.arange(5, dtype=dtype)
    for n in range(5):
        assert ng.equal(compiled(x, n), launched(kernel, x, n + 1))
    assert compiled.cache_info().recordings <= 3


def test_numbers_of_both_kinds_and_counts():
    compiled, x = ng.compile(lambda x, *numbers: launched(mixture, x, *numbers)), ng.ones(2)
    for n in range(5):
        numbers = 1.5 * n, n, 0.25 * n
        assert ng.equal(compiled(x, *numbers), launched(mixture, x, *numbers))
    counted = {"n": 0, "x": 0.5}

    def counts(x):
        counted["n"] += 1
        counted["x"] += 1.0
        y = launched(turned, x, counted["n"]) + launched(in_python, x, counted["n"])
        return y * launched(in_python, x, counted["x"])

    compiled, x = ng.compile(counts), ng.arange(4.0)
    for n in range(1, 5):
        expected = (launched(turned, x, n) + x * n) * x * (n + 0.5)
        assert ng.equal(compiled(x), expected)
    assert compiled.cache_info().recordings == 1


def test_numbers_that_backward_reads_are_those_of_the_call():
    setting = {"k": 1.0}

    class Scaled(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.k = setting["k"]
            return x * setting["k"]

        @staticmethod
        def backward(ctx, grad):
            return grad * setting["k"] + ctx.k * 100

    def hooked(x):
        y = x * 2.0
        y.register_hook(lambda grad: grad * setting["k"])
        return y * 1.0

    def counted(x):
        setting["n"] += 1.0
        y = x * 2.0
        y.register_hook(lambda grad: grad * setting["n"])
        return y * 1.0

    for function in (Scaled.apply, hooked, counted):
        compiled = ng.compile(lambda x: function(x))  # noqa: B023
        found = []
        for f in (function, compiled):
            setting["n"] = 0.0
            found.append([])
            for k in (1.0, 2.0, 3.0, 4.0):
                setting["k"] = k
                x = ng.ones(1, requires_grad=True)
                f(x).sum().backward()
                found[-1].append(x.grad.item())
        assert found[0] == found[1]
    setting["k"] = 1.0
    x = ng.ones(1, requires_grad=True)
    compiled = ng.compile(hooked)
    y = compiled(x)
    setting["k"] = 7.0
    y.sum().backward()
    assert x.grad.item() == 2.0  # eagerly 14: what backward would look at was looked at before
