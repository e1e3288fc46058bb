"""Contenders in processes of their own, asked over a pipe: no thread pool waits for another's.

Run as a script it is such a process: ``python -m benchmarks.workers <contender> <threads>`` reads
requests and writes replies, one JSON object in a line each. It needs NumPy and its own library,
so a library that wants another Numba can live in another environment: ``PYTENSOR_PYTHON`` names
the Python that has pytensor.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from .measure import batch
from .nets import NETS
from .processes import environment

PYTHONS = {"pytensor": os.environ.get("PYTENSOR_PYTHON", sys.executable)}


class Unavailable(Exception):
    """A contender cannot be measured here; the text says why."""


class Worker:
    """A process that runs one contender on ``threads`` threads."""

    def __init__(self, contender: str, threads: int):
        self.contender = contender
        python = PYTHONS.get(contender, sys.executable)
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.workers", contender, str(threads)],
            env=environment(threads),
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def train(self, net: int, steps: int) -> list[np.ndarray]:
        """Build the step of ``NETS[net]``, run it ``steps`` times; the weights after that.

        Raises Unavailable if the library is missing or cannot do it.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "weights.npz")
            self._ask(net=net, steps=steps, path=path)
            with np.load(path) as file:
                return [file[name] for name in file.files]

    def batch(self, number: int) -> float:
        """Seconds of one of ``number`` steps."""
        return self._ask(number=number)["seconds"]

    def close(self) -> None:
        """Let the process end."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def _ask(self, **request: Any) -> Any:
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise Unavailable("its process has ended")
        reply = json.loads(line)
        if "error" in reply:
            raise Unavailable(reply["error"])
        return reply


def serve(contender: str, threads: int) -> None:
    """Answer requests until there are no more."""
    from .contenders import CONTENDERS

    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not come between the replies
    run: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "net" in request:
                run = None  # lets go of the last net's memory
                run, weights = CONTENDERS[contender](NETS[request["net"]], threads)
                for _ in range(request["steps"]):
                    run()
                np.savez(request["path"], *weights())
                reply: dict[str, Any] = {}
            else:
                reply = {"seconds": batch(run, request["number"])}
        except Exception as error:  # reported in the row: one library must not stop the others
            reply = {"error": f"{type(error).__name__}: {str(error).splitlines()[:1]}"}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
