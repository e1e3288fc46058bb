"""Compiled GPU kernels on disk, so that the next process loads machine code instead of compiling.

The files are those of ``kernels/store.py``: each named by a hash of all that it depends on, written
whole, with a checksum. What cannot be read costs a compile. Start reading at ``specialised``.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from numba import cuda, types

from ... import store
from .quick_cuda import quick

__all__ = ["specialised"]

_FOLDER = Path(__file__).parent.parent
_COMPILERS = "numba numba-cuda llvmlite cuda-core nvidia-nvvm nvidia-nvjitlink nvidia-cuda-nvrtc"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


@functools.cache
def _stamp() -> str:
    """Hash of every file of GPU kernels, and of the versions that decide what they compile to."""
    digest = hashlib.sha256()
    versions = [f"{package} {_version(package)}" for package in _COMPILERS.split()]
    digest.update(f"{versions} {sys.version_info[:2]}".encode())
    for path in sorted(_FOLDER.rglob("*.py")):
        digest.update(str(path.relative_to(_FOLDER)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def specialised(
    kernel: Callable[..., None], signature: tuple[Any, ...], capability: tuple[int, ...]
) -> Any:
    """Numba's dispatcher of ``kernel`` for these types, with code from disk if it is there."""
    bounds = getattr(kernel, "launch_bounds", None)
    text = f"{_stamp()} {bounds} {store.source_with_globals(kernel)}"  # type: ignore[arg-type]
    stamp = hashlib.sha256(text.encode()).hexdigest()
    files, key = store.OneFilePerSignature(kernel.__name__, stamp), (str(signature), capability)
    found = _rebuilt(files.load(key), kernel, signature)
    if found is None:
        with quick():
            found = cuda.jit(types.void(*signature), launch_bounds=bounds)(kernel)
        saved = _saved(found.overloads[signature])
        if saved is not None:
            files.save(key, saved)
    return found


def _saved(compiled: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """What a compiled kernel is made from again: its machine code, not what that was made from."""
    try:
        compiled._codelibrary.get_cubin()  # made already, where a device has loaded it
        kernel = dict(compiled._reduce_states())
        library = dict(kernel.pop("codelibrary")._reduce_states())
    except Exception as error:  # another numba-cuda, or code that cannot leave the process
        _warn(f"numbagrad cannot keep the GPU kernel {compiled!r} on disk: {error!r}")
        return None
    library |= {"llvm_strs": [], "ptx_cache": {}, "linkerinfo_cache": {}}
    return kernel, library


def _rebuilt(saved: Any, kernel: Callable[..., None], signature: tuple[Any, ...]) -> Any:
    """The dispatcher with the code that ``_saved`` returned, or None."""
    if saved is None:
        return None
    try:
        from numba.cuda.codegen import CUDACodeLibrary
        from numba.cuda.dispatcher import _Kernel

        states, library = saved
        code = CUDACodeLibrary._rebuild(**library)
        dispatcher = cuda.jit(kernel)
        dispatcher.add_overload(_Kernel._rebuild(codelibrary=code, **states), signature)
        dispatcher._specialized = True
        dispatcher.disable_compile()
    except Exception as error:  # it must cost a compile, not the user's program
        _warn(f"numbagrad ignores the GPU kernel {kernel.__name__} on disk: {error!r}")
        return None
    return dispatcher


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=3)
