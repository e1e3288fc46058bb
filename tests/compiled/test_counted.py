"""Numbers that a compiled function sets to others in each call."""

from __future__ import annotations

import math
import threading
import time
from types import ModuleType, SimpleNamespace

import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import RecordingError


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.n, self.decay = 0, 1.0

    def forward(self, x):
        self.n += 1
        self.decay *= 0.5
        return x * self.n + self.decay


@pytest.mark.parametrize("compiled", [False, True])
def test_of_a_module(compiled):
    model = Counting()
    run = ng.compile(model) if compiled else model
    assert [run(ng.ones(1)).item() for _ in range(4)] == [1.5, 2.25, 3.125, 4.0625]
    assert (model.n, model.decay) == (4, 0.0625) and type(model.n) is int
    model.n = 10  # from outside
    assert run(ng.ones(1)).item() == 11 + 1 / 32
    if compiled:
        assert run.cache_info().recordings == 1


def test_of_other_objects_lists_and_closures():
    keeper, numbers, total = SimpleNamespace(n=0, h=ng.zeros(1)), [0, 2.0], 0

    @ng.compile
    def step(x):
        nonlocal total
        keeper.n, keeper.h = keeper.n + 1, keeper.h + x
        numbers[1] = numbers[1] * 2
        total += 3
        return keeper.h * keeper.n * numbers[1] * total

    assert [step(ng.ones(1)).item() for _ in range(3)] == [12.0, 192.0, 1296.0]
    assert (keeper.n, numbers, total) == (3, [0, 16.0], 9) and type(total) is int
    assert step.cache_info().recordings == 1


def test_by_functions_of_math():
    keeper = SimpleNamespace(n=1)

    @ng.compile
    def step(x):
        keeper.n += 1
        return x * math.sqrt(keeper.n) + math.exp(-keeper.n)

    for n in (2, 3, 4):
        assert step(ng.ones(1)).item() == pytest.approx(math.sqrt(n) + math.exp(-n), rel=1e-6)
    assert math.sqrt(4.0) == 2.0 and math.sqrt.__module__ == "math"


def test_a_float_argument_goes_through_math():
    @ng.compile
    def scaled(x, rate):
        return x * math.sqrt(rate)

    assert [scaled(ng.ones(1), rate).item() for rate in (4.0, 9.0, 16.0)] == [2.0, 3.0, 4.0]
    assert scaled.cache_info().recordings == 1
    with pytest.raises(ValueError, match=r"math domain|nonnegative"):
        scaled(ng.ones(1), -1.0)


def test_what_is_decided_by_numbers_is_recorded_once_for_each_way():
    keeper = SimpleNamespace(n=0)

    @ng.compile
    def step(x, rate):
        keeper.n += 1
        x = x * 2 if keeper.n % 3 == 0 else x
        x = -x if rate > 0.5 and math.sqrt(rate) < 2 else x
        return x + int(rate) if rate else x

    found = [step(ng.ones(1), rate).item() for rate in (0.1, 0.25, 0.375, 0.75, 1.5, 4.0, 0.0)]
    assert found == [1.0, 1.0, 2.0, -1.0, 0.0, 6.0, 1.0] and keeper.n == 7
    before = step.cache_info().recordings
    again = [step(ng.ones(1), rate).item() for rate in (0.2, 0.3, 0.35, 0.8, 1.6)]
    assert again == [1.0, 2.0, 1.0, -1.0, -1.0] and keeper.n == 12
    assert step.cache_info().recordings <= before + 2  # two pairs of answers that are new
    assert any(
        ["a condition, ((" in why and "is True, was False" in why for why in step.recordings]
    )


def test_a_number_that_is_the_same_each_time():
    keeper = SimpleNamespace(n=0)

    @ng.compile
    def step(x):
        keeper.n = x.shape[0]
        return x * 2

    step(ng.ones(3))
    assert keeper.n == 3
    step(ng.ones(5))
    step(ng.ones(3))
    assert keeper.n == 3 and step.cache_info().recordings == 2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda k, x: setattr(k, "n", k.n + 1) or x[: k.n], "decides something|changes"),
        (lambda k, x: setattr(k, "n", k.n + 0.5) or x * k.n, "changes"),
        (lambda k, x: setattr(k, "n", None) or x, "changes"),
    ],
    ids=["slice", "other type", "None"],
)
def test_refused(change, told):
    keeper = SimpleNamespace(n=2)
    with pytest.raises(RecordingError, match=told):
        ng.compile(lambda x: change(keeper, x))(ng.ones(8))
    assert keeper.n == 2


