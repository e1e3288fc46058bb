"""Switches of the tape, each a context manager and a decorator: ``no_grad`` and its kin."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ..tape import grad_mode

__all__ = [
    "enable_grad",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "set_grad_enabled",
]


class _Switch:
    """Sets fields of ``grad_mode`` for a block, or for each call of a decorated function."""

    values: dict[str, bool] = {}

    def __new__(cls, function: Callable | None = None) -> Any:
        self = object.__new__(cls)
        return self(function) if callable(function) else self

    def __enter__(self) -> None:
        saved = {name: getattr(grad_mode, name) for name in self.values}
        self.__dict__.setdefault("_stack", []).append(saved)
        for name, value in self.values.items():
            setattr(grad_mode, name, value)

    def __exit__(self, *exception: Any) -> None:
        for name, value in self.__dict__["_stack"].pop().items():
            setattr(grad_mode, name, value)

    def __call__(self, function: Callable) -> Callable:
        values = self.values

        def switched() -> _Switch:
            switch = object.__new__(_Switch)
            switch.__dict__["values"] = values
            return switch

        if inspect.isgeneratorfunction(function):
            return _by_steps(function, switched)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with switched():
                return function(*args, **kwargs)

        return wrapper


def _by_steps(function: Callable[..., Any], switched: Callable[[], _Switch]) -> Callable[..., Any]:
    """A generator function that is switched while it runs, and not between its steps."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        go, given = generator.send, None
        while True:
            try:
                with switched():
                    found = go(given)
            except StopIteration as end:
                return end.value
            try:
                go, given = generator.send, (yield found)
            except GeneratorExit:
                with switched():
                    generator.close()
                raise
            except BaseException as error:
                go, given = generator.throw, error

    return wrapper


class no_grad(_Switch):
    """Operations in the block are not recorded: their results require no gradient.

    >>> with no_grad():
    ...     pass
    """

    values = {"enabled": False}


class enable_grad(_Switch):
    """Operations in the block are recorded, also inside ``no_grad``."""

    values = {"enabled": True}


class inference_mode(_Switch):
    """Like ``no_grad``; states that no result will be used in a gradient."""

    values = {"enabled": False, "inference": True}

    def __new__(cls, mode: Any = True) -> Any:
        if callable(mode):
            return object.__new__(cls)(mode)
        self = object.__new__(cls)
        if not mode:
            self.__dict__["values"] = {"inference": False}
        return self


class set_grad_enabled(_Switch):
    """Turn recording on or off, at once or, as a context manager, for a block."""

    def __new__(cls, mode: bool) -> Any:
        self = object.__new__(cls)
        self.__dict__["values"] = {"enabled": bool(mode)}
        self.__dict__["_stack"] = [{"enabled": grad_mode.enabled}]
        grad_mode.enabled = bool(mode)
        return self

    def __enter__(self) -> None:
        grad_mode.enabled = self.values["enabled"]

    def __call__(self, function: Callable) -> Callable:
        grad_mode.enabled = self.__dict__["_stack"][-1]["enabled"]
        return super().__call__(function)


def is_grad_enabled() -> bool:
    """Whether operations are recorded in this thread."""
    return grad_mode.enabled


def is_inference_mode_enabled() -> bool:
    """Whether this thread is inside ``inference_mode``."""
    return grad_mode.inference
