"""User-defined operations: ``Function``, its ``ctx``, and what makes a forward's result a node.

Start reading at ``Function.apply``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import DTypeError, GradError, ShapeError
from ..graph_walk import written_out
from ..kernels import machine
from ..tape import Node, SavedOutput, grad_mode, name_of, next_sequence
from ..tensor import Tensor
from .changes import check_in_place
from .recorded import Recorded, among

__all__ = ["Function", "FunctionCtx", "once_differentiable"]

_new = object.__new__


class Intermediate:
    """A tensor computed inside forward and saved: its gradient path is not on the tape."""

    __slots__ = ("_counter", "tensor")

    def __init__(self, tensor: Tensor):
        self.tensor = tensor
        self._counter = tensor._version_counter()

    @property
    def shape(self) -> Any:
        return self.tensor.shape


class _Refusal(Node):
    """Raises when a gradient is asked for through something that has none on the tape."""

    def __init__(self, message: str, edges: tuple[Any, ...], label: str):
        self.message, self._edges, self.label = message, edges, label
        self._sequence = next_sequence()

    def name(self) -> str:
        return self.label

    def _run(self, grads: list[Any]) -> Sequence[Any]:
        raise GradError(self.message)


class FunctionCtx(Recorded):
    """What forward hands to backward; it is also the node, ``y.grad_fn``.

    Any attribute may be set on it. Tensors that backward needs go through ``save_for_backward``.
    """

    num_inputs: int = 0
    num_outputs: int = 0
    _to_save: tuple[Any, ...] | None = None
    _dirty: tuple[Tensor, ...] = ()
    _non_differentiable: tuple[Any, ...] = ()
    _aliases: tuple[int, ...] = ()
    _materialize: bool = True
    _function: type[Function]
    _input_meta: Sequence[Any] = ()
    _finished: bool = False

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors (inputs, outputs, intermediates; or None) for backward; call it once."""
        for position, tensor in enumerate(tensors):
            if tensor is not None and not isinstance(tensor, Tensor):
                raise TypeError(
                    f"{name_of(self)}: save_for_backward can only save Tensors or None, but "
                    f"argument {position} is of type {type(tensor).__name__}. Keep other values "
                    f"as attributes of ctx."
                )
        if self._to_save is not None or self._finished:
            raise GradError(
                f"{name_of(self)}: save_for_backward was called twice. Save all tensors in "
                f"one call."
            )
        self._to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Taken for PyTorch's sake: it is for ``jvp``, and forward mode is made of backwards."""

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The saved tensors in order: inputs with their history, outputs made by this node."""
        if not self._finished:
            return self._to_save or ()
        values = []
        for value in self._unpack():
            if type(value) is Intermediate:
                value = self._restore_intermediate(value.tensor)
            values.append(value)
        return tuple(values)

    def _restore_intermediate(self, tensor: Tensor) -> Tensor:
        if not grad_mode.enabled:
            return tensor
        alias = tensor._bare_alias()
        alias._edge = _Refusal(
            f"{name_of(self)}: the second derivative reached a tensor of shape "
            f"{list(tensor.shape)} that forward computed and saved. The tape does not know how it "
            f"depends on the inputs. Return it from forward as a further output, compute it "
            f"again in backward, or call ctx.mark_non_differentiable on it if it is a constant.",
            self._edges,
            "SavedIntermediate",
        )
        return alias

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Declare inputs that forward changed in place; they must be returned."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Declare outputs (or saved intermediates) through which no gradient flows."""
        self._non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (True, the default) or None for an unused output."""
        self._materialize = value

    def name(self) -> str:
        """The class name followed by Backward."""
        return type(self).__name__

    # -- the end of forward ----------------------------------------------------------------------

    def _finish(self, args: tuple, edges: tuple, result: Any, tracked: bool) -> Any:
        """Give the outputs their history; returns what ``apply`` returns."""
        if isinstance(result, Tensor):
            outputs, wrap = [result], lambda values: values[0]
        elif isinstance(result, tuple):
            outputs = list(result)
            named = hasattr(result, "_fields")
            wrap = (lambda v: type(result)(*v)) if named else tuple
        else:
            self._finished = True
            return result
        self.num_outputs = len([None for o in outputs if isinstance(o, Tensor)])
        dirty, aliases = self._dirty, list[int]()
        if dirty:
            self._check_dirty(args, outputs)
        for i, output in enumerate(outputs):
            if not isinstance(output, Tensor) or (dirty and among(output, dirty)):
                continue
            again = output._edge is not None or among(output, args)
            if tracked and (again or output._base is not None) and _shows(output, args):
                aliases.append(i)
            if again:
                # An input handed back (or a tensor with a history of its own) must not have its
                # history replaced: the output is another tensor on the same memory.
                output._version_counter()
                output = outputs[i] = output._bare_alias()
            if output._base is not None:
                output._base = None
        if aliases:
            self._aliases = tuple(aliases)
        if tracked:
            self._record(args, edges, outputs)
        self._finished = True
        return wrap(outputs)

    def _check_dirty(self, args: tuple, outputs: list) -> None:
        for tensor in self._dirty:
            if not among(tensor, args):
                raise GradError(f"{name_of(self)}: mark_dirty got a tensor that is not an input.")
            if not among(tensor, outputs):
                raise GradError(
                    f"{name_of(self)}: Some elements marked as dirty during the forward method "
                    f"were not returned as output. The inputs that are modified inplace must "
                    f"all be outputs of the Function."
                )
        for tensor in self._dirty:
            check_in_place(tensor, name_of(self))
            tensor._bump_version()

    def _record(self, args: tuple, edges: tuple, outputs: list) -> None:
        if self._dirty:
            from ..ops.inplace import following

            skip = self._non_differentiable
            following(self._dirty, name_of(self), lambda: self._attach(outputs, edges, skip))
            machine.moved()
        else:
            self._attach(outputs, edges, self._non_differentiable)
        saved = self._to_save
        if saved:
            self._save(tuple([self._keep(t, args, outputs) for t in saved]))
        self._to_save = None
        self._input_meta = [
            (a._array.shape, a._dtype, id(a)) if isinstance(a, Tensor) else None for a in args
        ]

    def _loose(self) -> dict[str, Tensor]:
        """Intermediates that forward kept as attributes.

        Second derivatives through them would be as wrong as through saved ones.
        """
        inputs = {meta[2] for meta in self._input_meta if meta is not None}
        return {
            name: value
            for name, value in self.__dict__.items()
            if type(value) is Tensor
            and value._edge is None
            and value._dtype.is_floating_point
            and id(value) not in inputs
            and not among(value, self._non_differentiable)
        }

    def _keep(self, tensor: Tensor | None, args: tuple, outputs: list) -> Any:
        if tensor is None:
            return None
        for index, output in enumerate(outputs):
            if tensor is output or (
                isinstance(output, Tensor)
                and output._array is tensor._array
                and not among(tensor, args)
            ):
                tracked = output._edge is not None
                return SavedOutput(output, index if tracked else -1)
        if among(tensor, args) or tensor._edge is not None:
            return tensor
        if not tensor._dtype.is_floating_point or among(tensor, self._non_differentiable):
            return tensor
        return Intermediate(tensor)

    # -- backward --------------------------------------------------------------------------------

    def _run(self, grads: list[Any]) -> Sequence[Any]:
        """Call backward and check what it returns."""
        function = self._function
        if function.backward is Function.backward:
            raise NotImplementedError(
                f"{function.__name__}: you must implement the backward method of your custom "
                f"autograd.Function to use it with backward mode."
            )
        if self._materialize:
            grads = self._materialised(grads)
        for k, g in enumerate(grads):  # kernels of users are compiled for rows without gaps
            if g is not None and not g._flat:
                grads[k] = written_out(g)
        if grad_mode.enabled:
            kept = self._loose()
            try:
                for name, tensor in kept.items():
                    self.__dict__[name] = self._restore_intermediate(tensor)
                result = function.backward(self, *grads)
            finally:
                self.__dict__.update(kept)
        else:
            result = function.backward(self, *grads)
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        expected = self.num_inputs
        if len(results) != expected:
            if len(results) < expected or any([g is not None for g in results[expected:]]):
                raise GradError(
                    f"{name_of(self)}: function {function.__name__} returned an incorrect number "
                    f"of gradients (expected {expected}, got {len(results)}). Return one value per "
                    f"argument of forward, None where there is no gradient."
                )
            del results[expected:]
        for i, grad in enumerate(results):
            if grad is not None:
                results[i] = self._checked(i, grad)
        return results

    def _checked(self, index: int, grad: Any) -> Any:
        meta = self._input_meta[index]
        if meta is None:
            raise GradError(
                f"{name_of(self)}: function {self._function.__name__} returned a gradient "
                f"different from None at position {index + 1}, but the corresponding forward input "
                f"was not a Tensor. Return None there."
            )
        if self._edges[index] is None:
            return None
        if not isinstance(grad, Tensor):
            raise TypeError(
                f"{name_of(self)}: expected a Tensor or None as gradient {index}, got "
                f"{type(grad).__name__}."
            )
        if grad._array.shape == meta[0] and grad._dtype is meta[1]:
            return grad
        return fit_gradient(grad, meta[0], meta[1], index, name_of(self))


def _shows(output: Tensor, args: tuple) -> bool:
    """Whether ``output`` is, or is a view of, an argument with a history."""
    base = output if output._base is None else output._base
    return base._edge is not None and any(
        [isinstance(a, Tensor) and (a is base or a._base is base) for a in args]
    )


def fit_gradient(grad: Tensor, shape: tuple, dtype: Any, index: int, name: str) -> Tensor:
    """``grad`` summed to ``shape`` and cast to ``dtype``; an error if it cannot be."""
    got = grad._array.shape
    if got != shape:
        missing = len(got) - len(shape)
        fits = missing >= 0 and all(n in (1, m) for n, m in zip(shape, got[missing:], strict=True))
        if not fits:
            raise ShapeError(
                f"{name}: Function returned an invalid gradient at index {index} - got "
                f"{list(got)} but expected shape compatible with {list(shape)}."
            )
        from ..ops.base import sum_to_shape

        grad = sum_to_shape(grad, shape)
    if grad._dtype is not dtype:
        if not grad._dtype.is_floating_point:
            raise DTypeError(
                f"{name}: the gradient at index {index} is {grad._dtype}; expected {dtype}."
            )
        grad = grad.to(dtype)
    return grad


class Function:
    """A differentiable operation: subclass it with static ``forward`` and ``backward``.

    ``forward(ctx, *args)`` computes the result; with ``setup_context(ctx, inputs, output)``
    defined, ``forward(*args)`` has no ctx. ``backward(ctx, *grad_outputs)`` returns one gradient
    (or None) per argument. Call it with ``Op.apply(...)``.

    >>> class Double(Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         return g * 2
    """

    _node_type: type[FunctionCtx]

    def __init__(self, *args: Any, **kwargs: Any):
        raise GradError(
            f"{type(self).__name__}: Functions hold no state and are not instantiated. Call "
            f"{type(self).__name__}.apply(...), with forward and backward static methods that "
            f"take ctx."
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the result; override it."""
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple, output: Any) -> None:
        """Fill ``ctx`` after a forward without ctx; override it."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: FunctionCtx, *grad_outputs: Any) -> Any:
        """Gradients of the arguments; override it."""
        raise NotImplementedError

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward and record it. Tensors among the arguments are tracked."""
        keywords: dict[str, Any] = {}
        separate = cls.setup_context is not Function.setup_context
        if kwargs or separate:  # setup_context sees the defaults too
            args, keywords = _bind(cls, args, kwargs, separate)
        node_type = cls.__dict__.get("_node_type")
        if node_type is None:
            node_type = _node_type_of(cls)
        ctx = _new(node_type)
        edges = tuple([a._edge if isinstance(a, Tensor) else None for a in args])
        ctx.num_inputs = len(args)
        ctx._needs = tuple([e is not None for e in edges])
        recording = grad_mode.enabled
        if recording:
            grad_mode.enabled = False
        try:
            if separate:
                result = cls.forward(*args, **keywords)
                cls.setup_context(ctx, args, result)
            else:
                result = cls.forward(ctx, *args, **keywords)
        finally:
            grad_mode.enabled = recording
        return ctx._finish(args, edges, result, recording and True in ctx._needs)


