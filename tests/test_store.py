"""Compiled code on disk: readable and content-named, shared by processes, never stale.

What a process does is told by the files of its cache folder and by how often it compiled, never
by the clock.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

import numbagrad
from numbagrad.kernels import store
from numbagrad.kernels.formula import Formula
from numbagrad.kernels.loops import ElementwiseKernel

PACKAGE = Path(numbagrad.__file__).parent

# How often Numba compiled, whatever follows.
COUNT = """
import numba.core.compiler as compiler

compiled = []
original = compiler.compile_extra

def counting(typingctx, targetctx, func, *args, **kwargs):
    if func.__module__.startswith("numbagrad"):
        compiled.append(func.__name__)
    return original(typingctx, targetctx, func, *args, **kwargs)

compiler.compile_extra = counting
"""

# Prints the result of a formula and of a hand-written kernel, then how often Numba compiled.
PROGRAM = f"""
{COUNT}
import numpy as np
import numbagrad as ng
from numbagrad.tensor import wrap_any

x = wrap_any(np.array([1.0, 2.0, 3.0]))
print("values", [round(v, 6) for v in (ng.exp(x) * x + 2).tolist()])
print("compiled", len(compiled))
"""

# A user's kernel whose machine code calls into Numba: hashing, lists, LAPACK, random numbers.
FOREIGN = f"""
{COUNT}
import sys
import numpy as np
from numbagrad.kernels import store

def kernel(words, matrix, out):
    count = {{"a": 0.0}}
    for word in words:
        count[word] = count.get(word, 0.0) + 1.0
    out[0] = count["b"]
    out[1] = len(set([i % 3 for i in range(10)]))
    out[2] = np.linalg.solve(matrix, matrix)[0, 0] + sum([float(i) for i in range(4)])
    np.random.seed(0)
    out[3] = np.random.rand() < 2.0

kernel.__module__ = "numbagrad_user"  # so that its compilations count
sys.modules["numbagrad_user"] = sys.modules["__main__"]
out = np.zeros(4)
store.jit(kernel)(("a", "b", "b"), np.eye(3), out)
print("values", out.tolist())
print("compiled", len(compiled))
"""


def run(folder: Path | None, program: str = PROGRAM, **environment: str | None) -> subprocess.Popen:
    """Start ``program`` with its cache in ``folder``."""
    env = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    if folder is not None:
        env["NUMBA_CACHE_DIR"] = str(folder)
    path = environment.pop("path", None) or str(PACKAGE.parent)
    env.update({k: v for k, v in environment.items() if v is not None})
    env["PYTHONPATH"] = path
    return subprocess.Popen(
        [sys.executable, "-W", "always", "-c", program],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
    )


def finish(
    process: subprocess.Popen, values: str = "[4.718282, 16.778112, 62.256611]"
) -> tuple[int, str]:
    """How often the process compiled, and what it said on stderr; its values were right."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert f"values {values}" in out, out + err
    return int(re.search(r"compiled (\d+)", out)[1]), err


