"""Modules whose parameters are going to be overwritten: ``skip_init``."""

from __future__ import annotations

import inspect
from typing import Any

from ...random import get_rng_state, set_rng_state

__all__ = ["skip_init"]


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """A module as ``module_cls(*args, **kwargs)`` makes it, with any numbers in its parameters.

    For a module whose state is loaded next: the generator stands afterwards where it stood before.
    (PyTorch makes it on a device without memory; there is none here, so the numbers are drawn.)
    Raises ValueError for a class that takes no device.

    >>> import numbagrad as ng
    >>> skip_init(ng.nn.Linear, 2, 3).weight.shape
    ng.Size([3, 2])
    """
    if not inspect.isclass(module_cls) or "device" not in inspect.signature(module_cls).parameters:
        raise ValueError(
            f"skip_init: Module must support a 'device' arg to skip initialization, got "
            f"{module_cls!r}."
        )
    state = get_rng_state()
    try:
        return module_cls(*args, **kwargs)
    finally:
        set_rng_state(state)
