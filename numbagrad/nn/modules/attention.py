"""``MultiheadAttention TransformerEncoderLayer TransformerEncoder``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ...ops.multi_head import attend
from ...tensor import Tensor
from .. import functional, init
from ..parameter import Parameter
from .container import ModuleList
from .dropout import Dropout
from .linear import Linear
from .made import new_parameter
from .module import Module
from .normalization import LayerNorm

__all__ = ["MultiheadAttention", "TransformerEncoder", "TransformerEncoderLayer"]


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


class TransformerEncoderLayer(Module):
    """Self-attention, then two affine maps with an activation between them, each with a way past
    and a layer norm behind (norm_first: in front; Xiong et al., 2020).

    d_model: features; dim_feedforward: between the two maps; activation: "relu", "gelu" or a
    callable; dropout: behind attention, both maps, and of the probabilities.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = functional.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **place
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **place)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **place)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **place)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = _activation(activation)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """src (l, b, e), with batch_first (b, l, e); the masks are those of MultiheadAttention."""
        masks = src_mask, src_key_padding_mask, is_causal
        if self.norm_first:
            x = src + self._attended(self.norm1(src), *masks)
            return x + self._fed_forward(self.norm2(x))
        x = self.norm1(src + self._attended(src, *masks))
        return self.norm2(x + self._fed_forward(x))

    def _attended(
        self, x: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool
    ) -> Tensor:
        options = {"attn_mask": mask, "key_padding_mask": padding, "is_causal": is_causal}
        return self.dropout1(self.self_attn(x, x, x, need_weights=False, **options)[0])

    def _fed_forward(self, x: Tensor) -> Tensor:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


def _activation(chosen: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    if not isinstance(chosen, str):
        return chosen
    named = {"relu": functional.relu, "gelu": functional.gelu}
    if chosen not in named:
        raise RuntimeError(
            f"TransformerEncoderLayer: activation should be relu/gelu, not {chosen}; or pass a "
            f"function."
        )
    return named[chosen]


class TransformerEncoder(Module):
    """``num_layers`` copies of a layer one after the other, then ``norm`` if there is one.

    enable_nested_tensor and mask_check are PyTorch's, for tensors that it has and we have not; they
    change nothing.
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ):
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """src as the layers take it; is_causal: mask hides what comes later, so that nobody needs
        to read it."""
        out = src
        for layer in self.layers:
            out = layer(
                out,
                src_mask=mask,
                src_key_padding_mask=src_key_padding_mask,
                is_causal=bool(is_causal),
            )
        return out if self.norm is None else self.norm(out)
