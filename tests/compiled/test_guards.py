"""Everything that a recording relies on is noticed when it changes, however it is looked at."""

from __future__ import annotations

import ast
import collections
import contextlib
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import devices, nn, optim
from numbagrad.compiled.counts import native_counts
from numbagrad.compiled.entry import MISS
from numbagrad.compiled.guards import Writer
from numbagrad.kernels import machine
from numbagrad.kernels.lists import list_kernel
from numbagrad.kernels.options import Options

scale = 2.0


@list_kernel()
def fill_from(outs, sizes, like, value):
    """Every element of every array set to ``value``."""
    for k in range(len(outs)):
        for i in range(sizes[k]):
            like[i] = value


class Doubling(ng.autograd.Function):
    """Doubles its input in place."""

    @staticmethod
    def forward(ctx, x, y):
        x.mul_(2.0)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return 2.0 * g, g


class Named(ng.Tensor):
    """A subclass."""


class Setting:
    """A step that relies on something of every kind."""

    def __init__(self, momentum=0.9):
        self.net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        self.optimizer = optim.SGD(self.net.parameters(), lr=0.1, momentum=momentum)
        self.buffer = ng.ones(2)
        self.whole = ng.ones(4)
        self.part = self.whole[1:3]
        self.other = ng.tensor([1.0, 2.0], requires_grad=True)
        self.factor = 3.0
        self.arguments = (ng.ones(5, 3), ng.ones(5, 2), 0.5, "sum")
        inner = 1.5

        def step(x, y, weight, how):
            if self.other.grad is not None:
                weight = 2.0 * weight
            self.optimizer.zero_grad()
            error = (self.net(x) - y) * self.buffer * self.part * weight * scale * inner
            loss = (error * error * self.factor).sum()
            loss.backward()
            self.optimizer.step()
            return loss

        def change_inner():
            nonlocal inner
            inner = 4.0

        self.change_inner = change_inner
        self.function = ng.compile(step)
        for _ in range(2):
            self.function(*self.arguments)
        self.entry = self.function._last

    def misses(self, arguments=None):
        """Whether the entry refuses ``arguments``, and then changes nothing."""
        before = [p.detach().numpy().copy() for p in self.net.parameters()]
        versions = [p._version for p in self.net.parameters()]
        grads = [p.grad for p in self.net.parameters()]
        found = self.entry.call(self.arguments if arguments is None else arguments) is MISS
        after = [p.detach().numpy() for p in self.net.parameters()]
        if found:
            for x, y in zip(before, after, strict=True):
                np.testing.assert_array_equal(x, y)
            assert versions == [p._version for p in self.net.parameters()]
            assert all(a is p.grad for a, p in zip(grads, self.net.parameters(), strict=True))
        return found


@pytest.fixture
def setting():
    return Setting()


def with_argument(position, value):
    def change(s):
        given = list(s.arguments)
        given[position] = value() if callable(value) else value
        return tuple(given)

    return change


ARGUMENTS = {
    "fewer": lambda s: s.arguments[:-1],
    "more": lambda s: (*s.arguments, 1),
    "class": with_argument(0, lambda: Named(ng.ones(5, 3))),
    "dtype": with_argument(0, lambda: ng.ones(5, 3, dtype=ng.float64)),
    "edge": with_argument(0, lambda: ng.ones(5, 3, requires_grad=True)),
    "size": with_argument(0, lambda: ng.ones(6, 3)),
    "rank": with_argument(0, lambda: ng.ones(5, 3, 1)),
    "layout": with_argument(0, lambda: ng.ones(3, 5).t()),
    "not a tensor": with_argument(0, 1.0),
    "not a float": with_argument(2, 1),
    "another value": with_argument(3, "mean"),
}


@pytest.mark.parametrize("row", ARGUMENTS)
def test_arguments(row, setting):
    assert not setting.misses()
    assert setting.misses(ARGUMENTS[row](setting))
    assert not setting.misses()


def test_an_argument_that_overlaps_state_is_refused(setting):
    x = ng.from_numpy(setting.net[0].weight.detach().numpy()[:3].reshape(3, 3))
    assert setting.misses((x, ng.ones(3, 2), 0.5, "sum"))


def test_a_bound_argument_is_its_object():
    p = ng.ones(2, requires_grad=True)

    @ng.compile
    def step(x):
        (x * x).sum().backward()

    for _ in range(2):
        step(p)
    (entry,) = (step._last,)
    other = ng.ones(2, requires_grad=True)
    other.grad = ng.ones(2)
    assert entry.call((other,)) is MISS


# -- what is announced -----------------------------------------------------------------------------


def change_data(s):
    s.net[0].weight.data = ng.zeros(4, 3)


def convert(s):
    s.net.double()
    s.net.float()


def change_history(s):
    s.buffer.mul_(s.other)


