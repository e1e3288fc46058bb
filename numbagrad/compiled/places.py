"""Where a function finds Python values: closure cells, globals, attributes of objects.

A recording holds for the values that it found there, so a call compares them, and a function that
changes them cannot be recorded. Lists and dicts are compared element by element, and those in them
(``containers``). Attributes of Modules announce their own changes (``machine.changed``). Which
places there are says ``finder.py``. Start reading at ``Place``.
"""

from __future__ import annotations

import builtins
import gc
import math
import operator
import threading
import types
import weakref
from array import array
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Set
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from ..errors import RecordingError, StateMadeError
from ..kernels import machine

MOST = 200
"""Objects or functions that are followed, and elements of one container that are compared."""
MOST_IN_ALL = 500
"""Elements that are compared, of a container and those in it."""
MOST_BYTES = 4096
"""Of an array whose elements are compared, whoever reads them, and four times that in all."""


class _Absent:
    def __repr__(self) -> str:
        return "not there"


ABSENT = _Absent()
"""Stands where an object has no attribute of its own, only its class."""


class _Carried:
    def __repr__(self) -> str:
        return "another in each call"


CARRIED = _Carried()
"""Stands where a call reads what is there and passes it on: see ``carried.py``."""

Content = tuple[tuple[Any, Any], ...]
"""Lists and dicts, each with a copy of what was in it."""

Locations = Set[tuple[int, Any]]
"""What is carried from call to call: ids of what holds it, and keys."""

CONTAINERS = (list, dict, deque, defaultdict, OrderedDict, set, bytearray, array)
PLAIN = frozenset(
    (int, bool, str, bytes, float, complex, type(None), range, slice, frozenset, Fraction, Decimal)
)
"""Types whose values are the same where they are equal."""

_FLAGS = frozenset((bool, type(None)))
"""Types of values that decide something. A string does too, but may as well be a log."""

DEFAULTS = ("__defaults__", "__kwdefaults__")
_OF_FUNCTIONS = {"__code__": "the code"} | dict.fromkeys(DEFAULTS, "the defaults")


@dataclass(frozen=True)
class Place:
    """One value: ``text`` with ``holder`` for its braces is an expression for it.

    told: whether its changes are announced, so that calls need not look. content: lists and dicts
    there, each with a copy of what was in it. loose: whether the function may change it in a way
    that calls do not repeat, as a log: then they do not look at it. own: whether it is one that a
    class has itself, and not from another.
    """

    text: str
    holder: Any
    name: str
    value: Any
    told: bool = False
    content: Content = ()
    loose: bool = False
    decode: Callable[[Any], Any] | None = None
    own: bool = False

    @property
    def called(self) -> str:
        """What it is, for people."""
        if self.name in _OF_FUNCTIONS and isinstance(self.holder, types.FunctionType):
            return f"{_OF_FUNCTIONS[self.name]} of the function {self.holder.__name__!r}"
        kind = "function" if isinstance(self.value, types.FunctionType) else "Python value"
        if type(self.holder) is ContextVar:
            kind = "context variable"
        if self.decode is not None:
            return f"the environment variable {self.decode(self.name)!r}"
        return f"the {kind} {self.name!r}"

    def now(self) -> Any:
        """What stands there now."""
        if isinstance(self.holder, dict):
            return self.holder.get(self.name, ABSENT)
        if self.own:
            return vars(self.holder).get(self.name, ABSENT)
        if isinstance(self.holder, types.CellType):
            with suppress(ValueError):  # an empty one
                return self.holder.cell_contents
            return ABSENT
        if isinstance(self.holder, ContextVar):
            return self.holder.get(ABSENT)
        return getattr(self.holder, self.name, ABSENT)

    def is_as_it_was(self) -> bool:
        """Whether what stands there now means the same recording."""
        if self.content:
            return self.now() is self.value and alike(self.content)
        return same(self.now(), self.value)

    def is_flag(self) -> bool:
        """Whether what stood there and what does now are plain values that decide something, and
        not both numbers, which calls count."""
        kinds = {type(self.value), type(self.now())}
        return kinds <= {*_FLAGS, int, float} and not kinds.isdisjoint(_FLAGS)

    def settled(self) -> Place:
        """The place without arrays that have changed meanwhile, while other threads may write them:
        they would not find there what they have written."""
        if threading.active_count() == 1:
            return self
        kept = [c for c in self.content if type(c[0]) is not np.ndarray or same_elements(*c)]
        return self if len(kept) == len(self.content) else replace(self, content=tuple(kept))

    @property
    def shown(self) -> Any:
        """What stood there, for people."""
        value = self.content[0][1] if self.content else self.value
        return value if self.decode is None else self.decode(value)

    def restore(self) -> None:
        """Put the value back."""
        for container, copy in self.content:
            refill(container, copy)
        if self.now() is not self.value:
            put(self.holder, self.name, self.value)


