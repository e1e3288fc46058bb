"""Losses of classes: cross entropy and likelihood, in one kernel each.

Each takes ``reduction``: "mean", "sum", or "none" for the losses one by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .. import dtypes
from ..dtypes import DType
from ..errors import DimError, DTypeError, GradError, ShapeError
from ..kernels import machine
from ..kernels.cpu import half_loss, plane_loss
from ..kernels.cpu import loss as kernels
from ..kernels.halves import arithmetic
from ..tape import grad_mode
from ..tensor import Tensor, wrap
from .autocasting import BOTH, raised
from .base import Op, as_operand, contiguous, new_empty
from .elementwise import cast
from .norm import log_softmax, softmax
from .reduction import REDUCTIONS, reduced, reduction_of
from .remembered import remembered

__all__: list[str] = []  # PyTorch has the losses in nn.functional alone


@dataclass(eq=False)  # frozen it would take 0.3 ms of the import
class Classes:
    """What a loss of class indices compares with.

    target (n) int64, weight (c) or None: both C. reduction: a number of ``REDUCTIONS``.
    """

    target: Tensor
    weight: Tensor | None
    ignore: int
    reduction: int

    def fields(self) -> tuple[Any, ...]:
        """What it is made of."""
        return self.target, self.weight, self.ignore, self.reduction

    def arguments(self, spare: Any) -> tuple[Any, ...]:
        """target, weight, weighted, ignore; ``spare`` fills the place of a missing weight."""
        weight = spare if self.weight is None else self.weight._array
        return self.target._array, weight, int(self.weight is not None), self.ignore

    def losses(self, x: Tensor, count: int) -> Tensor:
        """Memory for the losses of so many rows: in float32 where only their sum is rounded to
        float16 or bfloat16."""
        dtype = x._dtype
        if self.reduction != kernels.NONE and dtype in dtypes.HALVES:
            dtype = dtypes.float32
        return new_empty((count,), dtype, x._device)

    def check(self, name: str, bad: Any, classes: int) -> None:
        """Raise if a kernel has found a target that is no class."""
        target = self.target._array

        def fail(position: int) -> None:
            value = "" if machine.is_traced(target) else f" {target[position]}"
            raise DimError(
                f"{name}: Target{value} is out of bounds for {classes} classes (position "
                f"{position}). Targets are 0 to {classes - 1}, or ignore_index."
            )

        machine.check(bad, fail)

    def scale(self, g: Tensor, norm: Any, x: Tensor) -> Tensor:
        """``g`` over what the losses were divided by, to be multiplied with ``x``."""
        if self.reduction != kernels.NONE:
            return g / wrap(norm, g._dtype)
        shape = x._array.shape
        return g.reshape((shape[0], 1, *shape[2:]))


def _sizes(x: Tensor) -> tuple[int, int, int]:
    """Rows, classes and places of ``x``, which has no places but one as a matrix."""
    shape = x._array.shape
    return (*shape, 1) if len(shape) == 2 else shape


class Nll(Op, remembers=True):
    """Minus the entries of the rows that ``target`` names, weighted and reduced.

    Its arguments after ``x`` are those of ``Classes``.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, *options: Any) -> Tensor:
        classes = Classes(*options)
        (b, c, p), device = _sizes(x), x._device
        numpy = arithmetic(x._dtype.numpy)
        losses = classes.losses(x, b * p)
        norm = machine.empty((1,), numpy, device)
        bad = machine.empty((1,), dtypes.int64.numpy, device)
        single = new_empty((), x._dtype, device)
        results = single._array.reshape((1,)), losses._array, norm, bad
        arguments = classes.arguments(losses._array)
        logits = contiguous(x)._array.reshape((b, c, p))
        machine.launch(kernels.nll, *results, logits, *arguments, classes.reduction)
        classes.check("nll_loss", bad, c)
        ctx.how, ctx.norm, ctx.shape = (classes.ignore, classes.reduction), norm, x._array.shape
        ctx.save(classes.target, classes.weight)
        return losses if classes.reduction == kernels.NONE else single

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return NllGrad.apply(g, Classes(*ctx.saved_tensors, *ctx.how), ctx.norm, ctx.shape)


