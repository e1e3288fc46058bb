"""``vmap`` runs a function once for all elements, and one by one where that cannot be."""

from __future__ import annotations

import gc

import numba
import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import VersionError, VmapError
from numbagrad.func import functional_call, grad, vmap
from numbagrad.kernels import machine
from numbagrad.kernels.machine import kernel

F = nn.functional


def runs_of(f, *args, **options):
    """The result of ``vmap(f, **options)``, and how often it called ``f``."""
    count = []

    def counted(*args):
        count.append(1)
        return f(*args)

    return vmap(counted, **options)(*args), len(count)


weight, bias = ng.randn(4, 3, dtype=ng.double), ng.randn(4, dtype=ng.double)
images = ng.randn(5, 2, 6, 6, dtype=ng.double)
ONCE = {
    "arithmetic": lambda x: (x * 2 + 1).exp() / x.sum(),
    "broadcasting": lambda x: x[:, None] * ng.arange(3.0, dtype=ng.double) + x.sum(),
    "linear": lambda x: F.linear(x, weight[:, :2], bias).relu(),
    "products": lambda x: (x[:, None] @ x[None]) @ x,
    "reductions": lambda x: ng.stack([x.sum(), x.amax(), x.norm(), x.std(), ng.var_mean(x)[1]]),
    "softmax": lambda x: F.log_softmax(x, 0) + F.softmax(x[None], 1)[0],
    "layer norm": lambda x: F.layer_norm(x, (2,)),
    "indexing": lambda x: ng.cat([x[1:], x[[0, 1, 1]], x.flip(0), x.roll(1)]),
    "in place": lambda x: x.clone().mul_(2).add_(x.sum()),
    "sorting": lambda x: ng.cat([x.sort()[0], x.topk(1)[0], x.cumsum(0)]),
    "where": lambda x: ng.where(x > 0, x, -x.sum()),
    "grad inside": lambda x: grad(lambda y: (y.sin() * y).sum())(x),
    "nested": lambda x: vmap(lambda y: y * x)(x),
    "cross entropy": lambda x: F.cross_entropy(x[None], ng.tensor([1])),
}


@pytest.mark.parametrize("name", ONCE)
def test_once(name):
    f, x = ONCE[name], ng.randn(5, 2, dtype=ng.double, requires_grad=True)
    got, count = runs_of(f, x)
    expected = ng.stack([f(row) for row in x])
    assert count == 1
    assert got.dtype is expected.dtype
    g = ng.randn(*got.shape, dtype=ng.double)
    found = [(y, *ng.autograd.grad(y, x, g)) for y in (got, expected)]
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-12)


def test_convolution_and_pooling_once():
    w = ng.randn(3, 2, 3, 3, dtype=ng.double, requires_grad=True)

    def f(x):
        return F.max_pool2d(F.conv2d(x[None], w, padding=1).tanh(), 2)[0]

    got, count = runs_of(f, images)
    assert count == 1
    expected = f_all = F.max_pool2d(F.conv2d(images, w, padding=1).tanh(), 2)
    assert ng.allclose(got, expected)
    g = ng.randn(*got.shape, dtype=ng.double)
    assert ng.allclose(ng.autograd.grad(got, w, g)[0], ng.autograd.grad(f_all, w, g)[0])


def test_what_all_share_is_computed_once():
    launched = []
    held = machine.launch

    def counted(kernel, *args):
        launched.append(args[0].shape)
        held(kernel, *args)

    w = ng.randn(3, 3)
    vmap(lambda x: x)(ng.ones(4, 3))
    try:
        machine.launch = counted
        vmap(lambda x: x + w.exp().sum(0))(ng.ones(4, 3))
    finally:
        machine.launch = held
    assert (3, 3) in launched and (4, 3, 3) not in launched


@pytest.mark.parametrize("features", [0, 3])
def test_a_bias_of_each_element_on_a_product_of_all(features):
    F.linear(ng.zeros(2, 3, dtype=ng.double), weight, bias)  # the kernel is known then
    x, w = ng.randn(2, features, dtype=ng.double), ng.randn(4, features, dtype=ng.double)
    biases = ng.randn(5, 4, dtype=ng.double)
    for _ in range(2):  # the second time it is known
        got, count = runs_of(lambda b: F.linear(x, w, b), biases)
        assert count == 1
        np.testing.assert_array_equal(got, ng.stack([F.linear(x, w, b) for b in biases]))


