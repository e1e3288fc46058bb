"""Recurrent cells: one step of a simple, a long short-term or a gated recurrent network."""

from __future__ import annotations

import math
from typing import Any

from ...errors import ShapeError
from ...ops.base import full
from ...ops.recurrent_steps import gru_step, lstm_step, rnn_step
from ...tensor import Tensor
from .. import functional as F
from .. import init
from ..parameter import Parameter
from .made import new_parameter
from .module import Module

__all__ = ["GRUCell", "LSTMCell", "RNNCell", "RNNCellBase"]


class RNNCellBase(Module):
    """Two affine maps, of the input and of the state, to ``num_chunks`` times hidden_size numbers.

    weight_ih (num_chunks * hidden, input), weight_hh (num_chunks * hidden, hidden), bias_ih and
    bias_hh; all start uniform within ``1 / sqrt(hidden_size)``.
    """

    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows, made = num_chunks * hidden_size, {"device": device, "dtype": dtype}
        self.weight_ih = new_parameter(rows, input_size, **made)
        self.weight_hh = new_parameter(rows, hidden_size, **made)
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, new_parameter(rows, **made) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights and biases anew."""
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size else 0.0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def _state(self, input: Tensor, state: Tensor | None) -> Tensor:
        """``state``, or zeros, checked."""
        name = type(self).__name__
        if input.dim() not in (1, 2):
            raise ShapeError(
                f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead. A cell takes "
                f"one step; {name.removesuffix('Cell')} takes a sequence."
            )
        if input.size(-1) != self.input_size:
            raise ShapeError(
                f"{name}: input has inconsistent input_size: got {input.size(-1)}, expected "
                f"{self.input_size}."
            )
        shape = (*input.shape[:-1], self.hidden_size)
        if state is None:
            return full(shape, 0, input._dtype, input._device)
        if tuple(state.shape) != shape:
            raise ShapeError(
                f"{name}: hidden state has inconsistent size: got {list(state.shape)}, expected "
                f"{list(shape)}."
            )
        return state

    def _maps(self, input: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return (
            F.linear(input, self.weight_ih, self.bias_ih),
            F.linear(state, self.weight_hh, self.bias_hh),
        )

    def extra_repr(self) -> str:
        shown = f"{self.input_size}, {self.hidden_size}"
        return shown if self.bias else f"{shown}, bias=False"


class RNNCell(RNNCellBase):
    """``tanh(W_ih x + b_ih + W_hh h + b_hh)`` (Elman, 1990), or relu for nonlinearity="relu"."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ):
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNNCell: Unknown nonlinearity: {nonlinearity}; use tanh or relu.")
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next state of input (n, input_size) and hx (n, hidden_size), zeros by default."""
        maps = self._maps(input, self._state(input, hx))
        return rnn_step(*maps, self.nonlinearity == "relu")

    def extra_repr(self) -> str:
        other = "" if self.nonlinearity == "tanh" else f", nonlinearity={self.nonlinearity}"
        return super().extra_repr() + other


class LSTMCell(RNNCellBase):
    """A step of long short-term memory (Hochreiter and Schmidhuber, 1997; Gers et al., 2000).

    The rows of weights are the input, forget, cell and output gates.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """The next ``(h, c)`` of input (n, input_size) and hx = (h, c), zeros by default."""
        h = self._state(input, None if hx is None else hx[0])
        c = self._state(input, None if hx is None else hx[1])
        return lstm_step(*self._maps(input, h), c)


class GRUCell(RNNCellBase):
    """A step of a gated recurrent unit (Cho et al., 2014).

    The rows of weights are the reset, update and new gates; the reset gate acts after the map of
    the state.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next state of input (n, input_size) and hx (n, hidden_size), zeros by default."""
        h = self._state(input, hx)
        return gru_step(*self._maps(input, h), h)
