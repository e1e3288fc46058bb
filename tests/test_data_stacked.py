"""Datasets in a chain and side by side, and samples converted without a batch."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import data


class Count(data.IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return iter(range(self.n))

    def __len__(self):
        return self.n


def test_streams_in_a_chain():
    chain = Count(2) + Count(3)
    assert isinstance(chain, data.ChainDataset)
    assert list(chain) == [0, 1, 0, 1, 2] and len(chain) == 5
    batches = list(data.DataLoader(chain, batch_size=2))
    assert [b.tolist() for b in batches] == [[0, 1], [0, 1], [2]]
    with pytest.raises(TypeError, match="ChainDataset only supports IterableDataset"):
        list(data.ChainDataset([[1, 2]]))


def test_datasets_side_by_side():
    images, labels = ng.arange(6.0).reshape(3, 2), [1, 0, 1]
    pairs = data.StackDataset(data.TensorDataset(images), labels)
    assert len(pairs) == 3 and pairs[1][1] == 0 and pairs[1][0][0].tolist() == [2.0, 3.0]
    named = data.StackDataset(image=images, label=labels)
    assert named[2]["label"] == 1 and list(named[2]) == ["image", "label"]
    (batch,) = data.DataLoader(named, batch_size=3)
    assert batch["label"].tolist() == labels and batch["image"].tolist() == images.tolist()
    with pytest.raises(ValueError, match="Size mismatch between datasets"):
        data.StackDataset(labels, [1])
    with pytest.raises(ValueError, match="either by position or by name"):
        data.StackDataset()
    with pytest.raises(ValueError, match="either by position or by name"):
        data.StackDataset(labels, label=labels)


def test_samples_of_a_batch_come_at_once():
    class Many:
        asked = ()

        def __len__(self):
            return 4

        def __getitems__(self, indices):
            self.asked = tuple(indices)
            return [i * 10 for i in self.asked]

    many = Many()
    stack = data.StackDataset(many, [5, 6, 7, 8])
    assert stack.__getitems__([0, 3]) == [(0, 5), (30, 8)] and many.asked == (0, 3)


def test_default_convert_changes_arrays_only():
    pair = namedtuple("pair", "x y")
    found = data.default_convert(
        {"a": np.ones(2, np.float32), "b": [np.float64(2.0), "text"], "c": pair(np.array([1]), 3)}
    )
    assert isinstance(found["a"], ng.Tensor) and found["b"][0].dtype is ng.float64
    assert found["b"][1] == "text" and found["c"].y == 3 and found["c"].x.tolist() == [1]
    assert data.default_convert(5) == 5
    strings = np.array(["a"])
    assert data.default_convert(strings) is strings
