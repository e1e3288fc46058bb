"""Masks of ``flex_attention`` by blocks: which of them are hidden, seen in part, or wholly seen.

Start reading at ``create_block_mask``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import devices, dtypes
from ..errors import ShapeError
from ..kernels import machine
from ..kernels.cpu import flex_attention as kernels
from ..tensor import Tensor
from .base import new_empty
from .score_formula import check_reads, score_of
from .transfer import transfer

__all__ = ["BlockMask", "and_masks", "create_block_mask", "noop_mask", "or_masks"]

MaskMod = Callable[..., Any]
NAME = "create_block_mask"
BLOCK_SIZE = 128


class BlockMask:
    """What ``flex_attention`` may leave out: made by ``create_block_mask``.

    mask_mod: the function that tells what is seen. BLOCK_SIZE: queries and keys of a block.
    seq_lengths: queries and keys. shape: of the mask as a whole. kinds: an int32 tensor of a
    number for each block, 0 if all of it is hidden, 2 if all of it is seen, else 1.
    """

    def __init__(
        self,
        kinds: Tensor,
        mask_mod: MaskMod,
        seq_lengths: tuple[int, int],
        BLOCK_SIZE: tuple[int, int],
    ):
        self.kinds = kinds
        self.mask_mod = mask_mod
        self.seq_lengths = seq_lengths
        self.BLOCK_SIZE = BLOCK_SIZE

    @property
    def shape(self) -> tuple[int, ...]:
        """Batches, heads, queries and keys; 1 where all are alike."""
        return (*self.kinds._array.shape[:2], *self.seq_lengths)

    def numel(self) -> int:
        """Scores of the whole mask."""
        b, h, q, kv = self.shape
        return b * h * q * kv

    def sparsity(self) -> float:
        """The share of blocks that are left out, in percent."""
        total = self.kinds.numel()
        return 100 * (1 - self.to_dense().sum().item() / total) if total else 0.0

    def to_dense(self) -> Tensor:
        """For each block 1 where any of it is seen, int32."""
        return self.kinds.clamp(0, 1)

    def to(self, device: Any) -> BlockMask:
        """The mask on another device; tensors that ``mask_mod`` reads stay where they are."""
        moved = transfer(self.kinds, devices.to_device(device))
        return BlockMask(moved, self.mask_mod, self.seq_lengths, self.BLOCK_SIZE)

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, BLOCK_SIZE={self.BLOCK_SIZE})"


def create_block_mask(
    mask_mod: MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = BLOCK_SIZE,
) -> BlockMask:
    """Ask ``mask_mod`` for every score, and keep what it says of blocks.

    mask_mod: from batch, head, query and key to whether that key is seen; a formula, which may read
    elements of tensors that it captures. B, H: batches and heads, None where all are alike. device:
    where the mask is used, by default the CPU. BLOCK_SIZE: queries and keys of a block, or a pair
    of both; smaller blocks leave out more where the mask is narrow.
    Raises FormulaError for what is no formula, ShapeError for sizes below 1.

    >>> mask = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 256, 256)
    >>> mask.to_dense().tolist(), mask.sparsity()
    ([[[[1, 0], [1, 1]]]], 25.0)
    """
    rows, columns = (BLOCK_SIZE,) * 2 if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    sizes = [1 if n is None else n for n in (B, H)] + [Q_LEN, KV_LEN, rows, columns]
    if any(type(n) is not int or n < (k >= 4) for k, n in enumerate(sizes)):
        raise ShapeError(
            f"{NAME}: sizes must be ints, and blocks have 1 query and key at least; got B={B}, "
            f"H={H}, Q_LEN={Q_LEN}, KV_LEN={KV_LEN}, BLOCK_SIZE={BLOCK_SIZE}."
        )
    where = devices.to_device(device) if device is not None else devices.cpu
    score, tensors = score_of(NAME, None, mask_mod)
    b, h = sizes[:2]
    shape = b, h, -(-Q_LEN // rows), -(-KV_LEN // columns)
    kinds = new_empty(shape, dtypes.int32, devices.cpu)
    if kinds._array.size:
        bad = machine.flag(kinds._array)
        arrays = [transfer(t, devices.cpu)._array for t in tensors]
        machine.launch(
            kernels.block_kinds(score), kinds._array, bad, *arrays, Q_LEN, KV_LEN, rows, columns
        )
        check_reads(NAME, bad, score, tensors)
    return BlockMask(transfer(kinds, where), mask_mod, (Q_LEN, KV_LEN), (rows, columns))


def noop_mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    """A ``mask_mod`` by which everything is seen."""
    return True


def _joined(name: str, masks: tuple[MaskMod, ...], both: Callable[..., MaskMod]) -> MaskMod:
    if not all([callable(m) for m in masks]):
        raise RuntimeError(f"{name}: All inputs should be callable mask_mods, got {masks}.")
    return functools.reduce(both, masks)


def _and(first: MaskMod, second: MaskMod) -> MaskMod:
    def and_mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return first(b, h, q_idx, kv_idx) and second(b, h, q_idx, kv_idx)

    and_mask.mask_mods = first, second  # type: ignore[attr-defined]
    return and_mask


def _or(first: MaskMod, second: MaskMod) -> MaskMod:
    def or_mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return first(b, h, q_idx, kv_idx) or second(b, h, q_idx, kv_idx)

    or_mask.mask_mods = first, second  # type: ignore[attr-defined]
    return or_mask


def _nothing(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return False


_nothing.mask_mods = noop_mask.mask_mods = ()  # type: ignore[attr-defined]


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """A ``mask_mod`` by which is seen what all of ``mask_mods`` let be seen."""
    return _joined("and_masks", mask_mods or (noop_mask,), _and)


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """A ``mask_mod`` by which is seen what any of ``mask_mods`` lets be seen."""
    return _joined("or_masks", mask_mods or (_nothing,), _or)
