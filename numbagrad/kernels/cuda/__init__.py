"""The GPU kernels: twins of ``kernels/cpu``, one file each; what they stand on is in ``runtime``."""
