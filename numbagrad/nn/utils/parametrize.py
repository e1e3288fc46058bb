"""Parameters that are functions of other parameters: ``register_parametrization`` and its kin.

The names and the keys in state dicts are PyTorch's. What is learned stands in a
``ParametrizationList`` under ``module.parametrizations``; the attribute itself is computed by it
whenever it is read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ...autograd.modes import no_grad
from ...kernels import machine
from ...tape import grad_mode
from ...tensor import Tensor
from ..modules.container import ModuleDict, ModuleList
from ..modules.module import Module
from ..parameter import Parameter
from .computed import compute, forget, plain_class

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "type_before_parametrizations",
]


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor in order, and the ``original`` that they start from.

    original: a Parameter or buffer; ``original0``, ``original1`` ... where the ``right_inverse`` of
    the first parametrization gives several. unsafe: let shape and dtype change. Called without
    arguments it computes the tensor.
    """

    original: Tensor

    def __init__(self, modules: Iterable[Module], original: Tensor, unsafe: bool = False):
        super().__init__(modules)
        self.unsafe = unsafe
        with no_grad():
            start = self._inverted(original)
        self.is_tensor = isinstance(start, Tensor)
        if self.is_tensor:
            self._check("right_inverse", start.dtype, original)
            if start is not original:
                original.data = start.detach()
            self._hold("original", original, original)
        else:
            for i, part in enumerate(start):
                self._hold(f"original{i}", part.detach().clone(), original)
        self.ntensors = 1 if self.is_tensor else len(start)
        if not unsafe:
            with no_grad():
                self.check_result(original)

    def _hold(self, name: str, tensor: Tensor, original: Tensor) -> None:
        if not isinstance(original, Parameter):
            self.register_buffer(name, tensor)
            return
        made = isinstance(tensor, Parameter)
        self.register_parameter(
            name,
            tensor if made else Parameter(tensor, original.requires_grad),  # type: ignore[arg-type]
        )

    def _inverted(self, value: Any) -> Any:
        for module in reversed(list(self)):
            if hasattr(module, "right_inverse"):
                value = module.right_inverse(value)
        if not isinstance(value, Tensor) and not (
            isinstance(value, (tuple, list)) and all(isinstance(v, Tensor) for v in value)
        ):
            raise ValueError(
                f"register_parametrization: 'right_inverse' must return a Tensor or a Sequence of "
                f"tensors, got {type(value).__name__}."
            )
        return value

    def _check(self, what: str, dtype: Any, original: Tensor) -> None:
        if not self.unsafe and dtype is not original.dtype:
            raise ValueError(
                f"register_parametrization: {what} may not change the dtype, from "
                f"{original.dtype} to {dtype}. Give unsafe=True to allow it."
            )

    def check_result(self, original: Tensor) -> None:
        """Raise if what is computed differs from ``original`` in shape or dtype."""
        found = self()
        if not isinstance(found, Tensor):
            raise ValueError(
                f"register_parametrization: a parametrization must return a tensor, got "
                f"{type(found).__name__}."
            )
        self._check("a parametrization", found.dtype, original)
        if found.shape != original.shape:
            raise ValueError(
                f"register_parametrization: a parametrization may not change the shape, from "
                f"{list(original.shape)} to {list(found.shape)}. Give unsafe=True to allow it."
            )

    def originals(self) -> list[Tensor]:
        """What the first parametrization is given."""
        if self.is_tensor:
            return [self.original]
        return [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def right_inverse(self, value: Tensor) -> None:
        """Set the originals so that ``value`` is computed, if the parametrizations can."""
        for module in self:
            if not hasattr(module, "right_inverse"):
                raise RuntimeError(
                    f"parametrization {type(module).__name__} does not implement right_inverse, so "
                    f"the tensor cannot be assigned to."
                )
        with no_grad():
            start = self._inverted(value)
            found = [start] if isinstance(start, Tensor) else list(start)
            if len(found) != self.ntensors:
                raise ValueError(
                    f"right_inverse must return {self.ntensors} tensors, as when it was "
                    f"registered, but got {len(found)}."
                )
            for held, new in zip(self.originals(), found, strict=True):
                if held.shape == new.shape and held.dtype is new.dtype:
                    held.copy_(new)
                else:
                    held.data = new.detach().clone()

    def forward(self) -> Tensor:
        """The tensor."""
        first, *rest = self
        out = first(*self.originals())
        for module in rest:
            out = module(out)
        return out


class _Cache(threading.local):
    """What has been computed within ``cached``; recorder: of the step that it was entered in."""

    depth = 0
    recorder: Any = None

    def __init__(self) -> None:
        self.tensors: dict[tuple[int, str, bool], tuple[Module, Tensor]] = {}


_cache = _Cache()


@contextmanager
def cached() -> Iterator[None]:
    """Within it each parametrized tensor is computed once, at its first reading, in this thread.

    For models that read a parametrized weight many times in a forward, as a recurrent cell does.
    A change of the originals shows after it, not within; assigning to the tensor does show. With
    gradients and without they are computed apart; a step that is compiled keeps to what is computed
    in it.

    >>> layer = ng.nn.utils.parametrizations.weight_norm(ng.nn.Linear(3, 2))
    >>> with cached():
    ...     layer.weight is layer.weight
    True
    """
    if not _cache.depth:
        _cache.recorder = machine.recorder.current
    _cache.depth += 1
    try:
        yield
    finally:
        _cache.depth -= 1
        if not _cache.depth:
            _cache.recorder = None
            _cache.tensors.clear()


def _reader(name: str) -> Callable[[Any], Tensor]:
    def read(module: Any) -> Tensor:
        if not _cache.depth or machine.recorder.current is not _cache.recorder:
            return module.parametrizations[name]()
        key = id(module), name, grad_mode.enabled
        found = _cache.tensors.get(key)
        if found is None:  # the module is held, for its id not to become that of another
            found = _cache.tensors[key] = module, module.parametrizations[name]()
        return found[1]

    return read


def _writer(name: str) -> Callable[[Any, Tensor], None]:
    def write(module: Any, value: Tensor) -> None:
        for enabled in (False, True):
            _cache.tensors.pop((id(module), name, enabled), None)
        module.parametrizations[name].right_inverse(value)

    return write


def register_parametrization(
    module: Any, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Any:
    """Let ``module.tensor_name``, a parameter or buffer, be ``parametrization(original)``.

    parametrization: a Module; several are applied in the order of their registration. The
    ``right_inverse`` of the first, if it has one, finds the original of what the tensor was;
    without it the tensor itself becomes the original. Where all have one the tensor can be assigned
    to. Optimisers go on with the same Parameter, unless right_inverse gives several. unsafe: do
    not check that shape and dtype stay. Returns the module.
    Raises ValueError if there is no such tensor.

    >>> class Positive(Module):
    ...     def forward(self, x):
    ...         return x.exp()
    >>> layer = register_parametrization(ng.nn.Linear(2, 2), "weight", Positive())
    >>> bool((layer.weight > 0).all()), [n for n, _ in layer.named_parameters()]
    (True, ['bias', 'parametrizations.weight.original'])
    """
    parametrization.train(module.training)
    _cache.tensors.clear()
    if is_parametrized(module, tensor_name):
        held = module.parametrizations[tensor_name]
        before = getattr(module, tensor_name).detach()
        held.append(parametrization)
        held.unsafe = held.unsafe or unsafe
        if not unsafe:
            with no_grad():
                try:
                    held.check_result(before)
                except ValueError:
                    held.pop()
                    raise
        machine.changed()
        return module
    original = module._parameters.get(tensor_name, module._buffers.get(tensor_name))
    if original is None:
        raise ValueError(
            f"register_parametrization: Module '{module}' does not have a parameter, a buffer, or "
            f"a parametrized element with name '{tensor_name}'."
        )
    made = ParametrizationList([parametrization], original, unsafe)
    made.train(module.training)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        module.parametrizations = ModuleDict()
    module.parametrizations[tensor_name] = made
    compute(module, tensor_name, _reader(tensor_name), _writer(tensor_name), "Parametrized")
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether ``module`` has a parametrization, or one of that name."""
    held = getattr(module, "parametrizations", None)
    if not isinstance(held, ModuleDict):
        return False
    return len(held) > 0 if tensor_name is None else tensor_name in held


def remove_parametrizations(module: Any, tensor_name: str, leave_parametrized: bool = True) -> Any:
    """Let ``module.tensor_name`` be a parameter or buffer again; returns the module.

    leave_parametrized: its value is what was computed, else the original. A Parameter that was the
    only original is kept as an object.
    Raises ValueError if the tensor is not parametrized, or if there are several originals and
    leave_parametrized is False.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(
            f"remove_parametrizations: Module {module} does not have a parametrization on "
            f"{tensor_name}."
        )
    _cache.tensors.clear()
    held = module.parametrizations[tensor_name]
    if not held.is_tensor and not leave_parametrized:
        raise ValueError(
            "remove_parametrizations: Cannot leave unparametrized (leave_parametrized=False) a "
            "tensor that is parametrized in terms of a sequence of tensors."
        )
    first = held.originals()[0]
    with no_grad():
        value = getattr(module, tensor_name).detach().clone()
    if held.is_tensor:
        result = first
        if leave_parametrized:
            result.data = value
    else:
        result = Parameter(value, first.requires_grad) if isinstance(first, Parameter) else value
    forget(module, tensor_name)
    del module.parametrizations[tensor_name]
    if not len(module.parametrizations):
        del module.parametrizations
        if type(module).__name__.startswith("Parametrized"):
            type(module).__name__ = plain_class(module).__name__
    if isinstance(result, Parameter):
        module.register_parameter(tensor_name, result)
    else:
        module.register_buffer(tensor_name, result)
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class of ``module`` without its parametrizations."""
    return plain_class(module)
