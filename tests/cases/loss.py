"""Rows of the losses."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special
from op_table import NO_METHOD, Case, Draw, Fixed, Sample, sample, wrong

_functional = "nn.functional."
_logits = np.ones((2, 3), "float32")


def reduced(each: Callable[..., Any]) -> Any:
    """An elementwise loss with the three reductions."""

    def oracle(x: Any, y: Any, *args: Any, reduction: str = "mean", **kwargs: Any) -> Any:
        values = each(x, y, *args, **kwargs)
        return {"mean": np.mean, "sum": np.sum, "none": np.asarray}[reduction](values)

    return oracle


def nll(
    logs: Any,
    target: Any,
    weight: Any = None,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> Any:
    """Negative log likelihood of classes; class axis 1, or 0 for a single sample."""
    if logs.ndim == 1:
        logs, target = logs[None], target[None]
        single = True
    else:
        single = False
    kept = target != ignore_index
    at = np.where(kept, target, 0)
    weight = np.ones(logs.shape[1]) if weight is None else weight
    w = weight[at] * kept
    values = -np.take_along_axis(logs, np.expand_dims(at, 1), 1).squeeze(1) * w
    if reduction == "none":
        return values[0] if single else values
    return values.sum() / w.sum() if reduction == "mean" else values.sum()


def cross_entropy(
    x: Any,
    target: Any,
    weight: Any = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    """nll of log_softmax; smoothing mixes in the mean over classes."""
    axis = 1 if x.ndim > 1 else 0
    logs = scipy.special.log_softmax(x, axis=axis)
    if target.dtype.kind == "f":
        values = -(logs * target).sum(axis)
        return values.mean() if reduction == "mean" else values.sum()
    hard = nll(logs, target, weight, reduction, ignore_index)
    if not label_smoothing:
        return hard
    smooth = -logs.mean(axis)
    smooth = {"mean": np.mean, "sum": np.sum, "none": np.asarray}[reduction](smooth)
    return (1 - label_smoothing) * hard + label_smoothing * smooth


def bce_with_logits(x: Any, y: Any, weight: Any = 1.0, pos_weight: Any = 1.0) -> Any:
    """Cross entropy of a sigmoid."""
    log_p, log_q = -np.log1p(np.exp(-x)), -np.log1p(np.exp(x))
    return -weight * (pos_weight * y * log_p + (1 - y) * log_q)


def _pairs(draw: Draw) -> list[Sample]:
    return [
        sample(draw(2, 3), draw(2, 3)),
        sample(draw(2, 3), draw(2, 3), reduction="sum"),
        sample(draw(2, 3), draw(2, 3), reduction="none"),
        sample(draw(), draw(), kind="scalar"),
        sample(draw(0, 3), draw(0, 3), reduction="sum", kind="empty"),
        sample(draw(0, 3), draw(0, 3), kind="empty"),
    ]


def _classes(draw: Draw) -> list[Sample]:
    two = np.array([2, 0])
    return [
        sample(draw(2, 3), two),
        sample(draw(2, 3), two, reduction="sum"),
        sample(draw(2, 3), two, reduction="none"),
        sample(draw(2, 3), np.array([-100, 1])),
        sample(draw(2, 3), two, ignore_index=0),
        sample(draw(2, 3, 2), np.array([[2, 0], [1, 1]])),
        sample(draw(3), np.array(1)),
        sample(draw(0, 3), np.zeros(0, "int64"), reduction="sum", kind="empty"),
    ]


def _weighted_classes(draw: Draw) -> list[Sample]:
    weights = Fixed(np.array([0.5, 1.0, 2.0], draw.dtype))
    return [
        sample(draw(2, 3), np.array([2, 0]), weights),
        sample(draw(2, 3), np.array([2, 0]), weights, reduction="sum"),
        sample(draw(2, 3), np.array([1, -100]), weights),
    ]


def _pair(name: str, oracle: Any, **options: Any) -> Case:
    errors = (
        wrong(_logits, _logits, raises=ValueError, words="reduction|valid", reduction="middle"),
    )
    options.setdefault("errors", errors)
    options.setdefault("samples", _pairs)
    return Case(
        name,
        oracle=reduced(oracle),
        function=_functional + name,
        method=NO_METHOD,
        **options,
    )


_class_errors = (
    wrong(_logits, np.array([0, 3]), raises=(IndexError, RuntimeError), words="out of bounds"),
    wrong(_logits, np.array([0, 1, 1]), raises=(ValueError, RuntimeError), words="batch_size"),
    wrong(_logits, np.array([0, 1], "float32"), raises=RuntimeError, words="."),
)


def _unit(draw: Draw) -> list[Sample]:
    target = Draw(draw.dtype, (0.1, 0.9))
    return [
        sample(draw(2, 3), target(2, 3)),
        sample(draw(2, 3), target(2, 3), reduction="sum"),
        sample(draw(2, 3), target(2, 3), reduction="none"),
        sample(draw(), target(), kind="scalar"),
        sample(draw(0, 3), target(0, 3), reduction="sum", kind="empty"),
    ]


def linear_cross_entropy(
    x: Any, w: Any, target: Any, linear_bias: Any = None, ignore_index: int = -100, **options: Any
) -> Any:
    """Cross entropy of a linear layer's outputs."""
    logits = np.tensordot(x, w, (-1, -1)) + (0 if linear_bias is None else linear_bias)
    return cross_entropy(logits, target, ignore_index=ignore_index, **options)


