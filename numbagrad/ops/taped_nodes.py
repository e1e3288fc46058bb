"""The nodes that a watched call put on the tape, as text that puts them there again.

A call records built-in ops, elementwise ones and views, on its own arguments and on what it made of
them. What such nodes note is the same for all calls of a kind; what they save is arguments, views
of these, results, and tensors made in between. Start reading at ``nodes_again``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..kernels import machine
from ..kernels.launches import bounds
from ..later import OUR_FILES
from ..tape import NUMBERS, Edge, Node, Rare, SavedOutput, next_sequence, split_edge, user_location
from ..tensor import Tensor, wrap
from .base import base_of, make_view
from .op_memory import notes_of
from .plans import TENSORS
from .pointwise_node import PointwiseNode
from .remembered import is_taped

__all__: list[str] = []  # nothing that users call

MOST = 32
"""Nodes of a call that is remembered."""

_OF_EACH = frozenset(
    "_edges _needs _sequence _hooks _outputs _output_meta _saved _to_save _rare _where".split()
)
"""What every node of an op has; the rest is what the op noted."""


class _Unlike(Exception):
    """What was recorded cannot be made again."""


def _own(rare: Rare | None) -> Rare:
    """A copy for one node, which will have versions."""
    found = Rare()
    found.meta = None if rare is None else rare.meta
    return found


def _alias(x: Tensor, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Tensor:
    """A tensor in the memory of ``x`` that knows nothing of it."""
    out = wrap(machine.view(x._array, shape, strides, offset), x._dtype)
    out._flat = out._array.flags.c_contiguous
    return out


KNOWN = {
    "Edge": Edge,
    "SavedOutput": SavedOutput,
    "next_sequence": next_sequence,
    "save": Node._save,
    "getframe": sys._getframe,
    "user_location": user_location,
    "OUR_FILES": OUR_FILES,
    "PointwiseNode": PointwiseNode,
    "view": make_view,
    "alias": _alias,
    "own": _own,
}
"""What the text names."""


class _Nodes:
    """lines: the text; values: what it names beside ``KNOWN``; made: what it wants made, in ``t0``
    and so on, where the results come first."""

    def __init__(self, flat: tuple[Any, ...], results: Sequence[Tensor], launches: Any):
        self.flat, self.launches = flat, launches
        self.lines: list[str] = []
        self.values: dict[str, Any] = {}
        self.results = len(results)
        self.made = [wrap(r._array, r._dtype) for r in results]
        self.kept: list[Any] = []  # of which ids are known
        self.names = {id(a): f"args[{k}]" for k, a in enumerate(flat)} | {id(None): "None"}
        taped = {id(a): (f"e{k}", a._edge) for k, a in enumerate(flat) if is_taped(a)}
        self.edges: dict[Any, str] = {split_edge(edge): name for name, edge in taped.values()}
        if len(self.edges) != len(taped):  # whose it is nobody can tell
            raise _Unlike

    def add(self, node: Any, name: str) -> None:
        """Make ``node`` again, as ``name``; those that it stands on are there."""
        edges = "".join([f"{self.edge(e)}, " for e in node._edges])
        lines = [f"{name} = new(type_{name}); {name}._edges = ({edges})"]
        lines.append(f"{name}._sequence = next_sequence()")
        self.values[f"type_{name}"] = type(node)
        rare = ""
        if type(node) is PointwiseNode:
            self.values |= {f"plan_{name}": node.plan, f"rare_{name}": node._rare}
            if node._rare is not None:
                self.values[f"rare_{name}"] = _own(node._rare) if node._rare.meta else None
            lines.append(f"{name}.plan = plan_{name}; {name}._hooks = None")
            lines.append(f"{name}._rare = rare_{name}; {name}._saved = ()")
            rare = f"{name}._rare = own(rare_{name}); "
        else:
            lines += self.noted(node, name)
        self.lines += lines
        for index in range(node._outputs):
            self.edges[node, index] = name if node._outputs == 1 else f"Edge({name}, {index})"
        if node._saved:
            self.save(node, name, rare)

    def noted(self, node: Any, name: str) -> list[str]:
        """Lines for what a built-in op noted."""
        op = getattr(node, "_op", None)
        if op is None or not op._plain_notes:
            raise _Unlike
        found = notes_of(node, _OF_EACH, len(self.made), name)
        if found is None:
            raise _Unlike
        lines, values, arrays = found
        self.made += arrays
        self.values |= values
        for noted in ("_needs", "_outputs", "_output_meta"):
            if noted in vars(node):
                self.values[f"{name}{noted}"] = vars(node)[noted]
                lines.append(f"{name}.{noted} = {name}{noted}")
        return lines

    def edge(self, edge: Any) -> str:
        """The text of an edge."""
        if edge is None:
            return "None"
        found = self.edges.get(split_edge(edge))
        if found is None:
            raise _Unlike
        return found

    def save(self, node: Any, name: str, rare: str) -> None:
        """Let ``node`` save what it saved."""
        names = [self.saved(value) for value in node._saved]
        counters = [f"{n}._counter is None" for n in names if n.startswith(("args", "view"))]
        self.lines.append(f"saved = ({', '.join(names)},)")
        # What ``Node._save`` does, written out: 0.5 us less.
        self.lines += [f"if {' and '.join(dict.fromkeys(counters)) or 'True'}:"]
        self.lines += [f" {name}._saved, frame = saved, getframe(2)"]
        self.lines += [f" if OUR_FILES[frame.f_code.co_filename]: {name}._where = user_location(3)"]
        self.lines += [f" else: {name}._where = (frame.f_code, frame.f_lasti)"]
        self.lines += [f"else: {rare}save({name}, saved)"]

    def saved(self, value: Any) -> str:
        """The text of something saved."""
        if type(value) is SavedOutput:
            return f"SavedOutput({self.array(value, value._array)}, {value.index})"
        if type(value) in NUMBERS:
            name = f"number{len(self.values)}"
            self.values[name] = value
            return name
        found = self.names.get(id(value))
        if found is None:
            if type(value) is not Tensor:
                raise _Unlike
            found = self.constant(value) or self.view(value) or self.array(value, value._array)
            if value._edge is not None:
                self.lines.append(f"{found}._edge = {self.edge(value._edge)}")
            self.names[id(value)] = found
            self.kept.append(value)
        return found

    def constant(self, value: Tensor) -> str | None:
        """The text of a tensor that is the same for all calls; None where it is another."""
        if value._edge is not None or not self.launches.stays(value._array):
            return None
        name = f"constant{len(self.values)}"
        self.values[name] = value
        return name

    def array(self, value: Any, array: Any) -> str:
        """The text of a tensor on ``array``, which is made with the results."""
        if type(array) is not np.ndarray:
            raise _Unlike
        first, before, after = bounds(array)
        for k, other in enumerate(self.made):
            if other._array is array:
                return f"t{k}"
            start, low, high = bounds(other._array)
            if first - before < start + high and start - low < first + after:
                if k < self.results:  # a user may write into it
                    raise _Unlike
                return self.beside(value, f"t{k}", first - start)
        whole = self.launches.around(array)
        if whole is not None and whole.nbytes > array.nbytes:  # of which it is a part
            if whole.dtype != array.dtype:
                raise _Unlike
            start = bounds(whole)[0]
            return self.beside(value, self.array(value, whole), first - start)
        self.made.append(wrap(array, value._dtype))
        return f"t{len(self.made) - 1}"

    def beside(self, value: Any, whole: str, distance: int, look: str = "alias") -> str:
        """The text of a tensor in the memory of ``whole``, so many bytes from where it begins."""
        name, array = f"{look}{len(self.values)}", value._array
        strides = tuple([s // array.itemsize for s in array.strides])
        self.values[f"of_{name}"] = (array.shape, strides, distance // array.itemsize)
        self.lines.append(f"{name} = {look}({whole}, *of_{name})")
        return name

    def view(self, value: Tensor) -> str | None:
        """The text of a view of an argument, with its version or without; None where it is none."""
        first, before, after = bounds(value._array)
        for k, x in enumerate(self.flat):
            if type(x) not in TENSORS:
                continue
            start, low, high = bounds(x._array)
            if start - low <= first - before and first + after <= start + high:
                seen = base_of(x) is base_of(value)
                if not seen and value._base is not None:
                    raise _Unlike
                look = "view" if seen else "alias"
                return self.beside(value, f"args[{k}]", first - start, look)
        return None


def nodes_again(
    flat: tuple[Any, ...], results: Sequence[Tensor], seen: Any
) -> tuple[list[str], dict[str, Any], list[Tensor]] | None:
    """Text that records ``results``, the values it names, and all that it wants made; None where
    what was recorded cannot be made again. seen: what watched the call."""
    new = _recorded([r._edge for r in results if r._edge is not None], seen.begun)
    if len(new) > MOST:
        return None
    try:
        nodes = _Nodes(flat, results, seen.launches)
        for k, node in enumerate(new):
            nodes.add(node, f"node{k}")
        for k, r in enumerate(results):
            if r._edge is not None:
                nodes.lines.append(f"t{k}._edge = {nodes.edge(r._edge)}")
    except _Unlike:
        return None
    return nodes.lines, nodes.values | KNOWN, nodes.made


def _recorded(edges: Sequence[Any], begun: int) -> list[Any]:
    """The nodes under ``edges`` that are newer than ``begun``, the oldest first."""
    found: dict[int, Any] = {}
    waiting = [split_edge(edge)[0] for edge in edges]
    while waiting:
        node = waiting.pop()
        if node._sequence > begun and id(node) not in found:
            found[id(node)] = node
            waiting += [split_edge(e)[0] for e in node._edges if e is not None]
    return sorted(found.values(), key=lambda node: node._sequence)
