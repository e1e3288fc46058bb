"""Rows of the elementwise ops, and of the operators made of them."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import scipy.special
from op_table import (
    ANY,
    EVERY,
    FLOATS,
    INTS_AND_BOOL,
    NO_METHOD,
    NUMBERS,
    Case,
    Draw,
    DTypeName,
    Sample,
    binary,
    boolean,
    float32,
    float64,
    floating,
    index,
    number,
    same,
    sample,
    unary,
    wrong,
)


def _gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + scipy.special.erf(x / np.sqrt(2)))


def _round(x: Any, decimals: int = 0) -> Any:
    return np.round(x, decimals)


FUNCTIONS = [
    unary("abs", np.abs, result=same, avoid=(0.0,), inplace="abs_", aliases=("absolute",)),
    unary(
        "angle",
        lambda x: np.where(np.isnan(x), x, np.where(x < 0, np.pi, 0)),
        dtypes=ANY,
        avoid=(0.0,),
    ),
    unary("isreal", np.isreal, dtypes=ANY, result=boolean, orders=0),
    unary("neg", np.negative, result=same, inplace="neg_", aliases=("negative",)),
    unary("exp", lambda x: np.exp(1.0 * x), dtypes=ANY, inplace="exp_"),
    unary("expm1", np.expm1, inplace="expm1_"),
    unary("log", np.log, domain=(0.2, 4), inplace="log_"),
    unary("log2", np.log2, domain=(0.2, 4), inplace=True),
    unary("log10", np.log10, domain=(0.2, 4), inplace=True),
    unary("log1p", np.log1p, domain=(-0.7, 4), inplace=True),
    unary("sqrt", np.sqrt, domain=(0.2, 4), inplace="sqrt_"),
    unary("rsqrt", lambda x: 1 / np.sqrt(x), domain=(0.2, 4), inplace=True),
    unary("square", np.square, result=same, inplace=True),
    unary("reciprocal", np.reciprocal, domain=(0.5, 3), dtypes=FLOATS, inplace=True),
    unary("sin", np.sin, inplace="sin_"),
    unary("cos", np.cos, inplace="cos_"),
    unary("tan", np.tan, domain=(-1.2, 1.2), inplace=True),
    unary("asin", np.arcsin, domain=(-0.9, 0.9), aliases=("arcsin",), inplace=True),
    unary("acos", np.arccos, domain=(-0.9, 0.9), aliases=("arccos",), inplace=True),
    unary("atan", np.arctan, aliases=("arctan",), inplace=True),
    unary("sinh", np.sinh, inplace=True),
    unary("cosh", np.cosh, inplace=True),
    unary("tanh", lambda x: np.tanh(1.0 * x), dtypes=ANY, inplace="tanh_"),
    unary("sigmoid", scipy.special.expit, inplace="sigmoid_"),
    unary("relu", lambda x: np.where(x <= 0, 0, x), result=same, avoid=(0.0,), inplace="relu_"),
    unary("erf", scipy.special.erf, inplace=True),
    unary("floor", np.floor, result=same, avoid=(-2, -1, 0, 1, 2, 3), inplace="floor_"),
    unary("ceil", np.ceil, result=same, avoid=(-2, -1, 0, 1, 2, 3), inplace=True),
    unary("trunc", np.trunc, result=same, avoid=(-2, -1, 0, 1, 2, 3), inplace=True),
    unary("round", _round, result=same, avoid=(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5), inplace=True),
    unary("sign", np.sign, result=same, avoid=(0.0,), special=False, inplace=True),
    unary("isnan", np.isnan, result=boolean, orders=0),
    unary("isinf", np.isinf, result=boolean, orders=0),
    unary("isfinite", np.isfinite, result=boolean, orders=0),
    unary("logical_not", np.logical_not, dtypes=ANY, result=boolean, orders=0),
    unary(
        *("bitwise_not", np.bitwise_not),
        dtypes=INTS_AND_BOOL,
        result=same,
        orders=0,
        special=False,
        inplace=True,
    ),
    unary("nan_to_num", lambda x: np.nan_to_num(x), dtypes=FLOATS, special=False, inplace=True),
    unary("clone", np.copy, dtypes=EVERY, result=same),
]

# PyTorch lets a leaf that needs a gradient be changed by these.
LOGIC_IN_PLACE = [
    unary(
        "logical_not-in-place",
        np.logical_not,
        dtypes=ANY,
        result=boolean,
        orders=0,
        inplace="logical_not_",
        peer=False,
    ),
    *[
        binary(
            f"logical_{name}-in-place",
            getattr(np, f"logical_{name}"),
            dtypes=ANY,
            result=boolean,
            orders=0,
            numbers=False,
            inplace=f"logical_{name}_",
            peer=False,
        )
        for name in ("and", "or", "xor")
    ],
]

PAIRS = [
    binary("add", np.add, dtypes=ANY, inplace="add_"),
    binary("sub", np.subtract, inplace="sub_", aliases=("subtract",)),
    binary("mul", np.multiply, dtypes=ANY, inplace="mul_", aliases=("multiply",)),
    binary("div", np.divide, second=(0.5, 3), result=floating, inplace="div_", aliases=("divide",)),
    binary("true_divide", np.divide, second=(0.5, 3), result=floating, inplace="true_divide_"),
    binary(
        "floor_divide",
        np.floor_divide,
        second=(1, 3),
        special=False,
        orders=0,
        inplace="floor_divide_",
    ),
    binary("remainder", np.mod, second=(1, 3), special=False, inplace="remainder_"),
    binary("pow", np.power, domain=(0.2, 3), second=(0, 2), inplace="pow_"),
    binary("maximum", np.maximum, dtypes=ANY, numbers=False),
    binary("minimum", np.minimum, dtypes=ANY, numbers=False),
    binary(
        "atan2",
        np.arctan2,
        second=(0.5, 3),
        result=floating,
        numbers=False,
        aliases=("arctan2",),
        inplace="atan2_",
    ),
    binary("eq", np.equal, dtypes=ANY, result=boolean, orders=0, inplace="eq_"),
    binary(
        "ne",
        np.not_equal,
        dtypes=ANY,
        result=boolean,
        orders=0,
        aliases=("not_equal",),
        inplace="ne_",
    ),
    binary("lt", np.less, dtypes=ANY, result=boolean, orders=0, aliases=("less",), inplace="lt_"),
    binary(
        "le",
        np.less_equal,
        dtypes=ANY,
        result=boolean,
        orders=0,
        aliases=("less_equal",),
        inplace="le_",
    ),
    binary(
        "gt", np.greater, dtypes=ANY, result=boolean, orders=0, aliases=("greater",), inplace="gt_"
    ),
    binary(
        "ge",
        np.greater_equal,
        dtypes=ANY,
        result=boolean,
        orders=0,
        aliases=("greater_equal",),
        inplace="ge_",
    ),
    binary("logical_and", np.logical_and, dtypes=ANY, result=boolean, orders=0, numbers=False),
    binary("logical_or", np.logical_or, dtypes=ANY, result=boolean, orders=0, numbers=False),
    binary("logical_xor", np.logical_xor, dtypes=ANY, result=boolean, orders=0, numbers=False),
    binary(
        *("bitwise_and", np.bitwise_and),
        dtypes=INTS_AND_BOOL,
        orders=0,
        inplace="bitwise_and_",
    ),
    binary(
        *("bitwise_or", np.bitwise_or),
        dtypes=INTS_AND_BOOL,
        orders=0,
        inplace="bitwise_or_",
    ),
    binary(
        *("bitwise_xor", np.bitwise_xor),
        dtypes=INTS_AND_BOOL,
        orders=0,
        inplace="bitwise_xor_",
    ),
]


def _alpha(draw: Draw) -> list[Sample]:
    return [sample(draw(2, 3), draw(3), alpha=3), sample(draw(2, 3), 2, alpha=3)]


def _rounding(draw: Draw) -> list[Sample]:
    other = Draw(draw.dtype, (1, 3))
    calls = [sample(draw(2, 3), other(2, 3), rounding_mode=mode) for mode in ("floor", "trunc")]
    return [*calls, sample(draw(2, 3), 2, rounding_mode="floor")]


def _divide_rounded(x: Any, y: Any, rounding_mode: str) -> Any:
    return np.floor(x / y) if rounding_mode == "floor" else np.trunc(x / y)


def _clamp(draw: Draw) -> list[Sample]:
    return [
        sample(draw(2, 3), -1, 2),
        sample(draw(2, 3), min=-1),
        sample(draw(2, 3), max=1),
        sample(draw(), -1, 2, kind="scalar"),
        sample(draw(0, 3), -1, 2, kind="empty"),
        sample(draw(2, 3), 2, -1),
        *([sample(draw.special(), np.nan, 1.0, kind="special")] if draw.floating else []),
    ]


def _clamp_tensors(draw: Draw) -> list[Sample]:
    low, high = (draw(2, 3) - 2).astype(draw.dtype), (draw(3) + 2).astype(draw.dtype)
    values = draw.special()
    return [
        sample(draw(2, 3), low, high),
        sample(draw(2, 3), high, low),
        sample(values[:, None], values, values[::-1].copy(), kind="special"),
    ]


def _clamp_one_side(draw: Draw) -> list[Sample]:
    values = draw.special()
    return [
        sample(draw(2, 3), 1),
        sample(draw(2, 3), draw(3)),
        sample(values[:, None], values, kind="special"),
    ]


def _clip(x: Any, min: Any = None, max: Any = None) -> Any:
    return np.clip(x, min, max)


def _where(draw: Draw) -> list[Sample]:
    numbers = [sample(draw.mask(2, 3), draw(2, 3), 0, kind="broadcast")]
    return [
        *(numbers if draw.dtype != "bool" else []),
        sample(draw.mask(2, 3), draw(2, 3), draw(2, 3)),
        sample(draw.mask(2, 1), draw(3), draw(), kind="broadcast"),
        sample(draw.mask(), draw(), draw(), kind="scalar"),
        sample(draw.mask(0, 3), draw(0, 3), draw(3), kind="empty"),
    ]


def _three(draw: Draw) -> list[Sample]:
    other = Draw(draw.dtype, (0.5, 2))
    return [
        sample(draw(2, 3), draw(2, 3), other(2, 3)),
        sample(draw(2, 3), draw(3), other(2, 1), kind="broadcast"),
        sample(draw(0, 3), draw(3), other(0, 3), kind="empty"),
    ]


def _three_value(draw: Draw) -> list[Sample]:
    return [*_three(draw), sample(draw(2, 3), draw(2, 3), draw(3) + 4, value=2)]


def _activation(draw: Draw, *args: Any, **kwargs: Any) -> list[Sample]:
    return [
        sample(draw(2, 3), *args, **kwargs),
        sample(draw(), *args, kind="scalar", **kwargs),
        sample(draw(0, 3), *args, kind="empty", **kwargs),
    ]


FORMS = [
    Case("add-alpha", _alpha, lambda x, y, alpha: x + alpha * y, dtypes=NUMBERS, inplace="add_"),
    Case("sub-alpha", _alpha, lambda x, y, alpha: x - alpha * y, dtypes=NUMBERS, inplace="sub_"),
    Case("div-rounding", _rounding, _divide_rounded, dtypes=NUMBERS, orders=0),
    Case(
        "pow-number",
        lambda d: [sample(d(2, 3), p) for p in (2, 3, 1, 0, 4)],
        lambda x, p: x**p,
        dtypes=NUMBERS,
        inplace="pow_",
    ),
    Case(
        "pow-float",
        lambda d: [sample(d(2, 3), p) for p in (0.5, -0.5, 2.5, -1.0)],
        lambda x, p: x**p,
        domain=(0.3, 3),
        inplace="pow_",
    ),
    Case(
        "pow-whole-float",
        lambda d: [sample(d(2, 3), p) for p in (2.0, 3.0, 1.0, 0.5)],
        lambda x, p: x.astype(np.float64) ** p,
        domain=(0, 3),
        dtypes=("int64", "uint8", "bool"),
        result=floating,
        orders=0,
    ),
    Case(
        "pow-bool",
        lambda d: [sample(d(2, 3), p) for p in (2, 3)],
        lambda x, p: x.astype(np.int64) ** p,
        dtypes=("bool",),
        result=number,
        orders=0,
    ),
    Case(
        "pow-base",
        lambda d: [sample(2.0, d(2, 3)), sample(0.5, d())],
        lambda b, x: b**x,
        method=NO_METHOD,
    ),
    Case(
        "round-decimals",
        lambda d: [sample(d(2, 3), decimals=2), sample(4321 * d(2, 3), decimals=-3)],
        _round,
        orders=0,
    ),
    Case(
        "clamp",
        _clamp,
        _clip,
        dtypes=(*FLOATS, "int64"),
        avoid=(-1, 1, 2),
        inplace="clamp_",
        errors=(
            wrong(
                np.ones(3, "float32"),
                raises=(RuntimeError, ValueError),
                words="At least one of 'min' or 'max'",
            ),
        ),
    ),
    Case("clip", _clamp, _clip, inplace="clip_", dtypes=(*FLOATS, "int64"), avoid=(-1, 1, 2)),
    Case(
        "clamp_min",
        _clamp_one_side,
        np.maximum,
        avoid=(1,),
        inplace="clamp_min_",
    ),
    Case(
        "clamp_max",
        _clamp_one_side,
        np.minimum,
        avoid=(1,),
        inplace="clamp_max_",
    ),
    unary("deg2rad", np.deg2rad, dtypes=FLOATS, result=same, inplace=True),
    unary("rad2deg", np.rad2deg, dtypes=FLOATS, result=same, inplace=True),
    Case(
        "logit",
        lambda d: [sample(d(2, 3)), sample(d(2, 3), 0.3)],
        lambda x, eps=0: np.log(np.clip(x, eps, 1 - eps) / (1 - np.clip(x, eps, 1 - eps))),
        domain=(0.05, 0.95),
        avoid=(0.3, 0.7),
        inplace="logit_",
    ),
    Case("clamp-tensors", _clamp_tensors, _clip, domain=(-1.5, 1.5)),
    Case("where", _where, np.where, dtypes=ANY, method=NO_METHOD),
    Case(
        "where-method",
        _where,
        np.where,
        call=lambda mask, x, y: x.where(mask, y),
        dtypes=NUMBERS,
    ),
    Case(
        "masked_fill",
        lambda d: [
            sample(d(2, 3), d.mask(2, 3), 2),
            sample(d(2, 3), d.mask(3), 0, kind="broadcast"),
            sample(d(2, 3), d.mask(2, 3), d()),
            sample(d(0, 3), d.mask(3), 1, kind="empty"),
        ],
        lambda x, mask, value: np.where(mask, value, x),
        dtypes=NUMBERS,
        inplace="masked_fill_",
        errors=(
            wrong(
                np.ones((2, 3), "float32"),
                np.ones((2, 3), "float32"),
                1.0,
                raises=RuntimeError,
                words="bool",
            ),
        ),
    ),
    Case("addcmul", _three_value, lambda x, y, z, value=1: x + value * y * z, inplace="addcmul_"),
    Case("addcdiv", _three_value, lambda x, y, z, value=1: x + value * y / z, inplace="addcdiv_"),
    Case(
        "lerp",
        lambda d: [sample(d(2, 3), d(2, 3), 0.25), *_three(d)],
        lambda x, y, w: x + w * (y - x),
        inplace="lerp_",
    ),
]

_functional = "nn.functional."


def _at(name: str, oracle: Any, *settings: Any, **options: Any) -> Case:
    """An activation with its defaults, and with ``settings``."""

    def samples(draw: Draw) -> list[Sample]:
        return [*_activation(draw), *(_activation(draw, *settings) if settings else [])]

    function = _functional + name
    options.setdefault("avoid", (0.0,))
    return Case(name, samples, oracle, function=function, method=NO_METHOD, **options)


def _glu(x: Any, dim: int = -1) -> Any:
    value, gate = np.split(x, 2, dim)
    return value / (1 + np.exp(-gate))


def _prelu(x: Any, weight: Any) -> Any:
    shape = () if weight.size == 1 else (-1, *[1] * (x.ndim - 2))
    return np.where(x > 0, x, weight.reshape(shape) * x)


ACTIVATIONS = [
    Case(
        "prelu",
        lambda draw: [
            sample(draw(2, 3), draw(1)),
            sample(draw(2, 3, 2), draw(3)),
            sample(draw(), draw(1), kind="scalar"),
            sample(draw(0, 3), draw(3), kind="empty"),
        ],
        _prelu,
        avoid=(0.0,),
        errors=(
            wrong(
                np.ones((2, 3), "float32"),
                np.ones(2, "float32"),
                raises=RuntimeError,
                words="Mismatch of parameter numbers and input channel size",
            ),
        ),
    ),
    _at("celu", lambda x, a=1.0: np.where(x > 0, x, a * np.expm1(x / a)), 0.7),
    _at(
        "selu",
        lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    ),
    _at(
        "hardtanh",
        lambda x, low=-1, high=1: np.clip(x, low, high),
        -2,
        0.5,
        avoid=(-2, -1, 0.5, 1),
        errors=(
            wrong(
                np.ones(3, "float32"),
                2.0,
                1.0,
                raises=ValueError,
                words="min_val cannot be greater than max_val",
            ),
        ),
    ),
    _at("hardsigmoid", lambda x: np.clip(x / 6 + 0.5, 0, 1), avoid=(-3, 3), orders=1),
    _at("hardswish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1), avoid=(-3, 3)),
    _at(
        "hardshrink", lambda x, a=0.5: np.where(np.abs(x) > a, x, 0), 1.0, avoid=(-1, -0.5, 0.5, 1)
    ),
    _at(
        "softshrink",
        lambda x, a=0.5: np.sign(x) * np.maximum(np.abs(x) - a, 0),
        1.0,
        avoid=(-1, -0.5, 0.5, 1),
    ),
    Case(
        "glu",
        lambda d: [sample(d(2, 6)), sample(d(4, 3), 0), sample(d(0, 4), kind="empty")],
        _glu,
        function=_functional + "glu",
        method=NO_METHOD,
        errors=(
            wrong(np.ones(3, "float32"), raises=ValueError, words="must be even"),
            wrong(np.ones((), "float32"), raises=RuntimeError, words="0-dim"),
        ),
    ),
    _at("mish", lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    _at("softsign", lambda x: x / (1 + np.abs(x))),
    _at("tanhshrink", lambda x: x - np.tanh(x)),
    Case(
        "threshold",
        lambda d: _activation(d, 0.5, -1.0),
        lambda x, limit, value: np.where(x > limit, x, value),
        function=_functional + "threshold",
        method=NO_METHOD,
        avoid=(0.5,),
    ),
    Case(
        "gelu",
        lambda d: [*_activation(d), *_activation(d, approximate="tanh")],
        _gelu,
        function=_functional + "gelu",
        method=NO_METHOD,
    ),
    Case(
        "silu",
        _activation,
        lambda x: x * scipy.special.expit(x),
        function=_functional + "silu",
        method=NO_METHOD,
    ),
    Case(
        "leaky_relu",
        lambda d: [*_activation(d), *_activation(d, 0.2)],
        lambda x, slope=0.01: np.where(x > 0, x, slope * x),
        function=_functional + "leaky_relu",
        method=NO_METHOD,
        avoid=(0.0,),
    ),
    Case(
        "elu",
        lambda d: [*_activation(d), *_activation(d, 0.7)],
        lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(x)),
        function=_functional + "elu",
        method=NO_METHOD,
        avoid=(0.0,),
    ),
    Case(
        "softplus",
        _activation,
        lambda x: np.log1p(np.exp(x)),
        function=_functional + "softplus",
        method=NO_METHOD,
    ),
    Case(
        "logsigmoid",
        _activation,
        lambda x: -np.log1p(np.exp(-x)),
        function=_functional + "logsigmoid",
        method=NO_METHOD,
    ),
    Case(
        "relu-functional",
        _activation,
        lambda x: np.maximum(x, 0),
        function=_functional + "relu",
        method=NO_METHOD,
        avoid=(0.0,),
    ),
    Case(
        "tanh-functional",
        _activation,
        np.tanh,
        function=_functional + "tanh",
        method=NO_METHOD,
    ),
    Case(
        "sigmoid-functional",
        _activation,
        scipy.special.expit,
        function=_functional + "sigmoid",
        method=NO_METHOD,
    ),
]


def _augmented(operation: Any) -> Any:
    def call(x: Any, y: Any) -> Any:
        x = x.clone()
        return operation(x, y)

    return call


def _operator(name: str, oracle: Any, **options: Any) -> Case:
    function = getattr(operator, name.split("-")[0])
    return binary(f"operator-{name}", oracle, call=function, special=False, **options)


def _reflected(name: str, function: Any, **options: Any) -> Case:
    def samples(draw: Draw) -> list[Sample]:
        return [sample(draw(2, 3), 2), sample(draw(), 3, kind="scalar")]

    def swapped(x: Any, y: Any) -> Any:
        return function(y, x)

    options.setdefault("dtypes", NUMBERS)
    return Case(f"operator-{name}", samples, swapped, call=swapped, **options)


def _in_place_operator(name: str, oracle: Any, **options: Any) -> Case:
    def samples(draw: Draw) -> list[Sample]:
        other = Draw(draw.dtype, (1, 3))
        return [
            sample(draw(2, 3), other(2, 3)),
            sample(draw(2, 3), other(3), kind="broadcast"),
            sample(draw(2, 3), 2),
        ]

    call = _augmented(getattr(operator, name))
    small, large = np.ones(3, "float32"), np.ones((2, 3), "float32")
    grows = wrong(small, large, raises=RuntimeError, words="broadcast")
    return Case(f"operator-{name}", samples, oracle, call=call, errors=(grows,), **options)


OPERATORS = [
    _operator("add", np.add, dtypes=ANY),
    _operator("sub", np.subtract),
    _operator("mul", np.multiply, dtypes=ANY),
    _operator("truediv", np.divide, second=(0.5, 3), result=floating),
    _operator("floordiv", np.floor_divide, second=(1, 3), orders=0),
    _operator("mod", np.mod, second=(1, 3)),
    _operator("pow", np.power, domain=(0.2, 3), second=(0, 2)),
    _operator("eq", np.equal, dtypes=ANY, result=boolean, orders=0),
    _operator("ne", np.not_equal, dtypes=ANY, result=boolean, orders=0),
    _operator("lt", np.less, result=boolean, orders=0),
    _operator("le", np.less_equal, result=boolean, orders=0),
    _operator("gt", np.greater, result=boolean, orders=0),
    _operator("ge", np.greater_equal, result=boolean, orders=0),
    _operator("and_", np.bitwise_and, dtypes=INTS_AND_BOOL, orders=0),
    _operator("or_", np.bitwise_or, dtypes=INTS_AND_BOOL, orders=0),
    _operator("xor", np.bitwise_xor, dtypes=INTS_AND_BOOL, orders=0),
    _reflected("radd", operator.add),
    _reflected("rsub", operator.sub),
    _reflected("rmul", operator.mul),
    _reflected("rtruediv", operator.truediv, domain=(0.5, 3), result=floating),
    _reflected("rfloordiv", operator.floordiv, domain=(1, 3), orders=0),
    _reflected("rpow", operator.pow, dtypes=FLOATS),
    _reflected("rmod", operator.mod, domain=(1.1, 3), orders=0),
    unary("operator-neg", np.negative, call=operator.neg, result=same, special=False),
    unary("operator-pos", np.positive, call=operator.pos, result=same, special=False),
    unary("operator-abs", np.abs, call=abs, result=same, avoid=(0.0,), special=False),
    unary(
        "operator-invert",
        np.bitwise_not,
        call=operator.invert,
        dtypes=INTS_AND_BOOL,
        result=same,
        orders=0,
    ),
    _in_place_operator("iadd", np.add, dtypes=NUMBERS),
    _in_place_operator("isub", np.subtract, dtypes=NUMBERS),
    _in_place_operator("imul", np.multiply, dtypes=NUMBERS),
    _in_place_operator("itruediv", np.divide),
    _in_place_operator("ipow", np.power, domain=(0.3, 3)),
]


def _conversion(name: str, dtype: str, result: Any, **options: Any) -> Case:
    return unary(
        name,
        lambda x: x.astype(dtype),
        call=lambda x: getattr(x, name)(),
        dtypes=ANY,
        result=result,
        special=False,
        orders=2 if dtype == "float64" else 0,
        **options,
    )


CONVERSIONS = [
    _conversion("float", "float32", float32),
    _conversion("double", "float64", float64),
    _conversion("long", "int64", index),
    _conversion("int", "int32", lambda _: "int32"),
    _conversion("short", "int16", lambda _: "int16"),
    _conversion("char", "int8", lambda _: "int8"),
    _conversion("byte", "uint8", lambda _: "uint8", domain=(0, 5)),  # below 0 C leaves it open
    _conversion("bool", "bool", boolean),
    Case(
        "to",
        lambda d: [sample(d(2, 3), DTypeName("float64")), sample(d(), DTypeName("float64"))],
        lambda x, dtype: x.astype(dtype),
        call=lambda x, dtype: x.to(dtype),
        dtypes=EVERY,
        result=float64,
    ),
    Case(
        "to-int",
        lambda d: [sample(d(2, 3), DTypeName("int64"))],
        lambda x, dtype: x.astype(dtype),
        call=lambda x, dtype: x.to(dtype=dtype),
        dtypes=EVERY,
        result=index,
        orders=0,
    ),
    Case(
        "type",
        lambda d: [sample(d(2, 3), DTypeName("float64"))],
        lambda x, dtype: x.astype(dtype),
        call=lambda x, dtype: x.type(dtype),
        dtypes=EVERY,
        result=float64,
        orders=0,
    ),
    Case(
        "allclose",
        lambda d: [sample(np.ones(3, d.dtype), np.ones(3, d.dtype)), sample(d(3), d(3) + 1)],
        np.allclose,
        result=None,
        orders=0,
    ),
    Case(
        "equal",
        lambda d: [sample(np.ones(3, d.dtype), np.ones(3, d.dtype)), sample(d(3), d(4))],
        np.array_equal,
        result=None,
        orders=0,
        dtypes=NUMBERS,
    ),
    Case(
        "isclose",
        lambda d: [
            sample(np.ones(3, d.dtype), np.array([1, 1.1, 1 + 1e-9], d.dtype)),
            sample(np.array([np.inf, -np.inf, 1], d.dtype), np.array([np.inf, 1, np.inf], d.dtype)),
            sample(np.array([np.nan, 1], d.dtype), np.array([np.nan, 1], d.dtype), equal_nan=True),
        ],
        np.isclose,
        result=boolean,
        orders=0,
    ),
    Case(
        "type_as",
        lambda d: [sample(d(2, 3), np.ones(1, "float64"))],
        lambda x, _: x.astype("float64"),
        call=lambda x, y: x.type_as(y),
        dtypes=ANY,
        result=float64,
        orders=0,
    ),
    Case(
        "bool-minus",
        lambda d: [],
        np.subtract,
        call=operator.sub,
        dtypes=(),
        errors=(
            wrong(
                np.ones(2, bool),
                np.ones(2, bool),
                raises=RuntimeError,
                words="Subtraction, the `-` operator, with",
            ),
        ),
    ),
    Case(
        "neg-bool",
        lambda d: [],
        np.negative,
        call=operator.neg,
        dtypes=(),
        errors=(wrong(np.ones(2, bool), raises=RuntimeError, words="bool"),),
    ),
    Case(
        "int-pow-negative",
        lambda d: [],
        np.power,
        call=operator.pow,
        dtypes=(),
        errors=(
            wrong(
                np.ones(2, "int64"),
                -1,
                raises=(RuntimeError, ValueError),
                words="negative integer powers",
            ),
        ),
    ),
    Case(
        "add-int-in-place",
        lambda d: [],
        np.add,
        call=lambda x, y: x.add_(y),
        dtypes=(),
        errors=(wrong(np.ones(2, "int64"), 1.5, raises=RuntimeError, words="can't be cast"),),
    ),
]

CASES = [*FUNCTIONS, *LOGIC_IN_PLACE, *PAIRS, *FORMS, *ACTIVATIONS, *OPERATORS, *CONVERSIONS]
