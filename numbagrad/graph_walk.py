"""Walking the graph from newest to oldest: how gradients go back, and hooks on the way.

Start reading at ``run_backward``. Nodes and their edges are in ``tape.py``; this module knows no
tensor class; gradients are anything with ``+``.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from .errors import GradError
from .kernels import machine
from .later import OUR_FILES
from .tape import (
    IN_PLACE,
    ONE_OUTPUT,
    AccumulateGrad,
    Edge,
    Hooks,
    Location,
    Node,
    grad_mode,
    name_of,
    split_edge,
    user_location,
)


class Walk:
    """One run of backward, for hooks that look at several gradients of it."""

    __slots__ = ("__weakref__", "_nodes")

    def __init__(self, order: list[Node], needed: set[Node] | None):
        self._nodes = order if needed is None else needed

    def nodes(self) -> set[Node]:
        """The nodes that may run."""
        return set(self._nodes)


class JointHook:
    """The part of a hook on several tensors at one of them: told of the walk, and of no gradient.

    arrive: called with the gradient, or None, and the walk.
    """

    __slots__ = ("arrive",)

    def __init__(self, arrive: Callable[[Any, Walk], None]):
        self.arrive = arrive


def _reachable(roots: list[Node], since: int = 0) -> list[Node]:
    """Every node below ``roots``, newest first, but none below those numbered up to ``since``."""
    seen = set(roots)
    stack = list(seen)
    add, push, pop = seen.add, stack.append, stack.pop
    while stack:
        above = pop()
        if since and above._sequence <= since:
            continue
        for node in above._edges:
            if node is None:
                continue
            if type(node) is Edge:
                node = node.node
            if node not in seen:
                add(node)
                push(node)
    return sorted(seen, key=_by_sequence, reverse=True)


_by_sequence = operator.attrgetter("_sequence")


def _leaves_when_ready(order: list[Node]) -> list[Node]:
    """``order``, each leaf with hooks right after the last node that gives it a gradient.

    An optimiser in such a hook may then drop the gradient before the others are there.
    """
    last: dict[Node, int] = {}
    for at, node in enumerate(order):
        for edge in node._edges:
            if type(edge) is AccumulateGrad and edge._hooks is not None:
                last[edge] = at
    following: dict[int, list[Node]] = {}
    for leaf, at in last.items():
        following.setdefault(at, []).append(leaf)
    found: list[Node] = []
    for at, node in enumerate(order):
        if node not in last:
            found.append(node)
        found += following.get(at, ())
    return found


def _leading_to(order: list[Node], targets: set[Node]) -> tuple[set[Node], set[Node]]:
    """The nodes of ``order`` from which a target can be reached, and those of them that have inputs
    from which none can, or that are targets."""
    needed, parted = targets.intersection(order), set(targets)
    for node in reversed(order):
        leads = lacks = False
        for edge in node._edges:
            if edge is None:
                continue
            if type(edge) is Edge:
                edge = edge.node
            if edge in needed:
                leads = True
            else:
                lacks = True
        if leads:
            needed.add(node)
            if lacks:
                parted.add(node)
    return needed, parted


def run_backward(
    roots: list[tuple[Any, Any]],
    *,
    retain_graph: bool,
    create_graph: bool,
    targets: list[Any] | None = None,
    accumulate: bool = True,
    since: int = 0,
) -> list[Any] | None:
    """Walk the graph from ``roots``, pairs of an edge and its gradient, newest node first.

    Leaves that have hooks take their gradients as soon as these are whole, others at the end.
    targets: edges whose gradients to return; only nodes on a path to one of them run. accumulate:
    whether leaves (those among the targets, if there are any) add to their ``.grad``. since:
    nodes with no larger number are none of this walk: targets among them get what comes from newer
    ones, and are not run.
    """
    order = _reachable([e.node if type(e) is Edge else e for e, _ in roots], since)
    if AccumulateGrad.hooked:
        order = _leaves_when_ready(order)
    wanted: dict[Node, dict[int, Any]] = {}
    needed = parted = None
    if targets is not None:
        for node, index in map(split_edge, targets):
            wanted.setdefault(node, {})[index] = None
        needed, parted = _leading_to(order, set(wanted))
    walk: Walk | None = None  # made where a hook may ask for it
    results: Sequence[Any]
    pending: dict[Node, Any] = {}
    owned: set[Node] = set()  # nodes whose pending gradient is a sum made here
    for edge, grad in roots:
        if type(edge) is Edge or edge in pending:
            _give(pending, edge, grad)
        else:
            pending[edge] = grad
    previous, anomaly = grad_mode.enabled, grad_mode.anomaly
    grad_mode.enabled = create_graph
    autocast, grad_mode.autocast = grad_mode.autocast, None  # gradients have their dtypes already
    take, find, one_output = pending.pop, pending.get, ONE_OUTPUT
    in_place = () if create_graph else IN_PLACE
    # A recording that fails gives nodes that it has run back what they had saved.
    recorder: Any = machine.recorder.current if machine.recording else None
    freeing = recorder.freeing if hasattr(type(recorder), "freeing") else None
    try:
        for node in order:
            held = take(node, None)
            if held is None or (needed is not None and node not in needed):
                continue
            if since and node._sequence <= since:
                _note(wanted[node], held if node._outputs > 1 else [held])
                continue
            if (
                (parted is None or node not in parted)
                and node._hooks is None
                and type(node) in one_output
            ):
                if type(node) in in_place:
                    results = _run_in_place(node, held, pending, owned)
                else:
                    results = node._run_one(held)
            else:
                grads = held if node._outputs > 1 else [held]
                held = grad = None
                if node._hooks is not None or node in wanted:
                    if walk is None and node._hooks is not None:
                        walk = Walk(order, needed)
                    grads = _before(node, grads, wanted.get(node), walk)
                if type(node) is AccumulateGrad:
                    if accumulate and grads[0] is not None:
                        hooks = node._hooks
                        given = list(grads) if hooks is not None and hooks.after else None
                        node.accumulate(grads)
                        if hooks is not None and given is not None:
                            _after(hooks, (), given)
                    continue
                if needed is None:
                    results = node._run(grads)
                else:
                    leads = _leads(node, needed)
                    if True not in leads:
                        continue
                    results = _run_towards(node, grads, leads)
                if node._hooks is not None and node._hooks.after:
                    results = _after(node._hooks, results[: len(node._edges)], grads)
                del grads
            held = None
            if anomaly is not None:
                anomaly.gradients(node, results)
            if not retain_graph and node._saved:
                if freeing is not None:
                    freeing(node)
                node._saved = None
            for edge, grad in zip(node._edges, results):  # noqa: B905  strict costs 90 ns
                if edge is None or grad is None:
                    continue
                if type(edge) is Edge:
                    _give(pending, edge, grad)
                    continue
                held = find(edge)
                if held is None:
                    pending[edge] = grad
                elif create_graph or edge not in owned:
                    pending[edge] = _sum(held, grad)
                    owned.add(edge)
                else:
                    held._add_in_place(grad)
            held = None
            grad = results = None  # type: ignore[assignment]
    finally:
        grad_mode.enabled = previous
        grad_mode.autocast = autocast
    if targets is None:
        return None
    return [wanted[node][index] for node, index in map(split_edge, targets)]


def _run_in_place(
    node: Any, grad: Any, pending: dict[Node, Any], owned: set[Node]
) -> Sequence[Any]:
    """Run a node of ``IN_PLACE``; nothing comes of one that has added to what is there."""
    if hasattr(node._op, "take"):
        return _take(node, grad, pending, owned)
    results: Sequence[Any] = ()
    return results if _add_into(node, grad, pending, owned) else node._run_one(grad)


def _add_into(node: Any, grad: Any, pending: dict[Node, Any], owned: set[Node]) -> bool:
    """Add the gradient of a part straight to that of the whole, without zeros around it.

    A loop over time steps reads one after the other of a sequence: with zeros its way back would
    take as many passes over the whole sequence as it has steps.
    """
    (edge,) = node._edges[:1]
    if edge is None or type(edge) is Edge:
        return False
    whole = pending.get(edge)
    if whole is None:
        pending[edge] = node._run_one(grad)[0]
    elif not node._op.may_add(node, whole, grad):
        return False
    else:
        if edge not in owned:
            whole = pending[edge] = whole.clone()
        node._op.add_into(node, whole, grad)
    owned.add(edge)
    return True


def _take(node: Any, grad: Any, pending: dict[Node, Any], owned: set[Node]) -> Sequence[Any]:
    """Run a node that takes its gradient, that it may change where nobody else has it."""
    edge = node._edges[0]
    if edge is not None and type(edge) is not Edge and edge not in pending:
        owned.add(edge)  # what it is given now is nobody else's
    taken: Sequence[Any] = node._op.take(node, grad) if node in owned else node._run_one(grad)
    return taken


def _leads(node: Node, needed: set[Node]) -> tuple[bool, ...]:
    """Which inputs of a node are needed, or made of what is."""
    return tuple(
        [e is not None and (e.node if type(e) is Edge else e) in needed for e in node._edges]
    )


def _run_towards(node: Node, grads: list[Any], leads: tuple[bool, ...]) -> Sequence[Any]:
    """Run a node for those of its inputs alone that ``leads`` marks; other threads may too."""
    before = grad_mode.asked
    grad_mode.asked = node, leads
    try:
        return node._run(grads)
    finally:
        grad_mode.asked = before


def _give(pending: dict[Node, Any], edge: Any, grad: Any) -> None:
    """Add ``grad`` to what waits at ``edge``."""
    if type(edge) is Edge:
        node, index = edge.node, edge.index
        grads = pending.get(node)
        if grads is None:
            grads = pending[node] = [None] * node._outputs
        grads[index] = grad if grads[index] is None else _sum(grads[index], grad)
        return
    held = pending.get(edge)
    pending[edge] = grad if held is None else _sum(held, grad)


def _sum(x: Any, y: Any) -> Any:
    """Two parts of a gradient; a recording knows that their order was nobody's wish."""
    if machine.recording and not grad_mode.enabled and machine.is_compiling():
        return x._add_parts(y)
    return x + y


