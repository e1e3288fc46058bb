"""``checkpoint``: a part of a model that forgets its intermediates and computes them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.function import Function, once_differentiable
from ..autograd.modes import enable_grad, is_grad_enabled
from ..kernels import machine
from ..ops.autocasting import within, without_cache
from ..random import get_rng_state, set_rng_state
from ..tape import grad_mode
from ..tensor import Tensor, backward

__all__ = ["checkpoint"]


class Checkpoint(Function):
    """Runs a function without recording it; backward runs it again, recorded.

    ``probe`` requires a gradient, so that there is a node even if only parameters inside need one.
    """

    @staticmethod
    def forward(
        ctx: Any, run: Callable[..., Any], preserve: bool, probe: Tensor, *args: Any
    ) -> Any:
        ctx.run = run
        ctx.state = get_rng_state() if preserve else None
        ctx.autocast = without_cache(grad_mode.autocast)
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.others = [None if isinstance(a, Tensor) else a for a in args]
        ctx.save_for_backward(*[args[i] for i in ctx.places])
        return run(*args)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        args = list(ctx.others)
        for place, held in zip(ctx.places, ctx.saved_tensors, strict=True):
            needed = ctx.needs_input_grad[place + 3]
            args[place] = held.detach().requires_grad_(needed)
        now = get_rng_state()
        try:
            if ctx.state is not None:
                set_rng_state(ctx.state)
            with enable_grad(), within(ctx.autocast):
                found = ctx.run(*args)
        finally:
            if ctx.state is not None:
                set_rng_state(now)
        outs = (found,) if isinstance(found, Tensor) else tuple(found)
        pairs = [
            (out, g)
            for out, g in zip(outs, grads, strict=True)
            if isinstance(out, Tensor) and out.requires_grad and g is not None
        ]
        if pairs:
            backward([out for out, _ in pairs], [g for _, g in pairs])
        return None, None, None, *[a.grad if isinstance(a, Tensor) else None for a in args]


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """``function(*args, **kwargs)``, whose intermediates are not kept for backward.

    Backward calls function again, with the random numbers of the first call unless
    preserve_rng_state is False: memory for time (Chen et al., 2016). Use ``loss.backward()``: the
    gradients of parameters that function reads are added to their ``.grad``, which
    ``autograd.grad`` would not return. Tensors among args get gradients, those inside containers
    or kwargs do not. A second derivative raises. In a compiled step nothing is computed twice:
    the step plans its memory itself. use_reentrant is accepted for PyTorch's sake.

    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0, 2.0], requires_grad=True)
    >>> checkpoint(lambda x: (x * x).exp().log(), x).sum().backward()
    >>> x.grad
    tensor([2.0000, 4.0000])
    """
    if not is_grad_enabled() or machine.is_recording():
        return function(*args, **kwargs)

    def run(*given: Any) -> Any:
        return function(*given, **kwargs)

    tensors = [a for a in args if isinstance(a, Tensor)]
    if not tensors:
        return function(*args, **kwargs)
    probe = tensors[0].detach().new_zeros((), dtype="float32").requires_grad_()
    return Checkpoint.apply(run, preserve_rng_state, probe, *args)
