"""Options of optimisers that a compiled function sets before it takes a step: ``group["lr"] = lr``.

Native code is given an option as it stands when a call enters it. So a call sets what the function
sets before a step reads it, and takes that back if the recording is not for its arguments. What is
left there in the end is a result of the call, as other numbers that it sets (``carried.py``). Start
reading at ``Settings``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FunctionType
from typing import Any

from ..errors import RecordingError
from ..kernels.options import Options
from ..kernels.traced_float import TracedFloat
from ..tape import Location, show_location, user_location
from ..tensor import Tensor
from .late import Late, known

__all__ = ["Settings"]

Setting = tuple[Options, str, Any]
"""A group, the name of an option, and what it is set to."""


class Settings:
    """What a recording sets, and what reads it. before: what calls set before they enter."""

    def __init__(self) -> None:
        self.before: dict[tuple[int, str], Setting] = {}
        self._pending: dict[tuple[int, str], Setting] = {}
        self._read: dict[int, Options] = {}
        self._where: Location | None = None
        self._last: list[tuple[Callable[..., Any], int]] = []  # with how many values each is given
        self._values: list[Any] = []  # which these are
        self._has_late = False  # whether something is known in the end
        self.passing = False  # whether calls give them beside their result
        self._put_off: dict[int, tuple[Any, str]] = {}  # by options that are changed in the end

    def put_off(
        self, name: str, function: Callable[..., Any], changed: Iterable[Any], values: Sequence[Any]
    ) -> None:
        """Let calls end with ``function`` of ``values``, called ``name``, which changes these
        options."""
        self._last.append((function, len(values)))
        # Copies: what is done to them until then does not matter.
        self._values += [v.detach().clone() if isinstance(v, Tensor) else v for v in values]
        self._put_off |= {id(options): (options, name) for options in changed}
        self._where = user_location()

    def taken(self) -> tuple[Any, ...]:
        """The values that calls give beside their result."""
        values, self._values = tuple(self._values), []
        self.passing = bool(values)
        return values

    def late(self, name: str, options: Any, read: Callable[[], Any]) -> Any:
        """What stands for ``read()`` if calls change ``options`` in the end, else None."""
        if id(options) not in self._put_off:
            return None
        self._has_late = True
        return Late(name, read)

    def check_now(self, options: Any) -> None:
        """Raise where options are read or set after what calls will change in the end."""
        if id(options) in self._put_off:
            name = self._put_off[id(options)][1]
            raise RecordingError(
                f"{name}: not possible inside a compiled function, at "
                f"{show_location(self._where)}, before something that asks for what it changes, at "
                f"{show_location(user_location())}: calls do it last of all. Move it to the end, "
                f"or call it after the compiled step."
            )

    def note(self, options: Options, name: str, value: Any) -> None:
        """Note that an option is set."""
        self.check_now(options)
        self._pending[id(options), name] = options, name, value
        self._where = user_location()

    def reading(self, read: Any) -> None:
        """Note that a call of ``read`` gives options at this place. Raises where calls, which look
        at them once, would have to look at two values of one."""
        for options in _options_of(read, set()):
            self.check_now(options)
            for location in [key for key in self._pending if key[0] == id(options)]:
                setting = self._pending.pop(location)
                if id(options) in self._read:
                    raise RecordingError(
                        f"option {setting[1]!r}: not possible inside a compiled function, at "
                        f"{show_location(self._where)}: it is set between two steps of one "
                        f"optimiser, and a call gives native code one value. Compile each of the "
                        f"steps by itself."
                    )
                self.before[location] = setting
            self._read[id(options)] = options

    def call(self, run: Callable[[tuple], Any], miss: Any, numbers: dict[str, Any]) -> Any:
        """``run``, the call of a recording, with what is to be set before it.

        numbers: what expressions may name. The text is Python, because a call must cost little.
        """
        if not self.before:
            return run
        names: dict[str, Any] = {"run": run, "MISS": miss, **numbers}
        checks, sets, takes = [], [], []
        for k, (options, name, value) in enumerate(self.before.values()):
            text = repr(value)
            if type(value) is TracedFloat:
                text = re.sub(r"\bf(\d+)\b", r"given[\1]", value.text)
                checks += [f"given[{n}]" for n in re.findall(r"\bf(\d+)\b", value.text)]
            names |= {f"options{k}": options, f"name{k}": name}
            there = f"options{k}[name{k}]"
            sets += [f"old{k}, new{k} = {there}, {text}", f"if new{k} != old{k}:"]
            sets.append(f"    {there} = new{k}")
            takes += [f"if new{k} != old{k}:", f"    {there} = old{k}"]
        lines = []
        if checks:
            most = max(int(text[6:-1]) for text in checks)
            lines += [f"if len(given) <= {most}:", "    return MISS"]
            tests = [f"{text}.__class__ not in NUMBERS" for text in dict.fromkeys(checks)]
            lines += [f"if {' or '.join(tests)}:", "    return MISS"]
            names["NUMBERS"] = (float, int)
        # What is left there in the end is written by whoever carries it.
        lines += [*sets, "found = run(given)", *takes, "return found"]
        exec("\n".join(["def call(given):", *[f"    {line}" for line in lines]]), names)
        return names["call"]

    def finished(self, run: Callable[[tuple], Any], miss: Any) -> Callable[[tuple], Any]:
        """``run``, all of a call, and then what was put off."""
        if not self._last:
            return run
        last, passing, has_late = tuple(self._last), self.passing, self._has_late

        def call(given: tuple) -> Any:
            found = run(given)
            if found is miss:
                return miss
            values: tuple[Any, ...] = ()
            if passing:
                found, values = found
            first = 0
            for function, count in last:
                function(*values[first : first + count])
                first += count
            return known(found) if has_late else found

        return call


def _options_of(function: Any, seen: set[int]) -> Iterator[Options]:
    """The options that a function closes over, itself or by others that it calls."""
    if id(function) in seen or type(function) is not FunctionType:
        return
    seen.add(id(function))
    for cell in function.__closure__ or ():
        held = cell.cell_contents
        if type(held) is Options:
            yield held
        else:
            yield from _options_of(held, seen)
