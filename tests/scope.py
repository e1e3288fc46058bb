"""The names that numbagrad promises to have, after PyTorch's, and those still being made.

``TENSOR`` names are functions of the package, methods of Tensor, or both; the others are members of
nn.functional, nn, nn.init, optim, its schedulers, and data.
"""

from __future__ import annotations

from typing import Any

import numbagrad as ng

TENSOR = """
    cat mean backward item split to view sum size tensor zeros max ones reshape relu sqrt arange
    randn transpose unsqueeze log stack detach squeeze exp clamp numel clone pow tolist rand tanh
    softmax cpu numpy float add sigmoid copy_ expand t from_numpy randint fill_ masked_fill norm
    argmax empty permute contiguous mul_ cos long sin repeat topk flatten zeros_like matmul
    log_softmax add_ dim abs std type prod randperm where eye uniform_ normal_ mm min unique
    randn_like
    einsum new_zeros ceil gather var floor clip zero_ full requires_grad_ linspace
    repeat_interleave scatter_ type_as expand_as sort div all tril multinomial chunk eq ones_like
    clamp_ mul nonzero flip as_tensor square rsqrt int bool detach_ allclose cuda triu bmm
    unbind div_ new_ones masked_fill_ new_full argsort log2 empty_like new_empty maximum equal
    view_as isnan cumsum double dot ravel minimum bernoulli_ median meshgrid sub addcmul_ addcdiv_
    amax any round tile sub_ sign select scatter roll neg index_add_ diag isfinite narrow mv
    is_contiguous gt full_like addmm register_hook element_size log10 random_ pow_ unfold
    is_floating_point nelement var_mean bucketize trace
    index_select logsumexp cumprod amin argmin movedim swapaxes broadcast_to outer kron tensordot
    addcmul addcdiv lerp erf erfc log1p expm1 reciprocal atan atan2 asin acos sinh cosh tan asinh
    acosh atanh isinf logical_and logical_or logical_not logical_xor ne lt le ge nan_to_num
    take_along_dim scatter_add unflatten cdist bincount cross baddbmm true_divide floor_divide
    remainder fmod retain_grad is_leaf trunc frac hypot logaddexp sinc xlogy sgn signbit heaviside
    std_mean count_nonzero aminmax kthvalue cummax cummin diff searchsorted hstack vstack
    column_stack tensor_split rot90 diagonal diag_embed triu_indices tril_indices vander
    linalg.inv linalg.solve linalg.det linalg.slogdet linalg.cholesky linalg.qr linalg.svd
    linalg.eigh linalg.norm linalg.vector_norm linalg.matrix_norm linalg.pinv linalg.lstsq
""".split()

FUNCTIONAL = """
    linear relu embedding dropout cross_entropy sigmoid layer_norm batch_norm tanh gelu leaky_relu
    softmax mse_loss silu conv1d conv2d conv3d conv_transpose1d conv_transpose2d max_pool1d
    max_pool2d avg_pool1d avg_pool2d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool2d
    binary_cross_entropy binary_cross_entropy_with_logits nll_loss kl_div l1_loss smooth_l1_loss
    huber_loss cosine_embedding_loss triplet_margin_loss dropout1d dropout2d elu selu celu prelu
    rrelu softplus softsign hardswish hardsigmoid hardtanh relu6 mish glu softmin log_softmax
    group_norm instance_norm rms_norm pixel_shuffle unfold fold bilinear cosine_similarity
    pairwise_distance embedding_bag scaled_dot_product_attention pad normalize interpolate one_hot
    grid_sample ctc_loss alpha_dropout feature_alpha_dropout local_response_norm
""".split()

MODULES = """
    Module Linear Sequential ReLU Parameter Conv2d Embedding ModuleList Dropout CrossEntropyLoss
    Sigmoid LayerNorm BatchNorm2d MaxPool2d Tanh LSTM GELU ModuleDict LeakyReLU Identity Softmax
    BatchNorm1d MSELoss AvgPool2d SiLU
    Conv1d Conv3d ConvTranspose1d ConvTranspose2d AdaptiveAvgPool1d AdaptiveAvgPool2d
    AdaptiveMaxPool2d MaxPool1d AvgPool1d BCELoss BCEWithLogitsLoss NLLLoss KLDivLoss L1Loss
    SmoothL1Loss HuberLoss CosineEmbeddingLoss TripletMarginLoss Dropout1d Dropout2d
    MultiheadAttention TransformerEncoderLayer TransformerEncoder GRU RNN GRUCell LSTMCell RNNCell
    ELU SELU CELU PReLU RReLU Softplus Softsign Hardswish Hardsigmoid Hardtanh ReLU6 Mish GLU
    Softmin LogSoftmax Flatten Unflatten GroupNorm InstanceNorm1d InstanceNorm2d RMSNorm
    BatchNorm3d Upsample PixelShuffle Unfold Fold ZeroPad2d ReflectionPad2d ParameterList
    ParameterDict Bilinear CosineSimilarity PairwiseDistance EmbeddingBag CTCLoss
    AlphaDropout FeatureAlphaDropout LocalResponseNorm LazyLinear LazyConv1d LazyConv2d LazyConv3d
    LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d UninitializedParameter
""".split()

