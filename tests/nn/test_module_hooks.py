"""Hooks around a module's state and backward, extra state, buffers by assignment, conversions.

``STORIES`` are told with numbagrad and compared with what is written beside them, and told with
PyTorch where it is installed.
"""

from __future__ import annotations

import copy
import itertools
import pickle

import pytest

import numbagrad as ng
from numbagrad import nn, optim
from numbagrad.errors import DTypeError, RecordingError, StateDictError


def counter(library):
    """A class whose modules count their calls, which their state keeps."""

    class Counter(library.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = library.nn.Parameter(library.ones(2))
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * self.weight

        def get_extra_state(self):
            return {"calls": self.calls, "sum": library.ones(1) * self.calls}

        def set_extra_state(self, state):
            self.calls = state["calls"]

    return Counter


def line(library, *sizes):
    """Linear layers with weights of one and biases of zero."""
    layers = []
    for n, m in itertools.pairwise(sizes):
        layers.append(library.nn.Linear(n, m))
        with library.no_grad():
            layers[-1].weight.fill_(1.0)
            layers[-1].bias.zero_()
    return library.nn.Sequential(*layers)


def told(function):
    """The type of error that ``function`` raises, or its value."""
    try:
        return function()
    except Exception as error:
        kinds = (AttributeError, KeyError, TypeError, ValueError, AssertionError, RuntimeError)
        return next(kind.__name__ for kind in kinds if isinstance(error, kind))


def extra_state(library):
    Counter = counter(library)
    module = library.nn.Sequential(Counter(), library.nn.ReLU())
    module(library.ones(2))
    state = module.state_dict(prefix="net.")
    other = library.nn.Sequential(Counter(), library.nn.ReLU())
    other.load_state_dict(module.state_dict())
    plain = library.nn.Module()
    plain.weight = library.nn.Parameter(library.ones(2))
    lacking = {"0.weight": library.ones(2)}
    result = other.load_state_dict(lacking, strict=False)
    surplus = plain.load_state_dict(Counter().state_dict(), strict=False)
    return [
        list(state),
        state["net.0._extra_state"]["calls"],
        other[0].calls,
        list(result.missing_keys),
        list(surplus.unexpected_keys),
        told(lambda: other.load_state_dict(lacking)),
        told(lambda: plain.load_state_dict(Counter().state_dict())),
        told(plain.get_extra_state),
        told(lambda: plain.set_extra_state(1)),
    ]


def saving_hooks(library):
    module, seen = line(library, 1, 1, 1), []
    module[0].register_state_dict_pre_hook(lambda m, prefix, keep: seen.append((prefix, keep)))
    handle = module[0].register_state_dict_post_hook(
        lambda m, state, prefix, metadata: state.update({prefix + "more": metadata["version"]})
    )
    module.register_state_dict_post_hook(
        lambda m, state, prefix, metadata: seen.append(len(state)) or state.pop(prefix + "1.bias")
    )
    found = [told(module.state_dict)]  # the second returned something
    module = line(library, 1, 1, 1)
    module[0].register_state_dict_pre_hook(lambda m, prefix, keep: seen.append((prefix, keep)))
    handle = module[0].register_state_dict_post_hook(
        lambda m, state, prefix, metadata: state.update({prefix + "more": metadata["version"]})
    )
    found.append(list(module.state_dict(keep_vars=True)))
    found.append({**module.state_dict()}["0.more"])
    handle.remove()
    return [*found, list(module.state_dict()), seen]


def loading_pre_hooks(library):
    module, seen = line(library, 1, 1, 1), []

    def rename(m, state, prefix, metadata, strict, missing, unexpected, errors):
        seen.append([m is module[1], sorted(state), prefix, metadata.get("version"), strict])
        state[prefix + "weight"] = state.pop(prefix + "kernel")

    state = module.state_dict()
    state["1.kernel"] = state.pop("1.weight") + 4.0
    handle = module[1].register_load_state_dict_pre_hook(rename)
    module.load_state_dict(state, strict=False)
    found = [module[1].weight.tolist(), sorted(state)]
    handle.remove()

    def complain(m, state, prefix, metadata, strict, missing, unexpected, errors):
        missing.append("one more")
        unexpected.append("another")
        errors.append("no such thing")

    state = module.state_dict()
    module.register_load_state_dict_pre_hook(complain)
    with pytest.raises(RuntimeError) as caught:
        module.load_state_dict(state)
    lines = [each.strip() for each in str(caught.value).split("\n\t")]
    return [*found, seen, lines]


def loading_post_hooks(library):
    module, seen = line(library, 1, 1, 1), []

    def forgive(m, keys):
        seen.append((m is module[0], list(keys.missing_keys), list(keys.unexpected_keys)))
        keys.missing_keys.clear()

    module.register_load_state_dict_post_hook(lambda m, keys: seen.append(m is module))
    handle = module[0].register_load_state_dict_post_hook(forgive)
    state = module.state_dict()
    del state["0.bias"]
    result = module.load_state_dict(state)
    found = [list(result.missing_keys)]
    state["odd"] = state["0.weight"]
    found.append(told(lambda: module.load_state_dict(state)))
    handle.remove()
    module.register_load_state_dict_post_hook(lambda m, keys: keys.unexpected_keys.append("x"))
    found.append(told(lambda: module.load_state_dict(module.state_dict())))
    module = line(library, 1, 1)
    module.register_load_state_dict_post_hook(lambda m, keys: keys)
    found.append(told(lambda: module.load_state_dict(module.state_dict())))
    return [*found, seen]


def backward_pre_hooks(library):
    module, seen = line(library, 2, 1), []
    double = module.register_full_backward_pre_hook(lambda m, g: (g[0] * 2.0,))
    module.register_full_backward_pre_hook(lambda m, g: seen.append(["second", g[0].tolist()]))
    module.register_full_backward_pre_hook(
        lambda m, g: seen.append(["first", g[0].tolist()]), prepend=True
    )
    module.register_full_backward_hook(lambda m, gi, go: seen.append([go[0].tolist()]))
    x = library.ones(3, 2, requires_grad=True)
    module(x).sum().backward()
    found = [module[0].bias.grad.tolist(), x.grad.tolist()]
    double.remove()
    module.register_full_backward_pre_hook(lambda m, g: (g[0], g[0]))
    return [*found, seen, told(lambda: module(x).sum().backward())]


def backward_pre_hook_of_several(library):
    class Two(library.nn.Module):
        def forward(self, x, y):
            return x * 3.0, 5, y * 2.0

    module, seen = Two(), []
    module.register_full_backward_pre_hook(
        lambda m, g: seen.append([len(g), g[1]]) or (g[0] * 10.0, None, g[2])
    )
    x, y = (library.ones(1, requires_grad=True) for _ in range(2))
    a, _, b = module(x, y)
    (a.sum() + b.sum()).backward()
    return [seen, x.grad.tolist(), y.grad.tolist()]


def hooks_after_errors(library):
    seen = []

    class Failing(library.nn.Module):
        def forward(self, x):
            raise KeyError("forward")

    module = Failing()
    module.register_forward_hook(lambda *given: seen.append("never"))
    module.register_forward_hook(
        lambda m, args, kwargs, output: seen.append((len(args), output)),
        with_kwargs=True,
        always_call=True,
    )
    found = [told(lambda: module(library.ones(2)))]
    module = library.nn.ReLU()
    module.register_forward_hook(lambda m, args, out: seen.append("first"), always_call=True)
    module.register_forward_hook(lambda m, args, out: out.no_such_name)
    module.register_forward_hook(lambda m, args, out: seen.append(out.tolist()), always_call=True)
    found.append(told(lambda: module(library.ones(1))))
    module = library.nn.ReLU()
    module.register_forward_hook(lambda m, args, out: out + 1, always_call=True)
    return [*found, module(library.ones(1)).tolist(), seen]


def buffers(library):
    module = library.nn.Module()
    Buffer, ones = library.nn.Buffer, library.ones
    module.table = Buffer(ones(2))
    module.cache = Buffer(ones(3), persistent=False)
    found = [[n for n, _ in module.named_buffers()], list(module.state_dict())]
    module.cache = library.zeros(3)
    found.append(list(module.state_dict()))
    module.cache = Buffer(ones(3))
    found.append(list(module.state_dict()))
    module.table = Buffer(ones(3), persistent=False)
    module.register_buffer("kept", Buffer(ones(1), persistent=False))
    found.append(list(module.state_dict()))
    twin = pickle.loads(pickle.dumps(copy.deepcopy(module)))
    found += [list(twin.state_dict()), isinstance(twin.kept, Buffer)]
    module.table = None
    found.append([n for n, _ in module.named_buffers()])
    del module.cache
    found.append(list(module.state_dict()))
    module.number, module.weight = 3, library.nn.Parameter(ones(1))
    module.child = library.nn.ReLU()
    for name in ("number", "weight", "child"):
        found.append(told(lambda name=name: setattr(module, name, Buffer(ones(1)))))
    module.kept = library.nn.Parameter(ones(1))
    found += [[n for n, _ in module.named_parameters()], list(module.buffers())]
    made = Buffer(ones(2))
    found += [isinstance(made, Buffer), isinstance(made, library.Tensor), made.persistent]
    found += [isinstance(made + 1.0, Buffer), Buffer().numel(), made.requires_grad]
    base = ones(2)
    Buffer(base).zero_()
    found += [base.tolist(), Buffer(ones(1, requires_grad=True)).requires_grad]
    unmade = library.nn.Module.__new__(library.nn.Module)
    return [*found, told(lambda: setattr(unmade, "table", made))]


def submodules(library):
    module = library.nn.Sequential(line(library, 1, 1), library.nn.ReLU())
    module.register_module("none", None)
    module.set_submodule("0.0", library.nn.Tanh())
    module.set_submodule("0.more", library.nn.ReLU())
    module.set_submodule("1", library.nn.Sigmoid(), strict=True)
    found = [[n for n, _ in module.named_modules()], type(module[1]).__name__]
    for target, child, strict in (
        ("", library.nn.ReLU(), False),
        ("1", 3, False),
        ("1", library.nn.ReLU, False),
        ("7", library.nn.ReLU(), True),
        ("none", library.nn.ReLU(), False),
        ("0.x.y", library.nn.ReLU(), False),
        ("0.training", library.nn.ReLU(), False),
    ):
        found.append(told(lambda t=target, c=child, s=strict: module.set_submodule(t, c, s)))
    return found


def types(library):
    module = library.nn.BatchNorm1d(2)
    assert module.type(library.float64) is module
    found = [str(t.dtype).rpartition(".")[2] for t in module.state_dict().values()]
    found.append(told(lambda: module.type(library.int64)))
    module.requires_grad_(False)
    found += [str(t.dtype).rpartition(".")[2] for t in module.type(library.int64).parameters()]
    return [*found, told(module.type)]


def emptied(library):
    module = line(library, 2, 3)
    module.register_buffer("count", library.ones(2))
    module[0].weight.grad = library.ones(3, 2)
    weight, count, held = module[0].weight, module.count, module[0].weight.data_ptr()
    assert module.to_empty(device="cpu", recurse=False) is module
    found = [module[0].weight.data_ptr() == held, module.count.data_ptr() == count.data_ptr()]
    module.to_empty(device=None)
    found += [module[0].weight is weight, weight.data_ptr() == held, weight.requires_grad]
    found += [list(weight.shape), list(weight.grad.shape), str(weight.device)]
    return [*found, told(module.to_empty), told(lambda: module.to_empty("cpu"))]


STORIES = {
    hooks_after_errors: [
        "KeyError",
        "AttributeError",
        [2.0],
        [(1, None), "first", [1.0]],
    ],
    extra_state: [
        ["net.0.weight", "net.0._extra_state"],
        1,
        1,
        ["0._extra_state"],
        ["_extra_state"],
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
    ],
    saving_hooks: [
        "RuntimeError",
        ["0.weight", "0.bias", "0.more", "1.weight", "1.bias"],
        1,
        ["0.weight", "0.bias", "1.weight", "1.bias"],
        [("0.", False), 5, ("0.", True), ("0.", False), ("0.", False)],
    ],
    loading_pre_hooks: [
        [[5.0]],
        ["0.bias", "0.weight", "1.bias", "1.kernel"],
        [[True, ["1.bias", "1.kernel"], "1.", 1, True]],
        [
            "Error(s) in loading state_dict for Sequential:",
            'Missing key(s) in state_dict: "one more".',
            'Unexpected key(s) in state_dict: "another".',
            "no such thing",
        ],
    ],
    loading_post_hooks: [
        [],
        "RuntimeError",
        "RuntimeError",
        "AssertionError",
        [(True, ["0.bias"], []), True, (True, ["0.bias"], ["odd"]), True, True],
    ],
    backward_pre_hooks: [
        [6.0],
        [[2.0, 2.0]] * 3,
        [
            ["first", [[1.0]] * 3],
            ["second", [[2.0]] * 3],
            [[[2.0]] * 3],
            ["first", [[1.0]] * 3],
            ["second", [[1.0]] * 3],
        ],
        "RuntimeError",
    ],
    backward_pre_hook_of_several: [[[3, None]], [30.0], [2.0]],
    buffers: [
        ["table", "cache"],
        ["table"],
        ["table"],
        ["table", "cache"],
        ["cache", "kept"],
        ["cache", "kept"],
        True,
        ["cache", "kept"],
        ["kept"],
        "KeyError",
        "TypeError",
        "TypeError",
        ["weight", "kept"],
        [],
        *[True, True, True, False, 0, False, [0.0, 0.0], True, "AttributeError"],
    ],
    submodules: [
        ["", "0", "0.0", "0.more", "1"],
        "Sigmoid",
        *["ValueError"] * 3,
        *["AttributeError"] * 4,
    ],
    types: [*["float64"] * 5, "RuntimeError", "int64", "int64", "TypeError"],
    emptied: [True, False, True, False, True, [3, 2], [3, 2], "cpu", "TypeError", "TypeError"],
}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_story(story):
    expected = STORIES[story]
    if story is types:  # an error of ours that is no RuntimeError
        expected = ["TypeError" if e == "RuntimeError" else e for e in expected]
    assert story(ng) == expected


@pytest.mark.peer
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_story_is_torchs(story):
    assert story(pytest.importorskip("torch")) == STORIES[story]


# -- what is ours alone ----------------------------------------------------------------------------


def test_errors_change_nothing_with_extra_state_and_hooks():
    module = nn.Sequential(counter(ng)(), nn.Linear(1, 1))
    called = []
    module.register_load_state_dict_post_hook(lambda m, keys: called.append(keys))
    state = module.state_dict()
    state["0._extra_state"], state["0.weight"] = {"calls": 7}, ng.zeros(2)
    state["1.bias"] = ng.ones(3)
    with pytest.raises(StateDictError, match=r"size mismatch for 1\.bias"):
        module.load_state_dict(state)
    assert module[0].calls == 0 and module[0].weight.tolist() == [1.0, 1.0] and not called


def test_extra_state_is_saved_if_it_is_plain(tmp_path):
    module, other = counter(ng)(), counter(ng)()
    module(ng.ones(2))
    ng.save(module.state_dict(), tmp_path / "a.safetensors")
    other.load_state_dict(ng.load(tmp_path / "a.safetensors"))
    assert other.calls == 1
    type(module).get_extra_state = lambda self: {"when": object()}
    words = r"save: cannot save a object at \[_extra_state\]\[when\]. Save tensors, numbers"
    with pytest.raises(TypeError, match=words):
        ng.save(module.state_dict(), tmp_path / "a.safetensors")


REFUSED = {
    "register_state_dict_pre_hook": lambda m: m.state_dict(),
    "register_state_dict_post_hook": lambda m: m.state_dict(),
    "register_load_state_dict_pre_hook": lambda m: m.load_state_dict({}, strict=False),
    "register_load_state_dict_post_hook": lambda m: m.load_state_dict({}, strict=False),
}


@pytest.mark.parametrize("name", REFUSED)
def test_state_hooks_are_functions_and_stay_outside_of_compiled_ones(name):
    module = nn.Linear(1, 1)
    with pytest.raises(TypeError, match=f"{name}: expected a function, got int"):
        getattr(module, name)(3)

    @ng.compile
    def step(x):
        REFUSED[name](module)
        return x + 1.0

    assert step(ng.ones(1)).tolist() == [2.0]
    handle = getattr(module, name)(lambda *args: None)
    with pytest.raises(RecordingError, match="a state dict hook of Linear: not possible inside"):
        step(ng.ones(1))
    handle.remove()
    assert step(ng.ones(1)).tolist() == [2.0]


@pytest.mark.parametrize("method", ["get_extra_state", "set_extra_state"])
def test_extra_state_stays_outside_of_compiled_functions(method):
    module = counter(ng)()
    state = module.state_dict()

    @ng.compile
    def step(x):
        if method == "get_extra_state":
            return x + module.state_dict()["weight"]
        module.load_state_dict(state)

    with pytest.raises(RecordingError, match=rf"Counter\.{method}: not possible inside"):
        step(ng.ones(2))


@pytest.mark.parametrize("later", [True, False])
def test_a_compiled_step_follows_a_backward_pre_hook(later):
    module = line(ng, 2, 1)
    optimizer = optim.SGD(module.parameters(), lr=1.0)

    @ng.compile
    def step(x):
        optimizer.zero_grad()
        module(x).sum().backward()

    def gradient():
        step(ng.ones(1, 2))
        return module[0].bias.grad.tolist()

    if later:
        assert [gradient() for _ in range(3)] == [[1.0]] * 3
    handle = module[0].register_full_backward_pre_hook(lambda m, g: g[0] * 3.0)
    assert [gradient() for _ in range(3)] == [[3.0]] * 3
    handle.remove()
    assert [gradient() for _ in range(3)] == [[1.0]] * 3


def test_a_buffer_in_a_compiled_function():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = nn.Buffer(ng.ones(2), persistent=False)

        def forward(self, x):
            return x + self.shift

    module = Shifted()
    step = ng.compile(module)
    for _ in range(3):
        assert step(ng.ones(2)).tolist() == [2.0, 2.0]
    module.shift = nn.Buffer(ng.zeros(2))
    assert step(ng.ones(2)).tolist() == [1.0, 1.0]
    assert type(module.double().shift) is ng.Tensor and list(module.state_dict()) == ["shift"]


def test_an_uninitialized_buffer_is_one():
    module = nn.Module()
    module.table = nn.UninitializedBuffer(persistent=False)
    assert list(module.state_dict()) == [] and isinstance(module.table, nn.Buffer)
    module.to_empty(device="cpu").type("ng.DoubleTensor").table.materialize((2,))
    assert module.table.dtype is ng.float64 and tuple(module.table.shape) == (2,)


def test_errors_say_what_came():
    module = nn.Linear(2, 1)
    for call, kind, words in (
        (lambda: nn.Buffer([1.0]), TypeError, "Buffer: data must be a Tensor, got list"),
        (lambda: module.type(None), TypeError, "type: expected a dtype or its name, got None"),
        (lambda: module.type(ng.int64), DTypeError, "ng.int64 has no gradients.*requires_grad_"),
        (lambda: module.set_submodule("a.", nn.ReLU()), ValueError, "without a target name"),
        (lambda: module.set_submodule("a", 1), ValueError, "not an nn.Module, but int"),
        (lambda: module.set_submodule("bias", nn.ReLU()), AttributeError, "'bias' of Linear"),
        (module.get_extra_state, RuntimeError, "get_extra_state: Linear does not define it"),
    ):
        with pytest.raises(kind, match=words):
            call()
    assert module.weight.dtype is ng.float32 and module.weight.requires_grad


def test_backward_hooks_see_the_output_that_forward_hooks_leave():
    seen = []
    module = nn.Linear(2, 1, bias=False)
    module.register_forward_hook(lambda m, args, out: out * 2)
    module.register_full_backward_hook(
        lambda m, gi, go: seen.append((gi[0].tolist(), go[0].tolist()))
    )
    module.register_full_backward_pre_hook(lambda m, go: (go[0] * 5,))
    module.weight.data.copy_(ng.tensor([[1.0, 3.0]]))
    x = ng.ones(1, 2, requires_grad=True)
    (module(x) * 3).sum().backward()
    assert seen == [([[30.0, 90.0]], [[15.0]])]
    assert x.grad.tolist() == [[30.0, 90.0]]
