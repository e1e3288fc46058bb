"""``python -m benchmarks.gpu``: what the kernels reach on this machine's GPU.

Times with CUDA events on the default stream, medians over rounds; the same work in PyTorch where it
is installed, in the same run, and products without it in CuPy. Bytes are what must move at least;
"of copy" is against a plain copy by our own kernel. Of products by cuBLASLt it is asked that they
reach 95 % of what the peer does, a ratio of at most 1.05. Prints a table; writes
benchmarks/results/gpu.json and gpu.md unless ``--dry``.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import itertools
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numbagrad as ng
from numbagrad.kernels.cuda import matmul
from numbagrad.kernels.cuda.runtime.cores import NEW

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Work:
    """One thing to time: ours, the peer's if there is one, the bytes and flops it takes."""

    name: str
    ours: Callable[[], Any]
    peer: Callable[[], Any] | None = None
    bytes: int = 0
    flops: int = 0
    host: bool = False  # time the Python that launches, not the device
    backend: str = "numba"  # who multiplies in ours
    repeat: int = 1  # calls between two marks: many where a call is short


@dataclass
class Row:
    """Medians in milliseconds."""

    name: str
    ours_ms: float
    peer_ms: float | None
    gigabytes: float | None = None
    of_copy: float | None = None
    teraflops: float | None = None
    error: str = ""


def timed(call: Callable[[], Any], repeat: int, host: bool) -> float:
    """Milliseconds of one ``call``: of the device between two events, or of the host alone."""
    from numba import cuda

    if host:
        start = time.perf_counter()
        for _ in range(repeat):
            call()
        took = (time.perf_counter() - start) * 1e3
        ng.cuda.synchronize()
        return took / repeat
    begin, end = cuda.event(), cuda.event()
    begin.record()
    for _ in range(repeat):
        call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / repeat


def milliseconds(work: Work, rounds: int) -> list[float]:
    """Median times of ours and the peer's, in turns."""
    calls = [work.ours, work.peer] if work.peer else [work.ours]
    for call in calls:
        for _ in range(6):  # compiled and captured by then
            call()
    ng.cuda.synchronize()
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, kept in zip(calls, times, strict=True):
            kept.append(timed(call, work.repeat, work.host))
    return [statistics.median(each) for each in times]


