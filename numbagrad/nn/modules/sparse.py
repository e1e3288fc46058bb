"""Rows of a table looked up by index, one by one or in bags."""

from __future__ import annotations

from typing import Any, Self

from ...autograd.modes import no_grad
from ...tensor import Tensor
from .. import functional, init
from ..parameter import Parameter
from .made import new_parameter
from .module import Module

__all__ = ["Embedding", "EmbeddingBag"]


class _Table(Module):
    """A table of rows that starts standard normal, but for the row at padding_idx."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None,
        max_norm: float | None,
        norm_type: float,
        scale_grad_by_freq: bool,
        sparse: bool,
        weight: Any,
        frozen: Any,
        device: Any,
        dtype: Any,
    ):
        super().__init__()
        name = type(self).__name__
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ValueError(
                    f"{name}: Padding_idx must be within num_embeddings, got {padding_idx} for "
                    f"{num_embeddings}."
                )
            padding_idx %= num_embeddings
        if sparse:
            raise ValueError(f"{name}: gradients are dense here. Leave out sparse=True.")
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        if weight is None:
            self.weight = new_parameter(num_embeddings, embedding_dim, device=device, dtype=dtype)
            self.weight.requires_grad_(not frozen)
            self.reset_parameters()
            return
        if tuple(weight.shape) != (num_embeddings, embedding_dim):
            raise ValueError(
                f"{name}: Shape of weight does not match num_embeddings and embedding_dim: "
                f"{list(weight.shape)}, not {[num_embeddings, embedding_dim]}."
            )
        self.weight = Parameter(weight, requires_grad=not frozen)

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].zero_()

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, *args: Any, **kwargs: Any
    ) -> Self:
        """A table that shares the memory of ``embeddings`` (rows, dim); frozen unless told.

        args, kwargs: what the class takes after the two sizes.
        """
        if embeddings.dim() != 2:
            raise ValueError(
                f"from_pretrained: Embeddings parameter is expected to be 2-dimensional, got "
                f"{embeddings.shape}."
            )
        made = cls(*embeddings.shape, *args, **kwargs)
        made.weight = Parameter(embeddings, requires_grad=not freeze)
        return made

    def extra_repr(self) -> str:
        shown = f"{self.num_embeddings}, {self.embedding_dim}"
        usual = {"padding_idx": None, "max_norm": None, "norm_type": 2.0}
        for name, value in {**usual, "scale_grad_by_freq": False, "mode": None}.items():
            if getattr(self, name, value) != value:
                shown += f", {name}={getattr(self, name)!r}"
        return shown


class Embedding(_Table):
    """Rows of weight (num_embeddings, embedding_dim): indices (...) to (..., embedding_dim).

    weight starts standard normal. padding_idx: a row that starts at zero and gets no gradient.
    max_norm: rows that are looked up are scaled down to it first, in the weight, where their
    ``norm_type``-norm is larger. scale_grad_by_freq: a row's gradient is divided by how often it
    was looked up. _weight: the table, instead of a drawn one; _freeze: it gets no gradient. Raises
    ValueError for ``sparse``: gradients are dense.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__(
            *(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type),
            *(scale_grad_by_freq, sparse, _weight, _freeze, device, dtype),
        )

    def forward(self, input: Tensor) -> Tensor:
        """The rows at ``input``."""
        return functional.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
        )


class EmbeddingBag(_Table):
    """Sums, means or maxima of rows of weight (num_embeddings, embedding_dim), a bag at a time.

    weight starts standard normal. mode: "sum", "mean" or "max". padding_idx: a row that counts
    for nothing. max_norm, norm_type, scale_grad_by_freq, sparse: as of ``Embedding``. See
    ``functional.embedding_bag`` for the inputs.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__(
            *(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type),
            *(scale_grad_by_freq, sparse, _weight, False, device, dtype),
        )
        self.mode = mode
        self.include_last_offset = include_last_offset

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
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )
