"""Parts of Numba's compiler that do much for little, done sooner; what comes out is the same.

Three fifths of a compilation are Python, and some of that is work whose result is thrown away: to
add two floats Numba asks first which loop of ``np.add`` would do it, before each variable on the
stack it lets LLVM read a text that says the variable's type. While our kernels compile, functions
of ``quick_parts.py`` and ``quick_inlining.py`` stand in for Numba's; otherwise Numba is as it was.
They are written for the version that ``KNOWN`` names: with another, nothing is exchanged.
"""

from __future__ import annotations

import numba

from . import quick_parts
from .exchange import Exchange, Part
from .numba_compiler import OverloadCompiler
from .quick_inlining import Inlining

__all__ = ["KNOWN", "quick"]

KNOWN = ("0.68.",)
"""Begins of the versions of Numba whose functions these replace."""


def _parts() -> tuple[Part, ...]:
    from llvmlite.binding.executionengine import ExecutionEngine
    from numba.core import base, ir, postproc
    from numba.core.inline_closurecall import InlineWorker
    from numba.core.targetconfig import ConfigStack, TargetConfig
    from numba.core.types.functions import BaseFunction
    from numba.core.typing.npydecl import NumpyRulesArrayOperator
    from numba.core.typing.templates import _IntrinsicTemplate, _OverloadFunctionTemplate

    return (
        quick_parts.operators(NumpyRulesArrayOperator),
        quick_parts.calls(BaseFunction),
        quick_parts.intrinsics(_IntrinsicTemplate),
        quick_parts.overloads(_OverloadFunctionTemplate, ConfigStack, OverloadCompiler, numba.jit),
        quick_parts.options(TargetConfig),
        quick_parts.variables(ir),
        quick_parts.lifetimes(postproc),
        quick_parts.places(base),
        quick_parts.sizes(base),
        *quick_parts.modules(ExecutionEngine),
        *Inlining(ir, InlineWorker).parts,
    )


quick = Exchange(lambda: numba.__version__.startswith(KNOWN), _parts)
"""The context manager in which Numba compiles our kernels."""
