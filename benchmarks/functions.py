"""A survey: functions of the public API on 10^5 to 10^6 numbers, eager beside torch's eager form.

A hole shows here wherever it is, so the table is wide and says little of each: a function of a
namespace ``F`` that serves both libraries, whose parameters' names say its ``INPUTS``. Each is a
row without gradients and, where it has any, a row with them. One thread, few rounds.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import race
from .case import EAGER_AT_MOST, Row, uniform
from .contenders import Step
from .libraries import EAGER, load_torch

SUITE = "functions"
ROUNDS = 7


class Names:
    """The functions of a library under one roof, those of its layers first."""

    def __init__(self, lib: Any) -> None:
        self._places = lib.nn.functional, lib.linalg, lib.special, lib

    def __getattr__(self, name: str) -> Any:
        return next(getattr(place, name) for place in self._places if hasattr(place, name))


def whole(below: int, *shape: int) -> np.ndarray:
    """int64 numbers below ``below``, the same at every call."""
    return np.random.default_rng(below).integers(0, below, shape)


def definite(*shape: int) -> np.ndarray:
    """Symmetric positive definite matrices, whose eigenvalues are apart."""
    half = uniform(*shape)
    spread = np.diag(np.arange(1, shape[-1] + 1)).astype(np.float32)
    return half @ half.swapaxes(-1, -2) / shape[-1] + spread


INPUTS: dict[str, Callable[[], np.ndarray]] = {
    "x": lambda: uniform(512, 512),
    "y": lambda: uniform(512, 512)[::-1].copy(),
    "positive": lambda: uniform(512, 512) + np.float32(1.5),
    "double": lambda: (uniform(512, 512) + 1.5).astype(np.float64),
    "holes": lambda: np.where(uniform(512, 512) > 0.9, np.float32(np.nan), uniform(512, 512)),
    "mask": lambda: uniform(512, 512) > 0,
    "slab": lambda: uniform(64, 64, 64),
    "vector": lambda: uniform(1 << 18),
    "distinct": lambda: np.random.default_rng(1).permutation(1 << 18).astype(np.float32),
    "edge": lambda: uniform(512),
    "other": lambda: uniform(512)[::-1].copy(),
    "sorted": lambda: np.sort(uniform(1000)),
    "few": lambda: whole(1000, 1 << 18),
    "some": lambda: whole(1000, 100),
    "index": lambda: uniform(512, 512).argsort(1),
    "classes": lambda: whole(512, 512),
    "words": lambda: whole(10_000, 64, 64),
    "table": lambda: uniform(10_000, 64),
    "points": lambda: uniform(256, 32),
    "others": lambda: uniform(256, 32)[::-1].copy(),
    "rows": lambda: uniform(4096, 64),
    "pair": lambda: uniform(4096, 64)[::-1].copy(),
    "short": lambda: uniform(8, 32768),
    "matrix": lambda: uniform(128, 128) + 4 * np.eye(128, dtype=np.float32),
    "small": lambda: definite(32, 8, 8),
    "many": lambda: definite(1024, 8, 8),
    "sides": lambda: uniform(1024, 8, 2),
    "symmetric": lambda: definite(128, 128),
    "batch": lambda: uniform(64, 64, 64),
    "tall": lambda: uniform(512, 32),
    "thin": lambda: uniform(512, 4),
    "image": lambda: uniform(8, 32, 32, 32),
    "large": lambda: uniform(2, 16, 96, 96),
    "signal": lambda: uniform(16, 32, 512),
    "volume": lambda: uniform(4, 8, 16, 16, 16),
    "kernel": lambda: uniform(32, 32, 3, 3),
    "taps": lambda: uniform(32, 32, 3),
    "channels": lambda: uniform(32),
    "grid": lambda: uniform(2, 96, 96, 2),
    "theta": lambda: uniform(16, 2, 3),
    "heads": lambda: uniform(8, 8, 64, 32),
    "ones": lambda: np.where(uniform(4096, 64) > 0, 1, -1),
    "sign": lambda: np.where(uniform(4096) > 0, 1, -1),
    "half": lambda: (uniform(4096, 64) + np.float32(1)) / 2,
}  # fmt: skip
"""Arrays by the names of parameters."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum of expanded": lambda F, x: x.expand(64, 512, 512).sum(0),
    "sum over the middle": lambda F, slab: slab.sum(1),
    "prod": lambda F, positive: (positive / 1.5).prod(),
    "prod of rows": lambda F, positive: positive.prod(1),
    "nansum": lambda F, holes: F.nansum(holes),
    "nanmean": lambda F, holes: F.nanmean(holes, 1),
    "var_mean": lambda F, x: F.var_mean(x, 1),
    "std of columns": lambda F, x: x.std(0),
    "logsumexp": lambda F, x: F.logsumexp(x, 1),
    "norm": lambda F, x: F.norm(x),
    "vector_norm of order 3": lambda F, x: F.vector_norm(x, 3),
    "vector_norm of rows of order 3": lambda F, x: F.vector_norm(x, 3, 1),
    "vector_norm of order inf": lambda F, x: F.vector_norm(x, float("inf")),
    "max of rows": lambda F, x: F.max(x, 1),
    "min of columns": lambda F, x: F.min(x, 0),
    "amax": lambda F, x: F.amax(x, (0, 1)),
    "aminmax": lambda F, x: F.aminmax(x),
    "median": lambda F, x: F.median(x, 1),
    "kthvalue": lambda F, x: F.kthvalue(x, 100, 1),
    "quantile": lambda F, x: F.quantile(x, 0.3, dim=1),
    "cumsum": lambda F, x: F.cumsum(x, 1),
    "cumsum of columns": lambda F, x: F.cumsum(x, 0),
    "cumprod": lambda F, positive: F.cumprod(positive / 1.5, 1),
    "cummax": lambda F, x: F.cummax(x, 1),
    "cummin of columns": lambda F, x: F.cummin(x, 0),
    "logcumsumexp": lambda F, x: F.logcumsumexp(x, 1),
    "diff": lambda F, x: F.diff(x),
    "trapezoid": lambda F, x: F.trapezoid(x),
    "sort": lambda F, x: F.sort(x, 1),
    "sort of a vector": lambda F, distinct: F.sort(distinct),
    "topk": lambda F, x: F.topk(x, 8, 1),
    "lgamma": lambda F, positive: F.lgamma(positive),
    "lgamma of doubles": lambda F, double: F.lgamma(double),
    "digamma": lambda F, positive: F.digamma(positive),
    "erfinv": lambda F, x: F.erfinv(x * 0.9),
    "i0": lambda F, x: F.i0(x),
    "sinc": lambda F, x: F.sinc(x),
    "atan2": lambda F, x, y: F.atan2(x, y),
    "xlogy": lambda F, x, positive: F.xlogy(x, positive),
    "pow": lambda F, positive, x: F.pow(positive, x),
    "fmod": lambda F, x: F.fmod(x, 0.3),
    "where": lambda F, mask, x, y: F.where(mask, x, y),
    "lerp": lambda F, x, y: F.lerp(x, y, 0.3),
    "clamp": lambda F, x: F.clamp(x, -0.5, 0.5),
    "addcmul of rows": lambda F, x, y, edge: F.addcmul(x, y, edge),
    "masked_fill": lambda F, x, mask: x.masked_fill(mask, 0.0),
    "masked_select": lambda F, x, mask: F.masked_select(x, mask),
    "masked_scatter": lambda F, x, mask, y: x.masked_scatter(mask, y),
    "take_along_dim": lambda F, x, index: F.take_along_dim(x, index, 1),
    "scatter": lambda F, x, index, y: F.scatter(x, 1, index, y),
    "index_fill": lambda F, x, some: F.index_fill(x, 0, some % 512, 1.0),
    "rot90": lambda F, x: F.rot90(x),
    "flip": lambda F, x: F.flip(x, (0, 1)),
    "roll": lambda F, x: F.roll(x, 5, 1),
    "cat": lambda F, x, y: F.cat((x, y), 1),
    "cat of parts": lambda F, x: F.cat(x.split(16, 1), 1),
    "stack": lambda F, x, y: F.stack((x, y), 2),
    "tile": lambda F, points: F.tile(points, (8, 4)),
    "repeat_interleave": lambda F, rows: F.repeat_interleave(rows, 4, 1),
    "contiguous": lambda F, slab: slab.permute(2, 0, 1).contiguous(),
    "tril": lambda F, x: F.tril(x),
    "diag_embed": lambda F, points: F.diag_embed(points),
    "unfold of a signal": lambda F, signal: signal.unfold(2, 16, 8).sum(3),
    "pixel_shuffle": lambda F, image: F.pixel_shuffle(image, 2),
    "channel_shuffle": lambda F, image: F.channel_shuffle(image, 4),
    "pad": lambda F, image: F.pad(image, (1, 2, 3, 4)),
    "pad by reflection": lambda F, image: F.pad(image, (1, 2, 3, 4), "reflect"),
    "pad in a circle": lambda F, image: F.pad(image, (1, 2, 3, 4), "circular"),
    "outer": lambda F, edge, other: F.outer(edge, other),
    "addr": lambda F, x, edge, other: F.addr(x, edge, other),
    "kron": lambda F, points, thin: F.kron(points[:32], thin[:64]),
    "einsum of an outer product": lambda F, edge, other: F.einsum("i,j->ij", edge, other),
    "einsum of matrices": lambda F, batch, slab: F.einsum("bij,bjk->bik", batch, slab),
    "tensordot": lambda F, batch, slab: F.tensordot(batch, slab, 1),
    "matrix by vector": lambda F, x, edge: x @ edge,
    "matmul": lambda F, x, y: x @ y,
    "baddbmm": lambda F, batch, slab: F.baddbmm(slab, batch, slab),
    "cross": lambda F, signal: F.cross(signal[:, :3], signal[:, 3:6], dim=1),
    "dot": lambda F, vector: F.dot(vector, vector),
    "det of small": lambda F, small: F.det(small),
    "slogdet": lambda F, symmetric: F.slogdet(symmetric)[1],
    "cholesky of small": lambda F, small: F.cholesky(small),
    "cholesky": lambda F, symmetric: F.cholesky(symmetric),
    "inv of many": lambda F, many: F.inv(many),
    "inv": lambda F, matrix: F.inv(matrix),
    "solve of many": lambda F, many, sides: F.solve(many, sides),
    "solve": lambda F, matrix, symmetric: F.solve(matrix, symmetric),
    "solve_triangular": lambda F, matrix: F.solve_triangular(matrix, matrix, upper=True),
    "lstsq": lambda F, tall, thin: F.lstsq(tall, thin)[0],
    "eigvalsh": lambda F, symmetric: F.eigvalsh(symmetric),
    "eigvalsh of many": lambda F, many: F.eigvalsh(many),
    "svdvals": lambda F, symmetric: F.svdvals(symmetric),
    "svdvals of many": lambda F, many: F.svdvals(many),
    "qr": lambda F, tall: F.qr(tall),
    "pinv": lambda F, tall: F.pinv(tall),
    "matrix_exp": lambda F, symmetric: F.matrix_exp(symmetric / 100),
    "matrix_power": lambda F, matrix: F.matrix_power(matrix / 8, 5),
    "cdist": lambda F, points, others: F.cdist(points, others),
    "cdist of order 1": lambda F, points, others: F.cdist(points, others, 1.0),
    "cdist of order 3": lambda F, points, others: F.cdist(points, others, 3.0),
    "pdist": lambda F, points: F.pdist(points),
    "pairwise_distance": lambda F, rows, pair: F.pairwise_distance(rows, pair),
    "cosine_similarity": lambda F, rows, pair: F.cosine_similarity(rows, pair),
    "normalize": lambda F, rows: F.normalize(rows),
    "softmax": lambda F, x: F.softmax(x, 1),
    "softmax of columns": lambda F, x: F.softmax(x, 0),
    "log_softmax": lambda F, x: F.log_softmax(x, 1),
    "gelu": lambda F, x: F.gelu(x),
    "glu": lambda F, x: F.glu(x),
    "prelu": lambda F, image, channels: F.prelu(image, channels),
    "layer_norm": lambda F, x, edge, other: F.layer_norm(x, (512,), edge, other),
    "rms_norm": lambda F, x, edge: F.rms_norm(x, (512,), edge),
    "group_norm": lambda F, image, channels: F.group_norm(image, 4, channels, channels),
    "instance_norm": lambda F, image: F.instance_norm(image),
    "batch_norm": lambda F, image, channels: F.batch_norm(
        image, None, None, channels, channels, True
    ),
    "batch_norm of few rows": lambda F, short: F.batch_norm(short, None, None, training=True),
    "local_response_norm": lambda F, image: F.local_response_norm(image, 5),
    "interpolate to half": lambda F, large: F.interpolate(large, scale_factor=0.5),
    "interpolate to double": lambda F, large: F.interpolate(large, scale_factor=2.0),
    "bilinear to half": lambda F, large: F.interpolate(large, scale_factor=0.5, mode="bilinear"),
    "bilinear to double": lambda F, large: F.interpolate(large, scale_factor=2.0, mode="bilinear"),
    "bicubic to half": lambda F, large: F.interpolate(large, scale_factor=0.5, mode="bicubic"),
    "area to half": lambda F, large: F.interpolate(large, scale_factor=0.5, mode="area"),
    "linear to half": lambda F, signal: F.interpolate(signal, scale_factor=0.5, mode="linear"),
    "antialiased to half": lambda F, large: F.interpolate(
        large, scale_factor=0.5, mode="bilinear", antialias=True
    ),
    "grid_sample": lambda F, large, grid: F.grid_sample(large, grid, align_corners=False),
    "affine_grid": lambda F, theta: F.affine_grid(theta, (16, 1, 96, 96), align_corners=False),
    "max_pool2d": lambda F, large: F.max_pool2d(large, 3, 2, 1),
    "avg_pool2d": lambda F, large: F.avg_pool2d(large, 2),
    "adaptive_avg_pool2d": lambda F, large: F.adaptive_avg_pool2d(large, 7),
    "adaptive_max_pool2d": lambda F, large: F.adaptive_max_pool2d(large, 7),
    "lp_pool2d": lambda F, large: F.lp_pool2d(large.abs(), 2.0, 2),
    "max_pool3d": lambda F, volume: F.max_pool3d(volume, 2),
    "unfold of an image": lambda F, image: F.nn.functional.unfold(image, 3, padding=1),
    "conv1d": lambda F, signal, taps: F.conv1d(signal, taps, padding=1),
    "conv2d": lambda F, image, kernel: F.conv2d(image, kernel, padding=1),
    "conv_transpose2d": lambda F, image, kernel: F.conv_transpose2d(image, kernel, stride=2),
    "linear": lambda F, x, y, edge: F.linear(x, y, edge),
    "bilinear": lambda F, points, others, slab: F.bilinear(points, others, slab[:, :32, :32]),
    "embedding": lambda F, words, table: F.embedding(words, table),
    "embedding_bag": lambda F, words, table: F.embedding_bag(words, table),
    "attention": lambda F, heads: F.scaled_dot_product_attention(heads, heads, heads),
    "cross_entropy": lambda F, x, classes: F.cross_entropy(x, classes),
    "mse_loss": lambda F, x, y: F.mse_loss(x, y),
    "l1_loss": lambda F, x, y: F.l1_loss(x, y),
    "huber_loss": lambda F, x, y: F.huber_loss(x, y, delta=0.5),
    "binary_cross_entropy": lambda F, rows, half: F.binary_cross_entropy(F.sigmoid(rows), half),
    "binary_cross_entropy_with_logits": lambda F, rows, half: F.binary_cross_entropy_with_logits(
        rows, half
    ),
    "kl_div": lambda F, x, positive: F.kl_div(x, positive, reduction="batchmean"),
    "gaussian_nll_loss": lambda F, x, y, positive: F.gaussian_nll_loss(x, y, positive),
    "poisson_nll_loss": lambda F, x, positive: F.poisson_nll_loss(x, positive),
    "soft_margin_loss": lambda F, rows, ones: F.soft_margin_loss(rows, ones),
    "cosine_embedding_loss": lambda F, rows, pair, sign: F.cosine_embedding_loss(rows, pair, sign),
    "triplet_margin_loss": lambda F, rows, pair, half: F.triplet_margin_loss(rows, pair, half),
    "multi_margin_loss": lambda F, x, classes: F.multi_margin_loss(x, classes),
}  # fmt: skip
"""Functions of the inputs that their parameters name, by what they are called in reports."""

OF_ALL = "asin acos atan sinh cosh tanh sigmoid sin cos tan exp exp2 expm1 erf erfc elu silu mish"
OF_POSITIVE = "log log2 log10 log1p sqrt rsqrt"
OF_DOUBLES = "sin cos tan tanh exp expm1 log log1p sqrt erf"


def elementary() -> dict[str, Callable[..., Any]]:
    """Functions of one number, by what they are taken of."""

    def of_all(name: str) -> Callable[..., Any]:
        return lambda F, x: getattr(F, name)(x)

    def of_positive(name: str) -> Callable[..., Any]:
        return lambda F, positive: getattr(F, name)(positive)

    def of_doubles(name: str) -> Callable[..., Any]:
        return lambda F, double: getattr(F, name)(double)

    found = {name: of_all(name) for name in OF_ALL.split()}
    found |= {name: of_positive(name) for name in OF_POSITIVE.split()}
    return found | {f"{name} of doubles": of_doubles(name) for name in OF_DOUBLES.split()}


FUNCTIONS |= elementary()

WITHOUT_GRADIENTS: dict[str, Callable[..., Any]] = {
    "argmax": lambda F, x: F.argmax(x, 1),
    "mode": lambda F, few: F.mode(few.view(512, 512), 1)[0],
    "any": lambda F, mask: F.any(mask, 1),
    "count_nonzero": lambda F, x: F.count_nonzero(x),
    "argsort": lambda F, x: F.argsort(x, 1),
    "unique": lambda F, few: F.unique(few),
    "unique_consecutive": lambda F, few: F.unique_consecutive(few),
    "searchsorted": lambda F, sorted, vector: F.searchsorted(sorted, vector),
    "bucketize": lambda F, vector, sorted: F.bucketize(vector, sorted),
    "isin": lambda F, few, some: F.isin(few, some),
    "histc": lambda F, vector: F.histc(vector, 64, -1.0, 1.0),
    "histogram": lambda F, vector: F.histogram(vector, 64),
    "bincount": lambda F, few: F.bincount(few),
    "nonzero": lambda F, mask: F.nonzero(mask),
    "one_hot": lambda F, classes: F.one_hot(classes, 512),
}
"""The same for functions that have no gradient."""

