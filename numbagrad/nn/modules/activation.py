"""Activations as modules: each is the functional twin and its options, one row per class."""

from __future__ import annotations

from typing import Any

from ...ops.inplace import in_place
from ...tensor import Tensor
from .. import functional as F
from .. import init
from .configured import REQUIRED, Configured
from .made import new_parameter
from .module import Module

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]


class Activation(Configured):
    """A function of one tensor and of options, in the order of its arguments.

    ``inplace``, where PyTorch has it, is not passed on: the result is written into the input.
    """

    inplace = False
    names: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.names = tuple(name for name in cls.options if name != "inplace")

    def forward(self, input: Tensor) -> Tensor:
        """The function of ``input``."""
        function = type(self).function
        if self.inplace:
            function = in_place(type(self).__name__, function)
        if not self.names:
            return function(input)
        return function(input, *[getattr(self, name) for name in self.names])

    def extra_repr(self) -> str:
        shown = {name: getattr(self, name) for name in self.options}
        if not shown.get("inplace", True):
            del shown["inplace"]
        return ", ".join(f"{name}={value}" for name, value in shown.items())


class ReLU(Activation):
    """max(x, 0)."""

    function = staticmethod(F.relu)
    options = {"inplace": False}


class ReLU6(Activation):
    """x limited to [0, 6]."""

    function = staticmethod(F.relu6)
    options = {"inplace": False}


class Tanh(Activation):
    """Hyperbolic tangent."""

    function = staticmethod(F.tanh)


class Sigmoid(Activation):
    """1 / (1 + exp(-x))."""

    function = staticmethod(F.sigmoid)


class SiLU(Activation):
    """x * sigmoid(x)."""

    function = staticmethod(F.silu)
    options = {"inplace": False}


class Mish(Activation):
    """x * tanh(softplus(x))."""

    function = staticmethod(F.mish)
    options = {"inplace": False}


class GELU(Activation):
    """x times the normal distribution function of x; approximate="tanh" is the faster form."""

    function = staticmethod(F.gelu)
    options = {"approximate": "none"}
    approximate: str

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class LeakyReLU(Activation):
    """x where positive, else negative_slope * x."""

    function = staticmethod(F.leaky_relu)
    options = {"negative_slope": 0.01, "inplace": False}


class ELU(Activation):
    """x where positive, else alpha * (exp(x) - 1)."""

    function = staticmethod(F.elu)
    options = {"alpha": 1.0, "inplace": False}


class SELU(Activation):
    """Scaled elu that keeps mean and variance."""

    function = staticmethod(F.selu)
    options = {"inplace": False}


class CELU(Activation):
    """x where positive, else alpha * (exp(x / alpha) - 1)."""

    function = staticmethod(F.celu)
    options = {"alpha": 1.0, "inplace": False}


class Softplus(Activation):
    """log(1 + exp(beta * x)) / beta, linear where beta * x is above threshold."""

    function = staticmethod(F.softplus)
    options = {"beta": 1.0, "threshold": 20.0}


class Softsign(Activation):
    """x / (1 + abs(x))."""

    function = staticmethod(F.softsign)


class Tanhshrink(Activation):
    """x - tanh(x)."""

    function = staticmethod(F.tanhshrink)


class Softshrink(Activation):
    """x moved by lambd towards 0, and 0 within lambd of it."""

    function = staticmethod(F.softshrink)
    options = {"lambd": 0.5}


class Hardshrink(Activation):
    """x outside of [-lambd, lambd], else 0."""

    function = staticmethod(F.hardshrink)
    options = {"lambd": 0.5}


class Hardtanh(Activation):
    """x limited to [min_val, max_val]."""

    function = staticmethod(F.hardtanh)
    options = {"min_val": -1.0, "max_val": 1.0, "inplace": False}
    renamed = {"min_value": "min_val", "max_value": "max_val"}


class Hardsigmoid(Activation):
    """x / 6 + 1 / 2, limited to [0, 1]."""

    function = staticmethod(F.hardsigmoid)
    options = {"inplace": False}


class Hardswish(Activation):
    """x * hardsigmoid(x)."""

    function = staticmethod(F.hardswish)
    options = {"inplace": False}


class Threshold(Activation):
    """x where above threshold, else value."""

    function = staticmethod(F.threshold)
    options = {"threshold": REQUIRED, "value": REQUIRED, "inplace": False}


class LogSigmoid(Activation):
    """log(sigmoid(x)), stable for every x."""

    function = staticmethod(F.logsigmoid)


class GLU(Activation):
    """The first half along dim times the sigmoid of the second."""

    function = staticmethod(F.glu)
    options = {"dim": -1}


class Softmax(Activation):
    """Exponentials scaled to sum to one along dim."""

    function = staticmethod(F.softmax)
    options = {"dim": None}


class Softmax2d(Module):
    """Softmax over the channels at each place of images, (n, c, h, w) or (c, h, w)."""

    def forward(self, input: Tensor) -> Tensor:
        """The function of ``input``."""
        if input.dim() not in (3, 4):
            raise ValueError(
                f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D of size "
                f"{list(input.shape)}."
            )
        return F.softmax(input, -3)


class LogSoftmax(Activation):
    """The logarithm of softmax along dim."""

    function = staticmethod(F.log_softmax)
    options = {"dim": None}


class Softmin(Activation):
    """Softmax of -x along dim."""

    function = staticmethod(F.softmin)
    options = {"dim": None}


class PReLU(Module):
    """x where positive, else weight * x, with one learnt slope or one per channel (dim 1)."""

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ):
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = new_parameter(num_parameters, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set all slopes to ``init``."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """The rectified input."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class RReLU(Module):
    """x where positive, else times a slope: random in [lower, upper] in training, else their
    mean.
    """

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False):
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """The rectified input."""
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        shown = f"lower={self.lower}, upper={self.upper}"
        return shown + ", inplace=True" if self.inplace else shown
