"""Numbers times logarithms, which are 0 where the numbers are: ``entr``, ``xlog1py``."""

from __future__ import annotations

import math

from .from_formula import Elementwise

__all__ = ["entr", "xlog1py"]


class Entr(Elementwise):
    """``-x * log(x)``: the entropy that a chance adds; 0 at 0, -inf below.

    Gradient: ``-g * (1 + log(x))``.

    >>> ng.special.entr(tensor([0.0, 1.0, -1.0])).tolist()
    [0.0, 0.0, -inf]
    """

    result = "float"

    def formula(x):
        return -x * math.log(x) if x > 0 else (0 if x == 0 else (-math.inf if x < 0 else x))

    def grad_x(g, x):
        return -g * (1 + math.log(x))


class Xlog1py(Elementwise):
    """``x * log(1 + y)``, and 0 where x is 0 unless y is NaN.

    x, y: tensors that broadcast, or one of them a number. Gradients: ``g * log(1 + y)``, and
    ``g * x / (1 + y)``.

    >>> ng.special.xlog1py(tensor([0.0, 2.0]), tensor([-1.0, 0.0])).tolist()
    [0.0, 0.0]
    """

    result = "float"

    def formula(x, y):
        return 0 if x == 0 and y == y else x * math.log1p(y)

    def grad_x(g, x, y):
        return 0 if x == 0 and y <= -1 else g * math.log1p(y)

    def grad_y(g, x, y):
        return 0 if x == 0 and y == -1 else g * x / (1 + y)


entr = Entr.function
xlog1py = Xlog1py.function
