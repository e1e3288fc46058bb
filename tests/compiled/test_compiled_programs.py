"""Random programs compiled: three calls give, and leave behind, what eager calls do.

Three ways, from the slowest to the fastest: compiled (a few examples), the generated Python run by
the interpreter (a few hundred), and programs interpreted before and after each pass.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import numbagrad as ng
from numbagrad.errors import GradError, RecordingError

from . import random_programs
from .interpret import differs
from .random_programs import Function, Recipe, difference

HERE = Path(__file__).parent
WORD = st.integers(0, (1 << 16) - 1)
RECIPES = st.lists(st.tuples(WORD, WORD, WORD), min_size=4, max_size=12)
KINDS = st.sampled_from(["plain", "inside", "outside"])


def settled(examples: int) -> settings:
    """The same examples each time, however long each takes."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@settled(25)
@given(RECIPES, KINDS, st.booleans())
def test_compiled_programs_are_eager_programs(recipe: Recipe, kind: str, alias: bool) -> None:
    """Results, arguments, state, gradients, versions and sharing over three calls."""
    assert difference(recipe, kind, alias) is None


@pytest.mark.interpreted
@settled(150)
@given(RECIPES, KINDS)
def test_every_pass_keeps_what_a_program_computes(recipe: Recipe, kind: str) -> None:
    """Lowered, and after each pass, forward and backward, the interpreter finds the same."""
    function = Function(recipe, kind)
    try:
        found = differs(function, *function.arguments(0))
    except (RecordingError, RuntimeError):  # it raises eagerly too, or is refused
        assume(False)
    assert found is None, found


def test_programs_run_as_python() -> None:
    """The generated text means the same to Python: guards, effects, memory, everything."""
    paths = os.pathsep.join([str(HERE), str(HERE.parent), str(HERE.parent.parent)])
    run = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "random_programs.py"), "0", "300"],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout == "300 programs\n"


