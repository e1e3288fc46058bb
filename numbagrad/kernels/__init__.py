"""Plain functions on arrays, compiled by Numba; start reading in ``machine.py``."""
