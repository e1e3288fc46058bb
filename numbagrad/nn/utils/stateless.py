"""``functional_call``: a module's forward with other tensors in place of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...kernels import machine
from ...tensor import Tensor

__all__ = ["functional_call"]


def functional_call(
    module: Any,
    parameters_and_buffers: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    strict: bool = False,
) -> Any:
    """``module(*args, **kwargs)`` with the named tensors in place of its parameters and buffers.

    parameters_and_buffers: by dotted name, in one dict or several; the gradient flows to these
    tensors. A parameter that the module holds under several names is replaced under all of them.
    args: a tuple, or the one argument. strict: all names must be given. The module is as before
    afterwards. Raises ValueError for a name in two dicts.

    >>> import numbagrad as ng
    >>> layer = ng.nn.Linear(1, 1, bias=False)
    >>> functional_call(layer, {"weight": ng.ones(1, 1)}, ng.ones(1, 1)).tolist()
    [[1.0]]
    """
    if not isinstance(parameters_and_buffers, Mapping):
        parameters_and_buffers = _joined(parameters_and_buffers)
    slots = _slots(module)
    unknown = [name for name in parameters_and_buffers if name not in slots]
    missing = [name for name in slots if name not in parameters_and_buffers]
    if unknown or (strict and missing):
        raise RuntimeError(
            f"functional_call: the names do not match those of {type(module).__name__}. Unexpected "
            f"key(s): {', '.join(unknown) or 'none'}. Missing key(s): {', '.join(missing)}."
        )
    given: dict[int, Tensor] = {}
    for name, tensor in parameters_and_buffers.items():
        owner, table, key = slots[name]
        given[id(owner.__dict__[table][key])] = tensor
    replaced = []
    for owner, table, key in slots.values():
        held = owner.__dict__[table][key]
        new = given.get(id(held), held)
        if new is not held:
            replaced.append((owner, table, key, held, new))
    # What compiled steps compare is moved and moved back: those of before are right again after.
    amount = hash(tuple((id(owner), key, id(new)) for owner, _, key, _, new in replaced))
    if args is None:
        args = ()
    try:
        machine.add_to_epoch(amount)
        for owner, table, key, _, new in replaced:
            owner.__dict__[key] = owner.__dict__[table][key] = new
        return module(*(args if isinstance(args, tuple) else (args,)), **(kwargs or {}))
    finally:
        machine.add_to_epoch(-amount)
        for owner, table, key, held, _ in replaced:
            owner.__dict__[key] = owner.__dict__[table][key] = held


def _joined(dicts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """One dict of several, such as of parameters and of buffers."""
    found: dict[str, Tensor] = {}
    for each in dicts:
        for name, tensor in each.items():
            if name in found:
                raise ValueError(
                    f"functional_call: {name!r} appears in multiple dictionaries. Give it in one."
                )
            found[name] = tensor
    return found


def _slots(module: Any) -> dict[str, tuple[Any, str, str]]:
    """Where each named parameter and buffer stands: its module, table and key."""
    found = {}
    for path, owner in module.named_modules(remove_duplicate=False):
        for table in ("_parameters", "_buffers"):
            for key, held in owner.__dict__[table].items():
                if held is not None:
                    found[f"{path}.{key}" if path else key] = (owner, table, key)
    return found
