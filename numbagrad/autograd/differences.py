"""Check a gradient against central differences; start reading at ``gradcheck``.

Everything here uses the public interface only: ``autograd.grad``, ``Function`` and tensors.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import dtypes as dt
from ..errors import GradcheckError, ShapeError
from ..tape import name_of
from ..tensor import Tensor
from .function import Function
from .jacobians import Problem, as_gradient, as_tuple, differentiable
from .modes import enable_grad
from .passes import grad

__all__ = ["gradcheck", "gradgradcheck"]

SEED = 20240229  # of the directions of fast_mode and of gradgradcheck's gradients: runs repeat


@dataclass(frozen=True)
class _Settings:
    """What the caller allows; the names are gradcheck's."""

    eps: float
    atol: float
    rtol: float
    nondet_tol: float
    check_undefined_grad: bool


@dataclass(frozen=True)
class _Pair:
    """Which Jacobian is being compared, for the report."""

    op: str
    output: int
    input: int

    def __str__(self) -> str:
        return f"output {self.output} with respect to input {self.input} of {self.op}"


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    fast_mode: bool = False,
) -> bool:
    """True if the gradients of ``func`` agree with central differences, in every element.

    func: takes ``inputs``, returns a Tensor or a tuple of them; ``Op.apply`` will do.
    inputs: a Tensor or a tuple; those that require a gradient are checked and should be float64.
    eps: the step. An element passes if ``|analytical - numerical| <= atol + rtol * |numerical|``.
    nondet_tol: how much two backward passes over the same graph may differ.
    check_undefined_grad: outputs that nobody uses must act as outputs with zero gradients.
    fast_mode: compare one random projection of each Jacobian instead of all of it.
    Raises GradcheckError with a report, or returns False under ``raise_exception=False``;
    ValueError if no input requires a gradient; ShapeError if one has a stride of 0.

    >>> import numbagrad as ng
    >>> ng.autograd.gradcheck(ng.tanh, ng.tensor([0.5, 2.0], dtype=ng.double, requires_grad=True))
    True
    """
    problem = _check_inputs("gradcheck", func, inputs)
    settings = _Settings(eps, atol, rtol, nondet_tol, check_undefined_grad)
    try:
        _check(problem, settings, fast_mode)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    fast_mode: bool = False,
) -> bool:
    """``gradcheck`` of the gradient of ``func``: checks second derivatives.

    grad_outputs: the gradients of the outputs, which are differentiated by too; by default random
    ones. Everything else is as in ``gradcheck``.

    >>> import numbagrad as ng
    >>> ng.autograd.gradgradcheck(ng.tanh, ng.tensor([0.5], dtype=ng.double, requires_grad=True))
    True
    """
    problem = _check_inputs("gradgradcheck", func, inputs)
    split = len(problem.inputs)
    incoming = _random_gradients(problem) if grad_outputs is None else as_tuple(grad_outputs)

    def gradient(*arguments: Any) -> tuple[Tensor, ...]:
        inner = Problem(func, arguments[:split], problem.positions)
        with enable_grad():
            outputs = [out for _, out in differentiable(inner.outputs())]
            found = grad(
                outputs, inner.variables, arguments[split:], create_graph=True, allow_unused=True
            )
        return tuple(g for g in found if g is not None)

    gradient.__name__ = f"gradient of {problem.name}"
    return gradcheck(
        gradient,
        problem.inputs + incoming,
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        fast_mode=fast_mode,
    )


# The inputs ------------------------------------------------------------------------------------


def _check_inputs(caller: str, func: Callable[..., Any], inputs: Any) -> Problem:
    inputs = as_tuple(inputs)
    positions = tuple(i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad)
    if not positions:
        raise ValueError(
            f"{caller}: expects at least one input tensor to require gradient, but none of the "
            f"{len(inputs)} inputs does. Make one with requires_grad=True."
        )
    for i in positions:
        x = inputs[i]
        if x.numel() and any(
            step == 0 and size > 1 for step, size in zip(x.stride(), x.shape, strict=True)
        ):
            raise ShapeError(
                f"{caller}: input {i} has a dimension with stride 0 (shape {tuple(x.shape)}, "
                f"strides {x.stride()}): several of its elements are one number in memory, so "
                f"they cannot be changed one at a time. Pass input.contiguous() instead."
            )
        if x.dtype is not dt.float64:
            warnings.warn(
                f"{caller}: input {i} requires gradient and is {x.dtype}, not double precision; "
                f"differences with steps of eps will likely be too coarse. Use .double().",
                stacklevel=3,
            )
    return Problem(func, inputs, positions)


