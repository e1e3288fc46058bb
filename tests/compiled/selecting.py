"""What the tests of selected rows share: masks, and a step that trains on what a function gives."""

from __future__ import annotations

from typing import Any

import numpy as np

import numbagrad as ng

MASKS = {
    "some": [True, False, True, True, False],
    "others": [False, False, False, True, False],
    "all": [True] * 5,
    "none": [False] * 5,
}


def taught(function: Any, given: Any) -> tuple[Any, Any]:
    """The value, and the gradients of a step that trains on it, by all floats that ask for one."""
    out = function(*given)
    if not out.requires_grad:
        return out, None
    inputs = [t for t in given if t.requires_grad]
    return out, ng.autograd.grad((out * out).sum(), inputs, allow_unused=True)


def flat(found: Any) -> list[np.ndarray]:
    """The arrays of a value and its gradients, of which a None is left out."""
    out, grads = found
    return [t.detach().numpy() for t in (out, *(grads or ())) if t is not None]


def agree(got: Any, expected: Any, tolerance: float, mask: str) -> None:
    """Raise where values or gradients differ."""
    for k, (g, e) in enumerate(zip(flat(got), flat(expected), strict=True)):
        assert e.dtype == g.dtype and e.shape == g.shape, (mask, k)
        np.testing.assert_allclose(g, e, tolerance, tolerance, err_msg=f"{mask}, {k}")
