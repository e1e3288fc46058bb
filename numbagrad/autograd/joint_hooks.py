"""Hooks that wait for the gradients of several tensors: ``register_multi_grad_hook``."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import GradError
from ..graph_walk import JointHook, Walk
from ..tape import RemovableHandle, split_edge
from ..tensor import Tensor

__all__ = ["register_multi_grad_hook"]


class _Handles(RemovableHandle):
    """The handles of one hook at several tensors, removed together."""

    def __init__(self, handles: list[RemovableHandle]):
        self._handles = handles

    def remove(self) -> None:
        """Take the hook away everywhere; a second call does nothing."""
        for handle in self._handles:
            handle.remove()


class _Gathering:
    """What has come in during each run of backward: calls ``fn`` when nothing is missing."""

    def __init__(self, tensors: Sequence[Tensor], fn: Callable[[list[Tensor | None]], None]):
        self.nodes = [split_edge(t._edge)[0] for t in tensors]
        self.fn = fn
        self.lock = threading.Lock()  # two threads may share the tensors, but no walk
        self.found: weakref.WeakKeyDictionary[Walk, list[Any]] = weakref.WeakKeyDictionary()

    def arrive(self, place: int, grad: Tensor | None, walk: Walk) -> None:
        """Keep a gradient; ``found`` is the number of missing ones, then the gradients."""
        with self.lock:
            if walk not in self.found:
                running = walk.nodes()
                missing = sum(node in running for node in self.nodes)
                self.found[walk] = [missing] + [None] * len(self.nodes)
            found = self.found[walk]
            found[0] -= 1
            found[1 + place] = grad
        if not found[0]:
            self.fn(found[1:])


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[[Any], None], *, mode: str = "all"
) -> RemovableHandle:
    """Call ``fn`` once in each backward that reaches ``tensors``; returns a handle to remove it.

    mode "all": ``fn(grads)``, once all of ``tensors`` that this backward can reach have their
    gradients, a list with None for the others. mode "any": ``fn(grad)``, with the first gradient of
    them that is computed. What fn returns is ignored, and it must not change the gradients. Where a
    tensor lies on the way but no gradient comes there, "all" goes on waiting, in vain.

    Raises GradError for a tensor that does not require grad, ValueError for another mode.

    >>> import numbagrad as ng
    >>> a, b = (ng.ones(2, requires_grad=True) for _ in range(2))
    >>> _ = register_multi_grad_hook((a, b), lambda grads: print([g.tolist() for g in grads]))
    >>> (2 * a + 3 * b).sum().backward()
    [[2.0, 2.0], [3.0, 3.0]]
    """
    name = "register_multi_grad_hook"
    if mode not in ("all", "any"):
        raise ValueError(f"{name}: Expects mode to be one of ('all', 'any') but got {mode!r}.")
    if not callable(fn):
        raise TypeError(f"{name}: fn must be a function, got {type(fn).__name__}.")
    tensors = list(tensors)
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: tensors[{i}] is a {type(tensor).__name__}, not a Tensor.")
        if tensor._edge is None:
            raise GradError(
                f"{name}: cannot register a hook on tensors[{i}], which doesn't require gradient."
            )
    if mode == "any":
        return _at_each(tensors, _first_only(fn))
    return _at_each(tensors, _Gathering(tensors, fn).arrive)


def _first_only(fn: Callable[[Tensor], None]) -> Callable[[int, Tensor | None, Walk], None]:
    """``fn`` called with the first gradient of each walk."""
    lock, seen = threading.Lock(), weakref.WeakSet[Walk]()

    def arrive(place: int, grad: Tensor | None, walk: Walk) -> None:
        with lock:
            late = grad is None or walk in seen
            if not late:
                seen.add(walk)
        if not late:
            fn(grad)  # type: ignore[arg-type]

    return arrive


def _at_each(
    tensors: Sequence[Tensor], arrive: Callable[[int, Tensor | None, Walk], None]
) -> _Handles:
    handles = []
    for i, tensor in enumerate(tensors):
        node, index = split_edge(tensor._edge)

        def arrived(grad: Tensor | None, walk: Walk, place: int = i) -> None:
            arrive(place, grad, walk)

        handles.append(node._add_tensor_hook(index, JointHook(arrived)))  # type: ignore[arg-type]
    return _Handles(handles)
