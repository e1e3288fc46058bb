"""One step of a recurrent network on given weights: ``lstm_cell`` and its kin."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ..errors import ShapeError
from ..tensor import Tensor
from .base import as_operand
from .linalg import linear
from .recurrent_steps import gru_step, lstm_step, rnn_step
from .remembered import remembered

__all__ = ["gru_cell", "lstm_cell", "rnn_relu_cell", "rnn_tanh_cell"]


def _maps(
    name: str,
    gates: int,
    x: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """What input and state give to the gates, after their sizes were compared."""
    for i, value in enumerate((x, hx, w_ih, w_hh)):
        as_operand(name, value, i)
    rows, features, width = gates * hx.size(-1), x.size(-1), hx.size(-1)
    if w_ih.shape != (rows, features) or w_hh.shape != (rows, width):
        raise ShapeError(
            f"{name}: input {list(x.shape)} and state {list(hx.shape)} need w_ih of "
            f"{[rows, features]} and w_hh of {[rows, width]}, got {list(w_ih.shape)} and "
            f"{list(w_hh.shape)}. Weights have {gates} times the state's size as rows."
        )
    if x.shape[:-1] != hx.shape[:-1]:
        raise ShapeError(
            f"{name}: Input batch size {list(x.shape[:-1])} doesn't match hidden batch size "
            f"{list(hx.shape[:-1])}."
        )
    return linear(x, w_ih, b_ih), linear(hx, w_hh, b_hh)


@functools.partial(remembered, spread="hx")
def lstm_cell(
    x: Tensor,
    hx: Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """A step of long short-term memory: the next ``(h, c)``.

    x (n, features); hx the pair h, c, each (n, m); w_ih (4 m, features), w_hh (4 m, m), b_ih and
    b_hh (4 m): rows for the input, forget, cell and output gates.

    >>> one = tensor([[0.0]] * 4)
    >>> [s.item() for s in lstm_cell(one[:1], (one[:1], one[:1]), one, one)]
    [0.0, 0.0]
    """
    if not isinstance(hx, (tuple, list)) or len(hx) != 2:
        raise ShapeError("lstm_cell: expects two hidden states, h and c. Pass hx=(h, c).")
    maps = _maps("lstm_cell", 4, x, hx[0], w_ih, w_hh, b_ih, b_hh)
    if as_operand("lstm_cell", hx[1], 1).shape != hx[0].shape:
        raise ShapeError(
            f"lstm_cell: h {list(hx[0].shape)} and c {list(hx[1].shape)} must have one shape."
        )
    return lstm_step(*maps, hx[1])


@remembered
def gru_cell(
    x: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:
    """A step of a gated recurrent unit: the next h.

    x (n, features); hx (n, m); w_ih (3 m, features), w_hh (3 m, m), b_ih and b_hh (3 m): rows for
    the reset, update and new gates.

    >>> zeros = tensor([[0.0]] * 3)
    >>> gru_cell(zeros[:1], tensor([[1.0]]), zeros, zeros).tolist()
    [[0.5]]
    """
    return gru_step(*_maps("gru_cell", 3, x, hx, w_ih, w_hh, b_ih, b_hh), hx)


@remembered
def rnn_tanh_cell(
    x: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:
    """A step of a simple network: ``tanh(w_ih x + b_ih + w_hh hx + b_hh)``.

    x (n, features); hx (n, m); w_ih (m, features), w_hh (m, m), b_ih and b_hh (m).

    >>> x = tensor([[0.0]])
    >>> rnn_tanh_cell(x, x, x, x).tolist()
    [[0.0]]
    """
    return rnn_step(*_maps("rnn_tanh_cell", 1, x, hx, w_ih, w_hh, b_ih, b_hh), False)


@remembered
def rnn_relu_cell(
    x: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:
    """A step of a simple network: ``relu(w_ih x + b_ih + w_hh hx + b_hh)``; see rnn_tanh_cell.

    >>> x = tensor([[2.0]])
    >>> rnn_relu_cell(x, x, x, x).tolist()
    [[8.0]]
    """
    return rnn_step(*_maps("rnn_relu_cell", 1, x, hx, w_ih, w_hh, b_ih, b_hh), True)
