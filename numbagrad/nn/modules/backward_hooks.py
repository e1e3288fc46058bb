"""Module backward hooks: identity nodes around forward that see the gradients pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...autograd.function import Function
from ...tensor import Tensor


class Gate(Function):
    """The identity on tensors; in backward, ``passing(grads)`` sees and may replace gradients."""

    @staticmethod
    def forward(ctx: Any, passing: Callable, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.passing = passing
        ctx.set_materialize_grads(False)
        return tensors

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple:
        return (None, *ctx.passing(list(grads)))


def through_gate(values: tuple, positions: list[int], passing: Callable) -> tuple:
    """``values`` with those at ``positions`` led through a ``Gate``."""
    gated = list(values)
    outputs = Gate.apply(passing, *[values[i] for i in positions])
    for i, output in zip(positions, outputs, strict=True):
        gated[i] = output
    return tuple(gated)


def tracked(values: tuple) -> list[int]:
    """Positions of the tensors that need a gradient."""
    return [i for i, v in enumerate(values) if isinstance(v, Tensor) and v.requires_grad]


def replaced(module: Any, kind: str, given: list, returned: Any) -> list:
    """The gradients after a hook of ``module``, which was given some and returned others or None.

    kind: "grad_input" or "grad_output". Raises RuntimeError for another number of gradients.
    """
    if returned is None:
        return given
    new = [returned] if isinstance(returned, Tensor) else list(returned)
    if len(new) != len(given):
        name = "Backward hook" if kind == "grad_input" else "Backward pre hook"
        raise RuntimeError(
            f"{name} of {type(module).__name__} returned an invalid number of {kind}: got "
            f"{len(new)}, expected {len(given)}."
        )
    return new


def with_backward_hooks(module: Any, args: tuple) -> tuple[tuple, Callable[[Any], Any]]:
    """The arguments for a call of ``module`` whose backward calls the backward hooks, and what
    makes of its output, as the forward hooks leave it, the one to return.

    ``hook(module, g_out)`` of kind "backward_pre", ``hook(module, g_in, g_out)`` of "backward".
    """
    inputs = tracked(args)
    count = len(args)
    grad_output: tuple = ()

    def leaving(grads: list) -> list:
        """The gradients of the inputs are known: the end of the module's backward."""
        grad_input: list = [None] * count
        for i, grad in zip(inputs, grads, strict=True):
            grad_input[i] = grad
        for hook in module._hooks_to_run("backward"):
            returned = hook(module, tuple(grad_input), grad_output)
            grad_input = replaced(module, "grad_input", grad_input, returned)
        return [grad_input[i] for i in inputs]

    def finished(result: Any) -> Any:
        outputs = result if isinstance(result, tuple) else (result,)
        positions = tracked(outputs)
        if not positions:
            return result

        def entering(grads: list) -> list:
            """The gradients of the outputs are known: the start of the module's backward."""
            nonlocal grad_output
            full: list = [None] * len(outputs)
            for i, grad in zip(positions, grads, strict=True):
                full[i] = grad
            for hook in module._hooks_to_run("backward_pre"):
                full = replaced(module, "grad_output", full, hook(module, tuple(full)))
            grad_output = tuple(full)
            if not inputs:
                leaving([])
            return [full[i] for i in positions]

        gated = through_gate(outputs, positions, entering)
        return gated if isinstance(result, tuple) else gated[0]

    return through_gate(args, inputs, leaving) if inputs else args, finished
