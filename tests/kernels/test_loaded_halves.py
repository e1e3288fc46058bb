"""Kernels that load float16 and bfloat16 themselves: the bits of the float32 form, rounded once."""

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.kernels import launches, widened
from numbagrad.kernels.cpu import reduce
from numbagrad.nn import functional as F

CALLS = {
    "sum": lambda x, d: x.sum(d),
    "mean": lambda x, d: x.mean(d),
    "prod": lambda x, d: x.prod(d) if isinstance(d, int) else x.prod(),
    "amax": lambda x, d: x.amax(d),
    "amin": lambda x, d: x.amin(d),
    "nansum": lambda x, d: x.nansum(d),
    "norm": lambda x, d: x.norm(dim=d),
    "norm1": lambda x, d: x.norm(1, dim=d),
    "norm3": lambda x, d: x.norm(3, dim=d),
    "largest": lambda x, d: ng.linalg.vector_norm(x, float("inf"), d),
    "least": lambda x, d: ng.linalg.vector_norm(x, -float("inf"), d),
    "var": lambda x, d: x.var(d),
    "cumsum": lambda x, d: x.cumsum(d if isinstance(d, int) else 0),
    "cumprod": lambda x, d: x.cumprod(d if isinstance(d, int) else 0),
    "cummax": lambda x, d: x.cummax(d if isinstance(d, int) else 0)[0],
    "logcumsumexp": lambda x, d: x.logcumsumexp(d if isinstance(d, int) else 0),
    "logsumexp": lambda x, d: x.logsumexp(d),
    "log_softmax": lambda x, d: x.log_softmax(d if isinstance(d, int) else 0),
}
GRADIENTS = {
    "softmax": lambda x, d: x.softmax(d),
    "log_softmax": lambda x, d: x.log_softmax(d),
    "layer_norm": lambda x, d: F.layer_norm(x, x.shape[d:]),
    "logsumexp": lambda x, d: x.logsumexp(d),
}
"""Those whose sums are added up in another order, which moves a last bit of float32."""
SHAPES = [(3, 5), (2, 7, 33), (40, 300), (300, 40)]
LONG = [(600, 400)]
"""For which threads are compiled: of one half."""


KINDS = [ng.bfloat16, ng.float16]
BOTH = ("sum", "amax")
"""Of which both halves are compiled; of the others they take turns, for a kernel differs by what
loads and stores a number alone."""
OF_HALVES = [(n, d) for k, n in enumerate(CALLS) for d in (KINDS if n in BOTH else [KINDS[k % 2]])]


@pytest.mark.parametrize(("name", "dtype"), OF_HALVES, ids=str)
def test_the_float32_form_rounded(name, dtype):
    call = CALLS[name]
    for shape in SHAPES + LONG * (dtype is ng.bfloat16):
        values = np.random.default_rng(0).standard_normal(shape)
        for special in (False, True):
            if special:
                values[0, 0], values[1, 2] = np.nan, np.inf
            x = ng.tensor(values).to(dtype)
            for given in (x, x.transpose(0, 1)):
                for dim in (0, 1, (0, 1)):
                    found, expected = call(given, dim), call(given.float(), dim).to(dtype)
                    assert found.dtype is dtype
                    np.testing.assert_array_equal(found.float().numpy(), expected.float().numpy())


def test_counts_and_truths():
    x = ng.tensor([[0.0, 2.0, float("nan")], [0.0, 0.0, 0.0]])
    for dtype in (ng.bfloat16, ng.float16):
        half = x.to(dtype)
        assert half.any(1).tolist() == [True, False] and half.all(1).tolist() == [False, False]
        assert half.count_nonzero().item() == 2


def test_nothing_is_copied(monkeypatch):
    x = ng.ones(37, 41).bfloat16()
    monkeypatch.setattr(widened, "launch_widened", lambda *_: pytest.fail("copied"))
    assert x.sum().item() == 37 * 41 or x.sum().item() == 1520  # rounded to 8 bits
    assert x.amax(0).tolist() == [1.0] * 41


