"""``detect_anomaly``: stop at the operation that makes the first NaN, forward or backward.

A ``Watcher`` stands behind the verbs as a recorder does: it runs every kernel and then looks at
what the kernel has written. Start reading at ``Watcher.launch``.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from ..errors import NonFiniteError, RecordingError
from ..graph_walk import origin
from ..kernels import machine
from ..kernels.cpu import finite
from ..kernels.cuda.runtime.array import DeviceArray
from ..kernels.halves import decoded, is_floating
from ..kernels.machine import Kernel
from ..tape import Location, grad_mode, name_of, show_location, standing_behind, user_location

__all__ = ["detect_anomaly", "set_detect_anomaly"]

KINDS = ("nan", "inf", "-inf")


class Watcher:
    """Runs what the verbs say and raises NonFiniteError after a kernel that made a bad value.

    only_nan: whether inf is fine.
    """

    compiles, records = False, True

    def __init__(self, only_nan: bool):
        self.only_nan = only_nan
        self.looked_for = "nan" if only_nan else "inf"

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, device: Any) -> Any:
        """Zeros, so that memory which a kernel leaves as it was is never found bad."""
        if device is not None and device.type != "cpu":
            return machine.open_cuda().zeros(shape, dtype, device)
        return np.zeros(shape, dtype)

    def launch(self, kernel: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Run ``kernel`` and look at the arrays that it may have written."""
        outputs = kernel.outputs if isinstance(kernel, Kernel) else None
        before = [(first_bad(a, self.only_nan), a) for a in _arrays(args)]
        if machine.away is None or not machine.away.run(kernel, args):
            kernel(*args)
        given = [(found, a) for found, a in before if found is not None]
        # Of a function that does not say what it writes, what was bad before was read.
        fine = [] if outputs is not None else [id(a) for _, a in given]
        for out in _arrays(args[:outputs]):
            found = first_bad(out, self.only_nan)
            if found is None or id(out) in fine:
                continue
            where, node = origin(2)
            name = getattr(kernel, "__name__", type(kernel).__name__)
            told, shape = ("", out.shape)
            if given:
                (found, array), told = given[0], "a tensor it was given"
                shape = array.shape
            assert found is not None
            raise_not_finite(name, node, where, found[1], found[0], shape, told)

    def gradients(self, node: Any, results: Sequence[Any]) -> None:
        """Look at what a node's backward returned."""
        for index, result in enumerate(results):
            if result is not None:
                found = first_bad(result._array, self.only_nan)
                if found is not None:
                    at, kind = found
                    where = getattr(node, "_where", None)
                    told = f"gradient {index}"
                    raise_not_finite(
                        name_of(node), name_of(node), where, kind, at, result._array.shape, "", told
                    )

    def check(self, flag: np.ndarray, fail: Callable[[int], None]) -> None:
        """What ``machine.check`` does, at once on a GPU too."""
        if flag[0] >= 0:
            fail(int(flag[0]))

    def depends(self, read: Callable[[], Any], value: Any) -> None:
        """Nothing: no one runs this again."""

    def bind(self, array: np.ndarray) -> None:
        """Nothing: arrays are what they are."""

    def adopt(self, tensor: Any, undo: Callable[[], None]) -> None:
        """Nothing: state is made for real."""

    def undo(self, function: Callable[[], None]) -> None:
        """Nothing: what an error leaves behind stays, as without a watcher."""

    def reading(self, name: str, array: np.ndarray) -> None:
        """Nothing: there are values to look at."""

    def deciding(self, name: str, array: np.ndarray) -> bool:
        """Nothing is written down, so nothing depends on it."""
        return False

    def outside(self, name: str, way_out: str) -> None:
        """Nothing: Python runs each time."""

    def afterwards(self, name: str, function: Any, options: Any) -> bool:
        """Nothing is put off, likewise."""
        return False

    def accumulating(self, leaf: Any) -> None:
        """Nothing: it is added for real."""

    def position(self) -> None:
        """None: nothing is written down."""

    def go_back(self, position: None) -> None:
        """Nothing: there is nothing to forget."""

    def set_data(self, tensor: Any) -> None:
        """Nothing: it is set for real."""

    def counts_from_start(self, name: str, tensor: Any) -> None:
        """Nothing: the memory that is looked at is the tensor's own."""

    def set_sizes(self, name: str, tensor: Any) -> None:
        """Nothing: they are set for real."""

    def carrying(self, container: dict[str, Any], name: str) -> None:
        """Nothing: it is set for real."""

    def reading_options(self, options: dict[str, Any]) -> None:
        """Nothing: they are read each time."""

    def setting(self, options: Any, name: str, value: Any) -> None:
        """Nothing: an option is set for real."""

    def unchanged(self, options: Any) -> None:
        """Whatever it is: nothing is put off."""

    def late(self, name: str, options: Any, read: Any) -> None:
        """Nothing: an option is what it is now."""

    def unknown(self, array: Any) -> bool:
        """Never: all that runs has values."""
        return False

    def freeing(self, node: Any) -> None:
        """Nothing: it is run back for real."""

    def freeze(self, array: Any) -> None:
        """Nothing: rows that a mask selects are views of their own."""

    def settled(self, array: Any) -> None:
        """Nothing: all that runs has values."""

    def is_new(self, array: Any) -> bool:
        """Never: nobody has counted."""
        return False


