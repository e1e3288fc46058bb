"""Sequences to sequences: attention over a GRU, nn.Transformer, a language model with a state."""

from __future__ import annotations

import math


def seq2seq(torch, nn, F, run):
    pad_sequence = torch.nn.utils.rnn.pad_sequence
    vocab, emb, hid, PAD, SOS = 15, 8, 12, 0, 1

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(vocab, emb, padding_idx=PAD)
            self.rnn = nn.GRU(emb, hid, batch_first=True, bidirectional=True)
            self.fc = nn.Linear(hid * 2, hid)

        def forward(self, src, src_len):
            packed = nn.utils.rnn.pack_padded_sequence(
                self.embedding(src), src_len, batch_first=True, enforce_sorted=False
            )
            outputs, hidden = self.rnn(packed)
            outputs, _ = nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True)
            hidden = torch.tanh(self.fc(torch.cat((hidden[-2, :, :], hidden[-1, :, :]), dim=1)))
            return outputs, hidden

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = nn.Linear(hid * 3, hid)
            self.v = nn.Parameter(torch.rand(hid))

        def forward(self, hidden, encoder_outputs, mask):
            src_len = encoder_outputs.shape[1]
            hidden = hidden.unsqueeze(1).repeat(1, src_len, 1)
            energy = torch.tanh(self.attn(torch.cat((hidden, encoder_outputs), dim=2)))
            attention = energy.matmul(self.v).masked_fill(mask == 0, -1e10)
            return F.softmax(attention, dim=1)

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = Attention()
            self.embedding = nn.Embedding(vocab, emb)
            self.cell = nn.GRUCell(emb + 2 * hid, hid)
            self.out = nn.Linear(hid * 3 + emb, vocab)

        def forward(self, token, hidden, encoder_outputs, mask):
            embedded = self.embedding(token)
            a = self.attention(hidden, encoder_outputs, mask).unsqueeze(1)
            weighted = torch.bmm(a, encoder_outputs).squeeze(1)
            hidden = self.cell(torch.cat([embedded, weighted], dim=-1), hidden)
            return self.out(torch.cat((hidden, weighted, embedded), dim=1)), hidden

    class Seq2Seq(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = Encoder(), Decoder()

        def forward(self, src, src_len, trg, forced):
            batch_size, trg_len = trg.shape
            outputs = torch.zeros(batch_size, trg_len, vocab)
            encoder_outputs, hidden = self.encoder(src, src_len)
            mask = src != PAD
            token = trg[:, 0]
            for t in range(1, trg_len):
                output, hidden = self.decoder(token, hidden, encoder_outputs, mask)
                outputs[:, t] = output
                token = trg[:, t] if forced[t] else output.argmax(1)
            return outputs

    lengths = [7, 4, 6]
    src = pad_sequence([run.randint(2, vocab, (n,)) for n in lengths], batch_first=True)
    trg = pad_sequence(
        [torch.cat([torch.tensor([SOS]), run.randint(2, vocab, (n,))]) for n in (5, 3, 4)],
        batch_first=True,
        padding_value=PAD,
    )
    model = run.start(Seq2Seq())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    forced = [True, True, False, True, False, True]

    @run.step
    def step(src, trg):
        optimizer.zero_grad()
        output = model(src, lengths, trg, forced)
        loss = criterion(output[:, 1:].reshape(-1, vocab), trg[:, 1:].reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1)
        optimizer.step()
        return loss

    for _ in range(4):
        run.note(loss=step(src, trg).item())


def translator(torch, nn, F, run):
    vocab, d_model = 17, 16

    class PositionalEncoding(nn.Module):
        def __init__(self, d_model, dropout=0.0, max_len=50):
            super().__init__()
            self.dropout = nn.Dropout(p=dropout)
            position = torch.arange(max_len).unsqueeze(1)
            div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
            pe = torch.zeros(1, max_len, d_model)
            pe[0, :, 0::2] = torch.sin(position * div_term)
            pe[0, :, 1::2] = torch.cos(position * div_term)
            self.register_buffer("pe", pe, persistent=False)

        def forward(self, x):
            return self.dropout(x + self.pe[:, : x.size(1)])

    class Translator(nn.Module):
        def __init__(self):
            super().__init__()
            self.src_embed, self.tgt_embed = (
                nn.Embedding(vocab, d_model),
                nn.Embedding(vocab, d_model),
            )
            self.pos = PositionalEncoding(d_model)
            self.transformer = nn.Transformer(
                d_model,
                nhead=4,
                num_encoder_layers=1,
                num_decoder_layers=2,
                dim_feedforward=32,
                dropout=0.0,
                batch_first=True,
                norm_first=True,
                activation="gelu",
            )
            self.generator = nn.Linear(d_model, vocab)

        def forward(self, src, tgt, tgt_mask, src_pad, tgt_pad):
            out = self.transformer(
                self.pos(self.src_embed(src) * math.sqrt(d_model)),
                self.pos(self.tgt_embed(tgt) * math.sqrt(d_model)),
                tgt_mask=tgt_mask,
                src_key_padding_mask=src_pad,
                tgt_key_padding_mask=tgt_pad,
                memory_key_padding_mask=src_pad,
            )
            return self.generator(out)

    model = run.start(Translator())
    for name, p in model.named_parameters():
        assert p.requires_grad, name
    src, tgt = run.randint(1, vocab, (3, 7)), run.randint(1, vocab, (3, 6))
    src[1, 5:] = 0
    tgt[2, 4:] = 0
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: d_model**-0.5 * min((s + 1) ** -0.5, (s + 1) * 10**-1.5)
    )
    criterion = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)

    @run.step
    def step(src, tgt):
        tgt_in, tgt_out = tgt[:, :-1], tgt[:, 1:]
        mask = torch.triu(torch.ones(tgt_in.size(1), tgt_in.size(1)), diagonal=1).bool()
        logits = model(src, tgt_in, mask, src == 0, tgt_in == 0)
        loss = criterion(logits.reshape(-1, vocab), tgt_out.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        run.note(loss=step(src, tgt))
        scheduler.step()
    run.note(lr=scheduler.get_last_lr()[0])


def stateful_language(torch, nn, F, run):
    """Truncated backpropagation with the state kept in the module; statistics and average weights
    that are set anew in each step."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.cell = nn.Embedding(12, 6), nn.LSTMCell(6, 8)
            self.head = nn.Linear(8, 12)
            self.register_buffer("scale", torch.ones(8))
            self.hidden = None

        def reset(self):
            self.hidden = None

        def forward(self, words):
            if self.hidden is None:
                self.hidden = tuple(torch.zeros(words.shape[1], 8) for _ in range(2))
            hidden, outputs = self.hidden, []
            for word in words:
                hidden = self.cell(self.embedding(word), hidden)
                outputs.append(hidden[0])
            self.hidden = tuple(h.detach() for h in hidden)
            states = torch.stack(outputs)
            if self.training:
                with torch.no_grad():
                    self.scale = 0.9 * self.scale + 0.1 * states.abs().amax((0, 1))
            return self.head(states / self.scale)

    model, average = run.start(Model()), nn.Linear(8, 12)
    average.load_state_dict(model.head.state_dict())
    run.models.append(average)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    counts = {"steps": torch.tensor(0)}

    @run.step
    def step(words, targets):
        loss = F.cross_entropy(model(words).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        counts["steps"] = counts["steps"] + 1
        for p, mean in zip(model.head.parameters(), average.parameters(), strict=True):
            mean.data = 0.9 * mean.data + 0.1 * p.data
        return loss

    @run.step
    @torch.no_grad()
    def judge(words):
        return model(words).logsumexp(-1).mean()

    text = run.randint(0, 12, (25, 3))
    for _ in range(2):
        model.train()
        model.reset()
        for begin in range(0, 20, 4):
            part = text[begin : begin + 5]
            run.note(loss=step(part[:-1], part[1:]), hidden=model.hidden[1], scale=model.scale)
        model.eval()
        run.note(judged=judge(text[:4]), steps=counts["steps"])
