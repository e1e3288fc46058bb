"""Sequences of different lengths: padded to one tensor, or packed for recurrent layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ... import dtypes
from ...errors import DTypeError, RecordingError, ShapeError
from ...kernels import machine
from ...ops.base import as_operand, full
from ...ops.elementwise import cast
from ...ops.index import index_copy, index_select
from ...ops.join import cat
from ...ops.part import narrow
from ...ops.view import reshape
from ...tensor import Tensor, wrap
from ..packed import PackedSequence, batch_sizes_of

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


def _index(values: np.ndarray, beside: Tensor) -> Tensor:
    """Numbers as an int64 tensor on the device of ``beside``."""
    return wrap(np.ascontiguousarray(values, np.int64), dtypes.int64).to(beside._device)


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """Where each of 0 to n - 1 stands in ``permutation`` (n); None of None.

    >>> invert_permutation(tensor([2, 0, 1])).tolist()
    [1, 2, 0]
    """
    if permutation is None:
        return None
    return _index(_back(permutation.cpu().numpy()), permutation)


def _lengths(name: str, lengths: Any, count: int, longest: int, least: int) -> np.ndarray:
    """Lengths as numbers, checked."""
    if isinstance(lengths, Tensor):
        if lengths._device.type != "cpu":
            raise ValueError(
                f"{name}: 'lengths' argument should be a 1D CPU int64 tensor, but got it on "
                f"{lengths._device}. Pass lengths.cpu()."
            )
        if lengths._dtype.is_floating_point:
            raise DTypeError(
                f"{name}: 'lengths' argument should be a 1D CPU int64 tensor, but got "
                f"{lengths._dtype}. Convert it with .long()."
            )
        if machine.is_traced(lengths._array):
            raise RecordingError(
                f"{name}: inside a compiled function 'lengths' must be a list of ints, for they "
                f"say what to run. Pass lengths.tolist(); each set of lengths is recorded once."
            )
        lengths = lengths.tolist()
    values = np.asarray(lengths, np.int64)
    if values.shape != (count,):
        raise ShapeError(
            f"{name}: Expected `len(lengths)` to be equal to batch_size, but got "
            f"{values.size} (batch_size={count})."
        )
    wrong = values[(values < least) | (values > longest)]
    if wrong.size:
        raise ValueError(
            f"{name}: Length of all samples has to be from {least} to {longest}, the length of "
            f"the longest, but found {wrong[0]} in 'lengths'."
        )
    return values


def _sorted(name: str, lengths: np.ndarray, enforce: bool) -> np.ndarray | None:
    """The order from the longest to the shortest; None where they must be in it, and are."""
    if not enforce:
        return np.argsort(-lengths, kind="stable")
    if (lengths[1:] > lengths[:-1]).any():
        raise ValueError(
            f"{name}: `lengths` array must be sorted in decreasing order when `enforce_sorted` is "
            f"True, got {lengths.tolist()}. Pass enforce_sorted=False to have it sorted here."
        )
    return None


def _steps(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of sequences, the longest first, how many run at each step; and of each packed row which
    step it is, and the number of its sequence."""
    steps = np.arange(lengths[0])
    sizes = lengths.size - np.searchsorted(lengths[::-1], steps, "right")
    return sizes.astype(np.int64), np.repeat(steps, sizes), _counted(sizes)


