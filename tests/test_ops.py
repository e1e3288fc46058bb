"""Every row of the op table, tried in every way that ops can be wrong.

One test per promise, one id per row and dtype: a failure names the op. The rows stand in
tests/cases, the record in tests/op_table.py. ``OP_TABLE_LIBRARY=torch`` runs all of it on PyTorch.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cases import ALL
from op_table import (
    FLOATS,
    LIBRARY,
    RESHAPING,
    Case,
    Fixed,
    Sample,
    Wrong,
    convert,
    dtype_name,
    is_tensor,
    leaves,
    to_numpy,
    widen,
)

ng: Any = LIBRARY
ON_PEER = os.environ.get("OP_TABLE_LIBRARY") == "torch"
IDS = [case.name for case in ALL]
ROWS = {case.name: case for case in ALL}


def rows(choose: Callable[[Case], Any] = lambda case: True) -> Any:
    """Parametrise over the rows that a test concerns."""
    chosen = [case for case in ALL if choose(case) and not (ON_PEER and not case.peer)]
    return pytest.mark.parametrize("case", chosen, ids=[case.name for case in chosen])


def rows_and_dtypes() -> Any:
    """Parametrise over rows and the dtypes each of them takes."""
    pairs = [(case, dtype) for case in ALL for dtype in case.dtypes]
    return pytest.mark.parametrize("case,dtype", pairs, ids=[f"{c.name}-{d}" for c, d in pairs])


def differentiable(case: Case) -> bool:
    """Whether the row claims a gradient."""
    return case.orders >= 1 and "float64" in case.dtypes


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """NumPy's warnings about what is meant to happen."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Mean of empty slice")
        yield


def run(case: Case, call: Sample, make: Any = None) -> Any:
    """The row's result on tensors."""
    return case.target()(*convert(call.args, make=make), **convert(call.kwargs, make=make))


def answer(case: Case, call: Sample) -> Any:
    """The oracle's result."""
    with quiet():
        return case.oracle(*widen(call.args), **widen(call.kwargs))


def tracked(array: np.ndarray) -> Any:
    """A tensor of ``array`` that asks for a gradient if it can have one."""
    return ng.tensor(array).requires_grad_(array.dtype.kind == "f")


def assert_equal(got: Any, expected: Any, rtol: float, atol: float, where: str) -> None:
    """Same structure, shapes and numbers; NaN equals NaN. ``None`` is not compared."""
    got_leaves, expected_leaves = list(leaves(got)), list(leaves(expected))
    assert len(got_leaves) == len(expected_leaves), f"{where}: number of results"
    for out, truth in zip(got_leaves, expected_leaves, strict=True):
        if truth is None:
            continue
        out, truth = to_numpy(out), np.asarray(truth)
        assert out.shape == truth.shape, f"{where}: shape {out.shape}, expected {truth.shape}"
        with quiet():
            truth = truth.astype(out.dtype)
        np.testing.assert_allclose(out, truth, rtol=rtol, atol=atol, err_msg=where)


def tolerances(case: Case, dtype: str, factor: float = 1.0) -> tuple[float, float]:
    """(rtol, atol) of a row in a dtype."""
    if dtype == "float64":
        return factor * case.rtol64, factor * case.rtol64
    return factor * case.rtol32, factor * case.rtol32


def floating_outputs(result: Any) -> list[Any]:
    """The tensors of a result that carry gradients."""
    return [t for t in leaves(result) if is_tensor(t) and dtype_name(t) in FLOATS]


def flat_gradients(case: Case, call: Sample, dtype: str, make: Any = tracked) -> list[Any]:
    """Gradients of a fixed weighting of all outputs, in the order of the float inputs."""
    inputs: list[Any] = []

    def build(array: np.ndarray) -> Any:
        tensor = make(array)
        if array.dtype.kind == "f":
            inputs.append(tensor)
        return tensor

    outputs = floating_outputs(run(case, call, build))
    rng = np.random.default_rng(5)
    weights = [
        ng.tensor(np.asarray(rng.uniform(0.5, 1.5, tuple(o.shape))).astype(dtype_name(o)))
        for o in outputs
    ]
    return list(ng.autograd.grad(outputs, inputs, weights, allow_unused=True))


