"""A module's state: ``state_dict`` and ``load_state_dict``, their hooks, and extra state.

Loading compares everything (``Comparison``) and then copies, so that an error changes nothing.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...autograd.modes import no_grad
from ...errors import StateDictError, class_name
from ...kernels import machine
from ...tape import RemovableHandle
from ...tensor import Tensor
from ..parameter import Parameter, Uninitialized

__all__ = ["IncompatibleKeys", "Stateful"]

EXTRA_STATE = "_extra_state"


class IncompatibleKeys(NamedTuple):
    """What ``load_state_dict(strict=False)`` found no counterpart for."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return (
            f"IncompatibleKeys(missing_keys={self.missing_keys}, "
            f"unexpected_keys={self.unexpected_keys})"
        )


@dataclass(frozen=True)
class _Older:
    """A hook by a method whose name begins with an underscore, which has other rules."""

    hook: Callable


class Stateful:
    """The part of ``Module`` that is saved and loaded."""

    # Stands in the metadata of ``state_dict``; pre-hooks of loading are told the saved one.
    _version: int = 1
    _state_hooks: dict[str, dict[int, Any]] | None = None

    def _own_entries(self, prefix: str) -> Iterator[tuple[str, Tensor]]:
        """Parameters and persistent buffers of this module alone, by name."""
        members: Any = self
        for name, parameter in members._parameters.items():
            if parameter is not None:
                yield prefix + name, parameter
        for name, buffer in members._buffers.items():
            if buffer is not None and name not in members._non_persistent:
                yield prefix + name, buffer

    def state_dict(
        self,
        *,
        destination: dict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Any]:
        """Parameters and persistent buffers by dotted name, sharing memory with the module.

        keep_vars: the tensors themselves instead of detached ones. What ``get_extra_state``
        returns, where a class defines it, stands as "_extra_state" behind the module's prefix.
        """
        found: Any = destination
        if found is None:
            found = OrderedDict()
            found._metadata = OrderedDict()
        metadata = {"version": self._version}
        if hasattr(found, "_metadata"):
            found._metadata[prefix[:-1]] = metadata
        for hook in self._hooks_of("state_dict_pre"):
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(found, prefix, keep_vars)
        for name, module in self._modules.items():  # type: ignore[attr-defined]
            if module is not None:
                below = f"{prefix}{name}."
                module.state_dict(destination=found, prefix=below, keep_vars=keep_vars)
        for hook in self._hooks_of("state_dict_post"):
            replaces = type(hook) is _Older
            returned = (hook.hook if replaces else hook)(self, found, prefix, metadata)
            if replaces:
                found = found if returned is None else returned
            elif returned is not None:
                raise RuntimeError(
                    f"state_dict post-hook must return None, but got {type(returned).__name__}. "
                    f"Change the dict that the hook is given."
                )
        return found

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        """Put what is this module's alone into ``destination``; ``state_dict`` calls it, so a class
        may override it."""
        for name, tensor in self._own_entries(prefix):
            kept = keep_vars or isinstance(tensor, Uninitialized)
            destination[name] = tensor if kept else tensor.detach()
        if self._defines("get_extra_state"):
            machine.outside(f"{type(self).__name__}.get_extra_state")
            destination[prefix + EXTRA_STATE] = self.get_extra_state()

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Take what is this module's alone from ``state_dict``; ``load_state_dict`` calls it, so a
        class may override it, as to give parameters of an older version their new names.

        What is missing, unexpected or wrong is added to the lists. The values are copied when all
        modules were asked, but at once where ``error_msgs`` is a list of the caller's own.
        """
        lists = missing_keys, unexpected_keys, error_msgs
        for hook in self._hooks_of("load_pre"):
            run = hook.hook if type(hook) is _Older else functools.partial(hook, self)
            run(state_dict, prefix, local_metadata, strict, *lists)
        loading = getattr(error_msgs, "loading", None)
        found = Comparison({}) if loading is None else loading
        found.compare_own(self, state_dict, prefix, strict, lists)
        if loading is None:
            found.copy(False)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy the values of ``state_dict`` into parameters and buffers of the same names.

        strict: names that are missing or unexpected are an error. All errors come in one message,
        and then the module is as it was; but where there are post-hooks, which may forgive missing
        and unexpected names, the others are copied before. Values are cast to the dtypes of the
        module. assign: the tensors of ``state_dict`` themselves take the place of the module's, in
        their dtypes and on their devices; make optimisers after that.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(
                f"load_state_dict: expected state_dict to be dict-like, got "
                f"{type(state_dict).__name__}."
            )
        found = Comparison(getattr(state_dict, "_metadata", None) or {})
        found.compare(self, dict(state_dict), "")
        keys = IncompatibleKeys(found.missing, found.unexpected)
        hooks = [(m, hook) for m in found.modules for hook in m._hooks_of("load_post")]
        if found.errors or not hooks:
            found.check(type(self).__name__, strict)
        found.copy(assign)
        for module, hook in hooks:
            returned = hook(module, keys)
            if returned is not None:
                raise AssertionError(
                    f"load_state_dict post-hook must return None, but got "
                    f"{type(returned).__name__}. Change the lists of the keys that it is given."
                )
        found.check(type(self).__name__, strict)
        return keys

    # -- extra state -----------------------------------------------------------------------------

    def _defines(self, method: str) -> bool:
        """Whether the class has its own ``get_extra_state`` or ``set_extra_state``."""
        return getattr(type(self), method) is not getattr(Stateful, method)

    def get_extra_state(self) -> Any:
        """What else ``state_dict`` should hold; override it together with ``set_extra_state``.

        ``ng.save`` takes tensors, numbers, strings, and dicts, lists and tuples of them.
        """
        raise RuntimeError(f"get_extra_state: {type(self).__name__} does not define it.")

    def set_extra_state(self, state: Any) -> None:
        """Take what ``get_extra_state`` gave, from a loaded state dict; override it."""
        raise RuntimeError(f"set_extra_state: {type(self).__name__} does not define it.")

    # -- hooks -----------------------------------------------------------------------------------

    def _add_state_hook(
        self, kind: str, name: str, hook: Callable, older: bool = False
    ) -> RemovableHandle:
        if not callable(hook):
            raise TypeError(
                f"{name}: expected a function, got {type(hook).__name__}. Pass the function, "
                f"not what it returns."
            )
        if self._state_hooks is None:
            self._state_hooks = {
                each: {} for each in ("state_dict_pre", "state_dict_post", "load_pre", "load_post")
            }
        kept: Any = _Older(hook) if older else hook
        return RemovableHandle(self._state_hooks[kind], kept)

    def _hooks_of(self, kind: str) -> list[Any]:
        """The hooks to run now; none may while a step is recorded."""
        hooks = list(self._state_hooks[kind].values()) if self._state_hooks else []
        if hooks:
            machine.outside(f"a state dict hook of {type(self).__name__}")
        return hooks

    def register_state_dict_pre_hook(
        self, hook: Callable[[Any, str, bool], None]
    ) -> RemovableHandle:
        """Call ``hook(module, prefix, keep_vars)`` before ``state_dict`` lists this module."""
        return self._add_state_hook("state_dict_pre", "register_state_dict_pre_hook", hook)

    def register_state_dict_post_hook(
        self, hook: Callable[[Any, dict, str, dict], None]
    ) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata)`` after ``state_dict``.

        It may change the dict in place and must return None, else RuntimeError.
        """
        return self._add_state_hook("state_dict_post", "register_state_dict_post_hook", hook)

    def _register_state_dict_hook(
        self, hook: Callable[[Any, dict, str, dict], dict | None]
    ) -> RemovableHandle:
        """As ``register_state_dict_post_hook``, but what the hook returns is the result."""
        return self._add_state_hook("state_dict_post", "_register_state_dict_hook", hook, True)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., None], with_module: bool = False
    ) -> RemovableHandle:
        """As ``register_load_state_dict_pre_hook``; the hook is not given the module, unless
        ``with_module``."""
        name = "_register_load_state_dict_pre_hook"
        return self._add_state_hook("load_pre", name, hook, not with_module)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Call the hook before ``load_state_dict`` looks at this module; it may change the dict.

        It is given ``(module, state_dict, prefix, local_metadata, strict, missing_keys,
        unexpected_keys, error_msgs)``: a copy of the dict, of a child the part that concerns it;
        ``strict`` is always True; the lists may be changed in place.
        """
        return self._add_state_hook("load_pre", "register_load_state_dict_pre_hook", hook)

    def register_load_state_dict_post_hook(
        self, hook: Callable[[Any, IncompatibleKeys], None]
    ) -> RemovableHandle:
        """Call ``hook(module, incompatible_keys)`` after ``load_state_dict`` has copied.

        It may change the lists ``missing_keys`` and ``unexpected_keys`` in place: strict loading
        then raises for what they hold. It must return None, else AssertionError.
        """
        return self._add_state_hook("load_post", "register_load_state_dict_post_hook", hook)


def _instead_of(tensor: Tensor, value: Tensor) -> Tensor:
    """``value`` as what ``tensor`` is: a parameter that needs a gradient, or not, or a buffer."""
    if not isinstance(tensor, Parameter):
        return value
    if isinstance(value, Parameter):
        value.requires_grad_(tensor.requires_grad)
        return value
    return Parameter(value, requires_grad=tensor.requires_grad)


class _Errors(list[str]):
    """The messages of a comparison, ``loading``, by which modules that are given them know it."""

    loading: Comparison | None = None


@dataclass
class Comparison:
    """What loading a state dict will copy, and what is wrong with it.

    metadata: of each saved module, by path. modules: those compared, children before parents.
    """

    metadata: Mapping[str, dict[str, Any]]
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    errors: _Errors = field(default_factory=_Errors)
    values: list[tuple[Any, str, Tensor, Tensor]] = field(default_factory=list)
    extra_states: list[tuple[Stateful, Any]] = field(default_factory=list)
    modules: list[Stateful] = field(default_factory=list)

    def compare(self, module: Any, state: dict[str, Any], prefix: str) -> None:
        """Compare ``module`` and those below it with ``state``, which may change meanwhile."""
        self.errors.loading = self
        lists = self.missing, self.unexpected, self.errors
        module._load_from_state_dict(
            state, prefix, self.metadata.get(prefix[:-1], {}), True, *lists
        )
        for name, child in module._modules.items():
            if child is not None:
                below = f"{prefix}{name}."
                own = {key: value for key, value in state.items() if key.startswith(below)}
                self.compare(child, own, below)
        self.modules.append(module)

    def compare_own(
        self,
        module: Any,
        state: dict[str, Any],
        prefix: str,
        strict: bool,
        lists: tuple[list[str], list[str], list[str]],
    ) -> None:
        """Compare what is of ``module`` alone. strict: note what is missing and unexpected.

        lists: to which that is added, and messages.
        """
        missing, unexpected, errors = lists
        entries = dict(module._own_entries(prefix))
        for name, tensor in entries.items():
            if name in state:
                self._compare_values(module, prefix, name, tensor, state[name], errors)
            elif strict:
                missing.append(name)
        extra = prefix + EXTRA_STATE
        if module._defines("set_extra_state"):
            if extra in state:
                self.extra_states.append((module, state[extra]))
            elif strict:
                missing.append(extra)
        elif extra in state and strict:
            unexpected.append(extra)
        children = {name for name, child in module._modules.items() if child is not None}
        for key in state:
            if strict and key not in entries and key != extra and key.startswith(prefix):
                name, dot, _ = key[len(prefix) :].partition(".")
                if not (dot and name in children):
                    unexpected.append(key)

    def _compare_values(
        self, module: Any, prefix: str, name: str, tensor: Tensor, value: Any, errors: list[str]
    ) -> None:
        unset = isinstance(tensor, Uninitialized)
        if not isinstance(value, Tensor):
            errors.append(
                f"While copying the parameter named {name!r}, expected a Tensor but received "
                f"{class_name(value)}. Convert it with ng.tensor(...)."
            )
        elif unset and isinstance(value, Uninitialized):
            pass  # neither has anything to copy
        elif unset or value.shape == tensor.shape:
            self.values.append((module, name[len(prefix) :], tensor, value))
        else:
            errors.append(
                f"size mismatch for {name}: copying a param with shape {value.shape} from "
                f"checkpoint, the shape in current model is {tensor.shape}."
            )

    def check(self, name: str, strict: bool) -> None:
        """Raise what is wrong, all in one message."""
        errors = []
        for words, keys in (("Missing", self.missing), ("Unexpected", self.unexpected)):
            if strict and keys:
                listed = ", ".join(f'"{key}"' for key in keys)
                errors.append(f"{words} key(s) in state_dict: {listed}.")
        errors += self.errors
        if errors:
            listed = "\n\t".join(errors)
            raise StateDictError(f"Error(s) in loading state_dict for {name}:\n\t{listed}")

    def copy(self, assign: bool) -> None:
        """Take over the values, or with ``assign`` the tensors, and the extra states."""
        with no_grad():
            for module, name, tensor, value in self.values:
                if assign:
                    setattr(module, name, _instead_of(tensor, value))
                    continue
                if isinstance(tensor, Uninitialized):
                    tensor.materialize(value.shape)
                tensor.copy_(value)
        for module, state in self.extra_states:
            machine.outside(f"{type(module).__name__}.set_extra_state")
            module.set_extra_state(state)
