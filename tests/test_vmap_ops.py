"""Every row of the op table under ``vmap``: what a loop over the elements gives, and its gradients.

The elements differ in the order of their numbers, which keeps ranges, symmetry and indices valid.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import FAMILIES
from op_table import is_tensor

import numbagrad as ng
from numbagrad import mapped
from numbagrad.func import vmap

sys.path.insert(0, str(Path(__file__).parent / "compiled"))
from op_rows import Item, close, gradients, items_of, recordable

SIZE = 3


def batch_of(tensor: Any, item: Item) -> Any:
    """``tensor`` for each element, along the first dim: every other one backwards."""
    x = tensor.detach()
    backwards = x.flip(tuple(range(x.ndim)))
    found = ng.stack([backwards if k % 2 else x for k in range(SIZE)])
    return found.requires_grad_() if tensor.requires_grad else found


def run(item: Item, call: Any, which: str) -> tuple[list[Any], list[Any]]:
    """Results of ``call(function, given, dims)``, and the gradients of the arguments or they.

    which: the tensors that are mapped, "all", "first" or "last".
    """
    given = item.given()
    dims = [0 if is_tensor(t) else None for t in given]
    if which != "all":
        mapped = [k for k, d in enumerate(dims) if d == 0][0 if which == "first" else -1]
        dims = [d if k == mapped else None for k, d in enumerate(dims)]
    given = [t if d is None else batch_of(t, item) for t, d in zip(given, dims, strict=True)]
    ng.manual_seed(3)
    got = call(lambda *given: item.run(given), given, dims)
    if item.form == "outside":
        inputs = [t for t in given if is_tensor(t) and t.requires_grad]
        return got, gradients(got, inputs)
    return got, given


def by_vmap(function: Any, given: list[Any], dims: list[Any]) -> list[Any]:
    return vmap(function, in_dims=tuple(dims), randomness="same")(*given)


def compiled(function: Any, given: list[Any], dims: list[Any]) -> list[Any]:
    mapped = vmap(function, in_dims=tuple(dims), randomness="same")
    return ng.compile(mapped)(*given)


def by_loop(function: Any, given: list[Any], dims: list[Any]) -> list[Any]:
    columns = [[t] * SIZE if d is None else t.unbind(0) for t, d in zip(given, dims, strict=True)]
    state = ng.get_rng_state()
    rows = []
    for each in zip(*columns, strict=True):
        ng.set_rng_state(state)
        rows.append(function(*each))
    return [ng.stack(column) for column in zip(*rows, strict=True)]


def shown(call: Any, item: Item, which: str) -> Any:
    """The outcome of ``run`` as arrays, or the error."""
    try:
        got, after = run(item, call, which)
    except Exception as error:
        return type(error)
    return [
        (t.detach().numpy(), str(t.dtype), t.requires_grad) if is_tensor(t) else t
        for t in (*got, *after)
    ]


@pytest.fixture
def unforeseen(monkeypatch: Any) -> list[str]:
    """Where a run for all elements fails by something else than a wish to go one by one: the
    function is then run for each, and nobody would know."""
    found: list[str] = []
    once = mapped._batched

    def watched(*args: Any) -> Any:
        try:
            return once(*args)
        except Exception as error:
            found.append(repr(error))
            raise

    monkeypatch.setattr(mapped, "_batched", watched)
    return found


def differences(item: Item, which: str, unforeseen: list[str], call: Any = by_vmap) -> list[str]:
    """What differs between both ways of running an item."""
    unforeseen.clear()
    wanted, got = shown(by_loop, item, which), shown(call, item, which)
    told = f"{item!r}, {which} mapped"
    if isinstance(wanted, type) or isinstance(got, type):
        same = isinstance(wanted, type)  # what cannot be stacked may have another error
        return [] if same else [f"{told}: {got}"]
    if unforeseen:
        return [f"{told}: {unforeseen[0]} in a run for all elements"]
    if len(wanted) != len(got):
        return [f"{told}: {len(got)} results, expected {len(wanted)}"]
    found = []
    for k, (x, y) in enumerate(zip(wanted, got, strict=True)):
        if not isinstance(x, tuple) or not isinstance(y, tuple):
            if not (x is y or x == y):
                found.append(f"{told}: result {k} is {y}, expected {x}")
        elif x[0].shape != y[0].shape or x[1:] != y[1:]:
            found.append(f"{told}: result {k} is {y[0].shape, y[1:]}, not {x[0].shape, x[1:]}")
        elif not close(x[0], y[0], str(x[0].dtype), 10):
            found.append(f"{told}: result {k} is\n{y[0]}, expected\n{x[0]}")
    return found


FORMS = ("forward", "argument", "outside")


@pytest.mark.parametrize("family", FAMILIES)
def test_as_a_loop(family: str, unforeseen: list[str]) -> None:
    wrong = []
    with np.errstate(all="ignore"):
        for case in FAMILIES[family]:
            for form in FORMS:
                items = items_of(case, "float64" if "float64" in case.dtypes else "int64", form)
                for item in items:
                    if any(map(is_tensor, item.given())):
                        several = sum(map(is_tensor, item.given())) > 1
                        for which in ("all", "first", "last") if several else ("all",):
                            wrong += differences(item, which, unforeseen)
    assert not wrong, f"{len(wrong)}: " + "\n".join(wrong[:20])


@pytest.mark.interpreted
@pytest.mark.parametrize("family", FAMILIES)
def test_compiled(family: str, unforeseen: list[str]) -> None:
    wrong = []
    with np.errstate(all="ignore"):
        for case in filter(recordable, FAMILIES[family]):
            for form in ("forward", "outside"):
                items = items_of(case, "float64" if "float64" in case.dtypes else "int64", form)
                for item in items[len(items) // 2 :][:1]:
                    if any(map(is_tensor, item.given())):
                        wrong += differences(item, "all", unforeseen, compiled)
    assert not wrong, f"{len(wrong)}: " + "\n".join(wrong[:20])
