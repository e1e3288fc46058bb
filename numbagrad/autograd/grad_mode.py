"""The switches of the tape where PyTorch's programs look for them; they are in ``modes.py``."""

from .modes import *  # noqa: F403
from .modes import __all__ as __all__