def test_the_check_notices_what_a_program_leaves_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled function that forgets an effect or adds a thousandth is found out."""
    recipe = [(3, 3, 1), (0, 3, 0)]  # adds a tensor in place to state; tanh of state
    assert difference(recipe) is None

    class Forgetful:
        def __init__(self, function: Function):
            self.function = function

        def __call__(self, *args: object) -> tuple:
            kept = [t.clone() for t in self.function.state]
            found = self.function(*args)
            for t, before in zip(self.function.state, kept, strict=True):
                t.copy_(before)
            return found

    monkeypatch.setattr(random_programs.ng, "compile", Forgetful)
    recipe = [(4 * 7 + 3, 3, 0)]  # scale_ of a state tensor
    assert difference(recipe) is not None
    monkeypatch.setattr(
        random_programs.ng, "compile", lambda f: lambda *a: tuple(t * 1.001 for t in f(*a))
    )
    assert difference([(0, 3, 0)]) is not None


def test_a_view_of_a_result_changed_in_place_keeps_its_gradient() -> None:
    """What comes back as a view is one on the tape: of fresh memory, of an argument, of state."""

    def fresh(x):
        y = x * 2
        return y[0], y

    def alone(x):
        return (x * 2)[0]

    def argument(x):
        return x[0]

    for function in (fresh, alone, argument):
        gradients = []
        for call in (function, ng.compile(function)):
            x = ng.arange(6.0).reshape(2, 3).requires_grad_()
            found = call(x * 1.0)
            found = found if isinstance(found, tuple) else (found,)
            found[0].mul_(3)
            sum(t.sum() for t in found).backward()
            gradients.append(x.grad.tolist())
        assert gradients[0] == gradients[1], function.__name__


def test_what_is_only_computed_in_place_of_an_argument_has_its_own_gradient() -> None:
    """A detached alias that gets a history is no view of what it lies in, though it shows it."""
    gradients = []
    for compiled in (False, True):
        weight = ng.ones(3).requires_grad_()

        def function(x, weight=weight):
            alias = weight.detach()
            alias.mul_(x)
            return alias

        x = ng.arange(3.0).requires_grad_()
        y = (ng.compile(function) if compiled else function)(x)
        (y * ng.tensor([1.0, 2.0, 3.0])).sum().backward()
        gradients.append([weight.tolist(), x.grad.tolist(), weight.grad])
    assert gradients[0] == gradients[1]


def test_results_of_one_memory_are_one_tensor_or_its_views() -> None:
    @ng.compile
    def function(x):
        y = x * 2
        return y, y, y.reshape(-1), y[1]

    a, b, flat, row = function(ng.arange(4.0).reshape(2, 2))
    assert a is b
    assert flat.shape == (4,) and row.tolist() == [4.0, 6.0]
    a.zero_()
    assert flat.tolist() == [0.0] * 4 and row._version == a._version == 1


def test_arguments_that_become_part_of_a_graph_are_refused() -> None:
    weight = ng.ones(3).requires_grad_()

    @ng.compile
    def function(x):
        x.mul_(weight)
        return x.sum()

    with pytest.raises(RecordingError, match="history of one of its arguments"):
        function(ng.ones(3))
    with pytest.raises(GradError, match="an argument that requires grad is a leaf"):
        function(weight * 2.0)


def test_gradients_are_as_before_when_arguments_overlap() -> None:
    """The first recording is not for arguments that overlap, and must leave no trace."""
    weight = ng.ones(3).requires_grad_()

    @ng.compile
    def function(x, part):
        part.zero_()
        (weight * x).sum().backward()
        return x.sum()

    x = ng.ones(3)
    function(x, x.detach()[1:])
    assert weight.grad.tolist() == [1.0, 0.0, 0.0]


def test_locals_of_the_generated_code_do_not_meet() -> None:
    """Tensors with the names of builtins, keywords and temporaries; several sums of one loop."""
    names = "range lambda float sum_1_0 f_0 v0_0 t1 overlaps weight weight_at held n0 i0".split()
    names += "wide ticks load_apart store_apart call_for status".split()
    state = {name: ng.full((4, 4), 0.25 * k) for k, name in enumerate(names)}

    def function(x):
        out = x * 3
        for tensor in state.values():
            out = out.mm(x) * 0.1 + tensor
        out = out.tanh()
        return out, out.sum(), out.sum(0), out.sum(1)

    x = ng.arange(16.0).reshape(4, 4) / 16
    for y, z in zip(function(x), ng.compile(function)(x), strict=True):
        assert ng.allclose(y, z, rtol=1e-5)


def test_integers_are_not_folded_beyond_int64() -> None:
    def function():
        return ng.full((3,), 2**62) * 4 + 1

    assert ng.compile(function)().tolist() == function().tolist() == [1, 1, 1]


def test_llvm_does_not_see_how_short_a_loop_around_a_long_one_is():
    """It would unroll all that is inside: 22 s of compiling for products of 10 and 1568 numbers."""
    x, y = ng.rand(40, 10, 1), ng.rand(40, 1, 1568)
    held = ng.get_num_threads()
    ng.set_num_threads(2 if held > 1 else 1)
    step = ng.compile(lambda x, y: x * y)
    assert ng.equal(step(x, y), x * y)
    assert ("range(unknown(10))" in step.source) == (held > 1)
    ng.set_num_threads(held)


def test_a_long_chain_of_small_steps():
    """As of a solver: expressions do not grow with it, nor does what LLVM gets at once."""
    steps = 400

    def decay(x):
        for _ in range(steps):
            x = (x + 1.0) * 0.5
        return x

    def swing(x):
        for _ in range(steps):
            x = x + 0.01 * (x.sin() - x)
        return x.sum()

    x = ng.linspace(-1.0, 1.0, 12, dtype=ng.float64, requires_grad=True)
    for function in (decay, swing):
        compiled = ng.compile(
            lambda x: ng.autograd.grad(function(x).sum(), x)[0]  # noqa: B023
        )
        assert ng.allclose(ng.compile(function)(x.detach()), function(x.detach()))
        assert ng.allclose(compiled(x), ng.autograd.grad(function(x).sum(), x)[0])