def _arrays(args: Sequence[Any]) -> Iterator[Any]:
    """The floating arrays among ``args`` and the lists among them."""
    for arg in args:
        for a in arg if type(arg) is list else (arg,):
            if isinstance(a, (np.ndarray, DeviceArray)) and is_floating(a.dtype):
                yield a


def first_bad(array: Any, only_nan: bool) -> tuple[int, str] | None:
    """Row-major position and kind of the first bad element of ``array``, or None."""
    if type(array) is DeviceArray:
        return _first_on_gpu(array, only_nan)
    if not isinstance(array, np.ndarray) or not is_floating(array.dtype):
        return None
    array = decoded(array)
    bad = np.isnan(array) if only_nan else ~np.isfinite(array)
    if not bad.any():
        return None
    at = int(bad.argmax())
    value = array[np.unravel_index(at, array.shape)]
    return at, KINDS[0] if value != value else KINDS[1] if value > 0 else KINDS[2]


def _first_on_gpu(array: DeviceArray, only_nan: bool) -> tuple[int, str] | None:
    """``first_bad``, of which one number comes to the host."""
    if not is_floating(array.dtype) or not array.size:
        return None
    away = machine.open_cuda()
    flag = away.empty((1,), np.dtype(np.int64), array.device)
    away.run(finite.first_bad, (flag, array, only_nan))
    at, kind = divmod(int(flag.get()[0]), 3)
    return None if at < 0 else (at, KINDS[kind])


def raise_not_finite(
    op: str,
    node: str,
    where: Location | None,
    kind: str,
    at: int,
    shape: tuple[int, ...],
    given: str = "",
    told: str = "its result",
) -> NoReturn:
    """Raise NonFiniteError.

    node: of the backward pass in which ``op`` ran, or "". where: the user's line, of the forward
    operation if backward. at: row-major position of the bad value. given: what held the value
    before the op ran, if one did.
    """
    index = [int(i) for i in np.unravel_index(at, shape)]
    line = show_location(where)
    if node:
        inside = "" if op == node else f" (in {op})"
        who = f"backward: {node}{inside}, whose forward operation ran at {line},"
    else:
        who = f"forward: {op} at {line}"
    if given:
        raise NonFiniteError(
            f"{who} met {kind} at index {index} of {given} (shape {list(shape)}): the value was "
            f"there before. Look at what made it, or replace it (ng.nan_to_num, ng.where)."
        )
    raise NonFiniteError(
        f"{who} returned {kind} at index {index} of {told}, of shape {list(shape)}; "
        f"nothing that it was given was {kind}."
    )