@dataclass(frozen=True)
class ClassOf(Place):
    """The class of an object, which a reload in a notebook replaces: what it really is, whatever
    the object says of itself."""

    def now(self) -> Any:
        """The class."""
        return type(self.holder)

    def restore(self) -> None:
        """Give the object its class back."""
        if type(self.holder) is not self.value:
            object.__setattr__(self.holder, "__class__", self.value)


@dataclass(frozen=True)
class Lacking:
    """Names of which an object of a thread has none."""

    holder: threading.local
    names: frozenset[str]

    @property
    def all_lacking(self) -> bool:
        """Whether that is still so, in this thread."""
        return self.holder.__dict__.keys().isdisjoint(self.names)


def refill(container: Any, copy: Any) -> None:
    """Let a container, or an array, hold what ``copy`` does."""
    if isinstance(container, (np.ndarray, array)):
        if not same_elements(container, copy):
            with suppress(ValueError):  # it is read-only now, or of another size
                container[_WHOLE[isinstance(container, np.ndarray)]] = copy
        return
    container.clear()
    (container.update if hasattr(container, "update") else container.extend)(copy)


_WHOLE: Any = (slice(None), ...)
"""All elements of an ``array.array``, and of an array of NumPy's, which may have no dimension."""


def same_elements(x: Any, y: Any) -> bool:
    """Whether two arrays of NumPy, or of ``array``, are equal to the last bit."""
    if type(x) is np.ndarray and (x.dtype is not y.dtype or x.shape != y.shape):
        return False
    if type(x) is np.ndarray and x.dtype.names is not None:  # what is between fields means nothing
        return all([same_elements(x[name], y[name]) for name in x.dtype.names])
    return bool(x.tobytes() == y.tobytes())


def put(holder: Any, name: Any, value: Any) -> None:
    """Let ``holder`` have ``value`` as ``name``, without a word; ABSENT: let it have none."""
    if isinstance(holder, dict):
        if value is ABSENT:
            holder.pop(name, None)
        else:
            holder[name] = value
    elif isinstance(holder, types.CellType):
        holder.cell_contents = value
    elif isinstance(holder, ContextVar):
        if value is not ABSENT:  # only who has set it can take that back
            holder.set(value)
    elif isinstance(holder, (type, types.ModuleType)):
        if value is not ABSENT:
            setattr(holder, name, value)
        elif name in vars(holder):
            delattr(holder, name)
    elif isinstance(holder, threading.local):
        put(holder.__dict__, name, value)
    elif value is not ABSENT:
        object.__setattr__(holder, name, value)  # frozen ones too
    elif hasattr(holder, name):
        object.__delattr__(holder, name)


def same(x: Any, y: Any) -> bool:
    """Whether two Python values mean the same recording; y: of the recording."""
    if x is y or y is CARRIED:
        return True
    if type(x) is types.FunctionType and type(y) is types.FunctionType:
        return _same_function(x, y)
    if type(x) is not type(y):
        return False
    if isinstance(x, tuple):
        return len(x) == len(y) and all(map(same, x, y))
    if isinstance(x, (float, np.floating)) and x == 0:
        return bool(y == 0 and math.copysign(1, x) == math.copysign(1, y))
    return (type(x) in PLAIN or isinstance(x, np.generic)) and bool(x == y)


def _same_function(x: types.FunctionType, y: types.FunctionType) -> bool:
    """Whether the text of a function has been run again, as a cell of a notebook is."""
    plain = x.__closure__ is y.__closure__ is None and x.__globals__ is y.__globals__
    defaults = x.__defaults__, y.__defaults__, x.__kwdefaults__, y.__kwdefaults__
    return plain and defaults == (None,) * 4 and x.__code__ == y.__code__


def content_of(value: Any) -> Any:
    """What is in an array, a set or bytes that may change, to be compared; else ``value``."""
    if type(value) is np.ndarray:
        return value.dtype.str, value.shape, value.tobytes()
    if type(value) in (set, bytearray):
        return tuple(value) if type(value) is set else bytes(value)
    if type(value) is array:
        return value.typecode, value.tobytes()
    if type(value) is memoryview:
        return value.format, value.shape, value.tobytes()
    return value


