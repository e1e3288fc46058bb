"""Teach an LSTM to write like the manual that every Python carries with it, word by word.

python examples/lstm.py [--compile] [--epochs N]
"""

import argparse
import collections
import math
import re
from pydoc_data.topics import topics  # type: ignore[import-not-found,unused-ignore]

import matplotlib.pyplot as plt
from tqdm.auto import tqdm

import numbagrad as ng
import numbagrad.nn.functional as F
from numbagrad import nn

ROWS, STEPS, SIZE = 16, 32, 128
START = ng.zeros(2, ROWS, SIZE), ng.zeros(2, ROWS, SIZE)


class LanguageModel(nn.Module):
    """Scores of the next word after each word of (t, n), and the states of the LSTM."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, SIZE)
        self.lstm = nn.LSTM(SIZE, SIZE, num_layers=2, dropout=0.3)
        self.scores = nn.Sequential(nn.Dropout(0.3), nn.Linear(SIZE, words))

    def forward(self, words: ng.Tensor, states: tuple | None) -> tuple[ng.Tensor, tuple]:
        out, states = self.lstm(self.embedding(words), states)
        return self.scores(out), states


def texts() -> tuple[list[str], ng.Tensor, ng.Tensor]:
    """The vocabulary, and the words of nine tenths of the topics and of the rest, (t, n)."""
    split = [re.findall(r"[a-z]+(?:'[a-z]+)?|[.,;:()]", topics[k].lower()) for k in sorted(topics)]
    counts = collections.Counter(word for topic in split for word in topic)
    vocabulary = ["_", *[word for word, count in counts.most_common() if count >= 5]]
    number, parts = {word: i for i, word in enumerate(vocabulary)}, []
    for test in (False, True):
        chosen = [topic for k, topic in enumerate(split) if (k % 10 == 5) == test]
        words = [number.get(word, 0) for topic in chosen for word in topic]
        whole = ng.tensor(words[: len(words) // ROWS * ROWS])
        parts.append(whole.reshape(ROWS, -1).t().contiguous())
    return vocabulary, parts[0], parts[1]


def pieces(words: ng.Tensor) -> list[tuple[ng.Tensor, ng.Tensor]]:
    """Words in order, STEPS at a time, each with the words that follow."""
    ends = range(STEPS, len(words), STEPS)
    return [(words[i - STEPS : i], words[i - STEPS + 1 : i + 1]) for i in ends]


@ng.no_grad()
def perplexity(model: LanguageModel, words: ng.Tensor) -> float:
    """How many words the model hesitates between, as it were."""
    model.eval()
    states, losses = START, []
    for x, y in pieces(words):
        scores, states = model(x, states)
        losses.append(F.cross_entropy(scores.flatten(0, 1), y.flatten()).item())
    model.train()
    return math.exp(sum(losses) / len(losses))


@ng.no_grad()
def sample(model: LanguageModel, vocabulary: list[str], first: str, length: int = 40) -> str:
    """Words drawn one after the other, those not in the vocabulary left out."""
    model.eval()
    words, states = [vocabulary.index(first)], None
    for _ in range(length):
        scores, states = model(ng.tensor([[words[-1]]]), states)
        words.append(1 + F.softmax(scores[0, 0, 1:] / 0.7, dim=0).multinomial(1).item())
    return re.sub(r" (?=[.,;:)])|(?<=\() ", "", " ".join(vocabulary[w] for w in words))


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description="Train a language model on Python's manual.")
    parser.add_argument("--compile", action="store_true", help="compile the step")
    parser.add_argument("--epochs", type=int, default=12)
    options = parser.parse_args(arguments)
    ng.manual_seed(0)
    vocabulary, train, test = texts()
    model = LanguageModel(len(vocabulary))
    optimizer = ng.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.05)

    def step(x: ng.Tensor, y: ng.Tensor, h: ng.Tensor, c: ng.Tensor) -> tuple[ng.Tensor, ...]:
        optimizer.zero_grad()
        scores, (h, c) = model(x, (h, c))
        loss = F.cross_entropy(scores.flatten(0, 1), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach(), h.detach(), c.detach()

    train_step = ng.compile(step) if options.compile else step
    losses, perplexities = [], [perplexity(model, test)]
    for _ in (progress := tqdm(range(options.epochs), desc="epochs")):
        h, c = START
        for x, y in pieces(train):
            loss, h, c = train_step(x, y, h, c)
            losses.append(loss.item())
        perplexities.append(perplexity(model, test))
        progress.set_postfix(loss=f"{losses[-1]:.2f}", perplexity=f"{perplexities[-1]:.0f}")
    print(f"perplexity of topics not read: {perplexities[0]:.0f} to {perplexities[-1]:.1f}")
    print(sample(model, vocabulary, "the"))
    plt.switch_backend("Agg")
    plt.plot(losses)
    plt.title(f"loss of each step; perplexity at the end {perplexities[-1]:.1f}")
    plt.savefig("lstm.png", dpi=120)
    plt.close()
    return perplexities[-1]


if __name__ == "__main__":
    main()
