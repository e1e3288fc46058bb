"""The stateless twins of the modules: PyTorch's ``torch.nn.functional`` over ``numbagrad.ops``."""

from __future__ import annotations

from ..ops.activation import (
    gelu,
    hardshrink,
    logsigmoid,
    prelu,
    softplus,
    softshrink,
    softsign,
    tanhshrink,
)
from ..ops.adaptive_pool import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
)
from ..ops.argument_names import rename
from ..ops.attention import scaled_dot_product_attention
from ..ops.bags import embedding_bag
from ..ops.base import as_operand, new_empty
from ..ops.batch_norm import batch_norm, instance_norm
from ..ops.conv import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from ..ops.create import ones
from ..ops.ctc import ctc_loss
from ..ops.directions import cosine_similarity, normalize
from ..ops.distance import cosine_embedding_loss, pairwise_distance, pdist, triplet_margin_loss
from ..ops.elementwise import sigmoid, tanh, where
from ..ops.fractional_pool import (
    fractional_max_pool2d,
    fractional_max_pool2d_with_indices,
    fractional_max_pool3d,
    fractional_max_pool3d_with_indices,
)
from ..ops.gated import glu
from ..ops.grid import affine_grid, grid_sample
from ..ops.group_norm import group_norm
from ..ops.inplace import in_place
from ..ops.linalg import linear, matmul
from ..ops.linear_loss import linear_cross_entropy
from ..ops.loss import cross_entropy, nll_loss
from ..ops.loss_formulas import (
    gaussian_nll_loss,
    hinge_embedding_loss,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_soft_margin_loss,
    poisson_nll_loss,
    soft_margin_loss,
    triplet_margin_with_distance_loss,
)
from ..ops.loss_pairs import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    smooth_l1_loss,
)
from ..ops.multi_head import multi_head_attention_forward
from ..ops.multilabel_margin import multilabel_margin_loss
from ..ops.norm import layer_norm, rms_norm
from ..ops.pad import pad
from ..ops.patch import fold, unfold
from ..ops.pool import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from ..ops.pool_with_indices import (
    adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d_with_indices,
    max_pool1d_with_indices,
    max_pool2d_with_indices,
    max_pool3d_with_indices,
)
from ..ops.power_pool import lp_pool1d, lp_pool2d, lp_pool3d
from ..ops.random import dropout, uniform_
from ..ops.reduce import sum as sum_
from ..ops.remembered import remembered
from ..ops.resize import (
    interpolate,
    pixel_shuffle,
    pixel_unshuffle,
    upsample,
    upsample_bilinear,
    upsample_nearest,
)
from ..ops.tables import embedding, one_hot
from ..ops.unpool import max_unpool1d, max_unpool2d, max_unpool3d
from ..tensor import Tensor
from .implicit_dim import log_softmax, softmax, softmin
from .inplace import FUNCTIONS, twins

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_with_indices",
    "affine_grid",
    "alpha_dropout",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "celu_",
    "channel_shuffle",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "ctc_loss",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "elu",
    "elu_",
    "embedding",
    "embedding_bag",
    "feature_alpha_dropout",
    "fold",
    "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "grid_sample",
    "group_norm",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hardtanh_",
    "hinge_embedding_loss",
    "huber_loss",
    "instance_norm",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "leaky_relu_",
    "linear",
    "linear_cross_entropy",
    "local_response_norm",
    "log_softmax",
    "logsigmoid",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "margin_ranking_loss",
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool2d_with_indices",
    "max_pool3d",
    "max_pool3d_with_indices",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "mish",
    "mse_loss",
    "multi_head_attention_forward",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "pdist",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "prelu",
    "relu",
    "relu6",
    "relu_",
    "rms_norm",
    "rrelu",
    "rrelu_",
    "scaled_dot_product_attention",
    "selu",
    "selu_",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    "threshold_",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
    "unfold",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]

celu = FUNCTIONS["celu"]
elu = FUNCTIONS["elu"]
hardsigmoid = FUNCTIONS["hardsigmoid"]
hardswish = FUNCTIONS["hardswish"]
hardtanh = FUNCTIONS["hardtanh"]
leaky_relu = FUNCTIONS["leaky_relu"]
mish = FUNCTIONS["mish"]
relu = FUNCTIONS["relu"]
relu6 = FUNCTIONS["relu6"]
selu = FUNCTIONS["selu"]
silu = FUNCTIONS["silu"]
threshold = FUNCTIONS["threshold"]

_twins = twins()
celu_ = _twins["celu_"]
elu_ = _twins["elu_"]
hardtanh_ = _twins["hardtanh_"]
leaky_relu_ = _twins["leaky_relu_"]
relu_ = _twins["relu_"]
selu_ = _twins["selu_"]
threshold_ = _twins["threshold_"]


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """``dropout`` of whole channels of ``input``, (n, c, l) or (c, l)."""
    return _channel_dropout("dropout1d", input, p, training, inplace, (2, 3))


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """``dropout`` of whole channels of ``input``, (n, c, h, w) or (n, c, l)."""
    return _channel_dropout("dropout2d", input, p, training, inplace, (3, 4))


