"""Where tensors stand that a compiled function sets anew in each call, and which values may.

A slot is an attribute of a module or an object, an entry of a dict or a list, a global, or a
variable of an enclosing function. Start reading at ``Slot``.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import CellType, MemberDescriptorType, ModuleType
from typing import Any

from ..item_dict import ItemDict
from ..kernels.traced_float import TracedFloat
from ..tensor import Tensor
from ..tree import LEAF, flatten
from .held import Change
from .places import ABSENT, PLAIN, Place, is_container, put, same

__all__ = ["Exchanged", "Slot", "as_now", "known_slots", "may_change", "remember", "same_form"]
__all__ += ["slot_of"]

_UNNAMED = (CellType, ContextVar)
"""What holds one value, and no other."""

_HOLDERS = (dict, OrderedDict, defaultdict, list, *_UNNAMED)


@dataclass(frozen=True, eq=False)
class Slot:
    """A place: ``holders``, of which the first is read and all are written, and the key in them.

    module: whose attribute it is, so that the module need not announce it. watched: whether other
    recordings may rely on it, that do not know it as a slot. number: int or float where a number
    stands there, which each call may set to another. seen: the one that was set just before, in
    the recording that found the slot.
    """

    holders: tuple[Any, ...]
    key: Any
    name: str
    module: Any = None
    watched: bool = False
    number: type | None = None
    seen: Any = None

    @property
    def location(self) -> tuple[int, Any]:
        """What tells it from others."""
        return id(self.holders[0]), self.key

    def read(self) -> Any:
        """What stands there, or ABSENT."""
        held = self.holders[0]
        if type(held) is CellType:
            return held.cell_contents
        if type(held) is list:
            return held[self.key] if self.key < len(held) else ABSENT
        if isinstance(held, dict):
            return held.get(self.key, ABSENT)
        return held.get(ABSENT) if type(held) is ContextVar else getattr(held, self.key, ABSENT)

    def write(self, value: Any) -> None:
        """Put ``value`` there, without a word."""
        for held in self.holders:
            if type(held) is list:
                if value is not ABSENT:
                    held[self.key] = value
            elif isinstance(held, ItemDict) and value is not ABSENT:
                dict.__setitem__(held, self.key, value)
            else:
                put(held, self.key, value)

    def now(self) -> Slot:
        """The slot as its module registers it now."""
        if self.module is None:
            return self
        return replace(
            of_module(self.module, self.key, self.watched), number=self.number, seen=self.seen
        )

    def stands_in(self, place: Place) -> bool:
        """Whether ``place`` is this one."""
        if type(place.holder) in _UNNAMED:
            return place.holder is self.holders[0]
        return any([place.holder is held for held in self.holders]) and place.name == self.key


def of_module(module: Any, name: str, watched: bool = False) -> Slot:
    """An attribute of a module, as which a buffer may be registered."""
    own = vars(module)
    tables = [own["_buffers"]] if name in own["_buffers"] else []
    return Slot((own, *tables), name, name, module, watched)


def slot_of(change: Change) -> Slot | None:
    """The slot of what was set, if calls can set it: tensors in place of what tells no difference
    between one call and the next."""
    if change.module is not None:
        own = vars(change.module)
        registered = change.key in own["_parameters"] or change.key in own["_modules"]
        if registered or (change.key in own["_buffers"] and change.old is ABSENT):
            return None
        slot = of_module(change.module, change.key, change.watched)
    elif _holds(change.container, change.key):
        key = None if type(change.container) in _UNNAMED else change.key
        slot = Slot((change.container,), key, change.name)
    else:
        return None
    new = change.new.value if type(change.new) is TracedFloat else change.new
    if type(change.old) in (int, float) and type(new) is type(change.old):
        seen = new if new is change.new else None  # what depends on the call is of no clock
        return replace(slot, number=type(change.old), seen=seen)
    return slot if may_change(change.old, change.new) else None


def _holds(container: Any, key: Any) -> bool:
    """Whether calls can set ``key`` in ``container``."""
    if type(container) in _HOLDERS or isinstance(container, (ItemDict, Tensor)):
        return True
    if isinstance(container, dict) and is_container(container):  # of a class of the user
        return True
    if isinstance(container, (type, ModuleType, threading.local)):
        return getattr(type(container), "__setattr__", None) in _PLAINLY  # not the user's
    return type(getattr(type(container), str(key), None)) is MemberDescriptorType


_PLAINLY = (type.__setattr__, ModuleType.__setattr__, threading.local.__setattr__)


def as_now(slot: Slot) -> Slot | None:
    """A slot of another recording, whose number may be of another kind now; None: of none."""
    kind = type(slot.read())
    if slot.number is not None and kind not in (int, float):
        return None
    return replace(slot, seen=None, number=slot.number and kind)


class Exchanged:
    """What others set between one recording of a function and the next: calls can read it.

    It is a number in the place of another, or a tensor in that of a tensor, as a temperature that
    is lowered and a batch that is an attribute. known: the slots found before.
    """

    def __init__(
        self,
        places: Iterable[Place] = (),
        modules: Iterable[Any] = (),
        known: Iterable[Slot] = (),
    ) -> None:
        self._places, self._known = list(places), list(known)
        self._numbers = [
            (weakref.ref(module), name, value)
            for module in modules
            for name, value in vars(module).items()
            if type(value) in (float, int)
        ]

    def slots(self) -> list[Slot]:
        """A slot for each of them."""
        found = [slot_of(change) for change in self._changes() if _is_argument(change)]
        return [*self._known, *[replace(slot, seen=None) for slot in found if slot is not None]]

    def _changes(self) -> Iterable[Change]:
        for place in self._places:
            if place.told:
                continue  # of a module
            yield Change(place.holder, place.name, place.value, place.now(), place.name)
            for container, copy in place.content:
                if isinstance(container, dict):
                    for key in container.keys() & copy.keys():
                        name = f"{place.name}[{key!r}]"
                        yield Change(container, key, copy[key], container[key], name)
        for reference, name, value in self._numbers:  # last, for they know their modules
            module = reference()
            if module is not None:
                new = vars(module).get(name, ABSENT)
                yield Change(vars(module), name, value, new, name, module, watched=True)


def _is_argument(change: Change) -> bool:
    """Whether calls can take what was set as they take arguments of that type."""
    old, new = change.old, change.new
    if old is new or type(old) is not type(new):
        return False
    if type(new) in (float, int):
        return old != new and old == old and new == new
    return type(new) is Tensor and old._edge is new._edge is None


def may_change(old: Any, new: Any) -> bool:
    """Whether ``new`` holds tensors where ``old`` did, or nothing but a plain value, and no NaN.

    An empty list or dict holds nothing, as before the first of those that each call makes.
    """
    then: list[Any] = []
    now: list[Any] = []
    spec, form = flatten(old, then), flatten(new, now)
    tensors = [isinstance(leaf, Tensor) for leaf in now]
    plain = all(map(_is_known, now))
    empty = not then and old is not new
    if empty or (spec == LEAF and not isinstance(old, Tensor)):
        nothing = empty or old is ABSENT or (type(old) in PLAIN and old == old)
        return any(tensors) and plain and nothing
    if not same_form(spec, form) or not any(tensors) or not plain:
        return False
    pairs = zip(then, now, tensors, strict=True)
    return all(
        [isinstance(x, Tensor) if tensor else same(y, x) and x == x for x, y, tensor in pairs]
    )


def same_form(x: Any, y: Any) -> bool:
    """Whether two descriptions by ``flatten`` are equal; tensors among their keys are compared by
    which they are."""
    return hash(x) == hash(y) and bool(x == y)


def _is_known(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) or type(leaf) in PLAIN


_slots: weakref.WeakValueDictionary[tuple[int, Any], Slot] = weakref.WeakValueDictionary()


def remember(slots: Iterable[Slot]) -> None:
    """Let later recordings of all functions know these slots, as long as somebody holds them."""
    for slot in slots:
        _slots[slot.location] = slot


def known_slots(places: list[Place], modules: Iterable[Any]) -> list[Slot]:
    """Slots of other recordings in what this one may look at: it must not rely on them."""
    found = [of_module(m, name) for m in modules for name in sorted(m._carried)]
    if _slots:
        for p in places:
            key = None if type(p.holder) in _UNNAMED else p.name
            located = [(id(p.holder), key)]
            located += [(id(c), k) for c, copy in p.content for k in _keys(copy)]
            found += [slot for each in located if (slot := _slots.get(each)) is not None]
    now = [each for slot in found if (each := as_now(slot)) is not None]
    return [slot for slot in now if slot.module is None or _is_free(slot)]


def _is_free(slot: Slot) -> bool:
    own = vars(slot.module)
    return slot.key not in own["_parameters"] and slot.key not in own["_modules"]


def _keys(copy: Any) -> Iterable[Any]:
    if isinstance(copy, dict):
        return copy
    return range(len(copy)) if isinstance(copy, list) else ()
