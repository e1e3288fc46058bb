"""PyTorch's promotion (contract T5), written down for all pairs of the eight dtypes."""

from __future__ import annotations

import enum
import itertools
import operator

import pytest

import numbagrad as ng
from numbagrad.dtypes import of_number, result_type
from numbagrad.errors import DTypeError

NAMES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64")
SHORT = dict(zip(("b", "u8", "i8", "i16", "i32", "i64", "f32", "f64"), NAMES, strict=True))

# Rows: the left operand in the order of NAMES; columns: the right one. Both have dimensions.
BETWEEN_TENSORS = """
    b    u8   i8   i16  i32  i64  f32  f64
    u8   u8   i16  i16  i32  i64  f32  f64
    i8   i16  i8   i16  i32  i64  f32  f64
    i16  i16  i16  i16  i32  i64  f32  f64
    i32  i32  i32  i32  i32  i64  f32  f64
    i64  i64  i64  i64  i64  i64  f32  f64
    f32  f32  f32  f32  f32  f32  f32  f64
    f64  f64  f64  f64  f64  f64  f64  f64
"""

# The right operand is 0-d: it decides only when its kind (bool < integer < floating) is higher.
WITH_0_D = """
    b    u8   i8   i16  i32  i64  f32  f64
    u8   u8   u8   u8   u8   u8   f32  f64
    i8   i8   i8   i8   i8   i8   f32  f64
    i16  i16  i16  i16  i16  i16  f32  f64
    i32  i32  i32  i32  i32  i32  f32  f64
    i64  i64  i64  i64  i64  i64  f32  f64
    f32  f32  f32  f32  f32  f32  f32  f32
    f64  f64  f64  f64  f64  f64  f64  f64
"""

# The right operand is a Python number: True, 3, 1.5. A float brings the default dtype.
WITH_NUMBER = """
    b    i64  f32
    u8   u8   f32
    i8   i8   f32
    i16  i16  f32
    i32  i32  f32
    i64  i64  f32
    f32  f32  f32
    f64  f64  f64
"""
NUMBERS = {"bool": True, "int": 3, "float": 1.5}


def read(table: str) -> list[list[str]]:
    """A table's cells as names of dtypes."""
    return [[SHORT[cell] for cell in line.split()] for line in table.split("\n") if line.strip()]


def pairs(table: str) -> list[tuple[str, str, str]]:
    """Left name, right name, name of the result."""
    cells = read(table)
    return [
        (left, right, cells[i][j])
        for (i, left), (j, right) in itertools.product(enumerate(NAMES), enumerate(NAMES))
    ]


def dtype_of(name: str) -> ng.DType:
    """``ng.float32`` for "float32"."""
    return getattr(ng, name)


def vector(name: str, library: object = ng) -> object:
    """Ones with a dimension."""
    return library.tensor([1, 1], dtype=getattr(library, name))


def scalar(name: str, library: object = ng) -> object:
    """A 0-d one."""
    return library.tensor(1, dtype=getattr(library, name))


@pytest.mark.interpreted
@pytest.mark.parametrize("left", NAMES)
def test_tensors_with_dimensions(left):
    for a, b, expected in pairs(BETWEEN_TENSORS):
        if a == left:
            out = vector(a) + vector(b)
            assert out.dtype is dtype_of(expected), f"{a} + {b}"
            assert out.tolist() == [1 + (a != "bool" or b != "bool")] * 2, f"{a} + {b}"


@pytest.mark.interpreted
@pytest.mark.parametrize("left", NAMES)
def test_a_0_d_tensor_on_either_side(left):
    for a, b, expected in pairs(WITH_0_D):
        if a == left:
            assert (vector(a) + scalar(b)).dtype is dtype_of(expected), f"{a} + 0-d {b}"
            if b in ("bool", "int64", "float64"):
                assert (scalar(b) + vector(a)).dtype is dtype_of(expected), f"0-d {b} + {a}"


def test_two_0_d_tensors_promote_as_vectors_do():
    for a, b, expected in pairs(BETWEEN_TENSORS):
        assert (scalar(a) + scalar(b)).dtype is dtype_of(expected), f"0-d {a} + 0-d {b}"


@pytest.mark.parametrize("left", NAMES)
def test_a_python_number_on_either_side(left):
    row = read(WITH_NUMBER)[NAMES.index(left)]
    for number, expected in zip(NUMBERS.values(), row, strict=True):
        for x in (vector(left), scalar(left)):
            assert (x + number).dtype is dtype_of(expected), f"{left} + {number!r}"
            assert (number + x).dtype is dtype_of(expected), f"{number!r} + {left}"


