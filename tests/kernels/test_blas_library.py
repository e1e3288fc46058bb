"""Which BLAS is chosen, and that each gives the same products."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from numbagrad.kernels import blas_library

PRODUCTS = """
import numpy as np
import numbagrad as ng
from numbagrad.kernels.blas_library import chosen

rng = np.random.default_rng(0)
for dtype, error in ((np.float32, 2e-3), (np.float64, 1e-11)):
    for n, m, k in ((1, 40, 30), (700, 650, 680)):
        x, y = rng.standard_normal((n, k)).astype(dtype), rng.standard_normal((k, m)).astype(dtype)
        ours = ng.tensor(x) @ ng.tensor(y)
        np.testing.assert_allclose(ours.numpy(), x @ y, atol=error)
        turned = ng.tensor(np.ascontiguousarray(x.T)).t() @ ng.tensor(np.ascontiguousarray(y.T)).t()
        np.testing.assert_allclose(turned.numpy(), x @ y, atol=error)
print(chosen().name)
"""


def in_new_process(script, **environment):
    return subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("choice", ["openblas", "mkl"])
def test_products_of_each_library(choice, tmp_path):
    """One cache serves both: compiled code knows the functions by name."""
    if choice == "mkl" and not blas_library.installed_mkl():
        pytest.skip("mkl is not installed")
    result = in_new_process(PRODUCTS, NUMBAGRAD_BLAS=choice)
    assert result.returncode == 0, result.stderr
    assert {"openblas": "OpenBLAS", "mkl": "oneMKL"}[choice] in result.stdout


def test_info_names_the_library():
    shown = in_new_process(
        "from numbagrad.__main__ import main; main(['info'])", NUMBAGRAD_BLAS="openblas"
    ).stdout
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("BLAS")] == [
        "OpenBLAS"
    ]


def test_an_unknown_choice_names_the_known_ones(monkeypatch):
    monkeypatch.setenv("NUMBAGRAD_BLAS", "atlas")
    with pytest.raises(ValueError, match="'atlas', must be one of auto, mkl, openblas"):
        blas_library.chosen.__wrapped__()


def test_mkl_that_is_not_there_is_asked_for(monkeypatch):
    monkeypatch.setenv("NUMBAGRAD_BLAS", "mkl")
    monkeypatch.setattr(blas_library, "installed_mkl", list)
    with pytest.raises(RuntimeError, match=r"pip install 'numbagrad\[mkl\]'"):
        blas_library.chosen.__wrapped__()


def test_mkl_that_does_not_load_is_passed_over(monkeypatch, tmp_path):
    broken = tmp_path / "libmkl_rt.so.2"
    broken.write_bytes(b"no library")
    monkeypatch.setattr(blas_library, "installed_mkl", lambda: [broken])
    monkeypatch.setattr(blas_library, "is_amd", lambda: False)
    monkeypatch.delenv("NUMBAGRAD_BLAS", raising=False)
    assert "MKL" not in blas_library.chosen.__wrapped__().name


@pytest.mark.parametrize("amd", [True, False])
@pytest.mark.parametrize("choice", ["auto", "mkl", "openblas"])
def test_mkl_is_not_chosen_on_amd_but_where_it_is_asked_for(monkeypatch, choice, amd):
    monkeypatch.setattr(blas_library, "installed_mkl", lambda: [Path("libmkl_rt.so.2")])
    monkeypatch.setattr(blas_library, "_mkl", lambda path: blas_library.Library("oneMKL", {}, 0))
    monkeypatch.setattr(blas_library, "is_amd", lambda: amd)
    monkeypatch.setenv("NUMBAGRAD_BLAS", choice)
    chosen = blas_library.chosen.__wrapped__()
    assert (chosen.name == "oneMKL") == (choice == "mkl" or (choice == "auto" and not amd))


def test_tiles_do_every_product_where_they_are_faster(monkeypatch):
    features = frozenset({"+avx2", "+fma", "+avx512f"})
    monkeypatch.setattr(blas_library, "features", lambda: features)
    always = blas_library.ALWAYS
    for amd, mkl, below in ((True, True, always), (False, False, always), (False, True, 1 << 26)):
        monkeypatch.setattr(blas_library, "is_amd", lambda amd=amd: amd)
        assert blas_library._tiles_below(1 << 26, mkl) == below
    features -= {"+avx512f"}
    monkeypatch.setattr(blas_library, "is_amd", lambda: True)
    assert blas_library._tiles_below(1 << 28) == 1 << 28


def test_the_newest_mkl_is_found(monkeypatch, tmp_path):
    (tmp_path / "lib").mkdir()
    for name in ("libmkl_rt.so.2", "libmkl_rt.so.10", "libmkl_core.so.11"):
        (tmp_path / "lib" / name).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(blas_library.site, "getuserbase", lambda: str(tmp_path / "none"))
    if sys.platform != "win32":
        found = [path.name for path in blas_library.installed_mkl()]
        assert found == ["libmkl_rt.so.10", "libmkl_rt.so.2"]


def test_the_library_of_scipy_when_it_came_another_way(monkeypatch):
    """Its Fortran-style pointers are called by functions with the arguments of CBLAS."""
    behind = blas_library._behind_scipy()
    assert set(behind.addresses) == set(blas_library.NAMES)
    assert all(np.array(list(behind.addresses.values())) != 0)


LIMITED = """
import ctypes

import numbagrad as ng
from numbagrad.kernels.blas_library import bundled_openblas

def now():
    found = []
    for name, suffix in (("numpy", "64_"), ("scipy", "")):
        library = ctypes.CDLL(str(bundled_openblas(name)))
        found.append(getattr(library, "scipy_openblas_get_num_threads" + suffix)())
    return found

ng.set_num_threads(1)
ng.linalg.matrix_exp(ng.eye(3))
print(now())
ng.set_num_threads(2)
print(now())
"""


@pytest.mark.skipif(
    None in [blas_library.bundled_openblas(name) for name in ("numpy", "scipy")],
    reason="NumPy or SciPy came without an OpenBLAS of its own",
)
def test_threads_of_factorisations_are_limited_too():
    run = in_new_process(LIMITED, NUMBA_NUM_THREADS="2", OPENBLAS_NUM_THREADS="2")
    assert run.stdout.split("\n")[:2] == ["[1, 1]", "[2, 2]"], run.stderr


def test_one_thread_from_several_threads():
    pairs = blas_library._limits()
    if not pairs:
        pytest.skip("no OpenBLAS of NumPy or SciPy")
    told = pairs[0][1]
    before = told()
    blas_library.limit_threads(2)
    try:
        with blas_library.one_thread():
            assert told() == 1
            with blas_library.one_thread():
                assert told() == 1
            assert told() == 1
            blas_library.limit_threads(2)
            assert told() == 1
        assert told() == 2

        def work(_):
            for _ in range(200):
                with blas_library.one_thread():
                    pass

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert told() == 2
    finally:
        blas_library.limit_threads(before)