def _before(
    node: Node, grads: list[Any], wanted: dict[int, Any] | None, walk: Walk | None
) -> list[Any]:
    """Run the hooks before a node; note the gradients that somebody asked for."""
    hooks = node._hooks or Hooks()
    for index, by_id in hooks.tensor.items():
        for hook in list(by_id.values()):
            if type(hook) is JointHook:
                hook.arrive(written_out(grads[index]), walk)
            elif grads[index] is not None:
                grads[index] = written_out(grads[index])
                result = hook(grads[index])
                if result is not None:
                    grads[index] = _checked_hook(node, grads[index], result)
    for index, reference in hooks.retained.items():
        tensor = reference()
        if tensor is not None and grads[index] is not None:
            held = tensor._grad
            tensor._grad = grads[index].clone() if held is None else held + grads[index]
    if wanted is not None:
        _note(wanted, grads)
    for hook in list(hooks.before.values()):
        grads = [written_out(g) for g in grads]
        result = hook(tuple(grads))
        if result is not None:
            grads = list(result) if isinstance(result, (tuple, list)) else [result]
    return grads


def _note(wanted: dict[int, Any], grads: list[Any]) -> None:
    """Keep the gradients that somebody asked for."""
    for index in wanted:
        wanted[index] = written_out(grads[index])


