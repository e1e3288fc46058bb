"""The keyword ``out``: one table of calls over all functions that take it, and PyTorch's rules.

A row is a call as text, in which ``f`` stands for the function; it runs on numbagrad and on PyTorch
with the same arguments. The last test finds what PyTorch has and the table lacks.
"""

from __future__ import annotations

import ast
import functools
import inspect
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.errors import DeviceError, DTypeError, GradError, ShapeError
from numbagrad.kernels import blocks
from numbagrad.ops import out as functions
from numbagrad.ops.out import FUNCTIONS, LINALG, SPECIAL
from numbagrad.ops.out_directly import FIRST_MADE

ROWS: dict[str, str] = {}


def rows(call, names):
    """``call`` for each of ``names``."""
    ROWS.update(dict.fromkeys(names.split(), call))


rows(
    "f(x)",
    """abs absolute acos arccos arcsin arcsinh arctan arctanh asin asinh atan atanh ceil cos cosh
    deg2rad digamma erf erfc erfinv exp exp2 expm1 fix floor frac frexp i0 lgamma log log10 log1p
    log2 logical_not logit nan_to_num nanmean nansum neg negative rad2deg reciprocal round rsqrt sgn
    sigmoid sign signbit sin sinc sinh sqrt square tan tanh trunc isneginf isposinf hardshrink
    argmax argmin nonzero msort aminmax all any max min bernoulli angle conj_physical
    detach_copy""",
)
rows("f(x + 1)", "acosh arccosh")
rows("f(i)", "bitwise_not")
rows(
    "f(x, y)",
    """add arctan2 atan2 copysign div divide eq float_power floor_divide fmax fmin fmod ge greater
    greater_equal gt heaviside hypot igamma igammac inner kron ldexp le less less_equal logaddexp
    logaddexp2 logical_and logical_or logical_xor lt maximum minimum mul multiply ne nextafter
    not_equal pow remainder sub subtract true_divide xlogy""",
)
rows("f(i, j)", "bitwise_and bitwise_or bitwise_xor gcd lcm")
rows("f(i, 1)", "bitwise_left_shift bitwise_right_shift")
rows("f(x, 0)", "cumsum cumprod cummax cummin logcumsumexp log_softmax softmax sum prod mean")
rows("f(x, 1)", "amax amin logsumexp std var kthvalue median mode nanmedian sort")
ROWS["argsort"] = "f(x, stable=True, dim=1)"
ROWS["frobenius_norm"] = "f(x, (0, 1))"
rows("f(x, 2)", "topk norm")
rows("f(x, 0.5)", "clamp clamp_max clamp_min clip")
rows("f(x, y, 0.5)", "lerp")
rows("f(x, y, z, value=0.5)", "addcdiv addcmul")
rows("f(x > 0.4, x, y)", "where")
rows("f(A, A)", "mm matmul chain_matmul")
rows("f(A, v)", "mv")
rows("f(v, v)", "dot vdot ger outer")
rows("f(S, S)", "bmm")
rows("f(A, A, A)", "addmm")
rows("f(v, A, v)", "addmv")
rows("f(A, v, v)", "addr")
rows("f(A, S, S)", "addbmm")
rows("f(S, S, S)", "baddbmm")
rows("f(A)", "cholesky cholesky_inverse inverse qr slogdet svd nuclear_norm tril triu")
rows("f(B, A)", "cholesky_solve triangular_solve")
ROWS["lu_solve"] = "f(B, *lu)"
ROWS["lu_unpack"] = "f(A, lu[1])"
ROWS["geqrf"] = "f(A)"
ROWS["orgqr"] = "f(A, v)"
ROWS["ormqr"] = "f(A, v, B)"
rows("f(A, 3)", "matrix_power mvlgamma")
ROWS["mvlgamma"] = "f(x + 2, 2)"
rows("f([x, y])", "cat concat concatenate column_stack dstack hstack row_stack stack vstack")
rows("f(x[:, :3], y[:, :3], dim=1)", "cross")
rows("f(v)", "diag")
rows("f(x)", "diff")
rows("f(x, v)", "bucketize isin")
ROWS["searchsorted"] = "f(v, x)"
rows("f(x, 0, k)", "gather")
rows("f(x, 0, k, y)", "scatter scatter_add")
ROWS["scatter_reduce"] = "f(x, 0, k, y, 'sum')"
rows("f(x, 0, n, y)", "index_add index_copy")
ROWS["index_reduce"] = "f(x, 0, n, y, 'prod')"
rows("f(x, 0, n)", "index_select")
ROWS["narrow_copy"] = "f(x, 1, 1, 2)"
ROWS["take"] = "f(x, n)"
ROWS["take_along_dim"] = "f(x, k, 0)"
ROWS["masked_select"] = "f(x, x > 0.4)"
ROWS["nonzero_static"] = "f(x, size=7)"
ROWS["slice_scatter"] = "f(x, y[:1], 0, 0, 1)"
ROWS["histc"] = "f(x, 4)"
ROWS["histogram"] = "f(x, 4)"
ROWS["quantile"] = ROWS["nanquantile"] = "f(x, 0.5, 1)"
ROWS["renorm"] = "f(x, 2, 0, 0.5)"
ROWS["polygamma"] = "f(1, x)"
ROWS["threshold"] = "f(x, 0.5, 0.1)"
ROWS["multinomial"] = "f(x, 2)"
ROWS["normal"] = "f(x, y)"
ROWS["arange"] = ROWS["randperm"] = "f(6)"
ROWS["range"] = "f(0, 5)"
ROWS["eye"] = "f(3)"
ROWS["full"] = "f((2, 3), 1.5)"
ROWS["linspace"] = ROWS["logspace"] = "f(0, 1, 5)"
rows("f(2, 3)", "empty ones rand randn zeros")
ROWS["randint"] = "f(0, 5, (2, 3))"