def tensors_of(value: Any) -> list[Any]:
    """The tensors among arguments."""
    members = list(value.values()) if isinstance(value, dict) else value
    return [t for t in leaves(members) if is_tensor(t)]


def as_function_of_floats(case: Case, call: Sample) -> tuple[Any, list[Any]]:
    """The call as a function of its float64 arrays alone, as gradcheck wants it."""
    inputs = [
        ng.tensor(a).requires_grad_()
        for a in [*leaves(call.args), *leaves(list(call.kwargs.values()))]
        if isinstance(a, np.ndarray) and a.dtype == np.float64
    ]

    def function(*tensors: Any) -> Any:
        remaining = list(tensors)

        def make(array: np.ndarray) -> Any:
            return remaining.pop(0) if array.dtype == np.float64 else ng.tensor(array)

        return tuple(floating_outputs(run(case, call, make)))

    return function, inputs


# ---------------------------------------------------------------- the table itself


def test_names_are_unique() -> None:
    """Two rows of one name would hide one another in reports."""
    assert len(set(IDS)) == len(IDS), sorted(i for i in set(IDS) if IDS.count(i) > 1)


@pytest.mark.skipif(ON_PEER, reason="about numbagrad's modules")
def test_every_exported_op_has_a_row() -> None:
    """Each name in ``__all__`` of the modules of numbagrad.ops is called by some row."""
    covered = {name for case in ALL for name in names_of(case)}
    missing = []
    for module in op_modules():
        exported = [n for n in module.__all__ if not inspect.isclass(getattr(module, n))]
        methods = [*getattr(module, "METHODS", {}), *getattr(module, "INPLACE", {})]
        unknown = {n for n in [*exported, *methods] if n not in covered | NO_ROWS}
        missing += [f"{module.__name__}.{n}" for n in sorted(unknown) if n[0] != "_"]
    assert not missing, f"add rows to tests/cases for {missing}"


def names_of(case: Case) -> set[str]:
    """The names of functions and methods that a row tests."""
    own = case.name.split("-")[0].rpartition(".")[2]
    function = case.function_name.rpartition(".")[2]
    aliases = [*case.aliases, *[f"{alias}_" for alias in case.aliases if case.inplace]]
    return {own, function, case.method_name, case.inplace, *aliases}


def op_modules() -> list[Any]:
    """The families of ops."""
    import importlib
    import pkgutil

    ops = importlib.import_module("numbagrad.ops")
    found = [
        importlib.import_module(f"numbagrad.ops.{m.name}")
        for m in pkgutil.iter_modules(ops.__path__)
    ]
    return [m for m in found if hasattr(m, "__all__") and m.__name__ not in NO_OPS]


NO_OPS = {
    f"numbagrad.ops.{name}"
    for name in (
        *("base", "methods", "inplace", "argument_names", "recurrent_steps", "score_formula"),
        "tensor_types",
    )
}
NO_ROWS = {"elementwise", "cuda"}  # test_elementwise_user.py; a GPU is needed
NO_ROWS |= {"can_cast", "is_floating_point", "is_nonzero", "result_type"}  # test_names.py
NO_ROWS |= {"get_device", "is_cpu", "is_same_size", "is_signed", "new", "typename"}  # the same
NO_ROWS |= {"is_complex", "is_meta", "is_quantized", "is_sparse"}  # the same
NO_ROWS |= {"H", "conj", "conj_physical", "imag", "is_conj", "is_neg", "mH", "real"}
NO_ROWS |= {"resolve_conj", "resolve_neg"}  # ops/test_memory_and_real_names.py
NO_ROWS |= {"apply_", "detach_copy", "dim_order", "empty_strided", "is_inference", "is_set_to"}
NO_ROWS |= {"is_shared", "lu", "map2_", "map_", "narrow_copy", "new_empty_strided"}  # the same
NO_ROWS |= {"share_memory_", "to_dense"}  # the same
NO_ROWS |= {"bfloat16", "half"}  # test_half.py
NO_ROWS |= {"binomial", "poisson"}  # ops/test_counts.py
NO_ROWS |= {"draw_binomial", "draw_poisson", "standard_gamma"}  # kernels/test_draw_kernels.py
NO_ROWS |= {f"fractional_max_pool{n}d" for n in (2, 3)}  # nn/test_fractional_pool.py
NO_ROWS |= {f"fractional_max_pool{n}d_with_indices" for n in (2, 3)}  # the same
NO_ROWS |= {"resize_", "resize_as_"}  # ops/test_resizing.py
NO_ROWS |= {"and_masks", "create_block_mask", "noop_mask", "or_masks"}  # nn/test_flex_attention.py
NO_ROWS |= {"upsample", "upsample_bilinear", "upsample_nearest"}  # nn/test_multilabel_margin.py


