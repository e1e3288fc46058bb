"""Attention whose scores are changed by a formula: PyTorch's module of this name.

The functions stand in ``ops/flex_attention.py`` and ``ops/block_mask.py``.
"""

from ...ops.block_mask import BlockMask, and_masks, create_block_mask, noop_mask, or_masks
from ...ops.flex_attention import flex_attention

__all__ = [
    "BlockMask",
    "and_masks",
    "create_block_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
]