def change_history_of_base(s):
    s.whole.mul_(ng.ones(4, requires_grad=True))


def set_element_with_history(s):
    s.buffer[0] = s.other[0]


def mark_dirty(s):
    Doubling.apply(s.buffer, s.other)


def another_parameter(s):
    s.net[0].weight = nn.Parameter(ng.ones(4, 3))


def another_group(s):
    s.optimizer.param_groups[0] = dict(s.optimizer.param_groups[0], lr=0.5)


def other_groups(s):
    s.optimizer.param_groups = [dict(s.optimizer.param_groups[0], lr=0.5)]


def add_group(s):
    s.optimizer.add_param_group({"params": [s.other]})


def leave_out_a_parameter(s):
    del s.optimizer.param_groups[0]["params"][-1]


def add_a_parameter(s):
    s.optimizer.param_groups[0]["params"].append(s.other)


def other_parameters(s):
    s.optimizer.param_groups[0]["params"] = [s.net[0].weight]


def load_optimizer(s):
    s.optimizer.load_state_dict(s.optimizer.state_dict())


def drop_state(s):
    s.optimizer.state.clear()


def drop_momentum(s):
    s.optimizer.param_groups[0].update(momentum=0.0)


def change_attribute(s):
    s.factor = 4.0


def detach(s):
    s.net[2].bias.detach_()


def requires_grad(s):
    s.net[2].bias.requires_grad_(False)


def requires_grad_of_a_buffer(s):
    s.buffer.requires_grad_()


def setting_requires_grad(s):
    s.net[2].bias.requires_grad = False


def gradient_from_elsewhere(s):
    (s.other * 2.0).sum().backward()


def set_gradient(s):
    s.other.grad = ng.ones(2)


def hook(s):
    s.net[0].weight.register_hook(lambda g: g)


def module_hook(s):
    s.net[0].register_forward_hook(lambda *args: None)


def eval_mode(s):
    s.net.eval()


def change_a_cell(s):
    s.change_inner()


STATE = [
    change_data,
    convert,
    change_history,
    change_history_of_base,
    set_element_with_history,
    mark_dirty,
    another_parameter,
    another_group,
    other_groups,
    add_group,
    leave_out_a_parameter,
    add_a_parameter,
    other_parameters,
    load_optimizer,
    drop_state,
    drop_momentum,
    change_attribute,
    detach,
    requires_grad,
    requires_grad_of_a_buffer,
    setting_requires_grad,
    gradient_from_elsewhere,
    set_gradient,
    hook,
    module_hook,
    eval_mode,
    change_a_cell,
]


@pytest.mark.interpreted
@pytest.mark.parametrize("change", STATE, ids=lambda change: change.__name__)
def test_state(change, setting):
    assert not setting.misses()
    change(setting)
    assert setting.misses()
    setting.function(*setting.arguments)  # and is recorded anew


def test_a_global(setting, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "scale", 5.0)
    assert setting.misses()
    monkeypatch.undo()
    assert not setting.misses()


def test_data_set_by_another_compiled_function(setting):
    @ng.compile
    def replace(x):
        setting.buffer.data = x * 2.0

    replace(ng.ones(2))
    assert setting.misses()
    setting.function(*setting.arguments)
    setting.entry = setting.function._last
    for _ in range(2):
        replace(ng.ones(2))
        assert not setting.misses()
    setting.buffer.data = ng.ones(3)
    assert setting.misses()


def test_data_that_is_put_back_is_known_again(setting):
    weight = setting.net[0].weight
    held = weight.data
    weight.data = ng.zeros(4, 3)
    assert setting.misses()
    weight.data = held
    assert not setting.misses()


@contextlib.contextmanager
def default_float64():
    ng.set_default_dtype(ng.float64)
    try:
        yield
    finally:
        ng.set_default_dtype(ng.float32)


@contextlib.contextmanager
def default_device():
    """Another object than the CPU's: what is compared is which one it is."""
    held, devices.default.device = devices.default.device, devices.Device("cpu")
    try:
        yield
    finally:
        devices.default.device = held


MODES = {
    "no_grad": ng.no_grad,
    "inference": ng.inference_mode,
    "NaN": ng.autograd.detect_anomaly,
    "inf": lambda: ng.autograd.detect_anomaly(check_inf=True),
    "default dtype": default_float64,
    "default device": default_device,
}


@pytest.mark.parametrize("row", MODES)
def test_modes(row, setting):
    for _ in range(2):
        assert not setting.misses()
        with MODES[row]():
            assert setting.misses()
            assert setting.misses()  # it has looked once, and is not content with that
            setting.other.requires_grad_(False).requires_grad_(True)
            assert setting.misses()
        assert not setting.misses()
    assert machine.watchers == 0  # else every call would look at everything


