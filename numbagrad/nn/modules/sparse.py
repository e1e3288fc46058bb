"""Rows of a table looked up by index, one by one or in bags."""

from __future__ import annotations

from typing import Any

from ...autograd.modes import no_grad
from ...tensor import Tensor
from .. import functional, init
from ..parameter import Parameter
from .made import new_parameter
from .module import Module

__all__ = ["Embedding", "EmbeddingBag"]


class Embedding(Module):
    """Rows of weight (num_embeddings, embedding_dim): indices (...) to (..., embedding_dim).

    weight starts standard normal. padding_idx: a row that starts at zero and gets no gradient.
    max_norm: rows that are looked up are scaled down to it first, in the weight, where their
    ``norm_type``-norm is larger.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ValueError(
                    f"Embedding: Padding_idx must be within num_embeddings, got {padding_idx} for "
                    f"{num_embeddings}."
                )
            padding_idx %= num_embeddings
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.weight = new_parameter(num_embeddings, embedding_dim, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].zero_()

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
    ) -> Embedding:
        """A table that shares the memory of ``embeddings`` (rows, dim); frozen unless told."""
        if embeddings.dim() != 2:
            raise ValueError(
                f"from_pretrained: Embeddings parameter is expected to be 2-dimensional, got "
                f"{embeddings.shape}."
            )
        rows, size = embeddings.shape
        made = cls(rows, size, padding_idx, max_norm, norm_type)
        made.weight = Parameter(embeddings, requires_grad=not freeze)
        return made

    def forward(self, input: Tensor) -> Tensor:
        """The rows at ``input``."""
        options = self.padding_idx, self.max_norm, self.norm_type
        return functional.embedding(input, self.weight, *options)

    def extra_repr(self) -> str:
        shown = f"{self.num_embeddings}, {self.embedding_dim}"
        for name, usual in (("padding_idx", None), ("max_norm", None), ("norm_type", 2.0)):
            if getattr(self, name) != usual:
                shown += f", {name}={getattr(self, name)}"
        return shown


class EmbeddingBag(Module):
    """Sums, means or maxima of rows of weight (num_embeddings, embedding_dim), a bag at a time.

    weight starts standard normal. mode: "sum", "mean" or "max". padding_idx: a row that counts
    for nothing. See ``functional.embedding_bag`` for the inputs.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        mode: str = "mean",
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ValueError(
                    f"EmbeddingBag: padding_idx must be within num_embeddings, got {padding_idx} "
                    f"for {num_embeddings}."
                )
            padding_idx %= num_embeddings
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.mode = mode
        self.include_last_offset = include_last_offset
        self.padding_idx = padding_idx
        self.weight = new_parameter(num_embeddings, embedding_dim, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].zero_()

    def forward(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """One row per bag."""
        return functional.embedding_bag(
            input,
            self.weight,
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )

    def extra_repr(self) -> str:
        shown = f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode!r}"
        return shown if self.padding_idx is None else f"{shown}, padding_idx={self.padding_idx}"
