"""One layer of a recurrent network in one direction: ``Rnn``, ``Lstm`` and ``Gru``.

A layer is one op: a product for the input of all steps, one kernel for the steps, one kernel back,
and products for the gradients of the weights. Where a gradient is to be differentiated, the layer
runs again step by step, by operations that are on the tape. Start reading at ``Lstm``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from .. import dtypes
from ..kernels import machine
from ..kernels.cpu import matmul, recurrent
from ..tape import grad_mode
from ..tensor import Tensor, wrap
from .base import Op, contiguous, new_empty, reshaped
from .index import index_select
from .join import cat
from .linalg import affine, column_sum, linear, product
from .recurrent_steps import Form, gru_step, lstm_step, rnn_step, states_before
from .taped import again

# -- what the layers share -------------------------------------------------------------------------


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


class _Forgetting:
    """A ctx for a forward whose backward is another's."""

    def save(self, *tensors: Any) -> None:
        """Keep nothing."""


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
    def again(ctx: Any, *saved: Any) -> Any:
        """All h."""
        return Rnn.forward(_Forgetting(), *saved[:6], *ctx.options)[0]

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
            return again(ctx.needs_input_grad, layer, inputs, (g, glast))
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
    def again(ctx: Any, *saved: Any) -> Any:
        """All h."""
        return Lstm.forward(_Forgetting(), *saved[:8], *ctx.options)[0]

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
            return again(ctx.needs_input_grad, layer, inputs, (g, glast, glast_cell))
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
    def again(ctx: Any, *saved: Any) -> Any:
        """All h."""
        return Gru.forward(_Forgetting(), *saved[:6], *ctx.options)[0]

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
            return again(ctx.needs_input_grad, layer, inputs, (g, glast))
        x, h0, w_ih, w_hh, *_ = inputs
        ggates, gheld = [new_empty(gates._array.shape, x._dtype, x._device) for _ in range(2)]
        gh0 = new_empty(h0._array.shape, x._dtype, x._device)
        arrays = [_flat(t) for t in (ggates, gheld, gh0, g, glast, gates, held, out, h0, w_hh)]
        machine.launch(recurrent.gru_grad, *arrays, form.starts(arrays[0]), int(reverse))
        needs = ctx.needs_input_grad
        shared = needs[0], *needs[2:6]
        gx, *rest = _shared_grads(shared, ggates, gheld, x, h0, out, w_ih, form, reverse)
        return gx, gh0, *rest
