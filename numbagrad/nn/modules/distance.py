"""Distances between two batches of vectors, and the losses made of them."""

from __future__ import annotations

from ...tensor import Tensor
from .. import functional as F
from .configured import FLAGS, Reducing, _Loss

__all__ = [
    "CosineEmbeddingLoss",
    "CosineSimilarity",
    "MarginRankingLoss",
    "PairwiseDistance",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]


class _Compared(Reducing):
    """A function of some tensors and the options."""

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        """The function of the tensors."""
        return type(self).function(*inputs, **named, **self.chosen())


class CosineSimilarity(_Compared):
    """The cosine of the angle between x1 and x2 along dim; lengths are at least eps."""

    function = staticmethod(F.cosine_similarity)
    options = {"dim": 1, "eps": 1e-8}


class PairwiseDistance(_Compared):
    """The p-norm of x1 - x2 + eps along the last dimension."""

    function = staticmethod(F.pairwise_distance)
    options = {"p": 2.0, "eps": 1e-6, "keepdim": False}


class _ComparedLoss(_Compared, _Loss):
    """A loss of some tensors."""


class CosineEmbeddingLoss(_ComparedLoss):
    """Of input1, input2 and target: 1 - cos where that is 1, max(0, cos - margin) where -1."""

    function = staticmethod(F.cosine_embedding_loss)
    options = {"margin": 0.0, **FLAGS, "reduction": "mean"}


class TripletMarginLoss(_ComparedLoss):
    """Of anchor, positive, negative: how much the first two are not nearer by margin."""

    function = staticmethod(F.triplet_margin_loss)
    options = {
        "margin": 1.0,
        "p": 2.0,
        "eps": 1e-6,
        "swap": False,
        **FLAGS,
        "reduction": "mean",
    }


class TripletMarginWithDistanceLoss(_ComparedLoss):
    """``TripletMarginLoss`` with a distance_function of two batches, by default the 2-norm."""

    function = staticmethod(F.triplet_margin_with_distance_loss)
    options = {"distance_function": None, "margin": 1.0, "swap": False, "reduction": "mean"}


class MarginRankingLoss(_ComparedLoss):
    """Of input1, input2 and target: how much the one that target names is not larger by margin."""

    function = staticmethod(F.margin_ranking_loss)
    options = {"margin": 0.0, **FLAGS, "reduction": "mean"}
