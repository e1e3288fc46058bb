"""One layer of a recurrent network in one direction: ``Rnn``, ``Lstm`` and ``Gru``.

A layer is one op: a product for the input of all steps, one kernel for the steps, one kernel back,
and products for the gradients of the weights. Where a gradient is to be differentiated, the layer
runs again step by step, by operations that are on the tape. Start reading at ``Lstm``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from .. import dtypes
from ..kernels import machine
from ..kernels.cpu import matmul, recurrent
from ..tape import grad_mode
from ..tensor import Tensor, wrap
from .base import Op, contiguous, full, new_empty, reshaped
from .index import index_select
from .join import cat
from .linalg import affine, column_sum, linear, product
from .recurrent_steps import Form, gru_step, lstm_step, rnn_step, states_before
from .remembered import remembered
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


def _zeros(state: Tensor | None, width: int, form: Form, x: Tensor) -> Tensor:
    """A state before the first step, or a gradient of one, zeros where None is given."""
    if state is not None:
        return state
    return full((form.sizes[0], width), 0, x._dtype, x._device)


def _state_weight_grad(
    gheld: Tensor, out: Tensor, h0: Tensor | None, form: Form, reverse: bool
) -> Tensor:
    """The gradient of the weight of the state, which is ``h0`` first and then ``out``."""
    if form.packed:
        h0 = _zeros(h0, out._array.shape[1], form, out)
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
    if h0 is not None or not more:
        start = contiguous(_zeros(h0, m, form, out))._array
        machine.launch(matmul.mm, gweight._array, at(g, first, 1), start, 1, 0, 0)
    if more:
        factors = at(g, later, more), at(states, earlier, more)
        machine.launch(matmul.mm, gweight._array, *factors, 1, 0, int(h0 is not None))
    return gweight


def _shared_grads(
    needs: Sequence[bool], ggiven: Tensor, gheld: Tensor, x: Tensor, h0: Tensor | None, out: Tensor,
    w_ih: Tensor, form: Form, reverse: bool,
) -> list[Tensor]:  # fmt: skip
    """Those needed of the gradients of x, w_ih, w_hh, b_ih, b_hh, of those of what the input and
    the state gave; one of both biases where these are the same."""
    rows, made = _rows(ggiven), []
    if needs[0]:
        made.append(new_empty(x._array.shape, x._dtype, x._device))
        machine.launch(matmul.mm, _flat(made[0]), rows._array, w_ih._array, 0, 0, 0)
    if needs[1]:
        made.append(product(rows, _rows(x), 1))
    if needs[2]:
        made.append(_state_weight_grad(gheld, out, h0, form, reverse))
    if needs[3] or (needs[4] and gheld is ggiven):
        made.append(column_sum(rows))
    if needs[4] and gheld is not ggiven:
        made.append(column_sum(_rows(gheld)))
    return made


def _dealt(needs: Sequence[bool], made: Iterator[Tensor], one_bias: bool) -> list[Tensor | None]:
    """What ``_shared_grads`` made, None where nothing is needed."""
    grads = [next(made) if need else None for need in needs[: 3 if one_bias else 5]]
    if one_bias:
        grads += [next(made)] * 2 if needs[3] or needs[4] else [None, None]
    return grads


def _of_all(g: Tensor | None, out: Tensor) -> Tensor:
    """The gradient of all h, zeros where nothing used them."""
    return full(out._array.shape, 0, out._dtype, out._device) if g is None else g


class _Forgetting:
    """A ctx for a forward whose backward is another's."""

    def save(self, *tensors: Any) -> None:
        """Keep nothing."""


# -- a layer in one direction ----------------------------------------------------------------------
# The states before the first step are zeros where they are None, as are gradients of what nothing
# used: what is remembered makes them, which takes less time than Python does. So that it may be
# remembered, large memory that lies between two kernels is a result too, though nobody needs it.


class Rnn(Op, remembers=True):
    """``h = tanh(x w_ih.T + b_ih + h w_hh.T + b_hh)``, or relu: all h (t, n, m), and the last."""

    zeros = False

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h0: Tensor | None, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None,
        b_hh: Tensor | None, is_relu: bool, form: Form, reverse: bool,
    ) -> tuple:  # fmt: skip
        out = affine(x, w_ih, _both(b_ih, b_hh))
        begin = _zeros(h0, w_hh._array.shape[1], form, x)
        last = new_empty(begin._array.shape, x._dtype, x._device)
        arrays = _flat(out), last._array, _flat(begin), _flat(w_hh), form.starts(last._array)
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
        given, h = linear(x, w_ih, b_ih), _zeros(h, w_hh._array.shape[1], form, x)

        def step(t: int, h: Tensor) -> tuple:
            h = rnn_step(form.part(given, t), linear(h, w_hh, b_hh), is_relu)
            return h, h

        return form.walk(step, (h,), reverse)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, glast: Tensor | None) -> tuple:
        *inputs, out = ctx.saved_tensors
        is_relu, form, reverse = ctx.options
        g = _of_all(g, out)
        if grad_mode.enabled:
            layer = partial(Rnn.steps, is_relu=is_relu, form=form, reverse=reverse)
            return again(ctx.needs_input_grad, layer, inputs, (g, glast))
        needs = ctx.needs_input_grad
        shared = needs[0], *needs[2:6]
        given = g, glast, *inputs[:4], out, *ctx.options, shared
        gh0, _, *made = _rnn_grads(*given)
        gx, *rest = _dealt(shared, iter(made), True)
        return gx, gh0, *rest


