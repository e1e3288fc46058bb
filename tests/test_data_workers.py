"""Loaders with worker processes: the same batches, errors that arrive, nothing left behind."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
    get_worker_info,
)

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="these tests fork")


class Rows(Dataset):
    """Row i, of some size, and what drew it; ``act[i]`` happens on the way."""

    def __init__(self, n, size=3, act=None):
        self.n, self.size, self.act = n, size, act or {}

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        self.act.get(i, lambda: None)()
        row = ng.full((self.size,), float(i))
        drawn = (ng.rand(1).item(), float(np.random.rand()), random.random())  # noqa: NPY002
        return {"row": row, "array": np.arange(i, i + 2), "drawn": drawn, "pid": os.getpid()}


def fail():
    raise KeyError("no such\nrow")


def load(*args, **kwargs):
    kwargs.setdefault("multiprocessing_context", "fork" if kwargs.get("num_workers") else None)
    return DataLoader(*args, **kwargs)


def is_gone(pid):
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except OSError:
            return True
        time.sleep(0.05)
    return False


def folders():
    places = [Path("/dev/shm"), Path(os.environ.get("TMPDIR", "/tmp"))]
    return {f for p in places if p.is_dir() for f in p.glob("numbagrad-*")}


def test_batches_order_and_values_do_not_depend_on_workers():
    for size in (3, 4000):  # through the pipe, and through a file
        runs = []
        for workers in (0, 2):
            g = ng.Generator().manual_seed(5)  # the rows draw from the default one
            loader = load(Rows(11, size), 2, shuffle=True, num_workers=workers, generator=g)
            epochs = [[b["row"] for b in loader] for _ in range(2)]
            runs.append([[row.tolist() for row in rows] for rows in epochs])
        assert runs[0] == runs[1] and len(runs[0][0]) == 6 and runs[0][0] != runs[0][1]
    (batch,) = load(Rows(2, 4000), 2, num_workers=1)
    batch["row"][0, 0] = 7.0
    assert batch["row"][0, :2].tolist() == [7.0, 0.0] and batch["array"].tolist() == [
        [0, 1],
        [1, 2],
    ]


def test_a_seed_repeats_what_workers_draw_and_settings_count():
    def drawn(seed, **kwargs):
        g = ng.Generator().manual_seed(seed)
        loader = load(Rows(6), 2, num_workers=2, generator=g, **kwargs)
        return [[v for d in b["drawn"] for v in d.tolist()] for b in loader]

    first = drawn(3)
    assert first == drawn(3, prefetch_factor=1) and first != drawn(4)
    values = [v for batch in first for v in batch]
    assert len(set(values)) == len(values)
    same = drawn(3, worker_init_fn=lambda k: ng.manual_seed(0))
    assert same[0][:2] == same[1][:2]  # the same numbers in both workers


def test_tensors_in_memory_and_single_samples():
    x = ng.arange(20.0).view(10, 2)
    for kwargs in ({"batch_size": 4}, {"batch_size": 3, "shuffle": True}, {"batch_size": None}):
        runs = []
        for workers in (0, 2):
            ng.manual_seed(1)
            loader = load(TensorDataset(x), num_workers=workers, **kwargs)
            runs.append([b[0].tolist() for b in loader])
        assert runs[0] == runs[1]


class Count(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        info = get_worker_info()
        start, step = (0, 1) if info is None else (info.id, info.num_workers)
        assert info is None or (info.dataset is self and info.seed > 0)
        return iter(range(start, self.n, step))


def test_a_stream_is_shared_out():
    batches = [b.tolist() for b in load(Count(7), 2, num_workers=2)]
    assert batches == [[0, 2], [1, 3], [4, 6], [5]]
    assert [b.tolist() for b in load(Count(7), 2, num_workers=2, drop_last=True)] == batches[:3]
    assert sorted(load(Count(5), None, num_workers=2)) == list(range(5))
    assert get_worker_info() is None


def test_persistent_workers_serve_the_next_epoch_too():
    loader = load(Rows(8), 2, num_workers=2, persistent_workers=True)
    pids = [{int(b["pid"][0]) for b in loader} for _ in range(2)]
    assert pids[0] == pids[1] and len(pids[0]) == 2
    next(iter(loader))  # an epoch that is left early does not leak into the next
    assert [b["row"][0, 0].item() for b in loader] == [0.0, 2.0, 4.0, 6.0]
    del loader
    gc.collect()
    assert all(map(is_gone, pids[0]))


def test_an_error_comes_with_the_workers_traceback_and_the_indices():
    loader = load(Rows(6, act={3: fail}), 2, num_workers=2)
    batches = iter(loader)
    assert next(batches)["row"].shape == (2, 3)
    with pytest.raises(KeyError) as caught:
        next(batches)
    text = str(caught.value)
    assert "Caught KeyError in DataLoader worker process 1, at the indices [2, 3]" in text
    assert "in fail\n" in text
    assert next(batches)["row"][0, 0].item() == 4.0  # the others are there
    with pytest.raises(ValueError, match="Caught ValueError in worker_init_fn of DataLoader"):
        next(iter(load(Rows(2), num_workers=1, worker_init_fn=lambda k: int("x"))))
    with pytest.raises(Exception, match="worker process 0"):  # a batch that cannot be pickled
        next(iter(load(Rows(2), num_workers=1, collate_fn=lambda samples: lambda: samples)))


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: os._exit(3), "exit code 3"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "signal 9"),
    ],
    ids=["exit", "kill"],
)
def test_a_dead_worker_is_noticed_at_once(act, words):
    before = folders()
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="exited unexpectedly") as caught:
        list(load(Rows(6, act={3: act}), 2, num_workers=2))
    assert words in str(caught.value) and "worker 1 (pid" in str(caught.value)
    assert time.monotonic() - start < 30
    assert folders() <= before


def test_a_slow_worker_runs_into_the_timeout():
    loader = load(Rows(2, act={0: lambda: time.sleep(60)}), num_workers=1, timeout=0.2)
    with pytest.raises(RuntimeError, match=r"timed out after 0\.2 seconds"):
        next(iter(loader))


def test_leaving_early_leaves_nothing():
    before = folders()
    pids = set()
    for batch in load(Rows(40, 4000), 1, num_workers=2, prefetch_factor=4):
        pids.add(int(batch["pid"][0]))
        if len(pids) == 2:
            break
    del batch
    gc.collect()
    assert all(map(is_gone, pids)) and folders() <= before


SCRIPT = """
    import os, signal, sys
    import numbagrad as ng
    from numbagrad.data import DataLoader, Dataset

    class Pids(Dataset):
        def __len__(self):
            return 100

        def __getitem__(self, i):
            return os.getpid(), ng.zeros(2000)

    if __name__ == "__main__":
        if sys.argv[1] == "fork":
            (ng.ones(600, 600) @ ng.ones(600, 600)).sum().exp()  # threads run before the fork
        batches = iter(DataLoader(Pids(), 4, num_workers=2, multiprocessing_context=sys.argv[1]))
        print(*sorted({int(next(batches)[0][0]) for _ in range(4)}), flush=True)
        if sys.argv[2] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("method", "way"), [("fork", "kill"), ("spawn", "end")])
