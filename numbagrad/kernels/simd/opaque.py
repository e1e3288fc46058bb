"""Functions of one number that bring their own code for vectors.

LLVM's vectoriser takes a call for a whole vector where the call names functions for that, by its
vector function ABI. To it such a function is opaque: what LLVM does to arithmetic, such as doing
all of it for all elements, it does not do here. Once loops are vectors ``numba_compiler.py`` has
the functions inlined; where only Numba's own compiler has been they remain calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from ..inner import intrinsic
from ..numba_compiler import OPAQUE
from ..processor import features

__all__ = ["opaque", "rarely"]

LONG = "+avx512f" in features()
"""Whether vectors have 512 bits."""
_FACTS = "nounwind", "readnone", "willreturn"


def opaque(name: str, of: Any, arguments: list[Any], of_one: Any, of_vectors: Any) -> Any:
    """A function of compiled code.

    name: distinct from others.
    of, arguments: Numba's types of the result and of each argument, one or two.
    of_one: called with the builder and the arguments, gives the result.
    of_vectors: called with the builder, the length and the arguments as vectors, gives a vector.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        module, kinds = builder.module, [x.type for x in args]
        found = module.globals.get(OPAQUE + name)
        if found is None:
            found = _function(module, name, context.get_value_type(of), kinds, "weak")
            inside = ir.IRBuilder(found.append_basic_block())
            inside.ret(of_one(inside, *found.args))
            for width in _widths(of):
                _add_vectors(found, width, of_vectors)
        return _call(builder, found, args, "N", _widths(of))

    @intrinsic
    def of_a_number(typing, x):
        return of(*arguments), generate

    @intrinsic
    def of_two(typing, x, y):
        return of(*arguments), generate

    return of_two if len(arguments) == 2 else of_a_number


def rarely(name: str, function: Any) -> Any:
    """``function`` of a float64, as compiled code for a branch that is seldom taken.

    A call would keep LLVM from making vectors of a loop, and what is inlined is done for all
    elements. So its vectors come with a mask of who is meant, and who is meant is done one by one:
    where nobody is, a loop takes a test and a branch for each vector.

    name: distinct from others.
    """

    @intrinsic
    def call(typing, x):
        def generate(context, builder, signature, args):
            module = builder.module
            found = module.globals.get(OPAQUE + name)
            if found is None:
                found = _of_one(context, module, name, function, signature)
                for width in _widths(types.float64):
                    _add_masked(found, width)
            return _call(builder, found, args, "M", _widths(types.float64))

        return types.float64(types.float64), generate

    return call


def _widths(of: Any) -> tuple[int, ...]:
    """How long LLVM may make vectors: half a register of numbers, one and two, for arrays may hold
    numbers half as wide. Each costs a kernel some milliseconds."""
    whole = (512 if LONG else 256) // of.bitwidth
    return (whole // 2, whole, 2 * whole)


def _call(builder: Any, function: Any, args: Any, masks: str, widths: tuple[int, ...]) -> Any:
    name, each = function.name, "v" * len(args)
    vectors = [f"_ZGV_LLVM_{masks}{width}{each}_{name}({name}.{width})" for width in widths]
    out = builder.call(function, args)
    set.add(out.attributes, f'"vector-function-abi-variant"="{",".join(vectors)}"')
    return out


def _function(module: Any, name: str, of: Any, kinds: Any, linkage: str, *more: str) -> Any:
    """A function without its body, the same in all modules."""
    made = ir.Function(module, ir.FunctionType(of, kinds), OPAQUE + name)
    made.linkage = linkage
    for attribute in (*_FACTS, *more):
        set.add(made.attributes, attribute)  # llvmlite's own add does not know all
    return made


def _add_vectors(function: Any, width: int, of_vectors: Callable[..., Any]) -> None:
    """Add ``function`` of vectors."""
    of, *kinds = (
        ir.VectorType(kind, width)
        for kind in (function.function_type.return_type, *function.function_type.args)
    )
    name = f"{function.name.removeprefix(OPAQUE)}.{width}"
    made = _function(function.module, name, of, kinds, "weak_odr", "alwaysinline")
    inside = ir.IRBuilder(made.append_basic_block())
    inside.ret(of_vectors(inside, width, *made.args))


def _of_one(context: Any, module: Any, name: str, function: Any, signature: Any) -> Any:
    """A function of LLVM that is ``function``, which raises nothing."""
    kind = function._numba_type_
    chosen = context.typing_context.resolve_function_type(kind, signature.args, {})
    compiled = function.dispatcher.overloads[signature.args]
    context.add_linking_libs([compiled.library])
    double = ir.DoubleType()
    found = _function(module, name, double, [double], "weak_odr", "noinline", "cold")
    inside = ir.IRBuilder(found.append_basic_block())
    _, out = context.call_internal_no_propagate(inside, compiled.fndesc, chosen, found.args)
    inside.ret(out)
    return found


def _add_masked(function: Any, width: int) -> None:
    """Add ``function`` of those elements of a vector that a mask names; the others are any."""
    of = ir.VectorType(ir.DoubleType(), width)
    kinds = [of, ir.VectorType(ir.IntType(1), width)]
    name = f"{function.name.removeprefix(OPAQUE)}.{width}"
    one_by_one = _function(
        function.module, f"{name}.each", of, kinds, "weak_odr", "noinline", "cold"
    )
    x, mask = one_by_one.args
    inside = ir.IRBuilder(one_by_one.append_basic_block())
    out = cgutils.alloca_once_value(inside, x)
    with cgutils.for_range(inside, ir.IntType(32)(width)) as loop:
        with inside.if_then(inside.extract_element(mask, loop.index)):
            value = inside.call(function, [inside.extract_element(x, loop.index)])
            inside.store(inside.insert_element(inside.load(out), value, loop.index), out)
    inside.ret(inside.load(out))

    made = _function(function.module, name, of, kinds, "weak_odr", "alwaysinline")
    x, mask = made.args
    inside = ir.IRBuilder(made.append_basic_block())
    meant = inside.bitcast(mask, ir.IntType(width))
    with inside.if_then(inside.icmp_unsigned("==", meant, meant.type(0)), likely=True):
        inside.ret(x)
    inside.ret(inside.call(one_by_one, [x, mask]))
