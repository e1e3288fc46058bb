"""How a remembered call is done again: what its arguments must be, and the text that does it.

``kernels/replay.py`` compares arguments and runs kernels; here is what it is told, and what Python
does around it: results are made before, and after. Start reading at ``plan_of``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..dtypes import DType
from ..kernels import blocks
from ..kernels.machine import Kernel
from ..later import OUR_FILES
from ..shaped import Size
from ..tensor import Tensor

__all__: list[str] = []  # nothing that users call

TENSORS: list[type] = [Tensor]
"""The classes of tensors whose functions are those of ``Tensor``, at most two."""

_NAMES = ("_array", "_edge", "_base")
_PLAIN = (int, bool, str, type(None))
_SINGLE = (float, DType, type, type(...))

_new = object.__new__

GENERATED = "<functions that remember>"
"""Where tracebacks say that the generated text stands."""

OUR_FILES[GENERATED] = True


Plan = Callable[..., Any]
"""``plan(flat, taped)`` gives the result, of an op ``plan(ctx, args)``; or what ``replay`` says
where nothing was done."""


def kinds_of(flat: tuple[Any, ...]) -> list[Any] | None:
    """What a plan needs to know of arguments; of one that came before where that was. None where
    one cannot be compared."""
    kinds: list[Any] = []
    seen: dict[int, int] = {}
    for place, value in enumerate(flat):
        if type(value) not in TENSORS:
            plain = value
            if type(value) is slice:  # which cannot be hashed before Python 3.12
                plain = (value.start, value.stop, value.step)
            if not _is_plain(plain):
                if not (isinstance(value, Kernel) or _is_frozen(value)):
                    return None
                plain = id(value)
            kinds.append((type(value), plain))
        elif (before := seen.setdefault(id(value), place)) != place:
            kinds.append(before)
        else:
            kinds.append((value._array.shape, value._array.strides, value._dtype))
    return kinds


def _is_plain(value: Any) -> bool:
    """Whether a plan can compare an argument: numbers, words, dtypes, and tuples of some."""
    if type(value) in _PLAIN or type(value) in _SINGLE:
        return True
    if type(value) in (tuple, Size):
        return all([type(v) in _PLAIN for v in value])
    return False


def _is_frozen(value: Any) -> bool:
    """Whether ``value`` is a frozen dataclass that holds no array, or is equal to itself alone."""
    options = getattr(type(value), "__dataclass_params__", None)
    if options is None or not options.frozen:
        return False
    # Its fields: what it has worked out from them lies beside these.
    return not options.eq or is_constant(tuple([getattr(value, n) for n in fields_of(value)]))


def fields_of(value: Any) -> list[str]:
    """The names of a dataclass's fields."""
    return list(value.__dataclass_fields__)


def is_constant(value: Any) -> bool:
    """Whether a note of an op is the same for all calls of a kind."""
    if type(value) is slice:
        value = (value.start, value.stop, value.step)
    if isinstance(value, tuple):
        return all([is_constant(v) for v in value])
    return _is_plain(value) or isinstance(value, Kernel) or _is_frozen(value)


