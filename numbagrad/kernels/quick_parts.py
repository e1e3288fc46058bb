"""Functions in the place of Numba's, for Numba itself and for numba-cuda, which has its own copies.

Each function here takes what Numba defines and returns what stands there meanwhile: an object, the
name of an attribute, and its other value. See ``quick_numba.py``.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import FunctionType
from typing import Any

from numba.core import types

from .exchange import Part
from .origin import lasts

__all__ = [
    "calls",
    "intrinsics",
    "lifetimes",
    "modules",
    "operators",
    "options",
    "overloads",
    "places",
    "sizes",
    "variables",
]


# -- types -----------------------------------------------------------------------------------------


def operators(template: Any) -> Part:
    """The signature of an operator as a ufunc, which is one only where there is an array."""
    numbas = template.generic

    def generic(self: Any, args: Any, kws: Any) -> Any:
        if not any([isinstance(a, types.ArrayCompatible) for a in args]):
            return None
        return numbas(self, args, kws)

    return template, "generic", generic


def calls(function: Any) -> Part:
    """The signature of an operator of numbers, which Numba seeks among dozens each time."""
    numbas = function.get_call_type
    signatures: Any = weakref.WeakKeyDictionary()  # not in a type's own dict, which Numba pickles

    def get_call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
        key = getattr(self, "typing_key", None)
        if kws or not (key is bool or getattr(key, "__module__", "") == "_operator"):
            return numbas(self, context, args, kws)
        if not all([isinstance(a, _NUMBERS) for a in args]):
            return numbas(self, context, args, kws)
        known = signatures.setdefault(self, {})
        found = known.get((context, args))
        if found is None:
            found = numbas(self, context, args, kws)
            if self._impl_keys[found.args] is key:  # else: compiled, for the flags of a caller
                known[context, args] = found
        return found

    return function, "get_call_type", get_call_type


_NUMBERS = types.Number, types.Boolean


def intrinsics(template: Any) -> Part:
    """The signature of an intrinsic. Where it is known, Numba too looks into nothing else but asks
    all registries first whether there is news."""
    numbas = template.generic

    def generic(self: Any, args: Any, kws: Any) -> Any:
        known = self._impl_cache.get((self.context, args, tuple(kws.items())))
        return numbas(self, args, kws) if known is None else known

    return template, "generic", generic


def overloads(template: Any, stack: Any, compiler: Any, cpu: Any) -> Part:
    """The decorator of what stands behind an overloaded function: that has no way in of its own,
    where no references are counted. Numba makes machine code of it, which nobody calls.

    stack: of the options of what compiles; cpu: the decorator of which this is a form.
    """
    numbas = template._get_jit_decorator

    def decorator(self: Any) -> Any:
        found, options = numbas(self), stack.top_or_none()
        if found is not cpu or options is None or options.nrt:
            return found
        return functools.partial(found, pipeline_class=compiler)

    return template, "_get_jit_decorator", decorator


def options(config: Any) -> Part:
    """All options of a target, by which each call of an overloaded function is looked up."""
    defaults: dict[type, dict[str, Any]] = {}

    def values(self: Any) -> dict[str, Any]:
        kind = type(self)
        if kind not in defaults:
            defaults[kind] = {name: option.default for name, option in kind.options.items()}
        return {**defaults[kind], **self._values}

    return config, "values", values


# -- variables of an instruction -------------------------------------------------------------------


def variables(ir: Any) -> Part:
    """The variables in what an instruction holds, in order."""
    leaves = frozenset([str, int, float, bool, type(None), ir.Loc])
    own = ir.Var
    vars_, instructions = getattr(ir, "var_types", own), getattr(ir, "inst_types", ir.Inst)

    def collect(values: Any, found: list[Any]) -> None:
        for value in values:
            if type(value) in leaves:
                continue
            if type(value) is own:
                found.append(value)
            elif isinstance(value, (list, tuple)):
                collect(value, found)
            elif isinstance(value, dict):
                collect(value.values(), found)
            elif isinstance(value, instructions):
                found += value.list_vars()
            elif isinstance(value, vars_):
                found.append(value)

    def list_variables(self: Any, value: Any) -> list[Any]:
        found: list[Any] = []
        collect((value,), found)
        return found

    return ir.Inst, "_rec_list_vars", list_variables


def lifetimes(postproc: Any) -> Part:
    """Where variables live, which Numba finds after every pass: in functions of ours once it is
    asked for.

    Object mode, ``with`` blocks and ``literal_unroll``, which ours do without, read it as it was a
    few passes earlier.
    """
    numbas = postproc.PostProcessor.run

    def run(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
        func_ir = self.func_ir
        if func_ir.is_generator or not lasts(func_ir.func_id.func):
            numbas(self, emit_dels, extend_lifetimes)
            return
        blocks = func_ir.blocks = postproc.transforms.canonicalize_cfg(func_ir.blocks)
        func_ir.variable_lifetime = postproc.VariableLifetime(blocks)
        func_ir.generator_info = None
        if emit_dels:
            self._insert_var_dels(extend_lifetimes=extend_lifetimes)

    return postproc.PostProcessor, "run", run


# -- lowering --------------------------------------------------------------------------------------


def places(base: Any) -> Part:
    """Whether an implementation has a parameter ``loc``."""
    numbas = base._has_loc

    def takes_loc(function: Any) -> bool:
        if type(function) is not FunctionType or function.__dict__:  # it may be wrapped
            return bool(numbas(function))
        code = function.__code__
        stars = bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
        return "loc" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + stars]

    return base, "_has_loc", takes_loc


def sizes(base: Any) -> Part:
    """Bytes of a value, for which llvmlite writes a module and reads it again."""
    numbas = base.BaseContext.get_abi_sizeof
    known: dict[tuple[str, str], int] = {}

    def size(self: Any, kind: Any) -> int:
        text = str(kind)
        if "%" in text:  # a structure that goes by a name, which says nothing of its size
            return int(numbas(self, kind))
        key = str(self.target_data), text
        if key not in known:
            known[key] = numbas(self, kind)
        return known[key]

    return base.BaseContext, "get_abi_sizeof", size


def modules(engine: Any) -> tuple[Part, Part]:
    """The module at an address, for which llvmlite looks at all there are, twice for each function:
    a tenth of the time where thousands have been compiled."""
    llvmlites, adding = engine._find_module_ptr, engine.add_module
    known: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def add_module(self: Any, module: Any) -> None:
        adding(self, module)
        known[address_of(module._ptr)] = module

    def find(self: Any, module_ptr: Any) -> Any:
        found = known.get(address_of(module_ptr))
        return found if found in self._modules else llvmlites(self, module_ptr)

    def address_of(pointer: Any) -> int:
        return ctypes.cast(pointer, ctypes.c_void_p).value or 0

    return (engine, "add_module", add_module), (engine, "_find_module_ptr", find)
