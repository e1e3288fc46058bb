"""Networks that look at images: name them, tell them apart, sharpen them, cut things out."""

from __future__ import annotations

from typing import Any

from .network import Network, Task, integers, normal, task


def classifier(
    lib: Any,
    module: Any,
    size: tuple[int, ...],
    optimizer: str,
    smoothing: float = 0.0,
    **more: Any,
) -> Task:
    """Cross entropy with ten classes of images of ``size``: batch, channels, height, width."""

    def loss(x: Any, y: Any) -> Any:
        return lib.nn.functional.cross_entropy(module(x), y, label_smoothing=smoothing)

    data = normal(*size), integers(10, size[0])
    return task(lib, module, loss, data, optimizer, **more)


def resnet(lib: Any) -> Task:
    """Four blocks of two convolutions, 32 to 256 channels, 16 images of 32 x 32.

    He, Zhang, Ren and Sun, 2016.
    """
    nn, F = lib.nn, lib.nn.functional

    class Block(lib.nn.Module):
        def __init__(self, channels_in: int, channels: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
            self.norm1 = nn.BatchNorm2d(channels)
            self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(channels)
            self.shortcut = nn.Identity()
            if stride != 1 or channels_in != channels:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(channels_in, channels, 1, stride, bias=False),
                    nn.BatchNorm2d(channels),
                )

        def forward(self, x: Any) -> Any:
            h = F.relu(self.norm1(self.conv1(x)))
            return F.relu(self.norm2(self.conv2(h)) + self.shortcut(x))

    module = nn.Sequential(
        nn.Conv2d(3, 32, 3, 1, 1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        Block(32, 32, 1),
        Block(32, 64, 2),
        Block(64, 128, 2),
        Block(128, 256, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(256, 10),
    )
    return classifier(lib, module, (16, 3, 32, 32), "SGD", lr=0.1, momentum=0.9, weight_decay=5e-4)


def vision_transformer(lib: Any) -> Task:
    """Three layers of width 128 over 64 patches and a class token, 16 images of 32 x 32.

    Dosovitskiy et al., 2021.
    """
    nn = lib.nn

    class VisionTransformer(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(
                128, 4, 256, 0.1, "gelu", batch_first=True, norm_first=True
            )
            self.patches = nn.Conv2d(3, 128, 4, 4)
            self.token = nn.Parameter(lib.zeros(1, 1, 128))
            self.places = nn.Parameter(lib.zeros(1, 65, 128))
            self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
            self.norm = nn.LayerNorm(128)
            self.head = nn.Linear(128, 10)

        def forward(self, x: Any) -> Any:
            x = self.patches(x).flatten(2).transpose(1, 2)
            token = self.token.expand(x.shape[0], -1, -1)
            x = lib.cat([token, x], 1) + self.places
            return self.head(self.norm(self.encoder(x))[:, 0])

    return classifier(lib, VisionTransformer(), (16, 3, 32, 32), "AdamW", smoothing=0.1)


def mixer(lib: Any) -> Task:
    """Three blocks of perceptrons over 64 patches and over 128 channels, 16 images of 32 x 32.

    Tolstikhin et al., 2021.
    """
    nn = lib.nn

    class Block(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1 = nn.LayerNorm(128)
            self.over_patches = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))
            self.norm2 = nn.LayerNorm(128)
            self.over_channels = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 128))

        def forward(self, x: Any) -> Any:
            x = x + self.over_patches(self.norm1(x).transpose(1, 2)).transpose(1, 2)
            return x + self.over_channels(self.norm2(x))

    class Mixer(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Sequential(nn.Conv2d(3, 128, 4, 4), nn.Flatten(2))
            self.blocks = nn.Sequential(Block(), Block(), Block())
            self.head = nn.Linear(128, 10)

        def forward(self, x: Any) -> Any:
            x = self.patches(x).transpose(1, 2)
            return self.head(self.blocks(x).mean(1))

    return classifier(lib, Mixer(), (16, 3, 32, 32), "AdamW")


def convnext(lib: Any) -> Task:
    """Four blocks of depthwise 7 x 7 convolutions, 48 and 96 channels, 8 images of 64 x 64.

    Liu et al., 2022.
    """
    nn, F = lib.nn, lib.nn.functional

    class Block(lib.nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
            self.norm = nn.LayerNorm(channels, eps=1e-6)
            self.wide = nn.Linear(channels, 4 * channels)
            self.narrow = nn.Linear(4 * channels, channels)
            self.scale = nn.Parameter(lib.ones(channels))

        def forward(self, x: Any) -> Any:
            h = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
            h = self.scale * self.narrow(F.gelu(self.wide(h)))
            return x + h.permute(0, 3, 1, 2)

    module = nn.Sequential(
        nn.Conv2d(3, 48, 4, 4),
        Block(48),
        Block(48),
        nn.Conv2d(48, 96, 2, 2),
        Block(96),
        Block(96),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(96, 10),
    )
    return classifier(lib, module, (8, 3, 64, 64), "AdamW")


def mobilenet(lib: Any) -> Task:
    """Four inverted residuals of 16 to 40 channels, inside four times that, 16 images of 64 x 64.

    Sandler et al., 2018.
    """
    nn = lib.nn

    class InvertedResidual(lib.nn.Module):
        def __init__(self, channels_in: int, channels: int, stride: int) -> None:
            super().__init__()
            wide = 4 * channels_in
            self.adds = stride == 1 and channels_in == channels
            self.layers = nn.Sequential(
                nn.Conv2d(channels_in, wide, 1, bias=False),
                nn.BatchNorm2d(wide),
                nn.ReLU6(),
                nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
                nn.BatchNorm2d(wide),
                nn.ReLU6(),
                nn.Conv2d(wide, channels, 1, bias=False),
                nn.BatchNorm2d(channels),
            )

        def forward(self, x: Any) -> Any:
            return x + self.layers(x) if self.adds else self.layers(x)

    module = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU6(),
        InvertedResidual(16, 24, 2),
        InvertedResidual(24, 24, 1),
        InvertedResidual(24, 40, 2),
        InvertedResidual(40, 40, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(40, 10),
    )
    return classifier(lib, module, (16, 3, 64, 64), "SGD", lr=0.1, momentum=0.9)


def simclr(lib: Any) -> Task:
    """A small encoder and projection; 64 pairs of views of 32 x 32 are told from all others.

    Chen et al., 2020.
    """
    nn, F = lib.nn, lib.nn.functional
    module = nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, 2, 1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 128),
        nn.ReLU(),
        nn.Linear(128, 64),
    )

    def loss(view: Any, other: Any) -> Any:
        n = view.shape[0]
        z = F.normalize(module(lib.cat([view, other])), dim=1)
        similarity = z @ z.t() / 0.5
        similarity = similarity.masked_fill(lib.eye(2 * n, dtype=lib.bool), -1e9)
        partner = lib.cat([lib.arange(n, 2 * n), lib.arange(n)])
        return F.cross_entropy(similarity, partner)

    data = normal(64, 3, 32, 32), normal(64, 3, 32, 32, seed=1)
    return task(lib, module, loss, data, "SGD", lr=0.1, momentum=0.9)