@pytest.mark.parametrize("dims", [(0, 0, 0), (0, None, 0), (None, 0, 0), (1, 1, 1)])
def test_factors_without_elements(dims):
    given = []
    for dim, shape in zip(dims, ((2, 0), (4, 0), (4,)), strict=True):
        size = [*shape] if dim is None else [*shape[:dim], 5, *shape[dim:]]
        given.append(ng.randn(*size, dtype=ng.double))
    got, count = runs_of(F.linear, *given, in_dims=dims)
    assert count == 1
    rows = given[2].movedim(dims[2], 0)[:, None]
    np.testing.assert_array_equal(got, rows.expand(5, 2, 4))


def test_a_second_gradient():
    x = ng.randn(3, 4, dtype=ng.double, requires_grad=True)
    w = ng.randn(4, dtype=ng.double, requires_grad=True)
    f = vmap(lambda x, w: (x * w).tanh().sum() * w, in_dims=(0, None), out_dims=1)
    assert ng.autograd.gradcheck(f, (x, w))
    assert ng.autograd.gradgradcheck(f, (x, w))


# ---------------------------------------------------------------- one by one


@numba.njit
def doubled(out, x):
    for i in range(x.size):
        out[i] = 2 * x[i]


class Doubled(ng.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = ng.empty_like(x)
        ng.launch(doubled, out, x)
        return out

    @staticmethod
    def backward(ctx, g):
        out = ng.empty_like(g)
        ng.launch(doubled, out, g.contiguous())
        return out


def test_a_kernel_of_ones_own_runs_for_each():
    x = ng.randn(3, 4, dtype=ng.double, requires_grad=True)
    got, count = runs_of(Doubled.apply, x)
    assert count == 1 and ng.equal(got, 2 * x)
    assert ng.equal(ng.autograd.grad(got.sum(), x)[0], ng.full((3, 4), 2.0, dtype=ng.double))


def scaling(factor):
    @kernel
    def scaled(out, x):
        for i in range(x.size):
            out[i] = factor * x[i]

    def run(x):
        out = ng.empty_like(x)
        ng.launch(scaled, out, x)
        return out

    return run


def test_kernels_of_one_name_are_told_apart():
    x = ng.ones(20, 2)
    assert ng.equal(vmap(scaling(2.0))(x), 2 * x) and ng.equal(vmap(scaling(3.0))(x), 3 * x)
    for factor in (2.0, 3.0):
        step = ng.compile(vmap(scaling(factor)))
        assert ng.equal(step(x), factor * x) and ng.equal(step(x), factor * x)


@numba.njit
def doubles(x):
    for i in range(x.size):
        x[i] *= 2


def test_a_kernel_that_writes_what_was_there_before():
    def f(x):
        ng.launch(doubles, x)
        return x + 1

    x = ng.ones(3, 4)
    got, count = runs_of(f, x)
    assert count == 4 and x.tolist() == [[2.0] * 4] * 3 and got.tolist() == [[3.0] * 4] * 3


class LooksAtGradient(Doubled):
    @staticmethod
    def backward(ctx, g):
        return g * 2 * g.sum().sign().item()


def test_a_gradient_that_looks_at_values():
    x = ng.ones(3, 2, requires_grad=True)
    out = vmap(LooksAtGradient.apply)(x)
    with pytest.raises(VmapError, match=r"vmap: the gradient .* \(item\)\. Pass chunk_size=1"):
        out.sum().backward()
    vmap(LooksAtGradient.apply, chunk_size=1)(x).sum().backward()
    assert x.grad.tolist() == [[2.0, 2.0]] * 3


def test_running_statistics():
    norm, one = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    one.load_state_dict(norm.state_dict())
    x = ng.randn(3, 4, 2)
    got, count = runs_of(norm, x)
    assert count == 4  # the first stops at the running mean
    expected = ng.stack([one(rows) for rows in x])
    assert ng.allclose(got, expected) and ng.equal(norm.running_mean, one.running_mean)
    assert norm.num_batches_tracked.item() == 3


def test_arguments_are_restored_before_it_begins_again():
    x = ng.ones(3, 2)

    def f(x):
        x.add_(1)
        return x * 2 if x.sum().item() else x

    got, count = runs_of(f, x)
    assert count == 4 and x.tolist() == [[2.0, 2.0]] * 3 and got.tolist() == [[4.0, 4.0]] * 3


def test_it_is_remembered():
    f = vmap(lambda x: x * x[0].item())
    count = []
    g = vmap(lambda x: count.append(1) or x * x[0].item())
    assert ng.equal(f(ng.ones(2, 2)), ng.ones(2, 2))
    g(ng.ones(2, 2)), g(ng.ones(2, 2))
    assert len(count) == 1 + 2 + 2


def test_numbers_are_drawn_as_before_a_function_begins_again():
    def f(x):
        x = x + ng.rand(2)
        return x if x.sum().item() > 0 else -x

    mapped = vmap(f, randomness="same")
    drawn = []
    for _ in range(2):  # once by way of a run for all, then element by element
        ng.manual_seed(1)
        drawn.append((mapped(ng.zeros(3, 2)), ng.rand(1)))
    assert ng.equal(drawn[0][0], drawn[1][0]) and ng.equal(drawn[0][1], drawn[1][1])


def test_compiled_functions_inside():
    step = ng.compile(lambda x: (x * 2).sum())
    assert vmap(lambda x: step(x))(ng.ones(3, 2)).tolist() == [4.0, 4.0, 4.0]


# ---------------------------------------------------------------- chunks


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 5, 7])
def test_chunks(chunk_size):
    sizes = []

    def f(x):
        sizes.append(1)
        return x.sum(), {"twice": x * 2}

    x = ng.arange(10.0).reshape(2, 5)
    got = vmap(f, in_dims=1, out_dims=(0, 1), chunk_size=chunk_size)(x)
    assert got[0].tolist() == x.sum(0).tolist()
    assert got[1]["twice"].tolist() == (x * 2).tolist()
    assert len(sizes) == {1: 5, 2: 3, 3: 2}.get(chunk_size, 1)


