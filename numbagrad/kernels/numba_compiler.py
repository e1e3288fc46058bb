"""How Numba compiles our functions: LLVM optimises each once, where Numba would do so four times.

Numba runs LLVM's passes over each function alone, then a cheap set over it with all that it calls,
then the full one; what it calls has been through all three, and has become machine code too, though
nobody calls that. The first two serve to find counts of references that cancel each other, which
a function that allocates nothing does not have, and LLVM's full set begins with much the same.
Kernels of all kinds compile in four fifths of the time so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from llvmlite.binding import Linkage, create_new_module_pass_manager, parse_assembly
from numba import types
from numba.core import config, errors
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import AnnotateTypes, NativeLowering, NopythonRewrites
from numba.core.untyped_passes import (
    InlineClosureLikes,
    LiteralUnroll,
    RewriteDynamicRaises,
    WithLifting,
)

__all__ = ["BY_WORDS", "AllocatingCompiler", "InnerCompiler", "KernelCompiler", "OverloadCompiler"]
__all__ += [
    "OwnCompiler",
    "PartCompiler",
    "ProgramCompiler",
    "address_by_words",
    "entered_by_words",
    "way_by_words",
]


class _NoEngine:
    """Stands for the engine that runs machine code, where there is none."""

    def set_env(self, name: str, environment: Any) -> None:
        """Nothing to set: what inner functions do needs no Python object."""


OPAQUE = "numbagrad."
"""What the names of functions begin with that stay calls until loops are vectors."""
LONGEST = '"prefer-vector-width"="512"'
"""An attribute of functions whose loops are for the longest vectors that there are."""


def _inline_what_was_opaque(module: Any, codegen: Any) -> None:
    """Put the functions of ``simd/opaque.py`` where they are called, and leave out the others."""
    found = [f for f in module.functions if f.name.startswith(OPAQUE) and not f.is_declaration]
    for function in found:
        if function.linkage == Linkage.weak_any:  # what others might replace was not inlined
            function.add_function_attribute("alwaysinline")
        function.linkage = Linkage.internal
    if found:
        passes = create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.add_global_dead_code_eliminate_pass()
        passes.add_instruction_combine_pass()
        passes.run(module, codegen._pass_builder())


def _has_opaque(library: Any) -> bool:
    return any(f.name.startswith(OPAQUE) for f in library.get_defined_functions())


class _Vectorised(JITCodeLibrary):
    """LLVM's code of a function that may call functions of ``simd/opaque.py``."""

    def add_ir_module(self, ir_module: Any) -> None:
        """Add a module, whose loops are for the longest vectors if such functions are called."""
        opaque = any(name.startswith(OPAQUE) for name in ir_module.globals)
        if opaque or any(map(_has_opaque, self._linking_libraries)):
            for function in ir_module.functions:
                if function.blocks:
                    # llvmlite's own add knows no strings
                    set.add(function.attributes, LONGEST)
        super().add_ir_module(ir_module)

    def _optimize_final_module(self) -> None:
        super()._optimize_final_module()
        _inline_what_was_opaque(self._final_module, self._codegen)


class _Alone(_Vectorised):
    """LLVM's code of a function that is entered by its address, and linked into nothing else.

    It goes to disk as machine code alone. To read what LLVM made that from took a third of loading.
    """

    def serialize_using_object_code(self) -> tuple[str, str, tuple[bytes, bytes]]:
        """What Numba makes the library from again: see ``loaded``."""
        self._ensure_finalized()
        return self.name, "object", (self._get_compiled_object(), _names_in(self._final_module))


_NAMES_ALONE = "numbagrad.names"


def _names_in(module: Any) -> bytes:
    """LLVM's code of a module that has nothing but the names of ``module``."""
    lines = [f'source_filename = "{_NAMES_ALONE}"']
    for each in module.global_variables:
        if not each.is_declaration:
            lines.append(f"@{_quoted(each.name)} = global i8 0")
    for each in module.functions:
        if not each.is_declaration:
            lines.append(f"define void @{_quoted(each.name)}() {{ ret void }}")
    code: bytes = parse_assembly("\n".join(lines)).as_bitcode()
    return code


