"""Gradients through what was run for a whole batch: the graph of one element, as one node.

Inside, the tape has the nodes of one element. From outside they are one node, which runs them for
all elements at once: a gradient goes to an argument element by element, and to what all elements
shared as the sum over them. Start reading at ``leave``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import VmapError
from ..graph_walk import _reachable, run_backward
from ..tape import RESTORED, Edge, Node, grad_mode, next_sequence, split_edge
from ..tensor import Tensor, wrap
from .memory import Apart
from .verbs import Batch


class Element(Node):
    """Where the graph of one element begins: at the argument with the edge ``whole``."""

    def __init__(self, batch: Batch, whole: Any, dim: int):
        self.batch, self.whole, self.dim = batch, whole, dim
        self._sequence = next_sequence()

    def name(self) -> str:
        return "UnbindBackward"

    def _run(self, grads: list[Any]) -> Sequence[Any]:
        return ()


def _begins(edge: Any, batch: Batch) -> bool:
    """Whether ``edge`` is where the graph of an element of ``batch``, of no other, begins."""
    return type(edge) is Element and edge.batch is batch


def enter(batch: Batch, tensor: Tensor, dim: int) -> Tensor:
    """One element of ``tensor`` along ``dim``, which stands for all of them."""
    array = batch.enter(tensor._array, dim)
    found = wrap(array, tensor._dtype)
    found._flat = bool(array.flags.c_contiguous)
    found._counter = tensor._version_counter()
    if tensor._edge is not None and grad_mode.enabled:
        array.memory.writable = False
        found._edge = Element(batch, tensor._edge, dim)
    return found


def leave(batch: Batch, tensors: list[Tensor], start: int) -> list[Tensor]:
    """Of each tensor the values of all elements, along a first dim, in memory of its own.

    start: what was made inside has larger numbers on the tape.
    """
    shown = [_of_all(batch, t) for t in tensors]
    inside = [k for k, t in enumerate(tensors) if t._edge is not None and batch.knows(t._array)]
    if not inside or not grad_mode.enabled:
        return shown
    edges = [tensors[k]._edge for k in inside]
    targets = _leading_out(batch, edges, start)
    if targets:
        node = Elements(Inside(batch, edges, targets, start))
        for index, k in enumerate(inside):
            shown[k]._edge = node if len(inside) == 1 else Edge(node, index)
    return shown


def _of_all(batch: Batch, tensor: Tensor) -> Tensor:
    if not batch.knows(tensor._array):
        return tensor.unsqueeze(0).expand(batch.size, *tensor.shape).clone()
    array = batch.whole(tensor._array)
    found = wrap(array, tensor._dtype)
    found._flat = bool(array.flags.c_contiguous)
    memory = tensor._array.memory
    if tensor._edge is None and memory.ours and memory.step and not memory.shown:
        memory.shown = True
        found._counter = tensor._version_counter()  # the graph inside may have saved it
        return found
    return found.clone()


def _leading_out(batch: Batch, edges: list[Any], start: int) -> list[Any]:
    """The edges by which the graph leaves what was made inside, and where that begins."""
    found: dict[Any, Any] = {}
    pairs = list(edges)
    for node in _reachable([split_edge(e)[0] for e in edges], start):
        if node._sequence > start:
            pairs += node._edges
    for edge in pairs:
        if edge is not None:
            node, index = split_edge(edge)
            if node._sequence <= start or _begins(node, batch):
                found[node, index] = edge
    return list(found.values())


def _outer(edge: Any, batch: Batch) -> Any:
    """Where ``edge``, out of the graph of one element, leads outside."""
    return edge.whole if _begins(edge, batch) else edge


class Inside:
    """What the node of one call keeps: the graph of one element, from its results to ``targets``.

    start: what was made inside has larger numbers on the tape.
    """

    _counter = None  # no tensor, whose version would be compared

    def __init__(self, batch: Batch, roots: list[Any], targets: list[Any], start: int):
        self.batch, self.roots, self.targets, self.start = batch, roots, targets, start

    def restore(self, node: Node) -> Inside:
        """As it was saved."""
        return self


RESTORED.add(Inside)


class Elements(Node):
    """The node of one call: the graph of one element, which it runs for all of them."""

    def __init__(self, inside: Inside):
        self._edges = tuple([_outer(e, inside.batch) for e in inside.targets])
        self._outputs = len(inside.roots)
        self._saved = (inside,)
        self._sequence = next_sequence()

    def name(self) -> str:
        """What ``grad_fn`` shows."""
        return "VmapBackward"

    def _run(self, grads: list[Any]) -> Sequence[Any]:
        (inside,) = self._unpack()
        batch, asked = inside.batch, grad_mode.asked
        wanted = list(range(len(self._edges)))
        if asked is not None and asked[0] is self:
            wanted = [k for k in wanted if asked[1][k]]
        pairs = [(e, g) for e, g in zip(inside.roots, grads, strict=True) if g is not None]
        try:
            with batch.standing():
                found = run_backward(
                    [(edge, enter(batch, g, 0)) for edge, g in pairs],
                    retain_graph=True,
                    create_graph=grad_mode.enabled,
                    targets=[inside.targets[k] for k in wanted],
                    accumulate=False,
                    since=inside.start,
                )
        except Apart as reason:
            raise VmapError(
                f"vmap: the gradient of the function needs values of single elements ({reason}). "
                f"Pass chunk_size=1 to vmap, which runs the function for one after the other."
            ) from None
        assert found is not None
        shown = iter(leave(batch, [g for g in found if g is not None], inside.start))
        results: list[Any] = [None] * len(self._edges)
        for k, g in zip(wanted, found, strict=True):
            if g is not None:
                whole, target = next(shown), inside.targets[k]
                mine = _begins(target, batch)
                results[k] = whole.movedim(0, target.dim) if mine else whole.sum(0)
        return results
