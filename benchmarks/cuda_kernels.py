"""Compile every GPU kernel and count its registers, on a machine without a GPU.

    python -m benchmarks.cuda_kernels [--arch 80 90] [--only NAME] [--quick]

Operations run with nobody behind the doorway (``pretend``): they launch what they would launch on a
GPU, and what they launch is compiled to NVIDIA's intermediate code and linked for each
architecture. Prints kernel, types, architecture, registers, spilled bytes. Exits 1 if a kernel does
not compile, a hot kernel spills, or a CPU kernel has neither a twin nor a row in ``KNOWN_GAPS``.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import types as python_types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numbagrad as ng
from numbagrad.kernels.cuda.runtime import device


@dataclass(frozen=True)
class Report:
    """What the linker said of one kernel."""

    kernel: str
    types: str
    arch: int
    registers: int
    spilled: int
    seconds: float
    error: str = ""

    def __str__(self) -> str:
        if self.error:
            return f"sm_{self.arch} {self.kernel} ({self.types}): {self.error}"
        return (
            f"sm_{self.arch} {self.registers:4d} registers {self.spilled:5d} bytes spilled "
            f"{self.seconds:5.1f} s  {self.kernel} ({self.types})"
        )


def compile_for(kernel: Callable[..., None], argument_types: tuple, arch: int) -> Report:
    """Compile ``kernel`` and link it for sm_``arch``; no driver is needed."""
    import numba.cuda.dispatcher as dispatcher
    from cuda.bindings import nvjitlink
    from numba import cuda, types

    capability = divmod(arch, 10)
    there = python_types.SimpleNamespace(compute_capability=capability)
    dispatcher.get_current_device = lambda: there  # device functions ask for it
    name = f"{kernel.__module__.rpartition('.')[2]}.{kernel.__qualname__}".replace("<locals>.", "")
    words = ", ".join(map(str, argument_types))
    begin = time.perf_counter()
    try:
        codes, _ = cuda.compile_all(
            kernel,
            types.void(*argument_types),
            device=False,
            abi="numba",
            cc=capability,
            output="ltoir",
        )
        options = [f"-arch=sm_{arch}", "-O3", "-verbose", "-lto"]
        handle = nvjitlink.create(len(options), options)
        for i, code in enumerate(codes):
            raw = code if isinstance(code, bytes) else code.code
            nvjitlink.add_data(handle, nvjitlink.InputType.LTOIR, raw, len(raw), f"part{i}")
        nvjitlink.complete(handle)
        log = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, log)
        nvjitlink.destroy(handle)
    except Exception as error:  # whatever the compiler finds is the report
        lines = [line for line in str(error).splitlines() if line.strip()]
        return Report(name, words, arch, 0, 0, 0.0, f"{type(error).__name__}: {' / '.join(lines)}")
    text = log.decode()
    used = re.search(r"Used (\d+) registers", text)
    spilled = re.search(r"(\d+) bytes spill stores", text)
    seconds = time.perf_counter() - begin
    registers = int(used[1]) if used else -1
    return Report(name, words, arch, registers, int(spilled[1]) if spilled else 0, seconds)


def operations(quick: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Named programs that together launch the kernels."""
    kinds = (ng.float32,) if quick else (ng.float32, ng.float64)
    for kind in kinds:
        x = ng.ones(64, 48, dtype=kind, device="cuda")
        big = ng.empty(1 << 22, dtype=kind, device="cuda")
        for name in "sum mean prod amax amin any all argmax count_nonzero norm".split():
            yield name, lambda name=name, x=x: [getattr(x, name)(dim=d) for d in (0, 1)]
            yield name, lambda name=name, x=big: getattr(x, name)()
        yield "matmul", lambda x=x: [x @ x.t(), x.t() @ x, (x.t() @ x)]
        tall = ng.empty(2048, 2048, dtype=kind, device="cuda")
        yield "matmul", lambda x=tall: [x @ x, ng.nn.functional.linear(x, x, x[0])]
        yield "var", lambda x=x: [x.var(dim=d) for d in (0, 1)]


def launched(quick: bool) -> dict[tuple[Callable[..., None], tuple], int]:
    """The kernels that ``operations`` start, with the types of their arguments."""
    from numbagrad.kernels.cuda.runtime import launch

    for name, run in operations(quick):
        try:
            run()
        except Exception as error:
            error.add_note(f"while running {name}")
            raise
    return launch.launches


def main(arguments: list[str] | None = None) -> int:
    """Print the table; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", type=int, nargs="+", default=[80, 90])
    parser.add_argument("--only", default="")
    parser.add_argument("--quick", action="store_true", help="float32 only")
    chosen = parser.parse_args(arguments)
    device.pretend()
    failed = 0
    for kernel, argument_types in launched(chosen.quick):
        if chosen.only not in kernel.__qualname__:
            continue
        for arch in chosen.arch:
            report = compile_for(kernel, argument_types, arch)
            print(report, flush=True)
            failed += bool(report.error)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
