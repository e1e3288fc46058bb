"""What a graph costs and when it dies: depth, memory by reference counting alone, threads."""

from __future__ import annotations

import gc
import sys
import threading
import tracemalloc
import warnings
import weakref

import pytest

import numbagrad as ng
from numbagrad.autograd import Function
from numbagrad.errors import VersionError


class Double(Function):
    """Saves its input, its output and something of its own."""

    @staticmethod
    def forward(ctx, x):
        out = x * 2.0
        ctx.save_for_backward(x, out)
        ctx.note = [1]
        return out

    @staticmethod
    def backward(ctx, g):
        assert len(ctx.saved_tensors) == 2
        return g * 2.0


class Pair(Function):
    @staticmethod
    def forward(ctx, x):
        first, second = x * 2.0, x * 3.0
        ctx.save_for_backward(first, second)
        return first, second

    @staticmethod
    def backward(ctx, g, h):
        return g * 2.0 + h * 3.0


@pytest.fixture
def no_collector():
    """Nothing but reference counting frees memory inside the test."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


GRAPHS = {
    "arithmetic": lambda x: ((x * 2.0 + x) / 3.0 - 1.0) * x,
    "saved output": lambda x: x.exp().tanh().sigmoid(),
    "reductions": lambda x: (x - x.mean()).sum(0, keepdim=True) * x.max(),
    "views": lambda x: x.view(3, 2).t().unsqueeze(0).expand(2, 2, 3)[0][1:],
    "matmul": lambda x: x.view(3, 2).mm(x.view(2, 3)),
    "softmax": lambda x: x.softmax(0).log() + x.log_softmax(0),
    "in place": lambda x: (x * 2.0).add_(1.0).mul_(x.detach()),
    "indexing": lambda x: x[[0, 2, 2]] * x[1:4],
    "function": Double.apply,
    "function with two outputs": lambda x: Pair.apply(x)[1],
    "function on function": lambda x: Double.apply(Pair.apply(x)[0]),
}


@pytest.mark.parametrize("make", GRAPHS.values(), ids=GRAPHS.keys())
@pytest.mark.parametrize("then", ["drop", "backward", "retain_graph", "create_graph"])
def test_a_graph_dies_by_reference_counting_alone(no_collector, make, then):
    x = ng.randn(6, requires_grad=True)
    inner = x * 1.0
    out = make(inner)
    watched = [weakref.ref(inner), weakref.ref(out), weakref.ref(out.grad_fn)]
    if then != "drop":
        flags = {} if then == "backward" else {then: True}
        gradient = ng.autograd.grad(out.sum(), x, **flags)[0]
        assert gradient.shape == x.shape
        watched.append(weakref.ref(gradient))
        del gradient
    assert all(w() is not None for w in watched[:3])
    del out, inner
    assert [w() for w in watched] == [None] * len(watched)


def test_a_graph_dies_after_an_error_in_backward(no_collector):
    x = ng.randn(6, requires_grad=True)
    inner = x * 1.0
    out = inner * inner
    inner.add_(1.0)
    total = out.sum()
    try:
        total.backward()
    except VersionError:
        pass
    else:
        pytest.fail("the change in place went unnoticed")
    watched = [weakref.ref(inner), weakref.ref(out.grad_fn)]
    del inner, out, total
    assert [w() for w in watched] == [None, None]


def test_saved_values_die_while_backward_runs(no_collector):
    """A node lets go of what it saved as soon as it has run, not when the whole pass ends."""
    alive = []

    class Looks(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1.0

        @staticmethod
        def backward(ctx, g):
            alive.append(sum(w() is not None for w in watched))
            return g

    class Saves(Function):
        @staticmethod
        def forward(ctx, x):
            kept = x * 2.0
            watched.append(weakref.ref(kept))
            ctx.save_for_backward(kept)
            return x * 2.0

        @staticmethod
        def backward(ctx, g):
            return g * 2.0

    watched: list = []
    x = ng.randn(6, requires_grad=True)
    out = Saves.apply(Saves.apply(Looks.apply(Saves.apply(Saves.apply(x)))))
    assert sum(w() is not None for w in watched) == 4
    out.sum().backward()
    assert alive == [2]
    assert [w() for w in watched] == [None] * 4


def test_a_chain_of_100_000_operations_differentiates_and_dies(no_collector):
    x = ng.tensor([1.0], requires_grad=True)
    y = x
    for _ in range(100_000):
        y = y + 1.0
    assert y.item() == 100_001.0
    y.backward()
    assert x.grad.tolist() == [1.0]
    node = weakref.ref(y.grad_fn)
    del y
    assert node() is None


def test_a_chain_of_100_000_functions_differentiates_twice():
    class Step(Function):
        @staticmethod
        def forward(ctx, x):
            return x + 1.0

        @staticmethod
        def backward(ctx, g):
            return g * 1.0

    x = ng.tensor([3.0], requires_grad=True)
    y = x * x
    for _ in range(100_000):
        y = Step.apply(y)
    (gx,) = ng.autograd.grad(y, x, create_graph=True)
    (ggx,) = ng.autograd.grad(gx, x)
    assert gx.tolist() == [6.0]
    assert ggx.tolist() == [2.0]


def test_a_wide_graph_visits_every_node_once():
    x = ng.tensor([1.0], requires_grad=True)
    y = x
    for _ in range(60):  # 2**60 paths
        y = y + y
    y.backward()
    assert x.grad.tolist() == [2.0**60]


def test_the_leaf_is_not_kept_alive_by_its_gradient(no_collector):
    x = ng.tensor([1.0], requires_grad=True)
    (x * 2.0).sum().backward()
    leaf, gradient = weakref.ref(x), weakref.ref(x.grad)
    del x
    assert leaf() is None and gradient() is None


def test_two_threads_run_forward_and_backward_at_once():
    """Separate graphs in separate threads, switched between as often as Python can."""
    workers, steps = 4, 60
    start = threading.Barrier(workers)
    found: dict[int, list] = {}
    errors: list[BaseException] = []

    def work(number):
        try:
            start.wait()
            results = []
            for step in range(steps):
                x = ng.tensor([float(number + 1), float(step)], requires_grad=True)
                y = Double.apply(x * x) + x.exp() * 0.0
                if step % 2:
                    with ng.no_grad():
                        assert not (x * 2.0).requires_grad
                assert y.requires_grad
                y.sum().backward()
                results.append(x.grad.tolist())
            found[number] = results
        except BaseException as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not errors, errors
    for number in range(workers):
        assert found[number] == [[4.0 * (number + 1), 4.0 * s] for s in range(steps)]


def test_grad_mode_belongs_to_its_thread():
    seen = []
    with ng.no_grad():
        thread = threading.Thread(target=lambda: seen.append(ng.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_threads_may_share_leaves_that_they_only_read():
    weight = ng.tensor([2.0, 3.0], requires_grad=True)
    found = []

    def work(scale):
        for _ in range(50):
            (g,) = ng.autograd.grad((weight * weight * scale).sum(), weight)
            found.append((scale, g.tolist()))

    threads = [threading.Thread(target=work, args=(float(s),)) for s in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 100
    assert all(g == [4.0 * scale, 6.0 * scale] for scale, g in found)
    assert weight.grad is None


def test_threads_may_be_the_first_to_use_one_formula():
    """Reading, deriving and compiling it happen on first use, here in four threads at once."""

    @ng.elementwise
    def first_use(x, y):
        return x * x * y + 0.6180339887 * x

    workers = 4
    start = threading.Barrier(workers)
    found, errors = [], []

    def work():
        try:
            x = ng.tensor([2.0, 3.0], dtype=ng.double, requires_grad=True)
            start.wait()
            out = first_use(x, 0.5)
            out.sum().backward()
            found.append((out.tolist(), x.grad.tolist()))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    out, grad = found[0]
    assert out == pytest.approx([3.2360679774, 6.3541019661])
    assert grad == pytest.approx([2.6180339887, 3.6180339887])
    assert found == [(out, grad)] * workers


@pytest.mark.parametrize(
    "op", [lambda x: x.relu(), lambda x: x + x, lambda x: x * 2.0, lambda x: ng.where(x > 0, x, x)]
)
def test_a_large_result_is_allocated_once(op):
    """With a second array beside it malloc gives both back, and every page is faulted in anew."""
    x = ng.ones(1 << 18)
    op(x)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        out = op(x)
        most = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert most < 1.3 * out.nbytes


def test_the_grad_of_what_is_no_leaf_warns():
    x = ng.ones(2, requires_grad=True)
    y, kept = x * 2, x * 2
    kept.retain_grad()
    with pytest.warns(UserWarning, match=r"not a leaf Tensor, made by Mul"):
        assert y.grad is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert x.grad is kept.grad is y.detach().grad is None


def test_variable_is_a_tensor():
    x = ng.ones(2, requires_grad=True)
    y = ng.autograd.Variable(x * 2)
    assert isinstance(x, ng.autograd.Variable) and not isinstance(3, ng.autograd.Variable)
    assert type(y) is ng.Tensor and not y.requires_grad
    assert ng.autograd.Variable(y, requires_grad=True).is_leaf
    with pytest.raises(TypeError, match="Variable: data has to be a tensor, but got int"):
        ng.autograd.Variable(3)
