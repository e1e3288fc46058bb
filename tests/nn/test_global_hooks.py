"""Hooks of all modules, older hooks of state dicts, and classes that save and load themselves.

Stories are told with numbagrad and with PyTorch, where it is installed, and compared.
"""

from __future__ import annotations

import importlib

import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import RecordingError, StateDictError


def hooks_of(library):
    """The module that has the hooks of all modules."""
    return importlib.import_module(f"{library.__name__}.nn.modules.module")


def net(library):
    """Two layers of ones."""
    layers = library.nn.Sequential(library.nn.Linear(2, 2), library.nn.Tanh())
    with library.no_grad():
        layers[0].weight.fill_(1.0)
        layers[0].bias.fill_(0.5)
    return layers


def forward_hooks(library):
    everywhere, seen, module = hooks_of(library), [], net(library)
    x = library.ones(1, 2)

    def note(word):
        return lambda m, *given: seen.append([word, type(m).__name__, len(given)])

    module[0].register_forward_pre_hook(note("own before"))
    module[0].register_forward_hook(note("own after"))
    handles = [
        everywhere.register_module_forward_pre_hook(note("before")),
        everywhere.register_module_forward_hook(note("after")),
        everywhere.register_module_forward_hook(note("with keywords"), with_kwargs=True),
        everywhere.register_module_forward_pre_hook(lambda m, args: (args[0] * 2.0,)),
        everywhere.register_module_forward_hook(lambda m, args, out: out + 1.0),
    ]
    found = [module(x).tolist(), library.nn.ReLU()(x).tolist()]
    for handle in handles:
        handle.remove()
    seen.append("removed")
    return [[round(v, 5) for v in found[0][0]], found[1], library.nn.ReLU()(x).tolist(), seen]


def backward_hooks(library):
    everywhere, seen = hooks_of(library), []
    module = net(library)
    module[0].register_full_backward_hook(lambda m, inner, outer: seen.append("own"))

    def note(m, inner, outer):
        seen.append([type(m).__name__, [g is None for g in inner], len(outer)])
        return tuple(None if g is None else g * 2.0 for g in inner)

    with everywhere.register_module_full_backward_hook(note):
        with everywhere.register_module_full_backward_pre_hook(lambda m, outer: seen.append("pre")):
            x = library.ones(1, 2, requires_grad=True)
            module(x).sum().backward()
    before = [round(v, 5) for v in x.grad[0].tolist()]
    x.grad = None
    module(x).sum().backward()
    return [before, [round(v, 5) for v in x.grad[0].tolist()], seen]


def older_hooks_of_state_dicts(library):
    seen, module = [], net(library)

    def renamed(m, state, prefix, metadata):
        return {f"all.{name}": value for name, value in state.items()}

    def taken(state, prefix, metadata, strict, missing, unexpected, errors):
        seen.append([prefix, strict])
        for name in [name for name in state if name.startswith("all.")]:
            state[name.removeprefix("all.")] = state.pop(name)

    module[0]._register_state_dict_hook(lambda m, state, prefix, metadata: seen.append(prefix))
    handle = module._register_state_dict_hook(renamed)
    state = module.state_dict()
    other = net(library)
    with library.no_grad():
        other[0].weight.zero_()
    other._register_load_state_dict_pre_hook(taken)
    other._register_load_state_dict_pre_hook(
        lambda m, *given: seen.append([type(m).__name__, len(given)]), with_module=True
    )
    keys = other.load_state_dict(state)
    handle.remove()
    return [[*state], [*module.state_dict()], [*keys], other[0].weight.tolist(), seen]


def versioned(library):
    """A class whose parameter once had another name, and which saves one more entry."""

    class Scale(library.nn.Module):
        _version = 2

        def __init__(self):
            super().__init__()
            self.weight = library.nn.Parameter(library.ones(2))

        def _save_to_state_dict(self, destination, prefix, keep_vars):
            super()._save_to_state_dict(destination, prefix, keep_vars)
            destination[prefix + "saved"] = library.full((1,), 7.0)

        def _load_from_state_dict(self, state_dict, prefix, local_metadata, *others):
            if local_metadata.get("version") is None and prefix + "kernel" in state_dict:
                state_dict[prefix + "weight"] = state_dict.pop(prefix + "kernel")
            self.loaded = state_dict.pop(prefix + "saved", None)
            super()._load_from_state_dict(state_dict, prefix, local_metadata, *others)

    return Scale


def classes_that_save_and_load_themselves(library):
    module = library.nn.Sequential(versioned(library)(), library.nn.Linear(1, 1))
    state = module.state_dict()
    found = [[*state], state._metadata["0"], [*module.load_state_dict(state)]]
    found.append(module[0].loaded.item())
    older = {"0.kernel": library.full((2,), 3.0), "1.weight": library.ones(1, 1)}
    keys = module.load_state_dict(older, strict=False)
    return [*found, [*keys], [*older], module[0].weight.tolist(), module[0].loaded]


