"""Convolutions that a CPU's matrix unit has kernels of its own for: here those of ``conv.py``."""

from __future__ import annotations

from .conv import conv, conv_input_grad, conv_weight_grad

__all__ = ["unit_banded", "unit_banded_weight_grad"]


def unit_banded(out, x, weight, bias, what, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """``out[n, o] = sum over c of x[n, c] * weight[o, c]``, correlated, plus ``bias[o]``.

    what: bit 1 if there is a bias; with bit 2 it is the gradient of the input: ``out``, from that
    of the output, ``x``.
    """
    made = conv_input_grad if what >= 2 else conv
    made(out, x, weight, bias, what & 1, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw)


def unit_banded_weight_grad(gweight, g, x, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """The gradient of ``unit_banded`` with respect to weight."""
    conv_weight_grad(gweight, g, x, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw)