def _quoted(name: str) -> str:
    """A name as LLVM reads it."""
    return '"' + re.sub(rb"[^-$.\w]", lambda m: b"\\%02x" % m[0][0], name.encode()).decode() + '"'


def loaded(result: Any) -> Any:
    """What Numba has made from a file, unfit for linking if there was machine code alone."""
    library = result.library
    if library._shared_module.source_file == _NAMES_ALONE:
        library.__class__ = _MachineCode
    return result


class _MachineCode(JITCodeLibrary):
    """Machine code that came from disk."""

    def _get_module_for_linking(self) -> Any:
        raise RuntimeError(f"{self.name} came from disk as machine code: it has only an address")


class KernelLibrary(_Vectorised):
    """LLVM's code of a function that counts no references, optimised once."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        passes, builder = self._codegen._module_pass_manager()
        with self._recorded_timings.record("Module passes", builder):
            passes.run(self._final_module, builder)
        _inline_what_was_opaque(self._final_module, self._codegen)


def way_by_words(name: str) -> str:
    """The name of the way into a kernel of ours that takes its arguments from memory.

    It is ``int32 words.NAME(int64 *words)``: of each argument the words that Numba passes it as, an
    array's null, null, size, bytes of an element, address, sizes and strides. It gives the kernel's
    status. Where that is 0 a number that the function returns becomes the first word; elsewhere
    this becomes the address of what Numba says of the error.
    """
    return f"words.{name}"


def address_by_words(result: Any) -> int:
    """The address of the way by words into what Numba has compiled; 0 where there is none."""
    name = way_by_words(result.fndesc.llvm_func_name)
    return int(result.library.get_pointer_to_function(name))


class _Entered(_Vectorised):
    """LLVM's code of a kernel of ours, which replays enter by words."""

    def add_ir_module(self, ir_module: Any) -> None:
        """Add the kernel's module with the way by words; others as they are."""
        for function in list(ir_module.functions):
            status = function.function_type.return_type == ir.IntType(32)
            if status and function.name.startswith("_ZN") and function.blocks:
                _add_way_by_words(ir_module, function)
        super().add_ir_module(ir_module)


class OwnLibrary(_Entered, KernelLibrary):
    """That of a kernel that allocates nothing."""


class PartLibrary(_Alone, KernelLibrary):
    """That of a loop that a program calls, or a formula's."""


class ProgramLibrary(_Alone, OwnLibrary):
    """That of a program."""


def _add_way_by_words(module: Any, kernel: Any) -> None:
    word = ir.IntType(64)
    kind = ir.FunctionType(ir.IntType(32), [word.as_pointer()])
    function = ir.Function(module, kind, way_by_words(kernel.name))
    inside = ir.IRBuilder(function.append_basic_block("entry"))
    result, trouble, *rest = [a.type for a in kernel.args]
    values = [inside.alloca(result.pointee), inside.alloca(trouble.pointee)]
    for k, type_ in enumerate(rest):
        place = inside.gep(function.args[0], [word(k)])
        if isinstance(type_, ir.PointerType):
            values.append(inside.inttoptr(inside.load(place), type_))
        elif isinstance(type_, ir.IntType) and type_.width < 64:
            values.append(inside.trunc(inside.load(place), type_))
        else:
            values.append(inside.load(inside.bitcast(place, type_.as_pointer())))
    call = inside.call(kernel, values)
    call.attributes.add("noinline")
    if rest:
        found = inside.load(values[0])
        if found.type == word:
            inside.store(found, function.args[0])
        with inside.if_then(inside.icmp_signed("!=", call, call.type(0)), likely=False):
            found = inside.load(values[1])
            inside.store(inside.ptrtoint(found, word), function.args[0])
    inside.ret(call)


class InnerLibrary(KernelLibrary):
    """LLVM's code of a function and of what it calls, as lowered, for others to link in."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """0: Numba asks for the way in from Python, which there is not."""
        self._ensure_finalized()
        if any(function.name == name for function in self.get_defined_functions()):
            raise RuntimeError(f"{self.name} is linked into what calls it: it has no address")
        return 0

    @property
    def codegen(self) -> Any:
        """Where the library's machine code would be."""
        return _NoEngine()


