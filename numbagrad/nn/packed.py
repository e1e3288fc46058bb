"""``PackedSequence``: sequences of different lengths, as recurrent layers take them.

It is made by ``nn.utils.rnn``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import DTypeError, RecordingError, ShapeError
from ..kernels import machine
from ..ops.base import as_operand
from ..tensor import Tensor

__all__ = ["PackedSequence", "batch_sizes_of"]


class _Fields(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None


class PackedSequence(_Fields):
    """The rows of sequences of different lengths, step by step, without any padding.

    data (N, *): first those of step 0, of the longest sequence to the shortest, then those of step
    1, and so on. batch_sizes: how many sequences run at each step, int64 on the CPU.
    sorted_indices: which sequences these are, the longest first; None if they came sorted.
    unsorted_indices: where each of them stands among these. Made by ``pack_padded_sequence`` and
    ``pack_sequence``.
    """

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        as_operand("PackedSequence", data)
        if as_operand("PackedSequence", batch_sizes, 1)._device.type != "cpu":
            raise ValueError(
                f"PackedSequence: batch_sizes should always be on CPU. Instead got it on "
                f"{batch_sizes._device}. Keep it there, or call .to() of the whole sequence."
            )
        if batch_sizes._dtype.is_floating_point:
            raise DTypeError(
                f"PackedSequence: batch_sizes must be int64, got {batch_sizes._dtype}. Convert it "
                f"with .long()."
            )
        if batch_sizes._array.ndim != 1:
            raise ShapeError(
                f"PackedSequence: batch_sizes must have one dimension, got "
                f"{list(batch_sizes.shape)}."
            )
        if unsorted_indices is None and sorted_indices is not None:
            from .utils.rnn import invert_permutation

            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _each(self, change: Callable[[Tensor], Tensor]) -> PackedSequence:
        """With data changed, and the indices where data are."""
        data = change(self.data)
        into, back = [None if i is None else i.to(data._device) for i in self[2:]]
        return PackedSequence(data, self.batch_sizes, into, back)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same with data on another device, or of another dtype; as ``Tensor.to``."""
        return self._each(lambda data: data.to(*args, **kwargs))

    def cuda(self, *args: Any) -> PackedSequence:
        """The same on a GPU."""
        return self._each(lambda data: data.cuda(*args))

    def cpu(self) -> PackedSequence:
        """The same on the host."""
        return self._each(lambda data: data.cpu())

    def double(self) -> PackedSequence:
        """The same in float64."""
        return self._each(lambda data: data.double())

    def float(self) -> PackedSequence:
        """The same in float32."""
        return self._each(lambda data: data.float())

    def half(self) -> PackedSequence:
        """The same in float16."""
        return self._each(lambda data: data.half())

    def long(self) -> PackedSequence:
        """The same in int64."""
        return self._each(lambda data: data.long())

    def int(self) -> PackedSequence:
        """The same in int32."""
        return self._each(lambda data: data.int())

    def short(self) -> PackedSequence:
        """The same in int16."""
        return self._each(lambda data: data.short())

    def char(self) -> PackedSequence:
        """The same in int8."""
        return self._each(lambda data: data.char())

    def byte(self) -> PackedSequence:
        """The same in uint8."""
        return self._each(lambda data: data.byte())

    def pin_memory(self) -> PackedSequence:
        """The same in memory that a GPU copies from by itself."""
        return self._each(lambda data: data.pin_memory())

    def is_pinned(self) -> bool:
        """Whether data are in such memory."""
        return self.data.is_pinned()

    @property
    def is_cuda(self) -> bool:
        """Whether data are on a GPU."""
        return self.data.is_cuda


def batch_sizes_of(sequence: PackedSequence) -> tuple[int, ...]:
    """How many sequences run at each step, as numbers."""
    if machine.is_traced(sequence.batch_sizes._array):
        raise RecordingError(
            "PackedSequence: a compiled function cannot take one, for its batch sizes say what to "
            "run. Pass it the padded tensor and a list of lengths, and pack them inside."
        )
    return tuple(sequence.batch_sizes.tolist())
