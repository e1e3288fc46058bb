"""Recurrent networks over sequences: ``rnn_tanh``, ``rnn_relu``, ``lstm`` and ``gru``.

What a layer computes in one direction is in ``recurrent_layers.py``. Start reading at ``_layers``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..tensor import Tensor
from .autocasting import lowered
from .axes import DTYPE_WORDS
from .base import as_operand, same_device
from .join import cat, stack
from .part import select
from .random import dropout as drop
from .recurrent_layers import Gru, Lstm, Rnn
from .recurrent_steps import Form, form_of

__all__ = ["gru", "lstm", "rnn_relu", "rnn_tanh"]

# -- what the arguments must be --------------------------------------------------------------------


def _check(
    name: str, gates: int, x: Any, states: tuple, params: Sequence[Tensor], each: int,
    layers: int, directions: int, batch_first: bool, sizes: tuple[int, ...] | None,
) -> Form:  # fmt: skip
    """The form of the sequences. Refuses tensors that do not fit."""
    given = [as_operand(name, t, i) for i, t in enumerate((x, *states, *params))]
    shape, rank = x._array.shape, 3 if sizes is None else 2
    if len(shape) != rank:
        kind = "batched" if sizes is None else "packed"
        raise ShapeError(
            f"{name}: Expected input to be {rank}D, {kind}, got {len(shape)}D instead."
        )
    if not x._dtype.is_floating_point:
        raise DTypeError(
            f"{name}: not implemented for '{DTYPE_WORDS[x._dtype.name]}', it needs a floating "
            f"dtype. Convert with .float()."
        )
    for tensor in given[1:]:
        if tensor._dtype is not x._dtype:
            raise DTypeError(
                f"{name}: input dtype ({x._dtype}) does not match weight dtype or state dtype "
                f"({tensor._dtype}). Convert with .to(dtype)."
            )
    same_device(name, given)
    if sizes is None:
        steps, n = (shape[1], shape[0]) if batch_first else shape[:2]
        form = form_of((n,) * steps, (steps, n))
    else:
        form, n = form_of(sizes, (shape[0],)), sizes[0] if sizes else 0
        _check_sizes(name, sizes, shape[0])
    if not form.sizes:
        raise ShapeError(f"{name}: Expected sequence length to be larger than 0 in RNN.")
    if len(params) != each * layers * directions:
        raise ShapeError(
            f"{name}: expected {each} parameters for each of {layers} layers in {directions} "
            f"directions, {each * layers * directions} altogether, but got {len(params)}."
        )
    projected = each % 2 == 1
    width = params[1]._array.shape[-1]  # of h; that of c is the same unless h is projected
    m = params[each - 1]._array.shape[-1] if projected else width
    for i, state in enumerate(states):
        expected = (layers * directions, n, m if i else width)
        if state._array.shape != expected:
            which = f"hidden[{i}]" if len(states) > 1 else "hidden"
            raise ShapeError(
                f"{name}: Expected {which} size {expected}, got {list(state._array.shape)}."
            )
    size = params[0]._array.shape[-1]
    if shape[-1] != size:
        raise ShapeError(
            f"{name}: input.size(-1) must be equal to input_size. Expected {size}, got {shape[-1]}."
        )
    for i, parameter in enumerate(params):
        features = size if i < each * directions else width * directions
        wanted: list[tuple[int, ...]]
        wanted = [(gates * m, features), (gates * m, width), (gates * m,), (gates * m,)]
        if projected:
            wanted[each - 1 :] = [(width, m)]
        if parameter._array.shape != wanted[i % each]:
            raise ShapeError(
                f"{name}: expected parameter {i} to have shape {list(wanted[i % each])}, got "
                f"{list(parameter._array.shape)}."
            )
    return form


def _check_sizes(name: str, sizes: tuple[int, ...], rows: int) -> None:
    """Refuse batch sizes that kernels would read beyond the rows by."""
    if sum(sizes) != rows or any(n < 1 for n in sizes) or list(sizes) != sorted(sizes)[::-1]:
        raise ShapeError(
            f"{name}: batch_sizes {list(sizes)} must be positive, never grow, and add up to the "
            f"{rows} rows of the input. pack_padded_sequence makes them."
        )


# -- functions -------------------------------------------------------------------------------------


def _layers(
    name: str, gates: int, layer: Callable[..., tuple], input: Tensor, hx: Any, params: Any,
    has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool,
    batch_first: bool, sizes: tuple[int, ...] | None, projected: bool = False,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The output of the last layer, and the last states of all layers and directions."""
    params, directions = list(params), 1 + bool(bidirectional)
    count = 2 if gates == 4 else 1
    states = () if hx is None else tuple(hx) if count == 2 else (hx,)
    if hx is not None and len(states) != count:
        raise ShapeError(f"{name}: expected two hidden states, (h, c), but got {len(states)}.")
    if machine.autocasting and (gates == 4 or as_operand(name, input)._dtype in dtypes.HALVES):
        input, *given = lowered(input, *states)
        states = tuple(given)
        params = list(lowered(*params))
    each = (4 if has_biases else 2) + projected
    options = num_layers, directions, batch_first, sizes
    form = _check(name, gates, input, states, params, each, *options)
    batch_first = batch_first and not form.packed
    x = input.transpose(0, 1) if batch_first else input
    ends: list[list[Tensor]] = [[] for _ in range(count)]
    for k in range(num_layers):
        outs = []
        for direction in range(directions):
            at = k * directions + direction
            own = params[each * at : each * (at + 1)]
            weights = own if has_biases else (*own[:2], None, None, *own[2:])
            starts: list[Any] = [select(state, 0, at) for state in states] or [None] * count
            # Behind these is what a gradient needs.
            out, *last = layer(x, *starts, *weights, form, bool(direction))[: 1 + count]
            outs.append(out)
            for end, value in zip(ends, last, strict=True):
                end.append(value)
        x = cat(outs, -1) if bidirectional else outs[0]
        if k + 1 < num_layers:
            x = drop(x, dropout, train)
    last = [stack(end) if len(end) > 1 else end[0].unsqueeze(0) for end in ends]
    return x.transpose(0, 1) if batch_first else x, *last


