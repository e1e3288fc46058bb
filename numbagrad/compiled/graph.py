"""The graph that a recorded function returns: its backward pass is recorded after the function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import RecordingError
from ..graph_walk import _reachable, run_backward
from ..tape import AccumulateGrad, grad_mode, split_edge
from ..tensor import Tensor, wrap
from .record import Recorder
from .settle import Settler, like
from .traced import Launch, Ref, refs_of


@dataclass(frozen=True)
class Failure:
    """What the backward pass raises, and where it would have led: numbers of leaves, or edges."""

    error: Exception
    edges: list[Any]


class Graph:
    """The part of the tape that was made inside, differentiated from outside."""

    def __init__(self, recorder: Recorder, start: int, stand_ins: dict[int, int], settle: Settler):
        self.recorder, self.start, self.stand_ins = recorder, start, stand_ins
        self.settle = settle
        self.numbers: dict[int, Any] = {}  # id of a returned tensor -> number of its gradient
        self.incoming: list[Ref] = []
        self.edges: list[Any] = []
        self.outgoing: list[Ref | None] = []
        self.sources: list[frozenset[int]] = []

    @staticmethod
    def hooked(view: Tensor, base: Tensor) -> bool:
        """Whether hooks see the gradient of a view before it reaches its base."""
        edge = view._edge
        while edge is not None and edge is not base._edge:
            node = split_edge(edge)[0]
            if node._hooks is not None:
                return True
            edge = node._edges[0] if len(node._edges) == 1 else None
        return False

    def differentiate(self, outputs: list[Tensor]) -> None:
        """Record the backward pass from ``outputs`` to where the graph leaves the function."""
        outputs = list({id(t): t for t in outputs}.values())
        if not outputs or not grad_mode.enabled:
            return
        nodes = _reachable([split_edge(t._edge)[0] for t in outputs])
        inside = [n for n in nodes if n._sequence > self.start]
        if any(n._saved is None for n in inside):
            self.numbers = {id(t): "sealed" for t in outputs}
            return
        self.recorder.later = True
        targets: dict[Any, Any] = {}
        for node in inside:
            for edge in node._edges:
                if edge is None:
                    continue
                n, index = split_edge(edge)
                leaf = id(n.variable) if type(n) is AccumulateGrad else 0
                known = leaf in self.stand_ins or leaf in self.recorder.others
                if n._sequence < self.start or known:
                    targets[n, index] = edge
        split = len(self.recorder.events)
        try:
            self._differentiate(outputs, list(targets.values()))
        except RecordingError:
            raise
        except Exception as error:  # eagerly it is raised by backward, where that is called
            del self.recorder.events[split:]
            self.incoming, self.edges, self.outgoing = [], [], []
            error.__traceback__ = error.__context__ = None  # which would keep tensors of this run
            failure = Failure(error, [*map(self._beyond, targets.values())])
            self.numbers = {id(t): failure for t in outputs}

    def _beyond(self, edge: Any) -> Any:
        """The number of the argument that ``edge`` leads to; of another tensor the edge."""
        node = split_edge(edge)[0]
        leaf = node.variable if type(node) is AccumulateGrad else None
        return self.stand_ins.get(id(leaf), edge)

    def _differentiate(self, outputs: list[Tensor], targets: list[Any]) -> None:
        roots = []
        split = len(self.recorder.events)
        for k, t in enumerate(outputs):
            device = self.recorder.ref(t._array).memory.device
            array = self.recorder.made("input", *like(t._array), -1 - k, device)
            self.incoming.append(self.recorder.ref(array))
            self.numbers[id(t)] = k
            roots.append((t._edge, wrap(array, t._dtype)))
        found = run_backward(
            roots,
            retain_graph=False,
            create_graph=False,
            targets=targets,
            accumulate=False,
            since=self.start,
        )
        assert found is not None
        reached = [{id(n) for n in _reachable([split_edge(t._edge)[0]])} for t in outputs]
        for edge in targets:
            node = id(split_edge(edge)[0])
            self.sources.append(frozenset([k for k, ids in enumerate(reached) if node in ids]))
        forward = {
            r.memory
            for e in self.recorder.events[:split]
            if isinstance(e, Launch)
            for r in refs_of(e)
        }
        for edge, grad in zip(targets, found, strict=True):
            self.edges.append(self._beyond(edge))
            shared = grad is not None and self.recorder.ref(grad._array).memory in forward
            self.outgoing.append(None if grad is None else self.settle(grad, shared))
