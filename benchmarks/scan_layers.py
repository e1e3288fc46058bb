"""Layers in the shapes of real networks, for ``scan.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

LAYERS = """
F.conv2d(t(8, 3, 64, 64), t(32, 3, 7, 7), stride=2, padding=3)
F.conv2d(t(8, 64, 56, 56), t(64, 64, 3, 3), t(64), padding=1)
F.conv2d(t(8, 64, 56, 56), t(128, 64, 1, 1), stride=2); F.conv2d(t(8, 64, 56, 56), t(64, 64, 1, 1))
F.conv2d(t(8, 128, 28, 28), t(128, 128, 3, 3), padding=1)
F.conv2d(t(8, 128, 28, 28), t(256, 128, 3, 3), stride=2, padding=1)
F.conv2d(t(8, 256, 14, 14), t(256, 256, 3, 3), padding=1)
F.conv2d(t(8, 512, 7, 7), t(512, 512, 3, 3), padding=1)
F.conv2d(t(32, 16, 32, 32), t(16, 16, 3, 3), padding=1)
F.conv2d(t(32, 64, 8, 8), t(64, 64, 3, 3), padding=1)
F.conv2d(t(1, 64, 112, 112), t(64, 64, 3, 3), padding=1)
F.conv2d(t(1, 3, 224, 224), t(64, 3, 3, 3), padding=1); F.conv2d(t(64, 1, 28, 28), t(32, 1, 3, 3))
F.conv2d(t(2, 16, 128, 128), t(16, 16, 5, 5), padding=2)
F.conv2d(t(8, 64, 28, 28), t(64, 64, 3, 3), padding=2, dilation=2)
F.conv2d(t(8, 64, 28, 28), t(64, 16, 3, 3), padding=1, groups=4)
F.conv2d(t(8, 128, 28, 28), t(128, 4, 3, 3), padding=1, groups=32)
F.conv2d(t(8, 96, 28, 28), t(96, 1, 5, 5), padding=2, groups=96)
F.conv2d(t(16, 3, 224, 224), t(96, 3, 16, 16), stride=16)
F.conv2d(t(16, 3, 64, 64), t(64, 3, 4, 4), stride=2, padding=1)
F.conv1d(t(16, 64, 256), t(64, 64, 3), padding=1); F.conv1d(t(4, 32, 4000), t(32, 32, 9), padding=4)
F.conv1d(t(16, 128, 100), t(256, 128, 5), stride=2)
F.conv1d(t(4, 64, 2000), t(64, 64, 3), padding=8, dilation=8)
F.conv3d(t(2, 16, 16, 16, 16), t(32, 16, 3, 3, 3), padding=1)
F.conv_transpose2d(t(64, 100, 1, 1), t(100, 256, 4, 4))
F.conv_transpose2d(t(16, 128, 7, 7), t(128, 64, 4, 4), stride=2, padding=1)
F.conv_transpose2d(t(8, 64, 28, 28), t(64, 32, 2, 2), stride=2)
F.batch_norm(t(16, 32, 56, 56), None, None, t(32), t(32), True)
F.batch_norm(t(16, 32, 56, 56), L.zeros(32), L.ones(32), t(32), t(32))
F.batch_norm(t(512, 256), None, None, t(256), t(256), True); F.instance_norm(t(16, 32, 56, 56))
F.group_norm(t(8, 64, 32, 32), 8, t(64), t(64)); F.rms_norm(t(8, 128, 512), (512,), t(512))
F.layer_norm(t(8, 128, 512), (512,), t(512), t(512)); F.max_pool2d(t(16, 32, 56, 56), 3, 2, 1)
F.avg_pool2d(t(16, 32, 56, 56), 2); F.adaptive_avg_pool2d(t(16, 32, 56, 56), 7)
F.adaptive_max_pool2d(t(16, 32, 56, 56), 7)
F.interpolate(t(16, 32, 56, 56), scale_factor=2, mode="bilinear")
F.interpolate(t(16, 32, 56, 56), scale_factor=1.5, mode="bicubic")
F.pad(t(16, 32, 56, 56), (3, 3, 3, 3), mode="reflect"); F.pixel_shuffle(t(16, 32, 56, 56), 4)
F.grid_sample(t(4, 16, 64, 64), t(4, 64, 64, 2).tanh(), align_corners=False)
F.linear(t(1, 768), t(768, 768), t(768)); F.linear(t(128, 768), t(3072, 768), t(3072))
F.linear(t(4096, 64), t(64, 64), t(64)); F.linear(t(16, 64, 128), t(384, 128), t(384))
F.linear(t(20000, 16), t(16, 16), t(16)); t(16, 128, 128) @ t(16, 128, 128)
t(1000, 3, 3) @ t(1000, 3, 3); t(512, 1, 64) @ t(512, 64, 32); t(128, 32, 64) @ t(64, 16)
F.scaled_dot_product_attention(t(8, 4, 64, 32), t(8, 4, 64, 32), t(8, 4, 64, 32), is_causal=True)
F.scaled_dot_product_attention(t(2, 8, 512, 64), t(2, 8, 512, 64), t(2, 8, 512, 64))
F.scaled_dot_product_attention(t(4, 8, 16, 64), t(4, 8, 512, 64), t(4, 8, 512, 64))
F.softmax(t(8, 4, 128, 32) @ t(8, 4, 32, 128), -1) @ t(8, 4, 128, 32)
F.cross_entropy(t(64, 10), i(10, 64)); F.cross_entropy(t(256, 10000), i(10000, 256))
F.cross_entropy(t(4096, 32), i(32, 4096), label_smoothing=0.1)
F.cross_entropy(t(4, 8, 64, 64), i(8, 4, 64, 64)); F.embedding(i(1000, 32, 64), t(1000, 128))
F.embedding(i(50000, 32, 64), t(50000, 64)); F.embedding_bag(i(1000, 512, 20), t(1000, 64))
L.zeros(2000, 64).index_add(0, i(2000, 20000), t(2000, 64)[i(2000, 20000)])
L.zeros(2000, 64).scatter_add(0, i(2000, 20000)[:, None].expand(-1, 64), t(20000, 64))
F.silu(t(256, 1024)) * t(256, 1024); F.glu(t(256, 2048)); F.relu(t(256, 1024) + t(256, 1024))
F.cosine_similarity(t(256, 256), t(256, 256)); F.bilinear(t(64, 32), t(64, 48), t(16, 32, 48))
F.normalize(t(256, 256)) @ F.normalize(t(256, 256)).t()
F.triplet_margin_loss(t(256, 256), t(256, 256), t(256, 256))
t(16, 32, 56, 56) * t(16, 32, 56, 56).mean((2, 3), keepdim=True).sigmoid()
F.layer_norm(t(16, 32, 56, 56).permute(0, 2, 3, 1), (32,)).permute(0, 3, 1, 2)
"""


class Given:
    """What ``t`` and ``i`` of an expression stand for: made when it is first evaluated."""

    def __init__(self, library: Any, dtype: str):
        self.library, self.kind = library, getattr(library, dtype)
        self.made: list[Any] = []
        self.at = 0
        """How many have been met since the expression was begun."""

    def enter(self, known: dict[str, Any]) -> None:
        """Be what an expression's names mean."""
        known.update(t=self.t, i=self.i, given=self)

    def _next(self, make: Callable[[np.random.Generator], Any]) -> Any:
        if self.at == len(self.made):
            self.made.append(make(np.random.default_rng(self.at)))
        self.at += 1
        return self.made[self.at - 1]

    def t(self, *shape: int) -> Any:
        """A leaf of normal numbers, the same in each library."""

        def make(random: np.random.Generator) -> Any:
            numbers = random.standard_normal(shape).astype(np.float32)
            return self.library.tensor(numbers).to(self.kind).requires_grad_()

        return self._next(make)

    def i(self, high: int, *shape: int) -> Any:
        """Indices below ``high``."""
        return self._next(lambda random: self.library.tensor(random.integers(0, high, shape)))
