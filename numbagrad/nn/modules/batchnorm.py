"""Normalisation by channels: ``BatchNorm*d GroupNorm``."""

from __future__ import annotations

from typing import Any

from ... import dtypes
from ...autograd.modes import no_grad
from ...ops.create import ones, zeros
from ...tensor import Tensor
from .. import functional, init
from ..parameter import Parameter
from .made import new_parameter
from .module import Module

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "GroupNorm",
]


class _NormBase(Module):
    """One weight, bias, running mean and running variance for each channel."""

    ranks: tuple[int, ...]
    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ):
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            made = new_parameter(num_features, device=device, dtype=dtype)
            self.register_parameter(name, made if wanted else None)
        tracked = track_running_stats
        options = {"device": device, "dtype": dtype}
        self.register_buffer("running_mean", zeros(num_features, **options) if tracked else None)
        self.register_buffer("running_var", ones(num_features, **options) if tracked else None)
        count = zeros((), device=device, dtype=dtypes.int64)
        self.register_buffer("num_batches_tracked", count if tracked else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget what was seen, if that is kept."""
        if not self.track_running_stats:
            return
        if self.running_mean is not None:
            self.running_mean.zero_()
        if self.running_var is not None:
            self.running_var.fill_(1)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Set weight to one and bias to zero, and forget what was seen."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in self.ranks:
            expected = " or ".join(f"{rank}D" for rank in self.ranks)
            raise ValueError(
                f"{type(self).__name__}: expected {expected} input (got {input.dim()}D input of "
                f"size {list(input.shape)})."
            )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_NormBase):
    """Batch normalisation."""

    def forward(self, input: Tensor) -> Tensor:
        """``input`` normalised; in training mode the running statistics move."""
        self._check_input_dim(input)
        tracked = self.training and self.track_running_stats
        if tracked and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        # track_running_stats may have been set since: what is there is then left alone
        kept = tracked or not self.training
        mean, variance = (self.running_mean, self.running_var) if kept else (None, None)
        by_batch = self.training or mean is None or variance is None
        if not self.training or mean is None or variance is None:
            arguments = mean, variance, self.weight, self.bias, by_batch
            return functional.batch_norm(input, *arguments, 0.0, self.eps)
        if self.momentum is None:
            return self._cumulative(input, mean, variance)
        arguments = mean, variance, self.weight, self.bias, True
        return functional.batch_norm(input, *arguments, self.momentum, self.eps)

    def _cumulative(self, input: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """``forward`` whose running statistics are plain averages of all batches."""
        out = functional.batch_norm(input, None, None, self.weight, self.bias, True, 0.0, self.eps)
        if not input.numel():
            return out
        with no_grad():
            share = 1 / self.num_batches_tracked.to(input.dtype)  # type: ignore[union-attr]
            dims = (0, *range(2, input.dim()))
            plain = input.detach()
            mean.add_((plain.mean(dims) - mean) * share)
            variance.add_((plain.var(dims) - variance) * share)
        return out


class BatchNorm1d(_BatchNorm):
    """BatchNorm2d for (n, num_features) or (n, num_features, l)."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Each channel of (n, num_features, h, w) to mean 0 and variance 1, then ``* weight + bias``.

    While training by the batch's statistics, towards which running_mean and running_var move by
    momentum (None: they are averages of all batches); in eval mode by these, unless
    track_running_stats is False (Ioffe and Szegedy, 2015).

    >>> BatchNorm2d(6)
    BatchNorm2d(6, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    """

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """BatchNorm2d for volumes, (n, num_features, d, h, w)."""

    ranks = (5,)


class GroupNorm(Module):
    """Each of num_groups groups of channels of each sample to mean 0, variance 1 (Wu and He, 2018).

    x (n, num_channels, ...); weight and bias (num_channels) if affine.
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ):
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(
                f"GroupNorm: num_channels must be divisible by num_groups, got {num_channels} and "
                f"{num_groups}."
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            made = new_parameter(num_channels, device=device, dtype=dtype)
            self.register_parameter(name, made if wanted else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set weight to one and bias to zero."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """``input`` normalised."""
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )
