"""Loops over ``prange`` as functions: every round once, by any number of threads."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import textwrap
import threading

import numba
import numpy as np
import pytest

import numbagrad as ng
from numbagrad.kernels import cpu, outline, store
from numbagrad.kernels.machine import Kernel

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="prange is range then")

ROUNDS = """
from numba import prange

OFFSET = 3

def rounds(out, start, stop, pair, flag, scale, nothing):
    count = OFFSET
    for i in range(2):
        count += i
    for k in prange(start, stop):
        i = k - start
        more = count if flag else 0
        if nothing is not None:
            more += 100
        if i % 5 == 4:
            continue
        out[i] += scale * k + pair[0] + pair[1][0] + more
    for i in prange(out.shape[0] // 2):
        out[2 * i] += 1
"""
"""``i`` is bound before the first loop too, but not read by it before it binds it anew."""

INNER = """
from numba import prange

def inner(out):
    for i in prange(out.shape[0]):
        for j in prange(out.shape[1]):
            out[i, j] += i + 10 * j
"""


@pytest.fixture(autouse=True)
def two_threads():
    before = ng.get_num_threads()
    yield
    ng.set_num_threads(before)


def expected(out, start, stop, pair, flag, scale):
    for k in range(start, stop):
        if (k - start) % 5 != 4:
            out[k - start] += scale * k + pair[0] + pair[1][0] + (4 if flag else 0)
    out[: 2 * (len(out) // 2) : 2] += 1


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("count", [-3, 0, 1, 2, 3, 7, 1000])
def test_every_round_runs_once(threads, count):
    ng.set_num_threads(min(threads, ng.get_num_threads()))
    run = store.compile_source(ROUNDS, "rounds", parallel=True)
    for start in (0, -2, 11):
        mine, theirs = np.zeros(1001), np.zeros(1001)
        arguments = start, start + count, (1, np.array([0.25])), True, 0.5
        run(mine, *arguments, None)
        expected(theirs, *arguments)
        np.testing.assert_array_equal(mine, theirs)


def test_a_loop_in_a_loop_is_one_of_its_rounds():
    out = np.zeros((7, 3))
    store.compile_source(INNER, "inner", parallel=True)(out)
    assert out.tolist() == [[i + 10 * j for j in range(3)] for i in range(7)]


def test_threads_of_python_share_the_pool():
    run = store.compile_source(INNER, "inner", parallel=True)
    run(np.zeros((2, 2)))
    if numba.threading_layer() == "workqueue":
        pytest.skip("this layer of Numba's ends the process where two threads ask at a time")
    arrays = [np.zeros((100, 30)) for _ in range(4)]

    def several(out):
        for _ in range(200):
            run(out)

    threads = [threading.Thread(target=several, args=(out,)) for out in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for out in arrays:
        np.testing.assert_array_equal(out, 200.0 * np.add.outer(range(100), range(0, 300, 10)))


SUM = """
    total = 0.0
    for i in prange(n):
        total += x[i]
"""
LAST = """
    last = 0
    for i in prange(n):
        last = x[i]
    x[0] = last
"""
ROUND = """
    for i in prange(n):
        x[i] = 0
    x[0] = i
"""


@pytest.mark.parametrize(
    ("body", "why"), [(SUM, "before it is bound"), (LAST, "behind it"), (ROUND, "behind it")]
)
def test_rounds_that_depend_on_each_other_are_refused(body, why):
    text = f"from numba import prange\n\ndef wrong(x, n):\n{body}"
    with pytest.raises(SyntaxError, match=rf"wrong: '\w+' of the loop over prange.*{why}"):
        store.compile_source(text, "wrong", parallel=True)(np.zeros(3), 3)


def test_with_and_without_threads_are_two_files():
    signature = (numba.float64[:, ::1],)
    paths = [
        dispatcher._cache.path(signature, dispatcher.targetctx)
        for dispatcher in (
            store.compile_source(INNER, "inner", parallel=parallel) for parallel in (False, True)
        )
    ]
    assert paths[0] != paths[1]


def functions_with_loops():
    for found in pkgutil.iter_modules(cpu.__path__):
        module = importlib.import_module(f"{cpu.__name__}.{found.name}")
        for value in vars(module).values():
            if isinstance(value, Kernel) and value.function.__module__ == module.__name__:
                tree = ast.parse(textwrap.dedent(inspect.getsource(value.function)))
                if any(isinstance(n, ast.Name) and n.id == "prange" for n in ast.walk(tree)):
                    yield value.function


def test_no_loop_is_left_in_our_kernels():
    functions = list(functions_with_loops())
    assert len(functions) > 80
    for function in functions:
        made = outline.outlined(function, set(), False)
        assert "share_out" in made.__code__.co_names, function
        assert "prange" not in made.__code__.co_names, function
        assert made.__code__.co_firstlineno >= function.__code__.co_firstlineno