def _rnn_grads(
    g: Tensor, glast: Tensor | None, x: Tensor, h0: Tensor | None, w_ih: Tensor, w_hh: Tensor,
    out: Tensor, is_relu: bool, form: Form, reverse: bool, needs: tuple[bool, ...],
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients of h0, of what the input gave, and ``_shared_grads``."""
    ggiven = new_empty(out._array.shape, x._dtype, x._device)
    glast = _zeros(glast, w_hh._array.shape[1], form, x)
    gh0 = new_empty(glast._array.shape, x._dtype, x._device)
    arrays = [_flat(t) for t in (ggiven, gh0, g, glast, out, w_hh)]
    starts = form.starts(gh0._array)
    machine.launch(recurrent.rnn_grad, *arrays, starts, int(is_relu), int(reverse))
    return gh0, ggiven, *_shared_grads(needs, ggiven, ggiven, x, h0, out, w_ih, form, reverse)


_rnn_grads = remembered(_rnn_grads)


class Lstm(Op, remembers=True):
    """Long short-term memory: all h (t, n, p), the last h, and the last c.

    h has the m numbers of c, or with ``w_hr`` (p, m) as many as it is projected to.
    """

    shown, zeros = 3, False

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h0: Tensor | None, c0: Tensor | None, w_ih: Tensor, w_hh: Tensor,
        b_ih: Tensor | None, b_hh: Tensor | None, w_hr: Tensor | None, form: Form, reverse: bool,
    ) -> tuple:  # fmt: skip
        gates = affine(x, w_ih, _both(b_ih, b_hh))
        lead, n, p, m = form.lead, form.sizes[0], w_hh._array.shape[1], w_hh._array.shape[0] // 4
        wide = (0, 0) if w_hr is None else (*lead, m)
        shapes = (*lead, p), wide, (*lead, m), (n, p), (n, m)
        made = [new_empty(shape, x._dtype, x._device) for shape in shapes]
        begin = _zeros(h0, p, form, x), _zeros(c0, m, form, x)
        arrays = [_flat(t) for t in (gates, *made, *begin, w_hh, _narrow(w_hr, x))]
        machine.launch(recurrent.lstm, *arrays, form.starts(arrays[0]), int(reverse))
        out, wide_out, cells, last, last_cell = made
        ctx.options = form, reverse
        inner = (gates, cells) if w_hr is None else (gates, cells, wide_out)
        ctx.save(x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, out, *inner)
        return out, last, last_cell, *inner

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
        given, (rows, p) = linear(x, w_ih, b_ih), w_hh._array.shape
        h, c = _zeros(h, p, form, x), _zeros(c, rows // 4, form, x)

        def step(t: int, h: Tensor, c: Tensor) -> tuple:
            h, c = lstm_step(form.part(given, t), linear(h, w_hh, b_hh), c)
            h = h if w_hr is None else linear(h, w_hr)
            return h, h, c

        return form.walk(step, (h, c), reverse)

    @staticmethod
    def backward(ctx: Any, g: Any, glast: Any, glast_cell: Any) -> tuple:
        saved = ctx.saved_tensors
        form, reverse = ctx.options
        g = _of_all(g, saved[8])
        if grad_mode.enabled:
            layer = partial(Lstm.steps, form=form, reverse=reverse)
            return again(ctx.needs_input_grad, layer, saved[:8], (g, glast, glast_cell))
        x, h0, c0, w_ih, w_hh, _, _, w_hr, out, gates, cells, *wide_out = saved
        needs = ctx.needs_input_grad
        shared = needs[0], *needs[3:7]
        given = g, glast, glast_cell, x, h0, c0, w_ih, w_hh, w_hr, out, gates, cells
        gh0, gc0, _, *made = _lstm_grads(*given, form, reverse, shared)
        gw_hr = None
        if w_hr is not None:
            gout, *made = made
            gw_hr = product(_rows(gout), _rows(wide_out[0]), 1) if needs[7] else None
        gx, *rest = _dealt(shared, iter(made), True)
        return gx, gh0, gc0, *rest, gw_hr


def _lstm_grads(
    g: Tensor, glast: Tensor | None, glast_cell: Tensor | None, x: Tensor, h0: Tensor | None,
    c0: Tensor | None, w_ih: Tensor, w_hh: Tensor, w_hr: Tensor | None, out: Tensor, gates: Tensor,
    cells: Tensor, form: Form, reverse: bool, needs: tuple[bool, ...],
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients of h0, c0, what the gates were given, with ``w_hr`` of each h, and
    ``_shared_grads``."""
    every = (0, 0) if w_hr is None else out._array.shape
    n, p, m = form.sizes[0], w_hh._array.shape[1], w_hh._array.shape[0] // 4
    shapes = gates._array.shape, (n, p), (n, m), every
    made = [new_empty(shape, x._dtype, x._device) for shape in shapes]
    ends = _zeros(glast, p, form, x), _zeros(glast_cell, m, form, x)
    given = g, *ends, gates, cells, _zeros(c0, m, form, x), w_hh, _narrow(w_hr, x)
    arrays = [_flat(t) for t in (*made, *given)]
    machine.launch(recurrent.lstm_grad, *arrays, form.starts(arrays[0]), int(reverse))
    ggates, gh0, gc0, *gout = made if w_hr is not None else made[:3]
    shared = _shared_grads(needs, ggates, ggates, x, h0, out, w_ih, form, reverse)
    return gh0, gc0, ggates, *gout, *shared


_lstm_grads = remembered(_lstm_grads)


def _narrow(w_hr: Tensor | None, x: Tensor) -> Tensor:
    """What h is projected with; nothing for the kernel that does not."""
    return new_empty((0, 0), x._dtype, x._device) if w_hr is None else w_hr


class Gru(Op, remembers=True):
    """A gated recurrent unit: all h (t, n, m), and the last."""

    shown, zeros = 2, False

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h0: Tensor | None, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None,
        b_hh: Tensor | None, form: Form, reverse: bool,
    ) -> tuple:  # fmt: skip
        gates = affine(x, w_ih, b_ih)
        m = w_hh._array.shape[1]
        shapes = (*form.lead, m), (*form.lead, m), (form.sizes[0], m)
        made = [new_empty(shape, x._dtype, x._device) for shape in shapes]
        arrays = [_flat(t) for t in (gates, *made, _zeros(h0, m, form, x), w_hh)]
        bias = arrays[-1].reshape(-1) if b_hh is None else contiguous(b_hh)._array
        options = form.starts(bias), int(b_hh is not None), int(reverse)
        machine.launch(recurrent.gru, *arrays, bias, *options)
        out, held, last = made
        ctx.options = form, reverse
        ctx.save(x, h0, w_ih, w_hh, b_ih, b_hh, out, gates, held)
        return out, last, gates, held

    @staticmethod
    def again(ctx: Any, *saved: Any) -> Any:
        """All h."""
        return Gru.forward(_Forgetting(), *saved[:6], *ctx.options)[0]

    @staticmethod
    def steps(
        x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, form: Form, reverse: bool
    ) -> tuple:
        """``forward`` by operations on the tape."""
        given, h = linear(x, w_ih, b_ih), _zeros(h, w_hh._array.shape[1], form, x)

        def step(t: int, h: Tensor) -> tuple:
            h = gru_step(form.part(given, t), linear(h, w_hh, b_hh), h)
            return h, h

        return form.walk(step, (h,), reverse)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, glast: Tensor | None) -> tuple:
        *inputs, out, gates, held = ctx.saved_tensors
        form, reverse = ctx.options
        g = _of_all(g, out)
        if grad_mode.enabled:
            layer = partial(Gru.steps, form=form, reverse=reverse)
            return again(ctx.needs_input_grad, layer, inputs, (g, glast))
        needs = ctx.needs_input_grad
        shared = needs[0], *needs[2:6]
        given = g, glast, *inputs[:4], out, gates, held, *ctx.options, shared
        gh0, _, _, *made = _gru_grads(*given)
        gx, *rest = _dealt(shared, iter(made), False)
        return gx, gh0, *rest


def _gru_grads(
    g: Tensor, glast: Tensor | None, x: Tensor, h0: Tensor | None, w_ih: Tensor, w_hh: Tensor,
    out: Tensor, gates: Tensor, held: Tensor, form: Form, reverse: bool, needs: tuple[bool, ...],
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients of h0, of what the input and the state gave, and ``_shared_grads``."""
    ggates, gheld = [new_empty(gates._array.shape, x._dtype, x._device) for _ in range(2)]
    m = w_hh._array.shape[1]
    glast, h0 = _zeros(glast, m, form, x), _zeros(h0, m, form, x)
    gh0 = new_empty(glast._array.shape, x._dtype, x._device)
    arrays = [_flat(t) for t in (ggates, gheld, gh0, g, glast, gates, held, out, h0, w_hh)]
    machine.launch(recurrent.gru_grad, *arrays, form.starts(arrays[0]), int(reverse))
    shared = _shared_grads(needs, ggates, gheld, x, h0, out, w_ih, form, reverse)
    return gh0, ggates, gheld, *shared


_gru_grads = remembered(_gru_grads)
