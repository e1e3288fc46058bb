"""What ``import numbagrad`` does to a process: it is light, and leaves the collector as it was."""

import gc
import json
import subprocess
import sys
import time
import weakref

import pytest
from numba.core import event

import numbagrad as ng
from numbagrad.collector import OBJECTS, paused, seldom


def test_importing_numbagrad_imports_no_heavy_library():
    code = "import sys, json, numbagrad; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    heavy = {"torch", "matplotlib", "sklearn", "tqdm", "numba.cuda", "numbagrad.distributions"}
    heavy |= {f"numbagrad.ops.{name}" for name in ("device_memory", "selected_rules")}
    assert heavy & set(json.loads(run.stdout)) == set()


def test_files_that_are_imported_later_are_ours_too():
    """Else an error would name a line of theirs for the user's."""
    program = (
        "import numbagrad as ng\n"
        "x = ng.ones(3)\n"
        "try:\n"
        "    ng.compile(lambda x: x[x > 0].mode())(x)\n"
        "except ng.errors.RecordingError as error:\n"
        "    print(error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300
    )
    assert "mode" in run.stdout and "<string>:4" in run.stdout, run.stderr


def test_importing_numbagrad_asks_numba_for_nothing():
    """Two hundred inner functions of kernels cost nothing before a kernel is compiled."""
    program = (
        "import gc, numbagrad, numba.core.registry as registry; "
        "print(sum(type(x) is registry.CPUDispatcher for x in gc.get_objects()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == 0


@pytest.fixture
def collector():
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.usefixtures("whole_heap", "collector")
class TestPaused:
    """The block around the imports."""

    def test_the_collector_rests_and_goes_on(self):
        with paused():
            assert not gc.isenabled()
        assert gc.isenabled() and gc.get_freeze_count() == 0

    def test_it_goes_on_after_an_error(self):
        with pytest.raises(ImportError), paused():
            raise ImportError("no such thing")
        assert gc.isenabled()

    def test_who_turned_it_off_finds_it_off(self):
        gc.disable()
        with paused():
            assert not gc.isenabled()
        assert not gc.isenabled()

    def test_frozen_objects_stay_frozen(self):
        gc.freeze()
        count = gc.get_freeze_count()
        with paused():
            pass
        # The block's own frames may drop one or two that were frozen.
        assert gc.get_freeze_count() > count - 10 > 0

    def test_what_the_block_made_is_old_and_can_still_be_collected(self):
        class Knot:
            pass

        with paused():
            knot = Knot()
            knot.self = knot
            gone = weakref.ref(knot)
            assert any(knot is o for o in gc.get_objects(generation=0))
        assert not any(knot is o for o in gc.get_objects(generation=0))
        del knot
        gc.collect()
        assert gone() is None


def test_compilations_are_disturbed_less_often():
    before = gc.get_threshold()
    with seldom(), seldom():
        assert gc.get_threshold() == (OBJECTS, *before[1:])
    assert gc.get_threshold() == before
    with pytest.raises(TypeError), seldom():
        raise TypeError("a kernel that cannot be compiled")
    assert gc.get_threshold() == before
    for chosen in (0, 2 * OBJECTS):
        try:
            gc.set_threshold(chosen, *before[1:])
            with seldom():
                assert gc.get_threshold() == (chosen, *before[1:])
        finally:
            gc.set_threshold(*before)


def test_kernels_are_compiled_with_fewer_passes():
    seen = []
    never_the_same = time.time_ns()  # else the kernel would come from the cache

    class Passes(event.Listener):
        def on_start(self, event):
            seen.append(gc.get_threshold()[0])

        def on_end(self, event):
            pass

    @ng.kernel
    def twice(out, x):
        for i in range(len(x)):
            out[i] = 2 * x[i] + never_the_same * 0

    out = ng.zeros(3)
    with event.install_listener("numba:run_pass", Passes()):
        ng.launch(twice, out, ng.ones(3))
    assert out.tolist() == [2, 2, 2] and set(seen) == {OBJECTS}
    assert gc.get_threshold()[0] != OBJECTS
