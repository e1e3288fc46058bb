"""Schedulers made of others, and the one that looks at a metric."""

from __future__ import annotations

import functools
import math
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from ...kernels import machine
from ..optimizer import Optimizer
from .base import LRScheduler, looked_at, rates_in_a_step

__all__ = ["ChainedScheduler", "ReduceLROnPlateau", "SequentialLR"]


def _check_schedulers(name: str, schedulers: Sequence[Any], optimizer: Optimizer) -> None:
    for i, scheduler in enumerate(schedulers):
        if not isinstance(scheduler, LRScheduler):
            raise TypeError(
                f"{name}: scheduler {i} is {type(scheduler).__name__}; its step takes a metric, or "
                f"it is no scheduler. Step it by itself."
            )
        if scheduler.optimizer is not optimizer:
            raise ValueError(
                f"{name} expects all schedulers to belong to the same optimizer, but got another "
                f"one at index {i}."
            )


class SequentialLR(LRScheduler):
    """One scheduler after the other: the next one starts afresh at each of the milestones.

    milestones: increasing epochs, one fewer than schedulers. Each scheduler begins from the initial
    rates, but ``MultiplicativeLR`` from those of the one before.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ):
        if not schedulers:
            raise ValueError("SequentialLR expects at least one scheduler, but got none.")
        _check_schedulers("SequentialLR", schedulers, optimizer)
        machine.outside("SequentialLR", "Make it before the compiled step.")
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"SequentialLR expects one milestone fewer than schedulers, but got "
                f"{len(schedulers)} schedulers and {len(milestones)} milestones."
            )
        self.optimizer = optimizer
        self._schedulers = list(schedulers)
        self._milestones = list(milestones)
        self.last_epoch = last_epoch + 1
        # Each of them took its first step when it was made, on the rates the one before had set.
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for scheduler in self._schedulers:
            scheduler._undo()
        self._first().step()
        self._last_lr = self._first().get_last_lr()

    def _first(self) -> LRScheduler:
        return self._schedulers[bisect_right(self._milestones, 0)]

    def _undo(self) -> None:
        self.last_epoch -= 1
        self._first()._undo()

    def _rewind(self) -> None:
        self.last_epoch = -1
        self._first()._rewind()

    def step(self) -> None:  # type: ignore[override]  # no epoch, as in PyTorch
        """Move on by one epoch."""
        again, groups = (
            functools.partial(SequentialLR.step, self),
            self.optimizer._groups_of_a_step(),
        )
        if machine.afterwards("lr_scheduler.step", again, (*groups, self, *self._schedulers)):
            return
        self.last_epoch += 1
        number = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[number]
        if number and self._milestones[number - 1] == self.last_epoch:
            scheduler._rewind()
        scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer, and of each scheduler its own."""
        state = {n: v for n, v in vars(self).items() if n not in ("optimizer", "_schedulers")}
        return state | {"_schedulers": [scheduler.state_dict() for scheduler in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned."""
        own = dict(state_dict)
        for scheduler, state in zip(self._schedulers, own.pop("_schedulers"), strict=True):
            scheduler.load_state_dict(state)
        vars(self).update(own)


class ChainedScheduler(LRScheduler):
    """Several schedulers at once: each step of it is a step of each of them, in order."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None):
        if not schedulers:
            raise ValueError("ChainedScheduler expects at least one scheduler, but got none.")
        optimizer = schedulers[0].optimizer if optimizer is None else optimizer
        _check_schedulers("ChainedScheduler", schedulers, optimizer)
        self.optimizer = optimizer
        self._schedulers = list(schedulers)
        self._last_lr = self._rates()

    def _undo(self) -> None:
        for scheduler in self._schedulers:
            scheduler._undo()

    def _rewind(self) -> None:
        for scheduler in self._schedulers:
            scheduler._rewind()

    def step(self) -> None:  # type: ignore[override]  # no epoch, as in PyTorch
        """Move on by one epoch."""
        again, groups = (
            functools.partial(ChainedScheduler.step, self),
            self.optimizer._groups_of_a_step(),
        )
        if machine.afterwards("lr_scheduler.step", again, (*groups, self, *self._schedulers)):
            return
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._rates()

    state_dict = SequentialLR.state_dict
    load_state_dict = SequentialLR.load_state_dict


class ReduceLROnPlateau:
    """Times factor once a metric has not improved for more than patience steps.

    mode: "min" or "max" is better. threshold: by how much a better value must differ, relative
    (threshold_mode "rel") or absolute ("abs"). cooldown: steps to wait after a reduction. min_lr:
    the lowest rate, or one per group. eps: smaller changes are not made.
    """

    default_min_lr: Any = None  # of those that an older version has pickled

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | list[float] = 0,
        eps: float = 1e-8,
    ):
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        self.optimizer = optimizer
        groups = len(optimizer.param_groups)
        several = isinstance(min_lr, (list, tuple))
        self.default_min_lr = None if several else min_lr
        self.min_lrs = list(min_lr) if isinstance(min_lr, (list, tuple)) else [min_lr] * groups
        if len(self.min_lrs) != groups:
            raise ValueError(f"expected {groups} min_lrs, got {len(self.min_lrs)}")
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.eps = eps
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = 0
        self.cooldown_counter = 0
        self.last_epoch = 0

    def _better(self, value: float) -> bool:
        sign = -1 if self.mode == "min" else 1
        if self.threshold_mode == "rel":
            return sign * value > sign * self.best * (1 + sign * self.threshold)
        return sign * value > sign * (self.best + sign * self.threshold)

    def _lowest(self) -> list[Any]:
        """The lowest rate of each group, of those too that came meanwhile."""
        groups = len(self.optimizer.param_groups)
        if len(self.min_lrs) != groups:
            if self.default_min_lr is None:
                raise RuntimeError(
                    f"ReduceLROnPlateau: the optimizer has {groups} param groups and there are "
                    f"{len(self.min_lrs)} min_lrs, usually because a group was added. Let "
                    f"scheduler.min_lrs have one for each."
                )
            self.min_lrs = [self.default_min_lr] * groups
        return self.min_lrs

    def step(self, metrics: Any, epoch: int | None = None) -> None:
        """Take note of the metric of one more epoch; in a compiled step when a call ends.

        epoch: which one it is, deprecated as in PyTorch.
        """
        again = functools.partial(ReduceLROnPlateau.step, self)
        changed = (*self.optimizer._groups_of_a_step(), self)
        given = (metrics,) if epoch is None else (metrics, epoch)
        if machine.afterwards("lr_scheduler.step", again, changed, *given):
            return
        value = float(metrics)
        if epoch is not None:
            warnings.warn(
                "The epoch parameter in `scheduler.step()` is deprecated. Use `scheduler.step()`.",
                UserWarning,
                stacklevel=2,
            )
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._better(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, low in zip(self.optimizer.param_groups, self._lowest(), strict=True):
                rate = max(float(group["lr"]) * self.factor, low)
                if group["lr"] - rate > self.eps:
                    group["lr"] = rate
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0

    def get_last_lr(self) -> list[float]:
        """The present rates; in a compiled function as those of other schedulers."""
        if machine.recording and machine.is_compiling():
            return rates_in_a_step(self)
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    state_dict = LRScheduler.state_dict
    load_state_dict = LRScheduler.load_state_dict


machine.while_recorded[ReduceLROnPlateau] = looked_at