def entered_by_words(kinds: Sequence[types.Type], result: types.Type) -> bool:
    """Whether Python can enter a function of such arguments by words: see ``entered.py``."""
    return bool(kinds) and result in (types.none, types.int64) and all(map(_is_known, kinds))


def _is_known(kind: types.Type) -> bool:
    if type(kind) in BY_WORDS:
        return not isinstance(kind.dtype, _LONG)
    return kind in _NUMBERS


_LONG = (types.Record, types.NestedArray, types.CharSeq, types.UnicodeCharSeq)
"""Elements of any size."""


_NUMBERS = {types.float64, types.int64, types.boolean}
BY_WORDS: set[type] = {types.Array}
"""Kinds of arrays of which ``entered.py`` knows the words."""


class _Lowering(NativeLowering):
    """Numba's lowering, into a library of ours."""

    library: type[JITCodeLibrary]

    def run_pass(self, state: Any) -> bool:
        """Lower one function."""
        if issubclass(self.library, _Entered) and entered_by_words(state.args, state.return_type):
            state.flags.no_cpython_wrapper = True
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        lowered = bool(super().run_pass(state))
        described = state.cr.fndesc
        described.typemap = described.calltypes = None
        return lowered


def _into(library: type[JITCodeLibrary]) -> type[_Lowering]:
    """The pass of Numba's that lowers into ``library``."""
    told = {"_name": f"numbagrad_{library.__name__.lower()}", "library": library}
    made = type(f"{library.__name__}Lowering", (_Lowering,), told)
    lowering: type[_Lowering] = register_pass(mutates_CFG=True, analysis_only=False)(made)
    return lowering


@register_pass(mutates_CFG=True, analysis_only=False)
class InnerLowering(_Lowering):
    """Lowering into an ``InnerLibrary``."""

    _name = "numbagrad_inner_lowering"
    library = InnerLibrary

    def run_pass(self, state: Any) -> bool:
        """Lower one function, whose caller must not give up a reference that it does not hold."""
        returned = state.targetctx.data_model_manager[state.return_type]
        if not state.flags.nrt and returned.contains_nrt_meminfo():
            name = state.func_id.func_name
            raise errors.NumbaTypeError(f"{name} returns an array: make it inner(allocates=True)")
        return super().run_pass(state)


class KernelCompiler(Compiler):
    """Numba's compiler with another lowering, without the passes that find nothing here.

    spared: those for functions inside functions, ``with`` blocks, unrolled tuples, errors with
    arguments and expressions of whole arrays, which kernels of loops do not have. They take 6 % of
    the time, because each looks at everything.
    """

    lowering: type[_Lowering] = _into(KernelLibrary)
    spared: tuple[type, ...] = (
        WithLifting,
        InlineClosureLikes,
        RewriteDynamicRaises,
        LiteralUnroll,
        NopythonRewrites,
    )

    def define_pipelines(self) -> Any:
        """Numba's pipelines, each with the lowering exchanged, and no notes on types taken."""
        pipelines = super().define_pipelines()
        spared = self.spared
        if not (config.ANNOTATE or config.HTML):
            spared += (AnnotateTypes,)
        for pipeline in pipelines:
            pipeline.passes = [each for each in pipeline.passes if each[0] not in spared]
            for place, (step, why) in enumerate(pipeline.passes):
                if step is NativeLowering:
                    pipeline.passes[place] = self.lowering, why
        return pipelines


class OwnCompiler(KernelCompiler):
    """For the kernels that come with numbagrad, and texts of ours that others may call."""

    lowering = _into(OwnLibrary)


class PartCompiler(KernelCompiler):
    """For texts of ours that are called by their address."""

    lowering = _into(PartLibrary)


class ProgramCompiler(KernelCompiler):
    """For the main functions of programs, which Python calls."""

    lowering = _into(ProgramLibrary)


class AllocatingCompiler(KernelCompiler):
    """For those that make arrays."""

    lowering = _into(_Entered)
    spared = ()


class InnerCompiler(KernelCompiler):
    """For functions that only other compiled functions call."""

    lowering = InnerLowering


class OverloadCompiler(InnerCompiler):
    """For what stands behind an overloaded function such as ``min``, which may need any pass."""

    spared = ()
