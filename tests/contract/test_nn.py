"""Contract lines N1 to N9: modules, parameters, buffers, printing, custom kernels."""

from __future__ import annotations

import importlib

import numba
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.autograd import Function, gradcheck
from numbagrad.nn import functional

from .functions import Linear as LinearFunction


class Linear(nn.Module):
    """The module of PyTorch's notes on extending, with their slips mended."""

    def __init__(self, in_features, out_features, bias=True):
        super(Linear, self).__init__()  # noqa: UP008
        self.in_features = in_features
        self.out_features = out_features
        self.weight = nn.Parameter(ng.Tensor(out_features, in_features))
        if bias:
            self.bias = nn.Parameter(ng.Tensor(out_features))
        else:
            self.register_parameter("bias", None)
        self.weight.data.uniform_(-0.1, 0.1)
        if self.bias is not None:
            self.bias.data.uniform_(-0.1, 0.1)

    def forward(self, x):
        return LinearFunction.apply(x, self.weight, self.bias)

    def extra_repr(self):
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


# N1 -------------------------------------------------------------------------------------------


def test_N1_super_with_arguments_works():
    assert Linear(4, 3)(ng.ones(2, 4)).shape == (2, 3)


@pytest.mark.parametrize("make", [lambda: nn.Parameter(ng.ones(1)), lambda: nn.ReLU()])
def test_N1_assigning_before_init_says_so(make):
    class Forgets(nn.Module):
        def __init__(self):
            self.part = make()

    with pytest.raises(AttributeError, match=r"before Module.__init__\(\) call"):
        Forgets()


# N2 -------------------------------------------------------------------------------------------


def test_N2_parameter_is_a_tensor_that_shares_storage_and_requires_grad():
    data = ng.ones(2)
    parameter = nn.Parameter(data)
    assert isinstance(parameter, ng.Tensor)
    assert parameter.requires_grad and parameter.is_leaf
    assert not data.requires_grad
    data.add_(1.0)
    assert parameter.tolist() == [2.0, 2.0]
    assert not nn.Parameter(ng.ones(1), requires_grad=False).requires_grad
    assert repr(parameter).startswith("Parameter containing:\ntensor([2., 2.], requires_grad=True)")


def test_N2_what_is_computed_from_a_parameter_is_a_plain_tensor():
    parameter = nn.Parameter(ng.ones(2))
    for made in (parameter * 2.0, parameter.detach(), parameter[0], parameter.data):
        assert not isinstance(made, nn.Parameter)


def test_N2_registered_on_assignment_in_order():
    class Ordered(nn.Module):
        def __init__(self):
            super().__init__()
            self.zeta = nn.Parameter(ng.ones(1))
            self.plain = ng.ones(1)
            self.alpha = nn.Parameter(ng.ones(2))
            self.inner = nn.Linear(2, 2)
            self.last = nn.Parameter(ng.ones(3))

    module = Ordered()
    names = [name for name, _ in module.named_parameters()]
    assert names == ["zeta", "alpha", "last", "inner.weight", "inner.bias"]
    assert next(iter(module.parameters())) is module.zeta
    del module.alpha
    assert [n for n, _ in module.named_parameters(recurse=False)] == ["zeta", "last"]


def test_N2_a_parameter_slot_takes_only_parameters_or_none():
    module = Linear(2, 2)
    before = module.weight
    with pytest.raises(TypeError, match=r"cannot assign .* as parameter 'weight'"):
        module.weight = ng.ones(2, 2)
    assert module.weight is before
    module.weight = None
    assert module.weight is None
    assert [n for n, _ in module.named_parameters()] == ["bias"]


def test_N2_a_shared_parameter_is_listed_once():
    first, second = Linear(2, 2, bias=False), Linear(2, 2, bias=False)
    second.weight = first.weight
    both = nn.Sequential(first, second)
    assert len(list(both.parameters())) == 1
    assert sorted(both.state_dict()) == ["0.weight", "1.weight"]


# N3 -------------------------------------------------------------------------------------------


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(ng.ones(2))
        self.register_buffer("steps", ng.zeros(2))
        self.register_buffer("count", ng.tensor(0))
        self.plain = ng.ones(2)
        self.inner = nn.Linear(2, 2)


