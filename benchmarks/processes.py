"""Run Python in new processes and read back the JSON they print last."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def environment(threads: int | None = None, **more: str) -> dict[str, str]:
    """Variables for a new process; every thread pool in it gets the size ``threads``."""
    sizes = {} if threads is None else dict.fromkeys(THREADS, str(threads))
    variables = {**os.environ, **sizes, **more}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)  # pip compiles what it installs; so do we
    return variables


def python(
    *arguments: str,
    threads: int | None = None,
    executable: str = sys.executable,
    errors: int | None = None,
    **more: str,
) -> Any:
    """What ``python arguments...`` prints on its last line, as JSON.

    threads: every thread pool of the process, numbagrad's and torch's, gets this size. errors:
    ``subprocess.PIPE`` keeps what it says of errors for the CalledProcessError.
    """
    finished = subprocess.run(
        [executable, *arguments],
        env=environment(threads, **more),
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        check=True,
    )
    return json.loads(finished.stdout.splitlines()[-1])