def plan_of(
    launches: Any,
    flat: tuple[Any, ...],
    results: tuple[Any, ...],
    tail: str,
    kind: type = tuple,
    *,
    of_op: bool = False,
    history: str = "taped",
    **values: Any,
) -> Plan | None:
    """How to make ``results`` again, or None.

    tail: text of what the plan does with them, which are t0, t1 ... there, on arrays a0, a1
    ... Its parameters are ``args`` and ``taped``; of an op ``ctx`` and ``args``. ``make`` makes a
    ``kind`` of a tuple; it sees ``values``. history: text that says whether an argument may have
    none.
    """
    from ..kernels import replay

    if not all([type(r) is Tensor and r._edge is None for r in results]):
        return None
    arrays = [r._array for r in results]
    if any([type(a) is not np.ndarray or not a.size for a in arrays]):
        return None
    head = [len(flat), *map(id, (TENSORS[0], TENSORS[-1], np.ndarray, *_NAMES, None))]
    found = launches.finish(head, _records(flat), arrays)
    if found is None:
        return None
    words, kept, room = found
    known = {"run": replay.replay(), "words": words, "empty": np.empty, "ndarray": np.ndarray}
    known["block"] = blocks.empty
    known |= {"new": _new, "Tensor": Tensor, "make": functools.partial(tuple.__new__, kind)}
    # What ``words`` have the addresses of must live as long as they do.
    dtypes = [a._array.dtype for a in flat if type(a) in TENSORS]
    known |= {"kept": (kept, dtypes, [a for a in flat if type(a) not in TENSORS]), **values}
    lines, names = [], ""
    for k, r in enumerate(results):
        known |= {f"s{k}": r._array.shape, f"n{k}": r._array.dtype, f"d{k}": r._dtype}
        made = f"empty(s{k}, n{k})"
        if r._array.nbytes >= blocks.LARGE:
            known[f"b{k}"] = r._array.nbytes
            made = f"block(s{k}, n{k}, b{k})"
        if not r._array.flags.c_contiguous:
            known[f"z{k}"] = r._array.strides
            memory = made if f"b{k}" in known else "None"
            made = f"ndarray(s{k}, n{k}, {memory}, 0, z{k})"
        lines.append(f"a{k} = {made}")
        names += f"a{k}, "
    if room:
        known |= {"room": room, "shape": (room,), "byte": np.dtype(np.int8)}
        made = "block(shape, byte, room)" if room >= blocks.LARGE else "empty(shape, byte)"
        lines.append(f"between = {made}")
        names += "between, "
    lines.append(f"state = run(words, args, ({names}), {history})")
    lines.append("if state != 1: return state")
    for k in range(len(results)):
        lines.append(f"t{k} = new(Tensor); t{k}._array = a{k}; t{k}._dtype = d{k}")
        lines.append(f"t{k}._edge = t{k}._counter = None")
        if f"z{k}" in known:
            lines.append(f"t{k}._flat = False")
    start = "def call(ctx, args, taped=False):" if of_op else "def call(args, taped):"
    exec(_compiled("\n    ".join([start, *lines, *tail.split("\n")])), known)
    plan: Plan = known["call"]
    return plan


@functools.lru_cache(maxsize=512)
def _compiled(text: str) -> Any:
    return compile(text, GENERATED, "exec")


def _records(flat: tuple[Any, ...]) -> list[list[int]]:
    """What ``replay`` compares arguments with."""
    from ..kernels.launches import bits, bounds, shared
    from ..kernels.replay import AGAIN, ARRAY, EQUAL, FIELDS, ITEMS, MEMBERS, REAL, SAME

    records: list[list[int]] = []
    kinds = kinds_of(flat) or []
    near = iter(shared([a._array for a in {id(a): a for a in flat if type(a) in TENSORS}.values()]))
    for value, kind in zip(flat, kinds, strict=True):
        if type(kind) is int:
            record = [AGAIN, kind, 0, 0, 0]
        elif type(value) in TENSORS:
            array = value._array
            record = [ARRAY, id(array.dtype), array.ndim, *bounds(array)[1:], *next(near)]
            record += [*array.shape, *array.strides]
        elif type(value) is float:
            record = [REAL, id(value), id(float), bits(value), 0]
        elif type(value) in (tuple, Size):
            record = [MEMBERS, id(value), id(type(value)), len(value), ITEMS]
        elif type(value) is slice:
            record = [MEMBERS, id(value), id(slice), 3, FIELDS]
        elif type(value) in (int, str):
            record = [EQUAL, id(value), id(type(value)), 0, 0]
        else:
            record = [SAME, id(value), 0, 0, 0]
        records.append(record)
    return records
