"""A survey: training steps of networks as people write them, from ResNet to Gaussian processes.

Thirty-four networks by field, each a function of a library that is numbagrad or torch: a file for a
field. Start at ``network.py``, which says what is made and compared.
"""

from __future__ import annotations

import sys

from .. import race
from ..case import Row
from ..contenders import Step
from . import decisions, generative, graphs, images, physics, sequences, text

SUITE = "networks"
ROUNDS = 7

NETWORKS = (
    *images.NETWORKS,
    *text.NETWORKS,
    *sequences.NETWORKS,
    *generative.NETWORKS,
    *graphs.NETWORKS,
    *physics.NETWORKS,
    *decisions.NETWORKS,
)
WORKLOADS = NETWORKS


def build(contender: str, number: int, threads: int) -> Step:
    """A training step of one of ``NETWORKS``."""
    return NETWORKS[number].build(contender, threads)


def measure(rounds: int = ROUNDS, only: str = "") -> list[Row]:
    """The rows of the networks whose name holds ``only``, on one thread and on two."""
    return race.measure(sys.modules[__name__], rounds, only=only)
