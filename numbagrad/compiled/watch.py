"""Knowing what of which tensors is looked at while a step is recorded: a call compares that.

Descriptors take the place of attributes of ``Tensor`` meanwhile, and tell the recorder of this
thread. Modules and optimisers that are looked at announce their changes from then on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..kernels import machine
from ..tensor import Tensor


class _WatchedGrad:
    """Takes the place of ``Tensor._grad`` while a step is recorded: notes whose is looked at."""

    def __get__(self, tensor: Any, owner: Any) -> Any:
        if tensor is None:
            return None
        recorder = machine.recorder.current
        if recorder is not None and id(tensor) not in recorder.grads_written:
            recorder.grads_read.add(id(tensor))
        return tensor.__dict__.get("_grad")

    def __set__(self, tensor: Any, grad: Any) -> None:
        recorder = machine.recorder.current
        if recorder is not None:
            recorder.grads_set.add(id(tensor))
            if id(tensor) not in recorder.grads_read:
                recorder.grads_written.add(id(tensor))
        tensor.__dict__["_grad"] = grad


class _WatchedArray:
    """Takes the place of ``Tensor._array`` meanwhile: notes whose is looked at.

    That is more than whose memory is met: of some tensors only the shape decides.
    """

    def __get__(self, tensor: Any, owner: Any) -> Any:
        if tensor is None:
            return None
        recorder = machine.recorder.current
        if recorder is not None and id(tensor) not in recorder.arrays_set:
            recorder.arrays_read.add(id(tensor))
        try:
            return tensor.__dict__["_array"]
        except KeyError:
            raise AttributeError("_array") from None

    def __set__(self, tensor: Any, array: Any) -> None:
        recorder = machine.recorder.current
        if recorder is not None:
            recorder.arrays_set.add(id(tensor))
        tensor.__dict__["_array"] = array


class _WatchedEdge:
    """Takes the place of ``Tensor._edge`` meanwhile: notes who is asked for a history."""

    def __get__(self, tensor: Any, owner: Any) -> Any:
        if tensor is None:
            return None
        recorder = machine.recorder.current
        if recorder is not None:
            recorder.edges_read.add(id(tensor))
        return tensor.__dict__.get("_edge")

    def __set__(self, tensor: Any, edge: Any) -> None:
        recorder = machine.recorder.current
        if recorder is not None:
            recorder.edges_set.add(id(tensor))
        tensor.__dict__["_edge"] = edge


def _noting(each: Any, name: str) -> Any:
    """Takes the place of ``__getattribute__`` of modules and optimisers meanwhile: their changes
    matter to a recording that has looked at them, and to no other."""
    recorder = machine.recorder.current
    if recorder is not None:
        own = object.__getattribute__(each, "__dict__")
        if id(each) not in recorder.held.seen and hasattr(type(each), "register_forward_hook"):
            recorder.held.note_module(each, own)
        own["_watched"] = True
        if name in own or hasattr(type(each), name):  # what is not there yet is announced
            recorder.asked.note(each, name, True)
            recorder.asked.note_ours(each, name)
    return object.__getattribute__(each, name)


@contextmanager
def watching() -> Iterator[None]:
    """Let the recorder of this thread know what of which tensors is looked at, and mark modules and
    optimisers that are."""
    if "_array" in vars(Tensor):  # a recording inside of a recording
        yield
        return
    Tensor._grad, Tensor._edge = _WatchedGrad(), _WatchedEdge()  # type: ignore[assignment]
    Tensor._array = _WatchedArray()
    # A copy, for one may be imported meanwhile.
    ways = dict.fromkeys(machine.announcing, _noting) | machine.while_recorded
    for kind, way in ways.items():
        kind.__getattribute__ = way  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        for kind in ways:
            del kind.__getattribute__
        Tensor._grad = Tensor._edge = None
        del Tensor._array
