"""Recurrent layers over whole sequences: ``RNN LSTM GRU``. One step of them: ``cell.py``."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any

from ...errors import ShapeError
from ...ops import recurrent
from ...ops.base import as_operand
from ...ops.index import index_select
from ...tensor import Tensor
from .. import init
from ..packed import PackedSequence, batch_sizes_of
from ..parameter import Parameter
from .made import new_parameter
from .module import Module

__all__ = ["GRU", "LSTM", "RNN", "RNNBase"]


class RNNBase(Module):
    """What ``RNN``, ``LSTM`` and ``GRU`` share: parameters, and the shapes of input and states.

    For layer k: weight_ih_lk (gates * hidden, input), weight_hh_lk (gates * hidden, hidden) and,
    unless bias is False, bias_ih_lk and bias_hh_lk; with bidirectional the same names ending in
    ``_reverse``, and twice the features for the next layer. All start uniform within
    ``1 / sqrt(hidden_size)``.
    """

    mode = ""
    gates = 1
    states = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        name = type(self).__name__
        sizes = {"input_size": input_size, "hidden_size": hidden_size, "num_layers": num_layers}
        _check_options(name, sizes, {"bias": bias, "batch_first": batch_first}, dropout)
        _check_projection(name, self.mode == "LSTM", proj_size, hidden_size)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.proj_size = proj_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self._names: list[str] = []
        rows, made = self.gates * hidden_size, {"device": device, "dtype": dtype}
        for k in range(num_layers):
            features = self._width * self._directions if k else input_size
            for suffix in ("", "_reverse")[: self._directions]:
                shapes: dict[str, tuple[int, ...]]
                shapes = {"weight_ih": (rows, features), "weight_hh": (rows, self._width)}
                if bias:
                    shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                for kind, shape in shapes.items():
                    self._names.append(f"{kind}_l{k}{suffix}")
                    setattr(self, self._names[-1], new_parameter(*shape, **made))
        self.reset_parameters()

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _width(self) -> int:
        """Numbers in h."""
        return self.proj_size or self.hidden_size

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters, a list for each layer and direction."""
        weights, each = self._weights(), (4 if self.bias else 2) + (self.proj_size > 0)
        return [weights[i : i + each] for i in range(0, len(weights), each)]

    def _weights(self) -> list[Any]:
        """Weights and biases in the order of the layers; a parametrized one is computed."""
        return [getattr(self, name) for name in self._names]

    def flatten_parameters(self) -> None:
        """Nothing: kernels read the parameters where they are."""

    def reset_parameters(self) -> None:
        """Draw weights and biases anew."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def _run(self, input: Any, hx: tuple[Tensor, ...] | None) -> tuple[Any, tuple[Tensor, ...]]:
        """Output and last states; a batch of one is put around unbatched ones."""
        if isinstance(input, PackedSequence):
            return self._run_packed(input, hx)
        name = type(self).__name__
        rank = len(as_operand(name, input)._array.shape)
        if rank not in (2, 3):
            raise ShapeError(f"{name}: Expected input to be 2D or 3D, got {rank}D instead.")
        for state in hx or ():
            if len(as_operand(name, state, 1)._array.shape) != rank:
                kind = "batched" if rank == 3 else "unbatched"
                got = ", ".join(f"{s.dim()}-D" for s in hx or ())
                raise ShapeError(
                    f"{name}: For {kind} {rank}-D input, hx should also be {rank}-D but got {got}."
                )
        x = input
        if rank == 2:
            x = input.unsqueeze(0 if self.batch_first else 1)
            hx = None if hx is None else tuple([state.unsqueeze(1) for state in hx])
        out, *last = self._layers(x, hx, None)
        if rank == 2:
            out = out.squeeze(0 if self.batch_first else 1)
            last = [state.squeeze(1) for state in last]
        return out, tuple(last)

    def _run_packed(
        self, input: PackedSequence, hx: tuple[Tensor, ...] | None
    ) -> tuple[PackedSequence, tuple[Tensor, ...]]:
        """``_run`` for sequences of different lengths."""
        sizes, into, back = batch_sizes_of(input), input.sorted_indices, input.unsorted_indices
        if hx is not None and into is not None:
            hx = tuple([index_select(state, 1, into) for state in hx])
        out, *last = self._layers(input.data, hx, sizes)
        if back is not None:
            last = [index_select(state, 1, back) for state in last]
        return PackedSequence(out, input.batch_sizes, into, back), tuple(last)

    def _layers(self, x: Tensor, hx: tuple[Tensor, ...] | None, sizes: Any) -> tuple[Tensor, ...]:
        """Output and last states of all layers."""
        return getattr(recurrent, self.mode.lower())(
            x,
            hx if self.states > 1 or hx is None else hx[0],
            self._weights(),
            self.bias,
            self.num_layers,
            self.dropout,
            self.training,
            self.bidirectional,
            self.batch_first,
            batch_sizes=sizes,
        )

    def extra_repr(self) -> str:
        shown = f"{self.input_size}, {self.hidden_size}"
        shown += f", proj_size={self.proj_size}" if self.proj_size else ""
        usual = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0}
        for name, value in {**usual, "bidirectional": False}.items():
            if getattr(self, name) != value:
                shown += f", {name}={getattr(self, name)}"
        return shown


def _check_options(name: str, sizes: dict[str, Any], flags: dict[str, Any], dropout: Any) -> None:
    """Refuse what PyTorch refuses."""
    number = isinstance(dropout, numbers.Number) and not isinstance(dropout, bool)
    if not number or not 0 <= dropout <= 1:
        raise ValueError(
            f"{name}: dropout should be a number in range [0, 1] representing the probability of "
            f"an element being zeroed, but got {dropout!r}."
        )
    for option, value in flags.items():
        if not isinstance(value, bool):
            raise TypeError(
                f"{name}: {option} should be of type bool, got: {type(value).__name__}."
            )
    for option, value in sizes.items():
        if not isinstance(value, int):
            raise TypeError(f"{name}: {option} should be of type int, got: {type(value).__name__}.")
        if value <= 0:
            raise ValueError(f"{name}: {option} must be greater than zero, got {value}.")
    if dropout > 0 and sizes["num_layers"] == 1:
        warnings.warn(
            f"{name}: dropout option adds dropout after all but last recurrent layer, so non-zero "
            f"dropout expects num_layers greater than 1, but got dropout={dropout} and "
            f"num_layers=1.",
            stacklevel=3,
        )


def _check_projection(name: str, can: bool, proj_size: Any, hidden_size: int) -> None:
    """Refuse what h cannot be projected to."""
    if proj_size and not can:
        raise ValueError(
            f"{name}: proj_size argument is only supported for LSTM, not RNN or GRU, got "
            f"{proj_size}. Put a Linear behind the layer."
        )
    if not isinstance(proj_size, int) or isinstance(proj_size, bool):
        raise TypeError(
            f"{name}: proj_size should be of type int, got: {type(proj_size).__name__}."
        )
    if proj_size < 0:
        raise ValueError(
            f"{name}: proj_size should be a positive integer or zero to disable projections, got "
            f"{proj_size}."
        )
    if proj_size >= hidden_size:
        raise ValueError(
            f"{name}: proj_size has to be smaller than hidden_size, got {proj_size} and "
            f"{hidden_size}."
        )


class RNN(RNNBase):
    """``h = tanh(W_ih x + b_ih + W_hh h + b_hh)`` along a sequence (Elman, 1990), or relu.

    input (t, n, input_size), (n, t, input_size) with batch_first, or (t, input_size); hx
    (num_layers * directions, n, hidden_size), zeros by default. dropout is applied to the output of
    each layer but the last while training. Returns the h of each step of the last layer, both
    directions side by side, and the last h of every layer and direction. Sequences of different
    lengths come as a ``PackedSequence`` of ``nn.utils.rnn``, and so does the output: no time goes
    to padding, and each sequence has its own last h.

    >>> RNN(4, 3, nonlinearity="relu")
    RNN(4, 3)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ):
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(
                f"RNN: Unknown nonlinearity {nonlinearity!r}. Select from 'tanh' or 'relu'."
            )
        options = num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(input_size, hidden_size, *options, device=device, dtype=dtype)
        self.mode = f"RNN_{nonlinearity.upper()}"
        self.nonlinearity = nonlinearity

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        """Output and last h."""
        out, last = self._run(input, None if hx is None else (hx,))
        return out, last[0]


