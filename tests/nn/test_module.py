"""What the contract's N lines do not cover of modules: state, traversal, hooks, containers."""

from __future__ import annotations

import copy

import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import StateDictError


def net():
    return nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))


def snapshot(module):
    return {name: tensor.tolist() for name, tensor in module.state_dict().items()}


# -- state -------------------------------------------------------------------------------------


def test_state_dict_shares_memory_and_loads_back():
    module, other = net(), net()
    state = module.state_dict()
    assert list(state) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert not any(t.requires_grad for t in state.values())
    result = other.load_state_dict(state)
    assert str(result) == "<All keys matched successfully>"
    assert snapshot(other) == snapshot(module)
    state["0.bias"].zero_()
    assert module[0].bias.tolist() == [0.0, 0.0]
    assert module.state_dict(keep_vars=True)["0.bias"] is module[0].bias
    assert next(iter(module.state_dict(prefix="net."))) == "net.0.weight"


def test_all_errors_come_at_once_and_nothing_changes():
    module = net()
    before = snapshot(module)
    state = {
        "0.weight": ng.ones(2, 3),
        "0.bias": ng.ones(5),
        "2.weight": [1.0],
        "extra": ng.ones(1),
    }
    with pytest.raises(StateDictError) as caught:
        module.load_state_dict(state)
    message = str(caught.value)
    assert "Error(s) in loading state_dict for Sequential" in message
    assert 'Missing key(s) in state_dict: "2.bias"' in message
    assert 'Unexpected key(s) in state_dict: "extra"' in message
    assert "size mismatch for 0.bias: copying a param with shape ng.Size([5])" in message
    assert "expected a Tensor but received list" in message
    assert isinstance(caught.value, RuntimeError)
    assert snapshot(module) == before


def test_strict_false_loads_what_fits():
    module = net()
    state = {"0.bias": ng.ones(2), "extra": ng.ones(1)}
    result = module.load_state_dict(state, strict=False)
    assert result.missing_keys == ["0.weight", "2.weight", "2.bias"]
    assert result.unexpected_keys == ["extra"]
    assert module[0].bias.tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match="size mismatch"):
        module.load_state_dict({"0.bias": ng.ones(3)}, strict=False)


def test_loading_casts_and_keeps_the_parameter():
    module = net()
    held = module[0].bias
    module.load_state_dict({"0.bias": ng.ones(2, dtype=ng.double)}, strict=False)
    assert module[0].bias is held and held.dtype is ng.float32 and held.requires_grad


# -- traversal ---------------------------------------------------------------------------------


def test_names_and_paths():
    inner = nn.Linear(1, 1)
    module = nn.Module()
    module.first = inner
    module.again = inner
    module.none = None
    module.register_module("empty", None)
    module.register_buffer("count", ng.ones(1))
    assert [n for n, _ in module.named_modules()] == ["", "first"]
    assert [n for n, _ in module.named_children()] == ["first"]
    assert [n for n, _ in module.named_modules(remove_duplicate=False)] == ["", "first", "again"]
    assert len(list(module.modules())) == 2 and len(list(module.children())) == 1
    assert module.get_submodule("first") is inner and module.get_submodule("") is module
    assert module.get_parameter("first.weight") is inner.weight
    assert module.get_buffer("count").tolist() == [1.0]
    for call in (
        lambda: module.get_submodule("second"),
        lambda: module.get_parameter("first.scale"),
        lambda: module.get_buffer("first.count"),
        lambda: module.missing,
    ):
        with pytest.raises(AttributeError):
            call()


def test_train_eval_apply_and_requires_grad():
    module = nn.Sequential(net(), nn.Dropout())
    assert module.eval() is module
    assert not any(m.training for m in module.modules())
    assert all(m.training for m in module.train().modules())
    with pytest.raises(ValueError, match="boolean"):
        module.train(1)
    seen = []
    assert module.apply(lambda m: seen.append(type(m).__name__)) is module
    assert seen == ["Linear", "ReLU", "Linear", "Sequential", "Dropout", "Sequential"]
    module.requires_grad_(False)
    assert not any(p.requires_grad for p in module.parameters())


def test_zero_grad():
    module = nn.Linear(2, 1)
    module(ng.ones(1, 2)).sum().backward()
    held = module.weight.grad
    module.zero_grad(set_to_none=False)
    assert held.tolist() == [[0.0, 0.0]]
    module.zero_grad()
    assert module.weight.grad is None


def test_to_takes_floating_dtypes():
    with pytest.raises(TypeError, match="floating"):
        net().to(ng.int64)


def test_replacing_and_deleting():
    module = nn.Module()
    module.part = nn.ReLU()
    module.part = nn.Parameter(ng.ones(1))
    assert [n for n, _ in module.named_parameters()] == ["part"]
    assert list(module.children()) == []
    del module.part
    assert list(module.parameters()) == [] and not hasattr(module, "part")
    module.plain = 3
    module.plain = nn.ReLU()
    assert list(module.children()) == [module.plain]
    module.register_buffer("table", ng.ones(2), persistent=False)
    module.table = ng.zeros(2)
    assert list(module.state_dict()) == []
    with pytest.raises(KeyError, match="already exists"):
        module.register_buffer("forward", None)


