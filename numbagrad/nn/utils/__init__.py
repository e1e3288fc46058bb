"""Work on the parameters of modules: clipping, conversion to one vector, parametrizations."""

from typing import TYPE_CHECKING

from ...later import asked_for
from . import stateless
from .clip_grad import (
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from .convert_parameters import parameters_to_vector, vector_to_parameters

if TYPE_CHECKING:
    from . import fusion, parametrizations, parametrize, prune, rnn
    from .bare import skip_init
    from .fusion import (
        fuse_conv_bn_eval,
        fuse_conv_bn_weights,
        fuse_linear_bn_eval,
        fuse_linear_bn_weights,
    )
    from .largest_singular import remove_spectral_norm, spectral_norm
    from .length_direction import remove_weight_norm, weight_norm

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "fusion",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "prune",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "skip_init",
    "spectral_norm",
    "stateless",
    "vector_to_parameters",
    "weight_norm",
]

__getattr__ = asked_for(
    __name__,
    {
        "fuse_conv_bn_eval": "fusion",
        "fuse_conv_bn_weights": "fusion",
        "fuse_linear_bn_eval": "fusion",
        "fuse_linear_bn_weights": "fusion",
        "fusion": "fusion",
        "parametrizations": "parametrizations",
        "parametrize": "parametrize",
        "prune": "prune",
        "remove_spectral_norm": "largest_singular",
        "remove_weight_norm": "length_direction",
        "rnn": "rnn",
        "skip_init": "bare",
        "spectral_norm": "largest_singular",
        "weight_norm": "length_direction",
    },
)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
