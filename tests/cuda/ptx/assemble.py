"""From statements to words that the machine runs: a row of ints for each instruction.

Registers are numbered: special ones first, then constants and parameters, whose values are set
before a block starts, then the kernel's. Start reading at ``assemble``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from .parse import Array, Kernel, NotCovered, Statement
from .table import ROWS, known_as

__all__ = ["CONTROL", "DOUBLES", "SPACES", "SPECIAL", "WORDS", "Code", "assemble"]

WORDS = 20
"""Words of an instruction: what it is, and its operands."""

CONTROL = {
    name: number
    for number, name in enumerate(
        "jump branch exit barrier reduce load store shuffle vote mma to_generic from_generic "
        "fence trap change squares copy group product ordered more".split()
    )
}
"""What the machine does itself, by number; rows of the table follow."""

OPERATIONS = {name: len(CONTROL) + number for number, name in enumerate(ROWS)}
SPACES = {"generic": 0, "global": 1, "shared": 2, "local": 3}
SHUFFLES = {"up": 0, "down": 1, "bfly": 2, "idx": 3}
VOTES = {"all": 0, "any": 1, "uni": 2, "ballot": 3}
PRODUCTS = {
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": 0,
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32": 1,
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32": 2,
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64": 3,
    "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64": 4,
    "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64": 5,
}
DOUBLES = 3
"""The first product of float64."""

CHANGES = {
    name: number for number, name in enumerate("add min max and or xor exch cas inc dec".split())
}
SPECIAL = (
    *(f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"),
    "%laneid",
    "%warpid",
)
"""Registers that a block and a thread find set, by number."""

APART = 256
"""Bytes after each shared or local array that belong to nobody, so that a step too far shows."""


@dataclass
class Code:
    """A kernel for the machine. preset: registers with a value of their own, and the values.

    open: where the shared array begins whose size the launch says; -1 if there is none. groups:
    whether it has ``wgmma``, and so is for compute capability 9.0 alone.
    """

    name: str
    words: np.ndarray
    statements: list[Statement]
    registers: int
    preset: dict[int, int]
    parameters: list[tuple[int, str]]
    fields: dict[str, list[tuple[int, int]]]
    sizes: dict[str, int]
    open: int = -1
    groups: bool = False


@dataclass
class _Assembler:
    kernel: Kernel
    place: dict[str, int]  # addresses of arrays of global memory
    registers: dict[str, int] = field(default_factory=dict)
    preset: dict[int, int] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    rows: list[list[int]] = field(default_factory=list)
    origins: list[Statement] = field(default_factory=list)
    targets: list[tuple[int, int, str]] = field(default_factory=list)
    arrays: dict[str, int] = field(default_factory=dict)
    fields: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    statement: Statement = field(default_factory=lambda: Statement(""))
    calls: list[str] = field(default_factory=list)
    open: int = -1  # where the array begins whose size the launch says

    def refuse(self, why: str) -> NotCovered:
        return NotCovered(f"{self.kernel.name[-60:]}: {self.statement}: {why}")

    # -- operands ----------------------------------------------------------------------------------

    def register(self, word: str) -> int:
        """The number of a register, by its name."""
        return self.registers.setdefault(word, len(self.registers))

    def constant(self, value: int) -> int:
        value %= 1 << 64
        number = self.register(f"={value}")
        self.preset[number] = value
        return number

    def value(self, word: str | tuple[str, ...]) -> int:
        """The register that holds an operand."""
        assert isinstance(word, str)
        if word == "_":
            return self.register("_")
        if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", word):
            return self.constant(int(word.rstrip("U"), 0))
        if re.fullmatch(r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}", word):
            return self.constant(int(word[2:], 16))
        if word == "WARP_SZ":
            return self.constant(32)
        if word.rpartition(".")[2] in self.kernel.arrays or word in self.kernel.arrays:
            return self.constant(self.address(word))
        known = word in SPECIAL or word in self.kernel.registers
        if not known and word.rstrip("0123456789") not in self.kernel.ranges:
            raise self.refuse(f"{word} is not an operand that is known")
        return self.register(word)

    def address(self, word: str) -> int:
        """Where an array lies: in its window, or in global memory."""
        name = word if word in self.kernel.arrays else word.rpartition(".")[2]
        return self.arrays[name] if name in self.arrays else self.place[name]

    def parameter(self, word: str) -> int:
        """The register that stands for ``[name+offset]`` of parameters."""
        name, _, offset = word.strip("[]").partition("+")
        while name in self.aliases:
            name = self.aliases[name]
        return self.register(f"{name}+{int(offset or 0)}")

    def memory(self, word: str | tuple[str, ...]) -> tuple[int, int]:
        """The register of an address, and what is added to it."""
        assert isinstance(word, str) and word[0] == "["
        base, sign, offset = re.fullmatch(r"\[(.+?)(?:([+-]+)(\d+))?\]", word).groups()
        step = int(offset or 0) * (-1 if sign and "-" in sign else 1)
        return self.value(base), step

    # -- instructions ------------------------------------------------------------------------------

    def emit(self, operation: int, *words: int) -> None:
        self.rows.append([operation, *words, *[0] * (WORDS - 1 - len(words))])
        self.origins.append(self.statement)

    def operate(self, name: str, result: int, *operands: int) -> None:
        """An instruction of the table."""
        self.emit(OPERATIONS[name], result, *operands)

    def jump(self, label: str, *guard: int) -> None:
        """To ``label``, if there is a guard where its register is what the next word says."""
        self.targets.append((len(self.rows), 1, label))
        self.emit(CONTROL["branch" if guard else "jump"], 0, *guard)

    def guarded(self, word: str) -> tuple[int, int]:
        return self.value(word.lstrip("!")), 0 if word[0] == "!" else 1

    def lay_out(self) -> None:
        """Give every shared and local array its place in the window of the block or the thread."""
        for space in ("shared", "local"):
            at = APART
            arrays = [a for a in self.kernel.arrays.values() if a.space == space]
            for array in sorted(arrays, key=lambda a: a.size == 0):
                at = -(-at // max(array.align, 16)) * max(array.align, 16)
                self.arrays[array.name] = at
                if array.size == 0:
                    self.open = at
                else:
                    self.fields.setdefault(space, []).append((at, array.size))
                at += array.size + APART
            self.sizes[space] = -(-at // APART) * APART

    def run(self) -> None:
        for name in SPECIAL:
            self.register(name)
        self.lay_out()
        for statement in self.kernel.statements:
            self.statement = statement
            self.one(statement)
        for at, word, label in self.targets:
            if label not in self.labels:
                raise self.refuse(f"no label {label}")
            self.rows[at][word] = self.labels[label]

    def one(self, statement: Statement) -> None:
        name, operands = statement.name, statement.operands
        if name == "label":
            self.labels[operands[0]] = len(self.rows)
        elif name == "alias":
            self.aliases[operands[0]] = operands[1]
        elif name == "enter":
            self.calls.append(operands[0])
        elif name == "leave":
            self.labels[f"after {self.calls.pop()}"] = len(self.rows)
        elif name in ("bra", "bra.uni"):
            guard = self.guarded(statement.guard) if statement.guard else ()
            self.jump(operands[0], *guard)
        elif statement.guard:
            after = f"skip {len(self.rows)}"
            register, wanted = self.guarded(statement.guard)
            self.jump(after, register, 1 - wanted)
            self.plain(name, operands)
            self.labels[after] = len(self.rows)
        else:
            self.plain(name, operands)

    def plain(self, name: str, operands: tuple) -> None:
        """An instruction without a guard."""
        parts = name.split(".")
        find = getattr(self, f"_{parts[0]}", None)
        if find is not None:
            find(parts, operands)
        elif ".cc." in name or parts[0] in ("addc", "subc", "madc"):
            self.carried(name, operands)
        else:
            self.tabled(name, operands)

    def tabled(self, name: str, operands: tuple) -> None:
        name = known_as(name)
        if name not in ROWS or len(operands) != 1 + len(ROWS[name].operands):
            raise self.refuse("this instruction is in no row of the table")
        self.operate(name, *map(self.value, operands))

    def carried(self, name: str, operands: tuple) -> None:
        """Sums with a carry, which lives in a register of its own."""
        result, *rest = map(self.value, operands)
        carry, made = self.register("carry"), self.register("carry made")
        if name.partition(".")[0] in ("addc", "subc", "madc"):
            rest.append(carry)
        if name not in ROWS:
            raise self.refuse("this instruction is in no row of the table")
        if ".cc." in name:
            self.operate(f"{name}.carry", made, *rest)
        self.operate(name, result, *rest)
        if ".cc." in name:
            self.operate("mov", carry, made)

    def _setp(self, parts: list[str], operands: tuple) -> None:
        """A comparison, joined with another predicate if there is one; a second result is its
        opposite."""
        words = [p for p in parts[1:] if p not in ("and", "or", "xor", "ftz")]
        joined = [p for p in parts[1:] if p in ("and", "or", "xor")]
        name = known_as(f"setp.{'.'.join(words)}")
        if name not in ROWS or "ftz" in parts:
            raise self.refuse("this comparison is in no row of the table")
        results = operands[0].split("|")
        if len(results) == 1 and not joined:
            self.operate(name, *map(self.value, operands))
            return
        compared = self.register("compared")
        self.operate(name, compared, *map(self.value, operands[1:3]))
        opposite = self.register("opposite")
        self.operate("not.pred", opposite, compared)
        for result, found in zip(map(self.value, results), (compared, opposite), strict=False):
            if joined:
                other = self.value(operands[3].lstrip("!"))
                if operands[3][0] == "!":
                    self.operate("not.pred", self.register("other"), other)
                    other = self.register("other")
                self.operate(f"{joined[0]}.pred", result, found, other)
            else:
                self.operate("mov", result, found)

    def _mov(self, parts: list[str], operands: tuple) -> None:
        """Of one register, or of the halves or quarters of one."""
        to, source = operands
        if isinstance(to, tuple):
            width = int(parts[1][1:]) // len(to)
            held = self.register("held")
            self.operate("mov", held, self.value(source))
            for k, part in enumerate(to):
                if part != "_":
                    shift = self.constant(k * width)
                    self.operate(f"part.{width}", self.value(part), held, shift)
        elif isinstance(source, tuple):
            width, values = int(parts[1][1:]) // len(source), [self.value(p) for p in source]
            while len(values) > 1:
                pairs = zip(values[::2], values[1::2], strict=True)
                joined = []
                for low, high in pairs:
                    out = self.register(f"joined {len(values)} {len(joined)}")
                    self.operate(f"join.{width}", out, low, high)
                    joined.append(out)
                values, width = joined, 2 * width
            self.operate("mov", self.value(to), values[0])
        else:
            true = parts[1] == "pred" and source.lstrip("-").isdigit() and int(source)
            self.operate("mov", self.value(to), self.constant(1) if true else self.value(source))

    def _ld(self, parts: list[str], operands: tuple) -> None:
        if "param" in parts:
            if parts[1:-1] != ["param"]:
                raise self.refuse("a vector of parameters")
            self.operate("mov", self.value(operands[0]), self.parameter(operands[1]))
        else:
            self.access("load", parts, operands[0], operands[1])

    def _st(self, parts: list[str], operands: tuple) -> None:
        if "param" in parts:
            if parts[1:-1] != ["param"]:
                raise self.refuse("a vector of parameters")
            self.operate("mov", self.parameter(operands[0]), self.value(operands[1]))
        else:
            self.access("store", parts, operands[1], operands[0])

    def access(self, which: str, parts: list[str], values: str | tuple, address: str) -> None:
        """Words: space, bytes of an element, how many, whether signed, address, step, registers."""
        known = (
            "nc",
            "v2",
            "v4",
            "volatile",
            "relaxed",
            "weak",
            "cs",
            "cg",
            "ca",
            "lu",
            "cv",
            "wb",
        )
        names = [p for p in parts[1:-1] if p not in known]
        names = ["global" if n == "const" else n for n in names]
        kind = parts[-1]
        if len(names) > 1 or any(n not in SPACES for n in names) or kind[1:] not in "8 16 32 64":
            raise self.refuse("this way to memory is not known")
        registers = [self.value(v) for v in (values if isinstance(values, tuple) else (values,))]
        space = SPACES[names[0] if names else "generic"]
        base, step = self.memory(address)
        size, signed = int(kind[1:]) // 8, int(kind[0] == "s")
        self.emit(CONTROL[which], space, size, len(registers), signed, base, step, *registers)

    def _cvta(self, parts: list[str], operands: tuple) -> None:
        """Between the addresses of a space and those that know their space."""
        to = parts[1] == "to"
        space = parts[2 if to else 1]
        if space == "const":
            space = "global"
        result, source = map(self.value, operands)
        self.emit(CONTROL["from_generic" if to else "to_generic"], SPACES[space], result, source)

    def _ret(self, parts: list[str], operands: tuple) -> None:
        if self.calls:
            self.jump(f"after {self.calls[-1]}")
        else:
            self.emit(CONTROL["exit"])

    def _exit(self, parts: list[str], operands: tuple) -> None:
        self.emit(CONTROL["exit"])

    def _trap(self, parts: list[str], operands: tuple) -> None:
        self.emit(CONTROL["trap"])

    def _bar(self, parts: list[str], operands: tuple) -> None:
        """``bar.sync 0``, and ``bar.red``: words are what is found (0 count, 1 and, 2 or), result,
        operand."""
        if parts[1] == "warp":
            self.emit(CONTROL["fence"], 1, self.value(operands[0]))
        elif parts[1] == "sync" and operands == ("0",):
            self.emit(CONTROL["barrier"])
        elif parts[1] == "red" and operands[1] == "0" and len(operands) == 3:
            which = {"popc": 0, "and": 1, "or": 2}[parts[2]]
            given = self.value(operands[2].lstrip("!"))
            if operands[2][0] == "!":
                self.operate("not.pred", self.register("other"), given)
                given = self.register("other")
            self.emit(CONTROL["reduce"], which, self.value(operands[0]), given)
        else:
            raise self.refuse("only barrier 0, of all threads of a block")

    def _membar(self, parts: list[str], operands: tuple) -> None:
        self.emit(CONTROL["fence"], 0, 0)

    def _fence(self, parts: list[str], operands: tuple) -> None:
        if parts[1] == "proxy":
            if ".".join(parts) != "fence.proxy.async.shared::cta":
                raise self.refuse("only the fence of wgmma")
            self.emit(CONTROL["ordered"], 3)
        else:
            self.emit(CONTROL["fence"], 0, 0)

    def _shfl(self, parts: list[str], operands: tuple) -> None:
        """Words: mode, result, whether it came from another, source, distance, clamp, members."""
        if parts[1] != "sync" or parts[2] not in SHUFFLES or parts[3] != "b32":
            raise self.refuse("this shuffle is not known")
        result, _, found = operands[0].partition("|")
        into = self.value(found) if found else self.register("_")
        rest = map(self.value, operands[1:])
        self.emit(CONTROL["shuffle"], SHUFFLES[parts[2]], self.value(result), into, *rest)

    def _vote(self, parts: list[str], operands: tuple) -> None:
        """Words: which, result, predicate, members."""
        if parts[1] != "sync" or parts[2] not in VOTES:
            raise self.refuse("this vote is not known")
        given = self.value(operands[1].lstrip("!"))
        if operands[1][0] == "!":
            self.operate("not.pred", self.register("other"), given)
            given = self.register("other")
        result, members = self.value(operands[0]), self.value(operands[2])
        self.emit(CONTROL["vote"], VOTES[parts[2]], result, given, members)

    def _activemask(self, parts: list[str], operands: tuple) -> None:
        self.emit(CONTROL["vote"], 4, self.value(operands[0]), 0, 0)

    def _mma(self, parts: list[str], operands: tuple) -> None:
        """Words: which product, then results, left, right and sums."""
        which = PRODUCTS.get(".".join(parts))
        if which is None:
            raise self.refuse("this product is not known")
        registers = [self.value(word) for group in operands for word in group]
        self.emit(CONTROL["mma"], which, *registers)

    def _wgmma(self, parts: list[str], operands: tuple) -> None:
        """A product, see ``groups.product``, or what orders products."""
        which = {"fence": 0, "commit_group": 1, "wait_group": 2}.get(parts[1])
        if which is not None:
            if operands not in ((), ("0",)):
                raise self.refuse("only waits for all")
            self.emit(CONTROL["ordered"], which)
            return
        shape, half = re.fullmatch(
            r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k16\.f32\.(b?f16)\.b?f16", ".".join(parts)
        ).groups()
        sums, x, y, *ways = operands
        if ways[0] not in ("0", "1") or ways[1:3] != ["1", "1"] or len(sums) != int(shape) // 2:
            raise self.refuse("only sums of products of factors in shared memory")
        registers = [self.value(word) for word in sums]
        turned = [int(way) for way in ways[3:]]
        rest, brain = -(-len(registers) // 16), int(half == "bf16")
        places = self.value(x), self.value(y)
        self.emit(CONTROL["product"], int(shape), brain, *places, *turned, rest, int(ways[0]))
        for begin in range(0, len(registers), 16):
            self.emit(CONTROL["more"], *registers[begin : begin + 16])

    def _ldmatrix(self, parts: list[str], operands: tuple) -> None:
        """Words: whether turned, results, address, step."""
        turned = "trans" in parts
        wanted = f"ldmatrix.sync.aligned.m8n8.x4{'.trans' if turned else ''}.shared.b16"
        if ".".join(parts) != wanted:
            raise self.refuse("only four squares of halves")
        results = map(self.value, operands[0])
        self.emit(CONTROL["squares"], int(turned), *results, *self.memory(operands[1]))

    def _cp(self, parts: list[str], operands: tuple) -> None:
        """Words: address and step in shared and in global memory, what is not 0 for zeros."""
        if parts[2] in ("commit_group", "wait_group"):
            groups = int(operands[0]) if operands else 0
            self.emit(CONTROL["group"], int(parts[2] == "wait_group"), groups)
            return
        parts = [p for p in parts if p != "L2::128B"]
        if ".".join(parts) != "cp.async.cg.shared.global" or operands[2] != "16":
            raise self.refuse("only copies of 16 bytes")
        ignored = self.value(operands[3]) if len(operands) > 3 else -1
        places = *self.memory(operands[0]), *self.memory(operands[1])
        self.emit(CONTROL["copy"], *places, ignored)

    def _atom(self, parts: list[str], operands: tuple) -> None:
        """Words: space, bytes, which, type (0 u, 1 s, 2 f), address, step, result, operands."""
        known = ("relaxed", "acq_rel", "acquire", "release", "gpu", "cta", "sys")
        names = [p for p in parts[1:-1] if p not in known]
        space = names.pop(0) if names[0] in SPACES else "generic"
        kind = parts[-1]
        if len(names) != 1 or names[0] not in CHANGES or kind[1:] not in ("32", "64"):
            raise self.refuse("this change of memory is not known")
        base, step = self.memory(operands[1])
        values = [self.value(v) for v in operands[2:]]
        letter = "bus".find(kind[0])
        sort = 2 if kind[0] == "f" else max(letter - 1, 0)
        if sort == 2 and names[0] not in ("add", "exch", "cas"):
            raise self.refuse("this change of floats is not known")
        self.emit(
            CONTROL["change"], SPACES[space], int(kind[1:]) // 8, CHANGES[names[0]], sort,
            base, step, self.value(operands[0]), *values,
        )  # fmt: skip

    def _red(self, parts: list[str], operands: tuple) -> None:
        self._atom(parts, ("_", *operands))


def global_arrays(kernel: Kernel) -> list[Array]:
    """The arrays of global and constant memory that statements name."""
    text = " ".join(map(str, kernel.statements))
    found = [a for a in kernel.arrays.values() if a.space in ("global", "const")]
    return [a for a in found if a.name in text]


def assemble(kernel: Kernel, place: dict[str, int]) -> Code:
    """``kernel`` as words. place: addresses of its ``global_arrays``."""
    maker = _Assembler(kernel, place)
    maker.run()
    maker.emit(CONTROL["exit"])
    parameters = [(maker.register(f"{name}+0"), kind) for name, kind in kernel.parameters]
    return Code(
        kernel.name,
        np.array(maker.rows, np.int64),
        maker.origins,
        len(maker.registers),
        maker.preset,
        parameters,
        maker.fields,
        maker.sizes,
        maker.open,
        any([row[0] == CONTROL["product"] for row in maker.rows]),
    )