def test_the_mode_of_another_thread_is_its_own(setting):
    found = []

    def watch():
        with ng.autograd.detect_anomaly():
            found.append(setting.misses())

    with ng.autograd.detect_anomaly():
        thread = threading.Thread(target=lambda: found.append(setting.misses()))
        thread.start()
        thread.join()
        assert setting.misses()  # although the other thread has looked since
    assert found == [False]
    for _ in range(3):
        thread = threading.Thread(target=watch)
        thread.start()
        thread.join()
        assert not setting.misses()
    assert found == [False, True, True, True]


# -- options of optimisers -------------------------------------------------------------------------


def moved_by_a_step(s):
    before = s.net[2].bias.detach().numpy().copy()
    s.function(*s.arguments)
    return float(np.abs(s.net[2].bias.detach().numpy() - before).max())


@pytest.mark.parametrize(
    "write",
    [
        lambda group, lr: group.__setitem__("lr", lr),
        lambda group, lr: group.update(lr=lr),
        lambda group, lr: group.__ior__({"lr": lr}),
        lambda group, lr: (group.pop("lr"), group.setdefault("lr", lr)),
    ],
)
def test_a_rate_is_followed(write):
    setting = Setting(momentum=0.0)
    recordings = setting.function.cache_info().recordings
    for _ in range(2):
        write(setting.optimizer.param_groups[0], 0.0)
        assert moved_by_a_step(setting) == 0.0
        write(setting.optimizer.param_groups[0], 0.1)
        assert moved_by_a_step(setting) > 0.0
    assert setting.function.cache_info().recordings == recordings


def test_a_rate_that_is_a_tensor_is_followed():
    setting = Setting(momentum=0.0)
    rate = ng.tensor(0.1)
    setting.optimizer.param_groups[0]["lr"] = rate
    assert moved_by_a_step(setting) > 0.0
    with ng.no_grad():
        rate.fill_(0.0)
    assert moved_by_a_step(setting) == 0.0


def test_only_what_announces_its_changes_is_kept():
    options, plain, size, rates = Options(lr=0.1, params=[]), {"lr": 0.1}, 2.0, [0.1]

    def rate():
        return float(options["lr"]) * size

    told = [rate, lambda: (rate(), bool(options["lr"])), lambda: [float(options[k]) for k in ()]]
    untold = [
        lambda: plain["lr"],
        lambda: rates[0],
        lambda: scale,
        lambda: options.get("lr"),
        lambda: bool(options["params"]),
        lambda lr=rates: lr[0],
        lambda: [scale for _ in ()],
        collections.deque,
    ]
    assert [Writer().told_of(read) for read in told] == [True] * len(told)
    assert [Writer().told_of(read) for read in untold] == [False] * len(untold)


def test_replaced_groups_are_followed():
    setting = Setting(momentum=0.0)
    for change in (another_group, other_groups):
        change(setting)
        setting.function(*setting.arguments)
        setting.optimizer.param_groups[0]["lr"] = 0.0
        assert moved_by_a_step(setting) == 0.0


def test_a_replaced_list_of_parameters_is_followed():
    setting = Setting(momentum=0.0)
    for _ in range(2):
        other_parameters(setting)
        assert setting.misses()
        setting.function(*setting.arguments)
        setting.entry = setting.function._last
        setting.optimizer.param_groups[0]["params"].append(setting.net[0].bias)
        assert setting.misses()
        setting.function(*setting.arguments)
        setting.entry = setting.function._last


def test_a_rate_read_by_other_means_is_read_in_every_call():
    rates = collections.deque([0.5])
    x = ng.ones(3)

    @ng.compile
    def step(y):
        ng.launch(fill_from, [x._array], lambda: (float(rates[0]),))
        return x + y

    assert step(ng.zeros(3)).tolist() == [0.5] * 3
    rates[0] = 0.25
    assert step(ng.zeros(3)).tolist() == [0.25] * 3


# -- versions --------------------------------------------------------------------------------------


def test_versions_and_lines_are_those_of_an_eager_step(setting):
    weight = setting.net[0].weight
    start = weight._version
    for _ in range(600):  # past the ints that CPython keeps for good
        setting.function(*setting.arguments)
    assert weight._version == start + 600
    weight._counter.value = 2**40
    setting.function(*setting.arguments)
    assert weight._version == 2**40 + 1
    with ng.no_grad():
        weight.mul_(1.0)
    here = weight._counter.where
    setting.function(*setting.arguments)
    assert weight._counter.where[0].co_name == "step" != here[0].co_name


def test_a_version_that_compiled_code_moved_stops_backward(setting):
    loss = (setting.net(setting.arguments[0]) ** 2).sum()
    setting.function(*setting.arguments)
    with pytest.raises(ng.errors.VersionError, match=r"version 4; expected version 3.*test_guards"):
        loss.backward()


