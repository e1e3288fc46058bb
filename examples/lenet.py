"""Train LeNet on real images of digits, with a progress bar and pictures of what it got wrong.

python examples/lenet.py [--compile] [--epochs N]
"""

import argparse
import time

import matplotlib
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm.auto import tqdm

import numbagrad as ng
import numbagrad.nn.functional as F
from numbagrad import nn
from numbagrad.data import DataLoader, TensorDataset

matplotlib.use("Agg")
import matplotlib.pyplot as plt


class LeNet(nn.Module):
    """Two convolutions, each followed by pooling, and three affine layers, for 8 by 8 images."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(128, 84), nn.ReLU(), nn.Linear(84, 10)
        )

    def forward(self, images: ng.Tensor) -> ng.Tensor:
        return self.classifier(self.features(images))


def images_and_labels() -> tuple[ng.Tensor, ng.Tensor, ng.Tensor, ng.Tensor]:
    """1797 scanned digits of 8 by 8, as (n, 1, 8, 8); a fifth of them kept for the test."""
    digits = load_digits()
    parts = train_test_split(
        digits.images[:, None] / 16,
        digits.target,
        test_size=0.2,
        stratify=digits.target,
        random_state=0,
    )
    train_x, test_x, train_y, test_y = parts
    images = [ng.tensor(x, dtype=ng.float32) for x in (train_x, test_x)]
    return images[0], images[1], ng.tensor(train_y), ng.tensor(test_y)


def draw(losses: list[float], images: ng.Tensor, labels: ng.Tensor, found: ng.Tensor) -> None:
    """The learning curve, and the first digits that were misread, into lenet.png."""
    wrong = [i for i in range(len(labels)) if labels[i].item() != found[i].item()][:8]
    figure = plt.figure(figsize=(10, 3), layout="constrained")
    curve = figure.add_subplot(1, 2, 1)
    curve.plot(losses)
    curve.set(xlabel="step", ylabel="loss", yscale="log")
    for place, i in enumerate(wrong):
        axes = figure.add_subplot(2, 8, 5 + place % 4 + place // 4 * 8)
        axes.imshow(images[i, 0].numpy(), cmap="gray_r")
        axes.set_title(f"{labels[i].item()} read as {found[i].item()}", fontsize=8)
        axes.axis("off")
    figure.savefig("lenet.png", dpi=120)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description="Train LeNet on digits.")
    parser.add_argument("--compile", action="store_true", help="compile the step")
    parser.add_argument("--epochs", type=int, default=15)
    options = parser.parse_args(arguments)

    ng.manual_seed(0)
    train_x, test_x, train_y, test_y = images_and_labels()
    model = LeNet()
    optimizer = ng.optim.Adam(model.parameters(), lr=2e-3)

    def step(images: ng.Tensor, labels: ng.Tensor) -> ng.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    train_step = ng.compile(step) if options.compile else step
    loader = DataLoader(
        TensorDataset(train_x, train_y), batch_size=64, shuffle=True, drop_last=True
    )
    losses = []
    start = time.perf_counter()
    progress = tqdm(range(options.epochs), desc="epochs")
    for _ in progress:
        for images, labels in loader:
            losses.append(train_step(images, labels).item())
        progress.set_postfix(loss=f"{losses[-1]:.4f}")

    model.eval()
    with ng.no_grad():
        found = model(test_x).argmax(1)
    accuracy = (found == test_y).float().mean().item()
    print(
        f"{accuracy:.2%} of the test digits read, {time.perf_counter() - start:.1f} s of training"
    )
    draw(losses, test_x, test_y, found)
    return accuracy


if __name__ == "__main__":
    main()
