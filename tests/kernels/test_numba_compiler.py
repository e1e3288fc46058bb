"""How our functions are compiled: once, and without counts where nothing is allocated."""

import ast
import time
from importlib import import_module
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core import errors
from numba.core.annotations.type_annotations import TypeAnnotation

import numbagrad as ng
from numbagrad.kernels import store
from numbagrad.kernels.cpu import layer_norm
from numbagrad.kernels.inner import inner
from numbagrad.kernels.machine import kernel
from numbagrad.kernels.specialise import specialise

KERNELS = Path(ng.__file__).parent / "kernels"
compiled = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")


@inner
def _halves(x):
    return x[: x.size // 2], x[x.size // 2 :]


@inner
def _total(x):
    total = 0.0
    for value in x:
        total += value
    return total


@kernel(allocates=False)
def add_half(out, x):
    """out (1,); x (n,): the sum of the first half of x."""
    for value in _halves(x)[0]:
        out[0] += value


@kernel(allocates=False)
def add_all(out, x):
    """out (1,); x (n,): the sum of x."""
    out[0] = _total(x)


@kernel(allocates=False)
def add_copy(out, x):
    """out (1,); x (n,): the sum of a copy of x."""
    out[0] = np.sum(np.copy(x))


@kernel
def add_copy_by_count(out, x):
    """out (1,); x (n,): the sum of a copy of x, in a kernel that says nothing."""
    out[0] = np.sum(np.copy(x))


def result(of, x):
    out = np.zeros(1)
    of(out, x)
    return out[0]


def compiled_anew(of, *types):
    """The dispatcher of a kernel, none of whose code comes from disk."""
    dispatcher = store.jit(of.function, source=str(time.time_ns()), **of._options)
    dispatcher.compile(types)
    return dispatcher


@compiled
def test_a_kernel_compiles_into_one_function_that_counts_nothing():
    one = numba.float64[::1]
    text = compiled_anew(add_all, one, one).inspect_llvm((one, one))
    defined = [line for line in text.splitlines() if line.startswith("define")]
    assert any("add_all" in line for line in defined)
    assert not any("_total" in line for line in defined)  # it is in the place of its call
    assert "NRT_incref" not in text
    assert "NRT_incref" in compiled_anew(add_copy_by_count, one, one).inspect_llvm((one, one))
    assert result(add_all, np.arange(10.0)) == 45


@compiled
def test_an_inner_function_has_no_machine_code_of_its_own():
    one = numba.float64[::1]
    _total.dispatcher.compile((one,))
    found = _total.dispatcher.overloads[(one,)]
    with pytest.raises(RuntimeError, match="linked into what calls it"):
        found.library.get_pointer_to_function(found.fndesc.llvm_func_name)


@compiled
def test_whoever_returns_or_makes_an_array_must_say_so():
    x = np.arange(10.0)
    with pytest.raises(errors.NumbaError, match=r"make it inner\(allocates=True\)"):
        result(add_half, x)
    with pytest.raises(errors.TypingError):
        result(add_copy, x)
    assert result(add_copy_by_count, x) == 45  # a user's kernel may do as it likes


def test_a_specialised_kernel_allocates_as_the_whole_one_does():
    for whole, constants in (
        (layer_norm.layer_norm, {"affine": 0}),
        (layer_norm.layer_norm_grad, {"affine": 0}),
    ):
        allocates = whole._options.get("allocates", False)
        assert specialise(whole, constants)._options["allocates"] is allocates


def functions():
    """(module, its functions by name) of each module of kernels for the CPU."""
    for path in sorted([*KERNELS.glob("*.py"), *(KERNELS / "cpu").glob("*.py")]):
        body = ast.parse(path.read_text()).body
        defined = {n.name: n for n in body if isinstance(n, ast.FunctionDef) and n.decorator_list}
        name = ".".join(path.relative_to(KERNELS.parent.parent).with_suffix("").parts)
        yield import_module(name), defined


def says_so(node):
    return any("allocates=True" in ast.unparse(d) for d in node.decorator_list)


def test_callers_of_what_allocates_say_so():
    # Numba sees to it that a function which allocates by itself does.
    allocating = {}
    for module, defined in functions():
        for name, node in defined.items():
            if says_so(node):
                allocating[id(getattr(module, name))] = name
    assert len(allocating) > 20
    silent = []
    for module, defined in functions():
        for name, node in defined.items():
            called = {
                n.func.id
                for n in ast.walk(node)
                if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
            }
            reached = {id(getattr(module, c, None)) for c in called} & allocating.keys()
            if reached and not says_so(node):
                silent.append(f"{name} calls {[allocating[r] for r in reached]}")
    assert not silent


@compiled
def test_what_is_compiled_keeps_no_notes():
    """Numba's notes on types were two thirds of the objects that a kernel left behind."""

    @kernel(allocates=False)
    def fresh(out, x):
        for i in range(x.size):
            out[i] = x[i]

    fresh(np.zeros(3), np.ones(3))
    (result,) = fresh.serial.overloads.values()
    assert not isinstance(result.type_annotation, TypeAnnotation)
    assert result.fndesc.calltypes is result.fndesc.typemap is None
