"""Nested containers as lists of leaves and a description, by PyTorch's names.

Tuples, lists, dicts, ordered and default dicts, deques and named tuples are containers, and what
``register_pytree_node`` was told of; all else is a leaf, None too. ``ng.compile`` and ``vmap`` know
``tree.py`` instead, which takes objects apart. Start reading at ``tree_flatten``.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = [
    "LeafSpec",
    "TreeSpec",
    "register_pytree_node",
    "tree_all",
    "tree_all_only",
    "tree_any",
    "tree_any_only",
    "tree_flatten",
    "tree_iter",
    "tree_leaves",
    "tree_map",
    "tree_map_",
    "tree_map_only",
    "tree_structure",
    "tree_unflatten",
]

Kinds = type | tuple[type, ...]


@dataclass(frozen=True)
class TreeSpec:
    """What a container was, without its leaves. context: what its kind needs to be made again.

    type: None of a leaf. children_specs: of what it holds.
    """

    type: Any
    context: Any
    children_specs: tuple[TreeSpec, ...]

    @property
    def num_leaves(self) -> int:
        """How many leaves there are below."""
        return 1 if self.is_leaf() else sum([child.num_leaves for child in self.children_specs])

    @property
    def num_children(self) -> int:
        """How many values it holds itself."""
        return len(self.children_specs)

    def is_leaf(self) -> bool:
        """Whether it is no container."""
        return self.type is None

    def unflatten(self, leaves: Any) -> Any:
        """``tree_unflatten``."""
        return tree_unflatten(leaves, self)

    def __repr__(self) -> str:
        if self.is_leaf():
            return "*"
        inside = ", ".join(map(repr, self.children_specs))
        return f"TreeSpec({self.type.__name__}, {self.context}, [{inside}])"


def LeafSpec() -> TreeSpec:
    """What describes a leaf."""
    return _LEAF


_LEAF = TreeSpec(None, None, ())


def _keyed(make: Callable[[dict], Any]) -> tuple[Callable, Callable]:
    """How dicts come apart and together; make: the container from a dict."""
    return (
        lambda x: ([*x.values()], [*x]),
        lambda values, keys: make(dict(zip(keys, values, strict=True))),
    )


KINDS: dict[Any, tuple[Callable, Callable]] = {
    tuple: (lambda x: ([*x], None), lambda values, _: tuple(values)),
    list: (lambda x: (x, None), lambda values, _: [*values]),
    dict: _keyed(dict),
    OrderedDict: _keyed(OrderedDict),
    defaultdict: (
        lambda x: ([*x.values()], [x.default_factory, [*x]]),
        lambda values, how: defaultdict(how[0], zip(how[1], values, strict=True)),
    ),
    deque: (lambda x: ([*x], x.maxlen), lambda values, longest: deque(values, longest)),
}
"""Of each kind of container, what gives its values and context, and what makes it of them."""

_NAMED = lambda x: ([*x], type(x)), lambda values, kind: kind(*values)


def register_pytree_node(cls: type, flatten_fn: Callable, unflatten_fn: Callable, **_: Any) -> None:
    """Make ``cls`` a container. flatten_fn(x) gives a list of values and a context;
    unflatten_fn(values, context) the object. Other keywords of PyTorch's change nothing."""
    if cls in KINDS:
        raise ValueError(f"register_pytree_node: {cls} is already registered as pytree node.")
    KINDS[cls] = flatten_fn, unflatten_fn


def _found(x: Any) -> tuple[Callable, Callable] | None:
    """How ``x`` comes apart and together, None of a leaf."""
    known = KINDS.get(type(x))
    if known is None and isinstance(x, tuple) and hasattr(x, "_fields"):
        return _NAMED
    return known


def _flatten(tree: Any, leaves: list[Any], is_leaf: Callable[[Any], bool] | None) -> TreeSpec:
    how = None if is_leaf is not None and is_leaf(tree) else _found(tree)
    if how is None:
        leaves.append(tree)
        return _LEAF
    values, context = how[0](tree)
    kind = _named if how is _NAMED else type(tree)
    return TreeSpec(kind, context, tuple([_flatten(v, leaves, is_leaf) for v in values]))


class _named:
    """Stands in a description for all classes of named tuples; the context says which."""


def tree_flatten(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[Any], TreeSpec]:
    """The leaves of ``tree``, from left to right, and what ``tree_unflatten`` needs.

    is_leaf: says of a container that it is not to be taken apart.

    >>> tree_flatten({"a": 1, "b": (2, None)})
    ([1, 2, None], TreeSpec(dict, ['a', 'b'], [*, TreeSpec(tuple, None, [*, *])]))
    """
    leaves: list[Any] = []
    spec = _flatten(tree, leaves, is_leaf)
    return leaves, spec


