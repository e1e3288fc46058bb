"""The look for tensors among all objects there are: what it finds, and that it disturbs nobody."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import numbagrad as ng
from numbagrad.compiled import heap
from numbagrad.kernels import instances


class Unhashable(type):
    """Classes of this metaclass cannot be members of a set."""

    def __eq__(cls, other):
        return cls is other


def looks():
    kept = ng.ones(2)
    here = {"a name": kept}
    for _ in range(20):
        assert any(t is kept for t in heap.all_tensors())
        assert any(d is here for d in heap.dicts_that_hold([kept]))
    with heap.Nursery() as made:
        for _ in range(200):
            assert made.tensors() is not None


def make_tuples_meanwhile():
    """A tuple grows as its generator goes on, which no other reference to it may see."""
    weight = ng.ones(2)
    stop, errors, made = threading.Event(), [], 0

    def make_tuples():
        nonlocal made
        while not stop.is_set():
            try:
                tuple(weight for _ in range(1000))
            except SystemError as error:
                errors.append(error)
            made += 1

    others = [[] for _ in range(100_000)]
    thread = threading.Thread(target=make_tuples)
    thread.start()
    try:
        looks()
    finally:
        stop.set()
        thread.join()
    assert made and not errors
    del others


def test_other_threads_can_make_tuples_meanwhile():
    """In a process of its own: with all that tests have left it takes ten times as long."""
    text = (
        "import sys; sys.setswitchinterval(1e-5); import test_heap as t; t.make_tuples_meanwhile()"
    )
    subprocess.run([sys.executable, "-c", text], cwd=Path(__file__).parent, check=True)


@pytest.mark.parametrize("metaclass", [type, Unhashable])
def test_tensors_of_any_class_are_found(metaclass):
    class Mine(ng.Tensor, metaclass=metaclass):
        pass

    for kind in (ng.Tensor, ng.nn.Parameter, Mine):
        tensor = kind(ng.ones(2))
        assert any(t is tensor for t in heap.all_tensors())


def test_a_class_without_a_hash_does_not_stop_compiling():
    class Kept(metaclass=Unhashable):
        pass

    kept = Kept()
    assert ng.compile(lambda x: x * 2)(ng.ones(2)).tolist() == [2.0, 2.0]
    assert type(kept) is Kept


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_goes_on_as_it_was(on):
    before = gc.isenabled()
    (gc.enable if on else gc.disable)()
    try:
        heap.all_tensors()
        assert gc.isenabled() is on
    finally:
        (gc.enable if before else gc.disable)()


def test_compiled_code_finds_what_python_does(monkeypatch):
    kept = [ng.ones(2), ng.nn.Parameter(ng.ones(2))]
    monkeypatch.setattr(heap, "_room", [4])
    monkeypatch.setattr(instances, "_CALLS", 0)
    instances.prepare()
    assert instances.marking([ng.Tensor]) is not None
    assert instances.marking([ng.Tensor] * 65) is None
    found = {id(t) for t in heap._of_kind(ng.Tensor, gc.get_objects, None)}
    assert heap._room[0] >= len(gc.get_objects())
    assert {id(t) for t in kept} <= found
    kinds = heap._family(ng.Tensor)
    assert found == {id(t) for t in heap._of_kinds(kinds, gc.get_objects, (None,))}
    looks()
    make_tuples_meanwhile()
