"""Optimisers of one's own, and gradients that go elsewhere: Adam, SAM, Langevin steps, reversal."""

from __future__ import annotations

import math


def own_adam(torch, nn, F, run):
    class Adam(torch.optim.Optimizer):
        def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0):
            super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

        @torch.no_grad()
        def step(self, closure=None):
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            for group in self.param_groups:
                beta1, beta2 = group["betas"]
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    grad = p.grad
                    if grad.is_sparse:
                        raise RuntimeError("Adam does not support sparse gradients")
                    state = self.state[p]
                    if len(state) == 0:
                        state["step"] = torch.tensor(0.0)
                        state["exp_avg"] = torch.zeros_like(p, memory_format=torch.preserve_format)
                        state["exp_avg_sq"] = torch.zeros_like(p.data)
                    exp_avg, exp_avg_sq = state["exp_avg"], state["exp_avg_sq"]
                    state["step"] += 1
                    if group["weight_decay"] != 0:
                        grad = grad.add(p, alpha=group["weight_decay"])
                    exp_avg.mul_(beta1).add_(grad, alpha=1 - beta1)
                    exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                    bias1, bias2 = 1 - beta1 ** state["step"], 1 - beta2 ** state["step"]
                    denom = (exp_avg_sq.sqrt() / bias2.sqrt()).add_(group["eps"])
                    p.sub_(group["lr"] / bias1 * exp_avg / denom)
            return loss

    model = run.start(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)))
    optimizer = Adam(model.parameters(), lr=1e-2, weight_decay=1e-2)
    x, y = run.randn(5, 4), run.randn(5, 2)
    F.mse_loss(model(x), y).backward()
    optimizer.step()

    @run.step
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        run.note(loss=step(x, y))
    optimizer.load_state_dict(optimizer.state_dict())
    run.note(loss=step(x, y))


def sharpness_aware(torch, nn, F, run):
    class SAM(torch.optim.Optimizer):
        def __init__(self, params, base_optimizer, rho=0.05, **kwargs):
            super().__init__(params, dict(rho=rho, **kwargs))
            self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
            self.param_groups = self.base_optimizer.param_groups
            self.defaults.update(self.base_optimizer.defaults)

        @torch.no_grad()
        def first_step(self, zero_grad=False):
            norm = torch.norm(
                torch.stack(
                    [
                        p.grad.norm(p=2)
                        for group in self.param_groups
                        for p in group["params"]
                        if p.grad is not None
                    ]
                ),
                p=2,
            )
            for group in self.param_groups:
                scale = group["rho"] / (norm + 1e-12)
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    self.state[p]["old_p"] = p.data.clone()
                    p.add_(p.grad * scale.to(p))
            if zero_grad:
                self.zero_grad()

        @torch.no_grad()
        def second_step(self, zero_grad=False):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    p.data = self.state[p]["old_p"]
            self.base_optimizer.step()
            if zero_grad:
                self.zero_grad()

    model = run.start(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)))
    optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    x, y = run.randn(8, 4), run.randint(0, 3, (8,))

    @run.step
    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.first_step(zero_grad=True)
        F.cross_entropy(model(x), y).backward()
        optimizer.second_step(zero_grad=True)
        return loss

    for _ in range(4):
        loss = step(x, y)
        scheduler.step()
        run.note(loss=loss.item(), lr=scheduler.get_last_lr()[0])


def energy_based(torch, nn, F, run):
    """Langevin steps on inputs while the network is frozen; score matching by slices."""
    model = run.start(nn.Sequential(nn.Linear(2, 16), nn.SiLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def langevin(x, noise):
        for p in model.parameters():
            p.requires_grad = False
        x.requires_grad = True
        for eps in noise:
            model(x).sum().backward()
            x.data.add_(-0.1 * x.grad + 0.01 * eps)
            x.grad.detach_()
            x.grad.zero_()
        for p in model.parameters():
            p.requires_grad = True
        return x.detach()

    @run.step
    def step(real, fake):
        e_real, e_fake = model(real), model(fake)
        loss = e_real.mean() - e_fake.mean() + 0.1 * (e_real**2 + e_fake**2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    @run.step
    def score_step(x, v):
        x = x.clone().requires_grad_()
        (score,) = torch.autograd.grad(-model(x).sum(), x, create_graph=True)
        (gv,) = torch.autograd.grad((score * v).sum(), x, create_graph=True)
        loss = ((gv * v).sum(-1) + 0.5 * (score**2).sum(-1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        fake = langevin(run.randn(6, 2), run.randn(3, 6, 2))
        run.note(loss=step(run.randn(6, 2), fake), fake=fake)
        run.note(score=score_step(run.randn(6, 2), run.randn(6, 2).sign()))


def domain_adversarial(torch, nn, F, run):
    """A gradient that is turned round, by a factor that grows; low-rank adapters in the network."""

    class GradientReversal(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, alpha):
            ctx.alpha = alpha
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.neg() * ctx.alpha, None

    class LoRA(nn.Module):
        def __init__(self, base, r=2, alpha=4):
            super().__init__()
            self.base = base
            self.lora_a = nn.Parameter(torch.empty(r, base.in_features))
            self.lora_b = nn.Parameter(torch.zeros(base.out_features, r))
            nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))
            self.scaling = alpha / r
            for p in base.parameters():
                p.requires_grad = False

        def forward(self, x):
            return self.base(x) + (x @ self.lora_a.T @ self.lora_b.T) * self.scaling

    net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4))
    for name, module in net.named_children():
        if isinstance(module, nn.Linear):
            setattr(net, name, LoRA(module))
    domain = nn.Linear(4, 2)
    both = run.start(nn.ModuleList([net, domain]))
    trainable = [p for p in both.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=1e-2)

    @run.step
    def step(x, labels, domains, alpha):
        features = net(x)
        loss = F.cross_entropy(features, labels)
        loss = loss + F.cross_entropy(domain(GradientReversal.apply(features, alpha)), domains)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for i in range(3):
        alpha = 2.0 / (1.0 + math.exp(-10 * i / 3)) - 1
        x, labels, domains = run.randn(6, 5), run.randint(0, 4, (6,)), run.randint(0, 2, (6,))
        run.note(loss=step(x, labels, domains, alpha))
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, LoRA):
                module.base.weight += (module.lora_b @ module.lora_a) * module.scaling
