"""``Distribution``, the base of all: shapes, checks, and what follows from the rest.

A distribution gives ``_log_prob`` and, where there are any, ``_cdf`` and ``rsample``; the public
methods check their values first. Parameters are attributes of the names in ``arg_constraints``;
those that follow from others are ``computed``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real as Number
from typing import Any, ClassVar

from .. import devices, dtypes
from ..autograd import no_grad
from ..errors import ShapeError
from ..kernels import machine
from ..ops.base import beside_others, broadcast_shape, full
from ..ops.elementwise import exp, sqrt
from ..ops.reduce import all as all_
from ..ops.view import expand
from ..shaped import Size
from ..tensor import Tensor
from .constraints import Constraint, dependent

__all__ = ["Distribution", "broadcast_all", "computed", "infinite_like"]


class computed:
    """A parameter computed from others each time, unless the distribution was given it.

    It is not kept, since a compiled step's tensors have no values for later calls.
    """

    def __init__(self, function: Callable[[Any], Any]):
        self.function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self if instance is None else self.function(instance)


def broadcast_all(*values: Any) -> list[Tensor]:
    """``values`` as tensors of one shape and device; numbers take the dtype of the tensors.

    Raises ValueError for what is neither a tensor nor a number.
    """
    for value in values:
        if not isinstance(value, (Tensor, Number)):
            raise ValueError(
                f"Input arguments must all be tensors or numbers, got {type(value).__name__}. "
                f"Convert it with ng.tensor(...)."
            )
    device = devices.cpu
    if any([isinstance(v, Tensor) for v in values]):
        values, device = beside_others("distributions", values)
    tensors = [v for v in values if isinstance(v, Tensor)]
    floating = [t._dtype for t in tensors if t.is_floating_point()]
    dtype = floating[0] if floating else dtypes.get_default_dtype()
    all_tensors = [
        v if isinstance(v, Tensor) else full((), float(v), dtype, device) for v in values
    ]
    shape = broadcast_shape("distributions", *[t._array.shape for t in all_tensors])
    return [t if t._array.shape == shape else expand(t, shape) for t in all_tensors]


def infinite_like(x: Tensor) -> Tensor:
    """Infinity in the shape of ``x``."""
    return full(x._array.shape, float("inf"), x._dtype, x._device)


class Distribution:
    """A probability distribution, or a batch of them; subclass it for your own.

    batch_shape: the shape of the batch, from the parameters; event_shape: that of one draw.
    ``sample(s).shape`` is ``s + batch_shape + event_shape``. validate_args: whether parameters and
    values are checked, which raises ValueError; in a compiled step they never are.
    """

    has_rsample: Any = False
    has_enumerate_support: Any = False
    arg_constraints: Any = {}
    _validate_args: ClassVar[bool] = __debug__

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions that are not told otherwise check their parameters and values."""
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args: expected a bool, got {value!r}.")
        Distribution._validate_args = value

    def __init__(
        self,
        batch_shape: Any = (),
        event_shape: Any = (),
        validate_args: bool | None = None,
    ):
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self.__dict__["_validate_args"] = validate_args
        if self._checks():
            self._check_parameters()

    def _checks(self) -> bool:
        return self._validate_args and not machine.is_recording()

    def _check_parameters(self) -> None:
        constraints: Mapping[str, Constraint] = self.arg_constraints
        for name, constraint in constraints.items():
            value = self.__dict__.get(name)
            if constraint is dependent or not isinstance(value, Tensor):
                continue
            if not all_(constraint.check(value.detach())):
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape "
                    f"{tuple(value.shape)}) of distribution {self!r} to satisfy the constraint "
                    f"{constraint!r}, but found invalid values:\n{value}"
                )

    def _checked(self, value: Any) -> Tensor:
        """``value`` if it may be a value of this distribution."""
        if not isinstance(value, Tensor):
            raise ValueError(
                f"The value argument of a {type(self).__name__} must be a Tensor, got "
                f"{type(value).__name__}. Convert it with ng.tensor(...)."
            )
        if not self._validate_args:
            return value
        shape, event = value._array.shape, tuple(self._event_shape)
        first = len(shape) - len(event)
        if first < 0 or shape[first:] != event:
            raise ShapeError(
                f"The right-most size of value must match event_shape: {list(shape)} vs "
                f"{list(event)} of {self!r}."
            )
        broadcast_shape(f"{type(self).__name__}: value", shape[:first], tuple(self._batch_shape))
        if machine.is_recording():
            return value
        try:
            support = self.support
        except NotImplementedError:
            return value
        if not all_(support.check(value.detach())):
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(shape)}) to be "
                f"within the support ({support!r}) of the distribution {self!r}, but found "
                f"invalid values:\n{value}"
            )
        return value

    def _missing(self, name: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} has no {name}.")

    # -- shapes ------------------------------------------------------------------------------------

    @property
    def batch_shape(self) -> Size:
        """The shape of the batch of distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one draw."""
        return self._event_shape

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        """The shape of ``sample(sample_shape)``."""
        return Size((*self._draws(sample_shape), *self._batch_shape, *self._event_shape))

    def _draws(self, sample_shape: Any) -> tuple[int, ...]:
        """``sample_shape``, if it is a shape."""
        try:
            return tuple(sample_shape)
        except TypeError:
            raise TypeError(
                f"{type(self).__name__}: sample_shape must be a tuple of ints, got "
                f"{sample_shape!r}. Write ({sample_shape!r},) for one dimension of draws."
            ) from None

    @property
    def _like(self) -> Tensor:
        """A parameter, whose dtype and device draws have."""
        return next(v for n in self.arg_constraints if (v := self.__dict__.get(n)) is not None)

    def _expanded(self, x: Tensor, sample_shape: Any) -> Tensor:
        """A parameter of events without dimensions, in the shape of ``sample(sample_shape)``."""
        return expand(x, (*self._draws(sample_shape), *self._batch_shape))

    def expand(self, batch_shape: Any) -> Any:
        """The same distribution with its parameters expanded to ``batch_shape``, as views."""
        out = object.__new__(type(self))
        out.__dict__.update(self.__dict__)
        for name, constraint in self.arg_constraints.items():
            value = self.__dict__.get(name)
            if isinstance(value, Tensor):
                event = value.shape[value.dim() - constraint.event_dim :]
                out.__dict__[name] = expand(value, (*batch_shape, *event))
        out._batch_shape = Size(batch_shape)
        return out

    # -- what a distribution may give --------------------------------------------------------------

    @property
    def support(self) -> Any:
        """The constraint that values satisfy."""
        raise self._missing("support")

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise self._missing("mean")

    @property
    def mode(self) -> Tensor:
        """The likeliest value."""
        raise self._missing("mode")

    @property
    def variance(self) -> Tensor:
        """The variance of each element."""
        raise self._missing("variance")

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return sqrt(self.variance)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """A draw through which gradients reach the parameters."""
        raise self._missing("rsample: its draws have no gradient; use sample and log_prob")

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """A draw, without gradient."""
        with no_grad():
            return self.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or of the probability, at ``value``.

        Raises ValueError if ``value`` is no tensor, has not the shape of events, or is outside of
        the support.
        """
        return self._log_prob(self._checked(value))

    def _log_prob(self, value: Tensor) -> Tensor:
        raise self._missing("log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """The chance of a draw of at most ``value``."""
        return self._cdf(self._checked(value))

    def _cdf(self, value: Tensor) -> Tensor:
        raise self._missing("cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The number that a draw does not exceed with the chance ``value``."""
        raise self._missing("icdf")

    def entropy(self) -> Tensor:
        """The mean of ``-log_prob``."""
        raise self._missing("entropy")

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return exp(self.entropy())

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values, along a new first dimension. expand: over the batch, not of size 1 there."""
        raise self._missing("enumerate_support: its values are not a finite set")

    def __repr__(self) -> str:
        shown = []
        for name in self.arg_constraints:
            value = self.__dict__.get(name)
            if isinstance(value, Tensor):
                one = value.numel() == 1 and not machine.is_recording()
                shown.append(f"{name}: {value.item() if one else value.shape}")
        return f"{type(self).__name__}({', '.join(shown)})"
