"""The tape: nodes with creation numbers, the edges between them, and the grad mode.

A tensor that needs a gradient holds an *edge*: the node that made it, or, for one output of
several, an ``Edge`` with the output's number. A leaf's edge is its ``AccumulateGrad``. Nodes hold
the edges of their inputs, never the other way round, so a graph dies when its last tensor does.

Start reading at ``Node``. ``graph_walk.py`` walks the nodes. This module knows no tensor class;
gradients are anything with ``+``.
"""

from __future__ import annotations

import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from .errors import GradError, GraphFreedError, VersionError
from .kernels import machine
from .kernels.blocks import Block
from .kernels.machine import changed
from .kernels.traced_float import TracedFloat
from .later import OUR_FILES
from .tables import show_file


class _GradMode(threading.local):
    enabled = True
    inference = False
    anomaly: Any = None
    saving: Any = None
    autocast: Any = None
    asked: Any = None


grad_mode = _GradMode()
"""Per thread: ``enabled`` (are ops recorded), ``inference``, ``anomaly`` (the watcher or None),
``saving`` (what packs the values that a node is about to save, or None), ``autocast`` (what holds
inside of one, or None), ``asked`` (a node that runs for some of its inputs alone, and which)."""

ONE_OUTPUT: set[type] = set()
"""Node classes with one output whose ``_run_one`` backward may call directly."""

IN_PLACE: set[type] = set()
"""Those of them that may change a gradient of another node instead of making one. The gradient of
some is zero but for what they read: ``_op.add_into(node, whole, grad)`` adds that to a gradient
there is, and is not asked where ``_op.may_add(node, whole, grad)`` says no. Of others
``_op.take(node, grad)`` is backward where nobody else has the gradient, which it may change and
pass on; what backward gives their first edge is nobody else's either."""

_getframe = sys._getframe

next_sequence = itertools.count(1).__next__

Location = tuple[Any, int]
NUMBERS = frozenset((float, int, bool, TracedFloat))


def user_location(depth: int = 1) -> Location | None:
    """The innermost frame outside this package, as a code object and an instruction."""
    frame: FrameType | None = _getframe(depth)
    while frame is not None and OUR_FILES[frame.f_code.co_filename]:
        frame = frame.f_back
    return None if frame is None else (frame.f_code, frame.f_lasti)


def show_location(location: Location | None) -> str:
    """``file:line`` of a location."""
    if location is None:
        return "an unknown line"
    code, instruction = location
    for start, stop, line in code.co_lines():
        if start <= instruction < stop and line is not None:
            return f"{show_file(code.co_filename)}:{line}"
    return f"{show_file(code.co_filename)}:{code.co_firstlineno}"


_closings: list[None] = []
_counting = threading.RLock()  # what closes them may be collected while another does


def close_fast_paths() -> None:
    """Let every op ask what stands behind the verbs, until ``open_fast_paths`` as often."""
    with _counting:
        _closings.append(None)
        machine.recording = machine.closed = True


def open_fast_paths() -> None:
    """End one ``close_fast_paths``; the last of all threads opens them."""
    with _counting:
        _closings.pop()
        machine.closed = bool(_closings)
        machine.recording = machine.closed or machine.away is not None


@contextmanager
def standing_behind(recorder: Any) -> Iterator[None]:
    """Let ``recorder`` stand behind the verbs of this thread; None: nobody."""
    held = machine.recorder.current
    close_fast_paths()
    machine.recorder.current = recorder
    try:
        yield
    finally:
        machine.recorder.current = held
        open_fast_paths()


class Counter:
    """The version of a piece of memory, shared by every tensor that views it."""

    __slots__ = ("value", "where")

    def __init__(self) -> None:
        self.value = 0
        self.where: Location | None = None

    def bump(self, ours: int = 0) -> None:
        """Note a change made now, at the user's current line: ``user_location(2)``, written out for
        every write. The first ``ours`` callers are known to be in this package."""
        self.value += 1
        frame: FrameType | None = _getframe(ours + 1)
        while frame is not None and OUR_FILES[frame.f_code.co_filename]:
            frame = frame.f_back
        self.where = None if frame is None else (frame.f_code, frame.f_lasti)


class Edge:
    """One output, not the only one, of a node."""

    __slots__ = ("index", "node")

    def __init__(self, node: Node, index: int):
        self.node = node
        self.index = index


class Hooks:
    """What users attached to a node: functions around it, on its outputs' gradients."""

    __slots__ = ("accumulated", "after", "before", "retained", "tensor")

    def __init__(self) -> None:
        self.accumulated: dict[int, Callable] = {}
        self.tensor: dict[int, dict[int, Callable]] = {}
        self.retained: dict[int, Any] = {}
        self.before: dict[int, Callable] = {}
        self.after: dict[int, Callable] = {}


class Rare:
    """What few nodes need: versions of saved tensors that had moved, shapes to sum back to."""

    __slots__ = ("meta", "versions")

    def __init__(self) -> None:
        self.versions: tuple[int, ...] | None = None
        self.meta: tuple[Any, ...] | None = None