INIT = """
    zeros_ ones_ constant_ normal_ uniform_ trunc_normal_ eye_ dirac_ orthogonal_ xavier_uniform_
    xavier_normal_ kaiming_uniform_ kaiming_normal_ calculate_gain
""".split()

MODULE_METHODS = """
    parameters named_parameters buffers named_buffers modules named_modules children
    named_children apply train eval zero_grad requires_grad_ to cuda cpu float double half
    state_dict load_state_dict add_module register_module get_submodule get_parameter
    register_forward_hook register_forward_pre_hook register_full_backward_hook extra_repr
    _register_state_dict_hook _register_load_state_dict_pre_hook _load_from_state_dict
    _save_to_state_dict
""".split()

NN_UTILS = """
    clip_grad_norm_ clip_grad_value_ parameters_to_vector vector_to_parameters
    weight_norm remove_weight_norm parametrizations.weight_norm parametrizations.spectral_norm
    parametrize.register_parametrization parametrize.is_parametrized
    parametrize.remove_parametrizations
""".split()

OPTIM = """
    SGD Adam AdamW RMSprop Adagrad Adadelta Adamax NAdam RAdam LBFGS Lion Muon ASGD Rprop Adafactor
""".split()

SCHEDULERS = """
    StepLR MultiStepLR ExponentialLR CosineAnnealingLR CosineAnnealingWarmRestarts LinearLR
    OneCycleLR ReduceLROnPlateau LambdaLR SequentialLR
""".split()

DATA = """
    Dataset TensorDataset IterableDataset Subset ConcatDataset random_split DataLoader
    RandomSampler SequentialSampler WeightedRandomSampler BatchSampler
""".split()

AUTOGRAD = """
    grad backward no_grad enable_grad set_grad_enabled inference_mode detect_anomaly
    functional.jacobian functional.hessian functional.vjp functional.jvp functional.hvp
    graph.saved_tensors_hooks
""".split()

DISTRIBUTIONS = """
    Bernoulli Beta Binomial Categorical Cauchy Chi2 Dirichlet Distribution Exponential Gamma
    Geometric Gumbel HalfCauchy HalfNormal Independent Laplace LogNormal MixtureSameFamily
    Multinomial MultivariateNormal Normal OneHotCategorical OneHotCategoricalStraightThrough Pareto
    Poisson RelaxedBernoulli RelaxedOneHotCategorical StudentT TransformedDistribution Uniform
    Weibull kl_divergence register_kl AffineTransform ComposeTransform ExpTransform SigmoidTransform
    TanhTransform identity_transform constraints.positive constraints.simplex transforms.Transform
    kl.kl_divergence
""".split()

GROUPS = {
    "": TENSOR,
    "nn.functional": FUNCTIONAL,
    "nn": MODULES,
    "nn.init": INIT,
    "nn.Module": MODULE_METHODS,
    "nn.utils": NN_UTILS,
    "optim": OPTIM,
    "optim.lr_scheduler": SCHEDULERS,
    "data": DATA,
    "autograd": AUTOGRAD,
    "distributions": DISTRIBUTIONS,
}


def has(name: str, *owners: Any) -> bool:
    """Whether one of ``owners`` has the dotted name."""
    for owner in owners:
        found = owner
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is not None:
            return True
    return False


def names(group: str) -> list[str]:
    """The names of a group, dotted from the package on."""
    return [f"{group}.{name}".lstrip(".") for name in GROUPS[group]]


def missing(group: str) -> list[str]:
    """The names of a group that do not exist."""
    owners = (ng, ng.Tensor) if group == "" else (ng,)
    return [name for name in names(group) if not has(name, *owners)]