class watching:
    """``watcher`` stands behind the verbs in the block; None: none of those around it does.

    name, way_out: of the block, and what else to do, for the error where a function is recorded.
    """

    def __init__(self, watcher: Watcher | None, name: str, way_out: str = ""):
        self._watcher, self._name, self._way_out = watcher, name, way_out

    def __enter__(self) -> None:
        if machine.is_recording() and grad_mode.anomaly is None:
            raise RecordingError(
                f"{self._name}: not possible inside a compiled function, at "
                f"{show_location(user_location())}: {self._way_out}call the compiled function "
                f"inside {self._name}."
            )
        self._inside = standing_behind(self._watcher)
        self._inside.__enter__()
        self._held, grad_mode.anomaly = grad_mode.anomaly, self._watcher
        machine.watched_by(1)

    def __exit__(self, *exception: Any) -> None:
        grad_mode.anomaly = self._held
        self._inside.__exit__(None, None, None)
        machine.watched_by(-1)


class detect_anomaly:
    """In the block, raise where a value first becomes NaN, in forward or backward.

    check_inf: look for infinities too (masks filled with -inf are found then). check_nan: False
    makes the block do nothing. Raises NonFiniteError, which names the operation, the user's line,
    and the index and shape. Each value is looked at twice: for debugging. Compiled functions run
    with ``check_finite`` inside. Also a decorator.

    >>> with detect_anomaly():
    ...     tensor([4.0]).log().tolist()
    [1.3862943649291992]
    """

    def __new__(cls, check_nan: Any = True, *, check_inf: bool = False) -> Any:
        """``@detect_anomaly`` without a call decorates."""
        self = object.__new__(cls)
        if callable(check_nan):
            self._watch, self._only_nan = True, True
            return self(check_nan)
        self._watch, self._only_nan = bool(check_nan), not check_inf
        return self

    _watch: bool
    _only_nan: bool

    def __enter__(self) -> None:
        watcher = Watcher(self._only_nan) if self._watch else None
        block = watching(watcher, "detect_anomaly", "use ng.compile(..., check_finite=True), or ")
        block.__enter__()
        self.__dict__.setdefault("_stack", []).append(block)

    def __exit__(self, *exception: Any) -> None:
        self.__dict__["_stack"].pop().__exit__(None, None, None)

    def __call__(self, function: Callable) -> Callable:
        """``function``, each call of it inside the block."""
        watch, check_inf = self._watch, not self._only_nan

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with detect_anomaly(watch, check_inf=check_inf):
                return function(*args, **kwargs)

        return wrapper


class _Lasting(threading.local):
    block: detect_anomaly | None = None


_lasting = _Lasting()
"""Per thread: what ``set_detect_anomaly`` has turned on."""


class set_detect_anomaly:
    """Turn ``detect_anomaly`` on or off from here on, in this thread.

    mode: whether to look; check_nan and check_inf as there. In a ``with`` statement what held
    before is back after the block. Turn it off where it was turned on, not in another block.

    >>> with set_detect_anomaly(True):
    ...     tensor([4.0]).log().tolist()
    [1.3862943649291992]
    """

    def __init__(self, mode: bool, check_nan: bool = True, *, check_inf: bool = False):
        self._before = _lasting.block
        self._set(detect_anomaly(check_nan, check_inf=check_inf) if mode else None)

    @staticmethod
    def _set(block: detect_anomaly | None) -> None:
        if block is not None:
            block.__enter__()  # raises inside a compiled function, and then nothing has changed
            block.__exit__()
        if _lasting.block is not None:
            _lasting.block.__exit__()
        _lasting.block = block
        if block is not None:
            block.__enter__()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: Any) -> None:
        self._set(self._before)
