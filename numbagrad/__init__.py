"""numbagrad: a PyTorch-shaped autograd whose every kernel is Python compiled by Numba."""

from __future__ import annotations

from math import e, inf, nan, pi
from typing import TYPE_CHECKING as _TYPE_CHECKING

from .collector import paused as _paused
from .later import asked_for as _asked_for

with _paused():
    from . import autograd, cuda, errors, kernels
    from .autograd import (
        detect_anomaly,
        enable_grad,
        inference_mode,
        is_grad_enabled,
        is_inference_mode_enabled,
        no_grad,
        set_grad_enabled,
    )
    from .devices import Device as device
    from .devices import get_default_device, set_default_device
    from .dtypes import (
        DType as dtype,
    )
    from .dtypes import (
        bfloat16,
        finfo,
        float16,
        float32,
        float64,
        get_default_dtype,
        iinfo,
        int8,
        int16,
        int32,
        int64,
        promote_types,
        set_default_dtype,
        uint8,
    )
    from .dtypes import (
        bool_ as bool,
    )
    from .kernels.machine import kernel
    from .kernels.machine import set_threads as set_num_threads
    from .kernels.machine import threads as get_num_threads
    from .kernels.precision import get_float32_matmul_precision, set_float32_matmul_precision
    from .memory_formats import Layout as layout
    from .memory_formats import MemoryFormat as memory_format
    from .memory_formats import (
        channels_last,
        channels_last_3d,
        contiguous_format,
        preserve_format,
        sparse_coo,
        strided,
    )
    from .ops.activation import relu
    from .ops.base import launch
    from .ops.bessel import i0
    from .ops.bracket_writes import *  # noqa: F403
    from .ops.cells import *  # noqa: F403
    from .ops.comparison import *  # noqa: F403
    from .ops.complex_names import *  # noqa: F403
    from .ops.compositions import *  # noqa: F403
    from .ops.counts import *  # noqa: F403
    from .ops.create import *  # noqa: F403
    from .ops.einsum import *  # noqa: F403
    from .ops.elementwise import *  # noqa: F403
    from .ops.extreme import *  # noqa: F403
    from .ops.factorise import vander
    from .ops.flat_index import *  # noqa: F403
    from .ops.float_parts import *  # noqa: F403
    from .ops.from_data import *  # noqa: F403
    from .ops.gamma import *  # noqa: F403
    from .ops.gather import *  # noqa: F403
    from .ops.householder import *  # noqa: F403
    from .ops.incomplete_gamma import *  # noqa: F403
    from .ops.index import *  # noqa: F403
    from .ops.join import *  # noqa: F403
    from .ops.linalg import *  # noqa: F403
    from .ops.masks import *  # noqa: F403
    from .ops.matrices import *  # noqa: F403
    from .ops.memory_names import *  # noqa: F403
    from .ops.methods import IN_PLACE_FUNCTIONS as _IN_PLACE_FUNCTIONS
    from .ops.methods import install as _install
    from .ops.moments import *  # noqa: F403
    from .ops.norm import *  # noqa: F403
    from .ops.older_linalg import *  # noqa: F403
    from .ops.older_names import *  # noqa: F403
    from .ops.part import *  # noqa: F403
    from .ops.random import *  # noqa: F403
    from .ops.rearranged import *  # noqa: F403
    from .ops.recurrent import *  # noqa: F403
    from .ops.reduce import *  # noqa: F403
    from .ops.resizing import *  # noqa: F403
    from .ops.row_distances import cdist
    from .ops.scan import *  # noqa: F403
    from .ops.scatter_reduce import *  # noqa: F403
    from .ops.search import *  # noqa: F403
    from .ops.shape import *  # noqa: F403
    from .ops.slopes import *  # noqa: F403
    from .ops.sort import *  # noqa: F403
    from .ops.special import *  # noqa: F403
    from .ops.statistics import *  # noqa: F403
    from .ops.tensor_types import *  # noqa: F403
    from .ops.transpose import *  # noqa: F403
    from .ops.typical import *  # noqa: F403
    from .ops.unique import *  # noqa: F403
    from .ops.vector_products import *  # noqa: F403
    from .ops.view import *  # noqa: F403
    from .ops.whole_numbers import *  # noqa: F403
    from .ops.windows import *  # noqa: F403
    from .printing import set_printoptions
    from .random import (
        Generator,
        are_deterministic_algorithms_enabled,
        default_generator,
        get_rng_state,
        initial_seed,
        manual_seed,
        seed,
        set_rng_state,
        use_deterministic_algorithms,
    )
    from .shaped import Size
    from .tensor import Tensor, is_tensor

    _install()
    globals().update({name: getattr(Tensor, name) for name in _IN_PLACE_FUNCTIONS})

    # These need the operations installed.
    from . import amp, linalg
    from .amp import autocast, get_autocast_dtype, is_autocast_enabled
    from .foreach import FUNCTIONS as _FOREACH
    from .ops import out as _out
    from .short_names import NAMES as _SHORT_NAMES

if _TYPE_CHECKING:
    from . import (
        accelerator,
        backends,
        compiler,
        data,
        distributions,
        func,
        io,
        multiprocessing,
        nn,
        optim,
        special,
        testing,
        types,
        utils,
        version,
    )
    from .io import load, save
    from .ops.boxes import histogramdd
    from .ops.low_rank import pca_lowrank, svd_lowrank
    from .ops.segments import segment_reduce

globals().update(_FOREACH)

float = float32
half = float16
double = float64
long = int64
int = int32
short = int16

newaxis = None

__version__ = "0.1.0"


_LATER = {
    "accelerator": "accelerator",
    "backends": "backends",
    "GradScaler": "amp",
    "compile": "compiler",
    "compiler": "compiler",
    "data": "data",
    "distributions": "distributions",
    "func": "func",
    "histogramdd": "ops.boxes",
    "io": "io",
    "load": "io",
    "multiprocessing": "multiprocessing",
    "nn": "nn",
    "optim": "optim",
    "pca_lowrank": "ops.low_rank",
    "profiler": "profiler",
    "save": "io",
    "segment_reduce": "ops.segments",
    "special": "special",
    "svd_lowrank": "ops.low_rank",
    "testing": "testing",
    "types": "types",
    "utils": "utils",
    "version": "version",
    "vmap": "mapped",
    **dict.fromkeys(_SHORT_NAMES, "short_names"),
}
__getattr__ = _out.taking_out(globals(), _out.FUNCTIONS, _asked_for(__name__, _LATER))
__all__ = [*(_name for _name in globals() if not _name.startswith("_")), *_out.FUNCTIONS]


def __dir__() -> list[str]:
    return [*globals(), *_out.FUNCTIONS, *_LATER]
