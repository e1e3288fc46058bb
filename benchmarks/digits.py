"""Seconds of an epoch of ``python -m numbagrad digits``, with its step compiled and op by op.

Run as a script it is that command, which then prints the seconds of its epochs as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile

from .case import Row, timed_row
from .measure import summary
from .processes import python

SUITE = "digits"
RUNS, EPOCHS = 3, 8


def measure() -> list[Row]:
    """One row; the peer is eager numbagrad. The first epoch, which loads kernels, is left out."""
    seconds: dict[str, list[float]] = {"compiled": [], "eager": []}
    for _ in range(RUNS):
        for mode in seconds:
            with tempfile.TemporaryDirectory() as out:
                epochs = python("-m", "benchmarks.digits", mode, out, threads=1)
            seconds[mode] += epochs[1:]
    compiled, eager = (summary(values) for values in seconds.values())
    return [timed_row(SUITE, "epoch of the digits example, compiled / eager", compiled, eager)]


def main(mode: str, out: str) -> None:
    """Train as the command line does, and print what its report would sum up."""
    from numbagrad.cli import digits

    found: list[float] = []
    digits.report = lambda epochs, *_: found.extend(epoch.seconds for epoch in epochs)
    parser = argparse.ArgumentParser()
    digits.add_arguments(parser)
    flags = ["--compile"] if mode == "compiled" else []
    digits.run(parser.parse_args(["--epochs", str(EPOCHS), "--out", out, *flags]))
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
