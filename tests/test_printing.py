"""Printing: a table of literal texts, then PyTorch itself as the reference."""

import doctest
import sys
import types

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import dtypes as dt
from numbagrad import printing
from numbagrad.printing import set_printoptions, tensor_repr
from numbagrad.tables import show_file


@pytest.fixture(autouse=True)
def default_state():
    yield
    set_printoptions(profile="default")
    dt.set_default_dtype(dt.float32)


def text(values, dtype=dt.float32, **kwargs):
    return tensor_repr(np.asarray(values, dtype.numpy), dtype, **kwargs)


NAN, INF = float("nan"), float("inf")

LITERAL = [
    ([1.0, 2.0], dt.float32, ["requires_grad=True"], "tensor([1., 2.], requires_grad=True)"),
    ([2.0], dt.float32, ["grad_fn=<MulBackward>"], "tensor([2.], grad_fn=<MulBackward>)"),
    (3.5, dt.float32, [], "tensor(3.5000)"),
    (7, dt.int64, [], "tensor(7)"),
    (np.zeros((0, 3)), dt.float32, [], "tensor([], size=(0, 3))"),
    (np.zeros((0, 3)), dt.bool_, [], "tensor([], size=(0, 3), dtype=ng.bool)"),
    ([], dt.float32, [], "tensor([])"),
    ([], dt.int64, [], "tensor([], dtype=ng.int64)"),
    ([1.5], dt.float64, [], "tensor([1.5000], dtype=ng.float64)"),
    ([1, -20], dt.int32, [], "tensor([  1, -20], dtype=ng.int32)"),
    ([True, False], dt.bool_, [], "tensor([ True, False])"),
    ([NAN, INF, -INF, 0.5], dt.float32, [], "tensor([   nan,    inf,   -inf, 0.5000])"),
    ([0.0, NAN], dt.float32, [], "tensor([0., nan])"),
    ([1e-5, 1.0], dt.float32, [], "tensor([1.0000e-05, 1.0000e+00])"),
    ([1.0, 1000.0], dt.float32, [], "tensor([   1., 1000.])"),
    ([1.0, 1001.0], dt.float32, [], "tensor([1.0000e+00, 1.0010e+03])"),
    ([[1.0, 2.0], [3.0, 4.0]], dt.float32, [], "tensor([[1., 2.],\n        [3., 4.]])"),
    ([[[1]], [[2]]], dt.int64, [], "tensor([[[1]],\n\n        [[2]]])"),
    (
        np.arange(1001),
        dt.int64,
        [],
        "tensor([   0,    1,    2,  ...,  998,  999, 1000])",
    ),
]


@pytest.mark.parametrize("values, dtype, suffix_parts, expected", LITERAL)
def test_literal(values, dtype, suffix_parts, expected):
    assert text(values, dtype, suffix_parts=suffix_parts) == expected


def test_thousand_elements_are_all_shown():
    assert "..." not in text(np.zeros(1000))


def test_lines_keep_within_80_columns():
    for shape in [(500,), (20, 40), (3, 3, 30)]:
        lines = text(np.random.default_rng(0).random(shape)).splitlines()
        assert max(map(len, lines)) <= 80
        assert len(lines) > shape[0] / 10


def test_long_suffix_starts_a_line():
    parts = ["grad_fn=<" + "A" * 60 + ">", "requires_grad=True"]
    expected = f"tensor([1.],\n       {parts[0]},\n       requires_grad=True)"
    assert text([1.0], suffix_parts=parts) == expected


def test_prefix_sets_the_indent():
    assert text([[1], [2]], dt.int64, prefix="P(") == "P([[1],\n   [2]])"


def test_reads_only_what_is_shown():
    # 10^15 elements of one value: copying or scanning them would end in MemoryError.
    array = np.broadcast_to(np.float32(2.0), (10**9, 10**6))
    row = "[2., 2., 2.,  ..., 2., 2., 2.]"
    rows = [row] * 3 + ["..."] + [row] * 3
    assert text(array) == "tensor([" + ",\n        ".join(rows) + "])"


def test_default_dtype_is_not_named():
    dt.set_default_dtype(dt.float64)
    assert text([1.0], dt.float64) == "tensor([1.])"
    assert text([1.0], dt.float32) == "tensor([1.], dtype=ng.float32)"


def test_options_last_and_profile_resets():
    set_printoptions(precision=2, threshold=2, edgeitems=1)
    set_printoptions(linewidth=20)
    assert text([1.5, 2.5, 3.5]) == "tensor([1.50,  ...,\n        3.50])"
    set_printoptions(profile="short", precision=3)
    assert text([1.5, 2.5, 3.5]) == "tensor([1.500, 2.500, 3.500])"
    set_printoptions(profile="full")
    assert "..." not in text(np.zeros(1001))


