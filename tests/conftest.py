"""Order of the run: the tour of everything first, so that what is broken at heart shows at once."""

from __future__ import annotations

import os

from numba import config as numba_config

# pytest's workers fill the processors; test_apart.py asks for helpers where it wants them.
os.environ.setdefault("NUMBAGRAD_COMPILE_PROCESSES", "0")


def pytest_configure(config):
    if getattr(config.option, "dist", "no") == "load":  # a free worker takes what another has left
        config.option.dist = "worksteal"


def pytest_collection_modifyitems(config, items):
    if not numba_config.DISABLE_JIT:  # tests/compiled/test_interpreted.py runs them without
        left = [item for item in items if item.get_closest_marker("interpreted")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("interpreted")]
    items.sort(key=lambda item: item.path.name != "test_tiny.py")