@pytest.mark.parametrize("move", [lambda m: m.double(), lambda m: m.to(ng.double)])
def test_N3_only_registered_tensors_move(move):
    module = Mixed()
    weight = module.weight
    assert move(module) is module
    assert module.weight is weight  # the same Parameter, so an optimizer keeps it
    assert weight.dtype is ng.float64 and weight.requires_grad and weight.is_leaf
    assert module.steps.dtype is ng.float64
    assert module.count.dtype is ng.int64  # only floating ones change dtype
    assert module.inner.weight.dtype is ng.float64
    assert module.plain.dtype is ng.float32
    assert module.float().weight.dtype is ng.float32


def test_N3_gradients_move_along():
    module = Mixed()
    (module.weight * 2.0).sum().backward()
    module.double()
    assert module.weight.grad.dtype is ng.float64
    assert module.weight.grad.tolist() == [2.0, 2.0]


def test_N3_cuda_without_a_gpu_is_a_clear_error():
    if getattr(ng, "cuda", None) is not None and ng.cuda.is_available():
        pytest.skip("there is a GPU")
    module = Mixed()
    with pytest.raises((RuntimeError, AssertionError), match=r"(?i)cuda"):
        module.cuda()
    with pytest.raises((RuntimeError, AssertionError), match=r"(?i)cuda"):
        module.to("cuda")
    assert module.weight.tolist() == [1.0, 1.0]


# N4 -------------------------------------------------------------------------------------------


def test_N4_register_parameter_none():
    module = Linear(4, 3, bias=False)
    assert module.bias is None
    assert [n for n, _ in module.named_parameters()] == ["weight"]
    assert list(module.state_dict()) == ["weight"]
    assert module(ng.ones(2, 4)).shape == (2, 3)
    module.bias = nn.Parameter(ng.ones(3))
    assert [n for n, _ in module.named_parameters()] == ["weight", "bias"]
    assert list(module.state_dict()) == ["weight", "bias"]


def test_N4_register_parameter_checks_its_name():
    module = nn.Linear(1, 1)
    parameter = nn.Parameter(ng.ones(1))
    with pytest.raises(KeyError, match="already exists"):
        module.register_parameter("forward", parameter)
    with pytest.raises(KeyError, match=r"can.+t contain"):
        module.register_parameter("a.b", parameter)
    with pytest.raises(KeyError, match=r"can.+t be empty"):
        module.register_parameter("", parameter)
    with pytest.raises(TypeError, match="cannot assign"):
        module.register_parameter("other", ng.ones(1))
    with pytest.raises(ValueError, match="non-leaf"):
        module.register_parameter("other", parameter_from_graph())
    assert [n for n, _ in module.named_parameters()] == ["weight", "bias"]


def parameter_from_graph():
    """A Parameter with a history, as in-place work outside no_grad would make it."""
    result = nn.Parameter(ng.ones(1))
    with ng.no_grad():
        alias = nn.Parameter(ng.ones(1), requires_grad=False)
    alias.mul_(result)
    return alias


def test_N4_register_buffer():
    module = nn.Module()
    module.register_buffer("kept", ng.ones(2))
    module.register_buffer("passing", ng.ones(3), persistent=False)
    module.register_buffer("empty", None)
    assert list(module.state_dict()) == ["kept"]
    assert [n for n, _ in module.named_buffers()] == ["kept", "passing"]
    assert module.empty is None
    assert list(module.parameters()) == []
    module.kept = ng.zeros(2)
    assert module.state_dict()["kept"].tolist() == [0.0, 0.0]
    with pytest.raises(TypeError, match="cannot assign"):
        module.kept = 3.0


# N5 -------------------------------------------------------------------------------------------


def test_N5_initialising_through_data_does_not_touch_autograd():
    weight = nn.Parameter(ng.Tensor(50, 50))
    before = weight._version
    weight.data.uniform_(-0.1, 0.1)
    assert weight.is_leaf and weight.requires_grad and weight.grad_fn is None
    assert weight._version == before
    assert 0.09 < weight.abs().max().item() <= 0.1


# N6 -------------------------------------------------------------------------------------------


def test_N6_call_runs_forward_and_hooks():
    events = []
    module = Linear(2, 1)
    module.register_forward_pre_hook(lambda m, args: events.append(("before", m, len(args))))
    handle = module.register_forward_hook(
        lambda m, args, out: events.append(("after", m, tuple(out.shape)))
    )
    module(ng.ones(3, 2))
    assert events == [("before", module, 1), ("after", module, (3, 1))]
    handle.remove()
    module(ng.ones(3, 2))
    assert len(events) == 3