CASES = [
    _pair("mse_loss", lambda x, y: (x - y) ** 2),
    _pair("l1_loss", lambda x, y: np.abs(x - y)),
    _pair(
        "smooth_l1_loss",
        lambda x, y, beta=1.0: np.where(
            np.abs(x - y) < beta, 0.5 * (x - y) ** 2 / beta, np.abs(x - y) - 0.5 * beta
        ),
    ),
    _pair(
        "huber_loss",
        lambda x, y, delta=1.0: np.where(
            np.abs(x - y) < delta, 0.5 * (x - y) ** 2, delta * (np.abs(x - y) - 0.5 * delta)
        ),
    ),
    _pair(
        "binary_cross_entropy",
        lambda x, y: -(y * np.log(x) + (1 - y) * np.log(1 - x)),
        samples=_unit,
        domain=(0.1, 0.9),
    ),
    _pair("binary_cross_entropy_with_logits", bce_with_logits, samples=_unit),
    Case(
        "binary_cross_entropy_with_logits-weights",
        lambda d: [
            sample(
                d(2, 3),
                Fixed(np.array([[0, 1, 1], [1, 0, 0]], d.dtype)),
                pos_weight=Fixed(np.array([1, 2, 3], d.dtype)),
            ),
            sample(
                d(2, 3),
                Fixed(np.array([[0, 1, 1], [1, 0, 0]], d.dtype)),
                Fixed(np.array([1, 2, 3], d.dtype)),
            ),
        ],
        reduced(bce_with_logits),
        function=_functional + "binary_cross_entropy_with_logits",
        method=NO_METHOD,
    ),
    _pair(
        "kl_div",
        lambda x, y: y * (np.log(y) - x),
        samples=lambda d: [s for s in _unit(d) if "reduction" in s.kwargs],
    ),
    Case(
        "nll_loss",
        _classes,
        nll,
        function=_functional + "nll_loss",
        method=NO_METHOD,
        errors=_class_errors,
    ),
    Case(
        "nll_loss-weight",
        _weighted_classes,
        nll,
        function=_functional + "nll_loss",
        method=NO_METHOD,
    ),
    Case(
        "cross_entropy",
        lambda d: [
            *_classes(d),
            sample(d(2, 3), np.array([2, 0]), label_smoothing=0.2),
        ],
        cross_entropy,
        function=_functional + "cross_entropy",
        method=NO_METHOD,
        errors=_class_errors,
    ),
    Case(
        "linear_cross_entropy",
        lambda d: [
            sample(d(2, 4), d(3, 4), np.array([2, 0])),
            sample(d(2, 4), d(3, 4), np.array([2, 0]), linear_bias=d(3), reduction="sum"),
            sample(d(2, 4), d(3, 4), np.array([2, 0]), reduction="none", label_smoothing=0.2),
            sample(d(2, 4), d(3, 4), np.array([-100, 1])),
            sample(d(2, 4), d(3, 4), np.array([2, 0]), ignore_index=0),
            sample(d(2, 4), d(3, 2, 4), np.array([[2, 0], [1, 1]]), linear_bias=d(3, 2)),
            sample(d(4), d(3, 4), np.array(1)),
            sample(d(0, 4), d(3, 4), np.zeros(0, "int64"), reduction="sum", kind="empty"),
        ],
        linear_cross_entropy,
        function=_functional + "linear_cross_entropy",
        method=NO_METHOD,
        errors=(
            wrong(
                _logits,
                np.ones((4, 2), "float32"),
                np.array([0, 3]),
                raises=RuntimeError,
                words=".",
            ),
            wrong(_logits, _logits[0], np.array([0, 3]), raises=RuntimeError, words="."),
            wrong(_logits, _logits, np.array([0, 2]), raises=IndexError, words="out of bounds"),
            wrong(_logits, _logits, np.array([0, 1, 1]), raises=ValueError, words="batch_size"),
        ),
    ),
    Case(
        "cross_entropy-weight",
        _weighted_classes,
        cross_entropy,
        function=_functional + "cross_entropy",
        method=NO_METHOD,
    ),
    Case(
        "cross_entropy-probabilities",
        lambda d: [sample(d(2, 3), np.array([[0.2, 0.3, 0.5], [1, 0, 0]], d.dtype))],
        cross_entropy,
        function=_functional + "cross_entropy",
        method=NO_METHOD,
    ),
]


