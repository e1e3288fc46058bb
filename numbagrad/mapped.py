"""``vmap``: a function of one sample becomes one of a batch.

The function is run once, on tensors that stand for those of all elements (``batched``), so that an
op is one launch. PyTorch's refuses what looks at values; here a function that branches on them, or
does what has to be done element by element, is run for each. Start reading at ``vmap``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from .batched.draws import Rule, rule_of
from .batched.history import enter, leave
from .batched.memory import Apart
from .batched.verbs import Batch
from .errors import DimError, ShapeError
from .kernels import machine
from .kernels.traced_float import TracedFloat
from .ops.comparison import equal
from .ops.join import cat, stack
from .random import drawing
from .tape import grad_mode, next_sequence
from .tensor import Tensor
from .tree import LEAF, children, flatten, rebuild

__all__ = ["vmap"]

_RANDOMNESS = ("error", "different", "same")


def vmap(
    func: Callable,
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable:
    """A function that maps ``func`` over a dimension of its arguments and stacks the results.

    func: takes tensors without that dimension, or lists, tuples and dicts of them, and returns
    such. in_dims: the dimension, for all tensors or, in a tuple of the arguments' form, for each;
    None for what every call gets as it is. Keyword arguments are handed on as they are. out_dims:
    where the new dimension stands in results, likewise; None for what does not depend on the
    element, of which the first is returned.

    randomness: what random operations inside do: "error" raises RuntimeError, "different" lets each
    element draw its own numbers, "same" lets all draw those of the first; which numbers these are
    does not depend on how the function is run. chunk_size: how many elements are computed at once,
    by default all: fewer take less memory, and with 1 the function is run for each element, as it
    is where it looks at values or writes what differs into what was there before. What all
    elements share, such as a counter, is changed once by a function that is run once, and once for
    each element by one that is run for each.

    Raises ValueError where dims do not fit the arguments or results, or sizes differ, and DimError
    for a dim out of range. Errors of ``func`` say at which element they came.

    >>> from numbagrad import tensor
    >>> vmap(lambda x, y: (x * y).sum(), in_dims=(0, None))(
    ...     tensor([[1.0, 2.0], [3.0, 4.0]]), tensor([1.0, 10.0])
    ... )
    tensor([21., 43.])
    """
    if not callable(func):
        raise TypeError(f"vmap: expected a callable, got {type(func).__name__}.")
    if randomness not in _RANDOMNESS:
        raise ValueError(f"vmap: randomness is one of {_RANDOMNESS}, got {randomness!r}.")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size is None or greater than 0, got {chunk_size}.")
    if not isinstance(in_dims, (int, tuple, list)):
        raise ValueError(
            f"vmap: in_dims is an int or a tuple of the form of the arguments, got {in_dims!r}."
        )

    each: list[str] = []  # why the function is run for each element
    if chunk_size == 1:
        each.append("chunk_size is 1")

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves: list[Any] = []
        spec = flatten(args, leaves)
        dims = _dims(spec, in_dims, "in_dims", "arguments")
        size = _size(leaves, dims)
        rule = rule_of(randomness, size)

        def call(given: list[Any]) -> Any:
            return func(*rebuild(spec, given), **kwargs)

        def run(first: int, count: int) -> Any:
            some = leaves if count == size else _narrowed(leaves, dims, first, count)
            rule.begin(first)
            if count > 1 and not each and _may_be_batched(some):
                try:
                    return _batched(call, some, dims, count, rule, out_dims)
                except Apart as reason:
                    each.append(str(reason))
                except Exception:  # which element it comes from shows when they are run by turns
                    pass
            return _stacked(_results(call, some, dims, first, count, rule), count, out_dims)

        most = chunk_size or size
        if most >= size or each or machine.is_recording():
            return run(0, size)
        chunks = [run(first, min(most, size - first)) for first in range(0, size, most)]
        return _joined(chunks, most, out_dims)

    return mapped


def _dims(spec: Any, dims: Any, name: str, of: str) -> list[int | None]:
    """One of ``dims`` for each leaf of ``spec``, what ``flatten`` told of the form."""
    if dims is None or (isinstance(dims, int) and not isinstance(dims, bool)):
        return [dims] if spec == LEAF else [dims] * _leaves(spec)
    wanted = children(spec)
    found = None
    if isinstance(dims, Mapping) and spec != LEAF and set(dims) == {key for key, _ in wanted}:
        found = [dims[key] for key, _ in wanted]
    elif isinstance(dims, (tuple, list)) and [k for k, _ in wanted] == list(range(len(dims))):
        found = list(dims)
    if found is None or spec == LEAF:
        raise ValueError(
            f"vmap: {name} {dims!r} is not compatible with the structure of the {of}, "
            f"{_shown(spec)}; give an int, None, or the same structure of them."
        )
    every: list[int | None] = []
    for each, (_, part) in zip(found, wanted, strict=True):
        if part == LEAF and (each is None or type(each) is int):
            every.append(each)
        else:
            every += _dims(part, each, name, of)
    return every


def _leaves(spec: Any) -> int:
    return sum([1 if part == LEAF else _leaves(part) for _, part in children(spec)])


def _shown(spec: Any) -> str:
    if spec == LEAF:
        return "*"
    if spec[0] == "dict" or type(spec[0]) is tuple:
        return "{" + ", ".join(f"{key!r}: {_shown(part)}" for key, part in spec[1]) + "}"
    inner = ", ".join(_shown(part) for part in spec[1])
    return f"[{inner}]" if spec[0] == "list" else f"({inner})"


def _size(leaves: list[Any], dims: list[int | None]) -> int:
    """How many elements there are; ``dims`` become counted from the front."""
    sizes: list[int] = []
    for k, (x, dim) in enumerate(zip(leaves, dims, strict=True)):
        if dim is None:
            continue
        if not isinstance(x, Tensor):
            kind = "float" if type(x) is TracedFloat else type(x).__name__
            raise ValueError(
                f"vmap: in_dim is {dim} for a {kind}; only tensors have dimensions, give None for "
                f"it."
            )
        if not -x.ndim <= dim < x.ndim:
            raise DimError(
                f"vmap: in_dim {dim} is out of range for a tensor of shape {list(x.shape)}."
            )
        dims[k] = dim % x.ndim
        sizes.append(x.shape[dim])
    if not sizes:
        raise ValueError("vmap: no argument is mapped; give tensors, and in_dims for one of them.")
    if sizes.count(sizes[0]) < len(sizes):
        raise ShapeError(f"vmap: the mapped dimensions have different sizes, {sizes}.")
    return sizes[0]


def _narrowed(leaves: list[Any], dims: list[int | None], first: int, count: int) -> list[Any]:
    """The arguments of ``count`` elements."""
    pairs = zip(leaves, dims, strict=True)
    return [x if dim is None else x.narrow(dim, first, count) for x, dim in pairs]


def _parts(leaves: list[Any], dims: list[int | None]) -> list[Any]:
    """The elements of each argument, None where it is not mapped."""
    parts: list[Any] = []
    for x, dim in zip(leaves, dims, strict=True):
        if dim is None:
            parts.append(None)
            continue
        shape = [n for k, n in enumerate(x.shape) if k != dim]
        parts.append(x.unbind(dim) if x.shape[dim] else (x.new_zeros(shape),))
    return parts


def _may_be_batched(leaves: list[Any]) -> bool:
    """Whether the function may run once: on the host, with nothing that looks at each op."""
    watcher = grad_mode.anomaly
    if watcher is not None and watcher.looked_for != "time":  # what is bad has one element
        return False
    if machine.autocasting or grad_mode.saving is not None:
        return False
    return all(x._device.type == "cpu" for x in leaves if isinstance(x, Tensor))


def _batched(
    call: Callable[[list[Any]], Any],
    leaves: list[Any],
    dims: list[int | None],
    size: int,
    rule: Rule,
    out_dims: Any,
) -> Any:
    """The results of all elements from one run. Raises Apart where there has to be one for each.

    What fails leaves the arguments as they were.
    """
    batch, start = Batch(size), next_sequence()
    pairs = list(zip(leaves, dims, strict=True))
    given = [x if dim is None else enter(batch, x, dim) for x, dim in pairs]
    edges = [x._edge if isinstance(x, Tensor) else None for x in given]
    results: list[Any] = []
    try:
        with batch.standing(), drawing(functools.partial(rule.of_all, batch)):
            form = flatten(call(list(given)), results)
        for x, edge in zip(given, edges, strict=True):
            if isinstance(x, Tensor) and x._edge is not edge and not x.is_leaf:
                raise Apart("changing the history of an argument")
        found = _dims(form, out_dims, "out_dims", "results")
        moved = [k for k, dim in enumerate(found) if dim is not None]
        for k in moved:
            _check_result(results[k], found[k])
        tensors = leave(batch, [results[k] for k in moved], start)
        for k, tensor in zip(moved, tensors, strict=True):
            results[k] = tensor.movedim(0, found[k]).contiguous() if found[k] else tensor
        for k, dim in enumerate(found):
            if dim is None and isinstance(results[k], Tensor) and batch.knows(results[k]._array):
                if results[k]._edge is not None:
                    raise Apart("out_dims of None for what has a history")
                whole = leave(batch, [results[k]], start)[0]
                results[k] = _one(list(whole.unbind(0)), size, None).clone()
    except BaseException:
        batch.restore()
        raise
    finally:
        batch.forget()
    return rebuild(form, results)


def _results(
    call: Callable[[list[Any]], Any],
    leaves: list[Any],
    dims: list[int | None],
    first: int,
    count: int,
    rule: Rule,
) -> list[Any]:
    """What the function gives for ``count`` elements, in a mapping over all from the ``first`` on;
    for one of zeros if there is none."""
    parts = _parts(leaves, dims)
    results = []
    for element in range(max(count, 1)):
        rule.begin(first + element)
        given = [x if p is None else p[element] for x, p in zip(leaves, parts, strict=True)]
        try:
            with drawing(rule):
                results.append(call(given))
        except Exception as error:
            error.add_note(f"vmap: this came at element {first + element}.")
            raise
    return results


def _stacked(results: list[Any], size: int, out_dims: Any) -> Any:
    """The results of all elements, one dimension more each."""
    spec, columns = _columns(results, 1)
    dims = _dims(spec, out_dims, "out_dims", "results")
    pairs = zip(columns, dims, strict=True)
    return rebuild(spec, [_one(column, size, dim) for column, dim in pairs])


def _joined(chunks: list[Any], size: int, out_dims: Any) -> Any:
    """The results of runs of ``size`` elements as those of one."""
    spec, columns = _columns(chunks, size)
    dims = _dims(spec, out_dims, "out_dims", "results")
    pairs = zip(columns, dims, strict=True)
    return rebuild(spec, [_one(c, 0, None) if dim is None else cat(c, dim) for c, dim in pairs])


def _columns(results: list[Any], size: int) -> tuple[Any, list[list[Any]]]:
    """The form of results, one for each ``size`` elements, and of each leaf in it all there are."""
    columns: list[list[Any]] = []
    spec: Any = None
    for number, result in enumerate(results):
        leaves: list[Any] = []
        form = flatten(result, leaves)
        if number and form != spec:
            raise ValueError(
                f"vmap: the function returns {_shown(spec)} for element 0 and {_shown(form)} for "
                f"element {number * size}."
            )
        spec = form
        columns = columns or [[] for _ in leaves]
        for column, leaf in zip(columns, leaves, strict=True):
            column.append(leaf)
    return spec, columns


def _one(column: list[Any], size: int, dim: int | None) -> Any:
    first = column[0]
    if dim is None:
        if not machine.is_recording() and any(not _alike(x, first) for x in column):
            raise ValueError(
                "vmap: out_dims is None for a result that differs from element to element."
            )
        return first
    for element, x in enumerate(column):
        _check_result(x, dim)
        if x.shape != first.shape:
            raise ShapeError(
                f"vmap: a result has shape {list(first.shape)} for element 0 and {list(x.shape)} "
                f"for element {element}."
            )
    if size:
        return stack(column, dim)
    shape = list(first.shape)
    shape.insert(dim if dim >= 0 else dim + first.ndim + 1, 0)
    return first.new_empty(shape)


def _check_result(x: Any, dim: Any) -> None:
    if not isinstance(x, Tensor):
        raise ValueError(
            f"vmap: the function must return tensors, or lists, tuples and dicts of them, but "
            f"there is a {type(x).__name__}; give out_dims=None for it."
        )
    if not -x.ndim - 1 <= dim <= x.ndim:
        raise DimError(f"vmap: out_dim {dim} is out of range for results of shape {list(x.shape)}.")


def _alike(x: Any, y: Any) -> bool:
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        return x is y or (x.shape == y.shape and x.dtype is y.dtype and bool(equal(x, y)))
    return bool(x is y or x == y)