def _random_gradients(problem: Problem) -> tuple[Tensor, ...]:
    """One gradient in [0.5, 1.5) for each differentiable output, itself requiring a gradient."""
    generator = np.random.default_rng(SEED)
    return tuple(
        as_gradient(generator.random(tuple(out.shape)) + 0.5, out).requires_grad_()
        for _, out in differentiable(problem.outputs())
    )


# The checks ------------------------------------------------------------------------------------


def _check(problem: Problem, settings: _Settings, fast_mode: bool) -> None:
    outputs = differentiable(problem.outputs())
    if not outputs:
        _check_constant(problem, settings)
    elif fast_mode:
        _check_projections(problem, outputs, settings)
    else:
        _check_jacobians(problem, outputs, settings)
    _check_zero_gradients(problem, outputs)
    if settings.check_undefined_grad:
        _check_undefined(problem, len(outputs))


def _pair(problem: Problem, index: int, out: Tensor, position: int) -> _Pair:
    node = f" ({name_of(out.grad_fn)})" if out.grad_fn is not None else ""
    return _Pair(problem.name + node, index, position)


def _check_constant(problem: Problem, settings: _Settings) -> None:
    """No output requires a gradient, so the differences must say zero."""
    outputs = problem.outputs()
    for position in problem.positions:
        for index, jacobian in problem.numerical(position, settings.eps).items():
            out = outputs[index]
            if out.dtype.is_floating_point:
                pair = _pair(problem, index, out, position)
                shapes = (problem.inputs[position].shape, out.shape)
                _compare(pair, np.zeros_like(jacobian), jacobian, shapes, settings)


def _check_jacobians(
    problem: Problem, outputs: list[tuple[int, Tensor]], settings: _Settings
) -> None:
    numerical = {i: problem.numerical(i, settings.eps) for i in problem.positions}
    for index, out in outputs:
        analytical = problem.analytical(out)
        again = problem.analytical(out)
        for position, first, second in zip(problem.positions, analytical, again, strict=True):
            pair = _pair(problem, index, out, position)
            shapes = (problem.inputs[position].shape, out.shape)
            _compare(pair, first, numerical[position][index], shapes, settings)
            _check_repeats(pair, first, second, settings)


def _check_projections(
    problem: Problem, outputs: list[tuple[int, Tensor]], settings: _Settings
) -> None:
    """Compare ``u . J v`` for one random ``u`` of each input and ``v`` of each output.

    A projection sums many elements, so the absolute tolerance grows by the weights it sums.
    """
    generator = np.random.default_rng(SEED)
    directions = {i: generator.random(tuple(problem.inputs[i].shape)) for i in problem.positions}
    slopes = {
        i: problem.directional(i, settings.eps * u, settings.eps) for i, u in directions.items()
    }
    for index, out in outputs:
        v = generator.random(tuple(out.shape))
        incoming = as_gradient(v, out)
        analytical = problem.gradients(out, incoming)
        again = problem.gradients(out, incoming)
        for position, first, second in zip(problem.positions, analytical, again, strict=True):
            pair = _pair(problem, index, out, position)
            u = directions[position]
            found, measured = (first * u).sum(), (slopes[position][index] * v).sum()
            allowed = settings.atol * u.sum() * v.sum() + settings.rtol * abs(measured)
            if not abs(found - measured) <= allowed:
                raise GradcheckError(
                    _locate(problem, pair, out, settings)
                    or f"gradcheck: {pair}: a random projection of the Jacobian is {found:.9g} "
                    f"analytically and {measured:.9g} numerically, which is more than "
                    f"{allowed:.3g} apart (eps={settings.eps:g}, atol={settings.atol:g}, "
                    f"rtol={settings.rtol:g})."
                )
            _check_repeats(pair, first, second, settings)


def _locate(problem: Problem, pair: _Pair, out: Tensor, settings: _Settings) -> str:
    """The report of the full check, after a projection has said that something is wrong."""
    analytical = problem.analytical(out)[problem.positions.index(pair.input)]
    numerical = problem.numerical(pair.input, settings.eps)[pair.output]
    try:
        shapes = (problem.inputs[pair.input].shape, out.shape)
        _compare(pair, analytical, numerical, shapes, settings)
    except GradcheckError as error:
        return str(error)
    return ""


