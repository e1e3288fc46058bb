"""Loops made from formulas, in the forms that only large arrays take."""

import itertools
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.kernels.expr import expr, symbol
from numbagrad.kernels.formula import Formula
from numbagrad.kernels.layout import (
    DIMS,
    DIRECT,
    HEAD,
    HEIGHT,
    INNER,
    MODE,
    RECORD,
    TURNED,
    UNITS,
    WIDTH,
    layout,
)
from numbagrad.kernels.loops import ElementwiseKernel


@pytest.mark.parametrize("parallel", [False, True])
def test_strided_rows_with_and_without_threads(parallel):
    body = expr("mul", symbol("x"), symbol("y"))
    kernel = ElementwiseKernel(Formula("product", ("x", "y"), body))
    x = np.random.default_rng(0).standard_normal((5, 7, 40)).astype(np.float32)
    y = np.random.default_rng(1).standard_normal((7, 40, 5)).astype(np.float32)
    turned = y.transpose(2, 0, 1)
    out = np.empty_like(x)
    loop, plan = kernel.nest((out, x, turned), parallel)
    loop(plan, (out, x, turned), *[3] * parallel)
    assert np.array_equal(out, x * turned)


def _placed(rng, shape, dtype):
    """An array of ``shape`` somewhere inside of memory of its own, stored and stepped anyhow."""
    order = rng.permutation(len(shape))
    steps = rng.choice([1, 1, 1, 2], len(shape))
    room = [(n - 1) * s + 1 + int(rng.integers(0, 4)) for n, s in zip(shape, steps, strict=True)]
    memory = (50 * rng.standard_normal([room[d] for d in order])).astype(dtype)
    whole = memory.transpose(np.argsort(order))
    part = tuple(slice(0, (n - 1) * s + 1, s) for n, s in zip(shape, steps, strict=True))
    return whole, part


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.float32, np.float64])
def test_copies_between_any_layouts_write_nothing_else(dtype, parts):
    kernel = ElementwiseKernel(Formula("copied", ("x",), symbol("x")))
    rng = np.random.default_rng(parts)
    sizes = [1, 2, 3, 5, 8, 17, 33, 64, 70]
    for _ in range(150):
        shape = tuple(rng.choice(sizes, rng.integers(1, 4)).tolist())
        (source, part), (target, place) = (_placed(rng, shape, dtype) for _ in range(2))
        x = source[part]
        for d in range(len(shape)):
            kind = rng.integers(0, 6)
            x = np.flip(x, d) if kind == 0 else x
            x = np.broadcast_to(x.take([0], d), shape) if kind == 1 else x
        expected = target.copy()
        expected[place] = x
        args = target[place], x
        loop, plan = kernel.nest(args, parts > 1)
        loop(plan, args, *[parts] * (parts > 1))
        assert np.array_equal(target, expected), (shape, x.strides, args[0].strides)


