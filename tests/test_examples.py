"""The examples and the README's Python run as they stand."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_the_digits_script_learns(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    script = runpy.run_path(str(ROOT / "examples" / "digits.py"))
    assert script["main"](epochs=5) > 0.9
    assert (tmp_path / "digits.safetensors").exists()


@pytest.mark.slow
def test_the_digits_script_reaches_its_accuracy(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    assert runpy.run_path(str(ROOT / "examples" / "digits.py"))["main"]() >= 0.97


@pytest.mark.parametrize("options", [[], ["--compile"]])
def test_the_lenet_script_learns(options, tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    pytest.importorskip("tqdm")
    monkeypatch.chdir(tmp_path)
    script = runpy.run_path(str(ROOT / "examples" / "lenet.py"))
    assert script["main"](["--epochs", "3", *options]) > 0.9
    assert (tmp_path / "lenet.png").exists()


@pytest.mark.slow
def test_the_lenet_script_reaches_its_accuracy(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    pytest.importorskip("tqdm")
    monkeypatch.chdir(tmp_path)
    script = runpy.run_path(str(ROOT / "examples" / "lenet.py"))
    assert script["main"](["--compile"]) >= 0.98


@pytest.mark.parametrize("options", [[], ["--compile"]])
def test_the_lstm_script_learns(options, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    pytest.importorskip("tqdm")
    monkeypatch.chdir(tmp_path)
    script = runpy.run_path(str(ROOT / "examples" / "lstm.py"))
    words = script["main"].__globals__
    vocabulary, train, test = words["texts"]()
    words["texts"] = lambda: (vocabulary, train[:1025], test[:129])
    assert script["main"](["--epochs", "1", *options]) < len(vocabulary) / 4
    assert (tmp_path / "lstm.png").exists()


@pytest.mark.gate
def test_the_lstm_script_reaches_its_perplexity(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    pytest.importorskip("tqdm")
    monkeypatch.chdir(tmp_path)
    script = runpy.run_path(str(ROOT / "examples" / "lstm.py"))
    assert script["main"](["--compile"]) < 60


@pytest.mark.parametrize("options", [[], ["--compile"]])
@pytest.mark.parametrize(
    "name,few,least", [("autoencoder", ["--epochs", "4"], 0.4), ("ppo", ["--updates", "5"], 25)]
)
def test_the_script_learns(name, few, least, options, tmp_path, monkeypatch):
    for package in ("sklearn", "matplotlib", "tqdm"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    script = runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
    assert script["main"]([*few, *options]) > least
    assert (tmp_path / f"{name}.png").exists()


@pytest.mark.gate
@pytest.mark.parametrize("name,least", [("autoencoder", 0.8), ("ppo", 475)])
def test_the_script_reaches_its_figure(name, least, tmp_path, monkeypatch):
    for package in ("sklearn", "matplotlib", "tqdm"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    script = runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
    assert script["main"](["--compile"]) >= least


@pytest.mark.parametrize("options", [[], ["--compile"]])
def test_the_character_transformer_learns(options, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    pytest.importorskip("tqdm")
    monkeypatch.chdir(tmp_path)
    script = runpy.run_path(str(ROOT / "examples" / "char_transformer.py"))
    monkeypatch.setitem(script["main"].__globals__, "BATCH", 4)
    monkeypatch.setitem(script["main"].__globals__, "LENGTH", 32)
    assert script["main"](["--steps", "40", *options]) < 3.6
    assert len(capsys.readouterr().out) > 400
    assert (tmp_path / "char_transformer.png").exists()


@pytest.mark.gate
def test_the_character_transformer_reaches_its_loss(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    pytest.importorskip("tqdm")
    monkeypatch.chdir(tmp_path)
    script = runpy.run_path(str(ROOT / "examples" / "char_transformer.py"))
    assert script["main"](["--compile"]) < 1.8


def test_the_readme_runs(tmp_path, monkeypatch):
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) >= 3
    # @ng.elementwise and @njit read the source of what they compile, so it must be in a file.
    script = tmp_path / "readme.py"
    script.write_text("\n\n".join(blocks))
    runpy.run_path(str(script))


def test_the_readme_links_to_what_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / "README.md").read_text()):
        assert (ROOT / target).exists(), target
