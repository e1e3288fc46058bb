"""Which steps of a program are profiled, and what is done with each profile."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

__all__ = ["ProfilerAction", "ProfilerActivity", "schedule", "tensorboard_trace_handler"]


class ProfilerActivity(Enum):
    """What PyTorch can look at. Here kernels of either kind are listed in any case."""

    CPU = 0
    CUDA = 2


class ProfilerAction(Enum):
    """What is done in a step: nothing; what is done is dropped; kept; kept and handed over."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def schedule(
    *,
    wait: int,
    warmup: int,
    active: int,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Callable[[int], ProfilerAction]:
    """The action of each step, by its number: ``wait`` steps without, ``warmup``, then ``active``.

    The last active one hands the profile over. repeat: how many times all that; 0 for ever.
    skip_first: steps before it begins. skip_first_wait: 1 for no ``wait`` the first time.
    Raises ValueError for negative numbers, or if no step is active.

    >>> plan = schedule(wait=1, warmup=1, active=2)
    >>> [plan(step).name for step in range(5)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    if min(wait, warmup, active, repeat, skip_first) < 0 or not active:
        raise ValueError(
            f"schedule: wait, warmup, repeat and skip_first must not be negative and active at "
            f"least 1, got {wait}, {warmup}, {repeat}, {skip_first} and {active}."
        )
    length = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if step >= 0 and skip_first_wait:
            step += wait
        if step < 0 or (repeat and step // length >= repeat):
            return ProfilerAction.NONE
        place = step % length
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        last = place == length - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[Any], None]:
    """What writes each profile to a file of ``dir_name``, for ``profile(on_trace_ready=...)``.

    The files, ``<worker>.<time>.pt.trace.json``, are those of ``export_chrome_trace``. worker_name:
    by default the host and the process. Raises ValueError for use_gzip.
    """
    if use_gzip:
        raise ValueError("tensorboard_trace_handler: traces are not packed; leave out use_gzip.")

    def write(profile: Any) -> None:
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        Path(dir_name).mkdir(parents=True, exist_ok=True)
        path = Path(dir_name) / f"{worker}.{time.time_ns()}.pt.trace.json"
        profile.export_chrome_trace(path)

    return write
