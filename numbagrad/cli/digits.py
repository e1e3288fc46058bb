"""Train a digit classifier on scikit-learn's digits; write the model and a learning curve."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import numbagrad as ng

from ..kernels import machine

__all__ = [
    "Epoch",
    "add_arguments",
    "held_out_accuracy",
    "load_split",
    "run",
    "train",
    "training_step",
]

MISSING = "digits: {name} is not installed. Install the demo extra: pip install 'numbagrad[demo]'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the hyper-parameters and the output folder."""
    parser.add_argument("--epochs", type=positive(int), default=30)
    parser.add_argument(
        "--hidden", type=positive(int), default=256, help="units of the hidden layer"
    )
    parser.add_argument(
        "--lr", type=positive(float), default=4e-3, help="first learning rate of Adam"
    )
    parser.add_argument("--batch-size", type=positive(int), default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="cpu, or cuda to train on a GPU")
    parser.add_argument(
        "--compile", action="store_true", help="train with ng.compile, and show the speed-up"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("digits-out"), help="folder for the model and the picture"
    )


def positive(number: Callable[[str], Any]) -> Callable[[str], Any]:
    """A parser of command-line numbers that refuses zero and below."""

    def parse(text: str) -> Any:
        value = number(text)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
        return value

    parse.__name__ = number.__name__  # argparse names it: "invalid int value: 'x'"
    return parse


@dataclass(frozen=True)
class Epoch:
    """One pass over the training images: mean loss, accuracy after it, and its seconds."""

    loss: float
    accuracy: float
    seconds: float


def run(arguments: argparse.Namespace) -> int:
    """Train, report, and write ``model.safetensors`` and ``learning_curve.png``."""
    try:
        import matplotlib  # noqa: F401  asked for now, so that training is not lost at the end
        import sklearn  # noqa: F401
        import tqdm  # noqa: F401
    except ModuleNotFoundError as error:
        print(MISSING.format(name=error.name), file=sys.stderr)
        return 1
    arguments.out.mkdir(parents=True, exist_ok=True)

    ng.manual_seed(arguments.seed)
    training, test = [
        (images.to(arguments.device), labels.to(arguments.device))
        for images, labels in load_split(arguments.seed)
    ]
    model = build(arguments.hidden).to(arguments.device)
    optimizer = ng.optim.Adam(model.parameters(), lr=arguments.lr)
    loader = ng.data.DataLoader(
        ng.data.TensorDataset(*training), batch_size=arguments.batch_size, shuffle=True
    )
    schedule = ng.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, arguments.epochs)
    eager = training_step(model, optimizer)
    step = ng.compile(eager) if arguments.compile else eager
    epochs = train(model, step, schedule, loader, test, arguments.epochs)

    ng.save(model.state_dict(), arguments.out / "model.safetensors")
    draw(epochs, arguments.out / "learning_curve.png")
    report(epochs, len(training[1]), len(test[1]), arguments)
    if arguments.compile:  # after saving: this goes on training
        report_speed(step, eager, next(iter(loader)))
    return 0


