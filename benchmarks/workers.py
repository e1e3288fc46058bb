"""Contenders in processes of their own, asked over a pipe: no thread pool waits for another's.

Run as a script it is such a process: ``python -m benchmarks.workers <contender> <threads>`` reads
requests and writes replies, one JSON object in a line each. It needs NumPy and its own library,
so a library that wants another Numba can live in another environment: see ``libraries.python_of``.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from .libraries import python_of
from .measure import SETTLE, batch
from .processes import environment

STEPS = 5
"""Calls before results are compared: state of five updates shows a wrong rule."""
PATIENCE = 300
"""Seconds after which a contender that still compiles is left out."""


class Unavailable(Exception):
    """A contender cannot be measured here; the text says why."""


class Worker:
    """A process that runs one contender on ``threads`` threads; it starts when it is asked."""

    def __init__(self, contender: str, threads: int):
        self.contender, self.threads = contender, threads
        self._process: subprocess.Popen[str] | None = None

    def build(self, suite: str, number: int, steps: int = STEPS) -> list[np.ndarray]:
        """Prepare workload ``number`` of ``suite`` and call it ``steps`` times; its results then.

        Raises Unavailable if the library is missing, cannot do it, or takes ``PATIENCE``.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "results.npz")
            self._ask(suite=suite, number=number, steps=steps, path=path)
            with np.load(path) as file:
                return [file[name] for name in file.files]

    def batch(self, number: int) -> float:
        """Seconds of one of ``number`` calls."""
        return self._ask(calls=number)["seconds"]

    def close(self) -> None:
        """Let the process end."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin and process.stdout
        process.stdin.close()
        process.stdout.close()
        process.wait()

    def _start(self) -> subprocess.Popen[str]:
        script = ("-m", "benchmarks.workers", self.contender, str(self.threads))
        return subprocess.Popen(
            [python_of(self.contender), *script],
            env=environment(self.threads),
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _ask(self, **request: Any) -> Any:
        process = self._process = self._process or self._start()
        ready: Any = True
        assert process.stdin and process.stdout
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
            line = process.stdout.readline() if ready else None
        except BrokenPipeError:
            line = ""
        if not line:
            process.kill()
            self.close()
            raise Unavailable("its process has ended" if ready else f"no answer in {PATIENCE} s")
        reply = json.loads(line)
        if "error" in reply:
            raise Unavailable(reply["error"])
        return reply


def serve(contender: str, threads: int) -> None:
    """Answer requests until there are no more."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not come between the replies
    run: Any = None
    results: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "suite" in request:
                run = results = None  # lets go of the last workload's memory
                suite = importlib.import_module(f"benchmarks.{request['suite']}")
                run, results = suite.build(contender, request["number"], threads)
                for _ in range(request["steps"]):
                    run()
                np.savez(request["path"], *results())
                reply: dict[str, Any] = {}
            else:
                settle = SETTLE if threads > 1 else 0.0
                reply = {"seconds": batch(run, request["calls"], settle=settle)}
        except Exception as error:  # reported in the row: one library must not stop the others
            reply = {"error": f"{type(error).__name__}: {str(error).splitlines()[:1]}"}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
