"""Rows of convolution, pooling and normalisation by channels."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from op_table import Case, Draw, Fixed, Sample, index, same, sample, wrong

_functional = "nn.functional."


def _per(value: Any, rank: int) -> tuple[int, ...]:
    return (value,) * rank if isinstance(value, int) else tuple(value)


def _padded(x: Any, before: Any, after: Any) -> Any:
    return np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)])


def convolve(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Sums over taps of shifted, strided inputs."""
    rank = weight.ndim - 2
    if x.ndim == rank + 1:
        return convolve(x[None], weight, bias, stride, padding, dilation, groups)[0]
    stride, dilation = _per(stride, rank), _per(dilation, rank)
    spans = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    if padding == "same":
        before, after = [s // 2 for s in spans], [s - s // 2 for s in spans]
    else:
        before = after = _per(0 if padding == "valid" else padding, rank)
    x = _padded(x, before, after)
    small = [(n - s - 1) // t + 1 for n, s, t in zip(x.shape[2:], spans, stride, strict=True)]
    width, depth = weight.shape[1], weight.shape[0] // groups
    out = np.zeros((x.shape[0], weight.shape[0], *small), x.dtype)
    for tap in itertools.product(*map(range, weight.shape[2:])):
        where = tuple(
            slice(k * d, k * d + (n - 1) * t + 1, t)
            for k, d, n, t in zip(tap, dilation, small, stride, strict=True)
        )
        seen = x[(slice(None), slice(None), *where)]
        for g in range(groups):
            mine = weight[(slice(g * depth, (g + 1) * depth), slice(None), *tap)]
            part = np.einsum("nc...,oc->no...", seen[:, g * width : (g + 1) * width], mine)
            out[:, g * depth : (g + 1) * depth] += part
    return out if bias is None else out + bias.reshape(-1, *(1,) * rank)


def convolve_back(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """Each number of x spreads the weight at its place: a convolution of x with zeros between."""
    rank = weight.ndim - 2
    stride, padding, dilation = _per(stride, rank), _per(padding, rank), _per(dilation, rank)
    more = _per(output_padding, rank)
    spread = np.zeros(
        (*x.shape[:2], *[(n - 1) * s + 1 for n, s in zip(x.shape[2:], stride, strict=True)])
    )
    spread[(slice(None), slice(None), *[slice(None, None, s) for s in stride])] = x
    spans = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    spread = _padded(spread, spans, [s + m for s, m in zip(spans, more, strict=True)])
    turned = np.flip(weight, tuple(range(2, rank + 2)))
    size = weight.shape[0] // groups
    split = [turned[g * size : (g + 1) * size].swapaxes(0, 1) for g in range(groups)]
    whole = convolve(spread, np.concatenate(split), bias, 1, 0, dilation, groups)
    keep = tuple(slice(p, n - p) for p, n in zip(padding, whole.shape[2:], strict=True))
    return whole[(slice(None), slice(None), *keep)]


def _starts(size: int, span: int, stride: int, padding: int, ceil_mode: bool) -> list[int]:
    room = size + 2 * padding - span
    starts = [i * stride - padding for i in range(room // stride + 1)]
    if ceil_mode and room % stride and starts[-1] + stride < size:
        starts.append(starts[-1] + stride)
    return starts


def _pools(x: Any, windows: Any, reduce: Any) -> Any:
    """``reduce(plane, one window of each axis)`` for all planes and windows."""
    shape = [len(w) for w in windows]
    planes = x.reshape(-1, *x.shape[x.ndim - len(shape) :])
    found = [[reduce(p, w) for w in itertools.product(*windows)] for p in planes]
    lead = x.shape[: x.ndim - len(shape)]
    if not found:
        return np.zeros((*lead, *shape)), np.zeros((*lead, *shape), "int64")
    values = np.array([[v for v, _ in plane] for plane in found]).reshape(*lead, *shape)
    places = np.array([[i for _, i in plane] for plane in found]).reshape(*lead, *shape)
    return values, places


def _largest(plane: Any, window: Any) -> tuple:
    best = max(itertools.product(*window), key=lambda at: plane[at])
    return plane[best], np.ravel_multi_index(best, plane.shape)


def max_pool(rank: int) -> Any:
    """The oracle of max_pool1d to max_pool3d."""

    def oracle(
        x: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        kernel = _per(kernel_size, rank)
        strides = _per(kernel if stride is None else stride, rank)
        paddings, dilations = _per(padding, rank), _per(dilation, rank)
        windows = []
        for n, k, s, p, d in zip(
            x.shape[-rank:], kernel, strides, paddings, dilations, strict=True
        ):
            starts = _starts(n, d * (k - 1) + 1, s, p, ceil_mode)
            windows.append([[a + d * i for i in range(k) if 0 <= a + d * i < n] for a in starts])
        found = _pools(x, windows, _largest)
        return found if return_indices else found[0]

    return oracle


def avg_pool(rank: int) -> Any:
    """The oracle of avg_pool1d to avg_pool3d."""

    def oracle(
        x: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: Any = None,
    ) -> Any:
        kernel = _per(kernel_size, rank)
        strides = _per(kernel if stride is None else stride, rank)
        windows = []
        for n, k, s, p in zip(x.shape[-rank:], kernel, strides, _per(padding, rank), strict=True):
            starts = _starts(n, k, s, p, ceil_mode)
            windows.append(
                [(range(max(a, 0), min(a + k, n)), min(a + k, n + p) - a) for a in starts]
            )

        def mean(plane: Any, window: Any) -> tuple:
            taken = plane[np.ix_(*[inside for inside, _ in window])]
            count = math.prod([full for _, full in window]) if count_include_pad else taken.size
            return taken.sum() / (divisor_override or count), 0

        return _pools(x, windows, mean)[0]

    return oracle


def adaptive(rank: int, largest: bool) -> Any:
    """The oracle of the adaptive pools."""

    def oracle(x: Any, output_size: Any, return_indices: bool = False) -> Any:
        wanted = (output_size,) * rank if output_size is None else _per(output_size, rank)
        windows = []
        for n, w in zip(x.shape[-rank:], wanted, strict=True):
            w = n if w is None else w
            windows.append([range(i * n // w, math.ceil((i + 1) * n / w)) for i in range(w)])
        mean = lambda plane, window: (plane[np.ix_(*window)].mean(), 0)  # noqa: E731
        found = _pools(x, windows, _largest if largest else mean)
        return found if return_indices else found[0]

    return oracle


def _channel(v: Any, x: Any) -> Any:
    return v if v is None else v.reshape(-1, *(1,) * (x.ndim - 2))


def _normal(x: Any, dims: Any, weight: Any, bias: Any, eps: float) -> Any:
    unit = (x - x.mean(dims, keepdims=True)) / np.sqrt(x.var(dims, keepdims=True) + eps)
    unit = unit if weight is None else unit * _channel(weight, x)
    return unit if bias is None else unit + _channel(bias, x)


def batch_norm(
    x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """By the batch's statistics, or given ones."""
    if training:
        return _normal(x, (0, *range(2, x.ndim)), weight, bias, eps)
    out = (x - _channel(mean, x)) / np.sqrt(_channel(var, x) + eps)
    out = out if weight is None else out * _channel(weight, x)
    return out if bias is None else out + _channel(bias, x)


def instance_norm(
    x: Any, mean: Any = None, var: Any = None, weight: Any = None, bias: Any = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """Each channel of each sample."""
    return _normal(x, tuple(range(2, x.ndim)), weight, bias, eps)


def group_norm(x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Each group of channels of each sample."""
    parts = x.reshape(x.shape[0], groups, -1)
    unit = _normal(parts, (2,), None, None, eps).reshape(x.shape)
    unit = unit if weight is None else unit * _channel(weight, x)
    return unit if bias is None else unit + _channel(bias, x)


def _row(name: str, samples: Any, oracle: Any, *errors: Any, **options: Any) -> Case:
    options = {"rtol64": 1e-10, "rtol32": 2e-4, "method": "-"} | options
    function = _functional + name.split("-")[0]
    return Case(name, samples, oracle, function=function, errors=errors, **options)


def _conv2d(d: Draw) -> list[Sample]:
    return [
        sample(d(2, 3, 4, 5), d(2, 3, 3, 2), d(2)),
        sample(d(1, 4, 5, 4), d(4, 2, 3, 2), d(4), (2, 1), (1, 2), (1, 2), 2),
        sample(d(3, 4, 5), d(2, 3, 2, 2), padding="same"),
        sample(d(2, 3, 4, 4), d(2, 3, 1, 1), d(2)),
        sample(d(2, 2, 5, 5), d(2, 1, 3, 3), stride=3, padding="valid", groups=2),
        sample(d(1, 1, 4, 4), d(1, 1, 1, 1), stride=2, padding=1),
        sample(d(0, 3, 4, 5), d(2, 3, 3, 2), d(2), kind="empty"),
    ]


_x, _w = np.ones((1, 2, 4, 4), "float32"), np.ones((4, 2, 3, 3), "float32")


def _refused(*args: Any, words: str, **kwargs: Any) -> Any:
    return wrong(*args, raises=RuntimeError, words=words, **kwargs)


_CONV_ERRORS = (
    _refused(_x[0, 0], _w, words="Expected 3D .unbatched. or 4D .batched. input"),
    _refused(np.ones((1, 3, 4, 4), "float32"), _w, words="to have 2 channels, but got 3 channels"),
    _refused(_x[:, :, :2], _w, words="Kernel size can't be greater than actual input size"),
    _refused(_x, _w, np.ones(3, "float32"), words="expected bias to be 1-dimensional with 4"),
    _refused(_x, _w, stride=0, words="non-positive stride is not supported"),
    _refused(_x, _w, dilation=0, words="dilation"),
    _refused(_x, _w, padding=-1, words="negative padding is not supported"),
    _refused(_x, _w, stride=(1, 1, 1), words="stride"),
    _refused(_x, _w[:, :1], groups=3, words="divisible by 3"),
    _refused(_x, _w, groups=0, words="non-positive groups"),
    _refused(_x, _w, stride=2, padding="same", words="not supported for strided convolutions"),
    _refused(_x, _w, padding="sane", words="Invalid padding string"),
    _refused(_x, _w.astype("float64"), words="type"),
)

_pool_x = np.ones((1, 1, 4, 4), "float32")
_POOL_ERRORS = (
    _refused(_pool_x, 5, words="Output size is too small"),
    _refused(_pool_x, 2, padding=2, words="at most half"),
    _refused(_pool_x, 0, words="kernel|should not be zero"),
    _refused(_pool_x, 2, stride=0, words="stride"),
    _refused(_pool_x[:, :, :0], 2, words="non-zero|optional 0 dim batch size"),
)

CASES = [
    _row("conv2d", _conv2d, convolve, *_CONV_ERRORS),
    _row(
        "conv1d",
        lambda d: [
            sample(d(2, 3, 5), d(2, 3, 2), d(2), padding=1),
            sample(d(2, 6), d(4, 1, 3), None, 2, 1, 2, 2),
        ],
        convolve,
        _refused(_x, _w[..., 0], words="Expected 2D .unbatched. or 3D .batched. input"),
    ),
    _row(
        "conv3d",
        lambda d: [
            sample(d(1, 2, 3, 4, 3), d(2, 2, 2, 3, 2), d(2), (1, 2, 1), 1),
            sample(d(2, 2, 2, 2, 2), d(1, 2, 1, 1, 1)),
        ],
        convolve,
    ),
    _row(
        "conv_transpose2d",
        lambda d: [
            sample(d(2, 3, 3, 2), d(3, 2, 2, 3), d(2)),
            sample(d(1, 4, 2, 3), d(4, 1, 3, 2), d(2), 2, 1, (1, 0), 2, (1, 2)),
            sample(d(2, 2, 3, 3), d(2, 3, 1, 1)),
            sample(d(0, 3, 3, 2), d(3, 2, 2, 3), d(2), kind="empty"),
        ],
        convolve_back,
        _refused(_x, _w, words="to have 4 channels, but got 2 channels"),
        _refused(_x, _w[:2], output_padding=1, words="smaller than either stride or dilation"),
        _refused(_x[..., :1, :1], _w[:2], padding=2, words="too small"),
        _refused(_x, _w[:2], np.ones(3, "float32"), words="expected bias to be 1-dimensional"),
    ),
    _row(
        "conv_transpose1d",
        lambda d: [sample(d(2, 2, 3), d(2, 2, 3), d(2), stride=2, padding=1, output_padding=1)],
        convolve_back,
    ),
    _row(
        "conv_transpose3d",
        lambda d: [sample(d(1, 2, 2, 2, 2), d(2, 1, 2, 1, 2), d(1), stride=(1, 2, 1))],
        convolve_back,
    ),
    _row(
        "max_pool2d",
        lambda d: [
            sample(d.distinct(2, 2, 4, 6), 2),
            sample(d.distinct(2, 5, 5), (3, 2), (2, 1), 1, (1, 2)),
            sample(d.distinct(1, 1, 5, 6), 2, ceil_mode=True),
            sample(d.distinct(1, 2, 6, 6), 3, 4, padding=1, ceil_mode=True),
            sample(d(0, 2, 4, 4), 2, kind="empty"),
        ],
        max_pool(2),
        *_POOL_ERRORS,
        _refused(_pool_x[0, 0], 2, words="Expected 3D or 4D|3D or 4D"),
    ),
    _row(
        "max_pool2d-indices",
        lambda d: [sample(d.distinct(2, 2, 4, 6), 2, padding=1, return_indices=True)],
        max_pool(2),
        result=(same, index),
    ),
    _row("max_pool1d", lambda d: [sample(d.distinct(2, 2, 7), 3, 2, 1)], max_pool(1)),
    _row("max_pool3d", lambda d: [sample(d.distinct(1, 2, 3, 4, 4), 2, 1)], max_pool(3)),
    _row(
        "avg_pool2d",
        lambda d: [
            sample(d(2, 2, 4, 6), 2),
            sample(d(2, 5, 5), (3, 2), (2, 1), 1),
            sample(d(1, 1, 5, 6), 2, 2, 1, True, False),
            sample(d(1, 1, 6, 6), 3, 4, 1, True, True),
            sample(d(1, 1, 4, 4), 3, 1, divisor_override=2),
            sample(d(0, 2, 4, 4), 2, kind="empty"),
        ],
        avg_pool(2),
        *_POOL_ERRORS,
        wrong(_pool_x[0, 0], 2, raises=(RuntimeError, IndexError), words="3D or 4D|Dimension"),
        _refused(_pool_x, 2, divisor_override=0, words="divisor must be not zero"),
    ),
    _row("avg_pool1d", lambda d: [sample(d(2, 2, 7), 3, 2, 1)], avg_pool(1)),
    _row("avg_pool3d", lambda d: [sample(d(1, 2, 3, 4, 4), 2, 1)], avg_pool(3)),
    _row(
        "adaptive_avg_pool2d",
        lambda d: [sample(d(2, 2, 5, 4), (3, 2)), sample(d(2, 4, 3), (None, 2))],
        adaptive(2, False),
        _refused(_pool_x[0, 0], 2, words="Expected 3D or 4D"),
        _refused(_pool_x, (1, 2, 3), words="output_size"),
    ),
    _row("adaptive_avg_pool1d", lambda d: [sample(d(2, 2, 5), 3)], adaptive(1, False)),
    _row(
        "adaptive_max_pool2d",
        lambda d: [sample(d.distinct(2, 2, 5, 4), (3, 2), return_indices=True)],
        adaptive(2, True),
        result=(same, index),
    ),
    _row("adaptive_max_pool1d", lambda d: [sample(d.distinct(2, 2, 5), 3)], adaptive(1, True)),
    _row(
        "batch_norm",
        lambda d: [
            sample(d(4, 3), None, None, d(3), d(3), True),
            sample(d(2, 3, 2, 2), None, None, training=True, eps=0.1),
            sample(d(2, 3, 4), None, None, d(3), None, True),
        ],
        batch_norm,
        wrong(_x[:, :, 0, 0], None, None, training=True, raises=ValueError, words="Expected more"),
        _refused(_x, None, None, np.ones(3, "float32"), training=True, words="2 elements|weight"),
        _refused(_x, None, None, words="running_mean"),
    ),
    _row(
        "batch_norm-given",
        lambda d: [
            sample(d(4, 3, 2), Fixed(d(3)), Fixed(d(3) ** 2 + 1), d(3), d(3)),
            sample(d(2, 3), Fixed(d(3)), Fixed(d(3) ** 2 + 1)),
            sample(d(2, 3, 3, 3), Fixed(d(3)), Fixed(d(3) ** 2 + 1), d(3), d(3)),
        ],
        batch_norm,
    ),
    _row(
        "instance_norm",
        lambda d: [
            sample(d(2, 3, 4), weight=d(3), bias=d(3)),
            sample(d(2, 2, 3, 2), eps=0.1),
        ],
        instance_norm,
        wrong(_x[..., :1, :1], raises=ValueError, words="more than 1"),
    ),
    _row(
        "group_norm",
        lambda d: [
            sample(d(2, 4, 3), 2, d(4), d(4)),
            sample(d(3, 6), 3, eps=0.1),
            sample(d(2, 4, 9), 2, d(4), d(4)),
        ],
        group_norm,
        _refused(_x, 3, words="divisible by num_groups"),
    ),
]
