"""Compile every GPU kernel and count its registers, on a machine without a GPU.

    python -m benchmarks.cuda_kernels [--arch 80 90] [--only NAME] [--share K N] [--all]

Operations run with nobody behind the doorway (``pretend``): they launch what they would launch on a
GPU, and what they launch is compiled to NVIDIA's intermediate code for the oldest architecture and
linked for it; for the others too if it comes near to a limit there, with ``--all`` in any case: to
link takes as long as to compile. ``--share K N``: only every N-th kernel from the K-th on. Prints
kernel, types, architecture, registers, spilled bytes. Exits 1 if a kernel does not compile, if one
spills registers, if a block of the size it is started with needs more registers or shared memory
than there are, if a file of GPU kernels starts none of those compiled, or if a CPU kernel has
neither a twin nor a reason in cuda_gaps.py.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numbagrad as ng
from numbagrad.collector import seldom
from numbagrad.kernels import machine
from numbagrad.kernels.cpu import finite
from numbagrad.kernels.cuda import conv
from numbagrad.kernels.cuda.runtime import device
from numbagrad.ops import sampling

from .cuda_code import code_for
from .cuda_gaps import KNOWN_GAPS, pairs

REGISTERS = 65536
SHARED_BYTES = 48 * 1024
"""What a block has at the most, the same on sm_80 and sm_90; more memory has to be asked for."""
FAR = 0.5
"""Part of what a thread or a block may have of registers and memory up to which a kernel is far
from a limit."""


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


def compile_for(
    kernel: Callable[..., None],
    argument_types: tuple,
    archs: Sequence[int],
    threads: int,
    every: bool = True,
) -> Iterator[Report]:
    """Compile ``kernel`` for the oldest of ``archs`` and link that for each; without a driver.

    threads: of its largest block. every: link for the others too where the oldest is far from its
    limits.
    """
    capability = getattr(kernel, "capability", divmod(min(archs), 10))
    if len(capability) == 3:  # for one architecture alone
        archs = [arch for arch in archs if divmod(arch, 10) == capability[:2]]
    least = getattr(kernel, "least", 0)
    archs = [arch for arch in archs if arch >= least]
    if least:
        capability = divmod(least, 10)
    name = f"{kernel.__module__.rpartition('.')[2]}.{kernel.__qualname__}".replace("<locals>.", "")
    words = ", ".join(map(str, argument_types))
    begin, code = time.perf_counter(), None
    for arch in archs:
        try:
            code = code or code_for(kernel, argument_types, capability, linked=True)
            text = _linked(code, f"{arch}{''.join(capability[2:])}")
        except Exception as error:  # whatever the compiler finds is the report
            lines = " / ".join(line for line in str(error).splitlines() if line.strip())
            yield Report(name, words, arch, 0, 0, 0.0, f"{type(error).__name__}: {lines}")
            continue
        used = re.search(r"Used (\d+) registers", text)
        spilled = re.search(r"(\d+) bytes spill stores", text)
        registers, bytes_spilled = int(used[1]) if used else -1, int(spilled[1]) if spilled else 0
        needs = _too_large(registers, text, threads)
        seconds = time.perf_counter() - begin
        yield Report(name, words, arch, registers, bytes_spilled, seconds, needs)
        begin = time.perf_counter()
        if not (every or bytes_spilled or needs or _too_large(registers, text, threads, FAR)):
            break


def _too_large(registers: int, text: str, threads: int, part: float = 1) -> str:
    """What a block of so many threads needs too much of, or nothing; of this part of all."""
    shared = re.search(r"(\d+) bytes smem", text)
    if shared and int(shared[1]) > part * SHARED_BYTES:
        return f"a block needs {shared[1]} bytes of shared memory, there are {SHARED_BYTES}"
    each = -(-32 * registers // 256) * 256  # a warp takes them by 256
    if each * -(-threads // 32) > part * REGISTERS or registers > part * 256:
        return f"a block of {threads} threads needs more than {REGISTERS} registers: {registers}"
    return ""


def _linked(code: bytes, arch: str) -> str:
    """What the linker has to say of code for ``arch``."""
    from cuda.bindings import nvjitlink

    options = [f"-arch=sm_{arch}", "-O3", "-verbose", "-lto"]
    handle = nvjitlink.create(len(options), options)
    nvjitlink.add_data(handle, nvjitlink.InputType.LTOIR, code, len(code), "kernel")
    nvjitlink.complete(handle)
    log = bytearray(nvjitlink.get_info_log_size(handle))
    nvjitlink.get_info_log(handle, log)
    nvjitlink.destroy(handle)
    return log.decode()


def operations() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Named programs that together launch every kernel."""
    yield from elementwise_operations()
    for kind in (ng.float32, ng.float64):
        yield f"reductions {kind}", partial(reductions, kind)
        yield f"matrices {kind}", partial(matrices, kind)
        yield f"rows {kind}", partial(rows, kind)
        yield f"attention {kind}", partial(attention, kind)
        yield f"images {kind}", partial(images, kind)
        yield f"sequences {kind}", partial(sequences, kind)
        yield f"random {kind}", partial(random_numbers, kind)
        yield f"indexing {kind}", partial(indexing, kind)
        yield f"optimisers {kind}", partial(optimisers, kind)
        yield f"compiled steps {kind}", partial(compiled_steps, kind)
        yield f"checks {kind}", partial(checks, kind)
    yield "integers", integers
    yield "halves", halves


