"""The three verbs through which all array work goes: ``empty``, ``view``, ``launch``.

An op never touches an array otherwise. While a step is being recorded the verbs hand over to a
recorder, so that running the Python of a step *is* the front end of the compiler.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numba import config
from numba.core.registry import CPUDispatcher

from .. import devices
from . import blocks, store
from .blocks import LARGE
from .cuda.runtime.array import DeviceArray
from .thread_pool import set_threads, threads

__all__ = ["Kernel", "bind", "check", "depends", "empty", "kernel", "launch", "reading"]
__all__ += ["set_threads", "threads", "view"]

recording = False
"""True while any thread records, and once any array lives off the host: then the fast paths of ops,
which look only at this, stand aside."""

autocasting = 0
"""How often threads have entered an ``amp.autocast``: then operations look at their own thread."""

closed = False
"""True while any thread records, or stands behind the verbs otherwise."""

away: Any = None
"""Once a GPU is in use: the module ``cuda.runtime.device``, which runs, allocates and checks."""


def open_cuda() -> Any:
    """The doorway to the GPU, opened. Raises DeviceError, saying why, where there is none."""
    global recording, away
    if away is None:
        from .cuda.runtime import device

        device.driver()
        away = device
        recording = True
    return away


devices.open_cuda = open_cuda


def on_host(x: Any, y: Any = None) -> bool:
    """Whether a fast way may be taken though ``recording`` is True: that is for a GPU alone, and
    these operands, tensors on the CPU or numbers, are not on it."""
    cpu = devices.cpu
    return not closed and x._device is cpu and getattr(y, "_device", cpu) is cpu


def all_on_host(operands: Iterable[Any]) -> bool:
    """``on_host`` for any number of tensors and numbers."""
    return not closed and all([getattr(a, "_device", devices.cpu) is devices.cpu for a in operands])


class _Recorder(threading.local):
    current: Any = None


recorder = _Recorder()


def empty(shape: tuple[int, ...], dtype: np.dtype, device: Any = None) -> Any:
    """An uninitialised C-contiguous array of ``shape`` and ``dtype`` on ``device``."""
    if recording and recorder.current is not None:
        return recorder.current.empty(shape, dtype, device)
    if device is not None and device.type != "cpu":
        return open_cuda().empty(shape, dtype, device)
    nbytes = dtype.itemsize
    for n in shape:
        nbytes *= n
    return np.empty(shape, dtype) if nbytes < LARGE else blocks.empty(shape, dtype, nbytes)


def flag(beside: Any) -> Any:
    """An int64 array of one element on the device of ``beside``, for what a kernel finds wrong."""
    device = beside.device if recording and type(beside) is DeviceArray else None
    return empty((1,), _INT64, device)


def table(values: np.ndarray, beside: Any) -> Any:
    """``values``, plain numbers that a kernel looks up, on the device of ``beside``: the same array
    again and again."""
    if recording and type(beside) is DeviceArray:
        return away.table(values)
    watcher = noting()
    if watcher is not None:
        watcher.table(values)
    return values


def noting() -> Any:
    """What notes the launches of this call, for later ones to repeat; mostly None."""
    return None if not recording or is_recording() else recorder.current


_INT64 = np.dtype(np.int64)
_at = ctypes.c_size_t.from_address
ndarray = np.ndarray  # a name of this module's, read for each argument of each launch


def view(array: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Any:
    """The elements of the memory of ``array`` at ``offset + index . strides``.

    strides, offset: in elements; offset counts from the first element of ``array``. The result
    shares memory with ``array``. The caller has checked that it stays inside.
    """
    if type(array) is not np.ndarray:
        return array.element_view(shape, strides, offset)
    step = array.itemsize
    byte_strides = tuple([s * step for s in strides])
    if offset >= 0 and array.flags.c_contiguous and 0 not in shape:
        return np.ndarray(shape, array.dtype, array, offset * step, byte_strides)
    if 0 in shape:
        return np.ndarray(shape, array.dtype)
    # A view of a view whose memory does not start where the array's does.
    root = array
    while type(root.base) is np.ndarray:
        root = root.base
    if root.flags.c_contiguous:
        start = address_of(array) - address_of(root)
        return np.ndarray(shape, array.dtype, root, start + offset * step, byte_strides)
    moved = np.lib.stride_tricks.as_strided(array, (1,) * array.ndim)
    if offset:  # step to the first element through any axis: only the address matters
        moved = np.lib.stride_tricks.as_strided(array, (offset + 1,), (step,))[offset:]
    return np.lib.stride_tricks.as_strided(moved, shape, byte_strides)


def launch(kernel: Callable[..., None], *args: Any) -> None:
    """Run ``kernel`` on ``args``: outputs, then inputs, then scalars.

    kernel: a ``Kernel``, or any function on arrays, such as a user's own ``@njit``.
    """
    if recording:
        if (current := recorder.current) is not None:
            known = getattr(current, "eager", False) and current.launched(kernel, args)
            if not known and not widens(kernel, args):
                recorder.current.launch(kernel, args)
            return
        if away is not None and away.run(kernel, args):
            return
        for a in args:
            for each in a if type(a) is list else (a,):
                if type(each) is not DeviceArray and is_traced(each):
                    each.refuse("running a kernel on it")
    if not isinstance(kernel, Kernel):  # which looks itself
        for a in args:
            if type(a) is ndarray and a.itemsize == 2 and widens(kernel, args):
                return
    kernel(*args)


def widens(kernel: Any, args: tuple[Any, ...]) -> bool:
    """Launch ``kernel`` on float32 copies of the halves of the host among ``args``, if there are
    such and it cannot take them; whether it did."""
    for a in args:
        if (isinstance(a, ndarray) and a.itemsize == 2) or type(a) is list:
            from .widened import launched

            return launched(kernel, args)
    return False


# -- what a recorder must be told ------------------------------------------------------------------


def is_recording() -> bool:
    """Whether a step is being recorded in this thread."""
    return recording and recorder.current is not None and getattr(recorder.current, "records", True)


def is_compiling() -> bool:
    """Whether what this thread launches becomes a part of a compiled function."""
    return recording and recorder.current is not None and recorder.current.compiles


def check(flag: Any, fail: Callable[[int], None]) -> None:
    """Call ``fail(value)``, which raises, if a kernel has left a ``value >= 0`` in ``flag``.

    flag: an int64 array of one element. A recorded step looks at the same place in each run.
    """
    if recording and recorder.current is not None:
        recorder.current.check(flag, fail)
    elif recording and type(flag) is DeviceArray:
        away.check_later(flag, fail)
    elif flag[0] >= 0:
        fail(int(flag[0]))


MOST_COMPARED = 1 << 20
"""Bytes of an array that a recording copies, or by whose values Python decides: each call compares
them."""


def depends(read: Callable[[], Any]) -> Any:
    """``read()``, a plain value that decides which ops run: a recorded step reads it each time.

    When it has changed the step is recorded anew.
    """
    value = read()
    if recording and recorder.current is not None:
        recorder.current.depends(read, value)
    return value


def is_traced(array: Any) -> bool:
    """Whether ``array`` is one of a recording, without values."""
    if type(array) is DeviceArray:
        return array.memory.traced
    return isinstance(array, np.ndarray) and type(array) is not np.ndarray


def bind(array: Any) -> Any:
    """``array``, whose memory outlives a recorded step: it is read and written where it is."""
    if recording and recorder.current is not None:
        recorder.current.bind(array)
    return array


def reading(name: str, array: Any) -> None:
    """Note that Python is about to look at the elements of ``array``; a recorder refuses."""
    if recording:
        if recorder.current is not None:
            recorder.current.reading(name, array)
        elif type(array) is not DeviceArray and is_traced(array):
            array.refuse(name)


def deciding(name: str, array: Any) -> bool:
    """Note that the elements of ``array`` are about to decide what is run; whether that was noted.

    A recorder lets a captured tensor of ints or bools do so, and records anew when it has changed.
    """
    if recording and recorder.current is not None:
        return recorder.current.deciding(name, array)
    return False


def unknown(array: Any) -> bool:
    """Whether a step is recorded in which nobody knows the elements of ``array`` before it runs."""
    return is_compiling() and recorder.current.unknown(array)


def settled(array: Any) -> Any:
    """The elements of ``array``, of a step that is recorded, where all calls have the same; or
    None."""
    return recorder.current.settled(array) if is_compiling() else None


def is_new(array: Any) -> bool:
    """Whether ``array`` is memory of a step that is recorded, to which nothing was written yet."""
    return is_compiling() and bool(recorder.current.is_new(array))


def outside(name: str, way_out: str = "Call it after the compiled step.") -> None:
    """Refuse to run ``name``, which changes plain Python values, while a step is recorded."""
    if recording and recorder.current is not None:
        recorder.current.outside(name, way_out)


def afterwards(
    name: str, function: Callable[..., Any], options: Iterable[Any], *values: Any
) -> bool:
    """Let each call of what is recorded call ``function`` in the end; False if nothing is recorded.

    name: what errors call it. options: dicts and objects that it changes: what is recorded later
    must not read them. values: numbers or tensors, which it is given as they are now.
    """
    if not recording or recorder.current is None:
        return False
    return recorder.current.afterwards(name, function, options, *values)


def late(name: str, options: Any, read: Callable[[], Any]) -> Any:
    """In a recorded step whose calls change ``options`` in the end, what stands for ``read()``
    then; else None. name: what errors call it."""
    return recorder.current.late(name, options, read) if is_compiling() else None


def unchanged(options: Any) -> None:
    """Raise in a recorded step if ``options`` are among those that its calls change in the end."""
    if is_compiling():
        recorder.current.unchanged(options)


while_recorded: dict[type, Callable[[Any, str], Any]] = {}
"""Classes with what looks up attributes of their objects while anything is recorded."""

announcing: list[type] = []
"""Classes whose objects call ``changed`` once a recording has looked at them: ``_watched``."""


def changed() -> None:
    """Note a change that recorded steps cannot see in tensors: modes, hooks, parameter groups."""
    add_to_epoch(1)


def add_to_epoch(amount: int) -> None:
    """``changed``, which the same amount taken away again undoes."""
    global epoch
    epoch += amount
    moved()


def moved() -> None:
    """Note that a watched tensor has another array or history: compiled steps look at theirs."""
    global moves, told
    moves = told = _next_number()


def retold() -> None:
    """Note that an option of an optimiser changed: compiled steps read theirs again."""
    global told
    told = _next_number()


def autocast_by(more: int) -> None:
    """Note that a thread enters (1) or leaves (-1) an ``amp.autocast``."""
    global autocasting
    with _counting:
        autocasting += more


def watched_by(more: int) -> None:
    """Note that a thread begins (1) or ends (-1) to look for NaN."""
    global watchers
    with _counting:
        watchers += more
    moved()


_counting = threading.Lock()
_next_number = itertools.count(1).__next__

epoch = 0
"""Counts ``changed``: a compiled step compares it and records anew when it has moved."""

moves = told = 0
"""Numbers of the last ``moved``, and of the last that anything was told. A call compares ``told``
alone, and looks at what it relies on where that is another number than when it looked last. Each
number is given once, so that of several threads that tell none goes unheard."""

watchers = 0
"""Threads that look for NaN: meanwhile a call looks at everything, for the mode is a thread's."""


