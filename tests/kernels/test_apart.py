"""Helper processes: they change how long a compilation takes, and nothing else."""

import os
import subprocess
import sys
import threading
import time
from types import ModuleType

import numba
import numpy as np
import pytest
from numba import types

from numbagrad.kernels import apart, store
from numbagrad.kernels.cpu import along, optim, search
from numbagrad.kernels.machine import Kernel
from numbagrad.kernels.product import what_multiplies

STEP = """
import numbagrad as ng
from numbagrad.kernels.compilations import Compilations
from numbagrad.kernels.store import cache_folder

ng.manual_seed(0)
model = ng.nn.Linear(5, 4)
optimizer = ng.optim.Adam(model.parameters(), lr=0.1)

def step(x, y):
    optimizer.zero_grad()
    loss = ng.nn.functional.cross_entropy(ng.nn.functional.layer_norm(model(x), (4,)), y)
    loss.backward()
    optimizer.step()
    return loss

run = ng.compile(step)
x, y = ng.arange(15.0).reshape(3, 5).cos(), ng.tensor([0, 3, 1])
before = set(cache_folder().iterdir())
with Compilations().watch() as seen:
    losses = [run(x, y).item() for _ in range(3)]
made = set(cache_folder().iterdir()) - before
print(*losses)
print(len(seen.found), len([p for p in made if p.suffix == ".nbc"]))
"""


