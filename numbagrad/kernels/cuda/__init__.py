"""The GPU kernels: twins of ``kernels/cpu``, file by file; what they stand on is ``runtime``."""
