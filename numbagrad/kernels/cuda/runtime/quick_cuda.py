"""Parts of numba-cuda's compiler that do much for little, done sooner: see ``quick_numba.py``.

numba-cuda has copies of its own of what it took over from Numba.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata

from ... import quick_parts
from ...exchange import Exchange, Part
from ...quick_inlining import Inlining
from ...quick_numba import quick as quick_numba

__all__ = ["KNOWN", "own", "quick"]

KNOWN = ("0.30.",)
"""Begins of the versions of numba-cuda whose functions these replace."""


@functools.cache
def _known() -> bool:
    try:
        return metadata.version("numba-cuda").startswith(KNOWN)
    except metadata.PackageNotFoundError:
        return False


def _parts() -> tuple[Part, ...]:
    from numba.cuda.core import base, inline_closurecall, ir, postproc, targetconfig
    from numba.cuda.typing import npydecl, templates

    return (
        quick_parts.operators(npydecl.NumpyRulesArrayOperator),
        quick_parts.intrinsics(templates._IntrinsicTemplate),
        quick_parts.options(targetconfig.TargetConfig),
        quick_parts.variables(ir),
        quick_parts.lifetimes(postproc),
        quick_parts.places(base),
        quick_parts.sizes(base),
        *Inlining(ir, inline_closurecall.InlineWorker).parts,
    )


own = Exchange(_known, _parts)
"""What is numba-cuda's own; the rest it shares with Numba."""


@contextmanager
def quick() -> Iterator[None]:
    """In which numba-cuda compiles our kernels."""
    with quick_numba(), own():
        yield