class Kernel:
    """A function on arrays, compiled on first use for each set of dtypes.

    outputs: how many leading arguments are written.
    grain: least number of elements of the largest array argument for which a second compilation
    with threads is used; None where threads never pay.

    moves: it moves elements and does not look at them, so that halves go as int16.
    takes_halves: it reads and writes float16 and bfloat16 itself; others of the CPU get float32
    copies of them, see ``widened.py``. loads_halves: it does where it is not compiled into a step,
    whose loops such copies are a part of; its arrays are C, and of several dtypes too.
    turned: gives the same kernel for matrices that are stored by columns, where there is one;
    compiled steps choose.
    """

    def __init__(
        self,
        function: Any,
        outputs: int = 1,
        grain: int | None = None,
        **options: Any,
    ):
        self.function = function
        self.outputs = outputs
        self.grain = grain
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self._options = options
        self.twin: Any = None
        self.turned: Callable[[], Kernel] | None = None
        self.moves = False
        self.takes_halves = self.loads_halves = False
        self._of_halves: dict[Any, Callable[..., None]] = {}  # by types, and whether parallel
        self._serial: Any = None
        self._parallel: Any = None

    @property
    def serial(self) -> Any:
        """The single-threaded dispatcher."""
        if self._serial is None:
            self._serial = store.jit(self.function, **self._options)
        return self._serial

    @property
    def parallel(self) -> Any:
        """The dispatcher whose ``prange`` loops run on several threads."""
        if self._parallel is None:
            threads()  # choose the layer before Numba does
            self._parallel = store.jit(self.function, parallel=True, **self._options)
        return self._parallel

    def __call__(self, *args: Any) -> None:
        """Run on host arrays; with threads when there is enough work."""
        grain, compiled = self.grain, None
        for a in args:
            if type(a) is ndarray:
                if a.itemsize == 2:
                    if self.moves and args[0].itemsize == 2:
                        args = _as_integers(args)
                    elif self.loads_halves and not config.DISABLE_JIT:
                        self._entry_of_halves(args)(*args)
                        return
                    elif widens(self, args):
                        return
                if grain is not None and a.size >= grain:
                    # On one thread too: LLVM orders the sums of the two compilations differently.
                    compiled, grain = self._parallel or self.parallel, None
        (compiled or self._serial or self.serial)(*args)

    def _entry_of_halves(self, args: tuple[Any, ...]) -> Callable[..., None]:
        """What runs on arrays that may be halves, which Numba's dispatcher does not know."""
        grain = self.grain
        many = grain is not None and any([type(a) is ndarray and a.size >= grain for a in args])
        key = many, *[(a.dtype, a.ndim) if type(a) is ndarray else type(a) for a in args]
        entry = self._of_halves.get(key)
        if entry is None:
            from .half_type import signature_of

            dispatcher, kinds = self.parallel if many else self.serial, signature_of(args, "C")
            entry = self._of_halves[key] = store.entry_of_compiled(dispatcher, kinds)
        return entry

    def run_small(self, *args: Any) -> None:
        """Run on host arrays that are known to have less than ``grain`` elements."""
        for a in args:
            if type(a) is ndarray and a.itemsize == 2:
                self(*args)
                return
        (self._serial or self.serial)(*args)

    def cuda(self, twin: Callable[..., None]) -> Callable[..., None]:
        """Decorator: run ``twin`` where the arrays are on a GPU; it launches ``@cuda.jit`` code.

        twin: takes the same arguments, arrays with ``__cuda_array_interface__``.
        """
        self.twin = twin
        return twin

    def __repr__(self) -> str:
        return f"<kernel {self.__name__}>"