def peer_library() -> Any:
    """PyTorch with a GPU, or None."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False  # as ours
    return torch


def bandwidth(n: int, torch: Any) -> Iterator[Work]:
    """Kernels that move memory, on ``n`` float32."""
    libraries = [ng, torch] if torch else [ng]
    columns = 4096 if n >= 1 << 20 else 16
    rows = n // columns
    flat = [lib.randn(n, device="cuda") for lib in libraries]
    other = [lib.randn(n, device="cuda") for lib in libraries]
    table = [x.reshape(rows, columns) for x in flat]
    bias = [lib.randn(columns, device="cuda") for lib in libraries]

    def work(name: str, moved: int, call: Callable[[Any, int], Any]) -> Work:
        calls = [lambda lib=lib, k=k: call(lib, k) for k, lib in enumerate(libraries)]
        return Work(name, calls[0], calls[1] if torch else None, moved * 4, repeat=10)

    yield work("copy", 2 * n, lambda lib, k: flat[k].clone())
    yield work("add", 3 * n, lambda lib, k: flat[k] + other[k])
    yield work("scale", 2 * n, lambda lib, k: flat[k] * 2.5)
    yield work("gelu", 2 * n, lambda lib, k: lib.nn.functional.gelu(flat[k]))
    yield work("bias (broadcast add)", 2 * n, lambda lib, k: table[k] + bias[k])
    yield work("sum of all", n, lambda lib, k: flat[k].sum())
    yield work("sum of rows", n, lambda lib, k: table[k].sum(1))
    yield work("sum of columns", n, lambda lib, k: table[k].sum(0))
    yield work("softmax of rows", 2 * n, lambda lib, k: lib.nn.functional.softmax(table[k], 1))
    yield work(
        "layer norm",
        2 * n,
        lambda lib, k: lib.nn.functional.layer_norm(table[k], (columns,), bias[k], bias[k]),
    )
    yield work("transposed copy", 2 * n, lambda lib, k: table[k].t().contiguous())
    yield work("randn", n, lambda lib, k: lib.randn(n, device="cuda"))
    yield from adam(n, libraries)


def adam(n: int, libraries: list[Any]) -> Iterator[Work]:
    """A step of Adam on one parameter of ``n`` elements: it reads four arrays, writes three."""
    calls = []
    for lib in libraries:
        p = lib.randn(n, device="cuda").requires_grad_()
        p.grad = lib.randn(n, device="cuda")
        calls.append(lib.optim.Adam([p]).step)
    yield Work("Adam", calls[0], calls[1] if len(calls) > 1 else None, 7 * n * 4, repeat=10)


def products(size: int, torch: Any) -> Iterator[Work]:
    """Square matrix products, of float32 also without tensor cores."""
    for dtype in ("float32", "float64"):
        libraries = [ng, torch] if torch else [ng]
        x = [lib.randn(size, size, dtype=getattr(lib, dtype), device="cuda") for lib in libraries]
        calls = [lambda x=each: x @ x for each in x]
        peer, flops = calls[1] if torch else None, 2 * size**3
        yield Work(f"matmul {size} {dtype}", calls[0], peer, flops=flops, repeat=5)
        if dtype == "float32":
            call = without_cores(x[0])
            yield Work(f"matmul {size}, no tensor cores", call, peer, flops=flops, repeat=5)


def without_cores(x: Any) -> Callable[[], Any]:
    """The product of a square matrix with itself, as on a GPU that has no fast tensor cores."""
    n, given, out = x.shape[0], x._array, ng.empty_like(x)._array
    strides = n, 1, n, 1, n, 0, 0, 0
    return lambda: matmul._start_tiled(out, given, given, out, n, n, n, *strides, 1, NEW)


def convolutions(small: bool, torch: Any) -> Iterator[Work]:
    """A convolution of many channels, and what training takes: with the gradients of both."""
    images, channels, side = (2, 8, 6) if small else (64, 64, 32)
    libraries = [ng, torch] if torch else [ng]
    for dtype in ("float32", "bfloat16"):
        step, forward = [], []
        for lib in libraries:
            shapes = (images, channels, side, side), (2 * channels, channels, 3, 3)
            x, weight = (lib.randn(*s, device="cuda").to(getattr(lib, dtype)) for s in shapes)
            conv = partial(lib.nn.functional.conv2d, padding=1)
            forward.append(partial(conv, x, weight))
            leaves = x.clone().requires_grad_(), weight.clone().requires_grad_()
            step.append(partial(trained, conv, leaves, conv(x, weight)))
        flops = 2 * images * side**2 * 2 * channels * 9 * channels
        named = f"convolution {channels} to {2 * channels} at {side} of {images}, {dtype}"
        for name, calls, times in ((named, forward, 1), (f"{named}, with gradients", step, 3)):
            peer = calls[1] if torch else None
            yield Work(name, calls[0], peer, flops=times * flops, repeat=5)


def trained(conv: Any, leaves: tuple[Any, Any], g: Any) -> None:
    """A convolution forward and backward."""
    for leaf in leaves:
        leaf.grad = None
    conv(*leaves).backward(g)


def library_products(size: int, torch: Any) -> Iterator[Work]:
    """Square products, and one with a bias, by our kernels and through cuBLASLt, and by the peer's
    cuBLAS."""
    for dtype in ("float32", "bfloat16"):
        x = ng.randn(size, size, device="cuda").to(getattr(ng, dtype))
        row = x[0].clone()
        peer, biased = cublas_peer(size, dtype, torch)
        for backend in ("numba", "cublaslt"):
            named = f"{size} {dtype}, {backend}"
            flops = 2 * size**3
            yield Work(
                f"matmul {named}",
                partial(ng.mm, x, x),
                peer,
                flops=flops,
                backend=backend,
                repeat=10,
            )
            yield Work(
                f"linear with bias {named}",
                partial(ng.nn.functional.linear, x, x, row),
                biased,
                flops=flops,
                backend=backend,
                repeat=10,
            )


def cublas_peer(size: int, dtype: str, torch: Any) -> tuple[Any, Any]:
    """A product, and one with a bias, by PyTorch's cuBLAS; else the product by CuPy's, or none."""
    if torch:
        x = torch.randn(size, size, device="cuda").to(getattr(torch, dtype))
        row = x[0].clone()
        return lambda: x @ x, lambda: torch.nn.functional.linear(x, x, row)
    if dtype == "float32" and importlib.util.find_spec("cupy") is not None:
        import cupy

        y = cupy.random.standard_normal((size, size), dtype=cupy.float32)
        return lambda: y @ y, None
    return None, None


def steps(torch: Any, small: bool) -> Iterator[Work]:
    """Training steps, eager and compiled."""
    shapes = [((8, 4, 3), 4)] if small else [((784, 256, 128, 10), 128), ((1024, 4096, 1024), 512)]
    for sizes, batch in shapes:
        name = f"MLP step {'-'.join(map(str, sizes))} batch {batch}"
        eager, data = training_step(ng, sizes, batch)
        fused, batch_of_fused = training_step(ng, sizes, batch)
        compiled = bound(ng.compile(fused), batch_of_fused)
        theirs = bound(*training_step(torch, sizes, batch)) if torch else None
        graph = captured(torch, sizes, batch) if torch else None
        yield Work(f"{name}, eager", bound(eager, data), theirs, repeat=20)
        yield Work(f"{name}, compiled; eager peer", compiled, theirs, repeat=20)
        yield Work(f"{name}, compiled; the peer's graph", compiled, graph, repeat=20)


SMALL_CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda lib, t: t.x + t.x,
    "add a row": lambda lib, t: t.x + t.row,
    "relu": lambda lib, t: t.x.relu(),
    "x[1]": lambda lib, t: t.x[1],
    "sum": lambda lib, t: t.x.sum(),
    "softmax": lambda lib, t: lib.nn.functional.softmax(t.x, 1),
    "layer norm": lambda lib, t: lib.nn.functional.layer_norm(t.x, (8,)),
    "matmul": lambda lib, t: t.x @ t.x,
    "linear": lambda lib, t: lib.nn.functional.linear(t.x, t.x, t.row),
    "cat": lambda lib, t: lib.cat([t.x, t.x]),
    "x.add_(x)": lambda lib, t: t.x.add_(t.x),
    "max of rows": lambda lib, t: t.x.max(1),
    "x[index]": lambda lib, t: t.x[t.index],
    "dropout": lambda lib, t: lib.nn.functional.dropout(t.x),
    "cross entropy": lambda lib, t: lib.nn.functional.cross_entropy(t.x, t.index),
    "batch norm": lambda lib, t: lib.nn.functional.batch_norm(t.image, None, None, training=True),
    "convolution": lambda lib, t: lib.nn.functional.conv2d(t.image, t.weight),
    "attention": lambda lib, t: lib.nn.functional.scaled_dot_product_attention(*(t.image,) * 3),
    "zeros": lambda lib, t: lib.zeros(8, 8, device="cuda"),
    "w x, sum, backward": lambda lib, t: (t.leaf * t.x).sum().backward(),
}


def small_tensors(lib: Any) -> SimpleNamespace:
    """What ``SMALL_CALLS`` are made on."""
    return SimpleNamespace(
        x=lib.zeros(8, 8, device="cuda"),
        row=lib.ones(8, device="cuda"),
        index=lib.arange(8, device="cuda"),
        image=lib.ones(1, 8, 8, 8, device="cuda"),
        weight=lib.ones(8, 8, 3, 3, device="cuda"),
        leaf=lib.ones(8, 8, device="cuda").requires_grad_(),
    )


def launches(torch: Any) -> Iterator[Work]:
    """Operations on a few numbers, whose cost is Python's: the time until they return."""
    libraries = [ng, torch] if torch else [ng]
    given = [(lib, small_tensors(lib)) for lib in libraries]
    for name, call in SMALL_CALLS.items():
        calls = [partial(call, *each) for each in given]
        peer = calls[1] if torch else None
        yield Work(f"{name}, host", calls[0], peer, host=True, repeat=100)


