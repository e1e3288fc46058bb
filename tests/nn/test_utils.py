"""Gradient clipping, parameter vectors, functional_call, initialisation."""

from __future__ import annotations

import math

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.nn import init, utils

SHAPES = [(3, 4), (), (0,), (50,)]


def with_gradients(dtype="float32"):
    draw = np.random.default_rng(0)
    params = []
    for shape in SHAPES:
        param = ng.tensor(np.zeros(shape, dtype)).requires_grad_()
        param.grad = ng.tensor(np.asarray(draw.normal(size=shape), dtype))
        params.append(param)
    params.append(ng.tensor([1.0], requires_grad=True))  # has no gradient
    return params


def gradients(params):
    return [p.grad.numpy().copy() for p in params if p.grad is not None]


@pytest.mark.peer
@pytest.mark.parametrize("norm_type", [1.0, 2, 3.5, math.inf])
@pytest.mark.parametrize("largest", [0.5, 1e6])
def test_clip_grad_norm_is_torchs(norm_type, largest):
    torch = pytest.importorskip("torch")
    ours = with_gradients("float64")
    theirs = []
    for param in ours[:-1]:
        theirs.append(torch.zeros(tuple(param.shape), dtype=torch.double, requires_grad=True))
        theirs[-1].grad = torch.tensor(param.grad.numpy().copy())
    if norm_type == math.inf:  # torch cannot take the largest of no elements
        del theirs[2]
        del ours[2]
    norm = utils.clip_grad_norm_(ours, largest, norm_type)
    expected = torch.nn.utils.clip_grad_norm_(theirs, largest, norm_type)
    assert norm.shape == () and math.isclose(norm.item(), expected.item(), rel_tol=1e-12)
    for x, y in zip(gradients(ours), theirs, strict=True):
        np.testing.assert_allclose(x, y.grad.numpy(), rtol=1e-12)


def test_clipping_in_float32_and_mixed():
    params = with_gradients() + with_gradients("float64")
    whole = np.concatenate([g.reshape(-1) for g in gradients(params)])
    norm = utils.clip_grad_norm_(params, 2.0)
    assert norm.dtype is ng.float64
    np.testing.assert_allclose(norm.item(), np.linalg.norm(whole), rtol=1e-6)
    clipped = np.concatenate([g.reshape(-1) for g in gradients(params)])
    np.testing.assert_allclose(np.linalg.norm(clipped), 2.0, rtol=1e-5)


def test_clip_accepts_one_tensor_an_iterator_or_nothing():
    param = with_gradients()[0]
    utils.clip_grad_norm_(param, 1.0)
    utils.clip_grad_norm_(iter([param]), 1.0)
    np.testing.assert_allclose(np.linalg.norm(gradients([param])[0]), 1.0, rtol=1e-5)
    assert utils.clip_grad_norm_([], 1.0).item() == 0.0


def test_clip_refuses():
    params = with_gradients()
    with pytest.raises(ValueError, match="norm_type"):
        utils.clip_grad_norm_(params, 1.0, math.nan)
    params[0].grad[0, 0] = math.nan
    before = gradients(params)
    with pytest.raises(RuntimeError, match="non-finite"):
        utils.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
    for x, y in zip(gradients(params), before, strict=True):
        np.testing.assert_array_equal(x, y)


def test_clip_moves_the_version_of_gradients():
    param = ng.tensor([1.0], requires_grad=True)
    param.grad = ng.tensor([5.0])
    before = param.grad._version
    utils.clip_grad_value_([param], 2.0)
    assert param.grad.tolist() == [2.0] and param.grad._version == before + 1


def test_clip_grad_value():
    param = ng.tensor([0.0] * 4, requires_grad=True)
    param.grad = ng.tensor([-3.0, 0.5, 7.0, math.nan])
    utils.clip_grad_value_([param], 1.0)
    assert param.grad.tolist()[:3] == [-1.0, 0.5, 1.0] and math.isnan(param.grad.tolist()[3])


def test_clip_strided_gradients():
    param = ng.tensor(np.zeros((3, 2), "float32")).requires_grad_()
    param.grad = ng.tensor([[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]]).t()
    assert utils.clip_grad_norm_([param], 1.0).item() == 5.0
    expected = [[0.6, 0.0], [0.0, 0.8], [0.0, 0.0]]
    np.testing.assert_allclose(param.grad.tolist(), expected, rtol=1e-5)


