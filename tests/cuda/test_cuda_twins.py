"""Every CPU kernel has a GPU twin of the same name and parameters, or a row in ``KNOWN_GAPS``."""

from __future__ import annotations

import ast
from pathlib import Path

from gaps import KNOWN_GAPS

import numbagrad as ng

KERNELS = Path(ng.__file__).parent / "kernels"
DECORATORS = {"kernel", "list_kernel", "blas_kernel"}


def kernels_of(path: Path) -> dict[str, list[str]]:
    """Parameter names of each kernel of a CPU file."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names = {n.id for d in node.decorator_list for n in ast.walk(d) if hasattr(n, "id")}
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


def test_every_kernel_has_a_twin_or_a_reason():
    missing, filled = [], []
    for path in sorted((KERNELS / "cpu").glob("*.py")):
        twin = KERNELS / "cuda" / path.name
        there = functions_of(twin) if twin.exists() else {}
        for name, parameters in kernels_of(path).items():
            label = f"{path.stem}.{name}"
            if name not in there:
                missing.append(label)
            else:
                assert there[name] == parameters, label
                filled.append(label)
    assert sorted(missing) == sorted(KNOWN_GAPS), "KNOWN_GAPS in tests/cuda/gaps.py is out of date"
    assert len(filled) > 80


def test_the_reader_finds_kernels(tmp_path):
    path = tmp_path / "pair.py"
    path.write_text(
        "@kernel\ndef relu(out, x):\n    pass\n\n\n@kernel(grain=2)\ndef big(out):\n    pass\n\n\n"
        "@device\ndef part(x):\n    pass\n"
    )
    assert kernels_of(path) == {"relu": ["out", "x"], "big": ["out"]}