@pytest.mark.parametrize("clock", [time.perf_counter, time.time])
def test_numbers_of_clocks_are_refused(clock):
    keeper = SimpleNamespace(when=0.0)

    def step(x):
        keeper.when = clock()
        return x * 2

    with pytest.raises(RecordingError, match=r"sets 'when' to .* and run again to"):
        ng.compile(step)(ng.ones(2))
    assert keeper.when == 0.0


def test_whole_numbers_stay_whole_among_whole_numbers():
    keeper = SimpleNamespace(n=1, large=2**53)

    def step(x):
        keeper.n += 1
        keeper.large += 1
        return x * keeper.n, x // keeper.n, x + keeper.large, x.int() - keeper.n, x > keeper.n

    compiled, x = ng.compile(step), ng.arange(5)
    for n in range(2, 7):
        found, large = compiled(x), 2**53 + n - 1
        assert found[2].tolist() == [k + large for k in range(5)]
        assert [keeper.n, keeper.large] == [n, large]
        expected = x * n, x // n, x + large, x.int() - n, x > n
        for a, b in zip(found, expected, strict=True):
            assert ng.equal(a, b) and a.dtype is b.dtype
    assert compiled.cache_info().recordings == 1


def test_a_whole_power_may_be_no_whole_number():
    for function in (lambda x, k: x * 2**k, lambda x, k: x + k**k, lambda x, k: x * k**2):
        compiled = ng.compile(function)
        for x in (ng.ones(2), ng.arange(1, 3)):
            for k in (3, 4, 5, 2, -1, -2, 6, -1):
                found, expected = compiled(x, k), function(x, k)
                assert found.dtype is expected.dtype and ng.equal(found, expected), k


def test_positions_of_a_decoder():
    """A whole number that meets whole tensors is read at each call, as an offset of positions."""
    table = ng.randn(64, 3)

    def decode(tokens, offset):
        positions = ng.arange(tokens.shape[1]) + offset
        return table[tokens] + table[positions % 64] * (offset * 2654435761 % 97)

    compiled = ng.compile(decode)
    for offset in range(0, 400, 7):
        tokens = (ng.arange(6).reshape(2, 3) * offset) % 64
        assert ng.equal(compiled(tokens, offset), decode(tokens, offset))
    assert compiled.cache_info().recordings <= 4