@pytest.mark.parametrize("dtype", [ng.bfloat16, ng.float16, ng.int16], ids=str)
def test_remembered_calls_find_the_way_in(dtype):
    x, out = (ng.ones(*shape).to(dtype)._array for shape in ((2, 8, 1), (2, 1, 1)))
    reduce.sum(out, x)
    assert launches._compiled_kernel(reduce.sum, (out, x)) is not None


def test_a_compiled_step_gives_the_same():
    x = ng.randn(64, 300).bfloat16()

    def function(x):
        return x.sum(1), x.amax(0), x.log_softmax(0), x.cumsum(1)

    for one, other in zip(function(x), ng.compile(function)(x), strict=True):
        assert ng.equal(one, other)


@pytest.mark.parametrize("dtype", [ng.bfloat16, ng.float16], ids=str)
@pytest.mark.parametrize("name", GRADIENTS)
def test_the_float32_form_but_for_the_last_bit(name, dtype):
    """Rows short, long and longer than what is kept; gradients are of results that were rounded."""
    unit = {ng.bfloat16: 2.0**-8, ng.float16: 2.0**-11}[dtype]
    for shape in [(3, 5), (2, 7, 33), (70, 300), (2, 9000)]:
        rng = np.random.default_rng(0)
        x = ng.tensor(rng.standard_normal(shape)).to(dtype)
        for dim in (0, 1):
            found, expected = [], []
            for kind, made in ((dtype, found), (ng.float32, expected)):
                leaf = x.to(kind).detach().requires_grad_()
                out = GRADIENTS[name](leaf, dim)
                seed = ng.linspace(-1, 2, out.numel()).to(dtype).to(kind).reshape(out.shape)
                made += [out.detach().double(), ng.autograd.grad(out, leaf, seed)[0].double()]
            most = expected[1].abs().max().item()
            least = 2.0**-24 if dtype is ng.float16 else 0.0
            np.testing.assert_allclose(found[0], expected[0], 1.01 * unit, least + 1e-6 * unit)
            np.testing.assert_allclose(found[1], expected[1], 0, 20 * unit * most)


@pytest.mark.parametrize("dtype", [ng.bfloat16, ng.float16], ids=str)
def test_rows_with_nan_and_infinities(dtype):
    inf, nan = float("inf"), float("nan")
    x = ng.tensor([[0.0, nan, 1.0], [inf, 0.0, 1.0], [-inf, 0.0, -inf], [-inf, -inf, -inf]])
    for call in (ng.softmax, ng.log_softmax, ng.logsumexp):
        found, expected = call(x.to(dtype), 1).float(), call(x, 1).to(dtype).float()
        np.testing.assert_array_equal(found.numpy(), expected.numpy())


@pytest.mark.parametrize("dtype", [ng.bfloat16, ng.float16], ids=str)
@pytest.mark.parametrize("affine", ["", "weight", "bias", "weight bias", "float32"])
def test_layer_norm_with_each_of_its_parameters(affine, dtype):
    """Gradients have the dtype of what they are of; a second one goes through float32."""
    kind = ng.float32 if affine == "float32" else dtype
    names = ("weight", "bias") if affine == "float32" else affine.split()
    rng = np.random.default_rng(1)
    x = ng.tensor(rng.standard_normal((70, 33))).to(dtype)
    given = {n: ng.tensor(rng.standard_normal(33)).to(kind) for n in names}
    found = []
    for wide in (False, True):
        tensors = [x, *given.values()]
        tensors = [(t.float() if wide else t).detach().requires_grad_() for t in tensors]
        out = F.layer_norm(tensors[0], (33,), **dict(zip(given, tensors[1:], strict=True)))
        seed = ng.tensor(np.random.default_rng(2).standard_normal((70, 33))).to(dtype).to(out.dtype)
        grads = ng.autograd.grad(out, tensors, seed, create_graph=True)
        plain = ng.autograd.grad(out, tensors, seed, retain_graph=True)
        second = ng.autograd.grad((grads[0].float() ** 2).sum(), tensors[0])
        if not wide:
            assert out.dtype is dtype and [t.dtype for t in grads] == [t.dtype for t in tensors]
            assert [t.dtype for t in plain] == [t.dtype for t in tensors]
        found.append([out, *grads, *plain, *second])
    unit = {ng.bfloat16: 2.0**-8, ng.float16: 2.0**-11}[dtype]
    for k, (half, single) in enumerate(zip(*found, strict=True)):
        most = single.abs().max().item()
        slack = 40 if k == len(found[0]) - 1 else 4  # the gradient it is of was rounded already
        np.testing.assert_allclose(half.detach().float(), single.detach(), 0, slack * unit * most)


