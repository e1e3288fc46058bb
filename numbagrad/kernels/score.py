"""Scores of attention as formulas: what a user's ``score_mod`` and ``mask_mod`` do with one score.

They are read as ``formula.py`` reads functions. What is more: they may read elements of tensors,
``bias[h, q_idx - kv_idx]``. Each element that is read is an input of the formula, beside a list of
where it comes from, so that derivatives need to know nothing of it. Positions are integers, and so
is what is made of them alone. Start reading at ``Score``.
"""

from __future__ import annotations

import ast
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from .derive import gradients
from .expr import (
    COMPARISONS,
    LOGICAL,
    ZERO,
    Expr,
    constant,
    expr,
    inputs_of,
    symbol,
    topological,
)
from .expr import where as pick
from .formula import Reader
from .update import lowered
from .writer import Writer, literal

__all__ = [
    "POSITIONS",
    "Context",
    "Read",
    "Score",
    "ScoreWriter",
    "WrongCount",
    "is_whole",
    "key_of",
    "kind_of",
    "on_device",
]

POSITIONS = "b", "h", "q_idx", "kv_idx"
"""Inputs beside ``score``: batch, head of queries, query and key."""


@dataclass(frozen=True)
class Read:
    """An element of a captured tensor: the input that stands for it, which tensor, and where."""

    name: str
    slot: int
    indices: tuple[Expr, ...]


@dataclass(frozen=True)
class Captured:
    """What code must know of a captured tensor."""

    rank: int
    dtype: str
    name: str

    @property
    def kind(self) -> str:
        """The kind of its elements: see ``kind_of``."""
        if self.dtype.startswith(("float", "bfloat")):
            return "T"
        return "int64" if self.dtype == "int64" else "int32"


@dataclass(frozen=True)
class Score:
    """What becomes of a score, and whether it is seen, which is None where all are."""

    body: Expr
    mask: Expr | None
    reads: tuple[Read, ...]
    captured: tuple[Captured, ...]

    @property
    def kinds(self) -> dict[str, str]:
        """The kinds of the inputs."""
        reads = {r.name: self.captured[r.slot].kind for r in self.reads}
        return {"score": "T", "g": "T", **dict.fromkeys(POSITIONS, "int32"), **reads}

    def reads_of(self, bodies: Sequence[Expr]) -> list[Read]:
        """What is read for ``bodies``; elements by whose values others are found come first."""
        wanted = frozenset().union(*map(inputs_of, bodies))
        for read in reversed(self.reads):
            if read.name in wanted:
                wanted |= frozenset().union(*map(inputs_of, read.indices))
        return [r for r in self.reads if r.name in wanted]

    def slopes(self) -> dict[str, Expr]:
        """The gradients of ``score`` and of what is read, from the gradient ``g`` of the result."""
        found = gradients(self.body, symbol("g"), "score_mod")
        smooth = ["score", *[r.name for r in self.reads if self.kinds[r.name] == "T"]]
        slopes = {name: found.get(name, ZERO) for name in smooth}
        if self.mask is not None:  # where it is hidden the slope may be NaN
            slopes = {n: pick(self.mask, e, ZERO) for n, e in slopes.items()}
        return slopes


class WrongCount(Exception):
    """A function has another number of parameters: these."""


class Context:
    """Tensors that are captured by functions, and elements that are read of them.

    tensors: known beforehand. describe: from an object to what ``Captured`` says of it, None if it
    is no tensor. functions: by what else formulas know a few functions.
    """

    def __init__(
        self,
        tensors: list[Any],
        describe: Callable[[Any], tuple[int, str] | None],
        functions: Mapping[Any, str],
    ):
        self.tensors, self.describe, self.functions = list(tensors), describe, functions
        self.names: dict[int, str] = {}
        self.reads: dict[tuple[int, tuple[Expr, ...]], Read] = {}

    def formula(self, function: Any, inputs: tuple[str, ...]) -> Expr:
        """The expression of ``function`` of inputs of these names."""
        reader = _ScoreReader(function, self)
        if len(reader.parameters) != len(inputs):
            raise WrongCount(reader.parameters)
        return reader.run(dict(zip(reader.parameters, map(symbol, inputs), strict=True)))

    def read(self, tensor: Any, name: str, indices: tuple[Expr, ...]) -> Expr:
        """The input that stands for an element."""
        slot = next((k for k, t in enumerate(self.tensors) if t is tensor), len(self.tensors))
        if slot == len(self.tensors):
            self.tensors.append(tensor)
        self.names.setdefault(slot, name)
        found = self.reads.setdefault((slot, indices), Read(f"r{len(self.reads)}", slot, indices))
        described = self.describe(tensor)
        assert described is not None
        value = symbol(found.name)
        return expr("ne", value, ZERO) if described[1] == "bool" else value

    def captured(self, slot: int) -> Captured:
        """What is known of a tensor."""
        described = self.describe(self.tensors[slot])
        assert described is not None
        return Captured(*described, self.names[slot])

    def score(self, body: Expr, mask: Expr | None) -> tuple[Score, list[int]]:
        """The whole, and which of ``tensors`` it reads."""
        used = sorted(self.names)
        captured = [self.captured(k) for k in used]
        reads = [Read(r.name, used.index(r.slot), r.indices) for r in self.reads.values()]
        return Score(body, mask, tuple(reads), tuple(captured)), used