def files(folder: Path) -> dict[str, int]:
    """Cache files below ``folder`` with the time they were written, which a reader leaves."""
    return {p.name: p.stat().st_mtime_ns for p in folder.rglob("*.nbc")}


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder that one process has filled."""
    folder = tmp_path_factory.mktemp("cache")
    compiled, err = finish(run(folder))
    assert compiled >= 3
    assert "Warning" not in err
    return folder


def test_a_second_process_compiles_nothing(warm):
    before = files(warm)
    assert len(before) >= 3
    compiled, err = finish(run(warm))
    assert compiled == 0, err
    assert files(warm) == before


def test_a_second_process_loads_without_what_compiles(warm):
    """Numba's refresh of its target imports SciPy's linalg and 40 modules: 0.3 s."""
    shown = "\nimport sys\nprint('numba.np.linalg' in sys.modules)"
    process = run(warm, PROGRAM + shown)
    out, err = process.communicate(timeout=300)
    assert "compiled 0" in out and out.strip().endswith("False"), out + err


def test_code_that_calls_into_numba_loads_in_a_second_process(tmp_path):
    assert finish(run(tmp_path, FOREIGN), "[2.0, 3.0, 7.0, 1.0]")[0] > 0
    compiled, err = finish(run(tmp_path, FOREIGN), "[2.0, 3.0, 7.0, 1.0]")
    assert compiled == 0, err
    assert "Warning" not in err


def test_two_processes_at_once(warm, tmp_path):
    first, second = run(tmp_path), run(tmp_path)
    for process in (first, second):
        _, err = finish(process)
        assert "Warning" not in err
    assert files(tmp_path).keys() == files(warm).keys()
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and p.suffix != ".nbc"]
    assert finish(run(tmp_path))[0] == 0


@pytest.mark.parametrize("damage", ["truncated", "empty", "garbage", "another object", "a bit"])
def test_a_damaged_file_costs_a_compile_and_a_warning(warm, tmp_path, damage):
    shutil.copytree(warm, tmp_path / "cache")
    victim = next(p for p in (tmp_path / "cache").rglob("*.nbc") if p.name.startswith("exp"))
    content = victim.read_bytes()
    victim.write_bytes(
        {
            "truncated": content[: len(content) // 2],
            "empty": b"",
            "garbage": os.urandom(1000),
            "a bit": content[:-1] + bytes([content[-1] ^ 1]),
            "another object": pickle.dumps({"not": "a kernel"}),
        }[damage]
    )
    before = files(tmp_path / "cache")
    compiled, err = finish(run(tmp_path / "cache"))
    assert compiled > 0
    after = files(tmp_path / "cache")
    assert {name for name in after if after[name] != before.get(name)} == {victim.name}
    assert f"unreadable cache file {victim}" in err
    assert finish(run(tmp_path / "cache"))[0] == 0  # and the file is whole again


def test_an_unwritable_home_costs_one_warning(tmp_path):
    """A path below a regular file cannot be made by anyone, root included."""
    block = tmp_path / "file"
    block.write_text("")
    compiled, err = finish(run(None, HOME=str(block / "home")))
    assert compiled >= 3
    assert err.count("cannot write its cache") == 1
    assert "Set NUMBA_CACHE_DIR" in err


def test_home_is_the_default(tmp_path):
    finish(run(None, HOME=str(tmp_path)))
    assert files(tmp_path)
    assert all("numbagrad" in str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.nbc"))


@pytest.mark.skipif(sys.platform != "linux", reason="XDG")
def test_xdg_cache_home(tmp_path):
    finish(run(None, XDG_CACHE_HOME=str(tmp_path)))
    assert files(tmp_path / "numbagrad")


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package and the cache folder it has filled."""
    folder = tmp_path_factory.mktemp("copied")
    shutil.copytree(PACKAGE, folder / "numbagrad", ignore=shutil.ignore_patterns("__pycache__"))
    finish(run(folder / "cache", path=str(folder)))
    return folder


@pytest.mark.parametrize("file,compiles", [("kernels/intrinsics.py", True), ("tensor.py", False)])
def test_edited_source_gives_new_keys(copied, tmp_path, file, compiles):
    """The key holds the whole kernels folder, so an edited callee cannot be missed; no more."""
    shutil.copytree(copied, tmp_path / "copy")
    cache = tmp_path / "copy" / "cache"
    edited = tmp_path / "copy" / "numbagrad" / file
    edited.write_text(edited.read_text() + "\n# edited\n")
    before = files(cache)
    compiled, _ = finish(run(cache, path=str(tmp_path / "copy")))
    assert (compiled > 0) is compiles
    after = files(cache)
    assert len(after) == (2 if compiles else 1) * len(before)
    assert {name: after[name] for name in before} == before


# ---------------------------------------------------------------- generated text


def generated(function, *dtypes):
    """Text and name of a formula's kernel."""
    import numpy as np

    kernel = ElementwiseKernel(Formula.from_function(function))
    return kernel.source(tuple(np.dtype(d) if isinstance(d, str) else d for d in dtypes))