# ---------------------------------------------------------------- values and dtypes


@rows_and_dtypes()
def test_value(case: Case, dtype: str) -> None:
    """The result is the oracle's, of the dtype the row says."""
    rtol, atol = tolerances(case, dtype)
    rules = case.result_dtypes(dtype) if case.result else ()
    for call in case.calls(dtype):
        got = run(case, call)
        where = f"{case.name} {dtype} {call.kind} {call}"
        assert_equal(got, answer(case, call), rtol, atol, where)
        if not rules:
            continue
        outs = [t for t in leaves(got) if is_tensor(t)]
        assert outs or not got, where
        for i, out in enumerate(outs):
            rule = rules[i] if len(rules) > 1 else rules[0]
            assert dtype_name(out) == rule, f"{where}: output {i}"


@pytest.mark.peer
@rows_and_dtypes()
def test_value_and_dtype_as_torch(case: Case, dtype: str) -> None:
    """The result, its dtype and shape are PyTorch's."""
    torch = pytest.importorskip("torch")
    if not case.peer:
        pytest.skip("PyTorch has no such op")
    if any(truth is None for call in case.calls(dtype) for truth in leaves(answer(case, call))):
        pytest.skip("random")
    rtol, atol = tolerances(case, dtype, 2)
    for call in case.calls(dtype):
        if case.function_name:
            theirs = case.target(torch)(*convert(call.args, torch), **convert(call.kwargs, torch))
        else:
            theirs = run_call_on(torch, case, call)
        ours = run(case, call)
        where = f"{case.name} {dtype} {call}"
        truth = [to_numpy(t) if is_tensor(t, torch) else t for t in leaves(theirs)]
        assert_equal(ours, truth, rtol, atol, where)
        for mine, other in zip(leaves(ours), leaves(theirs), strict=True):
            if is_tensor(other, torch):
                assert dtype_name(mine) == dtype_name(other), where


def run_call_on(library: Any, case: Case, call: Sample) -> Any:
    """A row's ``call`` with the tensors of another library."""
    import op_table

    held, op_table.LIBRARY = op_table.LIBRARY, library
    try:
        return case.target()(*convert(call.args, library), **convert(call.kwargs, library))
    finally:
        op_table.LIBRARY = held


@rows(lambda case: set(FLOATS) <= set(case.dtypes) and case.result is not None)
def test_float32_near_float64(case: Case) -> None:
    """float32 gives what float64 gives on the same numbers, values and gradients."""
    for call in case.calls("float32", "plain", "broadcast", "scalar"):
        wide = Sample(doubled(call.args), doubled(call.kwargs), call.kind)
        where = f"{case.name} {call}"
        if any(truth is None for truth in leaves(answer(case, call))):
            return  # random
        got, truth = run(case, call), run(case, wide)
        rtol, atol = tolerances(case, "float32")
        assert_equal(got, [to_numpy(t) for t in leaves(truth)], rtol, atol, where)
        if differentiable(case):
            small = flat_gradients(case, call, "float32")
            large = flat_gradients(case, wide, "float64")
            truths = [None if g is None else to_numpy(g) for g in large]
            assert_equal(small, truths, 10 * rtol, 10 * atol, f"gradient of {where}")


def doubled(value: Any) -> Any:
    """Arguments with float32 arrays made float64."""
    if isinstance(value, np.ndarray) and value.dtype == np.float32:
        return value.astype("float64")
    if isinstance(value, Fixed):
        return Fixed(doubled(value.array))
    if isinstance(value, (list, tuple)):
        return type(value)(doubled(v) for v in value)
    if isinstance(value, dict):
        return {k: doubled(v) for k, v in value.items()}
    return value


