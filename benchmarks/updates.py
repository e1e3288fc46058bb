"""An optimiser's step as a pure function, for libraries whose users write it so."""

from __future__ import annotations

from typing import Any

import numpy as np

MOMENTUM = 0.9
BETAS, EPS, DECAY = (0.9, 0.999), 1e-8, 1e-2
LR = 1e-4  # so small that thousands of timed steps on one batch leave the numbers ordinary


def slots(optimizer: str) -> int:
    """How many arrays of state each parameter has."""
    return 1 if optimizer == "momentum" else 2


def update(
    xp: Any,
    optimizer: str,
    parameters: Any,
    gradients: Any,
    state: Any,
    count: Any,
    lr: float = LR,
) -> tuple[Any, Any, Any]:
    """New parameters, state and count of SGD with momentum, Adam or AdamW.

    xp: torch, or a library with NumPy's names. count: steps so far, a float32 of no dimensions.
    """
    f32: Any = float if xp.__name__ == "torch" else np.float32
    if optimizer == "momentum":
        state = [f32(MOMENTUM) * b + g for b, g in zip(state, gradients, strict=True)]
        return [p - f32(lr) * b for p, b in zip(parameters, state, strict=True)], state, count
    count = count + f32(1)
    size = f32(lr) / (1 - f32(BETAS[0]) ** count)
    root = 1 / xp.sqrt(1 - f32(BETAS[1]) ** count)
    new, new_state = [], []
    moments = zip(state[::2], state[1::2], strict=True)
    for p, g, (m, v) in zip(parameters, gradients, moments, strict=True):
        first = f32(BETAS[0]) * m + f32(1 - BETAS[0]) * g
        second = f32(BETAS[1]) * v + f32(1 - BETAS[1]) * g * g
        kept = p * f32(1 - lr * DECAY) if optimizer == "AdamW" else p
        new.append(kept - size * first / (xp.sqrt(second) * root + f32(EPS)))
        new_state += [first, second]
    return new, new_state, count


def changes(old: list[Any], new: list[Any]) -> list[tuple[Any, Any]]:
    """What an update changes, as pairs of old and new."""
    return [(x, y) for x, y in zip(old, new, strict=True) if x is not y]
