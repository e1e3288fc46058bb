"""How a convolution's kernel moves over its input, and which of our kernels make it.

Start at ``Form``.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from numba import types

from ..dtypes import DType, bfloat16, float32
from ..kernels import machine
from ..kernels.amx import load_amx
from ..kernels.apart import begin
from ..kernels.cpu import banded, depthwise, unit_banded
from ..kernels.cpu import conv as products
from ..kernels.half_type import memory_type
from ..kernels.half_vectors import PAIRS
from ..kernels.vectors import VECTOR_BYTES
from ..tensor import Tensor

__all__: list[str] = []  # of conv.py, which nn.functional exports

Sizes = tuple[int, ...]

SEVERAL = 4
"""Most kernels of a channel of its own that slide over it: with more, a product has rows enough."""

PRODUCTS = products.conv, products.conv_input_grad, products.conv_weight_grad
BANDED = banded.banded, banded.banded_input_grad, banded.banded_weight_grad
UNIT = unit_banded.unit_banded, unit_banded.unit_banded, unit_banded.unit_banded_weight_grad
OF_INPUT = 2
"""What is added to whether there is a bias, for the second of ``UNIT``."""

DEPTHWISE = (
    depthwise.depthwise,
    depthwise.depthwise_input_grad,
    depthwise.depthwise_weight_grad,
)

MANY, TALL, BROAD = 8, 24, 16
"""Channels of the input from which bands pay; for the gradient of the weight their number times
taps of a line too, and channels of the output. With fewer, as in a first layer, both ways take as
long, and what unfolds compiles in half the time."""

PLACES, PHASED = 64, 512
"""Places of the output from which it pays to order the weight for the gradient of the input, and
to part the taps of a stride; and of a single image for the gradient of the weight."""

SUMMED, WEIGHTS = 1024, 1 << 20
"""Places of several images from which bands pay for the gradient of the weight, and numbers of it
up to which they do: eight shares of the images have sums of their own."""

SPLIT, PAIRED, NARROW = 192, 1024, 12
"""Places of the output from which it pays to take the weight apart for the matrix unit, of float32
and of bfloat16, and channels of the result."""

AROUND = 1.2
"""Places of the input for each of the output up to which both may be summed over alike."""


@dataclass(frozen=True)
class Form:
    """How a kernel moves over an input: one number for each dimension of space.

    large, small: sizes of the input and of the output, as ``Convolution`` sees them. padding: the
    zeros in front; those behind follow from the sizes. kernel: (co, ci / groups, ...).
    """

    stride: Sizes
    padding: Sizes
    dilation: Sizes
    groups: int
    large: Sizes
    small: Sizes
    kernel: Sizes

    def numbers(self) -> Sizes:
        """groups, strides, paddings and dilations, as the kernels take them."""
        missing = 3 - len(self.stride)
        ones = (1,) * missing
        return (
            *(self.groups, *ones, *self.stride),
            *(*(0,) * missing, *self.padding, *ones, *self.dilation),
        )

    def is_matrix(self) -> bool:
        """Whether the kernel covers the whole input, so that the weight is a matrix."""
        whole = self.large == self.kernel[2:] and not any(self.padding)
        return whole and self.groups == 1 and math.prod(self.small) == 1

    def kernel_of(self, which: int, x: Tensor) -> machine.Kernel:
        """What makes the convolution (0), or its gradient of the input (1) or of the weight (2).

        Measured on a Zen 5, on one thread, as a table of what small networks have.
        """
        outputs, inputs, *taps = self.kernel
        outputs //= max(1, self.groups)
        if not VECTOR_BYTES:
            return PRODUCTS[which]
        if self.groups > 1 and inputs == 1 and outputs <= SEVERAL:
            return DEPTHWISE[which]
        if math.prod(taps) > 2:
            images = x._array.shape[0]
            if self.unit_pays(which, images, outputs, inputs, x._dtype):
                return UNIT[which]
            if self.bands_pay(which, images, outputs, inputs):
                return BANDED[which]
        return PRODUCTS[which]

    def unit_pays(self, which: int, images: int, outputs: int, inputs: int, dtype: DType) -> bool:
        """Whether there is a matrix unit that beats vectors, with what its tiles lack of channels.

        Measured on a Granite Rapids.
        """
        if not (dtype is float32 or (dtype is bfloat16 and PAIRS)) or not load_amx():
            return False
        places = images * math.prod(self.small)
        if which == 2:
            tiles = _upto(outputs, 16) * _upto(inputs, 16)
            return places >= PLACES and tiles <= 1.6 * outputs * inputs
        rows, summed = (inputs, outputs) if which else (outputs, inputs)
        tiles = _upto(rows, 16) * _upto(summed, 32)
        enough = (
            places >= (SPLIT if dtype is float32 else PAIRED)
            and rows >= NARROW
            and tiles <= 2 * rows * summed
        )
        return enough and (which == 0 or self.is_alike())

    def bands_pay(self, which: int, images: int, outputs: int, inputs: int) -> bool:
        """Whether bands beat unfolded columns, for a group of so many channels."""
        places, phases = math.prod(self.small), math.prod(self.stride)
        if inputs < MANY or which == 0:
            return inputs >= MANY
        if which == 2:
            tall = inputs * self.kernel[-1] >= TALL and outputs >= BROAD
            enough = places >= PHASED if images == 1 else images * places >= SUMMED
            return tall and enough and math.prod(self.kernel) <= WEIGHTS
        enough = images * places >= (PLACES if phases == 1 else PHASED)
        return self.is_alike() and enough and 2 * inputs >= outputs

    def is_alike(self) -> bool:
        """Whether there are as many places in the input as strides make of those of the output."""
        places, phases = math.prod(self.small), math.prod(self.stride)
        return math.prod(self.large) <= AROUND * phases * places and max(self.stride) <= 2


@functools.cache
def expect_gradient(dtype: DType) -> None:
    """A convolution on the unit is about to be compiled, and will want the gradient of its weight:
    let a helper compile that meanwhile."""
    array = types.Array(memory_type(dtype.numpy), 5, "C")
    begin([(UNIT[2].parallel, (array, array, array, *[types.intp] * 10))])


def _upto(count: int, size: int) -> int:
    """The multiple of ``size`` that holds ``count``."""
    return -(-count // size) * size
