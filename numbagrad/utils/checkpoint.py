"""``checkpoint``: a part of a model that forgets its intermediates and computes them again.

A node in such a part keeps a ``Place`` for each tensor that it saves. The first one that backward
asks for runs the part again and fills them all. Start reading at ``Part``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from ..autograd.function import Function, once_differentiable
from ..autograd.graph import saved_tensors_hooks
from ..autograd.modes import enable_grad, is_grad_enabled
from ..autograd.passes import backward
from ..errors import CheckpointError, VersionError
from ..kernels import machine
from ..ops.autocasting import within, without_cache
from ..ops.create import empty
from ..random import get_rng_state, set_rng_state
from ..tape import grad_mode
from ..tensor import Tensor

__all__ = ["checkpoint", "checkpoint_sequential"]


class Place:
    """Where a tensor that was not kept is put when it has been computed again."""

    __slots__ = ("__weakref__", "like", "number", "part", "value", "version")

    def __init__(self, part: Part, number: int, like: tuple[Any, ...]):
        self.part, self.number, self.like = part, number, like
        self.value: Tensor | None = None
        self.version = 0


class _Enough(BaseException):
    """Ends a second run early: everything that backward needs is there."""


class Inputs(Function):
    """Saves the arguments of a checkpointed part, where hooks around it can pack them.

    ``probe`` requires a gradient, so that they are kept though no gradient flows through here.
    """

    @staticmethod
    def forward(ctx: Any, probe: Tensor, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        return probe.detach()


class Part:
    """One call of a checkpointed function, and what it takes to run it again.

    context: makes what the second run stands in. check: whether the second run must save the same
    shapes and dtypes. early_stop: end it at the last tensor that is needed.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: tuple[Sequence[Any], dict[str, Any]],
        preserve: bool,
        context: Callable[[], Any],
        check: bool,
        early_stop: bool,
    ):
        args, kwargs = arguments
        self.function, self.context = function, context
        self.check, self.early_stop = check, early_stop
        self.state = get_rng_state() if preserve else None
        self.autocast = without_cache(grad_mode.autocast)
        self.places: list[weakref.ref[Place]] = []
        # Tensors are kept by a node, the rest here.
        flat = [*args, *kwargs.values()]
        self.names, self.count = list(kwargs), len(args)
        self.tensors = [i for i, a in enumerate(flat) if isinstance(a, Tensor)]
        self.others = [None if isinstance(a, Tensor) else a for a in flat]
        probe = empty(0, requires_grad=True)
        self.inputs = Inputs.apply(probe, *[flat[i] for i in self.tensors])

    def pack(self, tensor: Tensor) -> Place:
        """A place instead of a tensor."""
        place = Place(self, len(self.places), _kind(tensor))
        self.places.append(weakref.ref(place))
        return place

    def unpack(self, place: Place) -> Tensor:
        """The tensor of a place, computed again if need be."""
        if place.value is None:
            self.run_again()
        if place.value is None:
            raise CheckpointError(
                "checkpoint: A different number of tensors was saved during the original forward "
                f"and recomputation: {len(self.places)}, and fewer. The function must do the same "
                "each time it is called with the same arguments and random numbers."
            )
        if place.value._version != place.version:
            raise VersionError(
                f"checkpoint: one of the variables needed for gradient computation has been "
                f"modified by an inplace operation: a tensor of shape {list(place.value.shape)} "
                f"that the function changes after it has been used. Change a clone instead."
            )
        return place.value

    def run_again(self) -> None:
        """Compute the function again and put what its nodes save into the places."""
        saved = self.inputs.grad_fn.saved_tensors
        flat = list(self.others)
        for i, tensor in zip(self.tensors, saved, strict=True):
            flat[i] = tensor
        kwargs = dict(zip(self.names, flat[self.count :], strict=True))
        seen = 0

        def keep(tensor: Tensor) -> Tensor:
            nonlocal seen
            place = self.places[seen]() if seen < len(self.places) else None
            seen += 1
            if place is not None:
                if self.check and place.like != _kind(tensor):
                    raise CheckpointError(
                        f"checkpoint: Recomputed values for the following tensors have different "
                        f"metadata than during the forward pass: tensor at position "
                        f"{place.number}: saved {_told(place.like)}, recomputed "
                        f"{_told(_kind(tensor))}."
                    )
                place.value = tensor.detach()
                place.version = place.value._version
            if self.early_stop and seen == len(self.places):
                raise _Enough
            if seen > len(self.places):
                raise CheckpointError(
                    "checkpoint: trying to save more tensors during recomputation than during the "
                    f"original forward pass ({len(self.places)}). The function must do the same "
                    "each time it is called with the same arguments and random numbers."
                )
            return tensor

        with _random_state(self.state), enable_grad(), self.context():
            try:
                with within(self.autocast), saved_tensors_hooks(keep, _same):
                    self.function(*flat[: self.count], **kwargs)
            except _Enough:
                pass


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _kind(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, tensor.device


def _told(kind: tuple[Any, ...]) -> str:
    shape, dtype, device = kind
    return f"{list(shape)} {dtype} on {device}"


@contextmanager
def _random_state(state: Tensor | None) -> Iterator[None]:
    """Random numbers as from ``state``; afterwards as they were. None: as they are."""
    if state is None:
        yield
        return
    now = get_rng_state()
    set_rng_state(state)
    try:
        yield
    finally:
        set_rng_state(now)


class Checkpoint(Function):
    """The reentrant way: runs a function without recording it; backward runs it again, recorded.

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
        with _random_state(ctx.state), enable_grad(), within(ctx.autocast):
            found = ctx.run(*args)
        outs = (found,) if isinstance(found, Tensor) else tuple(found)
        pairs = [
            (out, g)
            for out, g in zip(outs, grads, strict=True)
            if isinstance(out, Tensor) and out.requires_grad and g is not None
        ]
        if pairs:
            backward([out for out, _ in pairs], [g for _, g in pairs])
        return None, None, None, *[a.grad if isinstance(a, Tensor) else None for a in args]


def _no_contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    return nullcontext(), nullcontext()


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = False,
    preserve_rng_state: bool = True,
    context_fn: Callable[[], tuple[Any, Any]] = _no_contexts,
    determinism_check: str = "default",
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """``function(*args, **kwargs)``, whose intermediates are not kept for backward.

    Backward calls function again when it needs the first of them, with the random numbers of the
    first call unless preserve_rng_state is False: memory for time (Chen et al., 2016). Gradients
    are those of a plain call, of parameters inside, of tensors in containers and of any order;
    ``autograd.grad`` and nested checkpoints work.

    context_fn: returns two context managers, for the first and for the second run.
    determinism_check: "default" compares shapes and dtypes of what both runs save and raises
    RuntimeError where they differ; "none" does not. early_stop: leave the second run once all is
    there. use_reentrant: True takes PyTorch's older way, for ``backward()`` and first derivatives
    only, and needs a Tensor among args.

    In a compiled step nothing is computed twice: the step plans its memory itself. What a part
    changes, as running statistics of a batch norm, it then changes once, and elsewhere twice, as in
    PyTorch.

    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0, 2.0], requires_grad=True)
    >>> checkpoint(lambda x: (x * x).relu(), x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """
    if determinism_check not in ("default", "none"):
        raise ValueError(
            f'checkpoint: determinism_check must be "default" or "none", got {determinism_check!r}.'
        )
    if not is_grad_enabled() or machine.is_recording():
        return function(*args, **kwargs)
    if use_reentrant:
        if context_fn is not _no_contexts:
            raise ValueError("checkpoint: context_fn needs use_reentrant=False.")
        return _reentrant(function, args, kwargs, preserve_rng_state)
    first, second = context_fn()
    check = determinism_check == "default"
    part = Part(function, (args, kwargs), preserve_rng_state, lambda: second, check, early_stop)
    with saved_tensors_hooks(part.pack, part.unpack), first:
        return function(*args, **kwargs)


def _reentrant(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], preserve: bool
) -> Any:
    def run(*given: Any) -> Any:
        return function(*given, **kwargs)

    tensors = [a for a in args if isinstance(a, Tensor)]
    if not tensors:
        return function(*args, **kwargs)
    probe = tensors[0].detach().new_zeros((), dtype="float32").requires_grad_()
    return Checkpoint.apply(run, preserve, probe, *args)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = False, **kwargs: Any
) -> Any:
    """``functions``, a Sequential or a list, one after the other in checkpointed segments.

    The last segment is not checkpointed: backward would compute it again at once.
    preserve_rng_state is taken as by ``checkpoint``.

    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0, 2.0], requires_grad=True)
    >>> checkpoint_sequential([ng.exp, ng.sin, ng.log1p], 2, x).sum().backward()
    """
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError(f"checkpoint_sequential: Unexpected keyword arguments: {list(kwargs)}.")
    parts = list(functions)
    if not 1 <= segments <= max(len(parts), 1):
        raise ValueError(
            f"checkpoint_sequential: segments must be between 1 and {len(parts)}, the number of "
            f"functions, got {segments}."
        )

    def run(start: int, stop: int) -> Callable[[Any], Any]:
        def forward(value: Any) -> Any:
            for function in parts[start:stop]:
                value = function(value)
            return value

        return forward

    size = len(parts) // segments
    last = size * (segments - 1)
    for start in range(0, last, size or 1):
        input = checkpoint(
            run(start, start + size),
            input,
            use_reentrant=use_reentrant,
            preserve_rng_state=preserve,
        )
    return run(last, len(parts))(input)