def test_sci_mode_is_set_by_every_call():
    set_printoptions(sci_mode=True)
    assert text([1.0]) == "tensor([1.0000e+00])"
    set_printoptions(precision=4)
    assert text([1.0]) == "tensor([1.])"
    set_printoptions(sci_mode=False)
    assert text([1e-5, 1.0]) == "tensor([0.0000, 1.0000])"


@pytest.mark.parametrize(
    "options, message",
    [
        ({"profile": "long"}, "profile must be one of default, short, full, got 'long'"),
        ({"precision": -1}, "precision must be 0 or more, got -1"),
        ({"edgeitems": -3}, "edgeitems must be 0 or more"),
    ],
)
def test_wrong_options_change_nothing(options, message):
    with pytest.raises(ValueError, match=message):
        set_printoptions(**{"linewidth": 10, **options})
    assert "\n" not in text([1.0, 2.0, 3.0])


def test_doctests():
    assert doctest.testmod(printing).failed == 0


# PyTorch as the reference. Its dtypes print as torch.float64: ours are told to do so too, because
# where lines break depends on the length.


@pytest.fixture
def torch(monkeypatch):
    module = pytest.importorskip("torch")
    monkeypatch.setattr(dt.DType, "__repr__", lambda self: f"torch.{self.name}")
    yield module
    module.set_printoptions(profile="default")


def check_against(torch, array, suffix_parts=(), requires_grad=False):
    x = torch.from_numpy(np.array(array)).requires_grad_(requires_grad)
    got = tensor_repr(array, dt.from_numpy(array.dtype), suffix_parts=suffix_parts)
    assert got == repr(x)


SHAPES = [
    *[(), (1,), (7,), (40,), (1000,), (1001,), (0,)],
    *[(0, 3), (3, 0), (1, 1), (2, 3), (7, 60), (6, 200), (200, 6), (40, 40), (1001, 1)],
    *[(2, 3, 4), (0, 2, 0), (12, 9, 11), (6, 6, 30), (5, 1, 300)],
    *[(2, 2, 2, 2), (6, 6, 6, 6), (7, 7, 7, 7), (1, 2, 1, 700), (2, 1, 3, 2, 2)],
]
SPECIAL = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0])


def sprinkle(x, rng):
    return np.where(rng.random(x.shape) < 0.3, rng.choice(SPECIAL, size=x.shape), x)


VALUES = {
    "normal": lambda x, rng: x,
    "whole": lambda x, rng: np.round(10 * x),
    "whole, large": lambda x, rng: np.round(1e9 * x),
    "zero": lambda x, rng: 0 * x,
    "tiny": lambda x, rng: 1e-30 * x,
    "small": lambda x, rng: 1e-3 * x,
    "large": lambda x, rng: 3e5 * x,
    "huge": lambda x, rng: 1e37 * x,
    "wide range": lambda x, rng: np.exp(6 * x),
    "special": sprinkle,
    "special and whole": lambda x, rng: sprinkle(np.round(10 * x), rng),
    "special only": lambda x, rng: rng.choice(SPECIAL[:5], size=x.shape),
}


@pytest.mark.peer
@pytest.mark.parametrize("dtype", dt.FLOATING, ids=repr)
@pytest.mark.parametrize("values", VALUES)
def test_floats_as_torch(torch, values, dtype):
    rng = np.random.default_rng(3)
    for shape in SHAPES:
        x = VALUES[values](np.asarray(rng.standard_normal(shape)), rng)
        check_against(torch, np.asarray(x, dtype.numpy))


@pytest.mark.peer
@pytest.mark.parametrize("dtype", [d for d in dt.ALL if not d.is_floating_point], ids=repr)
def test_integers_as_torch(torch, dtype):
    rng = np.random.default_rng(4)
    for shape in SHAPES:
        for high in (2, 128, 10**12):
            x = rng.integers(-high, high, size=shape) if high > 2 else rng.integers(2, size=shape)
            check_against(torch, np.asarray(x).astype(dtype.numpy))


