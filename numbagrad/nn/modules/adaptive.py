"""Softmax over many classes by clusters: the rare ones take fewer features (Grave et al., 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ...errors import DimError, ShapeError
from ...kernels import machine
from ...ops.elementwise import clamp, where
from ...ops.gather import gathered
from ...ops.join import cat
from ...tensor import Tensor
from .. import functional as F
from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class AdaptiveLoss(NamedTuple):
    """The log-chance of each target, and the mean of their negatives."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-softmax of n_classes, the frequent ones first, with its loss.

    Classes from 0 to the first of ``cutoffs`` are the head's, which also has one output for each
    cluster, the classes between two cutoffs or behind the last. Cluster i sees the input through
    ``in_features / div_value ** (i + 1)`` features. A row only takes its own cluster's time; a
    compiled function, which cannot choose rows, computes every cluster for all of them.
    Grave et al., "Efficient softmax approximation for GPUs", 2017.

    >>> list(AdaptiveLogSoftmaxWithLoss(8, 10, [4]).state_dict())
    ['head.weight', 'tail.0.0.weight', 'tail.0.1.weight']
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        name, bounds = type(self).__name__, list(cutoffs)
        if not bounds:
            raise ValueError(f"{name}: cutoffs should be a sequence of length larger than 0.")
        rising = all(a < b for a, b in pairwise([0, *bounds, n_classes]))
        if not rising or any(int(c) != c for c in bounds):
            raise ValueError(
                f"{name}: cutoffs should be a sequence of unique, positive integers sorted in an "
                f"increasing order, where each value is between 1 and n_classes-1 = "
                f"{n_classes - 1}, got {bounds}."
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*bounds, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = bounds[0]
        self.n_clusters = len(bounds)
        self.head_size = self.shortlist_size + self.n_clusters
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **made)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            fewer = int(in_features // div_value ** (i + 1))
            narrow = Linear(in_features, fewer, bias=False, **made)
            self.tail.append(Sequential(narrow, Linear(fewer, high - low, bias=False, **made)))

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        self.head.reset_parameters()
        for cluster in self.tail:
            for layer in cluster:
                layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> AdaptiveLoss:
        """The log-chance of each target, and their mean as a loss: ``(output, loss)``.

        input_ (n, in_features), target_ (n), ints; or (in_features) and a target without
        dimensions. Raises IndexError for a target that is no class.
        """
        self._check(input_, target_)
        single = target_.dim() == 0
        x, target = (input_.unsqueeze(0), target_.unsqueeze(0)) if single else (input_, target_)
        head = F.log_softmax(self.head(x), 1)
        at, within = target, head[:, 0] * 0
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            inside = target.ge(low).logical_and(target.lt(high))
            at = where(inside, self.shortlist_size + i, at)
            if machine.is_recording():
                every = self._picked(i, x, clamp(target - low, 0, high - low - 1))
                within = where(inside, every, within)
                continue
            rows = inside.nonzero().squeeze(1)
            if rows.numel():
                theirs = self._picked(i, x[rows], target[rows] - low)
                within = within.index_add(0, rows, theirs)
        # A target that is no class is larger than the head, too, and found by the gather.
        output = gathered(type(self).__name__, head, 1, at.unsqueeze(1)).squeeze(1) + within
        return AdaptiveLoss(output.squeeze(0) if single else output, -output.mean())

    def _check(self, input: Tensor, target: Tensor) -> None:
        """Raise if the shapes do not fit, or a target is no class."""
        name, shape, sizes = type(self).__name__, list(input.shape), list(target.shape)
        if len(sizes) > 1:
            raise ShapeError(
                f"{name}: 0D or 1D target tensor expected, multi-target not supported. Got {sizes}."
            )
        if len(shape) != len(sizes) + 1:
            raise ShapeError(
                f"{name}: {len(sizes)}D target tensor expects {len(sizes) + 1}D input tensors, but "
                f"found inputs with size {shape}."
            )
        if shape[:-1] != sizes:
            raise ShapeError(
                f"{name}: Input and target should have the same size in the batch dimension, got "
                f"{shape} and {sizes}."
            )
        if machine.is_recording() or not target.numel():
            return
        least, most = int(target.min().item()), int(target.max().item())
        if least < 0 or most >= self.n_classes:
            raise DimError(
                f"{name}: Target values should be in [0, {self.n_classes - 1}], but values in "
                f"range [{least}, {most}] were found."
            )

    def _picked(self, i: int, x: Tensor, target: Tensor) -> Tensor:
        """Of rows whose cluster is i, the log-chance of ``target`` within it."""
        chances = F.log_softmax(self.tail[i](x), 1)
        return gathered(type(self).__name__, chances, 1, target.unsqueeze(1)).squeeze(1)

    def log_prob(self, input: Tensor) -> Tensor:
        """Log-chances of all classes: (n, in_features) to (n, n_classes)."""
        return self._all(input, self.head(input))

    def _all(self, x: Tensor, head: Tensor) -> Tensor:
        chances, first = F.log_softmax(head, 1), self.shortlist_size
        clusters = [
            F.log_softmax(tail(x), 1) + chances[:, first + i : first + i + 1]
            for i, tail in enumerate(self.tail)
        ]
        return cat([chances[:, :first], *clusters], 1)

    def predict(self, input: Tensor) -> Tensor:
        """The likeliest class of each row, (n): ``log_prob(input).argmax(1)``.

        No cluster is computed for a row whose likeliest output of the head is a class.
        """
        head = self.head(input)
        if machine.is_recording():
            return self._all(input, head).argmax(1)
        best = head.argmax(1)
        rows = best.ge(self.shortlist_size).nonzero().squeeze(1)
        if not rows.numel():
            return best
        return best.index_copy(0, rows, self._all(input[rows], head[rows]).argmax(1))
