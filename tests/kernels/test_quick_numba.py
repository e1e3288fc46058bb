"""What stands in for parts of Numba's compiler gives what those give."""

from __future__ import annotations

import collections
import functools
import operator
import re
import threading
import types as python_types
from pathlib import Path

import numba
import numpy as np
import pytest
from llvmlite import ir as llvm
from llvmlite.binding.executionengine import ExecutionEngine
from numba import extending, literal_unroll, types
from numba.core import base, compiler, errors, inline_closurecall, ir, postproc
from numba.core.registry import cpu_target
from numba.core.targetconfig import TargetConfig
from numba.core.types.functions import BaseFunction

from numbagrad.kernels import quick_inlining, quick_numba, quick_parts
from numbagrad.kernels.inner import pasted
from numbagrad.kernels.quick_numba import quick
from numbagrad.kernels.simd_math import exp

known = pytest.mark.skipif(
    not numba.__version__.startswith(quick_numba.KNOWN),
    reason=f"Numba {numba.__version__}: hold its functions against quick_numba, then add it there",
)


@pytest.fixture
def as_ours(monkeypatch):
    """The functions of this file are taken for numbagrad's."""
    for module in (quick_parts, quick_inlining):
        monkeypatch.setattr(module, "lasts", lambda function: True)


def now():
    return [vars(owner)[name] for owner, name, _ in quick.parts]


@known
def test_numba_is_as_it_was_afterwards():
    before = now()
    ours = [function for *_, function in quick.parts]
    with quick():
        assert now() == ours
        with pytest.raises(KeyError), quick():
            raise KeyError
        assert now() == ours
    assert now() == before


def test_another_version_is_left_alone(monkeypatch):
    monkeypatch.setattr(numba, "__version__", "1.0.0")
    before = now()
    with quick():
        assert now() == before


@known
def test_several_threads():
    before, met = now(), []

    def work():
        for _ in range(200):
            with quick():
                met.append(now() != before)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert now() == before and all(met)


Pair = collections.namedtuple("Pair", "first second")
PAIR, TABLE = Pair(1, 2), collections.OrderedDict(a=3)


def example(x, n, mode, out):
    if n < 0:
        raise ValueError("negative", PAIR, TABLE)
    total, places = 0.0, (n, 2, x.shape[0])
    for i in range(places[0]):
        if (mode and x[i] > total) or i in (1, 2):
            total += np.sqrt(x[i]) ** places[1]
        elif abs(x[i]) != total:
            out[i, :] = [total, -x[i]][i % 2]
            print("far", i)
    return {"total": total}, [y * 2 for y in x]


def test_variables_of_instructions():
    blocks = compiler.run_frontend(example).blocks.values()
    statements = [s for block in blocks for s in block.body]
    values = [s.value for s in statements if isinstance(getattr(s, "value", None), ir.Inst)]
    assert len(statements) > 50
    table = collections.OrderedDict(a=values[1], b=[values[2], statements[0].target])
    values.append(ir.Expr("none", ir.unknown_loc, pair=Pair(values[0], table), other=TABLE))

    def names():
        return [[v.name for v in s.list_vars()] for s in statements + values]

    expected = names()
    with quick():
        assert names() == expected


def refused(x):
    if x < 0:
        raise ValueError("negative", PAIR)
    return x


@known
def test_a_named_tuple_among_the_arguments_of_an_error():
    with quick():
        assert numba.njit(refused)(1) == 1


def test_implementations_with_a_place():
    def plain(context, builder, sig, args): ...
    def placed(context, builder, sig, args, loc=None): ...
    def worded(*args, loc): ...
    def starred(*loc): ...
    def doubly(args, **loc): ...
    def local(args):
        loc = args
        return loc

    @functools.wraps(placed)
    def wrapped(*args, **kwargs): ...

    _, _, takes_loc = quick_parts.places(base)
    for f in (
        plain,
        placed,
        worded,
        starred,
        doubly,
        local,
        wrapped,
        functools.partial(placed, 1),
        len.__call__,
    ):
        assert takes_loc(f) == base._has_loc(f)


def test_sizes_and_options():
    context = cpu_target.target_context
    byte, word, real = llvm.IntType(8), llvm.IntType(64), llvm.FloatType()
    named = llvm.global_context.get_identified_type("test_quick_numba")
    if named.elements is None:
        named.set_body(byte, word)
    kinds = [byte, word, real, llvm.DoubleType(), word.as_pointer(), llvm.ArrayType(real, 3), named]
    kinds += [llvm.LiteralStructType(kinds), llvm.LiteralStructType([byte, word], packed=True)]
    _, _, size = quick_parts.sizes(base)
    for kind in kinds + kinds:
        assert size(context, kind) == base.BaseContext.get_abi_sizeof(context, kind)
    flags = compiler.Flags()
    flags.nrt, flags.error_model = True, "numpy"
    _, _, values = quick_parts.options(TargetConfig)
    assert list(values(flags).items()) == list(TargetConfig.values(flags).items())
    assert values(compiler.Flags()) == compiler.Flags().values()