class _ScoreReader(Reader):
    """Reads a function that may read elements of tensors."""

    def __init__(self, function: Any, context: Context):
        super().__init__(function)
        self.context = context

    def inner(self, function: Any) -> Reader:
        """A reader of a function that this one calls."""
        return _ScoreReader(function, self.context)

    def value(self, node: Any, env: dict[str, Expr]) -> Expr:
        """The expression of a node."""
        match node:
            case ast.Subscript():
                return self.element(node, env)
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                x = self.value(operand, env)
                return expr("not", x) if x.is_bool else expr("sub", constant(-1), x)
        return super().value(node, env)

    def element(self, node: Any, env: dict[str, Expr]) -> Expr:
        """An element of a tensor: ``x[i, j]`` or ``x[i][j]``."""
        parts: list[Any] = []
        owner = node
        while isinstance(owner, ast.Subscript):
            each = owner.slice
            parts[:0] = each.elts if isinstance(each, ast.Tuple) else [each]
            owner = owner.value
        text = ast.unparse(owner)
        if isinstance(owner, ast.Name) and owner.id in env:
            self.fail(node, f"reads elements of {text}, which is a number")
        tensor = self.resolve(owner, env)
        described = self.context.describe(tensor)
        if described is None:
            self.fail(
                node, f"reads elements of {text}, a {type(tensor).__name__}: make it a tensor"
            )
        if len(parts) != described[0]:
            self.fail(node, f"reads {text} by {len(parts)} of its {described[0]} indices")
        indices = tuple([self.value(p, env) for p in parts])
        kinds = dict.fromkeys(POSITIONS, "int32") | {"score": "T"}
        kinds |= {r.name: self.context.captured(r.slot).kind for r in self.context.reads.values()}
        for part, index in zip(parts, indices, strict=True):
            if not is_whole(index, kinds) or "score" in inputs_of(index):
                self.fail(
                    node,
                    f"has the index {ast.unparse(part)} of {text}, which is no integer made of "
                    f"positions: round it with int() or //",
                )
        return self.context.read(tensor, text, indices)

    def literal(self, node: ast.AST, value: Any) -> Expr:
        """A number from outside, or a tensor of one."""
        described = self.context.describe(value)
        if described is None:
            return super().literal(node, value)
        if described[0]:
            self.fail(
                node, f"reads {ast.unparse(node)}, a tensor of {described[0]} dims, without []"
            )
        return self.context.read(value, ast.unparse(node), ())

    def binary(self, node: ast.AST, op: ast.operator, x: Expr, y: Expr) -> Expr:
        """``&`` and its kin of truth values are what is said of them."""
        name = {ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "ne"}.get(type(op))
        if name is not None and x.is_bool and y.is_bool:
            return expr(name, x, y)
        return super().binary(node, op, x, y)

    def calling(self, node: ast.Call, func: ast.AST, args: list, env: dict) -> Expr:
        """A call; ``float("inf")`` too."""
        match func, args:
            case ast.Name(id="float"), [ast.Constant(value=str() as text)]:
                return constant(float(text))
        target = self.resolve(func, env)
        if isinstance(target, FunctionType) and target in self.context.functions:
            values = [self.value(a, env) for a in args]
            return self.known(node, self.context.functions[target], values)
        return super().calling(node, func, args, env)


# -- kinds -----------------------------------------------------------------------------------------

_OF_INTEGERS = frozenset(
    "add plus sub mul neg floordiv mod max min abs sign where bitand bitor bitxor shl shr floor "
    "ceil trunc rint".split()
)
_ROUNDED = frozenset("floor ceil trunc rint floordiv".split())


def kind_of(node: Expr, kinds: Mapping[str, str], known: dict[Expr, str] | None = None) -> str:
    """ "int32" or "int64" of what is made of integers alone, "T" of what is a float."""
    known = {} if known is None else known
    for each in topological([node]):
        if each in known:
            continue
        if each.op == "input":
            known[each] = kinds[each.value]
        elif each.op == "const":
            known[each] = "int32" if isinstance(each.value, int) else "T"
        elif each.is_bool:
            known[each] = "int32"
        elif each.op in _OF_INTEGERS:
            args = each.args[1:] if each.op == "where" else each.args
            known[each] = max([known[a] for a in args], key=["int32", "int64", "T"].index)
        else:
            known[each] = "T"
    return known[node]


def is_whole(node: Expr, kinds: Mapping[str, str]) -> bool:
    """Whether the expression can be nothing but an integer."""
    if kind_of(node, kinds) != "T" or node.op in _ROUNDED:
        return True
    args = node.args[1:] if node.op == "where" else node.args
    return node.op in _OF_INTEGERS and all(is_whole(a, kinds) for a in args)


