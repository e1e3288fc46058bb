"""Kernels with some of their scalars known: branches pruned, source text to source text.

A kernel serves many modes by plain ``if`` statements, all of which are compiled, though a step
uses one mode only: cross entropy without weights or smoothing is half of the general kernel. Here
known parameters become literals, ``fold.py`` cuts what they decide, and the rest is a kernel of
its own, with the same results bit for bit. Start reading at ``specialise``.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

import numba

from . import store
from .fold import Fold, literal
from .lists import ListKernel
from .machine import Kernel
from .origin import ours

__all__ = ["specialise"]

_known: dict[Any, Any] = {}


def specialise(kernel: Any, constants: Mapping[str, Any]) -> Any:
    """``kernel`` for the parameters that ``constants`` names having those values.

    kernel: a Kernel of any class, or a plain function; constants: ints, floats and bools. The
    result is of the same class. Its ``parameters`` are the names of those it still takes: without
    the constants and without what is no longer used once the branches are cut, such as an array of
    weights. A float that is an operand of ``**`` stays a parameter too, because LLVM computes a
    power of a literal in another way. Equal requests give one result.

    Raises ValueError for a function whose source cannot be had or that has variables of an
    enclosing function.
    """
    key = (kernel, _key(constants))
    if key not in _known:
        _known[key] = _specialised(kernel, constants)
    return _known[key]


def _key(constants: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells apart 1, 1.0 and True, and 0.0 and -0.0."""
    return tuple((name, type(v), repr(v)) for name, v in sorted(constants.items()))


def _specialised(kernel: Any, constants: Mapping[str, Any]) -> Any:
    is_kernel = isinstance(kernel, Kernel)
    function = kernel.function if is_kernel else kernel
    module = _Module(function.__globals__)
    before = _parameters(_definition(function))
    # What every list kernel is given, and the caller does not list.
    given = {"sizes", "like"} if isinstance(kernel, ListKernel) else set()
    definition = module.definition(function, constants, given)
    definition.decorator_list = []
    parameters = _parameters(definition)
    text = module.text(definition, f"{function.__module__}.{function.__name__}", constants)
    made = getattr(store.load_source(text, function.__name__), function.__name__)
    result = made
    if is_kernel:
        outputs = sum(name in parameters for name in before[: kernel.outputs])
        result = type(kernel)(made, outputs, kernel.grain)
        allocates = kernel._options.get("allocates", not ours(function))
        result._options = {**kernel._options, "source": text, "allocates": allocates}
    if isinstance(kernel, ListKernel):
        result.by_element = kernel.by_element
    result.parameters = parameters
    return result


def _definition(function: Any) -> ast.FunctionDef:
    """The parsed ``def`` of a function."""
    try:
        node = ast.parse(_text(function)).body[0]
    except (OSError, SyntaxError) as error:
        raise ValueError(f"specialise: there is no source of {function.__name__}") from error
    if not isinstance(node, ast.FunctionDef) or function.__code__.co_freevars:
        raise ValueError(f"specialise: {function.__name__} is no function of a module")
    return node


@functools.cache
def _text(function: Any) -> str:
    return textwrap.dedent(store.source_of(function))


def _parameters(definition: ast.FunctionDef) -> tuple[str, ...]:
    return tuple(a.arg for a in definition.args.args)


def _names(body: list[ast.stmt], context: type[ast.expr_context]) -> set[str]:
    nodes = ast.walk(ast.Module(body, []))
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, context)}


def _in_powers(body: list[ast.stmt]) -> set[str]:
    """Names that are an operand of ``**``."""
    return {
        n.id
        for power in ast.walk(ast.Module(body, []))
        if isinstance(power, ast.BinOp) and isinstance(power.op, ast.Pow)
        for n in (power.left, power.right)
        if isinstance(n, ast.Name)
    }


def _branches(definition: ast.FunctionDef) -> int:
    kinds = (ast.If, ast.IfExp, ast.While, ast.BoolOp)
    return sum(isinstance(n, kinds) for n in ast.walk(definition))