class LSTM(RNNBase):
    """Long short-term memory along a sequence (Hochreiter and Schmidhuber, 1997).

    Arguments, input and output as for ``RNN``; states are pairs ``(h, c)``. The rows of weights
    are the input, forget, cell and output gates. With ``proj_size`` p each h is projected to p
    numbers by weight_hr_lk (p, hidden_size), so that weight_hh_lk is (4 hidden_size, p), and h and
    the output have p features where c has hidden_size (Sak et al., 2014). Raises ValueError for a
    proj_size not smaller than hidden_size.

    >>> out, (h, c) = LSTM(4, 3)(tensor([[[1.0, 2.0, 3.0, 4.0]]]))
    >>> out.shape, c.shape
    (ng.Size([1, 1, 3]), ng.Size([1, 1, 3]))
    """

    mode = "LSTM"
    gates = 4
    states = 2

    def forward(
        self, input: Any, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Any, tuple[Tensor, Tensor]]:
        """Output, and the last h and c."""
        if hx is not None and (not isinstance(hx, (tuple, list)) or len(hx) != 2):
            raise TypeError(
                f"LSTM: hx should be a pair of tensors, (h, c), got {type(hx).__name__}."
            )
        out, (h, c) = self._run(input, None if hx is None else tuple(hx))
        return out, (h, c)


class GRU(RNNBase):
    """A gated recurrent unit along a sequence (Cho et al., 2014), reset after the state's product.

    Arguments, input and output as for ``RNN``. The rows of weights are the reset, update and new
    gates.

    >>> GRU(4, 3, 2, bidirectional=True)
    GRU(4, 3, num_layers=2, bidirectional=True)
    """

    mode = "GRU"
    gates = 3

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        """Output and last h."""
        out, last = self._run(input, None if hx is None else (hx,))
        return out, last[0]