def super_resolution(lib: Any) -> Task:
    """Three convolutions and a shuffle of channels into pixels: 8 images, 32 x 32 to 128 x 128.

    Shi et al., 2016.
    """
    nn, F = lib.nn, lib.nn.functional
    module = nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2),
        nn.PReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.PReLU(),
        nn.Conv2d(32, 16, 3, padding=1),
        nn.PixelShuffle(4),
    )

    def loss(x: Any, y: Any) -> Any:
        return F.l1_loss(module(x), y)

    return task(lib, module, loss, (normal(8, 1, 32, 32), normal(8, 1, 128, 128)))


def segmentation(lib: Any) -> Task:
    """Three-dimensional convolutions with instance norm, Dice loss, 2 volumes of 24 x 24 x 24.

    Cicek et al., 2016; loss: Milletari et al., 2016.
    """
    nn, F = lib.nn, lib.nn.functional
    module = nn.Sequential(
        nn.Conv3d(1, 16, 3, padding=1),
        nn.InstanceNorm3d(16, affine=True),
        nn.LeakyReLU(0.01),
        nn.MaxPool3d(2),
        nn.Conv3d(16, 32, 3, padding=1),
        nn.InstanceNorm3d(32, affine=True),
        nn.LeakyReLU(0.01),
        nn.ConvTranspose3d(32, 16, 2, 2),
        nn.Conv3d(16, 2, 1),
    )

    def loss(x: Any, y: Any) -> Any:
        logits = module(x)
        p, inside = logits.softmax(1)[:, 1], y.float()
        overlap = (2 * (p * inside).sum() + 1) / (p.sum() + inside.sum() + 1)
        return F.cross_entropy(logits, y) + 1 - overlap

    return task(lib, module, loss, (normal(2, 1, 24, 24, 24), integers(2, 2, 24, 24, 24)))


NETWORKS = (
    Network("ResNet", resnet),
    Network("vision transformer", vision_transformer, random=True),
    Network("MLP-Mixer", mixer),
    Network("ConvNeXt", convnext),
    Network("MobileNetV2", mobilenet),
    Network("SimCLR", simclr),
    Network("super-resolution", super_resolution),
    Network("segmentation of volumes", segmentation),
)
