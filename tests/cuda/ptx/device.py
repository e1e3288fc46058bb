"""The driver that stands behind numbagrad's doorway: memory of the machine, and launches on it.

Memory is as in ``Simulated``: device memory is host memory, and everything happens at once. Start
reading at ``PTX.launcher``.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from numbagrad.kernels.cuda.runtime.allocator import Block, BlockCache
from numbagrad.kernels.cuda.runtime.driver import Simulated

from .compiled import CAPABILITY, code_of
from .machine import Machine
from .memory import GIVEN, WRITTEN, Space

__all__ = ["PTX", "WatchedCache"]

WINDOWS = 64 << 20
"""Bytes for shared and local memory."""

APART = 4096
"""Bytes between segments, which are nobody's."""


class PTX(Simulated):
    """Runs the compiled kernels, with the blocks and grids of a GPU."""

    simulated = False
    name = "ptx"
    capability = CAPABILITY
    total = 1 << 30

    def __init__(self) -> None:
        super().__init__()
        self.space = Space(WINDOWS + self.total + (64 << 20), WINDOWS)
        self.machine = Machine(self.space, int(os.environ.get("NUMBAGRAD_PTX_ORDER", "0")))
        self.queue = 0
        self._free = [(WINDOWS + self.space.base + APART, self.total + (60 << 20))]
        self._sizes: dict[int, int] = {}
        self._codes: dict[Any, Any] = {}
        self._capture: Any = None
        self._streams = 1000
        self._pinned: list[tuple[int, int]] = []
        self.launched: dict[str, int] = {}
        """How often each kernel was run."""

    # -- memory ------------------------------------------------------------------------------------

    def malloc(self, size: int) -> int | None:
        """The first gap that is large enough."""
        if self._used + size > self.total:
            return None
        needed = -(-size // 512) * 512 + APART
        for k, (address, length) in enumerate(self._free):
            at = -(-address // 512) * 512
            if at - address + needed <= length:
                rest = length - (at - address) - needed
                self._free[k : k + 1] = [
                    gap for gap in ((address, at - address), (at + needed, rest)) if gap[1]
                ]
                self._sizes[at] = size
                self._used += size
                return at
        return None

    def free(self, address: int) -> None:
        size = self._sizes.pop(address)
        self._used -= size
        self.space.mark(address, size, 0)
        self._free.append((address, -(-size // 512) * 512 + APART))
        joined: list[tuple[int, int]] = []
        for at, length in sorted(self._free):
            if joined and joined[-1][0] + joined[-1][1] == at:
                joined[-1] = joined[-1][0], joined[-1][1] + length
            else:
                joined.append((at, length))
        self._free = joined

    def blocks(self) -> list[tuple[int, int]]:
        return list(self._sizes.items())

    def give(self, content: bytes) -> int:
        """Put what a kernel brings along into memory that stays."""
        address = self.malloc(len(content))
        assert address is not None
        self.space.mark(address, len(content), GIVEN)
        self.copy_in(address, np.frombuffer(content, np.uint8), 0)
        return address

    def copy_in(self, address: int, source: np.ndarray, stream: Any) -> None:
        super().copy_in(address, source, stream)
        self._wrote(address, source.nbytes)

    def copy_within(self, address: int, source: int, size: int, stream: Any) -> None:
        if self._captures(stream):
            self._capture[1].append(partial(self.copy_within, address, source, size, None))
            return
        at, begin = address - self.space.base, source - self.space.base
        states = self.space.states
        assert states[begin : begin + size].all(), "a copy from memory that is not given out"
        written = states[begin : begin + size].copy()
        super().copy_within(address, source, size, stream)
        self._wrote(address, size)
        states[at : at + size] = written

    def _wrote(self, address: int, size: int) -> None:
        at = address - self.space.base
        assert self.space.states[at : at + size].all(), "a copy to memory that is not given out"
        self.space.mark(address, size, WRITTEN)

    def pinned(self, size: int) -> Any:
        buffer = super().pinned(size)
        self._pinned.append((buffer.ctypes.data, size))
        return buffer

    def is_pinned(self, address: int) -> bool:
        return any([at <= address < at + size for at, size in self._pinned])

    # -- streams and graphs ------------------------------------------------------------------------

    def new_stream(self) -> Any:
        self._streams += 1
        return self._streams

    def begin_capture(self, stream: Any) -> None:
        self._capture = stream, []

    def end_capture(self, stream: Any) -> Any:
        (_, captured), self._capture = self._capture, None
        return captured

    def _captures(self, stream: Any) -> bool:
        return self._capture is not None and self._capture[0] == stream

    # -- launches ----------------------------------------------------------------------------------

    def launcher(
        self, kernel: Callable[..., None], signature: tuple[Any, ...], grid: Any, block: Any,
        shared: int, queue: Any,
    ) -> Callable[..., None]:  # fmt: skip
        """What runs ``kernel`` on the values of its arguments; shared: bytes that are asked for."""
        code = self._codes.get((kernel, signature))
        if code is None:
            code = self._codes[kernel, signature] = code_of(kernel, signature, self.give)
        sizes = [tuple(n) if isinstance(n, tuple) else (n,) for n in (grid, block)]
        grid, block = ((*map(int, n), 1, 1)[:3] for n in sizes)
        kinds = [kind for _, kind in code.parameters]

        def run(*values: Any) -> None:
            if self._captures(queue):
                self._capture[1].append(partial(now, *values))
            else:
                now(*values)

        def now(*values: Any) -> None:
            self.launched[code.name] = self.launched.get(code.name, 0) + 1
            words = [_bits(v, kind) for v, kind in zip(values, kinds, strict=True)]
            self.machine.run(code, grid, block, words, shared)

        return run


def _bits(value: Any, kind: str) -> int:
    """An argument as the 64 bits of a register."""
    if kind == "f64":
        return struct.unpack("<Q", struct.pack("<d", value))[0]
    if kind == "f32":
        return struct.unpack("<I", struct.pack("<f", value))[0]
    return int(value) % (1 << 64)


class WatchedCache(BlockCache):
    """Blocks as tensors see them: only the bytes that were asked for are given out."""

    def take(self, size: int, stream: Any) -> Block:
        block = super().take(size, stream)
        space = self._driver.space  # type: ignore[attr-defined]
        at = block.address - space.base
        space.bytes[at : at + block.size] = 0x5A  # that nothing relies on zeros
        space.mark(block.address, block.size, 0)
        space.mark(block.address, size, GIVEN)
        return block

    def give(self, block: Block, streams: tuple[Any, ...] = ()) -> None:
        self._driver.space.mark(block.address, block.size, 0)  # type: ignore[attr-defined]
        super().give(block, streams)