@pytest.mark.parametrize("dtype", [ng.bfloat16, ng.float16], ids=str)
@pytest.mark.parametrize("shape", [(5, 3), (70, 10), (3, 2500), (2, 5, 300)], ids=str)
def test_cross_entropy_is_the_float32_form_rounded(shape, dtype):
    """Few classes, more than are worked on together, and places of a plane."""
    unit = {ng.bfloat16: 2.0**-8, ng.float16: 2.0**-11}[dtype]
    rng = np.random.default_rng(0)
    x = ng.tensor(rng.standard_normal(shape)).to(dtype)
    weight = ng.tensor(rng.uniform(0.5, 1.5, shape[1])).to(dtype)
    target = ng.tensor(rng.integers(0, shape[1], (shape[0], *shape[2:])))
    target.view(-1)[0] = -100
    for reduction in ("mean", "sum", "none"):
        for options in ({}, {"weight": weight}, {"weight": weight, "label_smoothing": 0.25}):
            found, expected = [], []
            for kind, made in ((dtype, found), (ng.float32, expected)):
                leaf = x.to(kind).detach().requires_grad_()
                given = {**options, "reduction": reduction}
                if "weight" in options:
                    given["weight"] = weight.to(kind)
                out = F.cross_entropy(leaf, target, **given)
                out.backward(ng.ones_like(out))
                assert out.dtype is leaf.grad.dtype is kind
                made += [out.detach().double(), leaf.grad.double()]
            least = 2.0**-24 if dtype is ng.float16 else 0.0
            np.testing.assert_allclose(found[0], expected[0], 1.01 * unit, least)
            most = expected[1].abs().max().item()
            np.testing.assert_allclose(found[1], expected[1], 1.01 * unit, least + 1e-6 * most)


@pytest.mark.parametrize("dtype", [ng.bfloat16, ng.float16], ids=str)
@pytest.mark.parametrize(
    ("shape", "dim", "count"),
    [
        ((7, 3), 0, 50),
        ((3, 5, 4), 1, 40),
        ((2, 9, 1), 1, 30),
        ((300, 600), 0, 1000),
        ((4, 2), 0, 0),
    ],
    ids=str,
)
def test_rows_added_at_places_are_rounded_once(shape, dim, count, dtype):
    """Rows that many entries name, wider ones than what is kept, some that none names."""
    rng = np.random.default_rng(0)
    index = ng.tensor(rng.integers(0, max(1, shape[dim] - 1), count))
    given = (*shape[:dim], count, *shape[dim + 1 :])
    x = ng.tensor(rng.standard_normal(shape)).to(dtype)
    y = ng.tensor(rng.standard_normal(given)).to(dtype)
    expected = x.float().index_add(dim, index, y.float()).to(dtype)
    assert ng.equal(x.index_add(dim, index, y), expected)
    leaf = x.clone().requires_grad_()
    leaf.index_select(dim, index).backward(y)
    added = ng.zeros(shape).index_add(dim, index, y.float()).to(dtype)
    assert ng.equal(leaf.grad, added)
    if dim == 0 and len(shape) == 2:
        leaf = x.clone().requires_grad_()
        F.embedding(index, leaf, padding_idx=1).backward(y)
        added[1] = 0
        assert ng.equal(leaf.grad, added)
    with pytest.raises(IndexError, match="out of bounds"):
        x.index_add_(
            dim,
            ng.tensor([0, shape[dim]]),
            y.narrow(dim, 0, 0).new_zeros((*shape[:dim], 2, *shape[dim + 1 :])),
        )
    assert not count or ng.isfinite(x.float()).all()