@pytest.mark.peer
@pytest.mark.parametrize(
    "values",
    # Either side of every threshold: smallest 1e-4, largest 1e8, ratio 1000.
    [
        *[[1e-4], [1.0001e-4], [9.999e-5], [1e8], [1e8 + 8], [100000000.5], [99999999.5]],
        *[[1.0, 1000.0], [1.0, 1001.0], [0.5, 500.0], [0.5, 500.5], [-0.001, 1.0], [-1e-3, 1.1]],
        *[[5e-324, 1.7e308], [1.99999], [0.99999, 1.0], [9.99995, -1.0], [2**53 + 0.0]],
    ],
    ids=repr,
)
def test_thresholds_as_torch(torch, values):
    check_against(torch, np.array(values))
    with np.errstate(over="ignore"):
        check_against(torch, np.array(values).astype(np.float32))


@pytest.mark.peer
@pytest.mark.parametrize("dtype", dt.FLOATING, ids=repr)
def test_suffixes_as_torch(torch, dtype):
    rng = np.random.default_rng(5)
    # One row of growing length, so that every suffix comes to stand at and around column 80.
    for shape in [*SHAPES, *[(n,) for n in range(1, 20)], *[(2, n) for n in range(1, 40)]]:
        for scale in (1, 1e3):
            x = np.asarray(scale * rng.standard_normal(shape), dtype.numpy)
            check_against(torch, x, ["requires_grad=True"], requires_grad=True)
            x = np.asarray(np.round(x))
            y = torch.from_numpy(x.copy()).requires_grad_() * 1
            note = f"grad_fn=<{type(y.grad_fn).__name__}>"
            assert tensor_repr(x, dtype, suffix_parts=[note]) == repr(y)


@pytest.mark.peer
@pytest.mark.parametrize("dtype", [dt.float32, dt.int64, dt.bool_], ids=repr)
@pytest.mark.parametrize(
    "options",
    [
        *[{"profile": name} for name in ("default", "short", "full")],
        *[{"precision": n} for n in (0, 1, 8)],
        *[{"threshold": n} for n in (0, 5, 5000)],
        *[{"edgeitems": n, "threshold": 5} for n in (0, 1, 2, 5)],
        *[{"edgeitems": 0}],
        *[{"linewidth": n} for n in (0, 10, 60, 200)],
        *[{"sci_mode": mode, "precision": n} for mode in (True, False) for n in (0, 2)],
        {"profile": "short", "precision": 6, "linewidth": 40, "threshold": 20},
    ],
    ids=repr,
)
def test_options_as_torch(torch, options, dtype):
    rng = np.random.default_rng(6)
    torch.set_printoptions(**options)
    set_printoptions(**options)
    for shape in SHAPES:
        normal = np.asarray(rng.standard_normal(shape))
        for values in ("normal", "whole", "wide range", "special", "special only"):
            with np.errstate(invalid="ignore"):
                check_against(torch, np.asarray(VALUES[values](normal, rng)).astype(dtype.numpy))


@pytest.mark.peer
def test_strided_as_torch(torch):
    x = np.random.default_rng(7).standard_normal((50, 60)).astype(np.float32)
    for view in (x.T, x[::-1], x[:, ::7], x[3:5, 40:2:-3]):
        check_against(torch, view)


@pytest.mark.peer
def test_two_suffixes_as_torch(torch):
    x = np.array([1.5, 2.5])
    for linewidth in range(20, 80):
        torch.set_printoptions(linewidth=linewidth)
        set_printoptions(linewidth=linewidth)
        check_against(torch, x, ["requires_grad=True"], requires_grad=True)


def test_cells_of_notebooks_are_called_by_their_prompts(monkeypatch):
    class Shell:
        class compile:
            format_code_name = {"/tmp/ipykernel_1/2.py": ("Cell", "In[3]")}.get

    assert show_file("/tmp/ipykernel_1/2.py") == "/tmp/ipykernel_1/2.py"
    for shell, expected in ((Shell, "In[3]"), (None, "/tmp/ipykernel_1/2.py")):
        ipython = types.SimpleNamespace(get_ipython=lambda shell=shell: shell)
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        assert show_file("/tmp/ipykernel_1/2.py") == expected
        assert show_file("model.py") == "model.py"


def test_a_number_in_a_formatted_string_is_a_number():
    assert (
        f"{ng.tensor(3)} {ng.tensor(1.5, requires_grad=True) * 2} {ng.tensor(True)}" == "3 3.0 True"
    )
    assert f"{ng.ones(2)}" == "tensor([1., 1.])" and f"{ng.tensor(1.25):.1f}" == "1.2"
    assert f"{ng.nn.Parameter(ng.tensor(1.0))}".startswith("Parameter containing")
    with pytest.raises(TypeError, match="unsupported format string passed to Tensor"):
        f"{ng.ones(2):.2f}"
