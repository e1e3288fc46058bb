"""The sampler of one of several processes where PyTorch's programs look for it."""

from ...data.distributed import *  # noqa: F403
from ...data.distributed import __all__ as __all__