def _signed(draw: Draw) -> list[Sample]:
    y = Fixed(np.array([[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]], draw.dtype))
    return [
        sample(draw(2, 3), y),
        sample(draw(2, 3), y, reduction="sum"),
        sample(draw(2, 3), y, reduction="none"),
        sample(draw(0, 3), Fixed(np.ones((0, 3), draw.dtype)), reduction="sum", kind="empty"),
    ]


def _counts(draw: Draw) -> list[Sample]:
    y = Fixed(np.array([[0.0, 3.0, 1.0], [2.0, 5.0, 0.0]], draw.dtype))
    return [
        sample(draw(2, 3), y),
        sample(draw(2, 3), y, full=True, reduction="none"),
        sample(draw(2, 3), y, log_input=False, reduction="sum"),
    ]


def poisson(x: Any, y: Any, log_input: bool = True, full: bool = False) -> Any:
    """Negative log-likelihood of counts."""
    loss = np.exp(x) - y * x if log_input else x - y * np.log(x + 1e-8)
    if full:
        large = np.where(y > 1, y, 2)
        stirling = large * np.log(large) - large + 0.5 * np.log(2 * np.pi * large)
        loss = loss + np.where(y > 1, stirling, 0)
    return loss


def gaussian(x: Any, y: Any, var: Any, full: bool = False) -> Any:
    """Negative log-likelihood of normal numbers."""
    var = np.reshape(var, (2, -1)) if np.ndim(var) == 1 else var
    loss = 0.5 * (np.log(var) + (x - y) ** 2 / var)
    return loss + 0.5 * np.log(2 * np.pi) if full else loss


def multi_margin(x: Any, y: Any, p: int = 1, margin: float = 1.0, weight: Any = None) -> Any:
    """Hinges of the other classes."""
    rows = np.arange(len(y))
    gap = np.maximum(0, margin - x[rows, y][:, None] + x) ** p
    gap = gap if weight is None else gap * weight[y][:, None]
    gap[rows, y] = 0
    return gap.sum(1) / x.shape[1]


