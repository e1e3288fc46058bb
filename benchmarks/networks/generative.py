"""Networks that make images or samples: by noise taken away, by rivals, by codes, by flows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .network import Network, Task, normal, positive, task


def timed_residual(lib: Any) -> Any:
    """A class: two convolutions and a shortcut, moved by a vector of 128 that tells the time."""
    nn, F = lib.nn, lib.nn.functional

    class Residual(lib.nn.Module):
        def __init__(self, channels_in: int, channels: int) -> None:
            super().__init__()
            self.norm1 = nn.GroupNorm(8, channels_in)
            self.conv1 = nn.Conv2d(channels_in, channels, 3, padding=1)
            self.of_time = nn.Linear(128, channels)
            self.norm2 = nn.GroupNorm(8, channels)
            self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
            same = channels_in == channels
            self.shortcut = nn.Identity() if same else nn.Conv2d(channels_in, channels, 1)

        def forward(self, x: Any, time: Any) -> Any:
            h = self.conv1(F.silu(self.norm1(x)))
            h = h + self.of_time(F.silu(time))[:, :, None, None]
            return self.conv2(F.silu(self.norm2(h))) + self.shortcut(x)

    return Residual


def diffusion(lib: Any) -> Task:
    """A U-Net of 32 and 64 channels with attention guesses the noise in 8 images of 32 x 32.

    Ho, Jain and Abbeel, 2020.
    """
    nn, F = lib.nn, lib.nn.functional
    residual = timed_residual(lib)

    class UNet(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.of_time = nn.Sequential(nn.Linear(32, 128), nn.SiLU(), nn.Linear(128, 128))
            self.first = nn.Conv2d(3, 32, 3, padding=1)
            self.down1 = residual(32, 32)
            self.smaller = nn.Conv2d(32, 32, 3, 2, 1)
            self.down2 = residual(32, 64)
            self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
            self.up2 = residual(64, 64)
            self.larger = nn.Conv2d(64, 32, 3, padding=1)
            self.up1 = residual(64, 32)
            self.last = nn.Conv2d(32, 3, 3, padding=1)

        def waves(self, t: Any) -> Any:
            """Sines and cosines of the times, 32 for each."""
            angles = t[:, None] * lib.exp(-math.log(1e4) * lib.arange(16) / 16)[None]
            return lib.cat([angles.sin(), angles.cos()], 1)

        def attended(self, x: Any) -> Any:
            """``x`` and what each place of it finds at all others."""
            places = x.flatten(2).transpose(1, 2)
            found, _ = self.attention(places, places, places, need_weights=False)
            return x + found.transpose(1, 2).reshape(x.shape)

        def forward(self, x: Any, t: Any) -> Any:
            time = self.of_time(self.waves(t))
            fine = self.down1(self.first(x), time)
            coarse = self.attended(self.down2(self.smaller(fine), time))
            coarse = F.interpolate(self.up2(coarse, time), scale_factor=2)
            both = lib.cat([fine, self.larger(coarse)], 1)
            return self.last(self.up1(both, time))

    module = UNet()

    def loss(x: Any, t: Any, noise: Any) -> Any:
        kept = (1 - t / 1000)[:, None, None, None]
        return F.mse_loss(module(x * kept.sqrt() + noise * (1 - kept).sqrt(), t), noise)

    times = np.random.default_rng(0).integers(0, 1000, 8).astype(np.float32)
    data = normal(8, 3, 32, 32), times, normal(8, 3, 32, 32, seed=1)
    return task(lib, module, loss, data, "AdamW")


def images_of_noise(nn: Any) -> Any:
    """DCGAN's generator: 64 numbers to three channels of 32 x 32."""
    return nn.Sequential(
        nn.ConvTranspose2d(64, 128, 4, 1, 0, bias=False),
        nn.BatchNorm2d(128),
        nn.ReLU(True),
        nn.ConvTranspose2d(128, 64, 4, 2, 1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(True),
        nn.ConvTranspose2d(64, 32, 4, 2, 1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(True),
        nn.ConvTranspose2d(32, 3, 4, 2, 1, bias=False),
        nn.Tanh(),
    )


def critic_of_images(nn: Any) -> Any:
    """DCGAN's critic: three channels of 32 x 32 to one number."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, True),
        nn.Conv2d(32, 64, 4, 2, 1, bias=False),
        nn.BatchNorm2d(64),
        nn.LeakyReLU(0.2, True),
        nn.Conv2d(64, 128, 4, 2, 1, bias=False),
        nn.BatchNorm2d(128),
        nn.LeakyReLU(0.2, True),
        nn.Conv2d(128, 1, 4, 1, 0, bias=False),
        nn.Flatten(),
    )


def dcgan(lib: Any) -> Task:
    """A generator and a critic of four convolutions each, 16 images of 32 x 32, in turns.

    Radford, Metz and Chintala, 2016.
    """
    nn, F = lib.nn, lib.nn.functional
    generator, critic = images_of_noise(nn), critic_of_images(nn)
    of_generator = lib.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    of_critic = lib.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))

    def critic_loss(real: Any, made: Any) -> Any:
        told_real, told_made = critic(real), critic(made)
        ones, zeros = lib.ones(real.shape[0], 1), lib.zeros(real.shape[0], 1)
        right = F.binary_cross_entropy_with_logits(told_real, ones)
        return right + F.binary_cross_entropy_with_logits(told_made, zeros)

    def generator_loss(made: Any) -> Any:
        return F.binary_cross_entropy_with_logits(critic(made), lib.ones(made.shape[0], 1))

    def step_of(compiled: Any) -> Any:
        make, judge, fool = compiled(generator), compiled(critic_loss), compiled(generator_loss)

        def step(x: Any, noise: Any) -> Any:
            of_critic.zero_grad()
            made = make(noise)
            judged = judge(x, made.detach())
            judged.backward()
            of_critic.step()
            of_generator.zero_grad()
            fooled = fool(made)
            fooled.backward()
            of_generator.step()
            return judged + fooled

        return step

    module = nn.ModuleList([generator, critic])
    return Task(module, (normal(16, 3, 32, 32), normal(16, 64, 1, 1, seed=1)), None, step_of)


def critic_with_penalty(lib: Any) -> Task:
    """A perceptron of width 128 whose gradient by its inputs is held at length one; batch 128.

    Gulrajani et al., 2017.
    """
    nn = lib.nn
    critic = nn.Sequential(
        nn.Linear(64, 128),
        nn.LeakyReLU(0.2),
        nn.Linear(128, 128),
        nn.LeakyReLU(0.2),
        nn.Linear(128, 1),
    )

    def loss(real: Any, made: Any, share: Any) -> Any:
        between = (share * real + (1 - share) * made).requires_grad_()
        (slope,) = lib.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
        return critic(made).mean() - critic(real).mean() + 10 * penalty

    return task(lib, critic, loss, (normal(128, 64), normal(128, 64, seed=1), positive(128, 1)))


def variational_autoencoder(lib: Any) -> Task:
    """784 pixels to 20 normal numbers and back, 400 between; batch 128, the noise is given.

    Kingma and Welling, 2014.
    """
    nn, F = lib.nn, lib.nn.functional

    class Autoencoder(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(784, 400), nn.ReLU())
            self.mean = nn.Linear(400, 20)
            self.log_variance = nn.Linear(400, 20)
            self.decoder = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 784))

        def forward(self, x: Any, noise: Any) -> Any:
            h = self.encoder(x)
            mean, log_variance = self.mean(h), self.log_variance(h)
            z = mean + noise * (0.5 * log_variance).exp()
            return lib.sigmoid(self.decoder(z)), mean, log_variance

    module = Autoencoder()

    def loss(x: Any, noise: Any) -> Any:
        shown, mean, log_variance = module(x, noise)
        divergence = -0.5 * lib.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        return F.binary_cross_entropy(shown, x, reduction="sum") + divergence

    return task(lib, module, loss, (positive(128, 784), normal(128, 20, seed=1)))


def quantised_autoencoder(lib: Any) -> Task:
    """16 images of 32 x 32 to 8 x 8 of 128 learnt codes and back.

    van den Oord, Vinyals and Kavukcuoglu, 2017.
    """
    nn, F = lib.nn, lib.nn.functional

    class Autoencoder(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(
                nn.Conv2d(3, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 4, 2, 1)
            )
            self.decoder = nn.Sequential(
                nn.ConvTranspose2d(32, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 3, 4, 2, 1)
            )
            self.codes = nn.Embedding(128, 32)

        def nearest(self, z: Any) -> Any:
            """The code that is nearest to each place of ``z``, in its shape."""
            places, codes = z.permute(0, 2, 3, 1).reshape(-1, 32), self.codes.weight
            lengths = (places**2).sum(1, keepdim=True) + (codes**2).sum(1)
            distances = lengths - 2 * places @ codes.t()
            return self.codes(distances.argmin(1)).view(-1, 8, 8, 32).permute(0, 3, 1, 2)

    module = Autoencoder()

    def loss(x: Any) -> Any:
        z = module.encoder(x)
        codes = module.nearest(z)
        apart = F.mse_loss(codes, z.detach()) + 0.25 * F.mse_loss(codes.detach(), z)
        straight = z + (codes - z).detach()
        return F.mse_loss(module.decoder(straight), x) + apart

    return task(lib, module, loss, (normal(16, 3, 32, 32),))


def real_nvp(lib: Any) -> Task:
    """Six couplings of two perceptrons of width 64 turn 512 points of the plane into normal ones.

    Dinh, Sohl-Dickstein and Bengio, 2017.
    """
    nn = lib.nn

    def perceptron(*last: Any) -> Any:
        layers = nn.Linear(2, 64), nn.LeakyReLU(), nn.Linear(64, 64), nn.LeakyReLU()
        return nn.Sequential(*layers, nn.Linear(64, 2), *last)

    class Coupling(lib.nn.Module):
        def __init__(self, first: int) -> None:
            super().__init__()
            self.scale = perceptron(nn.Tanh())
            self.shift = perceptron()
            self.register_buffer("mask", lib.tensor([float(first), float(1 - first)]))

        def forward(self, z: Any) -> Any:
            kept = self.mask * z
            scale = self.scale(kept) * (1 - self.mask)
            shift = self.shift(kept) * (1 - self.mask)
            return (1 - self.mask) * (z - shift) * lib.exp(-scale) + kept, scale.sum(1)

    module = nn.ModuleList([Coupling(k % 2) for k in range(6)])

    def loss(x: Any) -> Any:
        z, log_volume = x, lib.zeros(x.shape[0])
        for coupling in reversed(module):
            z, grown = coupling(z)
            log_volume = log_volume - grown
        return -(log_volume - 0.5 * (z**2).sum(1)).mean()

    return task(lib, module, loss, (normal(512, 2),))


NETWORKS = (
    Network("diffusion with a U-Net", diffusion),
    Network("DCGAN", dcgan),
    Network("critic with gradient penalty", critic_with_penalty),
    Network("variational autoencoder", variational_autoencoder),
    Network("VQ-VAE", quantised_autoencoder),
    Network("RealNVP", real_nvp),
)
