"""The node that public Functions and built-in ops have in common: ``Recorded``.

Its gradient is a Python function of tensors. It gives the outputs their edges, and zeros to a
backward for outputs that nothing used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..tape import Edge, Node, grad_mode, next_sequence
from ..tensor import Tensor

__all__ = ["Recorded", "among"]


def _missing(grads: list[Any]) -> bool:
    for grad in grads:  # not ``None in grads``, which would compare tensors by value
        if grad is None:
            return True
    return False


class Recorded(Node):
    """A node whose gradient is a Python function of tensors."""

    _needs: tuple[bool, ...] = ()
    _output_meta: Sequence[Any] = ()
    _zeros = True

    @property
    def needs_input_grad(self) -> tuple[bool, ...]:
        """For each argument whether its gradient is needed: in a backward pass towards some inputs
        alone, by that pass."""
        asked = grad_mode.asked
        return self._needs if asked is None or asked[0] is not self else asked[1]

    def _attach(self, outputs: Sequence[Any], edges: tuple[Any, ...], skip: Any = ()) -> None:
        """Make this node the origin of the floating tensors among ``outputs``."""
        self._edges = edges
        self._sequence = next_sequence()
        if len(outputs) == 1 and not skip and isinstance(outputs[0], Tensor):
            (output,) = outputs
            if output._dtype.is_floating_point:
                output._edge = self
            self._output_meta = ((output._array.shape, output._dtype, output._device),)
            return
        self._outputs = len(outputs)
        single = self._outputs == 1
        for index, output in enumerate(outputs):
            if (
                isinstance(output, Tensor)
                and output._dtype.is_floating_point
                and not (skip and among(output, skip))
            ):
                output._edge = self if single else Edge(self, index)
        self._output_meta = [
            (o._array.shape, o._dtype, o._device) if isinstance(o, Tensor) else None
            for o in outputs
        ]

    def _materialised(self, grads: list[Any]) -> list[Any]:
        """``grads`` with zeros for the tensor outputs that nothing used."""
        if not _missing(grads) or not self._zeros:
            return grads
        from ..ops.base import full

        return [
            full(meta[0], 0, meta[1], meta[2])
            if g is None and meta is not None and meta[1].is_floating_point
            else g
            for g, meta in zip(grads, self._output_meta, strict=True)
        ]


def among(value: Any, values: Any) -> bool:
    """Whether ``value`` itself is one of ``values``."""
    for v in values:  # a loop: any() with a generator takes three times as long
        if value is v:
            return True
    return False
