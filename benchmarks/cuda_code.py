"""GPU kernels to code without a GPU: NVIDIA's compiler on what Numba's lowering gives.

The lowering takes longer than all that comes after it, and is the same for machine code and for the
text of PTX. It is kept on disk, by the content of the kernel, as ``runtime/kept.py`` keeps machine
code. Start reading at ``code_for``.
"""

from __future__ import annotations

import hashlib
import types as python_types
import zlib
from collections.abc import Callable
from typing import Any

from numbagrad.collector import seldom
from numbagrad.kernels import store
from numbagrad.kernels.cuda.runtime import kept
from numbagrad.kernels.cuda.runtime.quick_cuda import quick

__all__ = ["code_for"]


def code_for(
    kernel: Callable[..., None],
    signature: tuple[Any, ...],
    capability: tuple[Any, ...],
    linked: bool,
    keep: bool = True,
) -> bytes:
    """The code of ``kernel`` for Numba types and a compute capability.

    linked: for the linker, else PTX. keep: whether what it is made from is looked for on disk, and
    left there.
    """
    from numba.cuda.cudadrv import nvrtc, nvvm

    made = None
    if keep:
        bounds = getattr(kernel, "launch_bounds", None)
        text = f"{kept._stamp()} {bounds} {store.source_with_globals(kernel)}"  # type: ignore[arg-type]
        stamp = hashlib.sha256(text.encode()).hexdigest()
        files, key = (
            store.OneFilePerSignature(f"nvvm-{kernel.__name__}", stamp),
            (str(signature), capability),
        )
        made = files.load(key)
    if made is None:
        texts, options = _lowered(kernel, signature, capability)
        made = [zlib.compress(each.encode(), 1) for each in texts], options
        if keep:
            files.save(key, made)
    packed, options = made
    options = options | {"arch": nvrtc.get_arch_option(*capability)}
    if linked:
        options["gen-lto"] = None
    code: bytes = nvvm.compile_ir([zlib.decompress(each).decode() for each in packed], **options)
    return code


def _lowered(
    kernel: Callable[..., None], signature: tuple[Any, ...], capability: tuple[Any, ...]
) -> tuple[list[str], dict[str, Any]]:
    """The texts of LLVM's modules, and what they are compiled with."""
    import numba.cuda.dispatcher as dispatcher
    from numba import types
    from numba.cuda import compiler

    there = python_types.SimpleNamespace(compute_capability=capability[:2])
    held, dispatcher.get_current_device = dispatcher.get_current_device, lambda: there
    try:
        with seldom(), quick():  # device functions ask for the device
            library, _ = compiler._compile_pyfunc_with_fixup(
                kernel, types.void(*signature), device=False, abi="numba", cc=capability,
                launch_bounds=getattr(kernel, "launch_bounds", None),
            )  # fmt: skip
    finally:
        dispatcher.get_current_device = held
    if library._linking_files:
        raise NotImplementedError(f"{kernel.__name__} is linked with {library._linking_files}")
    return library.llvm_strs, library._nvvm_options
