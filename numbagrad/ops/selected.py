"""``x[mask]`` while a step is recorded, when nobody knows yet where the mask holds.

How many rows are selected is known when the step runs; a program's shapes are known before. So the
rows stay where they are, among those that are not selected, and what is done with them is done with
all: what works element by element or row by row does not mind, and sums, means, losses and writes
leave the others out. Functions need not know of it: they raise ``Unsized`` where they look at the
shape, and what stands before them (``wrapper.py``) asks for the rule of that function. The rules
are in ``selected_rules.py``, of all rows at once in ``selected_over_all.py``, of losses in
``selected_losses.py``, methods in ``selected_methods.py``. Start reading at ``Selected``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn

from ..errors import RecordingError
from ..later import OUR_FILES
from ..shaped import Size
from ..tape import show_location, user_location
from ..tensor import Tensor
from .plans import GENERATED

__all__: list[str] = []  # nothing that users call

RULES: dict[str, Callable[..., Any]] = {}
"""By the name of a function, what it gives for selected rows: called with the function, and its
arguments and keywords. ``selected_rules`` fills it."""


class Unsized(RecordingError, AttributeError):
    """A function looked at the number of selected rows.

    only: the functions that have a rule, where not all of ``RULES`` hold.
    """

    def __init__(self, rows: Selected, name: str, only: tuple[str, ...] = ()):
        self.rows, self.operation, self.only = rows, name, only
        super().__init__(
            f"x[mask]: {name} is not possible inside a compiled function for what a mask selects, "
            f"at {show_location(user_location())}: while a step is recorded nobody knows how many "
            f"elements that are. What goes row by row is possible, sum, max, sort and losses of "
            f"all, x[mask] = y, and returning it. ng.where(mask, x, y) keeps the shape, mask.sum() "
            f"is their number, cross_entropy leaves out targets of ignore_index; and a mask that "
            f"the function closes over decides before it is compiled."
        )

    def instead(self, function: Any, args: tuple, options: dict[str, Any]) -> Any:
        """What the function that looked gives for the rows, if there is a rule. Else it raises."""
        name = function.__name__
        rule = RULES.get(name)
        if rule is None or (self.only and name not in self.only):
            raise self
        return rule(function, *args, **options)


def _asked() -> str:
    """What the user's line has called that came here."""
    frame, name = sys._getframe(2), SHAPE
    while frame is not None and OUR_FILES[frame.f_code.co_filename]:
        code = frame.f_code  # a wrapper's text is written when it is first called: by ``_wake``
        if code.co_filename != GENERATED and code.co_name != "_wake":
            name = code.co_name
        frame = frame.f_back  # type: ignore[assignment]
    return SHAPE if name.startswith("_") else name


SHAPE = "looking at its shape"


class Sizes:
    """The shape of selected rows: that of a row is known."""

    def __init__(self, rows: Selected):
        self._rows = rows

    def __len__(self) -> int:
        return self._rows.rank

    def __getitem__(self, key: Any) -> Any:
        row = self._rows.whole._array.shape[1:]
        if isinstance(key, slice):
            if 0 not in range(self._rows.rank)[key]:
                return Size((0, *row)[key])
        elif -self._rows.rank <= key < self._rows.rank and key % self._rows.rank:
            return (0, *row)[key]
        raise Unsized(self._rows, SHAPE)

    def _refuse(self, *_: Any) -> NoReturn:
        raise Unsized(self._rows, SHAPE)

    __iter__ = __eq__ = __ne__ = __add__ = __radd__ = __contains__ = __hash__ = _refuse
    __repr__ = numel = index = count = _refuse


class Selected(Tensor):
    """Rows of ``whole`` (n, ...) where ``mask`` (n) holds: of another number in each call.

    key: of which mask they are, with its version, and how often it was repeated: those of equal
    keys lie side by side. Where the mask does not hold there is anything, finite at first, and what
    comes back as its gradient is not used.
    """

    whole: Tensor
    mask: Tensor
    key: tuple[Tensor, int, int]
    shared: bool
    """Whether others look at the same elements, who would not see what is written."""

    @classmethod
    def of(cls, whole: Tensor, mask: Tensor, key: tuple[Tensor, int, int]) -> Selected:
        """The rows of ``whole``."""
        found: Selected = object.__new__(cls)
        found.mask, found.key, found.shared = mask, key, False
        found.become(whole)
        return found

    def become(self, whole: Tensor) -> None:
        """Be the rows of another tensor."""
        self.whole, self._dtype, self._device = whole, whole._dtype, whole._device

    def beside(self, whole: Tensor) -> Selected:
        """The rows of another tensor under the same mask."""
        return Selected.of(whole, self.mask, self.key)

    def made_of_parts(self) -> tuple[Callable[..., Tensor], tuple[Tensor, Tensor]]:
        """How calls make what a compiled function returns of it, when numbers are known."""
        return _taken, (self.whole, self.mask)

    def view_of(self, whole: Tensor) -> Selected:
        """The rows of a view of ``whole``."""
        found = self.beside(whole)
        self.shared = found.shared = True
        return found

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return int(self.whole._array.ndim)

    @property
    def _array(self) -> Any:
        raise Unsized(self, _asked())

    def refuse(self, name: str) -> NoReturn:
        """Raise: ``name`` needs to know how many rows there are."""
        raise Unsized(self, name)

    @property
    def _edge(self) -> Any:
        return self.whole._edge

    @_edge.setter
    def _edge(self, value: Any) -> None:
        raise Unsized(self, "the history of it")

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.rank

    def dim(self) -> int:
        """The number of dimensions."""
        return self.rank

    ndimension = dim

    @property
    def shape(self) -> Any:
        """The sizes of which the first is not known."""
        return Sizes(self)

    def size(self, dim: int | None = None) -> Any:
        """The size of a dimension that is not the first."""
        if dim is None or not -self.rank <= dim < self.rank or dim % self.rank == 0:
            raise Unsized(self, "size")
        return self.whole._array.shape[dim]

    def __repr__(self, **_: Any) -> str:
        raise Unsized(self, "print")

    __str__ = __format__ = __repr__  # type: ignore[assignment]


def _taken(whole: Tensor, mask: Tensor) -> Tensor:
    return whole[mask]


def _refusing(name: str) -> Callable[..., Any]:
    def method(self: Selected, *args: Any, **kwargs: Any) -> Any:
        raise Unsized(self, name.strip("_"))

    method.__name__ = name
    return method


for _name in """
    __len__ __iter__ __bool__ __int__ __float__ __index__ __contains__ __array__ numel nelement item
    tolist numpy backward register_hook retain_grad requires_grad_ data_ptr
""".split():
    setattr(Selected, _name, _refusing(_name))
for _name in ("nbytes", "data"):
    setattr(Selected, _name, property(_refusing(_name)))
