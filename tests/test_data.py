"""Datasets, samplers, collation and the loader."""

from __future__ import annotations

import collections
import itertools

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    random_split,
)
from numbagrad.errors import RecordingError


class Squares(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        return i, float(i * i)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(5))


def pair(n=10):
    x = ng.arange(float(2 * n)).view(n, 2)
    return TensorDataset(x, ng.arange(n))


def rows(batches):
    return [index for _, index in batches for index in index.tolist()]


@pytest.mark.parametrize("make", [pair, Squares, lambda n: Subset(pair(20), range(n))])
def test_batches_in_order(make):
    dataset = make(10)
    batches = list(DataLoader(dataset, batch_size=4))
    assert [len(x) for x, _ in batches] == [4, 4, 2]
    assert len(DataLoader(dataset, batch_size=4)) == 3
    assert len(list(DataLoader(dataset, batch_size=4, drop_last=True))) == 2
    assert len(DataLoader(dataset, batch_size=4, drop_last=True)) == 2
    assert len(list(DataLoader(dataset, batch_size=20))) == 1
    assert list(DataLoader(dataset, batch_size=20, drop_last=True)) == []


def test_values_of_a_batch():
    x, y = next(iter(DataLoader(pair(), batch_size=3)))
    assert x.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]] and y.tolist() == [0, 1, 2]
    numbers, squares = next(iter(DataLoader(Squares(5), batch_size=3)))
    assert numbers.tolist() == [0, 1, 2] and squares.tolist() == [0.0, 1.0, 4.0]


@pytest.mark.parametrize("shuffle", [False, True])
def test_changing_a_batch_leaves_the_dataset(shuffle):
    dataset = pair()
    before = dataset.tensors[0].tolist()
    for x, _ in DataLoader(dataset, batch_size=5, shuffle=shuffle):
        x.zero_()
    assert dataset.tensors[0].tolist() == before


def test_shuffling_gives_every_row_once_and_repeats_with_the_seed():
    dataset = pair(50)
    orders = []
    for _ in range(2):
        ng.manual_seed(5)
        loader = DataLoader(dataset, batch_size=8, shuffle=True)
        orders.append([rows(loader), rows(loader)])
    assert orders[0] == orders[1]
    first, second = orders[0]
    assert first != second and first != list(range(50))
    assert sorted(first) == list(range(50))
    x, y = next(iter(DataLoader(dataset, batch_size=50, shuffle=True)))
    assert (x[:, 0] / 2.0).tolist() == y.tolist()


def test_a_generator_makes_the_order_its_own():
    orders = []
    for _ in range(2):
        ng.rand(3)
        generator = ng.Generator().manual_seed(1)
        loader = DataLoader(pair(), batch_size=4, shuffle=True, generator=generator)
        orders.append(rows(loader))
    assert orders[0] == orders[1]


def test_batches_of_tensors_are_gathered_whole():
    class Counting(TensorDataset):
        calls = 0

        def collated_batch(self, indices):
            Counting.calls += 1
            return super().collated_batch(indices)

    dataset = Counting(ng.arange(100))
    list(DataLoader(dataset, batch_size=10, shuffle=True))
    list(DataLoader(dataset, batch_size=10))
    list(DataLoader(Subset(dataset, list(range(50))), batch_size=10, shuffle=True))
    list(DataLoader(dataset, batch_size=10, sampler=SubsetRandomSampler(range(20))))
    assert Counting.calls == 10 + 10 + 5 + 2


def test_a_subclass_that_changes_samples_is_asked_for_them():
    class Doubled(TensorDataset):
        def __getitem__(self, i):
            return tuple(t * 2 for t in super().__getitem__(i))

    (x,) = next(iter(DataLoader(Doubled(ng.arange(4)), batch_size=4)))
    assert x.tolist() == [0, 2, 4, 6]
    (x,) = next(iter(DataLoader(Subset(Doubled(ng.arange(4)), [3, 1]), batch_size=4)))
    assert x.tolist() == [6, 2]


def test_getitems_is_used():
    class Batched(Squares):
        def __getitems__(self, indices):
            return [(i, -1.0) for i in indices]

    _, values = next(iter(DataLoader(Batched(5), batch_size=2)))
    assert values.tolist() == [-1.0, -1.0]


def test_collate_fn_gets_the_samples():
    seen = list(DataLoader(pair(4), batch_size=2, collate_fn=list))
    assert len(seen) == 2 and isinstance(seen[0][0], tuple)
    assert seen[0][1][0].tolist() == [2.0, 3.0]


