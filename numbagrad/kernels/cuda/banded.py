"""Convolutions over bands of the image: on a GPU those of ``conv.py``, which unfolds nothing."""

from __future__ import annotations

from .conv import conv, conv_input_grad, conv_weight_grad

__all__ = ["banded", "banded_input_grad", "banded_weight_grad"]


def banded(out, x, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """``out[n, o] = sum over c of x[n, c] * weight[o, c]``, correlated, plus ``bias[o]``."""
    conv(out, x, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw)


def banded_input_grad(gx, g, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """The gradient of ``banded`` with respect to x, plus ``bias[c]``."""
    conv_input_grad(gx, g, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw)


def banded_weight_grad(gweight, g, x, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """The gradient of ``banded`` with respect to weight."""
    conv_weight_grad(gweight, g, x, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw)
