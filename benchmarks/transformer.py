"""A training step of a character transformer, compiled, beside torch's as written and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import Case, Run, compile_step, uniform

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
        for p in model.parameters():
            if len(p.shape) == 2:
                p.copy_(lib.from_numpy(uniform(*p.shape) / np.float32(p.shape[1] ** 0.5)))
            else:
                p.copy_(lib.from_numpy(uniform(*p.shape) / 4 + np.float32(1)))
    return model


def training_step(lib: Any) -> Run:
    """Forward, backward and AdamW with two groups, on one batch of random characters."""
    model = transformer(lib)
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if len(p.shape) > 1], "weight_decay": 0.1},
        {"params": [p for p in parameters if len(p.shape) == 1], "weight_decay": 0.0},
    ]
    optimizer = lib.optim.AdamW(groups, lr=1e-5)
    text = np.random.default_rng(0).integers(0, WORDS, (BATCH, LENGTH + 1))
    x, y = lib.tensor(text[:, :-1].copy()), lib.tensor(text[:, 1:].copy())

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        logits = model(x)
        loss = lib.nn.functional.cross_entropy(logits.view(-1, WORDS), y.view(-1))
        loss.backward()
        optimizer.step()
        return loss

    call = compile_step(lib, step)
    return lambda: (call(x, y),)


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
    Case("step of a character transformer", training_step, 0.6, BOTH, rtol=1e-4),
    Case("attention (8, 4, 64, 32)", _attention(8, 4, 64, 32), None, BOTH, 1e-3, 1e-4),
    Case("attention (1, 8, 1024, 64)", _attention(1, 8, 1024, 64), None, BOTH, 1e-3, 1e-4),
]
