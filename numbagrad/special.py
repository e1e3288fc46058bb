"""PyTorch's ``special``: functions that are seldom used, and other names of common ones.

Those that stand here alone are formulas of ``ops``: see ``bessel.py``, ``bessel_waves.py``,
``error_functions.py``, ``logarithms.py``, ``normal_quantile.py`` and ``zeta.py``. Values, at the
ends of ranges too, are SciPy's but where a docstring says otherwise.

>>> import numbagrad as ng
>>> ng.special.expit(ng.tensor([0.0])).tolist()
[0.5]
"""

from __future__ import annotations

from .ops.argument_names import rename
from .ops.bessel import i0, i0e, i1, i1e
from .ops.bessel_waves import bessel_j0, bessel_j1, bessel_y0, bessel_y1
from .ops.compositions import logit
from .ops.elementwise import erf, expm1, log1p, round
from .ops.elementwise import sigmoid as expit
from .ops.error_functions import erfcx, log_ndtr, ndtr
from .ops.gamma import digamma, polygamma
from .ops.gamma import digamma as psi
from .ops.gamma import lgamma as gammaln
from .ops.gamma import mvlgamma as multigammaln
from .ops.incomplete_gamma import igamma as gammainc
from .ops.incomplete_gamma import igammac as gammaincc
from .ops.logarithms import entr, xlog1py
from .ops.norm import log_softmax, logsumexp, softmax
from .ops.normal_quantile import ndtri
from .ops.out import SPECIAL, taking_out
from .ops.special import erfc, erfinv, exp2, sinc, xlogy
from .ops.zeta import zeta

__all__ = [
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammainc",
    "gammaincc",
    "gammaln",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "log1p",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "multigammaln",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "round",
    "sinc",
    "softmax",
    "xlog1py",
    "xlogy",
    "zeta",
]

rename(globals()[name] for name in __all__)
__getattr__ = taking_out(globals(), SPECIAL)


def __dir__() -> list[str]:
    return [*globals(), *SPECIAL]
