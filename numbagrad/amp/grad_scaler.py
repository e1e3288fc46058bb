"""``GradScaler``: a loss made larger, so that gradients in float16 do not become zero."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..autograd.modes import no_grad
from ..errors import DTypeError
from ..kernels import machine
from ..nn.utils import get_total_norm
from ..tensor import Tensor

__all__ = ["GradScaler"]

_FRESH, _UNSCALED, _STEPPED = "fresh", "unscaled", "stepped"


_WAY_OUT = (
    "Compile what gives the loss, and let scale(loss).backward(), step and update stand outside; "
    "bfloat16 needs no scaling."
)


class GradScaler:
    """Multiplies a loss, divides its gradients, and skips steps whose gradients overflowed.

    After a step with an infinity or NaN the factor is multiplied by backoff_factor; after
    growth_interval steps in a row without one, by growth_factor (Micikevicius et al., 2018).
    With enabled=False every method does nothing but its work without a factor.

    >>> scaler = GradScaler(init_scale=4.0)
    >>> scaler.get_scale()
    4.0
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ):
        if not growth_factor > 1.0:
            raise ValueError(f"GradScaler: growth_factor must be above 1, got {growth_factor}.")
        if not 0.0 < backoff_factor < 1.0:
            raise ValueError(
                f"GradScaler: backoff_factor must be between 0 and 1, got {backoff_factor}."
            )
        self._enabled = enabled
        self._device = device
        self._scale, self._good_steps = float(init_scale), 0
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval = growth_interval
        self._seen: dict[int, tuple[Any, str, bool]] = {}  # by id: optimizer, stage, overflow

    def is_enabled(self) -> bool:
        """Whether it scales."""
        return self._enabled

    def get_scale(self) -> float:
        """The factor of the next loss; 1.0 if disabled."""
        return self._scale if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        """By what the factor grows."""
        return self._growth_factor

    def get_backoff_factor(self) -> float:
        """By what the factor shrinks."""
        return self._backoff_factor

    def get_growth_interval(self) -> int:
        """How many good steps in a row let the factor grow."""
        return self._growth_interval

    def scale(self, outputs: Any) -> Any:
        """``outputs``, a tensor or lists and tuples of them, times the factor."""
        if not self._enabled:
            return outputs
        machine.outside("GradScaler.scale", _WAY_OUT)
        if isinstance(outputs, Tensor):
            # In float32: the factor itself is beyond the numbers of float16.
            outputs = outputs.float() if outputs.dtype.itemsize == 2 else outputs
            return outputs * self._scale
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(each) for each in outputs)
        raise TypeError(
            f"GradScaler.scale: outputs must be a Tensor or a list or tuple of Tensors, not "
            f"{type(outputs).__name__}."
        )

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of ``optimizer`` in place, before clipping say; else ``step`` does.

        Waits for the GPU. Raises RuntimeError when called twice between two ``update``, and
        DTypeError for gradients in float16: their parameters should be float32.
        """
        if not self._enabled:
            return
        machine.outside("GradScaler.unscale_", _WAY_OUT)
        _, stage, _ = self._seen.get(id(optimizer), (None, _FRESH, False))
        if stage != _FRESH:
            word = "has already been called" if stage == _UNSCALED else "is called after step"
            raise RuntimeError(f"GradScaler: unscale_() {word} on this optimizer since update().")
        grads = [
            p.grad
            for group in optimizer.param_groups
            for p in group["params"]
            if p.grad is not None
        ]
        if any(g.dtype.name == "float16" for g in grads):
            raise DTypeError(
                "GradScaler: Attempting to unscale FP16 gradients. Keep the parameters in float32 "
                "and use autocast, without .half()."
            )
        self._seen[id(optimizer)] = optimizer, _UNSCALED, self._divided(grads)

    def _divided(self, grads: list[Tensor]) -> bool:
        """Divide ``grads``; whether one of them holds an infinity or NaN."""
        if not grads:
            return False
        with no_grad():
            factor = 1.0 / self._scale
            for grad in grads:
                grad.mul_(factor)
            return not math.isfinite(get_total_norm(grads, math.inf).item())

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """``optimizer.step()``, unless its gradients hold an infinity or NaN; then None."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        machine.outside("GradScaler.step", _WAY_OUT)
        if args or kwargs.get("closure") is not None:
            raise RuntimeError("GradScaler.step: closure use is not supported.")
        _, stage, _ = self._seen.get(id(optimizer), (None, _FRESH, False))
        if stage == _STEPPED:
            raise RuntimeError("GradScaler: step() has already been called since update().")
        if stage == _FRESH:
            self.unscale_(optimizer)
        _, _, overflow = self._seen[id(optimizer)]
        self._seen[id(optimizer)] = optimizer, _STEPPED, overflow
        return None if overflow else optimizer.step(**kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Choose the factor of the next round, or set it to ``new_scale``."""
        if not self._enabled:
            return
        machine.outside("GradScaler.update", _WAY_OUT)
        if new_scale is not None:
            self._scale = float(new_scale)
        elif not self._seen:
            raise RuntimeError("GradScaler.update: no step() or unscale_() came before it.")
        elif any(overflow for _, _, overflow in self._seen.values()):
            self._scale *= self._backoff_factor
            self._good_steps = 0
        else:
            self._good_steps += 1
            if self._good_steps == self._growth_interval:
                grown = float(np.float32(self._scale * self._growth_factor))
                self._scale = grown if math.isfinite(grown) else self._scale
                self._good_steps = 0
        self._seen.clear()

    def state_dict(self) -> dict[str, Any]:
        """What ``load_state_dict`` takes; plain numbers. Empty if disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._good_steps,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` of another scaler gave; also of PyTorch's."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "GradScaler: The source state dict is empty, possibly because it was saved from a "
                "disabled GradScaler."
            )
        self._scale = float(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._good_steps = int(state_dict["_growth_tracker"])