def test_samplers_and_batch_samplers_decide():
    assert rows(DataLoader(pair(), batch_size=2, sampler=[3, 1, 2])) == [3, 1, 2]
    assert rows(DataLoader(pair(), batch_sampler=[[5], [6, 7]])) == [5, 6, 7]
    single = list(DataLoader(pair(3), batch_size=None))
    assert [y.item() for _, y in single] == [0, 1, 2]
    assert len(DataLoader(pair(3), batch_size=None)) == 3


def test_single_samples_are_converted():
    samples = [{"x": np.float32(1.5), "more": (np.int64(3), np.ones(2), "name")}]
    (found,) = DataLoader(samples, batch_size=None)
    assert isinstance(found["x"], ng.Tensor) and found["x"].item() == 1.5
    count, array, name = found["more"]
    assert (count.item(), array.tolist(), name) == (3, [1.0, 1.0], "name")
    assert list(DataLoader([1, 2], batch_size=None, collate_fn=str)) == ["1", "2"]
    for loader in (DataLoader([1, 2], batch_sampler=[[0, 1]]), DataLoader([1, 2], batch_size=2)):
        assert [batch.tolist() for batch in loader] == [[1, 2]]


def test_streams():
    assert [b.tolist() for b in DataLoader(Stream(), batch_size=2)] == [[0, 1], [2, 3], [4]]
    assert len(list(DataLoader(Stream(), batch_size=2, drop_last=True))) == 2
    assert list(DataLoader(Stream(), batch_size=None)) == [0, 1, 2, 3, 4]
    doubled = DataLoader(Stream(), batch_size=None, collate_fn=lambda sample: 2 * sample)
    assert list(doubled) == [0, 2, 4, 6, 8]
    with pytest.raises(ValueError, match="IterableDataset"):
        DataLoader(Stream(), shuffle=True)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"batch_size": 0}, ValueError, "positive integer"),
        ({"shuffle": True, "sampler": [0]}, ValueError, "mutually exclusive"),
        ({"batch_sampler": [[0]], "shuffle": True}, ValueError, "mutually exclusive"),
        ({"batch_size": None, "drop_last": True}, ValueError, "mutually exclusive"),
    ],
)
def test_loader_refuses(options, error, words):
    with pytest.raises(error, match=words):
        DataLoader(pair(), **options)


def test_datasets():
    with pytest.raises(ValueError, match="Size mismatch between tensors"):
        TensorDataset(ng.arange(3), ng.arange(4))
    whole = Squares(3) + Squares(2)
    assert isinstance(whole, ConcatDataset) and len(whole) == 5
    assert [whole[i][0] for i in range(5)] == [0, 1, 2, 0, 1] and whole[-1] == (1, 1.0)
    with pytest.raises(IndexError):
        whole[5]
    assert Subset(Squares(9), [4, 2])[0] == (4, 16.0)
    with pytest.raises(NotImplementedError):
        Dataset()[0]


def test_random_split():
    parts = random_split(pair(10), [7, 3], generator=ng.Generator().manual_seed(0))
    assert [len(p) for p in parts] == [7, 3]
    assert sorted(parts[0].indices + parts[1].indices) == list(range(10))
    again = random_split(pair(10), [0.65, 0.35], generator=ng.Generator().manual_seed(0))
    assert [len(p) for p in again] == [7, 3] and again[0].indices == parts[0].indices
    with pytest.raises(ValueError, match="Sum of input lengths"):
        random_split(pair(10), [5, 4])