def test_a_cold_step_is_compiled_by_two(tmp_path):
    """The helper makes the same files, and the step the same losses."""
    told = {}
    for count in "01":
        folder = tmp_path / count
        more = {"NUMBA_CACHE_DIR": str(folder), "NUMBAGRAD_COMPILE_PROCESSES": count}
        run = subprocess.run(
            [sys.executable, "-c", STEP],
            capture_output=True, text=True, timeout=300, env={**os.environ, **more},
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        losses, counts = run.stdout.splitlines()
        compiled_here, made = map(int, counts.split())
        # Without what a helper was about to write when the process ended.
        files = {path.name for path in (folder / "numbagrad").iterdir() if path.suffix == ".nbc"}
        told[count] = losses, files
        assert compiled_here == made if count == "0" else compiled_here < made
    assert told["0"] == told["1"]


@pytest.fixture
def wanted(tmp_path, monkeypatch):
    """Three signatures that no cache has, and one helper allowed."""
    monkeypatch.setenv("NUMBAGRAD_COMPILE_PROCESSES", "1")
    monkeypatch.setattr(store, "cache_folder", lambda: tmp_path)
    row, cube = (types.Array(types.float32, rank, "C") for rank in (1, 3))
    which = types.Array(types.int64, 3, "C")
    return [
        (store.jit(along.pick.function), (cube, cube, which)),
        (store.jit(along.place.function), (cube, cube, which)),
        (store.jit(search.histogram.function), (row, row, types.float64, types.float64)),
    ]


def compile_all(wanted):
    with apart.helped(wanted) as ours:
        for dispatcher, signature in ours:
            dispatcher.compile(signature)
        for dispatcher, signature in wanted:
            assert store.address_of_compiled(dispatcher, signature)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("code", ["import os; os._exit(1)", "print(end='?', flush=True)"])
def test_a_helper_that_dies_costs_nothing_but_time(wanted, monkeypatch, code):
    monkeypatch.setattr(apart, "_start", lambda: helper(code))
    compile_all(wanted)
    assert store.elsewhere == []


@pytest.fixture
def hanging(monkeypatch):
    """The processes that were started; they take what they are given and never answer."""
    started = []

    def start():
        started.append(helper("import time; time.sleep(600)"))
        return started[-1]

    monkeypatch.setattr(apart, "_start", start)
    return started


def test_a_helper_that_hangs_is_not_waited_for(wanted, hanging, monkeypatch):
    monkeypatch.setattr(apart, "LONGEST", 0.1)
    before = threading.active_count()
    compile_all(wanted)
    assert hanging[0].poll() is not None and threading.active_count() == before


def test_helpers_end_with_the_error_of_a_block(wanted, hanging):
    with pytest.raises(KeyboardInterrupt), apart.helped(wanted):
        while not hanging:
            time.sleep(0.01)
        raise KeyboardInterrupt
    assert hanging[0].poll() is not None and store.elsewhere == []


@pytest.mark.filterwarnings("error")
def test_a_process_that_cannot_be_started_is_done_without(wanted, monkeypatch):
    def refused():
        raise OSError("no more processes")

    monkeypatch.setattr(apart, "_start", refused)
    compile_all(wanted)


@pytest.fixture
def begun(wanted, hanging):
    """A helper has taken the first of the three."""
    apart.begin(wanted)
    work = apart._begun[os.getpid()]
    while not work._taken:
        time.sleep(0.01)
    yield work
    apart._end()
    assert all(process.poll() is not None for process in hanging)
    assert store.elsewhere == []


def test_what_is_begun_is_waited_for_and_no_more(wanted, begun, monkeypatch):
    apart.begin(wanted)
    monkeypatch.setattr(apart, "LONGEST", 0.1)
    for dispatcher, signature in wanted:
        assert store.address_of_compiled(dispatcher, signature)
    assert list(begun._taken) == [path_of(wanted[0])] and not begun._left


def test_a_program_takes_over_the_helper_that_has_begun(wanted, begun, hanging):
    """What it does not need is dropped."""
    with apart.helped(wanted[2:]):
        assert list(begun._left) == [path_of(wanted[2])]
        assert not apart._begun and len(hanging) == 1
    assert store.elsewhere == []


def test_a_helper_takes_the_longest_and_nobody_waits_for_it_early(wanted, hanging):
    """What it has is compiled here when all else has been."""
    length = {path_of(w): len(w[0].py_func.__code__.co_code) for w in wanted}
    longest = max(length, key=length.get)
    with apart.helped(wanted) as ours:
        while not hanging:
            time.sleep(0.01)
        (work,) = (waits.__self__ for waits in store.elsewhere)
        while not work._taken:
            time.sleep(0.01)
        assert list(work._taken) == [longest]
        order = [path_of(w) for w in ours]
        assert order[-1] == longest and set(order) == set(length)
        assert order[:-1] == [path_of(w) for w in wanted if path_of(w) != longest]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_waits_for_no_helper_of_its_parent(begun):
    child = os.fork()
    if child == 0:
        apart._end()
        os._exit(len(store.elsewhere))
    assert os.waitpid(child, 0)[1] == 0
    assert begun._processes[0].poll() is None


def test_a_helper_goes_on_after_what_multiplies(tmp_path, monkeypatch):
    """Its code refers to BLAS, of which a helper has only the names."""
    monkeypatch.setenv("NUMBAGRAD_COMPILE_PROCESSES", "1")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    product, signature = what_multiplies(np.dtype(np.float32))
    row = types.Array(types.float32, 1, "C")
    histogram = row, row, types.float64, types.float64
    wanted = [(store.jit(product.py_func), signature), (search.histogram.serial, histogram)]
    with apart._start() as process:
        for dispatcher, signature in wanted:
            task = apart._task(dispatcher._cache, signature)
            assert apart._ask(process, task) == b"."
            assert store.made(dispatcher, signature)
        process.kill()


def test_layers_begin_what_multiplies(tmp_path):
    """It is made by the helper, and nothing is left running."""
    code = """if True:
        import time
        import numbagrad as ng
        from numbagrad.kernels import apart, product
        from numbagrad.kernels.compilations import Compilations
        with Compilations().watch() as seen:
            ng.nn.Linear(3, 2)
            product.load_products(ng.float32.numpy)
        (work,) = apart._begun.values()
        print(*sorted(c.name for c in seen.found), work._processes[0].pid)
    """
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True, text=True, timeout=300,
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBAGRAD_COMPILE_PROCESSES": "1"},
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    *compiled, process = run.stdout.split()
    assert compiled == ["uniform"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(process), 0)


def path_of(wanted):
    dispatcher, signature = wanted
    return dispatcher._cache.path(signature, dispatcher.targetctx)


def helper(code):
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def test_what_is_in_the_cache_asks_for_no_helper(wanted, monkeypatch):
    monkeypatch.setattr(apart, "_start", lambda: pytest.fail("a process was started"))
    compile_all(wanted[:2])  # too few
    assert set(apart._missing(wanted)) == {
        wanted[2][0]._cache.path(wanted[2][1], wanted[2][0].targetctx)
    }
    again = [(store.jit(d.py_func), s) for d, s in wanted[:2]]
    assert not apart._missing(again)  # on disk


def test_kernels_of_users_stay_here():
    def mine(out):
        out[0] = 1

    signature = (types.Array(types.float32, 1, "C"),)
    dispatcher = Kernel(mine).serial
    assert apart._missing([(dispatcher, signature)]) == {}
    assert apart._task(dispatcher._cache, signature) is None
    ours = optim.clip_norm.serial
    task = apart._task(ours._cache, signature)
    assert task is not None and (task.module, task.text) == (optim.__name__, None)


@pytest.mark.parametrize("module", ["theirs", "numbagrad_theirs", "__main__"])
def test_what_imports_a_module_of_users_stays_here(module, monkeypatch):
    """It may do anything when it is imported: train, say."""
    monkeypatch.setitem(sys.modules, module, a_module(module, half=0.5))
    text = f"from {module} import half\n\n\ndef scaled(out):\n    out[0] = half\n"
    signature = (types.Array(types.float32, 1, "C"),)
    made = store.compile_source(text, "scaled")
    assert apart._task(made._cache, signature) is None
    text = text.replace(f"from {module} import half", "from math import pi as half")
    task = apart._task(store.compile_source(text, "scaled")._cache, signature)
    assert task is not None and task.text == text
    mine = a_module(module, scaled=lambda out: None).scaled
    mine.__module__ = module
    assert apart._task(Kernel(mine).serial._cache, signature) is None


def a_module(name, **contents):
    module = ModuleType(name)
    vars(module).update(contents)
    return module


def test_how_many_helpers(monkeypatch):
    monkeypatch.setenv("NUMBAGRAD_COMPILE_PROCESSES", "3")
    assert apart.helpers_allowed() == 3
    monkeypatch.delenv("NUMBAGRAD_COMPILE_PROCESSES")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    assert apart.helpers_allowed() == apart.MOST
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert apart.helpers_allowed() == 0
