"""What ``warmup`` runs: short programs that need the kernels most programs need, in float32.

Each runs on few numbers and on many, for a kernel has a second compilation with threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numbagrad as ng

__all__ = ["RECIPES"]

nn: Any = ng.nn
F: Any = ng.nn.functional

FEW, MANY = 16, 1 << 20

UNARY = """
    abs ceil clone cos exp floor isfinite isnan log logical_not neg reciprocal relu round rsqrt
    sigmoid sign sin sqrt square tanh
""".split()
ACTIVATIONS = "elu gelu hardtanh leaky_relu mish relu6 selu silu softplus softsign".split()
BINARY = "add sub mul div maximum minimum pow eq ne lt le gt ge".split()
REDUCTIONS = "sum mean amax amin var std prod argmax argmin any all".split()


def _differentiated(y: Any) -> None:
    """Run the backward pass where there is one."""
    if y.requires_grad:
        y.sum().backward()


def products() -> None:
    """Matrix products and linear layers."""
    for n in (8, 512):
        x, w = (ng.rand(n, 64, requires_grad=True), ng.rand(64, 64, requires_grad=True))
        _differentiated(x @ w)
        _differentiated(F.linear(x, w, ng.rand(64, requires_grad=True)))
        batch = ng.rand(4, n, 64, requires_grad=True)
        _differentiated(batch @ batch.mT)
        _differentiated(batch @ w)


def elementwise() -> None:
    """Formulas, forward and backward."""
    for n in (FEW, MANY):
        for name in UNARY:
            x = (ng.rand(n) + 0.5).requires_grad_()
            _differentiated(getattr(x, name)())
        for name in ACTIVATIONS:
            _differentiated(getattr(F, name)(ng.randn(n, requires_grad=True)))


def arithmetic() -> None:
    """Two operands: tensors, numbers, rows."""
    for n in (FEW, MANY):
        x = (ng.rand(n // 16, 16) + 0.5).requires_grad_()
        for name in BINARY:
            for other in (ng.rand(n // 16, 16) + 0.5, ng.rand(16) + 0.5, 2.0):
                _differentiated(getattr(x, name)(other))
        _differentiated(ng.where(x > 1, x, x * 2))
        _differentiated(x.clamp(0.6, 1.2))
        y = x.detach().clone()
        y += 1
        y *= 2
        y.copy_(x.detach())


def reductions() -> None:
    """Sums and their kin over all, rows and columns; softmax; shapes."""
    for n in (FEW, MANY):
        for name in REDUCTIONS:
            for dims in ((), (0,), (1,)):
                x = ng.rand(n // 16, 16, requires_grad=True)
                _differentiated(getattr(x, name)(*dims))
        x = ng.rand(n // 16, 16, requires_grad=True)
        for y in (x.softmax(1), x.log_softmax(1), x.logsumexp(1), x.cumsum(1), x.max(1)[0]):
            _differentiated(y)
        _differentiated(ng.cat([x, x], 1).transpose(0, 1).reshape(-1))
        _differentiated(x[:, ng.tensor([0, 2, 2])])
        _differentiated(ng.stack([x, x]).permute(2, 0, 1).contiguous())


def losses() -> None:
    """Losses and their gradients."""
    for n in (FEW, 4096):
        x, y = ng.randn(n, 10, requires_grad=True), ng.rand(n, 10)
        labels = ng.randint(0, 10, (n,))
        for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.binary_cross_entropy_with_logits):
            _differentiated(loss(x, y))
        _differentiated(F.cross_entropy(x, labels))
        _differentiated(F.nll_loss(x.log_softmax(1), labels))
        (x.argmax(1) == labels).float().mean().item()


def images() -> None:
    """Convolution, pooling, batch norm, dropout."""
    for n in (2, 64):
        model = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Dropout(0.1),
            nn.Linear(16 * 6 * 6, 10),
        )  # fmt: skip
        _differentiated(model(ng.rand(n, 1, 28, 28, requires_grad=True)))
        model.eval()(ng.rand(n, 1, 28, 28))


def sequences() -> None:
    """Embedding, LSTM, GRU, attention, layer norm."""
    for n in (2, 16):
        words = nn.Embedding(50, 32)(ng.randint(0, 50, (32, n)))
        _differentiated(nn.LSTM(32, 32)(words)[0])
        _differentiated(nn.GRU(32, 32)(words.detach())[0])
        layer = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True)
        _differentiated(layer(words.detach().transpose(0, 1)))
        q = ng.rand(n, 4, 32, 8, requires_grad=True)
        _differentiated(F.scaled_dot_product_attention(q, q, q, is_causal=True))


def _step(make: Callable[[Any], Any], n: int) -> Callable[[], Any]:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = make(model.parameters())
    x, labels = ng.rand(n, 64), ng.randint(0, 10, (n,))

    def step() -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return step


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: ng.optim.SGD(p, lr=0.1),
    "momentum": lambda p: ng.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-4),
    "Adam": lambda p: ng.optim.Adam(p, lr=1e-3),
    "AdamW": lambda p: ng.optim.AdamW(p, lr=1e-3),
    "RMSprop": lambda p: ng.optim.RMSprop(p, lr=1e-3),
}


def optimizers() -> None:
    """Training steps, eager."""
    for make in OPTIMIZERS.values():
        for n in (32, 2048):
            step = _step(make, n)
            step(), step()


def compiled() -> None:
    """Training steps as ``ng.compile`` makes them: the kernels that they call."""
    for name in ("momentum", "Adam"):
        for n in (32, 2048):
            step = ng.compile(_step(OPTIMIZERS[name], n))
            step(), step()


RECIPES: dict[str, Callable[[], None]] = {
    f.__name__: f
    for f in (
        compiled, sequences, elementwise, arithmetic, reductions, images, losses, optimizers,
        products,
    )
}  # fmt: skip
"""The longest first: the others are done meanwhile."""
