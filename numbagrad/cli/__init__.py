"""The commands of ``python -m numbagrad``, one file each.

A command is a module with ``add_arguments(parser)`` and ``run(arguments)``; the first line of its
docstring is its help. Without a command, ``info`` runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from . import cache, digits, info, warmup

__all__ = ["main"]

COMMANDS = {"info": info, "digits": digits, "warmup": warmup, "cache": cache}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command named in ``arguments`` (by default the process's) and return its status."""
    parser = argparse.ArgumentParser(prog="python -m numbagrad", description=__doc__)
    parser.set_defaults(run=info.run)
    commands = parser.add_subparsers(title="commands", metavar="")
    for name, module in COMMANDS.items():
        summary = (module.__doc__ or "").splitlines()[0]
        command = commands.add_parser(name, help=summary, description=summary)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    parsed = parser.parse_args(arguments)
    return parsed.run(parsed)
