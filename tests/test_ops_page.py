"""docs/ops.md is what the op table says now, and every name of the scope exists.

NUMBAGRAD_WRITE_DOCS=1 python -m pytest tests/test_ops_page.py writes the page anew.
"""

from __future__ import annotations

import os
from pathlib import Path

import ops_page
import pytest
import scope

PAGE = Path(__file__).parent.parent / "docs" / "ops.md"


def test_the_page_is_current():
    current = ops_page.page()
    if os.environ.get("NUMBAGRAD_WRITE_DOCS"):
        PAGE.write_text(current)
    else:
        text = PAGE.read_text() if PAGE.exists() else ""
        assert current == text, "run this test with NUMBAGRAD_WRITE_DOCS=1 and look at the change"


@pytest.mark.parametrize("group", scope.GROUPS, ids=lambda group: group or "tensor")
def test_every_name_of_the_scope_exists(group):
    assert len(set(scope.names(group))) == len(scope.GROUPS[group])
    assert not scope.missing(group)


def test_each_operation_has_one_line():
    text = ops_page.page()
    for name in ("sum(input, dim=None", "linalg.inv(", "nn.functional.conv2d(", "x.view("):
        assert text.count(f"| `{name}") == 1, name
    assert set(ops_page.NOTES) <= {
        e.name for cases in ops_page.FAMILIES.values() for e in ops_page.entries(cases)
    }
