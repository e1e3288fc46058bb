"""``@optim.elementwise``: an optimiser from the formula that updates one element."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from ..kernels.update import Rule
from ..tensor import Tensor
from .optimizer import Optimizer, Update, counters, held

__all__ = ["ElementwiseOptimizer", "elementwise"]


class ElementwiseOptimizer(Optimizer):
    """The base of the classes that ``elementwise`` makes.

    params: as of every optimiser. args, options: the options of the formula, in its order or by
    name. maximize: climb: the formula gets the negative gradient. Raises TypeError for an option
    that the formula does not take, or that is missing, or is no number.
    """

    rule: Rule
    kernel: Any
    initial: dict[str, float]
    """What is kept of an element before the first step."""
    signature: inspect.Signature
    """Of the options."""

    def __init__(self, params: Any, *args: Any, maximize: bool = False, **options: Any):
        try:
            given = self.signature.bind(*args, **options)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}: {error}; it takes {self.signature}.") from None
        given.apply_defaults()
        super().__init__(params, {**given.arguments, "maximize": maximize})

    def check(self, group: dict[str, Any]) -> None:
        """Raise TypeError for an option that is no number, or not as many as its default is."""
        pairs = self.rule.pairs
        for name in self.rule.options:
            try:
                found = self._numbers(group, [name])
            except (TypeError, ValueError):
                found = []
            if len(found) != pairs.get(name, 1):
                wanted = f"a tuple of {pairs[name]} numbers" if name in pairs else "a number"
                raise TypeError(
                    f"{type(self).__name__}: the option {name} is {wanted}, got {group[name]!r}."
                )

    def _numbers(self, group: dict[str, Any], names: Iterable[str]) -> list[float]:
        """The values of options, those of tuples one by one."""
        pairs = self.rule.pairs
        values = [v for n in names for v in (group[n] if n in pairs else (group[n],))]
        return [float(v) for v in values]

    def updates(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]
    ) -> Iterable[Update]:
        """One launch for all parameters of a dtype."""
        names = self.rule.options

        def scalars() -> tuple:
            return (-1.0 if group["maximize"] else 1.0, *self._numbers(group, names))

        states = self.states(params)
        counted = [counters(params, states)] if self.rule.counted else []
        kept = [held(n, params, states, self.initial[n]) for n in self.rule.kept]
        return [Update(self.kernel, (params, *counted, *kept, grads), scalars)]


def elementwise(function: Callable[..., Any]) -> type[ElementwiseOptimizer]:
    """An optimiser from a formula: ``function`` updates one element of a parameter.

    ``function(p, g, *kept, *, lr, ...)`` takes an element of the parameter, of its gradient and of
    what is kept for it, which starts at 0 or at the default written there; after ``*`` come the
    options, which are numbers, with their defaults, or tuples of numbers, such as ``betas``, whose
    default says how many. It returns the new p, or a tuple of it and all
    that is kept, in order. ``step`` among the kept is the number of the step, from 1 on; it is not
    returned. What a formula is: see ``ng.elementwise``.

    The class made is a whole ``Optimizer``: groups, ``state_dict``, schedulers, ``maximize``. All
    parameters of a dtype are one launch of one kernel, on both devices, eager and compiled; what
    depends on options and ``step`` alone is computed once, in float64. What is kept and is smaller
    than the least normal number counts as 0. Raises FormulaError, naming the line, for what is no
    formula, and TypeError for what is returned in another number than kept.

    >>> import numbagrad as ng
    >>> @ng.optim.elementwise
    ... def HeavyBall(p, g, velocity, *, lr=0.1, momentum=0.9):
    ...     velocity = momentum * velocity + g
    ...     return p - lr * velocity, velocity
    >>> x = ng.tensor([1.0], requires_grad=True)
    >>> x.grad = ng.tensor([2.0])
    >>> HeavyBall([x], lr=0.25).step()
    >>> x
    tensor([0.5000], requires_grad=True)
    """
    function = getattr(function, "py_func", function)  # a jitted function by its Python
    if not inspect.isfunction(function) or not function.__name__.isidentifier():
        raise TypeError(f"optim.elementwise: expected a function made with def, got {function!r}.")
    rule = Rule(function)
    taken = {"params", "maximize"} & {*rule.options, *rule.kept}
    if taken:
        raise TypeError(
            f"optim.elementwise: {rule.name} names something {min(taken)}, which every optimiser "
            f"has already. Choose another name."
        )
    given = inspect.signature(function).parameters
    kinds = [p.replace(kind=p.POSITIONAL_OR_KEYWORD) for p in given.values()]
    options = [p for p in kinds if p.name in rule.options]
    shown = inspect.Signature(
        [
            inspect.Parameter("params", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            *[p.replace(kind=p.KEYWORD_ONLY) for p in options],
            inspect.Parameter("maximize", inspect.Parameter.KEYWORD_ONLY, default=False),
        ]
    )
    body = {
        "__doc__": function.__doc__,
        "__module__": function.__module__,
        "__qualname__": function.__qualname__,
        "rule": rule,
        "kernel": rule.kernel(),
        "initial": {
            n: 0.0 if given[n].default is inspect.Parameter.empty else float(given[n].default)
            for n in rule.kept
        },
        "signature": inspect.Signature(options),
        "__signature__": shown,
    }
    return type(function.__name__, (ElementwiseOptimizer,), body)