def test_N6_hooks_may_replace_arguments_and_result():
    module = nn.Identity()
    module.register_forward_pre_hook(lambda m, args: (args[0] + 1.0,))
    module.register_forward_hook(lambda m, args, out: out * 10.0)
    assert module(ng.ones(1)).tolist() == [20.0]


def test_N6_a_module_without_forward_names_its_class():
    class Nothing(nn.Module):
        pass

    with pytest.raises(NotImplementedError, match="Nothing"):
        Nothing()(ng.ones(1))


# N7 -------------------------------------------------------------------------------------------


def test_N7_extra_repr_shows_in_print():
    assert repr(Linear(4, 3)) == "Linear(in_features=4, out_features=3, bias=True)"
    assert str(Linear(4, 3, bias=False)) == "Linear(in_features=4, out_features=3, bias=False)"
    assert repr(nn.Linear(4, 3)) == "Linear(in_features=4, out_features=3, bias=True)"


def test_N7_children_are_indented_by_two_spaces():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
            self.head = nn.Linear(3, 1, bias=False)

    assert repr(Net()) == (
        "Net(\n"
        "  (body): Sequential(\n"
        "    (0): Linear(in_features=4, out_features=3, bias=True)\n"
        "    (1): ReLU()\n"
        "  )\n"
        "  (head): Linear(in_features=3, out_features=1, bias=False)\n"
        ")"
    )


# N8 -------------------------------------------------------------------------------------------

X = [[-1.5, -0.2, 0.0], [0.3, 2.0, -0.7]]
TWINS = {
    "ReLU": (lambda: nn.ReLU(), lambda x: functional.relu(x)),
    "Tanh": (lambda: nn.Tanh(), lambda x: ng.tanh(x)),
    "Sigmoid": (lambda: nn.Sigmoid(), lambda x: ng.sigmoid(x)),
    "GELU": (lambda: nn.GELU(), lambda x: functional.gelu(x)),
    "SiLU": (lambda: nn.SiLU(), lambda x: functional.silu(x)),
    "LeakyReLU": (lambda: nn.LeakyReLU(0.1), lambda x: functional.leaky_relu(x, 0.1)),
    "Softmax": (lambda: nn.Softmax(dim=1), lambda x: functional.softmax(x, dim=1)),
    "LogSoftmax": (lambda: nn.LogSoftmax(dim=0), lambda x: functional.log_softmax(x, dim=0)),
    "LayerNorm": (lambda: nn.LayerNorm(3), lambda x: functional.layer_norm(x, (3,))),
    "Dropout": (lambda: nn.Dropout(0.5).eval(), lambda x: functional.dropout(x, 0.5, False)),
    "Flatten": (lambda: nn.Flatten(0), lambda x: x.flatten()),
    "Identity": (lambda: nn.Identity(), lambda x: x),
}


@pytest.mark.parametrize("name", TWINS)
def test_N8_modules_and_functions_agree_exactly(name):
    make, function = TWINS[name]
    module = make()
    assert module(ng.tensor(X)).tolist() == function(ng.tensor(X)).tolist()
    grads = []
    for run in (module, function):
        x = ng.tensor(X, requires_grad=True)
        out = run(x)
        (out * ng.arange(float(out.numel())).view(out.shape)).sum().backward()
        grads.append(x.grad.tolist())
    assert grads[0] == grads[1]


def test_N8_linear_and_embedding_agree_exactly():
    linear = nn.Linear(3, 2)
    x = ng.tensor(X)
    assert linear(x).tolist() == functional.linear(x, linear.weight, linear.bias).tolist()
    embedding = nn.Embedding(5, 2)
    index = ng.tensor([[0, 4], [2, 2]])
    assert embedding(index).tolist() == functional.embedding(index, embedding.weight).tolist()


