"""Show the folder of compiled kernels and steps, or empty it with --clear."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..kernels import store

__all__ = ["add_arguments", "describe_size", "files_of_cache", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``--clear``."""
    parser.add_argument(
        "--clear", action="store_true", help="delete the compiled kernels and steps"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print where the cache stands and how large it is, or delete its files."""
    files = files_of_cache()
    size = describe_size(files)
    if arguments.clear:
        for path in files:
            path.unlink(missing_ok=True)
        print(f"deleted {size} from {store.cache_folder()}")
    else:
        print(f"{store.cache_folder()}: {size}")
    return 0


def files_of_cache() -> list[Path]:
    """The files of compiled code, and what an interrupted process left half written."""
    return sorted(store.cache_folder().glob("*.nbc*"))


STEP = "compiled_"
"""How the names of ``ng.compile``'s files begin."""


def describe_size(files: Sequence[Path]) -> str:
    """Count and total size of ``files``, and how many are of compiled steps; one that another
    process deletes counts for nothing."""
    size = 0
    for path in files:
        try:
            size += path.stat().st_size
        except FileNotFoundError:
            continue
    steps = sum(path.name.startswith(STEP) for path in files)
    told = f", {steps} of them compiled steps" if steps else ""
    return f"{len(files)} files, {size / 2**20:.1f} MiB{told}"