def test_promote_types_is_the_table():
    for a, b, expected in pairs(BETWEEN_TENSORS):
        assert ng.promote_types(dtype_of(a), dtype_of(b)) is dtype_of(expected), f"{a} {b}"


def test_a_float_number_brings_the_default_dtype():
    ng.set_default_dtype(ng.float64)
    try:
        assert (vector("int64") + 1.5).dtype is ng.float64
        assert (vector("float32") + 1.5).dtype is ng.float32
        assert (vector("int64") / 2).dtype is ng.float64
    finally:
        ng.set_default_dtype(ng.float32)


def test_the_default_dtype_of_now_decides_for_operands_met_before():
    x, y = ng.tensor([[1, 2], [3, 4]]), ng.tensor([1, 2])
    results = [lambda: x / y, lambda: x.t() / y, lambda: x.t().exp(), lambda: x.t() * 1.5]
    for default in (ng.float32, ng.float64, ng.float32):
        ng.set_default_dtype(default)
        try:
            assert [f().dtype for f in results] == [default] * 4
        finally:
            ng.set_default_dtype(ng.float32)


@pytest.mark.parametrize("name", NAMES)
def test_division_is_floating(name):
    expected = name if name.startswith("float") else "float32"
    assert (vector(name) / vector(name)).dtype is dtype_of(expected)
    assert (vector(name) / 2).dtype is dtype_of(expected)


@pytest.mark.parametrize("compare", [operator.eq, operator.lt, operator.ge])
def test_comparisons_are_bool_and_promote_first(compare):
    big = ng.tensor([2**24 + 1])
    assert (big == ng.tensor([float(2**24)])).dtype is ng.bool
    assert compare(vector("int64"), vector("float32")).dtype is ng.bool
    # -1 as uint8 would be 255: the comparison is done in int16
    assert (ng.tensor([-1], dtype=ng.int8) < ng.tensor([1], dtype=ng.uint8)).tolist() == [True]


def test_sums_of_integers_are_int64_and_means_raise():
    for name in NAMES[:6]:
        assert vector(name).sum().dtype is ng.int64
        with pytest.raises(RuntimeError, match="floating point"):
            vector(name).mean()


@pytest.mark.parametrize("left", NAMES)
def test_in_place_keeps_the_dtype_or_raises(left):
    """A result of a higher kind does not fit; a wider one of the same kind is cast."""
    kinds = dict(zip(NAMES, (0, 1, 1, 1, 1, 1, 2, 2), strict=True))
    for a, b, expected in pairs(BETWEEN_TENSORS):
        if a != left:
            continue
        x = vector(a)
        if kinds[expected] > kinds[a]:
            with pytest.raises(DTypeError, match="can't be cast"):
                x.add_(vector(b))
            assert x.tolist() == [1, 1]
        else:
            assert x.add_(vector(b)) is x
            assert x.dtype is dtype_of(a)


def test_arithmetic_wraps_as_the_dtype_does():
    assert (ng.tensor([250], dtype=ng.uint8) + 10).tolist() == [4]
    assert (ng.tensor([100], dtype=ng.int8) + 100).tolist() == [-56]
    assert (-ng.tensor([1], dtype=ng.uint8)).tolist() == [255]
    assert (ng.tensor([2**62]) * 4).tolist() == [0]


def test_large_integers_keep_every_digit():
    big = 2**53 + 1
    assert (ng.tensor([big]) + 0).tolist() == [big]
    assert (ng.tensor([big]) * 1).item() == big
    assert ng.tensor([big]).sum().item() == big


def test_gradients_come_back_in_the_dtype_of_the_input():
    x = ng.tensor([1.0, 2.0], requires_grad=True)
    y = ng.tensor([3.0, 4.0], dtype=ng.float64, requires_grad=True)
    (x * y).sum().backward()
    assert x.grad.dtype is ng.float32
    assert y.grad.dtype is ng.float64
    assert x.grad.tolist() == [3.0, 4.0]
    (x * ng.tensor([2, 3])).sum().backward()
    assert x.grad.tolist() == [5.0, 7.0]


@pytest.mark.peer
def test_every_pair_as_torch():
    torch = pytest.importorskip("torch")
    for a, b in itertools.product(NAMES, NAMES):
        for left, right in ((vector, vector), (vector, scalar), (scalar, scalar)):
            theirs = left(a, torch) + right(b, torch)
            ours = left(a) + right(b)
            assert ours.dtype.name == str(theirs.dtype).removeprefix("torch."), f"{a} + {b}"
            assert ours.tolist() == theirs.tolist(), f"{a} + {b}"


