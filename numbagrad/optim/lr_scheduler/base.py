"""The base of schedulers: start at ``LRScheduler.step``."""

from __future__ import annotations

import functools
import warnings
from typing import Any

from ...kernels import machine
from ..optimizer import Optimizer

__all__ = ["LRScheduler"]


class LRScheduler:
    """The base of schedulers; a subclass defines ``get_lr``, the next rate of every group.

    last_epoch: steps taken before, -1 for a fresh start. ``base_lrs`` are the rates at step 0.
    """

    # Steps of this object; the first is that of __init__.
    _step_count = 0

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        machine.outside(type(self).__name__, "Make it before the compiled step.")
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming an "
                    f"optimizer"
                )
        self.base_lrs = [float(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def get_lr(self) -> list[float]:
        """The rate of each group at ``last_epoch``."""
        raise NotImplementedError

    def _rates(self) -> list[float]:
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def _keeps(self) -> bool:
        """Whether the step is that of ``__init__``, which leaves the rates of a checkpoint."""
        return self._step_count == 1

    def _undo(self) -> None:
        """Take back the step of ``__init__``."""
        self.last_epoch -= 1
        self._step_count -= 1

    def _rewind(self) -> None:
        """Let the next step be the first, from the rates of step 0."""
        for group, base in zip(self.optimizer.param_groups, self.base_lrs, strict=True):
            group["lr"] = base
        self.last_epoch = -1

    def step(self, epoch: int | None = None) -> None:
        """Move on by one epoch, or batch, if that is what you count; in a compiled step at its end.

        epoch: move there instead, deprecated as in PyTorch; to the rates of the scheduler's formula
        for that epoch, ``_get_closed_form_lr()``, where it has one.
        Warns where the optimizer has not taken a step before: its first would miss the first rate.
        An optimizer with a ``step`` of its own is not watched.
        """
        optimizer = self.optimizer
        again = functools.partial(LRScheduler.step, self)  # of a subclass, this part of its step
        changed = (*optimizer._groups_of_a_step(), self)
        given = () if epoch is None else (epoch,)
        if machine.afterwards("lr_scheduler.step", again, changed, *given):
            return
        unstepped = type(optimizer).step is Optimizer.step and not optimizer._stepped
        if self._step_count == 1 and unstepped:
            warnings.warn(
                f"Detected call of `lr_scheduler.step()` before `optimizer.step()`: "
                f"{type(optimizer).__name__} never steps at the first rate of "
                f"{type(self).__name__}. Call optimizer.step() first.",
                stacklevel=2,
            )
        self._step_count += 1
        rates = self.get_lr
        if epoch is None:
            self.last_epoch += 1
        else:
            warnings.warn(
                "The epoch parameter in `scheduler.step()` is deprecated. Use `scheduler.step()`.",
                UserWarning,
                stacklevel=2,
            )
            self.last_epoch = epoch
            rates = getattr(self, "_get_closed_form_lr", rates)
        for group, rate in zip(self.optimizer.param_groups, rates(), strict=True):
            group["lr"] = rate
        self._last_lr = self._rates()

    def get_last_lr(self) -> list[float]:
        """The rates set by the last step.

        In a compiled function that has taken one before, what is to be returned as it is: a call
        takes the step in the end, and puts the rates there.
        """
        if machine.recording and machine.is_compiling():  # groups are asked again by each call
            return rates_in_a_step(self)
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer; functions cannot be saved and are left out."""
        return {n: v for n, v in vars(self).items() if n != "optimizer" and not _has_callable(v)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned."""
        vars(self).update(state_dict)


def rates_in_a_step(scheduler: Any) -> list[Any]:
    """What stands for the rates while a function is recorded that may have taken a step."""
    groups, rates = scheduler.optimizer._groups_of_a_step(), []
    for k, group in enumerate(groups):
        read = functools.partial(_last_rate, scheduler, k)
        rate = machine.late("lr_scheduler.get_last_lr", group, read)
        if rate is None:
            machine.recorder.current.reading_options(group)
            rate = group["lr"]
        rates.append(rate)
    return rates


def _last_rate(scheduler: Any, k: int) -> float:
    return float(scheduler.get_last_lr()[k])


def looked_at(scheduler: Any, name: str) -> Any:
    """What a recorded step reads of a scheduler: each call looks at it, for steps change it, and
    after a step, which calls take in the end, it cannot be read."""
    value = object.__getattribute__(scheduler, name)
    if type(value) in (int, float, bool) and name[0] != "_" and machine.is_compiling():
        machine.unchanged(scheduler)
        return machine.depends(lambda: object.__getattribute__(scheduler, name))
    return value


machine.while_recorded[LRScheduler] = looked_at


def _has_callable(value: Any) -> bool:
    return callable(value) or (isinstance(value, list) and any(map(callable, value)))
