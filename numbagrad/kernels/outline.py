"""Loops over ``prange`` for threads: each becomes a function of its own.

Numba's way (``parallel=True``) goes through passes that look for parallel loops in all that a
function does, and has LLVM optimise the function, the loop's function and what passes arguments to
it one after the other, each three times over: a kernel takes three times as long to compile with
threads as without. The kernels here say themselves what is parallel. So

    for task in prange(tasks):
        rows(task, out, x)

becomes ``share_out(k_loop0, 0, tasks, (out, x))`` with

    def k_loop0(first_round, last_round, out, x):
        for task in range(first_round, last_round):
            rows(task, out, x)

and ``share_out`` passes the threads (``crew``) a function of a few instructions that calls
``k_loop0``. All of it is compiled at once. What a loop binds is its own: a name that it reads
first, as a sum over all rounds would, or that is read behind it, is refused.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types as python_types
from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from .crew import AVAILABLE, MOST, SHARE, STATE
from .inner import OPTIONS, Inner, intrinsic

__all__ = ["outlined"]

WORD = ir.IntType(64)
BYTES = ir.IntType(8).as_pointer()


def outlined(
    function: python_types.FunctionType, fastmath: set[str], allocates: bool
) -> python_types.FunctionType:
    """``function`` whose loops over ``prange`` are functions; itself where there are none.

    Raises SyntaxError where a loop binds what is read before in a round, or behind it.
    """
    code = function.__code__
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    ast.increment_lineno(tree, code.co_firstlineno - 1)
    (definition,) = tree.body
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    writer = _Outliner(definition, code)
    definition = writer.visit(definition)
    if not writer.loops:
        return function
    names = {**function.__globals__, "share_out": share_out}
    module = ast.Module([*writer.loops, definition], [])
    exec(compile(ast.fix_missing_locations(module), code.co_filename, "exec"), names)
    options = {**OPTIONS, "_nrt": allocates, "fastmath": fastmath}
    for loop in writer.loops:
        names[loop.name] = Inner(names[loop.name], options)
    made = names[function.__name__]
    made.__module__, made.__qualname__ = function.__module__, function.__qualname__
    return made


class _Outliner(ast.NodeTransformer):
    """Puts calls of ``share_out`` in the place of a function's loops.

    loops: the functions that they call.
    """

    def __init__(self, definition: ast.FunctionDef, code: python_types.CodeType):
        self.own = set(code.co_varnames)
        self.name = code.co_name
        self.uses = list(_uses(definition))
        self.loops: list[ast.FunctionDef] = []

    def visit_For(self, node: ast.For) -> Any:
        """A loop over ``prange`` as a call; others, with what is in them."""
        call = node.iter
        if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "prange"):
            return self.generic_visit(node)
        *starts, stop = call.args
        taken = self._taken(node)
        name = f"{self.name}_loop{len(self.loops)}"
        node.iter = _call("range", _name("first_round"), _name("last_round"))
        parameters = ", ".join(["first_round", "last_round", *taken])
        (loop,) = ast.parse(f"def {name}({parameters}): pass").body
        assert isinstance(loop, ast.FunctionDef)
        loop.body = [node]
        self.loops.append(ast.copy_location(loop, node))
        passed = ast.Tuple([_name(each) for each in taken], ast.Load())
        begin = starts[0] if starts else ast.Constant(0)
        return ast.copy_location(
            ast.Expr(_call("share_out", _name(name), begin, stop, passed)), node
        )

    def _taken(self, loop: ast.For) -> list[str]:
        """The function's own names that ``loop`` reads before it binds them."""
        first: dict[str, bool] = {}
        for use in _uses(loop.target, *loop.body):
            if use.id in self.own:
                first.setdefault(use.id, isinstance(use.ctx, ast.Load))
        inside = set(map(id, ast.walk(loop)))
        bound = {u.id for u in _uses(loop.target, *loop.body) if isinstance(u.ctx, ast.Store)}
        last = max(k for k, use in enumerate(self.uses) if id(use) in inside)
        behind: dict[str, bool] = {}
        for use in self.uses[last + 1 :]:
            behind.setdefault(use.id, isinstance(use.ctx, ast.Load))
        for name in sorted(bound):
            if first[name] or behind.get(name):
                place = "before it is bound there" if first[name] else "behind it"
                raise SyntaxError(
                    f"{self.name}: {name!r} of the loop over prange in line {loop.lineno} is read "
                    f"{place}: its rounds run at the same time, in any order"
                )
        return [name for name, read in first.items() if read]


def _uses(*nodes: ast.AST) -> Iterator[ast.Name]:
    """Names in the order in which they are read and bound."""
    for node in nodes:
        if isinstance(node, ast.Name):
            yield node
        elif isinstance(node, ast.AugAssign):
            if isinstance(node.target, ast.Name):
                yield _name(node.target.id)
            yield from _uses(node.value, node.target)
        elif isinstance(node, ast.Assign):
            yield from _uses(node.value, *node.targets)
        elif isinstance(node, ast.For):
            yield from _uses(node.iter, node.target, *node.body, *node.orelse)
        else:
            yield from _uses(*ast.iter_child_nodes(node))


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(_name(name), list(arguments), [])


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