def lists_of_ones_own(library):
    """A class that asks what would be missing before it loads."""
    seen = []

    class Lenient(library.nn.Linear):
        def _load_from_state_dict(self, state, prefix, metadata, strict, missing, odd, errors):
            mine = []
            super()._load_from_state_dict(state, prefix, metadata, strict, mine, odd, errors)
            seen.extend(mine)

    module = Lenient(2, 1)
    keys = module.load_state_dict({"weight": library.full((1, 2), 3.0)})
    alone = [], [], []
    library.nn.Linear._load_from_state_dict(
        module, {"bias": library.ones(1), "more": 1}, "", {}, True, *alone
    )
    return [[*keys], seen, module.weight.tolist(), module.bias.tolist(), *alone]


def classes_that_do_not_ask_their_base(library):
    class Alone(library.nn.Linear):
        def _load_from_state_dict(self, *given):
            pass

        def _save_to_state_dict(self, *given):
            pass

    module = library.nn.Sequential(Alone(2, 1), library.nn.Linear(1, 1))
    keys = module.load_state_dict({"0.odd": 1, **module.state_dict()})
    return [[*module.state_dict()], [*keys]]


STORIES = [
    forward_hooks,
    backward_hooks,
    older_hooks_of_state_dicts,
    classes_that_save_and_load_themselves,
    lists_of_ones_own,
    classes_that_do_not_ask_their_base,
]


@pytest.mark.peer
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_story_is_torchs(story):
    assert story(ng) == story(pytest.importorskip("torch"))


def test_the_order_of_hooks():
    seen = forward_hooks(ng)[-1]
    words = [word for word, kind, _ in seen[:-1] if kind == "Linear"]
    assert words == ["before", "own before", "after", "with keywords", "own after"]
    assert seen[-1] == "removed"


@pytest.mark.parametrize("name", ["forward", "forward_pre", "full_backward", "full_backward_pre"])
def test_hooks_are_functions(name):
    register = getattr(nn.modules.module, f"register_module_{name}_hook")
    with pytest.raises(TypeError, match="expected a function, got int"):
        register(7)


def test_an_error_in_one_module_leaves_all_as_they_were():
    module = nn.Sequential(versioned(ng)(), nn.Linear(1, 1))
    state = {"0.kernel": ng.zeros(2), "1.weight": ng.ones(1, 1), "1.bias": ng.ones(3)}
    with pytest.raises(StateDictError, match=r"size mismatch for 1\.bias"):
        module.load_state_dict(state)
    assert module[0].weight.tolist() == [1.0, 1.0] and next(iter(state)) == "0.kernel"


@pytest.mark.parametrize("whole", [True, False], ids=["a function", "a module"])
def test_compiled_functions_notice_hooks_of_all_modules(whole):
    module = net(ng)
    factor = 2.0

    def scaled(m, args, out):
        return out * factor if type(m) is nn.Tanh else None

    compiled = ng.compile((lambda x: module(x)) if whole else module)
    x = ng.ones(1, 2)
    plain = compiled(x)
    for _ in range(2):
        with nn.modules.module.register_module_forward_hook(scaled):
            for factor in (2.0, 3.0):
                for _ in range(2):
                    assert ng.allclose(compiled(x), plain * factor)
                    assert ng.allclose(module(x), plain * factor)
        assert ng.equal(compiled(x), plain)


def test_hooks_of_backward_are_a_part_of_a_compiled_step():
    module, x = net(ng), ng.ones(1, 2)

    @ng.compile
    def gradient(x):
        module.zero_grad()
        module(x).sum().backward()
        return module[0].bias.grad * 1.0

    def halved(m, outer):
        return tuple(g * 0.5 for g in outer) if type(m) is nn.Tanh else None

    plain = gradient(x)
    with nn.modules.module.register_module_full_backward_pre_hook(halved):
        assert ng.allclose(gradient(x), plain * 0.5)
    assert ng.allclose(gradient(x), plain)


def test_a_hook_that_keeps_values_is_refused():
    module, seen = net(ng), []
    compiled = ng.compile(module)
    with nn.modules.module.register_module_forward_hook(lambda m, args, out: seen.append(out)):
        with pytest.raises(RecordingError, match="kept outside"):
            compiled(ng.ones(1, 2))
    assert not seen


def test_hooks_of_all_modules_are_none_of_a_module():
    nn.Linear(1, 1)(ng.ones(1, 1))
    with nn.modules.module.register_module_forward_hook(lambda m, args, out: out + 1.0):
        copied = nn.Identity()
        assert copied(ng.zeros(1)).item() == 1.0
    assert copied(ng.zeros(1)).item() == 0.0 and "_hooks" not in vars(copied)
