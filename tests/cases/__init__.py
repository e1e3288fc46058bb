"""Rows of the op table by family; ``ALL`` is the whole table."""

from __future__ import annotations

from . import conv, create, elementwise, index, linalg, loss, norm, reduce, shape, sort, special

MODULES = (elementwise, special, reduce, shape, index, linalg, norm, loss, create, sort, conv)
FAMILIES = {module.__name__.rpartition(".")[2]: module.CASES for module in MODULES}
ALL = [case for cases in FAMILIES.values() for case in cases]
