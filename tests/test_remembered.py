"""Functions that remember what they launched: every row of the op table, and what may go wrong.

A row is called on its arrays, then on the same arrays in another order, which the memory of the
first call answers: to the bit what the function gives without one.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import subprocess
import sys
import threading
import warnings
import weakref
from pathlib import Path

import numba
import numpy as np
import pytest
from op_table import FLOATS, Sample, leaves, to_numpy
from test_ops import differentiable, flat_gradients, quiet, rows, run

import numbagrad as ng
from numbagrad.ops import remembered
from numbagrad.ops.linalg import Mm
from numbagrad.ops.remembered import forget, plainly
from numbagrad.ops.taped_memory import TapedMemory
from numbagrad.tape import show_location

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is remembered then")


@contextlib.contextmanager
def after(calls):
    """Functions remember after so many calls of a kind; before and behind they know nothing."""
    held, remembered.AFTER = remembered.AFTER, calls
    forget()
    try:
        yield
    finally:
        remembered.AFTER = held
        forget()


@pytest.fixture
def at_once():
    with after(1):
        yield


def plans(function):
    """How many plans a function has, among the memories of that name."""
    plain = plainly(function)
    return sum(
        callable(plan)
        for memory in remembered._memories
        if memory.function is plain
        for plan in memory.plans.values()
    )


def reordered(value):
    """Arguments with the numbers of each array in the reverse order."""
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value.reshape(-1)[::-1].reshape(value.shape))
    if isinstance(value, (list, tuple)):
        return type(value)([reordered(v) for v in value])
    return {k: reordered(v) for k, v in value.items()} if isinstance(value, dict) else value


def equal(got, expected, where):
    for out, truth in zip(leaves(got), leaves(expected), strict=True):
        if truth is None or out is None:
            assert out is truth, where
        else:
            assert getattr(out, "dtype", None) is getattr(truth, "dtype", None), where
            np.testing.assert_array_equal(to_numpy(out), to_numpy(truth), err_msg=where)


def as_without(act, call, where):
    """``act`` on reordered arguments, remembered from ``call``, gives what it gives otherwise."""
    other = Sample(reordered(call.args), reordered(call.kwargs), call.kind)
    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with after(1 << 30):
            try:
                ng.manual_seed(0)
                expected = act(other)
            except Exception:
                return  # the order meant something
        with after(1):
            act(call)
            act(call)
            ng.manual_seed(0)
            equal(act(other), expected, where)


@rows(lambda case: case.dtypes)
def test_values(case):
    for dtype in case.dtypes[:1]:
        for call in case.calls(dtype):
            as_without(lambda c: run(case, c), call, f"{case.name} {dtype} {call}")


@rows(differentiable)
def test_gradients(case):
    dtype = next(d for d in FLOATS[::-1] if d in case.dtypes)
    for call in case.calls(dtype, "plain", "broadcast"):
        as_without(lambda c: flat_gradients(case, c, dtype), call, f"{case.name} {call}")


def test_most_of_what_a_program_calls_is_remembered(at_once):
    x, y, rows_ = ng.rand(6, 8), ng.rand(6, 8), ng.tensor([1, 3, 0, 2])
    index, mask = ng.randint(0, 6, (3, 8)), ng.rand(6, 8) > 0.5
    functional = ng.nn.functional
    calls = {
        ng.Tensor.gather: lambda f: f(x, 0, index),
        ng.Tensor.scatter_add: lambda f: f(x, 0, index, y),
        ng.Tensor.index_select: lambda f: f(x, 0, rows_),
        ng.Tensor.sort: lambda f: f(x, 1),
        ng.Tensor.masked_fill: lambda f: f(x, mask, 0.0),
        ng.Tensor.cumsum: lambda f: f(x, 1),
        ng.Tensor.var: lambda f: f(x, 1),
        ng.Tensor.matmul: lambda f: f(x, y.T),
        ng.Tensor.tril: lambda f: f(x),
        functional.layer_norm: lambda f: f(x, (8,)),
        functional.softmax: lambda f: f(x, 1),
        functional.pad: lambda f: f(x, (1, 1)),
        functional.max_pool1d: lambda f: f(x[None], 2),
        functional.mse_loss: lambda f: f(x, y),
        functional.cross_entropy: lambda f: f(x, ng.arange(6)),
    }
    for function, call in calls.items():
        call(function)
        memories = [m for m in remembered._memories if m.function.__name__ == function.__name__]
        assert any(callable(p) for m in memories for p in m.plans.values()), function


def test_a_bad_index_raises_as_before_and_changes_nothing(at_once):
    x, index = ng.rand(6, 8), ng.zeros(2, 8, dtype=ng.int64)
    x.gather(0, index)
    index[1, 3] = 6
    for _ in range(2):
        with pytest.raises(IndexError, match="index 6 is out of bounds for dimension 0 with size"):
            x.gather(0, index)
    out = ng.zeros(6, 8)
    good = ng.zeros(2, 8, dtype=ng.int64)
    out.scatter_(0, good, x)
    before = out.clone()
    with pytest.raises(IndexError, match="index 6"):
        out.scatter_(0, index, x)
    assert out.equal(before)


def test_wrong_arguments_raise_as_before(at_once):
    x, index = ng.rand(6, 8), ng.zeros(2, 8, dtype=ng.int64)
    for _ in range(2):
        x.gather(0, index)
    with pytest.raises(IndexError, match="Dimension out of range"):
        x.gather(2, index)
    with pytest.raises(TypeError, match="dim must be an int"):
        x.gather(0.0, index)
    with pytest.raises(RuntimeError, match="int64"):
        x.gather(0, index.float())
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        x.gather(0)
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        x.gather(0, index, out=x)
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        x.sum(where=1)


def test_numbers_of_other_types_are_others(at_once):
    x = ng.tensor([[1.0, -2.0]])
    assert x.clamp(0.0, 1.0).tolist() == [[1.0, 0.0]]
    for zero in (0.0, -0.0):
        x.masked_fill(x < 0, zero)
        assert np.signbit(x.masked_fill(x < 0, zero)[0, 1].item()) == np.signbit(zero)
    whole = ng.tensor([3, 1])
    assert whole.clamp(2).dtype is ng.int64 and whole.clamp(2.0).dtype is ng.float32
    assert whole.sum(0, True).shape == (1,) and whole.sum(0, False).shape == ()


def test_a_history_goes_the_long_way_and_comes_back(at_once):
    x, index = ng.rand(6, 8), ng.zeros(2, 8, dtype=ng.int64)
    plain = x.gather(0, index)
    y = x.clone().requires_grad_()
    out = y.gather(0, index)
    assert out.requires_grad and not plain.requires_grad
    out.sum().backward()
    assert y.grad[0].tolist() == [2.0] * 8
    with ng.no_grad():
        assert not y.gather(0, index).requires_grad
    assert y.gather(0, index).requires_grad


def test_what_is_saved_is_what_came_now(at_once):
    for seed in range(3):
        ng.manual_seed(seed)
        x = ng.rand(4, 5, requires_grad=True)
        w, b = ng.rand(5, requires_grad=True), ng.rand(5, requires_grad=True)
        out = ng.nn.functional.layer_norm(x, (5,), w, b)
        assert out.grad_fn._saved[0] is x and out.grad_fn._saved[1] is w
        p = ng.softmax(x, 1)
        (p * p).sum().backward()
        expected = 2 * p * (p - (p * p).sum(1, keepdim=True))
        ng.testing.assert_close(x.grad, expected.detach())


def test_a_saved_tensor_that_changed_is_still_found_out(at_once):
    for _ in range(3):
        index = ng.zeros(2, 8, dtype=ng.int64)
        out = ng.rand(6, 8, requires_grad=True).gather(0, index)
        index.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def test_most_of_what_a_program_differentiates_is_remembered(at_once):
    x, y = ng.rand(6, 8, requires_grad=True), ng.rand(8, 5, requires_grad=True)
    index, functional = ng.randint(0, 6, (3, 8)), ng.nn.functional
    calls = {
        ng.Tensor.sum: lambda f: f(x, 1),
        ng.Tensor.mean: lambda f: f(x),
        ng.Tensor.max: lambda f: f(x, 1),
        ng.Tensor.argmax: lambda f: f(x, 1),
        ng.Tensor.matmul: lambda f: f(x, y),
        ng.Tensor.gather: lambda f: f(x, 0, index),
        ng.cat: lambda f: f([x, x]),
        ng.stack: lambda f: f((x, x), 1),
        functional.linear: lambda f: f(x, ng.rand(5, 8), ng.rand(5)),
        functional.softmax: lambda f: f(x, 1),
        functional.layer_norm: lambda f: f(x, (8,)),
        functional.cross_entropy: lambda f: f(x, ng.arange(6)),
        functional.nll_loss: lambda f: f(x, ng.arange(6), reduction="none"),
    }
    for function, call in calls.items():
        call(function)
        memories = [m for m in remembered._memories if type(m) is TapedMemory]
        found = [m for m in memories if m.function.__name__ == function.__name__]
        assert any(callable(p) for m in found for p in m.plans.values()), function


def test_a_node_made_again_is_as_the_function_makes_it(at_once):
    x, y = ng.rand(6, 8, requires_grad=True), ng.rand(8, 5)
    first, *others = nodes = [(x @ y).grad_fn for _ in range(3)]
    assert sorted(nodes, key=lambda n: n._sequence) == nodes
    assert first._edges == (x._edge, None) and first._needs == (True, False)
    assert "test_remembered.py" in show_location(first._where)
    apart = {"_sequence": None, "_to_save": (), "_rare": None}
    for node in others:
        assert type(node) is type(first) and node._saved[1] is y
        assert vars(node) | apart == vars(first) | apart


def test_which_arguments_have_a_history_is_told_apart(at_once):
    arrays = [ng.rand(6, 8), ng.rand(8, 5)]
    for needs in [(True, True), (False, True), (True, False), (False, False), (True, True)] * 2:
        x, y = [a.clone().requires_grad_(n) for a, n in zip(arrays, needs, strict=True)]
        out = x @ y
        assert out.requires_grad == any(needs)
        if any(needs):
            out.sum().backward()
        for tensor, expected, need in ((x, arrays[1].sum(1), needs[0]), (y, None, needs[1])):
            assert (tensor.grad is not None) == need
            if need and expected is not None:
                ng.testing.assert_close(tensor.grad, expected.expand(6, 8))


def test_an_argument_given_twice_gets_both_gradients(at_once):
    for _ in range(3):
        x, y = ng.rand(4, 4, requires_grad=True), ng.rand(4, 4, requires_grad=True)
        ng.cat([x, x]).sum().backward()
        ng.cat([x, y]).sum().backward()
        (x @ x).sum().backward()
        sums = x.detach().sum(1).expand(4, 4) + x.detach().sum(0)[:, None].expand(4, 4)
        ng.testing.assert_close(x.grad, 3 + sums)
        assert y.grad.tolist() == ng.ones(4, 4).tolist()


def test_a_recorded_call_sees_versions_and_hooks(at_once):
    y = ng.rand(8, 5)
    for _ in range(3):
        x = ng.rand(6, 8).add_(1).requires_grad_()  # with a version of its own
        out, seen = x @ y, []
        out.register_hook(lambda g, seen=seen: seen.append(g.shape))
        out.sum().backward()
        assert seen == [(6, 5)]
        out = x @ y
        y.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()
        with ng.autograd.graph.saved_tensors_hooks(seen.append, lambda t: t):
            x @ y
        assert seen[1] is y


def test_losses_of_classes_compare_with_what_came_now(at_once):
    functional = ng.nn.functional
    for seed in range(3):
        ng.manual_seed(seed)
        x = ng.rand(6, 8, dtype=ng.float64, requires_grad=True)
        target, weight = ng.randint(0, 8, (6,)), ng.rand(8, dtype=ng.float64)
        loss = functional.cross_entropy(x, target, weight, label_smoothing=0.1)
        loss.backward()
        with after(1 << 30):
            y = x.detach().requires_grad_()
            functional.cross_entropy(y, target, weight, label_smoothing=0.1).backward()
        assert x.grad.equal(y.grad)
        target[2] = 8
        with pytest.raises(IndexError, match="Target 8 is out of bounds for 8 classes"):
            functional.cross_entropy(x, target, weight, label_smoothing=0.1)
        target[2] = 1
        assert ng.autograd.gradgradcheck(functional.nll_loss, (y, target, weight))


def test_second_gradients_through_recorded_calls(at_once):
    for _ in range(3):
        x = ng.rand(3, 4, dtype=ng.float64, requires_grad=True)
        (gx,) = ng.autograd.grad((ng.softmax(x, 1) ** 2).sum(), x, create_graph=True)
        gx.square().sum().backward()
        assert ng.autograd.gradgradcheck(lambda x: ng.softmax(x, 1), (x.detach().requires_grad_(),))


def test_in_place_forms_write_where_they_are(at_once):
    for _ in range(3):
        x, y = ng.zeros(6, 8), ng.rand(6, 8)
        index = ng.zeros(2, 8, dtype=ng.int64)
        memory, version = x.data_ptr(), x._version
        assert x.scatter_(0, index, y) is x
        assert (x.data_ptr(), x._version) == (memory, version + 1)
        assert x[0].equal(y[1]) and not x[1:].any()
        x[ng.tensor([2, 4])] = y[:2]
        assert x[2].equal(y[0]) and x[4].equal(y[1]) and x._version == version + 2


def test_a_view_that_is_written_is_seen_by_its_base_and_its_history(at_once):
    for _ in range(3):
        base = ng.zeros(4, 6)
        view = base[1:3]
        view[ng.tensor([0])] = 1.0
        assert base.sum().item() == 6.0 and base._version == view._version > 0
        leaf = ng.zeros(4, requires_grad=True)
        held = leaf * 2
        held[ng.tensor([1])] = 5.0
        held.sum().backward()
        assert leaf.grad.tolist() == [2.0, 0.0, 2.0, 2.0]


def test_arguments_that_share_memory(at_once):
    row = ng.arange(6.0)
    x = row.reshape(2, 3)
    for _ in range(2):
        ng.cat([x, x.clone()])
    assert ng.cat([x, x]).tolist() == [*x.tolist(), *x.tolist()]
    assert ng.cat([x, x[:]]).tolist() == [*x.tolist(), *x.tolist()]
    for _ in range(3):  # each time the first two places are read before they are written
        x = ng.arange(6.0)
        x[ng.tensor([0, 1, 2])] = x[1:4]
        assert x.tolist() == [1.0, 2.0, 3.0, 3.0, 4.0, 5.0]
    same, other = ng.rand(3, 3), ng.rand(3, 3)
    for _ in range(2):
        ng.matmul(same, same)
    ng.testing.assert_close(ng.matmul(same, other).numpy(), same.numpy() @ other.numpy())


def test_layouts_are_told_apart(at_once):
    x = ng.arange(12.0).reshape(3, 4)
    for _ in range(2):
        for view in (x, x.T.contiguous().T, x.flip(0), ng.arange(24.0).reshape(3, 8)[:, ::2]):
            np.testing.assert_array_equal(view.cumsum(1).numpy(), view.numpy().cumsum(1))


def test_the_default_dtype_counts(at_once):
    x = ng.tensor([[1, 2], [3, 4]])
    for _ in range(2):
        assert x.masked_fill(x > 1, 0).dtype is ng.int64
        assert ng.logit(x > 1).dtype is ng.float32
    try:
        ng.set_default_dtype(ng.float64)
        assert ng.logit(x > 1).dtype is ng.float64
    finally:
        ng.set_default_dtype(ng.float32)


def test_the_number_of_threads_counts(at_once):
    """A product that threads share is remembered too: as it is launched with so many threads."""
    x, y = ng.randn(96, 96), ng.randn(96, 96)
    most, expected = ng.get_num_threads(), plainly(ng.Tensor.mm)(x, y)
    try:
        for threads in (most, 1, most):
            ng.set_num_threads(threads)
            assert not plans(ng.Tensor.mm)
            for _ in range(3):
                equal(ng.Tensor.mm(x, y), expected, f"{threads} threads")
            assert plans(ng.Tensor.mm)
    finally:
        ng.set_num_threads(most)


def test_nothing_is_kept_alive(at_once):
    x, y = ng.rand(6, 8), ng.rand(6, 8)
    ng.cat([x, y])
    out = ng.nn.functional.softmax(x, 1)
    held = [weakref.ref(a._array) for a in (x, y, out)]
    del x, y, out
    gc.collect()
    assert [h() for h in held] == [None] * 3


def test_a_warning_comes_each_time(at_once):
    x, y = ng.rand(4, 1), ng.rand(4)
    for _ in range(3):
        with pytest.warns(UserWarning, match="different to the input size") as caught:
            ng.nn.functional.mse_loss(x, y)
        assert caught[0].filename == __file__


def test_what_looks_at_kernels_sees_them(at_once):
    x = ng.rand(6, 8)
    for _ in range(2):
        ng.softmax(x, 1)
    with ng.profiler.profile() as profile:
        ng.softmax(x, 1)
    assert "softmax" in profile.table()
    nothing = ng.full((6, 8), float("nan"))
    with ng.autograd.detect_anomaly(), pytest.raises(ng.errors.NonFiniteError):
        ng.softmax(nothing, 1)


def test_maps_and_compiled_functions_are_as_before(at_once):
    x = ng.rand(5, 6, 8)
    index = ng.zeros(2, 8, dtype=ng.int64)
    for _ in range(2):
        x[0].gather(0, index)
    mapped = ng.vmap(lambda a: a.gather(0, index))(x)
    assert mapped.equal(ng.stack([a.gather(0, index) for a in x.unbind()]))
    step = ng.compile(lambda a: a.gather(0, index) * 2)
    for k in range(3):
        assert step(x[k]).equal(x[k].gather(0, index) * 2)


def test_many_threads_at_once(at_once):
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(200):
            n = int(rng.integers(2, 6))
            x, i = rng.random((n, 3)).astype("f4"), rng.integers(0, n, (n, 3))
            got = ng.tensor(x).gather(0, ng.tensor(i)).numpy()
            if not np.array_equal(got, np.take_along_axis(x, i, 0)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_comes_seldom_is_not_remembered():
    with after(8):
        for k in range(40):
            ng.rand(2, k + 1).cumsum(1)
        assert not plans(ng.Tensor.cumsum)
        x = ng.rand(3, 3)
        for _ in range(8):
            x.cumsum(1)
        assert plans(ng.Tensor.cumsum) == 1


def test_results_of_stages_need_not_be_few(at_once):
    x, y = ng.rand(400, 800), ng.rand(400, 800)
    for _ in range(4):
        x.sum(0)
    assert plans(ng.Tensor.sum) == 1
    for tensor in (y, x):
        equal(tensor.sum(0), plainly(ng.Tensor.sum)(tensor, 0), "by a plan")


LARGE = {
    "flip": lambda x: x.flip(1),
    "of columns": lambda x: x.t().flip(0),
    "roll": lambda x: x.roll(5, 1),
    "diff": lambda x: x.diff(),
    "pad": lambda x: ng.nn.functional.pad(x[None], (1, 2, 3, 4), "reflect"),
    "softmax": lambda x: x.softmax(1),
    "cat": lambda x: ng.cat((x, x), 1),
    "outer": lambda x: ng.outer(x[0], x[1]),
    "channel_shuffle": lambda x: ng.nn.functional.channel_shuffle(x.view(8, 8, -1), 4),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", LARGE)
def test_large_results_lie_in_blocks_and_loops_are_shared(name, threads, at_once):
    held, f = ng.get_num_threads(), LARGE[name]
    x, y = ng.rand(512, 256), ng.rand(512, 256)
    with after(1 << 20):
        expected = [f(x), f(y)]
    ng.set_num_threads(threads)
    try:
        before = known()
        for _ in range(3):
            kept = [f(t) for t in (x, y, x)]
            equal(kept[0], expected[0], "the first")
            equal(kept[1], expected[1], "the second, beside it")
            equal(kept[2], expected[0], "the third")
            assert kept[0].stride() == expected[0].stride()
        assert known() > before
    finally:
        ng.set_num_threads(held)


def known():
    """How many plans there are."""
    return sum(callable(p) for memory in remembered._memories for p in memory.plans.values())


def test_others_run_while_a_long_call_is_done_again(at_once):
    x = ng.rand(3000, 3000)
    for _ in range(3):
        x.cumsum(1)
    assert plans(ng.Tensor.cumsum) == 1
    begin, seen = threading.Event(), []
    thread = threading.Thread(target=lambda: begin.wait() and seen.append(None))
    thread.start()
    held = sys.getswitchinterval()
    sys.setswitchinterval(100.0)  # nobody is asked to give up Python's lock
    try:
        begin.set()
        before, calls = len(seen), 0
        while not seen and calls < 100:  # it may be late to wake
            x.cumsum(1)
            calls += 1
        meanwhile = len(seen)
    finally:
        sys.setswitchinterval(held)
        thread.join()
    assert (before, meanwhile) == (0, 1)


def test_an_array_taken_away_meanwhile_lives_until_the_call_is_over(at_once):
    """Its tensor may be given other memory by a thread that has Python's lock while kernels run."""
    n = 3_000_000
    x = ng.from_numpy(np.ones(n, np.float32))
    expected = np.float32(1 / n)
    for _ in range(3):
        x.softmax(0)
    ending = threading.Event()

    def exchange():
        while not ending.is_set():
            x.data = ng.from_numpy(np.ones(n, np.float32))

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        for _ in range(30):
            np.testing.assert_allclose(x.softmax(0).numpy()[[0, n // 2, -1]], expected, rtol=1e-4)
    finally:
        ending.set()
        thread.join()


def test_an_error_while_a_call_is_looked_at_forgets_nothing():
    logits = ng.randn(3, 4, requires_grad=True)
    good, bad = ng.tensor([0, 1, 2]), ng.tensor([0, 1, 9])
    with after(2):
        ng.nn.functional.cross_entropy(logits, good)
        with pytest.raises(IndexError):
            ng.nn.functional.cross_entropy(logits, bad)
        for _ in range(3):
            ng.nn.functional.cross_entropy(logits, good)
        assert plans(ng.nn.functional.cross_entropy) == 1


def test_a_number_that_is_another_each_time_ends_the_looking():
    x = ng.tensor([0.5])
    plain = plainly(ng.Tensor.clamp)
    memory = next(m for m in remembered._memories if m.function is plain)
    memory.vain = 0
    with after(8):
        for k in range(remembered.VAIN + 50):
            assert x.clamp(k * 1e-9, 1.0).item() == 0.5
        assert len(memory.plans) <= remembered.MOST
        assert memory.vain == remembered.VAIN + 1
    memory.vain = 0


def test_sizes_and_keys_are_compared_member_by_member(at_once):
    x = ng.rand(2, 3)
    x.sum((0,))
    x.sum((0,))
    for wrong in ((0.0,), ("0",)):
        with pytest.raises(TypeError):
            x.sum(wrong)
    assert x.sum((0, 1)).shape == () and x.sum((1,)).shape == (2,)
    index = ng.tensor([0, 1])
    for stop in (1, 2, 1, 2):
        assert x[:stop, index].shape == (stop, 2)


def test_what_notes_launches_understands_all_that_recorders_are_told():
    told = set()
    for path in Path(ng.__file__).parent.rglob("*.py"):
        if path.parent.name != "compiled":
            text = path.read_text()
            told |= set(re.findall(r"\brecorder(?:\.current)?\.(\w+)", text))
            told |= (
                set(re.findall(r"\bwatcher\.(\w+)\(", text)) if path.name != "anomaly.py" else set()
            )
    assert {"launch", "check", "warns", "table"} <= told
    assert told - {"current"} <= set(dir(remembered._Watcher(None)))


def test_it_can_be_left_out():
    code = "import numbagrad as ng; from numbagrad.ops import remembered as r; x = ng.rand(3, 3)\n"
    code += "for _ in range(40): x.cumsum(1)\nprint(len(r._memories))"
    environment = {**os.environ, "NUMBAGRAD_REMEMBER_AFTER": "0"}
    run_ = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert run_.stdout.strip() == b"0", run_.stderr


def test_wrappers_have_the_parameters_of_their_functions():
    with pytest.raises(TypeError, match=r"clamp\(\) got an unexpected keyword argument 'least'"):
        ng.rand(3).clamp(least=0)
    assert ng.rand(2, 3).sum(axis=1, keepdims=True).shape == (2, 1)
    assert ng.cat(tensors=[ng.zeros(1), ng.ones(1)], dim=0).tolist() == [0.0, 1.0]


def test_plans_outlive_their_places_in_the_memory(at_once):
    x, y = ng.rand(3, 2), ng.rand(2, 3).T
    ng.where(x > 0.5, x, y)  # a nest, whose words the plan points to
    expected = ng.where(x > 0.5, x, y).clone()
    for k in range(remembered.MOST + 3):
        ng.where(ng.ones(k + 2, dtype=ng.bool), ng.ones(k + 2), 0.0)
        gc.collect(0)
        assert ng.where(x > 0.5, x, y).equal(expected)


def test_what_is_planned_once_is_not_found_by_other_types():
    x = ng.rand(1, 1, 4, 4)
    functional = ng.nn.functional
    for call in (functional.max_pool2d, functional.avg_pool2d):
        call(x, (2, 2))
        for wrong in ((2.0, 2.0), 2.0, [2.0, 2]):
            with pytest.raises(TypeError, match=f"{call.__name__}: kernel_size must be an int"):
                call(x, wrong)
    ng.softmax(x, 1)
    with pytest.raises(TypeError, match="dim must be an int"):
        ng.softmax(x, 1.0)


def test_an_op_that_saves_nothing_for_an_input_is_remembered(at_once):
    x, w = ng.rand(6, 8, requires_grad=True), ng.rand(8, 5)
    for _ in range(3):
        x.grad = None
        Mm.apply(x, w).sum().backward()
        ng.testing.assert_close(x.grad, w.sum(1).expand(6, 8))
    (memory,) = [m for m in remembered._memories if m.function.__qualname__ == "Mm.forward"]
    assert any(callable(plan) for plan in memory.plans.values())


def test_slices_are_written_where_the_in_place_form_says(at_once):
    index, source = ng.tensor([0, 3, 3]), ng.rand(3, 8)
    for k in range(3):
        for name in ("index_add", "index_copy"):
            x = ng.rand(6, 8)
            before, address = x.clone(), x.data_ptr()
            out = getattr(x, name)(0, index, source)
            assert x.equal(before) and out.data_ptr() != address
            assert getattr(x, f"{name}_")(0, index + k, source) is x and x.data_ptr() == address
            assert x.equal(getattr(before, name)(0, index + k, source))


def test_which_of_equal_indices_gets_the_gradient_is_of_these_indices(at_once):
    x, source = ng.rand(6, 8), ng.rand(3, 8).requires_grad_()
    for index, standing in (([0, 3, 3], [1, 0, 1]), ([2, 2, 1], [0, 1, 1]), ([5, 5, 5], [0, 0, 1])):
        (g,) = ng.autograd.grad(x.index_copy(0, ng.tensor(index), source).sum(), source)
        assert g.tolist() == [[float(n)] * 8 for n in standing]


def test_sizes_of_a_view_are_ints_whatever_came_before():
    for _ in range(3):
        for x in (ng.zeros(6, 8), ng.zeros(8, 6).T):
            assert x.expand(2, 6, 8).shape == (2, 6, 8) == x.expand((2, 6, 8)).shape
            assert x.expand(2, -1, 8).shape == (2, 6, 8) == x.expand([2, 6, 8]).shape
            assert x.expand(ng.zeros(2, 6, 8).shape).stride() == (0, *x.stride())
            assert x.reshape(8, 6).shape == (8, 6) == x.reshape([8, -1]).shape
            for name in ("expand", "reshape"):
                with pytest.raises(TypeError, match=f"{name}: expected ints"):
                    getattr(x, name)(2.0, 6, 8)
        assert ng.zeros(6, 8).view(-1, 6).shape == (8, 6)
        with pytest.raises(TypeError, match="view: expected ints"):
            ng.zeros(6, 8).view(8.0, 6)
        with pytest.raises(RuntimeError, match="is invalid for input of size 48"):
            ng.zeros(6, 8).view(7, 6)
        with pytest.raises(RuntimeError, match="invalid shape dimension -2"):
            ng.zeros(6, 8).view(-2, 6)
        with pytest.raises(RuntimeError, match="must match the existing size"):
            ng.zeros(6, 8).expand(2, 6, 9)


def test_a_tensor_that_is_zeroed_says_where():
    x = ng.ones(3, requires_grad=True)
    y = x * 2
    z = y.exp()
    with ng.no_grad():
        z.zero_()
    with pytest.raises(RuntimeError, match=r"changed at .*test_remembered\.py"):
        z.sum().backward()


@pytest.mark.parametrize("shape", [(16, 5), (4, 3, 6, 6)], ids=str)
def test_running_statistics_move_in_each_call(shape):
    """More calls than are needed to remember; without and with a history."""
    rng, channels = np.random.default_rng(0), shape[1]
    mean, variance = ng.zeros(channels).double(), ng.ones(channels).double()
    means, variances = np.zeros(channels), np.ones(channels)
    weight = ng.rand(channels).double().requires_grad_()
    axes = (0, *range(2, len(shape)))
    for k in range(60):
        values = rng.standard_normal(shape) * (k + 1)
        x = ng.tensor(values).requires_grad_(k % 2 == 0)
        with ng.set_grad_enabled(k % 3 > 0):
            before = mean._version
            out = ng.nn.functional.batch_norm(x, mean, variance, weight, None, True, 0.2)
        means = 0.8 * means + 0.2 * values.mean(axes)
        variances = 0.8 * variances + 0.2 * values.var(axes, ddof=1)
        np.testing.assert_allclose(mean.numpy(), means, 1e-12)
        np.testing.assert_allclose(variance.numpy(), variances, 1e-12)
        assert mean._version > before and out.requires_grad == (k % 3 > 0)
        if out.requires_grad and k % 2 == 0:
            g = ng.tensor(rng.standard_normal(shape))
            (got,) = ng.autograd.grad(out, x, g)
            plain = ng.nn.functional.batch_norm(x, None, None, weight, None, True)
            np.testing.assert_allclose(got, ng.autograd.grad(plain, x, g)[0], 1e-10, 1e-12)
