"""Pasting a function's statements in the place of its call, without doing all of it anew each time.

For ``inline="always"`` Numba reads the bytecode of the function at each call, and copies what it
made of it twice: there it spends a third of the compilation of a GPU kernel, a twelfth of one for
the CPU. Here a function of ours is read once, and each is copied once, by a function that knows
what is in it. What users write is read anew: what it refers to may have changed in many ways.
Start reading at ``Inlining``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from .origin import lasts

__all__ = ["Inlining"]

Read = tuple[Any, str, Any]
"""A namespace, a name in it, and what it stood for."""

_MISSING = object()


class Inlining:
    """What stands for two methods of Numba's ``InlineWorker``.

    ir: the module of its intermediate representation; worker: the class. numba-cuda has its own of
    both.
    """

    def __init__(self, ir: Any, worker: Any):
        self._numbas_untyped, self._numbas_inline = worker.run_untyped_passes, worker.inline_ir
        self.parts = (
            (worker, "run_untyped_passes", self._untyped_method()),
            (worker, "inline_ir", self._inline_method()),
        )
        self._ir = ir
        self._known: dict[tuple[FunctionType, str], tuple[Any, list[Read]]] = {}
        self._open: list[list[Read]] = []  # of the functions that are being read now

        class Once(ir.Block):
            """A block that is a copy already, which Numba need not copy."""

            def __deepcopy__(self, memo: dict[int, Any]) -> Any:
                return self

        self._once = Once

    def _untyped_method(self) -> Callable[..., Any]:
        def run_untyped_passes(worker: Any, func: Any, enable_ssa: bool = False) -> Any:
            """Numba's intermediate form of a function, which nobody may change."""
            return self._untyped(worker, func, enable_ssa)

        return run_untyped_passes

    def _inline_method(self) -> Callable[..., Any]:
        def inline_ir(
            worker: Any, caller_ir: Any, block: Any, i: int, callee_ir: Any, callee_freevars: Any,
            arg_typs: Any = None,
        ) -> Any:  # fmt: skip
            """Put the statements of a callee in the place of a statement of its caller."""
            made = self.copied(callee_ir)
            blocks = list(made.blocks.values())
            rest = made, callee_freevars, arg_typs
            try:
                done = self._numbas_inline(worker, caller_ir, block, i, *rest)
            finally:
                for each in blocks:
                    each.__class__ = self._ir.Block
            return callee_ir, *done[1:]

        return inline_ir

    def _untyped(self, worker: Any, func: Any, enable_ssa: bool) -> Any:
        plain = type(func) is FunctionType and not enable_ssa
        if not (plain and lasts(func)) or worker.flags.auto_parallel.enabled:
            return self._numbas_untyped(worker, func, enable_ssa)
        worker.flags.enable_ssa = enable_ssa  # as Numba leaves it
        key = func, str(worker.flags)
        found = self._known.get(key)
        if found is None or not all([space.get(n, _MISSING) is v for space, n, v in found[1]]):
            self._open.append(reads_of(func))
            try:
                made = self._numbas_untyped(worker, func, enable_ssa)
            finally:
                reads = self._open.pop()
            if len(self._known) >= 1024:  # those of functions that nobody has any more, too
                self._known.clear()
            found = self._known[key] = made, reads
        if self._open:
            self._open[-1] += found[1]
        return found[0]

    def copied(self, func_ir: Any) -> Any:
        """``func_ir`` with blocks of its own, and another name for its variables."""
        made = copy.copy(func_ir)
        identity = made.func_id = object.__new__(type(func_ir.func_id))
        vars(identity).update(vars(func_ir.func_id))
        identity.unique_id = next(type(identity)._unique_ids)
        identity.unique_name = f"{identity.func_qualname}${identity.unique_id}"
        copier = _Copier(self._ir)
        made.blocks = {n: copier.block(b, self._once) for n, b in func_ir.blocks.items()}
        made.block_entry_vars = {}
        return made


def reads_of(function: FunctionType) -> list[Read]:
    """The globals, and names in modules, that the text of ``function`` may read, as they are."""
    names, space = function.__code__.co_names, function.__globals__
    reads: list[Read] = [(space, name, space.get(name, _MISSING)) for name in names]
    for module in [value for *_, value in reads if isinstance(value, ModuleType)]:
        reads += [(vars(module), name, vars(module).get(name, _MISSING)) for name in names]
    cells = _Cells(function)
    return reads + [(cells, name, cells.get(name, _MISSING)) for name in cells.names]


class _Cells:
    """The variables of other functions that ``function`` sees, by name."""

    def __init__(self, function: FunctionType):
        self.names = function.__code__.co_freevars
        self._cells = dict(zip(self.names, function.__closure__ or (), strict=True))

    def get(self, name: str, missing: Any) -> Any:
        """What a variable stands for now."""
        try:
            return self._cells[name].cell_contents
        except ValueError:  # it has not been set yet
            return missing


class _Copier:
    """Copies one function's blocks: its variables once, its constants and places not at all."""

    def __init__(self, ir: Any):
        self._ir = ir
        self._same = frozenset([str, int, float, bool, type(None), ir.Loc])
        self._shallow = frozenset([ir.Const, ir.Global, ir.FreeVar])
        self._nodes = ir.Inst, ir.AbstractRHS
        self._memo: dict[int, Any] = {}

    def block(self, block: Any, kind: type) -> Any:
        """A copy of a block, as one of ``kind``."""
        made: Any = object.__new__(kind)
        vars(made).update(vars(block))
        vars(made).update(scope=self._scope(block.scope), body=self._value(block.body))
        return made

    def _scope(self, scope: Any) -> Any:
        found = self._memo.get(id(scope))
        if found is None:
            found = self._memo[id(scope)] = type(scope)(scope.parent, scope.loc)
            for name, var in scope.localvars._con.items():
                found.localvars.define(name, self._variable(var))
            found.redefined.update(scope.redefined)
            found.var_redefinitions.update({k: set(v) for k, v in scope.var_redefinitions.items()})
        return found

    def _variable(self, var: Any) -> Any:
        found = self._memo.get(id(var))
        if found is None:
            found = self._memo[id(var)] = self._ir.Var(self._scope(var.scope), var.name, var.loc)
        return found

    def _value(self, value: Any) -> Any:
        kind = type(value)
        if kind in self._same:
            return value
        if kind is self._ir.Var:
            return self._variable(value)
        if kind is list:
            return [self._value(each) for each in value]
        if kind is tuple:
            return tuple([self._value(each) for each in value])
        if kind is dict:
            return {name: self._value(each) for name, each in value.items()}
        if isinstance(value, self._nodes):
            made = object.__new__(kind)
            held = vars(value)
            if kind in self._shallow:
                vars(made).update(held)
            else:
                vars(made).update({name: self._value(each) for name, each in held.items()})
            return made
        return copy.deepcopy(value, self._memo)
