"""Hooks of optimisers: around ``step``, ``state_dict`` and ``load_state_dict``.

A step without hooks does not look for them: the first hook of an optimiser puts ``step_with_hooks``
among its own attributes, where it is found before the ``step`` of its class. Start reading there.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from ..kernels import machine
from ..tape import RemovableHandle

__all__ = ["Hooked", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook"]

KINDS = (
    "step_pre",
    "step_post",
    "state_dict_pre",
    "state_dict_post",
    "load_state_dict_pre",
    "load_state_dict_post",
)

everywhere: dict[str, dict[int, Callable]] = {"step_pre": {}, "step_post": {}}
"""Hooks on the steps of all optimisers."""

living: weakref.WeakSet[Hooked] = weakref.WeakSet()


def step_with_hooks(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    """The ``step`` of the optimiser's class, between its hooks and those of all optimisers."""
    given: Any = (optimizer, *args)
    for hook in [*everywhere["step_pre"].values(), *optimizer._hooks_of("step_pre")]:
        changed = hook(optimizer, given, kwargs)
        if changed is None:
            continue
        if not isinstance(changed, tuple) or len(changed) != 2:
            raise RuntimeError(
                f"{type(optimizer).__name__}.step: a pre-hook must return None or a tuple of "
                f"(new_args, new_kwargs), but got {changed!r}. The optimizer is the first of args."
            )
        given, kwargs = changed
    returned = type(optimizer).step(*given, **kwargs)
    for hook in [*optimizer._hooks_of("step_post"), *everywhere["step_post"].values()]:
        hook(optimizer, given, kwargs)
    return returned


class Hooked:
    """The part of ``Optimizer`` that keeps hooks. Copies and pickles of an optimiser have none."""

    # Hooks by kind; None until the first one.
    _hooks: dict[str, dict[int, Callable]] | None = None
    _hooks_of_all = everywhere

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        optimizer = super().__new__(cls)
        living.add(optimizer)
        if any(everywhere.values()):
            optimizer._look_for_step_hooks()
        return optimizer

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in ("step", "_hooks")}

    def _look_for_step_hooks(self) -> None:
        vars(self).setdefault("step", functools.partial(step_with_hooks, self))

    def _hooks_of(self, kind: str) -> list[Callable]:
        return list(self._hooks[kind].values()) if self._hooks else []

    def _saving_hooks(self, kind: str) -> list[Callable]:
        """The hooks around saving or loading; none may run while a step is recorded."""
        hooks = self._hooks_of(kind)
        if hooks:
            machine.outside(f"a {kind.rpartition('_')[0]} hook of {type(self).__name__}")
        return hooks

    def _add_hook(self, kind: str, hook: Callable, first: bool = False) -> RemovableHandle:
        check(f"register_{kind}_hook", hook)
        if self._hooks is None:
            self._hooks = {each: {} for each in KINDS}
        if kind in everywhere:
            self._look_for_step_hooks()
        return RemovableHandle(self._hooks[kind], hook, first)

    def register_step_pre_hook(self, hook: Callable[[Any, tuple, dict], Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before each step.

        args: those of ``step``, the optimiser first. It may return new ``(args, kwargs)``. In a
        compiled function it is recorded as a part of it.
        """
        return self._add_hook("step_pre", hook)

    def register_step_post_hook(self, hook: Callable[[Any, tuple, dict], Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after each step, as ``register_step_pre_hook``."""
        return self._add_hook("step_post", hook)

    def register_state_dict_pre_hook(
        self, hook: Callable[[Any], None], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(optimizer)`` before ``state_dict``."""
        return self._add_hook("state_dict_pre", hook, prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[[Any, dict], dict | None], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` after ``state_dict``; it may return another."""
        return self._add_hook("state_dict_post", hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[[Any, dict], dict | None], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` before loading; it may return another dict.

        The dict is a shallow copy of the one given.
        """
        return self._add_hook("load_state_dict_pre", hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[[Any], None], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(optimizer)`` after ``load_state_dict``."""
        return self._add_hook("load_state_dict_post", hook, prepend)


def check(method: str, hook: Any) -> None:
    """Raise TypeError unless ``hook`` can be called."""
    if not callable(hook):
        raise TypeError(
            f"{method}: expected a function, got {type(hook).__name__}. Pass the function, not "
            f"what it returns."
        )


def _add_everywhere(kind: str, hook: Callable) -> RemovableHandle:
    check(f"register_optimizer_{kind}_hook", hook)
    for optimizer in list(living):
        optimizer._look_for_step_hooks()
    return RemovableHandle(everywhere[kind], hook)


def register_optimizer_step_pre_hook(
    hook: Callable[[Any, tuple, dict], Any],
) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` before each step of every optimiser, now and later.

    It runs before those registered on the optimiser, and may return new ``(args, kwargs)``.
    """
    return _add_everywhere("step_pre", hook)


def register_optimizer_step_post_hook(
    hook: Callable[[Any, tuple, dict], Any],
) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` after each step of every optimiser and its hooks."""
    return _add_everywhere("step_post", hook)
