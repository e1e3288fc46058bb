"""``python -m numbagrad``: see ``numbagrad.cli``, where each command has its file."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