DRAWS: dict[str, Callable[..., Any]] = {
    "multinomial": lambda F, positive: F.multinomial(positive, 64, True),
    "multinomial without replacement": lambda F, positive: F.multinomial(positive, 64),
    "bernoulli": lambda F, positive: F.bernoulli(positive / 3),
    "dropout": lambda F, x: F.dropout(x, 0.3),
    "randperm": lambda F: F.randperm(1 << 18),
    "randn": lambda F: F.randn(512, 512),
    "normal": lambda F, x, positive: F.normal(x, positive),
    "poisson": lambda F, positive: F.poisson(positive),
}
"""The same for functions that draw: of their results only shapes are compared."""


@dataclass(frozen=True)
class Function:
    """A row of the tables. backward: with gradients by all floating inputs; drawn: of ``DRAWS``."""

    about: str
    call: Callable[..., Any]
    backward: bool
    drawn: bool = False
    tolerance: float = 1e-3
    at_most: float = EAGER_AT_MOST
    contenders: tuple[str, ...] = (EAGER, "torch")

    @property
    def name(self) -> str:
        """What it is called, and how."""
        return f"{self.about}, {'forward and backward' if self.backward else 'forward'}"

    def build(self, contender: str, threads: int) -> Step:
        """One call, and what returns its results and gradients, or the shapes of what is drawn."""
        lib = load_torch(threads) if contender == "torch" else importlib.import_module("numbagrad")
        names = Names(lib)
        _, *parameters = inspect.signature(self.call).parameters
        inputs = [lib.from_numpy(INPUTS[name]()) for name in parameters]
        leaves = [x for x in inputs if self.backward and x.is_floating_point()]
        for x in leaves:
            x.requires_grad_()
        last: list[Any] = []

        def forward() -> list[Any]:
            out = self.call(names, *inputs)
            return [out] if isinstance(out, lib.Tensor) else list(out)

        tracked = [x for x in forward() if x.requires_grad]
        incoming = [lib.from_numpy(uniform(*x.shape, 1)[..., 0]).to(x.dtype) for x in tracked]

        def run() -> None:
            last[:] = forward()
            if leaves:
                tracked = [x for x in last if x.requires_grad]
                last.extend(lib.autograd.grad(tracked, leaves, incoming))

        def results() -> list[np.ndarray]:
            if self.drawn:
                return [np.array(x.shape) for x in last]
            return [np.nan_to_num(x.detach().numpy().astype(np.float64)) for x in last]

        return run, results


WORKLOADS = [
    *(Function(name, call, back) for name, call in FUNCTIONS.items() for back in (False, True)),
    *(Function(name, call, False) for name, call in WITHOUT_GRADIENTS.items()),
    *(Function(name, call, False, drawn=True) for name, call in DRAWS.items()),
]


def build(contender: str, number: int, threads: int) -> Step:
    """A call of one of ``WORKLOADS``."""
    return WORKLOADS[number].build(contender, threads)


def measure(rounds: int = ROUNDS, only: str = "") -> list[Row]:
    """The rows of all workloads on one thread."""
    return race.measure(sys.modules[__name__], rounds, (1,), only)
