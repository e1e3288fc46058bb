"""Order of the run: the tour of everything first, so that what is broken at heart shows at once."""

from __future__ import annotations

import os

# pytest's workers fill the processors; test_apart.py asks for helpers where it wants them.
os.environ.setdefault("NUMBAGRAD_COMPILE_PROCESSES", "0")


def pytest_configure(config):
    if getattr(config.option, "dist", "no") == "load":  # a free worker takes what another has left
        config.option.dist = "worksteal"


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name != "test_tiny.py")
