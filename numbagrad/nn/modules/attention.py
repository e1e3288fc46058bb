"""``MultiheadAttention``: attention of several heads between affine maps."""

from __future__ import annotations

from typing import Any

from ...ops.multi_head import attend
from ...tensor import Tensor
from .. import init
from ..parameter import Parameter
from .linear import Linear
from .made import new_parameter
from .module import Module

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention of several heads between affine maps (Vaswani et al., 2017).

    The map before is in_proj_weight (3 embed_dim, embed_dim), or where keys and values have sizes
    of their own, kdim and vdim, q_proj_weight, k_proj_weight and v_proj_weight; with in_proj_bias.
    The map behind is ``out_proj``. dropout: of the probabilities. add_bias_kv: one more key and
    value, learned; add_zero_attn: one more of zeros.

    >>> MultiheadAttention(8, 2).in_proj_weight.shape
    ng.Size([24, 8])
    """

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"MultiheadAttention: embed_dim and num_heads must be greater than 0, got "
                f"embed_dim={embed_dim} and num_heads={num_heads}."
            )
        if embed_dim % num_heads:
            raise ValueError(
                f"MultiheadAttention: embed_dim must be divisible by num_heads, got {embed_dim} "
                f"and {num_heads}."
            )
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.add_zero_attn = add_zero_attn
        whole = self.kdim == embed_dim and self.vdim == embed_dim
        shapes = {
            "in_proj_weight": (3 * embed_dim, embed_dim) if whole else None,
            "q_proj_weight": None if whole else (embed_dim, embed_dim),
            "k_proj_weight": None if whole else (embed_dim, self.kdim),
            "v_proj_weight": None if whole else (embed_dim, self.vdim),
            "in_proj_bias": (3 * embed_dim,) if bias else None,
            "bias_k": (1, 1, embed_dim) if add_bias_kv else None,
            "bias_v": (1, 1, embed_dim) if add_bias_kv else None,
        }
        for name, shape in shapes.items():
            made = None if shape is None else new_parameter(*shape, device=device, dtype=dtype)
            self.register_parameter(name, made)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self._reset_parameters()

    def _weights(self) -> tuple[Any, ...]:
        """The weights of the map before: one, or three."""
        if self.in_proj_weight is not None:
            return (self.in_proj_weight,)
        return self.q_proj_weight, self.k_proj_weight, self.v_proj_weight

    def _reset_parameters(self) -> None:
        """Draw the weights anew, and set the biases to zero."""
        for weight in self._weights():
            init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The result (l, b, e), with batch_first (b, l, e), and the weights or None.

        See ``functional.multi_head_attention_forward``: masks say where a row may *not* look, and
        need_weights=False is what saves time and memory.
        """
        return attend(
            *(query, key, value, self.num_heads, self._weights(), self.in_proj_bias),
            (self.out_proj.weight, self.out_proj.bias),
            added=(self.bias_k, self.bias_v),
            zero=self.add_zero_attn,
            p=self.dropout if self.training else 0.0,
            padding=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            average=average_attn_weights,
            causal=is_causal,
            batch_first=self.batch_first,
        )