def _check_repeats(pair: _Pair, first: np.ndarray, second: np.ndarray, settings: _Settings) -> None:
    apart = float(np.abs(first - second).max(initial=0.0))
    if not apart <= settings.nondet_tol:
        raise GradcheckError(
            f"gradcheck: {pair}: backward is not reentrant: two passes over the same graph differ "
            f"by {apart:.3g}, more than nondet_tol={settings.nondet_tol:g}."
        )


def _check_zero_gradients(problem: Problem, outputs: list[tuple[int, Tensor]]) -> None:
    """A gradient is linear in the incoming one, so zeros give zeros."""
    for index, out in outputs:
        zeros = as_gradient(np.zeros(tuple(out.shape)), out)
        found = problem.gradients(out, zeros)
        for position, gradient in zip(problem.positions, found, strict=True):
            if gradient.any():
                raise GradcheckError(
                    f"gradcheck: {_pair(problem, index, out, position)}: backward is not "
                    f"multiplied by grad_output: zeros give {np.abs(gradient).max():.9g}."
                )


class _Undefined(Function):
    """The tensor itself, whose gradient never arrives."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> None:
        return None


def _check_undefined(problem: Problem, count: int) -> None:
    """An output whose gradient is None acts like one whose gradient is zeros."""
    for missing in range(count):
        outputs = [out for _, out in differentiable(problem.outputs())]
        ones = [as_gradient(np.ones(tuple(out.shape)), out) for out in outputs]
        zeros = as_gradient(np.zeros(tuple(outputs[missing].shape)), outputs[missing])
        expected = problem.gradients(outputs, [*ones[:missing], zeros, *ones[missing + 1 :]])
        outputs[missing] = _Undefined.apply(outputs[missing])
        where = f"where the gradient of its differentiable output {missing} is undefined (None)"
        remedy = "Treat None as zeros, or pass check_undefined_grad=False."
        try:
            found = problem.gradients(outputs, ones)
        except Exception as error:
            raise GradcheckError(
                f"gradcheck: {problem.name}: backward fails with {type(error).__name__} {where}: "
                f"{error}. {remedy}"
            ) from error
        for position, a, b in zip(problem.positions, found, expected, strict=True):
            # Not to the last bit: a product is added to zeros by other sums than one to nothing.
            size = np.abs(b[np.isfinite(b)]).max(initial=0)
            if not np.allclose(a, b, rtol=1e-6, atol=1e-6 * size, equal_nan=True):
                raise GradcheckError(
                    f"gradcheck: {problem.name}: backward gives another gradient of input "
                    f"{position} {where} than where it is zeros. {remedy}"
                )


def _compare(
    pair: _Pair,
    analytical: np.ndarray,
    numerical: np.ndarray,
    shapes: tuple[Sequence[int], Sequence[int]],
    settings: _Settings,
) -> None:
    """Raise GradcheckError with the worst element unless the Jacobians agree."""
    apart = np.abs(analytical - numerical)
    allowed = settings.atol + settings.rtol * np.abs(numerical)
    wrong = ~(apart <= allowed)  # NaN agrees with nothing
    if not wrong.any():
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.nan_to_num(apart / allowed, nan=np.inf)
    worst = np.unravel_index(int(np.argmax(np.where(wrong, excess, -1.0))), apart.shape)
    at = [
        f"[{', '.join(str(int(i)) for i in np.unravel_index(flat, tuple(shape)))}]"
        for flat, shape in zip(worst, shapes, strict=True)
    ]
    raise GradcheckError(
        f"gradcheck: Jacobian mismatch for {pair}.\n"
        f"  worst element: output{at[1]} by input{at[0]}\n"
        f"  analytical: {analytical[worst]:.9g}\n"
        f"  numerical: {numerical[worst]:.9g} (central difference, eps={settings.eps:g})\n"
        f"  difference: {apart[worst]:.3g}, allowed {allowed[worst]:.3g} "
        f"(atol={settings.atol:g} + rtol={settings.rtol:g} * |numerical|)\n"
        f"  {int(wrong.sum())} of {wrong.size} elements disagree"
    )
