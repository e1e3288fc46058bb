"""Copies to shared memory that run beside the arithmetic, and reads of it for tensor cores.

PTX ISA, "cp.async" and "ldmatrix". Compute capability 8.0 and later; not in the simulator.
Addresses are numbers: 64 bits in global memory, 32 in the shared memory of the block.
"""

from __future__ import annotations

from llvmlite import ir

from . import intrinsics  # noqa: F401 - it makes ready what Numba needs

from numba.cuda import types  # isort: skip
from numba.cuda.extending import intrinsic  # isort: skip

__all__ = [
    "NOTHING", "WAIT", "address", "asked_memory", "assembly", "commit", "copy16", "fragment",
    "fragment_turned", "put2", "take4",
]  # fmt: skip

_WORD, _LONG, NOTHING = ir.IntType(32), ir.IntType(64), ir.VoidType()


def assembly(builder, result, text, constraints, args):
    """A call of assembly that reads or writes memory; constraints: each with a comma after it."""
    kind = ir.FunctionType(result, [a.type for a in args])
    code = ir.InlineAsm(kind, text, f"{constraints}~{{memory}}", side_effect=True)
    return builder.call(code, args)


@intrinsic
def address(typing, pointer):
    """Where a pointer points, as int64."""

    def generate(context, builder, signature, arguments):
        return builder.ptrtoint(arguments[0], _LONG)

    return types.int64(pointer), generate


@intrinsic
def asked_memory(typing):
    """Where the shared memory begins that the launch asks for, as uint32; aligned to 128."""

    def generate(context, builder, signature, arguments):
        kind, name = ir.ArrayType(ir.IntType(8), 0), "numbagrad_asked_memory"
        memory = builder.module.globals.get(name)
        if memory is None:
            memory = ir.GlobalVariable(builder.module, kind, name, addrspace=3)
            memory.linkage, memory.align = "external", 128
        return builder.ptrtoint(memory, _WORD)

    return types.uint32(), generate


@intrinsic
def copy16(typing, to, source, there):
    """Begin to copy 16 bytes to shared memory; zeros where they are not ``there``."""

    def generate(context, builder, signature, arguments):
        to, source, there = arguments
        no = builder.zext(builder.not_(there), _WORD)
        text = (
            "{ .reg .pred %no; setp.ne.u32 %no, $2, 0; "
            "cp.async.cg.shared.global.L2::128B [$0], [$1], 16, %no; }"
        )
        assembly(builder, NOTHING, text, "r,l,r,", (to, source, no))
        return context.get_dummy_value()

    return types.void(types.uint32, types.int64, types.boolean), generate


@intrinsic
def commit(typing):
    """The copies that this thread began since the last ``commit`` are a group."""

    def generate(context, builder, signature, arguments):
        assembly(builder, NOTHING, "cp.async.commit_group;", "", ())
        return context.get_dummy_value()

    return types.void(), generate


def _waiter(count):
    @intrinsic
    def wait(typing):
        """Wait until at most ``count`` groups of this thread are under way."""

        def generate(context, builder, signature, arguments):
            assembly(builder, NOTHING, f"cp.async.wait_group {count};", "", ())
            return context.get_dummy_value()

        return types.void(), generate

    return wait


WAIT = [_waiter(n) for n in range(6)]


def _reader(turned):
    def read(typing, at):
        result = types.UniTuple(types.uint32, 4)

        def generate(context, builder, signature, arguments):
            words = ir.LiteralStructType([_WORD] * 4)
            text = f"ldmatrix.sync.aligned.m8n8.x4{turned}.shared.b16 {{$0,$1,$2,$3}}, [$4];"
            found = assembly(builder, words, text, "=r,=r,=r,=r,r,", arguments)
            parts = [builder.extract_value(found, n) for n in range(4)]
            return context.make_tuple(builder, result, parts)

        return result(types.uint32), generate

    return read


@intrinsic
def fragment(typing, at):
    """``ldmatrix``: four squares of 8 by 8 halves; lane 8 q + r gives where row r of square q
    begins, lane 4 g + t gets words t of rows g."""
    return _reader("")(typing, at)


@intrinsic
def fragment_turned(typing, at):
    """The same of the transposed squares."""
    return _reader(".trans")(typing, at)


@intrinsic
def put2(typing, at, a, b):
    """Write two floats to shared memory."""

    def generate(context, builder, signature, arguments):
        assembly(builder, NOTHING, "st.shared.v2.f32 [$0], {$1, $2};", "r,f,f,", arguments)
        return context.get_dummy_value()

    return types.void(types.uint32, types.float32, types.float32), generate


@intrinsic
def take4(typing, at):
    """Read four floats from shared memory."""
    result = types.UniTuple(types.float32, 4)

    def generate(context, builder, signature, arguments):
        words = ir.LiteralStructType([ir.FloatType()] * 4)
        text = "ld.shared.v4.f32 {$0, $1, $2, $3}, [$4];"
        found = assembly(builder, words, text, "=f,=f,=f,=f,r,", arguments)
        parts = [builder.extract_value(found, n) for n in range(4)]
        return context.make_tuple(builder, result, parts)

    return result(types.uint32), generate