def test_an_attribute_that_is_not_there_yet_is_made_by_the_first_call():
    class Net(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls = self.calls + 1
            return x * self.calls

    net = Net()
    run = ng.compile(net)
    assert [run(ng.ones(1)).item() for _ in range(3)] == [1.0, 2.0, 3.0] and net.calls == 3


def test_whole_numbers_are_exact():
    keeper = SimpleNamespace(n=2**53, seed=1)

    @ng.compile
    def step(x):
        keeper.n += 1
        keeper.seed = (keeper.seed * 1103515245 + 12345) % 2**31
        return x * 2, keeper.n, {"seed": keeper.seed}

    seed = 1
    for k in range(1, 5):
        seed = (seed * 1103515245 + 12345) % 2**31
        _, n, found = step(ng.ones(1))
        assert (keeper.n, keeper.seed) == (n, found["seed"]) == (2**53 + k, seed)
        assert type(n) is int
    assert step.cache_info().recordings == 1


def test_a_count_is_an_int_and_may_become_a_float():
    keeper = SimpleNamespace(n=0)

    @ng.compile
    def step(x):
        keeper.n += 1
        return x * 2 if isinstance(keeper.n, int) else x * 3

    assert [step(ng.ones(1)).item() for _ in range(2)] == [2.0, 2.0]
    keeper.n = 2.5
    assert [step(ng.ones(1)).item() for _ in range(2)] == [3.0, 3.0] and keeper.n == 4.5


def test_functions_of_math_with_two_arguments():
    @ng.compile
    def step(x, rate):
        return x * math.log(8, 2) + math.log(rate, 2) + math.pow(rate, 2) + math.pow(2, rate)

    for rate in (2.0, 4.0):
        wanted = 3 + math.log(rate, 2) + rate**2 + 2**rate
        assert step(ng.ones(1), rate).item() == pytest.approx(wanted, rel=1e-6)
    assert step.cache_info().recordings == 1


def test_zeros_and_nan_that_decide_by_value():
    signed = ng.compile(lambda x, v: x * math.copysign(2, v))
    assert [signed(ng.ones(1), v).item() for v in (0.0, -0.0)] == [2.0, -2.0]
    shown = ng.compile(lambda x, v: x * 2 if str(v) == "nan" else x)
    assert [shown(ng.ones(1), v).item() for v in (math.nan, 1.0, math.nan)] == [2.0, 1.0, 2.0]


# name: function of x and a whole number, recordings of eight values of it
PASSED = {
    "a factor": (lambda x, k: x * k, 3),
    "half of it": (lambda x, k: (x / 2 - k / 2) ** 2, 3),
    "a decay": (lambda x, k: x * 0.9**k, 3),
    "warm-up": (lambda x, k: x * min(1.0, (k + 1) / 4), 4),
    "a condition": (lambda x, k: x * 2 if k < 4 else x.exp() * k, 4),
    "turns": (lambda x, k: x + k if k % 2 == 0 else x - k, 4),
    "a cosine": (lambda x, k: x * 0.5 * (1 + math.cos(math.pi * k / 8)), 3),
    "a root": (lambda x, k: x * math.sqrt(k + 1), 3),
    "returned": (lambda x, k: (x * k, k + 1, -k), 3),
    "in a dict": (lambda x, k: (lambda d: d["x"] * d["k"])({"x": x, "k": k}), 3),
    "no use of it": (lambda x, k: x * 2, 3),
    "an index": (lambda x, k: x[k % 3] * 2, 8),
    "a length": (lambda x, k: x.repeat(k), 8),
    "a loop": (lambda x, k: sum([x] * k, x), 8),
    "a name": (lambda x, k: {f"layer{k}": x}, 8),
    "a quotient": (lambda x, k: x * 0.5 ** (k // 3), 8),
    "a table": (lambda x, k: x * [1.0, 2.0, 3.0, 4.0][k % 4], 8),
    "a whole tensor": (lambda x, k: (x > 0).long() * k, 3),
    "a bool": (lambda x, k: x * (k == 3), 4),
    "a filled tensor": (lambda x, k: ng.full((2,), k), 3),
    "an exponent": (lambda x, k: x**k, 3),
}


@pytest.mark.parametrize("name", PASSED)
def test_whole_numbers_among_the_arguments(name):
    """After two values they are passed, but for those that decide by their value."""
    function, recordings = PASSED[name]
    compiled = ng.compile(function)
    for k in range(8):
        x, y = [ng.tensor([0.5, 1.5, 2.5], dtype=ng.float64, requires_grad=True) for _ in "xy"]
        expected, got = function(x, k), compiled(y, k)
        results = [list(r.values()) if isinstance(r, dict) else r for r in (expected, got)]
        pairs = [r if isinstance(r, (tuple, list)) else [r] for r in results]
        for e, g in zip(*pairs, strict=True):
            assert type(g) is type(e)
            if type(e) is int:
                assert g == e
                continue
            assert g.dtype is e.dtype and ng.allclose(g, e, rtol=1e-14)
            if e.requires_grad:
                for out in (e, g):
                    out.sum().backward()
        if x.grad is not None:
            assert ng.allclose(y.grad, x.grad, rtol=1e-14)
    assert compiled.cache_info().recordings == recordings, compiled.recordings


def test_a_number_of_each_step_costs_no_recording():
    """A schedule of the step's number, by position and by name, within a training step."""
    net, other = nn.Linear(2, 1), nn.Linear(2, 1)
    other.load_state_dict(net.state_dict())

    def training(model, optimizer):
        def step(x, *, number):
            loss = model(x).square().mean() * 0.9**number
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        return step

    eager = training(net, ng.optim.Adam(net.parameters()))
    compiled = ng.compile(training(other, ng.optim.Adam(other.parameters())))
    for number in range(20):
        x = ng.ones(3, 2) * (number % 5)
        assert compiled(x, number=number).item() == pytest.approx(eager(x, number=number).item())
    assert compiled.cache_info().recordings == 3
    assert "any whole number" in compiled.recordings[-1]


def test_bools_and_other_kinds_do_not_count():
    f = ng.compile(lambda x, k: x * 2 if k else x)
    assert [f(ng.ones(1), k).item() for k in (True, False, 3, 0, 5, 7.0)] == [2, 1, 2, 1, 2, 2]
    f = ng.compile(lambda x, k: x * k)
    numbers = (2, 3, 4, 2**60, -5, 2.5)
    assert [f(ng.ones(1), k).item() for k in numbers] == [float(k) for k in numbers]


def test_an_error_of_a_passed_number_is_that_of_the_function():
    def refusing(x, k):
        if k > 4:
            raise ValueError(f"no step {k}")
        return x * k

    f = ng.compile(refusing)
    for k in range(5):
        assert f(ng.ones(1), k).item() == k
    with pytest.raises(ValueError, match="no step 7"):
        f(ng.ones(1), 7)
    assert f(ng.ones(1), 3).item() == 3


def test_many_conditions_of_a_number_give_it_back_to_the_signature():
    f = ng.compile(lambda x, k: x * math.floor(k / 2))
    recordings = []
    with pytest.warns(UserWarning, match="recorded 16 times"):
        for _ in range(3):
            assert [f(ng.ones(1), k).item() for k in range(60)] == [k // 2 for k in range(60)]
            recordings.append(f.cache_info().recordings)
    assert recordings[2] == recordings[1] < 100  # each value has one


def test_warming_up_for_numbers():
    f = ng.compile(lambda x, k: x[k] * 2)
    for k in range(4):
        f.warmup(ng.ones(5), k)
    assert f(ng.ones(5), 3).item() == 2


def test_a_gradient_from_outside_of_a_count():
    model = Counting()
    run = ng.compile(model)
    for k in range(1, 4):
        x = ng.ones(1, requires_grad=True)
        run(x).backward()
        assert x.grad.item() == k


def test_a_count_that_begins_as_nothing():
    class Counter:
        seen = None

        def __call__(self, x):
            self.seen = 1 if self.seen is None else self.seen + 1
            return x * self.seen

    counter = Counter()
    f = ng.compile(counter.__call__)
    assert [f(ng.ones(1)).item() for _ in range(4)] == [1, 2, 3, 4]
    counter.seen = None  # and anew
    assert [f(ng.ones(1)).item() for _ in range(3)] == [1, 2, 3]
    counter.seen = True
    with pytest.raises(RecordingError, match="'seen' to a number, where True stands now"):
        f(ng.ones(1))
    assert counter.seen is True
    counter.seen = 5
    assert f(ng.ones(1)).item() == 6


MAKERS = """
def by_hasattr(s, x):
    if not hasattr(s, "n"):
        s.n = 0
    s.n += 1
    return x * s.n

def by_getattr(s, x):
    s.n = getattr(s, "n", 0) + 1
    return x * s.n

def by_error(s, x):
    try:
        s.n += 1.0
    except AttributeError:
        s.n = 1.0
    return x * s.n

def by_flag(s, x):
    if not hasattr(s, "ready"):
        s.ready, s.n = True, 0
    s.n += 1
    return x * s.n
"""


@pytest.mark.parametrize("name", ["by_hasattr", "by_getattr", "by_error", "by_flag"])
@pytest.mark.parametrize("holder", [SimpleNamespace, nn.Module, type("Plain", (), {})])
def test_a_count_that_the_first_call_makes(name, holder):
    space: dict = {}
    exec(MAKERS, space)
    held = holder()
    compiled = ng.compile(lambda x: space[name](held, x))
    assert [compiled(ng.ones(1)).item() for _ in range(4)] == [1, 2, 3, 4] and held.n == 4
    held.n = type(held.n)(10)
    assert compiled(ng.ones(1)).item() == held.n == 11


def test_a_count_in_a_dict_that_the_first_call_makes():
    counts: dict = {}

    def step(x):
        counts["n"] = counts.get("n", 0) + 1
        return x * counts["n"]

    compiled = ng.compile(step)
    assert [compiled(ng.ones(1)).item() for _ in range(4)] == [1, 2, 3, 4]

    seen: dict = {}

    def other_each_time(x):
        seen[str(len(seen))] = 1
        return x * len(seen)

    compiled = ng.compile(other_each_time)
    assert compiled(ng.ones(1)).item() == 1
    with pytest.raises(RecordingError, match=r"makes .*1.*, which was not there before"):
        compiled(ng.ones(1))
    assert list(seen) == ["0"]


def test_a_count_that_is_asked_for_its_type():
    class State:
        calls = 0

    state, x = State(), ng.ones(1)

    @ng.compile
    def step(x):
        state.calls += 1
        kind = type(state.calls)
        return x * state.calls * (2 if kind is int and kind.__name__ == "int" else 3)

    assert [step(x).item() for _ in range(4)] == [2.0, 4.0, 6.0, 8.0]
    assert type(state.calls) is int


def test_math_that_is_imported_in_a_function_takes_counts():
    import math
    from math import cos

    class State:
        calls = 0

    state, x = State(), ng.ones(1)

    def around(x):
        state.calls += 1
        return x * math.cos(state.calls) + cos(state.calls)

    def inside(x):
        import math
        from math import cos

        state.calls += 1
        return x * math.cos(state.calls) + cos(state.calls)

    for function in (around, inside):
        state.calls = 0
        step = ng.compile(function)
        found = [step(x).item() for _ in range(4)]
        assert found == pytest.approx([2 * math.cos(k) for k in range(1, 5)], rel=1e-6)
        assert step.cache_info().compilations == 1
    assert cos is math.cos


def test_classes_and_modules_count():
    class Parent:
        calls, mean = 0, ng.zeros(1)

        @classmethod
        def count(cls):
            cls.calls += 1
            return cls.calls

    class Child(Parent):
        pass

    module, x = ModuleType("settings"), ng.ones(1)
    module.calls = 0

    @ng.compile
    def step(x):
        module.calls += 1
        Parent.mean = Parent.mean * 0.5 + x
        return x * Parent.count() * module.calls

    assert [step(x).item() for _ in range(4)] == [1.0, 4.0, 9.0, 16.0]
    assert (Parent.calls, module.calls, Parent.mean.item()) == (4, 4, 1.875)

    @ng.compile
    def of_child(x):
        return x * Child.count()

    assert [of_child(x).item() for _ in range(3)] == [5.0, 6.0, 7.0]
    assert (Parent.calls, Child.calls) == (4, 7)
    assert type(Child.calls) is int


def test_a_global_that_the_first_call_makes():
    space = {}
    exec(
        "def step(x):\n    global calls\n    try:\n        calls += 1\n"
        "    except NameError:\n        calls = 1\n    return x * calls",
        space,
    )
    step, x = ng.compile(space["step"]), ng.ones(1)
    assert [step(x).item() for _ in range(4)] == [1.0, 2.0, 3.0, 4.0] and space["calls"] == 4


def test_modules_named_math_of_a_package_and_other_threads(tmp_path, monkeypatch):
    """A relative import is none of Python's math, which other threads find as it is."""
    package = tmp_path / "measures"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "math.py").write_text("def twice(k):\n    return 2 * k\n")
    (package / "steps.py").write_text(
        "def step(x, k):\n    from .math import twice\n    import math\n\n"
        "    return x * twice(k) * math.sqrt(k)\n\n\n"
        "def imported():\n    import math\n\n    return math\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from measures import steps

    found, done = [], threading.Event()

    def look():
        while not done.is_set():
            found.append(steps.imported())

    other = threading.Thread(target=look)
    other.start()
    try:
        for _ in range(5):
            step = ng.compile(lambda x, k: steps.step(x, k))
            assert [step(ng.ones(1), k).item() for k in (1.0, 4.0)] == [2.0, 16.0]
    finally:
        done.set()
        other.join()
    assert found and all([module is math for module in found])


def test_what_a_call_makes_on_a_class_or_a_module():
    class Held:
        pass

    module, x = ModuleType("settings"), ng.ones(1)

    @ng.compile
    def step(x):
        Held.calls = getattr(Held, "calls", 0) + 1
        module.calls = getattr(module, "calls", 0) + 2
        module.last = x * module.calls
        return x * Held.calls * module.calls

    assert [step(x).item() for _ in range(4)] == [2.0, 8.0, 18.0, 32.0]
    assert (Held.calls, module.calls, module.last.item()) == (4, 8, 8.0)
    keeps = ng.compile(lambda x: setattr_last(Held, x))
    for k in (1.0, 2.0, 3.0):
        keeps(x * k)
        assert Held.made_last.item() == 2 * k


def setattr_last(held, x):
    held.made_last = x * 2
    return x


class Numbered:
    """Each object has the next number."""

    made, entered, gain = 0, 0, 2.0

    def __init__(self):
        Numbered.made += 1
        self.number = Numbered.made * Numbered.gain

    def __enter__(self):
        Numbered.entered += 1
        return Numbered.entered

    def __exit__(self, *_):
        pass


def test_objects_that_count_as_they_are_made_and_entered():
    x = ng.ones(1)
    makes = ng.compile(lambda x: x * Numbered().number)
    assert [makes(x).item() for _ in range(3)] == [2.0, 4.0, 6.0]
    Numbered.gain = 5.0
    assert makes(x).item() == 20.0 and Numbered.made == 4

    @ng.compile
    def enters(x):
        with Numbered() as entered:
            return x * entered

    assert [enters(x).item() for _ in range(3)] == [1.0, 2.0, 3.0]
    assert (Numbered.made, Numbered.entered) == (7, 3)
