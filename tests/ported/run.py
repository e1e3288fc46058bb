"""What a program is given to run on: a library, numbers that are the same in each, a notebook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import numbagrad as ng


class Run:
    """One run of a program with ``torch``, which is either library; compiled, if that is asked."""

    def __init__(self, torch: Any, compiled: bool = False) -> None:
        self.torch = torch
        self.compiled = compiled
        self.numbers = np.random.default_rng(7)
        self.noted: dict[str, list[np.ndarray]] = {}
        self.models: list[Any] = []
        self.steps: list[Any] = []

    def randn(self, *shape: int) -> Any:
        """Normal numbers of the default dtype."""
        return self.tensor(self.numbers.standard_normal(shape))

    def rand(self, *shape: int) -> Any:
        """Numbers from 0 to 1."""
        return self.tensor(self.numbers.random(shape))

    def randint(self, low: int, high: int, shape: tuple[int, ...]) -> Any:
        """Whole numbers from low to high - 1."""
        return self.torch.from_numpy(self.numbers.integers(low, high, shape))

    def tensor(self, array: np.ndarray) -> Any:
        """The array's numbers in a tensor of the default dtype."""
        return self.torch.tensor(array, dtype=self.torch.get_default_dtype())

    def start(self, model: Any) -> Any:
        """The model, with weights that are the same in both libraries."""
        with self.torch.no_grad():
            for parameter in model.parameters():
                drawn = self.randn(*parameter.shape)
                if parameter.dim() > 1:
                    parameter.copy_(drawn / (parameter.numel() / parameter.shape[0]) ** 0.5)
                else:
                    constant = parameter.view(-1)[0].item() == 1.0  # as of norms
                    parameter.copy_(float(constant) + 0.1 * drawn)
        self.models.append(model)
        return model

    def step(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function itself or, in a compiled run, what ``ng.compile`` makes of it."""
        if not self.compiled:
            return function
        self.steps.append(ng.compile(function))
        return self.steps[-1]

    def note(self, **values: Any) -> None:
        """Write numbers down, to be compared between the libraries."""
        for name, value in values.items():
            if hasattr(value, "detach"):
                value = value.detach().numpy()
            self.noted.setdefault(name, []).append(np.array(value))

    def finished(self) -> dict[str, list[np.ndarray]]:
        """All that was noted, and the parameters, gradients and buffers of the models."""
        for i, model in enumerate(self.models):
            for name, parameter in model.named_parameters():
                self.note(**{f"{i}.{name}": parameter})
                if parameter.grad is not None:
                    self.note(**{f"{i}.{name}.grad": parameter.grad})
            for name, buffer in model.named_buffers():
                self.note(**{f"{i}.{name}": buffer})
        return self.noted


def agree(expected: dict[str, Any], found: dict[str, Any], rtol: float, atol: float) -> None:
    """Raise if the runs have noted different names, numbers of times, dtypes or values."""
    assert list(expected) == list(found)
    for name, values in expected.items():
        assert len(values) == len(found[name]), name
        for i, (x, y) in enumerate(zip(values, found[name], strict=True)):
            assert (x.shape, x.dtype) == (y.shape, y.dtype), f"{name}, {i}"
            np.testing.assert_allclose(y, x, rtol, atol, err_msg=f"{name}, {i}")
