"""The Tensor: an array with a dtype, a gradient, an edge on the tape and a version; no maths.

Operations are installed on the class by ``ops/methods.py``. Inside the package a tensor is made
with ``wrap(array, dtype)``. What it says of itself is in ``shaped.py``, reading its elements in
``readable.py``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from . import devices, dtypes, printing
from .dtypes import DType
from .errors import DTypeError, GradError, NotScalarError, ShapeError
from .graph_walk import run_backward
from .kernels import machine
from .kernels.copied import copied
from .kernels.cuda.runtime.array import DeviceArray
from .kernels.machine import reading
from .readable import Readable
from .shaped import Shaped, Size
from .tape import AccumulateGrad, Counter, Node, RemovableHandle, SavedOutput, name_of, split_edge

__all__ = ["Tensor", "is_tensor", "wrap"]


class Tensor(Shaped, Readable):
    """An n-dimensional array that remembers how it was made, for gradients.

    ``Tensor(3, 4)`` is uninitialised float32; ``Tensor([1, 2])`` converts data. Prefer
    ``ng.tensor``, ``ng.empty``. Attributes: ``data grad grad_fn requires_grad is_leaf shape dtype
    device``.
    """

    # Class-level defaults: an instance stores only what differs, which makes wrapping cheap.
    _array: Any
    _dtype: DType
    _edge: Any = None
    _leaf_edge: AccumulateGrad | None = None  # of a leaf that needs no gradient now, as it did
    _grad: Tensor | None = None
    _counter: Counter | None = None
    _base: Tensor | None = None
    _views: list[Any] | None = None
    _flat: bool = True
    _kept: SavedOutput | None = None  # what the node that made this keeps of it
    _retain: bool = False
    _watched: bool = False  # whether compiled steps rely on its array and edge: see ``_moved``
    _rebound: bool = False  # whether a compiled step sets its ``data``
    _device = devices.cpu
    __array_priority__ = 1000

    if TYPE_CHECKING:  # what ops/methods.py installs

        def __getattr__(self, name: str) -> Any: ...

        __add__: Callable[..., Any]
        __radd__: Callable[..., Any]
        __sub__: Callable[..., Any]
        __rsub__: Callable[..., Any]
        __mul__: Callable[..., Any]
        __rmul__: Callable[..., Any]
        __truediv__: Callable[..., Any]
        __rtruediv__: Callable[..., Any]
        __floordiv__: Callable[..., Any]
        __rfloordiv__: Callable[..., Any]
        __mod__: Callable[..., Any]
        __rmod__: Callable[..., Any]
        __pow__: Callable[..., Any]
        __rpow__: Callable[..., Any]
        __matmul__: Callable[..., Any]
        __rmatmul__: Callable[..., Any]
        __lt__: Callable[..., Any]
        __le__: Callable[..., Any]
        __gt__: Callable[..., Any]
        __ge__: Callable[..., Any]
        __and__: Callable[..., Any]
        __or__: Callable[..., Any]
        __xor__: Callable[..., Any]
        __getitem__: Callable[..., Any]
        __neg__: Callable[..., Any]
        __abs__: Callable[..., Any]
        __invert__: Callable[..., Any]
        __setitem__: Callable[..., Any]

    def __init__(self, *data: Any, device: Any = None):
        default = dtypes.get_default_dtype()
        if device is not None:
            devices.to_device(device)
        if len(data) == 1 and not isinstance(data[0], (int, Size)):
            source = data[0]
            if isinstance(source, Tensor):
                self._share(source)
                return
            array = np.array(source, default.numpy)
        else:
            shape = data[0] if len(data) == 1 and isinstance(data[0], Size) else data
            if data == ():
                shape = (0,)
            if not all(isinstance(n, int) and n >= 0 for n in shape):
                raise ShapeError(f"Tensor: sizes must be non-negative ints, got {data}.")
            array = np.empty(shape, default.numpy)
        self._array = array
        self._dtype = default

    # -- construction inside the package ---------------------------------------------------------

    def _share(self, other: Tensor) -> None:
        """Become another tensor object on the memory of ``other``, without its history."""
        self._array = other._array
        self._dtype = other._dtype
        self._flat = other._flat
        self._device = other._device

    def _bare_alias(self) -> Tensor:
        """The same memory and version, no history."""
        alias = _new(Tensor)
        alias._share(self)
        alias._counter = self._counter
        return alias

    def _version_counter(self) -> Counter:
        """The version counter, made on first need."""
        counter = self._counter
        if counter is None:
            counter = self._counter = Counter()
            if self._kept is not None:
                self._kept._counter = counter
        return counter

    def _moved(self) -> None:
        """Tell compiled steps that this tensor has another array or edge, where one watches it."""
        if self._watched:
            machine.moved()

    def _bump_version(self) -> None:
        """Note that the elements were changed in place."""
        self._version_counter().bump()

    @property
    def _version(self) -> int:
        """How many times the memory was changed in place."""
        return 0 if self._counter is None else self._counter.value

    # -- history ---------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether backward computes a gradient for this tensor."""
        return self._edge is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Turn the gradient of a leaf on or off, in place. Raises for integer dtypes."""
        if requires_grad:
            if self._edge is None:
                if not self._dtype.is_floating_point:
                    raise DTypeError(
                        f"requires_grad_: only Tensors of floating point dtype can require "
                        f"gradients; this one is {self._dtype}. Convert it with .float() first."
                    )
                self._edge = self._leaf_edge or AccumulateGrad(self)
                self._moved()
        elif self._edge is not None:
            if type(self._edge) is not AccumulateGrad:
                raise GradError(
                    "requires_grad_: you can only change requires_grad flags of leaf variables; "
                    "this tensor was made by "
                    f"{name_of(split_edge(self._edge)[0])}. Use .detach() for a tensor without it."
                )
            self._leaf_edge = self._edge  # with its hooks; compiled steps know it again
            self._edge = None
            self._moved()
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether the tensor was made by the user rather than by a recorded operation."""
        return self._edge is None or type(self._edge) is AccumulateGrad

    @property
    def grad_fn(self) -> Node | None:
        """The node that made this tensor, None for a leaf."""
        return None if self.is_leaf else split_edge(self._edge)[0]

    creator = grad_fn

    @property
    def output_nr(self) -> int:
        """Which output of ``grad_fn`` this tensor is."""
        return 0 if self._edge is None else split_edge(self._edge)[1]

    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward has accumulated, or None; a non-leaf without one warns."""
        held = self._grad
        # While recording, a look at the history would make calls depend on it.
        if held is not None or machine.is_recording() or self._edge is None:
            return held
        if not (self.is_leaf or self._retain):
            warnings.warn(
                f"grad: read on a Tensor that is not a leaf Tensor, made by "
                f"{name_of(split_edge(self._edge)[0])}: backward keeps no gradient there. Call "
                f".retain_grad() on it before backward, or read .grad of a leaf.",
                stacklevel=2,
            )
        return held

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise TypeError(f"grad: expected a Tensor or None, got {type(value).__name__}.")
            if value._array.shape != self._array.shape:
                raise ShapeError(
                    f"grad: a gradient of size {list(value.shape)} was assigned to a tensor of "
                    f"size {list(self.shape)}; they must be equal."
                )
            if value._dtype is not self._dtype:
                raise DTypeError(
                    f"grad: assigned grad is {value._dtype}, the tensor {self._dtype}. Convert it "
                    f"with .to({self._dtype})."
                )
            if value._device is not self._device:
                raise devices.mixed("grad", self._device, value._device)
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    @property
    def data(self) -> Tensor:
        """The same memory without history; writing through it does not move the version."""
        alias = _new(Tensor)
        alias._share(self)
        return alias

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"data: expected a Tensor, got {type(value).__name__}.")
        if self._edge is not None and not value._dtype.is_floating_point:
            raise DTypeError(f"data: {value._dtype} cannot replace a tensor that requires grad.")
        if machine.recording and machine.recorder.current is not None:
            machine.recorder.current.set_data(self)
        self._share(value)
        self._moved()

    def detach(self) -> Tensor:
        """The same memory and version without history: a write moves the version, nothing else."""
        self._version_counter()
        return self._bare_alias()

    def detach_(self) -> Tensor:
        """Forget how this tensor was made, in place."""
        if self._base is not None and self._base._edge is not None:
            raise GradError(
                "detach_: can't detach views in-place; use detach() to get a tensor without "
                "history."
            )
        self._edge = None
        self._moved()
        return self

    def retain_grad(self) -> None:
        """Keep the gradient of this non-leaf tensor in ``.grad`` during backward."""
        if self._edge is None:
            raise GradError(
                "retain_grad: can't retain_grad on Tensor that has requires_grad=False."
            )
        if not self.is_leaf and not self._retain:
            node, index = split_edge(self._edge)
            node._retain(index, self)
            self._retain = True

    @property
    def retains_grad(self) -> bool:
        """Whether a non-leaf keeps its gradient."""
        return self._retain

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Call ``hook(grad)`` whenever the gradient is computed; it may return another one."""
        if self._edge is None:
            raise GradError(
                "register_hook: cannot register a hook on a tensor that doesn't require gradient."
            )
        node, index = split_edge(self._edge)
        return node._add_tensor_hook(index, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(tensor)`` after a gradient was added to the ``.grad`` of this leaf."""
        if type(self._edge) is not AccumulateGrad:
            raise GradError("register_post_accumulate_grad_hook: the tensor must be a leaf.")
        return self._edge.register_accumulated_hook(hook)

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Accumulate the gradients of the leaves below this tensor into their ``.grad``.

        gradient: of the shape of this tensor; may be left out for one element. inputs: only these
        tensors get a gradient. retain_graph: keep saved tensors for another backward (default:
        ``create_graph``). create_graph: record the backward itself, for higher orders.
        """
        accumulate([root_of(self, gradient, "backward")], retain_graph, create_graph, inputs)

    # -- as Python sees it -----------------------------------------------------------------------

    def __len__(self) -> int:
        if self._array.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return self._array.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if self._array.ndim == 0:
            raise TypeError("iteration over a 0-d tensor")
        return iter([self[i] for i in range(self._array.shape[0])])

    def __array_wrap__(
        self, array: np.ndarray, context: Any = None, return_scalar: bool = False
    ) -> Tensor:
        """What a function of NumPy gives for a tensor: a tensor."""
        return wrap(np.array(array), dtypes.from_numpy(array.dtype))

    def __reversed__(self) -> Tensor:
        return self.flip(0) if self._array.ndim else self

    def __contains__(self, value: Any) -> bool:
        reading("in", self._array)
        return bool((self == value)._array.any())

    def __format__(self, spec: str) -> str:
        # A 0-d tensor shows as its number, but a Parameter says what it is.
        if self._array.ndim == 0 and (spec or type(self) is Tensor):
            return format(self.item(), spec)
        return object.__format__(self, spec)

    def __repr__(self) -> str:
        reading("printing", self._array)
        parts = []
        if self.is_leaf:
            if self._edge is not None:
                parts.append("requires_grad=True")
        else:
            parts.append(f"grad_fn=<{name_of(split_edge(self._edge)[0])}>")
        if self._device is not devices.cpu:
            parts.insert(0, f"device='{self._device}'")
        return printing.tensor_repr(self._numbers(), self._dtype, suffix_parts=parts)

    def __hash__(self) -> int:
        return id(self)

    def __deepcopy__(self, memo: dict) -> Tensor:
        if not self.is_leaf:
            raise GradError(
                "deepcopy: only leaf tensors (made by the user) support deepcopy; use "
                ".detach().clone()."
            )
        if self._base is not None or not machine.is_recording():
            reading("deepcopy", self._array)
        copy = type(self).__new__(type(self))
        memo[id(self)] = copy
        copy.__dict__.update(_set_by_users(self))
        copy._array = self._deep_copied(memo)
        copy._dtype, copy._device = self._dtype, self._device
        copy._flat = copy._array.flags.c_contiguous
        if self._edge is not None:
            copy.requires_grad_()
        if self._grad is not None:
            copy._grad = self._grad.__deepcopy__(memo)
        return copy

    def _deep_copied(self, memo: dict) -> Any:
        """The array of a deep copy: tensors on one memory lie on one memory again."""
        if machine.is_recording():
            return self.detach().clone()._array
        return copied(self._array, memo)

    def __copy__(self) -> Tensor:
        if not self.is_leaf:
            raise GradError("copy: only leaf tensors support copy; use .detach().")
        alias = type(self).__new__(type(self))
        alias.__dict__.update(_set_by_users(self))
        alias._share(self)
        return alias.requires_grad_(self.requires_grad)

    def __reduce_ex__(self, protocol: Any) -> Any:
        reading("pickle", self._array)
        array = self._array if self._device is devices.cpu else self._array.get()
        array = np.asarray(array, order="A")  # ascontiguousarray would make one dim of none
        return _rebuild, (type(self), array, self.requires_grad), _set_by_users(self)


_new = object.__new__
SavedOutput.tensor_class = Tensor


def _set_by_users(tensor: Tensor) -> dict[str, Any]:
    """The attributes that were put on a tensor from outside."""
    return {k: v for k, v in tensor.__dict__.items() if not k.startswith("_")}


def _rebuild(cls: type, array: np.ndarray, requires_grad: bool) -> Tensor:
    tensor: Any = _new(cls)
    tensor._array, tensor._dtype = array, dtypes.from_numpy(array.dtype)
    tensor._flat = array.flags.c_contiguous
    return tensor.requires_grad_(requires_grad)


def wrap(array: Any, dtype: DType) -> Tensor:
    """A tensor without history on a fresh C-contiguous array."""
    tensor = _new(Tensor)
    tensor._array = array
    tensor._dtype = dtype
    tensor._edge = None
    tensor._counter = None
    if array.__class__ is DeviceArray:
        tensor._device = array.device
    return tensor


def wrap_any(array: np.ndarray) -> Tensor:
    """A tensor without history on an array of any layout."""
    tensor = wrap(array, dtypes.from_numpy(array.dtype))
    tensor._flat = array.flags.c_contiguous
    return tensor


def is_tensor(value: Any) -> bool:
    """Whether ``value`` is a Tensor."""
    return isinstance(value, Tensor)


def root_of(output: Tensor, gradient: Tensor | None, name: str) -> tuple[Any, Tensor]:
    """The edge where backward starts and its gradient, checked."""
    if not isinstance(output, Tensor):
        raise TypeError(f"{name}: expected a Tensor, got {type(output).__name__}.")
    if output._edge is None:
        raise GradError(
            f"{name}: element 0 of tensors does not require grad and does not have a grad_fn. "
            f"Set requires_grad=True on an input, and compute outside no_grad."
        )
    if gradient is None:
        if output._array.size != 1:
            raise NotScalarError(
                f"{name}: grad can be implicitly created only for scalar outputs; this one has "
                f"shape {list(output.shape)}. Pass gradient=, or reduce it, with .sum() say."
            )
        return output._edge, output._ones_like()
    if not isinstance(gradient, Tensor):
        raise TypeError(f"{name}: gradient must be a Tensor, got {type(gradient).__name__}.")
    if gradient._array.shape != output._array.shape:
        raise ShapeError(
            f"{name}: Mismatch in shape: grad_output has a shape of {list(gradient.shape)} and "
            f"output has a shape of {list(output.shape)}."
        )
    if gradient._dtype is not output._dtype:
        if not gradient._dtype.is_floating_point:
            raise DTypeError(f"{name}: gradient must be floating, got {gradient._dtype}.")
        gradient = gradient.to(output._dtype)
    return output._edge, gradient


def accumulate(
    roots: list[tuple[Any, Tensor]], retain_graph: bool | None, create_graph: bool, inputs: Any
) -> None:
    """Run backward from ``roots``, adding to the ``.grad`` of leaves, or of ``inputs``."""
    if inputs is not None:
        inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
        if not inputs:
            raise GradError("backward: `inputs` argument to `backward` cannot be empty.")
        for i, tensor in enumerate(inputs):
            if tensor._edge is None:
                raise GradError(f"backward: inputs[{i}] does not require grad.")
            if not tensor.is_leaf:
                tensor.retain_grad()
    run_backward(
        roots,
        retain_graph=create_graph if retain_graph is None else retain_graph,
        create_graph=create_graph,
        targets=None if inputs is None else [t._edge for t in inputs],
    )