def name_of(node: Any) -> str:
    """The name of a node, whose attribute ``name`` a user's Function may have set."""
    return type(node).name(node)


class Node:
    """A recorded operation: where its inputs came from and what its gradient needs.

    _edges: per input None, a Node (its only output) or an Edge. saved: tensors, numbers and saved
    outputs; None once the graph is freed.
    """

    if not TYPE_CHECKING:  # the commonest node has slots of its own
        __slots__ = ()
    _edges: tuple[Any, ...] = ()
    _sequence: int = 0
    _outputs: int = 1
    _saved: tuple[Any, ...] | None = ()
    _rare: Rare | None = None
    _where: Location | None = None
    _hooks: Hooks | None = None

    def _run(self, grads: list[Any]) -> Sequence[Any]:
        """Gradients of the inputs, one per edge (None allowed), from those of the outputs."""
        raise NotImplementedError

    def _run_one(self, grad: Any) -> Sequence[Any]:
        """``_run`` for a simple node."""
        return self._run([grad])

    def name(self) -> str:
        """The name shown in ``grad_fn=<...>``."""
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """The nodes that the inputs came from, with the number of their output."""
        return tuple((None, 0) if e is None else split_edge(e) for e in self._edges)

    def _save(self, values: tuple[Any, ...]) -> None:
        """Keep ``values`` for backward, with the versions that tensors among them have now."""
        if machine.recording and grad_mode.saving is not None:
            values = grad_mode.saving(values)
        self._saved = values
        versions = [0] * len(values)
        moved = False
        for i, value in enumerate(values):
            counter = getattr(value, "_counter", None)
            if counter is not None:
                versions[i] = counter.value
                moved = True
        if moved:
            self._rare = self._rare or Rare()
            self._rare.versions = tuple(versions)
        self._where = user_location(2)

    def _unpack(self) -> list[Any]:
        """The saved values, after checking that none was changed or freed."""
        saved = self._saved
        if saved is None:
            raise GraphFreedError(
                f"{name_of(self)}: Trying to backward through the graph a second time (or to read "
                f"saved tensors after they were freed). Pass retain_graph=True to the first "
                f"backward, or compute the graph again."
            )
        values = list(saved)
        for i, value in enumerate(saved):
            if value is None or type(value) in NUMBERS:
                continue
            counter = value._counter
            if counter is not None:
                versions = None if self._rare is None else self._rare.versions
                expected = 0 if versions is None else versions[i]
                if counter.value != expected:
                    values[i] = self._made_again(i, values)
                    if values[i] is None:
                        self._fail_version(value, counter, expected)
                    continue
            if type(value) in RESTORED:
                values[i] = value.restore(self)
        return values

    def _made_again(self, at: int, values: list[Any]) -> Any:
        """Saved value ``at``, which has been changed, as it was, of those before it; or None."""
        return None

    def _fail_version(self, value: Any, counter: Counter, expected: int) -> None:
        raise VersionError(
            f"{name_of(self)}: one of the variables needed for gradient computation has been "
            f"modified by an inplace operation: a tensor of shape {list(value.shape)} is at "
            f"version {counter.value}; expected version {expected}. It was saved by "
            f"{name_of(self)} at {show_location(self._where)} and changed at "
            f"{show_location(counter.where)}. Change a clone instead, or change it after backward."
        )

    def _made_hooks(self) -> Hooks:
        if self._hooks is None:
            self._hooks = Hooks()
        return self._hooks

    def register_hook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(grad_inputs, grad_outputs)`` after this node; it may return new ones."""
        return RemovableHandle(self._made_hooks().after, hook)

    def register_prehook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(grad_outputs)`` before this node; it may return new ones."""
        return RemovableHandle(self._made_hooks().before, hook)

    def _retain(self, index: int, tensor: Any) -> None:
        """Let the gradient of output ``index`` be kept in ``tensor.grad``."""
        self._made_hooks().retained[index] = weakref.ref(tensor)

    def _add_tensor_hook(self, index: int, hook: Callable) -> RemovableHandle:
        """Call ``hook(grad)`` with the gradient of output ``index``; it may return a new one."""
        return RemovableHandle(self._made_hooks().tensor.setdefault(index, {}), hook)

    def __repr__(self) -> str:
        return f"<{name_of(self)} object at {id(self):#x}>"


class SavedOutput:
    """What a node keeps of its own output: the array, not the tensor, which refers to the node.

    The output knows this record and hands it its version counter when it gets one.
    """

    __slots__ = ("_array", "_counter", "_device", "_dtype", "_flat", "index")
    tensor_class: Any = None  # set by tensor.py

    def __init__(self, output: Any, index: int):
        self._array = output._array
        self._dtype = output._dtype
        self._device = output._device
        self._flat = output._flat
        self._counter = output._counter
        self.index = index
        output._kept = self

    @property
    def shape(self) -> Any:
        """Shape of the output."""
        return self._array.shape

    def restore(self, node: Node) -> Any:
        """The output again, as a tensor made by ``node``."""
        output = object.__new__(self.tensor_class)
        output._array = self._array
        output._dtype = self._dtype
        if not self._flat:
            output._flat = False
        if self._device.type != "cpu":
            output._device = self._device
        output._counter = self._counter
        output._kept = self
        if self.index >= 0:
            output._edge = node if node._outputs == 1 else Edge(node, self.index)
        return output


