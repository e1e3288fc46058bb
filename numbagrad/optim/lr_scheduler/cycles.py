"""Schedulers that go down and up, with the momentum where they are asked to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...kernels import machine
from ..optimizer import Optimizer
from .base import LRScheduler

__all__ = ["CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "OneCycleLR"]


def set_momentum(group: dict[str, Any], momentum: float) -> None:
    """Set what a group calls its momentum: beta1, if it has betas."""
    if "betas" in group:
        group["betas"] = (momentum, *group["betas"][1:])
    else:
        group["momentum"] = momentum


def _each(name: str, value: float | list[float], groups: Sequence[Any]) -> list[float]:
    """A value for each group."""
    values = list(value) if isinstance(value, (list, tuple)) else [value] * len(groups)
    if len(values) != len(groups):
        raise ValueError(f"expected {len(groups)} values for {name}, got {len(values)}")
    return values


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
        if epoch == 0 or self._keeps():
            return rates
        if (epoch - 1 - period) % (2 * period) == 0:  # it stands at eta_min: a ratio would be 0 / 0
            rise = (1 - math.cos(math.pi / period)) / 2
            return [
                rate + (base - low) * rise for rate, base in zip(rates, self.base_lrs, strict=True)
            ]
        now, before = (1 + math.cos(math.pi * e / period) for e in (epoch, epoch - 1))
        return [now / before * (rate - low) + low for rate in rates]

    def _get_closed_form_lr(self) -> list[float]:
        height = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]


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
        if not machine.is_compiling():  # there an epoch is a whole number
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
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
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
        highest = _each("max_lr", max_lr, groups)
        least = _each("base_momentum", base_momentum, groups)
        most = _each("max_momentum", max_momentum, groups)
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
            for group, peak, a, b in zip(groups, highest, least, most, strict=True):
                group["initial_lr"] = peak / div_factor
                group["max_lr"] = peak
                group["min_lr"] = group["initial_lr"] / final_div_factor
                if cycle_momentum:
                    if "momentum" not in group and "betas" not in group:
                        raise ValueError(
                            "optimizer must support momentum or beta1 with `cycle_momentum` option "
                            "enabled"
                        )
                    group["base_momentum"], group["max_momentum"] = a, b
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
                set_momentum(group, momentum)
        return result


class CyclicLR(LRScheduler):
    """Up from base_lr to max_lr in step_size_up steps, down in step_size_down, and so on.

    Smith, "Cyclical learning rates for training neural networks", 2017. Call ``step`` after every
    batch. mode: "triangular"; "triangular2", half as high in each cycle; "exp_range", ``gamma **
    step`` times as high. scale_fn: instead of a mode, the height by the number of the cycle, or of
    the step where scale_mode is "iterations". cycle_momentum: momentum (or beta1) runs the other
    way between max_momentum and base_momentum.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ):
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError(
                f"CyclicLR: mode is 'triangular', 'triangular2' or 'exp_range', not {mode!r}, "
                f"unless there is a scale_fn."
            )
        if scale_mode not in ("cycle", "iterations"):
            raise ValueError(
                f"CyclicLR: scale_mode is 'cycle' or 'iterations', not {scale_mode!r}."
            )
        down = step_size_up if step_size_down is None else step_size_down
        if step_size_up <= 0 or down <= 0:
            raise ValueError(
                f"CyclicLR: step sizes must be positive, got {step_size_up} and {down}."
            )
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        self.mode = mode
        self.gamma = gamma
        self.scale_fn = scale_fn
        self.scale_mode = scale_mode
        self.cycle_momentum = cycle_momentum
        groups = optimizer.param_groups
        lowest, highest = _each("base_lr", base_lr, groups), _each("max_lr", max_lr, groups)
        least = _each("base_momentum", base_momentum, groups)
        most = _each("max_momentum", max_momentum, groups)
        named = all("momentum" in g or "betas" in g for g in groups)
        if cycle_momentum and not named:
            raise ValueError(
                "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
            )
        self.max_lrs = highest
        if last_epoch == -1:
            for group, low, a, b in zip(groups, lowest, least, most, strict=True):
                group["lr"] = group["initial_lr"] = low
                if cycle_momentum:
                    group["base_momentum"], group["max_momentum"] = a, b
        super().__init__(optimizer, last_epoch)
        self.base_lrs = lowest

    def _height(self, cycle: int) -> float:
        if self.scale_fn is not None:
            return self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.mode == "exp_range":
            return self.gamma**self.last_epoch
        return 1.0 if self.mode == "triangular" else 0.5 ** (cycle - 1)

    def get_lr(self) -> list[float]:
        """The rate of each group at ``last_epoch``; sets the momentum, too."""
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        part = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        height = part * self._height(cycle)
        if self.cycle_momentum:
            for group in self.optimizer.param_groups:
                most = group["max_momentum"]
                set_momentum(group, most - (most - group["base_momentum"]) * height)
        pairs = zip(self.base_lrs, self.max_lrs, strict=True)
        return [low + (high - low) * height for low, high in pairs]
