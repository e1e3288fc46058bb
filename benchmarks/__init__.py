"""Figures of numbagrad beside PyTorch's; ``python -m benchmarks`` measures, prints and keeps them.

Start reading at ``case.py``; ``op_cost.py`` is the simplest suite.
"""
