"""Where the time of a block goes: ``with ng.profiler.profile() as p``, then ``print(p)``."""

from .events import Event
from .profile import profile
from .report import Average, Report

__all__ = ["Average", "Event", "Report", "profile"]
