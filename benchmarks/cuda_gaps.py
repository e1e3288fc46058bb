"""Twins: which CPU kernels have none on the GPU, with the reason. The list only shrinks."""

from __future__ import annotations

import ast
from pathlib import Path

import numbagrad as ng

KERNELS = Path(ng.__file__).parent / "kernels"
DECORATORS = {"kernel", "list_kernel", "product_kernel", "gemm_kernel", "strided_gemm_kernel"}

KNOWN_GAPS = {
    "batch_norm.channel_affine": "elsewhere it is a formula, which steps join with others",
    "batch_norm.move_statistics": "elsewhere batch_norm moves the running statistics itself",
    "batch_norm.channel_affine_grad": "elsewhere it is formulas and sums, which steps join",
    "distances.cdist": "elsewhere it is norms of differences, which steps join",
    "distances.cdist_grad": "elsewhere it is that of norms of differences",
    "distances.pdist": "elsewhere it is norms of differences, which steps join",
    "distances.pdist_grad": "elsewhere it is that of norms of differences",
    "gemm.product": "what the CPU's products are made of; matmul.py has their twins",
    "gemm.product_on_unit": "what the CPU's products are made of; matmul.py has their twins",
    "group_norm.group_norm": "elsewhere it is layer_norm and a formula, which steps join",
    "group_norm.group_norm_grad": "elsewhere it is that of layer_norm and of a formula",
    "half_batch_norm.batch_norm_of_halves": "on the GPU batch_norm reads and writes halves itself",
    "half_batch_norm.batch_norm_of_halves_grad": "on the GPU batch_norm_grad does so",
    "half_loss.cross_entropy_grad_of_halves": "on the GPU cross_entropy_grad rounds once itself",
    "half_norm.softmax_axis_of_halves": "on the GPU softmax_axis reads and writes halves itself",
    "half_norm.softmax_rows_of_halves": "on the GPU softmax_rows reads and writes halves itself",
    "half_rows.add_at_of_halves": "on the GPU add_at adds up halves itself",
    "half_product.half_product": "what the CPU's products are made of; matmul.py has their twins",
    "half_product.rounded_product": "of medium precision on the CPU; on the GPU mm rounds",
    "index.gather_standing": "elsewhere it is a scatter, a gather and a comparison",
    "join.place_rows": "of addresses; on the GPU place_four, and copies by any strides",
    "loss.cross_entropy_with_grad": "of compiled steps on the CPU; on the GPU the two stay apart",
    "loss.cross_entropy_with_grad_by_columns": "of compiled steps on the CPU; on the GPU rows stay",
    "norm.logsumexp_with_softmax": "of compiled steps on the CPU; on the GPU the two stay apart",
    "matmul.shared_gemm": "of compiled steps on the CPU; on the GPU mm does its work",
    "random.permutation": "Fisher and Yates is a chain; randperm shuffles on the host and copies",
    "random.philox_block": "a test of the CPU's generator",
    "random.take_counters": "the generator's state is on the host",
    "random.stagger": "the generator's state is on the host",
    "reflections.qr": "of lapack.py, which has no GPU form",
    "spectra.eigh": "of lapack.py, which has no GPU form",
    "spectra.svd": "of lapack.py, which has no GPU form",
    "triangles.cholesky": "of lapack.py, which has no GPU form",
    "triangles.lu": "of lapack.py, which has no GPU form",
    "triangles.substitute": "of lapack.py, which has no GPU form",
    "runs.count_runs": "unique_consecutive is on the host",
    "runs.runs": "unique_consecutive is on the host",
}

ON_THE_HOST = {
    "as_tensor-array": "makes a tensor on the memory of an ndarray",
    "cpu": "its result is on the CPU",
    "frombuffer": "makes a tensor on the memory of a buffer",
    "from_numpy": "makes a tensor on the memory of an ndarray",
    "numpy": "refuses a tensor on a GPU, as in PyTorch",
    "unique": "NumPy's, on the host; refuses a tensor on a GPU",
    "unique-all": "NumPy's, on the host; refuses a tensor on a GPU",
    "unique_consecutive": "NumPy's, on the host; refuses a tensor on a GPU",
    "unique_consecutive-more": "NumPy's, on the host; refuses a tensor on a GPU",
}
"""Rows of the op table that have nothing to do on a GPU."""

LAPACK = ("linalg.", "pca_lowrank", "svd_lowrank")
"""Rows whose decompositions NumPy and SciPy make; they wait for cuSOLVER and raise NoTwinError."""


def kernels_of(path: Path) -> dict[str, list[str]]:
    """Parameter names of each kernel of a CPU file."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names = {n.id for d in node.decorator_list for n in ast.walk(d) if type(n) is ast.Name}
            if names & DECORATORS:
                found[node.name] = [a.arg for a in node.args.args]
    return found


def functions_of(path: Path) -> dict[str, list[str]]:
    """Parameter names of each public function of a file."""
    return {
        node.name: [a.arg for a in node.args.args]
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }


def pairs() -> tuple[list[str], list[str]]:
    """Names ``file.kernel`` of CPU kernels without and with a twin of the same parameters."""
    without: list[str] = []
    with_twin: list[str] = []
    for path in sorted((KERNELS / "cpu").glob("*.py")):
        twin = KERNELS / "cuda" / path.name
        there = functions_of(twin) if twin.exists() else {}
        for name, parameters in kernels_of(path).items():
            found = with_twin if there.get(name) == parameters else without
            found.append(f"{path.stem}.{name}")
    return without, with_twin
