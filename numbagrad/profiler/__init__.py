"""Where the time of a block goes: ``with ng.profiler.profile() as p``, then ``print(p)``."""

from .events import Event
from .profile import profile
from .region import record_function
from .report import Average, Averages, Report
from .schedule import ProfilerAction, ProfilerActivity, schedule, tensorboard_trace_handler

__all__ = [
    "Average",
    "Averages",
    "Event",
    "ProfilerAction",
    "ProfilerActivity",
    "Report",
    "profile",
    "record_function",
    "schedule",
    "tensorboard_trace_handler",
]