# -- hooks -------------------------------------------------------------------------------------


def test_full_backward_hooks_see_and_replace_gradients():
    module = nn.Linear(2, 1, bias=False)
    seen = []

    def hook(m, grad_input, grad_output):
        seen.append((m, [tuple(g.shape) for g in grad_input], grad_output[0].tolist()))
        return (grad_input[0] * 10.0,)

    handle = module.register_full_backward_hook(hook)
    x = ng.ones(3, 2, requires_grad=True)
    plain = ng.ones(3, 2, requires_grad=True)
    module(x).sum().backward()
    assert seen == [(module, [(3, 2)], [[1.0]] * 3)]
    handle.remove()
    module(plain).sum().backward()
    assert len(seen) == 1
    assert x.grad.tolist() == (plain.grad * 10.0).tolist()


def test_a_backward_hook_runs_without_gradients_of_the_inputs():
    module = nn.Linear(2, 1)
    seen = []
    module.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go[0].tolist())))
    module(ng.ones(1, 2)).sum().backward()
    assert seen == [((None,), [[1.0]])]
    with ng.no_grad():
        module(ng.ones(1, 2))


def test_backward_hooks_with_several_outputs():
    class Two(nn.Module):
        def forward(self, x, scale, y):
            return x * scale, y * 2.0

    module = Two()
    seen = []
    module.register_full_backward_hook(lambda m, gi, go: seen.append((len(gi), len(go))))
    x, y = ng.ones(2, requires_grad=True), ng.ones(2, requires_grad=True)
    a, b = module(x, 3.0, y)
    (a.sum() + b.sum()).backward()
    assert seen == [(3, 2)]
    assert x.grad.tolist() == [3.0, 3.0] and y.grad.tolist() == [2.0, 2.0]


def test_forward_hooks_keep_their_order():
    module = nn.Identity()
    seen = []
    module.register_forward_hook(lambda *a: seen.append("second"))
    module.register_forward_hook(lambda *a: seen.append("first"), prepend=True)
    module(1)
    assert seen == ["first", "second"]


# -- containers --------------------------------------------------------------------------------


def test_sequential():
    module = net()
    assert len(module[:2]) == 2 and module[:2][0] is module[0]
    assert module.append(nn.Tanh()) is module and len(module) == 4
    module.insert(1, nn.Sigmoid())
    assert [type(m).__name__ for m in module] == ["Linear", "Sigmoid", "ReLU", "Linear", "Tanh"]
    assert list(module.state_dict()) == ["0.weight", "0.bias", "3.weight", "3.bias"]
    del module[1]
    assert type(module.pop()).__name__ == "Tanh" and len(module) == 3
    module[1] = nn.Identity()
    assert type(module[-2]) is nn.Identity
    named = nn.Sequential({"first": nn.Linear(1, 1), "second": nn.ReLU()})
    assert list(named.state_dict()) == ["first.weight", "first.bias"]
    assert named.first is named[0] and len(named + module) == 5
    with pytest.raises(IndexError):
        module[7]
    with pytest.raises(TypeError, match="Module"):
        nn.Sequential(1)


def test_sequential_is_added_to_and_repeated():
    first, second = nn.Linear(2, 2), nn.ReLU()
    model = alias = nn.Sequential(first)
    model += nn.Sequential(second)
    assert list(alias) == [first, second]
    assert list(model * 2) == list(2 * model) == [first, second] * 2 and len(model) == 2
    model *= 3
    assert model is alias and list(alias) == [first, second] * 3
    assert list(alias.state_dict()) == [f"{i}.{n}" for i in (0, 2, 4) for n in ("weight", "bias")]
    with pytest.raises(ValueError, match="once or more, got 0"):
        model * 0


def test_module_list_and_dict():
    layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    layers += [nn.ReLU()]
    assert repr(layers) == (
        "ModuleList(\n"
        "  (0-2): 3 x Linear(in_features=2, out_features=2, bias=True)\n"
        "  (3): ReLU()\n"
        ")"
    )
    assert len(layers[1:]) == 3 and type(layers[1:]) is nn.ModuleList
    with pytest.raises(NotImplementedError, match="ModuleList"):
        layers(1)
    with pytest.raises(TypeError, match="not a Module"):
        layers.append(1)
    table = nn.ModuleDict({"a": nn.ReLU()})
    table["b"] = nn.Linear(1, 1)
    table.update([("a", nn.Tanh())])
    assert list(table.keys()) == ["a", "b"] and "b" in table and len(table) == 2
    assert type(table["a"]) is nn.Tanh and type(table.pop("a")) is nn.Tanh
    assert list(dict(table.items())) == ["b"]
    table.clear()
    assert len(table) == 0 and list(table.parameters()) == []


