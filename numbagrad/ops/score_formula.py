"""From the functions of ``flex_attention`` to one formula, read once for each kind of function.

Start reading at ``score_of``.
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..errors import DimError, DTypeError, FormulaError
from ..kernels import machine
from ..kernels.expr import as_truth, symbol
from ..kernels.score import POSITIONS, Context, Score, WrongCount, key_of
from ..tensor import Tensor
from . import elementwise

__all__ = ["check_reads", "score_of"]

_INPUTS = {"score_mod": ("score", *POSITIONS), "mask_mod": POSITIONS}
_FUNCTIONS: dict[Any, str] = {elementwise.where: "where", elementwise.pow: "pow"}
_known: dict[Any, tuple[Score, list[int]]] = {}
MOST_KNOWN = 512


def score_of(name: str, score_mod: Any, mask_mod: Any) -> tuple[Score, tuple[Tensor, ...]]:
    """The formula of the two functions, or None for one, and the tensors that it reads.

    name: whose arguments they are. Raises FormulaError, naming the line, for Python that is no
    formula, TypeError for another number of parameters.
    """
    tensors: list[Tensor] = []
    key = _key(score_mod, mask_mod, tensors)
    if machine.is_recording() and not any(machine.is_traced(t._array) for t in tensors):
        machine.depends(lambda: _key(score_mod, mask_mod, []))
    found = _known.get(key)
    if found is None:
        context = Context(tensors, describe, _FUNCTIONS)
        body, mask = symbol("score"), None
        if score_mod is not None:
            body = _expression(name, "score_mod", score_mod, context)
        if mask_mod is not None:
            mask = as_truth(_expression(name, "mask_mod", mask_mod, context))
        found = context.score(body, mask)
        if len(context.tensors) == len(tensors):  # else the key does not see all of them
            if len(_known) >= MOST_KNOWN:
                _known.clear()
            _known[key] = found
        tensors = context.tensors
    return found[0], tuple([_readable(name, tensors[k]) for k in found[1]])


def _key(score_mod: Any, mask_mod: Any, tensors: list[Tensor]) -> tuple[Any, ...]:
    """What tells the formula and how tensors occur in it; numbers are a part of it."""
    return (
        key_of(score_mod, describe, tensors, _ours),
        key_of(mask_mod, describe, tensors, _ours),
    )


def _ours(function: Any) -> bool:
    """Whether the function is one of the library, which a formula knows as a whole."""
    module = getattr(function, "__module__", None) or ""
    return module.startswith(_PACKAGE) and not hasattr(function, "mask_mods")


_PACKAGE = __name__.partition(".")[0] + "."


def describe(value: Any) -> tuple[int, str] | None:
    """Rank and dtype of a tensor, as kernels see it; None of anything else."""
    if not isinstance(value, Tensor):
        return None
    half = value._dtype in (dtypes.float16, dtypes.bfloat16)
    return value._array.ndim, "float32" if half else value._dtype.name


def _readable(name: str, tensor: Tensor) -> Tensor:
    if tensor._dtype.name.startswith("complex"):
        raise DTypeError(
            f"{name}: a captured tensor is {tensor._dtype}; formulas read real numbers."
        )
    return tensor.float() if tensor._dtype in (dtypes.float16, dtypes.bfloat16) else tensor


def _expression(name: str, which: str, function: Any, context: Context) -> Any:
    inputs = _INPUTS[which]
    if not callable(function):
        raise TypeError(
            f"{name}: {which} must be a function of ({', '.join(inputs)}), got {function!r}."
        )
    try:
        return context.formula(function, inputs)
    except WrongCount as error:
        raise TypeError(
            f"{name}: {which} must take {len(inputs)} arguments, ({', '.join(inputs)}), but "
            f"{function.__name__} takes ({', '.join(error.args[0])})."
        ) from None
    except FormulaError as error:
        raise FormulaError(
            f"{name}: {which} is no formula. {error} Tensors are read by their elements, bias[h]."
        ) from None


def check_reads(name: str, bad: Any, score: Score, tensors: tuple[Tensor, ...]) -> None:
    """Raise if a kernel has found that an element was read that is not there."""
    texts = [
        f"{c.name} of shape {list(t._array.shape)}"
        for c, t in zip(score.captured, tensors, strict=True)
    ]

    def fail(slot: int) -> None:
        raise DimError(
            f"{name}: {texts[slot]} is read out of bounds at a position that is seen. "
            f"Make it longer, or limit the index with min and max."
        )

    machine.check(bad, fail)
