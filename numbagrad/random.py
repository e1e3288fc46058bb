"""The random generator: a seed and a counter, the same numbers on every device.

Drawing takes a range of counters; what a counter becomes is in ``kernels/cpu/random.py``.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import devices, dtypes
from .errors import DTypeError, ShapeError
from .kernels import machine
from .kernels.cpu.random import take_counters
from .tensor import Tensor, wrap

__all__ = [
    "Generator",
    "are_deterministic_algorithms_enabled",
    "default_generator",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
    "use_deterministic_algorithms",
]

_DEFAULT_SEED = 67280421310721


class Generator:
    """A stream of random numbers: ``Generator().manual_seed(0)``, or ``Generator(0)`` for short.

    Philox 4x32-10 with the seed as key. Safe to share between threads: each call takes its own
    range of counters.

    >>> g = Generator(0)
    >>> randint(0, 10, (3,), generator=g).tolist() == randint(0, 10, (3,), generator=g).tolist()
    False
    """

    def __init__(self, device: Any = "cpu"):
        start = _DEFAULT_SEED
        if isinstance(device, int):
            start, device = device, "cpu"
        self.device = devices.to_device("cpu" if device is None else device)
        self._lock = threading.Lock()
        self._state = np.zeros(2, np.int64)
        self.manual_seed(start)

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of ``seed``, an int of 64 bits; returns the generator."""
        machine.outside("manual_seed")
        seed = int(seed)
        if not -(2**63) <= seed < 2**64:
            raise ShapeError(
                f"manual_seed: Overflow when unpacking long: {seed} needs over 64 bits."
            )
        with self._lock:
            self._state[0] = seed - 2**64 if seed >= 2**63 else seed
            self._state[1] = 0
        return self

    def seed(self) -> int:
        """Start a stream that nobody can foresee; returns its seed."""
        chosen = secrets.randbits(63)
        self.manual_seed(chosen)
        return chosen

    def initial_seed(self) -> int:
        """The seed of the stream."""
        return int(self._state[0]) % 2**64

    def get_state(self) -> Tensor:
        """The position in the stream, as a uint8 tensor for ``set_state``."""
        with self._lock:
            return wrap(self._state.view(np.uint8).copy(), dtypes.uint8)

    def set_state(self, new_state: Tensor) -> Generator:
        """Go to a position that ``get_state`` returned."""
        machine.outside("set_rng_state")
        if not isinstance(new_state, Tensor) or new_state.dtype is not dtypes.uint8:
            raise DTypeError("set_state: RNG state must be a uint8 tensor made by get_state.")
        if new_state.shape != (16,):
            raise ShapeError(f"set_state: RNG state is wrong size, {list(new_state.shape)}.")
        with self._lock:
            self._state[:] = np.ascontiguousarray(new_state.numpy()).view(np.int64)
        return self

    def take(self, counters: int) -> Any:
        """The state for a kernel that uses so many counters; the generator moves past them."""
        return self._take(counters) if _rules.now is None else self._ruled(counters, _rules.now)

    def _ruled(self, counters: int, rules: Any) -> Any:
        if rules is None:
            return self._take(counters)
        rule, others = rules
        return rule(lambda counters: self._ruled(counters, others), self, counters)

    def _take(self, counters: int) -> Any:
        with self._lock:
            if not machine.closed:
                taken = self._state.copy()
                self._state[1] += counters
                return taken
            taken = machine.empty((2,), self._state.dtype)
            machine.launch(take_counters, taken, machine.bind(self._state), counters)
            return taken

    def __getstate__(self) -> bytes:
        return self._state.tobytes()

    def __setstate__(self, state: bytes) -> None:
        self.__init__()  # type: ignore[misc]
        self._state[:] = np.frombuffer(state, np.int64)

    def __repr__(self) -> str:
        return f"<Generator seed={self.initial_seed()} counter={int(self._state[1])}>"


class _Rules(threading.local):
    """What draws go through in this thread: a rule and those around it, or None."""

    now: Any = None


_rules = _Rules()


@contextlib.contextmanager
def drawing(rule: Any) -> Iterator[None]:
    """A block in which ``rule(take, generator, counters)`` gives what generators take, if not None.

    take: what takes counters where ``rule`` wants some.
    """
    before = _rules.now
    if rule is not None:
        _rules.now = rule, before
    try:
        yield
    finally:
        _rules.now = before


default_generator = Generator()
"""What random functions use when ``generator`` is not given."""


def manual_seed(seed: int) -> Generator:
    """Seed the default generator, so that what follows is reproducible; returns it.

    >>> _ = manual_seed(0); x = rand(2)
    >>> _ = manual_seed(0); (rand(2) == x).all().item()
    True
    """
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generator unpredictably; returns the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The position of the default generator."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Bring the default generator to a position from ``get_rng_state``."""
    default_generator.set_state(new_state)


@contextlib.contextmanager
def fork_rng(devices: Any = None, enabled: bool = True) -> Iterator[None]:
    """A block after which the default generator stands where it stood before, errors or not.

    devices: accepted; GPUs draw from the same generator. enabled: False makes it an empty block.

    >>> before = get_rng_state().tolist()
    >>> with ng.random.fork_rng():
    ...     _ = rand(3)
    >>> get_rng_state().tolist() == before
    True
    """
    state = get_rng_state() if enabled else None
    try:
        yield
    finally:
        if state is not None:
            set_rng_state(state)


# -- determinism -----------------------------------------------------------------------------------

_asked = False


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for operations whose results are the same bits in every run.

    They are without asking, whatever the number of threads: this is for programs that ask, and for
    ``are_deterministic_algorithms_enabled``. On a GPU kernels are written so too, but none has run
    on one yet.
    """
    global _asked
    if not isinstance(mode, bool):
        raise TypeError(
            f"use_deterministic_algorithms: mode must be a bool, not {type(mode).__name__}."
        )
    _asked = mode


def are_deterministic_algorithms_enabled() -> bool:
    """What ``use_deterministic_algorithms`` was told last."""
    return _asked
