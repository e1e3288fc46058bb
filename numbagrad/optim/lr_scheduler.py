"""Schedulers: each step sets the learning rates of an optimiser's groups.

A rate is computed from the one before, so that schedulers chain; ``LRScheduler.step`` is where to
start reading.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..kernels import machine
from .optimizer import Optimizer

__all__ = [
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "OneCycleLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]


class LRScheduler:
    """The base of schedulers; a subclass defines ``get_lr``, the next rate of every group.

    last_epoch: steps taken before, -1 for a fresh start. ``base_lrs`` are the rates at step 0.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
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

    def step(self) -> None:
        """Move on by one epoch (or batch, if that is what you count)."""
        machine.outside("lr_scheduler.step")
        self.last_epoch += 1
        for group, rate in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
            group["lr"] = rate
        self._last_lr = self._rates()

    def get_last_lr(self) -> list[float]:
        """The rates set by the last step."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer; functions cannot be saved and are left out."""
        return {n: v for n, v in vars(self).items() if n != "optimizer" and not _has_callable(v)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned."""
        vars(self).update(state_dict)


def _has_callable(value: Any) -> bool:
    return callable(value) or (isinstance(value, list) and any(map(callable, value)))


class LambdaLR(LRScheduler):
    """The initial rate times ``lr_lambda(epoch)``; a list has one function per group."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | list[Callable[[int], float]],
        last_epoch: int = -1,
    ):
        groups = len(optimizer.param_groups)
        functions = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else None
        self.lr_lambdas = [lr_lambda] * groups if functions is None else functions
        if len(self.lr_lambdas) != groups:
            raise ValueError(f"Expected {groups} lr_lambdas, but got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rate of each group at ``last_epoch``."""
        pairs = zip(self.base_lrs, self.lr_lambdas, strict=True)
        return [base * f(self.last_epoch) for base, f in pairs]  # type: ignore[operator]


class StepLR(LRScheduler):
    """Times gamma every step_size epochs."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ):
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rate of each group at ``last_epoch``."""
        due = self.last_epoch > 0 and self.last_epoch % self.step_size == 0
        return [rate * self.gamma if due else rate for rate in self._rates()]


class MultiStepLR(LRScheduler):
    """Times gamma at each of the epochs in milestones."""

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ):
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rate of each group at ``last_epoch``."""
        factor = self.gamma ** self.milestones[self.last_epoch]
        return [rate * factor for rate in self._rates()]


class ExponentialLR(LRScheduler):
    """Times gamma every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rate of each group at ``last_epoch``."""
        return [rate * self.gamma if self.last_epoch > 0 else rate for rate in self._rates()]


class LinearLR(LRScheduler):
    """The initial rate times a factor that goes from start_factor to end_factor in total_iters."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ):
        if not 0 < start_factor <= 1:
            raise ValueError("Starting multiplicative factor expected to be in (0, 1].")
        if not 0 <= end_factor <= 1:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        done = min(epoch, self.total_iters) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * done

    def get_lr(self) -> list[float]:
        """The rate of each group at ``last_epoch``."""
        if self.last_epoch == 0:
            return [rate * self.start_factor for rate in self._rates()]
        change = self._factor(self.last_epoch) / self._factor(self.last_epoch - 1)
        return [rate * change for rate in self._rates()]