def _node_type_of(cls: type[Function]) -> type[FunctionCtx]:
    cls._node_type = type(f"{cls.__name__}Backward", (FunctionCtx,), {"_function": cls})
    return cls._node_type


_signature = functools.cache(inspect.signature)


def _bind(cls: type[Function], args: tuple, kwargs: dict, separate: bool) -> tuple[tuple, dict]:
    """Arguments given by keyword or left to their default, put at their position."""
    bound = _signature(cls.forward).bind(*([] if separate else [None]), *args, **kwargs)
    bound.apply_defaults()
    for name, value in bound.kwargs.items():
        if isinstance(value, Tensor) and value.requires_grad:
            raise TypeError(
                f"{cls.__name__}: the keyword-only argument {name} is a Tensor that requires "
                f"grad; only positional parameters are tracked."
            )
    return bound.args if separate else bound.args[1:], bound.kwargs


def once_differentiable(backward: Callable) -> Callable:
    """Decorator of a ``backward`` made of code that is not recorded: no second derivative."""

    @functools.wraps(backward)
    def wrapper(ctx: FunctionCtx, *grads: Any) -> Any:
        recording = grad_mode.enabled
        grad_mode.enabled = False
        try:
            results = backward(ctx, *grads)
        finally:
            grad_mode.enabled = recording
        tracked = [g for g in grads if isinstance(g, Tensor) and g._edge is not None]
        if not recording or not (tracked or any(ctx.needs_input_grad)):
            return results
        refusal = _Refusal(
            f"{name_of(ctx)}: trying to differentiate twice a function that was marked with "
            f"@once_differentiable.",
            tuple(g._edge for g in tracked) + ctx._edges,
            "OnceDifferentiable",
        )
        many = isinstance(results, tuple)
        refused = []
        for result in results if many else (results,):
            if isinstance(result, Tensor) and result._dtype.is_floating_point:
                result = result._bare_alias()
                result._edge = refusal
            refused.append(result)
        return tuple(refused) if many else refused[0]

    return wrapper