class NllGrad(Op):
    """``-g weight / norm`` where the target points, else 0; Nll is its adjoint too."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, classes: Classes, norm: Any, shape: tuple) -> Tensor:
        gx = new_empty(shape, g._dtype, g._device)
        out, incoming = gx._array.reshape(_sizes(gx)), contiguous(g)._array.reshape((-1,))
        arguments = classes.arguments(norm)
        machine.launch(kernels.nll_grad, out, incoming, norm, *arguments, classes.reduction)
        ctx.classes = classes
        return gx

    @staticmethod
    def backward(ctx: Any, h: Tensor) -> Tensor:
        return Nll.apply(h, *ctx.classes.fields())


class CrossEntropy(Op, remembers=True):
    """Nll of log_softmax, in one pass over the logits; keeps one number per row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, smoothing: float, *options: Any) -> Tensor:
        classes = Classes(*options)
        (b, c, p), device = _sizes(x), x._device
        numpy = arithmetic(x._dtype.numpy)
        losses = new_empty((b * p,), dtypes.from_numpy(numpy), device)
        lse = machine.empty((b * p,), numpy, device)
        norm = machine.empty((1,), numpy, device)
        bad = machine.empty((1,), dtypes.int64.numpy, device)
        single = new_empty((), x._dtype, device)
        results = single._array.reshape((1,)), losses._array, lse, norm, bad
        arguments = *classes.arguments(lse), smoothing, classes.reduction
        of_rows = x._array.ndim == 2
        kernel = kernels.cross_entropy if of_rows else plane_loss.cross_entropy_of_planes
        machine.launch(kernel, *results, contiguous(x)._array, *arguments)
        classes.check("cross_entropy", bad, c)
        ctx.how, ctx.rows = (classes.ignore, classes.reduction), (lse, norm)
        ctx.smoothing = smoothing
        ctx.save(x, classes.target, classes.weight)
        return cast(losses, x._dtype) if classes.reduction == kernels.NONE else single

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x, *tensors), (lse, norm) = ctx.saved_tensors, ctx.rows
        classes = Classes(*tensors, *ctx.how)
        options = *classes.arguments(lse), ctx.smoothing
        of_rows = x._array.ndim == 2
        if grad_mode.enabled:
            b, c, p = _sizes(x)
            aim = new_empty((b * p, c), x._dtype, x._device)
            machine.launch(kernels.target_rows, aim._array, *options)
            if not of_rows:
                aim = aim.reshape((b, p, c)).transpose(1, 2)
            return (softmax(x, 1) * aim.sum(1, keepdim=True) - aim) * classes.scale(g, norm, x)
        gx = new_empty(x._array.shape, x._dtype, x._device)
        incoming = contiguous(g)._array.reshape((-1,))
        sources = incoming, contiguous(x)._array, lse, norm
        options = *options, classes.reduction
        kernel = plane_loss.cross_entropy_of_planes_grad
        if of_rows:
            halves = x._dtype in dtypes.HALVES and machine.on_host(x)
            kernel = (
                half_loss.cross_entropy_grad_of_halves if halves else kernels.cross_entropy_grad
            )
        machine.launch(kernel, gx._array, *sources, *options)
        return gx


def classes_of(
    name: str, shape: tuple[int, ...], dtype: DType, target: Tensor, weight: Tensor | None,
    ignore: int, reduction: str,
) -> Classes:  # fmt: skip
    """The checked Classes for logits of a shape, (b, c, ...) or (c)."""
    as_operand(name, target, 1)
    if target._dtype.category != 1:
        way_out = "Convert classes with .long()."
        if name != "nll_loss":
            way_out += f" Chances of each class need the shape of input, {list(shape)}."
        raise DTypeError(
            f"{name}: expected target of dtype ng.int64, but got {target._dtype}. {way_out}"
        )
    if not shape:
        raise ShapeError(f"{name}: input expected to have 1 or more dimensions, got a 0-d tensor.")
    axis = 1 if len(shape) > 1 else 0
    expected, got = shape[:axis] + shape[axis + 1 :], target._array.shape
    if expected[:1] != got[:1] and axis:
        raise ShapeError(
            f"{name}: Expected input batch_size ({shape[0]}) to match target batch_size "
            f"({got[0] if got else 'none: it is 0-d'})."
        )
    if expected != got:
        raise ShapeError(
            f"{name}: expected target of size {list(expected)} for input {list(shape)}, got "
            f"{list(got)}: a class for each position."
        )
    classes = shape[axis]
    if weight is not None:
        as_operand(name, weight, 2)
        if weight._array.shape != (classes,) or weight._dtype is not dtype:
            raise ShapeError(
                f"{name}: weight tensor should be defined either for all {classes} classes or no "
                f"classes, in {dtype}, but got {weight._dtype} of shape "
                f"{list(weight._array.shape)}."
            )
        if weight._edge is not None and grad_mode.enabled:
            raise GradError(
                f"{name}: it is not differentiable with respect to argument 'weight', which "
                f"requires a gradient. Pass weight.detach()."
            )
    target = contiguous(cast(target, dtypes.int64))
    if len(got) != 1:
        target = target.reshape((target._array.size,))
    weight = None if weight is None else contiguous(weight)
    return Classes(target, weight, int(ignore), REDUCTIONS[reduction])


