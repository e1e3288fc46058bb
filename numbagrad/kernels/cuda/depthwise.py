"""Convolutions in which each channel has a kernel of its own: on a GPU a case of ``conv.py``, which
gives a thread to each place of the result."""

from __future__ import annotations

from .conv import conv, conv_input_grad, conv_weight_grad

__all__ = ["depthwise", "depthwise_input_grad", "depthwise_weight_grad"]


def depthwise(out, x, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """``out[n, o] = x[n, c]`` correlated with ``weight[o]``, plus ``bias[o]``, where o is of c."""
    conv(out, x, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw)


def depthwise_input_grad(gx, g, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """The gradient of ``depthwise`` with respect to x, plus ``bias[c]``."""
    conv_input_grad(gx, g, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw)


def depthwise_weight_grad(gweight, g, x, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """The gradient of ``depthwise`` with respect to weight."""
    conv_weight_grad(gweight, g, x, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw)
