"""Ways to train: meta-learning, contrast, experts, speech."""

from __future__ import annotations


def maml(torch, nn, F, run):
    functional_call, grad, vmap = torch.func.functional_call, torch.func.grad, torch.func.vmap

    model = run.start(
        nn.Sequential(nn.Linear(1, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 1))
    )
    meta_optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def loss_on(params, x, y):
        return F.mse_loss(functional_call(model, params, (x,)), y)

    def adapted(params, x, y, x_test, y_test):
        grads = grad(loss_on)(params, x, y)
        fast = {k: p - 0.05 * grads[k] for k, p in params.items()}
        return loss_on(fast, x_test, y_test)

    @run.step
    def meta_step(x, y, x_test, y_test):
        params = dict(model.named_parameters())
        losses = vmap(adapted, in_dims=(None, 0, 0, 0, 0))(params, x, y, x_test, y_test)
        meta_optimizer.zero_grad()
        losses.mean().backward()
        meta_optimizer.step()
        return losses

    @run.step
    def second_order_step(x, y, x_test, y_test):
        meta_loss = 0.0
        for i in range(2):
            weights = list(model.parameters())
            out = F.mse_loss(model(x[i]), y[i])
            grads = torch.autograd.grad(out, weights, create_graph=True)
            names = [name for name, _ in model.named_parameters()]
            fast = {n: w - 0.05 * g for n, w, g in zip(names, weights, grads, strict=True)}
            meta_loss = meta_loss + loss_on(fast, x_test[i], y_test[i])
        meta_optimizer.zero_grad()
        meta_loss.backward()
        meta_optimizer.step()
        return meta_loss

    for _ in range(2):
        amplitude, phase = run.rand(3, 1, 1) * 4 + 0.1, run.rand(3, 1, 1) * 3.14
        x, x_test = run.rand(3, 5, 1) * 10 - 5, run.rand(3, 5, 1) * 10 - 5
        y, y_test = amplitude * torch.sin(x + phase), amplitude * torch.sin(x_test + phase)
        run.note(losses=meta_step(x, y, x_test, y_test))
        run.note(second=second_order_step(x, y, x_test, y_test).item())


