"""The samplers where PyTorch's programs look for them."""

from ...data.sampler import *  # noqa: F403
from ...data.sampler import __all__ as __all__
