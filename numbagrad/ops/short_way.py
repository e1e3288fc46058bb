"""The short way from a call of an elementwise op to its kernel, for the commonest operands.

``unary`` and ``binary`` repeat what ``PointwiseOp.general`` does, with the verbs ``empty`` and
``launch`` written out: 0.8 us an op where ``general`` takes 3. Operands that broadcast or lie apart
take 1.5 us where the same have come before; ``mixed``, of three operands and more, takes 1.6.

``surplus`` and ``_out`` are no parameters of what users see: see ``out.py``. A keyword-only ``out``
would cost each call 30 ns, a test that both are None costs 5 to 10.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..kernels import machine
from ..later import OUR_FILES
from ..tape import (
    NUMBERS,
    Rare,
    SavedOutput,
    grad_mode,
    next_sequence,
    user_location,
)
from ..tensor import Tensor
from .pointwise_node import PointwiseNode, SavePlan

if TYPE_CHECKING:
    from .pointwise import PointwiseOp

_new = object.__new__
empty, SMALL = np.empty, 1 << 15
"""What makes arrays of up to so many elements; larger ones may lie in blocks that are kept."""
getframe = sys._getframe
OPERANDS = (Tensor, float, int, bool, np.generic, np.ndarray)


def never(*args: Any) -> bool:
    """Stands for a kernel that does not take the short way."""
    return False


def _nested(op: PointwiseOp, nest: tuple, args: tuple, edges: tuple, arrays: tuple) -> Tensor:
    """The result by a loop nest that was planned for such operands before."""
    loop, layout, shape, out_dtype, numpy_dtype, floating, rare, plans, make = nest
    out = _new(Tensor)
    out._array = array = make(shape, numpy_dtype)
    out._dtype = out_dtype
    out._counter = out._edge = None
    if not array.flags.c_contiguous:
        out._flat = False
    loop(layout, (array, *arrays))
    which = (edges[0] is not None) + 2 * (edges[-1] is not None)
    if which and floating and grad_mode.enabled:
        out._edge = node = _new(PointwiseNode)
        node._edges = edges
        node._sequence = next_sequence()
        node._hooks = None
        node._rare = rare
        plan = plans[which]
        if plan is None:
            plan = plans[which] = op.plan(edges)
        node.plan = plan
        if plan.nothing:
            node._saved = ()
            return out
        keep = plan.keep
        saved: Any = (args[0] if keep[0] else None,)
        if len(args) > 1:
            saved = (*saved, args[1] if keep[1] else None)
        if plan.keep_out:
            saved = (*saved, SavedOutput(out, 0))
        if args[0]._counter is not None or args[-1]._counter is not None:
            node._rare = Rare()  # with versions of its own
            node._rare.meta = rare and rare.meta
            node._save(saved)
            return out
        node._saved = saved
        frame = getframe(2)
        code = frame.f_code
        inside = OUR_FILES[code.co_filename]
        node._where = user_location(3) if inside else (code, frame.f_lasti)
    return out


def make_unary(op: PointwiseOp) -> Callable:
    """``op`` of one tensor."""
    fast, nests, general = op.fast, op.nests, op.general
    plan_x: SavePlan | None = None

    def unary(x: Tensor, surplus: Any = None, _out: Any = None) -> Tensor:
        nonlocal plan_x
        if (
            _out is surplus is None
            and isinstance(x, Tensor)
            and (not machine.recording or machine.on_host(x))
        ):
            array = x._array
            dtype = x._dtype
            found = fast.get(dtype)
            if found is None:
                found = op.prepare(dtype, (dtype,), (array.dtype,))
            entry, out_dtype, numpy_dtype, floating = found
            make = empty if array.size < SMALL else machine.empty
            out_array = make(array.shape, numpy_dtype)
            if entry(out_array, array):
                out = _new(Tensor)
                out._array = out_array
                out._dtype = out_dtype
                out._counter = None
                edge = x._edge
                if edge is None or not floating or not grad_mode.enabled:
                    out._edge = None
                    return out
                out._edge = node = _new(PointwiseNode)
                node._edges = (edge,)
                node._sequence = next_sequence()
                node._hooks = node._rare = None
                node.plan = plan = plan_x = plan_x or op.plan((edge,))
                if plan.nothing:
                    node._saved = ()
                else:
                    x_saved = x if plan.keep[0] else None
                    saved = (x_saved, SavedOutput(out, 0)) if plan.keep_out else (x_saved,)
                    if x._counter is not None:
                        node._save(saved)
                    else:
                        node._saved = saved
                        frame = getframe(1)
                        code = frame.f_code
                        if OUR_FILES[code.co_filename]:
                            node._where = user_location(2)
                        else:
                            node._where = (code, frame.f_lasti)
                return out
            # It is large: malloc would give it and a second one beside it back to the system.
            del out_array
            nest = nests.get((dtype, array.shape, array.strides))
            if nest is not None:
                return _nested(op, nest, (x,), (x._edge,), (array,))
        return general((x,)) if _out is surplus is None else op.into((x,), surplus, _out)

    return unary


def make_binary(op: PointwiseOp, operator: bool) -> Callable:
    """``op`` of two operands.

    operator: whether an operand that we do not know gives NotImplemented.
    """
    fast, nests, general = op.fast, op.nests, op.general
    both: SavePlan | None = None
    first: SavePlan | None = None
    second: SavePlan | None = None
    number: SavePlan | None = None

    def binary(x: Any, y: Any, surplus: Any = None, _out: Any = None) -> Any:
        nonlocal both, first, second, number
        if (operator or (_out is surplus is None and isinstance(x, Tensor))) and (
            not machine.recording or machine.on_host(x, y)
        ):
            array = x._array
            dtype = x._dtype
            if isinstance(y, Tensor):
                small = array.size < SMALL  # large memory is not asked for in vain
                if y._dtype is dtype and (small or array.shape == y._array.shape):
                    found = fast.get(dtype)
                    if found is None:
                        found = op.prepare(dtype, (dtype, dtype), (array.dtype, array.dtype))
                    entry, out_dtype, numpy_dtype, floating = found
                    make = empty if small else machine.empty
                    out_array = make(array.shape, numpy_dtype)
                    if entry(out_array, array, y._array):
                        out = _new(Tensor)
                        out._array = out_array
                        out._dtype = out_dtype
                        out._counter = None
                        ex = x._edge
                        ey = y._edge
                        if (ex is ey is None) or not floating or not grad_mode.enabled:
                            out._edge = None
                            return out
                        out._edge = node = _new(PointwiseNode)
                        node._edges = edges = (ex, ey)
                        node._sequence = next_sequence()
                        node._hooks = node._rare = None
                        if ey is None:
                            plan = first = first or op.plan(edges)
                        elif ex is None:
                            plan = second = second or op.plan(edges)
                        else:
                            plan = both = both or op.plan(edges)
                        node.plan = plan
                        if plan.nothing:
                            node._saved = ()
                            return out
                        keep_x, keep_y = plan.keep
                        saved: Any = (x if keep_x else None, y if keep_y else None)
                        if plan.keep_out:
                            saved = (*saved, SavedOutput(out, 0))
                        if x._counter is not None or y._counter is not None:
                            node._save(saved)
                        else:
                            node._saved = saved
                            frame = getframe(1)
                            code = frame.f_code
                            if OUR_FILES[code.co_filename]:
                                node._where = user_location(2)
                            else:
                                node._where = (code, frame.f_lasti)
                        return out
                    del out_array
                beside = y._array
                nest = nests.get(
                    (dtype, array.shape, array.strides, y._dtype, beside.shape, beside.strides)
                )
                if nest is not None:
                    return _nested(op, nest, (x, y), (x._edge, y._edge), (array, beside))
            elif type(y) in NUMBERS:
                key = (dtype, type(y))
                found = fast.get(key)
                if found is None:
                    found = op.prepare(key, (dtype, y), (array.dtype, type(y)))
                entry, out_dtype, numpy_dtype, floating = found
                make = empty if array.size < SMALL else machine.empty
                out_array = make(array.shape, numpy_dtype)
                if entry(out_array, array, y):
                    out = _new(Tensor)
                    out._array = out_array
                    out._dtype = out_dtype
                    out._counter = None
                    out._edge = None
                    edge = x._edge
                    if edge is None or not floating or not grad_mode.enabled:
                        return out
                    if dtype is not out_dtype:
                        op.record((x, y), (edge, None), out)
                        return out
                    out._edge = node = _new(PointwiseNode)
                    node._edges = edges = (edge, None)
                    node._sequence = next_sequence()
                    node._hooks = node._rare = None
                    node.plan = plan = number = number or op.plan(edges, (False, True))
                    if plan.nothing:
                        node._saved = ()
                        return out
                    saved = (x if plan.keep[0] else None, y)
                    if plan.keep_out:
                        saved = (*saved, SavedOutput(out, 0))
                    if x._counter is not None:
                        node._save(saved)
                    else:
                        node._saved = saved
                        frame = getframe(1)
                        code = frame.f_code
                        if OUR_FILES[code.co_filename]:
                            node._where = user_location(2)
                        else:
                            node._where = (code, frame.f_lasti)
                    return out
                del out_array
        if operator:
            if isinstance(y, OPERANDS) or type(y).__module__ == "torch":  # then it says whose
                return general((x, y))
            return NotImplemented
        return general((x, y)) if _out is surplus is None else op.into((x, y), surplus, _out)

    if operator:  # which reads neither surplus nor _out; a slot fills two defaults in 15 ns
        binary.__code__ = binary.__code__.replace(co_argcount=2)
        binary.__defaults__ = None
    return binary


def make_mixed(op: PointwiseOp) -> Callable[[tuple], Tensor]:
    """``op`` of as many operands as it has inputs, each a tensor or a number."""
    fast, general = op.fast, op.general
    plans: dict[Any, SavePlan | None] = {}  # None: an operand has another dtype than the result

    def mixed(args: tuple) -> Tensor:
        if machine.recording and not machine.all_on_host(args):
            return general(args)
        key = tuple([a._dtype if isinstance(a, Tensor) else type(a) for a in args])
        found = fast.get(key) or op.prepared(args)
        if found is None:
            return general(args)
        entry, out_dtype, numpy_dtype, floating = found
        arrays = [a._array if isinstance(a, Tensor) else a for a in args]
        for array in arrays:
            if type(array) is np.ndarray:
                break
        make = empty if array.size < SMALL else machine.empty
        out_array = make(array.shape, numpy_dtype)
        if not entry(out_array, *arrays):
            del out_array
            return general(args)
        out = _new(Tensor)
        out._array = out_array
        out._dtype = out_dtype
        out._counter = out._edge = None
        if not floating or not grad_mode.enabled:
            return out
        edges = tuple([a._edge if isinstance(a, Tensor) else None for a in args])
        needs = tuple([e is not None for e in edges])
        if True not in needs:
            return out
        if (key, needs) not in plans:
            same = all([k is out_dtype for k, need in zip(key, needs, strict=True) if need])
            numbers = tuple([type(a) in NUMBERS for a in args])
            plans[key, needs] = op.plan(edges, numbers) if same else None
        plan = plans[key, needs]
        if plan is None or any([isinstance(a, Tensor) and a._counter is not None for a in args]):
            op.record(args, edges, out)
            return out
        out._edge = node = _new(PointwiseNode)
        node._edges = edges
        node._sequence = next_sequence()
        node._hooks = node._rare = None
        node.plan = plan
        if plan.nothing:
            node._saved = ()
            return out
        saved = [a if k else None for a, k in zip(args, plan.keep, strict=True)]
        node._saved = (*saved, SavedOutput(out, 0)) if plan.keep_out else tuple(saved)
        node._where = user_location(2)
        return out

    return mixed
