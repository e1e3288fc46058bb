"""Recurrent networks over sequences: ``rnn_tanh``, ``rnn_relu``, ``lstm`` and ``gru``.

A layer in one direction is one op: a product for the input of all steps, one kernel for the steps,
one kernel back, and products for the gradients of the weights. Where a gradient is to be
differentiated, the layer runs again step by step, by operations that are on the tape. Start
reading at ``Lstm`` and ``_layers``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .. import dtypes
from ..autograd import grad as gradients
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import matmul, recurrent
from ..tape import grad_mode
from ..tensor import Tensor, wrap
from .axes import DTYPE_WORDS
from .base import Op, as_operand, contiguous, new_empty, reshaped, same_device
from .index import index_select
from .linalg import affine, column_sum, linear, product
from .part import select
from .random import dropout as drop
from .recurrent_steps import Form, gru_step, lstm_step, rnn_step, states_before
from .shape import cat, stack

__all__ = ["gru", "lstm", "rnn_relu", "rnn_tanh"]

# -- what the layers share -------------------------------------------------------------------------


def _again(ctx: Any, layer: Callable[..., tuple], inputs: Sequence[Any], grads: tuple) -> tuple:
    """Gradients that can be differentiated: of ``layer`` on ``inputs``, step by step on the tape.

    The inputs go in as views, so that what one of them was made from does not count twice.
    """
    views = [None if t is None else t.view(*t._array.shape) for t in inputs]
    needs = ctx.needs_input_grad[: len(views)]
    wanted = [v for v, needed in zip(views, needs, strict=True) if needed]
    found = iter(gradients(layer(*views), wanted, grads, create_graph=True, allow_unused=True))
    return tuple([next(found) if needed else None for needed in needs])


def _both(b_ih: Tensor | None, b_hh: Tensor | None) -> Tensor | None:
    return None if b_ih is None or b_hh is None else b_ih + b_hh


def _rows(x: Tensor) -> Tensor:
    """``x`` (t, n, k) or (N, k) as a matrix."""
    shape = x._array.shape
    return reshaped(contiguous(x), (math.prod(shape[:-1]), shape[-1]))


def _flat(x: Tensor) -> Any:
    """The array of ``_rows(x)``."""
    array = contiguous(x)._array
    return array.reshape((math.prod(array.shape[:-1]), array.shape[-1]))


def _state_weight_grad(gheld: Tensor, out: Tensor, h0: Tensor, form: Form, reverse: bool) -> Tensor:
    """The gradient of the weight of the state, which is ``h0`` first and then ``out``."""
    if form.packed:
        index = wrap(states_before(form.sizes, reverse), dtypes.int64)
        if machine.is_recording():  # which keeps what it is given
            index = wrap(machine.table(index._array, out._array), dtypes.int64)
        index = index.to(out._device)
        return product(gheld, index_select(cat([h0, out]), 0, index), 1)
    steps, n, m = out._array.shape
    width, more = gheld._array.shape[2], steps - 1
    gweight = new_empty((width, m), out._dtype, out._device)
    g, states = gheld._array, out._array

    def at(array: Any, first: int, rows: int) -> Any:
        size = array.shape[2]
        return machine.view(array, (rows * n, size), (size, 1), first * n * size)

    first, later, earlier = (more, 0, 1) if reverse else (0, 1, 0)
    start = contiguous(h0)._array
    machine.launch(matmul.mm, gweight._array, at(g, first, 1), start, 1, 0, 0)
    if more:
        factors = at(g, later, more), at(states, earlier, more)
        machine.launch(matmul.mm, gweight._array, *factors, 1, 0, 1)
    return gweight


def _shared_grads(
    needs: Sequence[bool], ggiven: Tensor, gheld: Tensor, x: Tensor, h0: Tensor, out: Tensor,
    w_ih: Tensor, form: Form, reverse: bool,
) -> tuple:  # fmt: skip
    """Gradients of x, w_ih, w_hh, b_ih, b_hh, of those of what the input and the state gave."""
    rows = _rows(ggiven)
    gx = None
    if needs[0]:
        gx = reshaped(product(rows, w_ih), x._array.shape)
    gw_ih = product(rows, _rows(x), 1) if needs[1] else None
    gw_hh = _state_weight_grad(gheld, out, h0, form, reverse) if needs[2] else None
    gb_ih = column_sum(rows) if needs[3] or (needs[4] and gheld is ggiven) else None
    gb_hh = gb_ih
    if gheld is not ggiven:
        gb_hh = column_sum(_rows(gheld)) if needs[4] else None
    return gx, gw_ih, gw_hh, gb_ih, gb_hh


# -- a layer in one direction ----------------------------------------------------------------------


class Rnn(Op):
    """``h = tanh(x w_ih.T + b_ih + h w_hh.T + b_hh)``, or relu: all h (t, n, m), and the last."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h0: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None,
        b_hh: Tensor | None, is_relu: bool, form: Form, reverse: bool,
    ) -> tuple:  # fmt: skip
        out = affine(x, w_ih, _both(b_ih, b_hh))
        last = new_empty(h0._array.shape, x._dtype, x._device)
        arrays = _flat(out), last._array, _flat(h0), _flat(w_hh), form.starts(last._array)
        machine.launch(recurrent.rnn, *arrays, int(is_relu), int(reverse))
        ctx.options = is_relu, form, reverse
        ctx.save(x, h0, w_ih, w_hh, b_ih, b_hh, out)
        return out, last

    @staticmethod
    def steps(
        x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, is_relu: bool, form: Form,
        reverse: bool,
    ) -> tuple:  # fmt: skip
        """``forward`` by operations on the tape."""
        given = linear(x, w_ih, b_ih)

        def step(t: int, h: Tensor) -> tuple:
            h = rnn_step(form.part(given, t), linear(h, w_hh, b_hh), is_relu)
            return h, h

        return form.walk(step, (h,), reverse)

    @staticmethod
    def backward(ctx: Any, g: Tensor, glast: Tensor) -> tuple:
        *inputs, out = ctx.saved_tensors
        is_relu, form, reverse = ctx.options
        if grad_mode.enabled:
            layer = partial(Rnn.steps, is_relu=is_relu, form=form, reverse=reverse)
            return _again(ctx, layer, inputs, (g, glast))
        x, h0, w_ih, w_hh, *_ = inputs
        ggiven = new_empty(out._array.shape, x._dtype, x._device)
        gh0 = new_empty(h0._array.shape, x._dtype, x._device)
        arrays = [_flat(t) for t in (ggiven, gh0, g, glast, out, w_hh)]
        starts = form.starts(gh0._array)
        machine.launch(recurrent.rnn_grad, *arrays, starts, int(is_relu), int(reverse))
        needs = ctx.needs_input_grad
        shared = needs[0], *needs[2:6]
        gx, *rest = _shared_grads(shared, ggiven, ggiven, x, h0, out, w_ih, form, reverse)
        return gx, gh0, *rest


