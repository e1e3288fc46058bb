"""PyTorch's switches of libraries that are not here: programs set them, and nothing changes."""

from . import cuda, cudnn, mps

__all__ = ["cuda", "cudnn", "mps"]
