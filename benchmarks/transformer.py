"""A character transformer, the model of ``transformer_step.py``; here its attention is measured."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import Case, Run, uniform

WORDS, LENGTH, WIDTH, HEADS, LAYERS, BATCH = 96, 64, 128, 4, 2, 8


def transformer(lib: Any) -> Any:
    """nanoGPT's shape: blocks of causal attention and a GELU perceptron, norms in front."""
    nn, F = lib.nn, lib.nn.functional
    Module: Any = nn.Module

    class Block(Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.into, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            b, t, _ = x.shape
            parts = self.into(self.norm1(x)).chunk(3, -1)
            q, k, v = [y.view(b, t, HEADS, WIDTH // HEADS).transpose(1, 2) for y in parts]
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(b, t, WIDTH))
            return x + self.narrow(F.gelu(self.wide(self.norm2(x))))

    class Transformer(Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
            self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

        def forward(self, x: Any) -> Any:
            return self.head(self.norm(self.blocks(self.words(x) + self.places.weight)))

    model = Transformer()
    with lib.no_grad():
        for p, value in zip(model.parameters(), weights(), strict=True):
            p.copy_(lib.from_numpy(value))
    return model


def shapes() -> list[tuple[int, ...]]:
    """Shapes of the model's parameters, in the order of its modules."""
    norm = [(WIDTH,), (WIDTH,)]
    layers = [(3 * WIDTH, WIDTH), (WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH)]
    block = [*norm, *norm, *[shape for n, m in layers for shape in ((n, m), (n,))]]
    return [(WORDS, WIDTH), (LENGTH, WIDTH), *(LAYERS * block), *norm, (WORDS, WIDTH)]


def weights() -> list[np.ndarray]:
    """The first value of each parameter."""
    return [
        uniform(*shape) / np.float32(shape[1] ** 0.5)
        if len(shape) == 2
        else uniform(*shape) / 4 + np.float32(1)
        for shape in shapes()
    ]


def batch() -> tuple[np.ndarray, np.ndarray]:
    """Random characters, and those that follow each."""
    text = np.random.default_rng(0).integers(0, WORDS, (BATCH, LENGTH + 1))
    return text[:, :-1].copy(), text[:, 1:].copy()


def optimizer_of(lib: Any, model: Any, lr: float, decay: float, **options: Any) -> Any:
    """AdamW with two groups: matrices decay, vectors do not."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if len(p.shape) > 1], "weight_decay": decay},
        {"params": [p for p in parameters if len(p.shape) == 1], "weight_decay": 0.0},
    ]
    return lib.optim.AdamW(groups, lr=lr, **options)


def _attention(b: int, h: int, t: int, e: int) -> Any:
    def build(lib: Any) -> Run:
        q, k, v = [lib.tensor(uniform(b, t, h, e) * (i + 1), requires_grad=True) for i in range(3)]
        g = lib.tensor(uniform(b, t, h, e))

        def run() -> tuple[Any, ...]:
            q.grad = k.grad = v.grad = None
            heads = [x.transpose(1, 2) for x in (q, k, v)]
            out = lib.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
            out.transpose(1, 2).backward(g)
            return out, q.grad, k.grad, v.grad

        return run

    return build


BOTH = (1, 2)
CASES = [
    Case("attention (8, 4, 64, 32)", _attention(8, 4, 64, 32), None, BOTH, 1e-3, 1e-4),
    Case("attention (1, 8, 1024, 64)", _attention(1, 8, 1024, 64), None, BOTH, 1e-3, 1e-4),
]