def test_chunks_that_disagree():
    x = ng.arange(6.0)
    with pytest.raises(ValueError, match="out_dims is None for a result that differs"):
        vmap(lambda x: (x, ng.ones(2)), out_dims=(None, 0), chunk_size=2)(x)
    flags = iter([True, True, False])  # of the two chunks
    with pytest.raises(ValueError, match=r"\(\*, \*\) for element 0 and \* for element 4"):
        vmap(lambda x: (x, x) if next(flags) else x, chunk_size=2)(x)


def test_chunks_draw_the_same_numbers():
    got = vmap(lambda x: x + ng.rand(2), randomness="same", chunk_size=2)(ng.zeros(5, 2))
    assert all(ng.equal(row, got[0]) for row in got)


# ---------------------------------------------------------------- what is kept outside


USES = {
    "arithmetic": lambda h: h + 1,
    "reduction": lambda h: h.sum(),
    "product": lambda h: ng.mm(h[None], h[:, None]),
    "in place": lambda h: h.add_(1),
    "read": lambda h: h.tolist(),
    "printed": repr,
    "numpy": lambda h: h.numpy(),
    "compiled": lambda h: ng.compile(lambda x: x + h)(ng.ones(4)),
    "vmapped": lambda h: vmap(lambda x: x + h)(ng.ones(2, 4)),
    "gradient": lambda h: (ng.ones(4, requires_grad=True) * h).sum().backward(),
}


@pytest.mark.parametrize("use", USES)
def test_what_is_kept_outside_is_no_tensor(use):
    kept = []
    vmap(lambda x: kept.append(x.exp()) or x.sum())(ng.ones(3, 4))
    with pytest.raises(
        VmapError, match=r"of shape \[.*4.*\] that was made inside .*all 3\. Return"
    ):
        USES[use](kept[0])


def test_fast_paths_open_again():
    kept = []
    f = vmap(lambda x: kept.append(x.exp()) or x.sum())
    before = machine.recording
    f(ng.ones(3, 4))
    assert machine.recording
    kept.clear()
    gc.collect()
    assert machine.recording == before
    x = ng.ones(3, 4, requires_grad=True)
    loss = vmap(lambda x: x.exp())(x).sum()
    loss.backward()
    assert machine.recording == before and loss.grad_fn is not None


