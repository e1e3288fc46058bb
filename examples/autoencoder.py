"""Train a convolutional autoencoder on real images of digits: 64 numbers become 8 and come back.

python examples/autoencoder.py [--compile] [--epochs N]
"""

import argparse
import time

import matplotlib
from sklearn.datasets import load_digits
from tqdm.auto import tqdm

import numbagrad as ng
import numbagrad.nn.functional as F
from numbagrad import nn
from numbagrad.data import DataLoader, TensorDataset

matplotlib.use("Agg")
import matplotlib.pyplot as plt


class Autoencoder(nn.Module):
    """Strided convolutions down to a code, and transposed ones back up to an 8 by 8 image."""

    def __init__(self, code: int = 8) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(inplace=True),
            nn.Flatten(),
            nn.Linear(32 * 2 * 2, code),
        )
        self.decoder = nn.Sequential(
            nn.Linear(code, 32 * 2 * 2),
            nn.Unflatten(1, (32, 2, 2)),
            nn.ReLU(),
            nn.ConvTranspose2d(32, 16, 3, stride=2, padding=1, output_padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 1, 3, stride=2, padding=1, output_padding=1),
            nn.Sigmoid(),
        )

    def forward(self, images: ng.Tensor) -> ng.Tensor:
        return self.decoder(self.encoder(images))


def digits() -> tuple[ng.Tensor, ng.Tensor]:
    """Images (n, 1, 8, 8) for training and for the test."""
    images = ng.from_numpy((load_digits().images[:, None] / 16).astype("float32"))
    order = ng.randperm(len(images))
    return images[order[360:]], images[order[:360]]


def draw(losses: list[float], images: ng.Tensor, again: ng.Tensor) -> None:
    """The learning curve, and digits above what came back of them, into autoencoder.png."""
    figure, (curve, strip) = plt.subplots(1, 2, figsize=(12, 3), layout="constrained")
    curve.plot(losses)
    curve.set(xlabel="step", ylabel="squared error", yscale="log")
    rows = ng.stack([images[:12], again[:12]]).squeeze(2)
    strip.imshow(rows.permute(0, 2, 1, 3).flatten(0, 1).flatten(1), cmap="gray_r")
    strip.axis("off")
    figure.savefig("autoencoder.png", dpi=120)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description="Train an autoencoder on digits.")
    parser.add_argument("--compile", action="store_true", help="compile the step")
    parser.add_argument("--epochs", type=int, default=60)
    options = parser.parse_args(arguments)

    ng.manual_seed(0)
    train, test = digits()
    model = Autoencoder()
    optimizer = ng.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-4)

    def step(images: ng.Tensor) -> ng.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(images), images)
        loss.backward()
        optimizer.step()
        return loss

    train_step = ng.compile(step) if options.compile else step
    loader = DataLoader(TensorDataset(train), batch_size=64, shuffle=True, drop_last=True)
    schedule = ng.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=1e-2, epochs=options.epochs, steps_per_epoch=len(loader)
    )
    losses = []
    start = time.perf_counter()
    progress = tqdm(range(options.epochs), desc="epochs")
    for _ in progress:
        for (images,) in loader:
            losses.append(train_step(images).item())
            schedule.step()
        progress.set_postfix(loss=f"{losses[-1]:.4f}")

    model.eval()
    with ng.no_grad():
        again = model(test)
    explained = 1 - ((again - test).square().sum() / (test - test.mean(0)).square().sum()).item()
    seconds = time.perf_counter() - start
    print(
        f"{explained:.1%} of the variance of the test digits came back, {seconds:.1f} s of training"
    )
    draw(losses, test, again)
    return explained


if __name__ == "__main__":
    main()
