"""Installs the operations on Tensor: methods, in-place forms, operators."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

from ..tensor import Tensor
from .argument_names import LINALG, rename
from .inplace import in_place, view_in_place
from .pointwise import PointwiseOp
from .remembered import remembered

FAMILIES = (
    "elementwise comparison special gamma activation transfer create from_data overwrite "
    "random view transpose part join shape scan reduce extreme moments index gather masks "
    "scatter_reduce brackets bracket_writes linalg vector_products matrices einsum norm loss sort "
    "search compositions rearranged statistics cells bessel float_parts whole_numbers flat_index "
    "transformed_random older_names typical older_linalg incomplete_gamma counts resizing "
    "complex_names memory_names shared_memory by_python unique householder"
).split()

IN_PLACE_FUNCTIONS = """
    abs_ acos_ acosh_ addmv_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ as_strided_ asin_
    asinh_ atan_ atanh_ ceil_ clamp_ clamp_max_ clamp_min_ clip_ cos_ cosh_ deg2rad_ detach_ erf_
    erfc_ exp2_ exp_ expm1_ fill_ fix_ floor_ frac_ gcd_ i0_ index_put_ lcm_ ldexp_ log10_ log1p_
    log2_ log_ logit_ nan_to_num_ neg_ negative_ rad2deg_ reciprocal_ relu_ round_ rsqrt_ sigmoid_
    sin_ sinc_ sinh_ sqrt_ square_ tan_ tanh_ trunc_ xlogy_ zero_
""".split()
"""Methods that PyTorch has as functions too."""

IN_PLACE_OPERATORS = {name: f"{name}_" for name in ("add", "sub", "mul", "pow")} | {
    "truediv": "div_",
    "floordiv": "floor_divide_",
    "mod": "remainder_",
    "lshift": "bitwise_left_shift_",
    "rshift": "bitwise_right_shift_",
    "and": "bitwise_and_",
    "or": "bitwise_or_",
    "xor": "bitwise_xor_",
}
"""What ``x += y`` and its kin call."""


def install() -> list[ModuleType]:
    """Put every family's methods on Tensor; returns the modules, lowest first."""
    modules = [importlib.import_module(f"{__package__}.{name}") for name in FAMILIES]
    for module in modules:
        for name, function in getattr(module, "METHODS", {}).items():
            setattr(Tensor, name, function)
        short = getattr(module, "INPLACE_OPS", {})
        for name, function in getattr(module, "INPLACE", {}).items():
            setattr(Tensor, name, _remembered_in_place(name, function, short.get(name)))
        for name, function in getattr(module, "INPLACE_VIEWS", {}).items():
            setattr(Tensor, name, view_in_place(name, function))
        for name, function in getattr(module, "OPERATORS", {}).items():
            setattr(Tensor, name, _operator(name, function))
    for name, method in IN_PLACE_OPERATORS.items():
        setattr(Tensor, f"__i{name}__", getattr(Tensor, method))
    for module in modules:
        public = [*getattr(module, "__all__", ()), *getattr(module, "METHODS", ())]
        rename(getattr(module, name, None) for name in public)
        rename(getattr(module, "METHODS", {}).values())
    lapack = importlib.import_module(f"{__package__}.lapack")
    rename((getattr(lapack, name) for name in lapack.__all__), LINALG)
    return modules


def _remembered_in_place(name: str, function: Any, op: Any) -> Any:
    """The in-place form, which remembers what it launched unless it is a formula of one operand or
    two: such a one is as quick by itself, and takes other numbers each time."""
    made = in_place(name, function, op)
    op = op or getattr(function, "op", None)
    if isinstance(op, PointwiseOp) and len(op.inputs) <= 2:
        return made
    if name != "index_put_":
        return remembered(made, writes=True)

    @functools.wraps(made)
    def index_put_(x: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
        return made(x, indices, values, accumulate)

    return remembered(index_put_, writes=True, spread="indices")


def _operator(name: str, function: object) -> object:
    """``function`` as an operator: foreign operands are handed back to Python."""
    if getattr(function, "__name__", "") == "binary":  # it hands foreign operands back itself
        return function
    if name in ("__neg__", "__pos__", "__abs__", "__invert__", "__getitem__", "__setitem__"):
        return function

    def operator(x: Tensor, y: object) -> object:
        try:
            return function(x, y)  # type: ignore[operator]
        except TypeError:
            if isinstance(y, (Tensor, float, int, bool)) or hasattr(y, "__array__"):
                raise
            return NotImplemented

    operator.__name__ = name
    return operator
