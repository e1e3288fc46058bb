"""``step.relies_on``: what a compiled function relies on, where it stands, where it is read."""

import contextvars
import dataclasses
import inspect
import os

import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.compiled.relied import KINDS
from numbagrad.errors import RecordingError

pytestmark = pytest.mark.interpreted

temperature = 0.5
table = {"a": 1.0}
level = contextvars.ContextVar("level", default=2.0)


class Config:
    __slots__ = ("names", "scale")

    def __init__(self):
        self.scale, self.names = 2.0, [1.0, 2.0]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.drop, self.second = nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 2)
        self.scale = 2.0

    def forward(self, x):
        return self.second(self.drop(self.first(x).relu() * self.scale)) * config.names[1]


config = Config()


def made():
    model, smooth = Model(), 0.25
    model.first.weight.tag = 3.0
    optimizer = ng.optim.SGD(model.parameters(), lr=0.1)

    @ng.compile
    def step(x, kind, rate):
        optimizer.zero_grad()
        factor = temperature * table["a"] * level.get() * model.first.weight.tag
        loss = model(x).sum() * factor * float(os.environ.get("NUMBAGRAD_TESTED", "1"))
        if kind == "smooth" and rate > 0.5:
            loss = loss * smooth * config.scale
        loss.backward()
        optimizer.step()
        return loss

    step(ng.ones(3, 4), "smooth", 0.75)
    return step


@pytest.fixture(scope="module")
def step():
    return made()


def line_of(step, text):
    lines, first = inspect.getsourcelines(step._function)
    return f"{__file__}:{first + next(k for k, line in enumerate(lines) if text in line)}"


ROWS = [
    ("argument", "argument 0", "", "Tensor [3, 4] of ng.float32", None),
    ("argument", "argument 1", "", "'smooth'", None),
    ("argument", "argument 2", "", "a float, read at each call", None),
    ("condition", "a2 > 0.5", "arguments", "True", None),
    ("closure", "smooth", "", "0.25", "loss * smooth"),
    ("closure", "model", "", "a Model", "model.first"),
    ("global", "temperature", __name__, "0.5", "factor = temperature"),
    ("global", "table", __name__, "dict of 1: 'a': 1.0", "factor = temperature"),
    ("attribute", "tag", "Parameter", "3.0", "factor = temperature"),
    ("attribute", "scale", "Config", "2.0", "config.scale"),
    ("attribute", "names", "Config", "list of 2: 1.0, 2.0", ""),
    ("attribute", "scale", "Model", "2.0", ""),
    ("context", "level", "ContextVar", "not there", "factor = temperature"),
    ("environment", "NUMBAGRAD_TESTED", "os.environ", "not there", "os.environ"),
    ("mode", "whether gradients are recorded", "", "True", None),
    ("mode", "the default dtype", "", "ng.float32", None),
    ("modules", "Model, 2 Linear, Dropout", "attributes, hooks", "training=True", None),
]


@pytest.mark.parametrize("kind, name, of, shown, text", ROWS, ids=lambda part: str(part)[:30])
def test_a_value_has_its_row(step, kind, name, of, shown, text):
    """text: what stands in the line that reads it; "" for one in another function."""
    (row,) = [row for row in step.relies_on.of(kind) if (row.name, row.of) == (name, of)]
    assert row.shown == shown
    if text:
        assert row.where == line_of(step, text)
    else:
        assert (row.where == "") is (text is None)


def test_the_code_of_functions_is_told_with_where_they_are_written(step):
    rows = {row.name: row for row in step.relies_on.of("code")}
    assert rows["made.<locals>.step"].where == line_of(step, "@ng.compile")
    assert rows["Model.forward"].shown == "the code"


def test_rows_are_records_in_order_each_once(step):
    rows = list(step.relies_on)
    assert (
        len(rows)
        == len(step.relies_on)
        == len({(row.kind, row.name, row.of, row.shown) for row in rows})
    )
    assert [row.kind for row in rows] == sorted([row.kind for row in rows], key=KINDS.index)
    with pytest.raises(dataclasses.FrozenInstanceError):
        rows[0].value = 1


def test_it_prints_and_renders(step):
    found = step.relies_on
    lines = repr(found).splitlines()
    assert lines[0].startswith("step was recorded for these: 3 of argument, ")
    assert lines[2].split() == ["name", "of", "value", "read", "at"]
    assert len(lines) == 3 + len(found)
    shown = found._repr_html_()
    assert shown.count("<tr>") == 1 + len(found) and "<td>temperature</td>" in shown


def test_numbers_that_calls_set_are_state_and_others_are_told_anew():
    kept = {"calls": 0, "scale": 2.0, "more": []}

    @ng.compile
    def counting(x):
        kept["calls"] += 1
        return x * kept["calls"] * kept["scale"]

    with pytest.raises(RecordingError, match="call the function once"):
        _ = counting.relies_on
    counting(ng.ones(1))
    (row,) = counting.relies_on.of("state")
    assert (row.name, row.shown) == ("kept['calls']", "a int, read at each call")
    (row,) = counting.relies_on.of("closure")
    assert row.value["scale"] == 2.0
    assert row.shown == "dict of 3: 'calls': another in each call, 'scale': 2.0, 'more': list of 0"
    compiled = ng.compile(nn.Linear(2, 2))
    compiled(ng.ones(1, 2))
    assert compiled.relies_on.of("modules")[0].name == "Linear"


def test_what_is_in_a_container_is_told_in_words():
    held = [nn.Linear(2, 2), ng.ones(3)]
    compiled = ng.compile(lambda x: held[0](x) * held[1].sum())
    compiled(ng.ones(1, 2))
    (row,) = compiled.relies_on.of("closure")
    assert row.shown == "list of 2: a Linear, Tensor [3] of ng.float32"