# ---------------------------------------------------------------- gradients


TIGHT = {"rtol": 1e-5, "atol": 1e-6}  # the defaults let a thousandth pass


@rows(differentiable)
def test_gradient(case: Case) -> None:
    """The gradient is what central differences measure."""
    for call in case.calls("float64", "plain", "broadcast", "scalar"):
        function, inputs = as_function_of_floats(case, call)
        assert ng.autograd.gradcheck(function, inputs, **TIGHT), f"{case.name} {call}"


@rows(lambda case: differentiable(case) and case.orders >= 2)
def test_second_gradient(case: Case) -> None:
    """The gradient of the gradient, too."""
    plain = case.calls("float64", "plain")
    chosen = [*plain[:2], *case.calls("float64", "broadcast")[:1]]
    for call in chosen or case.calls("float64", "scalar")[:1]:
        function, inputs = as_function_of_floats(case, call)
        assert ng.autograd.gradgradcheck(function, inputs, **TIGHT), f"{case.name} {call}"


def tracked_call(case: Case, call: Sample) -> tuple[list[Any], list[Any]]:
    """The floating results of a call, and those of its inputs whose gradients it records."""
    inputs: list[Any] = []

    def make(array: np.ndarray) -> Any:
        tensor = tracked(array)
        if array.dtype.kind == "f":
            inputs.append(tensor)
        return tensor

    return floating_outputs(run(case, call, make)), inputs


@rows(differentiable)
def test_gradient_of_empty(case: Case) -> None:
    """An empty input has an empty gradient; a full one beside it has zeros."""
    for call in case.calls("float64", "empty"):
        outputs, inputs = tracked_call(case, call)
        if not outputs or not all(o.requires_grad for o in outputs):
            continue
        total = sum(o.sum() for o in outputs)
        for x, g in zip(inputs, ng.autograd.grad(total, inputs, allow_unused=True), strict=True):
            assert g is None or tuple(g.shape) == tuple(x.shape), f"{case.name} {call}"


@pytest.mark.skipif(ON_PEER, reason="ours alone")
@rows(differentiable)
def test_gradient_that_is_a_view_of_one_number(case: Case, monkeypatch: Any) -> None:
    """As that of a long sum is: no kernel takes it for rows without gaps."""
    axes = importlib.import_module("numbagrad.ops.axes")
    for call in case.calls("float64", "plain")[:2]:
        found = []
        for least in (0, axes.LONG):
            monkeypatch.setattr(axes, "LONG", least)
            ng.manual_seed(0)
            outputs, inputs = tracked_call(case, call)
            if outputs := [o for o in outputs if o.requires_grad]:
                total = sum(o.sum() for o in outputs)
                found.append(ng.autograd.grad(total, inputs, allow_unused=True))
        for mine, other in zip(*found, strict=True) if found else ():
            assert (mine is None) == (other is None)
            if mine is not None:
                assert_equal(mine, to_numpy(other), 1e-12, 1e-12, f"{case.name} {call}")
        monkeypatch.undo()


# ---------------------------------------------------------------- layouts


def transposed(array: np.ndarray) -> Any:
    """Equal numbers whose dims lie in memory in reverse order."""
    if array.ndim < 2:
        return ng.tensor(array)
    return ng.tensor(np.ascontiguousarray(array.T)).permute(tuple(reversed(range(array.ndim))))


def stepped(array: np.ndarray) -> Any:
    """Equal numbers, each second element of a longer row."""
    if array.ndim == 0:
        return ng.tensor(np.stack([array, array]))[1]
    return ng.tensor(np.repeat(array, 2, axis=-1))[..., ::2]


def expanded(array: np.ndarray) -> Any:
    """The first row of the array for all rows, with stride 0."""
    if array.ndim == 0 or array.shape[0] == 0:
        return ng.tensor(array)
    return ng.tensor(array[:1].copy()).expand(*array.shape)


def offset(array: np.ndarray) -> Any:
    """Equal numbers that start behind others in memory."""
    if array.ndim == 0:
        return ng.tensor(array)
    padded = np.concatenate([array[:1], array], axis=0) if array.shape[0] else array
    return ng.tensor(padded)[1 if array.shape[0] else 0 :]


