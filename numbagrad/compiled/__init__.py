"""``ng.compile``: record Python, make one program of it, run it as one native function.

Reading order: ``step.py`` (what a call does), ``record.py`` and ``trace.py`` (the recording),
``program.py`` (the program), ``lower.py``, ``passes.py`` and ``fusion.py``, ``emit_cpu.py`` (the
text), ``bind.py``, ``guards.py`` and ``entry.py`` (what a call checks and passes), ``carried.py``
(what it sets for the next call), ``outside.py`` (the tape).
"""

from .step import CacheInfo, CompiledFunction, compile

__all__ = ["CacheInfo", "CompiledFunction", "compile"]
