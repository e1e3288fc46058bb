"""Elementwise results lie in memory as their operands do."""

import random

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.kernels.strides import common_order, is_dense, order_of, ordered


def image(seed=0, shape=(2, 3, 4, 5), dtype=np.float64):
    return ng.tensor(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


def steps(x):
    """Strides that can be told apart: those of dims of more than one index."""
    return [s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1]


OPS = {
    "relu": lambda x: ng.relu(x),
    "times": lambda x: x * 2,
    "sum of two": lambda x: x + x,
    "bias": lambda x: x + ng.arange(x.shape[-1], dtype=x.dtype),
    "compared": lambda x: x > 0,
    "chosen": lambda x: ng.where(x > 0, x, 0.0),
    "three": lambda x: ng.addcmul(x, x, x, value=0.5),
    "clone": lambda x: x.clone(),
    "cast": lambda x: x.float(),
    "half": lambda x: x.to(ng.bfloat16),
    "zeros": lambda x: ng.zeros_like(x),
    "full": lambda x: ng.full_like(x, 3.0),
    "empty": lambda x: ng.empty_like(x) * 0,
    "fill": lambda x: x.masked_fill(x > 0, 1.0),
    "lerp": lambda x: ng.lerp(x, x * 2, 0.5),
    "in place": lambda x: x.clone().mul_(2).add_(x),
}


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("perm", [(0, 2, 3, 1), (3, 2, 1, 0), (1, 0, 2, 3)])
def test_results_have_the_strides_of_their_operand(name, perm):
    base = image()
    turned = base.permute(perm)
    result = OPS[name](turned)
    assert result.stride() == turned.stride()
    again = OPS[name](turned)  # by a plan that is remembered
    assert again.stride() == turned.stride() and again.tolist() == result.tolist()
    assert not result.is_contiguous() and result.tolist() == OPS[name](turned.contiguous()).tolist()


@pytest.mark.parametrize("size", [3, 70, 300])
def test_matrices_of_any_size_on_any_number_of_threads(size):
    x = image(1, (size, size + 1), np.float32)
    expected = np.tanh(x.numpy().T) + x.numpy().T
    for threads in (1, 2):
        ng.set_num_threads(threads)
        result = ng.tanh(x.t()) + x.t()
        assert result.stride() == (1, size + 1)
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6)


def test_the_first_operand_that_tells_decides():
    x, y = image(1, (4, 6)), image(2, (6, 4))
    assert (x + y.t()).stride() == (6, 1)
    assert (y.t() + x).stride() == (1, 4)
    assert (y.t()[:, ::2] * 1).stride() == (1, 4)  # without the gaps
    assert (x[:, ::2] * 1).stride() == (3, 1)
    assert (ng.ones(4, 1) + y.t()).stride() == (1, 4)
    assert (x.t().expand(2, 6, 4) * 1).stride() == (24, 1, 6)
    assert (ng.tensor(2.0) * y.t()).stride() == (1, 4)
    assert (x.t()[:0] * 1).shape == (0, 4)


def test_strides_are_those_of_torch():
    torch = pytest.importorskip("torch")
    draw = random.Random(3)
    for _ in range(300):
        full = [draw.choice([2, 3, 4]) for _ in range(draw.choice([1, 2, 3, 4]))]
        pair = []
        for _ in range(2):
            shape = [n if draw.random() < 0.8 else 1 for n in full]
            perm = list(range(len(shape)))
            draw.shuffle(perm)
            base = np.arange(np.prod(shape), dtype=np.float32).reshape([shape[p] for p in perm])
            pair.append((base, [perm.index(d) for d in range(len(shape))]))
        ours = [ng.tensor(base).permute(inverse) for base, inverse in pair]
        theirs = [torch.tensor(base).permute(inverse) for base, inverse in pair]
        mine, other = ours[0] * ours[1], theirs[0] * theirs[1]
        assert np.array_equal(mine.numpy(), other.numpy())
        told = [x for x in theirs if 1 not in x.shape]
        if told:  # sizes of 1 leave strides that no element shows
            assert steps(mine) == steps(other)


def test_copies_that_are_contiguous():
    x = image().permute(0, 2, 3, 1)
    for copy in (x.contiguous(), x.clone(memory_format=ng.contiguous_format), x.reshape(-1)):
        assert copy.is_contiguous()
    assert ng.zeros_like(x, memory_format=ng.contiguous_format).is_contiguous()
    assert x.repeat(1, 1, 1, 1).is_contiguous()
    with pytest.raises(ng.errors.ShapeError, match="view"):
        (x * 2).view(-1)


def test_gradients():
    x = image(4).requires_grad_()

    def f(x):
        y = ng.tanh(x.permute(0, 2, 3, 1) * 2) * ng.arange(3.0, dtype=ng.float64)
        return (y * y.exp()).permute(1, 0, 3, 2)

    assert ng.autograd.gradcheck(f, (x,)) and ng.autograd.gradgradcheck(f, (x,))
    f(x).sum().backward()
    assert x.grad.is_contiguous()
    first = x.grad.clone()
    f(x).sum().backward()  # is added to it
    np.testing.assert_allclose(x.grad.numpy(), 2 * first.numpy())