def test_parameters_as_one_vector():
    module = nn.Linear(3, 2)
    vector = utils.parameters_to_vector(module.parameters())
    assert vector.shape == (8,) and vector.requires_grad
    utils.vector_to_parameters(ng.arange(8.0), module.parameters())
    assert module.weight.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert module.bias.tolist() == [6.0, 7.0]
    assert module.weight.requires_grad
    with pytest.raises(ValueError, match="elements"):
        utils.vector_to_parameters(ng.arange(3.0), module.parameters())


def test_functional_call_with_several_dicts():
    module, x = nn.BatchNorm1d(2), ng.tensor([[1.0, 3.0], [2.0, 5.0]])
    weights = {"weight": ng.tensor([2.0, 1.0]), "bias": ng.ones(2)}
    buffers = {"running_mean": ng.ones(2), "running_var": ng.ones(2)}
    out = ng.func.functional_call(module.eval(), (weights, buffers), x)
    expected = ng.func.functional_call(module, weights | buffers, x)
    assert ng.equal(out, expected) and ng.allclose(out[0], ng.tensor([1.0, 3.0]), atol=1e-4)
    with pytest.raises(ValueError, match="'bias' appears in multiple dictionaries"):
        ng.func.functional_call(module, (weights, {"bias": ng.ones(2)}), x)


def test_functional_call():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[1].weight = module[0].weight
    before = module[0].weight
    weight = ng.tensor([[0.0, 2.0], [1.0, 0.0]], requires_grad=True)
    zero = ng.zeros(2)
    tensors = {"0.weight": weight, "0.bias": zero, "1.bias": zero}
    out = utils.stateless.functional_call(module, tensors, (ng.tensor([[1.0, 3.0]]),))
    assert out.tolist() == [[2.0, 6.0]]
    out.sum().backward()
    assert weight.grad is not None and before.grad is None
    assert module[0].weight is before and module[1].weight is before
    with pytest.raises(RuntimeError, match=r"Unexpected key\(s\): 7\.weight"):
        utils.stateless.functional_call(module, {"7.weight": weight}, ng.ones(1, 2))
    with pytest.raises(RuntimeError, match=r"Missing key\(s\): 0\.bias"):
        utils.stateless.functional_call(module, {"0.weight": weight}, ng.ones(1, 2), strict=True)

    class Failing(nn.Linear):
        def forward(self, x):
            raise ZeroDivisionError

    failing = Failing(1, 1)
    held = failing.weight
    with pytest.raises(ZeroDivisionError):
        utils.stateless.functional_call(failing, {"weight": weight}, ng.ones(1, 1))
    assert failing.weight is held


def test_functional_call_of_tied_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
            self.b.weight = self.a.weight
            self.register_parameter("shift", None)

        def forward(self, x):
            out = self.b(self.a(x))
            return out if self.shift is None else out + self.shift

    module, x, call = Tied(), ng.tensor([[1.0, 3.0]]), ng.func.functional_call
    module.a.weight.data.copy_(ng.tensor([[0.0, 1.0], [1.0, 0.0]]))
    one, two = ng.eye(2), ng.eye(2) * 2
    for name in ("a.weight", "b.weight"):
        assert call(module, {name: two}, x).tolist() == [[4.0, 12.0]]
        assert call(module, {name: two}, x, tie_weights=False).tolist() == [[6.0, 2.0]]
        call(module, {name: two}, x, strict=True)
        with pytest.raises(RuntimeError, match=r"Missing key"):
            call(module, {name: two}, x, tie_weights=False, strict=True)
    both = {"a.weight": one, "b.weight": two}
    assert call(module, both, x, tie_weights=False).tolist() == [[2.0, 6.0]]
    with pytest.raises(ValueError, match="tied"):
        call(module, both, x)
    assert call(module, {"a.weight": one, "shift": one[0]}, x).tolist() == [[2.0, 3.0]]
    assert module.shift is None
    for wrong in (5, ({"a.weight": one}, 3)):
        with pytest.raises(ValueError, match="dict"):
            call(module, wrong, x)
    with pytest.raises(TypeError, match="must be a tensor"):
        call(module, {"a.weight": 5.0}, x)


# -- init --------------------------------------------------------------------------------------

# name: (arguments, expected mean, expected standard deviation) for a weight (300, 200)
FILLS = {
    "uniform_": ((-2.0, 4.0), 1.0, 6 / math.sqrt(12)),
    "normal_": ((1.0, 0.5), 1.0, 0.5),
    "trunc_normal_": ((0.0, 1.0, -2.0, 2.0), 0.0, 0.8796),
    "xavier_uniform_": ((2.0,), 0.0, 2 * math.sqrt(2 / 500)),
    "xavier_normal_": ((2.0,), 0.0, 2 * math.sqrt(2 / 500)),
    "kaiming_uniform_": ((math.sqrt(5),), 0.0, math.sqrt(1 / 3 / 200)),
    "kaiming_normal_": ((0, "fan_out", "relu"), 0.0, math.sqrt(2 / 300)),
    "constant_": ((3.0,), 3.0, 0.0),
    "ones_": ((), 1.0, 0.0),
    "zeros_": ((), 0.0, 0.0),
}