@pytest.mark.parametrize(
    "call",
    [
        lambda: vmap(lambda x: x.add_(1))(ng.ones(3, 2)),
        lambda: vmap(lambda x: x * x[0].item())(ng.ones(3, 2)),
        lambda: vmap(lambda x: x.add_(1) * x[0].item())(ng.ones(3, 2)),
        lambda: vmap(lambda x: vmap(lambda y: y * x.sum())(x))(ng.ones(3, 2)),
        lambda: vmap(lambda x: x + ng.rand(2), randomness="different")(ng.ones(3, 2)),
        lambda: ng.compile(vmap(grad(lambda x: x.exp().sum())))(ng.ones(3, 2)),
        lambda: vmap(grad(lambda x: (x * x).sum()), chunk_size=2)(ng.ones(5, 2)),
        lambda: vmap(lambda x: x.sum())(ng.ones(3, 2, requires_grad=True)).sum().backward(),
    ],
)
def test_nothing_of_a_call_waits_for_the_collector(call):
    gc.collect()
    before = machine.recording
    gc.disable()
    try:
        call()
        assert machine.recording == before
    finally:
        gc.enable()


def test_what_was_saved_and_changed():
    x = ng.ones(3, 4, requires_grad=True)
    y = x * 1
    out = vmap(lambda y: y * y)(y)
    y.add_(1)
    with pytest.raises(VersionError, match="modified by an inplace operation"):
        out.sum().backward()


def test_results_without_a_history_that_were_saved():
    """The factor is shown outside without a copy: a change of it must not pass unseen."""

    def f(x):
        factor = (x > 0).double() * 1.0
        return factor, x * factor

    x = ng.ones(3, 4, dtype=ng.double, requires_grad=True)
    factor, out = vmap(f)(x)
    out.sum().backward(retain_graph=True)
    assert ng.equal(x.grad, ng.ones_like(x))
    factor.zero_()
    with pytest.raises(VersionError, match="modified by an inplace operation"):
        out.sum().backward()


def test_only_what_is_asked_for_is_computed():
    asked = []

    class Product(ng.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx, g):
            asked.append(ctx.needs_input_grad)
            x, w = ctx.saved_tensors
            return g * w, g * x

    x, w = ng.ones(3, 4, requires_grad=True), ng.ones(4, requires_grad=True)
    out = vmap(Product.apply, in_dims=(0, None))(x, w).sum()
    for wanted in ((x,), (w,), (x, w)):
        found = ng.autograd.grad(out, wanted, retain_graph=True)
        expected = [[[1.0] * 4] * 3 if t is x else [3.0] * 4 for t in wanted]
        assert [g.tolist() for g in found] == expected
    assert asked == [(True, False), (False, True), (True, True)]


def test_twice_backward():
    x = ng.ones(3, 4, requires_grad=True)
    out = vmap(lambda x: x.exp())(x).sum()
    out.backward(retain_graph=True)
    out.backward()
    assert ng.allclose(x.grad, 2 * x.exp())
    with pytest.raises(RuntimeError, match=r"VmapBackward: .*a second time"):
        out.backward()


# ---------------------------------------------------------------- compiled


def test_a_program_does_not_grow_with_the_elements():
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def loss(parameters, x, label):
        out = functional_call(net, parameters, (x,))
        return F.cross_entropy(out[None], label[None])

    sizes, before = [], machine.recording
    for count in (5, 50):
        step = ng.compile(vmap(grad(loss), in_dims=(None, 0, 0)))
        x, labels = ng.randn(count, 4), ng.randint(3, (count,))
        found = step(parameters, x, labels)
        expected = vmap(grad(loss), in_dims=(None, 0, 0), chunk_size=1)(parameters, x, labels)
        for name, g in found.items():
            assert ng.allclose(g, expected[name], atol=1e-6)
        sizes.append(str(step.program).count("\n"))
        assert machine.recording == before  # whatever the compiled function keeps
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("compiled", [False, True])
def test_an_index_of_one_element_that_is_wrong(compiled):
    table = ng.arange(12.0).reshape(4, 3)
    f = vmap(lambda i: table[i].sum() + table.index_select(0, i[None])[0, 0])
    f = ng.compile(f) if compiled else f
    assert f(ng.tensor([0, 3, 1])).tolist() == [3.0, 39.0, 15.0]
    with pytest.raises(IndexError, match=r"out of (bounds|range)") as caught:
        f(ng.tensor([0, 7, 1]))
    assert compiled or caught.value.__notes__ == ["vmap: this came at element 1."]


