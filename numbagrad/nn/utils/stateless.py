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
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """``module(*args, **kwargs)`` with the named tensors in place of its parameters and buffers.

    parameters_and_buffers: by dotted name, in one dict or several; the gradient flows to these
    tensors. tie_weights: what the module holds under several names is replaced under all of them;
    else under those that are given. args: a tuple, or the one argument. strict: all names must be
    given. The module is as before afterwards. Raises ValueError for a name in two dicts, and for
    two tensors in the place of one.

    >>> import numbagrad as ng
    >>> layer = ng.nn.Linear(1, 1, bias=False)
    >>> functional_call(layer, {"weight": ng.ones(1, 1)}, ng.ones(1, 1)).tolist()
    [[1.0]]
    """
    if not isinstance(parameters_and_buffers, Mapping):
        if not isinstance(parameters_and_buffers, Sequence):
            raise ValueError(
                f"functional_call: expected parameters and buffers as a dict, or several, got "
                f"{type(parameters_and_buffers).__name__}."
            )
        parameters_and_buffers = _joined(parameters_and_buffers)
    slots = _slots(module)
    given = _given(parameters_and_buffers, slots, tie_weights)
    none = [name for name, (_, _, _, held) in slots.items() if held is None]
    unknown = [name for name in given if name not in slots or (strict and name in none)]
    missing = [name for name in slots if name not in given and name not in none]
    if unknown or (strict and missing):
        raise RuntimeError(
            f"functional_call: the names do not match those of {type(module).__name__}. Unexpected "
            f"key(s): {', '.join(unknown) or 'none'}. Missing key(s): {', '.join(missing)}."
        )
    replaced = [
        (owner, table, key, held, given[name])
        for name, (owner, table, key, held) in slots.items()
        if given.get(name, held) is not held
    ]
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
        if not isinstance(each, Mapping):
            raise ValueError(f"functional_call: expected dicts, got {type(each).__name__}.")
        for name, tensor in each.items():
            if name in found:
                raise ValueError(
                    f"functional_call: {name!r} appears in multiple dictionaries. Give it in one."
                )
            found[name] = tensor
    return found


def _given(
    tensors: Mapping[str, Tensor], slots: dict[str, tuple[Any, str, str, Any]], tie_weights: bool
) -> dict[str, Tensor]:
    """The tensors by all the names that they are for."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"functional_call: {name!r} must be a tensor, got {tensor!r}.")
    found = dict(tensors)
    if not tie_weights:
        return found
    names: dict[int, list[str]] = {}
    for name, (_, _, _, held) in slots.items():
        if held is not None:
            names.setdefault(id(held), []).append(name)
    for tied in names.values():
        told = [name for name in tied if name in tensors]
        if len({id(tensors[name]) for name in told}) > 1:
            raise ValueError(
                f"functional_call: got multiple values for {told}, which are tied. Give one "
                f"tensor, or pass tie_weights=False."
            )
        if told:
            found.update(dict.fromkeys(tied, tensors[told[0]]))
    return found


def _slots(module: Any) -> dict[str, tuple[Any, str, str, Any]]:
    """Where each named parameter and buffer stands: its module, table and key; and what it is."""
    found = {}
    for path, owner in module.named_modules(remove_duplicate=False):
        for table in ("_parameters", "_buffers"):
            for key, held in owner.__dict__[table].items():
                found[f"{path}.{key}" if path else key] = (owner, table, key, held)
    return found
