"""Hooks around the calls of modules and their backward: of one module, and of all.

A call looks for hooks only once there are any: the first one that is for all modules stands in the
class. Start reading at ``CallHooks._called_with_hooks``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar

from ...tape import RemovableHandle
from .backward_hooks import with_backward_hooks

__all__ = [
    "CallHooks",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
]

KINDS = ("forward_pre", "forward", "backward_pre", "backward")

everywhere: dict[str, dict[int, Any]] = {kind: {} for kind in KINDS}
"""Hooks of all modules."""


class _Special:
    """A hook that is told the keyword arguments too, or that runs after errors."""

    __slots__ = ("always", "hook", "with_kwargs")

    def __init__(self, hook: Callable, with_kwargs: bool = True, always: bool = False):
        self.hook, self.with_kwargs, self.always = hook, with_kwargs, always

    def before(self, module: Any, args: Any, kwargs: Any) -> tuple[tuple, dict]:
        """The arguments that a forward pre-hook leaves."""
        changed = self.hook(module, args, kwargs)
        if changed is None:
            return args, kwargs
        if not isinstance(changed, tuple) or len(changed) != 2:
            raise RuntimeError(
                f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got "
                f"{changed!r}."
            )
        return changed

    def after(self, module: Any, args: Any, kwargs: Any, output: Any) -> Any:
        """What a forward hook returns."""
        if self.with_kwargs:
            return self.hook(module, args, kwargs, output)
        return self.hook(module, args, output)


class CallHooks:
    """The part of ``Module`` that keeps hooks on calls."""

    # Hooks by kind; None until the first one, which keeps a call cheap.
    _hooks: dict[str, dict[int, Any]] | None = None
    _hooks_of_all: ClassVar[dict[str, dict[int, Any]]] = everywhere

    def _called_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward`` between the hooks of all modules and those of this one."""
        output, due = None, None
        try:
            for hook in self._hooks_to_run("forward_pre"):
                if type(hook) is _Special:
                    args, kwargs = hook.before(self, args, kwargs)
                    continue
                changed = hook(self, args)
                if changed is not None:
                    args = changed if isinstance(changed, tuple) else (changed,)
            module: Any = self
            finished = None
            if self._hooks_to_run("backward") or self._hooks_to_run("backward_pre"):
                args, finished = with_backward_hooks(module, args)
            output = module.forward(*args, **kwargs)
            due = self._hooks_to_run("forward")
            while due:
                hook = due.pop(0)
                if type(hook) is _Special:
                    changed = hook.after(self, args, kwargs, output)
                else:
                    changed = hook(self, args, output)
                if changed is not None:
                    output = changed
            return output if finished is None else finished(output)
        except Exception:
            self._after_error(due, args, kwargs, output)
            raise

    def _after_error(self, due: list[Any] | None, args: Any, kwargs: Any, output: Any) -> None:
        """Run the hooks that always run and have not; their own errors become warnings."""
        for hook in self._hooks_to_run("forward") if due is None else due:
            if type(hook) is not _Special or not hook.always:
                continue
            try:
                changed = hook.after(self, args, kwargs, output)
                output = output if changed is None else changed
            except Exception as error:
                warnings.warn(f"forward hook with always_call raised: {error!r}", stacklevel=3)

    def _call_hooks(self, kind: str) -> dict[int, Any]:
        own = vars(self).get("_hooks")
        if own is None:
            own = self._hooks = {each: {} for each in ("compiled", *KINDS)}
        return own[kind]

    def _hooks_to_run(self, kind: str) -> list[Any]:
        """The hooks of one kind, those of all modules first."""
        own = self._hooks or {}
        return [*self._hooks_of_all.get(kind, {}).values(), *own.get(kind, {}).values()]

    def _add_hook(self, kind: str, hook: Any, first: bool) -> RemovableHandle:
        return RemovableHandle(self._call_hooks(kind), hook, first)

    def register_forward_pre_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args)`` before forward; it may return new args.

        with_kwargs: ``hook(module, args, kwargs)``, which may return new ``(args, kwargs)``.
        """
        return self._add_hook("forward_pre", _Special(hook) if with_kwargs else hook, prepend)

    def register_forward_hook(
        self,
        hook: Callable,
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call ``hook(module, args, output)`` after forward; it may return a new output.

        with_kwargs: ``hook(module, args, kwargs, output)``. always_call: after an error too, with
        None for what was not computed.
        """
        kept = _Special(hook, with_kwargs, always_call) if with_kwargs or always_call else hook
        return self._add_hook("forward", kept, prepend)

    def register_full_backward_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` once the inputs' gradients are known.

        It may return new gradients of the inputs (positional tensors; None elsewhere).
        """
        return self._add_hook("backward", hook, prepend)

    def register_full_backward_pre_hook(
        self, hook: Callable, prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, grad_output)`` before the module's backward.

        It may return new gradients of the outputs (None for those that need none).
        """
        return self._add_hook("backward_pre", hook, prepend)


def _add_everywhere(
    kind: str, hook: Any, with_kwargs: bool = False, always: bool = False
) -> RemovableHandle:
    if not callable(hook):
        raise TypeError(
            f"register_module_{kind}_hook: expected a function, got {type(hook).__name__}. Pass "
            f"the function, not what it returns."
        )
    if CallHooks._hooks is None:
        CallHooks._hooks = {each: {} for each in ("compiled", *KINDS)}  # none, but looked for
    kept: Any = _Special(hook, with_kwargs, always) if with_kwargs or always else hook
    return RemovableHandle(everywhere[kind], kept)


def register_module_forward_pre_hook(hook: Callable) -> RemovableHandle:
    """Call ``hook(module, args)`` before forward of every module; it may return new args."""
    return _add_everywhere("forward_pre", hook)


def register_module_forward_hook(
    hook: Callable, *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call ``hook(module, args, output)`` after forward of every module; it may return another.

    with_kwargs, always_call: as in ``Module.register_forward_hook``.

    >>> import numbagrad as ng
    >>> called = []
    >>> note = lambda module, args, output: called.append(type(module).__name__)
    >>> with ng.nn.modules.module.register_module_forward_hook(note):
    ...     _ = ng.nn.Sequential(ng.nn.ReLU())(ng.ones(1))
    >>> called
    ['ReLU', 'Sequential']
    """
    return _add_everywhere("forward", hook, with_kwargs, always_call)


def register_module_full_backward_hook(hook: Callable) -> RemovableHandle:
    """Call ``hook(module, grad_input, grad_output)`` in backward of every module.

    It may return new gradients of the inputs, as ``Module.register_full_backward_hook``.
    """
    return _add_everywhere("backward", hook)


def register_module_full_backward_pre_hook(hook: Callable) -> RemovableHandle:
    """Call ``hook(module, grad_output)`` before backward of every module.

    It may return new gradients of the outputs.
    """
    return _add_everywhere("backward_pre", hook)