def bound(call: Callable[..., Any], data: tuple[Any, ...]) -> Callable[[], Any]:
    """``call`` with its arguments."""
    return partial(call, *data)


def training_step(lib: Any, sizes: tuple[int, ...], batch: int) -> tuple[Any, tuple[Any, ...]]:
    """Forward, backward and momentum SGD of a perceptron, and a batch for it."""
    nn, pairs = lib.nn, list(itertools.pairwise(sizes))
    layers = [layer for a, b in pairs for layer in (nn.Linear(a, b), nn.ReLU())][:-1]
    model = nn.Sequential(*layers).cuda()
    optimizer = lib.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step(x: Any, target: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    x = lib.randn(batch, sizes[0], device="cuda")
    return step, (x, lib.randint(0, sizes[-1], (batch,), device="cuda"))


def captured(torch: Any, sizes: tuple[int, ...], batch: int) -> Any:
    """PyTorch's step as one CUDA graph; a call copies its inputs in and replays it."""
    step, data = training_step(torch, sizes, batch)
    inside = [x.clone() for x in data]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(*inside)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(*inside)

    def replay() -> None:
        for mine, given in zip(inside, data, strict=True):
            mine.copy_(given)
        graph.replay()

    return replay


def guarded(section: Any) -> Iterator[Work]:
    """What ``section`` yields; an error on the way ends it as a row of the table."""
    try:
        yield from section
    except Exception as error:  # the other sections are worth having
        told = error

        def fail() -> None:
            raise told

        yield Work(section.__name__, fail)


def measured(work: Work, rounds: int, copy_speed: float) -> Row:
    """Time one piece of work; an error becomes part of the table."""
    try:
        ng.cuda.set_matmul_backend(work.backend)
        ours, *others = milliseconds(work, rounds)
    except Exception as error:  # the other rows are worth having
        return Row(work.name, float("nan"), None, error=f"{type(error).__name__}: {error}")
    finally:
        ng.cuda.set_matmul_backend("numba")
    row = Row(work.name, ours, others[0] if others else None)
    if work.bytes:
        row.gigabytes = work.bytes / ours / 1e6
        row.of_copy = row.gigabytes / copy_speed if copy_speed else 1.0
    if work.flops:
        row.teraflops = work.flops / ours / 1e9
    return row


def shown(row: Row) -> str:
    """The row in Markdown."""
    if row.error:
        return f"| {row.name} | failed: {row.error} |  |  |  |  |  |"
    cells = [
        row.name,
        f"{row.ours_ms:.4f}",
        "" if row.peer_ms is None else f"{row.peer_ms:.4f}",
        "" if not row.peer_ms else f"{row.ours_ms / row.peer_ms:.2f}",
        "" if row.gigabytes is None else f"{row.gigabytes:.0f}",
        "" if row.of_copy is None else f"{row.of_copy:.0%}",
        "" if row.teraflops is None else f"{row.teraflops:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def driver_version() -> str:
    """NVIDIA's driver, as its own tool tells it."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found.stdout.split()[0]


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--elements", type=int, default=64 << 20)
    parser.add_argument("--matmul", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument(
        "--only", default="", help="rows whose name contains one of these, split by commas"
    )
    parser.add_argument("--dry", action="store_true", help="leave benchmarks/results as it is")
    chosen = parser.parse_args(arguments)
    if not ng.cuda.is_available():
        print("gpu: there is no GPU here (ng.cuda.is_available() is False)", file=sys.stderr)
        return 1
    torch = peer_library()
    about = {
        "gpu": ng.cuda.get_device_name(),
        "python": platform.python_version(),
        "numbagrad": ng.__version__,
        "torch": torch.__version__ if torch else None,
        "numba": version("numba"),
        "numba-cuda": version("numba-cuda"),
        "driver": driver_version(),
        "elements": chosen.elements,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    lines = [
        f"{about['date'][:10]}: {about['gpu']}, driver {about['driver']}, Python "
        f"{about['python']}, numba {about['numba']}, numba-cuda {about['numba-cuda']}, torch "
        f"{about['torch']}; "
        f"{chosen.elements} elements; milliseconds, medians of {chosen.rounds}",
        "",
        "| work | ours | torch | ratio | GB/s | of copy | TFLOP/s |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    rows: list[Row] = []
    copy_speed = 0.0
    small = chosen.elements < 1 << 16
    sections = (
        bandwidth(chosen.elements, torch), products(chosen.matmul, torch),
        library_products(chosen.matmul, torch), convolutions(small, torch), steps(torch, small),
        launches(torch),
    )  # fmt: skip
    for work in chain(*map(guarded, sections)):
        if not any(part in work.name for part in chosen.only.split(",")):
            continue
        row = measured(work, chosen.rounds, copy_speed)
        if work.name == "copy" and row.gigabytes:
            copy_speed = row.gigabytes
        rows.append(row)
        lines.append(shown(row))
        print(lines[-1], flush=True)
    if not chosen.dry:
        content = {"about": about, "rows": [asdict(row) for row in rows]}
        (RESULTS / "gpu.json").write_text(json.dumps(content, indent=1) + "\n")
        (RESULTS / "gpu.md").write_text("\n".join(lines) + "\n")
    return 1 if any(row.error for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
