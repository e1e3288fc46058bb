"""Transformers: layers of attention and affine maps, stacks of them, and the whole of 2017."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar

from ...errors import ShapeError
from ...ops.create import full
from ...ops.shape import triu
from ...tensor import Tensor
from .. import functional, init
from .attention import MultiheadAttention
from .container import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .normalization import LayerNorm

__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]


class _Layer(Module):
    """What the layers of encoder and decoder share: attentions and two affine maps."""

    attentions: ClassVar[tuple[str, ...]] = ("self_attn",)
    self_attn: MultiheadAttention
    norm1: LayerNorm
    norm2: LayerNorm
    dropout1: Dropout
    dropout2: Dropout

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
        heads: dict[str, Any] = {"dropout": dropout, "bias": bias, "batch_first": batch_first}
        for name in self.attentions:
            setattr(self, name, MultiheadAttention(d_model, nhead, **heads, **place))
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **place)
        self.norm_first = norm_first
        blocks = range(1, len(self.attentions) + 2)
        for k in blocks:
            setattr(self, f"norm{k}", LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **place))
        for k in blocks:
            setattr(self, f"dropout{k}", Dropout(dropout))
        self.activation = _activation(type(self).__name__, activation)

    def _attended(
        self, attention: Module, x: Tensor, source: Tensor, mask: Any, padding: Any, causal: bool
    ) -> Tensor:
        options = {"attn_mask": mask, "key_padding_mask": padding, "is_causal": causal}
        found: Tensor = attention(x, source, source, need_weights=False, **options)[0]
        return found

    def _fed_forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return found


def _activation(layer: str, chosen: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    if not isinstance(chosen, str):
        return chosen
    named = {"relu": functional.relu, "gelu": functional.gelu}
    if chosen not in named:
        raise RuntimeError(
            f"{layer}: activation should be relu/gelu, not {chosen}; or pass a function."
        )
    return named[chosen]


class TransformerEncoderLayer(_Layer):
    """Self-attention, then two affine maps with an activation between them, each with a way past
    and a layer norm behind (norm_first: in front; Xiong et al., 2020).

    d_model: features; dim_feedforward: between the two maps; activation: "relu", "gelu" or a
    callable; dropout: behind attention, both maps, and of the probabilities.
    """

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
            x = self.norm1(src)
            x = src + self.dropout1(self._attended(self.self_attn, x, x, *masks))
            return x + self.dropout2(self._fed_forward(self.norm2(x)))
        x = self.norm1(src + self.dropout1(self._attended(self.self_attn, src, src, *masks)))
        return self.norm2(x + self.dropout2(self._fed_forward(x)))


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


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to a memory, then two affine maps with an activation between them,
    each with a way past and a layer norm behind (norm_first: in front).

    Arguments as of ``TransformerEncoderLayer``.
    """

    attentions = ("self_attn", "multihead_attn")
    multihead_attn: MultiheadAttention
    norm3: LayerNorm
    dropout3: Dropout

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """tgt (l, b, e) and memory (s, b, e), with batch_first (b, l, e) and (b, s, e); the masks
        are those of MultiheadAttention."""
        own = tgt_mask, tgt_key_padding_mask, tgt_is_causal
        other = memory_mask, memory_key_padding_mask, memory_is_causal
        first, second = self.self_attn, self.multihead_attn
        if self.norm_first:
            x = self.norm1(tgt)
            x = tgt + self.dropout1(self._attended(first, x, x, *own))
            x = x + self.dropout2(self._attended(second, self.norm2(x), memory, *other))
            return x + self.dropout3(self._fed_forward(self.norm3(x)))
        x = self.norm1(tgt + self.dropout1(self._attended(first, tgt, tgt, *own)))
        x = self.norm2(x + self.dropout2(self._attended(second, x, memory, *other)))
        return self.norm3(x + self.dropout3(self._fed_forward(x)))


class TransformerDecoder(Module):
    """``num_layers`` copies of a layer one after the other, then ``norm`` if there is one."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None):
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(decoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """tgt and memory as the layers take them; each layer gets the same memory and masks."""
        out = tgt
        for layer in self.layers:
            out = layer(
                *(out, memory, tgt_mask, memory_mask),
                *(tgt_key_padding_mask, memory_key_padding_mask),
                tgt_is_causal=bool(tgt_is_causal),
                memory_is_causal=memory_is_causal,
            )
        return out if self.norm is None else self.norm(out)


class Transformer(Module):
    """An encoder and a decoder (Vaswani et al., "Attention is all you need", 2017).

    custom_encoder, custom_decoder: modules in place of these; the rest as of
    ``TransformerEncoderLayer``. Matrices begin uniform as ``init.xavier_uniform_`` has them.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = functional.relu,
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        sizes = d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        options = {"batch_first": batch_first, "norm_first": norm_first, "bias": bias, **place}

        def norm() -> LayerNorm:
            return LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **place)

        if custom_encoder is None:
            encoder_layer = TransformerEncoderLayer(*sizes, **options)
            custom_encoder = TransformerEncoder(encoder_layer, num_encoder_layers, norm())
        if custom_decoder is None:
            decoder_layer = TransformerDecoderLayer(*sizes, **options)
            custom_decoder = TransformerDecoder(decoder_layer, num_decoder_layers, norm())
        self.encoder = custom_encoder
        self.decoder = custom_decoder
        for p in self.parameters():
            if p.dim() > 1:
                init.xavier_uniform_(p)
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The decoder's output: src (s, b, e) and tgt (l, b, e), with batch_first (b, s, e) and
        (b, l, e), without a batch (s, e) and (l, e). The masks are those of MultiheadAttention."""
        batch = 0 if self.batch_first else 1
        if src.dim() == 3 and src.size(batch) != tgt.size(batch):
            raise ShapeError(
                f"Transformer: the batch number of src and tgt must be equal, got "
                f"{src.size(batch)} and {tgt.size(batch)}."
            )
        if src.size(-1) != self.d_model or tgt.size(-1) != self.d_model:
            raise ShapeError(
                f"Transformer: the feature number of src and tgt must be equal to d_model "
                f"{self.d_model}, got {src.size(-1)} and {tgt.size(-1)}."
            )
        memory = self.encoder(
            src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal
        )
        found: Tensor = self.decoder(
            *(tgt, memory, tgt_mask, memory_mask),
            *(tgt_key_padding_mask, memory_key_padding_mask),
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )
        return found

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """(sz, sz): 0 where row i may look at column j <= i, else -inf."""
        return triu(full((sz, sz), float("-inf"), dtype=dtype, device=device), 1)
