"""Discrete structure and rays: a CRF over an LSTM, vector quantisation, contrast with a queue."""

from __future__ import annotations

import math


def crf(torch, nn, F, run):
    class CRF(nn.Module):
        def __init__(self, num_tags):
            super().__init__()
            self.start = nn.Parameter(torch.empty(num_tags))
            self.end = nn.Parameter(torch.empty(num_tags))
            self.transitions = nn.Parameter(torch.empty(num_tags, num_tags))
            for p in self.parameters():
                nn.init.uniform_(p, -0.1, 0.1)

        def score(self, emissions, tags, mask):
            length, batch = tags.shape
            mask = mask.to(emissions.dtype)
            score = self.start[tags[0]]
            score += emissions[0, torch.arange(batch), tags[0]]
            for i in range(1, length):
                score += self.transitions[tags[i - 1], tags[i]] * mask[i]
                score += emissions[i, torch.arange(batch), tags[i]] * mask[i]
            ends = mask.long().sum(dim=0) - 1
            return score + self.end[tags[ends, torch.arange(batch)]]

        def normalizer(self, emissions, mask):
            score = self.start + emissions[0]
            for i in range(1, emissions.size(0)):
                following = torch.logsumexp(
                    score.unsqueeze(2) + self.transitions + emissions[i].unsqueeze(1), dim=1
                )
                score = torch.where(mask[i].unsqueeze(1), following, score)
            return torch.logsumexp(score + self.end, dim=1)

        def decode(self, emissions):
            score, history = self.start + emissions[0], []
            for i in range(1, emissions.size(0)):
                score, best = (
                    score.unsqueeze(2) + self.transitions + emissions[i].unsqueeze(1)
                ).max(dim=1)
                history.append(best)
            path = [(score + self.end).max(dim=1)[1]]
            for best in reversed(history):
                path.append(best.gather(1, path[-1].unsqueeze(1)).squeeze(1))
            return torch.stack(path[::-1])

    model = run.start(
        nn.ModuleDict(
            {"lstm": nn.LSTM(5, 4, bidirectional=True), "fc": nn.Linear(8, 3), "crf": CRF(3)}
        )
    )
    x, tags = run.randn(6, 2, 5), run.randint(0, 3, (6, 2))
    mask = torch.tensor([[1, 1]] * 4 + [[1, 0]] * 2, dtype=torch.bool)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    @run.step
    def step(x, tags):
        optimizer.zero_grad()
        emissions = model["fc"](model["lstm"](x)[0])
        likelihood = model["crf"].score(emissions, tags, mask)
        likelihood -= model["crf"].normalizer(emissions, mask)
        loss = -likelihood.mean()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        run.note(loss=step(x, tags))
    run.note(decoded=model["crf"].decode(model["fc"](model["lstm"](x)[0])))


def vq_vae(torch, nn, F, run):
    class VectorQuantizer(nn.Module):
        def __init__(self, codes, dim, decay=0.9):
            super().__init__()
            self.decay = decay
            self.register_buffer("embed", run.randn(codes, dim))
            self.register_buffer("size", torch.ones(codes))
            self.register_buffer("mean", self.embed.clone())

        def forward(self, z):
            flat = z.permute(0, 2, 3, 1).contiguous().view(-1, z.shape[1])
            distance = (
                flat.pow(2).sum(dim=1, keepdim=True)
                + self.embed.pow(2).sum(dim=1)
                - 2 * flat @ self.embed.t()
            )
            codes = torch.argmin(distance, dim=1).unsqueeze(1)
            one_hot = torch.zeros(codes.shape[0], len(self.embed)).to(z).scatter_(1, codes, 1)
            b, c, h, w = z.shape
            quantised = (one_hot @ self.embed).view(b, h, w, c).permute(0, 3, 1, 2)
            if self.training:
                with torch.no_grad():
                    self.size.mul_(self.decay).add_(one_hot.sum(0), alpha=1 - self.decay)
                    self.mean.mul_(self.decay).add_(one_hot.t() @ flat, alpha=1 - self.decay)
                    n = self.size.sum()
                    size = (self.size + 1e-5) / (n + len(self.embed) * 1e-5) * n
                    self.embed.copy_(self.mean / size.unsqueeze(1))
            loss = 0.25 * F.mse_loss(quantised.detach(), z)
            quantised = z + (quantised - z).detach()
            usage = one_hot.mean(0)
            return quantised, loss, torch.exp(-(usage * torch.log(usage + 1e-10)).sum())

    encoder, decoder = nn.Conv2d(1, 4, 4, 2, 1), nn.ConvTranspose2d(4, 1, 4, 2, 1)
    model = run.start(nn.ModuleList([encoder, VectorQuantizer(6, 4), decoder]))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    @run.step
    def step(x):
        optimizer.zero_grad()
        quantised, loss, perplexity = model[1](encoder(x))
        loss = loss + F.mse_loss(decoder(quantised), x)
        loss.backward()
        optimizer.step()
        return loss, perplexity

    for _ in range(3):
        loss, perplexity = step(run.randn(3, 1, 8, 8))
        run.note(loss=loss, perplexity=perplexity)


