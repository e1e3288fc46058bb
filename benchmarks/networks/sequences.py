"""Networks of sound and of other signals over time."""

from __future__ import annotations

from typing import Any

from .network import Network, Task, integers, normal, task


def wavenet(lib: Any) -> Task:
    """Eight gated causal convolutions, dilated by 1 to 128, over 4 signals of 1000 samples.

    van den Oord et al., 2016.
    """
    nn, F = lib.nn, lib.nn.functional

    class Layer(lib.nn.Module):
        def __init__(self, dilation: int) -> None:
            super().__init__()
            self.dilation = dilation
            self.gated = nn.Conv1d(32, 64, 2, dilation=dilation)
            self.residual = nn.Conv1d(32, 32, 1)
            self.skip = nn.Conv1d(32, 64, 1)

        def forward(self, x: Any) -> Any:
            value, gate = self.gated(F.pad(x, (self.dilation, 0))).chunk(2, 1)
            h = lib.tanh(value) * lib.sigmoid(gate)
            return x + self.residual(h), self.skip(h)

    class WaveNet(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv1d(1, 32, 1)
            self.layers = nn.ModuleList([Layer(2**k) for k in range(8)])
            self.head = nn.Sequential(
                nn.ReLU(), nn.Conv1d(64, 64, 1), nn.ReLU(), nn.Conv1d(64, 256, 1)
            )

        def forward(self, x: Any) -> Any:
            x, total = self.first(x), 0
            for layer in self.layers:
                x, skipped = layer(x)
                total = total + skipped
            return self.head(total)

    module = WaveNet()

    def loss(x: Any, y: Any) -> Any:
        return F.cross_entropy(module(x), y)

    return task(lib, module, loss, (normal(4, 1, 1000), integers(256, 4, 1000)))


def speech(lib: Any) -> Task:
    """Two convolutions, a GRU both ways and the CTC loss: 8 sounds of 200 frames, 20 letters each.

    Amodei et al., 2016; loss: Graves et al., 2006.
    """
    nn, F = lib.nn, lib.nn.functional

    class Recogniser(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.front = nn.Sequential(
                nn.Conv1d(40, 64, 5, 2, 2),
                nn.BatchNorm1d(64),
                nn.ReLU(),
                nn.Conv1d(64, 64, 5, 1, 2),
                nn.BatchNorm1d(64),
                nn.ReLU(),
            )
            self.cells = nn.GRU(64, 64, bidirectional=True, batch_first=True)
            self.head = nn.Linear(128, 29)

        def forward(self, x: Any) -> Any:
            h, _ = self.cells(self.front(x).transpose(1, 2))
            return F.log_softmax(self.head(h), -1).transpose(0, 1)

    module = Recogniser()
    frames, letters = lib.full((8,), 100, dtype=lib.long), lib.full((8,), 20, dtype=lib.long)

    def loss(x: Any, y: Any) -> Any:
        return F.ctc_loss(module(x), y, frames, letters, zero_infinity=True)

    return task(lib, module, loss, (normal(8, 40, 200), 1 + integers(28, 8, 20)))


def mamba(lib: Any) -> Task:
    """A selective state space of width 64 with eight states, scanned over 8 sequences of 32 steps.

    Gu and Dao, 2023.
    """
    nn, F = lib.nn, lib.nn.functional
    width, states = 64, 8

    class Mamba(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.first = nn.Linear(width, 2 * width)
            self.conv = nn.Conv1d(width, width, 4, padding=3, groups=width)
            self.select = nn.Linear(width, 4 + 2 * states)
            self.duration = nn.Linear(4, width)
            self.log_rates = nn.Parameter(lib.zeros(width, states))
            self.through = nn.Parameter(lib.ones(width))
            self.last = nn.Linear(width, width)

        def scan(self, x: Any) -> Any:
            """The outputs (batch, time, width) of the states that ``x`` of that shape drives."""
            duration, into, out = self.select(x).split([4, states, states], -1)
            duration = F.softplus(self.duration(duration))[..., None]
            kept = lib.exp(duration * -lib.exp(self.log_rates))
            added = duration * into[:, :, None] * x[..., None]
            state, outputs = lib.zeros(x.shape[0], width, states), []
            for t in range(x.shape[1]):
                state = kept[:, t] * state + added[:, t]
                outputs.append((state * out[:, t, None]).sum(-1))
            return lib.stack(outputs, 1)

        def forward(self, inputs: Any) -> Any:
            x, gate = self.first(self.norm(inputs)).chunk(2, -1)
            x = F.silu(self.conv(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
            return inputs + self.last((self.scan(x) + x * self.through) * F.silu(gate))

    module = Mamba()

    def loss(x: Any, y: Any) -> Any:
        return F.mse_loss(module(x), y)

    return task(lib, module, loss, (normal(8, 32, width), normal(8, 32, width, seed=1)))


def convolutional_lstm(lib: Any) -> Task:
    """An LSTM cell of 16 channels whose product is a convolution: 4 films of six 32 x 32 images.

    Shi et al., 2015.
    """
    nn, F = lib.nn, lib.nn.functional

    class Forecaster(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gates = nn.Conv2d(1 + 16, 64, 3, padding=1)
            self.head = nn.Conv2d(16, 1, 1)

        def forward(self, x: Any) -> Any:
            h = cell = lib.zeros(x.shape[0], 16, 32, 32)
            for t in range(x.shape[1]):
                gates = self.gates(lib.cat([x[:, t], h], 1))
                enter, keep, new, show = gates.chunk(4, 1)
                cell = lib.sigmoid(keep) * cell + lib.sigmoid(enter) * lib.tanh(new)
                h = lib.sigmoid(show) * lib.tanh(cell)
            return self.head(h)

    module = Forecaster()

    def loss(x: Any, y: Any) -> Any:
        return F.mse_loss(module(x), y)

    return task(lib, module, loss, (normal(4, 6, 1, 32, 32), normal(4, 1, 32, 32)))


NETWORKS = (
    Network("WaveNet", wavenet),
    Network("speech recogniser", speech),
    Network("Mamba", mamba),
    Network("convolutional LSTM", convolutional_lstm),
)
