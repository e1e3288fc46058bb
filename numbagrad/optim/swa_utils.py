"""Averages of a model's weights over its training: stochastic (SWA) and exponential (EMA).

``AveragedModel`` is a copy whose parameters follow those of the model. Start reading at its
``update_parameters``; an average of two tensors is a function of the three in ``get_swa_avg_fn``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import chain
from typing import Any

from ..autograd.modes import no_grad
from ..kernels import machine
from ..nn.modules.batchnorm import _BatchNorm
from ..nn.modules.module import Module
from ..ops.elementwise import where
from ..ops.from_data import tensor
from ..tensor import Tensor
from .lr_scheduler.base import LRScheduler
from .optimizer import Optimizer

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]

Average = Callable[[Tensor, Tensor, Any], Tensor]
Averages = Callable[[list[Tensor], list[Tensor], Any], None]


def _checked_decay(decay: float) -> float:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        )
    return decay


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """``(averaged, current, count)`` to ``decay averaged + (1 - decay) current``."""
    _checked_decay(decay)

    @no_grad()
    def average(averaged: Tensor, current: Tensor, count: Any) -> Tensor:
        return decay * averaged + (1 - decay) * current

    return average


def get_swa_avg_fn() -> Average:
    """``(averaged, current, count)`` to the mean of ``count + 1`` models, all of equal weight."""

    @no_grad()
    def average(averaged: Tensor, current: Tensor, count: Any) -> Tensor:
        return averaged + (current - averaged) / (count + 1)

    return average


def _all(average: Average) -> Averages:
    @no_grad()
    def averages(averaged: list[Tensor], current: list[Tensor], count: Any) -> None:
        for mean, x in zip(averaged, current, strict=True):
            mean.copy_(average(mean, x, count))

    return averages


def get_ema_multi_avg_fn(decay: float = 0.999) -> Averages:
    """``get_ema_avg_fn`` for lists, in place on the first."""
    return _all(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> Averages:
    """``get_swa_avg_fn`` for lists, in place on the first."""
    return _all(get_swa_avg_fn())


class AveragedModel(Module):
    """A copy of ``model``, in ``module``, that ``update_parameters`` moves to an average.

    device: where the copy is. avg_fn: the new average of ``(averaged, current, n_averaged)``, by
    default the mean of all models seen. multi_avg_fn: the same in place, of lists of tensors of
    one dtype. use_buffers: whether buffers are averaged too; else they are copied. The state dict
    has ``n_averaged`` and the copy's names after ``module.``.
    Izmailov et al., "Averaging weights leads to wider optima and better generalization", 2018.

    >>> AveragedModel(Module(), multi_avg_fn=get_ema_multi_avg_fn(0.99)).n_averaged
    tensor(0)
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Average | None = None,
        multi_avg_fn: Averages | None = None,
        use_buffers: bool = False,
    ):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ValueError(
                "AveragedModel: Only one of avg_fn and multi_avg_fn should be provided."
            )
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the averaged model makes of its arguments."""
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model: Module) -> None:
        """Take ``model`` into the average; the first one is copied.

        Raises ValueError, before anything is changed, if its tensors are other ones in number or
        size.
        """
        averaged, current = _tensors(self.module, self.use_buffers), _tensors(model, True)
        current = current if self.use_buffers else _tensors(model, False)
        kept = [] if self.use_buffers else list(self.module.buffers())
        given = [] if self.use_buffers else list(model.buffers())
        _check_alike([*averaged, *kept], [*current, *given])
        recorded = machine.is_compiling()  # where nobody knows how many there are
        if not recorded and self.n_averaged.item() == 0:
            _copy(averaged, current)
        else:
            pairs = zip(averaged, current, strict=True)
            moved = [x.to(mean.device) for mean, x in pairs]
            self._average(averaged, moved)
            for mean, x in zip(averaged, moved, strict=True) if recorded else ():
                mean.copy_(where(self.n_averaged.eq(0), x, mean))
        _copy(kept, given)
        self.n_averaged += 1

    def _average(self, averaged: list[Tensor], current: list[Tensor]) -> None:
        if self.multi_avg_fn is None:
            _all(self.avg_fn or get_swa_avg_fn())(averaged, current, self.n_averaged)
            return
        alike: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
        for mean, x in zip(averaged, current, strict=True):
            means, others = alike.setdefault((mean.device, mean.dtype), ([], []))
            means.append(mean)
            others.append(x)
        for means, others in alike.values():
            self.multi_avg_fn(means, others, self.n_averaged)


def _tensors(model: Module, buffers: bool) -> list[Tensor]:
    found = chain(model.parameters(), model.buffers() if buffers else ())
    return [x.detach() for x in found]


def _check_alike(averaged: list[Tensor], current: list[Tensor]) -> None:
    shapes, given = [[list(x.shape) for x in tensors] for tensors in (averaged, current)]
    if shapes != given:
        raise ValueError(
            f"update_parameters: expected a model like the one that is averaged, whose tensors "
            f"have sizes {shapes}, but got {given}."
        )


def _copy(averaged: list[Tensor], current: list[Tensor]) -> None:
    for mean, x in zip(averaged, current, strict=True):
        mean.copy_(x.detach().to(mean.device))


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute the running statistics of all batch norms in ``model`` anew, over ``loader``.

    loader: gives tensors, or lists and tuples whose first member is one. device: where to move it.
    """
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    if not norms:
        return
    momenta, training = [m.momentum for m in norms], model.training
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    model.train()
    try:
        for batch in loader:
            x = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(x if device is None else x.to(device))
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        model.train(training)


class SWALR(LRScheduler):
    """Moves every rate to ``swa_lr`` in ``anneal_epochs`` steps, along a cosine or a line.

    swa_lr: one, or one for each group. anneal_strategy: "cos" or "linear".
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: Any,
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ):
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        groups = optimizer.param_groups
        rates = list(swa_lr) if isinstance(swa_lr, (list, tuple)) else [swa_lr] * len(groups)
        if len(rates) != len(groups):
            raise ValueError(
                f"swa_lr must have the same length as optimizer.param_groups: swa_lr has "
                f"{len(rates)}, optimizer.param_groups has {len(groups)}."
            )
        for rate, group in zip(rates, groups, strict=True):
            group["swa_lr"] = rate
        self.anneal_epochs = anneal_epochs
        self.anneal_strategy = anneal_strategy
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        """How much of the way is done after ``step`` steps, 0 to 1."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self.anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[float]:
        """The rate of each group: a step further from its first towards ``swa_lr``."""
        step = self.last_epoch
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        rates = []
        for group in self.optimizer.param_groups:
            aim = float(group["swa_lr"])
            start = aim if before == 1 else (float(group["lr"]) - before * aim) / (1 - before)
            rates.append(aim * now + start * (1 - now))
        return rates
