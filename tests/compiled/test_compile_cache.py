"""Compiled steps on disk: a second process loads them, none gets stale or broken code."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import numbagrad
import numbagrad as ng
from numbagrad import nn
from numbagrad.kernels import store

ROOT = Path(numbagrad.__file__).parents[1]

STEP = """
import numba.core.compiler as compiler

compiled = []
original = compiler.compile_extra

def counting(typingctx, targetctx, func, *args, **kwargs):
    compiled.append(func.__qualname__)
    return original(typingctx, targetctx, func, *args, **kwargs)

compiler.compile_extra = counting

import numba
import numbagrad as ng
from numbagrad import nn, optim

SHIFT = 1.0

@ng.kernel
def inner(out, x):
    for i in range(x.size):
        out[i] = helper(x[i]) + SHIFT

@numba.njit
def helper(x):
    return x * 2.0

class Shifted(ng.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = ng.empty_like(x)
        ng.launch(inner, out, x)
        return out

ng.manual_seed(0)
layer = nn.Linear(3, 2)
optimizer = optim.SGD(layer.parameters(), lr=0.01, momentum=0.9)

@ng.compile
def step(x):
    optimizer.zero_grad()
    loss = (layer(x) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss, Shifted.apply(ng.ones(3) * x[0])

for size in (4, 4, 2):
    loss, shifted = step(ng.ones(size, 3))
print("values", round(loss.item(), 5), shifted.tolist())
print("ours", [name for name in compiled if name != "helper"])
"""


def start(folder, text=STEP):
    env = {k: v for k, v in os.environ.items() if k != "XDG_CACHE_HOME"}
    env |= {"NUMBA_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    script = folder.parent / f"step{abs(hash(text))}.py"
    script.write_text(text)
    return subprocess.Popen(
        [sys.executable, "-W", "always", script],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    """Values, names compiled, and warnings of a process."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    values, ours = out.splitlines()
    return values, ours, err


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A cache that two processes filled at once, and what the step gives.

    The slower of the two may find the step already written by the other.
    """
    folder = tmp_path_factory.mktemp("cache") / "cache"
    found = [finish(p) for p in [start(folder), start(folder)]]
    assert found[0][0] == found[1][0]
    assert "step" in found[0][1] + found[1][1] and not found[0][2] + found[1][2]
    return folder, found[0][0]


def test_another_process_compiles_nothing(filled):
    folder, values = filled
    found, ours, err = finish(start(folder))
    assert (found, ours, err) == (values, "ours []", "")


def test_a_function_that_has_moved_down_its_file_is_loaded(filled):
    """The text of a step tells of lines, in comments."""
    folder, values = filled
    assert finish(start(folder, f"# one more\n# line or two\n{STEP}")) == (values, "ours []", "")


def test_edits_are_noticed(filled):
    folder, values = filled
    text = STEP.replace("lr=0.01", "lr=0.02").replace("SHIFT = 1.0", "SHIFT = 5.0")
    found, _, _ = finish(start(folder, text))
    assert found != values and found.endswith("[7.0, 7.0, 7.0]")
    text = STEP.replace("x * 2.0", "x * 3.0").replace("** 2", "** 4")
    found, ours, _ = finish(start(folder, text))
    assert found.endswith("[4.0, 4.0, 4.0]") and "step" in ours


def outside(x, collected):
    """A model whose gradient is asked for outside: what it keeps goes to another program."""
    model = nn.Sequential(
        *[m for _ in range(3) for m in (nn.Linear(4, 4), nn.Tanh(), nn.Dropout())]
    )
    compiled = ng.compile(model)
    compiled(x).sum().backward()
    return compiled.source


def gradients_of_others(x, collected):
    """Gradients that somebody else has made come in as arguments do.

    The collector tells of what it has looked at after what it has not.
    """
    layers = []
    for k in range(4):
        layers.append(nn.Linear(4, 4))
        layers[-1](x).sum().backward()
        if k == collected:
            gc.collect()

    @ng.compile
    def more(x):
        sum(layer(x).sum() for layer in layers).backward()

    more(x)
    return more.source


def nothing(x, collected):
    """What has no numbers has an address too, of anything."""
    compiled = ng.compile(lambda x: x[[]])
    compiled(x)
    return compiled.source


@pytest.mark.parametrize("made", [outside, gradients_of_others, nothing])
def test_the_text_is_the_same_wherever_memory_lies(made):
    """It is the name by which the next process finds the code: addresses decide nothing in it."""
    texts, between = set(), []
    for k in range(5):
        between.append([bytearray(40 * j) for j in range(101 * k)])
        texts.add(made(ng.ones(3, 4), k))
    assert len(texts) == 1


def test_damaged_files_cost_a_compilation(filled):
    folder, values = filled
    for file in (folder / "numbagrad").glob("compiled_step*.nbc"):
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2])
    found, ours, err = finish(start(folder))
    assert found == values and "step" in ours and "unreadable cache file" in err
    assert finish(start(folder)) == (values, "ours []", "")


def test_a_folder_that_cannot_be_written(tmp_path, filled):
    _, values = filled
    folder = tmp_path / "cache"
    folder.write_text("a file stands where the folder should")
    found, ours, err = finish(start(folder))
    assert found == values and "step" in ours
    assert err.count("RuntimeWarning") == 1 and "cannot write its cache" in err


def test_a_full_disk(monkeypatch):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store.tempfile, "mkstemp", full)
    f = ng.compile(lambda x: (x * 1.234567 + 7.654321).sum())
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert f(ng.zeros(2)).item() == pytest.approx(2 * 7.654321)
        assert f(ng.zeros(2)).item() == pytest.approx(2 * 7.654321)
    assert any("No space left" in str(w.message) for w in seen)