def test_workers_end_with_the_program(method, way, tmp_path):
    before = folders()
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run(
        [sys.executable, str(path), method, way], capture_output=True, text=True, timeout=120
    )
    pids = [int(p) for p in done.stdout.split()]
    assert len(pids) == 2, done.stderr
    assert (done.returncode == 0) is (way == "end") and "Traceback" not in done.stderr
    assert all(map(is_gone, pids))
    for _ in range(40):
        if folders() <= before:
            break
        time.sleep(0.05)
    assert folders() <= before


def test_what_makes_no_sense_is_refused():
    for kwargs, words in [
        ({"num_workers": -1}, "should be non-negative"),
        ({"timeout": -1}, "timeout option should be non-negative"),
        ({"prefetch_factor": 2}, "only be specified"),
        ({"num_workers": 1, "prefetch_factor": 0}, "should be positive"),
        ({"persistent_workers": True}, "needs num_workers > 0"),
        ({"multiprocessing_context": "spawn"}, "can only be used with"),
        ({"num_workers": 1, "multiprocessing_context": "thread"}, "valid start method"),
    ]:
        with pytest.raises(ValueError, match=words):
            DataLoader(Rows(3), **kwargs)
    with pytest.raises(TypeError, match="a context or a start method"):
        DataLoader(Rows(3), num_workers=1, multiprocessing_context=3)