class Lstm(Op):
    """Long short-term memory: all h (t, n, p), the last h, and the last c.

    h has the m numbers of c, or with ``w_hr`` (p, m) as many as it is projected to.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h0: Tensor, c0: Tensor, w_ih: Tensor, w_hh: Tensor,
        b_ih: Tensor | None, b_hh: Tensor | None, w_hr: Tensor | None, form: Form, reverse: bool,
    ) -> tuple:  # fmt: skip
        gates = affine(x, w_ih, _both(b_ih, b_hh))
        lead, (n, p), m = form.lead, h0._array.shape, c0._array.shape[1]
        wide = (0, 0) if w_hr is None else (*lead, m)
        shapes = (*lead, p), wide, (*lead, m), (n, p), (n, m)
        made = [new_empty(shape, x._dtype, x._device) for shape in shapes]
        arrays = [_flat(t) for t in (gates, *made, h0, c0, w_hh, _narrow(w_hr, x))]
        machine.launch(recurrent.lstm, *arrays, form.starts(arrays[0]), int(reverse))
        out, wide_out, cells, last, last_cell = made
        ctx.options = form, reverse
        ctx.save(x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, out, wide_out, gates, cells)
        return out, last, last_cell

    @staticmethod
    def steps(
        x: Any, h: Any, c: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, w_hr: Any, form: Form,
        reverse: bool,
    ) -> tuple:  # fmt: skip
        """``forward`` by operations on the tape."""
        given = linear(x, w_ih, b_ih)

        def step(t: int, h: Tensor, c: Tensor) -> tuple:
            h, c = lstm_step(form.part(given, t), linear(h, w_hh, b_hh), c)
            h = h if w_hr is None else linear(h, w_hr)
            return h, h, c

        return form.walk(step, (h, c), reverse)

    @staticmethod
    def backward(ctx: Any, g: Tensor, glast: Tensor, glast_cell: Tensor) -> tuple:
        *inputs, out, wide_out, gates, cells = ctx.saved_tensors
        form, reverse = ctx.options
        if grad_mode.enabled:
            layer = partial(Lstm.steps, form=form, reverse=reverse)
            return _again(ctx, layer, inputs, (g, glast, glast_cell))
        x, h0, c0, w_ih, w_hh, _, _, w_hr = inputs
        every = (0, 0) if w_hr is None else out._array.shape
        shapes = gates._array.shape, h0._array.shape, c0._array.shape, every
        made = [new_empty(shape, x._dtype, x._device) for shape in shapes]
        given = g, glast, glast_cell, gates, cells, c0, w_hh, _narrow(w_hr, x)
        arrays = [_flat(t) for t in (*made, *given)]
        machine.launch(recurrent.lstm_grad, *arrays, form.starts(arrays[0]), int(reverse))
        ggates, gh0, gc0, gout = made
        needs = ctx.needs_input_grad
        shared = needs[0], *needs[3:7]
        gx, *rest = _shared_grads(shared, ggates, ggates, x, h0, out, w_ih, form, reverse)
        gw_hr = product(_rows(gout), _rows(wide_out), 1) if needs[7] else None
        return gx, gh0, gc0, *rest, gw_hr


def _narrow(w_hr: Tensor | None, x: Tensor) -> Tensor:
    """What h is projected with; nothing for the kernel that does not."""
    return new_empty((0, 0), x._dtype, x._device) if w_hr is None else w_hr


class Gru(Op):
    """A gated recurrent unit: all h (t, n, m), and the last."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h0: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None,
        b_hh: Tensor | None, form: Form, reverse: bool,
    ) -> tuple:  # fmt: skip
        gates = affine(x, w_ih, b_ih)
        n, m = h0._array.shape
        shapes = (*form.lead, m), (*form.lead, m), (n, m)
        made = [new_empty(shape, x._dtype, x._device) for shape in shapes]
        arrays = [_flat(t) for t in (gates, *made, h0, w_hh)]
        bias = arrays[-1].reshape(-1) if b_hh is None else contiguous(b_hh)._array
        options = form.starts(bias), int(b_hh is not None), int(reverse)
        machine.launch(recurrent.gru, *arrays, bias, *options)
        out, held, last = made
        ctx.options = form, reverse
        ctx.save(x, h0, w_ih, w_hh, b_ih, b_hh, out, gates, held)
        return out, last

    @staticmethod
    def steps(
        x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, form: Form, reverse: bool
    ) -> tuple:
        """``forward`` by operations on the tape."""
        given = linear(x, w_ih, b_ih)

        def step(t: int, h: Tensor) -> tuple:
            h = gru_step(form.part(given, t), linear(h, w_hh, b_hh), h)
            return h, h

        return form.walk(step, (h,), reverse)

    @staticmethod
    def backward(ctx: Any, g: Tensor, glast: Tensor) -> tuple:
        *inputs, out, gates, held = ctx.saved_tensors
        form, reverse = ctx.options
        if grad_mode.enabled:
            layer = partial(Gru.steps, form=form, reverse=reverse)
            return _again(ctx, layer, inputs, (g, glast))
        x, h0, w_ih, w_hh, *_ = inputs
        ggates, gheld = [new_empty(gates._array.shape, x._dtype, x._device) for _ in range(2)]
        gh0 = new_empty(h0._array.shape, x._dtype, x._device)
        arrays = [_flat(t) for t in (ggates, gheld, gh0, g, glast, gates, held, out, h0, w_hh)]
        machine.launch(recurrent.gru_grad, *arrays, form.starts(arrays[0]), int(reverse))
        needs = ctx.needs_input_grad
        shared = needs[0], *needs[2:6]
        gx, *rest = _shared_grads(shared, ggates, gheld, x, h0, out, w_ih, form, reverse)
        return gx, gh0, *rest


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
        form = Form((n,) * steps, (steps, n))
    else:
        form, n = Form(sizes, (shape[0],)), sizes[0] if sizes else 0
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
    name: str, gates: int, layer: Callable[..., tuple], input: Tensor, states: tuple, params: Any,
    has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool,
    batch_first: bool, sizes: tuple[int, ...] | None, projected: bool = False,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The output of the last layer, and the last states of all layers and directions."""
    params, directions = list(params), 1 + bool(bidirectional)
    each = (4 if has_biases else 2) + projected
    options = num_layers, directions, batch_first, sizes
    form = _check(name, gates, input, states, params, each, *options)
    batch_first = batch_first and not form.packed
    x = input.transpose(0, 1) if batch_first else input
    ends: list[list[Tensor]] = [[] for _ in states]
    for k in range(num_layers):
        outs = []
        for direction in range(directions):
            at = k * directions + direction
            own = params[each * at : each * (at + 1)]
            weights = own if has_biases else (*own[:2], None, None, *own[2:])
            starts = [select(state, 0, at) for state in states]
            out, *last = layer(x, *starts, *weights, form, bool(direction))
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
    hx: Tensor,
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

    input (t, n, features), or (n, t, features) with batch_first; hx (layers * directions, n, m);
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
        "rnn_tanh", 1, layer, input, (hx,), params, has_biases, num_layers, dropout, train,
        bidirectional, batch_first, batch_sizes,
    )  # type: ignore[return-value]  # fmt: skip


def rnn_relu(
    input: Tensor,
    hx: Tensor,
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
        "rnn_relu", 1, layer, input, (hx,), params, has_biases, num_layers, dropout, train,
        bidirectional, batch_first, batch_sizes,
    )  # type: ignore[return-value]  # fmt: skip


def _rnn(is_relu: bool) -> Callable[..., tuple]:
    return lambda *args: Rnn.apply(*args[:-2], is_relu, *args[-2:])


def lstm(
    input: Tensor,
    hx: Sequence[Tensor],
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
        "lstm", 4, layer, input, tuple(hx), params, has_biases, num_layers, dropout, train,
        bidirectional, batch_first, batch_sizes, projected,
    )  # type: ignore[return-value]  # fmt: skip


def _lstm(*args: Any) -> tuple:
    return Lstm.apply(*args[:-2], None, *args[-2:])


def gru(
    input: Tensor,
    hx: Tensor,
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
        "gru", 3, Gru.apply, input, (hx,), params, has_biases, num_layers, dropout, train,
        bidirectional, batch_first, batch_sizes,
    )  # type: ignore[return-value]  # fmt: skip