rows(
    "f(A)",
    " ".join(
        "linalg." + name
        for name in """cholesky cholesky_ex cond det eigh eigvalsh inv inv_ex lu lu_factor
        lu_factor_ex matrix_norm matrix_rank norm pinv qr slogdet svd svdvals vector_norm""".split()
    ),
)
rows("f(A, B)", "linalg.solve linalg.solve_ex")
rows("f(A, A)", "linalg.matmul linalg.vecdot linalg.cross")
ROWS["linalg.solve_triangular"] = "f(A.tril(), B, upper=False)"
ROWS["linalg.lu_solve"] = "f(*lu, B)"
ROWS["linalg.householder_product"] = "f(A, v)"
ROWS["linalg.matrix_power"] = "f(A, 3)"
ROWS["linalg.multi_dot"] = "f([A, A, B])"
ROWS["linalg.tensorinv"] = "f(A, ind=1)"
ROWS["linalg.tensorsolve"] = "f(A, v)"

rows(
    "f(x)",
    " ".join(
        "special." + name
        for name in """bessel_j0 bessel_j1 bessel_y0 bessel_y1 digamma entr erf erfc erfcx erfinv
        exp2 expit expm1 gammaln i0 i0e i1 i1e log1p log_ndtr logit ndtr ndtri psi round
        sinc""".split()
    ),
)
rows("f(x, y)", "special.gammainc special.gammaincc special.xlog1py special.xlogy")
ROWS["special.zeta"] = "f(x + 1.5, y)"
ROWS["special.logsumexp"] = "f(x, 1)"
ROWS["special.multigammaln"] = "f(x + 2, 2)"
ROWS["special.polygamma"] = "f(1, x)"

RANDOM = frozenset(
    "bernoulli multinomial normal rand randint randn randperm empty".split()  # empty: any numbers
)
MAKERS = frozenset("arange empty eye full linspace logspace ones range zeros".split()) | (
    RANDOM - {"bernoulli", "multinomial", "normal"}
)


def arguments(library):
    """What the rows name, in tensors of ``library``."""
    draw = np.random.default_rng(3)
    square = draw.uniform(0.1, 0.9, (3, 3)).astype("float32")
    made = {
        "x": draw.uniform(0.1, 0.9, (2, 3)),
        "y": draw.uniform(0.1, 0.9, (2, 3)),
        "z": draw.uniform(0.1, 0.9, (2, 3)),
        "v": np.linspace(0.1, 0.9, 3),
        "A": square @ square.T + np.eye(3),
        "B": draw.uniform(0.1, 0.9, (3, 2)),
        "S": draw.uniform(0.1, 0.9, (2, 3, 3)),
        "i": np.arange(1, 7).reshape(2, 3),
        "j": np.arange(2, 8).reshape(2, 3),
        "k": np.array([[0, 1, 0], [1, 0, 1]]),
        "n": np.array([1, 0]),
    }
    found = {
        name: library.tensor(a.astype("float32" if a.dtype.kind == "f" else "int64").tolist())
        for name, a in made.items()
    }
    found["lu"] = library.linalg.lu_factor(found["A"])
    return found


