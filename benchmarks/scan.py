"""Many operations beside torch's, once over: which are slow, and at which size.

    python -m benchmarks.scan [--grad | --layers] [--dtype DTYPE] [--size SIZE] [--threads N]
        [--over R] [EXPRESSION ...]

Each expression is evaluated with the names of ``arrays`` as tensors of either library, ``L`` the
library and ``F`` its ``nn.functional``; sizes are large (10^6 numbers) or small (40,000). With
``--grad`` it goes forward and backward, by those of ``GRADIENTS``, and with ``--layers`` by those
of ``LAYERS``, in the shapes of real networks: ``t(2, 3)`` is a tensor of its own, ``i(9, 2, 3)``
one of indices below 9. With ``--dtype`` what is float32 has that dtype, and the others are those of
``DTYPES``, without those that torch refuses. Prints those whose ratio of best times is over R, the
worst first, and the geometric mean of all. It is a look, not a measurement: two to four blocks of
rounds in turns, in one process, and results are not compared.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import time
import warnings
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import numpy as np

import numbagrad as ng

from .libraries import load_torch
from .scan_layers import LAYERS, Given

FORWARD = """
x.sum(); x.sum(0); x.sum(1); w.sum(1); w.mean(1); x.var(0); x.var(1); w.std(0); x.norm(dim=1)
x.max(0); x.max(1); w.max(1); x.argmax(0); w.argmax(1); x.argmax(); w.amin(1); w.prod(1)
x.logsumexp(1); x.logsumexp(0); w.softmax(1); x.softmax(0); w.log_softmax(1); x.cumsum(0)
x.cumsum(1); w.cumsum(1); x.cumprod(1); x.cummax(1); m.sum(1); m.any(1); m.nonzero(); x[m]
x.double(); x.int(); x.half(); m.float(); x > y; ~m; x.isnan(); i % 7; i // 3; x % 1.0; x // 1.0
L.fmod(x, 1.0); x**2; x**3; p**0.5; p**2.5; x.exp(); p.log(); x.sin(); x.tan(); x.atan(); x.asin()
x.sinh(); x.cosh(); x.tanh(); x.sigmoid(); x.erf(); x.erfc(); x.floor(); x.clamp(0, 1); x.relu()
L.atan2(x, y); L.hypot(x, y); L.maximum(x, y); L.where(m, x, y); x.lerp(y, 0.5); p.lgamma()
L.addcmul(x, y, y); x.masked_fill(m, 0.0); x.nan_to_num(); p.digamma(); x.logaddexp(y); x + v
x * v[:, None]; x + x.t(); x.t().contiguous(); x - x.mean(1, keepdim=True); x[:, ::2] + 1
x.sort(1); h.sort(); w.sort(1); x.topk(5, 1); x.median(); x.median(1); x.kthvalue(5, 1)
i.unique(); r.bincount(); L.histc(h, 100); L.searchsorted(v.sort()[0], x); x[:, l]; x[l]; x[l, l]
x.index_select(1, l); x.gather(1, i); x.gather(0, i); x.index_add(0, l, y); x.scatter_add(1, i, y)
L.cat([x, y], 1); L.stack([x, y], -1); x.repeat(2, 2); x.roll(1, 1); x.flip(0); x.flip(1)
x.rot90(); x.tril(); x.diag(); x.trace(); w[:, :8] * 2; w[::2].exp(); x.unfold(1, 3, 1).contiguous()
im.permute(0, 2, 3, 1).contiguous(); s.transpose(0, 1).contiguous(); L.randn(1000, 1000)
L.rand(1000, 1000); L.randperm(100000); L.bernoulli(p.clamp(max=1)); x @ y[:, :64]; x @ v; v @ x
s @ s.transpose(1, 2); w.view(-1, 4, 4) @ w.view(-1, 4, 4); L.einsum("ij,ij->i", x, y)
L.outer(v, v); L.dot(v, v); L.cdist(x[:300], y[:300]); L.cross(w[:, :3], w[:, 3:6], dim=1)
L.linalg.inv(sq); L.linalg.solve(sq, sq); L.linalg.qr(sq); L.linalg.svd(sq); x.diff()
"""

GRADIENTS = """
F.relu(x); F.gelu(x); F.silu(x); F.elu(x); F.mish(x); F.softplus(x); F.leaky_relu(x); F.glu(x)
F.prelu(im, v[:16]); F.hardswish(x); F.logsigmoid(x); F.dropout(x); F.normalize(w, dim=1)
F.cosine_similarity(w, w.flip(0), 1); F.mse_loss(x, y); F.smooth_l1_loss(x, y)
F.binary_cross_entropy_with_logits(x, p.clamp(max=1)); F.cross_entropy(x, l); F.nll_loss(x, l)
F.kl_div(x, y.softmax(1)); F.layer_norm(x, x.shape[1:]); F.layer_norm(w, (16,))
F.rms_norm(w, (16,)); F.group_norm(im, 4); F.instance_norm(im)
F.batch_norm(im, None, None, training=True)
F.linear(w, w[:32]); F.embedding(r, x); F.embedding_bag(r.view(-1, 5), x)
F.conv2d(im, k3, padding=1); F.conv2d(im, k3, stride=2); F.conv2d(im, kd, padding=1, groups=16)
F.max_pool2d(im, 2); F.avg_pool2d(im, 2); F.adaptive_avg_pool2d(im, 1); F.unfold(im, 3)
F.interpolate(im, scale_factor=2); F.interpolate(im, scale_factor=2, mode="bilinear")
F.pad(im, (1, 1, 1, 1)); F.pad(im, (1, 1, 1, 1), mode="reflect"); F.pixel_shuffle(im, 2)
F.scaled_dot_product_attention(q, q, q); F.scaled_dot_product_attention(q, q, q, is_causal=True)
x.sum(0); w.mean(1); x.var(1); w.norm(dim=1); x.max(1)[0]; x.logsumexp(1); x.softmax(1)
w.softmax(1); x.cumsum(1); x.prod(1); x * y; x + v; x * v[:, None]; x / p; x**2; L.where(m, x, y)
x.clamp(0, 1); x.exp(); x.tanh(); L.atan2(x, y); x[l]; x[:, l]; x[m]; x[:, ::2]; x[1:-1, 1:-1]
x.gather(1, i); L.cat([x, y], 1); L.stack([x, y], 1); x.t() @ y[:, :64]; x @ v
s @ s.transpose(1, 2); L.einsum("bij,bkj->bik", s, s); x.sort(1)[0]; x.masked_fill(m, 0.0)
x.roll(1, 1); x.flip(1); x.repeat(2, 1); w.repeat_interleave(2, 0); L.linalg.inv(sq)
L.linalg.solve(sq, sq); L.cdist(x[:300], y[:300]); x.index_add(0, l, y); x.scatter_add(1, i, y)
im.mean((2, 3)); im.std((0, 2, 3)); F.normalize(im, dim=1); x.square().mean()
"""

DTYPES = """
x.sum(); x.sum(0); x.sum(1); x.mean(); x.prod(1); x.max(); x.amax(1); x.max(0); x.min(1)
x.argmax(); x.argmax(1); x.std(1); x.var(0); x.norm(); x.any(); x.all(1); x.cumsum(0); x.cumsum(1)
x.sort(1); x.argsort(0); x.topk(8, 1); x.kthvalue(5, 1); x.median(1); x.unique(); x.nonzero()
L.count_nonzero(x); x.flatten().bincount(); x + y; x - y; x * y; x / y; x // y; x % y; x**2; x + 3
x.abs(); -x; x.sign(); ~x; x & y; x ^ y; x << 1; x < y; x == y; x > 2; x.clamp(1, 3); x.exp()
x.sigmoid(); x.tanh(); x.sqrt(); x.relu(); F.gelu(x); x.isnan(); L.logical_not(x); L.maximum(x, y)
L.minimum(x, y); L.where(m, x, y); x.masked_fill(m, 1); x[m]; x + y[0]; x + y[:, :1]; x + y.t()
x[::2, ::2] + y[::2, ::2]; x.float(); x.double(); x.long(); x.bool(); x.to(L.bfloat16)
x.t().contiguous(); x.flip(0); x.flip(1); x.roll(5, 0); x.rot90(); x.tril(); x.repeat(2, 2)
L.cat([x, y], 1); L.stack([x, y], -1); x.diff(); x.gather(1, i); x[l]; x[:, l]; x[l, l]
x.index_select(1, l); x.index_add(0, l, y); x.scatter_add(1, i, y); x.softmax(1); x.softmax(0)
x.log_softmax(1); x.logsumexp(1); F.layer_norm(x, x.shape[1:]); F.rms_norm(x, x.shape[1:]); x @ y
x @ v; s @ s.transpose(1, 2); F.embedding(r, x); F.one_hot(x.long(), 8); F.max_pool2d(im, 2)
F.conv2d(im, k3, padding=1); F.group_norm(im, 4); F.batch_norm(im, None, None, training=True)
F.interpolate(im, scale_factor=2); x.equal(y); L.isclose(x, y); x.lerp(y, 0.5); x.clone()
"""


def arrays(large: bool) -> dict[str, np.ndarray]:
    """What the expressions are made of."""
    rng = np.random.default_rng(0)
    n, rows, images = (1000, 200_000, 32) if large else (200, 5000, 4)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    return {
        "x": normal(n, n), "y": normal(n, n), "p": np.abs(normal(n, n)) + 0.1, "v": normal(n),
        "w": normal(rows, 16), "h": normal(n * n), "s": normal(2 * images, 100, 64),
        "q": normal(images // 4, 4, 128, 32), "im": normal(images, 16, 28, 28),
        "k3": normal(32, 16, 3, 3), "kd": normal(16, 1, 3, 3),
        "sq": normal(64, 64) + 8 * np.eye(64, dtype=np.float32),
        "i": rng.integers(0, n, (n, n)), "l": rng.integers(0, n, n),
        "r": rng.integers(0, n, 5 * n), "m": rng.random((n, n)) > 0.5,
    }  # fmt: skip


def whole(array: np.ndarray) -> np.ndarray:
    """Whole numbers from 0 to 5 in the place of floats, which every dtype holds."""
    return np.minimum(np.abs(2 * array), 5).astype(np.int64)


def names(
    library: Any, given: dict[str, np.ndarray], grad: bool, dtype: str = "float32"
) -> dict[str, Any]:
    """The names of expressions, in one library; dtype: of what is float32 in ``given``."""
    found = {"L": library, "F": library.nn.functional}
    kind = getattr(library, dtype)
    for name, array in given.items():
        real = array.dtype == np.float32
        given_as = whole(array) if real and not kind.is_floating_point else array.copy()
        found[name] = library.tensor(given_as)
        if real and dtype != "float32":
            found[name] = found[name].to(kind)
        if grad and real and name != "p":
            found[name].requires_grad_()
    return found


def runner(code: CodeType, known: dict[str, Any], grad: bool) -> Callable[[], None]:
    """What evaluates an expression, and with ``grad`` goes back through it."""
    given = known.setdefault("given", Given(known["L"], "float32"))
    given.at = 0
    if not grad:
        return lambda: eval(code, known)
    ones = known["L"].ones_like(eval(code, known))
    every = [*known.values(), *given.made]
    leaves = [t for t in every if getattr(t, "requires_grad", False)]

    def run() -> None:
        for t in leaves:
            t.grad = None
        given.at = 0
        eval(code, known).backward(ones)

    return run


def best(run: Callable[[], None], budget: float = 0.05) -> float:
    """The shortest of some runs, in microseconds."""
    times: list[float] = []
    while len(times) < 3 or (sum(times) < budget and len(times) < 60):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return min(times) * 1e6


def compared(expression: str, sides: Sequence[dict[str, Any]], grad: bool) -> tuple[float, float]:
    """Our best time and torch's."""
    code = compile(expression, "scan", "eval")
    runs = [runner(code, known, grad) for known in sides]
    times = [math.inf, math.inf]
    for block in range(4):
        if block < 2 or times[0] > 1.15 * times[1]:
            times = [min(t, best(run)) for t, run in zip(times, runs, strict=True)]
    return times[0], times[1]


