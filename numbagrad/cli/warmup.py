"""Compile the kernels that most programs need, in parallel processes, into the cache.

A program then begins as fast in its first run as in its second: run it after an installation, in
the making of a container, or on a machine that students share.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from ..kernels import store
from ..kernels.compilations import Compilations
from ..tables import plural

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``--jobs`` and ``--only``."""
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time, by default "
        "one for each processor",
    )  # fmt: skip
    parser.add_argument(
        "--only", nargs="+", metavar="PART", default=None,
        help="some parts only, e.g. products; a wrong name lists them",
    )  # fmt: skip
    parser.add_argument("--here", metavar="PART", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Compile; 1 if a part failed, 2 for arguments that make no sense."""
    if arguments.here:
        print(json.dumps(compile_part(arguments.here)))
        return 0
    from .recipes import RECIPES

    parts = list(RECIPES) if arguments.only is None else arguments.only
    unknown = [part for part in parts if part not in RECIPES]
    if unknown or arguments.jobs < 1:
        wrong = f"no part {unknown[0]!r}" if unknown else f"--jobs {arguments.jobs} is less than 1"
        print(f"warmup: {wrong}; the parts are {', '.join(RECIPES)}.", file=sys.stderr)
        return 2
    start, compiled, seconds, failed = time.perf_counter(), 0, 0.0, 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        jobs = {pool.submit(_in_a_process, part): part for part in parts}
        for done in as_completed(jobs):
            found = done.result()
            if "error" in found:
                failed += 1
                print(f"{jobs[done]:12} failed: {found['error']}", file=sys.stderr, flush=True)
                continue
            compiled += found["compiled"]
            seconds += found["seconds"]
            print(f"{jobs[done]:12} {found['compiled']:4} compiled in {found['seconds']:.1f} s",
                  flush=True)  # fmt: skip
    print(
        f"{plural(compiled, 'kernel')} compiled in {time.perf_counter() - start:.1f} s "
        f"({seconds:.1f} s of compiling), now in {store.cache_folder()}"
    )
    return 1 if failed else 0


def _in_a_process(part: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "numbagrad", "warmup", "--here", part]
    alone = {**os.environ, "NUMBAGRAD_COMPILE_PROCESSES": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=alone)
    if done.returncode:
        return {"error": (done.stderr.strip() or "no message").splitlines()[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def compile_part(part: str) -> dict[str, Any]:
    """Run one recipe in this process; how many kernels that compiled, in how many seconds."""
    from .recipes import RECIPES

    seen = Compilations()
    with seen.watch():
        RECIPES[part]()
    return {"compiled": len(seen.found), "seconds": seen.seconds}