def function_of(library, name):
    return functools.reduce(getattr, name.split("."), library)


def call(name, library=ng, given=None, **options):
    """The call of a row, with ``options`` besides."""
    f = functools.partial(function_of(library, name), **options)
    code = compile(ROWS[name], __file__, "eval")
    return eval(code, {**(given or arguments(library)), "f": f})


def plain(name, given=None):
    """What the row gives without out; equal draws for random functions."""
    ng.manual_seed(0)
    return call(name, given=given)


def into(name, out, given=None):
    ng.manual_seed(0)
    return call(name, given=given, out=out)


def several(value):
    return isinstance(value, (tuple, list))


def each(value):
    return tuple(value) if several(value) else (value,)


def like(value, make):
    """``make`` of each tensor of a result, in a tuple if that is one."""
    return tuple(make(v) for v in value) if several(value) else make(value)


def same(name, found, expected, exact=True):
    for a, b in zip(each(found), each(expected), strict=True):
        assert tuple(a.shape) == tuple(b.shape)
        if name in ("empty",):
            continue
        if exact:
            np.testing.assert_array_equal(a.numpy(), b.numpy())
        else:
            np.testing.assert_allclose(a.numpy(), b.numpy(), 2e-4, 2e-5)


def all_rows(test):
    return pytest.mark.parametrize("name", ROWS)(test)


# -- every function --------------------------------------------------------------------------------


def test_the_table_has_every_function():
    known = {*FUNCTIONS, *(f"linalg.{n}" for n in LINALG), *(f"special.{n}" for n in SPECIAL)}
    assert known == set(ROWS)


