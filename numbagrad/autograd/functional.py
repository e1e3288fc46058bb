"""Derivatives of plain functions: jacobian, hessian, and their products with vectors.

Each takes a function of tensors and a tensor or a tuple of them, and answers in the same form. The
inputs' own history is not touched unless ``create_graph`` asks for it. Start reading at ``_Call``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import GradError, ShapeError
from ..tensor import Tensor
from .modes import enable_grad
from .passes import grad

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


class _Call:
    """One call of a function, recorded, and what its arguments and results looked like."""

    def __init__(
        self, name: str, func: Callable, inputs: Any, create_graph: bool, strict: bool = False
    ):
        self.name, self.create_graph, self.strict = name, create_graph, strict
        self.single_in = isinstance(inputs, Tensor)
        given = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
        for position, x in enumerate(given):
            if not isinstance(x, Tensor):
                raise TypeError(
                    f"{name}: the inputs must be Tensors, but number {position} is "
                    f"{type(x).__name__}."
                )
        self.inputs = tuple([self._alias(x) for x in given])
        found: Any = func(*self.inputs)
        self.single_out = isinstance(found, Tensor)
        if not isinstance(found, (Tensor, tuple, list)):
            raise TypeError(
                f"{name}: func must return a Tensor or a tuple of Tensors, not "
                f"{type(found).__name__}."
            )
        self.outputs: tuple[Tensor, ...] = (
            tuple(found) if isinstance(found, (tuple, list)) else (found,)
        )
        for position, out in enumerate(self.outputs):
            if not isinstance(out, Tensor):
                raise TypeError(
                    f"{name}: func must return Tensors, but result {position} is "
                    f"{type(out).__name__}."
                )

    def _alias(self, x: Tensor) -> Tensor:
        if self.create_graph and x.requires_grad:
            return x.view_as(x)
        return x.detach().requires_grad_()

    def scalar(self) -> Tensor:
        """The only result, of one element."""
        (out,) = self.outputs if len(self.outputs) == 1 else (None,)
        if out is None or out.numel() != 1:
            shapes = [list(o.shape) for o in self.outputs]
            raise ShapeError(
                f"{self.name}: The Tensor returned by the function should contain a single "
                f"element, got shapes {shapes}. Sum it, or use jacobian."
            )
        return out.reshape(())

    def gradients(self, outs: Any, by: Any, incoming: Any, again: bool = False) -> list[Tensor]:
        """Gradients of outs, zeros where they do not depend on an input."""
        pairs = [(o, g) for o, g in zip(outs, incoming, strict=True) if o.requires_grad]
        found: Any = [None] * len(by)
        if pairs:
            found = grad(
                [o for o, _ in pairs],
                by,
                [g for _, g in pairs],
                retain_graph=True,
                create_graph=again or self.create_graph,
                allow_unused=True,
            )
        for position, g in enumerate(found):
            if g is None and self.strict:
                raise GradError(
                    f"{self.name}: Output of the user-provided function is independent of input "
                    f"{position}. This is not allowed in strict mode."
                )
            if self.strict and self.create_graph and not again and not g.requires_grad:
                raise GradError(
                    f"{self.name}: The jacobian of the user-provided function is independent of "
                    f"input {position}. This is not allowed in strict mode when create_graph=True."
                )
        return [x.new_zeros(x.shape) if g is None else g for x, g in zip(by, found, strict=True)]

    def vectors(self, v: Any, like: tuple[Tensor, ...], what: str) -> list[Tensor]:
        """``v`` as one tensor for each of ``like``, checked."""
        if v is None:
            if len(like) != 1 or like[0].numel() != 1:
                raise ShapeError(
                    f"{self.name}: The vector v can only be None if the user-provided function's "
                    f"{what} is a single Tensor with a single element."
                )
            return [like[0].new_ones(like[0].shape)]
        given = [v] if isinstance(v, Tensor) else list(v)
        if [tuple(g.shape) for g in given] != [tuple(x.shape) for x in like]:
            raise ShapeError(
                f"{self.name}: v has invalid size: should be {[list(x.shape) for x in like]} as "
                f"the {what}, but got {[list(g.shape) for g in given]}."
            )
        return given

    def results(self) -> Any:
        """What the function returned, without history unless that was asked for."""
        outs = self.outputs if self.create_graph else tuple(o.detach() for o in self.outputs)
        return outs[0] if self.single_out else outs

    def as_inputs(self, values: list[Tensor]) -> Any:
        """One value per input, in the form of the inputs."""
        return values[0] if self.single_in else tuple(values)


def _unit_rows(out: Tensor) -> list[Tensor]:
    """For each element of ``out`` the tensor of its shape that is 1 there, else 0."""
    from ..ops.create import eye

    rows = eye(out.numel(), dtype=out.dtype)
    return [rows[i].reshape(out.shape) for i in range(out.numel())]


def _check_strategy(name: str, strategy: str) -> None:
    if strategy not in ("forward-mode", "reverse-mode"):
        raise ValueError(
            f'{name}: Expected strategy to be either "forward-mode" or "reverse-mode", got '
            f"{strategy!r}."
        )


def jacobian(
    func: Callable,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """All partial derivatives of func at inputs: ``J[i][j]`` of output i by input j.

    The shape of each is the output's followed by the input's. Without a tuple of outputs or of
    inputs there is no index for it. One backward pass for each element of the outputs.
    create_graph: the result can be differentiated. strict: an output that depends on no input is
    an error, not zeros. vectorize and strategy are accepted for PyTorch's sake.

    >>> import numbagrad as ng
    >>> jacobian(lambda x: x * x, ng.tensor([1.0, 3.0])).tolist()
    [[2.0, 0.0], [0.0, 6.0]]
    """
    from ..ops.join import stack

    _check_strategy("jacobian", strategy)
    with enable_grad():
        call = _Call("jacobian", func, inputs, create_graph, strict)
        rows = []
        for out in call.outputs:
            found = [call.gradients([out], call.inputs, [unit]) for unit in _unit_rows(out)]
            parts = []
            for j, x in enumerate(call.inputs):
                shape = (*out.shape, *x.shape)
                each = [g[j] for g in found]
                parts.append(stack(each).reshape(shape) if each else x.new_zeros(shape))
            rows.append(call.as_inputs(parts))
    return rows[0] if call.single_out else tuple(rows)


def hessian(
    func: Callable,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function with one element: ``H[i][j]`` by inputs i and j.

    The shape of each is that of input i followed by that of j; for a single tensor there is no
    index.

    >>> import numbagrad as ng
    >>> hessian(lambda x: (x * x * x).sum(), ng.tensor([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    _check_strategy("hessian", outer_jacobian_strategy)
    single = isinstance(inputs, Tensor)

    def slopes(*xs: Tensor) -> tuple[Tensor, ...]:
        call = _Call("hessian", func, xs, True, strict)
        out = call.scalar()
        return tuple(call.gradients([out], call.inputs, [out.new_ones(())], again=True))

    found = jacobian(slopes, (inputs,) if single else tuple(inputs), create_graph, strict)
    return found[0][0] if single else found


def vjp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """``func(*inputs)`` and v times its Jacobian; v is shaped as the outputs.

    >>> import numbagrad as ng
    >>> vjp(lambda x: x * x, ng.tensor([1.0, 3.0]), ng.tensor([1.0, 10.0]))[1].tolist()
    [2.0, 60.0]
    """
    with enable_grad():
        call = _Call("vjp", func, inputs, create_graph, strict)
        v = call.vectors(v, call.outputs, "output")
        found = call.gradients(call.outputs, call.inputs, v)
    return call.results(), call.as_inputs(found)


def jvp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """``func(*inputs)`` and its Jacobian times v; v is shaped as the inputs.

    The vector-Jacobian product is linear in its vector; its gradient by that is the answer.

    >>> import numbagrad as ng
    >>> jvp(lambda x: x * x, ng.tensor([1.0, 3.0]), ng.tensor([1.0, 10.0]))[1].tolist()
    [2.0, 60.0]
    """
    with enable_grad():
        call = _Call("jvp", func, inputs, create_graph, strict)
        v = call.vectors(v, call.inputs, "input")
        probes = [o.new_zeros(o.shape).requires_grad_() for o in call.outputs]
        found = call.gradients(call.outputs, call.inputs, probes, again=True)
        moved = call.gradients(found, probes, v)
    return call.results(), moved[0] if call.single_out else tuple(moved)


def hvp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """``func(*inputs)``, of one element, and its Hessian times v; v is shaped as the inputs.

    >>> import numbagrad as ng
    >>> hvp(lambda x: (x * x * x).sum(), ng.tensor([1.0, 2.0]), ng.tensor([1.0, 1.0]))[1].tolist()
    [6.0, 12.0]
    """
    with enable_grad():
        call = _Call("hvp", func, inputs, create_graph, strict)
        out = call.scalar()
        v = call.vectors(v, call.inputs, "input")
        slopes = call.gradients([out], call.inputs, [out.new_ones(())], again=True)
        found = call.gradients(slopes, call.inputs, v)
    return call.results(), call.as_inputs(found)


vhp = hvp
"""A Hessian is symmetric: v times it is the same."""
