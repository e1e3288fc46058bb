"""The datasets where PyTorch's programs look for them."""

from ...data.dataset import *  # noqa: F403
from ...data.dataset import __all__ as __all__
