"""Seconds of ``import numbagrad`` beside ``import numba``, each in new processes, in turn."""

from __future__ import annotations

from .case import Row, timed_row
from .measure import summary
from .processes import python

SUITE = "imports"
ROUNDS = 15
CODE = """
import json, sys, time
start = time.perf_counter()
import {name}
seconds = time.perf_counter() - start
print(json.dumps([seconds, [m for m in ("torch", "matplotlib", "sklearn") if m in sys.modules]]))
"""


def measure() -> list[Row]:
    """One row; the peer is numba."""
    seconds: dict[str, list[float]] = {"numba": [], "numbagrad": []}
    for i in range(ROUNDS + 1):
        for name in ("numba", "numbagrad"):
            elapsed, heavy = python("-c", CODE.format(name=name))
            assert not heavy, f"import {name} imports {heavy}"
            if i:  # the first round brings the files into memory
                seconds[name].append(elapsed)
    ours, peer = summary(seconds["numbagrad"]), summary(seconds["numba"])
    return [
        timed_row(
            SUITE,
            "import numbagrad / import numba",
            ours,
            peer,
            asked=1.3,
            note="imports none of torch, matplotlib, scikit-learn",
        )
    ]
