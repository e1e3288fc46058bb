"""Functions made from functions: gradients, Jacobians and products with them, PyTorch's ``func``.

The results are functions of tensors, or of lists, tuples and dicts of them, and nest:
``grad(grad(f))``. All of it is reverse mode, run on the tape, and compiles with ``ng.compile``.
Start reading at ``_Call``.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .autograd.modes import enable_grad, is_grad_enabled
from .autograd.passes import grad as _grad
from .errors import DimError, GradError, ShapeError
from .mapped import vmap
from .nn.modules.batchnorm import _BatchNorm
from .nn.modules.module import Module
from .nn.utils.stateless import functional_call
from .ops.create import eye, zeros_like
from .ops.join import stack
from .tape import AccumulateGrad, Edge
from .tensor import Tensor
from .tree import flatten, rebuild

__all__ = [
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]


class _Level(threading.local):
    depth = 0


_level = _Level()
"""Per thread: how many of these functions are running, one inside the other."""


def _tensors(value: Any) -> list[Tensor]:
    leaves: list[Any] = []
    flatten(value, leaves)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


class _Call:
    """A call of ``func`` with arguments of which gradients can be taken."""

    def __init__(
        self, name: str, func: Callable, args: Sequence, kwargs: dict, which: Any, has_aux: bool
    ):
        self.name = name
        self.args = list(args)
        self.inputs: list[Tensor] = []
        self.specs = [self._lifted(k) for k in self._positions(which)]
        self.single = isinstance(which, int)
        _level.depth += 1
        try:
            with enable_grad():
                found = func(*self.args, **kwargs)
        finally:
            _level.depth -= 1
        self.aux = None
        if has_aux:
            if not (isinstance(found, tuple) and len(found) == 2):
                raise TypeError(
                    f"{name}: with has_aux=True the function must return a tuple of its output and "
                    f"anything else, got {type(found).__name__}."
                )
            found, self.aux = found
        self.outputs: list[Any] = []
        self.out_spec = flatten(found, self.outputs)
        for out in self.outputs:
            if not isinstance(out, Tensor):
                raise TypeError(
                    f"{name}: the function must return tensors, or lists, tuples and dicts of "
                    f"them, but there is a {type(out).__name__}. Return others with has_aux=True."
                )
        told = is_grad_enabled() and any([t.requires_grad for t in _tensors((args, kwargs))])
        self.tracked = told or _level.depth > 0 or (is_grad_enabled() and self._knows_others())

    def _positions(self, which: Any) -> Iterable[int]:
        count = len(self.args)
        for k in (which,) if isinstance(which, int) else which:
            if not -count <= k < count:
                raise DimError(
                    f"{self.name}: argnums {k} is out of range for {count} positional arguments."
                )
            yield k

    def _lifted(self, k: int) -> Any:
        """Let argument ``k`` be new tensors, whose gradients are asked for; its form."""
        leaves: list[Any] = []
        spec = flatten(self.args[k], leaves)
        fresh = []
        for x in leaves:
            if not isinstance(x, Tensor) or not x.dtype.is_floating_point:
                kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
                raise TypeError(
                    f"{self.name}: argument {k} must be floating tensors, or lists, tuples and "
                    f"dicts of them, but there is a {kind}. Choose others with argnums."
                )
            if x.requires_grad:
                fresh.append(x.view_as(x))
            else:
                fresh.append(x.detach().requires_grad_())
                fresh[-1]._edge.lifted = True
        self.inputs += fresh
        self.args[k] = rebuild(spec, list(fresh))
        return spec

    def _knows_others(self) -> bool:
        """Whether the outputs depend on leaves that are new tensors of no call."""
        met = {x._edge for x in self.inputs}
        todo = [fn for out in self.outputs if (fn := out.grad_fn) is not None]
        while todo:
            node = todo.pop()
            if node in met:
                continue
            if type(node) is AccumulateGrad:
                if not node.lifted:
                    return True
                continue
            met.add(node)
            for edge in node._edges:
                if edge is not None:
                    todo.append(edge.node if type(edge) is Edge else edge)
        return False

    def depends(self, out: Tensor) -> bool:
        """Whether an output depends on any of the inputs."""
        if not out.requires_grad:
            return False
        found = _grad([out], self.inputs, [zeros_like(out)], retain_graph=True, allow_unused=True)
        return any([g is not None for g in found])

    def gradients(self, outs: Any, incoming: Any) -> list[Tensor]:
        """Gradients of ``outs``, one for each input; zeros where they do not depend on one."""
        pairs = [(o, g) for o, g in zip(outs, incoming, strict=True) if o.requires_grad]
        found: Any = [None] * len(self.inputs)
        told = is_grad_enabled() and any([g is not None and g.requires_grad for _, g in pairs])
        if pairs:
            found = _grad(
                [o for o, _ in pairs],
                self.inputs,
                [g for _, g in pairs],
                retain_graph=True,
                create_graph=self.tracked or told,
                allow_unused=True,
            )
        return [
            x.new_zeros(x.shape) if g is None else g
            for x, g in zip(self.inputs, found, strict=True)
        ]

    def as_arguments(self, values: list[Tensor]) -> Any:
        """One value for each input, in the form of the chosen arguments."""
        values = list(values)
        found = [rebuild(spec, values) for spec in self.specs]
        return found[0] if self.single else tuple(found)

    def value(self) -> Any:
        """What the function returned, without history of the new tensors alone."""
        outs = self.outputs if self.tracked else [out.detach() for out in self.outputs]
        return rebuild(self.out_spec, list(outs))

    def shown(self) -> Any:
        """The rest of what the function returned, likewise."""
        if self.tracked:
            return self.aux
        leaves: list[Any] = []
        spec = flatten(self.aux, leaves)
        return rebuild(spec, [t.detach() if isinstance(t, Tensor) else t for t in leaves])

    def with_aux(self, found: Any, has_aux: bool) -> Any:
        """``found``, beside what else the function returned."""
        return (found, self.shown()) if has_aux else found


def grad_and_value(func: Callable, argnums: Any = 0, has_aux: bool = False) -> Callable:
    """A function that gives the gradient of ``func`` and its value.

    func: returns a tensor of one element; with has_aux a tuple of it and anything else, and the
    value is that tuple. argnums: a position, or a tuple of them, of arguments that are tensors or
    lists, tuples and dicts of them; the gradient has their form.

    >>> from numbagrad import tensor
    >>> grad_and_value(lambda x: (x**2).sum())(tensor([1.0, 2.0]))
    (tensor([2., 4.]), tensor(5.))
    """

    @functools.wraps(func)
    def derived(*args: Any, **kwargs: Any) -> Any:
        call = _Call("grad", func, args, kwargs, argnums, has_aux)
        if call.out_spec != "*" or call.outputs[0].numel() != 1:
            shapes = [list(out.shape) for out in call.outputs]
            raise GradError(
                f"grad: the function must return one tensor with a single element, got shapes "
                f"{shapes}. Sum it, or use jacrev."
            )
        out = call.outputs[0]
        found = call.gradients([out], [None])
        return call.as_arguments(found), call.with_aux(call.value(), has_aux)

    return derived


def grad(func: Callable, argnums: Any = 0, has_aux: bool = False) -> Callable:
    """A function that gives the gradient of ``func``; with has_aux beside what else it returned.

    Arguments as for ``grad_and_value``.

    >>> from numbagrad import tensor
    >>> grad(grad(lambda x: x**3))(tensor(2.0))
    tensor(12.)
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def derived(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return derived


def vjp(func: Callable, *primals: Any, has_aux: bool = False) -> tuple:
    """``func(*primals)`` and the function that takes a cotangent of it to those of the primals.

    The function may be called again; it gives a tuple for several primals. With has_aux what else
    ``func`` returned comes third.

    >>> from numbagrad import tensor
    >>> out, back = vjp(lambda x: x * 3, tensor([1.0, 2.0]))
    >>> back(tensor([1.0, 10.0]))[0].tolist()
    [3.0, 30.0]
    """
    call = _Call("vjp", func, primals, {}, tuple(range(len(primals))), has_aux)

    def back(cotangents: Any) -> tuple:
        given: list[Any] = []
        if flatten(cotangents, given) != call.out_spec or any(
            [g.shape != o.shape for g, o in zip(given, call.outputs, strict=True)]
        ):
            raise ShapeError(
                f"vjp: a cotangent must have the form and shapes of the output, "
                f"{[list(o.shape) for o in call.outputs]}, got "
                f"{[list(g.shape) for g in given if isinstance(g, Tensor)]}."
            )
        return call.as_arguments(call.gradients(call.outputs, given))

    return (call.value(), back, call.shown()) if has_aux else (call.value(), back)


def jvp(
    func: Callable,
    primals: tuple,
    tangents: tuple,
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> tuple:
    """``func(*primals)`` and its derivative along ``tangents``, tuples of tensors.

    By two backward passes: the gradient of a vector product by the vector. The tuples may hold
    lists, tuples and dicts of tensors; with has_aux what else ``func`` returned comes third.
    strict: raise GradError where an output does not depend on the primals; its derivative is zeros
    else.

    >>> from numbagrad import tensor
    >>> jvp(lambda x: x**2, (tensor([3.0]),), (tensor([1.0]),))[1].tolist()
    [6.0]
    """
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, tuple):
            raise TypeError(f"jvp: {name} must be a tuple of tensors, not {type(given).__name__}.")
    call = _Call("jvp", func, primals, {}, tuple(range(len(primals))), has_aux)
    if strict and not all(map(call.depends, call.outputs)):
        raise GradError(
            "jvp: an output of the function is independent of the inputs, which is not allowed "
            "with strict=True."
        )
    found = call.value(), _along(call)(*tangents)
    return (*found, call.shown()) if has_aux else found


def linearize(func: Callable, *primals: Any) -> tuple[Any, Callable]:
    """``func(*primals)``, and the function that takes tangents of the primals to that of it.

    The function of tangents runs no ``func``: its derivative at the primals is recorded once.

    >>> from numbagrad import tensor
    >>> out, along = linearize(lambda x: x**2, tensor([3.0, 4.0]))
    >>> along(tensor([1.0, 0.0])).tolist(), along(tensor([0.0, 1.0])).tolist()
    ([6.0, 0.0], [0.0, 8.0])
    """
    call = _Call("linearize", func, primals, {}, tuple(range(len(primals))), False)
    return call.value(), _along(call)


def _along(call: _Call) -> Callable:
    """The function that takes tangents of the inputs of ``call`` to those of its outputs."""
    outs = [out for out in call.outputs if out.requires_grad]
    probes = [zeros_like(out).requires_grad_() for out in outs]
    pulled: Any = []
    if outs:  # linear in the probes: the gradient by these is what is asked for
        options: Any = {"create_graph": True, "retain_graph": True, "allow_unused": True}
        with enable_grad():
            pulled = _grad(outs, call.inputs, probes, **options)

    def along(*tangents: Any) -> Any:
        given: list[Any] = []
        flatten(tangents, given)
        shapes = [list(x.shape) for x in call.inputs]
        if [list(t.shape) for t in given] != shapes:
            raise ShapeError(
                f"{call.name}: tangents must have the shapes of the primals, {shapes}, got "
                f"{[list(t.shape) for t in given]}."
            )
        both = zip(pulled, given, strict=False)
        pairs = [(g, t) for g, t in both if g is not None and g.requires_grad]
        told = is_grad_enabled() and any(t.requires_grad for t in given)
        ways: Any = {
            "create_graph": call.tracked or told,
            "retain_graph": True,
            "allow_unused": True,
        }
        moved: Any = [None] * len(probes)
        if pairs:
            moved = _grad([g for g, _ in pairs], probes, [t for _, t in pairs], **ways)
        found = iter(moved)
        leaves = [next(found) if out.requires_grad else None for out in call.outputs]
        shown = zip(leaves, call.outputs, strict=True)
        return rebuild(call.out_spec, [zeros_like(o) if m is None else m for m, o in shown])

    return along


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Let each BatchNorm in ``root`` go by the batch alone, in place; returns ``root``.

    Running statistics are written in place, which a function that ``vmap`` maps over models cannot.

    >>> replace_all_batch_norm_modules_(ng.nn.BatchNorm1d(2)).running_mean is None
    True
    """
    for module in root.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def jacrev(
    func: Callable, argnums: Any = 0, has_aux: bool = False, *, chunk_size: int | None = None
) -> Callable:
    """A function that gives the Jacobian of ``func``: (*shape of the output, *shape of the input).

    For each output, in the form of the output, in the form of the chosen arguments. One backward
    for all elements of the output, by ``vmap``, or for chunk_size of them at once. Other arguments
    as for ``grad_and_value``.

    >>> from numbagrad import tensor
    >>> jacrev(lambda x: x**2)(tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"jacrev: chunk_size is None or greater than 0, got {chunk_size}.")

    @functools.wraps(func)
    def derived(*args: Any, **kwargs: Any) -> Any:
        call = _Call("jacrev", func, args, kwargs, argnums, has_aux)
        found = []
        for out in call.outputs:
            units = eye(out.numel(), dtype=out.dtype, device=out.device)
            each = vmap(lambda unit, out=out: call.gradients([out], [unit]), chunk_size=chunk_size)
            rows = each(units.reshape(out.numel(), *out.shape))
            shaped = zip(rows, call.inputs, strict=True)
            found.append(call.as_arguments([r.reshape(*out.shape, *x.shape) for r, x in shaped]))
        return call.with_aux(rebuild(call.out_spec, found), has_aux)

    return derived


def jacfwd(
    func: Callable, argnums: Any = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable:
    """The Jacobian as ``jacrev`` gives it: there is no forward mode on the tape.

    randomness: accepted; ``func`` runs once, so that random numbers are the same in all columns.

    >>> from numbagrad import tensor
    >>> jacfwd(lambda x: x**2)(tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    return jacrev(func, argnums, has_aux)


def hessian(func: Callable, argnums: Any = 0) -> Callable:
    """A function that gives the second derivatives of ``func``, the Jacobian of its Jacobian.

    >>> from numbagrad import tensor
    >>> hessian(lambda x: (x**3).sum())(tensor([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    return jacrev(jacrev(func, argnums), argnums)


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Parameters and buffers of several equal modules, stacked along a new first dimension.

    The stacked parameters are leaves that require grad where those of the modules do.
    Raises ValueError for no modules, or modules of different classes or modes.
    """
    models = list(models)
    if not models:
        raise ValueError("stack_module_state: expected at least one model, got none.")
    kinds = {(type(m), m.training) for m in models}
    if len(kinds) > 1:
        raise ValueError(
            f"stack_module_state: expected models of one class, all in training or all in "
            f"evaluation, got {sorted(f'{k.__name__} (training={t})' for k, t in kinds)}."
        )
    parameters: dict[str, Tensor] = {}
    for name, first in models[0].named_parameters():
        rows = [m.get_parameter(name).detach() for m in models]
        parameters[name] = stack(rows).requires_grad_(first.requires_grad)
    tables = [dict(m.named_buffers()) for m in models]
    return parameters, {name: stack([t[name] for t in tables]) for name in tables[0]}