class _Module:
    """The text that is being written: one kernel and the functions it calls, specialised too."""

    def __init__(self, names: dict[str, Any]):
        self.names = names
        self.helpers: dict[Any, ast.FunctionDef] = {}
        self.open: set[Any] = set()

    def definition(
        self, function: Any, constants: Mapping[str, Any], given: set[str]
    ) -> ast.FunctionDef:
        """The ``def`` of ``function`` with known parameters taken out; ``given`` ones stay."""
        node = _definition(function)
        parameters = _parameters(node)
        unknown = set(constants) - set(parameters)
        if unknown:
            raise ValueError(f"specialise: {node.name} has no parameters {sorted(unknown)}")
        powers = _in_powers(node.body)
        constants = {
            n: v for n, v in constants.items() if not (n in powers and isinstance(v, float))
        }
        assigned = _names(node.body, ast.Store)
        known = {n: v for n, v in self.names.items() if type(v) in (int, bool)}
        known = {n: v for n, v in known.items() if n not in parameters} | constants
        known = {n: v for n, v in known.items() if n not in assigned}
        body = Fold(known, assigned, self.call).block(node.body)
        # A parameter that the function overwrites starts as a variable of its value.
        first: list[ast.stmt] = [
            ast.Assign([ast.Name(n, ast.Store())], literal(v))
            for n, v in constants.items()
            if n in assigned
        ]
        at = 1 if ast.get_docstring(node) else 0
        node.body = body[:at] + first + body[at:] or [ast.Pass()]
        kept = (_names(node.body, ast.Load) | given) - set(constants)
        defaults = node.args.defaults
        default_of = dict(zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True))
        node.args.args = [ast.arg(name) for name in parameters if name in kept]
        node.args.defaults = [default_of[n] for n in _parameters(node) if n in default_of]
        return node

    def call(self, name: str, arguments: list[ast.expr], values: dict[int, Any]) -> ast.expr | None:
        """A call of a function of the same file, specialised; None if no branch goes."""
        function = self.names.get(name)
        if not numba.config.DISABLE_JIT:
            function = getattr(function, "py_func", None)  # a plain function may be an overload
        if not inspect.isfunction(function) or function.__globals__ is not self.names:
            return None
        names = _parameters(_definition(function))
        constants = {names[i]: value for i, value in values.items()}
        key = (function, _key(constants))
        if key in self.open:  # it calls itself
            return None
        if key not in self.helpers:
            self.open.add(key)
            node = self.definition(function, constants, set())
            self.open.remove(key)
            if _branches(node) == _branches(_definition(function)):
                return None
            node.name = f"{name}_{len(self.helpers) + 1}"
            self.helpers[key] = node
        helper = self.helpers[key]
        given = dict(zip(names, arguments, strict=False))
        passed = [given[n] for n in _parameters(helper) if n in given]
        return ast.Call(ast.Name(helper.name, ast.Load()), passed, [])

    def text(self, kernel: ast.FunctionDef, source: str, constants: Mapping[str, Any]) -> str:
        """The module: imports from where the kernel stands, the helpers, the kernel."""
        definitions: list[ast.stmt] = [*self.helpers.values(), kernel]
        loaded = _names(definitions, ast.Load) - {d.name for d in self.helpers.values()}
        imported = sorted(n for n in loaded if n in self.names)
        lines = [f'"""{source}', ""]
        lines += [f"{name} = {value!r}" for name, value in sorted(constants.items())]
        lines += ['"""', ""]
        if loaded & {"INFINITY", "NAN"}:
            lines += ["from math import inf as INFINITY, nan as NAN", ""]
        if imported:
            module = self.names["__name__"]
            if vars(sys.modules.get(module, ast)) is not self.names:
                raise ValueError(f"specialise: the module {module} cannot be imported")
            lines += [f"from {module} import {', '.join(imported)}", ""]
        for definition in definitions:
            lines += ["", ast.unparse(ast.fix_missing_locations(definition)), ""]
        return "\n".join(lines)