def _counted(sizes: np.ndarray) -> np.ndarray:
    """0 to n - 1 for each n of ``sizes``, one after the other."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _packed(
    rows: Tensor, place: Any, lengths: np.ndarray, order: np.ndarray | None
) -> PackedSequence:
    """Of ``rows``, where step t of sequence i is number ``place(t, i)``."""
    which = np.arange(lengths.size) if order is None else order
    sizes, steps, numbers = _steps(lengths[which])
    data = index_select(rows, 0, _index(place(steps, which[numbers]), rows))
    indices = (None, None) if order is None else (_index(order, rows), _index(_back(order), rows))
    return PackedSequence(data, wrap(sizes, dtypes.int64), *indices)


def _back(order: np.ndarray) -> np.ndarray:
    """Where each number stands in ``order``."""
    return np.argsort(order, kind="stable")


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Packs sequences that were padded to one length, for a recurrent layer.

    input (t, n, *), or (n, t, *) with batch_first; lengths: a list or an int64 tensor on the CPU of
    n lengths from 1 to t, the longest first unless enforce_sorted is False. Gradient: that of the
    rows that are taken. Raises ShapeError or ValueError for lengths that do not fit.

    >>> x = tensor([[[1.0], [2.0], [3.0]], [[4.0], [0.0], [0.0]]])
    >>> pack_padded_sequence(x, [3, 1], batch_first=True).data.tolist()
    [[1.0], [4.0], [2.0], [3.0]]
    """
    name = "pack_padded_sequence"
    shape = as_operand(name, input)._array.shape
    if len(shape) < 2:
        raise ShapeError(f"{name}: Expected input to have at least 2 dims, got {len(shape)}.")
    n, longest = shape[:2] if batch_first else (shape[1], shape[0])
    if not n or not longest:
        raise ShapeError(f"{name}: Cannot pack empty tensors, got shape {list(shape)}.")
    values = _lengths(name, lengths, n, longest, 1)
    rows = reshape(input, (n * longest, *shape[2:]))

    def place(step: Any, sequence: Any) -> Any:
        return sequence * longest + step if batch_first else step * n + sequence

    return _packed(rows, place, values, _sorted(name, values, enforce_sorted))


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs tensors (length, *), the longest first unless enforce_sorted is False.

    >>> pack_sequence([tensor([1, 2, 3]), tensor([4])]).data.tolist()
    [1, 4, 2, 3]
    """
    name, sequences = "pack_sequence", list(sequences)
    lengths = np.array(_own_lengths(name, sequences), np.int64)
    if not lengths.all():
        raise ValueError(f"{name}: Length of all samples has to be greater than 0.")
    begin = np.cumsum(lengths) - lengths
    order = _sorted(name, lengths, enforce_sorted)
    return _packed(_joined(sequences), lambda t, i: begin[i] + t, lengths, order)


def _own_lengths(name: str, sequences: Sequence[Tensor]) -> list[int]:
    """The lengths of tensors whose other dims are equal."""
    if not sequences:
        raise ValueError(f"{name}: received an empty list of sequences.")
    shapes = [as_operand(name, x, i)._array.shape for i, x in enumerate(sequences)]
    for i, shape in enumerate(shapes):
        if not shape or shape[1:] != shapes[0][1:]:
            raise ShapeError(
                f"{name}: sequences must be equal in all dims but the first, got {list(shapes[0])} "
                f"and {list(shape)}, number {i}."
            )
    return [shape[0] for shape in shapes]


def _joined(sequences: Sequence[Tensor]) -> Tensor:
    """All of them, one after the other, in the dtype of the first."""
    return cat([cast(x, sequences[0]._dtype) for x in sequences])


def _padded(
    rows: Tensor, index: np.ndarray, n: int, longest: int, batch_first: bool, value: Any
) -> Tensor:
    """``rows`` written at ``index`` among padding, as (n, longest, *) or (longest, n, *)."""
    rest = rows._array.shape[1:]
    whole = full((n * longest, *rest), value, rows._dtype, rows._device)
    out = index_copy(whole, 0, _index(index, rows), rows)
    return reshape(out, (n, longest, *rest) if batch_first else (longest, n, *rest))


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The opposite of ``pack_padded_sequence``: (t, n, *), or (n, t, *), and the lengths (n).

    total_length: t, by default the longest. Sequences are in the order in which they were packed.
    Raises ValueError if total_length is too short.

    >>> pad_packed_sequence(pack_sequence([tensor([1, 2]), tensor([4])]))[0].tolist()
    [[1, 4], [2, 0]]
    """
    sizes = np.array(batch_sizes_of(sequence), np.int64)
    longest = sizes.size if total_length is None else total_length
    if longest < sizes.size:
        raise ValueError(
            f"pad_packed_sequence: Expected total_length to be at least the length of the longest "
            f"sequence in input, but got total_length={total_length} and max sequence length "
            f"being {sizes.size}."
        )
    n = int(sizes[0])
    lengths = (sizes[:, None] > np.arange(n)).sum(0)
    which = np.arange(n)
    if sequence.sorted_indices is not None:
        which = sequence.sorted_indices.cpu().numpy()
    _, steps, numbers = _steps(lengths)
    own = which[numbers]
    index = own * longest + steps if batch_first else steps * n + own
    out = _padded(sequence.data, index, n, longest, batch_first, padding_value)
    return out, wrap(np.ascontiguousarray(lengths[_back(which)]), dtypes.int64)


def pad_sequence(
    sequences: Iterable[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Tensors (length, *) as one, (t, n, *) or (n, t, *), with padding after or before each.

    >>> pad_sequence([tensor([1, 2]), tensor([3])], batch_first=True).tolist()
    [[1, 2], [3, 0]]
    """
    name = "pad_sequence"
    if padding_side not in ("right", "left"):
        raise ValueError(f"{name}: padding_side should be 'left' or 'right', got {padding_side!r}.")
    if not isinstance(sequences, Iterable):
        raise TypeError(
            f"{name}: Expected iterable for input sequences, but got arg of type: "
            f"{type(sequences).__name__}."
        )
    sequences = list(sequences)
    lengths = np.array(_own_lengths(name, sequences), np.int64)
    n, longest = lengths.size, int(lengths.max())
    steps = _counted(lengths)
    if padding_side == "left":
        steps += np.repeat(longest - lengths, lengths)
    own = np.repeat(np.arange(n), lengths)
    index = own * longest + steps if batch_first else steps * n + own
    return _padded(_joined(sequences), index, n, longest, batch_first, padding_value)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Any, batch_first: bool = False
) -> list[Tensor]:
    """The opposite of ``pad_sequence``: a list of tensors (length, *), views.

    >>> [x.tolist() for x in unpad_sequence(tensor([[1, 2], [3, 0]]), [2, 1], True)]
    [[1, 2], [3]]
    """
    name = "unpad_sequence"
    x = as_operand(name, padded_sequences)
    if x._array.ndim < 2:
        raise ShapeError(f"{name}: Expected at least 2 dims, got {x._array.ndim}.")
    x = x if batch_first else x.transpose(0, 1)
    n, longest = x._array.shape[:2]
    values = _lengths(name, lengths, n, longest, 0)
    return [narrow(x[i], 0, 0, int(k)) for i, k in enumerate(values)]


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The opposite of ``pack_sequence``.

    >>> [x.tolist() for x in unpack_sequence(pack_sequence([tensor([1, 2]), tensor([4])]))]
    [[1, 2], [4]]
    """
    return unpad_sequence(*pad_packed_sequence(packed_sequences, True), batch_first=True)
