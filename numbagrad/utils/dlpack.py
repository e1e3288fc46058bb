"""Memory shared with other libraries, by PyTorch's older names; see ``ng.from_dlpack``."""

from ..ops.from_data import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