def test_signatures_of_operators():
    context = cpu_target.typing_context
    context.refresh()
    numbers = [types.int64, types.uint8, types.float32, types.boolean, types.literal(3)]
    numbers += [types.complex64, types.float64[::1], types.unicode_type]
    _, _, quicker = quick_parts.calls(BaseFunction)
    for key in (operator.add, operator.floordiv, operator.lt, operator.neg, bool, abs):
        function = context.resolve_value_type(key)
        for _ in range(2):
            for a in numbers:
                for args in ((a,), *[(a, b) for b in numbers]):
                    found = []
                    for way in (BaseFunction.get_call_type, quicker):
                        try:
                            found.append(way(function, context, args, {}))
                        except (errors.TypingError, ValueError):
                            found.append(None)
                    assert found[0] == found[1], (key, args)


def test_types_of_operators_stay_as_they_are():
    """Numba pickles them, where a function that it keeps on disk was given one."""
    context = cpu_target.typing_context
    context.refresh()
    function = context.resolve_value_type(operator.add)
    before = set(vars(function))
    with quick():
        assert numba.njit(lambda a, b: a + b)(1, 2.0) == 3.0
    assert set(vars(function)) == before


def statements(func_ir):
    return [(offset, *map(str, block.body)) for offset, block in func_ir.blocks.items()]


@pytest.mark.usefixtures("as_ours")
def test_lifetimes_of_variables():
    def forms():
        made = []
        for function in (example, row, refused, counted):
            func_ir = compiler.run_frontend(function)
            postproc.PostProcessor(func_ir).run(emit_dels=True)
            lives = func_ir.variable_lifetime
            made += statements(func_ir), func_ir.generator_info is None
            made += lives.livemap, lives.usedefs, lives.deadmaps
        return made

    expected = forms()
    with quick():
        assert forms() == expected


def counted(n):
    for i in range(n):
        yield i * n


def test_kernels_do_without_what_reads_lifetimes_later():
    """Object mode and unrolled tuples: see ``quick_parts.lifetimes``."""
    files = [p for p in Path(quick_parts.__file__).parent.rglob("*.py") if p.stem != "quick_parts"]
    assert len(files) > 100
    assert [p for p in files if re.search(r"objmode|literal_unroll", p.read_text())] == []


def row(out, x, y, p):
    for i in range(x.shape[0]):
        value = x[i] * y[i % 3] - exp(x[i]) if p else max(x[i], y[0])
        out[i] = value**2 if not value == 0 else out[i] // 2


FLOOR = 1.0


@pasted
def halved(x, depth=2):
    """With a loop, a branch, two ways out and a default; called more than once."""
    for k in range(depth):
        if x < FLOOR:
            return x
        x = x * 0.5 + k
    return x


@pasted
def twice(x):
    return halved(x, 3) + halved(x + 1)


def inlines(out, x, y, p):
    for i in range(x.shape[0]):
        out[i] = twice(x[i]) if p else halved(y[i % 3])
        out[i] -= twice(halved(out[i], p))


@pytest.mark.usefixtures("as_ours")
@pytest.mark.parametrize("function", [row, inlines])
def test_the_same_machine_code(function):
    def code(function):
        dispatcher = numba.njit(error_model="numpy")(function)
        dispatcher.compile("void(f4[::1], f4[::1], f4[:], i8)")
        (text,) = dispatcher.inspect_asm().values()
        names = dict.fromkeys(re.findall(r"_?[.\w$]*_ZN[.\w$]+|\.L\w+", text))
        for name in sorted(names, key=len, reverse=True):
            text = text.replace(name, f"name{list(names).index(name)}")
        return [line for line in text.splitlines() if not line.lstrip().startswith(".size")]

    expected = code(function)
    with quick():
        assert code(function) == expected
        assert code(function) == expected


@known
@pytest.mark.usefixtures("as_ours")
def test_a_function_is_read_again_where_a_name_stands_for_something_else(monkeypatch):
    cell, module = 2.0, python_types.ModuleType("numbagrad_test_names")
    module.SCALE = 3.0

    @pasted
    def scaled(x):
        return x * FLOOR * cell * module.SCALE

    def call(x):
        return scaled(x) + scaled(x)

    def value():
        return numba.njit(call)(1.0)

    with quick():
        assert value() == value() == 12.0
        monkeypatch.setitem(globals(), "FLOOR", 10.0)
        assert value() == 120.0
        module.SCALE = 1.0
        assert value() == 40.0
        cell = 5.0
        assert value() == 100.0
        monkeypatch.setitem(globals(), "FLOOR", 1.0)
        assert value() == 10.0