def test_samplers():
    data = range(6)
    assert list(SequentialSampler(data)) == [0, 1, 2, 3, 4, 5]
    assert sorted(RandomSampler(data)) == list(data)
    assert len(list(RandomSampler(data, num_samples=4))) == 4
    assert len(list(RandomSampler(data, num_samples=15))) == 15
    drawn = list(RandomSampler(data, replacement=True, num_samples=100))
    assert len(drawn) == 100 and set(drawn) <= set(data)
    assert sorted(SubsetRandomSampler([7, 9, 11])) == [7, 9, 11]
    weighted = list(WeightedRandomSampler([0.0, 1.0, 0.0, 3.0], 400))
    assert set(weighted) == {1, 3} and 230 < weighted.count(3) < 370
    assert list(BatchSampler(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert len(BatchSampler(range(5), 2, drop_last=True)) == 2
    with pytest.raises(ValueError, match="positive integer"):
        BatchSampler(range(5), 0)
    with pytest.raises(ValueError, match="positive integer"):
        RandomSampler(data, num_samples=0)


@pytest.mark.parametrize("n", [0, 1, 5, 10])
@pytest.mark.parametrize("drop_last", [False, True])
def test_processes_share_an_order(n, drop_last):
    for replicas in (1, 2, 3, 7):
        made = [
            DistributedSampler(range(n), replicas, rank, seed=5, drop_last=drop_last)
            for rank in range(replicas)
        ]
        parts = [list(sampler) for sampler in made]
        assert {len(part) for part in parts} == {len(made[0])}
        together = [i for each in zip(*parts, strict=True) for i in each]
        assert len(together) == made[0].total_size
        first = together[:n]
        assert sorted(first) == sorted(set(first)) and set(first) <= set(range(n))
        assert drop_last or (
            set(together) == set(range(n)) and together[n:] == (first * 7)[: -n % replicas]
        )


def test_an_epoch_of_shared_orders():
    sampler = DistributedSampler(range(50), 2, 1)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first
    assert list(DistributedSampler(range(5), 2, 1, shuffle=False)) == [1, 3, 0]
    with pytest.raises(ValueError, match="num_replicas and rank are needed"):
        DistributedSampler(range(5))
    with pytest.raises(ValueError, match="Invalid rank 2"):
        DistributedSampler(range(5), 2, 2)


def test_what_a_loader_is_made_of_stays():
    loader = DataLoader(range(10), 2)
    for name in ("batch_size", "dataset", "sampler", "drop_last"):
        with pytest.raises(
            ValueError, match=f"{name} attribute should not be set after DataLoader"
        ):
            setattr(loader, name, 5)
    loader.collate_fn = sum
    assert list(loader) == [1, 5, 9, 13, 17]
    batches = iter(loader)
    assert len(batches) == 5 and iter(batches) is batches and next(batches) == 1


Point = collections.namedtuple("Point", "x y")


def test_default_collate():
    assert default_collate([1.5, 2]).dtype is ng.float64
    assert default_collate([True, False]).dtype is ng.bool
    assert default_collate([np.float32(1), np.float32(2)]).dtype is ng.float32
    assert default_collate([np.ones(2), np.zeros(2)]).tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert default_collate([ng.ones(2), ng.zeros(2)]).shape == (2, 2)
    assert default_collate(["a", "b"]) == ["a", "b"]
    found = default_collate([{"x": 1, "n": ("a", [2, 3])}, {"x": 4, "n": ("b", [5, 6])}])
    assert found["x"].tolist() == [1, 4] and found["n"][0] == ("a", "b")
    assert [t.tolist() for t in found["n"][1]] == [[2, 5], [3, 6]]
    point = default_collate([Point(1, 2), Point(3, 4)])
    assert type(point) is Point and point.y.tolist() == [2, 4]
    with pytest.raises(RuntimeError, match="equal size"):
        default_collate([[1], [2, 3]])
    with pytest.raises(TypeError, match="Pass collate_fn"):
        default_collate([object()])


def test_the_loader_is_found_where_pytorch_has_it():
    from numbagrad.utils.data import DataLoader, random_split

    assert DataLoader is ng.data.DataLoader and random_split is ng.utils.data.random_split


class Counted(IterableDataset):
    """Gives another tensor each time."""

    def __init__(self):
        self.numbers = itertools.count(1)

    def __iter__(self):
        return iter([np.full(2, next(self.numbers), np.float32)])


def test_iterating_is_refused_where_it_would_be_recorded():
    loader = DataLoader(Counted(), batch_size=None)

    def step(t):
        for batch in loader:
            t = t + ng.as_tensor(batch)
        return t.sum()

    with pytest.raises(RecordingError, match=r"DataLoader.*each batch"):
        ng.compile(step)(ng.zeros(2))
    assert step(ng.zeros(2)).item() == 2.0  # nothing was taken from it
    each = ng.func.vmap(step, randomness="different")(ng.zeros(2, 2))
    assert each.tolist() == [4.0, 6.0]  # one element after the other


@pytest.mark.parametrize("weights", [[1, 3], np.array([1, 3]), ng.tensor([1, 3]), [1e-46, 3e-46]])
def test_weights_of_any_kind(weights):
    sampler = WeightedRandomSampler(weights, 4000, generator=ng.Generator().manual_seed(0))
    assert sampler.weights.dtype is ng.float64
    assert 0.7 < np.mean(list(sampler)) < 0.8
