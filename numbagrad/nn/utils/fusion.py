"""Layers in evaluation mode with the batch norm behind them folded into their weights."""

from __future__ import annotations

import copy
from typing import Any

from ...errors import ShapeError
from ...ops.base import full
from ...ops.elementwise import rsqrt
from ...tensor import Tensor
from ..parameter import Parameter

__all__ = [
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
]


def _folded(
    name: str,
    weight: Tensor,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    eps: float,
    gain: Tensor | None,
    shift: Tensor | None,
    dim: int,
) -> tuple[Parameter, Parameter]:
    """The weight, whose dimension ``dim`` counts outputs, and the bias after the norm."""
    if mean is None or var is None:
        raise ValueError(f"{name}: the batch norm has no running mean and variance to fold in.")
    if weight.shape[dim] != mean.shape[0]:
        raise ShapeError(
            f"{name}: the layer has {weight.shape[dim]} outputs, the batch norm {mean.shape[0]} "
            f"features. They must be equal."
        )
    scale = rsqrt(var + eps)
    scale = scale if gain is None else scale * gain
    shape = [1] * weight.dim()
    shape[dim] = -1
    bias = full(mean.shape, 0, mean.dtype, mean.device) if bias is None else bias
    moved = (bias - mean) * scale
    moved = moved if shift is None else moved + shift
    folded = weight * scale.reshape(shape)
    return (
        Parameter(folded.detach().to(weight.dtype), weight.requires_grad),
        Parameter(moved.detach().to(weight.dtype), bias.requires_grad or weight.requires_grad),
    )


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a convolution that does what it and a batch norm behind it do.

    conv_w (out, in / groups, ...), or for transposed convolutions (in, out / groups, ...); conv_b
    (out) or None. bn_rm, bn_rv: the running mean and variance; bn_w, bn_b: None for 1 and 0.
    """
    found = bn_rm, bn_rv, bn_eps, bn_w, bn_b
    return _folded("fuse_conv_bn_weights", conv_w, conv_b, *found, 1 if transpose else 0)


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor,
    bn_b: Tensor,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a linear layer that does what it and a batch norm behind it do."""
    found = bn_rm, bn_rv, bn_eps, bn_w, bn_b
    return _folded("fuse_linear_bn_weights", linear_w, linear_b, *found, 0)


def _fused(name: str, layer: Any, bn: Any, dim: int) -> Any:
    if layer.training or bn.training:
        raise ValueError(f"{name}: Fusion only for eval! Call .eval() on both first.")
    found = bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    out = copy.deepcopy(layer)
    out.weight, out.bias = _folded(name, out.weight, out.bias, *found, dim)
    return out


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A copy of ``conv`` that does what it and ``bn`` behind it do, both in evaluation mode.

    Raises ValueError in training mode, where the batch norm follows its input.

    >>> import numbagrad as ng
    >>> conv, bn = ng.nn.Conv1d(1, 2, 1).eval(), ng.nn.BatchNorm1d(2).eval()
    >>> x = ng.ones(1, 1, 3)
    >>> fuse_conv_bn_eval(conv, bn)(x).allclose(bn(conv(x)), atol=1e-6)
    True
    """
    return _fused("fuse_conv_bn_eval", conv, bn, 1 if transpose else 0)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A copy of ``linear`` that does what it and ``bn`` behind it do, both in evaluation mode.

    Raises ValueError in training mode, and where ``bn`` has not as many features as ``linear``.
    """
    return _fused("fuse_linear_bn_eval", linear, bn, 0)
