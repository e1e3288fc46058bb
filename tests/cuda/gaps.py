"""CPU kernels that have no twin on the GPU yet, with the reason. This list only shrinks."""

from __future__ import annotations

KNOWN_GAPS = {
    "loss.cross_entropy_with_grad": "only compiled steps use it, and they are not on the GPU yet",
    "matmul.shared_gemm": "only compiled steps use it, and they are not on the GPU yet",
    "random.multinomial_again": "not written yet",
    "random.multinomial_once": "not written yet",
    "random.permutation": "Fisher and Yates is a chain; randperm shuffles on the host and copies",
    "random.philox_block": "a test of the CPU's generator",
    "random.take_counters": "the generator's state is on the host",
}

ON_THE_HOST = {
    "as_tensor-array": "makes a tensor on the memory of an ndarray",
    "cpu": "its result is on the CPU",
    "from_numpy": "makes a tensor on the memory of an ndarray",
    "numpy": "refuses a tensor on a GPU, as in PyTorch",
    "unique": "NumPy's, on the host; refuses a tensor on a GPU",
    "unique-all": "NumPy's, on the host; refuses a tensor on a GPU",
}
"""Rows of the op table that have nothing to do on a GPU."""

LAPACK = ("linalg.",)
"""Rows whose decompositions NumPy and SciPy make; they wait for cuSOLVER and raise NoTwinError."""
