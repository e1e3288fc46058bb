"""Tools around training: ``checkpoint``, and ``data`` by PyTorch's name."""

from typing import TYPE_CHECKING

from ..later import asked_for
from . import _pytree as _pytree
from . import checkpoint

if TYPE_CHECKING:
    from . import data

__all__ = ["checkpoint", "data"]

__getattr__ = asked_for(__name__, {"data": "data"})


def __dir__() -> list[str]:
    return [*globals(), *__all__]
