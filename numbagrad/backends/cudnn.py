"""cuDNN is not used. Results are the same bits in every run, without asking for it here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["allow_tf32", "benchmark", "benchmark_limit", "deterministic", "enabled", "flags"]
__all__ += ["is_available", "version"]

enabled = benchmark = deterministic = allow_tf32 = False
benchmark_limit = 10


def is_available() -> bool:
    """False: convolutions are kernels of our own."""
    return False


def version() -> None:
    """None: there is no cuDNN."""
    return None


@contextmanager
def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
    fp32_precision: str = "none",
) -> Iterator[None]:
    """A block in which the switches stand so, and which changes nothing else.

    >>> with flags(enabled=True, deterministic=True):
    ...     ng.backends.cudnn.deterministic
    True
    """
    switches = {"enabled": enabled, "benchmark": benchmark, "benchmark_limit": benchmark_limit}
    switches |= {"deterministic": deterministic, "allow_tf32": allow_tf32}
    held = {name: globals()[name] for name in switches}
    globals().update(switches)
    try:
        yield
    finally:
        globals().update(held)
