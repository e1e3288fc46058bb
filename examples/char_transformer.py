"""Train a small transformer to write like Python's manual, character by character.

python examples/char_transformer.py [--compile] [--steps N]
"""

import argparse
import math
import pydoc_data.topics
import time

import matplotlib
from tqdm.auto import tqdm

import numbagrad as ng
import numbagrad.nn.functional as F
from numbagrad import nn

matplotlib.use("Agg")
import matplotlib.pyplot as plt

LENGTH, WIDTH, HEADS, LAYERS, BATCH = 64, 128, 4, 2, 16


class Block(nn.Module):
    """Attention to what came before, then a perceptron; a norm in front of each, a way past it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.into, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: ng.Tensor) -> ng.Tensor:
        heads = self.into(self.norm1(x)).unflatten(-1, (3 * HEADS, -1)).transpose(1, 2)
        q, k, v = heads.chunk(3, 1)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.wide(self.norm2(x))))


class Transformer(nn.Module):
    """Scores of the next character at each place of a text (batch, length)."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(characters, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, characters, bias=False)
        for embedding in (self.characters, self.places):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, x: ng.Tensor) -> ng.Tensor:
        x = self.characters(x) + self.places.weight[: x.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def batch(data: ng.Tensor) -> tuple[ng.Tensor, ng.Tensor]:
    """Pieces of the text from random places, and what follows each character."""
    pieces = data[ng.randint(0, len(data) - LENGTH, (BATCH, 1)) + ng.arange(LENGTH + 1)]
    return pieces[:, :-1].contiguous(), pieces[:, 1:].contiguous()


def sample(model: nn.Module, text: ng.Tensor, count: int, best: int = 20) -> ng.Tensor:
    """``text`` (1, n) and ``count`` characters more, each drawn from the ``best`` likeliest."""
    with ng.no_grad():
        for _ in range(count):
            scores, which = model(text[:, -LENGTH:])[:, -1].topk(best)
            drawn = ng.multinomial(F.softmax(scores / 0.8, -1), 1)
            text = ng.cat([text, which.gather(1, drawn)], 1)
    return text


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description="Train a character transformer.")
    parser.add_argument("--compile", action="store_true", help="compile the step")
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args(arguments)

    ng.manual_seed(0)
    text = "\n".join(pydoc_data.topics.topics.values())  # Python's manual of its language
    letters = sorted(set(text))
    data = ng.tensor([letters.index(c) for c in text])
    model = Transformer(len(letters))
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = ng.optim.AdamW(groups, lr=2e-3, betas=(0.9, 0.99))
    schedule = ng.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps, 1e-4)

    def step(x: ng.Tensor, y: ng.Tensor) -> ng.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    train_step = ng.compile(step) if options.compile else step
    losses, start = [], time.perf_counter()
    progress = tqdm(range(options.steps), desc="steps")
    for _ in progress:
        losses.append(train_step(*batch(data)).item())
        schedule.step()
        progress.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
    last = sum(losses[-20:]) / 20
    print(
        f"loss {math.log(len(letters)):.2f} at chance, {losses[0]:.2f} first, {last:.2f} last, "
        f"{time.perf_counter() - start:.1f} s of training\n"
    )
    print("".join(letters[i] for i in sample(model, data[None, :1], 400)[0].tolist()))
    figure = plt.figure(figsize=(5, 3), layout="constrained")
    figure.add_subplot(xlabel="step", ylabel="loss").plot(losses)
    figure.savefig("char_transformer.png", dpi=120)
    plt.close(figure)
    return last


if __name__ == "__main__":
    main()
