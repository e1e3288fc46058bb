"""Runs the tests that are marked ``interpreted``, in a process where nothing is compiled.

They interpret programs, look at what is decided before anything runs, or run kernels on a few
numbers each: compiled for each of their shapes and dtypes these would take five times as long. To
run one of them alone: ``NUMBA_DISABLE_JIT=1 pytest tests/compiled/test_mutations.py -k memory``.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent.parent
FILES = {
    "compiled/test_arguments_noticed.py": 15,
    "compiled/test_attributes_noticed.py": 42,
    "compiled/test_compiled_programs.py": 1,
    "compiled/test_graphs_left.py": 8,
    "compiled/test_guards.py": 24,
    "compiled/test_halves_in_python.py": 14,
    "compiled/test_joined.py": 81,
    "compiled/test_mutations.py": 12,
    "compiled/test_parts.py": 8,
    "compiled/test_relied.py": 22,
    "compiled/test_sharing.py": 31,
    "compiled/test_state.py": 44,
    "test_promotion.py": 16,
    "test_vmap_ops.py": 19,
}


TOGETHER = 3
"""Files of a process, which takes seconds to begin."""


@pytest.mark.parametrize("k", range(0, len(FILES), TOGETHER))
def test_without_compiling(k: int) -> None:
    """The files have so many of them at least, and they pass."""
    names = [*FILES][k : k + TOGETHER]
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-m",
            "interpreted",
            *[str(HERE / n) for n in names],
        ],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        cwd=HERE.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
    passed = int(re.search(r"(\d+) passed", run.stdout)[1])
    assert passed >= sum(FILES[name] for name in names), run.stdout[-500:]
