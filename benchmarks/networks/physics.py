"""Networks that are functions: solutions of equations, scenes, flows of time, covariances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .network import Network, Task, normal, positive, task


def burgers(lib: Any) -> Task:
    """A perceptron solves Burgers' equation: second derivatives at 2000 points, 200 at the border.

    Raissi, Perdikaris and Karniadakis, 2019.
    """
    nn, grad = lib.nn, lib.autograd.grad
    module = nn.Sequential(
        nn.Linear(2, 64),
        nn.Tanh(),
        nn.Linear(64, 64),
        nn.Tanh(),
        nn.Linear(64, 64),
        nn.Tanh(),
        nn.Linear(64, 1),
    )

    def loss(x: Any, t: Any, border: Any, known: Any) -> Any:
        x, t = x.requires_grad_(), t.requires_grad_()
        u = module(lib.cat([x, t], 1))
        u_x, u_t = grad(u.sum(), [x, t], create_graph=True)
        (u_xx,) = grad(u_x.sum(), x, create_graph=True)
        residual = u_t + u * u_x - 0.01 / math.pi * u_xx
        return (residual**2).mean() + ((module(border) - known) ** 2).mean()

    data = normal(2000, 1), positive(2000, 1), normal(200, 2, seed=2), normal(200, 1, seed=3)
    return task(lib, module, loss, data)


def radiance_field(lib: Any) -> Task:
    """A perceptron of width 128 gives colour and density at 32 points of each of 128 rays.

    Mildenhall et al., 2020.
    """
    nn, F = lib.nn, lib.nn.functional
    hidden = [layer for _ in range(4) for layer in (nn.Linear(128, 128), nn.ReLU())]
    module = nn.Sequential(nn.Linear(63, 128), nn.ReLU(), *hidden, nn.Linear(128, 4))

    def waves(points: Any) -> Any:
        found = [points]
        for k in range(10):
            found += [lib.sin(points * 2.0**k), lib.cos(points * 2.0**k)]
        return lib.cat(found, -1)

    def loss(origin: Any, direction: Any, colour: Any) -> Any:
        depth = lib.linspace(2, 6, 32)
        out = module(waves(origin[:, None] + direction[:, None] * depth[:, None]))
        gaps = lib.cat([depth[1:] - depth[:-1], lib.tensor([1e10])])
        opacity = 1 - lib.exp(-F.relu(out[..., 3]) * gaps)
        clear = lib.cat([lib.ones(opacity.shape[0], 1), 1 - opacity + 1e-10], -1)
        weight = opacity * lib.cumprod(clear, -1)[:, :-1]
        seen = (weight[..., None] * lib.sigmoid(out[..., :3])).sum(1)
        return F.mse_loss(seen, colour)

    return task(lib, module, loss, (normal(128, 3), normal(128, 3, seed=1), positive(128, 3)))


def neural_ode(lib: Any) -> Task:
    """A perceptron of width 50 as derivative, ten steps of Runge and Kutta from 100 points.

    Chen et al., 2018.
    """
    nn, F = lib.nn, lib.nn.functional
    slope = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))

    def loss(y: Any, wanted: Any) -> Any:
        h, total = 0.1, 0
        for _ in range(10):
            k1 = slope(y)
            k2 = slope(y + h / 2 * k1)
            k3 = slope(y + h / 2 * k2)
            k4 = slope(y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            total = total + F.l1_loss(y, wanted)
        return total

    return task(lib, slope, loss, (normal(100, 2), normal(100, 2, seed=1)), "RMSprop")


def gaussian_process(lib: Any) -> Task:
    """Scales, variance and noise of a squared-exponential covariance of 150 points, by likelihood.

    Rasmussen and Williams, 2006.
    """
    nn = lib.nn

    class Covariance(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.log_scales = nn.Parameter(lib.zeros(4))
            self.log_variance = nn.Parameter(lib.zeros(()))
            self.log_noise = nn.Parameter(lib.zeros(()))

        def forward(self, x: Any) -> Any:
            z = x / self.log_scales.exp()
            distances = (z[:, None] - z[None]).pow(2).sum(-1)
            smooth = self.log_variance.exp() * lib.exp(-0.5 * distances)
            return smooth + self.log_noise.exp() * lib.eye(x.shape[0])

    module = Covariance()

    def loss(x: Any, y: Any) -> Any:
        factor = lib.linalg.cholesky(module(x))
        solved = lib.cholesky_solve(y[:, None], factor)
        return 0.5 * (y[:, None] * solved).sum() + factor.diagonal().log().sum()

    x = normal(150, 4)
    return task(lib, module, loss, (x, np.sin(x.sum(1)) + 0.1 * normal(150, seed=1)))


NETWORKS = (
    Network("Burgers' equation", burgers),
    Network("radiance field", radiance_field),
    Network("neural ODE", neural_ode),
    Network("Gaussian process", gaussian_process),
)