@pytest.mark.parametrize("closure", [False, True])
def test_types_that_a_kernel_names_give_new_keys(closure):
    def text_with(real):
        source = "def double(out, x):\n    out[0] = REAL(2) * x[0]\n"
        if closure:
            source = (
                f"def make(REAL):\n    {source.replace(chr(10), chr(10) + '    ')}return double"
            )
        namespace = {"REAL": real}
        exec(source, namespace)
        return store.source_with_globals(
            namespace["make"](real) if closure else namespace["double"]
        )

    kinds = [np.float32, np.float64, numba.float32, numba.float64, np.dtype("f4"), np.dtype("f8")]
    assert len({text_with(real) for real in kinds}) == len(kinds)


def test_what_exec_made_has_its_own_text_in_a_program_that_is_text_too():
    program = """
import numba
from numbagrad.kernels.specialise import specialise
from numbagrad.kernels.store import source_with_globals
from numbagrad.kernels.machine import Kernel
texts = set()
for k in (2, 3):
    namespace = {"__name__": "elsewhere"}
    exec(f"def made(out, n):\\n    out[0] = {k} * n\\n", namespace)
    texts.add(source_with_globals(namespace["made"]))
print(len(texts))
try:
    specialise(Kernel(namespace["made"]), {"n": 4})
except ValueError as error:
    print(error)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines() == ["2", "specialise: there is no source of made"]


def test_generated_source_is_readable():
    def scaled(x, y):
        s = x * y
        return s + s * s if x > 0 else s

    text, name = generated(scaled, "float32", "float32", "float32")
    compile(text, "<test>", "exec")
    assert re.fullmatch(r"scaled_[0-9a-f]{16}", name)
    assert f"def {name}(n, out, x, y):" in text
    assert '"""scaled(x, y) = ' in text  # the formula stands above the loop
    assert "T = float32" in text
    assert text.count("x_i * y_i") == 1  # common parts are computed once
    assert max(map(len, text.splitlines())) <= 100


def test_equal_text_has_one_name_and_other_text_another():
    def f(x):
        return x * 2

    def g(x):
        return x * 3

    assert generated(f, "float32", "float32") == generated(f, "float32", "float32")
    names = {
        generated(f, "float32", "float32")[1],
        generated(f, "float64", "float64")[1],
        generated(g, "float32", "float32")[1].replace("g_", "f_"),
    }
    assert len(names) == 3


def test_generated_modules_show_their_text_in_tracebacks():
    import inspect

    module = store.load_source("def answer():\n    return 42\n", "test")
    assert module.answer() == 42
    assert sys.modules[module.__name__] is module
    assert inspect.getsource(module.answer) == "def answer():\n    return 42\n"
    assert store.load_source("def answer():\n    return 42\n", "test") is module
    assert store.load_source("def answer():\n    return 43\n", "test") is not module


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    target = tmp_path / "a.nbc"
    assert store.write_whole(target, b"first")
    assert store.write_whole(target, b"second")
    assert target.read_bytes() == b"second"
    with pytest.warns(RuntimeWarning, match="could not write"):
        assert not store.write_whole(tmp_path / "missing" / "a.nbc", b"x")
    (tmp_path / "folder").mkdir()
    with pytest.warns(RuntimeWarning, match="could not write"):
        assert not store.write_whole(tmp_path / "folder", b"x")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.nbc", "folder"]


@pytest.mark.parametrize("name", [None, "no_such_module"])
def test_what_exec_made_is_not_kept(name, tmp_path, monkeypatch):
    """Its code could not be loaded again."""
    monkeypatch.setattr(store, "cache_folder", lambda: tmp_path)
    space = {"__name__": name} if name else {"__builtins__": __builtins__}
    exec("def halved(out, x):\n    out[0] = x[0] / 2\n", space)
    out = np.empty(1, np.float32)
    store.jit(space["halved"])(out, np.ones(1, np.float32))
    assert out[0] == 0.5 and not list(tmp_path.iterdir())
