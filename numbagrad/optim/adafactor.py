"""Adafactor."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..dtypes import finfo
from ..kernels.cpu import adafactor as kernels
from ..tensor import Tensor
from .optimizer import Optimizer, Update, counters, held, new_state, positive

__all__ = ["Adafactor"]


class Adafactor(Optimizer):
    """Steps relative to the parameters, and one number a row and a column in place of Adam's means.

    Of each matrix, the last two dimensions, it keeps ``row_var`` and ``col_var``, the running means
    of the squared gradient along the other one; of anything smaller ``variance``. A step is
    ``max(eps[1], rms(p)) * min(lr, 1 / sqrt(step))`` long; directions whose root mean square is
    above d are scaled to it. The mean forgets by ``step ** beta2_decay``. eps: the least mean,
    by default that of the dtype, and the least size of p. weight_decay shrinks p by
    ``lr * weight_decay`` (Shazeer and Stern, 2018). maximize: climb instead. foreach is accepted
    for PyTorch's sake.

    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0], requires_grad=True)
    >>> x.grad = ng.tensor([2.0])
    >>> Adafactor([x], lr=0.5).step()
    >>> x
    tensor([0.5000], requires_grad=True)
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ):
        defaults = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": eps,
            "d": d,
            "weight_decay": weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def check(self, group: dict[str, Any]) -> None:
        """Raise ValueError for options out of range."""
        positive("Adafactor", group, "lr", "weight_decay")
        if not group["beta2_decay"] <= 0:
            raise ValueError(
                f"Adafactor: beta2_decay should be <= 0 but is: {group['beta2_decay']}"
            )
        for i, eps in enumerate(group["eps"]):
            if not (eps is None and i == 0) and not eps >= 0:
                raise ValueError(f"Adafactor: epsilon{i + 1} should be >= 0 but is: {eps}")
        if not group["d"] >= 1:
            raise ValueError(f"Adafactor: Clipping threshold d should be >= 1 but is: {group['d']}")

    def updates(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]
    ) -> Iterable[Update]:
        """One launch for each shape of matrices, one for all vectors."""
        states = self.states(params)
        steps = counters(params, states)
        least = float(finfo(params[0]._dtype).eps)
        by_shape: dict[tuple[int, ...], list[int]] = {}
        for i, param in enumerate(params):
            by_shape.setdefault(
                tuple(param._array.shape[-2:]) if param.dim() > 1 else (), []
            ).append(i)
        found = []
        for shape, places in by_shape.items():
            some = [params[i] for i in places]
            kept = [states[i] for i in places]
            moved, counts = [grads[i] for i in places], [steps[i] for i in places]
            scalars = _scalars(group, shape, least)
            if not shape:
                lists: tuple = (some, counts, held("variance", some, kept), moved)
                found.append(Update(kernels.adafactor_vectors, lists, scalars))
                continue
            for param, state in zip(some, kept, strict=True):
                if "row_var" not in state:
                    *batch, n, m = param._array.shape
                    new_state(state, "row_var", (*batch, n, 1), param._dtype, param, 0)
                    new_state(state, "col_var", (*batch, 1, m), param._dtype, param, 0)
            factors = [s["row_var"] for s in kept], [s["col_var"] for s in kept]
            found.append(Update(kernels.adafactor, (some, counts, *factors, moved), scalars))
        return found


def _scalars(
    group: dict[str, Any], shape: tuple[int, ...], least: float
) -> Callable[[], tuple[Any, ...]]:
    def scalars() -> tuple[Any, ...]:
        eps1, eps2 = group["eps"]
        rates = float(group["lr"]), float(group["beta2_decay"])
        limits = least if eps1 is None else float(eps1), float(eps2), float(group["d"])
        sign = -1.0 if group["maximize"] else 1.0
        return *shape, *rates, *limits, float(group["weight_decay"]), sign

    return scalars