def _prepare(
    name: str, x: Tensor, target: Tensor, weight: Tensor | None, ignore: int, reduction: str
) -> tuple[Tensor, Classes]:
    """``x`` (b, c), or (b, c, p) of more dimensions, and the checked Classes."""
    shape = x._array.shape
    found = classes_of(name, shape, x._dtype, target, weight, ignore, reduction)
    if len(shape) != 2:
        places = shape[2:]
        x = x.reshape((shape[0], shape[1], math.prod(places)) if places else (1, shape[0]))
    return x, found


@remembered
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Negative log likelihood: minus ``input`` at the class that ``target`` names.

    input (n, c), (c) or (n, c, ...): log-probabilities; target: classes, the shape of input
    without its class dimension; weight (c): of each class, by which a mean divides too. Targets
    equal to ignore_index count for nothing.
    Raises IndexError for a target that is no class, ShapeError if batches differ.
    """
    if machine.autocasting:
        input, weight = raised(input, weight, on=BOTH)
    as_operand("nll_loss", input)
    reduction = reduction_of("nll_loss", reduction, size_average, reduce)
    shape = target._array.shape if isinstance(target, Tensor) else ()
    x, classes = _prepare("nll_loss", input, target, weight, ignore_index, reduction)
    out = Nll.apply(x, *classes.fields())
    return out.reshape(shape) if reduction == "none" and len(shape) != 1 else out


@remembered
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The cross entropy between logits and classes: ``nll_loss(log_softmax(input, 1), target)``.

    target: class indices as for nll_loss, or probabilities of the shape and dtype of input.
    label_smoothing: the share of the target that is spread over all classes (Szegedy et al., 2016).
    Gradient: ``softmax(input) - one_hot(target)``, scaled.

    >>> cross_entropy(tensor([[0.0, 0.0]]), tensor([1])).item()
    0.6931471824645996
    """
    if machine.autocasting:
        input, target, weight = raised(input, target, weight, on=BOTH)
    as_operand("cross_entropy", input)
    as_operand("cross_entropy", target, 1)
    reduction = reduction_of("cross_entropy", reduction, size_average, reduce)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(
            f"cross_entropy: label_smoothing must be between 0.0 and 1.0, got {label_smoothing}."
        )
    if target._dtype.is_floating_point and target._array.shape == input._array.shape:
        if ignore_index >= 0:
            raise ShapeError(
                f"cross_entropy: ignore_index is not supported for floating point target, got "
                f"{ignore_index}. Give such samples probabilities of zero."
            )
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    shape = target._array.shape
    x, classes = _prepare("cross_entropy", input, target, weight, ignore_index, reduction)
    if not x._dtype.is_floating_point:
        raise DTypeError(f"cross_entropy: expected floating logits, got {x._dtype}.")
    out = CrossEntropy.apply(x, float(label_smoothing), *classes.fields())
    return out.reshape(shape) if reduction == "none" and len(shape) != 1 else out


def _soft_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float
) -> Tensor:
    """Cross entropy with a distribution over the classes for each sample."""
    shape = x._array.shape
    axis = 1 if len(shape) > 1 else 0
    if smoothing > 0.0:
        target = target * (1.0 - smoothing) + smoothing / shape[axis]
    products = log_softmax(x, axis) * target
    if weight is not None:
        products = products * weight.reshape((-1, *(1,) * (len(shape) - axis - 1)))
    losses = -products.sum(axis)
    if reduction == "mean":
        return losses.sum() / (math.prod(shape) // max(shape[axis], 1))
    return reduced(losses, reduction)