@pytest.mark.parametrize("dtype", [ng.float32, ng.bfloat16, ng.float16], ids=str)
def test_rows_of_every_element_are_one_launch(dtype, monkeypatch):
    """Halves have kernels of their own, which need rules of their own."""
    x, w = ng.randn(5, 7, 9).to(dtype), ng.ones(9).to(dtype)
    launched = []
    plain = machine.Kernel.__call__

    def noted(kernel, *args):
        launched.append(kernel.__name__)
        return plain(kernel, *args)

    monkeypatch.setattr(machine.Kernel, "__call__", noted)
    for name, function in {
        "softmax_rows": lambda x: x.softmax(1), "softmax_axis": lambda x: x.softmax(0),
        "log_softmax": lambda x: x.log_softmax(1), "logsumexp": lambda x: x.logsumexp(1),
        "layer_norm": lambda x: F.layer_norm(x, (9,), w, w), "triangle": lambda x: x.tril(),
    }.items():  # fmt: skip
        launched.clear()
        found = vmap(function)(x)
        assert sum(name in kernel for kernel in launched) == 1, launched
        assert ng.equal(found, ng.stack([function(row) for row in x]))


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", ng.zeros(()))
        self.register_buffer("mean", ng.ones(2))

    def forward(self, x):
        self.n += 1
        self.mean.mul_(0.5)
        return x * self.n + self.mean


@numba.njit
def increment(out):
    for i in range(out.size):
        out[i] += 1


@pytest.mark.parametrize("compiled", [False, True])
def test_what_all_share_is_changed_once(compiled):
    """As by PyTorch's: neither the counter nor what is added depends on the element."""
    module, x = Counting(), ng.ones(3, 2)
    call = vmap(module)
    call = ng.compile(call) if compiled else call
    for n in (1, 2, 3):
        got = call(x)
        assert got.tolist() == [[n + 0.5**n] * 2] * 3
        assert module.n.item() == n and module.mean.tolist() == [0.5**n] * 2


def test_what_all_share_is_changed_once_by_a_kernel_and_inside_of_another():
    count, x = ng.zeros(2), ng.ones(3, 2)

    def f(x):
        ng.launch(increment, count)
        return x * count

    assert vmap(f)(x).tolist() == [[1.0] * 2] * 3 and count.tolist() == [1.0] * 2
    assert vmap(vmap(lambda v: (count.add_(1), v * count[0])[1]))(x).tolist() == [[2.0] * 2] * 3
    assert count.tolist() == [2.0] * 2
    shared = vmap(lambda v, c: v * c.add_(1), in_dims=(0, None))
    assert shared(x, count).tolist() == [[3.0] * 2] * 3 and count.tolist() == [3.0] * 2
    rows = ng.zeros(3, 2)
    inner = vmap(lambda row, v: vmap(lambda e: (row.add_(1), e + row[0])[1])(v))(rows, x)
    assert inner.tolist() == [[2.0] * 2] * 3 and rows.tolist() == [[1.0] * 2] * 3


def test_what_all_share_is_as_it_was_before_each_is_run_alone():
    count, part, x = ng.zeros(2), ng.zeros(4), ng.ones(3, 2)

    def f(x):
        count.add_(1)
        part[:3] += 1
        part[1:] *= 2
        return x * 2 if x.sum().item() else x

    got, runs = runs_of(f, x)
    assert runs == 4 and got.tolist() == [[2.0] * 2] * 3 and count.tolist() == [3.0, 3.0]
    assert part.tolist() == [3.0, 14.0, 14.0, 0.0]


@pytest.mark.parametrize("change", [lambda b, a: b.mul_(2), lambda b, a: b.add_(a)])
def test_what_all_share_keeps_the_history_that_each_run_gives_it(change):
    def slope(call):
        a = ng.ones(2, requires_grad=True)
        buffer = a * 1

        def f(row):
            change(buffer, a)
            float(row.sum())
            return (row * buffer).sum()

        call(f)(ng.ones(3, 2)).sum().backward()
        return a.grad.tolist()

    one_by_one = lambda f: lambda rows: ng.stack([f(row) for row in rows])  # noqa: E731
    assert slope(vmap) == slope(one_by_one)