LOSSES = {
    "CrossEntropyLoss": ("cross_entropy", lambda: ng.tensor([2, 0])),
    "NLLLoss": ("nll_loss", lambda: ng.tensor([2, 0])),
    "MSELoss": ("mse_loss", lambda: ng.ones(2, 3)),
    "BCEWithLogitsLoss": ("binary_cross_entropy_with_logits", lambda: ng.ones(2, 3)),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_N8_losses_agree_exactly(name, reduction):
    function, target = LOSSES[name]
    x = ng.tensor(X)
    module = getattr(nn, name)(reduction=reduction)
    expected = getattr(functional, function)(x, target(), reduction=reduction)
    assert module(x, target()).tolist() == expected.tolist()


def test_N8_modules_hold_parameters_and_functions_nothing():
    assert importlib.import_module(f"{ng.__name__}.nn.modules")
    assert importlib.import_module(f"{ng.__name__}.nn.functional")
    assert ng.nn.functional is functional
    assert issubclass(ng.nn.modules.Linear, ng.nn.Module)
    assert ng.nn.Linear is ng.nn.modules.Linear


def test_N8_containers_iterate():
    layers = [nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1)]
    sequence, module_list = nn.Sequential(*layers), nn.ModuleList(layers)
    assert list(sequence) == layers and list(module_list) == layers
    assert len(sequence) == 3 and len(module_list) == 3
    assert sequence[1] is layers[1] and module_list[-1] is layers[2]
    table = nn.ModuleDict({"a": layers[0], "b": layers[1]})
    assert list(table) == ["a", "b"] and table["b"] is layers[1]
    assert list(table.values()) == layers[:2]
    assert len(list(module_list.parameters())) == 4


# N9 -------------------------------------------------------------------------------------------


@numba.njit
def cube(out, x):
    for i in range(x.size):
        out[i] = x[i] * x[i] * x[i]


@numba.njit
def cube_grad(gx, g, x):
    for i in range(x.size):
        gx[i] = 3.0 * g[i] * x[i] * x[i]


class CubeGrad(Function):
    @staticmethod
    def forward(ctx, g, x):
        ctx.save_for_backward(g, x)
        gx = ng.empty_like(x)
        ng.launch(cube_grad, gx, g.contiguous(), x)
        return gx

    @staticmethod
    def backward(ctx, gg):
        g, x = ctx.saved_tensors
        return CubeGrad.apply(gg, x), gg * g * x * 6.0


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        out = ng.empty_like(x)
        ng.launch(cube, out, x)
        return out

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return CubeGrad.apply(g, x)


def test_N9_a_function_around_a_users_own_njit_kernel():
    x = ng.tensor([1.0, 2.0, -3.0], dtype=ng.double, requires_grad=True)
    out = Cube.apply(x)
    assert out.tolist() == [1.0, 8.0, -27.0]
    assert gradcheck(Cube.apply, x)
    assert ng.autograd.gradgradcheck(Cube.apply, x)


def test_N9_a_kernel_trains_inside_a_module():
    class CubeLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(ng.tensor([0.5]))

        def forward(self, x):
            return Cube.apply(x) * self.scale

    layer = CubeLayer()
    layer(ng.tensor([2.0])).sum().backward()
    assert layer.scale.grad.tolist() == [8.0]


def test_N9_kernels_of_ours_take_part_too():
    @ng.kernel
    def double(out, x):
        for i in range(x.size):
            out[i] = x[i] + x[i]

    x, out = ng.tensor([1.0, 2.0]), ng.empty(2)
    ng.launch(double, out, x)
    assert out.tolist() == [2.0, 4.0]


def test_N9_an_elementwise_formula():
    @ng.elementwise
    def smooth_step(x, y):
        return x * x * (3.0 - 2.0 * x) + y if x > 0.0 else y

    x = ng.tensor([[0.5], [-1.0]], dtype=ng.double, requires_grad=True)
    y = ng.tensor([1.0, 2.0], dtype=ng.double, requires_grad=True)
    out = smooth_step(x, y)
    assert out.tolist() == [[1.5, 2.5], [1.0, 2.0]]
    assert gradcheck(smooth_step, (x, y))
    assert ng.autograd.gradgradcheck(smooth_step, (x, y))


# The traps ------------------------------------------------------------------------------------


def test_trap_one_output_feature():
    for module in (Linear(4, 1), nn.Linear(4, 1)):
        out = module(ng.ones(5, 4))
        assert out.shape == (5, 1)
        out.sum().backward()
        assert module.bias.grad.shape == (1,)
        assert module.bias.grad.tolist() == [5.0]


def test_trap_bias_false():
    for module in (Linear(4, 2, bias=False), nn.Linear(4, 2, bias=False)):
        assert module.bias is None
        assert "bias=False" in repr(module)
        out = module(ng.ones(5, 4))
        out.sum().backward()
        assert module.weight.grad.tolist() == [[5.0] * 4] * 2
