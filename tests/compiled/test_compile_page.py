"""docs/compile_internals.md shows the program and the source that its digits step has now.

NUMBAGRAD_WRITE_DOCS=1 python -m pytest tests/compiled/test_compile_page.py writes them anew.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import test_docs

from numbagrad.kernels import machine

PAGE = Path(__file__).parent.parent.parent / "docs" / "compile_internals.md"


def with_block(text, name, content):
    """``text`` with ``content`` in the block that follows the mark of ``name``."""
    pattern = re.compile(
        rf"(<!-- {name} of step -->\n```\w+\n).*?(^```$)", re.DOTALL | re.MULTILINE
    )
    assert len(pattern.findall(text)) == 1
    return pattern.sub(lambda m: m[1] + content.rstrip() + "\n" + m[2], text)


def test_the_program_and_the_source_on_the_page_are_current(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    threads = machine.threads()
    machine.set_threads(1)
    try:
        step = test_docs.run_page(text, PAGE)["step"]
    finally:
        machine.set_threads(threads)
    current = with_block(with_block(text, "program", repr(step.program)), "source", step.source)
    if os.environ.get("NUMBAGRAD_WRITE_DOCS"):
        PAGE.write_text(current)
    else:
        assert current == text, "run this test with NUMBAGRAD_WRITE_DOCS=1 and look at the change"
