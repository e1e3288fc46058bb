"""``ctc_loss``: sequences against targets whose places in them are not known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import dtypes
from ..errors import DimError, DTypeError, GradError, ShapeError
from ..kernels import machine
from ..tensor import Tensor
from .autocasting import BOTH, raised
from .base import Op, as_operand, contiguous, new_empty
from .elementwise import cast, clamp
from .from_data import as_tensor
from .reduction import reduced, reduction_of

__all__: list[str] = []  # PyTorch has the losses in nn.functional alone


def _kernels() -> Any:
    """The kernels, which are imported when they are first needed."""
    from ..kernels.cpu import ctc

    return ctc


@dataclass(frozen=True)
class Targets:
    """What to align with, all int64 and C.

    labels (n width), or (size) without padding where width is -1; steps, sizes (n): how much of
    the input and of the labels counts.
    """

    labels: Tensor
    steps: Tensor
    sizes: Tensor
    width: int
    blank: int
    zero_infinity: bool

    def arguments(self) -> tuple[Any, ...]:
        """What both kernels take last."""
        arrays = self.labels._array, self.steps._array, self.sizes._array
        return *arrays, self.width, self.blank, int(self.zero_infinity)

    def check(self, bad: Any, shape: tuple[int, ...]) -> None:
        """Raise if the kernel has found a length or a label that cannot be; shape: of x."""
        arrays = self.labels._array, self.steps._array, self.sizes._array
        traced = any([machine.is_traced(a) for a in arrays])
        width = self.width  # fail outlives a recording: it holds no tensor of it

        def fail(code: int) -> None:
            kernels = _kernels()
            place, kind = divmod(code, 4)
            if kind == kernels.TOTAL:
                raise ShapeError(
                    f"ctc_loss: Expected targets in one row to have size {place}, the sum of "
                    f"target_lengths, but got size {arrays[0].size}."
                )
            which = {kernels.STEPS: 1, kernels.LABELS: 2, kernels.CLASS: 0}[kind]
            value = "another" if traced else int(arrays[which][place])
            if kind == kernels.CLASS:
                raise DimError(
                    f"ctc_loss: targets must be classes from 0 to {shape[2] - 1}, but got {value} "
                    f"at position {place}."
                )
            name = "input_lengths" if kind == kernels.STEPS else "target_lengths"
            most = shape[0] if kind == kernels.STEPS else width
            limit = f" and at most {most}" if most >= 0 else ""
            raise ShapeError(
                f"ctc_loss: Expected {name} to have value at least 0{limit}, but got value "
                f"{value} for sample {place}."
            )

        machine.check(bad, fail)


class CtcLoss(Op):
    """Minus the logarithms of the chances of all alignments together, one for each sample."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, targets: Targets) -> Tensor:
        (steps, n, _), device, numpy = x._array.shape, x._device, x._dtype.numpy
        losses = new_empty((n,), x._dtype, device)
        chance = machine.empty((n,), numpy, device)
        alpha = machine.empty((steps * (2 * targets.labels.numel() + n),), numpy, device)
        starts = machine.empty((n,), dtypes.int64.numpy, device)
        bad = machine.flag(losses._array)
        results = losses._array, chance, alpha, starts, bad
        machine.launch(_kernels().ctc, *results, contiguous(x)._array, *targets.arguments())
        targets.check(bad, x._array.shape)
        ctx.rows, ctx.targets = (chance, alpha, starts, bad), targets
        ctx.save(x, targets.labels, targets.steps, targets.sizes)
        return losses

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return CtcGrad.apply(g, ctx.saved_tensors[0], ctx.rows, ctx.targets)