def test_nothing_is_owned_twice_or_lost(setting):
    counter = setting.net[0].weight._counter
    where = counter.where
    before = sys.getrefcount(where), sys.getrefcount(None)
    for _ in range(2000):
        setting.function(*setting.arguments)
    assert counter.where is where
    assert sys.getrefcount(where) == before[0]
    assert abs(sys.getrefcount(None) - before[1]) < 100
    assert sys.getrefcount(counter.value) <= 3
    for _ in range(2000):
        counter.where = None
        setting.function(*setting.arguments)
    assert sys.getrefcount(where) == before[0]
    assert abs(sys.getrefcount(None) - before[1]) < 100


def test_an_entry_outlives_the_tensors_of_its_function():
    setting = Setting()
    call, arguments = setting.entry.call, setting.arguments
    function = setting.function
    setting.net[0].weight = nn.Parameter(ng.ones(4, 3))
    function.cache_clear()
    del setting, function
    gc.collect()
    clutter = [ng.ones(4, 3) for _ in range(100)]
    assert call(arguments) is MISS
    assert all(c.tolist() == [[1.0] * 3] * 4 for c in clutter)


def test_threads_share_a_step(setting):
    weight = setting.net[0].weight
    start = weight._version

    def work():
        for k in range(500):
            setting.function(*setting.arguments)
            if k % 50 == 0:
                setting.optimizer.param_groups[0]["lr"] = 1e-6

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert weight._version == start + 1500


def test_heavy_programs_move_versions_too():
    net = nn.Linear(512, 512)
    optimizer = optim.SGD(net.parameters(), lr=1e-6)

    @ng.compile
    def step(x):
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()

    start = net.weight._version
    for _ in range(3):
        step(ng.ones(32, 512))
    assert step._last.bound.template.heavy
    assert net.weight._version == start + 3
    assert net.weight._counter.where[0].co_name == "step"


# -- the agreement ---------------------------------------------------------------------------------


WRITERS = {
    "autograd/function.py": 2,
    "autograd/graph.py": 2,
    "autograd/recorded.py": 2,
    "batched/history.py": 2,
    "compiled/gradients.py": 1,
    "compiled/outside.py": 1,
    "compiled/phantoms.py": 1,
    "compiled/trace.py": 3,
    "compiled/watch.py": 3,
    "ops/axes.py": 1,
    "ops/base.py": 1,
    "ops/bits.py": 1,
    "ops/device_memory.py": 2,
    "ops/device_way.py": 2,
    "ops/inplace.py": 7,
    "ops/join.py": 1,
    "ops/linalg.py": 1,
    "ops/overwrite.py": 1,
    "ops/pointwise.py": 1,
    "ops/shared_memory.py": 1,
    "ops/short_way.py": 15,
    "ops/view.py": 2,
    "tape.py": 4,
    "tensor.py": 9,
}
"""Files that give tensors an array or a history, and how often. A new place that does so to a
tensor that existed before must tell compiled steps (``Tensor._moved``, ``machine.moved``)."""


def test_every_writer_of_arrays_and_histories_is_known():
    package = Path(ng.__file__).parent
    found = {}
    for path in package.rglob("*.py"):
        tree = ast.parse(path.read_text())
        targets = [t for n in ast.walk(tree) if isinstance(n, ast.Assign) for t in n.targets]
        parts = [p for t in targets for p in (t.elts if isinstance(t, ast.Tuple) else [t])]
        names = [p.attr for p in parts if isinstance(p, ast.Attribute)]
        if count := names.count("_array") + names.count("_edge"):
            found[path.relative_to(package).as_posix()] = count
    assert found == WRITERS


def test_compiled_code_moves_versions_where_it_can():
    compiled = "NUMBA_DISABLE_JIT" not in os.environ
    assert native_counts() == (compiled and sys.implementation.name == "cpython")


def test_interpreted_programs_keep_the_agreement():
    code = (
        "from tests.compiled.test_guards import *\n"
        "s = Setting()\n"
        "assert not native_counts() and not s.misses()\n"
        "change_data(s)\n"
        "assert s.misses()\n"
        "start = s.net[0].weight._version\n"
        "for _ in range(3): s.function(*s.arguments)\n"
        "assert s.net[0].weight._version == start + 3\n"
        "assert s.net[0].weight._counter.where[0].co_name == 'step'\n"
    )
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=root, check=True)


def test_tensors_keep_their_attributes_through_a_recording(setting):
    weight = setting.net[0].weight
    weight.tag = "mine"
    names = list(vars(weight))
    setting.function(ng.ones(7, 3), ng.ones(7, 2), 0.5, "mean")  # another recording
    assert weight.tag == "mine"
    assert list(vars(weight)) == names
    weight.tag = "yours"
    assert vars(weight)["tag"] == "yours"
