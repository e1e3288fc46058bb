"""Run Python in new processes and read back the JSON they print last."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def python(*arguments: str, threads: int | None = None, **environment: str) -> Any:
    """What ``python arguments...`` prints on its last line, as JSON.

    threads: every thread pool of the process, numbagrad's and torch's, gets this size.
    """
    sizes = {} if threads is None else dict.fromkeys(THREADS, str(threads))
    inherited = {**os.environ, **sizes, **environment}
    inherited.pop("PYTHONDONTWRITEBYTECODE", None)  # pip compiles what it installs; so do we
    finished = subprocess.run(
        [sys.executable, *arguments],
        env=inherited,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(finished.stdout.splitlines()[-1])