def rnn_tanh(
    input: Tensor,
    hx: Tensor | None,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    *,
    batch_sizes: tuple[int, ...] | None = None,
) -> tuple[Tensor, Tensor]:
    """``h = tanh(W_ih x + b_ih + W_hh h + b_hh)`` along a sequence (Elman, 1990).

    input (t, n, features), or (n, t, features) with batch_first; hx (layers * directions, n, m),
    zeros where it is None;
    params: weight_ih (m, features), weight_hh (m, m) and, with has_biases, bias_ih and bias_hh (m)
    of each layer and direction in turn. dropout is applied between layers while training. Returns
    the h of each step of the last layer, those of both directions side by side, and the last h of
    all layers. batch_sizes: of sequences of different lengths that are packed, the longest first,
    how many run at each step; input is then (N, features), the rows of one step after those of
    another, and so is the output. Differentiable to any order. Raises ShapeError if sizes do not
    fit.
    """
    layer = _rnn(False)
    return _layers(
        "rnn_tanh", 1, layer, input, hx, params, has_biases, num_layers, dropout, train,
        bidirectional, batch_first, batch_sizes,
    )  # type: ignore[return-value]  # fmt: skip


def rnn_relu(
    input: Tensor,
    hx: Tensor | None,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    *,
    batch_sizes: tuple[int, ...] | None = None,
) -> tuple[Tensor, Tensor]:
    """``rnn_tanh`` with relu in place of tanh."""
    layer = _rnn(True)
    return _layers(
        "rnn_relu", 1, layer, input, hx, params, has_biases, num_layers, dropout, train,
        bidirectional, batch_first, batch_sizes,
    )  # type: ignore[return-value]  # fmt: skip


def _rnn(is_relu: bool) -> Callable[..., tuple]:
    return lambda *args: Rnn.apply(*args[:-2], is_relu, *args[-2:])


def lstm(
    input: Tensor,
    hx: Sequence[Tensor] | None,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    *,
    batch_sizes: tuple[int, ...] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Long short-term memory along a sequence (Hochreiter and Schmidhuber, 1997).

    hx: h and c. Arguments as for ``rnn_tanh``, weights and biases with 4 m rows: the input,
    forget (Gers et al., 2000), cell and output gates. Returns the h of each step, and the last h
    and c of all layers. One more parameter in each layer and direction, weight_hr (p, m), projects
    h to p numbers (Sak et al., 2014); weight_hh is then (4 m, p), and h of hx (layers * directions,
    n, p).
    """
    params = list(params)
    projected = len(params) == ((4 if has_biases else 2) + 1) * num_layers * (1 + bidirectional)
    layer = Lstm.apply if projected else _lstm
    return _layers(
        "lstm", 4, layer, input, hx, params, has_biases, num_layers, dropout, train,
        bidirectional, batch_first, batch_sizes, projected,
    )  # type: ignore[return-value]  # fmt: skip


def _lstm(*args: Any) -> tuple:
    return Lstm.apply(*args[:-2], None, *args[-2:])


def gru(
    input: Tensor,
    hx: Tensor | None,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    *,
    batch_sizes: tuple[int, ...] | None = None,
) -> tuple[Tensor, Tensor]:
    """A gated recurrent unit along a sequence (Cho et al., 2014).

    Arguments as for ``rnn_tanh``, weights and biases with 3 m rows: the reset, update and new
    gates. The reset gate acts after the product of the state.
    """
    return _layers(
        "gru", 3, Gru.apply, input, hx, params, has_biases, num_layers, dropout, train,
        bidirectional, batch_first, batch_sizes,
    )  # type: ignore[return-value]  # fmt: skip