@pytest.mark.parametrize("name", FILLS)
def test_fills(name):
    args, mean, std = FILLS[name]
    ng.manual_seed(0)
    weight = nn.Parameter(ng.empty(300, 200))
    assert getattr(init, name)(weight, *args) is weight
    assert weight.is_leaf and weight.requires_grad
    values = weight.detach().numpy()
    assert abs(values.mean() - mean) < 0.02 * max(1, std)
    assert abs(values.std() - std) < 0.02 * max(std, 0.01)


def test_truncated_normal_stays_inside():
    values = init.trunc_normal_(ng.empty(1000), 5.0, 2.0, 8.0, 9.0).numpy()
    assert values.min() >= 8 and values.max() <= 9 and values.std() > 0.1
    with pytest.raises(ValueError, match="a < b"):
        init.trunc_normal_(ng.empty(2), a=1.0, b=1.0)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 2, 3), (4, 4)])
def test_orthogonal(shape):
    q = init.orthogonal_(ng.empty(*shape), gain=2.0).numpy().reshape(shape[0], -1)
    gram = q @ q.T if q.shape[0] <= q.shape[1] else q.T @ q
    np.testing.assert_allclose(gram, 4 * np.eye(len(gram)), atol=1e-5)


def test_eye_and_gains():
    assert init.eye_(ng.empty(2, 3)).tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    assert init.calculate_gain("tanh") == 5 / 3
    assert init.calculate_gain("leaky_relu", 0.2) == math.sqrt(2 / 1.04)
    with pytest.raises(ValueError, match="Unsupported nonlinearity"):
        init.calculate_gain("step")


@pytest.mark.parametrize("name", ["xavier_uniform_", "kaiming_normal_", "orthogonal_", "eye_"])
def test_fills_of_matrices_refuse_vectors(name):
    with pytest.raises(ValueError, match="2"):
        getattr(init, name)(ng.empty(3))


def test_a_generator_repeats():
    fills = []
    for _ in range(2):
        generator = ng.Generator().manual_seed(3)
        fills.append(init.kaiming_uniform_(ng.empty(4, 4), generator=generator).tolist())
    assert fills[0] == fills[1]


@pytest.mark.parametrize("norm_type", [0, -1, -2.0, -math.inf])
def test_norms_that_are_not_positive_are_torchs(norm_type):
    torch = pytest.importorskip("torch")
    values = [[3.0, -4.0, 0.5], [0.0], [2.0, 1.0]]
    ours = utils.get_total_norm([ng.tensor(v) for v in values], norm_type)
    theirs = torch.nn.utils.get_total_norm([torch.tensor(v) for v in values], norm_type)
    assert ours.shape == () and ours.item() == pytest.approx(theirs.item())
    assert utils.get_total_norm([], norm_type).item() == 0.0


def test_errors_of_norms_name_their_function():
    nan, infinite = float("nan"), [ng.tensor([math.inf])]
    with pytest.raises(ValueError, match="get_total_norm: norm_type must be a number"):
        utils.get_total_norm([ng.ones(2)], nan)
    with pytest.raises(RuntimeError, match="get_total_norm: The total norm of order 2"):
        utils.get_total_norm(infinite, error_if_nonfinite=True)
    with pytest.raises(ValueError, match="clip_grad_norm_: norm_type must be a number"):
        utils.clip_grad_norm_([ng.ones(2, requires_grad=True)], 1.0, nan)


def test_modules_of_utils_are_attributes():
    assert utils.fusion.fuse_conv_bn_eval is utils.fuse_conv_bn_eval


def test_a_compiled_call_tells_of_a_norm_that_is_not_finite():
    p = nn.Parameter(ng.ones(2))
    optimizer = ng.optim.SGD([p], 0.5)

    @ng.compile
    def step(x):
        optimizer.zero_grad()
        (p * x).sum().backward()
        norm = nn.utils.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)
        optimizer.step()
        return norm

    assert step(ng.tensor([3.0, 4.0])).item() == 5.0
    before = p.detach().clone()
    with pytest.raises(RuntimeError, match=r"clip_grad_norm_: The total norm of order 2\.0"):
        step(ng.tensor([1.0, float("nan")]))
    assert ng.equal(p.detach(), before)
    assert step(ng.tensor([0.0, 2.0])).item() == 2.0
