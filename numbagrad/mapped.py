"""``vmap``: a function of one sample becomes one of a batch.

The function is run for each element, so it may do whatever Python may: branch on values, loop, draw
numbers. PyTorch's runs it once on hidden batches, which is quicker op by op, and refuses what looks
at values. Given to ``ng.compile`` the elements become a native loop over one piece of code, without
Python between them. Start reading at ``vmap``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from .errors import DimError, ShapeError
from .kernels import machine
from .ops.comparison import equal
from .ops.join import stack
from .random import drawing
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
    element draw its own numbers, "same" lets all draw those of the first. chunk_size: accepted; one
    element is run at a time.

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

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves: list[Any] = []
        spec = flatten(args, leaves)
        dims = _dims(spec, in_dims, "in_dims", "arguments")
        size, parts = _split(leaves, dims)

        def call(element: int) -> Any:
            chosen = [x if p is None else p[element] for x, p in zip(leaves, parts, strict=True)]
            return func(*rebuild(spec, chosen), **kwargs)

        results = _results(call, max(size, 1), randomness)
        return _stacked(results, size, out_dims)

    return mapped


def _dims(spec: Any, dims: Any, name: str, of: str) -> list[int | None]:
    """One of ``dims`` for each leaf of ``spec``, what ``flatten`` told of the form."""
    if dims is None or (isinstance(dims, int) and not isinstance(dims, bool)):
        return [dims] * _leaves(spec)
    wanted = list(children(spec))
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
    pairs = zip(found, wanted, strict=True)
    return [d for each, (_, part) in pairs for d in _dims(part, each, name, of)]


def _leaves(spec: Any) -> int:
    return 1 if spec == LEAF else sum(_leaves(part) for _, part in children(spec))


def _shown(spec: Any) -> str:
    if spec == LEAF:
        return "*"
    if spec[0] == "dict" or type(spec[0]) is tuple:
        return "{" + ", ".join(f"{key!r}: {_shown(part)}" for key, part in spec[1]) + "}"
    inner = ", ".join(_shown(part) for part in spec[1])
    return f"[{inner}]" if spec[0] == "list" else f"({inner})"


def _split(leaves: list[Any], dims: list[int | None]) -> tuple[int, list[Any]]:
    """How many elements there are, and those of each argument, None where it is not mapped."""
    sizes: list[int] = []
    parts: list[Any] = []
    for x, dim in zip(leaves, dims, strict=True):
        if dim is None:
            parts.append(None)
            continue
        if not isinstance(x, Tensor):
            raise ValueError(
                f"vmap: in_dim is {dim} for a {type(x).__name__}; only tensors have dimensions, "
                f"give None for it."
            )
        if not -x.ndim <= dim < x.ndim:
            raise DimError(
                f"vmap: in_dim {dim} is out of range for a tensor of shape {list(x.shape)}."
            )
        sizes.append(x.shape[dim])
        shape = [n for k, n in enumerate(x.shape) if k != dim % x.ndim]
        parts.append(x.unbind(dim) if x.shape[dim] else (x.new_zeros(shape),))
    if not sizes:
        raise ValueError("vmap: no argument is mapped; give tensors, and in_dims for one of them.")
    if len(set(sizes)) > 1:
        raise ShapeError(f"vmap: the mapped dimensions have different sizes, {sizes}.")
    return sizes[0], parts


def _results(call: Callable[[int], Any], count: int, randomness: str) -> list[Any]:
    """What the function gives for each element."""
    same = _Same() if randomness == "same" else None
    rule = _refuse if randomness == "error" else same
    results = []
    for element in range(count):
        if same is not None:
            same.begin()
        try:
            with drawing(rule):
                results.append(call(element))
        except Exception as error:
            error.add_note(f"vmap: this came at element {element}.")
            raise
    return results


def _refuse(take: Callable[[int], Any], generator: Any, counters: int) -> Any:
    raise RuntimeError(
        "vmap: a random operation was called; say with randomness='different' or 'same' whether "
        "the elements draw numbers of their own, or draw before."
    )


class _Same:
    """Gives each element the draws of the first."""

    def __init__(self) -> None:
        self.taken: dict[tuple[Any, int], Any] = {}
        self.counts: dict[Any, int] = {}

    def begin(self) -> None:
        """Another element begins."""
        self.counts.clear()

    def __call__(self, take: Callable[[int], Any], generator: Any, counters: int) -> Any:
        number = self.counts.get(generator, 0)
        self.counts[generator] = number + 1
        key = generator, number
        if key not in self.taken:
            self.taken[key] = take(counters)
        return self.taken[key]


def _stacked(results: list[Any], size: int, out_dims: Any) -> Any:
    """The results of all elements, one dimension more each."""
    columns: list[list[Any]] = []
    spec: Any = None
    for element, result in enumerate(results):
        leaves: list[Any] = []
        form = flatten(result, leaves)
        if element and form != spec:
            raise ValueError(
                f"vmap: the function returns {_shown(spec)} for element 0 and {_shown(form)} for "
                f"element {element}."
            )
        spec = form
        columns = columns or [[] for _ in leaves]
        for column, leaf in zip(columns, leaves, strict=True):
            column.append(leaf)
    dims = _dims(spec, out_dims, "out_dims", "results")
    pairs = zip(columns, dims, strict=True)
    return rebuild(spec, [_one(column, size, dim) for column, dim in pairs])


def _one(column: list[Any], size: int, dim: int | None) -> Any:
    first = column[0]
    if dim is None:
        if not machine.is_recording() and any(not _alike(x, first) for x in column):
            raise ValueError(
                "vmap: out_dims is None for a result that differs from element to element."
            )
        return first
    for element, x in enumerate(column):
        if not isinstance(x, Tensor):
            raise ValueError(
                f"vmap: the function must return tensors, or lists, tuples and dicts of them, but "
                f"there is a {type(x).__name__}; give out_dims=None for it."
            )
        if x.shape != first.shape:
            raise ShapeError(
                f"vmap: a result has shape {list(first.shape)} for element 0 and {list(x.shape)} "
                f"for element {element}."
            )
    if not -first.ndim - 1 <= dim <= first.ndim:
        raise DimError(
            f"vmap: out_dim {dim} is out of range for results of shape {list(first.shape)}."
        )
    if size:
        return stack(column, dim)
    shape = list(first.shape)
    shape.insert(dim if dim >= 0 else dim + first.ndim + 1, 0)
    return first.new_empty(shape)


def _alike(x: Any, y: Any) -> bool:
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        return x is y or (x.shape == y.shape and x.dtype is y.dtype and bool(equal(x, y)))
    return bool(x is y or x == y)