def multilabel_margin(x: Any, y: Any) -> Any:
    """Hinges of each true class and each other one."""
    found = []
    for row, labels in zip(x, y, strict=True):
        true = labels[: list(labels).index(-1)] if -1 in labels else labels
        others = np.setdiff1d(np.arange(row.size), true)
        found.append(np.maximum(0, 1 - row[true][:, None] + row[others]).sum() / row.size)
    return np.array(found, x.dtype)


def multilabel(x: Any, y: Any, weight: Any = 1.0) -> Any:
    """Cross entropy of sigmoids, the mean over classes."""
    return (-weight * (-y * np.log1p(np.exp(-x)) - (1 - y) * np.log1p(np.exp(x)))).mean(-1)


MARGINS = [
    _pair(
        "margin_ranking_loss",
        lambda a, b, y, margin=0.0: np.maximum(0, -y * (a - b) + margin),
        samples=lambda d: [
            sample(d(4), d(4), Fixed(np.array([1.0, -1.0, 1.0, -1.0], d.dtype))),
            sample(
                *(d(2, 3), d(2, 3), Fixed(np.array([[1.0], [-1.0]], d.dtype))),
                margin=0.5, reduction="none",
            ),
        ],
        errors=(
            wrong(
                *(np.ones((2, 3), "float32"), np.ones((2, 3), "float32"), np.ones(3, "float32")),
                raises=RuntimeError, words="same (number of )?dimension",
            ),
        ),
    ),
    _pair(
        "hinge_embedding_loss",
        lambda x, y, margin=1.0: np.where(y == 1, x, np.maximum(0, margin - x)),
        samples=_signed,
    ),
    _pair("soft_margin_loss", lambda x, y: np.log1p(np.exp(-y * x)), samples=_signed),
    _pair("poisson_nll_loss", poisson, samples=_counts, domain=(0.2, 2.0)),
    _pair(
        "gaussian_nll_loss",
        gaussian,
        samples=lambda d: [
            sample(d(2, 3), d(2, 3), d(2, 3)),
            sample(d(2, 3), d(2, 3), d(2, 1), full=True, reduction="sum"),
            sample(d(2, 3), d(2, 3), d(2), reduction="none"),
        ],
        domain=(0.3, 2.0),
        errors=(
            wrong(_logits, _logits, np.ones(5, "float32"), raises=ValueError, words="incorrect"),
            wrong(_logits, _logits, -_logits - 1, raises=ValueError, words="negative entr"),
        ),
    ),
    _pair(
        "multi_margin_loss",
        multi_margin,
        samples=lambda d: [
            sample(d(2, 3), np.array([2, 0])),
            sample(d(2, 3), np.array([1, 1]), p=2, margin=0.7, reduction="sum"),
            sample(
                *(d(2, 3), np.array([2, 0])),
                weight=Fixed(np.array([0.5, 1.0, 2.0], d.dtype)), reduction="none",
            ),
        ],
        errors=(
            wrong(_logits, np.array([0, 1]), p=3, raises=ValueError, words="p == 1 and p == 2"),
            wrong(
                *(_logits, np.array([0, 3])), raises=(IndexError, RuntimeError),
                words="multi_margin_loss: .*out of",
            ),
        ),
    ),
    _pair(
        "multilabel_margin_loss",
        multilabel_margin,
        samples=lambda d: [
            sample(d(2, 3), np.array([[2, 0, -1], [1, -1, 0]])),
            sample(d(2, 3), np.array([[-1, 0, 1], [0, 1, 2]]), reduction="none"),
        ],
        errors=(
            wrong(_logits, np.full((2, 3), 3), raises=(IndexError, RuntimeError), words="."),
            wrong(_logits, np.array([0, 1]), raises=RuntimeError, words="inconsistent target size"),
            wrong(_logits, _logits, raises=RuntimeError, words="expected scalar type Long"),
        ),
    ),
    _pair(
        "multilabel_soft_margin_loss",
        multilabel,
        samples=lambda d: [
            sample(d(2, 3), Fixed(np.array([[1.0, 0, 1], [0, 0, 1]], d.dtype))),
            sample(
                *(d(2, 3), Fixed(np.array([[1.0, 0, 1], [0, 1, 1]], d.dtype))),
                weight=Fixed(np.array([0.5, 1.0, 2.0], d.dtype)), reduction="sum",
            ),
        ],
    ),
]  # fmt: skip
CASES += MARGINS