def simclr(torch, nn, F, run):
    class SimCLR(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(
                nn.Conv2d(1, 4, 3, stride=2, padding=1),
                nn.BatchNorm2d(4),
                nn.ReLU(),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
            )
            self.projector = nn.Sequential(
                nn.Linear(4, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8)
            )

        def forward(self, x):
            return self.projector(self.encoder(x))

    model = run.start(SimCLR())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=2)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3, eta_min=1e-3)
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], milestones=[2])

    def info_nce_loss(features, batch, temperature=0.5):
        labels = torch.cat([torch.arange(batch) for _ in range(2)], dim=0)
        labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).float()
        features = F.normalize(features, dim=1)
        similarity_matrix = torch.matmul(features, features.T)
        mask = torch.eye(labels.shape[0], dtype=torch.bool)
        labels = labels[~mask].view(labels.shape[0], -1)
        similarity_matrix = similarity_matrix[~mask].view(similarity_matrix.shape[0], -1)
        positives = similarity_matrix[labels.bool()].view(labels.shape[0], -1)
        negatives = similarity_matrix[~labels.bool()].view(similarity_matrix.shape[0], -1)
        logits = torch.cat([positives, negatives], dim=1) / temperature
        return logits, torch.zeros(logits.shape[0], dtype=torch.long)

    def nt_xent(z1, z2, temperature=0.5):
        z = F.normalize(torch.cat([z1, z2]), dim=-1)
        sim = z @ z.mT / temperature
        n = z1.size(0)
        sim.fill_diagonal_(float("-inf"))
        return F.cross_entropy(sim, torch.arange(2 * n).roll(n))

    @run.step
    def step(a, b):
        za, zb = model(torch.cat([a, b])).chunk(2)
        loss = nt_xent(za, zb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, torch.cat([za, zb])

    for _ in range(4):
        view = run.randn(5, 1, 8, 8)
        loss, features = step(view + 0.1 * run.randn(5, 1, 8, 8), view.flip(-1))
        scheduler.step()
        logits, labels = info_nce_loss(features.detach(), 5)
        top1 = (logits.topk(5, 1)[1].t() == labels.view(1, -1))[:1].reshape(-1).float().sum(0)
        other = F.cross_entropy(logits, labels)
        run.note(loss=loss.item(), other=other.item(), top1=top1, lr=scheduler.get_last_lr()[0])


def mixture_of_experts(torch, nn, F, run):
    class Expert(nn.Module):
        def __init__(self, dim, hidden):
            super().__init__()
            self.w1, self.w2 = (
                nn.Linear(dim, hidden, bias=False),
                nn.Linear(hidden, dim, bias=False),
            )
            self.w3 = nn.Linear(dim, hidden, bias=False)

        def forward(self, x):
            return self.w2(F.silu(self.w1(x)) * self.w3(x))

    class SparseMoE(nn.Module):
        """Each expert takes the rows that chose it, as Mixtral does."""

        def __init__(self, dim=8, experts=4, top_k=2):
            super().__init__()
            self.gate = nn.Linear(dim, experts, bias=False)
            self.experts = nn.ModuleList([Expert(dim, 16) for _ in range(experts)])
            self.top_k = top_k

        def forward(self, x):
            logits = self.gate(x)
            weights, selected = torch.topk(logits, self.top_k)
            weights = F.softmax(weights, dim=1, dtype=torch.float).to(x.dtype)
            results = torch.zeros_like(x)
            for i, expert in enumerate(self.experts):
                batch_idx, nth_expert = torch.where(selected == i)
                results.index_add_(
                    0, batch_idx, weights[batch_idx, nth_expert, None] * expert(x[batch_idx])
                )
            return results, logits, selected

    class DenseMoE(SparseMoE):
        """Each expert takes all rows: no shape depends on values."""

        def forward(self, x):
            logits = self.gate(x)
            weights, selected = logits.topk(self.top_k, dim=-1)
            gates = torch.zeros_like(logits).scatter(1, selected, weights.softmax(-1))
            outs = torch.stack([expert(x) for expert in self.experts], dim=1)
            return (gates.unsqueeze(-1) * outs).sum(dim=1), logits, selected

    def balance(logits, selected, experts=4):
        probs = logits.softmax(dim=-1)
        mask = F.one_hot(selected, experts).float().sum(dim=1)
        return experts * (mask.mean(0) * probs.mean(dim=0)).sum()

    x, y = run.randn(12, 8), run.randn(12, 8)
    for kind, wrapped in ((SparseMoE, lambda f: f), (DenseMoE, run.step)):
        moe = run.start(kind())
        # Not Adam: of a gradient near 0 it would make the last bit of a softmax in float32 much.
        optimizer = torch.optim.SGD(moe.parameters(), lr=1e-1, momentum=0.9)

        def step(x, y, moe=moe, optimizer=optimizer):
            out, logits, selected = moe(x)
            loss = F.huber_loss(out, y) + 0.01 * balance(logits, selected).to(out.dtype)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        step = wrapped(step)
        for _ in range(3):
            run.note(**{kind.__name__: step(x, y).item()})


def speech(torch, nn, F, run):
    class CNNLayerNorm(nn.Module):
        def __init__(self, n_feats):
            super().__init__()
            self.layer_norm = nn.LayerNorm(n_feats)

        def forward(self, x):
            x = x.transpose(1, 2).contiguous()
            x = self.layer_norm(x)
            return x.transpose(1, 2).contiguous()

    class SpeechNet(nn.Module):
        def __init__(self, n_feats=8, hidden=10, n_class=6):
            super().__init__()
            self.cnn = nn.Conv1d(n_feats, hidden, 5, stride=2, padding=2)
            self.norm = CNNLayerNorm(hidden)
            self.rnn = nn.LSTM(
                hidden, hidden, num_layers=2, batch_first=True, bidirectional=True, dropout=0.0
            )
            self.dense = nn.Sequential(
                nn.Linear(2 * hidden, hidden), nn.LayerNorm(hidden), nn.GELU(), nn.Dropout(0.0)
            )
            self.final = nn.Linear(hidden, n_class)

        def init_hidden(self, batch, hs):
            return (torch.zeros(4, batch, 10).to(hs), torch.zeros(4, batch, 10).to(hs))

        def forward(self, x):
            x = F.gelu(self.norm(self.cnn(x))).permute(0, 2, 1)
            self.rnn.flatten_parameters()
            out, (hn, cn) = self.rnn(x, self.init_hidden(x.size(0), x))
            assert hn.shape == cn.shape
            return self.final(self.dense(out))

    model = run.start(SpeechNet())
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    spectrograms, labels = run.randn(3, 8, 20), run.randint(0, 6, (3, 10))
    labels[0, 7:] = -100

    @run.step
    def step(x, labels):
        logits = model(x)
        loss = F.cross_entropy(logits.transpose(1, 2), labels)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        return loss

    for _ in range(3):
        run.note(loss=step(spectrograms, labels).item())
        scheduler.step()