def test_parameter_list_and_dict():
    values = nn.ParameterList([ng.ones(2), nn.Parameter(ng.ones(3))])
    values.append(ng.ones(4))
    assert [n for n, _ in values.named_parameters()] == ["0", "1", "2"]
    assert all(isinstance(p, nn.Parameter) for p in values) and len(values) == 3
    assert tuple(values[-1].shape) == (4,)
    assert "(0): Parameter containing: [ng.float32 of size 2]" in repr(values)
    table = nn.ParameterDict({"w": ng.ones(2)})
    table["w"] = nn.Parameter(ng.zeros(1))
    assert [n for n, _ in table.named_parameters()] == ["w"]
    assert table["w"].tolist() == [0.0]
    with pytest.raises(TypeError, match="not a Tensor"):
        table["v"] = 1


def dict_of_parameters(library):
    """What the methods of a dict do to a ParameterDict: names and shapes after each."""
    ones = library.ones
    table = library.nn.ParameterDict({"a": ones(2)})
    held = table.setdefault("a", ones(5)), table.setdefault("b", ones(3)), table.get("z")
    seen = [held[0] is table["a"], held[1].requires_grad, held[2], list(reversed(table))]
    twin = table.copy() | library.nn.ParameterDict({"c": ones(1)})
    seen += [twin["a"] is table["a"], len(table), twin.popitem()[0], list(twin)]
    table |= table.fromkeys(["d", "e"], ones(4))
    return [*seen, [(name, tuple(p.shape)) for name, p in table.items()]]


def test_a_parameter_dict_has_the_methods_of_a_dict():
    assert dict_of_parameters(ng) == dict_of_parameters(pytest.importorskip("torch"))


def test_a_copied_model_has_no_gradients():
    layer = nn.Linear(2, 1)
    layer(ng.ones(1, 2)).sum().backward()
    assert copy.deepcopy(layer).weight.grad is None and layer.weight.grad is not None
    x = ng.ones(2, requires_grad=True)
    x.sum().backward()
    assert copy.deepcopy(x).grad.tolist() == [1.0, 1.0]


def hooked(library):
    """What hooks with keyword arguments see and change."""

    class Scaled(library.nn.Module):
        def forward(self, x, scale=1.0):
            return x * scale

    module, seen = Scaled(), []
    pre = module.register_forward_pre_hook(
        lambda m, args, kwargs: (args, {"scale": kwargs["scale"] * 2}), with_kwargs=True
    )
    module.register_forward_pre_hook(lambda m, args, kw: seen.append(kw), with_kwargs=True)
    module.register_forward_hook(
        lambda m, args, kwargs, out: out + kwargs["scale"], with_kwargs=True, prepend=True
    )
    module.register_forward_hook(lambda m, args, out: out * 10)
    x = library.ones(2)
    found = [module(x, scale=3.0).tolist()]
    pre.remove()
    found += [module(x, scale=3.0).tolist(), seen]
    module.register_forward_pre_hook(lambda m, args, kwargs: args, with_kwargs=True)
    with pytest.raises(RuntimeError, match=r"must return None or a tuple of \(new_args"):
        module(x, scale=3.0)
    return found


def test_hooks_with_keyword_arguments():
    assert hooked(ng) == [
        [120.0, 120.0],
        [60.0, 60.0],
        [{"scale": 6.0}, {"scale": 3.0}, {"scale": 3.0}],
    ]


@pytest.mark.peer
def test_hooks_with_keyword_arguments_are_torchs():
    assert hooked(pytest.importorskip("torch")) == hooked(ng)


def test_a_parameter_list_keeps_other_values():
    values = nn.ParameterList([ng.ones(2), "label", None, nn.Linear(1, 1)])
    values += [ng.ones(3)]
    assert len(values) == 5 and values[1] == "label" and values[2] is None
    assert [n for n, _ in values.named_parameters()] == ["0", "4", "3.weight", "3.bias"]
    assert list(values[1:3]) == ["label", None]
    values.insert(0, 7)
    assert [
        type(v).__name__ for v in values
    ] == "int Parameter str NoneType Linear Parameter".split()
    assert values.pop(1).tolist() == [1.0, 1.0] and len(values) == 5
    assert "(1): 'label'" in repr(values)


def test_a_module_that_has_tensors_beside_moves_them_along():
    class Carrying(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(ng.ones(2))
            self.table = ng.ones(2)

        def _apply(self, fn, recurse=True):
            super()._apply(fn)
            self.table = fn(self.table)
            return self

    model = nn.Sequential(nn.Sequential(Carrying()), nn.BatchNorm1d(2)).double()
    assert model[0][0].table.dtype is model[0][0].weight.dtype is ng.float64
    assert model[1].running_mean.dtype is ng.float64
    assert model[1].num_batches_tracked.dtype is ng.int64
    weight = model[0][0].weight
    model.to_empty(device=None, recurse=False)
    assert model[0][0].weight is weight and weight.tolist() == [1.0, 1.0]
    model.half()
    assert model[0][0].table.dtype is weight.dtype is ng.float16
