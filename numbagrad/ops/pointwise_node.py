"""A recorded elementwise op: what it saved and how its gradient formulas run.

``SavePlan`` is worked out once per op and per set of inputs that need a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..tape import ONE_OUTPUT, Node, Rare
from .base import sum_to_shape

if TYPE_CHECKING:
    from .pointwise import PointwiseOp


# Neither is changed once it is made. A dataclass takes 0.4 ms of the import to write.


class GradRule:
    """How the gradient of one input is computed: an op on ``g`` and saved values.

    sources: -1 for ``g``, else the position among the saved values (inputs, then the output).
    second: the saved value where the gradient has the form ``formula(g, saved)``. apply is None
    where the gradient is ``g`` itself.
    """

    __slots__ = ("apply", "second", "sources")

    def __init__(self, apply: Any, sources: tuple[int, ...], second: int | None = None):
        self.apply, self.sources, self.second = apply, sources, second


class SavePlan:
    """What an op saves for given needs: which inputs, the output; and the rules it will run.

    passes: where every gradient is ``g`` itself or none. checks: the saved values that have a
    version, all but numbers. only: the one rule of an op of one or two inputs, formula(g, saved).
    twice: what gives the gradient of both operands where they are one tensor, if the op has it.
    """

    __slots__ = ("checks", "keep", "keep_out", "nothing", "only", "op", "passes", "rules", "twice")

    def __init__(
        self, op: PointwiseOp, keep: tuple[bool, ...], keep_out: bool,
        rules: tuple[GradRule | None, ...], nothing: bool, passes: tuple[bool, ...] | None,
        checks: tuple[int, ...], only: GradRule | None, twice: GradRule | None,
    ):  # fmt: skip
        self.op, self.keep, self.keep_out, self.rules = op, keep, keep_out, rules
        self.nothing, self.passes, self.checks = nothing, passes, checks
        self.only, self.twice = only, twice


class PointwiseNode(Node):
    """A recorded elementwise op."""

    __slots__ = (
        "__weakref__",
        "_edges",
        "_hooks",
        "_rare",
        "_saved",
        "_sequence",
        "_where",
        "plan",
    )
    plan: SavePlan
    _rare: Rare | None

    def name(self) -> str:
        return self.plan.op.node_name

    def _run(self, grads: list[Any]) -> Sequence[Any]:
        """Apply the gradient formula of each input that needs one."""
        return self._run_one(grads[0])

    def _run_one(self, grad: Any) -> Sequence[Any]:
        """``_run`` with the gradient of the only output."""
        plan = self.plan
        rare = self._rare
        saved: Any = self._saved
        passes = plan.passes
        if rare is None and passes is not None:
            if len(passes) == 2:
                return (grad if passes[0] else None, grad if passes[1] else None)
            return [grad if p else None for p in passes]
        if saved is None or rare is not None:
            saved = self._unpack()
        else:
            for i in plan.checks:
                if saved[i]._counter is not None:
                    saved = self._unpack()
                    break
            else:
                if plan.keep_out:
                    saved = (*saved[:-1], saved[-1].restore(self))
        if plan.only is not None and rare is None:
            result = plan.only.apply(grad, saved[plan.only.second])
            return (result, None) if plan.rules[0] is plan.only else (None, result)
        if plan.twice is not None and saved[0] is saved[1] and self._hooks is None:
            if rare is None or rare.meta is None:
                return plan.twice.apply(grad, saved[0]), None
        results: list[Any] = []
        for rule in plan.rules:
            if rule is None:
                results.append(None)
            elif rule.second is not None:
                results.append(rule.apply(grad, saved[rule.second]))
            elif rule.apply is None:
                results.append(grad)
            else:
                results.append(rule.apply(*[grad if s < 0 else saved[s] for s in rule.sources]))
        if rare is not None and rare.meta is not None:
            for i, (shape, dtype) in enumerate(rare.meta):
                result = results[i]
                if result is not None:
                    if result._array.shape != shape:
                        result = sum_to_shape(result, shape)
                    results[i] = result if result._dtype is dtype else result.to(dtype)
        return results


ONE_OUTPUT.add(PointwiseNode)