class CtcGrad(Op):
    """Minus the chance, given the target, that a step is of a class."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, rows: tuple, targets: Targets) -> Tensor:
        n, size = x._array.shape[1], targets.labels.numel()
        gx = new_empty(x._array.shape, x._dtype, x._device)
        beta = machine.empty((2 * (2 * size + n),), x._dtype.numpy, x._device)
        sources = contiguous(g)._array, *rows, contiguous(x)._array
        machine.launch(_kernels().ctc_grad, gx._array, beta, *sources, *targets.arguments())
        return gx

    @staticmethod
    def backward(ctx: Any, h: Tensor) -> Tensor:
        raise GradError(
            "ctc_loss: its gradient has no derivative of its own, as in PyTorch. Take it without "
            "create_graph, or detach it."
        )


def _lengths(name: str, lengths: Any, n: int, device: Any) -> Tensor:
    """One int64 number for each of ``n`` samples."""
    if isinstance(lengths, Sequence):
        lengths = as_tensor(list(lengths), dtypes.int64 if not lengths else None)
    if not isinstance(lengths, Tensor):
        raise TypeError(
            f"ctc_loss(): {name} must be a Tensor or a tuple of ints, not {type(lengths).__name__}."
        )
    if lengths._dtype.category != 1:
        raise DTypeError(f"ctc_loss: {name} must be integral, got {lengths._dtype}.")
    if lengths.numel() != n or lengths.dim() > 1:
        raise ShapeError(
            f"ctc_loss: {name} must be of size batch_size {n}, got {list(lengths._array.shape)}."
        )
    return contiguous(cast(lengths.to(device), dtypes.int64)).reshape((n,))


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Minus the logarithm of the chance that a sequence, blanks and repeats left out, is a target.

    Connectionist temporal classification (Graves et al., 2006). log_probs (t, n, classes), or
    (t, classes) of one sample: logarithms of chances, as of ``log_softmax``; targets (n, s),
    padded with anything, or all labels in one row; input_lengths, target_lengths (n): how many
    steps and labels of each sample count; blank: the class of nothing. reduction "mean" divides
    each loss by its number of labels first, "none" gives (n). zero_infinity: the loss and the
    gradient of a target too long for its input are 0 instead of infinity and NaN.
    Gradient: minus the chance, given the target, that a step is of a class. PyTorch's adds
    ``exp(log_probs)``, which ``log_softmax`` takes away again: behind it the two are equal, but
    only ours is the derivative. There is no second derivative.
    Raises ShapeError for sizes and lengths that do not fit, IndexError for labels beyond the
    classes.

    >>> log_probs = ng.tensor([[[0.5, 0.5]], [[0.5, 0.5]]]).log()
    >>> ctc_loss(log_probs, ng.tensor([[1]]), (2,), (1,)).exp().item()  # 1 / (3 / 4)
    1.3333333730697632
    """
    as_operand("ctc_loss", log_probs)
    as_operand("ctc_loss", targets, 1)
    if machine.autocasting:
        (log_probs,) = raised(log_probs, on=BOTH)
    reduction = reduction_of("ctc_loss", reduction)
    x, shape = log_probs, list(log_probs._array.shape)
    if x._dtype not in (dtypes.float32, dtypes.float64):
        raise DTypeError(
            f"ctc_loss: expected float32 or float64 log_probs, got {x._dtype}. Use x.float()."
        )
    if len(shape) not in (2, 3) or 0 in shape:
        raise ShapeError(
            f"ctc_loss: Expected 3-dimensional log_probs (t, n, classes), or (t, classes), which "
            f"must not be empty, but got {shape}."
        )
    if not 0 <= blank < shape[-1]:
        raise ShapeError(
            f"ctc_loss: blank must be in label range, 0 to {shape[-1] - 1}, got {blank}."
        )
    n = shape[1] if len(shape) == 3 else 1
    labels = targets._array.shape
    if len(labels) not in (1, 2) or (len(labels) == 2 and labels[0] != n):
        raise ShapeError(
            f"ctc_loss: targets must be ({n}, s) or of one dimension, got {list(labels)}."
        )
    sizes = _lengths("target_lengths", target_lengths, n, x._device)
    aims = Targets(
        contiguous(cast(targets.to(x._device), dtypes.int64)).reshape((-1,)),
        _lengths("input_lengths", input_lengths, n, x._device),
        sizes,
        labels[1] if len(labels) == 2 else -1,
        int(blank),
        bool(zero_infinity),
    )
    losses = CtcLoss.apply(x if len(shape) == 3 else x.unsqueeze(1), aims)
    if reduction == "mean":
        return (losses / clamp(sizes, 1)).mean()
    return (
        losses.squeeze(0) if reduction == "none" and len(shape) == 2 else reduced(losses, reduction)
    )
