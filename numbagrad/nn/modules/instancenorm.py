"""Normalisation of each channel of each sample: ``InstanceNorm*d``."""

from __future__ import annotations

from typing import Any

from ...tensor import Tensor
from .. import functional
from .batchnorm import _NormBase

__all__ = ["InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"]


class _InstanceNorm(_NormBase):
    """Instance normalisation."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ):
        modes = affine, track_running_stats, device, dtype
        super().__init__(num_features, eps, momentum, *modes, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        """``input`` (n, num_features, ...), or one sample of it, normalised."""
        self._check_input_dim(input)
        single = input.dim() == self.ranks[0]
        if input.size(0 if single else 1) != self.num_features:
            raise ValueError(
                f"{type(self).__name__}: expected input's size at dim={0 if single else 1} to "
                f"match num_features ({self.num_features}), but got size {list(input.shape)}."
            )
        out = functional.instance_norm(
            input.unsqueeze(0) if single else input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return out.squeeze(0) if single else out


class InstanceNorm1d(_InstanceNorm):
    """InstanceNorm2d for (n, num_features, l)."""

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Each channel of each image to mean 0 and variance 1 (Ulyanov et al., 2016).

    x (n, num_features, h, w) or (num_features, h, w); affine and track_running_stats are off.
    """

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """InstanceNorm2d for volumes."""

    ranks = (4, 5)
