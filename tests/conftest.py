"""Order of the run: the tour of everything first, so that what is broken at heart shows at once.

And Python's heap: kernels that are compiled leave millions of objects in a worker, among which each
recording looks for tensors, and each full collection for garbage. That took a third of the run.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import sys
import weakref

import pytest
from numba import config as numba_config

# pytest's workers fill the processors; test_apart.py asks for helpers where it wants them.
os.environ.setdefault("NUMBAGRAD_COMPILE_PROCESSES", "0")


def pytest_configure(config):
    if getattr(config.option, "dist", "no") == "load":  # a free worker takes what another has left
        config.option.dist = "worksteal"


PEERS = [name for name in ("torch", "jax", "autograd", "mygrad") if importlib.util.find_spec(name)]


def pytest_report_header(config):
    peers = ", ".join(PEERS) or "none is installed (pip install '.[peers]')"
    return f"left out: tests that need a GPU, where there is none, or a peer; peers: {peers}"


def pytest_collection_modifyitems(config, items):
    leave_out = []
    if not numba_config.DISABLE_JIT:  # tests/compiled/test_interpreted.py runs them without
        leave_out.append("interpreted")
    if not PEERS:  # to skip eight thousand one by one takes a quarter of a minute
        leave_out.append("peer")
    left = {id(item) for item in items if any(map(item.get_closest_marker, leave_out))}
    if left:
        config.hook.pytest_deselected(items=[item for item in items if id(item) in left])
        items[:] = [item for item in items if id(item) not in left]
    items.sort(key=lambda item: item.path.name != "test_tiny.py")


class OldObjects:
    """What was there before a module's tests: out of the collector's sight, its tensors known."""

    def __init__(self):
        self.tensors = []
        self.looking_at_all = None

    def set_apart(self, collect=True):
        from numbagrad.compiled import heap

        self.looking_at_all = self.looking_at_all or heap.all_tensors
        if collect:
            gc.collect()
        self.tensors = [weakref.ref(t) for t in self.all_tensors()]
        gc.freeze()
        self.look_by(self.all_tensors)

    @staticmethod
    def look_by(function):
        ours = [m for name, m in sys.modules.items() if name.startswith("numbagrad.compiled.")]
        for module in ours:
            if "all_tensors" in vars(module):
                module.all_tensors = function

    def all_tensors(self):
        """As ``heap.all_tensors``, which brings back what is frozen."""
        from numbagrad.compiled.heap import tracked_tensors
        from numbagrad.compiled.traced import Gone

        old = [t for t in (each() for each in self.tensors) if t is not None]
        old = [t for t in old if type(getattr(t, "_array", None)) is not Gone]
        return [*{id(t): t for t in [*old, *tracked_tensors()]}.values()]

    def bring_back(self):
        gc.unfreeze()
        self.look_by(self.looking_at_all)


OLD_OBJECTS = OldObjects()


@pytest.fixture(autouse=True, scope="module")
def old_objects_apart():
    OLD_OBJECTS.set_apart()


@pytest.fixture(scope="class")
def whole_heap():
    """The tests of a class, or one test, find the collector as a user's program would."""
    OLD_OBJECTS.bring_back()
    yield
    OLD_OBJECTS.set_apart(collect=False)  # millions of objects, seconds of it
