"""Names for what every tensor here is, dense, real, in common memory; and functions of Python's."""

from __future__ import annotations

import math
import multiprocessing
import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
from test_names import plain

import numbagrad as ng

LINES = """
    [x.H, x.mH, v[0].H, x.reshape(1, 2, 3).mH]
    [x.real, x.conj(), x.conj_physical(), x.resolve_conj(), x.resolve_neg()]
    [L.real(x), L.conj(x), L.conj_physical(x), L.resolve_conj(x), L.resolve_neg(x)]
    [x.is_conj(), L.is_conj(x), x.is_neg(), L.is_neg(x), x.is_inference(), L.is_inference(x)]
    [L.isreal(x), x.isreal(), L.angle(-x), x.angle(), L.angle(L.tensor([-1, 1]))]
    [(w := L.tensor([1.0, -2.0, -0.0], requires_grad=True)).angle().sum().backward(), w.grad][1]
    L.isnan(L.angle(L.tensor([float("nan"), -float("inf")])))
    [x.is_set_to(x), x.is_set_to(x.view(2, 3)), x.is_set_to(x.view(3, 2)), x.is_set_to(x.clone())]
    [x.dim_order(), x.t().dim_order(), L.ones(2, 3, 4).permute(2, 0, 1).dim_order()]
    [x.to_dense(), x.narrow_copy(1, 0, 2), L.narrow_copy(v, 0, 1, 2), L.detach_copy(v)]
    [L.empty_strided((2, 3), (1, 2)).stride(), x.new_empty_strided((2, 2), (5, 1)).stride()]
    [list(L.empty_strided((0, 3), (1, 2)).shape), L.empty_strided((2,), (0,)).stride()]
    [L.empty_strided((2, 3), (1, 2), dtype=L.float64).fill_(2), L.empty_strided((), ())[None].shape]
    [*L.lu(L.eye(2) * 2), *(L.eye(3) * 2).lu()]
    L.lu(L.zeros(2, 2), get_infos=True)[2]
    [x.layout == L.strided, x.layout == L.sparse_coo, isinstance(x.layout, L.layout)]
    L.zeros(2, layout=L.strided)
    [L.ones((2, 1), layout=L.strided, pin_memory=False), L.empty(0, layout=L.strided)]
    [L.full((2,), 3, layout=L.strided), L.arange(3, layout=L.strided), L.eye(2, layout=L.strided)]
    [L.linspace(0, 1, 3, layout=L.strided), L.logspace(0, 1, 3, layout=L.strided)]
    [f(x, layout=L.strided, pin_memory=False) for f in (L.zeros_like, L.ones_like)]
    [L.full_like(x, 2, layout=L.strided), L.empty_like(x, layout=L.strided).shape[0]]
    [x.new_zeros((2,), layout=L.strided), x.new_full((2,), 1, layout=L.strided)]
    [L.rand(2, layout=L.strided).shape[0], L.randint(3, (2,), layout=L.strided).shape[0]]
    [L.randn_like(x, layout=L.strided).shape[0], L.randperm(1, layout=L.strided)]
    [x.apply_(lambda a: a * 2 + 1), x]
    L.tensor([3, -4]).apply_(lambda a: a / 2)
    [x.t().map_(v.reshape(3, 1), lambda a, b: a - b), x]
    v.map2_(v * 2, v[0] + 0, lambda a, b, c: a * b - c)
""".strip().split("\n")


@pytest.mark.parametrize("line", [line.strip() for line in LINES])
@pytest.mark.filterwarnings("ignore")
def test_a_line_gives_what_pytorch_gives(line):
    torch = pytest.importorskip("torch")
    found = []
    for lib in (ng, torch):
        x = lib.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.5]])
        names = {"L": lib, "x": x, "v": lib.tensor([3.0, 1.0, 2.0])}
        found.append(plain(eval(line, names)))
    assert found[0] == found[1]


def test_what_is_refused():
    x = ng.ones(2, 3)
    for call, error, words in (
        (lambda: x.imag, RuntimeError, "not implemented for tensors with non-complex"),
        (lambda: x[0].H, RuntimeError, "only supported on matrices"),
        (lambda: x[0].mH, RuntimeError, "only supported on matrices or batches"),
        (lambda: ng.zeros(2, layout=ng.sparse_coo), NotImplementedError, "dense tensors only"),
        (lambda: ng.zeros(2, layout="strided"), TypeError, "'layout' must be"),
        (lambda: ng.arange(2, lay=1), TypeError, "unexpected keyword argument 'lay'"),
        (lambda: ng.full((2,), 1, lay=1), TypeError, "unexpected keyword argument 'lay'"),
        (lambda: ng.empty_strided((2, 3), (1,)), RuntimeError, "must match dimensionality"),
        (lambda: ng.empty_strided((2,), (-1,)), RuntimeError, "not be negative"),
        (lambda: ng.lu(ng.zeros(2, 2)), RuntimeError, "is zero"),
        (lambda: x.requires_grad_().apply_(abs), RuntimeError, "Can't call apply_"),
        (lambda: ng.ones(2).map_(x, max), RuntimeError, "Can't call map_"),
        (lambda: ng.ones(2).map_(ng.ones(2).double(), max), TypeError, "expected"),
        (lambda: ng.ones(2).map2_(3, 4, max), TypeError, "expected a Tensor, got int"),
    ):
        with pytest.raises(error, match=words):
            call()


def test_functions_of_python_follow_the_version():
    x = ng.ones(3, requires_grad=True)
    y = x * 1
    z = y * y
    y.detach().apply_(lambda a: a + 1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_angle_of_what_needs_a_gradient_of_nan():
    x = ng.tensor([math.nan, -1.0], requires_grad=True)
    x.angle().sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]


def _increase(tensors):
    with ng.no_grad():
        for tensor in tensors:
            tensor.add_(1)


def test_memory_that_forked_processes_share():
    x, layer = ng.arange(4.0), ng.nn.Linear(2, 2)
    plainly = ng.arange(4.0)
    weight = layer.weight.tolist()
    assert not x.is_shared() and x.share_memory_() is x and x.is_shared()
    assert layer.share_memory() is layer and layer.weight.is_shared()
    assert isinstance(layer.weight, ng.nn.Parameter) and layer.weight.requires_grad
    assert x.share_memory_()[1:].is_shared() and not x.clone().is_shared()
    process = multiprocessing.get_context("fork").Process(
        target=_increase, args=([x, layer.weight, plainly],)
    )
    process.start()
    process.join()
    assert process.exitcode == 0 and plainly.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert x.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert (layer.weight - 1).allclose(ng.tensor(weight), atol=1e-6)
    layer(ng.ones(1, 2)).sum().backward()
    assert x.add_(1).sum().item() == 14 and layer.weight.grad is not None


def test_shared_memory_goes_nowhere_else():
    x = ng.ones(3)
    y = x[1:]
    for tensor in (x, y):
        with pytest.raises(RuntimeError, match="cannot move to other memory"):
            tensor.share_memory_()
    z = ng.ones(0, 2).share_memory_()
    with pytest.raises(RuntimeError, match="reaches forked processes only"):
        ForkingPickler.dumps(z)
    assert pickle.loads(ForkingPickler.dumps(x)).tolist() == [1.0, 1.0, 1.0]
    assert pickle.loads(pickle.dumps(z)).shape == (0, 2)


def test_a_compiled_step_sees_shared_memory():
    x = ng.ones(3)
    step = ng.compile(lambda: x * 2)
    assert step().tolist() == [2.0, 2.0, 2.0]
    x.share_memory_().fill_(3)
    assert step().tolist() == [6.0, 6.0, 6.0]
