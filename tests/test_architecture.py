"""The rules of the house, read from the source: who imports whom, twins, docstrings, imports."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import numbagrad as ng

ROOT = Path(ng.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# A part may import parts of its own layer and of those above it in this list, nothing below.
# Modules that stand alone are named by file, packages by folder.
LAYERS = [
    {"errors", "tables", "collector", "item_dict", "later", "memory_formats", "version"}
    | {"float_limits"},
    {"dtypes", "devices"},
    {"kernels"},
    {"printing", "dlpack"},
    {"shaped", "readable"},
    {"tape"},
    {"graph_walk"},
    {"tensor"},
    {"tree"},
    {"random", "backends"},
    {"autograd"},
    {"ops"},
    {"io", "hub", "foreach"},
    {"nn", "optim", "data", "utils", "distributions"},
    {"batched"},
    {"testing", "mapped"},
    {"func"},
    {"amp", "cuda", "linalg", "types", "multiprocessing", "other_forms", "short_names", "special"},
    {"accelerator"},
    {"compiled"},
    {"compiler", "profiler"},
    {"cli", "__main__"},
]
RANK = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}


def part_of(module):
    """The part of the house that a dotted module name below numbagrad belongs to."""
    return module.split(".")[1] if "." in module else ""


def module_of(path):
    relative = path.relative_to(ROOT.parent).with_suffix("")
    parts = relative.parts[:-1] if relative.name == "__init__" else relative.parts
    return ".".join(parts)


def imports_of(path):
    """(line, absolute module or name, whether inside a function) of each import of a file."""
    tree = ast.parse(path.read_text(), str(path))
    package = module_of(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    inner = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, id(node) in inner
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{stem}.{alias.name}", id(node) in inner


def where(path, line):
    return f"{path.relative_to(ROOT.parent)}:{line}"


def test_every_part_has_its_layer():
    parts = {part_of(module_of(path)) for path in FILES} - {""}
    assert parts <= set(RANK), f"say in LAYERS where {sorted(parts - set(RANK))} stand"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path):
    """Tensor's methods call ops: an import inside a function is let through for tensor, with its
    part ``shaped``, and below autograd only, because there the direction is that of a call, not of
    the reading order.
    """
    here = part_of(module_of(path))
    if not here:  # the package's own __init__ re-exports everything
        return
    wrong = []
    for line, name, inside in imports_of(path):
        if not name.startswith("numbagrad."):
            continue
        there = part_of(name)
        if there not in RANK:
            assert hasattr(ng, there), f"{where(path, line)} imports {name}, which is no part"
            continue
        calls_back = (
            inside and here in ("shaped", "tensor", "autograd") and there in ("ops", "autograd")
        )
        if RANK[there] > RANK[here] and not calls_back:
            wrong.append(f"{where(path, line)} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_compiled_knows_neither_ops_nor_nn():
    for path in (ROOT / "compiled").rglob("*.py"):
        for line, name, _ in imports_of(path):
            assert part_of(name) not in ("ops", "nn", "optim", "data"), where(path, line)


def test_ops_families_import_lower_families_only():
    order = "elementwise join shape reduce index linalg norm loss sort".split()
    for rank, family in enumerate(order):
        path = ROOT / "ops" / f"{family}.py"
        if not path.exists():
            continue
        for line, name, inside in imports_of(path):
            parts = name.split(".")
            if parts[:2] == ["numbagrad", "ops"] and parts[2] in order and not inside:
                assert order.index(parts[2]) <= rank, f"{where(path, line)} imports {name}"


def test_cuda_is_imported_in_two_places_only_and_lazily():
    for path in FILES:
        at_home = "kernels/cuda" in path.as_posix() or path.name == "devices.py"
        for line, name, inside in imports_of(path):
            if name.startswith(("numba.cuda", "numba_cuda", "cuda.")) or name == "cuda":
                assert at_home, f"{where(path, line)} imports {name}"
                assert inside or "kernels/cuda" in path.as_posix(), where(path, line)


def test_cpu_and_cuda_kernels_never_import_each_other():
    for here, there in (("cpu", "cuda"), ("cuda", "cpu")):
        for path in (ROOT / "kernels" / here).rglob("*.py"):
            for line, name, _ in imports_of(path):
                assert not name.startswith(f"numbagrad.kernels.{there}"), where(path, line)


def test_what_a_shared_loop_calls_is_compiled_once():
    """Numba counts ``prange(n)`` by unsigned numbers where it runs in threads, and by signed ones
    where it finds the types: a function that is given the number would be compiled for both.
    """
    for path in (ROOT / "kernels").rglob("*.py"):
        loops = [
            node
            for node in ast.walk(ast.parse(path.read_text(), str(path)))
            if isinstance(node, ast.For) and "prange(" in ast.unparse(node.iter)
        ]
        for loop in loops:
            calls = [n for n in ast.walk(loop) if isinstance(n, ast.Call)]
            given = {
                part.id
                for call in calls
                if ast.unparse(call.func) not in ("range", "min", "max")
                for argument in call.args
                for part in getattr(getattr(argument, "value", None), "elts", [argument])
                if isinstance(part, ast.Name)
            }
            if ast.unparse(loop.target) in given:
                assert len(loop.iter.args) == 2, f"{where(path, loop.lineno)}: write prange(0, n)"


def test_kernels_know_neither_tensor_nor_tape():
    for path in (ROOT / "kernels").rglob("*.py"):
        for line, name, _ in imports_of(path):
            assert part_of(name) not in ("tensor", "tape", "autograd"), where(path, line)


def signatures(path):
    """Parameter names of each public function of a file."""
    return {
        node.name: [a.arg for a in node.args.args]
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }


def test_twins_have_equal_signatures():
    for cuda in (ROOT / "kernels" / "cuda").glob("*.py"):
        cpu = ROOT / "kernels" / "cpu" / cuda.name
        assert cpu.exists(), f"{cuda.name} has no twin in kernels/cpu"
        ours = signatures(cpu)
        for name, parameters in signatures(cuda).items():
            assert ours.get(name) == parameters, f"kernels/*/{cuda.name}: {name}"


def test_signatures_reads_what_it_should(tmp_path):
    path = tmp_path / "pair.py"
    path.write_text("def relu(out, x):\n    pass\n\n\ndef _inner(x):\n    pass\n")
    assert signatures(path) == {"relu": ["out", "x"]}


def test_imports_of_reads_what_it_should(tmp_path, monkeypatch):
    package = tmp_path / "numbagrad" / "ops"
    package.mkdir(parents=True)
    path = package / "norm.py"
    path.write_text("import torch\nfrom ..nn import functional\ndef f():\n    from . import loss\n")
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path / "numbagrad")
    assert [tuple(i) for i in imports_of(path)] == [
        (1, "torch", False),
        (2, "numbagrad.nn.functional", False),
        (4, "numbagrad.ops.loss", True),
    ]


# Docstrings -------------------------------------------------------------------------------------


def modules():
    """Every module of the package, imported."""
    yield ng
    for info in pkgutil.walk_packages(ng.__path__, "numbagrad."):
        if not info.name.endswith("__main__") and ".kernels.cuda" not in info.name:
            yield import_module(info.name)


def public_names(module):
    names = getattr(module, "__all__", None)
    if names is None:
        names = [n for n in vars(module) if not n.startswith("_")]
    for name in names:
        assert hasattr(module, name), f"{module.__name__}.__all__ names {name}, which is not there"
        yield name, getattr(module, name)


def test_each_public_name_has_a_docstring():
    missing = []
    for module in modules():
        if not (module.__doc__ or "").strip():
            missing.append(module.__name__)
        for name, value in public_names(module):
            ours = (getattr(value, "__module__", None) or "").startswith("numbagrad")
            if not ours or not callable(value) or type(value).__name__ == "Intrinsic":
                continue  # intrinsics are documented where they are defined
            own = value.__dict__.get("__doc__") if inspect.isclass(value) else value.__doc__
            if not (own or "").strip():
                missing.append(f"{module.__name__}.{name}")
    assert not missing, "\n".join(missing)


def test_each_public_method_of_tensor_and_module_has_a_docstring():
    missing = [
        f"{cls.__name__}.{name}"
        for cls in (ng.Tensor, ng.nn.Module)
        for name, value in inspect.getmembers(cls)
        if not name.startswith("_") and callable(value) and not (value.__doc__ or "").strip()
    ]
    assert not missing, "\n".join(missing)


# Size -------------------------------------------------------------------------------------------


def test_no_file_of_several_purposes():
    """The names STYLE forbids; length is for the reviewer."""
    for path in FILES:
        assert path.stem not in ("utils", "util", "common", "misc", "helpers"), path


# What importing costs ---------------------------------------------------------------------------


def test_importing_numbagrad_imports_no_heavy_neighbours():
    """scipy.special is heavy; what numba itself imports for BLAS does not count."""
    code = (
        "import sys, numba\n"
        "before = set(sys.modules)\n"
        "import numbagrad\n"
        "new = {m.partition('.')[0] for m in set(sys.modules) - before}\n"
        "print(*sorted(new & {'torch', 'matplotlib', 'sklearn', 'scipy', 'tqdm', 'pandas'}))\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == []


def test_importing_numbagrad_starts_no_threads_and_compiles_nothing():
    code = (
        "import threading, numbagrad\n"
        "from numba.core.registry import CPUDispatcher\n"
        "import gc\n"
        "compiled = [d for d in gc.get_objects() if isinstance(d, CPUDispatcher) and d.overloads\n"
        "            and d.__module__.startswith('numbagrad')]\n"
        "print(len(compiled), threading.active_count())\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["0", "1"]