@pytest.mark.parametrize("columns", [32, 33, 100, 8192, 9000])
def test_rows_that_nothing_is_gathered_of(columns):
    """A number of each row enters the formula by value; a row may be wider than its memory."""
    body = expr("add", symbol("x"), expr("mul", symbol("y"), symbol("z")))
    kernel = ElementwiseKernel(Formula("sum_of_product", ("x", "y", "z"), body))
    rng = np.random.default_rng(0)
    rows = max(3, 40_000 // columns)  # enough for a form that takes numbers
    whole = rng.standard_normal((2, rows, columns + 3)).astype(np.float32)
    x, column = whole[..., :columns], rng.standard_normal((2, rows, 1)).astype(np.float32)
    for z in (rng.standard_normal(columns).astype(np.float32), x[:, ::-1]):
        guarded = np.full_like(whole, 7)
        kernel(guarded[..., :columns], x, column, z)
        np.testing.assert_allclose(guarded[..., :columns], x + column * z, rtol=1e-5, atol=1e-5)
        assert (guarded[..., columns:] == 7).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_operands_of_every_inner_stride(dtype):
    """Side by side, apart, and broadcast along rows, columns, or both; short rows and long."""
    three = ("x", "y", "z")
    body = expr("tanh", expr("mul", expr("add", symbol("x"), symbol("y")), symbol("z")))
    kernel = ElementwiseKernel(Formula("mixed", three, body))
    rng = np.random.default_rng(2)
    for rows, columns in ((3, 5), (300, 7), (9, 70), (5, 300), (2, 1500)):
        whole = rng.standard_normal((rows, 2 * columns)).astype(dtype)
        kinds = {
            "beside": whole[:, :columns],
            "apart": whole[:, ::2],
            "back": whole[:, columns - 1 :: -1],
            "row": whole[:1, :columns],
            "column": whole[:, :1],
            "one": whole[:1, :1],
        }
        for names in itertools.product(kinds, repeat=3):
            x, y, z = (kinds[name] for name in names)
            out = (
                np.empty((columns, rows), dtype).T if names[0] == "apart" else np.empty_like(whole)
            )
            out = out[:, :columns]
            kernel(out, x, y, z)
            expected = np.broadcast_to(np.tanh((x + y) * z), out.shape)
            np.testing.assert_allclose(out, expected, rtol=2e-6, err_msg=str(names))
    assert len(kernel._entries) == 1


def any_view(rng, shape, dtype):
    """Numbers that broadcast to ``shape``: some dimensions one, in any order, apart, backwards."""
    rank = len(shape) if rng.random() < 0.7 else int(rng.integers(0, len(shape) + 1))
    sizes = [n if rng.random() < 0.7 else 1 for n in shape[len(shape) - rank :]]
    order = rng.permutation(rank)
    memory = (3 * rng.standard_normal([2 * sizes[d] + 1 for d in order])).astype(dtype)
    for axis, d in enumerate(order):
        step = int(rng.choice([1, 2, -1]))
        kept = np.arange(2 * sizes[d] + 1)[::step][: sizes[d]]
        end = kept[-1] + step
        memory = memory[(slice(None),) * axis + (slice(kept[0], end if end >= 0 else None, step),)]
    return np.asarray(memory.transpose(np.argsort(order)) if rank else memory)


@pytest.mark.parametrize("parts", [0, 1, 4])
def test_any_layouts_of_any_dtypes(parts):
    """Two outputs, three operands, of which some are numbers, in parts and as a whole."""
    x, y, z = (symbol(name) for name in "xyz")
    product = expr("mul", expr("add", x, y), z)
    kernel = ElementwiseKernel(
        Formula("product", ("x", "y", "z"), product),
        Formula("sum", ("x", "y", "z"), expr("add", x, z)),
    )
    rng = np.random.default_rng(parts)
    for _ in range(150):
        sizes = [1, 2, 3, 5, 8, 33, 70, 200, 1100]
        rank = int(rng.integers(0, 5))
        shape = tuple([int(n) for n in rng.choice(sizes if rank < 3 else sizes[:6], rank)])
        a, b, c = (any_view(rng, shape, rng.choice([np.float64, np.int8])) for _ in range(3))
        b = float(rng.standard_normal()) if rng.random() < 0.2 else b
        c = int(rng.integers(3)) if rng.random() < 0.2 else c
        out = any_view(rng, shape, np.float64)
        if out.shape != shape or rng.random() < 0.5:
            out = np.empty(shape)
        args = (out, np.empty(shape), a, b, c)
        loop, plan = kernel.nest(args, parts > 0)
        loop(plan, args, *[parts] * (parts > 0))
        told = f"{shape} {[getattr(x, 'strides', x) for x in args]}"
        expected = np.broadcast_to((a + np.float64(b)) * c, shape)
        np.testing.assert_allclose(out, expected, 1e-14, err_msg=told)
        np.testing.assert_array_equal(args[1], np.broadcast_to(a + np.float64(c), shape), told)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.int8, np.bool_, np.int64])
def test_what_is_stored_by_columns_is_turned_in_blocks(dtype):
    """Whole blocks and parts of them, more than one such operand, under an outer dimension."""
    product = expr("mul", symbol("x"), symbol("y"))
    kernel = ElementwiseKernel(Formula("product", ("x", "y"), product))
    rng = np.random.default_rng(3)
    for outer, rows, columns in (
        (1, 16, 128),
        (1, 100, 70),
        (3, 4, 200),
        (2, 33, 1000),
        (1, 7, 96),
    ):
        x = (9 * rng.standard_normal((outer, columns, rows))).astype(dtype).transpose(0, 2, 1)
        y = (9 * rng.standard_normal((columns, outer, rows))).astype(dtype).transpose(1, 2, 0)
        z = (9 * rng.standard_normal((outer, 1, columns))).astype(dtype)
        for args in ((x, y), (y, z), (z, x), (x, y[:, ::-1])):
            out = np.empty((outer, rows, columns), dtype)
            for parts in 0, 1, 3:
                out[:] = 0
                loop, plan = kernel.nest((out, *args), parts > 0)
                loop(plan, (out, *args), *[parts] * (parts > 0))
                np.testing.assert_array_equal(out, args[0] * args[1], f"{rows} {columns} {parts}")


