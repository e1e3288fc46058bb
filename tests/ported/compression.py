"""Smaller networks: taught by a larger one, with few bits."""

from __future__ import annotations


def distillation(torch, nn, F, run):
    teacher = run.start(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4)))
    student = run.start(nn.Sequential(nn.Linear(10, 6), nn.Hardswish(), nn.Linear(6, 4)))
    teacher.requires_grad_(False).eval()
    T, alpha = 4.0, 0.7
    optimizer = torch.optim.NAdam(student.parameters(), lr=1e-2)
    x, y = run.randn(16, 10), run.randint(0, 4, (16,))
    ce = nn.CrossEntropyLoss(reduction="none", weight=torch.tensor([1.0, 2.0, 1.0, 0.5]).to(x))

    @run.step
    def step(x, y):
        with torch.inference_mode():
            teacher_logits = teacher(x)
        logits = student(x)
        soft = F.kl_div(
            F.log_softmax(logits / T, dim=1),
            F.softmax(teacher_logits / T, dim=1),
            reduction="batchmean",
        ) * (T * T)
        hard = ce(logits, y).mean()
        loss = alpha * soft + (1 - alpha) * hard
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss, "soft": soft, "hard": hard}

    for _ in range(4):
        run.note(**{k: v.item() for k, v in step(x, y).items()})


def quantised(torch, nn, F, run):
    class RoundSTE(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale, low, high):
            ctx.save_for_backward(x, scale)
            ctx.low, ctx.high = low, high
            return torch.clamp(torch.round(x / scale), low, high) * scale

        @staticmethod
        def backward(ctx, grad_output):
            x, scale = ctx.saved_tensors
            inside = (x / scale >= ctx.low) & (x / scale <= ctx.high)
            grad_input = grad_output.clone()
            grad_input[~inside] = 0
            grad_scale = None
            if ctx.needs_input_grad[1]:
                q = x / scale
                slope = torch.where(inside, q.round() - q, q.clamp(ctx.low, ctx.high))
                grad_scale = (grad_output * slope).sum().reshape(scale.shape)
            return grad_input, grad_scale, None, None

    class BinarizeF(torch.autograd.Function):
        @staticmethod
        def forward(ctx, input):
            ctx.save_for_backward(input)
            return input.sign()

        @staticmethod
        def backward(ctx, grad_output):
            (input,) = ctx.saved_tensors
            return grad_output.masked_fill(input.abs() > 1, 0.0)

    class QuantLinear(nn.Linear):
        def __init__(self, in_features, out_features, bits=4):
            super().__init__(in_features, out_features)
            self.bits = bits
            self.scale = nn.Parameter(torch.tensor(0.1))
            self.register_buffer("running_max", torch.tensor(0.0))

        def forward(self, x):
            if self.training:
                with torch.no_grad():
                    self.running_max.mul_(0.9).add_(0.1 * x.detach().abs().max())
            high = 2 ** (self.bits - 1) - 1
            w = RoundSTE.apply(self.weight, self.scale, -high - 1, high)
            step = self.running_max / high
            x_q = x + (torch.round(x / step).clamp(-high, high) * step - x).detach()
            return F.linear(x_q, w, self.bias)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = QuantLinear(6, 12), QuantLinear(12, 3)

        def forward(self, x):
            return self.fc2(BinarizeF.apply(self.fc1(x)))

    model = run.start(Net())
    model.apply(lambda m: m.scale.data.fill_(0.1) if isinstance(m, QuantLinear) else None)
    optimizer = torch.optim.RAdam(model.parameters(), lr=1e-2)
    x, y = run.randn(16, 6), run.randint(0, 3, (16,))
    criterion = nn.MultiMarginLoss()

    @run.step
    def step(x, y):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(4):
        run.note(loss=step(x, y).item())
