"""A module's state: ``state_dict`` and ``load_state_dict``, which changes all or nothing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ...autograd.modes import no_grad
from ...errors import StateDictError
from ...tensor import Tensor
from ..parameter import Uninitialized

__all__ = ["IncompatibleKeys", "Stateful"]


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


class Stateful:
    """The part of ``Module`` that is saved and loaded."""

    def _state_entries(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """Parameters and persistent buffers with dotted names; shared ones once per name."""
        members: Any = self
        for name, parameter in members._parameters.items():
            if parameter is not None:
                yield prefix + name, parameter
        for name, buffer in members._buffers.items():
            if buffer is not None and name not in members._non_persistent:
                yield prefix + name, buffer
        for name, module in members._modules.items():
            if module is not None:
                yield from module._state_entries(f"{prefix}{name}.")

    def state_dict(
        self,
        *,
        destination: dict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Any]:
        """Parameters and persistent buffers by dotted name, sharing memory with the module.

        keep_vars: the tensors themselves instead of detached ones.
        """
        found: dict[str, Any] = OrderedDict() if destination is None else destination
        for name, tensor in self._state_entries(prefix):
            kept = keep_vars or isinstance(tensor, Uninitialized)
            found[name] = tensor if kept else tensor.detach()
        return found

    def load_state_dict(
        self, state_dict: Mapping[str, Tensor], strict: bool = True
    ) -> IncompatibleKeys:
        """Copy the values of ``state_dict`` into parameters and buffers of the same names.

        strict: names that are missing or unexpected are an error. All errors come in one message,
        and then the module is as it was. Values are cast to the dtypes of the module.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(
                f"load_state_dict: expected state_dict to be dict-like, got "
                f"{type(state_dict).__name__}."
            )
        entries = dict(self._state_entries())
        missing = [name for name in entries if name not in state_dict]
        unexpected = [name for name in state_dict if name not in entries]
        errors = []
        for words, names in (("Missing", missing), ("Unexpected", unexpected)):
            if strict and names:
                listed = ", ".join(f'"{name}"' for name in names)
                errors.append(f"{words} key(s) in state_dict: {listed}.")
        same: set[str] = set()
        matched = [(n, t, state_dict[n]) for n, t in entries.items() if n in state_dict]
        for name, tensor, value in matched:
            if not isinstance(value, Tensor):
                errors.append(
                    f"While copying the parameter named {name!r}, expected a Tensor but received "
                    f"{type(value).__name__}."
                )
            elif isinstance(tensor, Uninitialized) and isinstance(value, Uninitialized):
                same.add(name)
            elif isinstance(tensor, Uninitialized):
                continue  # it takes the shape that it is given
            elif value.shape != tensor.shape:
                errors.append(
                    f"size mismatch for {name}: copying a param with shape {value.shape} from "
                    f"checkpoint, the shape in current model is {tensor.shape}."
                )
        if errors:
            listed = "\n\t".join(errors)
            raise StateDictError(
                f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{listed}"
            )
        with no_grad():
            for name, tensor, value in matched:
                if name in same:
                    continue
                if isinstance(tensor, Uninitialized):
                    tensor.materialize(value.shape)
                tensor.copy_(value)
        return IncompatibleKeys(missing, unexpected)