def test_a_block_is_read_once_for_all_its_rows():
    words = layout((1024, 2048), ((8192, 4), (4, 4096)), (4, 4), (0, 1), 1, 2)
    assert words[INNER] == WIDTH and words[UNITS] == HEIGHT * WIDTH
    assert words[HEAD : HEAD + words[DIMS]] == (HEIGHT, 1024 // HEIGHT, 2048 // WIDTH)
    modes = [words[HEAD + words[DIMS] + k * (RECORD + words[DIMS]) + MODE] for k in (0, 1)]
    assert modes == [DIRECT, TURNED]


def test_a_number_beyond_int64_is_refused():
    kernel = ElementwiseKernel(Formula("plus", ("x", "k"), expr("add", symbol("x"), symbol("k"))))
    x = np.zeros((4, 6), np.int64)[:, ::2]
    with pytest.raises(OverflowError):
        kernel(np.empty((4, 3), np.int64), x, 1 << 70)


def test_a_large_transposed_operand():
    x = ng.randn(400, 500)
    y = ng.randn(500, 400)
    assert np.array_equal((x * y.t()).numpy(), x.numpy() * y.numpy().T)


def test_an_output_that_is_an_operand():
    """In place, in both forms: every element is read before it is written, and by vectors."""
    tanh = Formula("tanh", ("x",), expr("tanh", symbol("x")))
    kernel = ElementwiseKernel(tanh)
    for shape, part in (((1000,), slice(None)), ((50, 90), (slice(None), slice(3, 70)))):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        expected = np.tanh(x[part])
        kernel(x[part], x[part])
        assert np.allclose(x[part], expected, rtol=1e-6)


def test_a_number_of_threads_chosen_later_is_used():
    """What a kernel remembers of a call is for the threads of that call."""
    kernel = ElementwiseKernel(Formula("double", ("x",), expr("add", symbol("x"), symbol("x"))))
    x = np.ones(2 * kernel.grain, np.float32)[::2]
    before = ng.get_num_threads()
    seen = set()
    try:
        for count in (1, before, 1, before):
            ng.set_num_threads(count)
            kernel(np.empty(x.shape, x.dtype), x)
            seen |= {found[2] for found in kernel._known.values()}
    finally:
        ng.set_num_threads(before)
    assert seen == {1, before}


THREADED = """
import numpy as np, numbagrad as ng
from numbagrad.kernels import loops
most, grain = ng.get_num_threads(), loops.CHEAP_GRAIN
for count in (1, most, 1, most):
    ng.set_num_threads(count)
    for size in (grain - 1, grain, 3 * grain + 77, loops.LONG - 1):
        a, b = (np.random.rand(size).astype("f4") for _ in range(2))
        x, y = ng.tensor(a), ng.tensor(b)
        for _ in range(3):
            assert (x + y).numpy().tobytes() == (a + b).tobytes(), (count, size)
            assert ((x > 0.5).numpy() == (a > 0.5)).all()
            assert (x.double() * 2 + 1).numpy().tobytes() == (a.astype(float) * 2 + 1).tobytes()
            z = x.clone()
            z.mul_(3)
            assert z.numpy().tobytes() == (a * np.float32(3)).tobytes()
"""


@pytest.mark.parametrize("remembered", ["0", "1"])
def test_flat_forms_share_what_is_long_among_threads(remembered):
    """In a process where nobody has begun any threads before."""
    environment = os.environ | {"NUMBAGRAD_REMEMBER_AFTER": remembered}
    subprocess.run([sys.executable, "-c", THREADED], env=environment, check=True, timeout=300)


def test_more_operands_than_any_table_has_room_for():
    """Seventy arrays, each of which is gathered, and a thread of 128 KB of stack."""
    names = [f"x{k}" for k in range(70)]
    total = symbol(names[0])
    for name in names[1:]:
        total = expr("add", total, symbol(name))
    kernel = ElementwiseKernel(Formula("total", tuple(names), total))
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 9, (7, 1) if k % 2 else (70, 7)).astype(float) for k in range(70)]
    arrays = [a if k % 2 else a.T for k, a in enumerate(arrays)]
    out = np.empty((7, 70))
    kernel(out, *arrays)  # Numba needs more stack than that to compile it
    out[:] = np.nan
    before = threading.stack_size(128 * 1024)
    try:
        thread = threading.Thread(target=kernel, args=(out, *arrays))
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert np.array_equal(out, sum(np.broadcast_to(a, out.shape) for a in arrays))


@pytest.mark.parametrize("dtype", [np.int64, np.float64, np.bool_])
def test_a_number_fills_what_is_strided(dtype):
    """A dtype is equal to Python's type of it, and a number is no second array."""
    kernel = ElementwiseKernel(Formula("copied", ("x",), symbol("x")))
    whole = np.zeros((40, 7), dtype)
    kernel(whole[:, ::3], dtype(1).item())
    assert whole.sum() == whole[:, ::3].size