def load_split(seed: int) -> tuple[tuple[ng.Tensor, ng.Tensor], tuple[ng.Tensor, ng.Tensor]]:
    """The 1797 images (64 floats from 0 to 1) and labels: four fifths, and the held-out fifth."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = (digits.data / 16).astype(np.float32)
    train_x, test_x, train_y, test_y = train_test_split(
        images, digits.target, test_size=0.2, stratify=digits.target, random_state=seed
    )
    return (
        (ng.from_numpy(train_x), ng.from_numpy(train_y)),
        (ng.from_numpy(test_x), ng.from_numpy(test_y)),
    )


def build(hidden: int) -> ng.nn.Module:
    """A perceptron with one hidden layer; 1,437 images need the dropout."""
    return ng.nn.Sequential(
        ng.nn.Linear(64, hidden), ng.nn.ReLU(), ng.nn.Dropout(0.3), ng.nn.Linear(hidden, 10)
    )


def training_step(model: ng.nn.Module, optimizer: Any) -> Callable[[ng.Tensor, ng.Tensor], Any]:
    """The function from a batch to its loss that improves ``model``."""

    def step(images: ng.Tensor, labels: ng.Tensor) -> ng.Tensor:
        optimizer.zero_grad()
        loss = ng.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step


def train(
    model: ng.nn.Module,
    step: Callable[[ng.Tensor, ng.Tensor], ng.Tensor],
    schedule: Any,
    loader: Any,
    test: tuple[ng.Tensor, ng.Tensor],
    epochs: int,
) -> list[Epoch]:
    """Run ``step`` on every batch for ``epochs`` passes, showing a progress bar."""
    from tqdm.auto import trange

    history = []
    progress = trange(epochs, desc="digits", unit="epoch")
    progress.set_postfix_str("the first batch loads or compiles the kernels")
    for _ in progress:
        start = time.perf_counter()
        losses = []
        model.train()
        for images, labels in loader:
            losses.append(step(images, labels).item())
        schedule.step()
        seconds = time.perf_counter() - start
        epoch = Epoch(float(np.mean(losses)), held_out_accuracy(model, test), seconds)
        history.append(epoch)
        progress.set_postfix(loss=f"{epoch.loss:.4f}", accuracy=f"{epoch.accuracy:.2%}")
    return history


def held_out_accuracy(model: ng.nn.Module, test: tuple[ng.Tensor, ng.Tensor]) -> float:
    """Share of the ``test`` images whose label the model names."""
    images, labels = test
    model.eval()
    with ng.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def draw(epochs: list[Epoch], path: Path) -> None:
    """Write the loss and the held-out accuracy over the epochs as a picture."""
    # Not pyplot: a figure of its own needs no display and leaves the user's backend alone.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    numbers = range(1, len(epochs) + 1)
    left.plot(numbers, [epoch.loss for epoch in epochs])
    left.set(title="training loss", xlabel="epoch", yscale="log")
    right.plot(numbers, [epoch.accuracy for epoch in epochs])
    right.set(title="held-out accuracy", xlabel="epoch", ylim=(None, 1))
    figure.savefig(path, dpi=150)


def report(
    epochs: list[Epoch], trained_on: int, tested_on: int, arguments: argparse.Namespace
) -> None:
    """Print what a user wants to know about the run."""
    seconds = [epoch.seconds for epoch in epochs]
    rows = [
        ("accuracy", f"{epochs[-1].accuracy:.2%} of {tested_on} held-out images"),
        ("trained on", f"{trained_on} images, {len(epochs)} epochs, {sum(seconds):.2f} s"),
        (
            "per epoch",
            f"{np.median(seconds):.3f} s (median); the first, "
            f"which loads or compiles the kernels, {seconds[0]:.2f} s",
        ),
        ("device", arguments.device),
        ("threads", str(machine.threads())),
        ("model", str(arguments.out / "model.safetensors")),
        ("picture", str(arguments.out / "learning_curve.png")),
    ]
    for name, value in rows:
        print(f"{name:<12}{value}")


ROUNDS, STEPS = 15, 12
"""How often the two ways take turns, and how many steps a turn has."""


def report_speed(compiled: Any, eager: Any, batch: tuple[ng.Tensor, ng.Tensor]) -> None:
    """Print the median time of a step both ways, in turns, on the same batch."""
    seconds: dict[Any, list[float]] = {compiled: [], eager: []}
    for _ in range(ROUNDS):
        for step, times in seconds.items():
            step(*batch)  # takes over the gradients that the other way left
            for _ in range(STEPS):
                start = time.perf_counter()
                step(*batch)
                times.append(time.perf_counter() - start)
    fast, slow = (float(np.median(times)) * 1e6 for times in seconds.values())
    text = f"compiled {fast:.0f} us, eager {slow:.0f} us: {slow / fast:.1f} times as fast"
    print(f"{'step':<12}{text}")
