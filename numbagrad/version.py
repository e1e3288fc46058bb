"""The version, and what the installed packages say of CUDA, without a look at a GPU."""

from __future__ import annotations

from importlib import metadata

from . import __version__

__all__ = ["__version__", "cuda", "debug", "git_version", "hip"]

debug = False

git_version: str | None = None
"""Unknown."""

hip: str | None = None
"""None: there are no GPUs but NVIDIA's."""


def _toolkit() -> str | None:
    """Major and minor version of the CUDA toolkit that is installed beside numba-cuda."""
    for package in ("cuda-toolkit", "cuda-bindings"):
        try:
            return ".".join(metadata.version(package).split(".")[:2])
        except metadata.PackageNotFoundError:
            continue
    return None


cuda: str | None = _toolkit()
"""The version of the CUDA toolkit, None without ``numbagrad[cuda]``."""