@all_rows
def test_out_comes_back_with_the_result(name):
    expected = plain(name)
    out = like(expected, lambda v: ng.zeros(v.shape, dtype=v.dtype))
    versions = [t._version for t in each(out)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = into(name, out)
    assert all(a is b for a, b in zip(each(found), each(out), strict=True))
    if several(expected):
        assert type(found) is type(expected)
    else:
        assert found is out
    same(name, found, expected)
    assert [t._version > v for t, v in zip(each(out), versions, strict=True)] == [True] * len(
        versions
    )


@all_rows
def test_an_empty_out_is_resized_and_another_warns(name):
    expected = plain(name)
    out = like(expected, lambda v: ng.empty(0, dtype=v.dtype))
    if not any(tuple(v.shape) == (0,) for v in each(expected)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            into(name, out)
        same(name, out, expected)
    out = like(expected, lambda v: ng.empty(7, 5, dtype=v.dtype))
    with pytest.warns(UserWarning, match="output with one or more elements was resized") as seen:
        into(name, out)
    assert seen[0].filename == __file__
    same(name, out, expected)


@all_rows
def test_out_with_other_strides_stays_where_it_is(name):
    expected = plain(name)

    def room(v):
        base = ng.zeros(*reversed([n + 1 for n in v.shape]), 2, dtype=v.dtype)
        view = base.permute(*reversed(range(len(base.shape))))[0]
        return view[tuple(slice(0, n) for n in v.shape)]

    out = like(expected, room)
    places = [(t.data_ptr(), t.stride()) for t in each(out)]
    into(name, out)
    same(name, out, expected, exact=name not in ("mm", "matmul", "bmm"))
    assert [(t.data_ptr(), t.stride()) for t in each(out)] == places


@all_rows
def test_a_wider_dtype_takes_the_result_and_a_lower_kind_does_not(name):
    expected = plain(name)
    if name in MAKERS:
        return
    wide = like(expected, lambda v: ng.zeros(v.shape, dtype=ng.float64))
    into(name, wide)
    same(name, wide, expected)
    if not each(expected)[0].dtype.is_floating_point:
        return
    low = like(expected, lambda v: ng.zeros(v.shape, dtype=ng.bool))
    with pytest.raises(DTypeError, match="can't be cast to the desired output type"):
        into(name, low)
    assert not any(t.any().item() for t in each(low))


@all_rows
def test_what_requires_grad_is_refused(name):
    expected = plain(name)
    out = like(expected, lambda v: ng.zeros(v.shape, dtype=v.dtype))
    first = each(out)[0]
    words = r"out=\.\.\. arguments don't support automatic differentiation"
    if first.dtype.is_floating_point:
        first.requires_grad_()
        with pytest.raises(GradError, match=words):
            into(name, out)
        assert not first.detach().any().item()
        with ng.no_grad():
            into(name, out)
            same(name, like(out, lambda v: v.detach()), expected)
        first.requires_grad_(False)
    given = arguments(ng)
    given |= {k: given[k].requires_grad_() for k in "xyzvABS"}
    given["lu"] = tuple(t.detach() for t in given["lu"])
    if "f(i" not in ROWS[name] and name not in MAKERS | {"isin", "bucketize", "searchsorted"}:
        with pytest.raises(GradError, match=words):
            into(name, out, given)


@all_rows
def test_out_of_a_wrong_type_names_the_function(name):
    found = function_of(ng, name)
    with pytest.raises(TypeError, match=rf"{found.__name__}\(\).*'out'.*must be"):
        into(name, 3)
    wrong = ng.empty(0) if several(plain(name)) else (ng.empty(0), ng.empty(0))
    with pytest.raises(TypeError, match=rf"{found.__name__}\(\).*'out'.*must be|dtype"):
        into(name, wrong)


@all_rows
def test_out_beside_pytorch(name):
    torch = pytest.importorskip("torch")
    theirs = call(name, torch)
    bare = like(theirs, lambda v: torch.empty(0, dtype=v.dtype))
    theirs = call(name, torch, out=bare)
    ours = plain(name)
    out = like(ours, lambda v: ng.empty(0, dtype=v.dtype))
    into(name, out)
    if name in RANDOM or any(word in name for word in ("svd", "qr", "eigh")):  # signs may differ
        assert [tuple(v.shape) for v in each(out)] == [tuple(v.shape) for v in each(theirs)]
    else:
        same(name, out, theirs, exact=False)


@all_rows
def test_help_shows_out(name):
    function = function_of(ng, name)
    parameter = inspect.signature(function).parameters["out"]
    assert parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.default is None
    assert function.__doc__


COMPILED = "exp add where sum cumsum sort max mm cat stack lerp clamp zeros linalg.det".split()


@pytest.mark.parametrize("name", COMPILED)
def test_out_in_a_compiled_function(name):
    given = arguments(ng)
    expected = plain(name, given)
    out = like(expected, lambda v: ng.zeros(v.shape, dtype=v.dtype))
    function = function_of(ng, name)
    scope = {**given, "f": functools.partial(function, out=out)}
    run = eval(f"lambda: {ROWS[name]}", scope)

    def step():
        return like(run(), lambda v: v + 1)

    compiled = ng.compile(step)
    for _ in range(2):
        for t in each(out):
            t.zero_()
        version = each(out)[0]._version
        found = compiled()
        same(name, out, expected)
        same(name, found, like(expected, lambda v: v + 1))
        assert each(out)[0]._version > version


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(FIRST_MADE))
def test_large_results_are_made_where_they_are_wanted(name, monkeypatch):
    x, y, z = (ng.rand(300, 300) + 0.1 for _ in range(3))
    given = {"x": x, "y": y, "z": z, "v": ng.rand(300), "A": x, "S": ng.rand(3, 300, 300)}
    expected = plain(name, given)
    out = ng.full(expected.shape, -1.0, dtype=expected.dtype)
    if expected.nbytes >= blocks.LARGE:
        monkeypatch.setattr(functions, "copy_kernel", lambda *_: pytest.fail("copied"))
    same(name, into(name, out, given), expected)


def test_a_large_out_that_is_read_is_written_last():
    x = ng.rand(300, 300)
    for call in (
        lambda out: ng.cumsum(x, 0, out=out),
        lambda out: ng.add(x, x, alpha=2, out=out),
        lambda out: ng.clamp(x, x.mean(0), 0.8, out=out),
    ):
        expected, kept = call(ng.empty(300, 300)), x.clone()
        same("", call(x), expected)
        x.copy_(kept)


def test_what_views_a_large_out_is_copied_first():
    x, out = ng.rand(300, 300), ng.zeros(300, 300)
    functions.into("add", lambda x: (x + 1).T, out, (x,), {})
    same("", out, (x + 1).T)


def test_a_large_out_is_as_it_was_after_an_error():
    out, x = ng.zeros(300, 300), ng.rand(300, 300)
    with pytest.raises(ShapeError):
        ng.cat([x.long(), ng.ones(3, 4)], out=out)
    view = out.view(90_000)
    with pytest.raises(GradError):
        ng.logsumexp(x.t(), 1, out=out)
    with pytest.raises(ShapeError):
        ng.where(x > 0.5, x.t(), ng.ones(7), out=out)
    assert not out.any() and not view.any()


@pytest.mark.parametrize("n", [100, 300])
def test_an_array_that_is_the_memory_of_out(n):
    x, out = ng.rand(n, n), ng.rand(n, n)
    for function in (
        lambda y, **to: ng.where(x > 0.5, x, y, **to),
        lambda y, **to: ng.add(x, y, alpha=2, **to),
        lambda y, **to: ng.mul(x, y, **to),
        lambda y, **to: ng.maximum(x, y, **to),
    ):
        try:
            expected = function(ng.tensor(out.numpy().T.copy()))
            function(out.numpy().T, out=out)
        except TypeError:  # no array is taken there
            continue
        same("", out, expected)


def test_another_threads_result_does_not_lie_in_out():
    out = ng.zeros(300, 300)
    with blocks.promised(out._array), ThreadPoolExecutor(1) as pool:
        other = pool.submit(lambda: ng.ones(300, 300) + 1).result()
    assert not out.any() and (other == 2).all()


@pytest.mark.parametrize("name", "exp neg round cumsum softmax tril".split())
def test_out_may_be_the_input(name):
    x = arguments(ng)["A"]
    args = (0,) if name in ("cumsum", "softmax") else ()
    expected = getattr(ng, name)(x, *args)
    assert getattr(ng, name)(x, *args, out=x) is x
    same(name, x, expected)


@pytest.mark.parametrize("name", "add mul sub div atan2 mm matmul".split())
@pytest.mark.parametrize("which", [0, 1])
def test_out_may_be_either_operand(name, which):
    pair = [arguments(ng)["A"], arguments(ng)["A"] + 1]
    expected = getattr(ng, name)(*pair)
    assert getattr(ng, name)(*pair, out=pair[which]) is pair[which]
    same(name, pair[which], expected)


def test_a_broadcast_operand_may_not_grow_as_out():
    x = ng.ones(3)
    for function in (ng.add, ng.mul):
        with pytest.raises(ShapeError, match=r"output with shape \[3\] doesn't match"):
            function(x, ng.ones(3, 3), out=x)
    assert x.tolist() == [1.0] * 3


@pytest.mark.parametrize("name", ["exp", "neg", "cumsum", "sum"])
def test_partial_overlap_is_refused(name):
    base = ng.arange(6.0)
    args = (0,) if name in ("cumsum", "sum") else ()
    with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to"):
        getattr(ng, name)(base[:4], *args, out=base[2:])
    with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to"):
        getattr(ng, name)(base.view(2, 3), *args, out=base.view(3, 2))
    assert base.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_parts_of_one_memory_that_do_not_meet_are_fine():
    base = ng.arange(6.0)
    ng.neg(base[:3], out=base[3:])
    assert base.tolist() == [0.0, 1.0, 2.0, -0.0, -1.0, -2.0]
    ng.exp(base[::2] * 0, out=base[1::2])
    assert base.tolist() == [0.0, 1.0, 2.0, 1.0, -1.0, 1.0]
    interleaved = ng.arange(6.0)
    ng.neg(interleaved[::2], out=interleaved[1::2])
    assert interleaved.tolist() == [0.0, -0.0, 2.0, -2.0, 4.0, -4.0]


def test_an_expanded_out_is_refused():
    for out in (ng.zeros(1).expand(3), ng.zeros(3, 1).expand(3, 3)):
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            ng.exp(ng.ones(out.shape), out=out)
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            ng.zeros(out.shape, out=out)


def test_living_views_keep_an_out_from_being_resized():
    out = ng.zeros(4)
    view = out[:2]
    with pytest.raises(GradError, match="views of this tensor live"):
        ng.exp(ng.ones(6), out=out)
    assert out.shape == (4,) and view.tolist() == [0.0, 0.0]


def test_where_one_of_several_is_wrong_none_is_changed():
    x, values, indices = ng.tensor([3.0, 1.0]), ng.full((2,), 7.0), ng.full((2,), True)
    with pytest.raises(DTypeError):
        ng.sort(x, out=(values, indices))
    assert values.tolist() == [7.0, 7.0] and values._version == 0
    with pytest.raises(TypeError, match="tuple of 2"):
        ng.sort(x, out=(values,))
    with pytest.raises(TypeError, match="element 1"):
        ng.sort(x, out=(values, 3))


def test_a_view_is_written_and_its_base_sees_it():
    base = ng.zeros(2, 3)
    out = base[1]
    assert ng.add(ng.ones(3), 1, out=out) is out
    assert base.tolist() == [[0.0] * 3, [2.0] * 3]
    turned = base.t()
    ng.mm(ng.ones(3, 1), ng.tensor([[1.0, 2.0]]), out=turned)
    assert base.tolist() == [[1.0] * 3, [2.0] * 3]


def test_a_changed_out_that_was_saved_is_noticed():
    x = ng.tensor([2.0], requires_grad=True)
    factor = ng.tensor([3.0])
    y = x * factor
    ng.exp(factor, out=factor)
    with pytest.raises(RuntimeError, match="version"):
        y.sum().backward()


def test_scalars_and_empty_tensors():
    out = ng.zeros(())
    assert ng.exp(ng.tensor(0.0), out=out).item() == 1.0
    assert ng.add(out, 1, out=out).item() == 2.0
    assert ng.exp(ng.ones(0, 2), out=ng.empty(0, 2)).shape == (0, 2)
    assert ng.sum(ng.ones(0, 2), 0, out=ng.ones(2)).tolist() == [0.0, 0.0]


# -- dtypes and devices ----------------------------------------------------------------------------


def test_the_result_is_computed_in_its_own_dtype():
    x = ng.tensor([16777216.0])
    assert ng.add(x, 1.0, out=ng.empty(1, dtype=ng.float64)).item() == 16777216.0
    assert ng.eq(x, x, out=ng.empty(1, dtype=ng.int32)).item() == 1
    with pytest.raises(RuntimeError, match="result type"):
        ng.true_divide(ng.tensor([1]), 2, out=ng.empty(1, dtype=ng.int64))


def test_makers_take_the_dtype_of_out():
    out = ng.empty(3, dtype=ng.int32)
    assert ng.arange(3.0, out=out) is out and out.tolist() == [0, 1, 2]
    assert ng.full((3,), 2.0, out=out).dtype is ng.int32
    with pytest.raises(RuntimeError, match="does not match dtype of out parameter"):
        ng.zeros(3, dtype=ng.float32, out=out)
    with pytest.raises(TypeError):
        ng.rand(3, out=out)
    drawn = ng.empty(3)
    assert ng.zeros(3, requires_grad=True, out=drawn).requires_grad
    with pytest.raises((DeviceError, GradError)):
        ng.zeros(3, device="cuda", out=ng.empty(3))


# -- the functions ---------------------------------------------------------------------------------


def test_methods_do_not_take_out():
    x = ng.ones(2)
    for name in ("exp", "add", "sum", "mm", "sort", "max", "lerp", "cumsum", "clamp"):
        with pytest.raises(TypeError):
            getattr(x, name)(out=x)
    for wrong in (lambda: x.exp(x), lambda: x.mul(x, x)):
        with pytest.raises(TypeError):
            wrong()


def test_out_is_for_the_keyword_only():
    x, out = ng.ones(2, 2), ng.zeros(2, 2)
    for wrong in (
        lambda: ng.exp(x, out),
        lambda: ng.mul(x, x, out),
        lambda: ng.add(x, x, out),
        lambda: ng.mm(x, x, out),
        lambda: ng.clamp(x, 0, 1, out),
        # twice the same: what stands for no ``out`` is None alone
        lambda: ng.exp(x, out, out),
        lambda: ng.erfc(x, x, x),
        lambda: ng.mul(x, x, out, out),
        lambda: ng.pow(x, x, out, out),
        lambda: ng.matmul(x, x, out, out),
    ):
        with pytest.raises(TypeError, match=r"positional arguments? but"):
            wrong()
    assert not out.any().item()


def test_none_is_no_out():
    x = ng.ones(2, 2)
    for found in (ng.exp(x, out=None), ng.mm(x, x, out=None), ng.sum(x, 0, out=None)):
        assert isinstance(found, ng.Tensor)
    assert ng.zeros(2, out=None).tolist() == [0.0, 0.0]


def test_other_keywords_go_with_it():
    x, out = ng.tensor([[1.0, 2.0]]), ng.empty(0)
    assert ng.add(x, x, alpha=2, out=out).tolist() == [[3.0, 6.0]]
    assert ng.sum(x, axis=1, keepdims=True, out=ng.empty(0)).tolist() == [[3.0]]
    assert ng.sum(input=x, dim=1, out=ng.empty(0)).tolist() == [3.0]
    assert ng.cat([x, x], axis=1, out=ng.empty(0)).shape == (1, 4)
    assert ng.ones(size=(2,), out=ng.empty(0)).shape == (2,)
    assert ng.div(x, 2, rounding_mode="floor", out=ng.empty(0)).tolist() == [[0.0, 1.0]]
    with pytest.raises(TypeError, match="unexpected keyword argument 'where'"):
        ng.exp(x, out=out, where=x)
    with pytest.raises(TypeError, match="missing"):
        ng.mm(x, out=out)


def test_the_functions_are_modules_attributes_like_others():
    names = {}
    exec("from numbagrad import *", names)
    assert names["exp"] is ng.exp and names["sum"] is ng.sum and "linalg" in names
    assert {"exp", "mm", "sort"} <= set(dir(ng))
    assert ng.special.erf is ng.erf and ng.arccos is ng.acos
    for function in (ng.mm, ng.exp, ng.sum, ng.linalg.inv, ng.special.zeta):
        assert pickle.loads(pickle.dumps(function)) is function


def test_an_error_names_the_users_line():
    x = ng.tensor([[1.0, 2.0]], requires_grad=True)
    y = ng.mm(x, ng.ones(2, 1)).exp()
    z = ng.exp(y)
    y.detach().zero_()
    with pytest.raises(RuntimeError, match=r"test_out\.py") as caught:
        z.backward()
    assert "numbagrad/ops" not in str(caught.value)


# -- nothing is forgotten --------------------------------------------------------------------------

NOT_OURS = {"empty_like", "hamming_window", "ones_like", "rand_like", "randn_like", "zeros_like"}
"""What PyTorch's docstrings speak of, and its functions do not take."""


def takes_out(torch):
    """Names of PyTorch's functions that take ``out``: by its stubs, and by docstrings."""
    stub = Path(torch.__file__).parent / "_C" / "_VariableFunctions.pyi"
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            if "out" in {a.arg for a in (*node.args.args, *node.args.kwonlyargs)}:
                yield node.name
    yield from ("chain_matmul", "norm")  # written in Python
    for module, prefix in ((torch.linalg, "linalg."), (torch.special, "special.")):
        for name in dir(module):
            text = getattr(getattr(module, name), "__doc__", None)
            if isinstance(text, str) and "out=None" in text and not name.startswith("_"):
                yield prefix + name


def test_what_pytorch_writes_into_out_so_do_we():
    torch = pytest.importorskip("torch")
    known = set(takes_out(torch))
    assert len(known) > 250
    forgotten = []
    for name in sorted(known):
        try:
            function = function_of(ng, name)
            function_of(torch, name)
        except AttributeError:
            continue
        if not name.startswith("_") and "out" not in inspect.signature(function).parameters:
            forgotten.append(name)
    assert not forgotten
    assert not NOT_OURS & set(ROWS)
