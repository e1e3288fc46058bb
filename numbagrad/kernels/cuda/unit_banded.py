"""Convolutions that a CPU's matrix unit has kernels of its own for: here those of ``conv.py``."""

from __future__ import annotations

from .conv import conv, conv_input_grad, conv_weight_grad

__all__ = ["unit_banded", "unit_banded_input_grad", "unit_banded_weight_grad"]


def unit_banded(out, x, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """``out[n, o] = sum over c of x[n, c] * weight[o, c]``, correlated, plus ``bias[o]``."""
    conv(out, x, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw)


def unit_banded_input_grad(gx, g, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """The gradient of ``unit_banded`` with respect to x, plus ``bias[c]``."""
    conv_input_grad(gx, g, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw)


def unit_banded_weight_grad(gweight, g, x, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """The gradient of ``unit_banded`` with respect to weight."""
    conv_weight_grad(gweight, g, x, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw)