def elementwise_operations() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every formula and its gradients, and the forms of loops on a few."""
    from numbagrad.ops import activation, comparison, formulas
    from numbagrad.ops.from_formula import Elementwise

    found_in = vars(activation) | vars(comparison) | vars(formulas)
    for name, found in sorted(found_in.items()):
        if isinstance(found, type) and issubclass(found, Elementwise) and found is not Elementwise:
            yield name, partial(formula, found.op)
    yield "forms of loops", forms


def formula(op: Any) -> None:
    """An elementwise op and its gradients on float32; on ints where it is for them."""
    kinds = [ng.int64] if op.name.startswith("bitwise") else [ng.float32]
    for kind in kinds:
        whole = kind is not ng.float32
        inputs = [full(64, 48, kind=kind, grad=not whole) for _ in op.inputs]
        out = op(*inputs)
        if out.requires_grad:
            out.backward(ng.ones_like(out))


def full(*shape: int, kind: Any = ng.float32, grad: bool = False) -> Any:
    """A tensor behind the doorway."""
    return ng.zeros(shape, dtype=kind, device="cuda").requires_grad_(grad)


def forms() -> None:
    """Contiguous, odd lengths, broadcast, strided; dtypes mixed; numbers."""
    x = full(64, 48)
    _ = x + 2, x * 2.5, x[1:, 1:] * x[:-1, :-1], x + x[0], x + x[:, :1], x.t() + x.t(), x.t().exp()
    _ = full(7, 5).exp(), full(3, 4, 5, 6).permute(3, 1, 0, 2) + full(6, 4, 3, 5)
    _ = full(8).double() + x[:, :8], x == x, x.long() // 3, x > x[0]
    for source in (ng.float32, ng.float64, ng.int64, ng.int32, ng.int8, ng.uint8, ng.bool):
        for target in (ng.float32, ng.float64, ng.int64, ng.int16, ng.uint8, ng.bool):
            full(64, kind=source).to(target)


def reductions(kind: Any) -> None:
    """Over rows, columns and all elements, short and long."""
    x, long = full(64, 48, kind=kind), full(1 << 22, kind=kind)
    for name in "sum mean prod amax amin any all argmax argmin count_nonzero norm var".split():
        for tensor, dim in ((x, 0), (x, 1), (full(64, 2048, kind=kind), 1), (long, 0)):
            if name != "prod" or dim:
                getattr(tensor, name)(dim=dim)
    _ = ng.nansum(x), ng.nansum(x, 0)
    for power in (1, 3, 4, float("inf"), -float("inf")):
        x.norm(power, 1)
    _ = x.cumsum(0), x.cumsum(1), x.cumprod(1), x.cummax(1), x.cummin(0)
    _ = x.logcumsumexp(0), x.logcumsumexp(1)
    x.requires_grad_().prod(1).backward(x[:, 0].detach())


def matrices(kind: Any) -> None:
    """Products of both tile sizes, with each ending."""
    for n in (64, 2048):
        x = full(n, n, kind=kind)
        out = ng.nn.functional.linear(full(n, n, kind=kind, grad=True), x, x[0])
        _ = x @ x.t(), x.t() @ x
        out.backward(x)
    _ = full(4, 32, 16, kind=kind) @ full(4, 16, 8, kind=kind), full(8, 8, kind=kind).tril()


def rows(kind: Any) -> None:
    """Softmax and its kin, layer norm, losses: rows short and long, columns."""
    F = ng.nn.functional
    for m in (48, 4096):
        x = full(64, m, kind=kind, grad=True)
        target = full(64, kind=ng.int64)
        weight = full(m, kind=kind, grad=True)
        _ = ng.logsumexp(x, 1)
        for out in (
            F.softmax(x, 1), F.softmax(x, 0), F.log_softmax(x, 1), F.log_softmax(x, 0),
            F.layer_norm(x, (m,), weight, weight),
        ):  # fmt: skip
            out.backward(x.detach())
        F.cross_entropy(x, target, label_smoothing=0.1).backward()
        F.nll_loss(x, target).backward()
        F.cross_entropy(x, target).backward(create_graph=True)
        rows = full(96, m, kind=kind, grad=True)
        for smoothing in (0.0, 0.1):
            options: dict[str, Any] = {"label_smoothing": smoothing, "options": "blocks"}
            F.linear_cross_entropy(x, rows, target, **options).backward()
    classes = full(8, 4, 48, kind=kind, grad=True)
    F.cross_entropy(classes, full(8, 48, kind=ng.int64), label_smoothing=0.1).backward()
    F.ctc_loss(classes, full(4, 3, kind=ng.int64), (8,) * 4, (3,) * 4).backward()


def attention(kind: Any) -> None:
    """Attention with a mask that is learned, and its gradients."""
    q = full(2, 4, 100, 32, kind=kind, grad=True)
    mask = full(100, 100, kind=kind, grad=True)
    out = ng.nn.functional.scaled_dot_product_attention(q, q, q, mask)
    out.backward(out.detach())
    flexible_attention(q, full(4, kind=kind))


def flexible_attention(q: Any, slopes: Any) -> None:
    """Attention with formulas, which read tensors, and its gradients."""
    from numbagrad.nn.attention.flex_attention import create_block_mask, flex_attention

    ids = full(100, kind=ng.int64)

    def capped(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return math.tanh(score + slopes[h] * (q_idx - kv_idx))

    mask = create_block_mask(
        lambda b, h, q_idx, kv_idx: q_idx // 8 >= kv_idx % 50, None, None, 100, 100, "cuda", 32
    )
    out = flex_attention(q, q, q, capped, mask)
    out.backward(out.detach())
    together = flex_attention(
        q, q, q, lambda s, b, h, q_idx, kv_idx: s if ids[q_idx] == ids[kv_idx] else -math.inf
    )
    together.backward(out.detach())


def images(kind: Any) -> None:
    """Batch norm of vectors, of images small and large; pooling, patches, sampling; convolution."""
    F = ng.nn.functional
    mean, var = full(48, kind=kind), full(48, kind=kind)
    weight = full(48, kind=kind, grad=True)
    for shape in ((64, 48), (64, 48, 7, 7), (4, 48, 64, 64)):
        x = full(*shape, kind=kind, grad=True)
        out = F.batch_norm(x, mean, var, weight, weight, training=True)
        out.backward(x.detach())
    for pooled in (F.max_pool2d(x, 2), F.avg_pool2d(x, 2)):
        pooled.backward(pooled.detach())
    enlarged = F.interpolate(x, scale_factor=2, mode="bilinear")
    for read in (
        F.unfold(x, 3),
        enlarged,
        F.grid_sample(x, full(4, 9, 9, 2, kind=kind, grad=True)),
    ):
        read.backward(read.detach())
    convolutions(kind)


def convolutions(kind: Any) -> None:
    """Of one channel, and by each tile; weights and gradients that are read by 16 bytes or not."""
    F, held = ng.nn.functional, conv.product_tile
    try:
        for number in range(len(conv._tiles(full(1, kind=kind)._array, False)) + 1):
            if number:
                conv.product_tile = partial(_numbered, number - 1)
            for channels, size, groups in ((24, 8, 1), (18, 9, 1), (24, 8, 24)):
                kernel = full(channels, channels // groups, 3, 3, kind=kind, grad=True)
                x = full(4, channels, size, size, kind=kind, grad=True)
                out = F.conv2d(x, kernel, stride=2 - size % 2, padding=1, groups=groups)
                out.backward(out.detach())
    finally:
        conv.product_tile = held


def _numbered(number: int, tiles: Any, *sizes: Any) -> tuple[Any, int]:
    """A tile, and one share of the steps, in place of ``product_tile``."""
    return tiles[number % len(tiles)], 1


def sequences(kind: Any) -> None:
    """Recurrent layers, of few rows and of many."""
    nn: Any = ng.nn
    for layer in (nn.RNN(16, 32), nn.LSTM(16, 32), nn.GRU(16, 32)):
        layer.to(kind).cuda()
        for n in (8, 1024):
            out, _ = layer(full(3, n, 16, kind=kind))
            out.backward(out.detach())


def random_numbers(kind: Any) -> None:
    """Each distribution."""
    x = full(100, kind=kind, grad=True)
    sampling.standard_gamma(x).backward(x.detach())
    _ = ng.igamma(x, x), ng.igammac(x, x), sampling.draw_poisson(x), sampling.draw_binomial(x, x)
    x = x.detach()
    _ = ng.randn_like(x), ng.rand_like(x), x.exponential_(), x.bernoulli_(0.5), ng.bernoulli(x)
    _ = ng.nn.functional.dropout(x, 0.5), ng.randint_like(x, 0, 9)
    _ = ng.randint(0, 9, (100,), device="cuda"), ng.histc(x, 4, 0, 1)
    _ = ng.bucketize(x, x), x.multinomial(3), x.multinomial(3, True)


def indexing(kind: Any) -> None:
    """Reads, writes and sums at places; sorting."""
    x, at = full(64, 48, kind=kind, grad=True), full(64, kind=ng.int64)
    (x[at] * x[at, at % 48, None]).sum().backward()
    wide = full(64, 48, kind=ng.int64)
    x.gather(1, wide).sum().backward()
    x.scatter_add(1, wide, x).sum().backward()
    x.scatter_reduce(1, wide, x, "amax").sum().backward()
    y = full(64, 48, kind=kind)
    y[at] = 1.0
    y[y > 0] = 1.0
    _ = y.scatter(1, wide, y), y.masked_scatter(y > 0, y), y.index_copy(0, at, y)
    _ = y[y > 0], y.nonzero(), ng.nn.functional.one_hot(at, 9), full(9, kind=kind).nonzero()
    full(1 << 16, kind=ng.int64)[full(1 << 16, kind=ng.int64)]
    ng.nn.functional.embedding(wide, x).sum().backward()
    bag = ng.nn.functional.embedding_bag
    bag(
        at, x, at[:1] * 0, mode="sum", per_sample_weights=full(64, kind=kind, grad=True)
    ).sum().backward()
    bag(wide, x).sum().backward(), bag(wide, x, mode="max").sum().backward()
    ng.cross(x[:3], x[:3], dim=0).sum().backward()
    _ = y.sort(1), full(4, 1000, kind=kind).sort(1, descending=True), y.topk(3, 1)
    _ = y.median(1), y.kthvalue(2, 1), x.max(1).values.sum().backward(), ng.cat([y, y], 1)


def optimisers(kind: Any) -> None:
    """Each update, and clipping."""
    clip = ng.nn.utils
    for make in (
        lambda p: ng.optim.SGD(p, 0.1),
        lambda p: ng.optim.SGD(p, 0.1, momentum=0.9),
        lambda p: ng.optim.Adam(p),
        lambda p: ng.optim.Adam(p, amsgrad=True),
        lambda p: ng.optim.RMSprop(p),
        lambda p: ng.optim.RMSprop(p, momentum=0.9, centered=True),
        lambda p: ng.optim.Adagrad(p),
        ng.optim.Adadelta,
        ng.optim.Adamax,
        ng.optim.NAdam,
        ng.optim.RAdam,
        ng.optim.Lion,
        ng.optim.ASGD,
        ng.optim.Adafactor,
        ng.optim.Rprop,
    ):
        p = full(64, 48, kind=kind, grad=True)
        p.grad = full(64, 48, kind=kind)
        clip.clip_grad_norm_([p], 1.0)
        clip.clip_grad_value_([p], 1.0)
        make([p]).step()
    v = full(64, kind=kind, grad=True)
    v.grad = full(64, kind=kind)
    ng.optim.Adafactor([v]).step()


def compiled_steps(kind: Any) -> None:
    """Generated kernels: a chain by vectors, broadcast, every form of sums, training steps."""
    nn: Any = ng.nn
    F = nn.functional

    def chain(x: Any, s: float) -> Any:
        y = (x * s + x[0]).exp()
        return y, x.t() + y.t()[:1], x > 0, x.floor().sign(), x.long() // 3

    def sums(x: Any, s: float) -> Any:
        y = x * x * s
        return y.sum(0), y.sum(1), y.mean(), (x > 0).sum(), y.exp().mean(0), y

    for make in (lambda p: ng.optim.SGD(p, 0.1, momentum=0.9), lambda p: ng.optim.Adam(p)):
        middle = nn.LayerNorm(64), nn.Dropout(0.1), nn.GELU()
        net = nn.Sequential(nn.Linear(48, 64), *middle, nn.Linear(64, 10))
        net.to(kind).cuda()
        optimizer = make(net.parameters())

        def step(x: Any, y: Any, net: Any = net, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss

        ng.compile(step)(full(64, 48, kind=kind), full(64, kind=ng.int64))
    for x in (full(64, 48, kind=kind), full(8, 1 << 15, kind=kind), full(1 << 15, 8, kind=kind)):
        ng.compile(sums)(x, 0.5)
    ng.compile(chain)(full(64, 48, kind=kind), 0.5)
    ng.compile(chain)(full(63, 47, kind=kind), 0.5)


def checks(kind: Any) -> None:
    """What looks for NaN; behind the doorway every flag is set, so nothing may read it."""
    flag, x = full(1, kind=ng.int64)._array, full(64, 48, kind=kind)._array
    machine.launch(finite.first_bad, flag, x, False)
    machine.launch(finite.first_made, flag, x, flag, True)
    machine.launch(finite.first_outside, flag, x.reshape((x.size,)), 0.0, 1.0)


def integers() -> None:
    """What has kernels of its own for ints."""
    x = full(64, 48, kind=ng.int64)
    _ = x @ x.t(), x.sum(), x.sum(0), x.amax(1), x.argmax(1), x.sort(1), x.cumsum(1)
    ng.gcd(x, x)
    _ = (
        x.bool().any(),
        x.int().sum(1),
        x.to(ng.uint8).sum(),
        ng.arange(9, device="cuda"),
        ng.linspace(0, 1, 9, device="cuda"),
    )


def halves() -> None:
    """Kernels as they are for halves: some of each file, for their text is that of float32."""
    F = ng.nn.functional
    for kind in (ng.bfloat16, ng.float16):
        x = full(64, 48, kind=kind, grad=True)
        (x.float() * 2).to(kind)
        (x.t() * x.detach().t()).exp().sum().backward()
    x, kind = full(64, 48, kind=ng.bfloat16, grad=True), ng.bfloat16
    _ = x.long().to(kind), x.double().to(kind), x.to(ng.float16), x > 0, x.sum(0), x.var(1)
    target, weight = full(64, kind=ng.int64), full(48, kind=kind, grad=True)
    F.softmax(x, 1).backward(x.detach())
    F.layer_norm(x, (48,), weight, weight).backward(x.detach())
    F.batch_norm(x, weight.detach(), weight.detach(), weight, weight, True).backward(x.detach())
    F.cross_entropy(x, target).backward()
    F.embedding(target, x).sum().backward()
    F.max_pool2d(full(2, 8, 8, 8, kind=kind), 2)
    F.interpolate(full(2, 8, 8, 8, kind=kind), scale_factor=2, mode="bilinear")
    convolutions(kind)
    y = full(64, 48, kind=kind)
    _ = y.sort(1), y.cumsum(1), y.argmax(1), F.dropout(y), ng.cat([y, y])
    for make in (ng.optim.AdamW, lambda p: ng.optim.SGD(p, 0.1, momentum=0.9)):
        x.grad = full(64, 48, kind=kind)
        ng.nn.utils.clip_grad_norm_([x], 1.0)
        make([x]).step()
    cores()


def cores() -> None:
    """Products on tensor cores: of halves with each epilogue and layout, of parts, and of tf32."""
    x = full(4096, 4096, kind=ng.bfloat16)
    _ = x @ x, x @ x.t(), x.t() @ x, x.t() @ x.t()
    single = full(4096, 4096)
    for level in ("highest", "high", "medium"):
        ng.set_float32_matmul_precision(level)
        _ = single @ single
    ng.set_float32_matmul_precision("highest")
    _ = single @ single.t(), single.t() @ single, single.t() @ single.t()
    for kind, channels in ((ng.float32, 128), (ng.bfloat16, 128), (ng.float16, 64)):
        weight = full(channels, 128, 3, 3, kind=kind, grad=True)
        images = full(64, 128, 32, 32, kind=kind, grad=True)
        out = ng.nn.functional.conv2d(images, weight)
        out.backward(out.detach())
    behind = device.driver()
    held, behind.capability = behind.capability, (8, 0)  # which has no wgmma
    _ = x @ x, x.t() @ x.t()
    matrices(ng.float32)
    ng.set_float32_matmul_precision("high")
    _ = single @ single
    ng.set_float32_matmul_precision("highest")
    behind.capability = held
    for n in (64, 704):  # with tiles of 32 and of 64
        x = full(n, n, kind=ng.float16)
        _ = x @ x, x[:, 1:] @ x[:, 1:].t()
    ng.nn.functional.linear(x, x, x[0])
    p = full(64, 64, kind=ng.bfloat16, grad=True)
    for _ in range(2):
        ng.nn.functional.linear(p.detach(), p).backward(p.detach())


def launched() -> dict[tuple[Callable[..., None], tuple], int]:
    """The kernels that ``operations`` start, with the types of their arguments."""
    from numbagrad.kernels.cuda.runtime import launch

    for name, run in operations():
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
    parser.add_argument("--only", default="", help="part of a kernel's name")
    parser.add_argument("--share", type=int, nargs=2, default=[0, 1], metavar=("K", "N"))
    parser.add_argument("--all", action="store_true", help="link each for every architecture")
    chosen = parser.parse_args(arguments)
    device.pretend()
    failed = 0
    kernels = launched()
    for name in sorted(set(pairs()[0]) - set(KNOWN_GAPS)):
        print(f"{name}: has no twin on the GPU, and no reason in benchmarks/cuda_gaps.py")
        failed += 1
    for name in idle_files({kernel.__module__ for kernel, _ in kernels}):
        print(f"{name}: none of its kernels was started; add it to operations()")
        failed += 1
    number, shares = chosen.share
    mine = [each for each in kernels if chosen.only in each[0].__qualname__][number::shares]
    with seldom():
        for kernel, argument_types in mine:
            threads = kernels[kernel, argument_types]
            for report in compile_for(kernel, argument_types, chosen.arch, threads, chosen.all):
                print(report, flush=True)
                failed += bool(report.error or report.spilled)
    print(f"{len(mine)} kernels, {failed} failed")
    return 1 if failed else 0


def idle_files(started: set[str]) -> list[str]:
    """Files of GPU kernels of which no kernel was among those started."""
    folder = Path(ng.__file__).parent / "kernels" / "cuda"
    without = {
        "__init__",
        "attention",
        "banded",
        "bias",
        "depthwise",
        "flex_attention",
        "join",
        "unit_banded",
    }  # start those of others
    without |= {"philox", "turns"}  # are called by kernels
    names = [f"numbagrad.kernels.cuda.{p.stem}" for p in folder.glob("*.py")]
    return sorted(n for n in names if n.rpartition(".")[2] not in without and n not in started)


if __name__ == "__main__":
    sys.exit(main())
