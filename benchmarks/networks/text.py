"""Networks of words: language models, translation, tags, vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from .network import Network, Task, integers, normal, task


def rotation(length: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine (length, width) of the angles by which queries and keys are turned."""
    rates = 1e4 ** (-np.arange(0, width, 2) / width)
    angles = np.tile(np.arange(length)[:, None] * rates, 2).astype(np.float32)
    return np.cos(angles), np.sin(angles)


def grouped_attention(lib: Any, width: int, heads: int) -> Any:
    """A class: causal attention with rotary places whose keys serve two heads each."""
    nn, F = lib.nn, lib.nn.functional

    def turned(x: Any, cosine: Any, sine: Any) -> Any:
        half = x.shape[-1] // 2
        return x * cosine + lib.cat([-x[..., half:], x[..., :half]], -1) * sine

    class Attention(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query = nn.Linear(width, width, bias=False)
            self.key = nn.Linear(width, width // 2, bias=False)
            self.value = nn.Linear(width, width // 2, bias=False)
            self.out = nn.Linear(width, width, bias=False)

        def forward(self, x: Any, cosine: Any, sine: Any) -> Any:
            b, t, _ = x.shape
            q = self.query(x).view(b, t, heads, -1).transpose(1, 2)
            k = self.key(x).view(b, t, heads // 2, -1).transpose(1, 2)
            v = self.value(x).view(b, t, heads // 2, -1).transpose(1, 2)
            q, k = turned(q, cosine, sine), turned(k, cosine, sine)
            k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(seen.transpose(1, 2).reshape(b, t, width))

    return Attention


def llama(lib: Any) -> Task:
    """Three layers of width 128: rotary places, shared keys, gated SiLU; 8 texts of 64 words.

    Touvron et al., 2023; shared keys: Ainslie et al., 2023.
    """
    nn, F = lib.nn, lib.nn.functional
    width, heads, length, words = 128, 4, 64, 1000
    attention = grouped_attention(lib, width, heads)

    class Block(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1 = nn.RMSNorm(width)
            self.attention = attention()
            self.norm2 = nn.RMSNorm(width)
            self.gate = nn.Linear(width, 352, bias=False)
            self.up = nn.Linear(width, 352, bias=False)
            self.down = nn.Linear(352, width, bias=False)

        def forward(self, x: Any, cosine: Any, sine: Any) -> Any:
            x = x + self.attention(self.norm1(x), cosine, sine)
            h = self.norm2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Llama(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(words, width)
            self.blocks = nn.ModuleList([Block() for _ in range(3)])
            self.norm = nn.RMSNorm(width)
            cosine, sine = rotation(length, width // heads)
            self.register_buffer("cosine", lib.from_numpy(cosine))
            self.register_buffer("sine", lib.from_numpy(sine))

        def forward(self, x: Any) -> Any:
            x = self.embedding(x)
            for block in self.blocks:
                x = block(x, self.cosine, self.sine)
            return F.linear(self.norm(x), self.embedding.weight)

    module = Llama()

    def loss(x: Any, y: Any) -> Any:
        return F.cross_entropy(module(x).view(-1, words), y.view(-1))

    data = integers(words, 8, length), integers(words, 8, length, seed=1)
    return task(lib, module, loss, data, "AdamW")


def bert(lib: Any) -> Task:
    """Two layers of width 128 that guess the masked words of 16 padded texts of 64.

    Devlin et al., 2019.
    """
    nn, F = lib.nn, lib.nn.functional
    words, length = 1000, 64

    class Bert(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(128, 4, 512, 0.1, "gelu", batch_first=True)
            self.words = nn.Embedding(words, 128)
            self.places = nn.Embedding(length, 128)
            self.norm = nn.LayerNorm(128)
            self.dropout = nn.Dropout(0.1)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(128, words)

        def forward(self, x: Any, padding: Any) -> Any:
            h = self.dropout(self.norm(self.words(x) + self.places(lib.arange(length))))
            return self.head(self.encoder(h, src_key_padding_mask=padding))

    module = Bert()

    def loss(x: Any, padding: Any, y: Any) -> Any:
        return F.cross_entropy(module(x, padding).transpose(1, 2), y, ignore_index=-100)

    padding = np.arange(length) >= 4 + integers(60, 16, 1, seed=2)
    masked = np.random.default_rng(3).random((16, length)) < 0.15
    y = np.where(masked, integers(words, 16, length, seed=1), -100)
    return task(lib, module, loss, (integers(words, 16, length), padding, y), "AdamW")


def lstm_language_model(lib: Any) -> Task:
    """Two LSTM layers of width 200 with tied embeddings, 20 texts of 35 words, clipped gradients.

    Zaremba, Sutskever and Vinyals, 2014.
    """
    nn, F = lib.nn, lib.nn.functional
    words = 2000

    class LanguageModel(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(words, 200)
            self.cells = nn.LSTM(200, 200, 2, dropout=0.2)
            self.head = nn.Linear(200, words)
            self.head.weight = self.embedding.weight
            self.dropout = nn.Dropout(0.2)

        def forward(self, x: Any) -> Any:
            h, _ = self.cells(self.dropout(self.embedding(x)))
            return self.head(self.dropout(h))

    module = LanguageModel()
    optimizer = lib.optim.SGD(module.parameters(), lr=0.1)

    def loss(x: Any, y: Any) -> Any:
        return F.cross_entropy(module(x).view(-1, words), y.view(-1))

    def step_of(compiled: Any) -> Any:
        loss_of = compiled(loss)

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            value = loss_of(x, y)
            value.backward()
            nn.utils.clip_grad_norm_(module.parameters(), 0.25)
            optimizer.step()
            return value

        return step

    data = integers(words, 35, 20), integers(words, 35, 20, seed=1)
    return Task(module, data, loss, step_of)


def translation(lib: Any) -> Task:
    """A GRU reads 16 words both ways, a cell with attention writes 12; width 96, batch 16.

    Bahdanau, Cho and Bengio, 2015.
    """
    nn, F = lib.nn, lib.nn.functional
    words, width = 500, 96

    class Translator(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(words, width)
            self.encoder = nn.GRU(width, width, bidirectional=True, batch_first=True)
            self.bridge = nn.Linear(2 * width, width)
            self.cell = nn.GRUCell(3 * width, width)
            self.query = nn.Linear(width, width)
            self.key = nn.Linear(2 * width, width)
            self.score = nn.Linear(width, 1)
            self.head = nn.Linear(3 * width, words)

        def forward(self, source: Any, target: Any) -> Any:
            h, last = self.encoder(self.embedding(source))
            state = lib.tanh(self.bridge(lib.cat([last[0], last[1]], 1)))
            keys, written, out = self.key(h), self.embedding(target), []
            for t in range(target.shape[1]):
                scores = self.score(lib.tanh(self.query(state)[:, None] + keys)).squeeze(-1)
                context = lib.bmm(F.softmax(scores, -1)[:, None], h).squeeze(1)
                state = self.cell(lib.cat([written[:, t], context], 1), state)
                out.append(self.head(lib.cat([state, context], 1)))
            return lib.stack(out, 1)

    module = Translator()

    def loss(source: Any, target: Any, y: Any) -> Any:
        return F.cross_entropy(module(source, target).reshape(-1, words), y.reshape(-1))

    data = (
        integers(words, 16, 16),
        integers(words, 16, 12, seed=1),
        integers(words, 16, 12, seed=2),
    )
    return task(lib, module, loss, data)


def tagger(lib: Any) -> Task:
    """A bidirectional LSTM and a conditional random field: nine tags for 16 texts of 20 words.

    Huang, Xu and Yu, 2015.
    """
    nn = lib.nn
    tags = 9

    class Tagger(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.LSTM(32, 32, bidirectional=True, batch_first=True)
            self.head = nn.Linear(64, tags)
            self.transitions = nn.Parameter(lib.zeros(tags, tags))

        def total(self, scores: Any) -> Any:
            """The logarithm of the sum over all ways to tag a text."""
            ways = scores[:, 0]
            for t in range(1, scores.shape[1]):
                ways = lib.logsumexp(ways[:, :, None] + self.transitions[None], 1) + scores[:, t]
            return lib.logsumexp(ways, 1)

        def forward(self, x: Any, y: Any) -> Any:
            scores = self.head(self.cells(x)[0])
            of_words = scores.gather(2, y[:, :, None]).squeeze(2).sum(1)
            of_pairs = self.transitions[y[:, :-1], y[:, 1:]].sum(1)
            return (self.total(scores) - of_words - of_pairs).mean()

    module = Tagger()
    return task(lib, module, module, (normal(16, 20, 32), integers(tags, 16, 20)))


def word2vec(lib: Any) -> Task:
    """Vectors of 64 for 5000 words: 512 pairs, five words drawn against each.

    Mikolov et al., 2013.
    """
    nn, F = lib.nn, lib.nn.functional
    words = 5000

    class SkipGram(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.centres = nn.Embedding(words, 64)
            self.contexts = nn.Embedding(words, 64)

        def forward(self, centre: Any, context: Any, others: Any) -> Any:
            vector = self.centres(centre)
            right = (vector * self.contexts(context)).sum(-1)
            wrong = lib.bmm(self.contexts(others), vector[:, :, None]).squeeze(-1)
            return -(F.logsigmoid(right) + F.logsigmoid(-wrong).sum(-1)).mean()

    module = SkipGram()
    data = integers(words, 512), integers(words, 512, seed=1), integers(words, 512, 5, seed=2)
    return task(lib, module, module, data)


NETWORKS = (
    Network("Llama", llama),
    Network("BERT", bert, random=True),
    Network("LSTM language model", lstm_language_model, random=True),
    Network("translation with attention", translation),
    Network("tagger with a random field", tagger),
    Network("word2vec", word2vec),
)