def written_out(grad: Any) -> Any:
    """``grad``, or a copy if its elements share memory: who gets it may write into it."""
    return grad if grad is None or grad._flat or 0 not in grad.stride() else grad.clone()


def _checked_hook(node: Node, grad: Any, result: Any) -> Any:
    if getattr(result, "shape", None) != grad.shape:
        raise GradError(
            f"{name_of(node)}: a hook changed the shape of a gradient from {list(grad.shape)} to "
            f"{list(getattr(result, 'shape', []))}. Return None or a tensor of the same shape."
        )
    return result


def _after(hooks: Hooks, results: Sequence[Any], grads: list[Any]) -> Sequence[Any]:
    for hook in list(hooks.after.values()):
        changed = hook(tuple(results), tuple(grads))
        if changed is not None:
            results = changed if isinstance(changed, (tuple, list)) else (changed,)
    return results


def origin(depth: int = 1) -> tuple[Location | None, str]:
    """The user's line and, in a backward pass, the name of the node that runs.

    In a backward pass the line is that of the forward op, which its node remembers.
    """
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None and OUR_FILES[frame.f_code.co_filename]:
        if frame.f_code is run_backward.__code__:
            node = frame.f_locals.get("node")
            if node is not None:
                return getattr(node, "_where", None) or user_location(2), name_of(node)
        frame = frame.f_back
    return (None if frame is None else (frame.f_code, frame.f_lasti)), ""