def ctc(
    logs: Any,
    targets: Any,
    steps: Any,
    sizes: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:
    """Every path through the classes, those that spell the target added up."""
    single = logs.ndim == 2
    logs = logs[:, None] if single else logs
    steps, sizes = np.reshape(steps, -1), np.reshape(sizes, -1)
    starts = np.cumsum(sizes) - sizes
    losses = []
    for b in range(logs.shape[1]):
        of_sample = targets[b] if targets.ndim == 2 else targets[starts[b] :]
        chances = np.exp(logs[: steps[b], b])
        found = 0.0
        for path in itertools.product(range(logs.shape[2]), repeat=int(steps[b])):
            spelt = [c for c, _ in itertools.groupby(path) if c != blank]
            if spelt == of_sample[: sizes[b]].tolist():
                found += np.prod([row[c] for row, c in zip(chances, path, strict=True)])
        losses.append(0.0 if zero_infinity and found == 0 else -np.log(found))
    values = np.array(losses)
    if reduction == "mean":
        return (values / np.maximum(sizes, 1)).mean()
    if reduction == "sum":
        return values.sum()
    return values[0] if single else values


def _ctc_samples(d: Draw) -> list[Sample]:
    padded, five = np.array([[1, 2], [2, 2], [1, 0]]), np.array([1, 2, 2, 2, 1])
    return [
        sample(d(4, 3, 3), padded, (4, 3, 2), (2, 2, 1)),
        sample(d(4, 3, 3), five, np.array([4, 3, 4]), np.array([2, 2, 1]), reduction="none"),
        sample(d(3, 2, 4), padded[:2] - 1, (3, 3), (1, 2), 3, reduction="sum"),
        sample(d(4, 3), np.array([1, 1, 2], "int32"), (4,), (3,), reduction="none"),
        sample(d(3, 3, 3), padded, (2, 2, 0), (2, 2, 0), reduction="none", zero_infinity=True),
        sample(d(2, 2, 3), np.zeros((2, 0), "int64"), (2, 1), (0, 0)),
    ]


_steps, _pair_of = np.full((3, 2, 3), -1, "float32"), np.array([[1, 2], [2, 1]])

CASES.append(
    Case(
        "ctc_loss",
        _ctc_samples,
        ctc,
        function=_functional + "ctc_loss",
        method=NO_METHOD,
        orders=1,
        domain=(-2.0, 0.0),
        rtol32=2e-5,
        errors=(
            wrong(
                *(_steps, _pair_of, (3, 4), (2, 2)),
                raises=RuntimeError, words="input_lengths to have value",
            ),
            wrong(*(_steps, _pair_of, (3, 3), (2, 3)), raises=RuntimeError, words="Expected"),
            wrong(*(_steps, _pair_of, (3,), (2, 2)), raises=RuntimeError, words="batch_size"),
            wrong(
                *(_steps, _pair_of, np.ones(2, "float32"), (2, 2)),
                raises=RuntimeError, words="must be integral",
            ),
            wrong(
                *(_steps, _pair_of.reshape(-1), (3, 3), (2, 1)),
                raises=RuntimeError, words="to have size",
            ),
            wrong(
                *(_steps, _pair_of, (3, 3), (2, 2)), blank=3,
                raises=RuntimeError, words="in label range",
            ),
            wrong(
                *(_steps[:, 0, 0], _pair_of, (3,), (2,)), raises=RuntimeError, words="3-dimension",
            ),
            wrong(
                *(_steps, _pair_of, (3, 3), (2, 2)), reduction="middle",
                raises=ValueError, words="reduction|valid",
            ),
        ),
    )
)  # fmt: skip