class CosineAnnealingLR(LRScheduler):
    """From the initial rate to eta_min along half a cosine of T_max epochs, and back, and so on.

    Loshchilov and Hutter, 2017, without restarts.
    """

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ):
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rate of each group at ``last_epoch``."""
        rates, low = self._rates(), self.eta_min
        epoch, period = self.last_epoch, self.T_max
        if epoch == 0:
            return rates
        if (epoch - 1 - period) % (2 * period) == 0:  # it stands at eta_min: a ratio would be 0 / 0
            rise = (1 - math.cos(math.pi / period)) / 2
            return [
                rate + (base - low) * rise for rate, base in zip(rates, self.base_lrs, strict=True)
            ]
        now, before = (1 + math.cos(math.pi * e / period) for e in (epoch, epoch - 1))
        return [now / before * (rate - low) + low for rate in rates]


class CosineAnnealingWarmRestarts(LRScheduler):
    """From the initial rate to eta_min along half a cosine, again and again from the start.

    The first period has T_0 epochs, each further one T_mult times as many (Loshchilov and Hutter,
    2017). ``step(epoch)`` jumps to an epoch, which may be a fraction.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ):
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        self.T_0 = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def step(self, epoch: float | None = None) -> None:
        """Move on by one epoch, or to ``epoch``."""
        if epoch is not None:
            if epoch < 0:
                raise ValueError(f"Expected non-negative epoch, but got {epoch}")
            self.last_epoch = epoch - 1  # type: ignore[assignment]
        super().step()
        self.last_epoch = math.floor(self.last_epoch)

    def get_lr(self) -> list[float]:
        """The rate of each group at ``last_epoch``."""
        done, period = self.last_epoch, self.T_0
        while done >= period:
            done -= period
            period *= self.T_mult
        self.T_cur, self.T_i = done, period
        height = (1 + math.cos(math.pi * done / period)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]


class OneCycleLR(LRScheduler):
    """Up from ``max_lr / div_factor`` to max_lr in pct_start of the steps, then down.

    The end is ``max_lr / div_factor / final_div_factor`` (Smith and Topin, 2018). Call ``step``
    after every batch. total_steps, or epochs and steps_per_epoch. anneal_strategy: "cos" or
    "linear". three_phase: down again as slowly as up, then to the end. cycle_momentum: momentum
    (or beta1) runs the other way between max_momentum and base_momentum.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ):
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError(
                    "You must define either total_steps OR (epochs AND steps_per_epoch)"
                )
            total_steps = epochs * steps_per_epoch
        if total_steps <= 0:
            raise ValueError(f"Expected positive integer total_steps, but got {total_steps}")
        if not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self.total_steps = total_steps
        self.anneal_strategy = anneal_strategy
        self.cycle_momentum = cycle_momentum
        groups = optimizer.param_groups
        highest = list(max_lr) if isinstance(max_lr, (list, tuple)) else [max_lr] * len(groups)
        if len(highest) != len(groups):
            raise ValueError(f"expected {len(groups)} values for max_lr, got {len(highest)}")
        up = float(pct_start * total_steps) - 1
        end = total_steps - 1
        # Each phase: its last step, and the names of rate and momentum at its two ends.
        rise = (up, ("initial_lr", "max_lr"), ("max_momentum", "base_momentum"))
        if three_phase:
            self.phases = [
                rise,
                (2 * up, ("max_lr", "initial_lr"), ("base_momentum", "max_momentum")),
                (end, ("initial_lr", "min_lr"), ("max_momentum", "max_momentum")),
            ]
        else:
            self.phases = [
                rise, (end, ("max_lr", "min_lr"), ("base_momentum", "max_momentum"))
            ]  # fmt: skip
        if last_epoch == -1:
            for group, peak in zip(groups, highest, strict=True):
                group["initial_lr"] = peak / div_factor
                group["max_lr"] = peak
                group["min_lr"] = group["initial_lr"] / final_div_factor
                if cycle_momentum:
                    if "momentum" not in group and "betas" not in group:
                        raise ValueError(
                            "optimizer must support momentum or beta1 with `cycle_momentum` option "
                            "enabled"
                        )
                    group["max_momentum"], group["base_momentum"] = max_momentum, base_momentum
        super().__init__(optimizer, last_epoch)

    def _between(self, start: float, end: float, part: float) -> float:
        if self.anneal_strategy == "linear":
            return start + (end - start) * part
        return end + (start - end) / 2.0 * (1 + math.cos(math.pi * part))

    def get_lr(self) -> list[float]:
        """The rate of each group at ``last_epoch``; sets the momentum, too."""
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(
                f"Tried to step {step} times. The specified number of total steps is "
                f"{self.total_steps}"
            )
        number, start = 0, 0.0
        while number < len(self.phases) - 1 and step > self.phases[number][0]:
            start = self.phases[number][0]
            number += 1
        end, rates, momenta = self.phases[number]
        part = (step - start) / (end - start) if end != start else 1.0
        result = []
        for group in self.optimizer.param_groups:
            result.append(self._between(group[rates[0]], group[rates[1]], part))
            if self.cycle_momentum:
                momentum = self._between(group[momenta[0]], group[momenta[1]], part)
                if "betas" in group:
                    group["betas"] = (momentum, *group["betas"][1:])
                else:
                    group["momentum"] = momentum
        return result


class ReduceLROnPlateau:
    """Times factor once a metric has not improved for more than patience steps.

    mode: "min" or "max" is better. threshold: by how much a better value must differ, relative
    (threshold_mode "rel") or absolute ("abs"). cooldown: steps to wait after a reduction. min_lr:
    the lowest rate, or one per group. eps: smaller changes are not made.
    """

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
        self.min_lrs = list(min_lr) if isinstance(min_lr, (list, tuple)) else [min_lr] * groups
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

    def step(self, metrics: Any) -> None:
        """Take note of the metric of one more epoch."""
        machine.outside("lr_scheduler.step")
        value = float(metrics)
        self.last_epoch += 1
        if self._better(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, low in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                rate = max(float(group["lr"]) * self.factor, low)
                if group["lr"] - rate > self.eps:
                    group["lr"] = rate
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0

    def get_last_lr(self) -> list[float]:
        """The present rates."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    state_dict = LRScheduler.state_dict
    load_state_dict = LRScheduler.load_state_dict


