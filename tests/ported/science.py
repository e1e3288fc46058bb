"""Equations and graphs: SIREN, PINN, neural ODE, message passing, matrix factorisation."""

from __future__ import annotations

import numpy as np


def siren(torch, nn, F, run):
    class SineLayer(nn.Module):
        def __init__(self, in_features, out_features, is_first=False, omega_0=30):
            super().__init__()
            self.omega_0, self.is_first, self.in_features = omega_0, is_first, in_features
            self.linear = nn.Linear(in_features, out_features)
            self.init_weights()

        def init_weights(self):
            with torch.no_grad():
                if self.is_first:
                    self.linear.weight.uniform_(-1 / self.in_features, 1 / self.in_features)
                else:
                    bound = np.sqrt(6 / self.in_features) / self.omega_0
                    self.linear.weight.uniform_(-bound, bound)

        def forward(self, input):
            return torch.sin(self.omega_0 * self.linear(input))

    class Siren(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(
                SineLayer(2, 16, is_first=True, omega_0=3),
                SineLayer(16, 16, omega_0=2),
                nn.Linear(16, 1),
            )

        def forward(self, coords):
            coords = coords.clone().detach().requires_grad_(True)
            return self.net(coords), coords

    def gradient(y, x, grad_outputs=None):
        if grad_outputs is None:
            grad_outputs = torch.ones_like(y)
        return torch.autograd.grad(y, [x], grad_outputs=grad_outputs, create_graph=True)[0]

    def divergence(y, x):
        div = 0.0
        for i in range(y.shape[-1]):
            div += torch.autograd.grad(y[..., i], x, torch.ones_like(y[..., i]), create_graph=True)[
                0
            ][..., i : i + 1]
        return div

    def get_mgrid(sidelen, dim=2):
        tensors = tuple(dim * [torch.linspace(-1, 1, steps=sidelen)])
        mgrid = torch.stack(torch.meshgrid(*tensors, indexing="ij"), dim=-1)
        return mgrid.reshape(-1, dim)

    model = run.start(Siren())
    optim = torch.optim.Adam(lr=1e-3, params=model.parameters())
    coords = get_mgrid(5)
    target = torch.sin(3 * coords[:, :1]) * torch.cos(2 * coords[:, 1:])

    @run.step
    def step(coords, target):
        out, x = model(coords)
        grad = gradient(out, x)
        laplace = divergence(grad, x)
        loss = ((laplace - target) ** 2).mean() + 0.1 * grad.norm(dim=-1).mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
        return loss

    for _ in range(3):
        run.note(loss=step(coords, target))


def pinn(torch, nn, F, run):
    class PINN(nn.Module):
        def __init__(self, layers):
            super().__init__()
            self.layers = nn.ModuleList(
                [nn.Linear(a, b) for a, b in zip(layers[:-1], layers[1:], strict=True)]
            )
            self.lambda_1 = nn.Parameter(torch.tensor([0.5]))
            for layer in self.layers:
                nn.init.xavier_normal_(layer.weight, gain=5 / 3)
                nn.init.zeros_(layer.bias.data)

        def forward(self, x, t):
            h = torch.cat([x, t], dim=1)
            for layer in self.layers[:-1]:
                h = torch.tanh(layer(h))
            return self.layers[-1](h)

        def residual(self, x, t):
            u = self(x, t)
            ones = torch.ones_like(u)
            u_t = torch.autograd.grad(u, t, ones, retain_graph=True, create_graph=True)[0]
            u_x = torch.autograd.grad(u, x, ones, retain_graph=True, create_graph=True)[0]
            u_xx = torch.autograd.grad(u_x, x, torch.ones_like(u_x), create_graph=True)[0]
            return u_t + self.lambda_1 * u * u_x - 0.01 * u_xx

    model = run.start(PINN([2, 10, 10, 1]))
    x_f = run.rand(20, 1).mul(2).sub(1).requires_grad_()
    t_f = run.rand(20, 1).requires_grad_()
    x_0 = torch.linspace(-1, 1, 11).view(-1, 1)
    u_0 = -torch.sin(np.pi * x_0)

    @run.step
    def loss_and_gradient():
        data = F.mse_loss(model(x_0, torch.zeros_like(x_0)), u_0)
        loss = data + model.residual(x_f, t_f).square().mean()
        loss.backward()
        return loss

    optimizer = torch.optim.LBFGS(
        model.parameters(), lr=1.0, max_iter=5, history_size=10, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        return loss_and_gradient()

    for _ in range(2):
        run.note(loss=float(optimizer.step(closure)))
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(2):
        adam.zero_grad()
        run.note(loss=loss_and_gradient().item())
        adam.step()


def neural_ode(torch, nn, F, run):
    class ODEFunc(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 2))
            for m in self.net.modules():
                if isinstance(m, nn.Linear):
                    nn.init.normal_(m.weight, mean=0, std=0.1)
                    nn.init.constant_(m.bias, val=0)

        def forward(self, t, y):
            return self.net(y**3)

    def odeint(func, y0, t):
        solution = [y0]
        for t0, t1 in zip(t[:-1], t[1:], strict=True):
            dt, y = t1 - t0, solution[-1]
            k1 = func(t0, y)
            k2 = func(t0 + dt / 2, y + dt * k1 / 2)
            k3 = func(t0 + dt / 2, y + dt * k2 / 2)
            k4 = func(t1, y + dt * k3)
            solution.append(y + (k1 + 2 * k2 + 2 * k3 + k4) * dt / 6)
        return torch.stack(solution, dim=0)

    func = run.start(ODEFunc())
    true_A = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
    t = torch.linspace(0.0, 1.0, 8)
    with torch.no_grad():
        true_y = odeint(lambda t, y: torch.mm(y**3, true_A), torch.tensor([[1.0, 0.5]]), t)
    run.note(true_y=true_y)
    optimizer = torch.optim.RMSprop(func.parameters(), lr=1e-3)

    @run.step
    def step(y0, true_y):
        optimizer.zero_grad()
        pred_y = odeint(func, y0, t)
        loss = torch.mean(torch.abs(pred_y - true_y))
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        run.note(loss=step(true_y[0], true_y))


def gnn(torch, nn, F, run):
    class GCNConv(nn.Module):
        def __init__(self, in_channels, out_channels):
            super().__init__()
            self.lin = nn.Linear(in_channels, out_channels, bias=False)
            self.bias = nn.Parameter(torch.zeros(out_channels))

        def forward(self, x, edge_index):
            row, col = edge_index
            loop = torch.arange(x.size(0), device=x.device)
            row, col = torch.cat([row, loop]), torch.cat([col, loop])
            deg = torch.zeros(x.size(0), dtype=x.dtype).scatter_add_(
                0, col, torch.ones_like(col, dtype=x.dtype)
            )
            deg_inv_sqrt = deg.pow(-0.5)
            deg_inv_sqrt[deg_inv_sqrt == float("inf")] = 0
            norm = deg_inv_sqrt[row] * deg_inv_sqrt[col]
            x = self.lin(x)
            out = torch.zeros_like(x).index_add_(0, col, norm.view(-1, 1) * x[row])
            return out + self.bias

    class GATLayer(nn.Module):
        def __init__(self, in_channels, out_channels):
            super().__init__()
            self.lin = nn.Linear(in_channels, out_channels)
            self.att = nn.Parameter(torch.empty(1, 2 * out_channels))
            nn.init.xavier_uniform_(self.att, gain=nn.init.calculate_gain("relu"))

        def forward(self, x, edge_index):
            src, dst = edge_index[0], edge_index[1]
            h = self.lin(x)
            e = F.leaky_relu((torch.cat([h[src], h[dst]], -1) * self.att).sum(-1), 0.2)
            top = torch.full((x.shape[0],), -1e9).to(e).scatter_reduce(0, dst, e, "amax")
            weight = (e - top[dst]).exp()
            total = torch.zeros(x.shape[0]).to(e).index_add(0, dst, weight)
            alpha = weight / (total[dst] + 1e-16)
            index = dst.unsqueeze(-1).expand(-1, h.shape[1])
            return torch.zeros_like(h).scatter_add(0, index, alpha.unsqueeze(-1) * h[src])

    class GNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2, self.gat = GCNConv(6, 8), GCNConv(8, 8), GATLayer(8, 3)

        def forward(self, x, edge_index):
            x = F.relu(self.conv1(x, edge_index))
            x = F.dropout(x, p=0.5, training=False)
            x = self.conv2(x, edge_index).relu()
            return F.log_softmax(self.gat(x, edge_index), dim=1)

    model = run.start(GNN())
    x, edge_index = run.randn(10, 6), run.randint(0, 10, (2, 30))
    y = run.randint(0, 3, (10,))
    train_mask = torch.zeros(10, dtype=torch.bool)
    train_mask[:7] = True
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

    @run.step
    def train():
        model.train()
        optimizer.zero_grad()
        out = model(x, edge_index)
        loss = F.nll_loss(out[train_mask], y[train_mask])
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(4):
        run.note(loss=train().item())
    with torch.no_grad():
        pred = model(x, edge_index).argmax(dim=-1)
        run.note(acc=int((pred[~train_mask] == y[~train_mask]).sum()) / int((~train_mask).sum()))


def matrix_factorisation(torch, nn, F, run):
    class MF(nn.Module):
        def __init__(self, num_users, num_items, emb_size=6):
            super().__init__()
            self.user_emb = nn.Embedding(num_users, emb_size, sparse=False)
            self.item_emb = nn.Embedding(num_items, emb_size, sparse=False)
            self.user_bias, self.item_bias = nn.Embedding(num_users, 1), nn.Embedding(num_items, 1)
            self.user_emb.weight.data.uniform_(0, 0.05)
            self.register_buffer("mean", torch.zeros(()))

        def forward(self, u, v):
            U, V = self.user_emb(u), self.item_emb(v)
            return (
                (U * V).sum(1)
                + self.user_bias(u).squeeze()
                + self.item_bias(v).squeeze()
                + self.mean
            )

    model = run.start(MF(12, 9))
    ratings = run.rand(40) * 4 + 1
    model.mean.fill_(ratings.mean())
    users, items = run.randint(0, 12, (40,)), run.randint(0, 9, (40,))
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(users, items, ratings), batch_size=16
    )
    assert len(loader) == 3
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)

    @run.step
    def step(u, v, r):
        optimizer.zero_grad()
        loss = F.mse_loss(model(u, v), r) + 1e-3 * sum(p.pow(2).sum() for p in model.parameters())
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        total = 0.0
        for u, v, r in loader:
            total += step(u, v, r).item() * len(r)
        scheduler.step(total / len(loader.dataset))
        run.note(total=total, lr=optimizer.param_groups[0]["lr"])
