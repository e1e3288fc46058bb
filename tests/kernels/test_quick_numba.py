"""What stands in for parts of Numba's compiler gives what those give."""

from __future__ import annotations

import collections
import functools
import re
import threading

import numba
import numpy as np
import pytest
from llvmlite import ir as llvm
from numba.core import base, compiler, ir
from numba.core.registry import cpu_target
from numba.core.targetconfig import TargetConfig

from numbagrad.kernels import quick_numba, simd_math
from numbagrad.kernels.quick_numba import quick

known = pytest.mark.skipif(
    not numba.__version__.startswith(quick_numba.KNOWN),
    reason=f"Numba {numba.__version__}: hold its functions against quick_numba, then add it there",
)


def now():
    return [vars(owner)[name] for owner, name, _ in quick_numba._EXCHANGED]


@known
def test_numba_is_as_it_was_afterwards():
    before = now()
    ours = [function for *_, function in quick_numba._EXCHANGED]
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
        assert quick_numba._takes_loc(f) == quick_numba._any_takes_loc(f)


def test_sizes_and_options():
    context = cpu_target.target_context
    byte, word, real = llvm.IntType(8), llvm.IntType(64), llvm.FloatType()
    named = llvm.global_context.get_identified_type("test_quick_numba")
    if named.elements is None:
        named.set_body(byte, word)
    kinds = [byte, word, real, llvm.DoubleType(), word.as_pointer(), llvm.ArrayType(real, 3), named]
    kinds += [llvm.LiteralStructType(kinds), llvm.LiteralStructType([byte, word], packed=True)]
    for kind in kinds + kinds:
        assert quick_numba._size(context, kind) == base.BaseContext.get_abi_sizeof(context, kind)
    flags = compiler.Flags()
    flags.nrt, flags.error_model = True, "numpy"
    assert list(quick_numba._values(flags).items()) == list(TargetConfig.values(flags).items())
    assert quick_numba._values(compiler.Flags()) == compiler.Flags().values()


def row(out, x, y, p):
    for i in range(x.shape[0]):
        value = x[i] * y[i % 3] - simd_math.exp(x[i]) if p else max(x[i], y[0])
        out[i] = value**2 if not value == 0 else out[i] // 2


def test_the_same_machine_code():
    def code(function):
        dispatcher = numba.njit(error_model="numpy")(function)
        dispatcher.compile("void(f4[::1], f4[::1], f4[:], i8)")
        (text,) = dispatcher.inspect_asm().values()
        names = dict.fromkeys(re.findall(r"_?[.\w$]*_ZN[.\w$]+|\.L\w+", text))
        for name in sorted(names, key=len, reverse=True):
            text = text.replace(name, f"name{list(names).index(name)}")
        return [line for line in text.splitlines() if not line.lstrip().startswith(".size")]

    expected = code(row)
    with quick():
        assert code(row) == expected
