"""Rows of the op table by family; ``ALL`` is the whole table."""

from __future__ import annotations

from . import (
    attention,
    combined,
    conv,
    create,
    elementwise,
    factors,
    index,
    linalg,
    linalg_further,
    loss,
    norm,
    numbers,
    rarer,
    recurrent,
    reduce,
    shape,
    sort,
    spatial,
    special,
    special_module,
)

MODULES = (
    elementwise,
    special,
    numbers,
    special_module,
    reduce,
    shape,
    index,
    linalg,
    linalg_further,
    factors,
    norm,
    loss,
    create,
    sort,
    combined,
    rarer,
)
FAMILIES = {
    m.__name__.rpartition(".")[2]: m.CASES for m in (*MODULES, conv, spatial, recurrent, attention)
}
ALL = [case for cases in FAMILIES.values() for case in cases]
