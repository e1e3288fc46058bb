"""Losses as modules: each is the functional twin and its options, one row per class."""

from __future__ import annotations

from typing import Any

from ...tensor import Tensor
from .. import functional as F
from .configured import FLAGS, _Loss

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CTCLoss",
    "CrossEntropyLoss",
    "GaussianNLLLoss",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "NLLLoss",
    "PoissonNLLLoss",
    "SmoothL1Loss",
    "SoftMarginLoss",
]


class Loss(_Loss):
    """A loss of input and target."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of ``input`` against ``target``."""
        return type(self).function(input, target, **self.chosen())


class _WeightedLoss(Loss):
    """A loss that may weigh classes or elements."""

    options = {"weight": None, **FLAGS, "reduction": "mean"}


class MSELoss(Loss):
    """Squared differences."""

    function = staticmethod(F.mse_loss)


class L1Loss(Loss):
    """Absolute differences."""

    function = staticmethod(F.l1_loss)


class SmoothL1Loss(Loss):
    """Squared within beta of zero, absolute beyond (Girshick, 2015)."""

    function = staticmethod(F.smooth_l1_loss)
    options = {**FLAGS, "reduction": "mean", "beta": 1.0}


class HuberLoss(Loss):
    """Squared within delta of zero, absolute times delta beyond (Huber, 1964)."""

    function = staticmethod(F.huber_loss)
    options = {"reduction": "mean", "delta": 1.0}


class CrossEntropyLoss(_WeightedLoss):
    """Negative log-likelihood of softmax: input (n, classes, ...), target indices or chances."""

    function = staticmethod(F.cross_entropy)
    options = {
        "weight": None,
        "size_average": None,
        "ignore_index": -100,
        "reduce": None,
        "reduction": "mean",
        "label_smoothing": 0.0,
    }


class NLLLoss(_WeightedLoss):
    """Negative log-likelihood: input log-chances (n, classes, ...), target indices."""

    function = staticmethod(F.nll_loss)
    options = {
        "weight": None,
        "size_average": None,
        "ignore_index": -100,
        "reduce": None,
        "reduction": "mean",
    }


class BCELoss(_WeightedLoss):
    """Cross entropy of chances in [0, 1] against targets in [0, 1]."""

    function = staticmethod(F.binary_cross_entropy)


class BCEWithLogitsLoss(Loss):
    """Cross entropy of sigmoid(input) against targets in [0, 1]."""

    function = staticmethod(F.binary_cross_entropy_with_logits)
    options = {"weight": None, **FLAGS, "reduction": "mean", "pos_weight": None}


class KLDivLoss(Loss):
    """Kullback-Leibler divergence: input log-chances, target chances (or logs: log_target)."""

    function = staticmethod(F.kl_div)
    options = {**FLAGS, "reduction": "mean", "log_target": False}


class HingeEmbeddingLoss(Loss):
    """The input where target is 1, max(0, margin - input) where it is -1."""

    function = staticmethod(F.hinge_embedding_loss)
    options = {"margin": 1.0, **FLAGS, "reduction": "mean"}


class SoftMarginLoss(Loss):
    """log(1 + exp(-target input)), target 1 or -1."""

    function = staticmethod(F.soft_margin_loss)


class MultiMarginLoss(_WeightedLoss):
    """How much the score of the true class is not larger than the others by margin, to the p."""

    function = staticmethod(F.multi_margin_loss)
    options = {"p": 1, "margin": 1.0, "weight": None, **FLAGS, "reduction": "mean"}


class MultiLabelMarginLoss(Loss):
    """How much the scores of the true classes are not larger than the others by 1."""

    function = staticmethod(F.multilabel_margin_loss)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """Cross entropy of sigmoid(input) and target, the mean over classes."""

    function = staticmethod(F.multilabel_soft_margin_loss)


class PoissonNLLLoss(Loss):
    """Negative log-likelihood of counts: input log-rates (or rates: log_input=False)."""

    function = staticmethod(F.poisson_nll_loss)
    options = {
        "log_input": True,
        "full": False,
        "size_average": None,
        "eps": 1e-8,
        "reduce": None,
        "reduction": "mean",
    }


class GaussianNLLLoss(Loss):
    """Negative log-likelihood of normal numbers: input means, target, var their variances."""

    function = staticmethod(F.gaussian_nll_loss)
    options = {"full": False, "eps": 1e-6, "reduction": "mean"}

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:  # type: ignore[override]
        """The loss of ``input`` against ``target``."""
        return F.gaussian_nll_loss(input, target, var, **self.chosen())


class CTCLoss(Loss):
    """Connectionist temporal classification: log-chances (t, n, classes), targets and lengths."""

    function = staticmethod(F.ctc_loss)
    options = {"blank": 0, "reduction": "mean", "zero_infinity": False}

    def forward(  # type: ignore[override]
        self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any
    ) -> Tensor:
        """The loss of ``log_probs`` against ``targets``: see ``functional.ctc_loss``."""
        return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, **self.chosen())
