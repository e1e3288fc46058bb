"""The commands of ``python -m numbagrad``, run as a user runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

import numbagrad as ng
from numbagrad.cli import digits, main, warmup
from numbagrad.cli.recipes import RECIPES
from numbagrad.kernels import store


def command(*arguments, **environment):
    """Run ``python -m numbagrad`` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "numbagrad", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=300,
    )


def test_without_a_command_the_installation_is_described(capsys):
    assert main([]) == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert shown["numbagrad"] == ng.__version__
    assert shown["devices"].startswith("cpu")
    assert any(layer in shown["threads"] for layer in ("tbb", "omp", "workqueue"))
    assert str(store.cache_folder()) in shown["cache"]
    assert {"python", "numba", "llvmlite", "numpy", "scipy", "safetensors", "BLAS"} <= set(shown)


def test_an_unknown_command_is_refused_with_the_choices(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train"])
    assert stop.value.code == 2
    assert "digits" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--epochs", "0"], ["--lr", "-1"], ["--batch-size", "x"]])
def test_digits_refuses_numbers_that_make_no_sense(option, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["digits", *option])
    assert stop.value.code == 2
    assert option[0] in capsys.readouterr().err


def test_digits_without_the_demo_extra_says_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "sklearn", None)  # makes `import sklearn` fail
    assert main(["digits", "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert "sklearn" in error
    assert "pip install 'numbagrad[demo]'" in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", [[], ["--compile"]])
def test_digits_reaches_its_accuracy_and_the_saved_model_has_it(tmp_path, capsys, option):
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    pytest.importorskip("tqdm")
    assert main(["digits", *option, "--out", str(tmp_path)]) == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert ("step" in shown) == bool(option)
    if option:
        told = r"compiled \d+ us, eager \d+ us: \d+\.\d times as fast"
        assert re.fullmatch(told, shown["step"])
    printed = float(shown["accuracy"].split("%")[0]) / 100
    assert printed >= 0.97
    assert "device" in shown and "threads" in shown and "per" in shown

    model = digits.build(256)
    model.load_state_dict(ng.load(tmp_path / "model.safetensors"))
    _, test = digits.load_split(0)
    assert digits.held_out_accuracy(model, test) == pytest.approx(printed, abs=1e-4)
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_cache_shows_and_clears_only_compiled_kernels(tmp_path):
    folder = tmp_path / "numbagrad"
    folder.mkdir()
    (folder / "add-0123.nbc").write_bytes(b"x" * 2**20)
    (folder / "notes.txt").write_text("mine")
    where = {"NUMBA_CACHE_DIR": str(tmp_path)}

    shown = command("cache", **where)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.strip() == f"{folder}: 1 files, 1.0 MiB"
    cleared = command("cache", "--clear", **where)
    assert cleared.returncode == 0, cleared.stderr
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_cache_counts_and_clears_compiled_steps(tmp_path):
    where = {"NUMBA_CACHE_DIR": str(tmp_path)}
    code = "import numbagrad as ng; print(ng.compile(lambda x: x * 2.0)(ng.ones(2)).tolist())"
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, env={**os.environ, **where}, timeout=300,
    )  # fmt: skip
    assert run.stdout.strip() == "[2.0, 2.0]", run.stderr
    shown = command("cache", **where)
    assert shown.stdout.strip().endswith(", 1 of them compiled steps")
    assert command("cache", "--clear", **where).returncode == 0
    assert not list((tmp_path / "numbagrad").iterdir())


def test_warmup_compiles_once_in_processes_of_its_own(tmp_path):
    where = {"NUMBA_CACHE_DIR": str(tmp_path)}
    told = r"products +(\d+) compiled in [0-9.]+ s\n(\d+) kernels compiled in "
    first = command("warmup", "--only", "products", **where)
    counts = re.match(told, first.stdout)
    assert first.returncode == 0 and counts, first.stderr
    assert counts[1] == counts[2] and int(counts[1]) > 5 and str(tmp_path) in first.stdout
    again = re.match(told, command("warmup", "--only", "products", **where).stdout)
    assert again and again[2] == "0"


@pytest.mark.gate
def test_every_part_of_warmup_works_here():
    def found():  # from one line: a compiled step's text names its caller's
        return {part: warmup.compile_part(part)["compiled"] for part in RECIPES}

    assert set(found()) == set(RECIPES)
    assert not any(found().values()), "compiled twice"


def test_warmup_names_what_is_wrong(monkeypatch, capsys):
    assert main(["warmup", "--only", "produce"]) == 2
    assert "no part 'produce'; the parts are compiled, sequences," in capsys.readouterr().err
    assert main(["warmup", "--jobs", "0"]) == 2
    assert "--jobs 0 is less than 1" in capsys.readouterr().err
    failed = subprocess.CompletedProcess([], 1, "", "Traceback\nMemoryError: none left")
    monkeypatch.setattr(warmup.subprocess, "run", lambda *a, **k: failed)
    assert main(["warmup", "--only", "losses"]) == 1
    assert "losses       failed: MemoryError: none left" in capsys.readouterr().err
