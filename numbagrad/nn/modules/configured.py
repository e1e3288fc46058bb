"""``Configured``: modules that are a function and a table of its options; losses among them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

from ...ops.reduction import older
from ...tensor import Tensor
from .module import Module

REQUIRED = inspect.Parameter.empty


class Configured(Module):
    """A module whose constructor takes ``options``, which become attributes of those names.

    options: name and default of each, in PyTorch's order. Options named in ``tensor_options``
    become buffers. renamed: older names of some, which are taken after all others, with a warning.
    """

    function: Callable[..., Tensor]
    options: dict[str, Any] = {}
    tensor_options: tuple[str, ...] = ()
    renamed: dict[str, str] = {}
    __signature__: inspect.Signature

    def __init_subclass__(cls) -> None:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        given = {**cls.options, **dict.fromkeys(cls.renamed)}
        cls.__signature__ = inspect.Signature(
            [inspect.Parameter(name, kind, default=d) for name, d in given.items()]
        )

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()
        try:
            bound = self.__signature__.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}: {error}") from None
        bound.apply_defaults()
        for old, new in self.renamed.items():
            value = bound.arguments.pop(old)
            if value is not None:
                warnings.warn(
                    f"{type(self).__name__}: {old} is deprecated: it is called {new}.",
                    FutureWarning,
                    stacklevel=2,
                )
                bound.arguments[new] = value
        for name, value in bound.arguments.items():
            if name in self.tensor_options:
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)


FLAGS: dict[str, Any] = {"size_average": None, "reduce": None}
"""What said how losses become one before reduction did."""


class Reducing(Configured):
    """Configured with a reduction, or with a warning the flags that say it among the options."""

    reduction: str

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        size_average, reduce = [self.__dict__.pop(name, None) for name in FLAGS]
        if size_average is not None or reduce is not None:
            self.reduction = older(size_average, reduce)

    def chosen(self) -> dict[str, Any]:
        """What the function is given beside tensors."""
        return {name: getattr(self, name) for name in self.options if name not in FLAGS}


class _Loss(Reducing):
    """What all losses are; one of the user's own gives it its reduction.

    reduction: "mean", "sum" or "none". weight and pos_weight, where a loss has them, are buffers.
    """

    options = {**FLAGS, "reduction": "mean"}
    tensor_options = ("weight", "pos_weight")
