"""A kernel of one element as a kernel of all: a loop around it, compiled with it. See ``for_each``.

What runs for each element would be as many launches, and in a compiled function as many calls.
"""

from __future__ import annotations

import functools
from typing import Any

from ..kernels import store
from ..kernels.machine import Kernel
from ..kernels.origin import ours


@functools.cache
def for_each(kernel: Kernel, mine: tuple[bool, ...]) -> Kernel:
    """``kernel`` for all elements, with threads for many.

    mine: which arguments have a first dim of elements; all outputs have it.
    """
    names = [f"a{k}" for k in range(len(mine))]
    passed = [f"{name}[i]" if own else name for name, own in zip(names, mine, strict=True)]
    function = kernel.function
    name, of = f"each_{kernel.__name__}", f"{function.__module__}.{function.__qualname__}"
    if not ours(function):  # whose text may change
        of = store.content_name(of, store.source_with_globals(function))
    text = (
        f'"""``{of}`` for each element."""\n'
        "from numba import prange\n\n\n"
        f"def {name}({', '.join(names)}):\n"
        f"    for i in prange(a0.shape[0]):\n"
        f"        of_one({', '.join(passed)})\n"
    )
    module = store.load_source(text, name)
    module.of_one = kernel.serial  # type: ignore[attr-defined]
    options = {"allocates": False, **kernel._options, "source": text}
    kind: Any = type(kernel)
    return kind(getattr(module, name), kernel.outputs, kernel.grain, **options)