def alike(content: Content) -> bool:
    """Whether lists and dicts hold what they held."""
    for container, copy in content:
        if isinstance(container, (np.ndarray, array)):
            if type(container) is np.ndarray and container.dtype.kind == "O":
                if container.shape != copy.shape or not _all_same([*container.flat], [*copy.flat]):
                    return False
            elif not same_elements(container, copy):
                return False
            continue
        if len(container) != len(copy):
            return False
        if isinstance(container, (set, bytearray)):
            if container != copy:
                return False
            continue
        if isinstance(container, dict):
            if not _all_same(container, copy):
                return False
            container, copy = container.values(), copy.values()
        if not _all_same(container, copy):
            return False
    return True


def _all_same(values: Iterable[Any], then: Iterable[Any]) -> bool:
    return all(map(operator.is_, values, then)) or all(map(same, values, then))


def containers(value: Any, carried: Locations = frozenset()) -> Content:
    """The lists, dicts and small arrays in ``value``, itself first, each with a copy. Long ones are
    left out, and what is deepest where they are many.

    carried: what may be another in each call, by container and key: it is not followed.
    """
    found: dict[int, tuple[Any, Any]] = {}
    waiting, count, room = deque([value]), 0, 4 * MOST_BYTES
    while waiting:
        each = under(waiting.popleft())
        if id(each) in found:
            continue
        if type(each) is np.ndarray:
            if each.nbytes <= min(MOST_BYTES, room) and _is_known(each.dtype):
                found[id(each)] = each, each.copy()
                room -= max(each.nbytes, 64)
                if each.dtype.kind == "O":
                    waiting.extend(each.flat)
            continue
        if not is_container(each) or len(each) > MOST:
            continue
        count += 1 + len(each)
        if count > MOST_IN_ALL:
            break
        copy = each
        if not isinstance(each, tuple):
            copy = copied(each)
            found[id(each)] = each, copy
            if carried:
                _leave_out(each, copy, carried)
        waiting.extend(copy.values() if isinstance(copy, dict) else copy)
    return tuple(found.values())


def _is_known(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of ``dtype`` are compared."""
    if dtype.names is None:
        return dtype.kind in "biufcmMOSU"
    return all([dtype[name].kind in "biufcmMSU" for name in dtype.names])


def under(value: Any) -> Any:
    """The dict that a ``MappingProxyType`` shows, but for that of a class; what a container of weak
    references keeps them in; any other value itself."""
    if type(value) is types.MappingProxyType:
        shown = gc.get_referents(value)[0]
        return value if type(shown) is not dict or _OF_CLASSES & shown.keys() else shown
    return value.data if type(value) in _WEAK else value


_OF_CLASSES = frozenset(("__module__", "__doc__", "__new__", "__dict__"))
_WEAK = frozenset((weakref.WeakValueDictionary, weakref.WeakSet))
"""Not ``WeakKeyDictionary``: a copy would keep its values."""


def is_container(value: Any) -> bool:
    """Whether ``value`` is a list, a dict or their kin, or a tuple, of a class of the user too."""
    if type(value) in CONTAINERS:
        return value is not _BUILTINS  # which namespaces of ``exec`` hold
    ours = type(value).__module__.partition(".")[0] == _PACKAGE  # which announce their changes
    return isinstance(value, (dict, list, set, tuple)) and not ours


_PACKAGE = __name__.partition(".")[0]
_BUILTINS = vars(builtins)


def copied(container: Any) -> Any:
    """A copy of what is in a container; of a class of the user as one of Python's."""
    if isinstance(container, array):
        return container[:]
    if isinstance(container, np.ndarray) or type(container) in CONTAINERS:
        return container.copy()
    kind = next(k for k in (dict, list, set) if isinstance(container, k))
    return kind.copy(container)


def _leave_out(container: Any, copy: Any, carried: Locations) -> None:
    """Let ``copy`` have CARRIED where ``container`` has what is carried."""
    if isinstance(container, (dict, list)):
        for key in list(container) if isinstance(container, dict) else range(len(container)):
            if (id(container), key) in carried:
                copy[key] = CARRIED


def check_unchanged(places: list[Place]) -> None:
    """Raise if the recorded function has changed a Python value, after putting them back."""
    firm = [place for place in places if not place.loose or place.is_flag()]
    changed = [place for place in firm if not place.settled().is_as_it_was()]
    put_back(firm)
    if changed:
        first = changed[0]
        made = first.value is ABSENT or first.value is None  # at the first call, say
        kind = StateMadeError if made else RecordingError
        raise kind(
            f"compile: the compiled function changes {first.called}, which a "
            f"compiled call would not do. Change it outside, return what it is to hold, or keep it "
            f"in a tensor that is changed in place."
        )


def put_back(places: list[Place]) -> None:
    """Make every place hold what it held before the recording."""
    for place in map(Place.settled, places):
        if place.now() is not place.value or not place.is_as_it_was():
            place.restore()
            machine.changed()
