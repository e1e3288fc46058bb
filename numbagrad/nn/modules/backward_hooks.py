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


def call_with_backward_hooks(
    module: Any, hooks: dict[int, Callable], args: tuple, kwargs: dict[str, Any]
) -> Any:
    """``module.forward(*args, **kwargs)`` whose backward calls ``hook(module, g_in, g_out)``."""
    inputs = tracked(args)
    grad_output: tuple = ()

    def leaving(grads: list) -> list:
        """The gradients of the inputs are known: the end of the module's backward."""
        grad_input: list = [None] * len(args)
        for i, grad in zip(inputs, grads, strict=True):
            grad_input[i] = grad
        for hook in list(hooks.values()):
            changed = hook(module, tuple(grad_input), grad_output)
            if changed is not None:
                grad_input = [changed] if isinstance(changed, Tensor) else list(changed)
                if len(grad_input) != len(args):
                    raise RuntimeError(
                        f"Backward hook of {type(module).__name__} returned an invalid number of "
                        f"grad_input: got {len(grad_input)}, expected {len(args)}."
                    )
        return [grad_input[i] for i in inputs]

    def entering(grads: list) -> list:
        nonlocal grad_output
        full: list = [None] * len(outputs)
        for i, grad in zip(positions, grads, strict=True):
            full[i] = grad
        grad_output = tuple(full)
        if not inputs:
            leaving([])
        return grads

    if inputs:
        args = through_gate(args, inputs, leaving)
    result = module.forward(*args, **kwargs)
    outputs = result if isinstance(result, tuple) else (result,)
    positions = tracked(outputs)
    if not positions:
        return result
    gated = through_gate(outputs, positions, entering)
    return gated if isinstance(result, tuple) else gated[0]