def _as_integers(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """``args`` of a kernel that moves elements, with halves as int16."""
    return tuple([a.view(np.int16) if getattr(a, "itemsize", 0) == 2 else a for a in args])


def kernel(
    function: Any = None,
    *,
    outputs: int = 1,
    grain: int | None = None,
    reassoc: bool = False,
    moves: bool = False,
    loads_halves: bool = False,
    **options: Any,
) -> Any:
    """Make a plain function on arrays a ``Kernel``; use as ``@kernel`` or ``@kernel(grain=...)``.

    reassoc: let LLVM reorder sums, which it needs to vectorise a reduction. moves: it moves
    elements from its inputs to its first argument and computes nothing with them. loads_halves: see
    ``Kernel``. options: those of ``store.jit``, for kernels of our own.
    """

    def decorate(function: Any) -> Kernel:
        if isinstance(function, CPUDispatcher):
            function = function.py_func
        made = Kernel(function, outputs, grain, reassoc=reassoc, **options)
        made.moves, made.loads_halves = moves, loads_halves
        return made

    return decorate if function is None else decorate(function)


def address_of(array: np.ndarray) -> int:
    """Address of the first element of ``array``, in bytes."""
    if recording and type(array) is DeviceArray:
        return array.pointer
    # Where NumPy keeps it; ``__array_interface__`` takes five times as long.
    return _at(id(array) + object.__basicsize__).value