def radiance_field(torch, nn, F, run):
    def encode(x, levels=3):
        waves = [f(2.0**i * math.pi * x) for i in range(levels) for f in (torch.sin, torch.cos)]
        return torch.cat([x, *waves], dim=-1)

    def sample_pdf(bins, weights, u):
        pdf = (weights + 1e-5) / torch.sum(weights + 1e-5, -1, keepdim=True)
        cdf = torch.cumsum(pdf, -1)
        cdf = torch.cat([torch.zeros_like(cdf[..., :1]), cdf], -1)
        inds = torch.searchsorted(cdf, u.contiguous(), right=True)
        below = torch.max(torch.zeros_like(inds - 1), inds - 1)
        above = torch.min((cdf.shape[-1] - 1) * torch.ones_like(inds), inds)
        both = torch.stack([below, above], -1)
        shape = [both.shape[0], both.shape[1], cdf.shape[-1]]
        cdf_both = torch.gather(cdf.unsqueeze(1).expand(shape), 2, both)
        bins_both = torch.gather(bins.unsqueeze(1).expand(shape), 2, both)
        width = cdf_both[..., 1] - cdf_both[..., 0]
        width = torch.where(width < 1e-5, torch.ones_like(width), width)
        t = (u - cdf_both[..., 0]) / width
        return bins_both[..., 0] + t * (bins_both[..., 1] - bins_both[..., 0])

    def render(origins, directions, depths):
        points = origins[..., None, :] + directions[..., None, :] * depths[..., :, None]
        raw = model(encode(points))
        gaps = depths[..., 1:] - depths[..., :-1]
        gaps = torch.cat([gaps, torch.tensor([1e10]).to(gaps).expand(gaps[..., :1].shape)], -1)
        alpha = 1.0 - torch.exp(-F.relu(raw[..., 3]) * gaps * directions[..., None, :].norm(dim=-1))
        clear = torch.cumprod(
            torch.cat([torch.ones((alpha.shape[0], 1)).to(alpha), 1.0 - alpha + 1e-10], -1), -1
        )[:, :-1]
        weights = alpha * clear
        return torch.sum(weights[..., None] * torch.sigmoid(raw[..., :3]), -2), weights

    model = run.start(nn.Sequential(nn.Linear(21, 16), nn.ReLU(), nn.Linear(16, 4)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    @run.step
    def step(origins, directions, u, colours):
        coarse = torch.linspace(2.0, 6.0, 8).to(origins).expand(origins.shape[0], 8)
        rgb, weights = render(origins, directions, coarse)
        middle = 0.5 * (coarse[..., 1:] + coarse[..., :-1])
        fine = sample_pdf(middle, weights[..., 1:-1].detach(), u)
        depths, _ = torch.sort(torch.cat([coarse, fine], -1), -1)
        rgb_fine, _ = render(origins, directions, depths)
        loss = F.mse_loss(rgb, colours) + F.mse_loss(rgb_fine, colours)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, -10.0 * torch.log10(loss)

    for _ in range(3):
        loss, psnr = step(run.randn(5, 3), run.randn(5, 3), run.rand(5, 6), run.rand(5, 3))
        run.note(loss=loss, psnr=psnr)


def queue_contrast(torch, nn, F, run):
    """MoCo's queue of keys, a slow encoder, and the decorrelation of Barlow twins."""

    def off_diagonal(x):
        n, m = x.shape
        assert n == m
        return x.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()

    fast = run.start(nn.Linear(6, 5))
    slow = nn.Linear(6, 5)
    for p_fast, p_slow in zip(fast.parameters(), slow.parameters(), strict=True):
        p_slow.data.copy_(p_fast.data)
        p_slow.requires_grad = False
    run.models.append(slow)
    norm = nn.BatchNorm1d(5, affine=False)
    queue, pointer = F.normalize(run.randn(5, 8), dim=0), torch.zeros(1, dtype=torch.long)
    optimizer = torch.optim.SGD(fast.parameters(), lr=0.1)

    @run.step
    def step(a, b):
        with torch.no_grad():
            for p_fast, p_slow in zip(fast.parameters(), slow.parameters(), strict=True):
                p_slow.data = p_slow.data * 0.9 + p_fast.data * 0.1
            keys = F.normalize(slow(b), dim=1)
        queries = F.normalize(fast(a), dim=1)
        positive = torch.einsum("nc,nc->n", [queries, keys]).unsqueeze(-1)
        negative = torch.einsum("nc,ck->nk", [queries, queue.clone().detach()])
        logits = torch.cat([positive, negative], dim=1) / 0.2
        contrast = F.cross_entropy(logits, torch.zeros(logits.shape[0], dtype=torch.long))
        c = norm(fast(a)).T @ norm(fast(b))
        c.div_(a.shape[0])
        on = torch.diagonal(c).add_(-1).pow_(2).sum()
        loss = contrast + 0.01 * (on + 0.005 * off_diagonal(c).pow_(2).sum())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, keys

    for _ in range(3):
        loss, keys = step(run.randn(4, 6), run.randn(4, 6))
        ptr = int(pointer)
        queue[:, ptr : ptr + 4] = keys.T
        pointer[0] = (ptr + 4) % queue.shape[1]
        run.note(loss=loss, queue=queue, mean=norm.running_mean)
