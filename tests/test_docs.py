"""README, the pages of docs/ and every docstring run: what they claim is asserted here."""

from __future__ import annotations

import builtins
import doctest
import linecache
import re
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import numbagrad as ng

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODULES = [
    info.name
    for info in walk_packages(ng.__path__, "numbagrad.")
    if not info.name.endswith(("__main__", "_cuda", "_cuda_loop"))
    and ".kernels.cuda" not in info.name
]


def blocks_of(text):
    """(line of its first statement, source) of each python block."""
    return [(text.count("\n", 0, m.start(1)) + 1, m.group(1)) for m in BLOCK.finditer(text)]


def run_page(text, name):
    """Run the blocks in order in one namespace, as a reader who types them all would.

    Formulas read their own source, so the page is made known to Python as a source file whose
    prose is blank; that also makes the line numbers of errors those of the page.
    """
    lines = [""] * (text.count("\n") + 1)
    for first, source in blocks_of(text):
        lines[first - 1 : first - 1 + source.count("\n")] = source.splitlines()
    lines = [line + "\n" for line in lines]
    linecache.cache[str(name)] = (sum(map(len, lines)), None, lines, str(name))
    namespace = {"__name__": "page"}
    for first, source in blocks_of(text):
        exec(compile("\n" * (first - 1) + source, str(name), "exec"), namespace)
    return namespace


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_code_on_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page.read_text(), page)


def test_there_is_code_to_run():
    assert len(blocks_of((ROOT / "docs" / "extending.md").read_text())) >= 6


def test_a_page_that_is_wrong_fails_at_its_line():
    with pytest.raises(AssertionError) as caught:
        run_page("# Title\n\n```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n", "page.md")
    assert caught.traceback[-1].lineno + 1 == 8


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_run(name):
    """An example may use the public names, and ``ng``, without importing them."""
    module = import_module(name)
    names = {
        key: getattr(ng, key)
        for key in {*vars(ng), *ng.__all__}  # those that nobody has asked for yet, too
        if not key.startswith("_") and not hasattr(module, key) and not hasattr(builtins, key)
    }
    failed, _ = doctest.testmod(module, extraglobs={**names, "ng": ng})
    assert failed == 0