RESTORED: set[type] = {SavedOutput}
"""What may stand for a saved tensor: ``restore(node)`` makes the tensor again."""


class AccumulateGrad(Node):
    """The end of the tape at a leaf: adds the gradient to ``leaf.grad``."""

    hooked = False  # whether a leaf has ever been given a hook
    lifted = False  # whether the leaf stands for an argument of a function of ``func``

    def __init__(self, leaf: Any):
        self._sequence = next_sequence()
        self._leaf = weakref.ref(leaf)

    @property
    def variable(self) -> Any:
        """The leaf, or None if it is gone."""
        return self._leaf()

    def accumulate(self, grads: list[Any]) -> None:
        """Add ``grads[0]`` to the leaf's gradient; take it over when nobody else holds it.

        Nothing where the leaf is gone, or needs no gradient any more.
        """
        leaf = self._leaf()
        if leaf is None or leaf._edge is None:
            return
        if machine.recording and machine.recorder.current is not None:
            machine.recorder.current.accumulating(leaf._array)
        held = leaf._grad
        shape = grads[0]._array.shape
        if shape != leaf._array.shape or (held is not None and held._array.shape != shape):
            raise GradError(
                f"AccumulateGrad: a gradient of size {list(shape)} arrived at a leaf of size "
                f"{list(leaf.shape)}"
                + (f" with a .grad of size {list(held.shape)}" if held is not None else "")
                + ". Its size was changed, by .data or in place: set .grad to None and compute "
                "the loss anew."
            )
        if held is None:
            sole = not grad_mode.enabled and _is_sole(grads) and _is_sole_array(grads)
            flat = grads[0]._array.flags.c_contiguous or not leaf._flat
            leaf._grad = grads[0] if sole and flat else _copy(grads[0], leaf)
        elif grad_mode.enabled:
            leaf._grad = held + grads[0]
        else:
            held._add_in_place(grads[0])
        if self._hooks is not None:
            for hook in list(self._hooks.accumulated.values()):
                if hook(leaf) is not None:
                    raise GradError(
                        "register_post_accumulate_grad_hook: a hook should return None, but one "
                        "returned a value. Change tensor.grad in it instead."
                    )

    def _made_hooks(self) -> Hooks:
        AccumulateGrad.hooked = True
        return super()._made_hooks()

    def register_accumulated_hook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(leaf)`` after a gradient was added to the leaf's."""
        return RemovableHandle(self._made_hooks().accumulated, hook)


def _copy(grad: Any, leaf: Any) -> Any:
    """A copy of a gradient, contiguous where the leaf is."""
    apart = leaf._flat and not grad._array.flags.c_contiguous
    return grad.contiguous() if apart else grad.clone()


class _Memory:
    def __init__(self) -> None:
        self.memory = object()


class _Probe:
    def __init__(self) -> None:
        self._array = _Memory()


def _references(holder: list[Any]) -> int:
    return sys.getrefcount(holder[0])


def _array_references(holder: list[Any]) -> int:
    return sys.getrefcount(holder[0]._array)


def _memory_references(holder: list[Any]) -> int:
    return sys.getrefcount(holder[0]._array.memory)


# What the counts are when the list is the only owner; differs between Python versions.
_SOLE, _SOLE_ARRAY = _references([_Probe()]), _array_references([_Probe()])
_SOLE_MEMORY = _memory_references([_Probe()])


def _is_sole(holder: list[Any]) -> bool:
    return _references(holder) == _SOLE


def _is_sole_array(holder: list[Any]) -> bool:
    """Whether no view, alias or user shares the memory of the tensor in ``holder``."""
    base = getattr(holder[0]._array, "base", False)
    if type(base) is Block:  # kept memory, which an array has to itself
        base = None
    if base is False:  # on a GPU the arrays that share memory have it in common, and no base
        return _memory_references(holder) == _SOLE_MEMORY
    return base is None and _array_references(holder) == _SOLE_ARRAY


class RemovableHandle:
    """What registering a hook returns; ``remove()`` takes the hook away again."""

    _next = itertools.count().__next__

    def __init__(self, hooks: dict[int, Callable], hook: Callable, first: bool = False):
        self.id = RemovableHandle._next()
        changed()
        self._hooks = hooks
        if first:
            rest = dict(hooks)
            hooks.clear()
            hooks[self.id] = hook
            hooks.update(rest)
        else:
            hooks[self.id] = hook

    def remove(self) -> None:
        """Take the hook away; a second call does nothing."""
        self._hooks.pop(self.id, None)
        changed()

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.remove()


def split_edge(edge: Any) -> tuple[Node, int]:
    """The node and output number of an edge."""
    return (edge.node, edge.index) if type(edge) is Edge else (edge, 0)
