"""Hooks on the graph: on what an operation saves for backward, and on several gradients.

``Packed`` stands in a node for a tensor that a hook has packed. Start reading at
``saved_tensors_hooks``; ``register_multi_grad_hook`` is in ``joint_hooks.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ..errors import DeviceError, DTypeError, GradError, ShapeError
from ..kernels import machine
from ..tape import (
    RESTORED,
    Counter,
    Edge,
    Node,
    SavedOutput,
    grad_mode,
    standing_behind,
)
from ..tensor import Tensor
from .function import Intermediate
from .joint_hooks import register_multi_grad_hook

__all__ = [
    "Node",
    "disable_saved_tensors_hooks",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]


class _Disabled(threading.local):
    message: str | None = None


_disabled = _Disabled()


class saved_tensors_hooks:
    """In the block, what operations save for backward is replaced by what ``pack_hook`` returns.

    ``pack_hook(tensor)``, called with grad mode off when an operation saves a tensor (an input, its
    result, indices), returns anything; ``unpack_hook(packed)``, called when backward needs the
    tensor, returns one of the same shape, dtype and device. pack_hook gets an input as it is and a
    result without its history, and must not change either. Of nested blocks the innermost counts.
    A tensor saved this way is not watched for changes in place. Built-in layers also keep a mean
    and a scale per row or channel, which are not packed.

    Inside ``ng.compile`` both hooks are recorded; around a compiled function they get what its own
    node saves. Raises RuntimeError inside ``disable_saved_tensors_hooks``.

    >>> import numbagrad as ng
    >>> x = ng.tensor([2.0, 3.0], requires_grad=True)
    >>> with saved_tensors_hooks(lambda t: t.tolist(), lambda values: ng.tensor(values)):
    ...     y = (x * x).sum()
    >>> y.backward()
    >>> x.grad
    tensor([4., 6.])
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]):
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook
        self._entered: list[ExitStack] = []

    def __enter__(self) -> None:
        if _disabled.message is not None:
            raise GradError(_disabled.message)
        with ExitStack() as stack:
            # The short ways of operations, which save by themselves, stand aside for a recorder.
            stack.enter_context(standing_behind(machine.recorder.current))
            stack.callback(setattr, grad_mode, "saving", grad_mode.saving)
            grad_mode.saving = self._pack_all
            self._entered.append(stack.pop_all())

    def __exit__(self, *exception: Any) -> None:
        self._entered.pop().close()

    def _pack_all(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """What a node keeps instead of ``values``; numbers and None stay."""
        enabled, grad_mode.enabled = grad_mode.enabled, False
        try:
            return tuple([self._pack(v) if _holds_tensor(v) else v for v in values])
        finally:
            grad_mode.enabled = enabled

    def _pack(self, value: Any) -> Packed:
        tensor = value
        if type(value) is SavedOutput:
            tensor = value.restore(_NOWHERE)._bare_alias()
        elif type(value) is Intermediate:
            tensor = value.tensor
        before = tensor._version
        held = self.pack_hook(tensor)
        if tensor._version != before:
            raise GradError(
                "saved_tensors_hooks: A saved tensor pack hook is modifying its input in place. "
                "Change a clone of it."
            )
        return Packed(value, tensor, held, self.unpack_hook)


def _holds_tensor(value: Any) -> bool:
    return isinstance(value, (Tensor, SavedOutput, Intermediate))


_NOWHERE = Node()  # whose outputs' history nobody asks for


class Packed:
    """Stands in a node for a saved tensor: what a hook made of it, and how to get it back.

    A saved output knows no node, which would make a cycle: it is given one by ``restore``.
    """

    __slots__ = ("edge", "held", "index", "intermediate", "like", "unpack")
    _counter = Counter()  # never moved: changes are not watched through a hook

    def __init__(self, value: Any, tensor: Tensor, held: Any, unpack: Callable[[Any], Tensor]):
        self.held, self.unpack = held, unpack
        self.like = (tensor.shape, tensor._dtype, tensor._device, tensor._array.flags.c_contiguous)
        self.intermediate = type(value) is Intermediate
        self.index = value.index if type(value) is SavedOutput else -1
        self.edge = tensor._edge if isinstance(value, Tensor) else None

    @property
    def shape(self) -> Any:
        """Shape of the tensor."""
        return self.like[0]

    def restore(self, node: Node) -> Any:
        """The tensor again, with the history that it had; an output is one of ``node``."""
        tensor = self.unpack(self.held)
        name = "saved_tensors_hooks: unpack_hook"
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"{name}: Output of saved tensor unpack_hook expected to be a Tensor but got "
                f"result of type {type(tensor).__name__}."
            )
        shape, dtype, device, flat = self.like
        if tensor.shape != shape:
            raise ShapeError(f"{name} returned shape {list(tensor.shape)} for {list(shape)}.")
        if tensor._dtype is not dtype:
            raise DTypeError(f"{name} returned {tensor._dtype} for {dtype}; use .to({dtype}).")
        if tensor._device is not device:
            raise DeviceError(f"{name} returned a tensor on {tensor._device} for one on {device}.")
        if flat:
            tensor = tensor.contiguous()
        alias = tensor._bare_alias()
        if self.intermediate:
            return Intermediate(alias)
        alias._edge = self.edge
        if self.index >= 0:
            alias._edge = node if node._outputs == 1 else Edge(node, self.index)
        return alias


RESTORED.add(Packed)


class save_on_cpu(saved_tensors_hooks):
    """In the block, tensors on a GPU that operations save wait for backward in the host's memory.

    pin_memory is accepted for PyTorch's sake; copies are pageable.

    >>> import numbagrad as ng
    >>> x = ng.tensor([2.0], requires_grad=True)
    >>> with save_on_cpu():
    ...     y = x * x
    >>> y.backward(); x.grad
    tensor([4.])
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda"):
        def pack(tensor: Tensor) -> tuple[Any, Tensor]:
            away = tensor.device.type == device_type
            return tensor.device, tensor.cpu() if away else tensor

        super().__init__(pack, lambda packed: packed[1].to(packed[0]))


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """In the block, entering ``saved_tensors_hooks`` raises RuntimeError with this message.

    So does entering this block inside of hooks.
    """
    if grad_mode.saving is not None:
        raise GradError(error_message)
    held, _disabled.message = _disabled.message, error_message
    try:
        yield
    finally:
        _disabled.message = held