@intrinsic
def share_out(
    typing: Any, loop: Any, start: Any, stop: Any, taken: Any
) -> tuple[Any, Callable[..., Any]]:
    """Call ``loop(first, last, *taken)`` by the threads, for parts of ``start`` to ``stop``.

    As many parts as there are threads, as equal as can be; all of it in this thread where that is
    the only one, or where there is one round.
    """
    kinds = types.intp, types.intp, *map(types.unliteral, taken)
    loop.get_call_type(typing, kinds, {})

    def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
        from numba.np.ufunc.parallel import _launch_threads

        _launch_threads()  # also tells LLVM where its functions are
        _, start, stop, packed = values
        members = [
            context.cast(b, b.extract_value(packed, k), taken[k], kind)
            for k, kind in enumerate(kinds[2:])
        ]
        count = b.sub(stop, start)
        asked = b.call(_external(b.module, "get_num_threads", WORD, []), [])
        for most in (WORD(MOST), count):
            asked = b.select(b.icmp_signed("<", most, asked), most, asked)
        fields = [start, count, asked, *members]
        record = cgutils.alloca_once(b, ir.LiteralStructType([f.type for f in fields]))
        for k, field in enumerate(fields):
            b.store(field, cgutils.gep_inbounds(b, record, 0, k))
        compiled = loop.dispatcher.get_compile_result(types.none(*kinds))
        context.add_linking_libs([compiled.library])
        part = _part(context, b, compiled.fndesc, record.type)
        data = b.ptrtoint(record, WORD)
        with b.if_else(b.icmp_signed(">", asked, WORD(1))) as (many, one):
            with many:
                (_by_crew if AVAILABLE else _by_numba)(b, part, data, asked)
            with one, b.if_then(b.icmp_signed("==", asked, WORD(1))):
                b.call(part, [WORD(0), data])
        return context.get_dummy_value()

    return types.none(loop, types.intp, types.intp, taken), generate


def _part(context: Any, outer: Any, described: Any, record: Any) -> Any:
    """What runs one part: ``void (number, record)``."""
    name = outer.module.get_unique_name(f"{outer.function.name}.part")
    function = ir.Function(outer.module, ir.FunctionType(ir.VoidType(), [WORD, WORD]), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    number, data = function.args
    fields = b.inttoptr(data, record)
    start, count, parts, *members = (
        b.load(cgutils.gep_inbounds(b, fields, 0, k)) for k in range(len(record.pointee.elements))
    )
    ends = [
        b.add(start, b.sdiv(b.mul(each, count), parts)) for each in (number, b.add(number, WORD(1)))
    ]
    target = context.declare_function(outer.module, described)
    given = [*ends, *members]
    context.call_conv.call_function(b, target, described.restype, described.argtypes, given)
    b.ret_void()
    return function


def _by_crew(b: Any, part: Any, data: Any, parts: Any) -> None:
    state = b.module.globals.get(STATE) or ir.GlobalVariable(b.module, WORD, STATE)
    words = cgutils.alloca_once(b, ir.ArrayType(WORD, 4))
    for k, each in enumerate((b.ptrtoint(state, WORD), b.ptrtoint(part, WORD), data, parts)):
        b.store(each, b.gep(words, [WORD(0), WORD(k)]))
    share = _external(b.module, SHARE, ir.IntType(32), [WORD.as_pointer()])
    b.call(share, [b.bitcast(words, WORD.as_pointer())])


def _by_numba(b: Any, part: Any, data: Any, parts: Any) -> None:
    """By Numba's pool, which calls ``void (char **, intp *, intp *, void *)`` for some parts.

    It adds to the one address, 0, the number of the first of them, and counts them.
    """
    pointers = [BYTES.as_pointer(), WORD.as_pointer(), WORD.as_pointer(), BYTES]
    name = f"{part.name}.several"
    several = ir.Function(b.module, ir.FunctionType(ir.VoidType(), pointers), name)
    several.linkage = "internal"
    inside = ir.IRBuilder(several.append_basic_block("entry"))
    addresses, counts, _, whole = several.args
    first = inside.ptrtoint(inside.load(addresses), WORD)
    with cgutils.for_range(inside, inside.load(counts)) as loop:
        inside.call(part, [inside.add(first, loop.index), inside.ptrtoint(whole, WORD)])
    inside.ret_void()
    address, step = (cgutils.alloca_once(b, t) for t in (BYTES, WORD))
    b.store(ir.Constant(BYTES, None), address)
    b.store(WORD(1), step)
    counted = cgutils.alloca_once_value(b, parts)
    given = [b.bitcast(each, BYTES) for each in (several, address, counted, step)]
    pool = _external(b.module, "numba_parallel_for", ir.VoidType(), [BYTES] * 5 + [WORD] * 3)
    b.call(pool, [*given, b.inttoptr(data, BYTES), WORD(0), WORD(1), parts])


def _external(module: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    return cgutils.get_or_insert_function(module, ir.FunctionType(result, arguments), name)
