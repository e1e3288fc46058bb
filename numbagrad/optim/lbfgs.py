"""L-BFGS: quasi-Newton steps from the last gradients, with an optional line search.

A step calls its closure several times and decides by the values of the loss, so it runs eagerly
only; the vectors are all parameters end to end. The line search is in ``line_search.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.modes import enable_grad, no_grad
from ..kernels import machine
from ..ops.join import cat
from ..tensor import Tensor
from .line_search import Point, strong_wolfe
from .optimizer import Optimizer, positive

__all__ = ["LBFGS"]


class LBFGS(Optimizer):
    """Steps along the gradient times an estimate of the inverse Hessian (Nocedal, 1980).

    The estimate comes from the last history_size steps (two-loop recursion: Nocedal and Wright,
    2006, algorithm 7.4). One ``step(closure)`` makes up to max_iter iterations and max_eval calls
    of closure (by default 1.25 max_iter), which clears the gradients, computes the loss, calls
    backward and returns the loss. It ends where no gradient is above tolerance_grad, or the step
    or the loss changes by less than tolerance_change. line_search_fn: None moves by lr;
    "strong_wolfe" searches. There is one parameter group.

    >>> import numbagrad as ng
    >>> x = ng.tensor([3.0], requires_grad=True)
    >>> optimizer = LBFGS([x], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = (x * x).sum()
    ...     loss.backward()
    ...     return loss
    >>> _ = optimizer.step(closure)
    >>> abs(x.item()) < 1e-3
    True
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ):
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)

    def check(self, group: dict[str, Any]) -> None:
        """Raise ValueError for a negative rate, an unknown line search or a second group."""
        positive("LBFGS", group, "lr")
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise ValueError(
                f"LBFGS: only 'strong_wolfe' is supported, got {group['line_search_fn']!r}."
            )
        if self.param_groups:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    # -- the parameters as one vector --------------------------------------------------------------

    @property
    def _params(self) -> list[Tensor]:
        return self.param_groups[0]["params"]

    def _gradient(self) -> Tensor:
        """All gradients end to end, zeros where there is none."""
        return cat(
            [
                (p.detach() * 0 if p.grad is None else p.grad.detach()).reshape(-1)
                for p in self._params
            ]
        )

    def _move(self, distance: float, direction: Tensor) -> None:
        """Add ``distance * direction`` to the parameters."""
        first = 0
        for param in self._params:
            piece = direction[first : first + param.numel()]
            param.add_(piece.reshape(param.shape), alpha=distance)
            first += param.numel()

    # -- a step ------------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Minimise for up to max_iter iterations; returns the loss at the start."""
        machine.outside("LBFGS.step")
        if closure is None:
            raise TypeError("LBFGS.step: needs a closure that computes the loss and its gradients.")

        def evaluate() -> Any:
            with enable_grad():
                return closure()

        with no_grad():
            return self._minimise(evaluate)

    def _minimise(self, evaluate: Callable[[], Any]) -> Any:
        group, state = self.param_groups[0], self.state[self._params[0]]
        for name in ("func_evals", "n_iter"):
            state.setdefault(name, 0)
        first_loss = evaluate()
        loss, gradient = float(first_loss), self._gradient()
        state["func_evals"] += 1
        evaluations = 1
        if _largest(gradient) <= group["tolerance_grad"]:
            return first_loss
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            direction = self._direction(state, gradient)
            state["prev_flat_grad"], before = gradient, loss
            distance = float(group["lr"])
            if state["n_iter"] == 1:
                distance *= min(1.0, 1.0 / gradient.abs().sum().item())
            state["d"], state["t"], state["prev_loss"] = direction, distance, loss
            slope = gradient.dot(direction).item()
            if slope > -group["tolerance_change"]:
                break
            used = 0
            if group["line_search_fn"] is not None:
                start = Point(0.0, loss, gradient, slope)
                budget = group["max_eval"] - evaluations
                point, used = self._search(evaluate, start, distance, direction, budget)
                distance, loss, gradient = point.t, point.loss, point.gradient
                state["t"] = distance
                self._move(distance, direction)
            else:
                self._move(distance, direction)
                if iteration < group["max_iter"]:  # nobody would look at the last one
                    loss, gradient, used = float(evaluate()), self._gradient(), 1
            evaluations += used
            state["func_evals"] += used
            if (
                evaluations >= group["max_eval"]
                or (used and _largest(gradient) <= group["tolerance_grad"])
                or _largest(direction * distance) <= group["tolerance_change"]
                or abs(loss - before) < group["tolerance_change"]
            ):
                break
        return first_loss

    def _direction(self, state: dict[str, Any], gradient: Tensor) -> Tensor:
        """The way to go: minus the estimated inverse Hessian times the gradient."""
        if state["n_iter"] == 1:
            state["old_dirs"], state["old_stps"], state["ro"], state["H_diag"] = [], [], [], 1.0
            return -gradient
        changes, steps, inverses = state["old_dirs"], state["old_stps"], state["ro"]
        change = gradient - state["prev_flat_grad"]
        step = state["d"] * state["t"]
        curvature = change.dot(step).item()
        if curvature > 1e-10:
            for history, entry in (
                (changes, change), (steps, step), (inverses, 1.0 / curvature)
            ):  # fmt: skip
                if len(history) == self.param_groups[0]["history_size"]:
                    history.pop(0)
                history.append(entry)
            state["H_diag"] = curvature / change.dot(change).item()
        remembered = list(zip(changes, steps, inverses, strict=True))
        direction = -gradient
        weights = []
        for y, s, rho in reversed(remembered):
            weights.append(s.dot(direction).item() * float(rho))
            direction.add_(y, alpha=-weights[-1])
        direction = direction * float(state["H_diag"])
        for (y, s, rho), weight in zip(remembered, reversed(weights), strict=True):
            direction.add_(s, alpha=weight - y.dot(direction).item() * float(rho))
        return direction

    def _search(
        self,
        evaluate: Callable[[], Any],
        start: Point,
        distance: float,
        direction: Tensor,
        budget: int,
    ) -> tuple[Point, int]:
        held = [param.detach().clone() for param in self._params]

        def at(t: float) -> Point:
            self._move(t, direction)
            loss, gradient = float(evaluate()), self._gradient()
            for param, value in zip(self._params, held, strict=True):
                param.copy_(value)
            return Point(t, loss, gradient, gradient.dot(direction).item())

        tolerance = self.param_groups[0]["tolerance_change"] / max(_largest(direction), 1e-300)
        return strong_wolfe(at, start, distance, tolerance, budget)


def _largest(x: Tensor) -> float:
    """The largest absolute element, 0 of none."""
    return x.abs().max().item() if x.numel() else 0.0