def _channel_dropout(
    name: str, input: Tensor, p: float, training: bool, inplace: bool, ranks: tuple[int, ...]
) -> Tensor:
    as_operand(name, input)
    if input.dim() not in ranks:
        raise ValueError(
            f"{name}: Expected {ranks[0]}D or {ranks[1]}D input, but received a {input.dim()}D "
            f"input of size {list(input.shape)}. Channels are its second dimension."
        )
    if not 0 <= p <= 1:
        raise ValueError(f"{name}: dropout probability has to be between 0 and 1, but got {p}.")
    if not training or p == 0:
        return input
    lead = max(1, min(2, input.dim() - 1))
    shape = (*input.shape[:lead], *(1,) * (input.dim() - lead))
    factors = dropout(ones(shape, dtype=input.dtype, device=input.device), p)
    return input.mul_(factors) if inplace else input * factors


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """``dropout`` of whole channels of ``input``, (n, c, d, h, w) or (c, d, h, w)."""
    return _channel_dropout("dropout3d", input, p, training, inplace, (4, 5))


_SATURATED = 1.7580993408473766
"""What SELU comes to far below 0, its alpha times its scale."""


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """``dropout`` for SELU: elements take its lowest value, and mean and variance stay.

    With chance p; then all are scaled and shifted (Klambauer et al., 2017, appendix L).
    """
    as_operand("alpha_dropout", input)
    return _saturated("alpha_dropout", input, p, training, inplace, tuple(input.shape))


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """``alpha_dropout`` of whole channels of ``input``, (n, c, ...)."""
    as_operand("feature_alpha_dropout", input)
    if input.dim() < 2:
        raise ValueError(
            f"feature_alpha_dropout: Feature dropout requires at least 2 dimensions in the input, "
            f"got {list(input.shape)}."
        )
    shape = (*input.shape[:2], *(1,) * (input.dim() - 2))
    return _saturated("feature_alpha_dropout", input, p, training, inplace, shape)


def _saturated(
    name: str, input: Tensor, p: float, training: bool, inplace: bool, shape: tuple[int, ...]
) -> Tensor:
    if not 0 <= p <= 1:
        raise ValueError(f"{name}: dropout probability has to be between 0 and 1, but got {p}.")
    if not training or p == 0 or not input.numel():
        return input
    kept = dropout(ones(shape, dtype=input.dtype, device=input.device), p).ne(0)
    scale = 0.0 if p == 1 else ((_SATURATED**2 * p + 1) * (1 - p)) ** -0.5
    shift = _SATURATED * scale * p
    out = where(kept, input * scale + shift, input * 0 + (shift - _SATURATED * scale))
    return input.copy_(out) if inplace else out


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """``input / (k + alpha mean) ** beta``: the mean of the squares of ``size`` channels around.

    input (n, c, ...) of three or more dimensions; channels beyond the first and last count as 0
    (Krizhevsky et al., 2012).
    """
    as_operand("local_response_norm", input)
    if input.dim() < 3:
        raise ValueError(
            f"local_response_norm: Expected 3D or higher dimensionality input (got {input.dim()} "
            f"dimensions)."
        )
    if not input.numel():
        return input
    squares = (input * input).reshape(input.size(0), 1, input.size(1), -1)
    squares = pad(squares, (0, 0, size // 2, (size - 1) // 2))
    means = avg_pool2d(squares, (size, 1), stride=1).reshape(input.shape)
    return input / (means * alpha + k) ** beta


@remembered
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """The channels of (n, c, ...), taken from each of ``groups`` in turn (Zhang et al., 2018)."""
    as_operand("channel_shuffle", input)
    if input.dim() < 3 or groups < 1 or input.size(1) % groups:
        raise ValueError(
            f"channel_shuffle: expected (n, c, ...) with a number of channels that can be divided "
            f"by groups {groups}, got {list(input.shape)}."
        )
    n, channels, *rest = input.shape
    return input.reshape(n, groups, channels // groups, *rest).transpose(1, 2).reshape(input.shape)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x1 @ weight[k] @ x2 (+ bias[k])`` for each k; weight (out, in1, in2)."""
    as_operand("bilinear", input1)
    as_operand("bilinear", input2, 1)
    as_operand("bilinear", weight, 2)
    out_features, in1, in2 = weight.shape
    # (..., in1) @ (in1, out * in2), then the sum over in2 with x2.
    flat = weight.permute(1, 0, 2).reshape(in1, out_features * in2)
    mixed = matmul(input1, flat).reshape(*input1.shape[:-1], out_features, in2)
    out = sum_(mixed * input2.unsqueeze(-2), -1)
    return out if bias is None else out + bias


def gumbel_softmax(
    logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """``softmax((logits + Gumbel noise) / tau)`` along ``dim``: a sample that has a gradient.

    Jang et al., "Categorical reparameterization with Gumbel-softmax", 2017. hard: ones and zeros,
    with the gradient of the soft sample. eps: not used, as in PyTorch.
    """
    as_operand("gumbel_softmax", logits)
    noise = new_empty(logits.shape, logits.dtype, logits.device).exponential_().log()
    soft = softmax((logits - noise) / tau, dim)
    if not hard:
        return soft
    ones_at = soft.argmax(dim, keepdim=True)
    picked = (soft.detach() * 0).scatter(dim, ones_at, 1.0)
    return picked - soft.detach() + soft


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """``input`` where positive, else times a slope: random in [lower, upper] for each element in
    training, else their mean (Xu et al., 2015).
    """
    as_operand("rrelu", input)
    if inplace:
        return rrelu_(input, lower, upper, training)
    if not lower <= upper:
        raise ValueError(f"rrelu: lower {lower} should be less than or equal to upper {upper}.")
    if not training:
        return leaky_relu(input, (lower + upper) / 2)
    slope = uniform_(new_empty(input.shape, input.dtype, input.device), lower, upper)
    return where(input >= 0, input, input * slope)


rrelu_ = in_place("rrelu_", rrelu)


rename(globals()[name] for name in __all__)