class ScoreWriter(Writer):
    """Mixed into a writer: what is made of integers alone stays one, the rest is of type T."""

    def __init__(self, bodies: list[Expr], kinds: Mapping[str, str], inputs: dict[str, str]):
        self.kinds = kinds
        self.known: dict[Expr, str] = {}
        self.bodies = [lowered(b, integers=self._is_integer) for b in bodies]
        self.made: list[Expr] = []
        super().__init__(self.bodies, False, "T", inputs)

    def kind(self, node: Expr) -> str:
        """See ``kind_of``."""
        return kind_of(node, self.kinds, self.known)

    def _is_integer(self, node: Expr) -> bool:
        return self.kind(node) != "T"

    def _write(self, node: Expr) -> str:
        before = len(self.lines)
        text = super()._write(node)
        self.made += [node] * (len(self.lines) - before)
        return text

    def number(self, node: Expr) -> str:
        """The text of ``node`` in the type of what is being written."""
        if node.op == "const":
            return literal(node.value, self.t)
        text = super().number(node)
        return text if node.is_bool or self.kind(node) == self.t else f"{self.t}({text})"

    def truth(self, node: Expr) -> str:
        """The text of ``node`` as a truth value."""
        if node.is_bool:
            return self.names[node]
        outer, self.t = self.t, self.kind(node)
        text = super().truth(node)
        self.t = outer
        return text

    def _text(self, node: Expr) -> str:
        outer = self.t
        compared = node.op in COMPARISONS or node.op in LOGICAL or node.op == "not"
        kinds = [self.kind(a) for a in (node.args if compared else (node,))]
        self.t = max(kinds, key=["int32", "int64", "T"].index)
        if node.op == "floordiv":
            x, y = map(self.number, node.args)
            text = f"{self.t}({x} // {y})"
        elif self.t == "T" or compared or node.op == "where":
            text = super()._text(node)
        else:
            self.integer = True
            text = f"{self.t}({super()._text(node)})"
            self.integer = False
        self.t = outer
        return text


def on_device(name: str, *about: Any) -> Callable[..., None]:
    """What runs on a GPU where a kernel of ``cpu/flex_attention.py`` runs on the CPU.

    name: of the function there and here; about: its arguments.
    """

    def twin(*args: Any) -> None:
        from .cuda import flex_attention

        getattr(flex_attention, name)(*about)(*args)

    return twin


# -- which function it is --------------------------------------------------------------------------

_NUMBERS = bool, int, float, np.integer, np.floating, np.bool_


def key_of(
    function: Any,
    describe: Callable[[Any], Any],
    tensors: list[Any],
    whole: Callable[[Any], bool],
) -> tuple[Any, ...]:
    """What tells a function from others whose formula may differ.

    That is its code and the numbers, functions and tensors that it finds by name; of tensors their
    rank and dtype. They are appended to ``tensors``, each once. whole: tells functions that need no
    look inside.
    """
    return tuple(_parts(function, frozenset(), describe, tensors, whole, set()))


def _parts(
    value: Any,
    names: frozenset[str],
    describe: Any,
    tensors: list[Any],
    whole: Any,
    seen: set[int],
) -> Iterator[Any]:
    value = getattr(value, "py_func", value)
    if isinstance(value, _NUMBERS):
        yield type(value), repr(value)
    elif describe(value) is not None:
        slot = next((k for k, t in enumerate(tensors) if t is value), len(tensors))
        if slot == len(tensors):
            tensors.append(value)
        yield slot, describe(value)
    elif isinstance(value, FunctionType) and not whole(value):
        yield value.__code__
        if id(value) not in seen:
            seen.add(id(value))
            code = value.__code__
            inside = frozenset(_names(code))
            for name, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
                yield name
                try:
                    content = cell.cell_contents
                except ValueError:  # nothing is in it yet
                    continue
                yield from _parts(content, inside, describe, tensors, whole, seen)
            for name in sorted(inside & value.__globals__.keys()):
                yield name
                yield from _parts(value.__globals__[name], inside, describe, tensors, whole, seen)
    elif isinstance(value, (ModuleType, type)) or (
        callable(value) and not hasattr(value, "forward")
    ):
        yield _told(value)
    else:  # an object, of whose attributes it may read numbers and tensors
        yield _told(value)
        if id(value) not in seen:
            seen.add(id(value))
            for name in sorted(names):
                found = getattr(value, name, None)
                if found is not None and not isinstance(found, MethodType):
                    yield name
                    yield from _parts(found, names, describe, tensors, whole, seen)


def _told(value: Any) -> Any:
    """What tells an object from others: a weak reference, for a later one may have its ``id``."""
    if type(value).__hash__ is None:
        return id(value)
    try:
        return weakref.ref(value)
    except TypeError:  # a string or a tuple
        return value


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)
