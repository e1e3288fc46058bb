"""Models of densities: a flow, mixtures."""

from __future__ import annotations

import math


def real_nvp(torch, nn, F, run):
    D = torch.distributions

    class Coupling(nn.Module):
        def __init__(self, mask):
            super().__init__()
            self.register_buffer("mask", mask)
            self.s = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4), nn.Tanh())
            self.t = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))

        def forward(self, x):
            kept = self.mask * x
            s, t = self.s(kept) * (1 - self.mask), self.t(kept) * (1 - self.mask)
            return kept + (1 - self.mask) * (x * torch.exp(s) + t), s.sum(dim=-1)

        def inverse(self, z):
            kept = self.mask * z
            s, t = self.s(kept), self.t(kept)
            return kept + (1 - self.mask) * (z - t) * torch.exp(-s)

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            mask = torch.tensor([1.0, 0.0] * 2).to(torch.get_default_dtype())
            self.layers = nn.ModuleList(Coupling(mask if i % 2 else 1 - mask) for i in range(4))

        def log_prob(self, x):
            base = D.Independent(D.Normal(torch.zeros_like(x), torch.ones_like(x)), 1)
            total = x.new_zeros(x.shape[0])
            for layer in self.layers:
                x, ldj = layer(x)
                total = total + ldj
            return base.log_prob(x) + total

    flow = run.start(Flow())
    optimizer = torch.optim.Adamax(flow.parameters(), lr=5e-3)

    @run.step
    def step(x):
        loss = -flow.log_prob(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        run.note(loss=step(run.randn(16, 4)).item())
    with torch.no_grad():
        z = run.randn(5, 4)
        for layer in reversed(flow.layers):
            z = layer.inverse(z)
        run.note(sampled=z)


def mixture_density(torch, nn, F, run):
    class MDN(nn.Module):
        def __init__(self, hidden=12, k=3):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(1, hidden), nn.Tanh())
            self.pi, self.mu = nn.Linear(hidden, k), nn.Linear(hidden, k)
            self.sigma = nn.Linear(hidden, k)

        def forward(self, x):
            h = self.body(x)
            return self.pi(h).log_softmax(-1), self.mu(h), F.softplus(self.sigma(h)) + 1e-3

    def mixture(model, x):
        log_pi, mu, sigma = model(x)
        return torch.distributions.MixtureSameFamily(
            torch.distributions.Categorical(logits=log_pi), torch.distributions.Normal(mu, sigma)
        )

    model = run.start(MDN())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x = torch.linspace(-1, 1, 32, dtype=torch.get_default_dtype()).unsqueeze(-1)
    y = x + 0.3 * torch.sin(2 * math.pi * x) + 0.05 * run.randn(32, 1)

    @run.step
    def step(x, y):
        log_pi, mu, sigma = model(x)
        exponent = -((y.expand_as(mu) - mu) ** 2) / (2 * sigma**2)
        by_hand = torch.logsumexp(
            log_pi + exponent - torch.log(sigma) - 0.5 * math.log(2 * math.pi), dim=1
        )
        loss = -mixture(model, x).log_prob(y.squeeze(-1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, (by_hand.mean() + loss).abs()

    for _ in range(4):
        loss, apart = step(y, x)
        run.note(loss=loss.item(), apart=apart.item() < 1e-5)
    run.note(mean=mixture(model, x).mean, variance=mixture(model, x).variance)
    assert mixture(model, x).sample((3,)).shape == (3, 32)