LAYOUTS = {"transposed": transposed, "stepped": stepped, "expanded": expanded, "offset": offset}


def in_layout(make: Any) -> tuple[Any, Any]:
    """Two makers of tensors with equal numbers: in the layout, and contiguous."""

    def strided(array: np.ndarray) -> Any:
        return make(array) if array.dtype == np.float64 else ng.tensor(array)

    def plain(array: np.ndarray) -> Any:
        return ng.tensor(strided(array).numpy().copy())

    return strided, plain


def as_leaf(make: Any) -> Any:
    """``make``, and the result a leaf that needs a gradient where it can."""

    def leaf(array: np.ndarray) -> Any:
        tensor = make(array).detach()
        return tensor.requires_grad_() if array.dtype == np.float64 else tensor

    return leaf


@rows(lambda case: "float64" in case.dtypes)
def test_strided(case: Case) -> None:
    """Views of any strides give what contiguous copies give; gradients too."""
    for layout, make in LAYOUTS.items():
        if layout == "expanded" and not case.repeats:
            continue
        strided, plain = in_layout(make)
        for call in case.calls("float64", "plain", "broadcast"):
            where = f"{case.name} {layout} {call}"
            if any(truth is None for truth in leaves(answer(case, call))):
                return  # random
            truth = [to_numpy(t) for t in leaves(run(case, call, plain))]
            assert_equal(run(case, call, strided), truth, 1e-12, 1e-12, where)
            if not differentiable(case):
                continue
            truths = flat_gradients(case, call, "float64", as_leaf(plain))
            mine = flat_gradients(case, call, "float64", as_leaf(strided))
            expected = [None if g is None else to_numpy(g) for g in truths]
            assert_equal(mine, expected, 1e-11, 1e-11, f"gradient of {where}")


@rows(lambda case: bool(set(case.dtypes) & {"float64", "int64"}))
def test_inputs_are_left_alone(case: Case) -> None:
    """An op writes nothing into its inputs."""
    dtype = "float64" if "float64" in case.dtypes else "int64"
    for call in case.calls(dtype):
        inputs = convert(call.args), convert(call.kwargs)
        tensors = [*tensors_of(inputs[0]), *tensors_of(inputs[1])]
        before = [to_numpy(t).copy() for t in tensors]
        case.target()(*inputs[0], **inputs[1])
        for tensor, held in zip(tensors, before, strict=True):
            np.testing.assert_array_equal(to_numpy(tensor), held)
            assert tensor._version == 0, f"{case.name} {call}"


# ---------------------------------------------------------------- forms


@rows(lambda case: case.method_name and case.dtypes)
def test_method_equals_function(case: Case) -> None:
    """``x.op(...)`` is ``ng.op(x, ...)``."""
    for call in case.calls(case.dtypes[0]):
        args = convert(call.args)
        if not (args and is_tensor(args[0])):
            continue
        got = getattr(args[0], case.method_name)(*args[1:], **convert(call.kwargs))
        truth = [to_numpy(t) for t in leaves(run(case, call))]
        assert_equal(got, truth, 0, 0, f"{case.name} {call}")


@rows(lambda case: case.aliases)
def test_aliases_are_the_function(case: Case) -> None:
    """Other names give the same, as functions and as methods."""
    call = case.calls(case.dtypes[0])[0]
    truth = [to_numpy(t) for t in leaves(run(case, call))]
    args, kwargs = convert(call.args), convert(call.kwargs)
    for alias in case.aliases:
        assert_equal(getattr(ng, alias)(*args, **kwargs), truth, 0, 0, alias)
        if case.method_name:
            assert_equal(getattr(args[0], alias)(*args[1:], **kwargs), truth, 0, 0, alias)
        if hasattr(ng.Tensor, f"{alias}_"):
            copy = args[0].clone()
            assert getattr(copy, f"{alias}_")(*args[1:], **kwargs) is copy
            assert_equal(copy, truth, 0, 0, f"{alias}_")