def tree_unflatten(leaves: Any, treespec: TreeSpec) -> Any:
    """The containers of ``treespec`` with ``leaves`` in them. Raises ValueError for their number.

    >>> tree_unflatten([3, 4], tree_structure([1, (2,)]))
    [3, (4,)]
    """
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            f"tree_unflatten: expected a TreeSpec, got {type(treespec).__name__}. The leaves come "
            f"first."
        )
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(
            f"tree_unflatten: `leaves` has length {len(leaves)} but the spec refers to a pytree "
            f"that holds {treespec.num_leaves} items ({treespec})."
        )
    return _made(iter(leaves), treespec)


def _made(leaves: Iterator[Any], spec: TreeSpec) -> Any:
    if spec.is_leaf():
        return next(leaves)
    values = [_made(leaves, child) for child in spec.children_specs]
    _, make = _NAMED if spec.type is _named else KINDS[spec.type]
    return make(values, spec.context)


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of ``tree``.

    >>> tree_leaves([1, {"a": (2, 3)}])
    [1, 2, 3]
    """
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Iterator[Any]:
    """The leaves of ``tree``, one after the other."""
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """``tree`` without its leaves."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(
    func: Callable, tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """``tree`` with ``func`` of each leaf in its place. rests: trees of the same form, whose
    values there are further arguments. Raises ValueError where their form is another.

    >>> tree_map(lambda x, y: x + y, {"a": 1, "b": [2]}, {"a": 10, "b": [20]})
    {'a': 11, 'b': [22]}
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves, *[_down_to(spec, rest) for rest in rests]]
    return _made(iter([func(*row) for row in zip(*columns, strict=True)]), spec)


def _down_to(spec: TreeSpec, tree: Any) -> list[Any]:
    """What stands in ``tree`` where ``spec`` has leaves."""
    if spec.is_leaf():
        return [tree]
    how = _found(tree)
    values, _ = ([], None) if how is None else how[0](tree)
    kind = _named if how is _NAMED else type(tree)
    keyed = kind in (dict, OrderedDict, defaultdict)
    same = kind is spec.type or (keyed and spec.type in (dict, OrderedDict, defaultdict))
    if not same or len(values) != spec.num_children:
        raise ValueError(f"tree_map: expected a tree like {spec}, got {tree!r}.")
    if keyed:  # in the order of the first
        keys = spec.context[1] if spec.type is defaultdict else spec.context
        if set(keys) != set(tree):
            raise ValueError(f"tree_map: expected keys {keys}, got {[*tree]}.")
        values = [tree[key] for key in keys]
    pairs = zip(spec.children_specs, values, strict=True)
    return [leaf for child, value in pairs for leaf in _down_to(child, value)]


def tree_map_(
    func: Callable, tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """Call ``func`` for each leaf; returns ``tree`` itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(
    type_or_types_or_pred: Kinds | Callable[[Any], bool],
    func: Callable,
    tree: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """``tree_map`` that leaves alone all leaves but those of a type, or for which a function holds.

    >>> tree_map_only(int, lambda x: -x, [1, "a"])
    [-1, 'a']
    """
    chosen = _predicate(type_or_types_or_pred)
    return tree_map(lambda x: func(x) if chosen(x) else x, tree, is_leaf=is_leaf)


def _predicate(kinds: Any) -> Callable[[Any], bool]:
    if isinstance(kinds, (type, tuple)):
        return lambda x: isinstance(x, kinds)
    return kinds


def tree_all(
    pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> bool:
    """Whether ``pred`` holds for all leaves."""
    return all([pred(x) for x in tree_leaves(tree, is_leaf)])


def tree_any(
    pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> bool:
    """Whether ``pred`` holds for some leaf."""
    return any([pred(x) for x in tree_leaves(tree, is_leaf)])


def tree_all_only(kinds: Kinds, pred: Callable[[Any], bool], tree: Any) -> bool:
    """Whether ``pred`` holds for all leaves of these types."""
    return all([pred(x) for x in tree_leaves(tree) if isinstance(x, kinds)])


def tree_any_only(kinds: Kinds, pred: Callable[[Any], bool], tree: Any) -> bool:
    """Whether ``pred`` holds for some leaf of these types."""
    return any([pred(x) for x in tree_leaves(tree) if isinstance(x, kinds)])
