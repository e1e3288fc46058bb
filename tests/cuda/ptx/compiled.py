"""Kernels as the machine takes them: compiled to PTX by NVIDIA's compiler, and kept on disk.

The text is kept, by the content of the kernel, as ``runtime/kept.py`` keeps machine code. Start
reading at ``code_of``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from benchmarks.cuda_code import code_for
from numbagrad.kernels import store
from numbagrad.kernels.cuda.runtime import kept

from .assemble import Code, assemble, global_arrays
from .parse import parse

__all__ = ["CAPABILITY", "code_of", "reason"]

CAPABILITY = (8, 0)


def reason() -> str | None:
    """Why nothing can be compiled here; None where it can."""
    try:
        from cuda.bindings import nvjitlink  # noqa: F401
        from numba import cuda
    except ImportError as error:
        return f"NVIDIA's compiler is not installed ({error}): pip install 'numbagrad[cuda]'"
    found = getattr(cuda, "implementation", "")
    return None if found == "NVIDIA" else "numba-cuda is not installed"


def compile_text(
    kernel: Callable[..., None], signature: tuple[Any, ...], keep: bool = False
) -> str:
    """The PTX of ``kernel`` for Numba types."""
    code = code_for(kernel, signature, CAPABILITY, linked=False, keep=keep)
    return code.decode().strip("\x00").strip()


def text_of(kernel: Callable[..., None], signature: tuple[Any, ...]) -> str:
    """The PTX from disk, or compiled."""
    stamp = f"{kept._stamp()} {store.source_with_globals(kernel)}"
    files = store.OneFilePerSignature(
        f"ptx-{kernel.__name__}", hashlib.sha256(stamp.encode()).hexdigest()
    )
    key = str(signature), CAPABILITY
    text = files.load(key)
    if text is None:
        text = compile_text(kernel, signature, keep=True)
        files.save(key, text)
    return text


def code_of(
    kernel: Callable[..., None], signature: tuple[Any, ...], give: Callable[[bytes], int]
) -> Code:
    """``kernel`` for the machine. give: puts bytes into global memory, and says where."""
    parsed = parse(text_of(kernel, signature))
    place = {a.name: give(a.content.ljust(a.size, b"\0")) for a in global_arrays(parsed)}
    code = assemble(parsed, place)
    code.name = f"{kernel.__module__.rpartition('.')[2]}.{kernel.__qualname__}"
    return code
