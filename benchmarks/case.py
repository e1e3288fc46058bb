"""What is measured: a ``Case`` is code run on numbagrad and on torch, a ``Row`` is its figure.

numbagrad keeps PyTorch's names, so a case is written once, for a module ``lib`` that is either.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from .measure import Timing

Run = Callable[[], tuple[Any, ...]]
"""One timed call; it returns the tensors that must be equal on both sides."""

COMPILED_AT_MOST, EAGER_AT_MOST = 1.1, 1.3
"""Ratios to the best peer and to the best of torch's eager forms that are asked of every workload;
their geometric means are asked for in ``overview.py``."""


@dataclass(frozen=True)
class Case:
    """Code to time.

    build: prepares everything that is not timed and returns the call that is.
    at_most: the ratio to torch that is asked for, or with ``asked_of_ratio=False`` the seconds;
    None where no figure is.
    threads: the numbers of threads to measure with.
    """

    name: str
    build: Callable[[Any], Run]
    at_most: float | None = None
    threads: tuple[int, ...] = (1,)
    rtol: float = 1e-5
    atol: float = 1e-6
    asked_of_ratio: bool = True


@dataclass(frozen=True)
class Row:
    """One figure: medians, the distance of the quartiles, and the best round.

    asked: the most that ``ours / peer`` may be, or with ``asked_of_ratio=False`` that ``ours`` may.
    contenders: seconds of all who ran it, where there are more than two.
    """

    suite: str
    name: str
    unit: str
    ours: float
    ours_spread: float = 0.0
    ours_best: float = 0.0
    peer: float | None = None
    peer_spread: float = 0.0
    peer_best: float = 0.0
    threads: int = 1
    asked: float | None = None
    asked_of_ratio: bool = True
    note: str = ""
    contenders: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Ours over the peer's; below 1 we are faster."""
        return None if self.peer is None else self.ours / self.peer

    @property
    def best_ratio(self) -> float | None:
        """The same of the best rounds: what a machine without neighbours would show."""
        return self.ours_best / self.peer_best if self.peer_best else None

    @property
    def met(self) -> bool | None:
        """Whether the figure asked for is reached; None where none is, or the peer is missing."""
        figure = self.ratio if self.asked_of_ratio else self.ours
        return None if self.asked is None or figure is None else figure <= self.asked


def timed_row(suite: str, name: str, ours: Timing, peer: Timing | None, **more: Any) -> Row:
    """A row of seconds."""
    theirs: dict[str, Any] = {}
    if peer is not None:
        theirs = {"peer": peer.median, "peer_spread": peer.spread, "peer_best": peer.best}
    return Row(suite, name, "s", ours.median, ours.spread, ours.best, **theirs, **more)


def beside_best(
    suite: str, name: str, ours: str, peers: Sequence[str], times: Mapping[str, Timing], **more: Any
) -> Row:
    """A row of seconds of ``ours`` beside the fastest of ``peers`` that has been timed.

    Its note holds all of ``times``, and what ``more`` has for a note.
    """
    best = min((p for p in peers if p in times), key=lambda p: times[p].median, default=None)
    told = "; ".join(f"{who} {t.median:.3g} s ({t.best:.3g})" for who, t in times.items())
    more["note"] = f"median (best): {told}{more.get('note', '')}"
    peer = times[best] if best else None
    return timed_row(suite, f"{name} / {best or 'no peer'}", times[ours], peer, **more)


def load_peer() -> ModuleType | None:
    """torch, or None where it is not installed."""
    try:
        return importlib.import_module("torch")
    except ModuleNotFoundError:
        return None


def compile_step(lib: Any, step: Callable[..., Any]) -> Callable[..., Any]:
    """``step`` as one native function if ``lib`` is numbagrad; as it is, for torch."""
    return lib.compile(step) if lib.__name__ == "numbagrad" else step


def uniform(*shape: int) -> np.ndarray:
    """Float32 numbers from -1 to 1, the same at every call for a shape."""
    return np.random.default_rng(shape).uniform(-1.0, 1.0, shape).astype(np.float32)


def check_equal(case: Case, ours: Run, peer: Run) -> None:
    """Raise unless one call on each side gives the same numbers: time counts only then."""
    mine, theirs = ours(), peer()
    assert len(mine) == len(theirs) > 0, case.name
    for i, (x, y) in enumerate(zip(mine, theirs, strict=True)):
        np.testing.assert_allclose(
            x.detach().numpy(),
            y.detach().numpy(),
            rtol=case.rtol,
            atol=case.atol,
            err_msg=f"{case.name}, result {i}",
        )