def test_a_leaf_that_is_turned():
    w = image(5, (4, 3)).t().detach().requires_grad_()
    optimizer = ng.optim.Adam([w], lr=0.1)
    flat = w.detach().contiguous().requires_grad_()
    other = ng.optim.Adam([flat], lr=0.1)
    for _ in range(3):
        for p, o in ((w, optimizer), (flat, other)):
            o.zero_grad()
            (p.sin() * p).sum().backward()
            o.step()
        optimizer.load_state_dict(optimizer.state_dict())
    np.testing.assert_allclose(w.detach().numpy(), flat.detach().numpy(), rtol=1e-12)


def test_views_of_a_turned_result_change_in_place():
    def f(z):
        y = z.t() * 2
        y[:, 1] = 7.0
        part = y[2]
        part.mul_(3)
        y.as_strided((2, 3), (2, 4), 1).mul_(-2)
        y.t()[0, 1:].copy_(z[0, :4] * z[1, :4])
        return (y * y * part.sum()).sum()

    def plain(z):
        y = (z.t() * 2).contiguous()
        flat = y.t().contiguous()  # the memory of the turned result, row-major
        flat[1] = 7.0
        flat[:, 2] *= 3
        flat.as_strided((2, 3), (2, 4), 1).mul_(-2)
        flat[0, 1:] = z[0, :4] * z[1, :4]
        y = flat.t()
        return (y * y * y[2].sum()).sum()

    z = image(6, (4, 5)).requires_grad_()
    first = ng.autograd.grad(f(z), z)[0]
    second = ng.autograd.grad(plain(z), z)[0]
    np.testing.assert_allclose(first.numpy(), second.numpy(), rtol=1e-12)
    assert ng.autograd.gradcheck(f, (z,)) and ng.autograd.gradgradcheck(f, (z,))


def test_fill_diagonal_of_a_view_that_begins_later():
    z = ng.zeros(4, 4)
    z[1:, 1:].fill_diagonal_(5.0)
    assert z.tolist() == np.diag([0.0, 5.0, 5.0, 5.0]).tolist()


def test_compiled_results_lie_as_eager_ones():
    x, bias = image(7, dtype=np.float32), ng.arange(3.0)

    def f(x, bias):
        y = ng.relu(x.permute(0, 2, 3, 1) * 2 + bias)
        return y, y.sum(-1), y.permute(0, 3, 1, 2), y[0] * 3

    compiled = ng.compile(f)
    for _ in range(2):
        for mine, other in zip(compiled(x, bias), f(x, bias), strict=True):
            assert mine.stride() == other.stride()
            np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-6)
    turned = x.permute(3, 1, 2, 0).contiguous().permute(3, 1, 2, 0)  # an argument that is turned
    for mine, other in zip(compiled(turned, bias), f(turned, bias), strict=True):
        assert mine.stride() == other.stride()
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-6)


def test_a_compiled_sum_of_a_turned_chain_is_one_loop():
    compiled = ng.compile(lambda x: ng.relu(x.permute(0, 2, 3, 1) * 2 + 1).sum(-1))
    compiled(image(8))
    assert str(compiled.program).count("for (") == 1


def test_compiled_gradients():
    x = image(9).requires_grad_()

    def f(x):
        y = ng.tanh(x.permute(0, 2, 3, 1) * 2)
        loss = (y * y.exp()).sum()
        loss.backward()
        return loss

    f(x)
    expected, x.grad = x.grad, None
    ng.compile(f)(x)
    assert x.grad.is_contiguous()
    np.testing.assert_allclose(x.grad.numpy(), expected.numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", OPS)
def test_mapped(name):
    x = image(10, (3, 2, 4, 3))

    def f(x):
        return OPS[name](x.permute(2, 0, 1)) * 2 + 1

    expected = ng.stack([f(each) for each in x])
    for _ in range(3):  # the second is by a plan that is remembered
        assert ng.vmap(f)(x).tolist() == expected.tolist()


def test_derivatives_of_turned_chains():
    x = image(11, (3, 4))

    def f(x):
        y = x.t() * 2
        return (y * y.sin()).sum(0)

    for _ in range(2):
        first, second = ng.func.jacrev(f)(x), ng.func.jacfwd(f)(x)
        np.testing.assert_allclose(first.numpy(), second.numpy(), rtol=1e-12, atol=1e-12)
        assert ng.autograd.gradcheck(f, (x.clone().requires_grad_(),))


def test_conversions_that_are_asked_to_be_contiguous():
    x = ng.arange(6.0).reshape(2, 3).t()
    assert x.to(ng.float64).stride() == (1, 3)
    assert x.to(ng.float64, memory_format=ng.contiguous_format).stride() == (2, 1)
    assert x.to(memory_format=ng.contiguous_format, copy=True).stride() == (2, 1)
    assert x.to(memory_format=ng.contiguous_format) is x


def test_orders():
    assert order_of((2, 3), [np.zeros((2, 3))]) is None
    assert order_of((2, 3), [np.zeros((3, 2)).T]) == (1, 0)
    assert order_of((2, 3), [np.zeros((3, 2))[::-1].T]) is None  # towards lower addresses
    assert order_of((0, 3), [np.zeros((3, 0)).T]) is None
    assert common_order((2, 3, 4), ((1, 0, 3), (1, 2, 0))) == (1, 2, 0)
    assert ordered((2, 3, 4), (2, 0, 1)) == ((4, 2, 3), (3, 1, 6))
    assert is_dense(np.zeros((2, 3, 4)).transpose(2, 0, 1)) and not is_dense(np.zeros((4, 4))[::2])
