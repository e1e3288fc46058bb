"""Rows of the op table by family; ``ALL`` is the whole table."""

from __future__ import annotations

from . import create, elementwise, index, linalg, loss, norm, reduce, shape, sort, spatial, special

FAMILIES = {
    module.__name__.rpartition(".")[2]: module.CASES
    for module in (
        elementwise,
        reduce,
        shape,
        index,
        linalg,
        norm,
        loss,
        create,
        sort,
        special,
        spatial,
    )
}
ALL = [case for cases in FAMILIES.values() for case in cases]
