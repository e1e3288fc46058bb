"""Backward from several tensors: ``backward`` adds to ``.grad``, ``grad`` returns gradients."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from ..errors import GradError, ShapeError, class_name
from ..graph_walk import run_backward
from ..tensor import Tensor, accumulate, root_of

__all__ = ["backward", "grad"]


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """``Tensor.backward`` of several tensors in one pass.

    tensors, grad_tensors: one or a sequence each; a gradient may be None for one element.
    grad_variables: the former name of ``grad_tensors``.

    >>> x = Tensor([2.0]).requires_grad_()
    >>> backward([x * 2.0, x * x])
    >>> x.grad.tolist()
    [6.0]
    """
    if grad_variables is not None:
        if grad_tensors is not None:
            raise GradError("backward: got both grad_tensors and its former name grad_variables.")
        warnings.warn("backward: grad_variables is deprecated; use grad_tensors.", stacklevel=2)
        grad_tensors = grad_variables
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    given = [grad_tensors] if isinstance(grad_tensors, Tensor) else grad_tensors
    given = [None] * len(tensors) if given is None else list(given)
    if len(given) != len(tensors):
        raise GradError(f"backward: got {len(tensors)} tensors and {len(given)} gradients.")
    roots = [root_of(t, g, "backward") for t, g in zip(tensors, given, strict=True)]
    accumulate(roots, retain_graph, create_graph, inputs)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> Any:
    """The gradients of the sum of ``outputs`` with respect to ``inputs``, a tuple of tensors.

    outputs, inputs, grad_outputs: one or a sequence each; inputs may be a dict, and the result is
    one then. retain_graph: keep saved tensors for another backward (default: ``create_graph``).
    create_graph: record the backward itself, for higher orders. allow_unused: None for inputs that
    were not used; materialize_grads: zeros. is_grads_batched: ``grad_outputs`` have a first
    dimension more, over which the results are stacked; a backward each. only_inputs has no effect.

    Raises GradError where nothing requires grad, an input was not used, or a graph was freed.

    >>> x = Tensor([2.0]).requires_grad_()
    >>> grad(x * x, x)[0].tolist()
    [4.0]
    """
    if not only_inputs:
        warnings.warn(
            "grad: only_inputs is deprecated and has no effect; backward() gives gradients to "
            "other parts of the graph.",
            FutureWarning,
            stacklevel=2,
        )
    if isinstance(inputs, dict):
        options = (retain_graph, create_graph, True, allow_unused, is_grads_batched)
        found = grad(outputs, list(inputs.values()), grad_outputs, *options, materialize_grads)
        return dict(zip(inputs, found, strict=True))
    outputs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    if not inputs:
        raise GradError("grad: inputs cannot be empty.")
    given: Iterable = grad_outputs if isinstance(grad_outputs, (tuple, list)) else [grad_outputs]
    given = list(given)
    if grad_outputs is None:
        given = [None] * len(outputs)
    if len(given) != len(outputs):
        raise GradError(f"grad: got {len(outputs)} tensors and {len(given)} gradients.")
    for tensor in inputs:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"grad: inputs must be Tensors, got {class_name(tensor)}.")
        if tensor._edge is None:
            raise GradError("grad: one of the differentiated Tensors does not require grad.")
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "grad: Expected allow_unused to be True or not passed when materialize_grads=True, but "
            "got: allow_unused=False."
        )
    keep = create_graph if retain_graph is None else retain_graph
    unused = (bool(allow_unused), materialize_grads)
    if is_grads_batched:
        return _stacked(outputs, inputs, given, keep, create_graph, *unused)
    roots = [root_of(o, g, "grad") for o, g in zip(outputs, given, strict=True)]
    return _one(roots, inputs, keep, create_graph, *unused)


def _one(
    roots: list[Any],
    inputs: list[Tensor],
    keep: bool,
    create_graph: bool,
    unused: bool,
    zeros: bool,
) -> tuple[Tensor | None, ...]:
    """One backward. unused: None may be a gradient; zeros: none is None."""
    found = run_backward(
        roots,
        retain_graph=keep,
        create_graph=create_graph,
        targets=[t._edge for t in inputs],
        accumulate=False,
    )
    assert found is not None
    if zeros:
        from ..ops.base import zeros_like

        found = [zeros_like(t) if g is None else g for t, g in zip(inputs, found, strict=True)]
    elif not unused and any([g is None for g in found]):
        raise GradError(
            "grad: one of the differentiated Tensors appears to not have been used in the graph. "
            "Set allow_unused=True if this is the desired behavior."
        )
    if not create_graph:  # an identity op hands the same object to several inputs
        found = [g if g is None or g._edge is None else g.detach() for g in found]
    return tuple(found)


def _stacked(
    outputs: list[Any],
    inputs: list[Tensor],
    given: list[Any],
    keep: bool,
    create_graph: bool,
    unused: bool,
    zeros: bool,
) -> tuple[Tensor | None, ...]:
    """A backward for each of the first dimension of the tensors in ``given``."""
    from ..ops.join import stack

    sizes = {g._array.shape[0] if g is not None and g._array.ndim else 0 for g in given}
    count = sizes.pop()
    if sizes or not count:
        raise ShapeError(
            "grad: with is_grads_batched each of grad_outputs has to be a tensor with one first "
            f"dimension more, of one size above 0, but got "
            f"{[None if g is None else list(g.shape) for g in given]}."
        )
    rows = []
    for k in range(count):
        roots = [root_of(o, g[k], "grad") for o, g in zip(outputs, given, strict=True)]
        last = k == count - 1
        rows.append(_one(roots, inputs, keep or not last, create_graph, unused, zeros))
    return tuple([None if r[0] is None else stack(r) for r in zip(*rows, strict=True)])
