"""Layers that learn the size of their input in their first call, and then are ordinary ones."""

from __future__ import annotations

from typing import Any

from ...errors import RecordingError, ShapeError
from ...kernels import machine
from ...tensor import Tensor
from ..parameter import Uninitialized, UninitializedBuffer, UninitializedParameter
from .batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .instancenorm import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from .linear import Linear
from .module import Module

__all__ = [
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
    "LazyLinear",
]


class _Lazy(Module):
    """What all share. The layer is first made for the smallest input, then its tensors are
    replaced by uninitialised ones.

    cls_to_become: the ordinary class. size_name: the attribute that the input decides.
    """

    cls_to_become: type
    size_name: str

    def _delay(self) -> None:
        setattr(self, self.size_name, 0)
        for name, held in list(self._parameters.items()):
            if held is not None:
                made = UninitializedParameter(held.requires_grad, held.device, held.dtype)
                self._put("_parameters", name, made)
        for name, buffer in list(self._buffers.items()):
            if buffer is not None and buffer.dim():  # a count has no size to learn
                self._put("_buffers", name, UninitializedBuffer(buffer.device, buffer.dtype))

    def reset_parameters(self) -> None:
        """Nothing: there is nothing yet."""

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer has no shape yet."""
        held = [*self._parameters.values(), *self._buffers.values()]
        return any(isinstance(tensor, Uninitialized) for tensor in held)

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Make the parameters for inputs like this one; the module is of the ordinary class then.

        args, kwargs: what else the call has, of no use here. A whole state that was loaded before
        stays.
        """
        name = type(self).__name__
        if machine.is_recording():
            raise RecordingError(
                f"{name}: it makes its parameters in its first call, which a compiled function "
                f"cannot do. Call the module once before compiling."
            )
        size = self._size_of(input)
        fresh = self.has_uninitialized_params()
        for key, shape in self._shapes(size).items():
            held = getattr(self, key)
            if isinstance(held, Uninitialized):
                held.materialize(shape)
        setattr(self, self.size_name, size)
        self.__class__ = self.cls_to_become
        if fresh:
            self.reset_parameters()

    def _size_of(self, input: Tensor) -> int:
        """The size of ``input`` that is learned."""
        raise NotImplementedError

    def _shapes(self, size: int) -> dict[str, tuple[int, ...]]:
        """The shape of each tensor that had none."""
        raise NotImplementedError

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.initialize_parameters(*args, **kwargs)
        return self(*args, **kwargs)  # by the class that it has now


class LazyLinear(_Lazy, Linear):
    """Linear whose ``in_features`` is the last size of its first input.

    >>> LazyLinear(3)
    LazyLinear(in_features=0, out_features=3, bias=True)
    """

    cls_to_become = Linear
    size_name = "in_features"

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None):
        super().__init__(1, out_features, bias, device, dtype)
        self._delay()

    def _size_of(self, input: Tensor) -> int:
        return input.shape[-1]

    def _shapes(self, size: int) -> dict[str, tuple[int, ...]]:
        return {"weight": (self.out_features, size), "bias": (self.out_features,)}


class _LazyChannels(_Lazy):
    """A convolution or its transpose whose ``in_channels`` are those of its first input."""

    size_name = "in_channels"
    rank: int
    transposed: bool
    out_channels: int
    groups: int
    kernel_size: tuple[int, ...]

    def _size_of(self, input: Tensor) -> int:
        shape, rank = list(input.shape), self.rank
        if len(shape) not in (rank + 1, rank + 2):
            raise ShapeError(
                f"{type(self).__name__}: Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) "
                f"input, but got input of size {shape}."
            )
        channels = shape[-rank - 1]
        if channels % self.groups:
            raise ShapeError(
                f"{type(self).__name__}: in_channels must be divisible by groups, got {channels} "
                f"and {self.groups}."
            )
        return channels

    def _shapes(self, size: int) -> dict[str, tuple[int, ...]]:
        outer, inner = self.out_channels, size
        if self.transposed:
            outer, inner = inner, outer
        weight = (outer, inner // self.groups, *self.kernel_size)
        return {"weight": weight, "bias": (self.out_channels,)}


class _LazyConv(_LazyChannels):
    """A convolution."""

    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ):
        options: Any = (stride, padding, dilation, groups, bias, padding_mode, device, dtype)
        super().__init__(groups, out_channels, kernel_size, *options)  # type: ignore[call-arg]
        self._delay()


class LazyConv1d(_LazyConv, Conv1d):
    """Conv1d whose ``in_channels`` are those of its first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """Conv2d whose ``in_channels`` are those of its first input.

    >>> LazyConv2d(8, 3).weight
    <UninitializedParameter>
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """Conv3d whose ``in_channels`` are those of its first input."""

    cls_to_become = Conv3d


class _LazyTransposed(_LazyChannels):
    """A transposed convolution."""

    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ):
        sizes: Any = groups, out_channels, kernel_size, stride, padding, output_padding
        options: Any = groups, bias, dilation, padding_mode, device, dtype
        super().__init__(*sizes, *options)
        self._delay()


class LazyConvTranspose1d(_LazyTransposed, ConvTranspose1d):
    """ConvTranspose1d whose ``in_channels`` are those of its first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyTransposed, ConvTranspose2d):
    """ConvTranspose2d whose ``in_channels`` are those of its first input.

    >>> LazyConvTranspose2d(8, 3)
    LazyConvTranspose2d(0, 8, kernel_size=(3, 3), stride=(1, 1))
    """

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyTransposed, ConvTranspose3d):
    """ConvTranspose3d whose ``in_channels`` are those of its first input."""

    cls_to_become = ConvTranspose3d


class _LazyNorm(_Lazy):
    """A normalisation whose ``num_features`` are the channels of its first input."""

    size_name = "num_features"
    ranks: Any
    _check_input_dim: Any

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ):
        options: Any = (eps, momentum, affine, track_running_stats, device, dtype)
        super().__init__(1, *options, bias=bias)  # type: ignore[call-arg]
        self._delay()

    def _size_of(self, input: Tensor) -> int:
        self._check_input_dim(input)
        return input.shape[self._channels(input)]

    def _channels(self, input: Tensor) -> int:
        return 1

    def _shapes(self, size: int) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (size,))


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """BatchNorm1d whose ``num_features`` are the channels of its first input."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """BatchNorm2d whose ``num_features`` are the channels of its first input."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """BatchNorm3d whose ``num_features`` are the channels of its first input."""

    cls_to_become = BatchNorm3d


class _LazyInstanceNorm(_LazyNorm):
    """Instance normalisation, whose first input may be one sample."""

    def _channels(self, input: Tensor) -> int:
        return int(input.dim() == self.ranks[1])


class LazyInstanceNorm1d(_LazyInstanceNorm, InstanceNorm1d):
    """InstanceNorm1d whose ``num_features`` are the channels of its first input."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyInstanceNorm, InstanceNorm2d):
    """InstanceNorm2d whose ``num_features`` are the channels of its first input.

    Other than InstanceNorm2d it has parameters and running statistics unless told otherwise.

    >>> LazyInstanceNorm2d(affine=False).running_mean
    <UninitializedBuffer>
    """

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyInstanceNorm, InstanceNorm3d):
    """InstanceNorm3d whose ``num_features`` are the channels of its first input."""

    cls_to_become = InstanceNorm3d
