"""Order of the run: the tour of everything first, so that what is broken at heart shows at once."""

from __future__ import annotations


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name != "test_tiny.py")