class SequentialLR(LRScheduler):
    """One scheduler after the other: the next one starts afresh at each of the milestones.

    milestones: increasing epochs, one fewer than schedulers. Each scheduler begins from the initial
    rates.
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
        for i, scheduler in enumerate(schedulers):
            if not isinstance(scheduler, LRScheduler):
                raise TypeError(
                    f"SequentialLR: scheduler {i} is {type(scheduler).__name__}; its step takes a "
                    f"metric, or it is no scheduler. Step it by itself."
                )
            if scheduler.optimizer is not optimizer:
                raise ValueError(
                    f"SequentialLR expects all schedulers to belong to the same optimizer, but got "
                    f"another one at index {i}."
                )
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"SequentialLR expects one milestone fewer than schedulers, but got "
                f"{len(schedulers)} schedulers and {len(milestones)} milestones."
            )
        self.optimizer = optimizer
        self.schedulers = list(schedulers)
        self.milestones = list(milestones)
        self.last_epoch = last_epoch + 1
        # Each of them took its first step when it was made, on the rates the one before had set.
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for scheduler in self.schedulers:
            scheduler.last_epoch -= 1
        self.schedulers[0].step()
        self._last_lr = self.schedulers[0].get_last_lr()

    def step(self) -> None:
        """Move on by one epoch."""
        machine.outside("lr_scheduler.step")
        self.last_epoch += 1
        number = bisect_right(self.milestones, self.last_epoch)
        scheduler = self.schedulers[number]
        if number and self.milestones[number - 1] == self.last_epoch:
            for group, base in zip(self.optimizer.param_groups, scheduler.base_lrs, strict=True):
                group["lr"] = base
            scheduler.last_epoch = -1
        scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer, and of each scheduler its own."""
        state = {n: v for n, v in vars(self).items() if n not in ("optimizer", "schedulers")}
        return state | {"schedulers": [scheduler.state_dict() for scheduler in self.schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned."""
        states = state_dict["schedulers"]
        for scheduler, state in zip(self.schedulers, states, strict=True):
            scheduler.load_state_dict(state)
        vars(self).update({n: v for n, v in state_dict.items() if n != "schedulers"})
