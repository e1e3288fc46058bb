"""Language models: nanoGPT's shape, word vectors."""

from __future__ import annotations

import math


def nano_gpt(torch, nn, F, run):
    vocab, block, width, heads = 19, 12, 16, 2

    class CausalSelfAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.c_attn = nn.Linear(width, 3 * width)
            self.c_proj = nn.Linear(width, width)
            self.attn_dropout = nn.Dropout(0.0)
            self.register_buffer(
                "bias", torch.tril(torch.ones(block, block)).view(1, 1, block, block)
            )

        def forward(self, x):
            B, T, C = x.size()
            q, k, v = self.c_attn(x).split(width, dim=2)
            q = q.view(B, T, heads, C // heads).transpose(1, 2)
            k = k.view(B, T, heads, C // heads).transpose(1, 2)
            v = v.view(B, T, heads, C // heads).transpose(1, 2)
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            att = self.attn_dropout(F.softmax(att, dim=-1))
            y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
            return self.c_proj(y)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width, bias=False)
            self.attn = CausalSelfAttention()
            self.mlp = nn.ModuleDict(
                dict(c_fc=nn.Linear(width, 4 * width), c_proj=nn.Linear(4 * width, width))
            )

        def forward(self, x):
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp.c_proj(F.gelu(self.mlp["c_fc"](self.ln_2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.transformer = nn.ModuleDict(
                dict(
                    wte=nn.Embedding(vocab, width),
                    wpe=nn.Embedding(block, width),
                    h=nn.ModuleList([Block() for _ in range(2)]),
                    ln_f=nn.LayerNorm(width),
                )
            )
            self.lm_head = nn.Linear(width, vocab, bias=False)
            self.transformer.wte.weight = self.lm_head.weight
            self.apply(self._init_weights)
            for pn, p in self.named_parameters():
                if pn.endswith("c_proj.weight"):
                    nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(4))

        def _init_weights(self, module):
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, mean=0.0, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, mean=0.0, std=0.02)

        def forward(self, idx, targets=None):
            device = idx.device
            b, t = idx.size()
            pos = torch.arange(0, t, dtype=torch.long, device=device)
            x = self.transformer.wte(idx) + self.transformer.wpe(pos)
            for layer in self.transformer.h:
                x = layer(x)
            x = self.transformer.ln_f(x)
            if targets is None:
                return self.lm_head(x[:, [-1], :]), None
            logits = self.lm_head(x)
            loss = F.cross_entropy(
                logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1
            )
            return logits, loss

        @torch.no_grad()
        def generate(self, idx, max_new_tokens, temperature=1.0, top_k=None):
            for _ in range(max_new_tokens):
                idx_cond = idx if idx.size(1) <= block else idx[:, -block:]
                logits, _ = self(idx_cond)
                logits = logits[:, -1, :] / temperature
                if top_k is not None:
                    v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                    logits[logits < v[:, [-1]]] = -float("Inf")
                probs = F.softmax(logits, dim=-1)
                idx = torch.cat((idx, probs.argmax(dim=-1, keepdim=True)), dim=1)
            return idx

    model = run.start(GPT())
    param_dict = {pn: p for pn, p in model.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in param_dict.values() if p.dim() >= 2], "weight_decay": 0.1},
            {"params": [p for p in param_dict.values() if p.dim() < 2], "weight_decay": 0.0},
        ],
        lr=1e-3,
        betas=(0.9, 0.95),
    )

    def get_lr(it):
        if it < 2:
            return 1e-2 * (it + 1) / 2
        return 1e-3 + 0.5 * (1.0 + math.cos(math.pi * (it - 2) / 4)) * 9e-3

    data = run.randint(0, vocab, (200,))

    def get_batch():
        ix = run.randint(0, len(data) - block, (4,))
        x = torch.stack([data[i : i + block] for i in ix])
        y = torch.stack([data[i + 1 : i + 1 + block] for i in ix])
        return x, y

    @run.step
    def train_step(x, y):
        logits, loss = model(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    model.train()
    for it in range(5):
        for param_group in optimizer.param_groups:
            param_group["lr"] = get_lr(it)
        run.note(loss=train_step(*get_batch()).item())
    model.eval()
    run.note(written=model.generate(torch.zeros((1, 1), dtype=torch.long), 14, 0.8, top_k=5))


def word2vec(torch, nn, F, run):
    vocab, dim = 30, 10

    class SkipGram(nn.Module):
        def __init__(self):
            super().__init__()
            self.center = nn.Embedding(vocab, dim)
            self.context = nn.EmbeddingBag(vocab, dim, mode="mean")
            self.context.weight.data.uniform_(-0.5 / dim, 0.5 / dim)

        def forward(self, words, bags, offsets, negatives):
            v = self.center(words)
            u = self.context(bags, offsets)
            positive = F.logsigmoid((u * v).sum(dim=1))
            neg = F.embedding(negatives, self.context.weight)
            score = torch.bmm(neg, v.unsqueeze(2)).squeeze(2)
            return -(positive + F.logsigmoid(-score).sum(1)).mean()

    model = run.start(SkipGram())
    freqs = run.rand(vocab).pow(0.75)
    weights = freqs / freqs.sum()
    drawn = torch.multinomial(weights, 12, replacement=True)
    assert drawn.shape == (12,) and int(drawn.max()) < vocab
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9, nesterov=True)

    @run.step
    def step(words, bags, offsets, negatives):
        model.zero_grad()
        loss = model(words, bags, offsets, negatives)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(4):
        words, negatives = run.randint(0, vocab, (6,)), run.randint(0, vocab, (6, 5))
        bags, offsets = run.randint(0, vocab, (20,)), torch.LongTensor([0, 2, 6, 9, 9, 15])
        run.note(loss=float(step(words, bags, offsets, negatives)))
    normed = F.normalize(model.center.weight.detach(), p=2, dim=1)
    similar, ids = (normed @ normed.T).fill_diagonal_(-1.0).topk(3, dim=-1)
    run.note(similar=similar, ids=ids)