def is_refused(expression: str, known: dict[str, Any]) -> bool:
    """Whether the library does not know it for such tensors."""
    try:
        eval(expression, known)
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return True
    return False


def main() -> None:
    """Compare expressions and print the slow ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("expressions", nargs="*", metavar="EXPRESSION")
    parser.add_argument("--grad", action="store_true")
    parser.add_argument("--layers", action="store_true")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--size", choices=("large", "small"), default="large")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--over", type=float, default=1.2, metavar="R")
    options = parser.parse_args()
    options.grad |= options.layers
    if options.grad and not getattr(ng, options.dtype).is_floating_point:
        parser.error(f"--grad needs a floating dtype, not {options.dtype}")
    torch = load_torch(options.threads)
    ng.set_num_threads(options.threads)
    given = arrays(options.size == "large")
    sides = [names(library, given, options.grad, options.dtype) for library in (ng, torch)]
    text = FORWARD if options.dtype == "float32" else DTYPES
    text = LAYERS if options.layers else GRADIENTS if options.grad else text
    text = text.replace("\n", ";")
    expressions = options.expressions or [e.strip() for e in text.split(";") if e.strip()]
    rows = []
    off: Any = contextlib.nullcontext if options.grad else ng.no_grad
    off_there: Any = contextlib.nullcontext if options.grad else torch.no_grad
    with warnings.catch_warnings(), off(), off_there():
        warnings.simplefilter("ignore")
        for expression in expressions:
            for known, library in zip(sides, (ng, torch), strict=True):
                Given(library, options.dtype).enter(known)
            if is_refused(expression, sides[1]):
                continue
            if is_refused(expression, sides[0]):
                print(f"only torch knows {expression}")
                continue
            ours, theirs = compared(expression, sides, options.grad)
            rows.append((ours / theirs, ours, theirs, expression))
    rows.sort(reverse=True)
    for ratio, ours, theirs, expression in rows:
        if ratio > options.over or options.expressions:
            print(f"{ratio:6.2f} {ours:10.1f} {theirs:10.1f} us  {expression}")
    mean = math.exp(sum(math.log(row[0]) for row in rows) / len(rows))
    print(f"{len(rows)} expressions, geometric mean {mean:.2f}; the lines are over {options.over}")


if __name__ == "__main__":
    main()