@pytest.mark.peer
@pytest.mark.parametrize("name", ["sub", "mul", "truediv", "eq"])
def test_other_operators_as_torch(name):
    torch = pytest.importorskip("torch")
    operation = getattr(operator, name)
    some = ("bool", "uint8", "int32", "float32", "float64")
    for a, b in itertools.product(some, some):
        if name == "sub" and "bool" in (a, b):
            continue  # refused by both, see the op table
        theirs = operation(vector(a, torch), vector(b, torch))
        ours = operation(vector(a), vector(b))
        assert ours.dtype.name == str(theirs.dtype).removeprefix("torch."), f"{a} {name} {b}"
        assert ours.tolist() == theirs.tolist(), f"{a} {name} {b}"


@pytest.mark.peer
@pytest.mark.parametrize("name", ["add", "mul", "truediv", "pow"])
def test_every_number_as_torch(name):
    torch = pytest.importorskip("torch")
    operation = getattr(operator, name)
    for a, number in itertools.product(NAMES, NUMBERS.values()):
        if name == "pow" and a == "bool":
            continue
        theirs, ours = operation(vector(a, torch), number), operation(vector(a), number)
        assert ours.dtype.name == str(theirs.dtype).removeprefix("torch."), f"{a} {name} {number}"
        assert ours.tolist() == theirs.tolist(), f"{a} {name} {number}"


def test_halves_promote():
    half, brain = ng.float16, ng.bfloat16
    assert ng.promote_types(half, brain) is ng.float32
    assert ng.promote_types(half, ng.float32) is ng.promote_types(ng.float32, brain) is ng.float32
    assert ng.promote_types(ng.int64, half) is half and ng.promote_types(brain, ng.bool) is brain
    assert (ng.ones(2, dtype=half) * 2.5).dtype is half
    assert (ng.ones(2, dtype=ng.int64) * ng.tensor(1, dtype=brain)).dtype is brain


@pytest.mark.peer
def test_halves_promote_as_in_torch():
    torch = pytest.importorskip("torch")
    names = (*NAMES, "float16", "bfloat16")
    for a, b in itertools.product(names, names):
        theirs = torch.promote_types(getattr(torch, a), getattr(torch, b))
        assert ng.promote_types(dtype_of(a), dtype_of(b)).name == str(theirs)[6:], f"{a} {b}"
        for left, right in ((vector, vector), (vector, scalar), (scalar, scalar)):
            theirs = torch.result_type(left(a, torch), right(b, torch))
            ranks = [(dtype_of(n), 2 if f is vector else 1) for n, f in ((a, left), (b, right))]
            assert result_type(ranks).name == str(theirs)[6:], f"{a} {b}"
        for number in NUMBERS.values():
            theirs = torch.result_type(vector(a, torch), number)
            ranks = [(dtype_of(a), 2), (of_number(number), 0)]
            assert result_type(ranks).name == str(theirs)[6:], f"{a} {number}"


class Choice(enum.IntEnum):
    """Numbers with names."""

    ONE = 1
    TWO = 2


class Length(float):
    """A number of a class of its own."""


def test_numbers_of_other_classes_are_numbers():
    x, y = ng.tensor([1, 2, 3]), ng.tensor([1.0, 2.0, 3.0])
    two, half = Choice.TWO, Length(0.5)
    assert (x == two).tolist() == [False, True, False] and (y > two).tolist() == [
        False,
        False,
        True,
    ]
    for found, expected in (
        (x * two, x * 2), (two * y, y * 2), (y**two, y**2), (y / half, y / 0.5),
        (y.clamp(Choice.ONE, two), y.clamp(1, 2)), (ng.where(x > 1, y, two), ng.where(x > 1, y, 2)),
        (ng.add(y, y, alpha=two), y * 3), (ng.full((2,), two), ng.full((2,), 2)),
        (ng.zeros(2).fill_(half), ng.full((2,), 0.5)), (x.clone().add_(two), x + 2),
        (y.masked_fill(x > 1, half), ng.tensor([1.0, 0.5, 0.5])),
        (ng.full((1,), half), ng.tensor([0.5])),
        (ng.compile(lambda y: y * two + half)(y), y * 2 + 0.5),
    ):  # fmt: skip
        assert found.dtype is expected.dtype and ng.equal(found, expected)
    for call in (lambda: ng.full((1,), two), lambda: x * two):
        assert call().dtype is ng.int64
