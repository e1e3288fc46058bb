"""Train a digit classifier: the whole of a training script, to copy and change.

python examples/digits.py
"""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import numbagrad as ng
import numbagrad.nn.functional as F
from numbagrad import nn
from numbagrad.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.hidden = nn.Linear(64, hidden)
        self.dropout = nn.Dropout(0.3)
        self.output = nn.Linear(hidden, 10)

    def forward(self, images: ng.Tensor) -> ng.Tensor:
        return self.output(self.dropout(F.relu(self.hidden(images))))


def main(epochs: int = 30) -> float:
    ng.manual_seed(0)
    digits = load_digits()
    train_x, test_x, train_y, test_y = train_test_split(
        digits.data / 16, digits.target, test_size=0.2, stratify=digits.target, random_state=0
    )
    train = TensorDataset(ng.tensor(train_x, dtype=ng.float32), ng.tensor(train_y))
    test_images, test_labels = ng.tensor(test_x, dtype=ng.float32), ng.tensor(test_y)

    model = Classifier(hidden=256)
    optimizer = ng.optim.Adam(model.parameters(), lr=4e-3)
    schedule = ng.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, total_iters=epochs)
    accuracy = 0.0
    for epoch in range(epochs):
        model.train()
        for images, labels in DataLoader(train, batch_size=32, shuffle=True):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        schedule.step()
        model.eval()
        with ng.no_grad():
            accuracy = (model(test_images).argmax(1) == test_labels).float().mean().item()
        print(f"epoch {epoch + 1}: loss {loss.item():.4f}, held-out accuracy {accuracy:.2%}")

    ng.save(model.state_dict(), "digits.safetensors")
    return accuracy


if __name__ == "__main__":
    main()