@rows(lambda case: case.inplace)
def test_in_place_equals_out_of_place(case: Case) -> None:
    """``x.op_(...)`` leaves in x what op gives, returns x, counts a version, keeps gradients."""
    dtype = "float64" if "float64" in case.dtypes else case.dtypes[0]
    for call in case.calls(dtype, "plain", "broadcast", "scalar"):
        args, kwargs = convert(call.args), convert(call.kwargs)
        if not is_tensor(args[0]):
            continue
        truth = run(case, call)
        if tuple(truth.shape) != tuple(args[0].shape) and case.inplace not in RESHAPING:
            continue
        where = f"{case.name} {call}"
        target, version = args[0], args[0]._version
        got = getattr(target, case.inplace)(*args[1:], **kwargs)
        assert got is target, where
        assert target._version > version, where
        assert_equal(target, to_numpy(truth), 0, 0, where)
        if not differentiable(case):
            continue

        def in_place(x: Any, *rest: Any, **options: Any) -> Any:
            return getattr(x * 1.0, case.inplace)(*rest, **options)

        def out_of_place(x: Any, *rest: Any, **options: Any) -> Any:
            return case.target()(x * 1.0, *rest, **options)

        gradients = []
        for function in (in_place, out_of_place):
            tensors = convert(call.args, make=tracked)
            function(*tensors, **kwargs).sum().backward()
            gradients.append(
                [None if t.grad is None else to_numpy(t.grad) for t in tensors_of(tensors)]
            )
        assert_equal(gradients[0], gradients[1], 1e-12, 1e-12, where)


@rows(lambda case: case.inplace and "float64" in case.dtypes)
def test_in_place_on_a_leaf_is_refused(case: Case) -> None:
    """A leaf that needs a gradient may not be changed, and is not."""
    call = case.calls("float64", "plain")[0]
    args = convert(call.args, make=tracked)
    before = to_numpy(args[0]).copy()
    with pytest.raises(RuntimeError, match="leaf"):
        getattr(args[0], case.inplace)(*args[1:], **convert(call.kwargs))
    np.testing.assert_array_equal(to_numpy(args[0]), before)


@rows(differentiable)
def test_node_only_where_asked(case: Case) -> None:
    """No node under no_grad or for inputs that need none; one where an input needs it."""
    call = case.calls("float64")[0]
    inputs: list[Any] = []

    def keep(array: np.ndarray) -> Any:
        inputs.append(tracked(array))
        return inputs[-1]

    with ng.no_grad():
        quiet_outputs = floating_outputs(run(case, call, keep))
    for out in [*quiet_outputs, *floating_outputs(run(case, call))]:
        if any(out is x for x in inputs):
            continue  # a conversion to the dtype that it has
        assert out.grad_fn is None
        if not ON_PEER:  # in PyTorch a view of a leaf claims requires_grad under no_grad
            assert not out.requires_grad
    assert any(out.requires_grad for out in floating_outputs(run(case, call, tracked)))


def counts(case: Case) -> bool:
    """Whether no result of the row is floating."""
    if case.result is None or case.orders or "float64" not in case.dtypes:
        return False
    return not set(case.result_dtypes("float64")) & set(FLOATS)


@rows(counts)
def test_integer_results_carry_no_node(case: Case) -> None:
    """Comparisons, positions and counts are never tracked."""
    for call in case.calls("float64")[:1]:
        for out in leaves(run(case, call, tracked)):
            assert not out.requires_grad
            assert out.grad_fn is None


# ---------------------------------------------------------------- mistakes

ERRORS = [(case, i) for case in ALL for i in range(len(case.errors))]


@pytest.mark.parametrize("case,i", ERRORS, ids=[f"{case.name}-{i}" for case, i in ERRORS])
def test_wrong_input(case: Case, i: int) -> None:
    """A mistake raises the exception of the row, in its words, and changes nothing."""
    mistake: Wrong = case.errors[i]
    args, kwargs = convert(mistake.args), convert(mistake.kwargs)
    tensors = [*tensors_of(args), *tensors_of(kwargs)]
    before = [to_numpy(t).copy() for t in tensors]
    with pytest.raises(mistake.exception, match=mistake.words):
        case.target()(*args, **kwargs)
    for tensor, held in zip(tensors, before, strict=True):
        np.testing.assert_array_equal(to_numpy(tensor), held)
        assert tensor._version == 0
