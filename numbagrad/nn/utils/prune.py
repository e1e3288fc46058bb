"""Pruning: weights times a mask of zeros and ones, ``name_orig`` and ``name_mask`` in the module.

As in PyTorch, but that ``module.name`` is the product whenever it is read, not from one call of the
module to the next, and that the method of each tensor stands in ``module._pruning``, not among
hooks. Start reading at ``BasePruningMethod.apply``. Which numbers are set to zero is decided by
subclasses with ``compute_mask``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from numbers import Integral, Real
from typing import Any

from ...autograd.modes import no_grad
from ...ops.base import ones_like, zeros_like
from ...ops.random import rand
from ...tensor import Tensor
from ..modules.module import Module
from ..parameter import Parameter
from .computed import compute, forget
from .convert_parameters import parameters_to_vector

__all__ = [
    "BasePruningMethod",
    "CustomFromMask",
    "Identity",
    "L1Unstructured",
    "LnStructured",
    "PruningContainer",
    "RandomStructured",
    "RandomUnstructured",
    "custom_from_mask",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "random_structured",
    "random_unstructured",
    "remove",
]


def _method_of(module: Module, name: str) -> Any:
    return module.__dict__.get("_pruning", {}).get(name)


class BasePruningMethod(ABC):
    """What decides which numbers of a tensor become zero; subclasses have ``compute_mask``.

    PRUNING_TYPE: "unstructured" if it is to see the numbers that are left, "structured" if the
    slices along its ``dim`` in which some are left, "global" for all of them.
    """

    PRUNING_TYPE: str
    _tensor_name: str

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask, which is no more than ``default_mask``. t: how much each number counts."""

    def apply_mask(self, module: Module) -> Tensor:
        """The original times the mask."""
        original: Tensor = getattr(module, f"{self._tensor_name}_orig")
        return getattr(module, f"{self._tensor_name}_mask").to(original.dtype) * original

    @classmethod
    def apply(
        cls,
        module: Module,
        name: str,
        *args: Any,
        importance_scores: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Prune ``module.name`` by a new method made with the arguments; returns it.

        A second method sees what the first has left, and both become a PruningContainer.
        importance_scores: what is looked at instead of the tensor, of its shape.
        """
        method = cls(*args, **kwargs)
        method._tensor_name = name
        before = _method_of(module, name)
        if before is None and not isinstance(module._parameters.get(name), Parameter):
            raise AttributeError(f"prune: {type(module).__name__} has no parameter {name!r}.")
        tensor = getattr(module, name).detach()
        scores = tensor if importance_scores is None else importance_scores
        if scores.shape != tensor.shape:
            raise ValueError(
                f"prune: importance_scores must have the shape of {name}, {list(tensor.shape)}, "
                f"got {list(scores.shape)}."
            )
        chosen: BasePruningMethod = method
        mask = ones_like(tensor)
        if before is not None:
            held = before if isinstance(before, PruningContainer) else PruningContainer(before)
            chosen = PruningContainer(*held)
            chosen.add_pruning_method(method)
            mask = getattr(module, f"{name}_mask").detach().clone()
        with no_grad():
            mask = chosen.compute_mask(scores, default_mask=mask)
        if before is None:
            _split(module, name)
        module.register_buffer(f"{name}_mask", mask)
        module.__dict__["_pruning"][name] = chosen
        return chosen

    def prune(
        self,
        t: Tensor,
        default_mask: Tensor | None = None,
        importance_scores: Tensor | None = None,
    ) -> Tensor:
        """``t`` times the mask that this method gives it, of no module."""
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise ValueError(
                f"prune: importance_scores must have the shape of t, {list(t.shape)}, got "
                f"{list(scores.shape)}."
            )
        given = ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=given)

    def remove(self, module: Module) -> None:
        """Make the tensor the parameter that it was, with its zeros."""
        name = self._tensor_name
        with no_grad():
            value = self.apply_mask(module)
        original: Any = getattr(module, f"{name}_orig")
        forget(module, name)
        delattr(module, f"{name}_orig")
        delattr(module, f"{name}_mask")
        del module.__dict__["_pruning"][name]
        original.data = value.data
        module.register_parameter(name, original)


def _split(module: Module, name: str) -> None:
    """Let ``module.name`` be computed; its parameter becomes ``name_orig``."""
    parameter = module._parameters[name]
    delattr(module, name)
    module.register_parameter(f"{name}_orig", parameter)
    module.__dict__.setdefault("_pruning", {})

    def read(module: Any) -> Tensor:
        return _method_of(module, name).apply_mask(module)

    def write(module: Any, value: Any) -> None:
        raise AttributeError(
            f"{name} is {name}_orig times {name}_mask, because it is pruned. Set those, or call "
            f"prune.remove first."
        )

    compute(module, name, read, write)


class PruningContainer(BasePruningMethod):
    """Several methods for one tensor, each of which was applied to what the ones before left."""

    def __init__(self, *args: BasePruningMethod):
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if args:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """Append a method for the same tensor."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"prune: {type(method)} is not a BasePruningMethod subclass.")
        if self._tensor_name != method._tensor_name:
            raise ValueError(
                f"prune: the methods of a container are for one tensor, {self._tensor_name!r}, but "
                f"this one is for {method._tensor_name!r}. Make a container of its own."
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, index: Any) -> Any:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """``default_mask``, in which the last method decides on what is left."""
        method = self._pruning_methods[-1]
        mask = default_mask.to(t.dtype)
        part = _left(method, t, mask)
        chosen = method.compute_mask(t[part], default_mask=mask[part])
        mask = mask.clone()
        mask[part] = chosen.to(mask.dtype)
        return mask


def _left(method: Any, t: Tensor, mask: Tensor) -> Any:
    """The index of the part of ``t`` that ``method`` is to see."""
    kind = method.PRUNING_TYPE
    if kind == "global":
        return ...
    if kind == "unstructured":
        return mask.eq(1)
    if kind != "structured":
        raise ValueError(f"prune: Unrecognized PRUNING_TYPE {kind}.")
    dim = _channels(t, method.dim)
    others = [d for d in range(t.dim()) if d != dim]
    return (*[slice(None)] * dim, mask.sum(others).ne(0))


def _channels(t: Tensor, dim: int) -> int:
    """``dim`` counted from 0; raises for what has no such channels."""
    if t.dim() <= 1:
        raise ValueError(
            f"prune: structured pruning is for tensors of two and more dimensions, but got shape "
            f"{list(t.shape)}. Prune its numbers, l1_unstructured."
        )
    if not -t.dim() <= dim < t.dim():
        raise IndexError(f"prune: Invalid index {dim} for tensor of size {list(t.shape)}.")
    return dim % t.dim()


def _checked(amount: Any) -> Any:
    """``amount``, if it can be a number of things or a part of them."""
    if not isinstance(amount, Real):
        raise TypeError(f"prune: Invalid type for amount: {amount}. Must be int or float.")
    if float(amount) < 0 or not (isinstance(amount, Integral) or float(amount) <= 1.0):
        raise ValueError(
            f"prune: amount must be an int from 0 on or a float in the range [0, 1], got {amount}."
        )
    return amount


def _count(amount: Any, size: int) -> int:
    """How many of ``size`` things ``amount`` is."""
    count = int(amount) if isinstance(amount, Integral) else round(amount * size)
    if count > size:
        raise ValueError(f"prune: amount={count} is more than the {size} there are to prune.")
    return count


class Identity(BasePruningMethod):
    """Prunes nothing."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """``default_mask``."""
        return default_mask


class _Unstructured(BasePruningMethod):
    """The ``amount`` numbers that count least, a float for a part of all."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Any):
        self.amount = _checked(amount)

    def worth(self, t: Tensor) -> Tensor:
        """How much each number counts."""
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """``default_mask``, 0 for those that count least."""
        count = _count(self.amount, t.numel())
        mask = default_mask.clone().reshape(-1)
        if count:
            mask[self.worth(t).reshape(-1).topk(count, largest=False).indices] = 0
        return mask.reshape(default_mask.shape)


class RandomUnstructured(_Unstructured):
    """Any numbers."""

    def worth(self, t: Tensor) -> Tensor:
        """At random."""
        return rand(*t.shape, device=t.device)


class L1Unstructured(_Unstructured):
    """The numbers nearest to 0."""

    def worth(self, t: Tensor) -> Tensor:
        """The absolute values."""
        return t.abs()


class _Structured(BasePruningMethod):
    """The ``amount`` slices along ``dim`` that count least, a float for a part of all."""

    PRUNING_TYPE = "structured"
    amount: Any
    dim: int

    def worth(self, t: Tensor, dim: int) -> Tensor:
        """How much each slice counts."""
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """``default_mask``, 0 in the slices that count least."""
        dim = _channels(t, self.dim)
        count = _count(self.amount, t.shape[dim])
        if not count:
            return default_mask
        kept = self.worth(t, dim).topk(t.shape[dim] - count).indices
        mask = zeros_like(t)
        mask[(*[slice(None)] * dim, kept)] = 1
        return mask * default_mask.to(mask.dtype)


class RandomStructured(_Structured):
    """Any slices."""

    def __init__(self, amount: Any, dim: int = -1):
        self.amount, self.dim = _checked(amount), dim

    def worth(self, t: Tensor, dim: int) -> Tensor:
        """At random."""
        return rand(t.shape[dim], device=t.device)


class LnStructured(_Structured):
    """The slices of the smallest n-norm."""

    def __init__(self, amount: Any, n: Any, dim: int = -1):
        self.amount, self.n, self.dim = _checked(amount), n, dim

    def worth(self, t: Tensor, dim: int) -> Tensor:
        """The norms."""
        return t.norm(self.n, [d for d in range(t.dim()) if d != dim])


class CustomFromMask(BasePruningMethod):
    """What is 0 in a mask of one's own."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor):
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Both masks."""
        if default_mask.shape != self.mask.shape:
            raise ValueError(
                f"prune: mask must be of the parameter's shape {list(default_mask.shape)}, got "
                f"{list(self.mask.shape)}."
            )
        return default_mask * self.mask.to(default_mask.dtype)


# -- functions -------------------------------------------------------------------------------------


def identity(module: Any, name: str) -> Any:
    """Give ``module.name`` a mask of ones; returns the module."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: Any) -> Any:
    """Set ``amount`` numbers of ``module.name`` to zero, any of them; returns the module.

    amount: how many, or as a float which part.
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(
    module: Any, name: str, amount: Any, importance_scores: Tensor | None = None
) -> Any:
    """Set the ``amount`` numbers of ``module.name`` that are nearest to 0 to zero.

    amount: how many, or as a float which part. importance_scores: what is compared instead. Returns
    the module.

    >>> layer = l1_unstructured(ng.nn.Linear(4, 1), "weight", 0.5)
    >>> int(layer.weight.eq(0).sum()), [n for n, _ in layer.named_parameters()]
    (2, ['bias', 'weight_orig'])
    """
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: Any, dim: int) -> Any:
    """Set ``amount`` slices of ``module.name`` along ``dim`` to zero; returns the module."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Any,
    name: str,
    amount: Any,
    n: Any,
    dim: int,
    importance_scores: Tensor | None = None,
) -> Any:
    """Set the ``amount`` slices of ``module.name`` along ``dim`` with the smallest n-norm to zero.

    Returns the module.
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Any, name: str, mask: Tensor) -> Any:
    """Set the numbers of ``module.name`` to zero that are 0 in ``mask``; returns the module."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Any, str]],
    pruning_method: Callable[..., Any],
    importance_scores: dict[tuple[Any, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prune several tensors, (module, name) each, as if they were one.

    pruning_method: a class of "unstructured" type, made with the other keywords. importance_scores:
    what is looked at instead of some of the tensors.
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable.")
    pairs, scores = list(parameters), importance_scores or {}
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict.")
    tensors = [getattr(module, name).detach() for module, name in pairs]
    looked_at = [scores.get(pair, t) for pair, t in zip(pairs, tensors, strict=True)]
    masks = [
        getattr(module, f"{name}_mask", ones_like(t))
        for (module, name), t in zip(pairs, tensors, strict=True)
    ]
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            f"global_unstructured: pruning_method must be of type 'unstructured', but "
            f"{pruning_method.__name__} is of type {method.PRUNING_TYPE!r}."
        )
    method._tensor_name = "all"
    with no_grad():
        chosen = PruningContainer(method).compute_mask(
            parameters_to_vector(looked_at), parameters_to_vector(masks)
        )
    start = 0
    for (module, name), t in zip(pairs, tensors, strict=True):
        custom_from_mask(module, name, chosen[start : start + t.numel()].reshape(t.shape))
        start += t.numel()


def remove(module: Any, name: str) -> Any:
    """Make a pruned tensor a parameter again, with its zeros; returns the module."""
    method = _method_of(module, name)
    if method is None:
        raise ValueError(
            f"prune.remove: {name!r} of {type(module).__name__} is not pruned: nothing to remove."
        )
    method.remove(module)
    return module


def is_pruned(module: Module) -> bool:
    """Whether a tensor of ``module`` or of a module in it is pruned."""
    return any(each.__dict__.get("_pruning") for each in module.modules())