def test_what_users_write_is_read_anew(monkeypatch):
    @pasted
    def scaled(x):
        def inner(y):
            return y * FLOOR

        return inner(x)

    def value():
        return numba.njit(lambda x: scaled(x))(2.0)

    with quick():
        assert value() == 2.0
        monkeypatch.setitem(globals(), "FLOOR", 10.0)
        assert value() == 20.0


@known
def test_an_overloaded_operator_is_compiled_for_the_flags_of_its_caller():
    @extending.overload(operator.matmul)
    def divided(a, b):
        if isinstance(a, types.Float) and isinstance(b, types.Float):
            return lambda a, b: a / b
        return None

    with quick():
        assert numba.njit(error_model="numpy")(lambda a, b: a @ b)(1.0, 0.0) == np.inf
        with pytest.raises(ZeroDivisionError):
            numba.njit(error_model="python")(lambda a, b: a @ b)(1.0, 0.0)
        assert numba.njit(error_model="numpy")(lambda a, b: b @ a)(0.0, 1.0) == np.inf


def test_copies_of_blocks():
    inlining = quick_inlining.Inlining(ir, inline_closurecall.InlineWorker)
    for function in (example, row, refused, counted):
        func_ir = compiler.run_frontend(function)
        before = statements(func_ir)
        made = inlining.copied(func_ir)
        assert statements(made) == before
        assert made.func_id.unique_name != func_ir.func_id.unique_name
        for block, other in zip(made.blocks.values(), func_ir.blocks.values(), strict=True):
            assert block.scope is not other.scope
            for statement, old in zip(block.body, other.body, strict=True):
                assert statement is not old
                for var in statement.list_vars():
                    assert var.scope is block.scope
            del block.body[:-1]
        assert statements(func_ir) == before


def in_object_mode(x):
    total = x.sum()
    for k in range(3):
        scale = total + k
        with numba.objmode(y="float64"):
            y = float(str(scale * 2))
        total += y
    return total


MIXED = 1, 2.5, 3


def unrolled(x):
    total = 0.0
    for each in literal_unroll(MIXED):
        total += each * x[0]
    return total


def generated(x):
    total = 0.0
    for value in counted(4):
        total += value
    return total + x[0]


def fall(n):
    return 1.0 if n < 1 else n * fall(n - 1)


def recursive(x):
    return fall(5) + x[1]


def optional(x):
    found = None
    for value in x:
        if value > 1:
            found = value
    if found is None:
        return -1.0
    return found + 1


def caught(x):
    try:
        if x[0] < 1:
            raise ValueError("small")
        return 1.0
    except Exception:
        return 2.0


def in_parallel(x):
    total = 0.0
    for i in numba.prange(x.shape[0]):
        total += np.sqrt(x[i]) + (x * 2)[i]
    return total


def escaping(x):
    last = 0.0
    for last in literal_unroll(MIXED):  # noqa: B007
        if x[0] > 2:
            continue
        x[0] += 1
    return x[0] + last


def used_afterwards(x):
    last, value = 0.0, x[0] + 1
    for each in literal_unroll(MIXED):
        last = each * value
        if last > 2:
            continue
        value += 1
    return value + last


@pytest.mark.parametrize(
    "function",
    [
        escaping,
        used_afterwards,
        in_object_mode,
        unrolled,
        generated,
        recursive,
        optional,
        caught,
        in_parallel,
    ],
)
def test_what_users_write(function, monkeypatch):
    x = np.array([0.5, 1.5, 2.5])
    options = {"parallel": True} if function is in_parallel else {}

    def value():
        for inner in (fall, counted):
            monkeypatch.setitem(globals(), inner.__name__, numba.njit(inner))
        try:
            return numba.njit(**options)(function)(x)
        finally:
            monkeypatch.undo()

    expected, x = value(), np.array([0.5, 1.5, 2.5])
    with quick():
        assert value() == expected


@known
def test_modules_are_found_by_their_address(monkeypatch):
    (engine, _, add), (_, _, find) = quick_parts.modules(ExecutionEngine)
    llvmlites, seen = engine._find_module_ptr, []

    def both(self, pointer):
        found = find(self, pointer)
        seen.append((found, llvmlites(self, pointer)))
        return found

    monkeypatch.setattr(engine, "add_module", add)
    monkeypatch.setattr(engine, "_find_module_ptr", both)
    assert numba.njit(lambda x: x + 1)(2) == 3
    assert seen and all([mine is theirs is not None for mine, theirs in seen])
