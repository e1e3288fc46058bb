"""Every row of the op table compiled: the numbers, dtypes, flags and gradients of the eager op.

Many calls are compiled as one function, because a compilation costs more than all of them; when a
group differs its calls are compiled one by one, so that the message names the row. Every call in
every dtype and form runs without compiling too, as the generated Python (``op_rows``).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cases import ALL, FAMILIES
from op_table import Case

import numbagrad as ng
from numbagrad.errors import RecordingError

from .op_rows import PARTLY, REFUSED, Item, agree, items_of, recordable

HERE = Path(__file__).parent
GROUP = 40


def chosen(case: Case, dtype: str, form: str) -> list[Item]:
    """The calls that are compiled: the first plain one, and special values of formulas."""
    if dtype not in case.dtypes or not recordable(case):
        return []
    items = items_of(case, dtype, form)
    plain = [i for i in items if i.call.kind == "plain"][:1]
    return plain + [i for i in items if i.call.kind == "special" and form == "forward"]


SCALAR = ("elementwise", "reduce", "norm", "loss")
FORMS = [
    ("float64", "forward", tuple(FAMILIES)),
    ("float32", "outside", SCALAR),
    ("int64", "forward", ("elementwise", "reduce")),
]
"""What is compiled; in the other forms nothing but the text of the same loops is new."""


def groups() -> list:
    """Lists of items to be compiled together, with their names."""
    found = []
    for dtype, form, families in FORMS:
        items = [i for f in families for case in FAMILIES[f] for i in chosen(case, dtype, form)]
        items = items[::2] if form == "outside" else items  # each row is differentiated in Python
        for k in range(0, len(items), GROUP):
            names = f"{items[k].case.name}..{items[min(k + GROUP, len(items)) - 1].case.name}"
            found.append(
                pytest.param(items[k : k + GROUP], id=f"{dtype}-{form.replace(' ', '_')}-{names}")
            )
    return found


@pytest.mark.parametrize("items", groups())
def test_compiled_is_eager(items: list[Item]) -> None:
    """Results, gradients, sharing of memory, versions and the generator are as without compile."""
    wrong = agree(items)
    assert not wrong, "\n".join(wrong[:5])


TOGETHER = 3
"""Families that a process runs: to begin one takes as long as a small family."""


@pytest.mark.parametrize("k", range(0, len(FAMILIES), TOGETHER))
def test_every_call_in_python(k: int) -> None:
    """The same for every call, dtype and form, where the generated text runs as Python."""
    families = [*FAMILIES][k : k + TOGETHER]
    paths = os.pathsep.join([str(HERE), str(HERE.parent), str(HERE.parent.parent)])
    run = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "op_rows.py"), *families],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    *wrong, count = run.stdout.splitlines()
    assert not wrong, "\n".join(wrong[:40])
    assert int(count.split()[0]) > 20 * len(families)


@pytest.mark.parametrize("case", [c for c in ALL if c.name in REFUSED], ids=lambda c: c.name)
def test_refused_at_the_users_line(case: Case) -> None:
    """What depends on values raises, and says where; the same call works without compile."""
    seen = []
    for item in items_of(case, case.dtypes[0]):

        def user(given: list, item: Item = item) -> list:
            return item.run(given)

        try:
            ng.compile(user)(item.given())
        except RecordingError as error:
            seen.append(str(error))
    assert seen
    assert all(".py:" in text and "numbagrad/ops" not in text for text in seen), seen


def test_lists_name_rows() -> None:
    """A row that is renamed must be renamed in the lists too."""
    assert {*REFUSED, *PARTLY} <= {case.name for case in ALL}


RANDOM = {
    "rand": lambda x: ng.rand(3, 4),
    "randn": lambda x: ng.randn(3, 4),
    "randint": lambda x: ng.randint(2, 9, (3, 4)),
    "randperm": lambda x: ng.randperm(7),
    "rand_like": lambda x: ng.rand_like(x),
    "normal": lambda x: ng.normal(x, x.abs() + 1),
    "bernoulli": lambda x: ng.bernoulli(x.sigmoid()),
    "multinomial": lambda x: ng.multinomial(x.exp(), 2),
    "dropout": lambda x: ng.nn.functional.dropout(x, 0.4),
    "uniform_": lambda x: x.clone().uniform_(-1.0, 2.0),
    "normal_": lambda x: x.clone().normal_(1.0, 2.0),
    "exponential_": lambda x: x.clone().exponential_(2.0),
    "bernoulli_": lambda x: x.clone().bernoulli_(0.3),
    "cauchy_": lambda x: x.clone().cauchy_(),
    "log_normal_": lambda x: x.clone().log_normal_(),
    "geometric_": lambda x: x.clone().geometric_(0.3),
    "random_": lambda x: x.clone().random_(0, 10),
    "poisson": lambda x: ng.poisson(x.exp() * 9),
    "binomial": lambda x: ng.binomial(x * 0 + 20, x.sigmoid()),
}


def test_random_numbers_are_the_eager_ones() -> None:
    """The same numbers after the same seed, in each of three calls, and the same state after."""

    def draw(x):
        return [f(x) for f in RANDOM.values()]

    results, states = [], []
    for function in (draw, ng.compile(draw)):
        ng.manual_seed(11)
        x = ng.tensor(np.linspace(-1, 1, 12).reshape(3, 4), dtype=ng.float32)
        results.append([[t.numpy() for t in function(x)] for _ in range(3)])
        states.append((ng.get_rng_state().tolist(), ng.rand(3).tolist()))
    for eager, compiled in zip(*results, strict=True):
        for name, x, y in zip(RANDOM, eager, compiled, strict=True):
            np.testing.assert_allclose(y, x, rtol=1e-6, err_msg=name)
    assert states[0] == states[1]
    first, second = results[1][0], results[1][1]
    assert not np.array_equal(first[0], second[0])
